//! Services and the slices of elections, and the elections that each matters to.

use std::collections::BTreeSet;

use lictor_core::{Slice, Uid, Version};
use lictor_kubernetes::Change;

use super::mentions::Mention;
use super::objects::{Content, Objects};
use crate::controller::names::Namespace;
use crate::kubernetes::ServiceObject;

/// The part of the index that a change of a Service may touch.
pub(crate) struct Services<'a>(pub(super) &'a mut Objects);

/// The part of the index that a change of a slice may touch.
pub(crate) struct Slices<'a>(pub(super) &'a mut Objects);

impl Services<'_> {
    pub(crate) fn apply(&mut self, change: Change<ServiceObject>) {
        match change {
            Change::Applied(service) => self.put(service),
            Change::Deleted(service) => self.remove(&service.namespace.into(), &service.name),
            Change::All(scope, _, services) => {
                // A Service comes only from the watch, never from an answer to a request, so one that the list lacks is gone.
                let present: BTreeSet<&Uid> = services.iter().map(|service| &service.uid).collect();
                let known = self.0.covered(scope.into()).flat_map(|(namespace, content)| {
                    let gone = content.services.values().filter(|service| !present.contains(&service.uid));
                    gone.map(|service| (namespace.clone(), service.name.clone()))
                });
                for (namespace, name) in known.collect::<Vec<_>>() {
                    self.remove(&namespace, &name);
                }
                for service in services {
                    self.put(service);
                }
            }
            Change::Rewound(_) | Change::Broken(..) | Change::Resumed(_) => {}
        }
    }

    fn put(&mut self, service: ServiceObject) {
        let namespace = Namespace::from(service.namespace.as_str());
        let content = self.0.namespaces.entry(namespace.clone()).or_default();
        if content.services.get(&service.name) == Some(&service) {
            return;
        }
        let owner = service.election().filter(|name| content.elections.contains_key(*name));
        let concerned = content.reached_by(&service.name).map(String::as_str).chain(owner);
        self.0.dirty.extend(concerned.map(|name| namespace.election(name)));
        content.services.insert(service.name.clone(), service);
    }

    fn remove(&mut self, namespace: &Namespace, name: &str) {
        let Some(content) = self.0.namespaces.get_mut(namespace) else { return };
        if let Some(service) = content.services.remove(name) {
            let owner = service.election().filter(|name| content.elections.contains_key(*name));
            let concerned = content.reached_by(name).map(String::as_str).chain(owner);
            self.0.dirty.extend(concerned.map(|name| namespace.election(name)));
        }
        self.0.tidy(namespace);
    }
}

impl Slices<'_> {
    pub(crate) fn apply(&mut self, change: Change<(String, Slice)>) {
        match change {
            Change::Applied((namespace, slice)) => self.put(&namespace.into(), slice),
            Change::Deleted((namespace, slice)) => {
                // The slice may only have lost the label by which it is watched, and then exists in this very version.
                let before = Version(slice.version.0.saturating_sub(1));
                self.remove(&namespace.into(), &slice.name, &slice.uid, before);
            }
            Change::All(scope, version, slices) => {
                let present: BTreeSet<&Uid> = slices.iter().map(|(_, slice)| &slice.uid).collect();
                let known = self.0.covered(scope.into()).flat_map(|(namespace, content)| {
                    let gone = content.slices.values();
                    let gone = gone.filter(|slice| slice.version <= version && !present.contains(&slice.uid));
                    gone.map(|slice| (namespace.clone(), slice.clone()))
                });
                for (namespace, slice) in known.collect::<Vec<_>>() {
                    // As above: a newer slice than this one may still exist.
                    self.remove(&namespace, &slice.name, &slice.uid, slice.version);
                }
                for (namespace, slice) in slices {
                    self.put(&namespace.into(), slice);
                }
            }
            Change::Rewound(_) | Change::Broken(..) | Change::Resumed(_) => {}
        }
    }

    /// Puts a current slice in, from a watch or from the answer to a request. The newer one counts, even of two with the same name.
    pub(crate) fn put(&mut self, namespace: &Namespace, slice: Slice) {
        if self.0.deletions.cover(&slice.uid, slice.version) {
            return;
        }
        let content = self.0.namespaces.entry(namespace.clone()).or_default();
        let known = content.slices.get(&slice.name);
        if known.is_some_and(|known| known.version >= slice.version) {
            return;
        }
        if let Some(replaced) = known.filter(|known| known.uid != slice.uid) {
            self.0.deletions.note(&replaced.uid, slice.version);
        }
        self.0.dirty.extend(routed_by(content, &slice.name).map(|name| namespace.election(name)));
        content.slices.insert(slice.name.clone(), slice);
    }

    /// Removes a slice that no longer exists, according to an answer about this name and uid.
    pub(crate) fn lose(&mut self, namespace: &Namespace, name: &str, uid: &Uid) {
        // A deleted object does not come back under the same uid.
        self.remove(namespace, name, uid, Version(u64::MAX));
    }

    /// Removes a slice as of a version, unless the name belongs to another one by now.
    fn remove(&mut self, namespace: &Namespace, name: &str, uid: &Uid, version: Version) {
        self.0.deletions.note(uid, version);
        let Some(content) = self.0.namespaces.get_mut(namespace) else { return };
        if content.slices.get(name).is_none_or(|known| known.uid != *uid || known.version > version) {
            return;
        }
        content.slices.remove(name);
        self.0.dirty.extend(routed_by(content, name).map(|name| namespace.election(name)));
        self.0.tidy(namespace);
    }
}

/// The elections that have to do with a slice.
fn routed_by<'a>(content: &'a Content, slice: &str) -> impl Iterator<Item = &'a String> + use<'a> {
    content.mentions.by(&Mention::Slice(slice.into()))
}
