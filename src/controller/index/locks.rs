//! Locks, and which elections each matters to.

use std::collections::BTreeSet;

use lictor_core::{Key, StoreId, Stored, Version};

use super::Index;
use crate::controller::names::ElectionName;
use crate::kubernetes::WorkloadObject;
use crate::store::{StoreEvent, StoreScope};

impl Index {
    pub(crate) fn apply_records(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Changed(key, version, stored) => self.put_record(&key, version, &stored),
            StoreEvent::All(scope, version, records) => {
                let present: BTreeSet<Key> = records.iter().map(|(key, ..)| key.clone()).collect();
                for (key, known) in self.locks.within(|key| scope.contains(key)) {
                    if !present.contains(&key) {
                        // Consul's version of a list may have fallen when it forgot what was deleted long ago.
                        let gone = version.max(Version(known.0.saturating_add(1)));
                        self.put_record(&key, gone, &Stored::Absent);
                    }
                }
                for (key, version, stored) in records {
                    self.put_record(&key, version, &stored);
                }
            }
            StoreEvent::Rewound(scope, records) => {
                // What was decided under versions that are given anew, is decided anew.
                self.locks.forget(|key| scope.contains(key));
                self.begin_anew(&scope);
                for (key, version, stored) in records {
                    self.put_record(&key, version, &stored);
                }
            }
            StoreEvent::LockValidity(..) | StoreEvent::Broken(..) => {}
        }
    }

    fn begin_anew(&mut self, scope: &StoreScope) {
        for (namespace, content) in &mut self.namespaces {
            for (name, entry) in &mut content.elections {
                if entry.decisions.key().is_some_and(|key| scope.contains(key)) {
                    entry.decisions.forget();
                    self.dirty.insert(namespace.election(name));
                }
            }
        }
    }

    /// Whether no pod shows the leader's label of an election with a lock in a store, and no workload of one runs.
    pub(crate) fn is_vacated(&self, store: &StoreId) -> bool {
        self.namespaces.values().all(|content| {
            content.elections.values().all(|entry| {
                let own = |object: &&WorkloadObject| {
                    let claim = object.claim.as_ref();
                    claim.is_some_and(|claim| claim.election == entry.object.name()) && object.runs()
                };
                if entry.spec().is_some_and(|spec| spec.key.store == *store)
                    && content.workloads.values().any(|w| own(&w))
                {
                    return false;
                }
                let markings = entry.spec().filter(|spec| spec.key.store == *store).map(|spec| &spec.scope.markings);
                let mut pods = entry.members.all().filter_map(|pod| content.pods.get(pod));
                markings.is_none_or(|markings| !pods.any(|pod| markings.shows_leader(pod)))
            })
        })
    }

    /// All elections with a lock in a store.
    pub(crate) fn mark_store(&mut self, store: &StoreId) {
        for (namespace, content) in &self.namespaces {
            let concerned = content.elections.iter().filter(|(_, entry)| {
                entry.spec().is_some_and(|spec| spec.key.store == *store)
                    || entry.decisions.key().is_some_and(|key| key.store == *store)
            });
            self.dirty.extend(concerned.map(|(name, _)| namespace.election(name)));
        }
    }

    /// A record as it is now, from the watch or from the answer to a write: the newer one counts.
    pub(crate) fn put_record(&mut self, key: &Key, version: Version, stored: &Stored) {
        let Some(before) = self.locks.put(key, version, stored) else { return };
        let written = |stored: &Stored| stored.written().map(|record| record.election.clone());
        let owner = written(stored).or_else(|| written(&before));
        let mut concerned: BTreeSet<ElectionName> = self.naming.of(key).cloned().collect();
        self.unclaimed.remove(key);
        if stored.written().is_some() && key.store == StoreId::leases() {
            self.unclaimed.insert(key.clone());
        }
        for (namespace, content) in &mut self.namespaces {
            if !key.namespace.is_empty() && key.namespace != **namespace {
                continue;
            }
            for (name, entry) in &mut content.elections {
                if entry.decisions.observe(key, version, stored) {
                    concerned.insert(namespace.election(name));
                }
                if owner.as_ref() == Some(&entry.object.id().uid) {
                    self.unclaimed.remove(key);
                    concerned.insert(namespace.election(name));
                }
            }
        }
        for election in concerned {
            let Some(entry) = self.named(&election) else { continue };
            if !entry.members.heeds(stored.written()) {
                self.gather_members(&election);
            }
            self.dirty.insert(election);
        }
    }
}
