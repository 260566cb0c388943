//! The election itself: its object as it was last seen, its valid spec, and whether it is accepted.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use lictor_api::{
    ACCEPTED, BUILT_IN_CLASS, Classes, FINALIZER, LeaderElection, LeaderElectionStatus, Refusal, Resolved, has_default,
    resolve,
};
use lictor_core::{Concern, Holder, Key, Locks, Record, Scope, StoreId, Stored, Term, Version};

use super::names::{ElectionId, ElectionName};

/// The reason of a refusal: without a leader, the election's workloads would keep its own candidates from running.
pub(super) const CIRCULAR_WORKLOADS: &str = "CircularWorkloads";

/// The standing of an election among those that want the same; the lower goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Standing {
    /// Whether another election has what this one wants: the other one has marked a pod, written a workload, or holds the lock.
    pub(super) challenges: bool,
    /// Whether the present spec was never accepted, because the election is new or was edited.
    pub(super) unaccepted: bool,
    /// Since when the election has been accepted without a break, because all pods that two elections want may be gone for a moment.
    pub(super) since: Option<Timestamp>,
}

/// An election according to its object.
pub(super) struct ElectionObject {
    id: ElectionId,
    version: Version,
    seen: Arc<LeaderElection>,
    /// `None` if another lictor serves the election.
    resolved: Option<Result<Arc<Resolved>, Refusal>>,
    /// Whether the class that serves the election was deleted; its last known state counts.
    class_is_gone: bool,
    /// The refusal, if another election goes before this one.
    conflict: Option<Refusal>,
    /// The standing when that was found out.
    standing: Standing,
    /// Whether the election no longer exists. The election had no finalizer, and lictor is removing its remains.
    gone: bool,
    /// The lock by which the election was found, if only that is known of it.
    found: Option<Key>,
}

impl ElectionObject {
    pub(super) fn new(id: ElectionId, version: Version, seen: LeaderElection) -> Self {
        Self {
            id,
            version,
            seen: Arc::new(seen),
            resolved: None,
            class_is_gone: false,
            conflict: None,
            standing: Standing::default(),
            gone: false,
            found: None,
        }
    }

    pub(super) fn id(&self) -> &ElectionId {
        &self.id
    }

    /// The election's name, and that of its namespace.
    pub(super) fn election(&self) -> &ElectionName {
        &self.id.election
    }

