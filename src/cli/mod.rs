//! The command line, with one file for each subcommand.

#[cfg(target_os = "linux")]
mod agent;
mod completion;
#[cfg(target_os = "linux")]
mod consul;
mod crd;
mod groups;
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
    help_template = groups::template(&groups()),
    after_help = format!("Examples:\n  lictor crd | kubectl apply -f -    # install the CRDs\n{}  kubectl lictor list -A    # all elections, as a plugin of kubectl\n  kubectl lictor doctor    # what is wrong, and what to do", operator::EXAMPLE)
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    See(See),
    #[command(flatten)]
    Steer(Steer),
    #[command(flatten)]
    Check(Check),
    #[cfg(target_os = "linux")]
    #[command(flatten)]
    Programs(Programs),
    #[command(flatten)]
    Installations(Installations),
    #[command(flatten)]
    Others(Others),
}

/// Show elections.
#[derive(Debug, Subcommand)]
enum See {
    List(user::List),
    Status(user::Status),
    Who(user::Who),
    Explain(user::Explain),
    History(user::History),
    Watch(user::Watch),
    Dashboard(user::Dashboard),
}

/// Move leaders, or keep lictor from moving them.
#[derive(Debug, Subcommand)]
enum Steer {
    Switchover(user::Switchover),
    Pause(user::Pause),
    Resume(user::Resume),
}

/// Find problems.
#[derive(Debug, Subcommand)]
enum Check {
    Check(user::Check),
    Doctor(user::Doctor),
    Report(user::Report),
}

/// Run beside or around a program.
#[cfg(target_os = "linux")]
#[derive(Debug, Subcommand)]
enum Programs {
    Agent(Box<agent::Agent>),
    #[command(hide = true)]
    AgentGate(agent::Gate),
    Observe(Box<observe::Observe>),
}

/// Install, run and remove the operator.
#[derive(Debug, Subcommand)]
enum Installations {
    #[command(flatten)]
    Operator(operator::Commands),
    /// Prints the CRDs of LeaderElection, ElectionClass and Switchover, or installs them.
    Crd(crd::Crd),
}

/// Help to type commands.
#[derive(Debug, Subcommand)]
enum Others {
    Completion(completion::Completion),
    #[command(hide = true)]
    Complete(completion::Complete),
}

/// Returns each group of subcommands as a command, with the group's name as their heading.
pub fn groups() -> Vec<clap::Command> {
    vec![
        groups::group::<See>("See elections"),
        groups::group::<Steer>("Steer elections"),
        groups::group::<Check>("Check"),
        #[cfg(target_os = "linux")]
        groups::group::<Programs>("Run a program"),
        groups::group::<Installations>("Operator"),
        groups::group::<Others>("Others"),
    ]
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
            Command::See(See::List(list)) => list.run(),
            Command::See(See::Status(status)) => status.run(),
            Command::See(See::Who(who)) => who.run(),
            Command::See(See::Explain(explain)) => explain.run(),
            Command::See(See::History(history)) => history.run(),
            Command::See(See::Watch(watch)) => watch.run(),
            Command::See(See::Dashboard(dashboard)) => dashboard.run(),
            Command::Steer(Steer::Switchover(switchover)) => switchover.run(),
            Command::Steer(Steer::Pause(pause)) => pause.run(),
            Command::Steer(Steer::Resume(resume)) => resume.run(),
            Command::Check(Check::Check(check)) => check.run(),
            Command::Check(Check::Doctor(doctor)) => doctor.run(),
            Command::Check(Check::Report(report)) => report.run(),
            #[cfg(target_os = "linux")]
            Command::Programs(Programs::Agent(agent)) => return agent.run(),
            #[cfg(target_os = "linux")]
            Command::Programs(Programs::AgentGate(gate)) => return Ok(gate.run()),
            #[cfg(target_os = "linux")]
            Command::Programs(Programs::Observe(observe)) => observe.run(),
            Command::Installations(Installations::Operator(command)) => done(command.run()),
            Command::Installations(Installations::Crd(crd)) => done(crd.run()),
            Command::Others(Others::Completion(completion)) => completion.run(Self::command()),
            Command::Others(Others::Complete(complete)) => complete.run(Self::command()),
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
