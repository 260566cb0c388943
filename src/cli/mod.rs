//! The command line: one file for each subcommand.

mod completion;
mod crd;
mod run;

use clap::{Parser, Subcommand};

/// Elects one leader among the pods of a group, and labels it: role=leader.
#[derive(Debug, Parser)]
#[command(name = "lictor", version, propagate_version = true, arg_required_else_help = true)]
#[command(
    after_help = "Examples:\n  lictor crd | kubectl apply -f -    install the definitions\n  lictor run --kubeconfig ~/.kube/config    run the operator on your machine"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the operator.
    Run(run::Run),
    /// Prints the definitions of LeaderElection and ElectionClass.
    Crd(crd::Crd),
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
            Command::Completion(completion) => completion.run(),
        }
    }
}
