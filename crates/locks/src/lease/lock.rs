//! A lock in a Lease, in the form of client-go's LeaseLock, so that agents and programs with client-go's leader election exclude each
//! other. [`LeaseClaim`] keeps it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use lictor_core::{ClaimParameters, ClaimState, HeldLock, Term, Version};
use lictor_kubernetes::election_of;
use lictor_process::{monotonic, spawn};
use tokio::sync::{Notify, watch};

use super::claim::{ClaimUpdate, Holder, LeaseClaim};
use crate::lock::{Lock, LockUpdate, Other, Problem, Released};

/// The settings for a lock in a Lease.
#[derive(Clone, Debug)]
pub struct LeaseLockSettings {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// The process, as the Lease names its holder. A process takes a Lease with its own name for its own, so no other one may have it.
    pub identity: String,
    /// How long the Lease lasts after a renewal.
    pub duration: Duration,
    /// The address at which others reach this process while it holds the Lease, for readers of the Lease's annotation.
    pub advertise: Option<SocketAddr>,
    /// The end of each message about a missing right: to whom it is to be granted, for people.
    pub grant: &'static str,
}

/// A lock in a Lease.
pub struct LeaseLock;

impl LeaseLock {
    /// Begins to keep a Lease.
    pub fn start(client: Client, settings: LeaseLockSettings) -> Lock {
        let LeaseLockSettings { namespace, name, identity, duration, advertise, grant } = settings;
        let own = Holder { identity, address: advertise, pod_uid: None };
        let parameters = ClaimParameters::patient(duration);
        let (claim, claims, gone) = LeaseClaim::new(client, &namespace, name.clone(), own, parameters, monotonic);
        let (updates, receiver) = watch::channel(LockUpdate::default());
        let (stop, stopping) = watch::channel(false);
        let again = Arc::<Notify>::default();
        let asked = again.clone();
        let lease = format!("{namespace}/{name}");
        let claim = claim.reading_first().granting(grant).sparing(election);
        let task = spawn(async move {
            // A Lease does not show that its holder is gone, so this process waits for the Lease to expire.
            let _gone = gone;
            tokio::select! {
                confirmed = claim.run(stopping) => if confirmed { Released::Confirmed } else { Released::Unconfirmed },
                () = follow(&lease, claims, asked, updates) => Released::Unconfirmed,
            }
        });
        Lock::new(receiver, again, stop, task)
    }
}

/// Describes the election whose lock this Lease is.
fn election(lease: &Lease) -> Option<String> {
    election_of(lease).map(|name| format!("the LeaderElection {name}"))
}

/// The history of the Lease, in terms.
#[derive(Debug, Default)]
struct Terms {
    /// The write since which this process has held the Lease without a gap.
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
        let address = claim.holder.as_ref().and_then(|holder| holder.address).map(|address| address.to_string());
        let other = claim.leader.clone().filter(|_| claim.others);
        let other = other.map(|name| Other { address, ..Other::named(name) });
        LockUpdate { held, other, heard: None, problem: None }
    }
}

async fn follow(
    lease: &str,
    mut claims: watch::Receiver<ClaimUpdate>,
    again: Arc<Notify>,
    updates: watch::Sender<LockUpdate>,
) {
    let mut terms = Terms::default();
    loop {
        let claim = claims.borrow_and_update().clone();
        let heard = claim.installation.is_some().then(monotonic);
        let taken = |owner: &String| Problem::Taken { lease: lease.to_owned(), owner: owner.clone() };
        let problem = claim.owner.as_ref().map(taken).or_else(|| claim.failure.clone().map(Problem::Failed));
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

    #[test]
    fn another_holder_is_known_by_its_name_and_the_address_that_it_says() {
        let holder = Holder { identity: "a".into(), address: Some(([10, 0, 0, 7], 80).into()), pod_uid: None };
        let other = |holder| {
            let leader = Some("a".to_owned());
            Terms::default().update(&ClaimUpdate { others: true, leader, holder, ..ClaimUpdate::default() }).other
        };
        let found = other(Some(holder)).expect("it holds the Lease");
        assert_eq!((found.name.as_str(), found.address.as_deref()), ("a", Some("10.0.0.7:80")));
        assert_eq!(other(None), Some(Other::named("a".into())));
    }
}
