//! The common part of all classes whose store several clusters share.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use lictor_core::StoreId;

use crate::resolve::Refusal;

/// The questions of the rest of the program to such a class, whatever its kind of store.
pub trait Shared {
    /// Returns the name of this kind of store in messages, for example Consul.
    fn kind(&self) -> &'static str;

    /// Returns the store's place in messages, for example `Consul at http://consul.example:8500`.
    fn place(&self) -> String;

    /// Returns the store's id.
    fn store(&self) -> StoreId;

    /// Returns this cluster's name in records.
    fn cluster(&self) -> &str;

    /// Returns the sessions' time to live.
    fn ttl(&self) -> Duration;

    /// Returns the longest time for which a store keeps a lock whose holder went silent.
    fn expiry(&self) -> Duration;

    /// Returns how long the cluster's API server must be unreachable before the operator releases the locks. `None`: it
    /// keeps them.
    fn release_after(&self) -> Option<Duration>;

    /// Returns whether the operator releases its locks when it is stopped.
    fn release_on_stop(&self) -> bool;

    /// Returns the Secrets that the class refers to.
    fn secrets(&self) -> BTreeSet<SecretId>;

    /// Checks that a lock may have this key.
    ///
    /// # Errors
    /// Returns what is wrong with the key, for the user.
    fn check_key(&self, key: &str) -> Result<(), Refusal>;
}

/// The name of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretId {
    /// The namespace. `None`: the operator's own.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The place of one value in a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretKey {
    /// The Secret.
    pub secret: SecretId,
    /// The key in its data.
    pub key: String,
}
