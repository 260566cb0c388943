//! The requests of an election, and their outcomes.
//!
//! Commands are in the imperative. Each is sent once, under a number ([`OpId`](super::OpId)) under which its [`Outcome`] comes back. An
//! outcome that is not known is [`Unknown`](Failure::Unknown), and counts neither as a failure nor as a success.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{
    Bid, ELECTION_ANNOTATION, Holder, Key, NotEligible, OpId, PlacedBid, Pod, PodPatch, ProbeFailure, Record, Rival,
    Selector, Slice, SliceContent, Stored, Term, Uid, Version, WorkloadClaim, WorkloadId, WriteWorkload,
};

/// An action on the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read the record from its store, past every cache.
    ReadRecord {
        /// The record's key.
        key: Key,
    },
    /// Write the record if it still has the expected version, or, with `None`, if there is none.
    WriteRecord {
        /// The record's key.
        key: Key,
        /// The version that was read.
        expected: Option<Version>,
        /// The record to write.
        record: Box<Record>,
    },
    /// Let go of a lock that names no leader, if its record still has this version.
    ReleaseRecord {
        /// The lock's key.
        key: Key,
        /// The version that was read.
        version: Version,
    },
    /// C11: hand a lock that names no leader to another cluster, if its record still has this version, and the bid its own.
    GiveRecord {
        /// The lock's key.
        key: Key,
        /// The version that was read.
        version: Version,
        /// The bid of the cluster that gets the lock. The transaction deletes it.
        to: Box<PlacedBid>,
        /// The record of the lock from then on.
        record: Box<Record>,
    },
    /// C12: write this cluster's bid for a lock that another cluster holds.
    WriteBid {
        /// The lock's key.
        key: Key,
        /// The bid's content.
        bid: Box<Bid>,
    },
    /// Remove a bid that no operator waits for any more, if it still has this version.
    RemoveBid {
        /// The lock's key.
        key: Key,
        /// The cluster whose bid it is.
        cluster: String,
        /// The version that was read.
        version: Version,
    },
    /// Delete the record if it still has this version.
    DeleteRecord {
        /// The record's key.
        key: Key,
        /// The version that was read.
        version: Version,
    },
    /// Read the election from the API server, past every cache.
    ReadElection,
    /// List the locks of the election under all keys, past every cache.
    ListLocks,
    /// List pods, past every cache.
    ListPods {
        /// The selectors of these pods: any of them may match.
        selectors: Vec<Selector>,
        /// The selectors of pods to list afterwards, if those also carry the election's mark: such pods lead, though they may have been
        /// taken out of the group.
        leaders: Vec<Selector>,
    },
    /// Read one pod, past every cache.
    ReadPod {
        /// The pod's name.
        name: String,
    },
    /// Patch one pod.
    WritePod(WritePod),
    /// Read one slice, past every cache.
    ReadSlice {
        /// The slice's name.
        name: String,
    },
    /// Create, change or delete one slice.
    WriteSlice(WriteSlice),
    /// Enable, disable or give back a workload.
    WriteWorkload(WriteWorkload),
    /// Read workloads, and their pods and Jobs that run, past every cache.
    ReadWorkloads {
        /// The workloads.
        workloads: Vec<WorkloadId>,
    },
    /// Delete the running Jobs of a CronJob.
    DeleteRunning {
        /// The CronJob.
        id: WorkloadId,
        /// The CronJob's uid.
        uid: Uid,
    },
    /// Delete a Job, and its pods, if it still has this uid.
    DeleteJob {
        /// The Job.
        id: WorkloadId,
        /// The precondition.
        uid: Uid,
    },
    /// Create a Job from a template, suspended.
    CreateJob {
        /// The template's name.
        plan: String,
        /// The Job.
        id: WorkloadId,
        /// The claim that is written on the Job.
        claim: WorkloadClaim,
    },
    /// Note that the Job of a term was created.
    NoteJob {
        /// The template's name.
        plan: String,
        /// The term.
        term: Term,
    },
}

impl Command {
    /// Whether the command makes a pod or a workload lead here. Such a command must not be sent without the lock.
    pub fn promotes(&self) -> bool {
        match self {
            Self::WritePod(write) => write.change == PodChange::Promote,
            Self::WriteSlice(write) => write.shows(),
            Self::WriteWorkload(write) => write.enables(),
            Self::CreateJob { .. } => true,
            _ => false,
        }
    }

    /// Whether the command lists a pod, for the election of this name.
    pub fn lists(&self, pod: &Pod, election: &str) -> bool {
        let Self::ListPods { selectors, leaders } = self else { return false };
        let is_marked = pod.annotations.get(ELECTION_ANNOTATION) == Some(election);
        let matches = |all: &[Selector]| all.iter().any(|selector| selector.matches(&pod.labels));
        matches(selectors) || (is_marked && matches(leaders))
    }

