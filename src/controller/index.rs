//! Everything that is known of the cluster, kept up to date whether or not this replica acts. The index only computes.

mod circles;
mod clusters;
mod conflicts;
mod dirty;
mod elections;
mod locks;
mod mentions;
mod naming;
mod nodes;
mod objects;
mod offers;
mod pods;
mod remains;
mod routing;
mod switchovers;
#[cfg(test)]
mod tests;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};

use lictor_api::{Classes, LeaderElection};
use lictor_core::{Deletions, Election, Instant, Key, Locks, Node, OtherLeader, Rival, StoreId, Uid, Version};
use lictor_kubernetes::Change;

use self::clusters::Clusters;
use self::conflicts::{Conflicts, mark_neighbours};
use self::elections::Elections;
use self::locks::Records;
use self::naming::Filed;
use self::nodes::Nodes;
pub(super) use self::objects::OfElection;
use self::objects::{Content, Objects};
use self::offers::Offers;
use self::pods::Pods;
use self::remains::Remains;
use self::routing::{Services, Slices};
use self::switchovers::Switchovers;
use self::workloads::Workloads;
use super::entry::{Entry, Surroundings, ToldElsewhere};
use super::names::{ElectionId, ElectionName, Namespace};

/// The caches. Hash maps hold what is only looked up; ordered maps hold what is iterated over, so that each run decides alike.
pub(super) struct Index {
    controller: String,
    operator_id: String,
    /// What administrators offer to which namespaces.
    pub(super) offers: Offers,
    /// The classes, each with all the namespaces that may use it.
    pub(super) classes: Classes,
    /// Deleted classes that still serve elections, as they were last seen.
    departed: Classes,
    pub(super) objects: Objects,
    nodes: Nodes,
    pub(super) locks: Locks,
    clusters: Clusters,
    pub(super) filed: Filed,
    /// Whether this replica acts, and removes what departed elections left behind.
    acts: bool,
    /// Locks of unknown elections.
    unclaimed: BTreeSet<Key>,
    /// Elections that may now follow another lock than before.
    following: BTreeSet<ElectionName>,
}

/// One election, with its surroundings.
pub(super) struct ElectionContext<'a> {
    pub(super) entry: &'a mut Entry,
    /// The contents of its namespace.
    pub(super) around: Surroundings<'a>,
    pub(super) switchovers: Option<&'a mut OfElection>,
    pub(super) nodes: &'a BTreeMap<String, Node>,
    /// The leaders from which its own leader keeps apart.
    pub(super) other_leaders: Vec<OtherLeader>,
    pub(super) locks: &'a Locks,
    /// The holder of its lock, if that is another cluster.
    pub(super) rival: Option<&'a Rival>,
    pub(super) told: ToldElsewhere<'a>,
    /// C6: when the lock vanished, if another cluster held it then.
    pub(super) vanished: Option<Instant>,
}

impl Index {
    pub(super) fn new(controller: String, operator_id: String) -> Self {
        Self {
            controller,
            operator_id,
            offers: Offers::default(),
            classes: Classes::new(),
            departed: Classes::new(),
            objects: Objects::default(),
            nodes: Nodes::default(),
            locks: Locks::default(),
            clusters: Clusters::default(),
            filed: Filed::default(),
            acts: false,
            unclaimed: BTreeSet::new(),
            following: BTreeSet::new(),
        }
    }

