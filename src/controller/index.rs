//! Everything that is known of the cluster, kept up to date whether or not this replica acts. The index only computes.

mod circles;
mod conflicts;
mod dirty;
mod elections;
mod locks;
mod mentions;
mod naming;
mod nodes;
mod pods;
mod remains;
mod routing;
mod switchovers;
#[cfg(test)]
mod tests;
mod workloads;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lictor_core::{
    Deletions, Election, Instant, Key, Locks, Names, Node, PodCache, Rival, Slice, StoreId, Uid, Version,
};

use self::dirty::Dirty;
use self::mentions::Mentions;
use self::naming::{CatalogService, Naming};
pub(super) use self::switchovers::OfElection;
use super::entry::{Entry, Surroundings};
use super::lookup::{Labels, WorkloadCache};
use super::names::{Coverage, ElectionId, ElectionName, Namespace};
use crate::api::{Classes, LeaderElection};
use crate::kubernetes::ServiceObject;

/// The caches. Hash maps hold what is only looked up; ordered maps hold what is iterated over, so that each run decides alike.
pub(super) struct Index {
    controller: String,
    operator_id: String,
    pub(super) classes: Classes,
    /// Deleted classes that still serve elections, as they were last seen.
    departed: Classes,
    nodes: BTreeMap<String, Node>,
    namespaces: BTreeMap<Namespace, Content>,
    pub(super) locks: Locks,
    /// Locks that other clusters hold, even if this replica does not know which sessions belong to its own cluster.
    elsewhere: BTreeMap<Key, Rival>,
    /// The keys of these locks, by the name of the election there.
    led_at: BTreeMap<ElectionName, BTreeSet<Key>>,
    /// C6: when such a lock vanished without its holder having released it.
    vanished: BTreeMap<Key, Instant>,
    naming: Naming<Key>,
    /// The elections of each service in Consul's catalog.
    registering: Naming<CatalogService>,
    /// Elections by uid.
    uids: HashMap<Uid, ElectionName>,
    /// The elections that are decided by another lock than the one that they name, by that lock.
    deciding: Naming<Key>,
    decided: BTreeMap<ElectionName, Key>,
    /// Elections whose lock is kept while workloads end, so that a change of any pod may matter to them.
    winding_down: BTreeSet<ElectionName>,
    /// Elections with a change under way.
    unfinished: BTreeSet<ElectionName>,
    /// Pods by node.
    on_node: HashMap<String, BTreeSet<(Namespace, String)>>,
    deletions: Deletions,
    /// Whether this replica acts, and removes what departed elections left behind.
    acts: bool,
    /// Locks of unknown elections.
    unclaimed: BTreeSet<Key>,
    /// The elections to decide.
    dirty: Dirty,
    /// Elections that may now follow another lock than before.
    following: BTreeSet<ElectionName>,
}

/// The known contents of one namespace.
#[derive(Default)]
struct Content {
    pods: PodCache,
    labels: Labels,
    /// Pods by the election that has marked them.
    marked: HashMap<String, Names>,
    elections: HashMap<String, Box<Entry>>,
    mentions: Mentions,
    workloads: WorkloadCache,
    services: BTreeMap<String, ServiceObject>,
    /// The slices that lictor writes.
    slices: BTreeMap<String, Slice>,
    /// Switchovers, by their election.
    switchovers: BTreeMap<String, OfElection>,
    /// The elections of each Switchover: one, unless its name was given again.
    switched: HashMap<String, Names>,
    /// Elections whose name still belongs to a departed one, until that one's remains are removed.
    waiting: BTreeMap<String, (Version, Uid, LeaderElection)>,
    /// The elections that have to do with each pod.
    concerned: HashMap<String, Names>,
}

/// One election, with its surroundings.
pub(super) struct Found<'a> {
    pub(super) entry: &'a mut Entry,
    /// The contents of its namespace.
    pub(super) around: Surroundings<'a>,
    pub(super) switchovers: Option<&'a mut OfElection>,
    pub(super) nodes: &'a BTreeMap<String, Node>,
    pub(super) locks: &'a Locks,
    /// The holder of its lock, if that is another cluster.
    pub(super) rival: Option<&'a Rival>,
    /// Another key at which another cluster holds the lock of an election of this name.
    pub(super) other_key: Option<(&'a Key, &'a Rival)>,
    /// C6: when the lock vanished, if another cluster held it then.
    pub(super) vanished: Option<Instant>,
}

impl Content {
    /// The elections that select a pod.
    fn selecting(&self, pod: &str) -> impl Iterator<Item = &String> {
        let concerned = self.concerned.get(pod).into_iter().flatten();
        concerned.filter(move |name| self.elections.get(*name).is_some_and(|entry| entry.members.select(pod)))
    }
}

impl Index {
    pub(super) fn new(controller: String, operator_id: String) -> Self {
        Self {
            controller,
            operator_id,
            classes: Classes::new(),
            departed: Classes::new(),
            nodes: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            locks: Locks::default(),
            elsewhere: BTreeMap::new(),
            led_at: BTreeMap::new(),
            vanished: BTreeMap::new(),
            naming: Naming::default(),
            registering: Naming::default(),
            uids: HashMap::new(),
            deciding: Naming::default(),
            decided: BTreeMap::new(),
            winding_down: BTreeSet::new(),
            unfinished: BTreeSet::new(),
            on_node: HashMap::new(),
            deletions: Deletions::default(),
            acts: false,
            unclaimed: BTreeSet::new(),
            dirty: Dirty::default(),
            following: BTreeSet::new(),
        }
    }

