//! The effect of a complete Switchover, and how long it lasts.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use lictor_core::switchover::Hold;
use lictor_core::{Instant, Timestamp, Uid};

use super::conditions::COMPLETE;
use super::switchover::Switchover;

/// Returns the effect of a Switchover on the order of the candidates, for a process that sees the Switchover for the
/// first time, or none if it is not complete. The remaining time is counted by that process's own clock: `now`, the
/// same moment as `wall`.
pub fn hold(seen: &Switchover, now: Instant, wall: Timestamp) -> Option<Hold> {
    held_until(seen, now + left(ended(seen, wall), seen.spec.hold_seconds, wall))
}

/// The same effect, until this moment.
pub fn held_until(seen: &Switchover, until: Instant) -> Option<Hold> {
    // A leader of another cluster can't be preempted here.
    let here = seen.spec.to_cluster_name.is_none();
    let status = seen.status.clone().filter(|_| says(seen, COMPLETE) && here)?;
    let from = status.from.and_then(|from| from.pod_uid).map(Uid);
    Some(Hold { from, to: Uid(status.to?.pod_uid?), force: seen.spec.force, until })
}

/// Whether a condition of this type is True.
pub fn says(seen: &Switchover, type_: &str) -> bool {
    let conditions = seen.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.type_ == type_ && condition.status == "True")
}

/// Returns when a Switchover ended, by some machine's wall clock, in milliseconds.
pub fn ended(seen: &Switchover, wall: Timestamp) -> i64 {
    let time = seen.status.as_ref().and_then(|status| status.completion_time.as_ref());
    time.map_or(wall.0, |Time(time)| time.as_millisecond())
}

/// Returns what is left of some seconds that began at a time of some machine's wall clock: never more than all of them.
pub fn left(began: i64, seconds: u32, wall: Timestamp) -> Duration {
    let passed = u64::try_from(wall.0.saturating_sub(began)).unwrap_or(0);
    Duration::from_secs(seconds.into()).saturating_sub(Duration::from_millis(passed))
}
