//! What the stores' watches have shown of the locks, and whose they are.

use std::collections::{BTreeMap, BTreeSet};

use lictor_core::{Key, StoreId, Stored, Uid, Version};

use crate::store::StoreScope;

/// An election by namespace and name.
pub(super) type Name = (String, String);

/// All locks, of all stores.
#[derive(Default)]
pub(super) struct Locks {
    records: BTreeMap<Key, (Version, Stored)>,
    /// Which elections a lock is named for: several, if all but one have to be refused.
    naming: BTreeMap<Key, BTreeSet<Name>>,
    /// Which locks an election has.
    written: BTreeMap<Uid, BTreeSet<Key>>,
}

impl Locks {
    /// What is under a key, as last seen.
    pub(super) fn get(&self, key: &Key) -> Option<&(Version, Stored)> {
        self.records.get(key)
    }

    /// The locks that were written for an election, wherever they are.
    pub(super) fn of(&self, election: &Uid) -> impl Iterator<Item = (&Key, &Stored)> {
        let keys = self.written.get(election).into_iter().flatten();
        keys.filter_map(|key| self.records.get(key).map(|(_, stored)| (key, stored)))
    }

    /// The elections that a lock is named for.
    pub(super) fn named(&self, key: &Key) -> impl Iterator<Item = &Name> {
        self.naming.get(key).into_iter().flatten()
    }

    /// A lock's name is another one from now on.
    pub(super) fn rename(&mut self, election: &Name, before: Option<&Key>, after: Option<&Key>) {
        if let Some(key) = before
            && let Some(naming) = self.naming.get_mut(key)
        {
            naming.remove(election);
            if naming.is_empty() {
                self.naming.remove(key);
            }
        }
        if let Some(key) = after {
            self.naming.entry(key.clone()).or_default().insert(election.clone());
        }
    }

    /// What is under a key, as of a version; returns what was known before, unless that is as new.
    pub(super) fn put(&mut self, key: &Key, version: Version, stored: &Stored) -> Option<Stored> {
        if self.records.get(key).is_some_and(|(known, _)| *known >= version) {
            return None;
        }
        let before = if *stored == Stored::Absent {
            self.records.remove(key)
        } else {
            self.records.insert(key.clone(), (version, stored.clone()))
        };
        let before = before.map_or(Stored::Absent, |(_, before)| before);
        if let Some(before) = before.written()
            && let Some(keys) = self.written.get_mut(&before.election)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.written.remove(&before.election);
            }
        }
        if let Some(record) = stored.written() {
            self.written.entry(record.election.clone()).or_default().insert(key.clone());
        }
        Some(before)
    }

    /// The locks within a scope, and the versions at which they were seen.
    pub(super) fn within(&self, scope: &StoreScope) -> Vec<(Key, Version)> {
        let inside = self.records.iter().filter(|(key, _)| scope.contains(key));
        inside.map(|(key, (version, _))| (key.clone(), *version)).collect()
    }

    /// Whether this cluster has any lock in a store.
    pub(super) fn holds_any(&self, store: &StoreId) -> bool {
        self.records.iter().any(|(key, (_, stored))| key.store == *store && stored.record().is_some())
    }

    /// Forgets what was seen within a scope: its versions begin anew.
    pub(super) fn forget(&mut self, scope: &StoreScope) {
        for (key, _) in self.within(scope) {
            if let Some((_, stored)) = self.records.remove(&key)
                && let Some(record) = stored.written()
                && let Some(keys) = self.written.get_mut(&record.election)
            {
                keys.remove(&key);
            }
        }
    }
}
