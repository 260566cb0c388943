//! The objects of all namespaces, which of them are deleted, and the elections to decide because of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use lictor_api::LeaderElection;
use lictor_core::{Deletions, Locks, Names, OtherLeader, PodCache, Slice, StoreId, Uid, Version};

use super::dirty::Dirty;
use super::mentions::{Mention, Mentions};
use crate::controller::entry::Entry;
use crate::controller::lookup::{Labels, WorkloadCache};
use crate::controller::names::{Coverage, ElectionName, Namespace};
use crate::controller::switchover::KnownSwitchover;
use crate::kubernetes::ServiceObject;

/// The Switchovers of one election, by name.
pub(crate) type OfElection = BTreeMap<String, KnownSwitchover>;

/// The known contents of one namespace.
#[derive(Default)]
pub(crate) struct Content {
    pub(super) pods: PodCache,
    pub(super) labels: Labels,
    /// Pods by the election that has marked them.
    pub(super) marked: HashMap<String, Names>,
    pub(super) elections: HashMap<String, Box<Entry>>,
    pub(super) mentions: Mentions,
    pub(super) workloads: WorkloadCache,
    pub(super) services: BTreeMap<String, ServiceObject>,
    /// The slices that lictor writes.
    pub(super) slices: BTreeMap<String, Slice>,
    /// Switchovers, by their election.
    pub(super) switchovers: BTreeMap<String, OfElection>,
    /// The elections of each Switchover: one, unless its name was given again.
    pub(super) switched: HashMap<String, Names>,
    /// Elections whose name still belongs to a departed one, until that one's remains are removed.
    pub(super) waiting: BTreeMap<String, (Version, Uid, LeaderElection)>,
    /// The elections that have to do with each pod.
    pub(super) concerned: HashMap<String, Names>,
}

/// The objects of all namespaces, and the elections to decide because of them.
#[derive(Default)]
pub(crate) struct Objects {
    pub(super) namespaces: BTreeMap<Namespace, Content>,
    pub(super) deletions: Deletions,
    /// The elections to decide.
    pub(super) dirty: Dirty,
}

impl Content {
    /// The elections that select a pod.
    pub(super) fn selecting(&self, pod: &str) -> impl Iterator<Item = &String> {
        let concerned = self.concerned.get(pod).into_iter().flat_map(Names::keys);
        concerned.filter(move |name| self.elections.get(*name).is_some_and(|entry| entry.members.select(pod)))
    }

    /// The leaders, present or coming, of the other elections in an election's groups. Elections are decided one after the other, so of
    /// several that elect at once, each sees whom the ones before it have chosen.
    pub(super) fn other_leaders(&self, election: &str, locks: &Locks) -> Vec<OtherLeader> {
        let spec = self.elections.get(election).and_then(|entry| entry.spec());
        let groups: BTreeSet<&Arc<str>> = spec.into_iter().flat_map(|spec| spec.rules.groups()).collect();
        let other_leader = |group: &Arc<str>, other: &String| {
            let node = self.elections.get(other)?.coming_leader(locks)?.node.clone()?;
            Some(OtherLeader { group: group.clone(), node })
        };
        let of = |group: &'_ &Arc<str>| self.mentions.by(&Mention::Group(Arc::clone(group)));
        let others = groups.iter().flat_map(|group| of(group).map(move |other| (*group, other)));
        others.filter(|(_, other)| *other != election).filter_map(|(group, other)| other_leader(group, other)).collect()
    }

    /// The elections that name a Service.
    pub(super) fn reached_by<'a>(&'a self, service: &str) -> impl Iterator<Item = &'a String> + use<'a> {
        self.mentions.by(&Mention::Service(service.into()))
    }
}

impl Objects {
    /// All elections, in the order of their names.
    pub(super) fn elections(&self) -> impl Iterator<Item = ElectionName> {
        self.namespaces.iter().flat_map(|(namespace, content)| {
            let names: BTreeSet<&String> = content.elections.keys().collect();
            names.into_iter().map(|name| namespace.election(name)).collect::<Vec<_>>()
        })
    }

    /// All elections, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.namespaces.values().flat_map(|content| content.elections.values().map(AsRef::as_ref))
    }

    /// All elections, in no order.
    pub(crate) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.namespaces.values_mut().flat_map(|content| content.elections.values_mut().map(AsMut::as_mut))
    }

    pub(super) fn named(&self, election: &ElectionName) -> Option<&Entry> {
        self.namespaces.get(&election.namespace)?.elections.get(&election.name).map(AsRef::as_ref)
    }

    pub(super) fn named_mut(&mut self, election: &ElectionName) -> Option<&mut Entry> {
        self.namespaces.get_mut(&election.namespace)?.elections.get_mut(&election.name).map(AsMut::as_mut)
    }

    /// The contents of the namespaces that a list covers.
    pub(super) fn covered(&self, coverage: Coverage) -> impl Iterator<Item = (&Namespace, &Content)> {
        self.namespaces.iter().filter(move |(namespace, _)| coverage.includes(namespace))
    }

    /// Forgets a namespace with no known contents.
    pub(super) fn tidy(&mut self, namespace: &Namespace) {
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

    /// Whether an election has its lock in this store.
    pub(crate) fn uses(&self, store: &StoreId) -> bool {
        self.entries().filter_map(Entry::spec).any(|spec| spec.key.store == *store)
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
}
