//! Locks in objects, each of which can be replaced only if it has not changed, as a store.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use lictor_core::{Failure, FollowedLock, RecordOutcome, StoreId, Version};
use lictor_locks::objects::ObjectKeys;
use lictor_locks::{Entry, Layout};
use lictor_locks::{Refusals, Sessions};
use tokio::sync::Notify;

use super::shared::{Gift, Hold, Keys, SharedParameters, SharedStore};

/// The parameters of a store of objects.
pub struct ObjectParameters {
    /// The store's id in keys.
    pub id: StoreId,
    /// The keys.
    pub keys: ObjectKeys,
    /// This cluster's name in records.
    pub cluster: String,
    /// This installation of lictor in the cluster, as records name it.
    pub installation: String,
    /// Notified when the session seems to be gone.
    pub suspicion: Arc<Notify>,
    /// Receives the locks that this cluster holds and may not write.
    pub refusals: Arc<Refusals>,
}

impl ObjectParameters {
    /// Creates the store whose locks this session holds.
    pub fn store(self, sessions: tokio::sync::watch::Receiver<Sessions>) -> SharedStore {
        let Self { id, keys, cluster, installation, suspicion, refusals } = self;
        let parameters = SharedParameters { id, cluster, installation, layout: Layout::Record, suspicion, refusals };
        SharedStore::new(Arc::new(keys), parameters, sessions)
    }
}

impl Keys for ObjectKeys {
    fn list<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<Entry>, Failure>> {
        async move {
            if name.is_empty() {
                return ObjectKeys::list(self).await;
            }
            Ok(ObjectKeys::read(self, name).await?.into_iter().collect())
        }
        .boxed()
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Entry>, Failure>> {
        ObjectKeys::read(self, name).boxed()
    }

    fn wait(&self, index: u64) -> BoxFuture<'_, Result<(u64, Vec<Entry>), Failure>> {
        ObjectKeys::wait(self, index).boxed()
    }

    fn is_rewound(&self, (before, _): (u64, &[Entry]), (after, _): (u64, &[Entry])) -> bool {
        ObjectKeys::is_rewound(self, before, after)
    }

    fn hold<'a>(&'a self, hold: Hold<'a>) -> BoxFuture<'a, RecordOutcome> {
        async move {
            let Hold { key, expected, value, beside: _, session, own } = hold;
            ObjectKeys::hold(self, key, expected, &value, &session, own).await
        }
        .boxed()
    }

    fn release<'a>(&'a self, entry: &'a Entry, _session: &'a str) -> BoxFuture<'a, RecordOutcome> {
        ObjectKeys::release(self, &entry.key, entry.version).boxed()
    }

    fn delete<'a>(&'a self, keys: &'a [(String, Version)]) -> BoxFuture<'a, RecordOutcome> {
        async move {
            let mut outcome = RecordOutcome::Written(Version(0));
            for (key, version) in keys {
                outcome = ObjectKeys::delete(self, key, *version).await;
                if !matches!(outcome, RecordOutcome::Written(_)) {
                    break;
                }
            }
            outcome
        }
        .boxed()
    }

    /// The lock is one object and the bid another, so the bid may change in between. The bidder then has a lock that it no longer asks for,
    /// which it leads or releases as any lock that its session holds. The bid goes afterwards; one that stays is for a lock that its bidder
    /// holds.
    fn give<'a>(&'a self, gift: Gift<'a>) -> BoxFuture<'a, RecordOutcome> {
        async move {
            let Gift { lock, value, beside: _, bid: (bid, version), session } = gift;
            match ObjectKeys::read(self, &bid).await {
                Ok(Some(found)) if found.version == version && found.session.as_ref() == Some(&session) => {}
                Ok(_) => return RecordOutcome::Conflict,
                Err(failure) => return RecordOutcome::Failed(failure),
            }
            let given = ObjectKeys::give(self, &lock.key, lock.version, &value, &session).await;
            if matches!(given, RecordOutcome::Written(_)) {
                let _ = ObjectKeys::delete(self, &bid, version).await;
            }
            given
        }
        .boxed()
    }

    fn follow(&self, name: &str) -> BoxStream<'static, FollowedLock> {
        ObjectKeys::follow(self, name)
    }

    fn describe<'a>(&'a self, session: &'a str) -> BoxFuture<'a, String> {
        let (cluster, id) = session.split_once('/').unwrap_or(("", session));
        async move { format!("the session {id} of the cluster {cluster}") }.boxed()
    }

    fn deletion(&self, name: &str) -> String {
        ObjectKeys::deletion(self, name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::StreamExt;
    use lictor_core::Uid;
    use lictor_locks::Role;
    use lictor_locks::objects::{KeyObject, ObjectKeeper, ObjectSettings};
    use lictor_objects::{Memory, Objects, Put};
    use lictor_process::{monotonic, spawn, spawn_in, virtual_process};

    use super::*;
    use crate::store::{LockStore, StoreEvent};

    async fn write(objects: &Memory, version: u64) {
        let name = "locks/p/web.json";
        let before = objects.get(name).await.unwrap().map(|object| object.tag);
        let object = KeyObject { version, created: 1, session: None, value: Some(serde_json::json!({})) };
        let put = objects.put(name, before.as_ref(), serde_json::to_vec(&object).unwrap()).await;
        assert!(matches!(put, Put::Done(_)), "{put:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn that_a_store_was_put_back_is_told_once() {
        spawn_in(&virtual_process(), put_back()).await.unwrap();
    }

    async fn put_back() {
        let objects = Arc::new(Memory::default());
        write(&objects, 5).await;
        let settings = ObjectSettings {
            cluster: "west".into(),
            installation: "a".into(),
            writer: "west-1".into(),
            ttl: Duration::from_secs(15),
            poll: Duration::from_secs(1),
        };
        let (keeper, keys, sessions) = ObjectKeeper::new(objects.clone(), settings, monotonic);
        let (suspicion, refusals) = (keeper.suspicion(), keeper.refusals());
        let (_role, roles) = tokio::sync::watch::channel(Role::Acting(1));
        spawn(keeper.run(roles));
        let (cluster, installation) = ("west".to_owned(), Uid("a".into()).0);
        let id = StoreId("bucket/a".into());
        let mut events =
            ObjectParameters { id, keys, cluster, installation, suspicion, refusals }.store(sessions).watch();
        while !matches!(events.next().await, Some(StoreEvent::All(..))) {}
        for version in [4, 6, 3] {
            write(&objects, version).await;
            let mut rewound = 0;
            let told = async {
                while let Some(event) = events.next().await {
                    rewound += usize::from(matches!(event, StoreEvent::Rewound(..)));
                }
            };
            let _ = tokio::time::timeout(Duration::from_secs(20), told).await;
            assert_eq!(rewound, usize::from(version < 5), "version {version}");
        }
    }
}
