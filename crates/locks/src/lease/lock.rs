//! A lock in a Lease, in the form of client-go's LeaseLock, so that agents and programs with client-go's leader election exclude each
//! other. [`LeaseClaim`] keeps it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use lictor_core::ClaimParameters;
use lictor_kubernetes::election_of;
use lictor_process::{monotonic, spawn};
use tokio::sync::{Notify, watch};

use super::claim::LeaseClaim;
use crate::claim::{ClaimUpdate, Holder, follow};
use crate::lock::{Lock, LockUpdate, Problem, Released};

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
        let told = move |claim: &ClaimUpdate| {
            let taken = |owner: &String| Problem::Taken { lease: lease.clone(), owner: owner.clone() };
            let problem = claim.owner.as_ref().map(taken).or_else(|| claim.failure.clone().map(Problem::Failed));
            (claim.installation.is_some().then(monotonic), problem)
        };
        let claim = claim.reading_first().granting(grant).sparing(election);
        let task = spawn(async move {
            // A Lease does not show that its holder is gone, so this process waits for the Lease to expire.
            let _gone = gone;
            tokio::select! {
                confirmed = claim.run(stopping) => if confirmed { Released::Confirmed } else { Released::Unconfirmed },
                () = follow(claims, asked, updates, told) => Released::Unconfirmed,
            }
        });
        Lock::new(receiver, again, stop, task)
    }
}

/// Describes the election whose lock this Lease is.
fn election(lease: &Lease) -> Option<String> {
    election_of(lease).map(|name| format!("the LeaderElection {name}"))
}
