//! The election itself: its object as it was seen last, what its user wants, and whether it is accepted.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use lictor_core::{Concern, Holder, Key, Locks, Record, Scope, StoreId, Stored, Term, Version};

use super::names::{ElectionId, ElectionName};
use crate::api::{
    ACCEPTED, BUILT_IN_CLASS, Classes, FINALIZER, LeaderElection, LeaderElectionStatus, Refusal, Resolved, has_default,
    resolve,
};

/// The reason of a refusal: without a leader, the election's workloads would keep its own candidates away.
pub(super) const CIRCULAR_WORKLOADS: &str = "CircularWorkloads";

/// How an election stands among those that want the same; the lower goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Standing {
    /// Whether another election has what it wants: it has marked a pod, written a workload, or holds the lock.
    pub(super) challenges: bool,
    /// Whether its spec, as it is now, was never accepted: it is new, or was edited.
    pub(super) unaccepted: bool,
    /// Since when it has been accepted without a break: pods that both want may all be gone for a moment.
    pub(super) since: Option<Timestamp>,
}

/// An election as its object tells of it.
pub(super) struct ElectionObject {
    id: ElectionId,
    version: Version,
    seen: Arc<LeaderElection>,
    /// `None`: another lictor serves it.
    resolved: Option<Result<Arc<Resolved>, Refusal>>,
    /// The class that serves it was deleted: what was last known of it counts.
    class_is_gone: bool,
    /// It is refused because another election goes before it.
    conflict: Option<Refusal>,
    /// How it stood when that was found out.
    standing: Standing,
    /// There is no such election any more. It had no finalizer, and what it left behind is being removed.
    gone: bool,
    /// The lock by which it was found, if only that is known of it.
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

    /// Its name, and that of its namespace.
    pub(super) fn election(&self) -> &ElectionName {
        &self.id.election
    }

    /// Its name, without that of its namespace.
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

    /// Takes the object as it is now. Returns whether it has to be resolved again.
    pub(super) fn renew(&mut self, version: Version, seen: LeaderElection) -> bool {
        let was_deleted = self.is_deleted();
        let before = std::mem::replace(&mut self.seen, Arc::new(seen));
        self.version = version;
        before.spec != self.seen.spec || was_deleted != self.is_deleted()
    }

    /// Versions have begun anew.
    pub(super) fn forget_version(&mut self) {
        self.version = Version::default();
    }

    /// There is no such election any more. `found`: the lock by which that was seen.
    pub(super) fn depart(&mut self, found: Option<Key>) {
        (self.gone, self.found) = (true, found);
    }

    /// Whether there is no such election any more.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Reads what its user wants. What an election that is gone wanted last, stays.
    /// `departed`: classes that were deleted, as they were last seen. Such a class goes on serving the elections that it serves already.
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

    /// Whether its user has named this class, or none where no other one is the default.
    fn may_be_served_by(&self, class: &str, classes: &Classes) -> bool {
        self.seen.spec.class_name.as_deref().map_or_else(|| !has_default(classes), |name| name == class)
    }

    /// Why it is not served by the built-in class, if it was served by another default class that is gone: its lock would move.
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

    /// Whether the class that serves it was deleted.
    pub(super) fn class_is_gone(&self) -> bool {
        self.class_is_gone
    }

    /// Whether this lictor serves its class, as far as the spec can be read.
    pub(super) fn is_served(&self) -> bool {
        self.resolved.is_some()
    }

    /// The valid spec, if it is served here.
    pub(super) fn spec(&self) -> Option<&Arc<Resolved>> {
        self.resolved.as_ref()?.as_ref().ok()
    }

    /// Why it is not accepted.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        match &self.resolved {
            Some(Err(refusal)) => Some(refusal),
            _ => self.conflict.as_ref(),
        }
    }

    /// Why it has to give way to another election.
    pub(super) fn conflict(&self) -> Option<&Refusal> {
        self.conflict.as_ref()
    }

    /// Takes why it has to give way, if it has to, and how it stands. Returns whether others have to be looked at since.
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

    /// Whether something of it may be left: on pods, in its locks, or in its own object.
    pub(super) fn may_have_left(&self, locks: &Locks, operator_id: &str) -> bool {
        self.has_finalizer()
            || self.gone
            || self.held_lock(locks, operator_id).is_some()
            || self.spec().is_some_and(|spec| spec.key.store == StoreId::leases())
    }

    /// The term that its status names.
    pub(super) fn status_term(&self) -> Term {
        let term = self.seen.status.as_ref().and_then(|status| status.term).unwrap_or_default();
        Term(term.max(0))
    }

    /// The Deployment that must be available for this cluster to lead.
    pub(super) fn available_deployment(&self) -> Option<&str> {
        self.spec()?.cluster.as_ref()?.available.as_deref()
    }

    /// What is in the lock that its spec names.
    pub(super) fn record<'a>(&self, locks: &'a Locks) -> Option<&'a Record> {
        locks.get(&self.spec()?.key).and_then(|(_, lock)| lock.written())
    }

    /// Which pods it has to do with.
    /// `noted`: what was noted in the object as written on pods (H16).
    pub(super) fn concern<'a>(&'a self, locks: &'a Locks, noted: &'a [Scope]) -> Concern<'a> {
        let selector = self.spec().map(|spec| &spec.scope.selector);
        let noted = (self.spec().is_none() || self.shares_lock()).then_some(noted);
        Concern { election: self.name(), selector, record: self.record(locks), noted }
    }

    /// Whether others can write its lock's record.
    pub(super) fn shares_lock(&self) -> bool {
        self.spec().is_some_and(|spec| spec.key.store != StoreId::leases())
    }

    /// The lock to work with: that of the spec; without a valid one that which is held.
    pub(super) fn key(&self, held: Option<Key>) -> Key {
        match (&self.conflict, self.spec()) {
            // A lock that belongs to another election is not even looked at.
            (Some(conflict), _) if conflict.reason == "KeyTaken" => Key::none(),
            (_, Some(spec)) => spec.key.clone(),
            (_, None) => {
                let found = held.or_else(|| self.found.clone());
                found.unwrap_or_else(|| Key::lease(&*self.id.election.namespace, self.name()))
            }
        }
    }

    /// Since when it has been accepted, if its spec as it is now was, as far as its status tells.
    pub(super) fn accepted_since(&self) -> Option<Timestamp> {
        let mut conditions = self.seen.status.iter().flat_map(|status| &status.conditions);
        let accepts = |condition: &&Condition| {
            condition.type_ == ACCEPTED
                && condition.status == "True"
                && condition.observed_generation == Some(self.generation())
        };
        conditions.find(accepts).map(|condition| condition.last_transition_time.0)
    }

    /// The lower is the older one. Both times come from the same API server; of two made in the same second, the first by name is older.
    pub(super) fn age(&self) -> impl Ord + use<> {
        (self.seen.metadata.creation_timestamp.as_ref().map(|time| time.0), self.id.election.clone())
    }
}

/// A leader by name: that of its pod, or of the cluster that is the leader itself.
pub(super) fn holder_name(object: &ElectionObject, holder: &Holder) -> String {
    let cluster = || object.spec().and_then(|spec| spec.consul.as_ref()).map(|consul| consul.cluster.clone());
    holder.pod.clone().or_else(cluster).unwrap_or_default()
}

/// The same in a sentence.
pub(super) fn told_holder(object: &ElectionObject, holder: &Holder) -> String {
    let name = holder_name(object, holder);
    if holder.pod.is_some() { name } else { format!("the cluster {name}") }
}
