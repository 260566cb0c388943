//! The port to the keys of a store that clusters share.

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use lictor_core::{Failure, FollowedLock, RecordOutcome, Version};
use lictor_locks::Entry;

use crate::store::Directory;

/// The keys below the prefix of a class. A key may be held by a session, which ends by itself when its cluster no longer renews it.
pub(in crate::store) trait Keys: Send + Sync {
    /// Lists a key, and the keys beside it, in order, from the store itself; all keys of the class if `name` is empty.
    fn list<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<Entry>, Failure>>;

    /// Reads one key from the store itself.
    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Entry>, Failure>>;

    /// Waits until something changes after `index`, or for a while, and lists all keys, with the index to wait from. With an `index` of 0
    /// it does not wait.
    fn wait(&self, index: u64) -> BoxFuture<'_, Result<(u64, Vec<Entry>), Failure>>;

    /// Whether the store was put back to an earlier state between two listings of all keys, which came with these indexes.
    fn is_rewound(&self, before: (u64, &[Entry]), after: (u64, &[Entry])) -> bool;

    /// Writes a key, and lets a session hold it, if the key still has its version.
    fn hold<'a>(&'a self, hold: Hold<'a>) -> BoxFuture<'a, RecordOutcome>;

    /// Lets go of a key that a session holds, if the key still has its version. Its value stays.
    fn release<'a>(&'a self, entry: &'a Entry, session: &'a str) -> BoxFuture<'a, RecordOutcome>;

    /// Deletes keys at their versions. Returns the version of the first one.
    fn delete<'a>(&'a self, keys: &'a [(String, Version)]) -> BoxFuture<'a, RecordOutcome>;

    /// Hands a key to another cluster's session.
    fn give<'a>(&'a self, gift: Gift<'a>) -> BoxFuture<'a, RecordOutcome>;

    /// Describes a session of others for a person. The answer never changes.
    fn describe<'a>(&'a self, session: &'a str) -> BoxFuture<'a, String>;

    /// How a person deletes a key, for a message.
    fn deletion(&self, name: &str) -> String;

    /// Follows a key that lictor never writes. No election follows a key in a store without such keys.
    fn follow(&self, _name: &str) -> BoxStream<'static, FollowedLock> {
        futures::stream::pending().boxed()
    }

    /// The store's own directory, if it has one.
    fn directory(&self) -> Option<&dyn Directory> {
        None
    }
}

/// What is written by [`Keys::hold`].
pub(in crate::store) struct Hold<'a> {
    pub(in crate::store) key: &'a str,
    /// The key's version. `None`: there must be no such key.
    pub(in crate::store) expected: Option<Version>,
    pub(in crate::store) value: Vec<u8>,
    /// Another key that is written with it, and its value.
    pub(in crate::store) beside: Option<(String, Vec<u8>)>,
    pub(in crate::store) session: String,
    /// The sessions of this cluster, from any of which the key may move.
    pub(in crate::store) own: &'a [String],
}

/// What is written by [`Keys::give`].
pub(in crate::store) struct Gift<'a> {
    /// The lock, which this cluster's session holds.
    pub(in crate::store) lock: &'a Entry,
    pub(in crate::store) value: Vec<u8>,
    /// Another key that is written with it, and its value.
    pub(in crate::store) beside: Option<(String, Vec<u8>)>,
    /// The bid, which is deleted, and its version, which it must still have.
    pub(in crate::store) bid: (String, Version),
    /// The session that gets the lock.
    pub(in crate::store) session: String,
}
