//! From a claim to a lock: its terms.

use std::sync::Arc;

use lictor_core::{ClaimState, HeldLock, Instant, Term, Version};
use tokio::sync::{Notify, watch};

use super::keeper::ClaimUpdate;
use crate::lock::{LockUpdate, Problem};

/// The history of a claim, in terms.
#[derive(Debug, Default)]
struct Terms {
    /// The write since which this process has held the claim without a gap.
    since: Option<Version>,
    /// The version that serves as the term: that of the same write, or of a later one.
    term: Option<Version>,
    /// The term that is to be replaced by a higher one.
    least: Option<Version>,
}

impl Terms {
    /// A6: makes the version of the next renewal the term.
    fn again(&mut self) {
        self.least = self.term.take();
    }

    fn update(&mut self, claim: &ClaimUpdate) -> LockUpdate {
        if claim.since != self.since {
            *self = Self { since: claim.since, term: claim.since, least: None };
        }
        let least = self.least;
        self.term = self.term.or(claim.held.filter(|held| Some(*held) > least));
        let held = match (claim.state, self.term) {
            (ClaimState::Acting(until), Some(term)) => {
                let term = Term(i64::try_from(term.0).unwrap_or(i64::MAX));
                // L6: after the Lease was deleted, its last holder may not have noticed.
                Some(HeldLock { term, from: claim.alone_from, until })
            }
            _ => None,
        };
        let other = claim.leader.clone().filter(|_| claim.others);
        LockUpdate { held, other, heard: None, problem: None }
    }
}

/// Tells a lock's owner what becomes of a claim, for as long as that lives. A notification of `again` asks for a higher term. `told` says
/// when this process last heard of the claim, and the problem that it has.
pub(crate) async fn follow(
    mut claims: watch::Receiver<ClaimUpdate>,
    again: Arc<Notify>,
    updates: watch::Sender<LockUpdate>,
    told: impl Fn(&ClaimUpdate) -> (Option<Instant>, Option<Problem>),
) {
    let mut terms = Terms::default();
    loop {
        let claim = claims.borrow_and_update().clone();
        let (heard, problem) = told(&claim);
        let new = LockUpdate { heard, problem, ..terms.update(&claim) };
        updates.send_if_modified(|update| {
            let differs = *update != new;
            *update = new;
            differs
        });
        tokio::select! {
            biased;
            changed = claims.changed() => if changed.is_err() {
                return std::future::pending().await;
            },
            () = again.notified() => terms.again(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lictor_core::Instant;

    use super::*;

    /// Shows A6.
    #[test]
    fn the_term_is_the_first_write_of_those_that_hold_the_lease_or_a_later_one_if_that_is_wanted() {
        let until = Instant::after_origin(Duration::from_secs(8));
        let claim = |since: u64, held: u64| ClaimUpdate {
            state: ClaimState::Acting(until),
            since: Some(Version(since)),
            held: Some(Version(held)),
            ..ClaimUpdate::default()
        };
        let mut terms = Terms::default();
        let mut term = |claim: &ClaimUpdate, again: bool| {
            if again {
                terms.again();
            }
            terms.update(claim).held.map(|held| held.term.0)
        };
        assert_eq!(term(&claim(5, 5), false), Some(5));
        assert_eq!(term(&claim(5, 8), false), Some(5), "it was renewed");
        assert_eq!(term(&claim(5, 8), true), Some(8));
        assert_eq!(term(&claim(5, 8), true), None);
        assert_eq!(term(&claim(5, 9), false), Some(9));
        assert_eq!(term(&ClaimUpdate::default(), false), None);
        assert_eq!(term(&claim(20, 21), false), Some(20));
    }
}
