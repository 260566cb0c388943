//! `lictor crd`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use lictor_api::crds_as_yaml;
use tokio::time::sleep;

use super::support::{block_on, print, told};
use crate::kubernetes::{Crds, FIELD_MANAGER, connect};

/// The time limit of each request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait until the API server serves a CRD.
const PATIENCE: Duration = Duration::from_secs(60);

/// Prints the CRDs of `LeaderElection`, `ElectionClass` and `Switchover` as YAML, or installs them.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lictor crd | kubectl apply -f -\n  lictor crd --apply --kubeconfig ~/.kube/config"
)]
pub(super) struct Crd {
    /// Install the CRDs, or update those that exist, and wait until the API server serves them.
    #[arg(long)]
    apply: bool,

    /// With --apply: the field manager that owns the fields afterwards. The chart passes Helm, because Helm may have to
    /// write them again.
    #[arg(long, value_name = "NAME", default_value = FIELD_MANAGER)]
    field_manager: String,

    /// With --apply: the kubeconfig file. Default: the one that kubectl uses; in a pod, its service account.
    #[arg(long, env = "LICTOR_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl Crd {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if self.apply { block_on(self.apply()) } else { print(&crds_as_yaml()?) }
    }

    async fn apply(self) -> anyhow::Result<()> {
        let crds = Crds::new(connect(self.kubeconfig.as_deref(), TIMEOUT).await?, TIMEOUT);
        let names = crds.apply(&self.field_manager).await.map_err(told)?;
        let began = Instant::now();
        while let unserved = crds.unserved().await.map_err(told)?
            && !unserved.is_empty()
        {
            if began.elapsed() > PATIENCE {
                bail!("not served after {} s: {}", PATIENCE.as_secs(), unserved.join(", "));
            }
            sleep(Duration::from_millis(200)).await;
        }
        names.iter().try_for_each(|name| print(&format!("{name} comes from lictor {}\n", env!("CARGO_PKG_VERSION"))))
    }
}
