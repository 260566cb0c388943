//! `lictor completion`.

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use super::support::print;

/// Prints the completion script of a shell.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  source <(lictor completion bash)")]
pub(super) struct Completion {
    /// The shell.
    shell: Shell,
}

impl Completion {
    pub(super) fn run(self, mut command: Command) -> anyhow::Result<()> {
        let mut script = Vec::new();
        generate(self.shell, &mut command, "lictor", &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}
