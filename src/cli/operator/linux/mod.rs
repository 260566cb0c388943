//! `lictor run` and `lictor withdraw`.

mod operator;
mod run;
mod withdraw;

use clap::Subcommand;

/// The operator's subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Commands {
    /// Runs the operator.
    Run(run::Run),
    /// Removes everything that an installation has written. Run it before you uninstall lictor.
    Withdraw(withdraw::Withdraw),
}

/// An example of these subcommands for `lictor --help`.
pub(crate) const EXAMPLE: &str = "  lictor run --kubeconfig ~/.kube/config    # run the operator on your machine\n";

impl Commands {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Run(run) => run.run(),
            Self::Withdraw(withdraw) => withdraw.run(),
        }
    }
}
