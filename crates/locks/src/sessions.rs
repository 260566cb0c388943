//! The sessions that hold a cluster's locks, whatever store has them.

use std::time::Duration;

use lictor_core::{Failure, LockValidity};

/// The role of this process for the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The process does nothing, because another replica keeps the sessions.
    Standby,
    /// The process keeps the sessions, by the takeover with this number. L7: with another number, another replica may have kept them
    /// meanwhile, so the process begins anew. A process without replicas has one number.
    Acting(u64),
    /// The process destroys the sessions, and ends. Only a process that acts may do so. A process that ends without this leaves them to the
    /// next one.
    Leave,
}

/// The state of the sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sessions {
    /// The sessions' IDs, by their numbers. `None` means that there is no such session at present.
    pub ids: Vec<Option<String>>,
    /// L7: the number of the takeover by which this process keeps the sessions. What was told of the locks under an earlier one may be old.
    pub takeover: u64,
    /// The moment until which the locks of each session are valid.
    pub validities: Vec<LockValidity>,
    /// The moment until which the locks of all sessions are valid.
    pub validity: LockValidity,
    /// The present problem.
    pub failure: Option<Failure>,
    /// C15: the store's answer for a lock that the sessions hold, or held, and that may not be written.
    pub denied: Option<Failure>,
    /// C14: whether the problem is another installation, which keeps sessions under the same cluster name.
    pub name_in_use: bool,
    /// How long the last renewal took, or the slowest one if there are several sessions.
    pub renewal: Duration,
}
