//! The writes of an election's own object: its status, its finalizer, and the notes about its workloads.

use std::time::Duration;

use lictor_core::Instant;

use crate::controller::permit::{Grant, Permit};

/// The shortest time between status writes that only count candidates again, or say that nothing is decided yet.
const STATUS_PERIOD: Duration = Duration::from_secs(1);
/// A status that says that nothing is decided yet waits no longer than this for other requests, so that the user hears of it.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The writes of an election's own object, one at a time.
#[derive(Default)]
pub(crate) struct OwnWrites {
    under_way: Option<OwnWrite>,
    begun: u64,
    status: Retry,
    /// The retries of the finalizer and of the notes about workloads.
    metadata: Retry,
    /// Since when a status has been waiting, and when to write it or to look again.
    waits: Option<(Instant, Instant)>,
}

struct OwnWrite {
    number: u64,
    /// `None` for a write of the metadata.
    status: Option<Grant>,
}

/// When a write may be tried again.
#[derive(Default)]
pub(crate) struct Retry {
    not_before: Instant,
    failures: u32,
    /// Whether the obstacle to writing was reported.
    told: bool,
}

impl OwnWrites {
    /// Whether a write is under way, or waits for its turn.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Begins a write of the status. Returns its number.
    pub(crate) fn begin_status(&mut self) -> (u64, Permit) {
        self.waits = None;
        let (grant, permit) = Grant::new();
        (self.begin(Some(grant)), permit)
    }

    /// Begins a write of the metadata. Returns its number.
    pub(crate) fn begin_metadata(&mut self) -> u64 {
        self.begin(None)
    }

    fn begin(&mut self, status: Option<Grant>) -> u64 {
        self.begun += 1;
        self.under_way = Some(OwnWrite { number: self.begun, status });
        self.begun
    }

    /// Whether the metadata may be written now. A status write that only waits for its turn is taken back to make room.
    pub(crate) fn may_write_metadata(&mut self, now: Instant) -> bool {
        if now < self.metadata.not_before {
            return false;
        }
        let waits = |write: &OwnWrite| write.status.as_ref().is_some_and(Grant::take_back);
        if self.under_way.as_ref().is_some_and(waits) {
            self.under_way = None;
        }
        self.under_way.is_none()
    }

    /// Whether the status may be written now.
    pub(crate) fn may_write_status(&self, now: Instant) -> bool {
        !self.is_under_way() && now >= self.status.not_before
    }

    /// How many times in a row the status could not be written.
    pub(crate) fn status_failures(&self) -> u32 {
        self.status.failures
    }

    /// When to write a status that differs from the last written one; `None` means now. Only an important status does not wait. `backlog`:
    /// how long requests wait for their turn; zero if the status does not wait for them.
    pub(crate) fn status_waits(&mut self, important: bool, backlog: Duration, now: Instant) -> Option<Instant> {
        let not_before = self.status.not_before;
        let is_over =
            |(since, wake): (Instant, Instant)| wake <= now && (backlog.is_zero() || since + LONGEST_WAIT <= now);
        let is_due = important || self.waits.is_some_and(is_over);
        let due = if is_due { not_before } else { not_before.max(now + STATUS_PERIOD.max(backlog)) };
        if now >= due {
            return None;
        }
        let (since, wake) = self.waits.unwrap_or((now, due));
        let wake = if wake > now { wake } else { due.min(since + LONGEST_WAIT) }.max(not_before);
        self.waits = Some((since, wake));
        Some(wake)
    }

    /// When to try the status again; `None` if a write is under way, because its end is reported.
    pub(crate) fn status_retry(&self) -> Option<Instant> {
        (!self.is_under_way()).then_some(self.status.not_before)
    }

    /// The same for the metadata.
    pub(crate) fn metadata_retry(&self) -> Option<Instant> {
        (!self.is_under_way()).then_some(self.metadata.not_before)
    }

    /// Forgets that a status is waiting.
    pub(crate) fn forget(&mut self) {
        self.waits = None;
    }

    /// Ends a write. Returns the retries of its kind, unless the write was taken back.
    pub(crate) fn end(&mut self, number: u64) -> Option<&mut Retry> {
        let write = self.under_way.take_if(|write| write.number == number)?;
        Some(if write.status.is_some() { &mut self.status } else { &mut self.metadata })
    }
}

impl Retry {
    /// When the write may be tried next.
    pub(crate) fn due(&self) -> Instant {
        self.not_before
    }

