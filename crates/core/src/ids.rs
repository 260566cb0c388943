//! Names and numbers that must not be confused with each other.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The uid of a pod or an election: the same name with another uid is another object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(pub String);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A store of locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub String);

impl StoreId {
    /// The Leases of the cluster.
    pub fn leases() -> Self {
        Self("leases".into())
    }

    /// The store of a class that several clusters share, by its kind and the class's name.
    pub fn of_class(kind: &str, class: &str) -> Self {
        Self(format!("{kind}/{class}"))
    }

    /// The kind of the store, for example `leases` or `consul`.
    pub fn kind(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }
}

/// The place of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The lock's store.
    pub store: StoreId,
    /// The lock's namespace, empty in a store without namespaces.
    pub namespace: String,
    /// The lock's name in its store.
    pub name: String,
}

impl Key {
    /// The key of a Lease.
    pub fn lease(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { store: StoreId::leases(), namespace: namespace.into(), name: name.into() }
    }

    /// The key of an election that may not touch any lock.
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether there is no lock.
    pub fn is_none(&self) -> bool {
        self.name.is_empty()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The version of a record or a pod, as its server counts: it changes with every write and is never given twice.
///
/// Kubernetes' resource versions are comparable numbers (KEP-5504), and so are Consul's indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a leadership: strictly increasing for a group, so that it serves as a fencing token.
///
/// In a Lease, the term is at most `i32::MAX`, because the Lease counts its transitions in 32 bits; in Consul it is an index of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Term(pub i64);

impl Term {
    /// How far a term that only a person could have written may be ahead of the terms that are known for sure, and still be believed.
    /// Without a limit, one edited annotation could use up all terms.
    pub const CREDIBLE_LEAD: i64 = 1000;

    /// The term after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Whether a group may have reached this term. A person wrote any larger one by hand, and it would soon leave no terms. `by_version`:
    /// the terms are versions of a store, not counted in a Lease.
    pub fn is_credible(self, by_version: bool) -> bool {
        self.0 <= if by_version { i64::MAX / 2 } else { i64::from(i32::MAX - (1 << 20)) }
    }

    /// The larger of this term and `hint`, unless the hint is too far ahead to be true.
    #[must_use]
    pub fn raised_by_hint(self, hint: Self) -> Self {
        if hint.0 > self.0.saturating_add(Self::CREDIBLE_LEAD) { self } else { self.max(hint) }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Ties the outcome of a command to the command. Unique for one [`super::Election`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        assert_eq!((StoreId::leases().0.as_str(), StoreId::leases().kind()), ("leases", "leases"));
        let store = StoreId::of_class("consul", "east");
        assert_eq!((store.0.as_str(), store.kind()), ("consul/east", "consul"));
        assert!(Key::none().is_none() && !Key::lease("shop", "web").is_none());
        assert_eq!(Key::lease("shop", "web").to_string(), "web");
        assert_eq!(
            (Uid("u".into()).to_string(), Version(5).to_string(), Term(7).to_string()),
            ("u".into(), "5".into(), "7".into())
        );
    }

    #[test]
    fn a_hint_is_believed_up_to_a_limit() {
        let limit = Term(7 + Term::CREDIBLE_LEAD);
        assert_eq!(Term(7).raised_by_hint(limit), limit);
        assert_eq!(Term(7).raised_by_hint(limit.next()), Term(7));
        assert_eq!(Term(7).raised_by_hint(Term(3)), Term(7));
    }

    #[test]
    fn a_term_that_leaves_none_for_others_is_not_credible() {
        assert!(Term(2_000_000_000).is_credible(false) && !Term(i32::MAX.into()).is_credible(false));
        assert!(Term(i64::MAX / 2).is_credible(true) && !Term(i64::MAX).is_credible(true));
        assert_eq!(Term(i64::MAX).next(), Term(i64::MAX));
    }
}
