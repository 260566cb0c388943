//! What the loop knows of one election.

mod probing;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lictor_core::{
    Concern, Election, Instant, Members, Membership, OpId, Pod, PodCache, Record, Replica, Term, Uid, Version,
};

pub(super) use self::probing::{Prober, probe_client};
use super::consul::Registered;
use super::executor::{Grant, Permit};
use super::names::ElectionId;
use super::workload_watches::Followed;
use crate::api::{Claims, FINALIZER, LeaderElection, LeaderElectionStatus, Refusal, Resolved};

/// One election.
pub(super) struct Entry {
    pub(super) id: ElectionId,
    pub(super) version: Version,
    pub(super) object: LeaderElection,
    /// `None`: another lictor serves it.
    pub(super) resolved: Option<Result<Resolved, Refusal>>,
    pub(super) members: Members,
    /// It is refused because an older election has the same pods or the same lock.
    pub(super) conflict: Option<Refusal>,
    /// Its decisions.
    pub(super) replica: Replica,
    /// Requests that can be taken back. They are, when they are not wanted any more.
    pub(super) grants: BTreeMap<OpId, Grant>,
    pub(super) prober: Option<Prober>,
    pub(super) probe_failed: Option<Uid>,
    /// Pods with a defective annotation that was told already.
    pub(super) told_defects: BTreeSet<Uid>,
    pub(super) figures: Figures,
    pub(super) writes: OwnWrites,
    /// The history, the newest first; the object's own until this process adds to it.
    pub(super) history: Option<Vec<crate::api::HistoryEntry>>,
    pub(super) wake: Option<Instant>,
    pub(super) registered: Registered,
    /// The workloads that it has changed, as its object says.
    pub(super) claims: Claims,
    /// What was known of its workloads when it took its last step.
    pub(super) followed: Followed,
}

/// Numbers that only this process keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) transitions: u64,
    pub(super) label_drift: u64,
}

/// The writes of an election's own object: one at a time.
#[derive(Default)]
pub(super) struct OwnWrites {
    under_way: Option<OwnWrite>,
    begun: u64,
    pub(super) status: Retry,
    /// Of the finalizer, and of what is noted of workloads.
    pub(super) metadata: Retry,
}

struct OwnWrite {
    number: u64,
    /// `None`: of the metadata.
    status: Option<Grant>,
}

/// When a write may be tried again.
#[derive(Default)]
pub(super) struct Retry {
    pub(super) not_before: Instant,
    pub(super) failures: u32,
    /// Whether it was told what keeps it from succeeding.
    told: bool,
}

impl OwnWrites {
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Begins a write of the status; returns its number.
    pub(super) fn begin_status(&mut self) -> (u64, Permit) {
        let (grant, permit) = Grant::new();
        (self.begin(Some(grant)), permit)
    }

    /// Begins a write of the metadata; returns its number.
    pub(super) fn begin_metadata(&mut self) -> u64 {
        self.begin(None)
    }

    fn begin(&mut self, status: Option<Grant>) -> u64 {
        self.begun += 1;
        self.under_way = Some(OwnWrite { number: self.begun, status });
        self.begun
    }

    /// Whether the metadata may be written now. A write of the status that only waits for its turn is taken back for it.
    pub(super) fn may_write_metadata(&mut self, now: Instant) -> bool {
        if now < self.metadata.not_before {
            return false;
        }
        let waits = |write: &OwnWrite| write.status.as_ref().is_some_and(Grant::take_back);
        if self.under_way.as_ref().is_some_and(waits) {
            self.under_way = None;
        }
        self.under_way.is_none()
    }

    /// A write has ended; returns what is known of its kind, unless it was taken back.
    pub(super) fn end(&mut self, number: u64) -> Option<&mut Retry> {
        let write = self.under_way.take_if(|write| write.number == number)?;
        Some(if write.status.is_some() { &mut self.status } else { &mut self.metadata })
    }
}

impl Retry {
    pub(super) fn succeeded(&mut self) {
        (self.failures, self.told) = (0, false);
    }

    /// The election had changed: the watch is about to show it.
    pub(super) fn conflicted(&mut self, now: Instant) {
        self.not_before = now + Duration::from_millis(200);
    }

