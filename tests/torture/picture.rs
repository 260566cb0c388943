//! The state of everything after some lines of the record.

use std::collections::{BTreeMap, BTreeSet};

use lictor_core::{ELECTION_ANNOTATION, NEVER_LEADER_ANNOTATION, TERM_ANNOTATION};

use super::record::{BY_HAND, Group, Kind, Line, PodSeen, SliceSeen, What};

/// What is known after a line.
#[derive(Default)]
pub struct Picture {
    pub groups: BTreeMap<String, Group>,
    /// The pods, by namespace and name.
    pub pods: BTreeMap<(String, String), PodSeen>,
    /// Whether a workload is enabled, by namespace and name.
    workloads: BTreeMap<(String, String), bool>,
    /// The slices, by namespace and name.
    pub slices: BTreeMap<(String, String), SliceSeen>,
    cordoned: BTreeSet<String>,
    declared: BTreeSet<String>,
    /// The pods that show what the test wrote on them, as it was written.
    by_hand: BTreeMap<String, PodSeen>,
}

/// A leader.
#[derive(Clone, Debug)]
pub struct Leader {
    pub cluster: String,
    /// The pod's uid, or the cluster's name.
    pub id: String,
    pub name: String,
    pub term: Option<i64>,
}

impl Picture {
    /// Applies a line.
    pub fn apply(&mut self, line: &Line) {
        match &line.what {
            What::Group(group) => drop(self.groups.insert(group.name.clone(), group.clone())),
            What::Pod(pod) => self.pod(pod),
            What::Node { name, cordoned, .. } => {
                if *cordoned {
                    self.cordoned.insert(name.clone());
                } else {
                    self.cordoned.remove(name);
                }
            }
            What::Workload { namespace, name, enabled, .. } => {
                self.workloads.insert((namespace.clone(), name.clone()), *enabled);
            }
            What::Hand { mark } => drop(self.declared.insert(mark.clone())),
            What::Slice(slice) => {
                let key = (slice.cluster.clone(), slice.name.clone());
                if slice.deleted {
                    self.slices.remove(&key);
                } else {
                    self.slices.insert(key, slice.clone());
                }
            }
            What::Lock { .. }
            | What::Switchover(_)
            | What::Session { .. }
            | What::Acts { .. }
            | What::Planned { .. }
            | What::Fault { .. }
            | What::Calm { .. } => {}
        }
    }

    fn pod(&mut self, pod: &PodSeen) {
        let key = (pod.cluster.clone(), pod.name.clone());
        let before = self.pods.get(&key).filter(|before| before.uid == pod.uid);
        let mark = pod.annotations.get(BY_HAND);
        let marked = mark.is_some_and(|mark| self.declared.contains(mark))
            && mark != before.and_then(|before| before.annotations.get(BY_HAND));
        // It was written after the test's change, or it is a change of its own.
        let changed = self.by_hand.contains_key(&pod.uid) || before.is_none_or(|before| self.shows_other(before, pod));
        let written =
            |pod: &PodSeen| [TERM_ANNOTATION, ELECTION_ANNOTATION].map(|key| pod.annotations.get(key).cloned());
        let rewritten = |then: &PodSeen| written(then) != written(pod) || self.shows_other(then, pod);
        if !pod.deleted && marked && changed {
            self.by_hand.insert(pod.uid.clone(), pod.clone());
        } else if pod.deleted || self.by_hand.get(&pod.uid).is_some_and(rewritten) {
            self.by_hand.remove(&pod.uid);
        }
        if pod.deleted {
            self.pods.remove(&key);
        } else {
            self.pods.insert(key, pod.clone());
        }
    }

    /// Returns whether two revisions of a pod differ in the labels that the product writes.
    fn shows_other(&self, one: &PodSeen, other: &PodSeen) -> bool {
        let Some(group) = self.groups.get(one.group()) else { return true };
        group.markings.label_keys().any(|key| one.labels.get(key) != other.labels.get(key))
    }

    /// Returns whether a pod shows what the test wrote on it.
    fn is_by_hand(&self, pod: &PodSeen) -> bool {
        self.by_hand.contains_key(&pod.uid)
    }

    /// Returns whether no new pod should be on this node.
    pub fn is_cordoned(&self, node: &str) -> bool {
        self.cordoned.contains(node)
    }

    /// Returns the pods of a group that count: all except those that show what the test wrote on them.
    pub fn pods_of<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = &'a PodSeen> {
        let own = move |pod: &&PodSeen| pod.group() == group.name && group.clusters.contains(&pod.cluster);
        self.pods.values().filter(own).filter(|pod| !self.is_by_hand(pod))
    }

    /// Returns all candidates of a group that show that they lead.
    pub fn leaders(&self, group: &Group) -> Vec<Leader> {
        let of_pod = |pod: &PodSeen| Leader {
            cluster: pod.cluster.clone(),
            id: pod.uid.clone(),
            name: pod.name.clone(),
            term: pod.term(),
        };
        let of_cluster = |cluster: &String| Leader {
            cluster: cluster.clone(),
            id: cluster.clone(),
            name: group.name.clone(),
            term: None,
        };
        match group.kind {
            Kind::Leases | Kind::Consul | Kind::Objects => {
                let leads = |pod: &&PodSeen| group.markings.shows_leader(&pod.to_core());
                self.pods_of(group).filter(leads).map(of_pod).collect()
            }
            Kind::Workload => {
                let enabled =
                    |cluster: &&String| self.workloads.get(&((*cluster).clone(), group.name.clone())) == Some(&true);
                group.clusters.iter().filter(enabled).map(of_cluster).collect()
            }
        }
    }

    /// Returns the slices of a group's Service, in all clusters.
    pub fn slices_of<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = &'a SliceSeen> {
        self.slices.values().filter(|slice| group.service.as_ref() == Some(&slice.service))
    }

    /// Returns whether a group's Service reaches its one leader, and nobody else.
    pub fn is_routed(&self, group: &Group) -> bool {
        let leaders: Vec<String> = self.leaders(group).into_iter().map(|leader| leader.id).collect();
        let reached = self.slices_of(group).flat_map(|slice| slice.addresses.iter().map(|(_, pod)| pod.clone()));
        group.service.is_none() || reached.collect::<Vec<String>>() == leaders
    }

    /// Returns whether a candidate of a group may certainly be elected. A cluster always may.
    pub fn has_eligible(&self, group: &Group) -> bool {
        group.kind == Kind::Workload || self.eligible(group).next().is_some()
    }

    /// Returns the pods of a group that may certainly be elected.
    pub fn eligible<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = &'a PodSeen> {
        self.pods_of(group).filter(|pod| self.may_lead(pod))
    }

    fn may_lead(&self, pod: &PodSeen) -> bool {
        let bound = pod.node.as_ref().is_some_and(|node| !self.cordoned.contains(node));
        let never = pod.annotations.contains_key(NEVER_LEADER_ANNOTATION);
        let selected = pod.labels.get("app").is_some_and(|app| app == pod.group());
        bound && selected && !never && pod.ready && !pod.leaving
    }
}
