//! One group's election, as one operator runs it: observations in, commands out.
//!
//! [`Election::step`] decides from what the operator knows, [`Election::take`] takes the outcomes of commands, and [`Election::observe`]
//! takes what the store's watch reports. The rules of the handover itself are in [`handover`](super::handover).

mod across;
mod bidding;
mod fitness;
mod forecast;
mod giving;
mod handing_over;
mod holder;
mod idle;
mod lock;
mod obligations;
mod outcomes;
mod phase;
mod presence;
mod promotions;
mod records;
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
pub(crate) use self::forecast::forecast;
pub use self::forecast::{Contender, Forecast, Verdict};

use self::bidding::Bidding;
use self::fitness::Fitness;
use self::giving::Giving;
use self::lock::Lock;
use self::obligations::Obligations;
use self::phase::{Losing, Phase, Withdrawal};
use self::promotions::Promotions;
use self::rivals::Rivals;
use self::routes::Routes;
use self::strays::Strays;
use self::terms::Terms;
use self::troubles::Troubles;
use self::upkeep::{Upkeep, Wanted};
use self::workloads::{Circumstances, Target, WorkloadReconciler};
use super::backoff::Backoff;
use super::handover::{Handover, Purpose};
use super::identity::Identity;
use super::step::Effects;
use super::step::{Ops, Step};
use super::timers::{Timer, Timers};
use super::view::{Desired, Situation, View};
use super::{
    AbsentLeader, Announcement, Command, Failure, Flapping, Holder, Instant, LockValidity, Markings, OpId, Pod, Record,
    Scope, Stored, Term, Timestamp, Uid, Version, WorkloadId,
};

