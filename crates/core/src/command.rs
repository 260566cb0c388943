//! What an election asks for, and what comes back.
//!
//! Commands are in the imperative. Each is sent once, under a number ([`OpId`](super::OpId)) under which its [`Outcome`] comes
//! back. An outcome that is not known is said to be [`Unknown`](Failure::Unknown): never taken for a failure, never for a success.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{
    Bid, ELECTION_ANNOTATION, Holder, Key, NotEligible, OpId, PlacedBid, Pod, PodPatch, ProbeFailure, Record, Rival,
    Selector, Slice, SliceContent, Stored, Term, Uid, Version, WorkloadClaim, WorkloadId, WriteWorkload,
};

/// Something to be done in the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read the record from its store, past every cache.
    ReadRecord {
        /// Which.
        key: Key,
    },
    /// Write the record if it still has the expected version; `None`: if there is none.
    WriteRecord {
        /// Which.
        key: Key,
        /// The version that was read.
        expected: Option<Version>,
        /// What to write.
        record: Box<Record>,
    },
    /// Let go of a lock that names nobody, if its record still has this version.
    ReleaseRecord {
        /// Which.
        key: Key,
        /// The version that was read.
        version: Version,
    },
    /// C11: hand a lock that names nobody to another cluster, if its record still has this version, and the bid its own.
    GiveRecord {
        /// Which.
        key: Key,
        /// The version that was read.
        version: Version,
        /// Who gets it. The bid goes.
        to: Box<PlacedBid>,
        /// What the lock says from then on.
        record: Box<Record>,
    },
    /// C12: write this cluster's bid for a lock that another cluster holds.
    WriteBid {
        /// Which lock.
        key: Key,
        /// What it says.
        bid: Box<Bid>,
    },
    /// Take away a bid that nobody waits for any more, if it still has this version.
    RemoveBid {
        /// Which lock.
        key: Key,
        /// Whose bid.
        cluster: String,
        /// The version that was read.
        version: Version,
    },
    /// Delete the record if it still has this version.
    DeleteRecord {
        /// Which.
        key: Key,
        /// The version that was read.
        version: Version,
    },
    /// Read the election from the API server, past every cache.
    ReadElection,
    /// List the locks of the election, under whatever keys, past every cache.
    ListLocks,
    /// List pods, past every cache.
    ListPods {
        /// Those that any of these matches.
        selectors: Vec<Selector>,
        /// Afterwards those that any of these matches and that carry the mark of the election: pods that lead, though they may have been
        /// taken out of the group.
        leaders: Vec<Selector>,
    },
    /// Read one pod, past every cache.
    ReadPod {
        /// Its name.
        name: String,
    },
    /// Patch one pod.
    WritePod(WritePod),
    /// Read one slice, past every cache.
    ReadSlice {
        /// Its name.
        name: String,
    },
    /// Make, change or delete one slice.
    WriteSlice(WriteSlice),
    /// Enable, disable or give back a workload.
    WriteWorkload(WriteWorkload),
    /// Read workloads and what runs of them, past every cache.
    ReadWorkloads {
        /// Which.
        workloads: Vec<WorkloadId>,
    },
    /// Delete the Jobs of a CronJob that still run.
    DeleteRunning {
        /// The CronJob.
        id: WorkloadId,
        /// Its uid.
        uid: Uid,
    },
    /// Delete a Job, and what runs of it, if it still has this uid.
    DeleteJob {
        /// The Job.
        id: WorkloadId,
        /// Precondition.
        uid: Uid,
    },
    /// Make a Job from a template, suspended.
    CreateJob {
        /// The template's name.
        plan: String,
        /// The Job.
        id: WorkloadId,
        /// What is written on it.
        claim: WorkloadClaim,
    },
    /// Note that the Job of a term was made.
    NoteJob {
        /// The template's name.
        plan: String,
        /// The term.
        term: Term,
    },
}

impl Command {
    /// Whether it makes a pod or a workload lead here: then it must not be sent without the lock.
    pub fn promotes(&self) -> bool {
        match self {
            Self::WritePod(write) => write.change == PodChange::Promote,
            Self::WriteSlice(write) => write.shows(),
            Self::WriteWorkload(write) => write.enables(),
            Self::CreateJob { .. } => true,
            _ => false,
        }
    }

    /// Whether it lists a pod, as a command of the election of this name.
    pub fn lists(&self, pod: &Pod, election: &str) -> bool {
        let Self::ListPods { selectors, leaders } = self else { return false };
        let is_marked = pod.annotations.get(ELECTION_ANNOTATION) == Some(election);
        let matches = |all: &[Selector]| all.iter().any(|selector| selector.matches(&pod.labels));
        matches(selectors) || (is_marked && matches(leaders))
    }

