//! How long what is held in a store is surely its holder's own.

use super::Instant;

/// How long what this cluster holds in a store is surely its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenure {
    /// For good: nobody else can take it without a compare-and-swap that this cluster would notice.
    Unlimited,
    /// Until this moment, and longer only if it is renewed before.
    Until(Instant),
    /// It may be somebody else's by now.
    Lapsed,
}

impl Tenure {
    /// Whether it lasts at a moment.
    pub fn lasts(self, now: Instant) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Until(end) => now < end,
            Self::Lapsed => false,
        }
    }
}
