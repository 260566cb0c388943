//! Elections, and the classes that serve them.

use std::collections::BTreeSet;

use lictor_core::{StoreId, Uid, Version};

use super::Index;
use super::mentions::Mention;
use super::naming::{CatalogService, lock_of};
use super::pods::link;
use crate::api::{Classes, ElectionClass, LeaderElection};
use crate::controller::entry::Entry;
use crate::controller::names::{ElectionId, ElectionName, Namespace};
use crate::kubernetes::Change;

impl Index {
    pub(crate) fn apply_classes(&mut self, change: Change<(String, ElectionClass)>) {
        // This program itself writes a class's status, so the status changes nothing for the elections.
        let said = |classes: &Classes| -> Vec<_> {
            let class = |(name, class): (&String, &ElectionClass)| {
                (name.clone(), class.spec.clone(), class.metadata.annotations.clone())
            };
            classes.iter().map(class).collect()
        };
        let before = said(&self.classes);
        let known = self.classes.clone();
        match change {
            Change::Applied((name, class)) => {
                self.classes.insert(name, class);
            }
            Change::Deleted((name, _)) => {
                self.classes.remove(&name);
            }
            Change::All(_, _, classes) => self.classes = classes.into_iter().collect(),
            Change::Rewound(_) | Change::Broken(..) | Change::Resumed(_) => return,
        }
        if said(&self.classes) == before {
            return;
        }
        let classes = &self.classes;
        self.departed.extend(known.into_iter().filter(|(name, _)| !classes.contains_key(name)));
        self.departed.retain(|name, _| !classes.contains_key(name));
        for election in self.elections().collect::<Vec<_>>() {
            self.resolve_again(&election);
        }
        let mut used = BTreeSet::new();
        for entry in self.entries().filter(|entry| entry.object.class_is_gone()) {
            used.extend(entry.spec().map(|spec| spec.class_name.clone()));
        }
        self.departed.retain(|name, _| used.contains(name));
    }

    /// Whether an election has its lock in this store.
    pub(crate) fn uses(&self, store: &StoreId) -> bool {
        let entries = self.namespaces.values().flat_map(|content| content.elections.values());
        entries.filter_map(|entry| entry.spec()).any(|spec| spec.key.store == *store)
    }

    pub(crate) fn apply_elections(&mut self, change: Change<(Version, Uid, LeaderElection)>) -> Vec<Entry> {
        let mut removed = Vec::new();
        match change {
            Change::Applied((version, uid, election)) => removed.extend(self.put_election(version, uid, election)),
            Change::Deleted((version, uid, election)) => {
                removed.extend(self.remove_election(&name_of(&election), &uid, version));
            }
            Change::All(scope, version, elections) => {
                let present: BTreeSet<Uid> = elections.iter().map(|(_, uid, _)| uid.clone()).collect();
                let mut gone = Vec::new();
                for (namespace, content) in self.covered(scope.into()) {
                    let waiting = content
                        .waiting
                        .iter()
                        .filter(|(_, (known, uid, _))| *known <= version && !present.contains(uid));
                    gone.extend(waiting.map(|(name, (_, uid, _))| ElectionId {
                        election: namespace.election(name),
                        uid: uid.clone(),
                    }));
                    let known = content
                        .elections
                        .values()
                        .filter(|entry| entry.object.version() <= version && !present.contains(&entry.object.id().uid));
                    gone.extend(known.map(|entry| entry.object.id().clone()));
                }
                gone.sort();
                for ElectionId { election, uid } in gone {
                    removed.extend(self.remove_election(&election, &uid, version));
                }
                for (version, uid, election) in elections {
                    removed.extend(self.put_election(version, uid, election));
                }
            }
            Change::Rewound(_) | Change::Broken(..) | Change::Resumed(_) => {}
        }
        removed
    }

