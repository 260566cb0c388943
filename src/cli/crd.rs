//! `lictor crd`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use tokio::time::sleep;

use super::support::{block_on, print, told};
use crate::api::definitions_as_yaml;
use crate::kubernetes::{Definitions, FIELD_MANAGER, connect};

/// The limit of each request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the API server may take to serve a definition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Prints the definitions of `LeaderElection` and `ElectionClass` as YAML, or installs them.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lictor crd | kubectl apply -f -\n  lictor crd --apply --kubeconfig ~/.kube/config"
)]
pub(super) struct Crd {
    /// Installs them, or renews those that are there, and waits until the API server serves them.
    #[arg(long)]
    apply: bool,

    /// With --apply: who the fields belong to afterwards. The chart names Helm, which may have to write them again.
    #[arg(long, value_name = "NAME", default_value = FIELD_MANAGER)]
    field_manager: String,

    /// With --apply: the kubeconfig file. Default: as kubectl finds it; in a pod, the service account.
    #[arg(long, env = "LICTOR_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl Crd {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if self.apply { block_on(self.apply()) } else { print(&definitions_as_yaml()?) }
    }

    async fn apply(self) -> anyhow::Result<()> {
        let definitions = Definitions::new(connect(self.kubeconfig.as_deref(), TIMEOUT).await?, TIMEOUT);
        let names = definitions.apply(&self.field_manager).await.map_err(told)?;
        let began = Instant::now();
        while let unserved = definitions.unserved().await.map_err(told)?
            && !unserved.is_empty()
        {
            if began.elapsed() > PATIENCE {
                bail!("not served after {} s: {}", PATIENCE.as_secs(), unserved.join(", "));
            }
            sleep(Duration::from_millis(200)).await;
        }
        names.iter().try_for_each(|name| print(&format!("{name} is that of lictor {}\n", env!("CARGO_PKG_VERSION"))))
    }
}
