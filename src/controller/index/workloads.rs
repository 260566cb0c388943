//! Workloads, and the elections that each matters to.

use std::collections::BTreeSet;

use lictor_core::{Uid, Version, WorkloadId, WorkloadKind};

use super::mentions::Mention;
use super::{Content, Index};
use crate::controller::names::Namespace;
use crate::kubernetes::{Change, WorkloadObject};

impl Index {
    pub(crate) fn apply_workloads(&mut self, kind: WorkloadKind, change: Change<WorkloadObject>) {
        match change {
            Change::Applied(object) => self.put_workload(object),
            Change::Deleted(object) => {
                self.remove_workload(&object.namespace.into(), &object.id, &object.uid, object.version);
            }
            Change::All(scope, version, objects) => {
                let present: BTreeSet<&Uid> = objects.iter().map(|object| &object.uid).collect();
                let known = self.covered(scope.into()).flat_map(|(_, content)| content.workloads.iter());
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
            Change::Rewound(_) | Change::Broken(..) | Change::Resumed(_) => {}
        }
    }

    /// Puts a current workload in, from a watch or from the answer to a request. The newer one counts, even of two with the same name.
    pub(crate) fn put_workload(&mut self, object: WorkloadObject) {
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
        let id = object.id.clone();
        let same = |known: &WorkloadObject| known.pod_labels == object.pod_labels && known.selector == object.selector;
        let makes_others = !known.is_some_and(same);
        let before = if makes_others { content.depending_on(&id) } else { BTreeSet::new() };
        let Content { workloads, labels, pods, .. } = content;
        workloads.put(object, labels, pods);
        let after = if makes_others { content.depending_on(&id) } else { BTreeSet::new() };
        self.dirty.extend(before.iter().chain(&after).map(|name| namespace.election(name)));
        if let Some(object) = content.workloads.get(&id) {
            self.dirty.extend(content.following(object).into_iter().map(|name| namespace.election(name)));
        }
    }

    /// Removes a workload that no longer exists, according to an answer about this uid.
    pub(crate) fn lose_workload(&mut self, namespace: &Namespace, id: &WorkloadId, uid: &Uid) {
        // A deleted object does not come back under the same uid.
        self.remove_workload(namespace, id, uid, Version(u64::MAX));
    }

    /// Removes a workload as of a version, unless the name belongs to another one by now.
    fn remove_workload(&mut self, namespace: &Namespace, id: &WorkloadId, uid: &Uid, version: Version) {
        self.deletions.note(uid, version);
        let Some(content) = self.namespaces.get_mut(namespace) else { return };
        if content.workloads.get(id).is_none_or(|known| known.uid != *uid) {
            return;
        }
        let depending = content.depending_on(id);
        let Content { workloads, labels, .. } = content;
        self.dirty.extend(depending.iter().map(|name| namespace.election(name)));
        if let Some(object) = workloads.remove(id, labels) {
            self.dirty.extend(content.following(&object).into_iter().map(|name| namespace.election(name)));
        }
        self.tidy(namespace);
    }
}

impl Content {
    /// The elections whose candidates depend on a workload that elections name.
    fn depending_on(&self, id: &WorkloadId) -> BTreeSet<String> {
        let naming = self.mentions.by(&Mention::Workload(id.clone()));
        naming.flat_map(|name| self.depending(name)).collect()
    }

    /// The elections that a workload matters to.
    fn following<'a>(&'a self, object: &'a WorkloadObject) -> BTreeSet<&'a String> {
        // A Job matters to the elections that its CronJob matters to.
        let owner = object.owner.as_ref().and_then(|owner| self.workloads.with_uid(owner));
        let of = |workload: &'a WorkloadObject| {
            let followed = self.mentions.by(&Mention::Followed(workload.id.clone()));
            let claimed = workload.claim.as_ref().map(|claim| &claim.election);
            followed.chain(claimed.filter(|election| self.elections.contains_key(*election))).collect::<Vec<_>>()
        };
        [object].into_iter().chain(owner).flat_map(of).collect()
    }
}
