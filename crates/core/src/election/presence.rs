//! T1: what may be told of the leader is what is there.

use super::Election;
use super::phase::Phase;
use crate::step::Step;
use crate::view::{Desired, View};
use crate::{Absence, AbsentLeader, Holder, Pod, Term, Timestamp, absence};

impl Election {
    /// T1: the leader that was promoted and is there: term, pod, since when.
    pub fn leader(&self) -> Option<&(Term, Holder, Timestamp)> {
        self.leader.as_ref().filter(|(_, holder, _)| self.absent().is_none_or(|absent| absent.holder.uid != holder.uid))
    }

    /// T1: the leader by the record, if something is missing of it and nobody takes its place.
    pub fn absent(&self) -> Option<&AbsentLeader> {
        self.absent.as_ref()
    }

    /// Whether its leader is known to be gone, and no other one could be elected yet.
    pub(super) fn is_without_leader(&self, view: &View) -> bool {
        self.failure.is_some() && self.missing(view).is_some_and(|(_, what)| what == Absence::Gone)
    }

    /// Looks whether the leader that is to be told is there. While another one takes its place, nothing is told: that takes a moment, or
    /// fails.
    pub(super) fn look_for_leader(&mut self, step: &Step) {
        let view = step.view;
        let left_alone = matches!(view.desired, Desired::Freeze | Desired::Refuse) && matches!(self.phase, Phase::Idle);
        let missing = if left_alone || self.failure.is_some() { self.missing(view) } else { None };
        self.absent = missing.map(|(holder, what)| AbsentLeader { holder, what });
    }

    /// Who should lead, if something is missing of it.
    fn missing(&self, view: &View) -> Option<(Holder, Absence)> {
        let holder = self.to_be_told(view.desired)?;
        let shows = |pod: &Pod| self.lock.shows_leader(pod, view.scope);
        Some((holder.clone(), absence(&self.id.name, holder, view.pods.iter().copied(), shows)?))
    }

    /// Who leads as far as this operator has decided, or by the election's record; none: nobody is said to.
    fn to_be_told(&self, desired: Desired) -> Option<&Holder> {
        if matches!(desired, Desired::Withdraw | Desired::Leave) || self.situation.shows_nobody() {
            return None;
        }
        let recorded = || self.record().filter(|record| record.election == self.id.uid)?.holder.as_ref();
        self.leader.as_ref().map(|(_, holder, _)| holder).or_else(recorded)
    }
}
