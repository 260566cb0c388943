//! Replaces the operator's subcommands on systems on which the operator does not run.

use std::ffi::OsString;

use anyhow::bail;
use clap::{Args, Subcommand};

/// The operator's subcommands, none of which is available.
#[derive(Debug, Subcommand)]
pub(crate) enum Commands {
    #[command(hide = true)]
    Run(Words),
    #[command(hide = true)]
    Withdraw(Words),
}

/// All arguments after the subcommand, which are ignored.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

/// An example of these subcommands for `lictor --help`.
pub(crate) const EXAMPLE: &str = "";

impl Commands {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        bail!(
            "`lictor run` and `lictor withdraw` belong to the operator, which runs only on Linux: docs/install.md says \
             how to install it in a cluster, and its image has both commands"
        )
    }
}
