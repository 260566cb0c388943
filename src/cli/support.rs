//! What several subcommands need.

use std::io::Write;

use lictor_core::Failure;

/// Runs a subcommand that has to wait for something.
pub(super) fn block_on(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(work)
}

/// A failure as a person reads it.
pub(super) fn told(failure: Failure) -> anyhow::Error {
    let (Failure::Refused(text) | Failure::Unknown(text) | Failure::Rewritten(text)) = failure;
    anyhow::Error::msg(text)
}

/// Prints; a reader that has seen enough is no error.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
