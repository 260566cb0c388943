//! What an election reports. T1: only a leader that is there.

use super::lock::Lock;
use super::phase::Phase;
use crate::backoff::Backoff;
use crate::step::Step;
use crate::view::{Desired, Situation};
use crate::{
    Absence, AbsentLeader, Announcement, Failure, Holder, Instant, Pod, Record, RecordOutcome, Term, Timestamp, absence,
};

/// What an election reports, and when it tries again what failed.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) situation: Situation,
    pub(super) leader: Option<(Term, Holder, Timestamp)>,
    /// T1: the leader of which something is missing.
    pub(super) absent: Option<AbsentLeader>,
    /// Whether this cluster can't confirm at present that it holds the lock.
    pub(super) unconfirmed: bool,
    /// The last failure, which the operator is retrying.
    pub(super) failure: Option<Failure>,
    pub(super) backoff: Backoff,
    /// Announcements that are still to be made.
    pub(super) news: Vec<Announcement>,
}

impl Report {
    pub(super) fn new(owner: &str) -> Self {
        Self {
            situation: Situation::Starting,
            leader: None,
            absent: None,
            unconfirmed: false,
            failure: None,
            backoff: Backoff::new(owner),
            news: Vec::new(),
        }
    }

    /// Notes a failure, after which nothing is tried for a while.
    pub(super) fn fail(&mut self, failure: Failure, now: Instant) {
        self.failure = Some(failure);
        self.backoff.delay(now);
    }

    /// Takes how the write of a record went, after which the next one is tried at once or later.
    pub(super) fn take_write(&mut self, outcome: &RecordOutcome, now: Instant) {
        match outcome {
            RecordOutcome::Written(_) => self.backoff.reset(),
            RecordOutcome::Conflict => {}
            RecordOutcome::Delayed => self.backoff.delay_shortly(now),
            RecordOutcome::Failed(failure) => self.fail(failure.clone(), now),
        }
    }

    /// Reports the leader that a record names, unless there is one already.
    pub(super) fn keep_leader(&mut self, record: Option<&Record>) {
        self.leader = self.leader.take().or(record.and_then(leadership));
    }

    /// T1: the leader that was promoted and is there: its term, its pod, and when it began to lead.
    pub(super) fn leader(&self) -> Option<&(Term, Holder, Timestamp)> {
        let absent = self.absent.as_ref();
        self.leader.as_ref().filter(|(_, holder, _)| absent.is_none_or(|absent| absent.holder.uid != holder.uid))
    }

    /// Whether the election's leader is known to be gone, and no other one could be elected yet.
    pub(super) fn is_without_leader(&self, lock: &Lock, step: &Step) -> bool {
        self.failure.is_some() && self.missing(lock, step).is_some_and(|(_, what)| what == Absence::Gone)
    }

    /// Checks whether the leader to be reported is there. While another one takes its place, nothing is reported, because that takes only a
    /// moment, or fails.
    pub(super) fn look_for_leader(&mut self, phase: &Phase, lock: &Lock, step: &Step) {
        let left_alone = matches!(step.view.desired, Desired::Freeze | Desired::Refuse) && matches!(phase, Phase::Idle);
        let missing = if left_alone || self.failure.is_some() { self.missing(lock, step) } else { None };
        self.absent = missing.map(|(holder, what)| AbsentLeader { holder, what });
    }

    /// The pod that should lead, if something is missing of it.
    fn missing(&self, lock: &Lock, step: &Step) -> Option<(Holder, Absence)> {
        let Step { id, view, .. } = *step;
        let holder = self.to_be_told(lock, step)?;
        let shows = |pod: &Pod| lock.shows_leader(pod, view.scope);
        Some((holder.clone(), absence(&id.name, holder, view.pods.iter().copied(), shows)?))
    }

    /// The leader by this operator's decision or by the election's record, or `None` if there is none to report.
    fn to_be_told<'a>(&'a self, lock: &'a Lock, step: &Step) -> Option<&'a Holder> {
        if matches!(step.view.desired, Desired::Withdraw | Desired::Leave) || self.situation.shows_nobody() {
            return None;
        }
        let recorded = || lock.record().filter(|record| record.election == step.id.uid)?.holder.as_ref();
        self.leader.as_ref().map(|(_, holder, _)| holder).or_else(recorded)
    }
}

/// The leadership that a record names: its term, its pod, and when it began.
pub(super) fn leadership(record: &Record) -> Option<(Term, Holder, Timestamp)> {
    Some((record.term, record.holder.clone()?, record.since))
}