    /// The election's name, without that of its namespace.
    pub(super) fn name(&self) -> &str {
        &self.id.election.name
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// The object itself.
    pub(super) fn seen(&self) -> &Arc<LeaderElection> {
        &self.seen
    }

    /// Takes the current object. Returns whether the spec has to be resolved again.
    pub(super) fn renew(&mut self, version: Version, seen: LeaderElection) -> bool {
        let was_deleted = self.is_deleted();
        let before = std::mem::replace(&mut self.seen, Arc::new(seen));
        self.version = version;
        before.spec != self.seen.spec || was_deleted != self.is_deleted()
    }

    /// Forgets the version, because versions begin again.
    pub(super) fn forget_version(&mut self) {
        self.version = Version::default();
    }

    /// Marks the election as gone. `found`: the lock that showed this.
    pub(super) fn depart(&mut self, found: Option<Key>) {
        (self.gone, self.found) = (true, found);
    }

    /// Whether the election no longer exists.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Reads the spec. A departed election keeps its last one.
    /// `departed`: deleted classes, as they were last seen. Such a class still serves the elections that it served before.
    pub(super) fn resolve(&mut self, classes: &Classes, departed: &Classes, controller: &str) {
        if self.gone {
            return;
        }
        let served = self.spec().map(|spec| spec.class_name.clone()).filter(|name| departed.contains_key(name));
        let kept = served.filter(|name| !classes.contains_key(name) && self.may_be_served_by(name, classes));
        self.class_is_gone = kept.is_some();
        let resolved = match kept {
            Some(name) => {
                let mut named = self.seen.as_ref().clone();
                named.spec.class_name = Some(name);
                resolve(&named, departed, controller)
            }
            None => match self.lost_default(classes) {
                Some(refusal) => Some(Err(refusal)),
                None => resolve(&self.seen, classes, controller),
            },
        };
        self.resolved = resolved.map(|resolved| resolved.map(Arc::new));
    }

    /// Adds why lictor can't tell whom a class is offered to, if the election is refused because it seems not to be offered to it.
    pub(super) fn explain_offer(&mut self, unreadable: &str) {
        if let Some(Err(refusal)) = &mut self.resolved
            && refusal.reason == "ClassNotOffered"
        {
            refusal.message = format!("{}. lictor can't read the labels of namespaces: {unreadable}", refusal.message);
        }
    }

    /// Whether the user has named this class, or has named none while no other class is the default.
    fn may_be_served_by(&self, class: &str, classes: &Classes) -> bool {
        self.seen.spec.class_name.as_deref().map_or_else(|| !has_default(classes), |name| name == class)
    }

    /// Why the built-in class does not serve the election, if another default class served it and is gone: the lock would move.
    fn lost_default(&self, classes: &Classes) -> Option<Refusal> {
        let name = self.seen.status.as_ref()?.class_name.as_deref()?;
        let is_lost = self.seen.spec.class_name.is_none()
            && name != BUILT_IN_CLASS
            && !classes.contains_key(name)
            && !has_default(classes);
        is_lost.then(|| Refusal {
            reason: "UnknownClass",
            message: format!(
                "the default ElectionClass {name:?}, which served this election, was deleted: apply it again, or name another class in \
                 spec.className"
            ),
        })
    }

    /// Whether the class that serves the election was deleted.
    pub(super) fn class_is_gone(&self) -> bool {
        self.class_is_gone
    }

    /// Whether this lictor serves the election's class, as far as the spec can be read.
    pub(super) fn is_served(&self) -> bool {
        self.resolved.is_some()
    }

    /// The valid spec, if this operator serves the election.
    pub(super) fn spec(&self) -> Option<&Arc<Resolved>> {
        self.resolved.as_ref()?.as_ref().ok()
    }

    /// Why the election is not accepted.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        match &self.resolved {
            Some(Err(refusal)) => Some(refusal),
            _ => self.conflict.as_ref(),
        }
    }

    /// Why the election has to give way to another one.
    pub(super) fn conflict(&self) -> Option<&Refusal> {
        self.conflict.as_ref()
    }

    /// Takes the reason to give way, if any, and the standing. Returns whether other elections have to be decided again.
    pub(super) fn give_way(&mut self, conflict: Option<Refusal>, standing: Standing) -> bool {
        let before = std::mem::replace(&mut self.conflict, conflict);
        let stood = std::mem::replace(&mut self.standing, standing);
        before.is_some() != self.conflict.is_some() || stood != standing
    }

    pub(super) fn generation(&self) -> i64 {
        self.seen.metadata.generation.unwrap_or_default()
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.gone || self.seen.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn has_finalizer(&self) -> bool {
        self.seen.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
    }

    pub(super) fn last_status(&self) -> LeaderElectionStatus {
        self.seen.status.clone().unwrap_or_default()
    }

    /// A lock of this election that this lictor wrote.
    pub(super) fn held_lock<'a>(&self, locks: &'a Locks, operator_id: &str) -> Option<&'a Key> {
        let controller = |operator_id: &'_ str| operator_id.split('#').next().map(str::to_owned);
        let own = |stored: &Stored| {
            stored.written().is_some_and(|record| controller(&record.operator_id) == controller(operator_id))
        };
        locks.of(&self.id.uid).find(|(_, stored)| own(stored)).map(|(key, _)| key)
    }

    /// Whether something of the election may be left: on pods, in its locks, or in its own object.
    pub(super) fn may_have_left(&self, locks: &Locks, operator_id: &str) -> bool {
        self.has_finalizer()
            || self.gone
            || self.held_lock(locks, operator_id).is_some()
            || self.spec().is_some_and(|spec| spec.key.store == StoreId::leases())
    }

    /// The term in the status.
    pub(super) fn status_term(&self) -> Term {
        let term = self.seen.status.as_ref().and_then(|status| status.term).unwrap_or_default();
        Term(term.max(0))
    }

    /// The Deployment that must be available before this cluster may lead.
    pub(super) fn available_deployment(&self) -> Option<&str> {
        self.spec()?.cluster.as_ref()?.available.as_deref()
    }

    /// The record in the lock that the spec names.
    pub(super) fn record<'a>(&self, locks: &'a Locks) -> Option<&'a Record> {
        locks.get(&self.spec()?.key).and_then(|(_, lock)| lock.written())
    }

    /// The pods that the election has to do with.
    /// `noted`: the scopes on pods that the object notes as written (H16).
    pub(super) fn concern<'a>(&'a self, locks: &'a Locks, noted: &'a [Scope]) -> Concern<'a> {
        let selector = self.spec().map(|spec| &spec.scope.selector);
        let noted = (self.spec().is_none() || self.shares_lock()).then_some(noted);
        Concern { election: self.name(), selector, record: self.record(locks), noted }
    }

    /// Whether other programs can write the record in the lock.
    pub(super) fn shares_lock(&self) -> bool {
        self.spec().is_some_and(|spec| spec.key.store != StoreId::leases())
    }

    /// The lock to work with: the spec's, or without a valid spec the held one.
    pub(super) fn key(&self, held: Option<Key>) -> Key {
        match (&self.conflict, self.spec()) {
            // An election never reads a lock that belongs to another election.
            (Some(conflict), _) if conflict.reason == "KeyTaken" => Key::none(),
            (_, Some(spec)) => spec.key.clone(),
            (_, None) => {
                let found = held.or_else(|| self.found.clone());
                found.unwrap_or_else(|| Key::lease(&*self.id.election.namespace, self.name()))
            }
        }
    }

    /// Since when the election has been accepted, if its status says that its present spec was.
    pub(super) fn accepted_since(&self) -> Option<Timestamp> {
        let mut conditions = self.seen.status.iter().flat_map(|status| &status.conditions);
        let accepts = |condition: &&Condition| {
            condition.type_ == ACCEPTED
                && condition.status == "True"
                && condition.observed_generation == Some(self.generation())
        };
        conditions.find(accepts).map(|condition| condition.last_transition_time.0)
    }

    /// The age; the lower is the older. Both times come from the same API server. If they are in the same second, the names decide.
    pub(super) fn age(&self) -> impl Ord + use<> {
        (self.seen.metadata.creation_timestamp.as_ref().map(|time| time.0), self.id.election.clone())
    }
}

/// The leader's name: that of its pod, or of the cluster that leads.
pub(super) fn holder_name(object: &ElectionObject, holder: &Holder) -> String {
    let cluster = || object.spec().and_then(|spec| spec.cluster_name()).map(str::to_owned);
    holder.pod.clone().or_else(cluster).unwrap_or_default()
}

/// The same in a sentence.
pub(super) fn told_holder(object: &ElectionObject, holder: &Holder) -> String {
    let name = holder_name(object, holder);
    if holder.pod.is_some() { name } else { format!("the cluster {name}") }
}
