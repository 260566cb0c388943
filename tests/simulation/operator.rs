//! One replica of the operator: its real loop, in a simulated process.

use std::sync::Arc;
use std::time::Duration;

use lictor::controller::{Clients, Controller, Dial, Parameters, Purpose};
use lictor::kubernetes::Namespaces;
use lictor::store::LeaseStore;
use lictor::telemetry::{Health, Metrics};
use lictor_core::ClaimParameters;
use lictor_locks::lease::{ClaimUpdate, Holder, LeaseClaim};
use lictor_process::{Process, monotonic, spawn, spawn_in};
use tokio::sync::{mpsc, watch};

use crate::process::Simulated;

pub const CONTROLLER: &str = "lictor.dev/operator";
/// Where the operator's own Lease is.
pub const OWN_NAMESPACE: &str = "lictor";
pub const LEASE: Duration = Duration::from_secs(15);

/// A replica that was started.
pub struct Started {
    /// Asks it to end.
    pub stop: watch::Sender<bool>,
    pub claim: watch::Receiver<ClaimUpdate>,
    /// Tells it that the process of a replica is gone.
    pub gone: mpsc::UnboundedSender<String>,
}

pub fn own_lease() -> String {
    CONTROLLER.replace('/', "-")
}

/// Starts a replica in a process.
pub fn start(process: &Arc<Simulated>, identity: &str, client: kube::Client, clients: Clients, dial: Dial) -> Started {
    let own = Holder { identity: identity.to_owned(), ..Holder::default() };
    let parameters = ClaimParameters::of_replica(LEASE);
    let (stop, stopping) = watch::channel(false);
    let first: Arc<dyn Process> = process.clone();
    let (claim, acting, gone) = LeaseClaim::new(client.clone(), OWN_NAMESPACE, own_lease(), own, parameters, monotonic);
    let (told, identity) = (acting.clone(), identity.to_owned());
    spawn_in(&first, async move {
        let timeout = parameters.margin().clamp(Duration::from_secs(2), Duration::from_secs(10));
        let namespaces = Namespaces::default();
        let parameters = Parameters {
            purpose: Purpose::Serve,
            leases: Arc::new(LeaseStore::new(client.clone(), namespaces.clone(), timeout)),
            client,
            namespaces,
            controller: CONTROLLER.into(),
            identity,
            lease_duration: LEASE,
            own_namespace: OWN_NAMESPACE.into(),
            request_timeout: timeout,
            clients,
            dial,
            doubt: claim.doubt(),
        };
        let controller = Controller::new(parameters, acting, Metrics::default(), Health::default()).unwrap();
        let (release, releasing) = watch::channel(false);
        let claim = spawn(claim.run(releasing));
        controller.run(stopping).await;
        let _ = release.send(true);
        let _ = claim.await;
    });
    Started { stop, claim: told, gone }
}
