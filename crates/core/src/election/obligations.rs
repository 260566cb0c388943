//! W5: the obligations that workloads leave with a lock, for the next holder in this cluster or in another one.

use std::time::Duration;

use super::lock::Lock;
use crate::view::View;
use crate::{DrainObligation, Instant, Record, Stored, Timestamp, Version, Workload, WorkloadKind};

/// W5: the longest time, in seconds, for which a record delays workloads, unless those here take longer to end themselves. Every writer of
/// the lock's key may write any number there.
const LONGEST: u32 = 3_600;

/// The operator's knowledge of other clusters' workloads, and for how long it has to wait for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Obligations {
    /// The obligation of the cluster that holds the lock.
    rival: Option<DrainObligation>,
    left: Option<Left>,
    /// When this process first knew a record of its own whose holder may have to wait.
    waits_since: Option<Instant>,
    /// The longest time that counts, in seconds.
    most: u32,
}

/// The obligation that another cluster left with the lock.
#[derive(Clone, Debug)]
struct Left {
    /// The version of the free lock, or `None` if the lock has vanished.
    version: Option<Version>,
    obligation: DrainObligation,
    at: Instant,
    wall: Timestamp,
}

impl Obligations {
    /// Remembers the obligation of another cluster's workloads, when that cluster ceased to hold the lock, and when this process first knew
    /// its own record.
    pub(super) fn note(&mut self, lock: &Lock, view: &View) {
        self.most = most(view);
        if lock.record().is_some() {
            self.waits_since.get_or_insert(view.now);
        } else {
            self.waits_since = None;
        }
        let rewound = view.now < view.policy.not_before;
        let leave = |version, obligation: Option<DrainObligation>, at: Instant| {
            // In a store that was put back, the record may be from long before the last holder.
            let obligation = if rewound { obligation.unwrap_or_default() } else { obligation? };
            let mut obligation = bounded(obligation, view);
            if rewound {
                (obligation.ended, obligation.waits_seconds) = (false, 0);
                obligation.wind_down_seconds = obligation.wind_down_seconds.max(view.wind_down);
            }
            Some(Left { version, obligation, at: at.max(view.policy.not_before), wall: view.wall })
        };
        match lock.stored() {
            Some(Stored::HeldByOther(_, rival)) => (self.rival, self.left) = (rival.drain_obligation.clone(), None),
            Some(Stored::Free(version, None, obligation)) => {
                // A different version means that another holder had the lock meanwhile, unnoticed.
                if self.left.as_ref().is_none_or(|left| left.version != Some(*version)) {
                    let obligation = obligation.clone().or_else(|| self.rival.take());
                    self.left = leave(Some(*version), obligation, view.now).or(self.left.take());
                }
            }
            Some(Stored::Absent) => {
                if let Some(obligation) = self.rival.take() {
                    // The other cluster hears of that as late as it can, and disables its workloads only then.
                    self.left = leave(None, Some(obligation), view.now + view.policy.grace);
                } else if rewound && self.left.is_none() {
                    self.left = leave(None, None, view.now);
                }
            }
            Some(Stored::Free(version, Some(own), _)) => {
                self.rival = None;
                if self.left.as_ref().is_none_or(|left| left.version != Some(*version)) {
                    self.left =
                        if rewound { leave(Some(*version), own.drain_obligation.clone(), view.now) } else { None };
                }
            }
            Some(Stored::Ours(..) | Stored::Damaged(..) | Stored::Foreign(_)) | None => {}
        }
    }

    /// W1: the moment until which the operator enables no workload, because workloads may still run in another cluster.
    pub(super) fn wait(&self, own: Option<&Record>, now: Instant) -> Option<Instant> {
        self.waits_until(own, now).filter(|until| now < *until)
    }

    fn waits_until(&self, own: Option<&Record>, now: Instant) -> Option<Instant> {
        let (since, waits) = if let Some(left) = &self.left {
            (left.at, left.waits())
        } else {
            (self.waits_since.unwrap_or(now), own?.drain_obligation.as_ref()?.waits_seconds.min(self.most))
        };
        Some(since + seconds(waits)).filter(|_| waits > 0)
    }

    /// The obligation that the record has for the next holder, or `None` if there are no workloads. `own` is the record that this cluster
    /// holds, `replaced` the one that is replaced.
    pub(super) fn to_record(
        &self,
        replaced: Option<&Record>,
        own: Option<&Record>,
        view: &View,
    ) -> Option<DrainObligation> {
        if !view.policy.shared {
            return None;
        }
        let before = replaced.and_then(|record| record.drain_obligation.clone());
        let before = before.map(|before| bounded(before, view));
        let Some(workloads) = view.workloads else {
            // Workloads may still run, as the record before said.
            return before.map(|before| DrainObligation { ended: false, ..before });
        };
        if workloads.is_empty() && view.jobs.is_empty() {
            return None;
        }
        let (waits, ticks) = match &self.left {
            Some(left) => (left.waits(), workloads.iter().filter_map(|workload| left.tick(workload, view)).collect()),
            None => before.map(|before| (before.waits_seconds, before.ticks)).unwrap_or_default(),
        };
        // A wait that is over here is over for the next holder, too.
        let over = self.waits_until(own, view.now).is_some_and(|until| until <= view.now);
        let waits = if over { 0 } else { waits };
        let mut obligation =
            DrainObligation { wind_down_seconds: view.wind_down, ended: false, waits_seconds: waits, ticks };
        add_ticks(&mut obligation, view);
        Some(obligation)
    }

