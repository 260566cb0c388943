//! The port to the stores of locks, and its adapters. All of them pass the same contract suite, `crates/testing/src/contract.rs`.

mod consul;
mod lease;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use futures::future::BoxFuture;
use futures::stream::BoxStream;

pub use self::consul::{ConsulParameters, ConsulStore, Home, Layout, Role, SessionKeeper, SessionSettings, Sessions};
pub use self::lease::LeaseStore;
use lictor_core::{Failure, Key, Record, RecordOutcome, StoreId, Stored, Tenure, Uid, Version};

/// Whose lock it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The election's namespace.
    pub namespace: String,
    /// The election's name.
    pub name: String,
    /// The election's uid.
    pub uid: Uid,
}

/// Something that a store's watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// What is under a key, as of a version.
    Changed(Key, Version, Stored),
    /// A new beginning, as of a version: whatever is not among these, and was not seen at a later one, is absent in this scope.
    All(StoreScope, Version, Vec<(Key, Version, Stored)>),
    /// Whatever is not among these is absent: the store itself was put back to an earlier state, and its versions begin anew, too.
    Rewound(StoreScope, Vec<(Key, Version, Stored)>),
    /// The watch of this scope does not work at present. It goes on trying.
    Broken(StoreScope, Failure),
    /// How long what this cluster holds in the store is surely its own.
    Tenure(StoreId, Tenure),
}

/// What a watch is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreScope {
    /// The store.
    pub store: StoreId,
    /// One namespace of it; `None`: all.
    pub namespace: Option<String>,
}

impl StoreScope {
    /// Whether a lock is within it.
    pub fn contains(&self, key: &Key) -> bool {
        key.store == self.store && self.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
    }
}

/// Who leads, as a store's own directory has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Under which name.
    pub service: String,
    /// The leader; none: it is taken out.
    pub leader: Option<RegisteredLeader>,
}

/// A leader in a store's own directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredLeader {
    /// The pod's address.
    pub address: String,
    /// Where it is reached.
    pub port: u16,
    /// Its term and where it is, for whoever asks.
    pub meta: BTreeMap<String, String>,
}

/// The stores that there are at present. Clones share them.
#[derive(Clone, Default)]
pub struct Stores(Arc<RwLock<BTreeMap<StoreId, Arc<dyn LockStore>>>>);

impl Stores {
    /// Puts a store in the place of the one with the same id, if there is one.
    pub fn insert(&self, id: StoreId, store: Arc<dyn LockStore>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(id, store);
    }

    /// Takes a store out.
    pub fn remove(&self, id: &StoreId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// The store with an id.
    ///
    /// # Errors
    /// There is none: nothing was asked.
    pub fn get(&self, id: &StoreId) -> Result<Arc<dyn LockStore>, Failure> {
        let stores = self.0.read().unwrap_or_else(PoisonError::into_inner);
        stores.get(id).cloned().ok_or_else(|| Failure::Refused(format!("the store {} can't be used at present", id.0)))
    }
}

/// A store of lock records.
///
/// The contract:
/// - `read` and `locks_of` answer from the store itself, never from a cache: they see every write that was acknowledged before they
///   began.
/// - `write` is a compare-and-swap: it takes place only if the record has the expected version (`None`: there is none), and then
///   has a version that is higher than every one before.
/// - An outcome that is not known is reported as [`Failure::Unknown`]: such a write may be applied, now or later, or never; but only
///   against the version that it expects.
/// - What this project did not write, is neither overwritten nor deleted.
/// - `watch` tells every change in the end, in order for each key; a change may be skipped if a later one is told.
pub trait LockStore: Send + Sync {
    /// Reads a record.
    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Stored, Failure>>;

    /// Lists the locks that were written for an election, under whatever keys.
    fn locks_of<'a>(
        &'a self,
        namespace: &'a str,
        election: &'a Uid,
    ) -> BoxFuture<'a, Result<Vec<(Key, Stored)>, Failure>>;

    /// Writes a record if it still has the expected version.
    fn write<'a>(
        &'a self,
        key: &'a Key,
        owner: &'a Owner,
        expected: Option<Version>,
        record: &'a Record,
    ) -> BoxFuture<'a, RecordOutcome>;

    /// Lets go of a lock whose record names nobody, if it still has this version, so that others may take it; the record stays.
    /// Where nobody else takes part, there is nothing to do.
    fn release<'a>(&'a self, key: &'a Key, version: Version) -> BoxFuture<'a, RecordOutcome> {
        let _ = key;
        Box::pin(async move { RecordOutcome::Written(version) })
    }

    /// Deletes a record if it still has this version. A record that is gone already is a success.
    fn delete<'a>(&'a self, key: &'a Key, version: Version) -> BoxFuture<'a, RecordOutcome>;

    /// Says in the store's own directory who leads, if the lock still has this version (`None`: if there is none); returns whether it
    /// had. A store without a directory has nothing to do.
    fn register<'a>(
        &'a self,
        key: &'a Key,
        version: Option<Version>,
        registration: &'a Registration,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        let _ = (key, version, registration);
        Box::pin(async { Ok(true) })
    }

    /// Watches all records.
    fn watch(&self) -> BoxStream<'static, StoreEvent>;
}
