//! The last check before the command begins, in its own process, right before that process becomes the command.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use lictor_process::{from_boot_nanoseconds, monotonic};

/// The exit code of shells for a missing program.
const NOT_FOUND: u8 = 127;
/// The exit code of shells for a program that can't be run.
const NOT_RUNNABLE: u8 = 126;
/// The exit code for a killed process.
const TOO_LATE: u8 = 137;

/// Becomes the command, unless `until`, in nanoseconds since the machine's start, is over, or the agent that started this is gone. A1: the
/// agent may have been stopped between its decision and this. The watchdog finds every process that started before `until` then (A3).
/// Returns only if it does not become the command, with the exit code and a message.
pub fn pass(until: u64, agent: i32, command: &[OsString]) -> (u8, Option<String>) {
    // If the agent is killed, so is the command. The watchdog kills the processes that the command starts.
    let guarded = set_parent_process_death_signal(Some(Signal::KILL));
    if guarded.is_err() || getppid() != Pid::from_raw(agent) || from_boot_nanoseconds(until) <= monotonic() {
        return (TOO_LATE, None);
    }
    let Some((program, arguments)) = command.split_first() else { return (NOT_RUNNABLE, None) };
    let error = Command::new(program).args(arguments).exec();
    let code = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE };
    (code, Some(format!("lictor: can't run {}: {error}", program.display())))
}
