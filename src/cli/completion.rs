//! `lictor completion`.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

/// Prints the completion script of a shell.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  source <(lictor completion bash)")]
pub(super) struct Completion {
    /// The shell.
    shell: Shell,
}

impl Completion {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        generate(self.shell, &mut super::Cli::command(), "lictor", &mut script);
        super::crd::print(&String::from_utf8_lossy(&script))
    }
}
