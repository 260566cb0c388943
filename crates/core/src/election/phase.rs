//! The phases of an election: the request or handover that is under way.

use crate::handover::{Chain, Handover, Purpose, Seen};
use crate::slice::SliceVersions;
use crate::{Holder, Instant, Key, OpId, PlacedBid, Reason, Record, Uid, Version};

/// The request or handover that is under way.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    Idle,
    Reading(OpId),
    Verifying(Verification),
    /// The operator lists all pods before it takes the last marks off.
    ListingMarked(OpId),
    Writing(OpId, Box<Intent>),
    /// The outcome of the write is unknown, so the operator reads the record.
    WriteUnknown(Option<OpId>, Box<Intent>),
    /// The operator empties or deletes a lock under another key.
    Clearing(OpId, Key, Version),
    HandingOver(Box<Handover>),
    /// The operator reads which workloads still run, before the record says that all have ended.
    Inspecting(OpId),
    /// There is no leader any more, and the operator releases the lock.
    Releasing(OpId, Box<Record>),
    /// There is no leader any more, and the operator hands the lock to another cluster, by this record.
    Giving(OpId, Box<(PlacedBid, Record)>),
    /// All labels are off, and the operator deletes the record last.
    Deleting(OpId),
    /// The operator asks whether the election still exists, before it replaces another election's record (of this version), or withdraws
    /// the election.
    AskingElection(OpId, Option<Version>),
}

/// The operator looks at the pods before it replaces another writer's record.
#[derive(Clone, Debug)]
pub(super) struct Verification {
    /// The reads that have no answer yet.
    pub(super) reads: Vec<OpId>,
    /// The version of that record.
    pub(super) version: Version,
    /// The pod that is read beside the record's leader, or `None` if all pods are listed.
    pub(super) only: Option<Uid>,
}

/// A record to be written, and the handover that follows.
#[derive(Clone, Debug)]
pub(super) struct Intent {
    pub(super) key: Key,
    pub(super) record: Record,
    /// The holder that the replaced record names.
    pub(super) previous: Option<Holder>,
    /// Whose record is replaced.
    pub(super) chain: Chain,
    pub(super) purpose: Purpose,
    /// The target as it was seen before the record is written.
    pub(super) target: Option<(Holder, Seen)>,
    /// The slices' versions, read before the record is written.
    pub(super) slices: SliceVersions,
}

/// A leader that is being demoted because this cluster may have lost the lock.
#[derive(Clone, Debug)]
pub(super) struct Losing {
    pub(super) holder: Holder,
    pub(super) since: Instant,
    pub(super) reason: Reason,
}

/// How far the operator has confirmed that nothing is left. The caches alone may not show another operator's last writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Withdrawal {
    Unconfirmed,
    /// The operator has read the election, and since then the store.
    Confirmed,
    /// The operator has listed the pods, too.
    Listed,
    Done,
}
