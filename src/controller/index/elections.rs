//! Elections, and the classes by which they are read.

use std::collections::BTreeSet;

use lictor_core::{Uid, Version};

use super::Index;
use crate::api::{Classes, ElectionClass, LeaderElection};
use crate::controller::entry::Entry;
use crate::controller::names::{ElectionId, ElectionName, Namespace};
use crate::kubernetes::Change;

impl Index {
    pub(crate) fn apply_classes(&mut self, change: Change<(String, ElectionClass)>) {
        // A class's status is written by this program itself, and changes nothing for the elections.
        let said = |classes: &Classes| -> Vec<_> {
            let class = |(name, class): (&String, &ElectionClass)| {
                (name.clone(), class.spec.clone(), class.metadata.annotations.clone())
            };
            classes.iter().map(class).collect()
        };
        let before = said(&self.classes);
        match change {
            Change::Applied((name, class)) => {
                self.classes.insert(name, class);
            }
            Change::Deleted((name, _)) => {
                self.classes.remove(&name);
            }
            Change::All(_, _, classes) => self.classes = classes.into_iter().collect(),
            Change::Rewound(_) | Change::Broken(..) => return,
        }
        if said(&self.classes) == before {
            return;
        }
        for election in self.elections().collect::<Vec<_>>() {
            self.resolve_again(&election);
        }
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
                for ElectionId { election, uid } in gone {
                    removed.extend(self.remove_election(&election, &uid, version));
                }
                for (version, uid, election) in elections {
                    removed.extend(self.put_election(version, uid, election));
                }
            }
            Change::Rewound(_) | Change::Broken(..) => {}
        }
        removed
    }

    /// An election as it is now; returns an earlier one of the same name that it replaces.
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
                let content = self.namespaces.entry(name.namespace.clone()).or_default();
                content.elections.insert(name.name.clone(), entry);
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

    /// An election is gone as of a version, unless the name belongs to another one by now.
    fn remove_election(&mut self, election: &ElectionName, uid: &Uid, version: Version) -> Option<Entry> {
        self.deletions.note(uid, version);
        if self.remains_of(election, uid) {
            return None;
        }
        self.take_out(election)
    }

    /// Forgets an election.
    pub(super) fn take_out(&mut self, election: &ElectionName) -> Option<Entry> {
        let ElectionName { namespace, name } = election;
        let content = self.namespaces.get_mut(namespace)?;
        let entry = content.elections.remove(name)?;
        let key = entry.spec().map(|spec| spec.key.clone());
        for pod in entry.members.candidates() {
            if let Some(selecting) = content.selecting.get_mut(pod) {
                selecting.remove(name);
            }
        }
        // Those that it stood in the way of.
        self.dirty.extend(content.refused().map(|entry| entry.object.election().clone()));
        self.dirty.extend(
            entry
                .services()
                .into_iter()
                .flat_map(|service| content.reached_by(service))
                .map(|name| namespace.election(name)),
        );
        self.tidy(namespace);
        self.naming.rename(election, key.as_ref(), None);
        Some(entry)
    }

    fn resolve_again(&mut self, election: &ElectionName) {
        let Some(content) = self.namespaces.get_mut(&election.namespace) else { return };
        let Some(entry) = content.elections.get_mut(&election.name) else { return };
        let before = entry.spec().map(|spec| spec.key.clone());
        let service = entry.spec().and_then(|spec| spec.service.clone());
        entry.object.resolve(&self.classes, &self.controller);
        let after = entry.spec().map(|spec| spec.key.clone());
        self.naming.rename(election, before.as_ref(), after.as_ref());
        self.gather_members(election);
        self.mark(election);
        let Some(content) = self.namespaces.get(&election.namespace) else { return };
        self.dirty.extend(content.refused().map(|entry| entry.object.election().clone()));
        let left = service.iter().flat_map(|service| content.reached_by(service));
        self.dirty.extend(left.map(|name| election.namespace.election(name)));
        self.mark_neighbours(election);
    }
}

fn name_of(election: &LeaderElection) -> ElectionName {
    let namespace = Namespace::from(election.metadata.namespace.clone().unwrap_or_default());
    namespace.election(election.metadata.name.clone().unwrap_or_default())
}