/// One group's election. Each part keeps its own state; this type only asks the parts in order.
#[derive(Clone, Debug)]
pub struct Election {
    id: Identity,
    ops: Ops,
    timers: Timers,
    /// The write of the record, or the handover, that is under way.
    phase: Phase,
    lock: Lock,
    terms: Terms,
    rivals: Rivals,
    giving: Giving,
    bidding: Bidding,
    /// The leader that is being demoted because this cluster may have lost the lock.
    losing: Option<Losing>,
    strays: Strays,
    fitness: Fitness,
    /// Promotions whose outcome is unknown.
    promotions: Promotions,
    upkeep: Upkeep,
    routes: Routes,
    /// Pods that the operator can't label.
    troubles: Troubles,
    workloads: WorkloadReconciler,
    obligations: Obligations,
    /// For a withdrawal: how far the operator has confirmed that nothing is left.
    withdrawal: Withdrawal,
    /// Whether the last view says that the election no longer exists.
    gone: bool,
    /// The newest generation that the API server has reported, past the cache that the views are made from.
    known_generation: i64,
    backoff: Backoff,
    failure: Option<Failure>,
    /// Announcements that are still to be made.
    told: Vec<Announcement>,
    situation: Situation,
    leader: Option<(Term, Holder, Timestamp)>,
    /// T1: the leader of which something is missing.
    absent: Option<AbsentLeader>,
    unconfirmed: bool,
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
            backoff: Backoff::new(&uid.0),
            bidding: Bidding::new(&uid.0),
            routes: Routes::new(&uid.0),
            workloads: WorkloadReconciler::new(&uid.0, first),
            id: Identity { name, uid, operator_id },
            ops: Ops::after(first),
            timers: Timers::default(),
            phase: Phase::Idle,
            lock: Lock::new(stored),
            terms: Terms::default(),
            rivals: Rivals::default(),
            giving: Giving::default(),
            losing: None,
            strays: Strays::default(),
            fitness: Fitness::default(),
            promotions: Promotions::default(),
            upkeep: Upkeep::default(),
            troubles: Troubles::default(),
            obligations: Obligations::default(),
            withdrawal: Withdrawal::Unconfirmed,
            gone: false,
            known_generation: 0,
            failure: None,
            told: Vec::new(),
            situation: Situation::Starting,
            leader: None,
            absent: None,
            unconfirmed: false,
            lingers: false,
        }
    }

    /// The same election, if it had reached a term before its store was put back to an earlier state.
    #[must_use]
    pub(crate) fn that_had_reached(mut self, term: Term) -> Self {
        self.terms = Terms::that_had_reached(term);
        self
    }

    /// The election's situation, for the status.
    pub fn situation(&self) -> &Situation {
        &self.situation
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
        self.terms.highest()
    }

    /// The last failure, which the operator is retrying.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// When the next step is due if nothing else happens.
    pub fn wake(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Whether this cluster can't confirm at present that it holds the lock.
    pub fn is_unconfirmed(&self) -> bool {
        self.unconfirmed
    }

    /// Whether a handover or a write of the record is under way.
    pub fn is_busy(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Reading(_))
    }

    /// Whether a leader is being promoted that replaces no other one.
    pub fn is_first_handover(&self) -> bool {
        let is_first =
            |handover: &Handover| handover.previous.is_none() && matches!(handover.purpose, Purpose::Elect(_));
        matches!(&self.phase, Phase::HandingOver(handover) if is_first(handover))
    }

    /// Whether the election is in the middle of something: it is busy, writes workloads, or lets them end before it gives up the lock.
    pub fn is_unfinished(&self) -> bool {
        self.is_busy()
            || self.workloads.is_busy()
            || self.routes.is_busy()
            || self.winding_down().is_some()
            || self.lingers
    }

    /// The moment until which the election keeps the lock without a leader, because workloads are still ending.
    pub fn winding_down(&self) -> Option<Instant> {
        self.workloads.winding_down()
    }

    /// W1: the moment until which the operator enables no workload, because workloads may still run in another cluster.
    pub fn workloads_wait(&self, now: Instant) -> Option<Instant> {
        self.obligations.wait(self.lock.record(), now)
    }

    /// The last failure of each workload that can't follow the leader.
    pub fn workload_failures(&self) -> &BTreeMap<WorkloadId, Failure> {
        self.workloads.failures()
    }

    /// The workloads that another program keeps changing although the operator has corrected them.
    pub fn contested_workloads(&self, now: Instant) -> impl Iterator<Item = &WorkloadId> {
        self.workloads.contested(now)
    }

    /// Whether a promotion, or a write that lets a workload run, is still wanted. The executor asks right before it sends the request.
    pub(crate) fn wants(&self, op: OpId) -> bool {
        let handover = match &self.phase {
            Phase::HandingOver(handover) => handover.promotion(),
            _ => None,
        };
        handover == Some(op) || self.routes.wants(op) || self.workloads.wants_to_run(op)
    }

    /// Whether a pod shows a leader label, or may soon: that of this spec, or of one that the record was written under.
    pub(crate) fn may_lead(&self, pod: &Pod, scope: &Scope) -> bool {
        self.promotions.contains(&pod.uid) || self.lock.shows_leader(pod, scope)
    }

    /// The version of the lock, as last known.
    pub fn version(&self) -> Option<Version> {
        self.lock.version()
    }

    /// The record, as last known.
    pub fn record(&self) -> Option<&Record> {
        self.lock.record()
    }

    /// H16: whether the record claims that it was written on pods under scopes that this cluster never noted.
    pub fn ignores_claims(&self) -> bool {
        self.lock.has_claims()
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
        matches!(self.phase, Phase::Idle) && self.lock.is_fenced(self.version()) && self.record().is_some_and(clean)
    }

    /// Takes what the store's watch shows, and ignores it if it is older than what the election knows already.
    pub(crate) fn observe(&mut self, at: Version, stored: Arc<Stored>) {
        self.lock.observe(at, stored);
    }

    /// Decides what to do now.
    pub(crate) fn step(&mut self, view: &View) -> Effects {
        self.promotions.forget(self.upkeep.gone(), view.pods);
        self.upkeep.retain(view.pods);
        self.routes.retain(view);
        let present = |uid: &Uid| view.pods.iter().find(|pod| pod.uid == *uid);
        self.troubles.retain(view.generation, |uid| present(uid).is_some());
        let gone = self.upkeep.gone();
        let pods: Vec<&Pod> = view.pods.iter().copied().filter(|pod| !gone.contains(&pod.uid)).collect();
        let strays = self.strays.beside(view.key, view.strays);

        let (id, mut ops, view) = (self.id.clone(), self.ops, view.of(&pods, &strays));
        let mut step = Step::new(&id, &view, &mut ops);
        self.take_step(&mut step);
        self.look_for_leader(&step);
        self.fitness.await_calm(&mut step);
        let (timers, effects) = step.end();
        (self.ops, self.timers) = (ops, timers);
        self.promotions.note(&effects.requests);
        effects
    }

    /// Decides from the view, without the pods that are gone, and with the locks that a listing has shown.
    fn take_step(&mut self, step: &mut Step) {
        let view = step.view;
        for announcement in self.told.drain(..) {
            step.announce(announcement);
        }
        self.workloads.begin_step();
        self.gone = view.gone;
        self.lingers = view.desired == Desired::Leave && self.workloads.lets_run(Target::Await, step);
        if let (true, Some(noted)) = (view.policy.shared, view.noted) {
            self.lock.believe(noted, view.scope, view.generation);
        }
        self.terms.learn(&self.lock, &self.id, view);
        self.lock.learn(&self.id, view.policy.shared);
        self.unconfirmed = view.policy.validity != LockValidity::Ended && !view.policy.validity.lasts(view.now);
        self.rivals.note(&self.lock, view.now);
        self.obligations.note(&self.lock, view);
        if let Some(unheld) = self.unheld(step) {
            if view.now < view.policy.not_before {
                step.wake_at(Timer::StoreRewound, view.policy.not_before);
            }
            self.stand_down(unheld, step);
            if !self.promotions.is_empty() || (!unheld.known && view.desired != Desired::Withdraw) {
                return;
            }
        } else if matches!(self.phase, Phase::HandingOver(_)) {
            self.route(step);
        } else if matches!(view.desired, Desired::Freeze | Desired::Refuse) || self.is_without_leader(view) {
            self.route_to_present(step);
        }
        self.bid(step);
        if let Some(until) = self.backoff.waits(view.now) {
            step.wake_at(Timer::Retry, until);
            return;
        }
        while self.go_on(step) {}
    }

    /// Continues with what is under way. Returns whether to look again.
    fn go_on(&mut self, step: &mut Step) -> bool {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::HandingOver(handover) => self.hand_over(handover, step),
            Phase::Idle => self.idle(step),
            Phase::WriteUnknown(None, intent) => {
                let op = step.request(Command::ReadRecord { key: intent.key.clone() });
                self.lock.note_asked();
                self.phase = Phase::WriteUnknown(Some(op), intent);
                false
            }
            busy => {
                self.phase = busy;
                false
            }
        }
    }

    /// Brings the workloads to a target. Returns whether nothing is left to do.
    fn reconcile(&mut self, target: Target, step: &mut Step) -> bool {
        let around = Circumstances::of(&self.lock, self.terms, &self.obligations, step.view);
        self.workloads.reconcile(target, around, step)
    }

    /// Gives back the workloads that this election no longer has anything to do with, and leaves all others as they are.
    fn give_back(&mut self, step: &mut Step) {
        let around = Circumstances::of(&self.lock, self.terms, &self.obligations, step.view);
        self.workloads.give_back(around, step);
    }

    /// Corrects the marks on all pods but the leader. Returns whether nothing was left to do.
    fn maintain(&mut self, stored: &Stored, leader: Option<&Pod>, step: &mut Step) -> bool {
        let view = step.view;
        // While no candidate can be elected, the record may still be that of an earlier spec, or be under an earlier key.
        let records = view.strays.iter().map(|(_, stray)| stray).chain([stored]).filter_map(Stored::written);
        // H16: if a user has deleted the record, upkeep would remove the mark and leave the labels that this cluster noted.
        let noted = view.noted.unwrap_or_default();
        let scopes = records.flat_map(Record::scopes).chain(self.lock.scopes()).chain(noted);
        let former: Vec<Markings> =
            scopes.map(|scope| &scope.markings).filter(|old| *old != &view.scope.markings).cloned().collect();
        let wanted = Wanted { stored, term: self.terms.highest(), former: &former, leader };
        self.upkeep.maintain(&wanted, &mut self.promotions, &self.troubles, step)
    }

    fn fail(&mut self, failure: Failure, now: Instant) {
        self.failure = Some(failure);
        self.backoff.delay(now);
    }
}
