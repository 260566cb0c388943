//! H13: the remains of elections that had no finalizer. Only an acting operator removes them, and finds them by the elections' Leases,
//! which nothing else deletes.
//!
//! A departed election keeps its place in the index until nothing of it is left. Another election with the same name waits for that, as it
//! would wait for a finalizer.

use std::collections::BTreeSet;

use kube::Resource;
use lictor_api::LeaderElection;
use lictor_core::{Key, Record, Uid, Version};
use serde_json::json;

use super::elections::Elections;
use super::pods::gather_members;
use crate::controller::entry::Entry;
use crate::controller::names::{ElectionId, ElectionName, Namespace};

/// What the departure of an election may touch.
pub(crate) struct Remains<'a> {
    pub(super) operator_id: &'a str,
    pub(super) acts: bool,
    pub(super) unclaimed: &'a mut BTreeSet<Key>,
    pub(super) elections: Elections<'a>,
}

impl Remains<'_> {
    /// Looks at the locks of unknown elections, in namespaces that are fully known.
    pub(crate) fn find(&mut self, knows: impl Fn(&Namespace) -> bool) {
        let (ready, later): (BTreeSet<Key>, BTreeSet<Key>) =
            std::mem::take(self.unclaimed).into_iter().partition(|key| knows(&key.namespace.clone().into()));
        *self.unclaimed = later;
        let locks = self.elections.locks;
        for key in ready {
            let Some((version, stored)) = locks.get(&key) else { continue };
            let (version, Some(record)) = (*version, stored.written()) else { continue };
            if record.operator_id.split('#').next() == Some(self.elections.controller) {
                self.find_one(&key, version, record.clone());
            }
        }
    }

    /// Handles one of this lictor's locks, if its election is gone.
    fn find_one(&mut self, key: &Key, version: Version, record: Record) {
        let election = Namespace::from(key.namespace.clone()).election(&record.election_name);
        let (locks, mut waiting) = (self.elections.locks, None);
        if let Some(entry) = self.elections.objects.named(&election) {
            let id = entry.object.id();
            if id.uid == record.election || entry.spec().is_some_and(|spec| spec.key == *key) {
                // The election knows of the lock, or takes it over.
                return;
            }
            if entry.object.is_gone() {
                self.unclaimed.insert(key.clone());
                return;
            }
            if entry.election().is_some() || locks.of(&id.uid).next().is_some() || !entry.object.is_served() {
                // The election has marked the pods since under the same name, or another lictor has.
                return;
            }
            waiting = Some((entry.object.version(), id.uid.clone(), LeaderElection::clone(entry.object.seen())));
            self.elections.take_out(&election);
        }
        let seen = serde_json::from_value::<LeaderElection>(json!({
            "apiVersion": LeaderElection::api_version(&()), "kind": LeaderElection::kind(&()), "spec": {},
            "metadata": {
                "name": &election.name, "namespace": &*election.namespace, "uid": &record.election.0,
                "generation": record.generation,
            },
        }));
        let Ok(seen) = seen else { return };
        let id = ElectionId { election: election.clone(), uid: record.election };
        let mut entry = Entry::new(id, version, seen, self.operator_id);
        entry.object.depart(Some(key.clone()));
        self.elections.add(entry);
        let content = self.elections.objects.namespaces.entry(election.namespace.clone()).or_default();
        content.waiting.extend(waiting.map(|waiting| (election.name.clone(), waiting)));
        gather_members(self.elections.objects, locks, &election);
        self.elections.objects.dirty.mark(election);
    }

    /// Whether a departed election keeps its place here because something of it is left. If it only leaves its name to another one, there
    /// is nothing to do.
    pub(super) fn keep_place(&mut self, election: &ElectionName, uid: &Uid) -> bool {
        let Elections { objects, locks, following, .. } = &mut self.elections;
        let Some(content) = objects.namespaces.get_mut(&election.namespace) else { return true };
        if content.waiting.get(&election.name).is_some_and(|(_, waiting, _)| waiting == uid) {
            content.waiting.remove(&election.name);
            return true;
        }
        let Some(entry) = content.elections.get_mut(&election.name) else { return true };
        if entry.object.id().uid != *uid || entry.object.is_gone() {
            return true;
        }
        let written = entry.election().is_some() || locks.of(uid).next().is_some();
        let left = written && entry.object.is_served() && !entry.withdrawn && !entry.object.has_finalizer();
        if !self.acts || !left || entry.needs_finalizer(locks) {
            if !entry.decisions.is_withdrawn() {
                self.unclaimed.extend(locks.of(uid).map(|(key, _)| key.clone()));
            }
            return false;
        }
        entry.object.depart(None);
        following.insert(election.clone());
        objects.dirty.mark(election.clone());
        true
    }

    /// Makes an election wait for its name if the name still belongs to a departed one. Returns the election if it need not wait.
    pub(super) fn give_way(
        &mut self,
        election: &ElectionName,
        version: Version,
        uid: Uid,
        object: LeaderElection,
    ) -> Option<(Uid, LeaderElection)> {
        let gone = self.elections.objects.named(election).filter(|entry| entry.object.is_gone());
        match gone.map(|entry| entry.object.id().uid.clone()) {
            None => Some((uid, object)),
            Some(gone) if gone == uid => {
                // The watch of locks was ahead of the watch of elections.
                self.elections.take_out(election);
                Some((uid, object))
            }
            Some(_) => {
                let content = self.elections.objects.namespaces.entry(election.namespace.clone()).or_default();
                let newest = content.waiting.get(&election.name).is_none_or(|(known, ..)| *known < version);
                if newest {
                    content.waiting.insert(election.name.clone(), (version, uid, object));
                }
                None
            }
        }
    }
}
