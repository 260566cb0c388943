//! Functions that several subcommands use.

use std::io::Write;
use std::process::ExitCode;

use lictor_core::Failure;
use lictor_kubernetes::granting;

/// How a subcommand ended that did not fail. docs/kubectl.md lists the exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The subcommand is done, or the answer is yes.
    Well,
    /// The answer is no: there is no leader, a check found a problem, a switchover failed.
    No,
    /// `check`: the operator would refuse the election.
    Refused,
    /// The subcommand waited in vain.
    Late,
    /// Ctrl-C ended it.
    Interrupted,
}

impl From<Ended> for ExitCode {
    fn from(ended: Ended) -> Self {
        // 1 is an error, and 2 an invalid command line.
        Self::from(match ended {
            Ended::Well => 0,
            Ended::Refused => 1,
            Ended::No => 3,
            Ended::Late => 4,
            // As shells do for SIGINT.
            Ended::Interrupted => 130,
        })
    }
}

/// Runs a subcommand until it ends.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(work)
}

/// Waits for SIGTERM or Ctrl-C.
///
/// # Errors
/// If the system can't deliver these signals.
#[cfg(unix)]
pub(super) async fn asked_to_end() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Waits for Ctrl-C.
///
/// # Errors
/// If the system can't deliver this signal.
#[cfg(not(unix))]
pub(super) async fn asked_to_end() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}

/// Returns a name for this start of this process. A Lease or a record from an earlier start counts as another
/// operator's.
#[cfg(target_os = "linux")]
pub(super) fn unique(identity: Option<String>) -> String {
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let base = identity.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_else(host);
    let random = std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), std::process::id());
    format!("{base}-{:08x}", random & 0xffff_ffff)
}

/// Returns a failure's text for the person who runs this command with their own rights.
pub(super) fn told(failure: Failure) -> anyhow::Error {
    anyhow::Error::msg(granting(&failure.into_text(), "; the user who runs this command needs that right"))
}

/// Prints to the standard output, with colours only on a terminal and without `NO_COLOR`. It is no error if the reader
/// closes the output early.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    print_on(text).map(drop)
}

/// Prints in the same way. Returns whether the reader may still read.
pub(super) fn print_on(text: &str) -> anyhow::Result<bool> {
    let mut output = anstream::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}
