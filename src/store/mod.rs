//! The port to the stores of locks, and its adapters. All of them pass the same contract suite, `tests/store`.

mod consul;
mod lease;
mod memory;

use futures::future::BoxFuture;
use futures::stream::BoxStream;

pub use self::consul::{Home, Role, SessionKeeper, SessionSettings, Sessions};
pub use self::lease::LeaseStore;
pub use self::memory::{Fault, MemoryStore};
use crate::core::{Failure, Key, Record, RecordOutcome, Stored, Uid, Version};

/// Where one lock is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The namespace of its election.
    pub namespace: String,
    /// Its name in the store.
    pub key: Key,
}

/// Whose lock it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The election's name.
    pub name: String,
    /// The election's uid.
    pub uid: Uid,
}

/// Something that a store's watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// What is under a key, as of a version.
    Changed(Place, Version, Stored),
    /// A new beginning: whatever is not among these is absent, in this namespace or, with `None`, in all.
    All(Option<String>, Vec<(Place, Version, Stored)>),
    /// The watch of this namespace or, with `None`, of all does not work at present. It goes on trying.
    Broken(Option<String>, Failure),
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
    fn read<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Stored, Failure>>;

    /// Lists the locks that were written for an election, under whatever keys.
    fn locks_of<'a>(
        &'a self,
        namespace: &'a str,
        election: &'a Uid,
    ) -> BoxFuture<'a, Result<Vec<(Key, Stored)>, Failure>>;

    /// Writes a record if it still has the expected version.
    fn write<'a>(
        &'a self,
        place: &'a Place,
        owner: &'a Owner,
        expected: Option<Version>,
        record: &'a Record,
    ) -> BoxFuture<'a, RecordOutcome>;

    /// Deletes a record if it still has this version. A record that is gone already is a success.
    fn delete<'a>(&'a self, place: &'a Place, version: Version) -> BoxFuture<'a, RecordOutcome>;

    /// Watches all records.
    fn watch(&self) -> BoxStream<'static, StoreEvent>;
}
