//! `kubectl lictor pause` and `resume`: sets and unsets `spec.paused`.

use clap::Args;
use clap_complete::ArgValueCompleter;

use super::access::Place;
use super::complete::elections;
use super::format::resource_name;
use super::reading::{Reader, full_name};
use crate::cli::support::{Ended, block_on, print};

/// Freezes elections: lictor keeps their locks, but promotes and demotes no pod. A handover that has begun is
/// completed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  kubectl lictor pause web\n  kubectl lictor pause web db -n shop")]
pub(crate) struct Pause {
    #[command(flatten)]
    which: Which,
}

/// Ends the freeze of elections.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  kubectl lictor resume web\n  kubectl lictor resume web db -n shop")]
pub(crate) struct Resume {
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, Args)]
struct Which {
    /// The elections.
    #[arg(required = true, value_name = "NAME", add = ArgValueCompleter::new(elections))]
    names: Vec<String>,

    #[command(flatten)]
    place: Place,
}

impl Pause {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        block_on(self.which.set(true))
    }
}

impl Resume {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        block_on(self.which.set(false))
    }
}

impl Which {
    async fn set(self, paused: bool) -> anyhow::Result<Ended> {
        let (reader, namespace) = self.place.reader().await?;
        for name in &self.names {
            set(&reader, &namespace, name, paused).await?;
        }
        Ok(Ended::Well)
    }
}

async fn set(reader: &Reader, namespace: &str, name: &str, paused: bool) -> anyhow::Result<()> {
    let (election, managers) = reader.election_and_managers(namespace, name).await?;
    let resource = resource_name(&election);
    if election.spec.paused == paused {
        return print(&format!("{resource} {}\n", if paused { "was paused already" } else { "was not paused" }));
    }
    reader.set_paused(&election, paused).await?;
    print(&format!("{resource} {}\n", if paused { "paused" } else { "resumed" }))?;
    if let Some(warning) = may_be_undone(&managers) {
        eprintln!("{}: {warning}", full_name(&election));
    }
    Ok(())
}

/// Names the programs that may reset `spec.paused` because they applied it.
pub(super) fn may_be_undone(managers: &[String]) -> Option<String> {
    let applied = || format!("spec.paused was last applied by {}, which may reset it", managers.join(", "));
    (!managers.is_empty()).then(applied)
}