    /// The outcome of the command if it came to no result.
    pub fn failed(&self, failure: Failure) -> Outcome {
        match self {
            Self::ReadRecord { .. } => Outcome::RecordRead(Err(failure)),
            Self::WriteRecord { .. }
            | Self::ReleaseRecord { .. }
            | Self::GiveRecord { .. }
            | Self::DeleteRecord { .. } => Outcome::RecordWritten(RecordOutcome::Failed(failure)),
            Self::WriteBid { .. } | Self::RemoveBid { .. } => Outcome::BidWritten(RecordOutcome::Failed(failure)),
            Self::ReadElection => Outcome::ElectionRead(Err(failure)),
            Self::ListLocks => Outcome::LocksListed(Err(failure)),
            Self::ListPods { .. } => Outcome::PodsListed(Err(failure)),
            Self::ReadPod { .. } => Outcome::PodRead(Err(failure)),
            Self::WritePod(_) => Outcome::PodWritten(PodOutcome::Failed(failure)),
            Self::ReadSlice { .. } => Outcome::SliceRead(Err(failure)),
            Self::WriteSlice(_) => Outcome::SliceWritten(SliceOutcome::Failed(failure)),
            Self::ReadWorkloads { .. } => Outcome::WorkloadsRead(Err(failure)),
            Self::WriteWorkload(_)
            | Self::DeleteRunning { .. }
            | Self::DeleteJob { .. }
            | Self::CreateJob { .. }
            | Self::NoteJob { .. } => Outcome::WorkloadWritten(WorkloadOutcome::Failed(failure)),
        }
    }
}

/// A patch of a pod, valid for this uid and this version only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePod {
    /// The meaning of the patch.
    pub change: PodChange,
    /// The pod's name.
    pub name: String,
    /// A precondition.
    pub uid: Uid,
    /// A precondition.
    pub version: Version,
    /// The content of the patch.
    pub patch: PodPatch,
}

impl WritePod {
    /// A patch of a pod as it was seen.
    pub(super) fn new(change: PodChange, pod: &Pod, patch: PodPatch) -> Self {
        Self { change, name: pod.name.clone(), uid: pod.uid.clone(), version: pod.version, patch }
    }
}

/// A change of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteSlice {
    /// Create the slice, if there is none of its name. It names no leader yet, so a late request does no harm.
    Create {
        /// The slice's name.
        name: String,
        /// The slice's content.
        content: SliceContent,
    },
    /// Replace the slice's content, if it still has this uid and this version.
    Replace {
        /// The slice's name.
        name: String,
        /// A precondition.
        uid: Uid,
        /// A precondition.
        version: Version,
        /// The slice's content from then on.
        content: SliceContent,
        /// The writer and the number of the write, so that the slice gets a new version even if its content stays the same.
        stamp: (String, OpId),
    },
    /// Delete the slice, if it still has this uid and this version.
    Delete {
        /// The slice's name.
        name: String,
        /// A precondition.
        uid: Uid,
        /// A precondition.
        version: Version,
    },
}

impl WriteSlice {
    /// The slice's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Create { name, .. } | Self::Replace { name, .. } | Self::Delete { name, .. } => name,
        }
    }

    /// Whether the slice shows a leader after this write.
    pub fn shows(&self) -> bool {
        matches!(self, Self::Replace { content, .. } if content.shows())
    }
}

/// The meaning of a patch of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodChange {
    /// The pod becomes the leader.
    Promote,
    /// The pod becomes a follower, or is stamped with a new term as one.
    Demote,
    /// All of lictor's marks are taken off the pod.
    Remove,
    /// The leader's finalizer is taken off the pod, whose end is known.
    Release,
    /// The pod, which led before, is deleted. Nothing is patched.
    Delete,
    /// The same, unless a `PodDisruptionBudget` speaks against it.
    Evict,
}

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Of `ReadRecord`.
    RecordRead(Result<Stored, Failure>),
    /// Of `WriteRecord`, `ReleaseRecord`, `GiveRecord` and `DeleteRecord`.
    RecordWritten(RecordOutcome),
    /// Of `WriteBid` and `RemoveBid`.
    BidWritten(RecordOutcome),
    /// Of `ReadElection`.
    ElectionRead(Result<ElectionRead, Failure>),
    /// Of `ListLocks`.
    LocksListed(Result<Vec<(Key, Stored)>, Failure>),
    /// Of `ListPods`.
    PodsListed(Result<Vec<Pod>, Failure>),
    /// Of `ReadPod`, or `None` if there is no pod of this name.
    PodRead(Result<Option<Pod>, Failure>),
    /// Of `WritePod`.
    PodWritten(PodOutcome),
    /// Of `ReadSlice`, or `None` if there is no slice of this name.
    SliceRead(Result<Option<Slice>, Failure>),
    /// Of `WriteSlice`.
    SliceWritten(SliceOutcome),
    /// Of `ReadWorkloads`: their pods. The view shows the workloads and their Jobs before this outcome comes.
    WorkloadsRead(Result<Vec<Pod>, Failure>),
    /// Of every write to a workload. The view shows the new state before this outcome comes.
    WorkloadWritten(WorkloadOutcome),
}