    /// Its outcome where it came to no result.
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
    /// What it means.
    pub change: PodChange,
    /// The pod's name.
    pub name: String,
    /// Precondition.
    pub uid: Uid,
    /// Precondition.
    pub version: Version,
    /// What to write.
    pub patch: PodPatch,
}

impl WritePod {
    /// A patch of a pod as it was seen.
    pub(super) fn new(change: PodChange, pod: &Pod, patch: PodPatch) -> Self {
        Self { change, name: pod.name.clone(), uid: pod.uid.clone(), version: pod.version, patch }
    }
}

/// What is done to a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteSlice {
    /// Make it, if there is none of its name. It names nobody yet: a request that arrives late does no harm.
    Create {
        /// Its name.
        name: String,
        /// What it says.
        content: SliceContent,
    },
    /// Replace what it says, if it still has this uid and this version.
    Replace {
        /// Its name.
        name: String,
        /// Precondition.
        uid: Uid,
        /// Precondition.
        version: Version,
        /// What it says from then on.
        content: SliceContent,
        /// Who writes it, and which write it is: the slice gets a new version, also where its content stays the same.
        stamp: (String, OpId),
    },
    /// Delete it, if it still has this uid and this version.
    Delete {
        /// Its name.
        name: String,
        /// Precondition.
        uid: Uid,
        /// Precondition.
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

    /// Whether somebody is reached by it.
    pub fn shows(&self) -> bool {
        matches!(self, Self::Replace { content, .. } if content.shows())
    }
}

/// What a patch of a pod means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodChange {
    /// It becomes the leader.
    Promote,
    /// It becomes a follower, or is stamped with a new term as one.
    Demote,
    /// All of this project's marks are taken off.
    Remove,
}

/// What became of a command.
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
    /// Of `ReadPod`; `None`: there is no pod of this name.
    PodRead(Result<Option<Pod>, Failure>),
    /// Of `WritePod`.
    PodWritten(PodOutcome),
    /// Of `ReadSlice`; `None`: there is no slice of this name.
    SliceRead(Result<Option<Slice>, Failure>),
    /// Of `WriteSlice`.
    SliceWritten(SliceOutcome),
    /// Of `ReadWorkloads`: their pods. The workloads and their Jobs are shown before this comes.
    WorkloadsRead(Result<Vec<Pod>, Failure>),
    /// Of whatever is done to workloads. What is there afterwards is shown before this comes.
    WorkloadWritten(WorkloadOutcome),
}

impl Outcome {
    /// The pods that it shows as they are now. Whoever takes it, has to know them first.
    pub fn pods(&self) -> Vec<&Pod> {
        match self {
            Self::PodWritten(PodOutcome::Written(pod)) => vec![pod],
            Self::PodRead(Ok(Some(pod))) => vec![pod],
            Self::PodsListed(Ok(pods)) | Self::WorkloadsRead(Ok(pods)) => pods.iter().collect(),
            _ => Vec::new(),
        }
    }
}

/// What became of something that was done to a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkloadOutcome {
    /// It is done.
    Done,
    /// It had another version.
    Conflict,
    /// The workload of that uid is no more.
    Gone,
    /// Anything else.
    Failed(Failure),
}

/// What became of a write of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// It is written, with this version; a deletion has the version that it deleted.
    Written(Version),
    /// It had another version.
    Conflict,
    /// The store keeps a lock that was lost from everybody for a while, and does not tell when that ends.
    Delayed,
    /// Anything else.
    Failed(Failure),
}

/// What became of a write of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodOutcome {
    /// It is written; the pod as it is then.
    Written(Box<Pod>),
    /// It had another version.
    Conflict,
    /// The pod of that uid is no more.
    Gone,
    /// Anything else.
    Failed(Failure),
}

/// What became of a write of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SliceOutcome {
    /// It is written; the slice as it is then.
    Written(Box<Slice>),
    /// It had another version, or there is one of that name already.
    Conflict,
    /// The slice of that uid is no more.
    Gone,
    /// Anything else.
    Failed(Failure),
}

/// Why something did not come to a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server said no, and did nothing.
    Refused(String),
    /// The same, because a right is missing: as long as nobody grants it, the answer stays the same.
    Forbidden(String),
    /// It may have been done, may not have been done, or may still be done later.
    Unknown(String),
    /// The server said yes, and keeps something else than what was written: a policy or a webhook changes it.
    Rewritten(String),
}

