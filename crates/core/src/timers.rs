//! The moments at which an election has to take another step, although nothing else happens.

use std::collections::BTreeMap;

use crate::Instant;

/// The reason for a wait. This is the table of all timers of an election: each step sets the ones that it needs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A request failed, and the next one is due.
    Retry,
    /// A write to a pod was refused or had no effect, and the next one is due.
    PodRetry,
    /// A write to a slice was refused or had no effect, and the next one is due.
    SliceRetry,
    /// A write of a workload was refused or had no effect, or other clusters' workloads still end (W1), and the next one is due.
    WorkloadRetry,
    /// The leader is not fit, and may recover until then.
    Recovery,
    /// A change of leader that can wait is due, or a row of changes is over.
    Flapping,
    /// The effect of a finished switchover is over.
    HoldOver,
    /// A pod has been ready for long enough.
    LongEnoughReady,
    /// F3: the lock that the candidates hold has to be written once more before its holder counts as this pod.
    FollowedLock,
    /// C12: another cluster has to have answered by then, or an answer to one is due.
    Bid,
    /// C6: another cluster must know by then that its lock has vanished.
    LockVanished,
    /// C7: other clusters must have seen by then that the store was put back to an earlier state.
    StoreRewound,
    /// L6: another replica may act until then, and the lock is to be released.
    Alone,
    /// W3: the time for running workloads to end is over.
    DrainOver,
    /// Workloads or their pods are still ending, and not every end is reported.
    LookAgain,
    /// A workload that another program changed no longer counts as contested.
    ContestOver,
}

/// The timers that are set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers(BTreeMap<Timer, Instant>);

impl Timers {
    /// Sets a timer, unless it is set to an earlier moment.
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        let set = self.0.entry(timer).or_insert(at);
        *set = at.min(*set);
    }

    /// The earliest moment.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.values().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_earliest_moment_counts_of_each_timer_and_of_all() {
        let at = |seconds| Instant::after_origin(Duration::from_secs(seconds));
        let mut timers = Timers::default();
        assert_eq!(timers.next(), None);
        timers.set(Timer::PodRetry, at(5));
        timers.set(Timer::PodRetry, at(7));
        assert_eq!(timers.next(), Some(at(5)));
        timers.set(Timer::Retry, at(3));
        timers.set(Timer::Recovery, at(9));
        assert_eq!(timers.next(), Some(at(3)));
    }
}
