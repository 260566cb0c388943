//! H13: the remains of elections that had no finalizer. Only an acting operator removes them, and finds them by the elections' Leases,
//! which nothing else deletes.
//!
//! A departed election keeps its place in the index until nothing of it is left. Another election with the same name waits for that, as it
//! would wait for a finalizer.

use std::collections::BTreeSet;

use kube::Resource;
use lictor_core::{Key, Record, Uid, Version};
use serde_json::json;

use super::Index;
use crate::api::LeaderElection;
use crate::controller::entry::Entry;
use crate::controller::names::{ElectionId, ElectionName, Namespace};

impl Index {
    /// Removes the remains of elections here from now on.
    pub(crate) fn act(&mut self) {
        self.acts = true;
    }

    /// Leaves the remains of elections to another replica.
    pub(crate) fn stand_by(&mut self) {
        self.acts = false;
        self.stand_by_switchovers();
        let gone: Vec<ElectionName> = self.gone().collect();
        for election in gone {
            let locks = self.named(&election).map(|entry| self.locks.of(&entry.object.id().uid));
            let locks: Vec<Key> = locks.into_iter().flatten().map(|(key, _)| key.clone()).collect();
            self.unclaimed.extend(locks);
            self.bury(&election);
        }
    }

    /// Whether no election has left anything that this lictor has to remove.
    pub(crate) fn is_withdrawn(&self) -> bool {
        let content = self.namespaces.values().flat_map(|content| content.elections.values());
        let mut left = content.filter(|entry| {
            (entry.object.is_served() || entry.object.is_gone())
                && !entry.withdrawn
                && entry.object.may_have_left(&self.locks, &self.operator_id)
        });
        left.next().is_none()
    }

    /// Looks at the locks of unknown elections, in namespaces that are fully known.
    pub(crate) fn find_remains(&mut self, knows: impl Fn(&Namespace) -> bool) {
        let (ready, later): (BTreeSet<Key>, BTreeSet<Key>) =
            std::mem::take(&mut self.unclaimed).into_iter().partition(|key| knows(&key.namespace.clone().into()));
        self.unclaimed = later;
        for key in ready {
            let Some((version, stored)) = self.locks.get(&key) else { continue };
            let (version, Some(record)) = (*version, stored.written()) else { continue };
            if record.operator_id.split('#').next() == Some(&self.controller) {
                self.find_remain(&key, version, record.clone());
            }
        }
    }

    /// Handles one of this lictor's locks, if its election is gone.
    fn find_remain(&mut self, key: &Key, version: Version, record: Record) {
        let name = if record.election_name.is_empty() { &key.name } else { &record.election_name };
        let election = Namespace::from(key.namespace.clone()).election(name);
        let mut waiting = None;
        if let Some(entry) = self.named(&election) {
            let id = entry.object.id();
            if id.uid == record.election || entry.spec().is_some_and(|spec| spec.key == *key) {
                // The election knows of the lock, or takes it over.
                return;
            }
            if entry.object.is_gone() {
                self.unclaimed.insert(key.clone());
                return;
            }
            if entry.election().is_some() || self.locks.of(&id.uid).next().is_some() || !entry.object.is_served() {
                // The election has marked the pods since under the same name, or another lictor has.
                return;
            }
            waiting = Some((entry.object.version(), id.uid.clone(), LeaderElection::clone(entry.object.seen())));
            self.take_out(&election);
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
        let mut entry = Entry::new(id, version, seen, &self.operator_id);
        entry.object.depart(Some(key.clone()));
        self.put_in(entry);
        let content = self.namespaces.entry(election.namespace.clone()).or_default();
        content.waiting.extend(waiting.map(|waiting| (election.name.clone(), waiting)));
        self.gather_members(&election);
        self.mark(&election);
    }

    /// Whether a departed election keeps its place here because something of it is left. If it only leaves its name to another one, there
    /// is nothing to do.
    pub(super) fn remains_of(&mut self, election: &ElectionName, uid: &Uid) -> bool {
        let Some(content) = self.namespaces.get_mut(&election.namespace) else { return true };
        if content.waiting.get(&election.name).is_some_and(|(_, waiting, _)| waiting == uid) {
            content.waiting.remove(&election.name);
            return true;
        }
        let Some(entry) = content.elections.get_mut(&election.name) else { return true };
        if entry.object.id().uid != *uid || entry.object.is_gone() {
            return true;
        }
        let written = entry.election().is_some() || self.locks.of(uid).next().is_some();
        let left = written && entry.object.is_served() && !entry.withdrawn && !entry.object.has_finalizer();
        if !self.acts || !left || entry.needs_finalizer(&self.locks) {
            if !entry.decisions.is_withdrawn() {
                self.unclaimed.extend(self.locks.of(uid).map(|(key, _)| key.clone()));
            }
            return false;
        }
        entry.object.depart(None);
        self.following.insert(election.clone());
        self.mark(election);
        true
    }

    /// Makes an election wait for its name if the name still belongs to a departed one. Returns the election if it need not wait.
    pub(super) fn give_way_to_remains(
        &mut self,
        election: &ElectionName,
        version: Version,
        uid: Uid,
        object: LeaderElection,
    ) -> Option<(Uid, LeaderElection)> {
        let gone =
            self.named(election).filter(|entry| entry.object.is_gone()).map(|entry| entry.object.id().uid.clone());
        match gone {
            None => Some((uid, object)),
            Some(gone) if gone == uid => {
                // The watch of locks was ahead of the watch of elections.
                self.take_out(election);
                Some((uid, object))
            }
            Some(_) => {
                let content = self.namespaces.entry(election.namespace.clone()).or_default();
                let newest = content.waiting.get(&election.name).is_none_or(|(known, ..)| *known < version);
                if newest {
                    content.waiting.insert(election.name.clone(), (version, uid, object));
                }
                None
            }
        }
    }

    /// Forgets a departed election of which nothing is left. Its name goes to the election that waits for it.
    pub(crate) fn bury(&mut self, election: &ElectionName) {
        let content = self.namespaces.get_mut(&election.namespace);
        let waiting = content.and_then(|content| content.waiting.remove(&election.name));
        self.take_out(election);
        if let Some((version, uid, object)) = waiting {
            self.put_election(version, uid, object);
        }
    }

    fn gone(&self) -> impl Iterator<Item = ElectionName> {
        let entries = self.namespaces.values().flat_map(|content| content.elections.values());
        let gone = entries.filter(|entry| entry.object.is_gone()).map(|entry| entry.object.election().clone());
        gone.collect::<BTreeSet<_>>().into_iter()
    }
}