    /// W3: this cluster's record as it is when all workloads have ended here, or `None` if it says so already.
    pub(super) fn ended(&self, own: &Record, view: &View) -> Option<Record> {
        let mut obligation = own.drain_obligation.clone().filter(|obligation| !obligation.ended).or_else(|| {
            let none = own.drain_obligation.is_none();
            self.to_record(Some(own), Some(own), view).filter(|_| none)
        })?;
        obligation = bounded(obligation, view);
        add_ticks(&mut obligation, view);
        obligation.ended = true;
        // Workloads that others left before continue to end, whichever cluster has the lock.
        let left = self.wait(Some(own), view.now).map(|until| until.since(view.now).as_millis().div_ceil(1000));
        obligation.waits_seconds = left.and_then(|left| left.try_into().ok()).unwrap_or_default();
        Some(Record { drain_obligation: Some(obligation), ..own.clone() })
    }

    /// While this cluster leads: the record that says how long the workloads about to be enabled may take to end, and, for W6, which ticks
    /// were run. `None` if the present record says so already.
    pub(super) fn announced(&self, own: &Record, view: &View) -> Option<Record> {
        let wanted = self.to_record(Some(own), Some(own), view);
        // The predecessor's part of the record may name a later tick than this cluster has run.
        let later = |wanted: &DrainObligation, told: &DrainObligation| {
            wanted.ticks.iter().any(|(name, tick)| told.ticks.get(name).is_none_or(|told| told < tick))
        };
        let differs = match (&wanted, &own.drain_obligation) {
            (Some(wanted), Some(told)) => {
                let rest = |one: &DrainObligation| (one.wind_down_seconds, one.ended, one.waits_seconds);
                rest(wanted) != rest(told) || later(wanted, told)
            }
            (wanted, told) => wanted.is_some() != told.is_some(),
        };
        differs.then(|| Record { drain_obligation: wanted, ..own.clone() })
    }
}

/// W6: adds the last ticks that were run here.
fn add_ticks(obligation: &mut DrainObligation, view: &View) {
    for workload in view.workloads.into_iter().flatten() {
        if let Some(tick) = workload.last_tick {
            let known = obligation.ticks.entry(workload.id.name.clone()).or_insert(tick);
            *known = (*known).max(tick);
        }
    }
}

fn most(view: &View) -> u32 {
    LONGEST.max(view.wind_down)
}

/// The latest tick that another cluster can have started, whatever its clock says.
pub(super) fn latest_tick(view: &View) -> Timestamp {
    Timestamp(view.wall.0.saturating_add(i64::from(LONGEST) * 1_000))
}

/// W5: the part of an obligation that counts.
fn bounded(obligation: DrainObligation, view: &View) -> DrainObligation {
    let (most, latest) = (most(view), latest_tick(view));
    DrainObligation {
        wind_down_seconds: obligation.wind_down_seconds.min(most),
        waits_seconds: obligation.waits_seconds.min(most),
        ticks: obligation.ticks.into_iter().map(|(name, tick)| (name, tick.min(latest))).collect(),
        ended: obligation.ended,
    }
}

impl Left {
    /// Whether the former holder had nothing running, because it let go of the lock in order, or still had to wait itself.
    fn is_idle(&self) -> bool {
        self.obligation.ended || self.obligation.waits_seconds > 0
    }

    /// How long, in seconds, the operator may enable nothing after that.
    fn waits(&self) -> u32 {
        if self.is_idle() { self.obligation.waits_seconds } else { self.obligation.wind_down_seconds }
    }

    /// W6: the last tick of a CronJob's schedule for which another cluster has started Jobs.
    fn tick(&self, workload: &Workload, view: &View) -> Option<(String, Timestamp)> {
        if workload.id.kind != WorkloadKind::CronJob {
            return None;
        }
        let known = self.obligation.ticks.get(&workload.id.name).copied();
        // A holder that went silent was last heard of at least this long ago, and its CronJobs ran then, by this machine's own clock.
        let silence = i64::try_from(view.policy.silence.as_millis()).unwrap_or(i64::MAX);
        let heard = Timestamp(self.wall.0.saturating_sub(silence));
        let tick = if self.is_idle() { known? } else { known.map_or(heard, |known| known.max(heard)) };
        Some((workload.id.name.clone(), tick))
    }
}

/// A number of seconds, as in records.
pub(super) fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}
