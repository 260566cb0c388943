//! Everything that is known of the cluster, kept warm whether or not this replica acts. It only computes.

mod naming;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use lictor_core::{
    Deletions, Election, Instant, Key, Locks, Membership, Node, Pod, PodCache, StoreId, Stored, Uid, Version,
    WorkloadId, WorkloadKind,
};

use self::naming::Naming;
use super::entry::{Entry, status_term};
use super::names::{ElectionId, ElectionName, Namespace};
use crate::api::{Claims, Classes, ElectionClass, LeaderElection, Refusal, resolve};
use crate::kubernetes::{Change, WorkloadObject};
use crate::store::{StoreEvent, StoreScope};

/// The caches.
pub(super) struct Index {
    controller: String,
    operator_id: String,
    pub(super) classes: Classes,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) namespaces: BTreeMap<Namespace, Content>,
    pub(super) locks: Locks,
    naming: Naming,
    deletions: Deletions,
    /// Elections to look at.
    dirty: BTreeSet<ElectionName>,
}

/// What is known of one namespace.
#[derive(Default)]
pub(super) struct Content {
    pub(super) pods: PodCache,
    pub(super) elections: BTreeMap<String, Entry>,
    pub(super) workloads: BTreeMap<WorkloadId, WorkloadObject>,
    /// Which elections select a pod.
    selecting: BTreeMap<String, BTreeSet<String>>,
}

impl Content {
    /// The elections that have to give way to an older one.
    fn refused(&self) -> impl Iterator<Item = &Entry> {
        self.elections.values().filter(|entry| entry.conflict.is_some())
    }

    /// The elections that a workload matters to.
    fn following(&self, object: &WorkloadObject) -> impl Iterator<Item = String> {
        let cron_job =
            object.owner.as_ref().and_then(|owner| self.workloads.values().find(|other| other.uid == *owner));
        let concerns = move |entry: &Entry| entry.follows(object) || cron_job.is_some_and(|owner| entry.follows(owner));
        let following =
            self.elections.values().filter(|entry| concerns(entry)).map(|entry| entry.id.election.name.clone());
        following.collect::<Vec<_>>().into_iter()
    }
}

impl Index {
    pub(super) fn new(controller: String, operator_id: String) -> Self {
        Self {
            controller,
            operator_id,
            classes: Classes::new(),
            nodes: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            locks: Locks::default(),
            naming: Naming::default(),
            deletions: Deletions::default(),
            dirty: BTreeSet::new(),
        }
    }

    pub(super) fn take_dirty(&mut self) -> BTreeSet<ElectionName> {
        std::mem::take(&mut self.dirty)
    }

    pub(super) fn mark(&mut self, election: &ElectionName) {
        self.dirty.insert(election.clone());
    }

    pub(super) fn mark_all(&mut self) {
        self.dirty = self.elections().collect();
    }

    /// All elections by name.
    fn elections(&self) -> impl Iterator<Item = ElectionName> {
        let namespaces = self.namespaces.iter();
        namespaces.flat_map(|(namespace, content)| content.elections.keys().map(|name| namespace.election(name)))
    }

    pub(super) fn entries(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.namespaces.values_mut().flat_map(|namespace| namespace.elections.values_mut())
    }

    /// Forgets what versions tell: the API server's store was put back to an earlier state, and all is listed anew. Elections are
    /// kept until then, and the terms that they have come to, for longer.
    pub(super) fn forget_versions(&mut self) {
        self.deletions = Deletions::default();
        for content in self.namespaces.values_mut() {
            content.pods.clear();
            content.workloads.clear();
            content.selecting.clear();
            for entry in content.elections.values_mut() {
                // This replica need not have acted.
                let lock = entry.spec().and_then(|spec| self.locks.get(&spec.key)).and_then(|(_, lock)| lock.written());
                let shared = entry.spec().is_some_and(|spec| spec.consul.is_some());
                let told = Some(status_term(&entry.object)).filter(|term| term.is_credible(shared));
                let terms = [entry.election().map(Election::term), lock.map(|record| record.term), told];
                if let Some(highest) = terms.into_iter().flatten().max() {
                    entry.replica.reach(highest);
                }
                entry.version = Version::default();
                entry.members.clear();
            }
        }
        self.locks.forget(|key| key.store == StoreId::leases());
    }

