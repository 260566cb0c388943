//! Holds a connection to a leader, which shows at once when the leader's process has ended.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use lictor_core::{ConnectionEvent, ConnectionState};
use lictor_process::monotonic;
use tokio::io::AsyncReadExt;
use tokio::time::{sleep, timeout};

use crate::controller::dial::{Connection, Dial};

/// The pause after a read. Data that a server sends unasked is discarded at 2 MB/s at most.
const READ_PAUSE: Duration = Duration::from_millis(2);
const BUFFER: usize = 4096;

/// Holds a connection to this address for as long as `tell` returns true. Calls `tell` whenever the process is gone or is back. `limit`:
/// how long a connection attempt may take.
pub(super) async fn hold(to: SocketAddr, limit: Duration, dial: Dial, tell: impl Fn(bool) -> bool) {
    let mut state = ConnectionState::default();
    let mut told = false;
    loop {
        let (event, connection) = match timeout(limit, dial(to)).await {
            Ok(Ok(connection)) => (ConnectionEvent::Accepted, Some(connection)),
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => (ConnectionEvent::Refused, None),
            Ok(Err(_)) | Err(_) => (ConnectionEvent::Failed, None),
        };
        let mut pause = state.observe(event, monotonic());
        if let Some(connection) = connection {
            let mut ends = pin!(end(connection));
            let event = loop {
                if !report(&state, &mut told, &tell) {
                    return;
                }
                let due = state.due();
                let wait = due.map(|due| due.since(monotonic())).unwrap_or_default();
                tokio::select! {
                    biased;
                    event = &mut ends => break event,
                    () = sleep(wait), if due.is_some() => state.look(monotonic()),
                }
            };
            pause = state.observe(event, monotonic());
        }
        if !report(&state, &mut told, &tell) {
            return;
        }
        sleep(pause).await;
    }
}

/// Reports whether the process is gone, if that is new. Returns whether the listener is still there.
fn report(state: &ConnectionState, told: &mut bool, tell: &impl Fn(bool) -> bool) -> bool {
    let gone = state.is_gone();
    std::mem::replace(told, gone) == gone || tell(gone)
}

/// Waits for a connection to end.
async fn end(mut connection: Connection) -> ConnectionEvent {
    let mut buffer = [0; BUFFER];
    loop {
        match connection.read(&mut buffer).await {
            Ok(0) => return ConnectionEvent::Closed,
            Ok(_) => sleep(READ_PAUSE).await,
            Err(error) => {
                return match error.kind() {
                    ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => ConnectionEvent::Closed,
                    _ => ConnectionEvent::Failed,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests;
