//! `lictor completion`, and the completion of `kubectl lictor`.

use std::ffi::OsString;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::engine::complete;
use clap_complete::{CompletionCandidate, Shell, generate};

use super::support::{Ended, print};
use super::user::complete_for;

/// Tells kubectl to complete no file names, in the format of its own completion.
const NO_FILES: &str = ":4";

/// Prints the completion script of a shell, for `lictor`.
///
/// For `kubectl lictor`, put a script `kubectl_complete-lictor` with the two lines below on your PATH. kubectl runs it
/// for each completion. It completes the names of elections, too.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  source <(lictor completion bash)\n  printf '#!/bin/sh\\nexec kubectl-lictor complete -- \"$@\"\\n' > ~/.local/bin/kubectl_complete-lictor"
)]
pub(super) struct Completion {
    /// The shell.
    shell: Shell,
}

/// Completes a command line of `kubectl lictor`, for kubectl.
#[derive(Debug, Args)]
pub(super) struct Complete {
    /// The words after `kubectl lictor`. The last one is completed, and may be empty.
    #[arg(last = true)]
    words: Vec<OsString>,
}

impl Completion {
    pub(super) fn run(self, mut command: Command) -> anyhow::Result<Ended> {
        let mut script = Vec::new();
        generate(self.shell, &mut command, "lictor", &mut script);
        print(&String::from_utf8_lossy(&script)).map(|()| Ended::Well)
    }
}

impl Complete {
    pub(super) fn run(self, mut command: Command) -> anyhow::Result<Ended> {
        complete_for(self.words.clone());
        let words: Vec<OsString> = [OsString::from("lictor")].into_iter().chain(self.words).collect();
        let last = words.len() - 1;
        let asks_for_option = words[last].as_encoded_bytes().starts_with(b"-");
        let found = complete(&mut command, words, last, None).context("the command line can't be completed")?;
        // Options are completed only after a dash, as in kubectl.
        let offered = |candidate: &&CompletionCandidate| {
            let is_option = candidate.get_value().as_encoded_bytes().starts_with(b"-");
            !candidate.is_hide_set() && (asks_for_option || !is_option)
        };
        let mut text = String::new();
        for candidate in found.iter().filter(offered) {
            text += &candidate.get_value().to_string_lossy();
            if let Some(help) = candidate.get_help() {
                text.push('\t');
                text += help.to_string().lines().next().unwrap_or_default();
            }
            text.push('\n');
        }
        print(&(text + NO_FILES + "\n")).map(|()| Ended::Well)
    }
}
