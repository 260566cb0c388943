//! Answers the standbys.

use std::sync::Arc;
use std::time::Duration;

use lictor_process::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::{CHALLENGE, GREETING, answer};

/// The number of connections at a time. Further ones are closed at once. There are two or three replicas.
const MOST: usize = 16;
/// How long a connection may be silent: a standby asks every 5 s.
const SILENCE: Duration = Duration::from_secs(15);
/// How long an answer may take to be taken.
const TAKEN: Duration = Duration::from_secs(5);
/// How long to wait before the next connection is accepted after one could not be, for example for lack of file
/// descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers the challenges of other replicas for as long as the process lives. That the listener is closed means that
/// the process is gone, so it is never closed before.
pub async fn answer_peers(listener: TcpListener, identity: String) {
    let (identity, free): (Arc<str>, _) = (identity.into(), Arc::new(Semaphore::new(MOST)));
    loop {
        let Ok((connection, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let Ok(place) = free.clone().try_acquire_owned() else { continue };
        let identity = identity.clone();
        spawn(async move {
            converse(connection, &identity).await;
            drop(place);
        });
    }
}

/// Answers until the other side ends the connection, is silent, or says something else than a challenge.
async fn converse(mut connection: TcpStream, identity: &str) {
    let _ = connection.set_nodelay(true);
    let mut line = [0; GREETING.len() + CHALLENGE + 1];
    while let Ok(Ok(_)) = timeout(SILENCE, connection.read_exact(&mut line)).await {
        let Some(challenge) = challenge(&line) else { return };
        let Ok(Ok(())) = timeout(TAKEN, connection.write_all(&answer(identity, challenge))).await else { return };
    }
}

fn challenge(line: &[u8]) -> Option<&str> {
    let challenge = std::str::from_utf8(line).ok()?.strip_prefix(GREETING)?.strip_suffix('\n')?;
    challenge.chars().all(|digit| digit.is_ascii_hexdigit()).then_some(challenge)
}
