//! Links between the operator's replicas: the acting one proves over a connection that it is alive, and a standby sees
//! at once when its process has ended.
//!
//! A standby keeps one connection to the replica that holds the operator's Lease, at the address in that Lease. It
//! sends a challenge now and then; the answer contains the challenge and the name of the process. The kernel closes all
//! sockets of a process when the process ends, however it ends. So if a connection that was proved to lead to the
//! holder closes, and the same address *refuses* a new one, the process is gone (L5 of docs/protocol.md). Nothing else
//! proves anything: no answer, another's answer, an unreachable address, a proxy that accepts connections for a dead
//! process.

mod listener;
mod watcher;

pub use listener::answer_peers;
pub use watcher::{Peer, watch_peers};

/// The prefix of each challenge.
const GREETING: &str = "lictor ";
/// The length of a challenge, in hexadecimal digits.
const CHALLENGE: usize = 16;

/// The answer of the process of this name to a challenge.
fn answer(identity: &str, challenge: &str) -> Vec<u8> {
    format!("{GREETING}{challenge} {identity}\n").into_bytes()
}
