//! What is under way with an election.

use crate::handover::{Chain, Handover, Purpose, Seen};
use crate::slice::SliceVersions;
use crate::{Holder, Instant, Key, OpId, PlacedBid, Reason, Record, Uid, Version};

/// What is under way.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    Idle,
    Reading(OpId),
    Verifying(Verification),
    /// All pods are listed before the last marks are taken off.
    ListingMarked(OpId),
    Writing(OpId, Box<Intent>),
    /// The outcome of the write is not known: its record is read.
    WriteUnknown(Option<OpId>, Box<Intent>),
    /// A lock under another key is emptied or deleted.
    Clearing(OpId, Key, Version),
    HandingOver(Box<Handover>),
    /// What still runs of the workloads is read, before the record says that all has ended.
    Inspecting(OpId),
    /// Nobody leads any more: the lock is let go of.
    Releasing(OpId, Box<Record>),
    /// The same, and the lock is handed to another cluster, by this record.
    Giving(OpId, Box<(PlacedBid, Record)>),
    /// All labels are off; the record goes last.
    Deleting(OpId),
    /// Whether the election is still there: before it replaces a record of another one (of this version), or is withdrawn.
    AskingElection(OpId, Option<Version>),
}

/// The pods are looked at, before somebody else's record is replaced.
#[derive(Clone, Debug)]
pub(super) struct Verification {
    /// The reads that have no answer yet.
    pub(super) reads: Vec<OpId>,
    /// That record's version.
    pub(super) version: Version,
    /// Only the record's leader and this pod are read; none: all are listed.
    pub(super) only: Option<Uid>,
}

/// A record to be written, and what follows when it is.
#[derive(Clone, Debug)]
pub(super) struct Intent {
    pub(super) key: Key,
    pub(super) record: Record,
    /// Whom the record that it replaces names.
    pub(super) previous: Option<Holder>,
    /// Whose that record is.
    pub(super) chain: Chain,
    pub(super) purpose: Purpose,
    /// The target as it was seen before the record is written.
    pub(super) target: Option<(Holder, Seen)>,
    /// The slices' versions, read before the record is written.
    pub(super) slices: SliceVersions,
}

/// A leader that is being demoted because the lock is not surely held any more.
#[derive(Clone, Debug)]
pub(super) struct Losing {
    pub(super) holder: Holder,
    pub(super) since: Instant,
    pub(super) reason: Reason,
}

/// How far it is ascertained that nothing is left. The caches alone may not know of an operator's last writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Withdrawal {
    Unconfirmed,
    /// The election was read, and what the store has since.
    Confirmed,
    /// The pods were listed too.
    Listed,
    Done,
}
