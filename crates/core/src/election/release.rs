//! C5: releases the lock to other clusters, or hands it over to one of them (C11).

use super::across::Across;
use super::phase::Phase;
use super::pod_writes::PodWrites;
use super::records::Records;
use super::routes::Routes;
use super::workloads::{LOOK_AGAIN, Target, WorkloadReconciler};
use crate::step::Step;
use crate::timers::Timer;
use crate::view::Desired;
use crate::{Command, Stored};

/// C5, W3: releases the lock to other clusters, if no leader is recorded here, no pod shows otherwise, and no workload runs any more.
/// L6: and if no other replica can change that.
pub(super) fn release(
    stored: &Stored,
    records: &mut Records,
    workloads: &mut WorkloadReconciler,
    across: &mut Across,
    pod_writes: &PodWrites,
    routes: &Routes,
    step: &mut Step,
) {
    let view = step.view;
    let Stored::Ours(version, record) = stored else { return };
    let unsettled = record.holder.is_some()
        || pod_writes.somebody_may_lead(routes, step.id, view)
        || workloads.lets_run(Target::Follow, step);
    if !view.policy.shared || unsettled || !matches!(records.phase, Phase::Idle) {
        return;
    }
    if workloads.winds_down(step) {
        return;
    }
    if view.desired == Desired::Leave && !workloads.outlasting(step).is_empty() {
        // W12: the operator lets the lock expire, and the next holder waits.
        return workloads.keep_lock(view.now + LOOK_AGAIN);
    }
    if view.now < view.alone_from {
        workloads.keep_lock(view.alone_from);
        step.wake_at(Timer::Alone, view.alone_from);
        return;
    }
    if let Some(ended) = records.obligations.ended(record, view) {
        match workloads.inspect(step) {
            Some(op) => records.phase = Phase::Inspecting(op),
            None => records.amend(stored, ended, routes, step),
        }
        return;
    }
    if across.hand_over_lock(stored, records, step) {
        return;
    }
    let op = step.request(Command::ReleaseRecord { key: view.key.clone(), version: *version });
    records.phase = Phase::Releasing(op, Box::new(record.clone()));
}
