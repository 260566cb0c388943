//! An operator in this process: it claims the installation's Lease, and decides elections while it holds the claim.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use futures::{Stream, StreamExt};
use kube::Client;
use lictor_core::ClaimParameters;
use lictor_locks::lease::{ClaimUpdate, Holder, LeaseClaim};
use lictor_process::{monotonic, spawn};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cli::installation::Installation;
use crate::controller::{Clients, Controller, Parameters, Purpose, dialer};
use crate::kubernetes::{connect, rival};
use crate::peers::{Peer, watch_peers};
use crate::store::LeaseStore;
use crate::telemetry::{Health, Metrics};

/// The settings of an operator, besides its installation.
pub(super) struct Role {
    pub(super) purpose: Purpose,
    /// This replica's name in the operator's Lease, which is unique for each start.
    pub(super) own: Holder,
    /// Where to reach the other replicas, instead of at their own addresses.
    pub(super) peers_by: Option<SocketAddr>,
    pub(super) lease_duration: Duration,
    pub(super) metrics: Metrics,
    pub(super) health: Health,
}

impl Role {
    fn claim(&self) -> ClaimParameters {
        match self.purpose {
            Purpose::Serve => ClaimParameters::of_replica(self.lease_duration),
            Purpose::Withdraw => ClaimParameters::patient(self.lease_duration),
        }
    }

    /// Returns the time limit of each request. A request in progress when the claim ends should end within the claim's
    /// margin, but a busy API server needs some time to answer.
    fn request_timeout(&self) -> Duration {
        self.claim().margin().clamp(Duration::from_secs(2), Duration::from_secs(10))
    }

    pub(super) async fn connect(&self, installation: &Installation) -> anyhow::Result<Client> {
        Ok(connect(installation.kubeconfig.as_deref(), self.request_timeout()).await?)
    }
}

/// A running operator.
pub(super) struct Operator {
    stop: watch::Sender<bool>,
    release: watch::Sender<bool>,
    claim: JoinHandle<anyhow::Result<()>>,
    controller: JoinHandle<()>,
}

impl Operator {
    pub(super) fn start(client: Client, installation: &Installation, role: Role) -> anyhow::Result<Self> {
        let request_timeout = role.request_timeout();
        let (namespaces, own_namespace) = (installation.namespaces(), installation.lease_namespace(&client));
        let identity = role.own.identity.clone();
        let (claim, acting, gone) = LeaseClaim::new(
            client.clone(),
            &own_namespace,
            installation.lease_name(),
            role.own.clone(),
            role.claim(),
            monotonic,
        );
        spawn(watch_peers(peers(acting.clone(), role.peers_by), gone));
        let controller = Controller::new(
            Parameters {
                purpose: role.purpose,
                client: client.clone(),
                namespaces: namespaces.clone(),
                controller: installation.controller.clone(),
                identity,
                lease_duration: role.lease_duration,
                own_namespace: own_namespace.clone(),
                request_timeout,
                leases: Arc::new(LeaseStore::new(client.clone(), namespaces.clone(), request_timeout)),
                clients: Clients::default(),
                dial: dialer(),
                doubt: claim.doubt(),
            },
            acting,
            role.metrics,
            role.health,
        )?;
        let (stop, stopping) = watch::channel(false);
        let (release, releasing) = watch::channel(false);
        let (name, served) = (installation.lease_name(), installation.controller.clone());
        let claim = spawn(async move {
            if let Some(namespace) = rival(&client, &namespaces, &own_namespace, &name, request_timeout).await {
                bail!(
                    "another lictor serves the controller {served} already, from the namespace {namespace}: uninstall \
                     one of the two, or give this one another --controller, and classes of its own with that in \
                     spec.controller"
                );
            }
            claim.run(releasing).await;
            Ok(())
        });
        Ok(Self { stop, release, claim, controller: spawn(controller.run(stopping)) })
    }

    /// Waits until the operator ends by itself, because its work is done or because it must not act.
    pub(super) async fn ends(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            done = &mut self.controller => Ok(done?),
            claim = &mut self.claim => claim?,
        }
    }

    /// Stops the operator. It first completes the handovers in progress, then gives up its claim.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.stop.send_replace(true);
        if !self.controller.is_finished() {
            self.controller.await?;
        }
        self.release.send_replace(true);
        self.claim.await?
    }
}

/// The acting replica, whenever it changes. `None`: only this one acts, or the acting one announces no address.
fn peers(updates: watch::Receiver<ClaimUpdate>, by: Option<SocketAddr>) -> impl Stream<Item = Option<Peer>> {
    let holders = futures::stream::unfold(updates, |mut updates| async move {
        updates.changed().await.ok()?;
        let holder = updates.borrow_and_update().holder.clone();
        Some((holder, updates))
    });
    holders.map(move |holder| {
        let Holder { identity, address, .. } = holder?;
        Some(Peer { identity, address: by.or(address)? })
    })
}