    pub(super) fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    pub(super) fn entry(&mut self, id: &ElectionId) -> Option<&mut Entry> {
        self.named_mut(&id.election).filter(|entry| entry.id.uid == id.uid)
    }

    fn named(&self, election: &ElectionName) -> Option<&Entry> {
        self.namespaces.get(&election.namespace)?.elections.get(&election.name)
    }

    fn named_mut(&mut self, election: &ElectionName) -> Option<&mut Entry> {
        self.namespaces.get_mut(&election.namespace)?.elections.get_mut(&election.name)
    }

    // Pods

    pub(super) fn apply_pods(&mut self, change: Change<(String, Pod)>, now: Instant) {
        match change {
            Change::Applied((namespace, pod)) => self.put_pod(&namespace.into(), pod, now),
            Change::Deleted((namespace, pod)) => self.remove_pod(&namespace.into(), &pod.name, &pod.uid, pod.version),
            Change::All(scope, version, pods) => {
                let present: BTreeSet<&Uid> = pods.iter().map(|(_, pod)| &pod.uid).collect();
                let known = self.scoped(scope.as_deref()).flat_map(|(namespace, content)| {
                    let gone = content.pods.iter().filter(|pod| pod.version <= version && !present.contains(&pod.uid));
                    gone.map(|pod| (namespace.clone(), pod.name.clone(), pod.uid.clone()))
                });
                for (namespace, name, uid) in known.collect::<Vec<_>>() {
                    self.remove_pod(&namespace, &name, &uid, version);
                }
                for (namespace, pod) in pods {
                    self.put_pod(&namespace.into(), pod, now);
                }
            }
            Change::Rewound(_) | Change::Broken(..) => {}
        }
    }

    /// A pod as it is now, from a watch or from the answer to a request: the newer one counts, also of two by the same name.
    pub(super) fn put_pod(&mut self, namespace: &Namespace, pod: Pod, now: Instant) {
        let content = self.namespaces.entry(namespace.clone()).or_default();
        let Some(pod) = content.pods.put(pod, &mut self.deletions, now) else { return self.tidy(namespace) };
        let mut touched = BTreeSet::new();
        for (name, entry) in &mut content.elections {
            let record = entry.spec().and_then(|spec| self.locks.get(&spec.key)).and_then(|(_, lock)| lock.written());
            let winds_down = entry.election().and_then(Election::winding_down).is_some();
            let Membership { concerned, switched } = entry.put_member(pod, record);
            if concerned || winds_down {
                touched.insert(name.clone());
            }
            if let Some(selected) = switched {
                touched.extend(switch(&mut content.selecting, &pod.name, name, selected));
            }
        }
        self.dirty.extend(touched.into_iter().map(|name| namespace.election(name)));
    }

    /// A pod is gone as of a version, unless the name belongs to another one by now.
    fn remove_pod(&mut self, namespace: &Namespace, name: &str, uid: &Uid, version: Version) {
        self.deletions.note(uid, version);
        let Some(content) = self.namespaces.get_mut(namespace) else { return };
        if !content.pods.remove(name, uid) {
            return;
        }
        let selecting = content.selecting.remove(name).unwrap_or_default();
        let mut touched = selecting;
        for (election, entry) in &mut content.elections {
            if entry.members.remove(name) || entry.election().and_then(Election::winding_down).is_some() {
                touched.insert(election.clone());
            }
        }
        self.dirty.extend(touched.into_iter().map(|name| namespace.election(name)));
        self.tidy(namespace);
    }

    // Workloads

