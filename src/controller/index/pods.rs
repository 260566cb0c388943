//! Pods, and which elections have to do with each.

use std::collections::{BTreeMap, BTreeSet};

use lictor_core::{Instant, Membership, Pod, Uid, Version};

use super::Index;
use crate::controller::names::{ElectionName, Namespace};
use crate::kubernetes::Change;

impl Index {
    pub(crate) fn apply_pods(&mut self, change: Change<(String, Pod)>, now: Instant) {
        match change {
            Change::Applied((namespace, pod)) => self.put_pod(&namespace.into(), pod, now),
            Change::Deleted((namespace, pod)) => self.remove_pod(&namespace.into(), &pod.name, &pod.uid, pod.version),
            Change::All(scope, version, pods) => {
                let present: BTreeSet<&Uid> = pods.iter().map(|(_, pod)| &pod.uid).collect();
                let known = self.covered(scope.into()).flat_map(|(namespace, content)| {
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
    pub(crate) fn put_pod(&mut self, namespace: &Namespace, pod: Pod, now: Instant) {
        let content = self.namespaces.entry(namespace.clone()).or_default();
        let Some(pod) = content.pods.put(pod, &mut self.deletions, now) else { return self.tidy(namespace) };
        let mut touched = BTreeSet::new();
        for (name, entry) in &mut content.elections {
            let winds_down = entry.decisions.winding_down().is_some();
            let Membership { concerned, switched } = entry.members.put(pod, &entry.object.concern(&self.locks));
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
            if entry.members.remove(name) || entry.decisions.winding_down().is_some() {
                touched.insert(election.clone());
            }
        }
        self.dirty.extend(touched.into_iter().map(|name| namespace.election(name)));
        self.tidy(namespace);
    }

    /// Looks through all pods of the namespace: after a change of the selectors.
    pub(super) fn gather_members(&mut self, election: &ElectionName) {
        let ElectionName { namespace, name } = election;
        let Some(content) = self.namespaces.get_mut(namespace) else { return };
        let Some(entry) = content.elections.get_mut(name) else { return };
        let records = self.locks.of(&entry.object.id().uid).filter_map(|(_, lock)| lock.written());
        let concern = entry.object.concern(&self.locks);
        let mut touched = BTreeSet::new();
        for (pod, selected) in entry.members.gather(&content.pods, &concern, records) {
            touched.extend(switch(&mut content.selecting, &pod, name, selected));
        }
        self.dirty.extend(touched.into_iter().map(|name| namespace.election(name)));
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
