//! Locks in a store that clusters share, whatever kind of store has their [`Keys`].

mod bids;
mod content;
mod keys;
mod listing;
mod remarks;
mod seen;
mod store;
mod watch;

use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use lictor_core::{Bid, Failure, FollowedLock, Key, PlacedBid, Record, RecordOutcome, Stored, Term, Uid, Version};

use self::content::key;
pub(super) use self::keys::{Gift, Hold, Keys};
pub(super) use self::store::SharedParameters;
pub use self::store::SharedStore;
use super::{Difference, Directory, LockStore, Owner, SharedLocks, StoreEvent};

impl LockStore for SharedStore {
    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Stored, Failure>> {
        async move {
            let entries = self.entries(&key.name).await?;
            Ok(self.stored(&entries, &key.name, &self.own()).await)
        }
        .boxed()
    }

    fn locks_of<'a>(
        &'a self,
        _namespace: &'a str,
        election: &'a Uid,
        _patience: Option<Duration>,
    ) -> BoxFuture<'a, Result<Vec<(Key, Stored)>, Failure>> {
        async move {
            let (listed, own) = (self.listings.list().await?, self.own());
            let mut locks = Vec::new();
            for name in listed.locks_of(election) {
                let stored = self.stored(listed.entries(), name, &own).await;
                if stored.written().is_some_and(|record| record.election == *election) {
                    locks.push((key(&self.parameters.id, name), stored));
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
        self.noting_refusal(key, self.lock(key, owner, expected, record)).boxed()
    }

    fn delete<'a>(&'a self, key: &'a Key, version: Version) -> BoxFuture<'a, RecordOutcome> {
        self.noting_refusal(key, self.remove(key, version)).boxed()
    }

    fn follow(&self, key: &Key) -> BoxStream<'static, FollowedLock> {
        self.keys.follow(&key.name)
    }

    fn watch(&self) -> BoxStream<'static, StoreEvent> {
        watch::watch(self.clone()).boxed()
    }

    fn shared(&self) -> Option<&dyn SharedLocks> {
        Some(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.keys.directory()
    }
}

impl SharedLocks for SharedStore {
    fn release<'a>(&'a self, key: &'a Key, version: Version) -> BoxFuture<'a, RecordOutcome> {
        self.noting_refusal(key, self.unlock(key, version)).boxed()
    }

    fn give<'a>(
        &'a self,
        key: &'a Key,
        version: Version,
        to: &'a PlacedBid,
        record: &'a Record,
    ) -> BoxFuture<'a, RecordOutcome> {
        self.noting_refusal(key, self.hand_over(key, version, to, record)).boxed()
    }

    fn bid<'a>(&'a self, key: &'a Key, owner: &'a Owner, bid: &'a Bid) -> BoxFuture<'a, RecordOutcome> {
        self.place_bid(key, owner, bid).map(|placed| placed.unwrap_or_else(RecordOutcome::Failed)).boxed()
    }

    fn remove_bid<'a>(&'a self, key: &'a Key, cluster: &'a str, version: Version) -> BoxFuture<'a, RecordOutcome> {
        self.take_bid_away(key, cluster, version).boxed()
    }

    fn remark<'a>(&'a self, key: &'a Key, remark: Option<(Term, Difference)>) -> BoxFuture<'a, Result<(), Failure>> {
        self.place_remark(key, remark).boxed()
    }
}
