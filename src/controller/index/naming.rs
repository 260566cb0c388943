//! The elections by what they name. Of those that name the same lock, or the same service in Consul's catalog, lictor refuses all but one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use lictor_core::{Key, SmallSet, StoreId, Uid};

use crate::controller::entry::Entry;
use crate::controller::names::{ElectionId, ElectionName, Namespace};
use crate::controller::object::ElectionObject;

/// The elections that name each thing, across all namespaces.
pub(crate) struct Naming<T>(HashMap<T, SmallSet<ElectionName>>);

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

/// The elections by what they name, and by what is under way for them, across all namespaces.
#[derive(Default)]
pub(crate) struct Filed {
    pub(super) naming: Naming<Key>,
    /// The elections of each service in Consul's catalog.
    pub(super) registering: Naming<CatalogService>,
    /// Elections by uid.
    pub(super) uids: HashMap<Uid, ElectionName>,
    /// The elections that are decided by another lock than the one that they name, by that lock.
    pub(super) deciding: Naming<Key>,
    decided: BTreeMap<ElectionName, Key>,
    /// Elections whose lock is kept while workloads end, so that a change of any pod may matter to them.
    winding_down: BTreeSet<ElectionName>,
    /// Elections with a change under way.
    unfinished: BTreeSet<ElectionName>,
}

/// The lock and the service in Consul's catalog that an election names.
pub(super) type Named = (Option<Key>, Option<CatalogService>);

pub(super) fn named_by(object: &ElectionObject) -> Named {
    (object.spec().map(|spec| spec.key.clone()), CatalogService::of(object))
}

impl<T> Default for Naming<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Clone + Eq + Hash> Naming<T> {
    /// The elections that name this.
    pub(crate) fn of(&self, key: &T) -> impl Iterator<Item = &ElectionName> {
        self.0.get(key).into_iter().flat_map(SmallSet::keys)
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
            self.0.entry(key.clone()).or_default().insert(election.clone(), ());
        }
    }
}

impl Filed {
    /// Files an election under what it names from now on.
    pub(super) fn rename(&mut self, election: &ElectionName, before: &Named, after: &Named) {
        self.naming.rename(election, before.0.as_ref(), after.0.as_ref());
        self.registering.rename(election, before.1.as_ref(), after.1.as_ref());
    }

    /// Forgets an election.
    pub(super) fn remove(&mut self, entry: &Entry) {
        let ElectionId { election, uid } = entry.object.id();
        self.rename(election, &named_by(&entry.object), &(None, None));
        self.uids.remove(uid);
        self.note_decided(election, None);
    }

    /// Files an election under the lock that its decisions are about.
    pub(super) fn note_decided(&mut self, election: &ElectionName, entry: Option<&Entry>) {
        let own = entry.and_then(Entry::spec).map(|spec| &spec.key);
        let other = entry.and_then(|entry| entry.decisions.key()).filter(|key| Some(*key) != own).cloned();
        let decided = entry.and_then(Entry::election);
        let (winds_down, unfinished) =
            decided.map_or((false, false), |decided| (decided.winding_down().is_some(), decided.is_unfinished()));
        let before = self.decided.get(election);
        if before != other.as_ref() {
            self.deciding.rename(election, before, other.as_ref());
            match other {
                Some(key) => drop(self.decided.insert(election.clone(), key)),
                None => drop(self.decided.remove(election)),
            }
        }
        set(&mut self.winding_down, election, winds_down);
        set(&mut self.unfinished, election, unfinished);
    }

    /// Forgets the locks of all decisions.
    pub(crate) fn forget_decided(&mut self) {
        self.deciding = Naming::default();
        self.decided.clear();
        self.winding_down.clear();
        self.unfinished.clear();
    }

    /// Whether any election has a change under way.
    pub(crate) fn is_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Whether any lock is kept until workloads have ended.
    pub(crate) fn winds_down(&self) -> bool {
        !self.winding_down.is_empty()
    }

    /// The elections of a namespace whose lock is kept while workloads end.
    pub(super) fn winding_down<'a>(&'a self, namespace: &'a Namespace) -> impl Iterator<Item = &'a ElectionName> {
        let from_there = self.winding_down.range(namespace.election("")..);
        from_there.take_while(move |election| election.namespace == *namespace)
    }
}

fn set(elections: &mut BTreeSet<ElectionName>, election: &ElectionName, is: bool) {
    if is != elections.contains(election) {
        if is {
            elections.insert(election.clone());
        } else {
            elections.remove(election);
        }
    }
}
