//! Locks in Consul, as a store.

mod content;
mod failure;
mod listing;
mod locks;
mod service;
mod sessions;
mod watch;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use lictor_core::{Failure, Key, Record, RecordOutcome, Stored, Uid, Version};

pub use self::content::Layout;
use self::content::key;
use self::failure::failure;
pub use self::locks::{ConsulParameters, ConsulStore};
pub use self::sessions::{Home, Role, SessionKeeper, SessionSettings, Sessions};
use super::{LockStore, Owner, Registration, StoreEvent};

impl LockStore for ConsulStore {
    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Stored, Failure>> {
        async move {
            let entries = self.entries(&key.name).await.map_err(failure)?;
            Ok(self.stored(&entries, &key.name, &self.own()).await)
        }
        .boxed()
    }

    fn locks_of<'a>(
        &'a self,
        _namespace: &'a str,
        election: &'a Uid,
    ) -> BoxFuture<'a, Result<Vec<(Key, Stored)>, Failure>> {
        async move {
            let (entries, own) = (self.listings.list().await.map_err(failure)?, self.own());
            let mut locks = Vec::new();
            for entry in entries.iter().filter(|entry| self.parameters.layout.lock_of(&entry.key) == entry.key) {
                let stored = self.stored(&entries, &entry.key, &own).await;
                if stored.written().is_some_and(|record| record.election == *election) {
                    locks.push((key(&self.parameters.id, &entry.key), stored));
                }
            }
            Ok(locks)
        }
        .boxed()
    }

    fn write<'a>(
        &'a self,
        key: &'a Key,
        owner: &'a Owner,
        expected: Option<Version>,
        record: &'a Record,
    ) -> BoxFuture<'a, RecordOutcome> {
        self.lock(key, owner, expected, record).map(|written| written.unwrap_or_else(RecordOutcome::Failed)).boxed()
    }

    fn release<'a>(&'a self, key: &'a Key, version: Version) -> BoxFuture<'a, RecordOutcome> {
        self.unlock(key, version).map(|released| released.unwrap_or_else(RecordOutcome::Failed)).boxed()
    }

    fn delete<'a>(&'a self, key: &'a Key, version: Version) -> BoxFuture<'a, RecordOutcome> {
        self.remove(key, version).map(|removed| removed.unwrap_or_else(RecordOutcome::Failed)).boxed()
    }

    fn register<'a>(
        &'a self,
        key: &'a Key,
        version: Option<Version>,
        registration: &'a Registration,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        self.publish(key, version, registration).boxed()
    }

    fn watch(&self) -> BoxStream<'static, StoreEvent> {
        watch::watch(self.clone()).boxed()
    }
}
