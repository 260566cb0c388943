//! What an agent holds: the port to where locks are kept.

use std::sync::Arc;

use lictor_core::HeldLock;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// What is known of the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockUpdate {
    /// The lock, while this agent holds it.
    pub held: Option<HeldLock>,
    /// Who else was seen to hold it last, for people.
    pub other: Option<String>,
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
