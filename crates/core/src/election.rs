//! One group's election, as one operator runs it: observations in, commands out.
//!
//! [`Election::step`] decides from what is known, [`Election::take`] takes the outcomes of commands, [`Election::observe`] what the
//! store's watch tells. The rules of the handover itself are in [`handover`](super::handover).

mod decide;
mod identity;
mod legacy;
mod lock;
mod promotions;
mod records;
mod step;
mod terms;
#[cfg(test)]
mod tests;
mod troubles;
mod unheld;
mod upkeep;
mod view;
mod wind_down;
mod withdraw;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};

use self::decide::{Candidate, Decision};
pub(crate) use self::identity::Identity;
use self::legacy::Inheritance;
use self::lock::Lock;
use self::promotions::Promotions;
use self::records::Intent;
pub use self::step::Effects;
pub(crate) use self::step::{Ops, Step};
use self::terms::Terms;
use self::troubles::Troubles;
use self::unheld::Losing;
use self::upkeep::{Upkeep, drift};
pub use self::view::{Desired, HandoverOrder, Keeping, Situation, View, WhenLost};
use self::wind_down::WindDown;
use self::withdraw::Withdrawal;
use self::workloads::{Course, Steering};
use super::backoff::Backoff;
use super::handover::{Handover, Progress, Purpose};
use super::{
    Announcement, Command, Failure, Holder, Instant, Key, OpId, Outcome, Pod, PodChange, PodOutcome, Reason, Record,
    RecordOutcome, Stored, Tenure, Term, Timestamp, Uid, Version,
};

