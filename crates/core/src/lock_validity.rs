//! How long what is held in a store is surely its holder's own.

use super::Instant;

/// How long what is held in a store, or hangs on a session, is surely its holder's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockValidity {
    /// It is known to have ended, from the store itself.
    Ended,
    /// It was not renewed in time, or never was: it may be somebody else's.
    Lapsed,
    /// Nothing is known yet: it was not looked up, or was found and not yet renewed.
    Unknown,
    /// Up to this moment, and longer only if it is renewed before.
    Until(Instant),
    /// For good: nobody else can take it without a compare-and-swap that this cluster would notice.
    Unlimited,
}

impl LockValidity {
    /// Whether it surely lasts at a moment.
    pub fn lasts(self, now: Instant) -> bool {
        match self {
            Self::Ended | Self::Lapsed | Self::Unknown => false,
            Self::Until(end) => now < end,
            Self::Unlimited => true,
        }
    }
}
