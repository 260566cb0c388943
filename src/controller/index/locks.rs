//! Locks, and the elections that each matters to.

use std::collections::BTreeSet;
use std::sync::Arc;

use lictor_core::{Instant, Key, Rival, StoreId, Stored, Version};

use super::Index;
use crate::controller::entry::Entry;
use crate::controller::names::{ElectionName, Namespace};
use crate::store::{Elsewhere, StoreEvent, StoreScope};

impl Index {
    pub(crate) fn apply_records(&mut self, event: StoreEvent, now: Instant) {
        match event {
            StoreEvent::Changed(key, version, stored) => self.put_record(&key, version, stored),
            StoreEvent::All(scope, version, records) => {
                let present: BTreeSet<Key> = records.iter().map(|(key, ..)| key.clone()).collect();
                for (key, known) in self.locks.within(|key| scope.contains(key)) {
                    if !present.contains(&key) {
                        // Consul's version of a list may have fallen when Consul forgot old deletions.
                        let gone = version.max(Version(known.0.saturating_add(1)));
                        self.put_record(&key, gone, Stored::Absent);
                    }
                }
                self.locks.forget_bids(|key| scope.contains(key));
                for (key, version, stored) in records {
                    self.put_record(&key, version, stored);
                }
            }
            StoreEvent::Rewound(scope, records) => {
                // Decisions under versions that are given again have to be made again.
                self.locks.forget(|key| scope.contains(key));
                self.locks.forget_bids(|key| scope.contains(key));
                self.begin_anew(&scope);
                for (key, version, stored) in records {
                    self.put_record(&key, version, stored);
                }
            }
            StoreEvent::Elsewhere(key, what) => {
                self.dirty.extend(self.naming.of(&key).cloned());
                self.vanished.remove(&key);
                let before = self.elsewhere.remove(&key);
                if let Some(election) = before.as_ref().and_then(named_in) {
                    self.note_key(&election, &key, false);
                }
                match what {
                    Elsewhere::Held(rival) => {
                        if let Some(election) = named_in(&rival) {
                            self.note_key(&election, &key, true);
                        }
                        self.elsewhere.insert(key, rival);
                    }
                    Elsewhere::LetGo => {}
                    Elsewhere::Vanished => {
                        if before.is_some_and(|rival| rival.holder.is_some()) {
                            self.vanished.insert(key, now);
                        }
                    }
                }
            }
            StoreEvent::Bids(key, bids) => {
                self.locks.put_bids(&key, bids);
                self.dirty.extend(self.naming.of(&key).cloned());
            }
            StoreEvent::LockValidity(..) | StoreEvent::Broken(..) | StoreEvent::Resumed(_) => {}
        }
    }

    /// Notes the keys at which other clusters have the lock of an election of this name. If a key differs from this cluster's, both
    /// clusters lead.
    fn note_key(&mut self, election: &ElectionName, key: &Key, is_there: bool) {
        let keys = self.led_at.entry(election.clone()).or_default();
        if is_there {
            keys.insert(key.clone());
        } else {
            keys.remove(key);
        }
        if keys.is_empty() {
            self.led_at.remove(election);
        }
        if self
            .named(election)
            .and_then(Entry::spec)
            .is_some_and(|spec| spec.key.store == key.store && spec.key != *key)
        {
            self.dirty.mark(election.clone());
        }
    }

    fn begin_anew(&mut self, scope: &StoreScope) {
        let mut begun = Vec::new();
        for entry in self.entries() {
            if entry.decisions.key().is_some_and(|key| scope.contains(key)) {
                entry.decisions.forget();
                begun.push(entry.object.election().clone());
            }
        }
        begun.sort();
        for election in begun {
            self.note_decided(&election);
            self.mark_urgent(&election);
        }
    }

    /// Whether no pod shows the leader's label, and no workload runs, of any election with a lock in a store.
    pub(crate) fn is_vacated(&self, store: &StoreId) -> bool {
        self.namespaces.values().all(|content| {
            let running = content.workloads.iter().filter(|workload| workload.runs());
            let running: BTreeSet<&str> =
                running.filter_map(|workload| Some(workload.claim.as_ref()?.election.as_str())).collect();
            content.elections.values().all(|entry| {
                if entry.spec().is_some_and(|spec| spec.key.store == *store) && running.contains(entry.object.name()) {
                    return false;
                }
                let markings = entry.spec().filter(|spec| spec.key.store == *store).map(|spec| &spec.scope.markings);
                let mut pods = entry.members.all().filter_map(|pod| content.pods.get(pod));
                markings.is_none_or(|markings| !pods.any(|pod| markings.shows_leader(pod)))
            })
        })
    }

    /// Marks all elections with a lock in a store as urgent, because their locks may be lost.
    pub(crate) fn mark_store(&mut self, store: &StoreId) {
        for (namespace, content) in &self.namespaces {
            let concerned = content.elections.iter().filter(|(_, entry)| {
                entry.spec().is_some_and(|spec| spec.key.store == *store)
                    || entry.decisions.key().is_some_and(|key| key.store == *store)
            });
            for name in concerned.map(|(name, _)| name).collect::<BTreeSet<_>>() {
                self.dirty.mark_urgent(namespace.election(name));
            }
        }
    }

    /// Puts a current record in, from the watch or from the answer to a write. The newer one counts.
    pub(crate) fn put_record(&mut self, key: &Key, version: Version, stored: Stored) {
        let stored = Arc::new(stored);
        let Some(before) = self.locks.put(key, version, &stored) else { return };
        let written = |stored: &Stored| stored.written().map(|record| record.election.clone());
        let owner = written(&stored).or_else(|| written(&before));
        let mut concerned: BTreeSet<ElectionName> = self.naming.of(key).cloned().collect();
        self.unclaimed.remove(key);
        if stored.written().is_some() && key.store == StoreId::leases() {
            self.unclaimed.insert(key.clone());
        }
        concerned.extend(self.deciding.of(key).cloned());
        let is_there = |election: &&ElectionName| key.namespace.is_empty() || key.namespace == *election.namespace;
        if let Some(election) = owner.and_then(|uid| self.uids.get(&uid)).filter(is_there) {
            self.unclaimed.remove(key);
            concerned.insert(election.clone());
        }
        for election in concerned {
            let Some(entry) = self.named_mut(&election) else { continue };
            entry.decisions.observe(key, version, &stored);
            if key.store == StoreId::leases() && !entry.members.heeds(stored.written()) {
                self.gather_members(&election);
            }
            // A record that is seen for the first time was there before. A lock that changes may be lost.
            if *before == Stored::Absent {
                self.dirty.mark(election);
            } else {
                self.dirty.mark_urgent(election);
            }
        }
    }
}

/// The name of the election for which another cluster holds a lock.
fn named_in(rival: &Rival) -> Option<ElectionName> {
    let (namespace, name) = &rival.election;
    (!namespace.is_empty()).then(|| Namespace::from(namespace.as_str()).election(name))
}
