//! Services and the slices of elections, and the elections that each matters to.

use std::collections::BTreeSet;

use lictor_core::{Slice, Uid, Version};

use super::mentions::Mention;
use super::{Content, Index};
use crate::controller::names::Namespace;
use crate::kubernetes::{Change, ServiceObject};

impl Index {
    pub(crate) fn apply_services(&mut self, change: Change<ServiceObject>) {
        match change {
            Change::Applied(service) => self.put_service(service),
            Change::Deleted(service) => self.remove_service(&service.namespace.into(), &service.name),
            Change::All(scope, _, services) => {
                // Answers to requests never contain a Service, so a Service that the list lacks is gone.
                let present: BTreeSet<&Uid> = services.iter().map(|service| &service.uid).collect();
                let known = self.covered(scope.into()).flat_map(|(namespace, content)| {
                    let gone = content.services.values().filter(|service| !present.contains(&service.uid));
                    gone.map(|service| (namespace.clone(), service.name.clone()))
                });
                for (namespace, name) in known.collect::<Vec<_>>() {
                    self.remove_service(&namespace, &name);
                }
                for service in services {
                    self.put_service(service);
                }
            }
            Change::Rewound(_) | Change::Broken(..) | Change::Resumed(_) => {}
        }
    }

    fn put_service(&mut self, service: ServiceObject) {
        let namespace = Namespace::from(service.namespace.as_str());
        let content = self.namespaces.entry(namespace.clone()).or_default();
        if content.services.get(&service.name) == Some(&service) {
            return;
        }
        self.dirty.extend(content.reached_by(&service.name).map(|name| namespace.election(name)));
        content.services.insert(service.name.clone(), service);
    }

    fn remove_service(&mut self, namespace: &Namespace, name: &str) {
        let Some(content) = self.namespaces.get_mut(namespace) else { return };
        if content.services.remove(name).is_some() {
            self.dirty.extend(content.reached_by(name).map(|name| namespace.election(name)));
        }
        self.tidy(namespace);
    }

    pub(crate) fn apply_slices(&mut self, change: Change<(String, Slice)>) {
        match change {
            Change::Applied((namespace, slice)) => self.put_slice(&namespace.into(), slice),
            Change::Deleted((namespace, slice)) => {
                // The slice may only have lost the label by which it is watched, and then exists in this very version.
                let before = Version(slice.version.0.saturating_sub(1));
                self.remove_slice(&namespace.into(), &slice.name, &slice.uid, before);
            }
            Change::All(scope, version, slices) => {
                let present: BTreeSet<&Uid> = slices.iter().map(|(_, slice)| &slice.uid).collect();
                let known = self.covered(scope.into()).flat_map(|(namespace, content)| {
                    let gone = content.slices.values();
                    let gone = gone.filter(|slice| slice.version <= version && !present.contains(&slice.uid));
                    gone.map(|slice| (namespace.clone(), slice.clone()))
                });
                for (namespace, slice) in known.collect::<Vec<_>>() {
                    // As above: a newer slice than this one may still exist.
                    self.remove_slice(&namespace, &slice.name, &slice.uid, slice.version);
                }
                for (namespace, slice) in slices {
                    self.put_slice(&namespace.into(), slice);
                }
            }
            Change::Rewound(_) | Change::Broken(..) | Change::Resumed(_) => {}
        }
    }

    /// Puts a current slice in, from a watch or from the answer to a request. The newer one counts, even of two with the same name.
    pub(crate) fn put_slice(&mut self, namespace: &Namespace, slice: Slice) {
        if self.deletions.cover(&slice.uid, slice.version) {
            return;
        }
        let content = self.namespaces.entry(namespace.clone()).or_default();
        let known = content.slices.get(&slice.name);
        if known.is_some_and(|known| known.version >= slice.version) {
            return;
        }
        if let Some(replaced) = known.filter(|known| known.uid != slice.uid) {
            self.deletions.note(&replaced.uid, slice.version);
        }
        self.dirty.extend(content.routed_by(&slice.name).map(|name| namespace.election(name)));
        content.slices.insert(slice.name.clone(), slice);
    }

    /// Removes a slice that no longer exists, according to an answer about this name and uid.
    pub(crate) fn lose_slice(&mut self, namespace: &Namespace, name: &str, uid: &Uid) {
        // A deleted object does not come back under the same uid.
        self.remove_slice(namespace, name, uid, Version(u64::MAX));
    }

    /// Removes a slice as of a version, unless the name belongs to another one by now.
    fn remove_slice(&mut self, namespace: &Namespace, name: &str, uid: &Uid, version: Version) {
        self.deletions.note(uid, version);
        let Some(content) = self.namespaces.get_mut(namespace) else { return };
        if content.slices.get(name).is_none_or(|known| known.uid != *uid || known.version > version) {
            return;
        }
        content.slices.remove(name);
        self.dirty.extend(content.routed_by(name).map(|name| namespace.election(name)));
        self.tidy(namespace);
    }
}

impl Content {
    /// The elections that name a Service.
    pub(super) fn reached_by<'a>(&'a self, service: &str) -> impl Iterator<Item = &'a String> + use<'a> {
        self.mentions.by(&Mention::Service(service.into()))
    }

    /// The elections that have to do with a slice.
    fn routed_by<'a>(&'a self, slice: &str) -> impl Iterator<Item = &'a String> + use<'a> {
        self.mentions.by(&Mention::Slice(slice.into()))
    }
}
