//! The lock of an agent: the port to the places where locks are kept.

use std::sync::Arc;

use lictor_core::{HeldLock, Instant, Term, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// The known state of the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockUpdate {
    /// The lock, while this agent holds it.
    pub held: Option<HeldLock>,
    /// The other holder that was seen last.
    pub other: Option<Other>,
    /// When the last answered question about the lock was sent; for a Lease, when its last news came. `None` if there was no news yet.
    pub heard: Option<Instant>,
    /// The obstacle that keeps this agent from hearing of the lock, or from ever getting it, for people.
    pub problem: Option<String>,
}

/// Another holder of the lock, according to itself. For people, and for clients that want to reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Other {
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: Option<String>,
    /// Where it is reached.
    pub address: Option<String>,
    /// Its term.
    pub term: Option<Term>,
    /// Since when it leads, by its own clock.
    pub since: Option<Timestamp>,
}

impl Other {
    /// Returns a holder of which only the name is known.
    pub fn named(name: String) -> Self {
        Self { name, ..Self::default() }
    }
}

/// A lock that is being kept: acquired as soon as it is free, and renewed.
pub struct Lock {
    /// The known state of the lock.
    pub updates: watch::Receiver<LockUpdate>,
    /// A notification makes the task acquire the lock again, in a higher term.
    pub again: Arc<Notify>,
    /// The value true makes the task release the lock and end.
    pub stop: watch::Sender<bool>,
    /// The task.
    pub task: JoinHandle<()>,
}
