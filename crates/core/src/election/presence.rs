//! T1: the operator reports only a leader that is there.

use super::Election;
use super::phase::Phase;
use crate::step::Step;
use crate::view::{Desired, View};
use crate::{Absence, AbsentLeader, Holder, Pod, Term, Timestamp, absence};

impl Election {
    /// T1: the leader that was promoted and is there: its term, its pod, and when it began to lead.
    pub fn leader(&self) -> Option<&(Term, Holder, Timestamp)> {
        self.leader.as_ref().filter(|(_, holder, _)| self.absent().is_none_or(|absent| absent.holder.uid != holder.uid))
    }

    /// T1: the leader that the record names, if something is missing of it and no other pod takes its place.
    pub fn absent(&self) -> Option<&AbsentLeader> {
        self.absent.as_ref()
    }

    /// Whether the election's leader is known to be gone, and no other one could be elected yet.
    pub(super) fn is_without_leader(&self, view: &View) -> bool {
        self.failure.is_some() && self.missing(view).is_some_and(|(_, what)| what == Absence::Gone)
    }

    /// Checks whether the leader to be reported is there. While another one takes its place, nothing is reported, because that takes only a
    /// moment, or fails.
    pub(super) fn look_for_leader(&mut self, step: &Step) {
        let view = step.view;
        let left_alone = matches!(view.desired, Desired::Freeze | Desired::Refuse) && matches!(self.phase, Phase::Idle);
        let missing = if left_alone || self.failure.is_some() { self.missing(view) } else { None };
        self.absent = missing.map(|(holder, what)| AbsentLeader { holder, what });
    }

    /// The pod that should lead, if something is missing of it.
    fn missing(&self, view: &View) -> Option<(Holder, Absence)> {
        let holder = self.to_be_told(view.desired)?;
        let shows = |pod: &Pod| self.lock.shows_leader(pod, view.scope);
        Some((holder.clone(), absence(&self.id.name, holder, view.pods.iter().copied(), shows)?))
    }

    /// The leader by this operator's decision or by the election's record, or `None` if there is none to report.
    fn to_be_told(&self, desired: Desired) -> Option<&Holder> {
        if matches!(desired, Desired::Withdraw | Desired::Leave) || self.situation.shows_nobody() {
            return None;
        }
        let recorded = || self.record().filter(|record| record.election == self.id.uid)?.holder.as_ref();
        self.leader.as_ref().map(|(_, holder, _)| holder).or_else(recorded)
    }
}
