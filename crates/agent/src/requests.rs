//! The requests to a living agent: for its state, and to leave the lock to another agent.

use lictor_core::AgentState;
use lictor_locks::{LockUpdate, Problem};
use tokio::sync::{mpsc, oneshot, watch};

/// The state of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The agent's activity.
    pub state: AgentState,
    /// The known state of the lock.
    pub lock: LockUpdate,
}

impl Condition {
    /// Returns the obstacle that keeps this agent from hearing of the lock, or from ever getting it, for people.
    pub fn problem(&self) -> Option<String> {
        self.lock.problem.as_ref().map(told)
    }
}

/// Returns the text of a problem, and what a person can do about it.
pub(super) fn told(problem: &Problem) -> String {
    match problem {
        Problem::Taken { .. } => format!("{problem}: give --lease another name"),
        Problem::NotALock { .. } => format!("{problem}: delete it, or give --bucket another name"),
        Problem::Failed(_) => problem.to_string(),
    }
}

/// The agent's end.
pub struct Requests {
    pub(super) conditions: watch::Sender<Condition>,
    pub(super) yields: mpsc::Receiver<oneshot::Sender<bool>>,
}

/// The requesters' end.
#[derive(Clone)]
pub struct Handle {
    conditions: watch::Receiver<Condition>,
    yields: mpsc::Sender<oneshot::Sender<bool>>,
}

/// The result of a request to yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yielded {
    /// The agent has released the lock, and stays away from it for a time.
    Away,
    /// The agent does not hold the lock, so nothing has changed.
    NotHeld,
    /// The agent is ending, and has released the lock or tried to.
    Ends,
}

/// Returns both ends.
pub fn requests() -> (Requests, Handle) {
    let (conditions, told) = watch::channel(Condition::default());
    let (yields, asked) = mpsc::channel(1);
    (Requests { conditions, yields: asked }, Handle { conditions: told, yields })
}

impl Handle {
    /// Returns the agent's state.
    pub fn condition(&self) -> Condition {
        self.conditions.borrow().clone()
    }

    /// Returns the agent's state, now and at each change. The sender ends with the agent.
    pub fn conditions(&self) -> watch::Receiver<Condition> {
        self.conditions.clone()
    }

    /// Asks the agent to leave the lock to another one. Returns when it has. A dropped call does not stop the agent from doing so.
    pub async fn give_away(&self) -> Yielded {
        let (asked, accepted) = oneshot::channel();
        if self.yields.send(asked).await.is_err() {
            return Yielded::Ends;
        }
        match accepted.await {
            Ok(true) => {}
            Ok(false) => return Yielded::NotHeld,
            Err(_) => return Yielded::Ends,
        }
        let mut conditions = self.conditions.clone();
        match conditions.wait_for(|now| matches!(now.state, AgentState::Away(_) | AgentState::Ended)).await {
            Ok(now) if now.state != AgentState::Ended => Yielded::Away,
            _ => Yielded::Ends,
        }
    }
}
