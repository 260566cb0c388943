//! The port to the stores of locks, and its adapters. All of them pass the same contract suite, `crates/testing/src/contract.rs`.

#[cfg(target_os = "linux")]
mod consul;
mod lease;
#[cfg(target_os = "linux")]
mod objects;
#[cfg(target_os = "linux")]
mod shared;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;

#[cfg(target_os = "linux")]
pub use self::consul::ConsulParameters;
pub use self::lease::LeaseStore;
#[cfg(target_os = "linux")]
pub use self::objects::ObjectParameters;
#[cfg(target_os = "linux")]
pub use self::shared::SharedStore;
use lictor_core::{
    Bid, Failure, FollowedLock, Key, LockValidity, PlacedBid, Record, RecordOutcome, Rival, StoreId, Stored, Term, Uid,
    Version,
};
use serde::{Deserialize, Serialize};

/// The election that owns a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The election's namespace.
    pub namespace: String,
    /// The election's name.
    pub name: String,
    /// The election's uid.
    pub uid: Uid,
}

/// An event of a store's watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// The present content of a key, as of a version.
    Changed(Key, Version, Stored),
    /// The whole content of a scope, as of a version. A key that is not in the list, and was not seen at a later version, does
    /// not exist.
    All(StoreScope, Version, Vec<(Key, Version, Stored)>),
    /// The whole content of a scope after the store was put back to an earlier state. A key that is not in the list does not
    /// exist. Versions start again, too.
    Rewound(StoreScope, Vec<(Key, Version, Stored)>),
    /// The watch of this scope does not work at present, and is tried again.
    Broken(StoreScope, Failure),
    /// The watch of this scope works again, and has missed nothing.
    Resumed(StoreScope),
    /// The moment until which the locks that this cluster holds in the store are valid. L7: it counts only for a replica that acts by the
    /// takeover with this number. The watch has reported `All` under the same takeover before it reports `Until` or `Unlimited`.
    LockValidity(StoreId, LockValidity, u64),
    /// The state of a lock that another cluster holds or held, by its record. A replica hears of it even if it does not know yet which
    /// sessions are its own cluster's.
    Elsewhere(Key, Elsewhere),
    /// All bids for a lock that another cluster offers (C12). After `All` and `Rewound`, the watch reports every lock that has bids again.
    Bids(Key, Vec<PlacedBid>),
    /// All remarks of clusters about a lock. After `All` and `Rewound`, the watch reports every lock that has remarks again.
    Remarks(Key, Vec<Remark>),
}

/// The state of a lock that another cluster holds or held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// The other cluster holds the lock.
    Held(Rival),
    /// The other cluster no longer holds the lock.
    LetGo,
    /// The lock's key was deleted, or another program has overwritten all of it. The other cluster did not do that, so it may not know (C6).
    Vanished,
}

/// How the election of a cluster that does not lead differs from the leading cluster's, where users can have meant only one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Difference {
    /// The clusters write records in different layouts.
    Records,
    /// Only the cluster that leads lets workloads follow the leader.
    NoWorkloads,
    /// Only the cluster that does not lead lets workloads follow the leader.
    OnlyWorkloads,
}

/// A difference that a cluster tells the one that leads, for people. No decision depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// The cluster that tells it.
    pub cluster: String,
    /// The term of the leader. The remark counts in no other one.
    pub term: Term,
    /// The difference.
    pub difference: Difference,
}

/// The scope of a watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreScope {
    /// The store.
    pub store: StoreId,
    /// One of its namespaces. `None` means all.
    pub namespace: Option<String>,
}

impl StoreScope {
    /// Returns whether a lock is in this scope.
    pub fn contains(&self, key: &Key) -> bool {
        key.store == self.store && self.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
    }
}

/// A leader's registration in a store's own directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The name of the service.
    pub service: String,
    /// The leader. `None` removes the service.
    pub leader: Option<RegisteredLeader>,
}

/// A leader in a store's own directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredLeader {
    /// The address of the pod.
    pub address: String,
    /// The port.
    pub port: u16,
    /// The term and the place of the leader, for programs that read the directory.
    pub meta: BTreeMap<String, String>,
}

/// The present stores. Clones share them.
#[derive(Clone, Default)]
pub struct Stores(Arc<RwLock<BTreeMap<StoreId, Arc<dyn LockStore>>>>);

impl Stores {
    /// Adds a store, or replaces the one with the same id.
    pub fn insert(&self, id: StoreId, store: Arc<dyn LockStore>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(id, store);
    }

