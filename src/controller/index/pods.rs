//! Pods, and the elections that have to do with each.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lictor_core::{
    ELECTION_ANNOTATION, Election, Instant, Locks, Membership, Names, Pod, Selector, StoreId, Uid, Version,
    differ_only_in_numbers,
};
use lictor_kubernetes::Change;

use super::circles::depending_by;
use super::naming::Filed;
use super::nodes::Nodes;
use super::objects::{Content, Objects};
use crate::controller::names::{ElectionName, Namespace};

/// The part of the index that a change of a pod may touch.
pub(crate) struct Pods<'a> {
    pub(super) objects: &'a mut Objects,
    pub(super) nodes: &'a mut Nodes,
    pub(super) filed: &'a Filed,
    pub(super) locks: &'a Locks,
}

impl Pods<'_> {
    pub(crate) fn apply(&mut self, change: Change<(String, Pod)>, now: Instant) {
        match change {
            Change::Applied((namespace, pod)) => self.put(&namespace.into(), pod, now),
            Change::Deleted((namespace, pod)) => self.remove(&namespace.into(), &pod.name, &pod.uid, pod.version),
            Change::All(scope, version, pods) => {
                let present: BTreeSet<&Uid> = pods.iter().map(|(_, pod)| &pod.uid).collect();
                let known = self.objects.covered(scope.into()).flat_map(|(namespace, content)| {
                    let gone = content.pods.iter().filter(|pod| pod.version <= version && !present.contains(&pod.uid));
                    gone.map(|pod| (namespace.clone(), pod.name.clone(), pod.uid.clone()))
                });
                for (namespace, name, uid) in known.collect::<Vec<_>>() {
                    self.remove(&namespace, &name, &uid, version);
                }
                for (namespace, pod) in pods {
                    self.put(&namespace.into(), pod, now);
                }
            }
            Change::Rewound(_) | Change::Broken(..) | Change::Resumed(_) => {}
        }
    }

    /// Puts a current pod in, from a watch or from the answer to a request. The newer one counts, even of two with the same name.
    pub(crate) fn put(&mut self, namespace: &Namespace, pod: Pod, now: Instant) {
        // Everything that is known of a namespace shares its name.
        let Objects { namespaces, deletions, dirty } = &mut *self.objects;
        let namespace = namespaces.get_key_value(namespace).map_or(namespace, |(known, _)| known).clone();
        let content = namespaces.entry(namespace.clone()).or_default();
        let Some((before, pod)) = content.pods.put(pod, deletions, now) else { return self.objects.tidy(&namespace) };
        content.labels.replace(before.as_ref(), Some(pod));
        mark(&mut content.marked, before.as_ref(), Some(pod));
        self.nodes.move_pod(&namespace, before.as_ref(), Some(pod));

        // The elections that it may concern. No other election is asked.
        let mut concerned: BTreeSet<String> = content.labels.elections_of(pod).cloned().collect();
        concerned.extend(pod.annotations.get(ELECTION_ANNOTATION).map(str::to_owned));
        concerned.extend(content.concerned.get(&pod.name).into_iter().flat_map(Names::keys).cloned());
        let led = self.locks.naming(&pod.uid).flat_map(|key| self.filed.naming.of(key));
        let led: BTreeSet<&String> = led.filter(|led| led.namespace == namespace).map(|led| &led.name).collect();
        concerned.extend(led.iter().copied().cloned());
        concerned.extend(self.filed.winding_down(&namespace).map(|election| election.name.clone()));

        // The labels and the owner tell which workload has made the pod.
        let remade = before.as_ref().is_some_and(|before| before.labels != pod.labels || before.owner != pod.owner);
        let (mut switches, pod_name) = (Vec::new(), pod.name.clone());
        for name in concerned {
            let Some(entry) = content.elections.get_mut(&name) else { continue };
            let winds_down = entry.election().is_some_and(|election| election.winding_down().is_some());
            let Membership { concerned, switched } = {
                let noted = &entry.workloads.claims().scopes;
                entry.members.put(pod, &entry.object.concern(self.locks, noted))
            };
            link(&mut content.concerned, &pod.name, &name, entry.members.include(&pod.name));
            if switched.is_some() {
                let selecting = content.concerned.get(&pod.name).into_iter().flat_map(Names::keys);
                dirty.extend(selecting.map(|name| namespace.election(name)));
                switches.push(name.clone());
            }
            let election = namespace.election(&name);
            // F5.
            let idle = entry.election().is_some_and(Election::is_idle);
            let ranks =
                |before: &Pod| entry.spec().is_some_and(|spec| differ_only_in_numbers(before, pod, &spec.rules));
            if (!concerned && !winds_down) || (idle && before.as_ref().is_some_and(ranks)) {
                continue;
            }
            if led.contains(&name) {
                dirty.mark_urgent(election);
            } else {
                dirty.mark(election);
            }
        }
        if let Some(pod) = content.pods.get(&pod_name) {
            switches.extend(content.selecting(&pod_name).filter(|_| remade).cloned());
            let entries = switches.iter().filter_map(|name| content.elections.get(name));
            let states = || [Some(pod), before.as_ref()].into_iter().flatten();
            let depending = entries.flat_map(|entry| states().flat_map(|pod| depending_by(content, entry, pod)));
            dirty.extend(depending.map(|name| namespace.election(&name)));
        }
    }

    /// Removes a pod as of a version, unless the name belongs to another one by now.
    fn remove(&mut self, namespace: &Namespace, name: &str, uid: &Uid, version: Version) {
        let Objects { namespaces, deletions, dirty } = &mut *self.objects;
        deletions.note(uid, version);
        let Some(content) = namespaces.get_mut(namespace) else { return };
        let Some(pod) = content.pods.remove(name, uid) else { return };
        content.labels.replace(Some(&pod), None);
        mark(&mut content.marked, Some(&pod), None);
        self.nodes.move_pod(namespace, Some(&pod), None);
        let selecting = content.selecting(name).filter_map(|election| content.elections.get(election));
        let depending: BTreeSet<String> = selecting.flat_map(|entry| depending_by(content, entry, &pod)).collect();
        dirty.extend(depending.iter().map(|election| namespace.election(election)));
        let led: BTreeSet<&ElectionName> = self.locks.naming(uid).flat_map(|key| self.filed.naming.of(key)).collect();
        for election in content.concerned.remove(name).unwrap_or_default().keys() {
            if let Some(entry) = content.elections.get_mut(election) {
                entry.members.remove(name);
            }
            let election = namespace.election(election);
            if led.contains(&election) {
                dirty.mark_urgent(election);
            } else {
                dirty.mark(election);
            }
        }
        dirty.extend(self.filed.winding_down(namespace).cloned());
        self.objects.tidy(namespace);
    }
}

