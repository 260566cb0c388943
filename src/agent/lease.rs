//! A lock in a Lease, in the form of client-go's LeaseLock, so that agents and programs with client-go's leader election exclude each
//! other. [`LeaseClaim`] keeps it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use lictor_core::{ClaimParameters, ClaimState, HeldLock, Term, Version};
use tokio::sync::{Notify, watch};

use super::lock::{Lock, LockUpdate, Other};
use crate::kubernetes::{ClaimUpdate, Holder, LeaseClaim};
use crate::process::{monotonic, spawn};
use crate::store::election_of;

/// The end of each message about a missing right.
const GRANT: &str = "; grant it to this agent's service account: docs/agent.md has the Role";

/// A lock in a Lease.
pub struct LeaseLock;

impl LeaseLock {
    /// Begins to keep a Lease. No agent in another place may have this `identity`.
    pub fn start(client: Client, namespace: &str, name: &str, identity: String, duration: Duration) -> Lock {
        let own = Holder { identity, ..Holder::default() };
        let parameters = ClaimParameters::patient(duration);
        let (claim, claims, gone) = LeaseClaim::new(client, namespace, name.to_owned(), own, parameters, monotonic);
        let (updates, receiver) = watch::channel(LockUpdate::default());
        let (stop, stopping) = watch::channel(false);
        let again = Arc::<Notify>::default();
        let asked = again.clone();
        let lease = format!("{namespace}/{name}");
        let claim = claim.reading_first().granting(GRANT).sparing(election);
        let task = spawn(async move {
            // A Lease does not show that its holder is gone, so the agent waits for the Lease to expire.
            let _gone = gone;
            tokio::select! {
                () = claim.run(stopping) => {}
                () = follow(&lease, claims, asked, updates) => {}
            }
        });
        Lock { updates: receiver, again, stop, task }
    }
}

/// Describes the election whose lock this Lease is.
fn election(lease: &Lease) -> Option<String> {
    election_of(lease).map(|name| format!("the LeaderElection {name}"))
}

/// The history of the Lease, in terms.
#[derive(Debug, Default)]
struct Terms {
    /// The write since which this agent has held the Lease without a gap.
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
        let other = claim.leader.clone().filter(|_| claim.others).map(Other::named);
        LockUpdate { held, other, heard: None, problem: None }
    }
}

async fn follow(
    lease: &str,
    mut claims: watch::Receiver<ClaimUpdate>,
    again: Arc<Notify>,
    updates: watch::Sender<LockUpdate>,
) {
    let (mut terms, mut told) = (Terms::default(), None);
    loop {
        let claim = claims.borrow_and_update().clone();
        let heard = claim.installation.is_some().then(monotonic);
        let owned = claim.owner.as_ref().map(|owner| {
            format!(
                "the Lease {lease} is the lock of {owner}, which the operator alone writes: give --lease another name"
            )
        });
        if owned.is_some() && told != owned {
            tracing::warn!(problem = owned, "this agent never gets the lock");
        }
        told.clone_from(&owned);
        let problem = owned.or_else(|| claim.failure.as_ref().map(|failure| failure.text().to_owned()));
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
