//! One group's election, as one operator runs it: observations in, commands out.
//!
//! [`Election::step`] decides from what the operator knows, [`Election::take`] takes the outcomes of commands, and [`Election::observe`]
//! takes what the store's watch reports. The rules of the handover itself are in [`handover`](super::handover).

mod across;
mod bidding;
mod electing;
mod existence;
mod fitness;
mod forecast;
mod former;
mod giving;
mod handing_over;
mod holder;
mod judge;
mod led;
mod lock;
mod obligations;
mod outcomes;
mod phase;
mod pod_writes;
mod promotions;
mod records;
mod release;
mod report;
mod rivals;
mod routes;
mod routing;
mod strays;
mod switchovers;
mod terms;
#[cfg(test)]
mod tests;
mod troubles;
mod unheld;
mod upkeep;
mod wind_down;
mod withdraw;
mod workloads;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use self::fitness::Stays;
pub use self::forecast::{Contender, Forecast, Verdict, forecast};

use self::across::{Across, Bids};
use self::existence::Existence;
use self::fitness::Fitness;
use self::handing_over::HandingOver;
use self::judge::Judge;
use self::led::Led;
use self::outcomes::Outcomes;
use self::phase::{Losing, Phase, Withdrawal};
use self::pod_writes::PodWrites;
use self::records::Records;
use self::report::Report;
use self::rivals::Rivals;
use self::routes::{Goal, Routes};
use self::routing::route;
use self::strays::Strays;
use self::switchovers::Switching;
use self::terms::Terms;
use self::unheld::{WithoutLock, unheld};
use self::withdraw::Withdraw;
use self::workloads::{Target, WorkloadReconciler};
use super::handover::{Handover, Purpose};
use super::identity::Identity;
use super::step::Effects;
use super::step::{Ops, Step};
use super::switchover::{self, Asked};
use super::timers::{Timer, Timers};
use super::view::{Desired, Situation, View};
use super::{
    AbsentLeader, Failure, Flapping, Holder, Instant, LockValidity, OpId, Outcome, Pod, Record, Scope, Stored, Term,
    Timestamp, Uid, Version, WorkloadId,
};

/// One group's election. Each part keeps its own state. This type chooses what is done, and shows it the parts that it may touch.
#[derive(Clone, Debug)]
pub struct Election {
    id: Identity,
    ops: Ops,
    timers: Timers,
    records: Records,
    rivals: Rivals,
    across: Across,
    /// The leader that is being demoted because this cluster may have lost the lock.
    losing: Option<Losing>,
    strays: Strays,
    fitness: Fitness,
    pod_writes: PodWrites,
    routes: Routes,
    workloads: WorkloadReconciler,
    existence: Existence,
    report: Report,
    /// The election is to leave, and something may still run here because of it.
    lingers: bool,
}

impl Election {
    /// An election that has not decided anything yet. `operator_id` must be unique among all operators and all their starts. `first` must
    /// be far above every id whose outcome this process may still await for the same election. `stored` is the lock with its version, as
    /// the store's watch shows it, or `None` if it is unknown.
    pub(crate) fn new(
        name: String,
        uid: Uid,
        operator_id: String,
        stored: Option<(Version, Arc<Stored>)>,
        first: OpId,
    ) -> Self {
        Self {
            report: Report::new(&uid.0),
            across: Across::new(&uid.0),
            routes: Routes::new(&uid.0),
            workloads: WorkloadReconciler::new(&uid.0, first),
            id: Identity { name, uid, operator_id },
            ops: Ops::after(first),
            timers: Timers::default(),
            records: Records::new(stored),
            rivals: Rivals::default(),
            losing: None,
            strays: Strays::default(),
            fitness: Fitness::default(),
            pod_writes: PodWrites::default(),
            existence: Existence::new(),
            lingers: false,
        }
    }

    /// The same election, if it had reached a term before its store was put back to an earlier state.
    #[must_use]
    pub(crate) fn that_had_reached(mut self, term: Term) -> Self {
        self.records.terms = Terms::that_had_reached(term);
        self
    }