    /// Removes a store.
    pub fn remove(&self, id: &StoreId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Returns the store with an id.
    ///
    /// # Errors
    /// Returns a refusal if there is no such store, because nothing was sent.
    pub fn get(&self, id: &StoreId) -> Result<Arc<dyn LockStore>, Failure> {
        let stores = self.0.read().unwrap_or_else(PoisonError::into_inner);
        stores.get(id).cloned().ok_or_else(|| Failure::Refused(format!("the store {} can't be used at present", id.0)))
    }
}

/// A store of lock records.
///
/// The contract:
/// - `read` and `locks_of` answer from the store itself, never from a cache: they see every write that was acknowledged before
///   they began.
/// - `write` is a compare-and-swap: it succeeds only if the record has the expected version (`None` means that there must be no
///   record). The new version is higher than all before.
/// - An unknown outcome is reported as [`Failure::Unknown`]. Such a write may take effect now, later or never, but only on the
///   version that it expects.
/// - A store never overwrites or deletes what this project did not write.
/// - `watch` reports every change in the end, in order for each key. It may skip a change if it reports a later one.
pub trait LockStore: Send + Sync {
    /// Reads a record.
    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Stored, Failure>>;

    /// Lists the locks that were written for an election, whatever their keys are. `patience` is how long the request may wait for other
    /// elections that ask the same. With `None`, a decision depends on it, so it goes before the patient ones.
    fn locks_of<'a>(
        &'a self,
        namespace: &'a str,
        election: &'a Uid,
        patience: Option<Duration>,
    ) -> BoxFuture<'a, Result<Vec<(Key, Stored)>, Failure>>;

    /// Writes a record if it still has the expected version.
    fn write<'a>(
        &'a self,
        key: &'a Key,
        owner: &'a Owner,
        expected: Option<Version>,
        record: &'a Record,
    ) -> BoxFuture<'a, RecordOutcome>;

    /// Deletes a record if it still has this version. A record that does not exist counts as deleted.
    fn delete<'a>(&'a self, key: &'a Key, version: Version) -> BoxFuture<'a, RecordOutcome>;

    /// Follows a lock that lictor never writes: reports its state, beginning with the present one. It may skip a state if it reports a
    /// later one.
    fn follow(&self, key: &Key) -> BoxStream<'static, FollowedLock>;

    /// Watches all records.
    fn watch(&self) -> BoxStream<'static, StoreEvent>;

    /// What clusters that share this store do with each other's locks, or `None` if only this cluster uses it.
    fn shared(&self) -> Option<&dyn SharedLocks> {
        None
    }

    /// The store's own directory, in which programs look up leaders, or `None` if it has none.
    fn directory(&self) -> Option<&dyn Directory> {
        None
    }
}

/// What a store that several clusters share can do besides [`LockStore`]. Such a store also sends [`StoreEvent::LockValidity`],
/// [`StoreEvent::Elsewhere`] and [`StoreEvent::Bids`].
pub trait SharedLocks: Send + Sync {
    /// Releases a lock whose record names no leader, if it still has this version, so that other clusters can acquire it. The record
    /// stays.
    fn release<'a>(&'a self, key: &'a Key, version: Version) -> BoxFuture<'a, RecordOutcome>;

    /// Hands a lock whose record names no leader to the cluster that made a bid, if the lock and the bid still have their versions. No
    /// other cluster can acquire it in between. The bid is deleted (C11).
    fn give<'a>(
        &'a self,
        key: &'a Key,
        version: Version,
        to: &'a PlacedBid,
        record: &'a Record,
    ) -> BoxFuture<'a, RecordOutcome>;

    /// Writes this cluster's bid for a lock, in place of an earlier one. The bid ends with this cluster's session (C12).
    fn bid<'a>(&'a self, key: &'a Key, owner: &'a Owner, bid: &'a Bid) -> BoxFuture<'a, RecordOutcome>;

    /// Deletes a cluster's bid for a lock if it still has this version. A bid that does not exist counts as deleted.
    fn remove_bid<'a>(&'a self, key: &'a Key, cluster: &'a str, version: Version) -> BoxFuture<'a, RecordOutcome>;

    /// Tells the cluster that holds a lock in a term how this cluster's election differs from its own, or takes that back. What is told
    /// ends with this cluster's session. A bid takes its place.
    fn remark<'a>(&'a self, key: &'a Key, remark: Option<(Term, Difference)>) -> BoxFuture<'a, Result<(), Failure>>;
}

/// A store's own directory.
pub trait Directory: Send + Sync {
    /// Registers the leader, if the lock still has this version (`None`: if there is no lock). Returns whether it had.
    fn register<'a>(
        &'a self,
        key: &'a Key,
        version: Option<Version>,
        registration: &'a Registration,
    ) -> BoxFuture<'a, Result<bool, Failure>>;
}
