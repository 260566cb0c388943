//! What an agent holds: the port to where locks are kept.

use std::sync::Arc;

use lictor_core::{HeldLock, Instant, Term, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// What is known of the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockUpdate {
    /// The lock, while this agent holds it.
    pub held: Option<HeldLock>,
    /// Who else was seen to hold it last.
    pub other: Option<Other>,
    /// When the last question about it was sent that was answered; of a Lease: when news of it came last. None: nothing was heard yet.
    pub heard: Option<Instant>,
    /// What keeps this agent from hearing of the lock, or from ever getting it, for people.
    pub problem: Option<String>,
}

/// Another one that holds the lock, as it says of itself. For people, and for whoever wants to reach it.
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
    /// Returns one that says no more than its name.
    pub fn named(name: String) -> Self {
        Self { name, ..Self::default() }
    }
}

/// A lock that is being kept: acquired as soon as it is free, and renewed.
pub struct Lock {
    /// What is known of it.
    pub updates: watch::Receiver<LockUpdate>,
    /// Notified, it makes the task acquire the lock anew, in a higher term.
    pub again: Arc<Notify>,
    /// Set to true, it makes the task release the lock and end.
    pub stop: watch::Sender<bool>,
    /// The task.
    pub task: JoinHandle<()>,
}