impl Outcome {
    /// The pods that the outcome shows as they are now. The caller must note them before it takes the outcome.
    pub fn pods(&self) -> Vec<&Pod> {
        match self {
            Self::PodWritten(PodOutcome::Written(pod)) => vec![pod],
            Self::PodRead(Ok(Some(pod))) => vec![pod],
            Self::PodsListed(Ok(pods)) | Self::WorkloadsRead(Ok(pods)) => pods.iter().collect(),
            _ => Vec::new(),
        }
    }
}

/// The outcome of a write to a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkloadOutcome {
    /// The write is carried out.
    Done,
    /// The workload had another version.
    Conflict,
    /// The workload of that uid is gone.
    Gone,
    /// Any other failure.
    Failed(Failure),
}

/// The outcome of a write of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// The record is written, with this version; a deletion has the version that it deleted.
    Written(Version),
    /// The record had another version.
    Conflict,
    /// The store keeps a lost lock from every cluster for a while, and does not tell when that ends.
    Delayed,
    /// Any other failure.
    Failed(Failure),
}

/// The outcome of a write of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome<T> {
    /// The object as it is after the write.
    Written(Box<T>),
    /// The object had another version, or was to be created and exists already.
    Conflict,
    /// The object of that uid is gone.
    Gone,
    /// Any other failure.
    Failed(Failure),
}

/// The outcome of a write of a pod.
pub type PodOutcome = WriteOutcome<Pod>;

/// The outcome of a write of a slice.
pub type SliceOutcome = WriteOutcome<Slice>;

/// Why a command did not come to a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server refused, and did nothing.
    Refused(String),
    /// The server refused because a right is missing. As long as no administrator grants it, the answer stays the same.
    Forbidden(String),
    /// The server may have carried out the request, may not have, or may still do so later.
    Unknown(String),
    /// The server accepted the request, and keeps something else than what was written, because a policy or a webhook changes it.
    Rewritten(String),
}

impl Failure {
    /// The description of the failure, for a person.
    pub fn text(&self) -> &str {
        match self {
            Self::Refused(text) | Self::Forbidden(text) | Self::Unknown(text) | Self::Rewritten(text) => text,
        }
    }

    /// The description of a failure that is no longer needed.
    pub fn into_text(self) -> String {
        match self {
            Self::Refused(text) | Self::Forbidden(text) | Self::Unknown(text) | Self::Rewritten(text) => text,
        }
    }

    /// Whether the server surely did nothing.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Forbidden(_))
    }

    /// Whether the reason is a missing right.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Forbidden(_))
    }
}

/// The election, as the API server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionRead {
    /// There is no election of that name.
    Gone,
    /// There is an election of that name.
    Present {
        /// The election's uid.
        uid: Uid,
        /// The election's generation.
        generation: i64,
    },
}

impl ElectionRead {
    /// The generation of the election with this uid, or the highest possible one if that election is gone.
    pub(super) fn generation_of(&self, election: &Uid) -> i64 {
        match self {
            Self::Present { uid, generation } if uid == election => *generation,
            Self::Present { .. } | Self::Gone => i64::MAX,
        }
    }
}

/// News for a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// The leader changed, and the change is complete.
    Transition(Transition),
    /// Another program changed the labels of a pod, and the operator has corrected them.
    LabelDrift {
        /// The pod.
        pod: String,
        /// The uid of the pod.
        uid: Uid,
    },
    /// The operator can't write the labels of a pod. It tries again, and prefers other pods.
    LabelsRefused {
        /// The pod.
        pod: String,
        /// The uid of the pod.
        uid: Uid,
        /// The API server's answer, or the value that it keeps instead.
        why: String,
    },
    /// The operator can't take the labels of a withdrawn election off a pod, so they stay.
    LabelsLeft {
        /// The pod.
        pod: String,
        /// The uid of the pod.
        uid: Uid,
        /// The API server's answer, or the value that it keeps instead.
        why: String,
    },
    /// Another holder has the lock.
    LedElsewhere(Rival),
    /// E2: a pod that led before is deleted.
    FormerLeaderDeleted {
        /// The pod.
        pod: String,
        /// The uid of the pod.
        uid: Uid,
    },
    /// E2: a pod that led before can't be deleted. The operator tries again.
    FormerLeaderStays {
        /// The pod.
        pod: String,
        /// The uid of the pod.
        uid: Uid,
        /// The API server's answer.
        why: String,
    },
    /// W12: the leading cluster wanted to hand over the lock, and continues to lead, because so many pods or Jobs of these workloads had
    /// not ended.
    NotHandedOver {
        /// The leading cluster.
        cluster: String,
        /// The workloads.
        remains: BTreeMap<String, u32>,
    },
    /// A workload was changed.
    Workload(WorkloadId, WorkloadChange),
    /// Another program changed or deleted the lock.
    LockChanged {
        /// The operator's finding.
        what: &'static str,
    },
}

