//! The command line, with one file for each subcommand.

#[cfg(target_os = "linux")]
mod agent;
mod completion;
#[cfg(target_os = "linux")]
mod consul;
mod crd;
mod installation;
#[cfg(target_os = "linux")]
mod observe;
mod operator;
mod support;
#[cfg(target_os = "linux")]
mod tell;
mod user;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use self::support::Ended;

/// Elects one leader among the pods of a group, and labels it: role=leader.
#[derive(Debug, Parser)]
#[command(name = "lictor", version, propagate_version = true, arg_required_else_help = true)]
#[command(
    after_help = format!("Examples:\n  lictor crd | kubectl apply -f -    # install the CRDs\n{}  kubectl lictor list -A    # all elections, as a plugin of kubectl\n  kubectl lictor doctor    # what is wrong, and what to do", operator::EXAMPLE)
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    // For people who have elections.
    List(user::List),
    Status(user::Status),
    Who(user::Who),
    Explain(user::Explain),
    Switchover(user::Switchover),
    Pause(user::Pause),
    Resume(user::Resume),
    History(user::History),
    Doctor(user::Doctor),
    Report(user::Report),
    Dashboard(user::Dashboard),
    // For programs.
    #[cfg(target_os = "linux")]
    Agent(Box<agent::Agent>),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    AgentGate(agent::Gate),
    #[cfg(target_os = "linux")]
    Observe(Box<observe::Observe>),
    // For the operator.
    #[command(flatten)]
    Operator(operator::Commands),
    /// Prints the CRDs of LeaderElection, ElectionClass and Switchover, or installs them.
    Crd(crd::Crd),
    Completion(completion::Completion),
    #[command(hide = true)]
    Complete(completion::Complete),
}

impl Cli {
    /// Reads the command line. Under the name `kubectl-lictor` the program is a plugin of kubectl, and says so in its
    /// help.
    pub fn read() -> Self {
        let name = std::env::args_os().next().map(PathBuf::from);
        let name = name.as_ref().and_then(|path| path.file_stem()?.to_str());
        let command = Self::command();
        let command = if name == Some("kubectl-lictor") { command.bin_name("kubectl lictor") } else { command };
        #[cfg(target_os = "linux")]
        let command = match std::env::var_os(lictor_agent::TERM_VARIABLE) {
            Some(_) => command.mut_subcommand("agent", agent::nested).mut_subcommand("observe", tell::nested),
            None => command,
        };
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }

    /// Runs the command. Returns the exit code of the process.
    ///
    /// # Errors
    /// Returns the error to print.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let done = |result: anyhow::Result<()>| result.map(|()| Ended::Well);
        let ended = match self.command {
            Command::List(list) => list.run(),
            Command::Status(status) => status.run(),
            Command::Who(who) => who.run(),
            Command::Explain(explain) => explain.run(),
            Command::Switchover(switchover) => switchover.run(),
            Command::Pause(pause) => pause.run(),
            Command::Resume(resume) => resume.run(),
            Command::History(history) => history.run(),
            Command::Doctor(doctor) => doctor.run(),
            Command::Report(report) => report.run(),
            Command::Dashboard(dashboard) => dashboard.run(),
            #[cfg(target_os = "linux")]
            Command::Agent(agent) => return agent.run(),
            #[cfg(target_os = "linux")]
            Command::AgentGate(gate) => return Ok(gate.run()),
            #[cfg(target_os = "linux")]
            Command::Observe(observe) => observe.run(),
            Command::Operator(command) => done(command.run()),
            Command::Crd(crd) => done(crd.run()),
            Command::Complete(complete) => complete.run(Self::command()),
            Command::Completion(completion) => completion.run(Self::command()),
        };
        ended.map(ExitCode::from)
    }

    /// Prints the error, if any, and returns the exit code of the process. Does not wait for a reader that never reads.
    pub fn end(ended: anyhow::Result<ExitCode>) -> ExitCode {
        let code = ended.unwrap_or_else(|error| {
            let problem = format!("lictor: {error:#}");
            #[cfg(target_os = "linux")]
            crate::telemetry::say(&problem);
            #[cfg(not(target_os = "linux"))]
            eprintln!("{problem}");
            ExitCode::FAILURE
        });
        #[cfg(target_os = "linux")]
        crate::telemetry::flush_logs();
        code
    }
}
