//! `lictor run`: the operator.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use lictor_core::ClaimParameters;
use lictor_locks::lease::Holder;
use lictor_process::spawn;
use tokio::net::TcpListener;

use super::operator::{Operator, Role};
use crate::cli::installation::Installation;
use crate::cli::support::{asked_to_end, block_on, unique};
use crate::controller::Purpose;
use crate::kubernetes::{Crds, Installed};
use crate::peers::answer_peers;
use crate::telemetry::{Health, LogFormat, Metrics, init_logs, serve};

/// The time limit of each request for the CRDs.
const CRDS_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the operator: elects leaders for all LeaderElections and writes the labels on their pods.
///
/// One of several replicas acts. The others stand by with warm caches. SIGTERM or Ctrl-C makes a replica hand over at
/// once.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lictor run --kubeconfig ~/.kube/config\n  lictor run --namespaces shop,bank --lease-namespace shop --log-format json"
)]
pub(crate) struct Run {
    #[command(flatten)]
    installation: Installation,

    /// The name of this replica in the operator's Lease, in locks and in Events. lictor appends a random part, so the
    /// name need not be unique. Default: the host's name.
    #[arg(long, env = "LICTOR_IDENTITY", value_name = "NAME")]
    identity: Option<String>,

    /// How long the other replicas wait for a silent one before they take over: 3s to 300s.
    #[arg(long, env = "LICTOR_LEASE_DURATION", value_name = "DURATION", default_value = "15s", value_parser = lease_duration)]
    lease_duration: Duration,

    /// The address of /healthz, /readyz and /metrics. Port 0 picks a free port and logs it.
    #[arg(long, env = "LICTOR_LISTEN", value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,

    /// The address at which the other replicas reach this one: that of its pod. lictor listens there, so that a standby
    /// sees at once when this process has ended. Without it, the others wait for --lease-duration.
    #[arg(long, env = "LICTOR_PEER_ADDRESS", value_name = "IP", value_parser = peer_address)]
    peer_address: Option<IpAddr>,

    /// The port at --peer-address. Port 0 picks a free port.
    #[arg(long, env = "LICTOR_PEER_PORT", value_name = "PORT", default_value_t = 8081)]
    peer_port: u16,

    /// The uid of this replica's pod. If --peer-address is set, too, a restarted container continues at once where the
    /// previous one ended.
    #[arg(long, env = "LICTOR_POD_UID", value_name = "UID")]
    pod_uid: Option<String>,

    /// Where to reach the other replica, instead of at its own address. For tests with a proxy.
    #[arg(long, env = "LICTOR_PEERS_BY", value_name = "ADDRESS:PORT", hide = true)]
    peers_by: Option<SocketAddr>,

    /// The format of log lines.
    #[arg(long, env = "LICTOR_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

impl Run {
    pub(super) fn run(self) -> anyhow::Result<()> {
        init_logs(self.log_format)?;
        block_on(self.operate())
    }

    async fn operate(self) -> anyhow::Result<()> {
        let identity = unique(self.identity);
        let address = match self.peer_address {
            Some(address) => answer(SocketAddr::new(address, self.peer_port), &identity).await,
            None => None,
        };
        let role = Role {
            purpose: Purpose::Serve,
            own: Holder { identity, address, pod_uid: self.pod_uid.filter(|uid| !uid.is_empty()) },
            peers_by: self.peers_by,
            lease_duration: self.lease_duration,
            metrics: Metrics::default(),
            health: Health::default(),
        };
        let client = role.connect(&self.installation).await?;
        let listener = TcpListener::bind(self.listen).await.with_context(|| {
            format!("can't listen at {}: choose another --listen, port 0 picks a free one", self.listen)
        })?;
        tracing::info!(
            identity = role.own.identity, listen = %listener.local_addr()?,
            lease = format!("{}/{}", self.installation.lease_namespace(&client), self.installation.lease_name()),
            controller = self.installation.controller, version = env!("CARGO_PKG_VERSION"), "lictor starts"
        );
        spawn(warn_of_old_crds(Crds::new(client.clone(), CRDS_TIMEOUT)));
        let server = spawn(serve(listener, role.health.clone(), role.metrics.clone()));
        let mut operator = Operator::start(client, &self.installation, role)?;
        tokio::select! {
            asked = asked_to_end() => asked?,
            ended = operator.ends() => return ended,
            ended = server => return Err(anyhow::anyhow!("the server of /metrics ended: {ended:?}")),
        }
        tracing::info!("lictor is stopping: it completes its handovers and gives up its lease");
        operator.stop().await
    }
}

/// Answers the other replicas at this address from now on. Returns the address with its port. This replica works
/// without it, too, but then the others wait longer for it.
async fn answer(address: SocketAddr, identity: &str) -> Option<SocketAddr> {
    let bound = TcpListener::bind(address).await.and_then(|listener| Ok((listener.local_addr()?, listener)));
    match bound {
        Ok((address, listener)) => {
            spawn(answer_peers(listener, identity.to_owned()));
            Some(address)
        }
        Err(error) => {
            tracing::warn!(
                %address, %error,
                "can't listen for the other replicas: if this process is killed, they wait for the operator's Lease to \
                 expire. Set --peer-address to the pod's IP, and --peer-port to a free port"
            );
            None
        }
    }
}

/// Warns of CRDs from an older lictor, because with them the API server accepts elections whose values it can't check.
async fn warn_of_old_crds(crds: Crds) {
    // Without an answer, for example because the right is missing, there is nothing to say. The watches report missing
    // CRDs.
    for (name, installed) in crds.installed().await.unwrap_or_default() {
        if let Installed::Older(version) = installed {
            tracing::warn!(
                name,
                version,
                "the CRD comes from an older lictor, and the API server drops the fields that it lacks: update it with \
                 `lictor crd --apply`, or `lictor crd | kubectl apply -f -`"
            );
        }
    }
}

fn peer_address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr =
        text.parse().map_err(|_| "write an IP address, for example 10.1.2.3 or fd00::7".to_owned())?;
    if address.is_unspecified() || address.is_multicast() {
        return Err("the other replicas connect to this address: write the IP address of this replica's pod".into());
    }
    Ok(address)
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
