//! Names: of a namespace, of an election by name, of an election by name and uid, and of the part of a cluster that a watch covers.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use lictor_core::Uid;

/// A namespace. Clones share the name, because everything in the namespace is filed under it, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(Arc<str>);

/// The part of a cluster that a watch covers: one namespace, or all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Coverage(Option<Namespace>);

/// An election by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElectionName {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its name there.
    pub name: String,
}

/// An election, by name and uid, so that an outcome for an earlier election of the same name is dropped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElectionId {
    /// Its name.
    pub election: ElectionName,
    /// Its uid.
    pub uid: Uid,
}

/// A Switchover, by name and uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchoverId {
    /// The election that it is about.
    pub election: ElectionName,
    /// Its name in the same namespace.
    pub name: String,
    /// Its uid.
    pub uid: Uid,
}

impl Namespace {
    /// The election of this name in the namespace.
    pub fn election(&self, name: impl Into<String>) -> ElectionName {
        ElectionName { namespace: self.clone(), name: name.into() }
    }
}

impl Coverage {
    /// The whole cluster.
    pub(super) const CLUSTER: Self = Self(None);

    /// The namespace's name, or a star.
    pub(super) fn name(&self) -> &str {
        self.0.as_deref().unwrap_or("*")
    }

    /// Whether the coverage includes a namespace.
    pub(super) fn includes(&self, namespace: &Namespace) -> bool {
        self.0.as_ref().is_none_or(|covered| covered == namespace)
    }
}

impl From<Option<String>> for Coverage {
    fn from(scope: Option<String>) -> Self {
        Self(scope.map(Namespace::from))
    }
}

impl<T: Into<String>> From<T> for Namespace {
    fn from(name: T) -> Self {
        Self(name.into().into())
    }
}

impl Deref for Namespace {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Namespace {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ElectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
