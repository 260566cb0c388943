//! C15: the locks that this cluster holds, and whose keys it may no longer write.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use lictor_core::{Failure, Instant};
use tokio::sync::Notify;

/// How long after a refusal the keeper tries the right again, while the refusal keeps sessions from being renewed.
const TRIED_AGAIN: Duration = Duration::from_secs(2);
/// The same pause after the sessions that held these keys have ended.
const TRIED_SELDOM: Duration = Duration::from_secs(10);

/// The way by which a store tells the keeper of its sessions that writes were refused.
#[derive(Debug, Default)]
pub struct Refusals {
    new: Mutex<Vec<Refused>>,
    told: Notify,
}

/// The key of a lock that a session held, and that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The lock's key.
    pub key: String,
    /// The key that is written together with it.
    pub beside: Option<String>,
    /// The session that held the key.
    pub session: String,
}

impl Refusals {
    /// Tells the keeper of a refusal.
    pub fn tell(&self, refused: Refused) {
        self.new.lock().unwrap_or_else(PoisonError::into_inner).push(refused);
        self.told.notify_one();
    }

    /// Waits for a refusal.
    pub(crate) async fn told(&self) {
        self.told.notified().await;
    }

    pub(crate) fn drain(&self) -> Vec<Refused> {
        std::mem::take(&mut *self.new.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The results of trials.
pub(crate) type Tried = Vec<(Refused, Result<(), Failure>)>;

/// The keeper's knowledge of the refusals.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    keys: BTreeMap<String, Trial>,
    /// Whether the right is being tried.
    busy: bool,
    due: Instant,
}

#[derive(Debug)]
struct Trial {
    refused: Refused,
    /// The store's answer, or `None` if the key was not tried yet. The store may have refused the first write for other reasons than the key.
    denied: Option<Failure>,
}

impl Rights {
    /// Takes new refusals.
    pub(crate) fn take(&mut self, new: Vec<Refused>, now: Instant) {
        for refused in new {
            if let Some(trial) = self.keys.get_mut(&refused.key).filter(|trial| trial.denied.is_some()) {
                if trial.refused.session != refused.session {
                    self.due = now;
                }
                trial.refused = refused;
            } else {
                self.keys.insert(refused.key.clone(), Trial { refused, denied: None });
                self.due = now;
            }
        }
    }

    /// Returns whether one of these sessions holds a key that may not be written.
    pub(crate) fn withhold(&self, sessions: &[&str]) -> bool {
        self.keys.values().any(|trial| trial.denied.is_some() && sessions.contains(&trial.refused.session.as_str()))
    }

    /// Returns the store's answer for a key that may not be written.
    pub(crate) fn denied(&self) -> Option<&Failure> {
        self.keys.values().find_map(|trial| trial.denied.as_ref())
    }

    /// Returns when to try keys next, if any.
    pub(crate) fn due(&self) -> Option<Instant> {
        (!self.busy && !self.keys.is_empty()).then_some(self.due)
    }

    /// Begins to try keys. Returns the keys that these sessions hold, and the others.
    pub(crate) fn begin(&mut self, sessions: &[&str]) -> [Vec<Refused>; 2] {
        self.busy = true;
        let all = self.keys.values().map(|trial| trial.refused.clone());
        let (held, past) = all.partition(|refused| sessions.contains(&refused.session.as_str()));
        [held, past]
    }

    /// Takes the results of these trials.
    pub(crate) fn tried(&mut self, tried: Tried, sessions: &[&str], now: Instant) {
        self.busy = false;
        for (refused, result) in tried {
            match result {
                Ok(()) => drop(self.keys.remove(&refused.key)),
                Err(failure @ Failure::Forbidden(_)) => {
                    if let Some(trial) = self.keys.get_mut(&refused.key) {
                        trial.denied = Some(failure);
                    }
                }
                // This error says nothing about the right.
                Err(_) => {}
            }
        }
        self.due = now + if self.withhold(sessions) { TRIED_AGAIN } else { TRIED_SELDOM };
    }
}

/// Tries to write keys, one after the other, up to the first one that may not be written.
pub(crate) async fn try_writes(
    each: [Vec<Refused>; 2],
    try_write: impl Fn(Refused) -> BoxFuture<'static, Result<(), Failure>>,
) -> Tried {
    let mut tried = Vec::new();
    for keys in each {
        for refused in keys {
            let result = try_write(refused.clone()).await;
            let ends = result.is_err();
            tried.push((refused, result));
            if ends {
                break;
            }
        }
    }
    tried
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(key: &str, session: &str) -> Refused {
        Refused { key: key.into(), beside: None, session: session.into() }
    }

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn forbidden() -> Result<(), Failure> {
        Err(Failure::Forbidden("no".into()))
    }

    #[test]
    fn sessions_are_withheld_while_one_of_them_holds_what_a_trial_may_not_write() {
        let mut rights = Rights::default();
        rights.take(vec![refused("a", "s"), refused("b", "s")], at(5));
        assert!(!rights.withhold(&["s"]) && rights.denied().is_none(), "it was not tried");
        assert_eq!(rights.due(), Some(at(5)));
        let [held, past] = rights.begin(&["s"]);
        assert_eq!((held.len(), past.len(), rights.due()), (2, 0, None));
        rights.tried(vec![(refused("a", "s"), Ok(())), (refused("b", "s"), forbidden())], &["s"], at(6));
        assert!(rights.withhold(&["s"]) && rights.denied().is_some());
        assert_eq!(rights.due(), Some(at(6) + TRIED_AGAIN));
        rights.take(vec![refused("b", "s")], at(7));
        assert_eq!(rights.due(), Some(at(6) + TRIED_AGAIN), "nothing new");
        rights.begin(&["s"]);
        rights.tried(vec![(refused("b", "s"), Err(Failure::Unknown("lost".into())))], &["s"], at(9));
        assert!(rights.withhold(&["s"]), "nothing is known");
        rights.begin(&["s"]);
        rights.tried(vec![(refused("b", "s"), Ok(()))], &["s"], at(12));
        assert!(!rights.withhold(&["s"]) && rights.denied().is_none());
        assert_eq!(rights.due(), None);
    }

    #[test]
    fn when_the_session_has_ended_it_is_only_told() {
        let mut rights = Rights::default();
        rights.take(vec![refused("a", "s")], at(0));
        rights.begin(&["s"]);
        rights.tried(vec![(refused("a", "s"), forbidden())], &["s"], at(0));
        assert!(!rights.withhold(&["t"]) && rights.denied().is_some());
        let [held, past] = rights.begin(&["t"]);
        assert_eq!((held.len(), past.len()), (0, 1));
        rights.tried(vec![(refused("a", "s"), forbidden())], &["t"], at(2));
        assert_eq!(rights.due(), Some(at(2) + TRIED_SELDOM));
    }
}
