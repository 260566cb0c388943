//! The input of an election's step, and the situation that the election reports.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::switchover::Switchovers;
use crate::{
    Following, Instant, JobPlan, Key, LockValidity, Node, NotEligible, PlacedBid, Pod, ProbeFailure, Rival, Routing,
    Rules, Scope, Slice, Stored, Term, Timestamp, Uid, Workload,
};

/// The world around an election, as far as the operator knows it, when the election takes a step.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// The moment of the step.
    pub now: Instant,
    /// The same moment for people.
    pub wall: Timestamp,
    /// The election's generation that the rest of this view is made from.
    pub generation: i64,
    /// The user's goal for the election.
    pub desired: Desired,
    /// Whether the election is gone, as far as the operator knows.
    pub gone: bool,
    /// The key of the election's lock.
    pub key: &'a Key,
    /// The selected pods, and the labels and annotations that are written on them.
    pub scope: &'a Scope,
    /// The rules that decide which candidates may lead.
    pub rules: &'a Rules,
    /// Which label write of a handover comes first.
    pub order: HandoverOrder,
    /// How long a leader may take to recover.
    pub failover_delay: Duration,
    /// The term in the status: no term may be below it.
    pub status_term: Term,
    /// H9: no new term may be below this one either.
    pub first_term: Term,
    /// Whether the cluster itself is the candidate, and may lead. `None` if the candidates are pods.
    pub cluster: Option<Result<(), NotEligible>>,
    /// The lock that the candidates hold themselves, if they elect the leader, or `None` if lictor elects it.
    pub following: Option<Following<'a>>,
    /// The workloads that follow the leader, or did. `None` if they are not known yet.
    pub workloads: Option<&'a [Workload]>,
    /// Jobs that are created once for each term.
    pub jobs: &'a [JobPlan],
    /// How long running workloads may take to end, in seconds.
    pub wind_down: u32,
    /// The pods that this election may have to write to: those that it selects, and those that it wrote to under earlier specs.
    pub pods: &'a [&'a Pod],
    /// O1: those of them on which another owner has a key, or may.
    pub foreign: &'a BTreeSet<Uid>,
    /// How clients reach the leader.
    pub routing: Routing<'a>,
    /// The slices that this election wrote, and those with the names of its Service's slices.
    pub slices: &'a [&'a Slice],
    /// The nodes by name.
    pub nodes: &'a BTreeMap<String, Node>,
    /// The pod whose probe fails, if it is the leader, and how.
    pub probe_failed: Option<(&'a Uid, ProbeFailure)>,
    /// The pod whose probe has succeeded since it became the leader, if any has.
    pub probe_answered: Option<&'a Uid>,
    /// The switchovers that its users ask for.
    pub switchovers: Switchovers<'a>,
    /// H16: the scopes that this cluster has noted in a place of its own and has not cleaned up. `None` if only this cluster can write the
    /// record, so that all of it counts.
    pub noted: Option<&'a [Scope]>,
    /// Locks that this election holds under other keys than its present one.
    pub strays: &'a [(Key, Stored)],
    /// The answers of other clusters, or of this one, to an offer of the election's lock.
    pub bids: &'a [PlacedBid],
    /// The rules by which the lock is kept.
    pub policy: LockPolicy,
    /// L6: the moment from which no other replica of this operator can act.
    pub alone_from: Instant,
    /// L1: the moment from which the operator may write again what another program has undone.
    pub restores_from: Instant,
    /// L1: the same for the marks on pods that do not lead.
    pub marks_from: Instant,
}

/// The rules by which a lock is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockPolicy {
    /// Whether other clusters may take the lock when this one lets go. The terms are then the store's own versions.
    pub shared: bool,
    /// The moment until which this cluster can rely on a lock that it holds.
    pub validity: LockValidity,
    /// How the operator treats the leader after that.
    pub when_lost: WhenLost,
    /// The longest time for which a holder that went silent keeps a lock.
    pub silence: Duration,
    /// How long another cluster in which a pod led by this lock may continue after the lock has vanished, before it knows of that.
    pub grace: Duration,
    /// C6: when a lock that another cluster held was last seen to vanish.
    pub vanished: Option<Instant>,
    /// Until this moment only a pod that already leads here may lead, because the store was put back to an earlier state, and other
    /// clusters may lead without knowing of that.
    pub not_before: Instant,
}

impl LockPolicy {
    /// A lock kept by compare-and-swap alone, in a store that only this cluster writes to.
    pub const ALONE: Self = Self {
        shared: false,
        validity: LockValidity::Unlimited,
        when_lost: WhenLost::Demote,
        silence: Duration::ZERO,
        grace: Duration::ZERO,
        vanished: None,
        not_before: Instant::after_origin(Duration::ZERO),
    };
}

/// How the operator treats a leader whose lock can't be confirmed any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenLost {
    /// The leader is demoted in time, so there are never two.
    #[default]
    Demote,
    /// The leader stays until another cluster is known to hold the lock. There is never a moment without a leader, and the promise between
    /// clusters is given up.
    Keep,
}

impl View<'_> {
    /// Whether a pod is a candidate: its labels match the selector, and no other program owns the keys that are written on candidates.
    pub(crate) fn selects(&self, pod: &Pod) -> bool {
        self.scope.selector.matches(&pod.labels) && !self.foreign.contains(&pod.uid)
    }

    /// The same view with other pods and other locks.
    pub(crate) fn of<'b>(&'b self, pods: &'b [&'b Pod], strays: &'b [(Key, Stored)]) -> View<'b> {
        View { pods, strays, ..*self }
    }
}

/// The goal of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Desired {
    /// The election runs.
    Run,
    /// All stays as it is, except for a handover that is under way, because a user paused the election or the operator stops.
    Freeze,
    /// The operator writes nothing, because the spec can't be accepted, or another election has the same pods or the same lock. It only
    /// gives back workloads that the election no longer has anything to do with.
    Refuse,
    /// The leader is demoted and the lock left to others, because this operator stops and no other replica follows it.
    Leave,
    /// Nothing is left of the election.
    Withdraw,
}

/// Which of the two label writes of a handover comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverOrder {
    /// There are never two leaders.
    DemoteFirst,
    /// There is never a moment without a leader.
    PromoteFirst,
}

/// The situation of an election, for the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Situation {
    /// The operator has decided nothing yet.
    Starting,
    /// There is a leader, and nothing is to be done.
    Led,
    /// There is a leader that fails its probe, and no other candidate is eligible.
    LedDespiteProbe(ProbeFailure),
    /// A handover is under way.
    HandingOver,
    /// The leader is not fit, and has until this moment to recover.
    Recovering(NotEligible, Instant),
    /// No candidate is eligible.
    Vacant,
    /// Another lock of that name exists, which the operator must not touch; the text describes it.
    Foreign(String),
    /// Another holder has the lock: another cluster, or a program other than lictor.
    LedElsewhere(Box<Rival>),
    /// The lock was lost, and no holder of it is known. The operator takes it again as soon as the store allows it.
    LockLost,
    /// The operator can't confirm in time that the lock is still this cluster's.
    StoreLost,
    /// The store was put back to an earlier state, so no candidate is elected before other clusters must have seen that, too.
    StoreRewound,
    /// The operator's view of the election is older than its lock.
    Stale,
    /// Nothing is left of the election.
    Withdrawn,
}

impl Situation {
    /// Whether all leader labels were taken off, because this cluster may not hold the lock.
    pub(crate) fn shows_nobody(&self) -> bool {
        matches!(self, Self::LedElsewhere(_) | Self::LockLost | Self::StoreLost | Self::StoreRewound)
    }
}