    pub(super) fn elections(&mut self) -> Elections<'_> {
        self.remains().elections
    }

    pub(super) fn remains(&mut self) -> Remains<'_> {
        let Self {
            controller,
            operator_id,
            offers,
            classes,
            departed,
            objects,
            locks,
            filed,
            unclaimed,
            following,
            ..
        } = self;
        let elections = Elections { controller, offers, classes, departed, objects, filed, locks, following };
        Remains { operator_id, acts: self.acts, unclaimed, elections }
    }

    pub(super) fn pods(&mut self) -> Pods<'_> {
        let Self { objects, nodes, filed, locks, .. } = self;
        Pods { objects, nodes, filed, locks }
    }

    pub(super) fn workloads(&mut self) -> Workloads<'_> {
        Workloads(&mut self.objects)
    }

    pub(super) fn services(&mut self) -> Services<'_> {
        Services(&mut self.objects)
    }

    pub(super) fn slices(&mut self) -> Slices<'_> {
        Slices(&mut self.objects)
    }

    pub(super) fn switchovers(&mut self) -> Switchovers<'_> {
        Switchovers(&mut self.objects)
    }

    pub(super) fn records(&mut self) -> Records<'_> {
        let Self { objects, locks, clusters, filed, unclaimed, .. } = self;
        Records { locks, clusters, filed, unclaimed, objects }
    }

    pub(super) fn conflicts(&self) -> Conflicts<'_> {
        let Self { objects, filed, locks, .. } = self;
        Conflicts { objects, filed, locks }
    }

    pub(super) fn apply_nodes(&mut self, change: Change<(String, Node)>) {
        self.nodes.apply(change, &mut self.objects);
    }

    /// Takes the elections that may follow another lock than at the last call, whatever the cause.
    pub(super) fn take_following(&mut self) -> BTreeSet<ElectionName> {
        std::mem::take(&mut self.following)
    }

    /// Takes this many elections to decide at most, the urgent ones first.
    pub(super) fn take_dirty(&mut self, at_most: usize) -> Vec<ElectionName> {
        self.objects.dirty.take(at_most)
    }

    pub(super) fn mark(&mut self, election: &ElectionName) {
        self.objects.dirty.mark(election.clone());
    }

    /// Marks an election as urgent, because its leader may depend on it.
    pub(super) fn mark_urgent(&mut self, election: &ElectionName) {
        self.objects.dirty.mark_urgent(election.clone());
    }

    pub(super) fn mark_all(&mut self) {
        let all: Vec<ElectionName> = self.objects.elections().collect();
        self.objects.dirty.extend(all);
    }

    /// Marks the elections that an election is in the way of, or that are in its way.
    pub(super) fn mark_neighbours(&mut self, election: &ElectionName) {
        mark_neighbours(&mut self.objects, &self.filed, election);
    }

    /// Files an election under the lock that its decisions are about.
    pub(super) fn note_decided(&mut self, election: &ElectionName) {
        self.filed.note_decided(election, self.objects.named(election));
    }

    pub(super) fn apply_elections(&mut self, change: Change<(Version, Uid, LeaderElection)>) -> Vec<Entry> {
        let mut removed = Vec::new();
        match change {
            Change::Applied((version, uid, election)) => removed.extend(self.put_election(version, uid, election)),
            Change::Deleted((version, uid, election)) => {
                removed.extend(self.remove_election(&name_of(&election), &uid, version));
            }
            Change::All(scope, version, elections) => {
                let present: BTreeSet<Uid> = elections.iter().map(|(_, uid, _)| uid.clone()).collect();
                let mut gone = Vec::new();
                for (namespace, content) in self.objects.covered(scope.into()) {
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
    pub(super) fn put_election(&mut self, version: Version, uid: Uid, mut object: LeaderElection) -> Option<Entry> {
        if self.objects.deletions.cover(&uid, version) {
            return None;
        }
        object.metadata.managed_fields = None;
        let name = name_of(&object);
        let (uid, object) = self.remains().give_way(&name, version, uid, object)?;
        let known = self.objects.namespaces.entry(name.namespace.clone()).or_default().elections.get_mut(&name.name);
        let replaced = match known {
            Some(known) if known.object.version() >= version => return None,
            Some(known) if known.object.id().uid == uid => {
                if !known.renew(version, object) {
                    self.elections().note_mentions(&name);
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
                self.elections().add(entry);
                None
            }
        };
        if let Some((earlier, object)) = replaced {
            let uid = Uid(object.metadata.uid.clone().unwrap_or_default());
            self.put_election(version, uid, object);
            return Some(earlier);
        }
        self.elections().resolve_again(&name);
        None
    }

    /// Removes an election as of a version, unless the name belongs to another one by now.
    fn remove_election(&mut self, election: &ElectionName, uid: &Uid, version: Version) -> Option<Entry> {
        self.objects.deletions.note(uid, version);
        if self.remains().keep_place(election, uid) {
            return None;
        }
        self.elections().take_out(election)
    }

    /// Removes the remains of elections here from now on.
    pub(super) fn act(&mut self) {
        self.acts = true;
    }

    /// Leaves the remains of elections to another replica.
    pub(super) fn stand_by(&mut self) {
        self.acts = false;
        self.switchovers().stand_by();
        let gone = self.objects.entries().filter(|entry| entry.object.is_gone());
        let gone: BTreeSet<ElectionName> = gone.map(|entry| entry.object.election().clone()).collect();
        for election in gone {
            let locks = self.objects.named(&election).map(|entry| self.locks.of(&entry.object.id().uid));
            let locks: Vec<Key> = locks.into_iter().flatten().map(|(key, _)| key.clone()).collect();
            self.unclaimed.extend(locks);
            self.bury(&election);
        }
    }

    /// Whether no election has left anything that this lictor has to remove.
    pub(super) fn is_withdrawn(&self) -> bool {
        let mut left = self.objects.entries().filter(|entry| {
            (entry.object.is_served() || entry.object.is_gone())
                && !entry.withdrawn
                && entry.object.may_have_left(&self.locks, &self.operator_id)
        });
        left.next().is_none()
    }

    /// Forgets a departed election of which nothing is left. Its name goes to the election that waits for it.
    pub(super) fn bury(&mut self, election: &ElectionName) {
        let content = self.objects.namespaces.get_mut(&election.namespace);
        let waiting = content.and_then(|content| content.waiting.remove(&election.name));
        self.elections().take_out(election);
        if let Some((version, uid, object)) = waiting {
            self.put_election(version, uid, object);
        }
    }

    /// Forgets the versions, because the API server's store was restored to an earlier state and everything is listed again. The index
    /// keeps elections until then, and their terms for longer.
    pub(super) fn forget_versions(&mut self) {
        self.objects.deletions = Deletions::default();
        self.nodes.pods.clear();
        for content in self.objects.namespaces.values_mut() {
            content.pods.clear();
            content.labels.forget_pods();
            content.marked.clear();
            content.workloads.clear(&mut content.labels);
            content.services.clear();
            content.slices.clear();
            content.concerned.clear();
            content.waiting.clear();
            content.switchovers.clear();
            content.switched.clear();
            for entry in content.elections.values_mut() {
                // This replica need not have acted.
                let recorded = entry.object.record(&self.locks).map(|record| record.term);
                let shared = entry.spec().is_some_and(|spec| spec.shared.is_some());
                let told = Some(entry.object.status_term()).filter(|term| term.is_credible(shared));
                let terms = [entry.election().map(Election::term), recorded, told];
                if let Some(highest) = terms.into_iter().flatten().max() {
                    entry.decisions.reach(highest);
                }
                entry.object.forget_version();
                entry.members.clear();
            }
        }
        self.locks.forget(|key| key.store == StoreId::leases());
    }

    pub(super) fn dirty_count(&self) -> usize {
        self.objects.dirty.len()
    }

    pub(super) fn entry(&mut self, id: &ElectionId) -> Option<&mut Entry> {
        self.objects.named_mut(&id.election).filter(|entry| entry.object.id().uid == id.uid)
    }

    /// An election and its surroundings.
    pub(super) fn find(&mut self, election: &ElectionName) -> Option<ElectionContext<'_>> {
        let Self { objects, nodes, locks, clusters, .. } = self;
        let content = objects.namespaces.get_mut(&election.namespace)?;
        let other_leaders = content.other_leaders(&election.name, locks);
        let Content { pods, labels, elections, workloads, services, slices, switchovers, .. } = content;
        let around = Surroundings { pods, labels, workloads, services, slices };
        let (entry, switchovers) = (elections.get_mut(&election.name)?, switchovers.get_mut(&election.name));
        let key = entry.spec().map(|spec| &spec.key);
        let rival = key.and_then(|key| clusters.held.get(key));
        let vanished = key.and_then(|key| clusters.vanished.get(key)).copied();
        let told = clusters.told(election, key);
        Some(ElectionContext {
            entry,
            around,
            switchovers,
            nodes: &nodes.known,
            other_leaders,
            locks,
            rival,
            told,
            vanished,
        })
    }

    /// Whether another cluster holds the lock that an election names.
    pub(super) fn is_held_elsewhere(&self, election: &ElectionName) -> bool {
        let spec = self.objects.named(election).and_then(Entry::spec);
        spec.is_some_and(|spec| self.clusters.held.contains_key(&spec.key))
    }

    /// The lock that an election follows, if it follows any.
    pub(super) fn followed_by(&self, election: &ElectionName) -> Option<&Key> {
        let entry = self.objects.named(election).filter(|entry| !entry.object.is_deleted())?;
        entry.spec()?.followed.as_ref().map(|followed| &followed.key)
    }
}

/// The name of an election, according to its object.
fn name_of(election: &LeaderElection) -> ElectionName {
    let namespace = Namespace::from(election.metadata.namespace.clone().unwrap_or_default());
    namespace.election(election.metadata.name.clone().unwrap_or_default())
}