    pub(super) fn apply_workloads(&mut self, kind: WorkloadKind, change: Change<WorkloadObject>) {
        match change {
            Change::Applied(object) => self.put_workload(object),
            Change::Deleted(object) => {
                self.remove_workload(&object.namespace.into(), &object.id, &object.uid, object.version);
            }
            Change::All(scope, version, objects) => {
                let present: BTreeSet<&Uid> = objects.iter().map(|object| &object.uid).collect();
                let known = self.scoped(scope.as_deref()).flat_map(|(_, content)| content.workloads.values());
                let gone = known.filter(|object| {
                    object.id.kind == kind && object.version <= version && !present.contains(&object.uid)
                });
                for object in gone.cloned().collect::<Vec<_>>() {
                    self.remove_workload(&object.namespace.into(), &object.id, &object.uid, version);
                }
                for object in objects {
                    self.put_workload(object);
                }
            }
            Change::Rewound(_) | Change::Broken(..) => {}
        }
    }

    /// A workload as it is now, from a watch or from the answer to a request: the newer one counts, also of two by the same name.
    pub(super) fn put_workload(&mut self, object: WorkloadObject) {
        if self.deletions.cover(&object.uid, object.version) {
            return;
        }
        let namespace = Namespace::from(object.namespace.as_str());
        let content = self.namespaces.entry(namespace.clone()).or_default();
        let known = content.workloads.get(&object.id);
        if known.is_some_and(|known| known.version >= object.version) {
            return;
        }
        if let Some(replaced) = known.filter(|known| known.uid != object.uid) {
            self.deletions.note(&replaced.uid, object.version);
        }
        self.dirty.extend(content.following(&object).map(|name| namespace.election(name)));
        content.workloads.insert(object.id.clone(), object);
    }

    /// An answer says that there is no workload of this uid any more.
    pub(super) fn lose_workload(&mut self, namespace: &Namespace, id: &WorkloadId, uid: &Uid) {
        // An object that was deleted does not come back under the same uid.
        self.remove_workload(namespace, id, uid, Version(u64::MAX));
    }

    /// A workload is gone as of a version, unless the name belongs to another one by now.
    fn remove_workload(&mut self, namespace: &Namespace, id: &WorkloadId, uid: &Uid, version: Version) {
        self.deletions.note(uid, version);
        let Some(content) = self.namespaces.get_mut(namespace) else { return };
        if content.workloads.get(id).is_none_or(|known| known.uid != *uid) {
            return;
        }
        if let Some(object) = content.workloads.remove(id) {
            self.dirty.extend(content.following(&object).map(|name| namespace.election(name)));
        }
        self.tidy(namespace);
    }

    /// A namespace of which nothing is known is none.
    fn tidy(&mut self, namespace: &Namespace) {
        let is_empty =
            |content: &Content| content.pods.is_empty() && content.elections.is_empty() && content.workloads.is_empty();
        if self.namespaces.get(namespace).is_some_and(is_empty) {
            self.namespaces.remove(namespace);
        }
    }

    // Nodes and classes

    pub(super) fn apply_nodes(&mut self, change: Change<(String, Node)>) {
        match change {
            Change::Applied((name, node)) => self.put_node(&name, Some(node)),
            Change::Deleted((name, _)) => self.put_node(&name, None),
            Change::All(_, _, nodes) => {
                let nodes: BTreeMap<String, Node> = nodes.into_iter().collect();
                let gone: Vec<String> = self.nodes.keys().filter(|name| !nodes.contains_key(*name)).cloned().collect();
                for name in gone {
                    self.put_node(&name, None);
                }
                for (name, node) in nodes {
                    self.put_node(&name, Some(node));
                }
            }
            Change::Rewound(_) | Change::Broken(..) => {}
        }
    }

