//! The other replicas of the operator: the one that acts proves over a connection that it is there, and a standby sees at once when
//! its process has ended.
//!
//! A standby keeps one connection to the replica that the operator's Lease names, at the address in that Lease. It sends a challenge
//! now and then; the answer has the challenge and the name of the process. The kernel closes all of a process's sockets when the
//! process ends, however it ends. So if a connection that was proved to lead to the holder closes, and a new one to the same address is
//! *refused*, then nobody listens there any more: the process is gone (L5 of docs/protocol.md). Everything else says nothing: no
//! answer, another's answer, an address that can't be reached, a proxy that accepts connections for a dead process.

mod listener;
mod watcher;

pub use listener::answer_peers;
pub use watcher::{Peer, watch_peers};

/// What precedes each challenge.
const GREETING: &str = "lictor ";
/// The length of a challenge, in hexadecimal digits.
const CHALLENGE: usize = 16;

/// The answer to a challenge by the process of this name.
fn answer(identity: &str, challenge: &str) -> Vec<u8> {
    format!("{GREETING}{challenge} {identity}\n").into_bytes()
}
