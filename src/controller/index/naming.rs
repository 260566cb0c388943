//! The elections that name the same lock, or the same service in Consul's catalog. Lictor refuses all of them but one.

use std::collections::HashMap;
use std::hash::Hash;

use lictor_core::{Few, Key, StoreId};

use crate::controller::names::ElectionName;
use crate::controller::object::ElectionObject;

/// The elections that name each thing, across all namespaces.
pub(crate) struct Naming<T>(HashMap<T, Few<ElectionName>>);

/// A service in a store's own directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CatalogService {
    /// The store with the directory.
    store: StoreId,
    /// The service's name there.
    pub(super) name: String,
}

impl CatalogService {
    /// The service that an election registers its leader as.
    pub(super) fn of(object: &ElectionObject) -> Option<Self> {
        let spec = object.spec()?;
        let name = spec.consul_service.as_ref()?.name.clone();
        Some(Self { store: spec.key.store.clone(), name })
    }
}

/// The lock that an election names.
pub(super) fn lock_of(object: &ElectionObject) -> Option<Key> {
    object.spec().map(|spec| spec.key.clone())
}

impl<T> Default for Naming<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Clone + Eq + Hash> Naming<T> {
    /// The elections that name this.
    pub(crate) fn of(&self, key: &T) -> impl Iterator<Item = &ElectionName> {
        self.0.get(key).into_iter().flatten()
    }

    /// Records that an election names something else from now on.
    pub(crate) fn rename(&mut self, election: &ElectionName, before: Option<&T>, after: Option<&T>) {
        if before == after {
            return;
        }
        if let Some(key) = before
            && let Some(naming) = self.0.get_mut(key)
        {
            naming.remove(election);
            if naming.is_empty() {
                self.0.remove(key);
            }
        }
        if let Some(key) = after {
            self.0.entry(key.clone()).or_default().insert(election);
        }
    }
}