    /// Returns whether that is to be told.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        self.not_before = now + Duration::from_millis(500) * (1 << self.failures.min(5));
        self.failures += 1;
        !std::mem::replace(&mut self.told, true)
    }
}

impl Entry {
    pub(super) fn new(id: ElectionId, version: Version, object: LeaderElection, operator_id: &str) -> Self {
        Self {
            replica: Replica::new(id.election.name.clone(), id.uid.clone(), operator_id.into()),
            grants: BTreeMap::new(),
            id,
            version,
            claims: Claims::of(object.metadata.annotations.as_ref()),
            followed: Followed::default(),
            object,
            resolved: None,
            members: Members::default(),
            conflict: None,
            prober: None,
            probe_failed: None,
            told_defects: BTreeSet::new(),
            figures: Figures::default(),
            writes: OwnWrites::default(),
            history: None,
            wake: None,
            registered: Registered::default(),
        }
    }

    /// The valid spec, if it is served here.
    pub(super) fn spec(&self) -> Option<&Resolved> {
        self.resolved.as_ref()?.as_ref().ok()
    }

    /// Its decisions, while this replica makes any.
    pub(super) fn election(&self) -> Option<&Election> {
        self.replica.election()
    }

    /// Takes back the requests that are not wanted any more.
    pub(super) fn take_back_requests(&mut self) {
        self.grants.retain(|op, _| self.replica.wants(*op));
    }

    /// Forgets all decisions, and takes back what they asked for.
    pub(super) fn forget_decisions(&mut self) {
        self.replica.forget();
        self.grants.clear();
    }

    pub(super) fn generation(&self) -> i64 {
        self.object.metadata.generation.unwrap_or_default()
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn has_finalizer(&self) -> bool {
        self.object.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
    }

    pub(super) fn last_status(&self) -> LeaderElectionStatus {
        self.object.status.clone().unwrap_or_default()
    }

    /// Takes a pod that is new or has changed. `record`: that of the lock.
    pub(super) fn put_member(&mut self, pod: &Pod, record: Option<&Record>) -> Membership {
        let selector =
            self.resolved.as_ref().and_then(|resolved| resolved.as_ref().ok()).map(|spec| &spec.scope.selector);
        self.members.put(pod, &Concern { election: &self.id.election.name, selector, record })
    }

    /// Looks through all pods. `records`: of all its locks.
    pub(super) fn gather_members<'a>(
        &'a mut self,
        pods: &PodCache,
        record: Option<&'a Record>,
        records: impl Iterator<Item = &'a Record>,
    ) -> Vec<(String, bool)> {
        let selector =
            self.resolved.as_ref().and_then(|resolved| resolved.as_ref().ok()).map(|spec| &spec.scope.selector);
        self.members.gather(pods, &Concern { election: &self.id.election.name, selector, record }, records)
    }
}

/// The term that an election's status names.
pub(super) fn status_term(election: &LeaderElection) -> Term {
    let term = election.status.as_ref().and_then(|status| status.term).unwrap_or_default();
    Term(term.max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::after_origin(Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_status_that_waits_for_its_turn_makes_way_for_the_metadata() {
        let mut writes = OwnWrites::default();
        let (status, permit) = writes.begin_status();
        assert!(writes.may_write_metadata(at(0)));
        assert!(!permit.begin(), "it is taken back");
        let metadata = writes.begin_metadata();
        assert!(writes.end(status).is_none(), "what is told of it later, is of no concern");
        assert!(writes.is_under_way() && !writes.may_write_metadata(at(0)), "there is one at a time");
        assert!(writes.end(metadata).is_some() && !writes.is_under_way());
    }

    #[test]
    fn a_status_that_is_being_written_is_awaited() {
        let mut writes = OwnWrites::default();
        let (status, permit) = writes.begin_status();
        assert!(permit.begin());
        assert!(!writes.may_write_metadata(at(0)));
        assert!(writes.end(status).is_some());
        assert!(writes.may_write_metadata(at(0)));
    }

    #[test]
    fn a_status_that_is_refused_does_not_hold_up_the_metadata() {
        let mut writes = OwnWrites::default();
        let (status, _permit) = writes.begin_status();
        assert!(writes.end(status).unwrap().failed(at(0)), "it is told once");
        assert!(writes.may_write_metadata(at(0)));
        assert_eq!(writes.status.not_before, at(500));
    }
}