/// Finds the pods that an election has to do with again, after its selectors changed.
pub(super) fn gather_members(objects: &mut Objects, locks: &Locks, election: &ElectionName) {
    let ElectionName { namespace, name } = election;
    let Some(content) = objects.namespaces.get_mut(namespace) else { return };
    let Content { pods, labels, marked, elections, concerned, .. } = content;
    let Some(entry) = elections.get_mut(name) else { return };
    let concern_of_it = entry.object.concern(locks, &entry.workloads.claims().scopes);
    let leases = locks.of(&entry.object.id().uid).filter(|(key, _)| key.store == StoreId::leases());
    entry.members.learn(&concern_of_it, leases.filter_map(|(_, lock)| lock.written()));
    let selectors = || concern_of_it.selector.into_iter().chain(entry.members.earlier());
    labels.follow(name, selectors(), pods);

    let holder = concern_of_it.record.and_then(|record| record.holder.as_ref()?.pod.as_ref());
    let by_name = marked.get(name).into_iter().flat_map(Names::keys).chain(holder).filter_map(|pod| pods.get(pod));
    let by_label = selectors().flat_map(|selector: &Selector| labels.pods_of(selector, pods));
    let found: BTreeMap<&String, &Pod> = by_name.chain(by_label).map(|pod| (&pod.name, pod)).collect();
    let before: Vec<String> = entry.members.all().cloned().collect();
    let switched = entry.members.gather(found.values().copied(), &concern_of_it);

    for pod in before.iter().filter(|pod| !entry.members.include(pod)) {
        link(concerned, pod, name, false);
    }
    for pod in entry.members.all() {
        link(concerned, pod, name, true);
    }
    for (pod, _) in switched {
        let selecting = concerned.get(&pod).into_iter().flat_map(Names::keys);
        objects.dirty.extend(selecting.map(|name| namespace.election(name)));
    }
}

/// Notes the election that has marked a pod, according to the pod.
fn mark(marked: &mut HashMap<String, Names>, before: Option<&Pod>, now: Option<&Pod>) {
    let by = |pod: Option<&Pod>| pod.and_then(|pod| pod.annotations.get(ELECTION_ANNOTATION)).map(str::to_owned);
    let (was, is) = (by(before), by(now));
    if was == is && before.is_some() == now.is_some() {
        return;
    }
    if let (Some(election), Some(pod)) = (was, before) {
        link(marked, &election, &pod.name, false);
    }
    if let (Some(election), Some(pod)) = (is, now) {
        link(marked, &election, &pod.name, true);
    }
}

/// Adds a name to the set under a key, or removes it. No set stays empty.
pub(super) fn link(sets: &mut HashMap<String, Names>, key: &str, name: &str, is: bool) {
    match sets.get_mut(key) {
        Some(names) if is => _ = names.insert(name.into(), ()),
        Some(names) => {
            names.remove(name);
            if names.is_empty() {
                sets.remove(key);
            }
        }
        None if is => _ = sets.insert(key.into(), [(name.into(), ())].into_iter().collect()),
        None => {}
    }
}
