//! `lictor run`: the operator.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::api::DEFAULT_CONTROLLER;
use crate::consul;
use crate::controller::{Controller, Parameters};
use crate::core::ClaimParameters;
use crate::kubernetes::{LeaseClaim, Namespaces, connect};
use crate::process::{monotonic, spawn};
use crate::store::LeaseStore;
use crate::telemetry::{Health, LogFormat, Metrics, init_logs, serve};

/// Runs the operator: elects leaders for all LeaderElections and writes the labels on their pods.
///
/// Of several replicas one acts, the others stand by with warm caches. SIGTERM or Ctrl-C hands over at once.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lictor run --kubeconfig ~/.kube/config\n  lictor run --namespaces shop,bank --lease-namespace shop --log-format json"
)]
pub(super) struct Run {
    /// The kubeconfig file. Default: as kubectl finds it; in a pod, the service account.
    #[arg(long, env = "LICTOR_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The namespaces to serve, separated by commas. Default: all.
    #[arg(long, env = "LICTOR_NAMESPACES", value_name = "NAMES", value_delimiter = ',', value_parser = namespace)]
    namespaces: Vec<String>,

    /// The name of this replica in the operator's Lease, in locks and in Events. Default: the host's name. It need not be
    /// unique: a random part is added.
    #[arg(long, env = "LICTOR_IDENTITY", value_name = "NAME")]
    identity: Option<String>,

    /// The namespace of the operator's own Lease. Default: that of the pod, else "default".
    #[arg(long, env = "LICTOR_LEASE_NAMESPACE", value_name = "NAME", value_parser = namespace)]
    lease_namespace: Option<String>,

    /// How long the other replicas wait for one that went silent, in seconds, such as 15s; from 3s to 300s.
    #[arg(long, env = "LICTOR_LEASE_DURATION", value_name = "SECONDS", default_value = "15s", value_parser = lease_duration)]
    lease_duration: Duration,

    /// The elections to serve: those whose ElectionClass has this spec.controller.
    #[arg(long, env = "LICTOR_CONTROLLER", value_name = "NAME", default_value = DEFAULT_CONTROLLER, value_parser = controller)]
    controller: String,

    /// Where /healthz, /readyz and /metrics are served. Port 0 picks a free one, which the log tells.
    #[arg(long, env = "LICTOR_LISTEN", value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,

    /// How log lines look.
    #[arg(long, env = "LICTOR_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

impl Run {
    pub(super) fn run(self) -> anyhow::Result<()> {
        init_logs(self.log_format)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(self.operate())
    }

    async fn operate(self) -> anyhow::Result<()> {
        let claim_parameters = ClaimParameters { duration: self.lease_duration };
        // A request that is under way when the claim ends should not outlive the margin that is kept for it; and a busy API
        // server is given its time.
        let request_timeout = claim_parameters.margin().clamp(Duration::from_secs(2), Duration::from_secs(10));
        let client = connect(self.kubeconfig.as_deref(), request_timeout).await?;
        let listener = TcpListener::bind(self.listen).await.with_context(|| {
            format!("can't listen at {}: choose another --listen, port 0 picks a free one", self.listen)
        })?;
        let identity = unique(self.identity);
        let lease_namespace = self.lease_namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let lease_name = self.controller.replace('/', "-");
        tracing::info!(
            identity, listen = %listener.local_addr()?, lease = format!("{lease_namespace}/{lease_name}"),
            controller = self.controller, version = env!("CARGO_PKG_VERSION"), "lictor starts"
        );
        let (health, metrics) = (Health::default(), Metrics::default());
        let server = spawn(serve(listener, health.clone(), metrics.clone()));
        let (claim, acting) = LeaseClaim::new(
            client.clone(),
            &lease_namespace,
            lease_name,
            identity.clone(),
            claim_parameters,
            monotonic,
        );
        let namespaces = Namespaces::new(self.namespaces);
        let leases = Arc::new(LeaseStore::new(client.clone(), namespaces.clone(), request_timeout));
        let parameters = Parameters {
            client,
            namespaces,
            controller: self.controller,
            identity,
            lease_duration: self.lease_duration,
            own_namespace: lease_namespace,
            request_timeout,
            leases,
            consul: Arc::new(consul::Client::new),
        };
        let controller = Controller::new(parameters, acting, metrics, health)?;

        // First the handovers that are under way are finished, then the claim is given back.
        let (stop, stopping) = watch::channel(false);
        let (release, releasing) = watch::channel(false);
        let claim = spawn(claim.run(releasing));
        let controller = spawn(controller.run(stopping));
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            ended = server => return Err(anyhow::anyhow!("the server of /metrics ended: {ended:?}")),
        }
        tracing::info!("lictor stops: it finishes what is under way and hands over");
        stop.send(true)?;
        controller.await?;
        release.send(true)?;
        claim.await?;
        Ok(())
    }
}

/// A name for this start of this process: a Lease or a record that an earlier start wrote is somebody else's.
fn unique(identity: Option<String>) -> String {
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let base = identity.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_else(host);
    let random = std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), std::process::id());
    format!("{base}-{:08x}", random & 0xffff_ffff)
}

fn namespace(name: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let edge = |c: Option<char>| c.is_some_and(|c| c != '-');
    if name.len() <= 63 && name.chars().all(legal) && edge(name.chars().next()) && edge(name.chars().last()) {
        Ok(name.into())
    } else {
        Err("a namespace has lower-case letters, digits and '-', for example shop".into())
    }
}

/// It names the operator's Lease, so it has to be legal for that.
fn controller(name: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '/');
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if name.len() <= 253 && name.chars().all(legal) && edge(name.chars().next()) && edge(name.chars().last()) {
        Ok(name.into())
    } else {
        Err("a controller has lower-case letters, digits, '-', '.' and '/', for example example.com/lictor".into())
    }
}

fn lease_duration(text: &str) -> Result<Duration, String> {
    let seconds =
        text.strip_suffix('s').unwrap_or(text).parse().map_err(|_| "write seconds, for example 15s".to_owned())?;
    if (3..=ClaimParameters::LONGEST.as_secs()).contains(&seconds) {
        Ok(Duration::from_secs(seconds))
    } else {
        Err("it must be from 3s to 300s".into())
    }
}
