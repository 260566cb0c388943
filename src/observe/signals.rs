//! The signals that end this process.

use std::io;

use futures::StreamExt;
use futures::stream::{BoxStream, poll_fn, select};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Returns SIGTERM and Ctrl-C as they arrive. From now on they have no other effect.
///
/// # Errors
/// If the system does not let this process wait for them.
pub(super) fn ends() -> io::Result<BoxStream<'static, ()>> {
    let heard = |mut signal: Signal| poll_fn(move |context| signal.poll_recv(context));
    Ok(select(heard(signal(SignalKind::terminate())?), heard(signal(SignalKind::interrupt())?)).boxed())
}
