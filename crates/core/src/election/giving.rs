//! C11 and C12: the state that this cluster keeps while it hands the lock to another one.

use std::time::Duration;

use crate::{Instant, OpId, Version};

/// How long the other cluster may take to answer a record that it sees, and the store to hand over the lock.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The state that is kept while the lock is offered.
#[derive(Clone, Debug, Default)]
pub(super) struct Giving {
    waits: Option<Waits>,
    /// The version of a bid for which the store did not hand over the lock.
    pub(super) refused: Option<Version>,
    /// The bid that is being removed, or was removed although the watch does not show that yet.
    pub(super) cleared: Option<(Option<OpId>, Version)>,
}

/// A wait in which only the other cluster or the store is missing.
#[derive(Clone, Copy, Debug)]
struct Waits {
    /// The version of the record.
    version: Version,
    until: Instant,
    /// Whether the transaction was sent.
    sent: bool,
}

impl Giving {
    /// Waits for the other cluster or the store, at first until this moment. Returns the end of the wait.
    pub(super) fn wait(&mut self, version: Version, sent: bool, until: Instant) -> Instant {
        let waits = self.waits.take_if(|waits| waits.version == version).unwrap_or(Waits { version, until, sent });
        self.waits = Some(Waits { sent: waits.sent || sent, ..waits });
        waits.until
    }

    /// Notes that the other cluster has answered, so from now on the operator waits for something else.
    pub(super) fn answered(&mut self) {
        self.waits.take_if(|waits| !waits.sent);
    }

    /// Whether the operator has waited long enough.
    pub(super) fn is_over(&self, version: Version, now: Instant) -> bool {
        self.waits.is_some_and(|waits| waits.version == version && now >= waits.until)
    }

    /// Takes the outcome of a request. Returns whether that request removed a bid.
    pub(super) fn take_cleared(&mut self, op: OpId) -> bool {
        match &mut self.cleared {
            Some((asked, _)) if *asked == Some(op) => {
                *asked = None;
                true
            }
            _ => false,
        }
    }
}
