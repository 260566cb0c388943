//! `lictor crd`.

use std::io::Write;

use clap::Args;

use crate::api::definitions_as_yaml;

/// Prints the definitions of `LeaderElection` and `ElectionClass` as YAML.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  lictor crd | kubectl apply -f -")]
pub(super) struct Crd {}

impl Crd {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Self {} = self;
        print(&definitions_as_yaml()?)
    }
}

/// Prints; a reader that has seen enough is no error.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
