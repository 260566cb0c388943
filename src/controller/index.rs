//! Everything that is known of the cluster, kept warm whether or not this replica acts. It only computes.

mod conflicts;
mod elections;
mod locks;
mod naming;
mod nodes;
mod pods;
mod remains;
mod routing;
#[cfg(test)]
mod tests;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};

use lictor_core::{Deletions, Election, Key, Locks, Node, PodCache, Slice, StoreId, Uid, Version, WorkloadId};

use self::naming::Naming;
use super::entry::{Entry, Surroundings};
use super::names::{Coverage, ElectionId, ElectionName, Namespace};
use crate::api::{Classes, LeaderElection};
use crate::kubernetes::{ServiceObject, WorkloadObject};

/// The caches.
pub(super) struct Index {
    controller: String,
    operator_id: String,
    pub(super) classes: Classes,
    nodes: BTreeMap<String, Node>,
    namespaces: BTreeMap<Namespace, Content>,
    pub(super) locks: Locks,
    naming: Naming,
    deletions: Deletions,
    /// Whether this replica acts, and removes what elections left behind.
    acts: bool,
    /// Locks of elections that are not known.
    unclaimed: BTreeSet<Key>,
    /// Elections to look at.
    dirty: BTreeSet<ElectionName>,
}

/// What is known of one namespace.
#[derive(Default)]
struct Content {
    pods: PodCache,
    elections: BTreeMap<String, Entry>,
    workloads: BTreeMap<WorkloadId, WorkloadObject>,
    services: BTreeMap<String, ServiceObject>,
    /// Those that lictor writes.
    slices: BTreeMap<String, Slice>,
    /// Elections by names that belong to others, which are gone, until what those left behind is removed.
    waiting: BTreeMap<String, (Version, Uid, LeaderElection)>,
    /// Which elections select a pod.
    selecting: BTreeMap<String, BTreeSet<String>>,
}

/// One election, with what is known around it.
pub(super) struct Found<'a> {
    pub(super) entry: &'a mut Entry,
    /// What there is in its namespace.
    pub(super) around: Surroundings<'a>,
    pub(super) nodes: &'a BTreeMap<String, Node>,
    pub(super) locks: &'a Locks,
}

impl Content {
    /// The elections that have to give way to an older one.
    fn refused(&self) -> impl Iterator<Item = &Entry> {
        self.elections.values().filter(|entry| entry.object.conflict().is_some())
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
            acts: false,
            unclaimed: BTreeSet::new(),
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
            content.services.clear();
            content.slices.clear();
            content.selecting.clear();
            content.waiting.clear();
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

    /// An election and what is known around it.
    pub(super) fn find(&mut self, election: &ElectionName) -> Option<Found<'_>> {
        let Self { namespaces, nodes, locks, .. } = self;
        let content = namespaces.get_mut(&election.namespace)?;
        let Content { pods, elections, workloads, services, slices, .. } = content;
        let around = Surroundings { pods, workloads, services, slices };
        Some(Found { entry: elections.get_mut(&election.name)?, around, nodes, locks })
    }

    fn named(&self, election: &ElectionName) -> Option<&Entry> {
        self.namespaces.get(&election.namespace)?.elections.get(&election.name)
    }

    fn named_mut(&mut self, election: &ElectionName) -> Option<&mut Entry> {
        self.namespaces.get_mut(&election.namespace)?.elections.get_mut(&election.name)
    }

    /// A namespace of which nothing is known is none.
    fn tidy(&mut self, namespace: &Namespace) {
        let is_empty = |content: &Content| {
            let Content { pods, elections, workloads, services, slices, waiting, selecting: _ } = content;
            pods.is_empty()
                && elections.is_empty()
                && workloads.is_empty()
                && services.is_empty()
                && slices.is_empty()
                && waiting.is_empty()
        };
        if self.namespaces.get(namespace).is_some_and(is_empty) {
            self.namespaces.remove(namespace);
        }
    }

    /// What is known of the namespaces that a list covers.
    fn covered(&self, coverage: Coverage) -> impl Iterator<Item = (&Namespace, &Content)> {
        self.namespaces.iter().filter(move |(namespace, _)| coverage.includes(namespace))
    }
}