    /// Takes the elections that may follow another lock than at the last call, whatever the cause.
    pub(super) fn take_following(&mut self) -> BTreeSet<ElectionName> {
        std::mem::take(&mut self.following)
    }

    /// Takes this many elections to decide at most, the urgent ones first.
    pub(super) fn take_dirty(&mut self, at_most: usize) -> Vec<ElectionName> {
        self.dirty.take(at_most)
    }

    pub(super) fn mark(&mut self, election: &ElectionName) {
        self.dirty.mark(election.clone());
    }

    /// Marks an election as urgent, because its leader may depend on it.
    pub(super) fn mark_urgent(&mut self, election: &ElectionName) {
        self.dirty.mark_urgent(election.clone());
    }

    pub(super) fn mark_all(&mut self) {
        let all: Vec<ElectionName> = self.elections().collect();
        self.dirty.extend(all);
    }

    /// Files an election under the lock that its decisions are about.
    pub(super) fn note_decided(&mut self, election: &ElectionName) {
        let entry = self.named(election);
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
    pub(super) fn forget_decided(&mut self) {
        self.deciding = Naming::default();
        self.decided.clear();
        self.winding_down.clear();
        self.unfinished.clear();
    }

    /// Whether any election has a change under way.
    pub(super) fn is_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Whether any lock is kept until workloads have ended.
    pub(super) fn winds_down(&self) -> bool {
        !self.winding_down.is_empty()
    }

    /// All elections, in the order of their names.
    pub(super) fn elections(&self) -> impl Iterator<Item = ElectionName> {
        self.namespaces.iter().flat_map(|(namespace, content)| {
            let names: BTreeSet<&String> = content.elections.keys().collect();
            names.into_iter().map(|name| namespace.election(name)).collect::<Vec<_>>()
        })
    }

    /// All elections, in no order.
    pub(super) fn entries(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.namespaces.values_mut().flat_map(|namespace| namespace.elections.values_mut().map(AsMut::as_mut))
    }

    /// Forgets the versions, because the API server's store was restored to an earlier state and everything is listed again. The index
    /// keeps elections until then, and their terms for longer.
    pub(super) fn forget_versions(&mut self) {
        self.deletions = Deletions::default();
        self.on_node.clear();
        for content in self.namespaces.values_mut() {
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
                let shared = entry.spec().is_some_and(|spec| spec.consul.is_some());
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
        self.dirty.len()
    }

    pub(super) fn entry(&mut self, id: &ElectionId) -> Option<&mut Entry> {
        self.named_mut(&id.election).filter(|entry| entry.object.id().uid == id.uid)
    }

    /// An election and its surroundings.
    pub(super) fn find(&mut self, election: &ElectionName) -> Option<Found<'_>> {
        let Self { namespaces, nodes, locks, elsewhere, led_at, vanished, .. } = self;
        let content = namespaces.get_mut(&election.namespace)?;
        let Content { pods, labels, elections, workloads, services, slices, switchovers, .. } = content;
        let around = Surroundings { pods, labels, workloads, services, slices };
        let (entry, switchovers) = (elections.get_mut(&election.name)?, switchovers.get_mut(&election.name));
        let key = entry.spec().map(|spec| &spec.key);
        let rival = key.and_then(|key| elsewhere.get(key));
        let vanished = key.and_then(|key| vanished.get(key)).copied();
        let other_key = key.and_then(|key| {
            let found = led_at.get(election)?.iter().find(|other| other.store == key.store && *other != key)?;
            Some((found, elsewhere.get(found)?))
        });
        Some(Found { entry, around, switchovers, nodes, locks, rival, other_key, vanished })
    }

    /// Whether another cluster holds the lock that an election names.
    pub(super) fn is_held_elsewhere(&self, election: &ElectionName) -> bool {
        let spec = self.named(election).and_then(Entry::spec);
        spec.is_some_and(|spec| self.elsewhere.contains_key(&spec.key))
    }

    /// The lock that an election follows, if it follows any.
    pub(super) fn followed_by(&self, election: &ElectionName) -> Option<&Key> {
        let entry = self.named(election).filter(|entry| !entry.object.is_deleted())?;
        entry.spec()?.followed.as_ref().map(|followed| &followed.key)
    }

    fn named(&self, election: &ElectionName) -> Option<&Entry> {
        self.namespaces.get(&election.namespace)?.elections.get(&election.name).map(AsRef::as_ref)
    }

    fn named_mut(&mut self, election: &ElectionName) -> Option<&mut Entry> {
        self.namespaces.get_mut(&election.namespace)?.elections.get_mut(&election.name).map(AsMut::as_mut)
    }

    /// Forgets a namespace with no known contents.
    fn tidy(&mut self, namespace: &Namespace) {
        let is_empty = |content: &Content| {
            let Content { pods, elections, workloads, services, slices, waiting, switchovers, .. } = content;
            pods.is_empty()
                && elections.is_empty()
                && workloads.is_empty()
                && services.is_empty()
                && slices.is_empty()
                && waiting.is_empty()
                && switchovers.is_empty()
        };
        if self.namespaces.get(namespace).is_some_and(is_empty) {
            self.namespaces.remove(namespace);
        }
    }

    /// The contents of the namespaces that a list covers.
    fn covered(&self, coverage: Coverage) -> impl Iterator<Item = (&Namespace, &Content)> {
        self.namespaces.iter().filter(move |(namespace, _)| coverage.includes(namespace))
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
