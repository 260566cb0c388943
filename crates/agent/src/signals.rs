//! Incoming signals.

use std::io;

use futures::StreamExt;
use futures::stream::{BoxStream, poll_fn, select_all};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// The signals that are forwarded. The first two end the agent.
const FORWARDED: [Signal; 7] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::WINCH];

/// Returns whether a signal asks to end.
pub(super) fn ends(signal: Signal) -> bool {
    FORWARDED[..2].contains(&signal)
}

/// Returns the forwarded signals as they arrive. From now on they have no other effect.
///
/// # Errors
/// If the system does not let this process wait for them.
pub(super) fn forwarded() -> io::Result<BoxStream<'static, Signal>> {
    all(&FORWARDED)
}

/// Returns SIGTERM and Ctrl-C as they arrive. From now on they have no other effect.
///
/// # Errors
/// If the system does not let this process wait for them.
pub(super) fn endings() -> io::Result<BoxStream<'static, ()>> {
    Ok(all(&FORWARDED[..2])?.map(drop).boxed())
}

/// Returns a stream with an item whenever a child has ended.
///
/// # Errors
/// If the system does not let this process wait for that.
pub fn children() -> io::Result<BoxStream<'static, Signal>> {
    of(Signal::CHILD)
}

/// Returns a stream with an item whenever a user tries to stop this process from its terminal, which from now on has no other effect.
///
/// # Errors
/// If the system does not let this process wait for that.
pub(super) fn stops() -> io::Result<BoxStream<'static, Signal>> {
    of(Signal::TSTP)
}

fn all(kinds: &[Signal]) -> io::Result<BoxStream<'static, Signal>> {
    Ok(select_all(kinds.iter().copied().map(of).collect::<io::Result<Vec<_>>>()?).boxed())
}

fn of(kind: Signal) -> io::Result<BoxStream<'static, Signal>> {
    let mut heard = signal(SignalKind::from_raw(kind.as_raw()))?;
    Ok(poll_fn(move |context| heard.poll_recv(context).map(|heard| heard.map(|()| kind))).boxed())
}
