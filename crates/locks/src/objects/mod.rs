//! Locks in a store of objects, each of which can be replaced only if it has not changed: the B rules of docs/protocol.md. A cluster has a
//! session, which holds all its locks. A process that holds one lock needs none: see [`ObjectLock`] and, for the leases of Azure,
//! [`LeasedObjectLock`].
//!
//! | object | what is in it |
//! |---|---|
//! | `locks/KEY.json` | a key: its value, its version, and the session that holds it |
//! | `sessions/CLUSTER.json` | the session of a cluster |
//! | `trial` | what shows that the store honours conditions |
//!
//! [`ObjectKeeper`] keeps the session of one cluster, ends those of others that nobody renews, and polls the store. [`ObjectKeys`] reads and
//! writes keys.

mod claim;
mod content;
mod follow;
mod keeper;
mod keys;
mod leased;
mod lock;
mod poll;
#[cfg(test)]
mod tests;
mod view;

pub use claim::ObjectLockSettings;
pub use content::KeyObject;
pub use keeper::{ObjectKeeper, ObjectSettings};
pub use keys::ObjectKeys;
pub use leased::LeasedObjectLock;
pub use lock::ObjectLock;

/// The object that shows whether a store honours conditions.
pub const TRIAL: &str = "trial";

/// Returns the name of the object of a key. Without the ending, a key could not be below another one where objects are files.
fn of_key(key: &str) -> String {
    format!("locks/{key}.json")
}

/// Returns the name of the object of a cluster's session.
fn of_session(cluster: &str) -> String {
    format!("sessions/{cluster}.json")
}

/// An object in a listing.
enum Named<'a> {
    Key(&'a str),
    Session(&'a str),
}

impl<'a> Named<'a> {
    fn read(name: &'a str) -> Option<Self> {
        let (kind, name) = name.strip_suffix(".json")?.split_once('/')?;
        match kind {
            "locks" => Some(Self::Key(name)),
            "sessions" => Some(Self::Session(name)),
            _ => None,
        }
    }
}
