//! The waits and the checks between the disabling of the last workload and the release of the lock.
//!
//! The caches may not show yet what a workload's controller has just started, and the controller may not have seen yet that the workload is
//! disabled. So the operator keeps the lock for some seconds after it allowed any workload to run, and reads the workloads and their pods
//! and Jobs at the API server before the record says that all have ended.

use std::collections::BTreeMap;
use std::time::Duration;

use super::obligations::seconds;
use crate::step::Step;
use crate::timers::Timer;
use crate::view::View;
use crate::{Command, Instant, OpId, Wish, Workload, WorkloadId};

/// How long after a workload was allowed to run its controller may still start something of it, although the workload is disabled again: a
/// CronJob's missed tick, a ReplicaSet's pods.
const SETTLES: Duration = Duration::from_secs(3);

/// The wind-down of the workloads.
#[derive(Clone, Debug, Default)]
pub(super) struct WindDown {
    /// When the last workload here ceased to be allowed to run.
    off_since: Option<Instant>,
    /// Whether each workload was allowed to run when it was last seen.
    ran: BTreeMap<WorkloadId, bool>,
    /// The moment until which the controllers of workloads that were allowed to run lately may still start something.
    settles: BTreeMap<WorkloadId, Instant>,
    /// Whether, since no workload is allowed to run, the operator has read at the API server that all have ended.
    inspected: bool,
    /// The moment until which the lock is kept, as found in the present step.
    kept_until: Option<Instant>,
}

impl WindDown {
    /// Notes a workload that the view shows. If it was not seen before, the operator does not know what an earlier one did to it.
    pub(super) fn note(&mut self, workload: &Workload, now: Instant) {
        let runs = workload.setting.runs();
        if self.ran.insert(workload.id.clone(), runs).is_none_or(|ran| runs && !ran) {
            self.may_run(&workload.id, now);
        }
    }

    /// Notes that a write that lets a workload run may have been carried out at any time until now.
    pub(super) fn may_run(&mut self, id: &WorkloadId, now: Instant) {
        self.settles.insert(id.clone(), now + SETTLES);
    }

    /// Notes whether any workload is allowed to run.
    pub(super) fn note_all(&mut self, lets_run: bool, now: Instant) {
        if lets_run {
            (self.off_since, self.inspected) = (None, false);
        } else {
            self.off_since.get_or_insert(now);
        }
    }

    pub(super) fn retain(&mut self, known: impl Fn(&WorkloadId) -> bool) {
        self.ran.retain(|id, _| known(id));
        self.settles.retain(|id, _| known(id));
    }

    /// The moment until which the controller may not have seen yet that its workload is disabled.
    fn settles_at(&self, workload: &Workload, now: Instant) -> Option<Instant> {
        self.settles.get(&workload.id).copied().filter(|until| now < *until && !workload.finished)
    }

    /// Begins a step, which decides again whether the lock is kept.
    pub(super) fn begin_step(&mut self) {
        self.kept_until = None;
    }

    /// The moment until which the lock is kept although no workload is allowed to run any more.
    pub(super) fn kept_until(&self) -> Option<Instant> {
        self.kept_until
    }

    /// L6: keeps the lock until then, whether or not anything runs.
    pub(super) fn keep_lock(&mut self, until: Instant) {
        self.kept_until = self.kept_until.max(Some(until));
    }

    /// W3: whether the lock is kept, because a workload still runs, or may.
    pub(super) fn goes_on(&mut self, step: &mut Step) -> bool {
        let view = step.view;
        let until = self.over_at(view);
        let settles = held_workloads(step).filter_map(|workload| self.settles_at(workload, view.now)).max();
        if view.now >= until || (settles.is_none() && !held_workloads(step).any(|workload| workload.remains)) {
            return false;
        }
        self.inspected = false;
        self.kept_until = Some(until);
        step.wake_at(Timer::DrainOver, settles.map_or(until, |settles| settles.min(until)));
        true
    }

    /// W12: how many pods or Jobs are seen to run of each workload that has had the time to end.
    pub(super) fn outlasting(&self, step: &Step) -> BTreeMap<String, u32> {
        if self.off_since.is_none() || step.view.now < self.over_at(step.view) {
            return BTreeMap::new();
        }
        let running = held_workloads(step).filter(|workload| workload.running > 0);
        running.map(|workload| (workload.id.to_string(), workload.running)).collect()
    }

    /// W4: reads at the API server what still runs, unless that was done, or the time for it is over.
    pub(super) fn inspect(&self, step: &mut Step) -> Option<OpId> {
        let workloads: Vec<WorkloadId> = held_workloads(step).map(|workload| workload.id.clone()).collect();
        if self.inspected || workloads.is_empty() || step.view.now >= self.over_at(step.view) {
            return None;
        }
        Some(step.request(Command::ReadWorkloads { workloads }))
    }

    /// Notes that the read has come, so that the view shows what still runs.
    pub(super) fn take_inspected(&mut self) {
        self.inspected = true;
    }

    fn over_at(&self, view: &View) -> Instant {
        self.off_since.unwrap_or(view.now) + seconds(view.wind_down)
    }
}

/// W8: the workloads that count. The operator could not write a workload that was never claimed.
fn held_workloads<'a>(step: &Step<'a>) -> impl Iterator<Item = &'a Workload> {
    let Step { id, view, .. } = *step;
    let held = |workload: &&Workload| id.claim_of(workload).is_some() && !matches!(workload.wish, Wish::Release { .. });
    view.workloads.into_iter().flatten().filter(held)
}