    /// How many times in a row the write failed.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn succeeded(&mut self) {
        (self.failures, self.told) = (0, false);
    }

    /// Notes a conflict: the election has changed, and the watch is about to show it.
    pub(crate) fn conflicted(&mut self, now: Instant) {
        self.not_before = now + Duration::from_millis(200);
    }

    /// Notes a failure. Returns whether to report it.
    pub(crate) fn failed(&mut self, now: Instant) -> bool {
        self.not_before = now + Duration::from_millis(500) * (1 << self.failures.min(5));
        self.failures += 1;
        !std::mem::replace(&mut self.told, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;

    fn at(milliseconds: u64) -> Instant {
        Instant::after_origin(Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_failure_is_told_once_and_each_pause_is_longer_up_to_a_limit() {
        let mut retry = Retry::default();
        for (told, due) in
            [(true, 500), (false, 1000), (false, 2000), (false, 4000), (false, 8000), (false, 16_000), (false, 16_000)]
        {
            assert_eq!((retry.failed(at(0)), retry.due()), (told, at(due)));
        }
        retry.succeeded();
        assert_eq!((retry.failed(at(0)), retry.due()), (true, at(500)), "it is told anew");
    }

    #[test]
    fn a_status_that_waits_for_its_turn_makes_way_for_the_metadata() {
        let mut writes = OwnWrites::default();
        let (status, permit) = writes.begin_status();
        assert!(writes.may_write_metadata(at(0)));
        assert!(!permit.begin(), "it is taken back");
        let metadata = writes.begin_metadata();
        assert!(writes.end(status).is_none(), "what is told of it later, is of no concern");
        assert!(writes.is_under_way() && !writes.may_write_metadata(at(0)), "there is one at a time");
        assert_eq!(writes.metadata_retry(), None, "its end is told");
        assert!(writes.end(metadata).is_some() && !writes.is_under_way());
    }

    #[test]
    fn a_status_that_is_being_written_is_awaited() {
        let mut writes = OwnWrites::default();
        let (status, permit) = writes.begin_status();
        assert!(permit.begin());
        assert!(!writes.may_write_metadata(at(0)));
        assert!(writes.end(status).is_some());
        assert!(writes.may_write_metadata(at(0)));
    }

    #[test]
    fn a_status_that_is_refused_does_not_hold_up_the_metadata() {
        let mut writes = OwnWrites::default();
        let (status, _permit) = writes.begin_status();
        assert!(writes.end(status).unwrap().failed(at(0)), "it is told once");
        assert!(writes.may_write_metadata(at(0)));
        assert_eq!(writes.status.not_before, at(500));
    }

    #[test]
    fn what_is_not_important_waits_for_a_second_and_no_longer() {
        let mut writes = OwnWrites::default();
        assert_eq!(writes.status_waits(true, NONE, at(0)), None);
        assert_eq!(writes.status_waits(false, NONE, at(0)), Some(at(1000)));
        assert_eq!(writes.status_waits(false, NONE, at(900)), Some(at(1000)), "it waits no longer for what is new");
        assert_eq!(writes.status_waits(false, NONE, at(1000)), None);
        let (status, _permit) = writes.begin_status();
        assert_eq!(writes.status_waits(false, NONE, at(1000)), Some(at(2000)), "each begins anew");

        // After a failure even an important status waits.
        assert!(writes.end(status).unwrap().failed(at(1000)));
        assert_eq!(writes.status_waits(true, NONE, at(1000)), Some(at(2000)));
        assert!(!writes.may_write_status(at(1400)) && writes.may_write_status(at(1500)));
        assert_eq!(writes.status_waits(true, NONE, at(2000)), None);
        writes.forget();
        assert_eq!(writes.status_waits(false, NONE, at(2000)), Some(at(3000)));
    }

    #[test]
    fn what_tells_nothing_waits_for_as_long_as_requests_do() {
        let mut writes = OwnWrites::default();
        let backlog = Duration::from_secs(10);
        assert_eq!(writes.status_waits(false, backlog, at(0)), Some(at(10_000)));
        assert_eq!(writes.status_waits(false, backlog / 2, at(10_000)), Some(at(15_000)), "there still is one");
        assert_eq!(writes.status_waits(true, NONE, at(11_000)), None, "something is decided");
        assert_eq!(writes.status_waits(false, NONE, at(15_000)), None);
        // A request that hangs for minutes does not keep the status from the user.
        assert_eq!(writes.status_waits(false, backlog, at(299_000)), Some(at(300_000)));
        assert_eq!(writes.status_waits(false, backlog, at(299_999)), Some(at(300_000)));
        assert_eq!(writes.status_waits(false, backlog, at(300_000)), None);
    }
}
