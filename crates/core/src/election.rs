//! One group's election, as one operator runs it: observations in, commands out.
//!
//! [`Election::step`] decides from what is known, [`Election::take`] takes the outcomes of commands, [`Election::observe`] what the
//! store's watch tells. The rules of the handover itself are in [`handover`](super::handover).

mod fitness;
mod identity;
mod lock;
mod obligations;
mod promotions;
mod records;
mod step;
mod strays;
mod terms;
#[cfg(test)]
mod tests;
mod timers;
mod troubles;
mod unheld;
mod upkeep;
mod view;
mod wind_down;
mod withdraw;
mod workloads;

use std::collections::BTreeMap;

use self::fitness::{Candidate, Decision, Fitness};
pub(crate) use self::identity::Identity;
use self::lock::Lock;
use self::obligations::Obligations;
use self::promotions::Promotions;
use self::records::Intent;
pub use self::step::Effects;
pub(crate) use self::step::{Ops, Step};
use self::strays::Strays;
use self::terms::Terms;
use self::timers::{Timer, Timers};
use self::troubles::Troubles;
use self::unheld::{Losing, Rivals};
use self::upkeep::{Upkeep, Wanted, drift};
pub use self::view::{Desired, HandoverOrder, Keeping, Situation, View, WhenLost};
use self::withdraw::Withdrawal;
use self::workloads::{Circumstances, Target, WorkloadReconciler};
use super::backoff::Backoff;
use super::handover::{Handover, Progress, Purpose};
use super::{
    Announcement, Command, Failure, Holder, Instant, Key, Markings, OpId, Outcome, Pod, PodChange, PodOutcome, Reason,
    Record, RecordOutcome, Scope, Stored, Tenure, Term, Timestamp, Uid, Version, WorkloadId,
};

/// One group's election. Its parts keep what they know themselves; here is the order in which they are asked.
#[derive(Clone, Debug)]
pub struct Election {
    id: Identity,
    ops: Ops,
    timers: Timers,
    /// What is under way with the record.
    phase: Phase,
    lock: Lock,
    terms: Terms,
    rivals: Rivals,
    /// The leader that is being demoted because the lock is not surely held any more.
    losing: Option<Losing>,
    strays: Strays,
    fitness: Fitness,
    /// Those whose outcome is not known.
    promotions: Promotions,
    upkeep: Upkeep,
    /// Pods that can't be labelled.
    troubles: Troubles,
    workloads: WorkloadReconciler,
    obligations: Obligations,
    /// How far it is ascertained that nothing is left, for a withdrawal.
    withdrawal: Withdrawal,
    /// The newest generation that the API server has told, past the cache that the views are made from.
    known_generation: i64,
    backoff: Backoff,
    failure: Option<Failure>,
    /// What is still to be told.
    told: Vec<Announcement>,
    situation: Situation,
    leader: Option<(Term, Holder, Timestamp)>,
    unconfirmed: bool,
    /// It is to leave, and something may still run here because of it.
    lingers: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    Idle,
    Reading(OpId),
    Verifying(OpId, Option<Version>),
    Writing(OpId, Box<Intent>),
    /// The outcome of the write is not known: its record is read.
    WriteUnknown(Option<OpId>, Box<Intent>),
    /// A lock under another key is emptied or deleted.
    Clearing(OpId, Key, Version),
    HandingOver(Box<Handover>),
    /// What still runs of the workloads is read, before the record says that all has ended.
    Inspecting(OpId),
    /// Nobody leads any more: the lock is let go of.
    Releasing(OpId, Box<Record>),
    /// All labels are off; the record goes last.
    Deleting(OpId),
    /// Whether the election is still there: before it replaces a record of another one (of this version), or is withdrawn.
    AskingElection(OpId, Option<Version>),
}

