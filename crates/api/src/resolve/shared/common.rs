//! The common part of all classes whose store several clusters share.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use lictor_core::StoreId;

use crate::ElectionClassSpec;
use crate::resolve::{Refusal, refused_key};
use crate::shared::{LockPolicy, LostCluster, SecretKeyRef, SecretRef};

/// The longest key of a lock, in characters.
pub(super) const LONGEST_KEY: usize = 512;

/// The questions of the rest of the program to such a class, whatever its kind of store.
pub trait Shared {
    /// Returns the name of this kind of store in messages, for example `Consul` or `the hub`.
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

    /// C3: returns how long an operator that begins to act waits for the store's first answers before it demotes. Its predecessor
    /// relied on the locks until a fifth of the TTL before its end at the latest.
    fn patience(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// Returns how late another cluster may see a change of a lock while nothing else changes: zero if the store tells
    /// changes.
    fn seen_after(&self) -> Duration {
        Duration::ZERO
    }

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
            None => write!(f, "{} in lictor's own namespace", self.name),
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

/// Reads a reference to a Secret.
pub(super) fn secret_id(SecretRef { namespace, name }: &SecretRef) -> SecretId {
    SecretId { namespace: namespace.clone(), name: name.clone() }
}

/// Reads a reference to a value in a Secret.
pub(super) fn secret_key(secret: &SecretKeyRef, default: &str) -> SecretKey {
    let SecretKeyRef { namespace, name, key } = secret;
    SecretKey {
        secret: SecretId { namespace: namespace.clone(), name: name.clone() },
        key: key.clone().unwrap_or_else(|| default.into()),
    }
}

/// Reads how long the cluster's API server must be unreachable before the operator releases the locks.
pub(super) fn release_after(lost: &LostCluster) -> Option<Duration> {
    match lost.policy {
        LockPolicy::Hold => None,
        LockPolicy::Release => Some(Duration::from_secs(lost.release_after_seconds.into())),
    }
}

/// Returns whether a text may be the address of a server.
pub(super) fn is_http(address: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| address.len() > scheme.len() && address.starts_with(scheme))
}

/// Returns the directory of all keys of a class, with a slash at its end. The operator watches it.
pub(super) fn watched_prefix(class: &ElectionClassSpec) -> Result<String, &'static str> {
    common_directory(class.effective_key_template(), class.key_pattern.as_deref()).ok_or(
        "keyTemplate and keyPattern must begin with the same fixed part and a '/', for example \
         services/{namespace}/{name}/leader and services/{namespace}/*",
    )
}

/// Returns the common beginning of a class's template and its pattern before the first placeholder or `*`, up to a
/// slash. Returns `None` if there is none, because then the operator would have to watch the whole store.
fn common_directory(template: &str, pattern: Option<&str>) -> Option<String> {
    let fixed = |text: &str| text.split(['{', '*']).next().unwrap_or_default().to_owned();
    let template = fixed(template);
    let common = match pattern.map(fixed) {
        None => template,
        Some(pattern) => {
            template.chars().zip(pattern.chars()).take_while(|(one, other)| one == other).map(|(one, _)| one).collect()
        }
    };
    let end = common.rfind('/').filter(|end| *end > 0)?;
    Some(common[..=end].into())
}

/// Checks that a lock of a class whose keys all begin with `prefix` may have this key.
pub(super) fn check_key_below(prefix: &str, key: &str) -> Result<(), Refusal> {
    if is_key(key) && key.starts_with(prefix) {
        return Ok(());
    }
    Err(refused_key(format!(
        "the lock would be named {key:?}, which is not a valid key for this class: it may have lower-case letters, \
         digits, '/', '_', '-' and '.', has no '//', no '..' and no '/' at its end, begins with {prefix:?}, and has at \
         most {LONGEST_KEY} characters"
    )))
}

fn is_key(key: &str) -> bool {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/_-.".contains(c);
    key.len() <= LONGEST_KEY
        && key.chars().all(legal)
        && !key.contains("..")
        && key.split('/').all(|part| !part.is_empty() && part != ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_directory_that_all_keys_have_in_common_is_watched() {
        let prefix = |template: &str, pattern: Option<&str>| common_directory(template, pattern);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(prefix("services/{namespace}/{name}/leader", None), some("services/"));
        assert_eq!(prefix("a/b/c-{name}", None), some("a/b/"));
        assert_eq!(prefix("a/b/{name}", Some("a/b/*")), some("a/b/"));
        assert_eq!(prefix("a/b/{name}", Some("a/bc/{namespace}/*")), some("a/"));
        assert_eq!(prefix("a/{name}", Some("a/fixed/key")), some("a/"));
        for (template, pattern) in
            [("{name}/a", None), ("lock-{name}", None), ("/{name}", None), ("a/{name}", Some("b/*"))]
        {
            assert_eq!(prefix(template, pattern), None, "{template} {pattern:?}");
        }
    }

    #[test]
    fn a_key_has_parts_and_no_way_out_of_them() {
        for key in ["services/shop/web/leader", "a", "a.b_c-1/.lock", &"x".repeat(512)] {
            assert!(is_key(key), "{key}");
        }
        for key in ["", "/a", "a/", "a//b", "a/../b", "..", "a/./b", "a b", "a%20b", "Web", "ä", &"x".repeat(513)] {
            assert!(!is_key(key), "{key}");
        }
    }
}
