//! What an election is shown, and what it shows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::switchover::Switchovers;
use crate::{
    Following, Instant, JobPlan, Key, LockValidity, Node, NotEligible, PlacedBid, Pod, ProbeFailure, Rival, Routing,
    Rules, Scope, Slice, Stored, Term, Timestamp, Uid, Workload,
};

/// What is known of the world around an election when it takes a step.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// The moment of the step.
    pub now: Instant,
    /// The same for people.
    pub wall: Timestamp,
    /// The election's generation that the rest of this view is made from.
    pub generation: i64,
    /// What the user wants of it.
    pub desired: Desired,
    /// Whether there is no such election any more, as far as is known.
    pub gone: bool,
    /// Where its lock is.
    pub key: &'a Key,
    /// Which pods, and what is written on them.
    pub scope: &'a Scope,
    /// Who may lead.
    pub rules: &'a Rules,
    /// Which label write of a handover comes first.
    pub order: HandoverOrder,
    /// How long a leader may take to recover.
    pub failover_delay: Duration,
    /// The term that the status names: no term may be below it.
    pub status_term: Term,
    /// H9: no new term may be below this one either.
    pub first_term: Term,
    /// Whether the cluster itself is the candidate, and may lead; `None`: pods are.
    pub cluster: Option<Result<(), NotEligible>>,
    /// The lock that the candidates hold themselves, if they elect the leader; `None`: it is elected here.
    pub following: Option<Following<'a>>,
    /// The workloads that follow the leader, or did; `None`: not known yet.
    pub workloads: Option<&'a [Workload]>,
    /// Jobs that are made once for each term.
    pub jobs: &'a [JobPlan],
    /// How long what runs of the workloads may take to end, in seconds.
    pub wind_down: u32,
    /// The pods that this election may have to write to: the selected ones, and those that it wrote to under earlier specs.
    pub pods: &'a [&'a Pod],
    /// O1: those among them on which somebody else owns a key, or may.
    pub foreign: &'a BTreeSet<Uid>,
    /// How the leader is reached.
    pub routing: Routing<'a>,
    /// The slices that this election wrote, and those of its Service's names.
    pub slices: &'a [&'a Slice],
    /// The nodes by name.
    pub nodes: &'a BTreeMap<String, Node>,
    /// The pod whose probe fails, if it is the leader, and how.
    pub probe_failed: Option<(&'a Uid, ProbeFailure)>,
    /// The pod whose probe has succeeded since it became the leader, if any has.
    pub probe_answered: Option<&'a Uid>,
    /// The switchovers that its users ask for.
    pub switchovers: Switchovers<'a>,
    /// H16: what this cluster has noted in a place of its own that it wrote on pods, and has not cleaned up; `None`: nobody else can write
    /// the record, and all that it says counts.
    pub noted: Option<&'a [Scope]>,
    /// Locks that this election holds under other keys than its present one.
    pub strays: &'a [(Key, Stored)],
    /// What other clusters, or this one, have answered to an offer of its lock.
    pub bids: &'a [PlacedBid],
    /// How its lock is kept.
    pub policy: LockPolicy,
    /// L6: from when on no other replica of this operator can act.
    pub alone_from: Instant,
    /// L1: from when on it may write again what somebody has undone.
    pub restores_from: Instant,
    /// L1: the same of the marks on pods that do not lead.
    pub marks_from: Instant,
}

/// How a lock is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockPolicy {
    /// Whether others may take it when this cluster lets go. The terms are then the store's own versions.
    pub shared: bool,
    /// How long what is held is surely this cluster's own.
    pub validity: LockValidity,
    /// What becomes of the leader when it is not.
    pub when_lost: WhenLost,
    /// How long a lock is kept at most whose holder went silent.
    pub silence: Duration,
    /// How long another cluster, where a pod led by the lock, may go on after the lock has vanished before it knows of that.
    pub grace: Duration,
    /// C6: when the lock was last seen to vanish that another cluster held.
    pub vanished: Option<Instant>,
    /// Until this moment nobody else leads here than who does already: the store was put back to an earlier state, and other
    /// clusters may lead without knowing of that.
    pub not_before: Instant,
}

impl LockPolicy {
    /// By compare-and-swap alone, in a store that only this cluster writes to.
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

/// What becomes of a leader whose lock can't be confirmed any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenLost {
    /// It is demoted in time: never two.
    #[default]
    Demote,
    /// It stays until somebody else is known to hold the lock: never none, and the promise between clusters is given up.
    Keep,
}

impl View<'_> {
    /// Whether a pod is a candidate: its labels match the selector, and nobody else owns what is written on candidates.
    pub(crate) fn selects(&self, pod: &Pod) -> bool {
        self.scope.selector.matches(&pod.labels) && !self.foreign.contains(&pod.uid)
    }

    /// The same with other pods and other locks.
    pub(crate) fn of<'b>(&'b self, pods: &'b [&'b Pod], strays: &'b [(Key, Stored)]) -> View<'b> {
        View { pods, strays, ..*self }
    }
}

/// What is wanted of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Desired {
    /// That it runs.
    Run,
    /// That all stays as it is, but for a handover that is under way: paused by its user, or the operator stops.
    Freeze,
    /// That nothing is written: its spec can't be accepted, or another election has the same pods or the same lock. Only workloads that it
    /// has nothing to do with any more are given back.
    Refuse,
    /// That its leader is demoted and the lock left to others: this operator stops, and no other is there to follow it.
    Leave,
    /// That nothing is left of it.
    Withdraw,
}

/// Which of the two label writes of a handover comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverOrder {
    /// Never two leaders.
    DemoteFirst,
    /// Never none.
    PromoteFirst,
}

/// What an election is about, for the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Situation {
    /// Nothing is decided yet.
    Starting,
    /// There is a leader, and nothing to do.
    Led,
    /// There is a leader that fails its probe, and nobody else is eligible.
    LedDespiteProbe(ProbeFailure),
    /// A handover is under way.
    HandingOver,
    /// The leader is not fit, and has until this moment to recover.
    Recovering(NotEligible, Instant),
    /// Nobody is eligible.
    Vacant,
    /// Another lock of that name exists, which must not be touched; the text says what it is.
    Foreign(String),
    /// Somebody else holds the lock: another cluster, or a program that is no lictor.
    LedElsewhere(Box<Rival>),
    /// The lock was lost, and nobody is known to have it: it is taken again as soon as the store allows it.
    LockLost,
    /// It can't be confirmed in time that the lock is still this cluster's.
    StoreLost,
    /// The store was put back to an earlier state: nobody is elected before other clusters must have seen that, too.
    StoreRewound,
    /// What is known of the election is older than its lock.
    Stale,
    /// Nothing is left of it.
    Withdrawn,
}

impl Situation {
    /// Whether all leader labels were taken off, because this cluster does not surely hold the lock.
    pub(crate) fn shows_nobody(&self) -> bool {
        matches!(self, Self::LedElsewhere(_) | Self::LockLost | Self::StoreLost | Self::StoreRewound)
    }
}
