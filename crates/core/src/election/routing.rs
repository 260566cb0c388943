//! Decides when the slices follow, and which record: after the record is written, before the labels are.

use super::phase::{Phase, Withdrawal};
use super::records::Records;
use super::routes::{Goal, Routes};
use crate::Stored;
use crate::handover::Purpose;
use crate::step::Step;
use crate::view::Desired;

/// Lets the slices follow the record, if this operator may.
pub(super) fn route(records: &Records, withdrawal: Withdrawal, routes: &mut Routes, step: &mut Step) {
    if step.view.desired == Desired::Refuse {
        return;
    }
    let lock = &records.lock;
    let goal = match (&records.phase, lock.stored()) {
        (Phase::HandingOver(handover), _) if lock.is_past(handover.version) => None,
        (Phase::HandingOver(handover), _) if handover.purpose == Purpose::Withdraw => Some(Goal::Gone),
        (Phase::HandingOver(handover), _) => {
            handover.is_cleared().then_some(Goal::Follow(handover.version, &handover.record))
        }
        (Phase::Idle, stored) if step.view.desired == Desired::Withdraw => {
            let own = stored.and_then(Stored::record).is_some_and(|record| record.election == step.id.uid);
            (withdrawal != Withdrawal::Unconfirmed && !own).then_some(Goal::Gone)
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