/// A change of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadChange {
    /// The workload runs.
    Enabled,
    /// The workload is kept from running.
    Disabled,
    /// The workload is given back.
    Released,
    /// Another program changed the workload, and the operator has corrected it.
    Contested,
    /// The workload's running Jobs were deleted.
    RunningDeleted,
    /// A Job of an earlier term was deleted.
    Deleted,
    /// The Job of a term was created.
    Created,
    /// The creation was noted.
    Noted,
}

/// One change of leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The term that began, or the last one if there is no leader now.
    pub term: Term,
    /// The new leader.
    pub leader: Option<Holder>,
    /// The leader before, if it was another pod.
    pub previous: Option<Holder>,
    /// Why the leader changed.
    pub reason: Reason,
    /// The time from the moment at which the operator saw the cause to the confirmed label.
    pub took: Duration,
}

/// Why a leader changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The group had no leader.
    Vacant,
    /// The leader's pod is gone.
    LeaderGone,
    /// The leader may not continue.
    LeaderUnfit(NotEligible),
    /// The operator can't label the pod that was to lead.
    NotLabelled,
    /// The leader failed its probe.
    ProbeFailed(ProbeFailure),
    /// A pod with a higher priority took over.
    Preempted,
    /// The leader's node is cordoned, or about to be removed.
    NodeCordoned,
    /// A user asked for the change, by a Switchover.
    SwitchedOver,
    /// The candidates have elected the leader themselves: it holds their lock.
    CandidatesElected,
    /// The leader no longer holds the candidates' lock, and no other pod that may lead holds it.
    CandidatesReleased,
    /// A user changed the spec.
    SpecChanged,
    /// Another program deleted or edited the lock; the leader stays.
    LockRestored,
    /// An earlier operator left a handover incomplete, or a label was changed while no operator was running.
    Resumed,
    /// The cluster lost the lock: the store let go of it, or its session has ended.
    LockLost,
    /// Another holder took the lock.
    LockTaken,
    /// The operator could not reach the store in time.
    StoreLost,
    /// The store was put back to an earlier state.
    StoreRewound,
    /// This operator stops, and leaves the lock to others.
    Leaving,
}

impl Reason {
    /// The reason as one word, for Events, the status and metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Vacant => "Vacant",
            Self::LeaderGone => "LeaderGone",
            Self::LeaderUnfit(why) => match why {
                NotEligible::Finished => "LeaderFinished",
                NotEligible::Deleting => "LeaderDeleted",
                NotEligible::Disrupted => "LeaderDisrupted",
                NotEligible::NeverLeader => "LeaderExcluded",
                NotEligible::NotSelected => "LeaderNotSelected",
                NotEligible::NodeLost => "NodeLost",
                NotEligible::NotReady => "LeaderNotReady",
                NotEligible::ConditionNotTrue(_) => "ConditionNotTrue",
                NotEligible::Unavailable => "Unavailable",
                NotEligible::NotScheduled | NotEligible::NodeCordoned | NotEligible::ReadyTooShortly(_) => {
                    "LeaderUnfit"
                }
            },
            Self::NotLabelled => "LeaderNotLabelled",
            Self::ProbeFailed(ProbeFailure::NoAnswer) => "ProbeFailed",
            Self::ProbeFailed(ProbeFailure::ProcessGone(_)) => "ProcessGone",
            Self::Preempted => "Preempted",
            Self::NodeCordoned => "NodeCordoned",
            Self::SwitchedOver => "SwitchedOver",
            Self::CandidatesElected => "CandidatesElected",
            Self::CandidatesReleased => "CandidatesReleased",
            Self::SpecChanged => "SpecChanged",
            Self::LockRestored => "LockRestored",
            Self::Resumed => "Resumed",
            Self::LockLost => "LockLost",
            Self::LockTaken => "LockTaken",
            Self::StoreLost => "StoreLost",
            Self::StoreRewound => "StoreRewound",
            Self::Leaving => "Leaving",
        }
    }
}
