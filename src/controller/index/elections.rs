//! How an election is put in or taken out with all that leads to it, and the classes that serve elections.

use std::collections::BTreeSet;

use lictor_api::{Classes, ElectionClass};
use lictor_core::{Locks, Pairs};
use lictor_kubernetes::Change;

use super::conflicts::mark_neighbours;
use super::mentions::Mention;
use super::naming::{Filed, named_by};
use super::objects::Objects;
use super::offers::Offers;
use super::pods::{gather_members, link};
use crate::controller::entry::Entry;
use crate::controller::names::ElectionName;

/// The part of the index that a change of an election or of a class may touch.
pub(crate) struct Elections<'a> {
    pub(super) controller: &'a str,
    pub(super) offers: &'a mut Offers,
    pub(super) classes: &'a mut Classes,
    pub(super) departed: &'a mut Classes,
    pub(super) objects: &'a mut Objects,
    pub(super) filed: &'a mut Filed,
    pub(super) locks: &'a Locks,
    pub(super) following: &'a mut BTreeSet<ElectionName>,
}

impl Elections<'_> {
    pub(crate) fn apply_classes(&mut self, change: Change<(String, ElectionClass)>) {
        if self.offers.apply_classes(change) {
            self.offer(false);
        }
    }

    pub(crate) fn apply_labels(&mut self, change: Change<(String, Pairs)>) {
        let before = self.offers.unreadable().map(str::to_owned);
        if self.offers.apply_labels(change) {
            self.offer(self.offers.unreadable() != before.as_deref());
        }
    }

    /// Reads the elections again if a class, or what it offers to whom, has changed. `anew`: also if not.
    fn offer(&mut self, anew: bool) {
        // This program itself writes a class's status, so the status changes nothing for the elections.
        let said = |classes: &Classes| -> Vec<_> {
            let class = |(name, class): (&String, &ElectionClass)| {
                (name.clone(), class.spec.clone(), class.metadata.annotations.clone())
            };
            classes.iter().map(class).collect()
        };
        let before = said(self.classes);
        let known = std::mem::replace(self.classes, self.offers.classes());
        if said(self.classes) == before && !anew {
            return;
        }
        let classes = &*self.classes;
        self.departed.extend(known.into_iter().filter(|(name, _)| !classes.contains_key(name)));
        self.departed.retain(|name, _| !classes.contains_key(name));
        for election in self.objects.elections().collect::<Vec<_>>() {
            self.resolve_again(&election);
        }
        let mut used = BTreeSet::new();
        for entry in self.objects.entries().filter(|entry| entry.object.class_is_gone()) {
            used.extend(entry.spec().map(|spec| spec.class_name.clone()));
        }
        self.departed.retain(|name, _| used.contains(name));
    }

    /// Adds a new election.
    pub(super) fn add(&mut self, entry: Entry) {
        let id = entry.object.id().clone();
        let content = self.objects.namespaces.entry(id.election.namespace.clone()).or_default();
        content.elections.insert(id.election.name.clone(), Box::new(entry));
        self.filed.uids.insert(id.uid, id.election);
    }

    /// Forgets an election.
    pub(super) fn take_out(&mut self, election: &ElectionName) -> Option<Entry> {
        let ElectionName { namespace, name } = election;
        // The elections that it stood in the way of.
        mark_neighbours(self.objects, self.filed, election);
        let content = self.objects.namespaces.get_mut(namespace)?;
        let entry = content.elections.remove(name)?;
        for pod in entry.members.all() {
            link(&mut content.concerned, pod, name, false);
        }
        content.labels.follow(name, std::iter::empty(), &content.pods);
        content.mentions.set(name, BTreeSet::new());
        self.following.insert(election.clone());
        if content.switchovers.contains_key(name) {
            self.objects.dirty.mark(election.clone());
        }
        let reached = entry.services().into_iter().flat_map(|service| content.reached_by(service));
        self.objects.dirty.extend(reached.map(|name| namespace.election(name)));
        self.objects.tidy(namespace);
        self.filed.remove(&entry);
        Some(*entry)
    }

    /// Notes that an election may name other things than before.
    pub(super) fn note_mentions(&mut self, election: &ElectionName) {
        self.following.insert(election.clone());
        let Some(content) = self.objects.namespaces.get_mut(&election.namespace) else { return };
        if let Some(entry) = content.elections.get(&election.name) {
            content.mentions.set(&election.name, Mention::all_of(entry));
        }
    }

    /// Reads the spec of an election again, and files the election under what it names now.
    pub(super) fn resolve_again(&mut self, election: &ElectionName) {
        // The elections that it stood in the way of before the change, or does now.
        mark_neighbours(self.objects, self.filed, election);
        let Some(content) = self.objects.namespaces.get_mut(&election.namespace) else { return };
        let Some(entry) = content.elections.get_mut(&election.name) else { return };
        let before = named_by(&entry.object);
        entry.object.resolve(self.classes, self.departed, self.controller);
        if let Some(why) = self.offers.unreadable() {
            entry.object.explain_offer(why);
        }
        self.filed.rename(election, &before, &named_by(&entry.object));
        self.filed.note_decided(election, Some(entry));
        self.note_mentions(election);
        gather_members(self.objects, self.locks, election);
        self.objects.dirty.mark(election.clone());
        mark_neighbours(self.objects, self.filed, election);
    }
}
