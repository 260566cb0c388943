//! The processes below this one: how to find them, how to end them all, and how to reap them.

use std::collections::BTreeMap;
use std::io;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process, pidfd_open, pidfd_send_signal, wait,
};

/// A process, as /proc shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: i32,
    /// When the process was started. The start and the id together are unique.
    started: u64,
    /// Whether the process has ended, and waits to be reaped.
    zombie: bool,
}

/// Returns the living processes below `root`, at any depth, without `root` itself.
///
/// The result may lack a process that is started meanwhile, but has the process that started it. So only two empty results in a row show
/// that there is none.
///
/// # Errors
/// If /proc can't be read.
pub(super) fn below(root: Pid) -> io::Result<Vec<Pid>> {
    Ok(select(&all()?, root.as_raw_nonzero().get()).into_iter().filter_map(|(pid, _)| Pid::from_raw(pid)).collect())
}

/// Sends a signal to all processes below `root`. Returns how many there were.
///
/// # Errors
/// If /proc can't be read.
pub fn signal_below(root: Pid, signal: Signal) -> io::Result<usize> {
    let found = select(&all()?, root.as_raw_nonzero().get());
    for (pid, process) in &found {
        let Some(id) = Pid::from_raw(*pid) else { continue };
        if let Err(error) = signal_one(id, *process, signal)
            && error.raw_os_error() != Some(Errno::SRCH.raw_os_error())
        {
            tracing::warn!(pid, %error, "a process of the command could not be signalled");
        }
    }
    Ok(found.len())
}

/// A process file descriptor stays with its process. So if the process is still the one that was seen, the signal reaches that one.
fn signal_one(pid: Pid, seen: Process, signal: Signal) -> io::Result<()> {
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => match read(pid.as_raw_nonzero().get()) {
            Some(now) if now.started == seen.started => Ok(pidfd_send_signal(process, signal)?),
            _ => Ok(()),
        },
        // Before Linux 5.3, or if a filter of system calls does not know this call.
        Err(Errno::NOSYS | Errno::PERM) => Ok(kill_process(pid, signal)?),
        Err(error) => Err(error.into()),
    }
}

/// Reaps the children that have ended, and returns them with their exit codes. For a process that a signal ended, the code is 128 plus the
/// number of the signal, as in shells.
pub fn reap() -> Vec<(Pid, u8)> {
    let mut ended = vec![];
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        ended.extend(exit_code(status).map(|code| (pid, code)));
    }
    ended
}

fn exit_code(status: WaitStatus) -> Option<u8> {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal))?;
    Some(u8::try_from(code).unwrap_or(u8::MAX))
}

fn all() -> io::Result<BTreeMap<i32, Process>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        found.extend(read(pid).map(|process| (pid, process)));
    }
    Ok(found)
}

/// Returns the parent of a process, or `None` if the process is gone.
pub(super) fn parent_of(pid: Pid) -> Option<Pid> {
    Pid::from_raw(read(pid.as_raw_nonzero().get())?.parent)
}

fn read(pid: i32) -> Option<Process> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads `PID (NAME) STATE PARENT …`, where the name may have any characters.
fn parse(stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process { parent, started, zombie })
}

fn select(all: &BTreeMap<i32, Process>, root: i32) -> Vec<(i32, Process)> {
    let is_below = |pid: i32| {
        let mut above = pid;
        // The loop is bounded by the number of processes, because ids may have been reused meanwhile.
        for _ in 0..all.len() {
            match all.get(&above) {
                Some(process) if process.parent == root => return true,
                Some(process) => above = process.parent,
                None => return false,
            }
        }
        false
    };
    all.iter()
        .filter(|(pid, process)| !process.zombie && is_below(**pid))
        .map(|(pid, process)| (*pid, *process))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(parent: i32) -> Process {
        Process { parent, started: 0, zombie: false }
    }

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let own = i32::try_from(std::process::id()).expect("an id is small");
        let seen = read(own).expect("this process runs");
        assert!(!seen.zombie && seen.started > 0 && seen.parent > 0, "{seen:?}");
        let odd = "7 (a) Z 1 (b)) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 99 1";
        assert_eq!(parse(odd), Some(Process { parent: 3, started: 12_345, zombie: false }));
        assert_eq!(parse("7 (cat) Z 3 7 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 9 0").map(|seen| seen.zombie), Some(true));
        assert_eq!((parse(""), parse("7 (cat) S")), (None, None));
    }

    #[test]
    fn all_that_comes_from_a_process_is_below_it() {
        let mut all =
            BTreeMap::from([(1, process(0)), (2, process(1)), (3, process(2)), (4, process(3)), (9, process(1))]);
        let below = |all: &BTreeMap<_, _>| select(all, 2).into_iter().map(|(pid, _)| pid).collect::<Vec<_>>();
        assert_eq!(below(&all), [3, 4]);
        all.insert(3, Process { zombie: true, ..process(2) });
        assert_eq!(below(&all), [4], "what a zombie has started lives");
        // Because each process was read at another moment, parents may seem to form a circle.
        all.insert(3, process(4));
        assert_eq!(below(&all), [] as [i32; 0]);
    }
}