    /// Puts the current election in. Returns an earlier one of the same name that it replaces.
    pub(crate) fn put_election(&mut self, version: Version, uid: Uid, mut object: LeaderElection) -> Option<Entry> {
        if self.deletions.cover(&uid, version) {
            return None;
        }
        object.metadata.managed_fields = None;
        let name = name_of(&object);
        let (uid, object) = self.give_way_to_remains(&name, version, uid, object)?;
        let known = self.namespaces.entry(name.namespace.clone()).or_default().elections.get_mut(&name.name);
        let replaced = match known {
            Some(known) if known.object.version() >= version => return None,
            Some(known) if known.object.id().uid == uid => {
                if !known.renew(version, object) {
                    self.note_mentions(&name);
                    self.mark(&name);
                    return None;
                }
                None
            }
            Some(known) => {
                let uid = known.object.id().uid.clone();
                let Some(earlier) = self.remove_election(&name, &uid, version) else {
                    return self.put_election(version, Uid(object.metadata.uid.clone().unwrap_or_default()), object);
                };
                Some((earlier, object))
            }
            None => {
                let id = ElectionId { election: name.clone(), uid };
                let entry = Entry::new(id, version, object, &self.operator_id);
                self.put_in(entry);
                None
            }
        };
        if let Some((earlier, object)) = replaced {
            let uid = Uid(object.metadata.uid.clone().unwrap_or_default());
            self.put_election(version, uid, object);
            return Some(earlier);
        }
        self.resolve_again(&name);
        None
    }

    /// Removes an election as of a version, unless the name belongs to another one by now.
    fn remove_election(&mut self, election: &ElectionName, uid: &Uid, version: Version) -> Option<Entry> {
        self.deletions.note(uid, version);
        if self.remains_of(election, uid) {
            return None;
        }
        self.take_out(election)
    }

    /// Adds a new election.
    pub(super) fn put_in(&mut self, entry: Entry) {
        let id = entry.object.id().clone();
        let content = self.namespaces.entry(id.election.namespace.clone()).or_default();
        content.elections.insert(id.election.name.clone(), Box::new(entry));
        self.uids.insert(id.uid, id.election);
    }

    /// Forgets an election.
    pub(super) fn take_out(&mut self, election: &ElectionName) -> Option<Entry> {
        let ElectionName { namespace, name } = election;
        // The elections that it stood in the way of.
        self.mark_neighbours(election);
        let content = self.namespaces.get_mut(namespace)?;
        let entry = content.elections.remove(name)?;
        for pod in entry.members.all() {
            link(&mut content.concerned, pod, name, false);
        }
        content.labels.follow(name, std::iter::empty(), &content.pods);
        content.mentions.set(name, BTreeSet::new());
        self.following.insert(election.clone());
        if content.switchovers.contains_key(name) {
            self.dirty.mark(election.clone());
        }
        let reached = entry.services().into_iter().flat_map(|service| content.reached_by(service));
        self.dirty.extend(reached.map(|name| namespace.election(name)));
        self.tidy(namespace);
        self.naming.rename(election, lock_of(&entry.object).as_ref(), None);
        self.registering.rename(election, CatalogService::of(&entry.object).as_ref(), None);
        self.uids.remove(&entry.object.id().uid);
        self.note_decided(election);
        Some(*entry)
    }

    /// Notes that an election may name other things than before.
    fn note_mentions(&mut self, election: &ElectionName) {
        self.following.insert(election.clone());
        let Some(content) = self.namespaces.get_mut(&election.namespace) else { return };
        if let Some(entry) = content.elections.get(&election.name) {
            content.mentions.set(&election.name, Mention::all_of(entry));
        }
    }

    fn resolve_again(&mut self, election: &ElectionName) {
        // The elections that it stood in the way of before the change, or does now.
        self.mark_neighbours(election);
        let Some(content) = self.namespaces.get_mut(&election.namespace) else { return };
        let Some(entry) = content.elections.get_mut(&election.name) else { return };
        let (lock, service) = (lock_of(&entry.object), CatalogService::of(&entry.object));
        entry.object.resolve(&self.classes, &self.departed, &self.controller);
        self.naming.rename(election, lock.as_ref(), lock_of(&entry.object).as_ref());
        self.registering.rename(election, service.as_ref(), CatalogService::of(&entry.object).as_ref());
        self.note_mentions(election);
        self.note_decided(election);
        self.gather_members(election);
        self.mark(election);
        self.mark_neighbours(election);
    }
}

/// The name of an election, according to its object.
fn name_of(election: &LeaderElection) -> ElectionName {
    let namespace = Namespace::from(election.metadata.namespace.clone().unwrap_or_default());
    namespace.election(election.metadata.name.clone().unwrap_or_default())
}