    /// T1: the leader that was promoted and is there: its term, its pod, and when it began to lead.
    pub fn leader(&self) -> Option<&(Term, Holder, Timestamp)> {
        self.report.leader()
    }

    /// T1: the leader that the record names, if something is missing of it and no other pod takes its place.
    pub fn absent(&self) -> Option<&AbsentLeader> {
        self.report.absent.as_ref()
    }

    /// The failure that keeps the Service from reaching the leader, and that the operator is retrying.
    pub fn route_failure(&self) -> Option<&Failure> {
        self.routes.failure()
    }

    /// The election's situation, for the status.
    pub fn situation(&self) -> &Situation {
        &self.report.situation
    }

    /// Why a leader that fails its probe stays.
    pub fn stays(&self) -> Stays {
        self.fitness.stays()
    }

    /// The changes of leader in a row, as far as this operator has made them.
    pub fn flapping(&self) -> &Flapping {
        self.fitness.flapping()
    }

    /// The highest term that this operator has seen.
    pub fn term(&self) -> Term {
        self.records.terms.highest()
    }

    /// The last failure, which the operator is retrying.
    pub fn failure(&self) -> Option<&Failure> {
        self.report.failure.as_ref()
    }

    /// E2: a former leader that is to be deleted, and why it can't be.
    pub fn undeleted(&self) -> Option<(&str, &str)> {
        let leaving = &self.records.lock.record()?.leaving;
        leaving
            .iter()
            .find_map(|former| Some((former.pod.as_deref()?, self.pod_writes.troubles.why_undeleted(&former.uid)?)))
    }

