//! Decides when the slices follow, and which record: after the record is written, before the labels are.

use super::Election;
use super::phase::{Phase, Withdrawal};
use super::routes::Goal;
use crate::handover::Purpose;
use crate::step::Step;
use crate::view::Desired;
use crate::{Failure, Stored};

impl Election {
    /// Whether the Service reaches the leader, and no other pod.
    pub fn is_routed(&self) -> bool {
        self.routes.is_routed()
    }

    /// The failure that keeps the Service from reaching the leader, and that the operator is retrying.
    pub fn route_failure(&self) -> Option<&Failure> {
        self.routes.failure()
    }

    /// Lets the slices follow the record, if this operator may.
    pub(super) fn route(&mut self, step: &mut Step) {
        if step.view.desired == Desired::Refuse {
            return;
        }
        let Self { phase, lock, withdrawal, id, routes, .. } = self;
        let goal = match (phase, lock.stored()) {
            (Phase::HandingOver(handover), _) if lock.is_past(handover.version) => None,
            (Phase::HandingOver(handover), _) if handover.purpose == Purpose::Withdraw => Some(Goal::Gone),
            (Phase::HandingOver(handover), _) => {
                handover.is_cleared().then_some(Goal::Follow(handover.version, &handover.record))
            }
            (Phase::Idle, stored) if step.view.desired == Desired::Withdraw => {
                let own = stored.and_then(Stored::record).is_some_and(|record| record.election == id.uid);
                (*withdrawal != Withdrawal::Unconfirmed && !own).then_some(Goal::Gone)
            }
            (Phase::Idle, Some(Stored::Ours(version, record))) if lock.is_fenced(Some(*version)) => {
                Some(Goal::Follow(*version, record))
            }
            _ => None,
        };
        if let Some(goal) = goal {
            routes.advance(&goal, step);
        }
    }

    /// T1: if no other leader is elected, lets the slices name only a pod that is there, in its present state.
    pub(super) fn route_to_present(&mut self, step: &mut Step) {
        self.routes.advance(&Goal::Present, step);
    }

    /// C3: takes the leader out of all slices here.
    pub(super) fn route_nowhere(&mut self, step: &mut Step) {
        self.routes.advance(&Goal::NobodyHere, step);
    }
}