    fn put_node(&mut self, name: &str, node: Option<Node>) {
        // Nodes report themselves every few seconds, and hardly ever with something new.
        if self.nodes.get(name) == node.as_ref() {
            return;
        }
        match node {
            Some(node) => self.nodes.insert(name.into(), node),
            None => self.nodes.remove(name),
        };
        for (namespace, content) in &self.namespaces {
            for pod in content.pods.iter().filter(|pod| pod.node.as_deref() == Some(name)) {
                let selecting = content.selecting.get(&pod.name).into_iter().flatten();
                self.dirty.extend(selecting.map(|name| namespace.election(name)));
            }
        }
    }

    pub(super) fn apply_classes(&mut self, change: Change<(String, ElectionClass)>) {
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

    // Elections

    pub(super) fn apply_elections(&mut self, change: Change<(Version, Uid, LeaderElection)>) -> Vec<Entry> {
        let mut removed = Vec::new();
        match change {
            Change::Applied((version, uid, election)) => removed.extend(self.put_election(version, uid, election)),
            Change::Deleted((version, uid, election)) => removed.extend(self.remove_election(&election, &uid, version)),
            Change::All(scope, version, elections) => {
                let present: BTreeSet<Uid> = elections.iter().map(|(_, uid, _)| uid.clone()).collect();
                let mut gone = Vec::new();
                for (_, content) in self.scoped(scope.as_deref()) {
                    let known = content
                        .elections
                        .values()
                        .filter(|entry| entry.version <= version && !present.contains(&entry.id.uid));
                    gone.extend(known.map(|entry| (entry.object.clone(), entry.id.uid.clone())));
                }
                for (election, uid) in gone {
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
    pub(super) fn put_election(&mut self, version: Version, uid: Uid, mut object: LeaderElection) -> Option<Entry> {
        if self.deletions.cover(&uid, version) {
            return None;
        }
        object.metadata.managed_fields = None;
        let name = name_of(&object);
        let known = self.namespaces.entry(name.namespace.clone()).or_default().elections.get_mut(&name.name);
        let replaced = match known {
            Some(known) if known.id.uid == uid => {
                if known.version >= version {
                    return None;
                }
                known.version = version;
                let same = known.object.spec == object.spec
                    && known.is_deleted() == object.metadata.deletion_timestamp.is_some();
                known.claims = Claims::of(object.metadata.annotations.as_ref());
                known.object = object;
                if same {
                    self.mark(&name);
                    return None;
                }
                None
            }
            Some(known) if known.version >= version => return None,
            Some(known) => {
                let earlier = known.object.clone();
                let uid = known.id.uid.clone();
                self.remove_election(&earlier, &uid, version).map(|entry| (entry, object))
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
    fn remove_election(&mut self, election: &LeaderElection, uid: &Uid, version: Version) -> Option<Entry> {
        self.deletions.note(uid, version);
        let election = name_of(election);
        let ElectionName { namespace, name } = &election;
        let content = self.namespaces.get_mut(namespace)?;
        if content.elections.get(name).is_none_or(|entry| entry.id.uid != *uid) {
            return None;
        }
        let entry = content.elections.remove(name)?;
        let key = entry.spec().map(|spec| spec.key.clone());
        for pod in entry.members.candidates() {
            if let Some(selecting) = content.selecting.get_mut(pod) {
                selecting.remove(name);
            }
        }
        // Those that it stood in the way of.
        self.dirty.extend(content.refused().map(|entry| entry.id.election.clone()));
        self.tidy(namespace);
        self.naming.rename(&election, key.as_ref(), None);
        Some(entry)
    }

    fn resolve_again(&mut self, election: &ElectionName) {
        let Some(content) = self.namespaces.get_mut(&election.namespace) else { return };
        let Some(entry) = content.elections.get_mut(&election.name) else { return };
        let before = entry.spec().map(|spec| spec.key.clone());
        entry.resolved = resolve(&entry.object, &self.classes, &self.controller);
        let after = entry.spec().map(|spec| spec.key.clone());
        self.naming.rename(election, before.as_ref(), after.as_ref());
        self.gather_members(election);
        self.mark(election);
        let content = self.namespaces.get(&election.namespace);
        self.dirty.extend(content.into_iter().flat_map(Content::refused).map(|entry| entry.id.election.clone()));
        self.mark_neighbours(election);
    }

    /// Looks through all pods of the namespace: after a change of the selectors.
    fn gather_members(&mut self, election: &ElectionName) {
        let ElectionName { namespace, name } = election;
        let Some(content) = self.namespaces.get_mut(namespace) else { return };
        let Some(entry) = content.elections.get_mut(name) else { return };
        let record = entry.spec().and_then(|spec| self.locks.get(&spec.key)).and_then(|(_, lock)| lock.written());
        let uid = entry.id.uid.clone();
        let records = self.locks.of(&uid).filter_map(|(_, lock)| lock.written());
        let mut touched = BTreeSet::new();
        for (pod, selected) in entry.gather_members(&content.pods, record, records) {
            touched.extend(switch(&mut content.selecting, &pod, name, selected));
        }
        self.dirty.extend(touched.into_iter().map(|name| namespace.election(name)));
    }

    // Locks

    pub(super) fn apply_records(&mut self, event: StoreEvent) {
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
            StoreEvent::Tenure(..) | StoreEvent::Broken(..) => {}
        }
    }

    fn begin_anew(&mut self, scope: &StoreScope) {
        for (namespace, content) in &mut self.namespaces {
            for (name, entry) in &mut content.elections {
                if entry.replica.key().is_some_and(|key| scope.contains(key)) {
                    entry.forget_decisions();
                    self.dirty.insert(namespace.election(name));
                }
            }
        }
    }

    /// Whether no pod shows the leader's label of an election with a lock in a store, and no workload of one runs.
    pub(super) fn is_vacated(&self, store: &StoreId) -> bool {
        self.namespaces.values().all(|content| {
            content.elections.values().all(|entry| {
                let own = |object: &&WorkloadObject| {
                    let claim = object.claim.as_ref();
                    claim.is_some_and(|claim| claim.election == entry.id.election.name) && object.runs()
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
    pub(super) fn mark_store(&mut self, store: &StoreId) {
        for (namespace, content) in &self.namespaces {
            let concerned = content.elections.iter().filter(|(_, entry)| {
                entry.spec().is_some_and(|spec| spec.key.store == *store)
                    || entry.replica.key().is_some_and(|key| key.store == *store)
            });
            self.dirty.extend(concerned.map(|(name, _)| namespace.election(name)));
        }
    }

    /// A record as it is now, from the watch or from the answer to a write: the newer one counts.
    pub(super) fn put_record(&mut self, key: &Key, version: Version, stored: &Stored) {
        let Some(before) = self.locks.put(key, version, stored) else { return };
        let written = |stored: &Stored| stored.written().map(|record| record.election.clone());
        let owner = written(stored).or_else(|| written(&before));
        let mut concerned: BTreeSet<ElectionName> = self.naming.of(key).cloned().collect();
        for (namespace, content) in &mut self.namespaces {
            if !key.namespace.is_empty() && key.namespace != **namespace {
                continue;
            }
            for (name, entry) in &mut content.elections {
                if entry.replica.observe(key, version, stored) {
                    concerned.insert(namespace.election(name));
                }
                if owner.as_ref() == Some(&entry.id.uid) {
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

    // Conflicts

    /// Why an election has to give way to an older one, if it has to.
    pub(super) fn conflict(&self, election: &ElectionName) -> Option<Refusal> {
        let ElectionName { namespace, name } = election;
        let content = self.namespaces.get(namespace)?;
        let entry = content.elections.get(name)?;
        let spec = entry.spec()?;
        let wins = |other: &Entry| other.conflict.is_none() && other.spec().is_some() && is_older(other, entry);
        let namesakes = self.naming.of(&spec.key).filter(|other| *other != election);
        if let Some(other) = namesakes.filter_map(|other| self.named(other)).find(|other| wins(other)) {
            return Some(Refusal {
                reason: "KeyTaken",
                message: format!(
                    "the lock {:?} belongs to the older election {}: give this one another spec.key, or delete the other",
                    spec.key.name, other.id.election
                ),
            });
        }
        for pod in entry.members.candidates() {
            let others = content.selecting.get(pod).into_iter().flatten().filter(|other| *other != name);
            if let Some(other) = others.filter_map(|other| content.elections.get(other)).find(|other| wins(other)) {
                return Some(Refusal {
                    reason: "PodsTaken",
                    message: format!(
                        "the pod {pod:?} is labelled by the older election {} already: give this one a selector for pods of its \
                         own, or delete the other",
                        other.id.election
                    ),
                });
            }
        }
        let named = |other: &Entry| {
            let theirs = other.spec()?;
            let same = spec.workloads.keys().find(|id| theirs.workloads.contains_key(id)).map(ToString::to_string);
            let job = || spec.jobs.keys().find(|name| theirs.jobs.contains_key(*name));
            same.or_else(|| job().map(|name| format!("Job/{name} (a jobTemplate)")))
        };
        let mut others = content.elections.values().filter(|other| other.id.uid != entry.id.uid && wins(other));
        let (other, workload) = others.find_map(|other| Some((other, named(other)?)))?;
        Some(Refusal {
            reason: "WorkloadTaken",
            message: format!(
                "{workload} is in spec.workloads of the older election {} already: take it out of one of the two, or delete \
                 the other",
                other.id.election
            ),
        })
    }

    /// The other elections that share pods, workloads or the lock with this one.
    pub(super) fn mark_neighbours(&mut self, election: &ElectionName) {
        let ElectionName { namespace, name } = election;
        let Some(content) = self.namespaces.get(namespace) else { return };
        let Some(entry) = content.elections.get(name) else { return };
        let pods = entry.members.candidates().filter_map(|pod| content.selecting.get(pod)).flatten();
        let has_workloads =
            |entry: &Entry| entry.spec().is_some_and(|spec| !spec.workloads.is_empty() || !spec.jobs.is_empty());
        let sharing = content.elections.values().filter(|other| has_workloads(entry) && has_workloads(other));
        let sharing = sharing.map(|other| other.id.election.clone());
        let key = entry.spec().map(|spec| &spec.key);
        let namesakes = key.into_iter().flat_map(|key| self.naming.of(key)).cloned();
        let pods = pods.map(|other| namespace.election(other));
        let neighbours = pods.chain(sharing).chain(namesakes).filter(|other| other != election);
        self.dirty.extend(neighbours);
    }

    fn scoped(&self, scope: Option<&str>) -> impl Iterator<Item = (&Namespace, &Content)> {
        self.namespaces.iter().filter(move |(namespace, _)| scope.is_none_or(|scope| *scope == ***namespace))
    }
}

/// An election has become one of those that select a pod, or is none any more. Returns those that do now.
fn switch<'a>(
    selecting: &'a mut BTreeMap<String, BTreeSet<String>>,
    pod: &str,
    election: &str,
    selects: bool,
) -> impl Iterator<Item = String> + use<'a> {
    let selecting = selecting.entry(pod.into()).or_default();
    if selects {
        selecting.insert(election.into());
    } else {
        selecting.remove(election);
    }
    selecting.iter().cloned()
}

fn name_of(election: &LeaderElection) -> ElectionName {
    let namespace = Namespace::from(election.metadata.namespace.clone().unwrap_or_default());
    namespace.election(election.metadata.name.clone().unwrap_or_default())
}

/// Both times come from the same API server; of two made in the same second, the first by name is the older one.
fn is_older(one: &Entry, other: &Entry) -> bool {
    let age = |entry: &Entry| {
        let created = entry.object.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, entry.id.election.clone())
    };
    age(one) < age(other)
}