    /// When the next step is due if nothing else happens.
    pub fn wake(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Whether this cluster can't confirm at present that it holds the lock.
    pub fn is_unconfirmed(&self) -> bool {
        self.report.unconfirmed
    }

    /// Whether a handover or a write of the record is under way.
    pub fn is_busy(&self) -> bool {
        !matches!(self.records.phase, Phase::Idle | Phase::Reading(_))
    }

    /// Whether a leader is being promoted that replaces no other one.
    pub fn is_first_handover(&self) -> bool {
        let is_first =
            |handover: &Handover| handover.previous.is_none() && matches!(handover.purpose, Purpose::Elect(_));
        matches!(&self.records.phase, Phase::HandingOver(handover) if is_first(handover))
    }

    /// Whether the election is in the middle of something: it is busy, writes workloads, or lets them end before it gives up the lock.
    pub fn is_unfinished(&self) -> bool {
        self.is_busy()
            || self.workloads.is_busy()
            || self.routes.is_busy()
            || self.winding_down().is_some()
            || self.lingers
    }

    /// Whether the election awaits nothing, not even a newer version of a pod.
    pub fn is_idle(&self) -> bool {
        !self.is_unfinished() && matches!(self.records.phase, Phase::Idle) && self.pod_writes.is_idle()
    }

    /// The moment until which the election keeps the lock without a leader, because workloads are still ending.
    pub fn winding_down(&self) -> Option<Instant> {
        self.workloads.winding_down()
    }

    /// W1: the moment until which the operator enables no workload, because workloads may still run in another cluster.
    pub fn workloads_wait(&self, now: Instant) -> Option<Instant> {
        self.records.obligations.wait(self.records.lock.record(), now)
    }

    /// The last failure of each workload that can't follow the leader.
    pub fn workload_failures(&self) -> &BTreeMap<WorkloadId, Failure> {
        self.workloads.failures()
    }

    /// The workloads that another program keeps changing although the operator has corrected them.
    pub fn contested_workloads(&self, now: Instant) -> impl Iterator<Item = &WorkloadId> {
        self.workloads.contested(now)
    }

    /// Whether a promotion, or a write that lets a workload run, is still wanted. If not, the caller takes back the permit that the executor
    /// looks at right before it sends the request.
    pub(crate) fn wants(&self, op: OpId) -> bool {
        let handover = match &self.records.phase {
            Phase::HandingOver(handover) => handover.promotion(),
            _ => None,
        };
        handover == Some(op) || self.routes.wants(op) || self.workloads.wants_to_run(op)
    }

    /// Whether a pod shows a leader label, or may soon: that of this spec, or of one that the record was written under.
    pub(crate) fn may_lead(&self, pod: &Pod, scope: &Scope) -> bool {
        self.pod_writes.promotions.contains(&pod.uid) || self.records.lock.shows_leader(pod, scope)
    }

    /// The version of the lock, as last known.
    pub fn version(&self) -> Option<Version> {
        self.records.lock.version()
    }

    /// The record, as last known.
    pub fn record(&self) -> Option<&Record> {
        self.records.lock.record()
    }

    /// The pod that leads, or that this operator is making the leader.
    pub fn coming_leader(&self) -> Option<&Holder> {
        match &self.records.phase {
            Phase::Writing(_, intent) | Phase::WriteUnknown(_, intent) => intent.record.holder.as_ref(),
            Phase::HandingOver(handover) => handover.target(),
            _ => self.record().filter(|record| record.election == self.id.uid)?.holder.as_ref(),
        }
    }

    /// H16: whether the record claims that it was written on pods under scopes that this cluster never noted.
    pub fn ignores_claims(&self) -> bool {
        self.records.lock.has_claims()
    }

    /// H16: whether nothing of other specs is left on pods, and nothing can come to them any more, because this process wrote the record
    /// that says so, in an unbroken chain.
    pub fn has_cleaned_up(&self, scope: &Scope, generation: i64) -> bool {
        let clean = |record: &Record| {
            record.former.is_empty()
                && record.scope == *scope
                && record.election == self.id.uid
                && record.generation == generation
        };
        matches!(self.records.phase, Phase::Idle)
            && self.records.lock.is_fenced(self.version())
            && self.record().is_some_and(clean)
    }

    /// The verdict on a switchover. `gives_up`: the switchover must not be carried out any more.
    pub(crate) fn judge(&self, asked: &Asked, gives_up: bool, view: &View) -> switchover::Verdict {
        let Self { id, records, report, across, fitness, pod_writes, .. } = self;
        let switching = Switching { id, terms: records.terms, fitness, pod_writes };
        Judge { switching, records, report, across }.judge(asked, gives_up, view)
    }

    /// Takes what the store's watch shows, and ignores it if it is older than what the election knows already.
    pub(crate) fn observe(&mut self, at: Version, stored: Arc<Stored>) {
        self.records.lock.observe(at, stored);
    }

    /// Takes the outcome of a command.
    pub(crate) fn take(&mut self, op: OpId, outcome: Outcome, now: Instant) {
        let Self { id, records, report, pod_writes, routes, workloads, across, strays, existence, .. } = self;
        let outcomes = Outcomes { id, records, report, pod_writes, routes, workloads, across, strays, existence };
        outcomes.take(op, outcome, now);
    }

    /// Decides what to do now.
    pub(crate) fn step(&mut self, view: &View) -> Effects {
        self.pod_writes.retain(view);
        self.routes.retain(view);
        let gone = self.pod_writes.upkeep.gone();
        let pods: Vec<&Pod> = view.pods.iter().copied().filter(|pod| !gone.contains(&pod.uid)).collect();
        let strays = self.strays.beside(view.key, view.strays);

        let (id, mut ops, view) = (self.id.clone(), self.ops, view.of(&pods, &strays));
        let mut step = Step::new(&id, &view, &mut ops);
        self.take_step(&mut step);
        self.report.look_for_leader(&self.records.phase, &self.records.lock, &step);
        self.fitness.await_calm(&mut step);
        let (timers, effects) = step.end();
        (self.ops, self.timers) = (ops, timers);
        self.pod_writes.promotions.note(&effects.requests);
        effects
    }

    /// Decides from the view, without the pods that are gone, and with the locks that a listing has shown.
    fn take_step(&mut self, step: &mut Step) {
        let view = step.view;
        for announcement in self.report.news.drain(..) {
            step.announce(announcement);
        }
        self.workloads.begin_step();
        self.existence.gone = view.gone;
        self.lingers = view.desired == Desired::Leave && self.workloads.lets_run(Target::Await, step);
        self.records.learn(step);
        self.report.unconfirmed = view.policy.validity != LockValidity::Ended && !view.policy.validity.lasts(view.now);
        self.rivals.note(&self.records.lock, view.now);
        if let Some(unheld) = unheld(&self.records.lock, step) {
            if view.now < view.policy.not_before {
                step.wake_at(Timer::StoreRewound, view.policy.not_before);
            }
            self.without_lock().stand_down(&unheld, step);
            if !self.pod_writes.promotions.is_empty() || (!unheld.known && view.desired != Desired::Withdraw) {
                return;
            }
        } else if matches!(self.records.phase, Phase::HandingOver(_)) {
            route(&self.records, self.existence.withdrawal, &mut self.routes, step);
        } else if matches!(view.desired, Desired::Freeze | Desired::Refuse)
            || self.report.is_without_leader(&self.records.lock, step)
        {
            self.routes.advance(&Goal::Present, step);
        }
        self.bids().bid(step);
        if let Some(until) = self.report.backoff.waits(view.now) {
            step.wake_at(Timer::Retry, until);
            return;
        }
        while self.go_on(step) {}
    }

    /// Continues with what is under way. Returns whether to look again.
    fn go_on(&mut self, step: &mut Step) -> bool {
        match std::mem::replace(&mut self.records.phase, Phase::Idle) {
            Phase::HandingOver(handover) => self.handing_over().go_on(handover, step),
            Phase::Idle => self.idle(step),
            Phase::WriteUnknown(None, intent) => {
                self.records.read_back(intent, step);
                false
            }
            busy => {
                self.records.phase = busy;
                false
            }
        }
    }

    /// Decides what to do while nothing is under way. Returns whether to look again.
    fn idle(&mut self, step: &mut Step) -> bool {
        let view = step.view;
        if matches!(view.desired, Desired::Refuse | Desired::Freeze) {
            let PodWrites { upkeep, troubles, .. } = &mut self.pod_writes;
            upkeep.release(troubles, step);
        }
        if view.desired == Desired::Refuse {
            let record = self.records.lock.record().filter(|record| record.election == self.id.uid);
            self.report.keep_leader(record);
            // W11.
            self.workloads.give_back(self.records.circumstances(view), step);
            return false;
        }
        if view.desired == Desired::Freeze {
            let record = self.records.lock.record();
            if matches!(self.report.situation, Situation::AwaitingEnd(_)) {
                self.report.situation = Situation::Vacant;
            }
            // Without a record of its own in a shared store, this election is still taking labels off.
            if self.report.situation == Situation::HandingOver && (record.is_some() || !view.policy.shared) {
                // The handover is over, or never began, and no other one begins.
                let led = record.is_some_and(|record| record.holder.is_some());
                self.report.situation = if led { Situation::Led } else { Situation::Vacant };
            }
            self.report.keep_leader(record);
            return false;
        }
        if self.existence.known_generation > view.generation && !view.gone {
            // The API server has already reported a newer generation than this view's.
            self.report.situation = Situation::Stale;
            return false;
        }
        if view.desired != Desired::Withdraw {
            self.existence.withdrawal = Withdrawal::Unconfirmed;
        } else if self.existence.withdrawal == Withdrawal::Unconfirmed {
            // There may already be another election of that name. And the caches may be older than the last handover.
            self.records.ask_election(None, step);
            if !view.key.is_none() {
                self.records.lock.forget();
            }
            return false;
        }
        let Some(shared) = self.records.lock.share() else {
            self.records.read(step);
            return false;
        };
        let stored = &*shared;
        if view.desired == Desired::Withdraw
            && (!self.workloads.release(self.records.circumstances(view), step) || self.workloads.winds_down(step))
        {
            return false;
        }
        if let Stored::Foreign(what) = stored {
            return self.idle_beside_foreign(what.clone(), step);
        }
        if let Some(record) = stored.written()
            && record.election == self.id.uid
            && record.generation > view.generation
        {
            return self.idle_behind_record(stored.version(), step);
        }
        if let (Stored::HeldByOther(..), Desired::Run | Desired::Leave) = (stored, view.desired) {
            // The other clusters of an earlier class wait for this one's lock, and it may even be this one's that holds the present lock, by
            // another class.
            if matches!(self.report.situation, Situation::LedElsewhere(_)) {
                self.withdrawing().clear_strays(step);
            }
            return false;
        }
        if self.withdrawing().clear_strays(step) {
            return false;
        }
        match (view.desired, stored) {
            (Desired::Withdraw, Stored::HeldByOther(..) | Stored::Free(_, None, _)) => {
                self.withdrawing().withdraw(&Stored::Absent, step)
            }
            (Desired::Withdraw, _) => self.withdrawing().withdraw(stored, step),
            (_, Stored::Absent | Stored::Free(..)) if view.policy.shared => {
                let vanished = self.rivals.vanished_until(view);
                self.led().electing().take_lock(stored, vanished, step);
                false
            }
            _ => self.led().run(stored, step),
        }
    }

    /// H10: the record was written for a generation of the election that the operator has not seen yet. Or there never was one, because a
    /// person edited the record, or the cluster was put back to an earlier state and the store of the lock was not.
    fn idle_behind_record(&mut self, version: Option<Version>, step: &mut Step) -> bool {
        self.report.situation = Situation::Stale;
        if self.records.lock.is_confirmed(version) {
            // The operator has asked the API server since, which knows no later generation than this view's.
            self.records.lock.disbelieve();
            return true;
        }
        self.records.ask_election(version, step);
        false
    }

    fn idle_beside_foreign(&mut self, what: String, step: &mut Step) -> bool {
        let view = step.view;
        if view.desired == Desired::Withdraw {
            // The lock is not lictor's, so it stays, and the operator takes the marks off the pods.
            return self.withdrawing().withdraw(&Stored::Absent, step);
        }
        self.report.situation = Situation::Foreign(what);
        self.workloads.reconcile(Target::Follow, self.records.circumstances(view), step);
        if view.policy.shared {
            // The store's watch shows all keys.
            return false;
        }
        // No watch tells when the foreign lock goes, so the operator looks at it again, less and less often.
        self.records.lock.forget();
        self.report.backoff.delay(view.now);
        if let Some(until) = self.report.backoff.waits(view.now) {
            step.wake_at(Timer::Retry, until);
        }
        false
    }

    // The parts that each of these may touch.

    fn led(&mut self) -> Led<'_> {
        let Self { records, report, fitness, pod_writes, routes, workloads, across, .. } = self;
        Led { records, report, fitness, pod_writes, routes, workloads, across }
    }

    fn handing_over(&mut self) -> HandingOver<'_> {
        let Self { records, report, fitness, pod_writes, routes, existence, .. } = self;
        let withdrawal = &mut existence.withdrawal;
        HandingOver { records, report, fitness, pod_writes, routes, withdrawal }
    }

    fn without_lock(&mut self) -> WithoutLock<'_> {
        let Self { records, report, pod_writes, routes, workloads, losing, .. } = self;
        WithoutLock { records, report, pod_writes, routes, workloads, losing }
    }

    fn withdrawing(&mut self) -> Withdraw<'_> {
        let Self { records, report, pod_writes, routes, strays, existence, .. } = self;
        let withdrawal = &mut existence.withdrawal;
        Withdraw { records, report, pod_writes, routes, strays, withdrawal }
    }

    fn bids(&mut self) -> Bids<'_> {
        let Self { across, fitness, records, pod_writes, routes, workloads, existence, .. } = self;
        let (bidding, known_generation) = (&mut across.bidding, existence.known_generation);
        Bids { bidding, fitness, records, pod_writes, routes, workloads, known_generation }
    }
}
