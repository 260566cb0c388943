//! What is waited for, and looked at, between the disabling of the last workload and the release of the lock.
//!
//! The caches may not show yet what a workload's controller has just started, and the controller may not have seen yet that the
//! workload is disabled. So the lock is kept for some seconds after anything was let run, and before the record says that all has
//! ended, the workloads and what runs of them are read at the API server.

use std::collections::BTreeMap;
use std::time::Duration;

use super::legacy::seconds;
use super::step::Step;
use super::view::View;
use super::{Election, Phase};
use crate::{Command, Failure, Instant, Pod, Wish, Workload, WorkloadId};

/// How long after a workload was let run its controller may still start something of it, although it is disabled again: a CronJob's
/// tick that was missed, a ReplicaSet's pods. As long as what is assumed around each full minute.
const SETTLES: Duration = Duration::from_secs(3);

/// How the workloads come to rest.
#[derive(Clone, Debug, Default)]
pub(super) struct WindDown {
    /// Since when nothing is let run here.
    off_since: Option<Instant>,
    /// Whether each workload was let run when it was last seen.
    ran: BTreeMap<WorkloadId, bool>,
    /// Until when the controllers of those that were let run lately may still start something.
    settles: BTreeMap<WorkloadId, Instant>,
    /// What runs was read at the API server since nothing is let run, and all had ended.
    inspected: bool,
}

impl WindDown {
    /// A workload is shown. Of one that was not seen before it is not known what an earlier operator did to it.
    pub(super) fn note(&mut self, workload: &Workload, now: Instant) {
        let runs = workload.setting.runs();
        if self.ran.insert(workload.id.clone(), runs).is_none_or(|ran| runs && !ran) {
            self.may_run(&workload.id, now);
        }
    }

    /// Until now, a write may have been carried out that lets a workload run.
    pub(super) fn may_run(&mut self, id: &WorkloadId, now: Instant) {
        self.settles.insert(id.clone(), now + SETTLES);
    }

    /// Whether something is let run.
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

    /// Until when a disabled workload's controller may not have seen that yet.
    fn settles_at(&self, workload: &Workload, now: Instant) -> Option<Instant> {
        self.settles.get(&workload.id).copied().filter(|until| now < *until && !workload.finished)
    }
}

impl Election {
    /// W3: whether the lock is kept although nothing is let run any more, because something of it still runs, or may.
    pub(super) fn winds_down(&mut self, step: &mut Step) -> bool {
        let view = step.view;
        let until = self.over_at(view);
        let settles = self.held_workloads(view).filter_map(|w| self.wind_down.settles_at(w, view.now)).max();
        if view.now >= until || (settles.is_none() && !self.held_workloads(view).any(|workload| workload.remains)) {
            return false;
        }
        self.wind_down.inspected = false;
        self.winding_down = Some(until);
        step.wake_at(settles.map_or(until, |settles| settles.min(until)));
        true
    }

    /// W4: reads at the API server what still runs, unless that was done or has had its time; returns whether that is awaited.
    pub(super) fn inspects(&mut self, step: &mut Step) -> bool {
        let view = step.view;
        let workloads: Vec<WorkloadId> = self.held_workloads(view).map(|workload| workload.id.clone()).collect();
        if self.wind_down.inspected || workloads.is_empty() || view.now >= self.over_at(view) {
            return false;
        }
        let op = step.request(Command::ReadWorkloads { workloads });
        self.phase = Phase::Inspecting(op);
        true
    }

    pub(super) fn take_inspected(&mut self, read: Result<Vec<Pod>, Failure>, now: Instant) {
        match read {
            // What was found is shown from now on.
            Ok(_) => self.wind_down.inspected = true,
            Err(failure) => self.fail(failure, now),
        }
    }

    fn over_at(&self, view: &View) -> Instant {
        self.wind_down.off_since.unwrap_or(view.now) + seconds(view.wind_down)
    }

    /// W8: those that count. What was never claimed, could not be.
    fn held_workloads<'v>(&'v self, view: &'v View) -> impl Iterator<Item = &'v Workload> {
        let held =
            |workload: &&Workload| self.claim_of(workload).is_some() && !matches!(workload.wish, Wish::Release { .. });
        view.workloads.into_iter().flatten().filter(held)
    }
}
