//! How long a holder can rely on a lock in a store.

use super::Instant;

/// How long a holder can rely on a lock in a store, or on a claim that depends on a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockValidity {
    /// The hold is known to have ended, from the store itself.
    Ended,
    /// The hold was not renewed in time, or never was, so another holder may have the lock.
    Lapsed,
    /// Nothing is known yet: the hold was not looked up, or was found and not yet renewed.
    Unknown,
    /// The hold lasts up to this moment, and longer only if it is renewed before.
    Until(Instant),
    /// The hold lasts for good: no other holder can take the lock without a compare-and-swap that this cluster would notice.
    Unlimited,
}

impl LockValidity {
    /// Whether the hold surely lasts at a moment.
    pub fn lasts(self, now: Instant) -> bool {
        match self {
            Self::Ended | Self::Lapsed | Self::Unknown => false,
            Self::Until(end) => now < end,
            Self::Unlimited => true,
        }
    }
}
