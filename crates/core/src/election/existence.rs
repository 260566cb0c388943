//! What is known of the election's object, and of what is left of the election.

use super::phase::Withdrawal;

/// How far the operator knows that the election exists, or that nothing is left of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Existence {
    /// Whether the last view says that the election no longer exists.
    pub(super) gone: bool,
    /// The newest generation that the API server has reported, past the cache that the views are made from.
    pub(super) known_generation: i64,
    /// For a withdrawal: how far the operator has confirmed that nothing is left.
    pub(super) withdrawal: Withdrawal,
}

impl Existence {
    pub(super) fn new() -> Self {
        Self { gone: false, known_generation: 0, withdrawal: Withdrawal::Unconfirmed }
    }
}
