//! Watches over the replica that acts.

use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use futures::{Stream, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::{GREETING, answer};

/// How often a peer is asked, and how long it is waited for.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// From one challenge to the next.
    period: Duration,
    /// How long an answer may take, or a connection.
    patience: Duration,
}

const PACE: Pace = Pace { period: Duration::from_secs(5), patience: Duration::from_secs(3) };
/// How long to wait after a connection that led nowhere. It doubles up to the longest.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15);
/// When to try again after a connection to the holder was closed: a listener may be closed a moment after its
/// connections, and until then it accepts new ones.
const ATTEMPTS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(5),
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(400),
];

/// The replica that holds the operator's Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The name of the process, as in the Lease.
    pub identity: String,
    /// The address at which the process answers.
    pub address: SocketAddr,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visit {
    /// The connection led to the holder, and the other side closed it.
    Closed,
    /// The connection led to the holder, which fell silent.
    Silent,
    /// The connection did not lead to the holder.
    Nowhere,
}

/// Watches over the last holder from `holders`; `None`: there is none. Sends the name of each holder whose process is
/// gone to `gone`. Ends with `holders`.
pub async fn watch_peers(holders: impl Stream<Item = Option<Peer>>, gone: mpsc::UnboundedSender<String>) {
    let mut holders = std::pin::pin!(holders);
    let mut holder: Option<Peer> = None;
    loop {
        let mut ended = std::pin::pin!(until_gone(holder.clone()));
        // Other changes are no reason to connect anew.
        holder = loop {
            tokio::select! {
                biased;
                next = holders.next() => match next {
                    Some(next) if next == holder => {}
                    Some(next) => break next,
                    None => return,
                },
                Peer { identity, address } = &mut ended => {
                    tracing::info!(holder = identity, %address, "the process of the acting replica is gone: its address refuses connections");
                    let _ = gone.send(identity);
                    break None;
                }
            }
        };
    }
}

/// Returns the peer when its process is gone for certain.
async fn until_gone(peer: Option<Peer>) -> Peer {
    let Some(peer) = peer else { return std::future::pending().await };
    let mut pause = SHORTEST;
    loop {
        match visit(&peer, PACE).await {
            Visit::Closed if is_refused(peer.address, PACE).await => return peer,
            Visit::Closed | Visit::Silent => pause = SHORTEST,
            Visit::Nowhere => {}
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

/// Connects to the peer, and asks it to prove itself again and again, for as long as it does.
async fn visit(peer: &Peer, pace: Pace) -> Visit {
    let Ok(Ok(mut connection)) = timeout(pace.patience, TcpStream::connect(peer.address)).await else {
        return Visit::Nowhere;
    };
    let _ = connection.set_nodelay(true);
    let mut proved = false;
    loop {
        match timeout(pace.patience, proves(&mut connection, &peer.identity)).await {
            Ok(Ok(true)) => {
                if !std::mem::replace(&mut proved, true) {
                    let Peer { identity, address } = peer;
                    tracing::info!(holder = identity, %address, "connected to the acting replica: this replica would see its end at once");
                }
            }
            Ok(Err(ended)) if proved => return ended,
            Ok(Ok(false) | Err(_)) => return Visit::Nowhere,
            Err(_) => return if proved { Visit::Silent } else { Visit::Nowhere },
        }
        // Nothing is said unasked.
        match timeout(pace.period, connection.read_u8()).await {
            Err(_) => {}
            Ok(Ok(_)) => return Visit::Nowhere,
            Ok(Err(error)) => return end(&error),
        }
    }
}

/// Whether the other side is the process of this name.
async fn proves(connection: &mut TcpStream, identity: &str) -> Result<bool, Visit> {
    let challenge = format!("{:016x}", RandomState::new().hash_one(identity));
    let sent = connection.write_all(format!("{GREETING}{challenge}\n").as_bytes()).await;
    sent.map_err(|error| end(&error))?;
    let expected = answer(identity, &challenge);
    let mut said = vec![0; expected.len()];
    connection.read_exact(&mut said).await.map_err(|error| end(&error))?;
    Ok(said == expected)
}

/// Returns how a connection ended. Only the other side's system closes or resets a connection. An unreachable system
/// proves nothing.
fn end(error: &std::io::Error) -> Visit {
    match error.kind() {
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe => Visit::Closed,
        _ => Visit::Silent,
    }
}

/// L5: whether an address refuses connections at which a process listened until just now.
async fn is_refused(address: SocketAddr, pace: Pace) -> bool {
    for pause in ATTEMPTS {
        sleep(pause).await;
        match timeout(pace.patience, TcpStream::connect(address)).await {
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => return true,
            // Somebody accepts, or has accepted until a moment ago: perhaps only the system of a process that is just
            // ending.
            Ok(Ok(_)) => {}
            Ok(Err(error)) if end(&error) == Visit::Closed => {}
            Ok(Err(_)) | Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests;
