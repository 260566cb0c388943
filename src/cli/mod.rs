//! The command line, with one file for each subcommand.

mod check;
mod completion;
mod crd;
mod installation;
mod operator;
mod run;
mod support;
mod withdraw;

use clap::{CommandFactory, Parser, Subcommand};

/// Elects one leader among the pods of a group, and labels it: role=leader.
#[derive(Debug, Parser)]
#[command(name = "lictor", version, propagate_version = true, arg_required_else_help = true)]
#[command(
    after_help = "Examples:\n  lictor crd | kubectl apply -f -    install the CRDs\n  lictor run --kubeconfig ~/.kube/config    run the operator on your machine\n  lictor check --lease-namespace lictor    check that the installation there works"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the operator.
    Run(run::Run),
    /// Prints the CRDs of LeaderElection and ElectionClass, or installs them.
    Crd(crd::Crd),
    /// Checks that an installation works: its CRDs, classes and rights, and that an operator acts.
    Check(check::Check),
    /// Removes everything that an installation has written. Use it before you uninstall lictor.
    Withdraw(withdraw::Withdraw),
    /// Prints the completion script of a shell.
    Completion(completion::Completion),
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// Returns what went wrong, for a person.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Run(run) => run.run(),
            Command::Crd(crd) => crd.run(),
            Command::Check(check) => check.run(),
            Command::Withdraw(withdraw) => withdraw.run(),
            Command::Completion(completion) => completion.run(Self::command()),
        }
    }
}
