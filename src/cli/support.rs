//! Functions that several subcommands use.

use std::io::Write;

use lictor_core::Failure;

/// Runs a subcommand until it ends.
pub(super) fn block_on(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(work)
}

/// Returns a failure's text for a person.
pub(super) fn told(failure: Failure) -> anyhow::Error {
    let (Failure::Refused(text) | Failure::Unknown(text) | Failure::Rewritten(text)) = failure;
    anyhow::Error::msg(text)
}

/// Prints to the standard output. A reader that closes it early is no error.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
