//! The write of the remark by which a cluster that does not lead tells the one that does how their elections differ.

use lictor_core::{Failure, Instant};

use super::Retry;

/// The write of an election's remark.
#[derive(Default)]
pub(crate) struct Remarking {
    in_flight: bool,
    retry: Retry,
}

impl Remarking {
    /// Begins a write, if it may begin now. Returns when it may, if that is later.
    pub(crate) fn begin(&mut self, now: Instant) -> Result<(), Option<Instant>> {
        if self.in_flight {
            return Err(None);
        }
        if now < self.retry.due() {
            return Err(Some(self.retry.due()));
        }
        self.in_flight = true;
        Ok(())
    }

    /// How many times in a row the write failed.
    pub(crate) fn failures(&self) -> u32 {
        self.retry.failures()
    }

    /// Takes the result of a write. Returns the obstacle when the write first fails.
    pub(crate) fn take(&mut self, written: Result<(), Failure>, now: Instant) -> Option<Failure> {
        self.in_flight = false;
        match written {
            Ok(()) => {
                self.retry.succeeded();
                // The watch is about to show what was written.
                self.retry.conflicted(now);
                None
            }
            Err(failure) => self.retry.failed(now).then_some(failure),
        }
    }
}
