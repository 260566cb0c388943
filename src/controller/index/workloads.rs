//! Workloads, and the elections that each matters to.

use std::collections::BTreeSet;

use lictor_core::{Uid, Version, WorkloadId, WorkloadKind};
use lictor_kubernetes::Change;

use super::circles::depending;
use super::mentions::Mention;
use super::objects::{Content, Objects};
use crate::controller::names::Namespace;
use crate::kubernetes::WorkloadObject;

/// The part of the index that a change of a workload may touch.
pub(crate) struct Workloads<'a>(pub(super) &'a mut Objects);

impl Workloads<'_> {
    pub(crate) fn apply(&mut self, kind: WorkloadKind, change: Change<WorkloadObject>) {
        match change {
            Change::Applied(object) => self.put(object),
            Change::Deleted(object) => {
                self.remove(&object.namespace.into(), &object.id, &object.uid, object.version);
            }
            Change::All(scope, version, objects) => {
                let present: BTreeSet<&Uid> = objects.iter().map(|object| &object.uid).collect();
                let known = self.0.covered(scope.into()).flat_map(|(_, content)| content.workloads.iter());
                let gone = known.filter(|object| {
                    object.id.kind == kind && object.version <= version && !present.contains(&object.uid)
                });
                for object in gone.cloned().collect::<Vec<_>>() {
                    self.remove(&object.namespace.into(), &object.id, &object.uid, version);
                }
                for object in objects {
                    self.put(object);
                }
            }
            Change::Rewound(_) | Change::Broken(..) | Change::Resumed(_) => {}
        }
    }

    /// Puts a current workload in, from a watch or from the answer to a request. The newer one counts, even of two with the same name.
    pub(crate) fn put(&mut self, object: WorkloadObject) {
        let Objects { namespaces, deletions, dirty } = &mut *self.0;
        if deletions.cover(&object.uid, object.version) {
            return;
        }
        let namespace = Namespace::from(object.namespace.as_str());
        let content = namespaces.entry(namespace.clone()).or_default();
        let known = content.workloads.get(&object.id);
        if known.is_some_and(|known| known.version >= object.version) {
            return;
        }
        if let Some(replaced) = known.filter(|known| known.uid != object.uid) {
            deletions.note(&replaced.uid, object.version);
        }
        let id = object.id.clone();
        let same = |known: &WorkloadObject| known.pod_labels == object.pod_labels && known.selector == object.selector;
        let makes_others = !known.is_some_and(same);
        let before = if makes_others { depending_on(content, &id) } else { BTreeSet::new() };
        let Content { workloads, labels, pods, .. } = content;
        workloads.put(object, labels, pods);
        let after = if makes_others { depending_on(content, &id) } else { BTreeSet::new() };
        dirty.extend(before.iter().chain(&after).map(|name| namespace.election(name)));
        if let Some(object) = content.workloads.get(&id) {
            dirty.extend(following(content, object).into_iter().map(|name| namespace.election(name)));
        }
    }

    /// Removes a workload that no longer exists, according to an answer about this uid.
    pub(crate) fn lose(&mut self, namespace: &Namespace, id: &WorkloadId, uid: &Uid) {
        // A deleted object does not come back under the same uid.
        self.remove(namespace, id, uid, Version(u64::MAX));
    }

    /// Removes a workload as of a version, unless the name belongs to another one by now.
    fn remove(&mut self, namespace: &Namespace, id: &WorkloadId, uid: &Uid, version: Version) {
        let Objects { namespaces, deletions, dirty } = &mut *self.0;
        deletions.note(uid, version);
        let Some(content) = namespaces.get_mut(namespace) else { return };
        if content.workloads.get(id).is_none_or(|known| known.uid != *uid) {
            return;
        }
        let depending = depending_on(content, id);
        let Content { workloads, labels, .. } = content;
        dirty.extend(depending.iter().map(|name| namespace.election(name)));
        if let Some(object) = workloads.remove(id, labels) {
            dirty.extend(following(content, &object).into_iter().map(|name| namespace.election(name)));
        }
        self.0.tidy(namespace);
    }
}

/// The elections whose candidates depend on a workload that elections name.
fn depending_on(content: &Content, id: &WorkloadId) -> BTreeSet<String> {
    let naming = content.mentions.by(&Mention::Workload(id.clone()));
    naming.flat_map(|name| depending(content, name)).collect()
}

/// The elections that a workload matters to.
fn following<'a>(content: &'a Content, object: &'a WorkloadObject) -> BTreeSet<&'a String> {
    // A Job matters to the elections that its CronJob matters to.
    let owner = object.owner.as_ref().and_then(|owner| content.workloads.with_uid(owner));
    let of = |workload: &'a WorkloadObject| {
        let followed = content.mentions.by(&Mention::Followed(workload.id.clone()));
        let claimed = workload.claim.as_ref().map(|claim| &claim.election);
        followed.chain(claimed.filter(|election| content.elections.contains_key(*election))).collect::<Vec<_>>()
    };
    [object].into_iter().chain(owner).flat_map(of).collect()
}
