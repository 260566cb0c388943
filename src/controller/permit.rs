//! Permits for requests that wait for their turn and can be taken back until they begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const BEGUN: u8 = 1;
const TAKEN_BACK: u8 = 2;

/// The requester's half. Dropping it keeps the request from being sent.
#[derive(Debug)]
pub(super) struct Grant(Arc<AtomicU8>);

/// The request's half.
#[derive(Clone, Debug)]
pub(super) struct Permit(Arc<AtomicU8>);

impl Grant {
    pub(super) fn new() -> (Self, Permit) {
        let state = Arc::default();
        (Self(Arc::clone(&state)), Permit(state))
    }

    /// Takes the request back. Returns whether it had not begun, and so never will.
    pub(super) fn take_back(&self) -> bool {
        self.0.fetch_or(TAKEN_BACK, Ordering::SeqCst) & BEGUN == 0
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.take_back();
    }
}

impl Permit {
    /// Begins the request. Returns whether it may. A later call says whether it still may.
    pub(super) fn begin(&self) -> bool {
        self.0.fetch_or(BEGUN, Ordering::SeqCst) & TAKEN_BACK == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_back_before_it_begins_never_does() {
        let (grant, permit) = Grant::new();
        assert!(grant.take_back());
        assert!(!permit.begin());

        let (grant, permit) = Grant::new();
        drop(grant);
        assert!(!permit.begin());
    }

    #[test]
    fn what_has_begun_is_not_taken_back_but_hears_of_it() {
        let (grant, permit) = Grant::new();
        assert!(permit.begin() && permit.begin());
        assert!(!grant.take_back());
        assert!(!permit.begin());
    }
}