impl Election {
    /// An election that has not decided anything yet. `operator_id` must be unique among all operators and all their starts.
    /// `first` must be far above the ids of whatever this process may still await for the same election. `stored`: the lock with its
    /// version, as the store's watch shows it; `None`: not known.
    pub fn new(name: String, uid: Uid, operator_id: String, stored: Option<(Version, Stored)>, first: OpId) -> Self {
        Self {
            backoff: Backoff::new(&uid.0),
            workloads: WorkloadReconciler::new(&uid.0, first),
            id: Identity { name, uid, operator_id },
            ops: Ops::after(first),
            timers: Timers::default(),
            phase: Phase::Idle,
            lock: Lock::new(stored),
            terms: Terms::default(),
            rivals: Rivals::default(),
            losing: None,
            strays: Strays::default(),
            fitness: Fitness::default(),
            promotions: Promotions::default(),
            upkeep: Upkeep::default(),
            troubles: Troubles::default(),
            obligations: Obligations::default(),
            withdrawal: Withdrawal::Unconfirmed,
            known_generation: 0,
            failure: None,
            told: Vec::new(),
            situation: Situation::Starting,
            leader: None,
            unconfirmed: false,
            lingers: false,
        }
    }

    /// The same, where it had come to a term before its store was put back to an earlier state.
    #[must_use]
    pub fn that_had_reached(mut self, term: Term) -> Self {
        self.terms = Terms::that_had_reached(term);
        self
    }

    /// What the election is about.
    pub fn situation(&self) -> &Situation {
        &self.situation
    }

    /// The leader whose promotion is confirmed: term, pod, since when.
    pub fn leader(&self) -> Option<&(Term, Holder, Timestamp)> {
        self.leader.as_ref()
    }

    /// The highest term that was seen.
    pub fn term(&self) -> Term {
        self.terms.highest()
    }

    /// What went wrong last and is being tried again.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// When the next step is due if nothing else happens.
    pub fn wake(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Whether it can't be confirmed at present that the lock is held.
    pub fn is_unconfirmed(&self) -> bool {
        self.unconfirmed
    }

    /// Whether a handover or a write of the record is under way.
    pub fn is_busy(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Reading(_))
    }

    /// Whether it is in the middle of something: that, or workloads are being written, or end before the lock is let go of.
    pub fn is_unfinished(&self) -> bool {
        self.is_busy() || self.workloads.is_busy() || self.winding_down().is_some() || self.lingers
    }

    /// Until when the lock is kept although nobody leads, because workloads still end.
    pub fn winding_down(&self) -> Option<Instant> {
        self.workloads.winding_down()
    }

    /// W1: until when nothing is enabled, because of what runs in another cluster.
    pub fn workloads_wait(&self, now: Instant) -> Option<Instant> {
        self.obligations.wait(self.lock.record(), now)
    }

    /// What keeps workloads from following, the last failure of each.
    pub fn workload_failures(&self) -> &BTreeMap<WorkloadId, Failure> {
        self.workloads.failures()
    }

    /// The workloads that somebody else changes, although they were put right.
    pub fn contested_workloads(&self, now: Instant) -> impl Iterator<Item = &WorkloadId> {
        self.workloads.contested(now)
    }

    /// Whether a promotion, or a write that lets a workload run, is still wanted: whoever sends it asks right before.
    pub fn wants(&self, op: OpId) -> bool {
        let handover = match &self.phase {
            Phase::HandingOver(handover) => handover.promotion(),
            _ => None,
        };
        handover == Some(op) || self.workloads.wants_to_run(op)
    }

    /// Whether a pod shows the leader's label, of this spec or of one that was written under, or may soon.
    pub fn may_lead(&self, pod: &Pod, scope: &Scope) -> bool {
        self.promotions.contains(&pod.uid)
            || self.lock.scopes().iter().chain([scope]).any(|scope| scope.markings.shows_leader(pod))
    }

    /// The version of the lock, as last known.
    pub fn version(&self) -> Option<Version> {
        self.lock.version()
    }

    /// The record, as last known.
    pub fn record(&self) -> Option<&Record> {
        self.lock.record()
    }

    /// The store's watch shows something. What is older than what is known already is ignored.
    pub fn observe(&mut self, at: Version, stored: Stored) {
        self.lock.observe(at, stored);
    }