/// One group's election.
#[derive(Clone, Debug)]
pub struct Election {
    id: Identity,
    ops: Ops,
    lock: Lock,
    terms: Terms,
    /// The newest generation that the API server has told, past the cache that the views are made from.
    known_generation: i64,
    /// How far it is ascertained that nothing is left, for a withdrawal.
    withdrawal: Withdrawal,
    /// Pods that are no more, though the cache may still show them.
    gone: BTreeSet<Uid>,
    /// The leader that is being demoted because the lock is not surely held any more.
    losing: Option<Losing>,
    unconfirmed: bool,
    /// By which session a pod led in another cluster, when its lock was last seen.
    led_by_rival: Option<String>,
    /// Since when there is no such lock any more, though that cluster did not let go of it.
    vanished: Option<Instant>,
    /// Locks under other keys that a fresh listing has shown, and the watch perhaps not yet.
    listed_locks: BTreeMap<Key, Stored>,
    /// Locks under other keys that were emptied or deleted, and the versions that they have since; none: deleted.
    cleared: BTreeMap<Key, (Version, Option<Version>)>,
    phase: Phase,
    /// Those whose outcome is not known.
    promotions: Promotions,
    maintenance: BTreeMap<Uid, Upkeep>,
    steering: Steering,
    wind_down: WindDown,
    inheritance: Inheritance,
    winding_down: Option<Instant>,
    /// It is to leave, and something may still run here because of it.
    lingers: bool,
    /// What is still to be told.
    told: Vec<Announcement>,
    backoff: Backoff,
    /// Pods that can't be labelled.
    troubles: Troubles,
    failure: Option<Failure>,
    /// Since when which leader is not fit.
    unfit: Option<(Uid, Instant)>,
    /// When the cause of the change that is under way was seen.
    cause: Option<Instant>,
    /// Pods that failed their probe as leaders, and have been ready ever since.
    suspects: BTreeSet<Uid>,
    situation: Situation,
    leader: Option<(Term, Holder, Timestamp)>,
    wake: Option<Instant>,
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
            troubles: Troubles::default(),
            steering: Steering::new(&uid.0, first),
            wind_down: WindDown::default(),
            inheritance: Inheritance::default(),
            winding_down: None,
            lingers: false,
            told: Vec::new(),
            id: Identity { name, uid, operator_id },
            ops: Ops::after(first),
            lock: Lock::new(stored),
            terms: Terms::default(),
            known_generation: 0,
            withdrawal: Withdrawal::Unconfirmed,
            gone: BTreeSet::new(),
            losing: None,
            unconfirmed: false,
            led_by_rival: None,
            vanished: None,
            listed_locks: BTreeMap::new(),
            cleared: BTreeMap::new(),
            phase: Phase::Idle,
            promotions: Promotions::default(),
            maintenance: BTreeMap::new(),
            failure: None,
            unfit: None,
            cause: None,
            suspects: BTreeSet::new(),
            situation: Situation::Starting,
            leader: None,
            wake: None,
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
        self.wake
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
        self.is_busy() || self.is_steering() || self.winding_down.is_some() || self.lingers
    }

    /// Until when the lock is kept although nobody leads, because workloads still end.
    pub fn winding_down(&self) -> Option<Instant> {
        self.winding_down
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
        let Some(outcome) = self.take_promotion_fence(op, outcome, now) else { return };
        if let Some(uid) = self.maintenance.iter().find(|(_, upkeep)| upkeep.awaits(op)).map(|(uid, _)| uid.clone()) {
            return self.take_maintenance(uid, outcome, now);
        }
        if let Outcome::WorkloadWritten(outcome) = outcome {
            return self.take_steering(op, outcome, now);
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
                // What a listing has shown is of the past now, whatever the outcome.
                let written_first = matches!(written, RecordOutcome::Written(version) if version != replaced);
                if !written_first {
                    self.listed_locks.remove(&key);
                }
                match written {
                    RecordOutcome::Written(version) => {
                        self.backoff.reset();
                        self.cleared.insert(key, (replaced, (version != replaced).then_some(version)));
                    }
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
                self.take_inspected(read, now);
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
                let result = handover.take(&self.id.name, op, outcome);
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
        self.gone.extend(found.gone);
        self.listed_locks.extend(found.locks);
        self.terms.see(found.term);
        self.known_generation = self.known_generation.max(found.generation.unwrap_or_default());
    }

    /// Decides what to do now.
    pub fn step(&mut self, view: &View) -> Effects {
        self.promotions.forget(&self.gone, view.pods);
        self.gone.retain(|uid| view.pods.iter().any(|pod| pod.uid == *uid));
        let present = |uid: &Uid| view.pods.iter().find(|pod| pod.uid == *uid);
        self.troubles.retain(view.generation, |uid| present(uid).is_some());
        let pods: Vec<&Pod> = view.pods.iter().copied().filter(|pod| !self.gone.contains(&pod.uid)).collect();
        self.listed_locks.retain(|key, listed| {
            let newer = |stray: &Stored| stray.version() >= listed.version();
            key != view.key && !view.strays.iter().any(|(other, stray)| other == key && newer(stray))
        });
        let listed = self.listed_locks.iter().map(|(key, stored)| (key.clone(), stored.clone()));
        let shown = view.strays.iter().filter(|(key, _)| !self.listed_locks.contains_key(key)).cloned();
        let strays: Vec<(Key, Stored)> = shown.chain(listed).collect();

        let mut ops = std::mem::take(&mut self.ops);
        let (wake, effects) = self.step_with(&view.of(&pods, &strays), &mut ops);
        (self.ops, self.wake) = (ops, wake);
        self.promotions.note(&effects.requests);
        effects
    }

    /// Decides by what is shown, without the pods that are no more, and with the locks that a listing has shown.
    fn step_with<'a>(&mut self, view: &'a View<'a>, ops: &'a mut Ops) -> (Option<Instant>, Effects) {
        let mut step = Step::new(view, ops);
        for announcement in self.told.drain(..) {
            step.announce(announcement);
        }
        self.winding_down = None;
        self.lingers = view.desired == Desired::Leave && self.lets_run(Course::Await, view);
        self.terms.learn(&self.lock, &self.id, view);
        self.lock.learn(&self.id.uid);
        self.unconfirmed = view.keeping.tenure != Tenure::Ended && !view.keeping.tenure.lasts(view.now);
        self.note_rival(view);
        self.inheritance.note(self.lock.stored(), view);
        self.note_wait(view.now);
        if let Some(unheld) = self.unheld(view) {
            if view.now < view.keeping.not_before {
                step.wake_at(view.keeping.not_before);
            }
            self.stand_down(unheld, &mut step);
            if !self.promotions.is_empty() || (!unheld.known && view.desired != Desired::Withdraw) {
                return step.end();
            }
        }
        if let Some(until) = self.backoff.waits(view.now) {
            step.wake_at(until);
            return step.end();
        }
        while self.go_on(&mut step) {}
        step.end()
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
        if handover.is_refused() && handover.target().is_some_and(|target| self.gives_way(&target.uid, view)) {
            if handover.has_fenced() {
                self.lock.fence(handover.version);
            }
            return true;
        }
        let promotions = &self.promotions;
        let promoting = |pod: &Pod| promotions.may_come_to(pod);
        let troubles = &self.troubles;
        let left = |pod: &Pod| troubles.is_left(pod, view);
        match handover.advance(&self.id.name, &promoting, &left, step) {
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
        let took = view.now.since(self.cause.take().unwrap_or(view.now));
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
        self.steer(Course::Follow, step);
        if view.keeping.shared {
            // The store's watch shows all keys.
            return false;
        }
        // Nobody tells when it goes: it is looked at again, more and more seldom.
        self.lock.forget();
        self.backoff.delay(view.now);
        if let Some(until) = self.backoff.waits(view.now) {
            step.wake_at(until);
        }
        false
    }

    fn run(&mut self, stored: &Stored, step: &mut Step) -> bool {
        let view = step.view;
        let record = stored.record();
        let decision = match view.desired {
            Desired::Leave if record.is_some_and(|record| record.holder.is_none()) => Decision::Nobody,
            Desired::Leave => Decision::Vacate(Reason::Leaving),
            _ => self.decide(record, step),
        };
        let settled = self.is_settled(&decision, record, view);
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
            if let Decision::Keep(Candidate::Pod(pod)) = decision {
                self.troubles.forget(&pod.uid, PodChange::Promote);
            }
            self.cause = None;
        } else {
            self.cause.get_or_insert(view.now);
        }
        match decision {
            Decision::Keep(candidate) if settled || self.leads_incompletely(candidate, record, step) => {
                let record = record.filter(|record| record.holder.is_some());
                self.leader = record.and_then(|record| Some((record.term, record.holder.clone()?, record.since)));
                self.settle(stored, candidate.pod(), step);
                if let (Some(record), Some(version)) = (record, stored.version())
                    && self.publish_legacy(record, version, step)
                {
                    self.steer(Course::Lead(record.term), step);
                }
            }
            Decision::Keep(candidate) => return self.keep(candidate, stored, step),
            Decision::Elect(candidate, reason) => self.write(stored, Some(candidate), reason, step),
            Decision::Vacate(reason) => self.write(stored, None, reason, step),
            Decision::Wait(why, until) => {
                self.situation = Situation::Recovering(why, until);
                step.wake_at(until);
                let leader = record.and_then(|r| r.holder.as_ref());
                let pod = leader.and_then(|holder| view.pods.iter().find(|pod| pod.uid == holder.uid)).copied();
                self.maintain(stored, pod, step);
            }
            Decision::Nobody => {
                self.leader = None;
                self.situation = Situation::Vacant;
                self.steer(Course::Follow, step);
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
            step.wake_at(until);
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
        self.phase = Phase::HandingOver(Box::new(Handover::restore(version, record.clone(), pod)));
        true
    }

    /// Whether the leader shows its label, and the rest of its marks can't be written at present.
    fn leads_incompletely(&mut self, candidate: Candidate, record: Option<&Record>, step: &mut Step) -> bool {
        let view = step.view;
        let (Candidate::Pod(pod), Some(record)) = (candidate, record) else { return false };
        let current = record.scope == *view.scope && record.election == self.id.uid;
        let until = self.troubles.waits(&pod.uid, PodChange::Promote, false, view.now);
        let Some(until) = until.filter(|_| current && view.scope.markings.shows_leader(pod)) else { return false };
        step.wake_at(until);
        true
    }

    fn fail(&mut self, failure: Failure, now: Instant) {
        self.failure = Some(failure);
        self.backoff.delay(now);
    }
}
