//! What the loop knows of one election.

use std::collections::BTreeSet;

use crate::api::{Claims, FINALIZER, LeaderElection, LeaderElectionStatus, Refusal, Resolved};
use crate::core::{ELECTION_ANNOTATION, Election, Instant, Key, Pod, Record, Selector, Term, Uid, Version};
use crate::store::Registration;

use super::input::ElectionId;
use super::probe::Prober;
use super::workloads::Followed;

/// One election.
pub(super) struct Entry {
    pub(super) id: ElectionId,
    pub(super) version: Version,
    pub(super) object: LeaderElection,
    /// `None`: another lictor serves it.
    pub(super) resolved: Option<Result<Resolved, Refusal>>,
    /// Pods that it may have to write to, by name.
    pub(super) members: BTreeSet<String>,
    /// Those that its present selector matches.
    pub(super) selected: BTreeSet<String>,
    /// The earlier selectors that `members` takes into account.
    pub(super) earlier: Vec<Selector>,
    /// It is refused because an older election has the same pods or the same lock.
    pub(super) conflict: Option<Refusal>,
    /// Its decisions, and the lock that they are about; only while this replica acts.
    pub(super) group: Option<(Key, Election)>,
    /// The term that it had come to when the API server's store was put back to an earlier state.
    pub(super) reached: Term,
    pub(super) prober: Option<Prober>,
    pub(super) probe_failed: Option<Uid>,
    /// Pods with a defective annotation that was told already.
    pub(super) told_defects: BTreeSet<Uid>,
    pub(super) figures: Figures,
    pub(super) status: StatusWrites,
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
pub(super) struct StatusWrites {
    pub(super) in_flight: bool,
    pub(super) not_before: Instant,
    pub(super) failures: u32,
    /// The history, the newest first; the object's own until this process adds to it.
    pub(super) history: Option<Vec<crate::api::HistoryEntry>>,
    /// What kept the last write from succeeding.
    pub(super) told: bool,
}

/// What is known of an election's entry in its store's own directory; see [`registration`](super::registration).
#[derive(Default)]
pub(super) struct Registered {
    /// What was written last.
    pub(super) known: Option<Registration>,
    pub(super) in_flight: bool,
    pub(super) not_before: Instant,
    pub(super) failures: u32,
    /// Whether it was told what keeps it from being written.
    pub(super) told: bool,
}

impl Entry {
    pub(super) fn new(id: ElectionId, version: Version, object: LeaderElection) -> Self {
        Self {
            id,
            version,
            claims: Claims::of(object.metadata.annotations.as_ref()),
            followed: Followed::default(),
            object,
            resolved: None,
            members: BTreeSet::new(),
            selected: BTreeSet::new(),
            earlier: Vec::new(),
            conflict: None,
            group: None,
            reached: Term::default(),
            prober: None,
            probe_failed: None,
            told_defects: BTreeSet::new(),
            figures: Figures::default(),
            status: StatusWrites::default(),
            wake: None,
            registered: Registered::default(),
        }
    }

    /// The valid spec, if it is served here.
    pub(super) fn spec(&self) -> Option<&Resolved> {
        self.resolved.as_ref()?.as_ref().ok()
    }

    pub(super) fn group(&self) -> Option<&Election> {
        self.group.as_ref().map(|(_, group)| group)
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

    /// Whether the present selector matches a pod.
    pub(super) fn selects(&self, pod: &Pod) -> bool {
        self.spec().is_some_and(|spec| spec.scope.selector.matches(&pod.labels))
    }

    /// Whether a pod may have to be written to.
    pub(super) fn concerns(&self, pod: &Pod, record: Option<&Record>) -> bool {
        self.selects(pod)
            || pod.annotations.get(ELECTION_ANNOTATION) == Some(&self.id.name)
            || self.earlier.iter().any(|selector| selector.matches(&pod.labels))
            || record.and_then(|record| record.holder.as_ref()).is_some_and(|holder| holder.uid == pod.uid)
    }
}

/// The term that an election's status names.
pub(super) fn status_term(election: &LeaderElection) -> Term {
    let term = election.status.as_ref().and_then(|status| status.term).unwrap_or_default();
    Term(term.max(0))
}
