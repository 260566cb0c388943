//! Locks, and the elections that each matters to.

use std::collections::BTreeSet;
use std::sync::Arc;

use lictor_core::{Instant, Key, Locks, StoreId, Stored, Version};

use super::clusters::Clusters;
use super::naming::Filed;
use super::objects::Objects;
use super::pods::gather_members;
use crate::controller::entry::Entry;
use crate::controller::names::ElectionName;
use crate::store::{StoreEvent, StoreScope};

/// The part of the index that a change of a lock may touch.
pub(crate) struct Records<'a> {
    pub(super) locks: &'a mut Locks,
    pub(super) clusters: &'a mut Clusters,
    pub(super) filed: &'a mut Filed,
    pub(super) unclaimed: &'a mut BTreeSet<Key>,
    pub(super) objects: &'a mut Objects,
}

impl Records<'_> {
    pub(crate) fn apply(&mut self, event: StoreEvent, now: Instant) {
        match event {
            StoreEvent::Changed(key, version, stored) => self.put(&key, version, stored),
            StoreEvent::All(scope, version, records) => {
                let present: BTreeSet<Key> = records.iter().map(|(key, ..)| key.clone()).collect();
                for (key, known) in self.locks.within(|key| scope.contains(key)) {
                    if !present.contains(&key) {
                        // Consul's version of a list may have fallen when Consul forgot old deletions.
                        let gone = version.max(Version(known.0.saturating_add(1)));
                        self.put(&key, gone, Stored::Absent);
                    }
                }
                self.locks.forget_bids(|key| scope.contains(key));
                self.clusters.remarks.retain(|key, _| !scope.contains(key));
                for (key, version, stored) in records {
                    self.put(&key, version, stored);
                }
            }
            StoreEvent::Rewound(scope, records) => {
                // Decisions under versions that are given again have to be made again.
                self.locks.forget(|key| scope.contains(key));
                self.locks.forget_bids(|key| scope.contains(key));
                self.clusters.remarks.retain(|key, _| !scope.contains(key));
                self.begin_anew(&scope);
                for (key, version, stored) in records {
                    self.put(&key, version, stored);
                }
            }
            StoreEvent::Elsewhere(key, what) => {
                self.mark_naming(&key);
                for election in self.clusters.hear(key.clone(), what, now).into_iter().flatten() {
                    // If this key differs from this cluster's, both clusters lead.
                    let spec = self.objects.named(&election).and_then(Entry::spec);
                    if spec.is_some_and(|spec| spec.key.store == key.store && spec.key != key) {
                        self.objects.dirty.mark(election);
                    }
                }
            }
            StoreEvent::Bids(key, bids) => {
                self.locks.put_bids(&key, bids);
                self.mark_naming(&key);
            }
            StoreEvent::Remarks(key, remarks) => {
                self.mark_naming(&key);
                if remarks.is_empty() {
                    self.clusters.remarks.remove(&key);
                } else {
                    self.clusters.remarks.insert(key, remarks);
                }
            }
            StoreEvent::LockValidity(..) | StoreEvent::Broken(..) | StoreEvent::Resumed(_) => {}
        }
    }

    fn mark_naming(&mut self, key: &Key) {
        self.objects.dirty.extend(self.filed.naming.of(key).cloned());
    }

    fn begin_anew(&mut self, scope: &StoreScope) {
        let mut begun = Vec::new();
        for entry in self.objects.entries_mut() {
            if entry.decisions.key().is_some_and(|key| scope.contains(key)) {
                entry.decisions.forget();
                begun.push(entry.object.election().clone());
            }
        }
        begun.sort();
        for election in begun {
            self.filed.note_decided(&election, self.objects.named(&election));
            self.objects.dirty.mark_urgent(election);
        }
    }

    /// Puts a current record in, from the watch or from the answer to a write. The newer one counts.
    pub(crate) fn put(&mut self, key: &Key, version: Version, stored: Stored) {
        let stored = Arc::new(stored);
        let Some(before) = self.locks.put(key, version, &stored) else { return };
        let written = |stored: &Stored| stored.written().map(|record| record.election.clone());
        let owner = written(&stored).or_else(|| written(&before));
        let mut concerned: BTreeSet<ElectionName> = self.filed.naming.of(key).cloned().collect();
        self.unclaimed.remove(key);
        if stored.written().is_some() && key.store == StoreId::leases() {
            self.unclaimed.insert(key.clone());
        }
        concerned.extend(self.filed.deciding.of(key).cloned());
        let is_there = |election: &&ElectionName| key.namespace.is_empty() || key.namespace == *election.namespace;
        if let Some(election) = owner.and_then(|uid| self.filed.uids.get(&uid)).filter(is_there) {
            self.unclaimed.remove(key);
            concerned.insert(election.clone());
        }
        for election in concerned {
            let Some(entry) = self.objects.named_mut(&election) else { continue };
            entry.decisions.observe(key, version, &stored);
            if key.store == StoreId::leases() && !entry.members.heeds(stored.written()) {
                gather_members(self.objects, self.locks, &election);
            }
            // A record that is seen for the first time was there before. A lock that changes may be lost.
            if *before == Stored::Absent {
                self.objects.dirty.mark(election);
            } else {
                self.objects.dirty.mark_urgent(election);
            }
        }
    }
}
