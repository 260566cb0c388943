//! The locks that candidates hold themselves. Each is followed while an election wants it, whether or not this replica acts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use lictor_core::{FollowedLock, Key};
use lictor_process::spawn;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::input::Input;
use super::names::ElectionName;
use crate::store::Stores;

/// How long to wait for a store that is unusable at present.
const AGAIN: Duration = Duration::from_secs(1);

/// All followed locks.
pub(super) struct FollowedLocks {
    stores: Stores,
    sender: mpsc::UnboundedSender<Input>,
    elections: BTreeMap<ElectionName, Key>,
    locks: BTreeMap<Key, Followed>,
}

/// A followed lock.
struct Followed {
    /// The known state of the lock.
    lock: FollowedLock,
    followers: BTreeSet<ElectionName>,
    task: JoinHandle<()>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FollowedLocks {
    pub(super) fn new(stores: Stores, sender: mpsc::UnboundedSender<Input>) -> Self {
        Self { stores, sender, elections: BTreeMap::new(), locks: BTreeMap::new() }
    }

    /// Makes an election follow this lock, or none, from now on.
    pub(super) fn follow(&mut self, election: &ElectionName, lock: Option<&Key>) {
        if self.elections.get(election) == lock {
            return;
        }
        if let Some(before) = self.elections.remove(election)
            && let Some(followed) = self.locks.get_mut(&before)
        {
            followed.followers.remove(election);
            if followed.followers.is_empty() {
                self.locks.remove(&before);
            }
        }
        let Some(key) = lock else { return };
        self.elections.insert(election.clone(), key.clone());
        let Self { stores, sender, locks, .. } = self;
        let followed = locks.entry(key.clone()).or_insert_with(|| Followed {
            lock: FollowedLock::Unread,
            followers: BTreeSet::new(),
            task: spawn(hand_on(stores.clone(), key.clone(), sender.clone())),
        });
        followed.followers.insert(election.clone());
    }

    /// Takes the known state of a lock. Returns the elections that it matters to.
    pub(super) fn take(&mut self, key: &Key, lock: FollowedLock) -> Vec<ElectionName> {
        let Some(followed) = self.locks.get_mut(key) else { return Vec::new() };
        let news = !followed.lock.says_as(&lock);
        followed.lock = lock;
        followed.followers.iter().filter(|_| news).cloned().collect()
    }

    /// The known state of the lock that an election follows, if any.
    pub(super) fn of(&self, election: &ElectionName) -> Option<&FollowedLock> {
        Some(&self.locks.get(self.elections.get(election)?)?.lock)
    }
}

/// Passes on the state of a lock. When a class's settings change, its store is replaced, and then the new store is asked.
async fn hand_on(stores: Stores, key: Key, sender: mpsc::UnboundedSender<Input>) {
    let tell = |lock| sender.send(Input::Followed(key.clone(), lock)).is_ok();
    loop {
        let store = match stores.get(&key.store) {
            Ok(store) => store,
            Err(failure) => {
                if !tell(FollowedLock::Unknown(failure.into_text())) {
                    return;
                }
                sleep(AGAIN).await;
                continue;
            }
        };
        let mut told = store.follow(&key);
        loop {
            // A replaced store may wait a long time for an answer.
            let lock = tokio::select! {
                biased;
                lock = told.next() => lock,
                () = sleep(AGAIN) => None,
            };
            if !stores.get(&key.store).is_ok_and(|present| Arc::ptr_eq(&present, &store)) {
                break;
            }
            if lock.is_some_and(|lock| !tell(lock)) || sender.is_closed() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lictor_core::{LockHolder, NotHeld, StoreId, Version};

    use super::*;
    use crate::controller::names::Namespace;

    fn held(version: u64) -> FollowedLock {
        FollowedLock::Held(LockHolder { version: Version(version), ..LockHolder::default() })
    }

    #[tokio::test]
    async fn a_lock_is_followed_for_as_long_as_an_election_wants_it() {
        let (sender, mut inputs) = mpsc::unbounded_channel();
        let mut locks = FollowedLocks::new(Stores::default(), sender);
        let shop = Namespace::from("shop".to_owned());
        let (web, api) = (shop.election("web"), shop.election("api"));
        let key = Key { store: StoreId("consul/a".into()), namespace: String::new(), name: "x/.lock".into() };
        assert_eq!(locks.of(&web), None);
        locks.follow(&web, Some(&key));
        locks.follow(&api, Some(&key));
        assert_eq!(locks.of(&web), Some(&FollowedLock::Unread));
        // The store does not exist yet.
        let Some(Input::Followed(of, FollowedLock::Unknown(_))) = inputs.recv().await else { panic!("it is told") };
        assert_eq!(of, key);
        assert_eq!(locks.take(&key, held(1)), [api.clone(), web.clone()]);
        assert_eq!(locks.take(&key, held(2)), [], "a renewal");
        assert_eq!(locks.of(&api), Some(&held(2)));
        locks.follow(&api, None);
        assert_eq!(locks.take(&key, FollowedLock::Free(NotHeld::Absent)), std::slice::from_ref(&web));
        locks.follow(&web, None);
        assert_eq!((locks.of(&web), locks.locks.len()), (None, 0));
        assert_eq!(locks.take(&key, held(3)), [], "it comes late");
    }
}
