//! The workloads of a namespace, by name, uid and owner.

use std::collections::{BTreeSet, HashMap};

use lictor_core::{PodCache, Uid, WorkloadId};

use super::labels::{Labels, Place};
use crate::kubernetes::WorkloadObject;

/// The workloads of a namespace, as they were seen last.
#[derive(Default)]
pub(crate) struct WorkloadCache {
    all: HashMap<WorkloadId, Known>,
    by_uid: HashMap<Uid, WorkloadId>,
    owned: HashMap<Uid, BTreeSet<WorkloadId>>,
    /// By the name of the election that made them.
    orphans: HashMap<String, BTreeSet<WorkloadId>>,
}

struct Known {
    object: WorkloadObject,
    /// The place of the selector of its pods.
    place: Place,
}

impl WorkloadCache {
    /// The workload of a kind and name.
    pub(crate) fn get(&self, id: &WorkloadId) -> Option<&WorkloadObject> {
        self.all.get(id).map(|known| &known.object)
    }

    /// The workload with a uid.
    pub(crate) fn with_uid(&self, uid: &Uid) -> Option<&WorkloadObject> {
        self.get(self.by_uid.get(uid)?)
    }

    /// The workloads that belong to an owner.
    pub(crate) fn owned_by(&self, owner: &Uid) -> impl Iterator<Item = &WorkloadObject> + Clone {
        self.owned.get(owner).into_iter().flatten().filter_map(|id| self.get(id))
    }

    /// The Jobs that elections of this name have made, and that no longer have an owner.
    pub(crate) fn orphans_of(&self, election: &str) -> impl Iterator<Item = &WorkloadObject> {
        self.orphans.get(election).into_iter().flatten().filter_map(|id| self.get(id))
    }

    /// All workloads, in the order of their kinds and names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &WorkloadObject> {
        let mut all: Vec<&WorkloadObject> = self.all.values().map(|known| &known.object).collect();
        all.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        all.into_iter()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes a workload in place of the one with its name. From now on its pods are easy to find.
    pub(crate) fn put(&mut self, object: WorkloadObject, labels: &mut Labels, pods: &PodCache) {
        let place = labels.hold(&object.selector, pods);
        self.remove(&object.id, labels);
        self.by_uid.insert(object.uid.clone(), object.id.clone());
        if let Some(owner) = &object.owner {
            self.owned.entry(owner.clone()).or_default().insert(object.id.clone());
        }
        if let Some(election) = object.orphan_of() {
            self.orphans.entry(election.into()).or_default().insert(object.id.clone());
        }
        self.all.insert(object.id.clone(), Known { object, place });
    }

    /// Forgets a workload. Returns it if it was known.
    pub(crate) fn remove(&mut self, id: &WorkloadId, labels: &mut Labels) -> Option<WorkloadObject> {
        let Known { object, place } = self.all.remove(id)?;
        labels.release(&place);
        self.by_uid.remove(&object.uid);
        if let Some(owner) = &object.owner
            && let Some(owned) = self.owned.get_mut(owner)
        {
            owned.remove(id);
            if owned.is_empty() {
                self.owned.remove(owner);
            }
        }
        if let Some(election) = object.orphan_of()
            && let Some(orphans) = self.orphans.get_mut(election)
        {
            orphans.remove(id);
            if orphans.is_empty() {
                self.orphans.remove(election);
            }
        }
        Some(object)
    }

    /// Forgets all workloads.
    pub(crate) fn clear(&mut self, labels: &mut Labels) {
        for known in self.all.values() {
            labels.release(&known.place);
        }
        *self = Self::default();
    }
}