    /// Takes the outcome of a command.
    pub fn take(&mut self, op: OpId, outcome: Outcome, now: Instant) {
        self.promotions.take(op, &outcome);
        if let Some(uid) = self.promotions.awaits_fence(op) {
            self.failure = self.promotions.take_fence(&uid, outcome, now).or(self.failure.take());
            return;
        }
        if let Some(uid) = self.upkeep.awaits(op) {
            if let Some(failed) = self.upkeep.take(uid, outcome, &mut self.troubles, now) {
                self.told.extend(failed.told);
                self.failure = Some(failed.failure);
            }
            return;
        }
        if let Outcome::WorkloadWritten(outcome) = outcome {
            self.told.extend(self.workloads.take(op, outcome, now));
            return;
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        self.phase = match (phase, outcome) {
            (Phase::Reading(expected), Outcome::RecordRead(read)) if expected == op => {
                self.take_read(read, now);
                Phase::Idle
            }
            (Phase::Verifying(expected, version), Outcome::PodsListed(listed)) if expected == op => {
                match (listed, version) {
                    (Ok(_), Some(version)) => self.lock.verify(version),
                    (Ok(_), None) => self.withdrawal = Withdrawal::Listed,
                    (Err(failure), _) => self.fail(failure, now),
                }
                Phase::Idle
            }
            (Phase::Writing(expected, intent), Outcome::RecordWritten(written)) if expected == op => {
                self.take_written(intent, written, now)
            }
            (Phase::WriteUnknown(Some(expected), intent), Outcome::RecordRead(Err(failure))) if expected == op => {
                self.fail(failure, now);
                Phase::WriteUnknown(None, intent)
            }
            (Phase::WriteUnknown(Some(expected), intent), Outcome::RecordRead(read)) if expected == op => {
                self.take_read(read, now);
                match self.lock.stored() {
                    Some(Stored::Record(version, record)) if *record == intent.record.clone().at(*version) => {
                        self.begin(*version, *intent)
                    }
                    _ => Phase::Idle,
                }
            }
            (Phase::Clearing(expected, key, replaced), Outcome::RecordWritten(written)) if expected == op => {
                self.strays.take(key, replaced, &written);
                match written {
                    RecordOutcome::Written(_) => self.backoff.reset(),
                    // The watch is about to show what is there now.
                    RecordOutcome::Conflict => self.backoff.delay(now),
                    RecordOutcome::Delayed => self.backoff.delay_shortly(now),
                    RecordOutcome::Failed(failure) => self.fail(failure, now),
                }
                Phase::Idle
            }
            (Phase::AskingElection(expected, version), Outcome::ElectionRead(read)) if expected == op => {
                match read {
                    Ok(read) => {
                        self.backoff.reset();
                        self.known_generation = self.known_generation.max(read.generation_of(&self.id.uid));
                        match version {
                            Some(version) => self.lock.confirm(version),
                            None => self.withdrawal = Withdrawal::Confirmed,
                        }
                    }
                    Err(failure) => self.fail(failure, now),
                }
                Phase::Idle
            }
            (Phase::Inspecting(expected), Outcome::WorkloadsRead(read)) if expected == op => {
                match read {
                    Ok(_) => self.workloads.take_inspected(),
                    Err(failure) => self.fail(failure, now),
                }
                Phase::Idle
            }
            (Phase::Releasing(expected, record), Outcome::RecordWritten(released)) if expected == op => {
                self.take_released(*record, released, now);
                Phase::Idle
            }
            (Phase::Deleting(expected), Outcome::RecordWritten(written)) if expected == op => {
                match written {
                    RecordOutcome::Written(version) => self.lock.take_deleted(version),
                    RecordOutcome::Conflict | RecordOutcome::Delayed => self.lock.forget(),
                    RecordOutcome::Failed(failure) => {
                        self.lock.forget();
                        self.fail(failure, now);
                    }
                }
                Phase::Idle
            }
            (Phase::HandingOver(mut handover), outcome) => {
                let wrote = matches!(outcome, Outcome::PodWritten(PodOutcome::Written(_)));
                let result = handover.take(op, outcome);
                self.take_found(&mut handover, wrote, result, now);
                Phase::HandingOver(handover)
            }
            (phase, _) => phase,
        };
    }

    /// Takes what an answer told a handover.
    fn take_found(&mut self, handover: &mut Handover, wrote: bool, result: Result<(), Failure>, now: Instant) {
        let found = std::mem::take(&mut handover.found);
        match result {
            // That something can be read does not tell that it can be written.
            Ok(()) if wrote => self.backoff.reset(),
            Ok(()) => {}
            // The leader that is there has a wait of its own: nothing else waits for it.
            Err(failure) if handover.purpose == Purpose::Restore && found.refused.is_some() => {
                self.failure = Some(failure);
            }
            Err(failure) => self.fail(failure, now),
        }
        if let Some(Holder { pod: Some(pod), uid, .. }) = handover.target() {
            if let Some(failure) = &found.refused
                && self.troubles.note(uid, PodChange::Promote, false, failure, now)
            {
                let (pod, uid, why) = (pod.clone(), uid.clone(), failure.text().to_owned());
                self.told.push(Announcement::LabelsRefused { pod, uid, why });
            }
            if found.promoted {
                self.troubles.forget(uid, PodChange::Promote);
            }
        }
        if let Some((Holder { pod: Some(pod), uid, .. }, failure)) = found.unwritten
            && self.troubles.note(&uid, PodChange::Remove, false, &failure, now)
        {
            self.told.push(Announcement::LabelsRefused { pod, uid, why: failure.text().to_owned() });
        }
        found.gone.into_iter().for_each(|pod| self.upkeep.note_gone(pod));
        self.strays.find(found.locks);
        self.terms.see(found.term);
        self.known_generation = self.known_generation.max(found.generation.unwrap_or_default());
    }

    /// Decides what to do now.
    pub fn step(&mut self, view: &View) -> Effects {
        self.promotions.forget(self.upkeep.gone(), view.pods);
        self.upkeep.retain(view.pods);
        let present = |uid: &Uid| view.pods.iter().find(|pod| pod.uid == *uid);
        self.troubles.retain(view.generation, |uid| present(uid).is_some());
        let gone = self.upkeep.gone();
        let pods: Vec<&Pod> = view.pods.iter().copied().filter(|pod| !gone.contains(&pod.uid)).collect();
        let strays = self.strays.beside(view.key, view.strays);

        let (id, mut ops, view) = (self.id.clone(), self.ops, view.of(&pods, &strays));
        let mut step = Step::new(&id, &view, &mut ops);
        self.take_step(&mut step);
        let (timers, effects) = step.end();
        (self.ops, self.timers) = (ops, timers);
        self.promotions.note(&effects.requests);
        effects
    }

    /// Decides by what is shown, without the pods that are no more, and with the locks that a listing has shown.
    fn take_step(&mut self, step: &mut Step) {
        let view = step.view;
        for announcement in self.told.drain(..) {
            step.announce(announcement);
        }
        self.workloads.begin_step();
        self.lingers = view.desired == Desired::Leave && self.workloads.lets_run(Target::Await, step);
        self.terms.learn(&self.lock, &self.id, view);
        self.lock.learn(&self.id.uid);
        self.unconfirmed = view.keeping.tenure != Tenure::Ended && !view.keeping.tenure.lasts(view.now);
        self.rivals.note(&self.lock, view.now);
        self.obligations.note(&self.lock, view);
        if let Some(unheld) = self.unheld(step) {
            if view.now < view.keeping.not_before {
                step.wake_at(Timer::StoreRewound, view.keeping.not_before);
            }
            self.stand_down(unheld, step);
            if !self.promotions.is_empty() || (!unheld.known && view.desired != Desired::Withdraw) {
                return;
            }
        }
        if let Some(until) = self.backoff.waits(view.now) {
            step.wake_at(Timer::Retry, until);
            return;
        }
        while self.go_on(step) {}
    }

    /// Goes on with what is under way. Returns whether to look again.
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

    /// Goes on with a handover; returns whether it ended.
    fn hand_over(&mut self, mut handover: Box<Handover>, step: &mut Step) -> bool {
        let view = step.view;
        self.situation = Situation::HandingOver;
        if self.lock.is_past(handover.version) {
            // Somebody else wrote or deleted the record meanwhile: whatever is missing, is decided anew.
            return true;
        }
        if view.desired == Desired::Refuse {
            self.leader = None;
            return true;
        }
        if handover.is_refused() && handover.purpose == Purpose::Restore {
            // It is tried again when the pod's own wait is over.
            return true;
        }
        if handover.is_refused()
            && handover.target().is_some_and(|target| self.fitness.gives_way(&target.uid, &self.troubles, view))
        {
            if handover.has_fenced() {
                self.lock.fence(handover.version);
            }
            return true;
        }
        let promotions = &self.promotions;
        let promoting = |pod: &Pod| promotions.may_come_to(pod);
        let troubles = &self.troubles;
        let left = |pod: &Pod| troubles.is_left(pod, view);
        match handover.advance(&promoting, &left, step) {
            Progress::Waiting => {
                self.phase = Phase::HandingOver(handover);
                false
            }
            Progress::Abandoned => {
                self.lock.forget();
                true
            }
            Progress::Done => {
                if handover.fenced {
                    self.lock.fence(handover.version);
                }
                self.finish(*handover, step);
                true
            }
        }
    }

    fn finish(&mut self, handover: Handover, step: &mut Step) {
        let view = step.view;
        if !handover.target().is_some_and(|target| self.troubles.has(&target.uid, PodChange::Promote)) {
            self.failure = None;
        }
        let took = self.fitness.take_duration(view.now);
        let Handover { record, replaced, purpose, version, .. } = handover;
        let previous = replaced.and_then(|record| record.holder);
        match purpose {
            Purpose::Elect(reason) => {
                self.leader = record.holder.clone().map(|holder| (record.term, holder, record.since));
                let previous =
                    previous.filter(|previous| record.holder.as_ref().is_none_or(|new| new.uid != previous.uid));
                let leader = record.holder;
                let transition = super::Transition { term: record.term, leader, previous, reason, took };
                step.announce(Announcement::Transition(transition));
            }
            Purpose::Restore | Purpose::Tidy => {
                self.leader = record.holder.map(|holder| (record.term, holder, record.since));
            }
            Purpose::Withdraw => {
                self.leader = None;
                self.withdrawal = Withdrawal::Listed;
                let op = step.request(Command::DeleteRecord { key: view.key.clone(), version });
                self.phase = Phase::Deleting(op);
            }
        }
    }

    /// With nothing under way; returns whether to look again.
    fn idle(&mut self, step: &mut Step) -> bool {
        let view = step.view;
        if view.desired == Desired::Refuse {
            return false;
        }
        if view.desired == Desired::Freeze {
            let held = self.record().and_then(|record| Some((record.term, record.holder.clone()?, record.since)));
            self.leader = self.leader.take().or(held);
            return false;
        }
        if self.known_generation > view.generation {
            // The API server has told already that this view is of the past.
            self.situation = Situation::Stale;
            return false;
        }
        if view.desired != Desired::Withdraw {
            self.withdrawal = Withdrawal::Unconfirmed;
        } else if self.withdrawal == Withdrawal::Unconfirmed {
            // There may be another election of that name already. And what the caches show may be from before the last handover.
            self.ask_election(None, step);
            if !view.key.is_none() {
                self.lock.forget();
            }
            return false;
        }
        let Some(stored) = self.lock.stored().cloned() else {
            self.read_record(step);
            return false;
        };
        if view.desired == Desired::Withdraw && !self.give_up_workloads(step) {
            return false;
        }
        if let Stored::Foreign(what) = &stored {
            return self.idle_beside_foreign(what.clone(), step);
        }
        if let Some(record) = stored.written()
            && record.election == self.id.uid
            && record.generation > view.generation
        {
            return self.idle_behind_record(stored.version(), step);
        }
        if let (Stored::Held(..), Desired::Run | Desired::Leave) = (&stored, view.desired) {
            return false;
        }
        if self.clear_strays(step) {
            return false;
        }
        match (view.desired, &stored) {
            (Desired::Withdraw, Stored::Held(..) | Stored::Free(_, None, _)) => self.withdraw(&Stored::Absent, step),
            (Desired::Withdraw, _) => self.withdraw(&stored, step),
            (_, Stored::Absent | Stored::Free(..)) if view.keeping.shared => {
                self.take_lock(&stored, step);
                false
            }
            _ => self.run(&stored, step),
        }
    }

    fn ask_election(&mut self, version: Option<Version>, step: &mut Step) {
        let op = step.request(Command::ReadElection);
        self.phase = Phase::AskingElection(op, version);
    }

    /// H10: the record was written for a generation of the election that is not seen yet. Or for one that never was: somebody edited
    /// the record, or the cluster was put back to an earlier state, and the lock is in a store that was not.
    fn idle_behind_record(&mut self, version: Option<Version>, step: &mut Step) -> bool {
        self.situation = Situation::Stale;
        if self.lock.is_confirmed(version) {
            // The API server was asked since, and knows of none that is later than this view's.
            self.lock.disbelieve();
            return true;
        }
        self.ask_election(version, step);
        false
    }

    fn idle_beside_foreign(&mut self, what: String, step: &mut Step) -> bool {
        let view = step.view;
        if view.desired == Desired::Withdraw {
            // Not ours: it stays, and what was written on pods goes.
            return self.withdraw(&Stored::Absent, step);
        }
        self.situation = Situation::Foreign(what);
        self.reconcile(Target::Follow, step);
        if view.keeping.shared {
            // The store's watch shows all keys.
            return false;
        }
        // Nobody tells when it goes: it is looked at again, more and more seldom.
        self.lock.forget();
        self.backoff.delay(view.now);
        if let Some(until) = self.backoff.waits(view.now) {
            step.wake_at(Timer::Retry, until);
        }
        false
    }

    fn run(&mut self, stored: &Stored, step: &mut Step) -> bool {
        let view = step.view;
        let record = stored.record();
        let decision = match view.desired {
            Desired::Leave if record.is_some_and(|record| record.holder.is_none()) => Decision::Nobody,
            Desired::Leave => Decision::Vacate(Reason::Leaving),
            _ => self.fitness.decide(record, &self.troubles, step),
        };
        if let Some(situation) = decision.situation() {
            self.situation = situation;
        }
        let settled = decision.is_settled(record, self.terms, &self.id, view);
        if let (false, Some(record), Some(version)) = (settled, record, stored.version())
            && !self.lock.is_fenced(Some(version))
            && !self.lock.is_verified(version)
        {
            // Somebody else's record: what the caches show of the pods may be older than it.
            let selectors = view.scope.selectors_with(Some(record));
            if selectors.is_empty() {
                self.lock.verify(version);
                return true;
            }
            let op = step.request(Command::ListPods { selectors });
            self.phase = Phase::Verifying(op, Some(version));
            return false;
        }
        if let (false, Some(record), Some(version)) = (settled, record, stored.version())
            && record.election != self.id.uid
            && !self.lock.is_confirmed(Some(version))
        {
            self.ask_election(Some(version), step);
            return false;
        }
        if settled {
            if let Decision::Keep(Candidate::Pod(pod)) | Decision::KeepDespiteProbe(Candidate::Pod(pod)) = decision {
                self.troubles.forget(&pod.uid, PodChange::Promote);
            }
            self.fitness.forget_cause();
        } else {
            self.fitness.note_cause(view.now);
        }
        match decision {
            Decision::Keep(candidate) | Decision::KeepDespiteProbe(candidate)
                if settled || self.leads_incompletely(candidate, record, step) =>
            {
                let record = record.filter(|record| record.holder.is_some());
                self.leader = record.and_then(|record| Some((record.term, record.holder.clone()?, record.since)));
                self.settle(stored, candidate.pod(), step);
                if let (Some(record), Some(version)) = (record, stored.version())
                    && self.announce_obligations(record, version, step)
                {
                    self.reconcile(Target::Lead(record.term), step);
                }
            }
            Decision::Keep(candidate) | Decision::KeepDespiteProbe(candidate) => {
                return self.keep(candidate, stored, step);
            }
            Decision::Elect(candidate, reason) => self.write(stored, Some(candidate), reason, step),
            Decision::Vacate(reason) => self.write(stored, None, reason, step),
            Decision::Wait(why, until) => {
                self.situation = Situation::Recovering(why, until);
                step.wake_at(Timer::Recovery, until);
                let leader = record.and_then(|r| r.holder.as_ref());
                let pod = leader.and_then(|holder| view.pods.iter().find(|pod| pod.uid == holder.uid)).copied();
                self.maintain(stored, pod, step);
            }
            Decision::Nobody => {
                self.leader = None;
                self.situation = Situation::Vacant;
                self.reconcile(Target::Follow, step);
                if let (false, Some(record), Some(version)) = (settled, record, stored.version()) {
                    // What is written on pods while nobody leads, has to be in the record too.
                    let present = self.make_record(view, None, Some(record), record.since);
                    self.amend(record, version, present, step);
                    return false;
                }
                self.settle(stored, None, step);
                self.release(stored, step);
            }
        }
        false
    }

    /// The leader stays, but its labels or its record are not as they should be.
    fn keep(&mut self, candidate: Candidate, stored: &Stored, step: &mut Step) -> bool {
        let view = step.view;
        let (Some(record), Some(version)) = (stored.record(), stored.version()) else { return false };
        if record.scope != *view.scope || record.election != self.id.uid {
            self.write(stored, Some(candidate), Reason::SpecChanged, step);
            return false;
        }
        if self.terms.is_outdated(record.term) {
            self.write(stored, Some(candidate), Reason::LockRestored, step);
            return false;
        }
        let Candidate::Pod(pod) = candidate else { return false };
        if let Some(until) = self.troubles.waits(&pod.uid, PodChange::Promote, false, view.now) {
            step.wake_at(Timer::PodRetry, until);
            self.leader = None;
            self.situation = Situation::HandingOver;
            self.maintain(stored, Some(pod), step);
            return false;
        }
        if !self.lock.is_fenced(Some(version)) {
            self.write(stored, Some(candidate), Reason::Resumed, step);
            return false;
        }
        if !self.troubles.has(&pod.uid, PodChange::Promote) {
            step.announce(drift(pod));
        }
        self.phase = Phase::HandingOver(Box::new(Handover::restore(&self.id.name, version, record.clone(), pod)));
        true
    }

    /// Whether the leader shows its label, and the rest of its marks can't be written at present.
    fn leads_incompletely(&mut self, candidate: Candidate, record: Option<&Record>, step: &mut Step) -> bool {
        let view = step.view;
        let (Candidate::Pod(pod), Some(record)) = (candidate, record) else { return false };
        let current = record.scope == *view.scope && record.election == self.id.uid;
        let until = self.troubles.waits(&pod.uid, PodChange::Promote, false, view.now);
        let Some(until) = until.filter(|_| current && view.scope.markings.shows_leader(pod)) else { return false };
        step.wake_at(Timer::PodRetry, until);
        true
    }

    /// Brings the workloads to a target. Returns whether nothing is left to do.
    fn reconcile(&mut self, target: Target, step: &mut Step) -> bool {
        let around = Circumstances::of(&self.lock, self.terms, &self.obligations, step.view.now);
        self.workloads.reconcile(target, around, step)
    }

    /// Puts right what is written on all pods but the leader. Returns whether nothing was left to do.
    fn maintain(&mut self, stored: &Stored, leader: Option<&Pod>, step: &mut Step) -> bool {
        let view = step.view;
        // While nobody can be elected, the record is still the one of an earlier spec, or under an earlier key.
        let records = view.strays.iter().map(|(_, stray)| stray).chain([stored]).filter_map(Stored::written);
        let scopes = records.flat_map(Record::scopes).chain(self.lock.scopes());
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
