//! The command line: one file for each subcommand.

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
    after_help = "Examples:\n  lictor crd | kubectl apply -f -    install the definitions\n  lictor run --kubeconfig ~/.kube/config    run the operator on your machine\n  lictor check --lease-namespace lictor    is all well with the installation there?"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the operator.
    Run(run::Run),
    /// Prints the definitions of LeaderElection and ElectionClass, or installs them.
    Crd(crd::Crd),
    /// Looks whether an installation works: definitions, classes, rights, and whether somebody acts.
    Check(check::Check),
    /// Takes off all that an installation has written: before it is uninstalled.
    Withdraw(withdraw::Withdraw),
    /// Prints the completion script of a shell.
    Completion(completion::Completion),
}

impl Cli {
    /// Does what the command line says.
    ///
    /// # Errors
    /// What went wrong, for a person.
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