impl Failure {
    /// What went wrong, for a person.
    pub fn text(&self) -> &str {
        match self {
            Self::Refused(text) | Self::Forbidden(text) | Self::Unknown(text) | Self::Rewritten(text) => text,
        }
    }

    /// The same, of one that is needed no more.
    pub fn into_text(self) -> String {
        match self {
            Self::Refused(text) | Self::Forbidden(text) | Self::Unknown(text) | Self::Rewritten(text) => text,
        }
    }

    /// Whether the server surely did nothing.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Forbidden(_))
    }

    /// Whether a right is missing.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Forbidden(_))
    }
}

/// The election, as the API server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionRead {
    /// There is none of that name.
    Gone,
    /// There is one.
    Present {
        /// Its uid.
        uid: Uid,
        /// Its generation.
        generation: i64,
    },
}

impl ElectionRead {
    /// The generation of the election with this uid; past all others where it is no more.
    pub(super) fn generation_of(&self, election: &Uid) -> i64 {
        match self {
            Self::Present { uid, generation } if uid == election => *generation,
            Self::Present { .. } | Self::Gone => i64::MAX,
        }
    }
}

/// Something that a user should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// The leader changed, and the change is complete.
    Transition(Transition),
    /// Somebody else changed the labels of a pod, and they are put right.
    LabelDrift {
        /// The pod.
        pod: String,
        /// The uid of the pod.
        uid: Uid,
    },
    /// The labels of a pod can't be written, which is tried again; other pods go before it.
    LabelsRefused {
        /// The pod.
        pod: String,
        /// The uid of the pod.
        uid: Uid,
        /// What the API server said, or what it keeps instead.
        why: String,
    },
    /// The labels of an election that goes can't be taken off a pod, and stay.
    LabelsLeft {
        /// The pod.
        pod: String,
        /// The uid of the pod.
        uid: Uid,
        /// What the API server said, or what it keeps instead.
        why: String,
    },
    /// Somebody else holds the lock.
    LedElsewhere(Rival),
    /// W12: the cluster that leads wanted to hand over the lock, and leads on, because so many pods or Jobs of these workloads had not ended.
    NotHandedOver {
        /// That cluster.
        cluster: String,
        /// The workloads.
        remains: BTreeMap<String, u32>,
    },
    /// Something was done to a workload.
    Workload(WorkloadId, WorkloadChange),
    /// Somebody else changed or deleted the lock.
    LockChanged {
        /// What was found.
        what: &'static str,
    },
}

/// What was done to a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadChange {
    /// It runs.
    Enabled,
    /// It is kept from running.
    Disabled,
    /// It is given back.
    Released,
    /// Somebody else changed it, and it is put right.
    Contested,
    /// Its running Jobs were deleted.
    RunningDeleted,
    /// A Job of an earlier term was deleted.
    Deleted,
    /// The Job of a term was made.
    Created,
    /// That was noted.
    Noted,
}

/// One change of leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The term that began, or the last one if there is no leader now.
    pub term: Term,
    /// The new leader.
    pub leader: Option<Holder>,
    /// The one before, if it was another pod.
    pub previous: Option<Holder>,
    /// Why.
    pub reason: Reason,
    /// From the moment at which the cause was seen to the confirmed label.
    pub took: Duration,
}

/// Why a leader changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The group had no leader.
    Vacant,
    /// The leader's pod is no more.
    LeaderGone,
    /// The leader may not go on.
    LeaderUnfit(NotEligible),
    /// The pod that was to lead can't be labelled.
    NotLabelled,
    /// The leader failed its probe.
    ProbeFailed(ProbeFailure),
    /// A pod with a higher priority took over.
    Preempted,
    /// The leader's node is cordoned, or about to be removed.
    NodeCordoned,
    /// A user asked for it, by a Switchover.
    SwitchedOver,
    /// The candidates have elected the leader themselves: it holds their lock.
    CandidatesElected,
    /// The leader does not hold the candidates' lock any more, and no pod of the group that may lead does.
    CandidatesReleased,
    /// The spec was changed.
    SpecChanged,
    /// The lock was deleted or edited by somebody else; the leader stays.
    LockRestored,
    /// An earlier operator left a handover incomplete, or a label was changed while none was running.
    Resumed,
    /// The lock was lost: the store let go of it, or its session has ended.
    LockLost,
    /// Somebody else took the lock.
    LockTaken,
    /// The store could not be reached in time.
    StoreLost,
    /// The store was put back to an earlier state.
    StoreRewound,
    /// This operator stops, and leaves the lock to others.
    Leaving,
}

impl Reason {
    /// The reason as one word, for Events, the status and metrics.
    pub fn word(self) -> &'static str {
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
