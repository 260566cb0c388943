//! The command that an agent runs.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use lictor_core::{Instant, Term};
use lictor_process::boot_nanoseconds;
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

use super::processes::{below, signal_below};
use super::watchdog::GUARD_VARIABLE;

/// The environment variable with a command's term. Only commands of agents have it.
pub const TERM_VARIABLE: &str = "LICTOR_TERM";

/// The command to run.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// The lock, for the command's environment.
    pub key: String,
}

/// A command that has started.
pub(super) struct Running {
    pid: Pid,
    /// Whether its own process has ended. The process id may belong to another process since.
    ended: bool,
    /// How many times in a row no process of it was found.
    nothing: u8,
}

impl CommandLine {
    /// Starts the command through the [gate](super::gate), in a process group of its own.
    pub(super) fn start(&self, term: Term, until: Instant) -> io::Result<Running> {
        let child = Command::new("/proc/self/exe")
            .arg0("lictor")
            .args(["agent-gate", &boot_nanoseconds(until).to_string(), &getpid().as_raw_nonzero().to_string(), "--"])
            .args(&self.words)
            .env(TERM_VARIABLE, term.to_string())
            .env("LICTOR_KEY", &self.key)
            .env_remove(GUARD_VARIABLE)
            .process_group(0)
            .spawn()?;
        Ok(Running { pid: Pid::from_child(&child), ended: false, nothing: 0 })
    }
}

impl Running {
    /// Returns whether `pid` is the command's own process. If so, that process has ended.
    pub(super) fn reaped(&mut self, pid: Pid) -> bool {
        let own = !self.ended && pid == self.pid;
        self.ended |= own;
        own
    }

    /// Whether its own process has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Sends a signal to its own process.
    pub(super) fn signal(&self, signal: Signal) {
        if !self.ended
            && let Err(error) = kill_process(self.pid, signal)
        {
            tracing::warn!(%error, "the command could not be signalled");
        }
    }

    /// Asks the command to end; if it has ended, asks the processes that it left behind.
    pub(super) fn terminate(&self, signal: Signal) {
        if !self.ended {
            tracing::info!("asking the command to end");
            return self.signal(signal);
        }
        match signal_below(getpid(), Signal::TERM) {
            Ok(0) => {}
            Ok(processes) => tracing::info!(processes, "asking the command's remaining processes to end"),
            Err(error) => log(&error),
        }
    }

    /// Kills the command and all its descendants.
    pub(super) fn kill(&self) {
        // The process group comes first, because a single call kills it. Until the command's own process is reaped, no other group has
        // this id.
        if !self.ended {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        if let Err(error) = signal_below(getpid(), Signal::KILL) {
            log(&error);
        }
    }

    /// Checks that none of its processes is still alive.
    pub(super) fn is_gone(&mut self) -> bool {
        match below(getpid()) {
            Ok(found) if found.is_empty() => self.nothing += 1,
            Ok(_) => self.nothing = 0,
            Err(error) => log(&error),
        }
        self.nothing > 1
    }
}

fn log(error: &io::Error) {
    tracing::error!(%error, "can't read /proc, which lists the processes that the command has started");
}
