//! The facts around an election and the input of its step, and the situation that the election reports.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::time::Duration;

use crate::switchover::Switchovers;
use crate::{
    Following, Holder, Instant, JobPlan, Key, LockValidity, Locks, Node, NotEligible, OtherLeader, PlacedBid, Pod,
    ProbeFailure, Record, Rival, Routing, Rules, Scope, Slice, StoreId, Stored, Term, Timestamp, Uid, Unavailable,
    Workload,
};

/// How much longer than necessary other clusters may take to see that a store was put back to an earlier state.
const SLACK: Duration = Duration::from_secs(1);

/// The user's spec, read into valid values.
#[derive(Clone, Copy)]
pub struct Spec<'a> {
    /// The selected pods, and the labels and annotations that are written on them.
    pub scope: &'a Scope,
    /// The rules that decide which candidates may lead.
    pub rules: &'a Rules,
    /// Which label write of a handover comes first.
    pub order: HandoverOrder,
    /// How the operator treats the pod that led before.
    pub former_leader: FormerLeader,
    /// How long a leader may take to recover.
    pub failover_delay: Duration,
    /// How the operator treats the leader when its lock can't be confirmed.
    pub when_lost: WhenLost,
    /// The sessions' TTL, if other clusters share the lock.
    pub ttl: Duration,
    /// The longest time for which a holder that went silent keeps a lock.
    pub silence: Duration,
    /// How late another cluster may see a change of the lock while nothing else changes: zero where the store tells changes.
    pub seen_after: Duration,
}

/// The facts around the group, as far as the operator knows them, when the group takes a step.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The moment of the step.
    pub now: Instant,
    /// The same moment for people.
    pub wall: Timestamp,
    /// The election's generation that the rest is read from.
    pub generation: i64,
    /// The user's goal for the election.
    pub desired: Desired,
    /// Whether the election is gone, as far as the operator knows. It removes the election's marks only if the API server, too, says so.
    pub gone: bool,
    /// The key of the election's lock.
    pub key: &'a Key,
    /// The user's spec, or `None` if there is no valid one. Then no candidate is elected any more, and the record says what to clean up.
    pub spec: Option<Spec<'a>>,
    /// The term in the status: no term may be below it.
    pub status_term: Term,
    /// H9: no new term may be below this one either.
    pub first_term: Term,
    /// Whether the cluster itself is the candidate, and may lead. `None` if the candidates are pods.
    pub cluster: Option<Result<(), Unavailable>>,
    /// The lock that the candidates hold themselves, if they elect the leader, or `None` if lictor elects it.
    pub following: Option<Following<'a>>,
    /// The workloads that follow the leader, or did. `None` if they are not known yet.
    pub workloads: Option<&'a [Workload]>,
    /// Jobs that are created once for each term.
    pub jobs: &'a [JobPlan],
    /// How long running workloads may take to end, in seconds.
    pub wind_down: u32,
    /// The pods that the operator may have to write to.
    pub pods: &'a [&'a Pod],
    /// O1: those of them on which another owner has a key, or may.
    pub foreign: &'a BTreeSet<Uid>,
    /// How clients reach the leader.
    pub routing: Routing<'a>,
    /// The slices that this election wrote, and those with the names of its Service's slices.
    pub slices: &'a [&'a Slice],
    /// The nodes by name.
    pub nodes: &'a BTreeMap<String, Node>,
    /// The leaders of other elections that spread their leaders as this one does.
    pub other_leaders: &'a [OtherLeader],
    /// The pod whose probe fails, if it is the leader, and how.
    pub probe_failed: Option<(&'a Uid, ProbeFailure)>,
    /// The pod whose probe has succeeded since it became the leader, if any has.
    pub probe_answered: Option<&'a Uid>,
    /// The switchovers that the election's users ask for.
    pub switchovers: Switchovers<'a>,
    /// H16: the scopes that this cluster has noted in a place of its own and has not cleaned up. `None` if only this cluster can write
    /// records.
    pub noted: Option<&'a [Scope]>,
    /// All locks that were seen.
    pub locks: &'a Locks,
    /// The moment until which this cluster can rely on locks in the lock's store. `None` if nothing is known of that store.
    pub validity: Option<LockValidity>,
    /// When that store was last seen to be put back to an earlier state.
    pub rewound: Option<Instant>,
    /// C6: when a lock that another cluster held was last seen to vanish, even while this replica did not act.
    pub vanished: Option<Instant>,
    /// L6: the moment from which no other replica of this operator can act.
    pub alone_from: Instant,
    /// L1: the moment from which the operator may write again what another program has undone.
    pub restores_from: Instant,
    /// L1: the same for the marks on pods that do not lead.
    pub marks_from: Instant,
}

impl<'a> Known<'a> {
    /// The facts of a group without pods, workloads and a spec, whose lock only this cluster writes.
    pub fn new(now: Instant, key: &'a Key, locks: &'a Locks) -> Self {
        static NO_NODES: BTreeMap<String, Node> = BTreeMap::new();
        static NO_PODS: BTreeSet<Uid> = BTreeSet::new();
        Self {
            now,
            wall: Timestamp(0),
            generation: 1,
            desired: Desired::Run,
            gone: false,
            key,
            spec: None,
            status_term: Term(0),
            first_term: Term(0),
            cluster: None,
            following: None,
            workloads: Some(&[]),
            jobs: &[],
            wind_down: 0,
            pods: &[],
            foreign: &NO_PODS,
            routing: Routing::Off,
            slices: &[],
            nodes: &NO_NODES,
            other_leaders: &[],
            probe_failed: None,
            probe_answered: None,
            switchovers: Switchovers::default(),
            noted: None,
            locks,
            validity: Some(LockValidity::Unlimited),
            rewound: None,
            vanished: None,
            alone_from: Instant::default(),
            restores_from: Instant::default(),
            marks_from: Instant::default(),
        }
    }

    /// H16: the part of a lock under another key that counts.
    pub(crate) fn believed(&self, key: &Key, stored: &Stored) -> Stored {
        match (self.noted, stored.written()) {
            (Some(noted), Some(record)) if key.store != StoreId::leases() => {
                stored.clone().with_written(record.believed(noted, &Scope::default()))
            }
            _ => stored.clone(),
        }
    }

    /// The scope of the election's record that counts while there is no valid spec.
    pub(crate) fn recorded(&self, record: Option<&Record>) -> Scope {
        let believed = |scope: &&Scope| match self.noted {
            Some(noted) if self.key.store != StoreId::leases() => noted.contains(scope),
            _ => true,
        };
        record.map(|record| &record.scope).filter(believed).cloned().unwrap_or_default()
    }
}

/// The input of an election's step: the known facts, and what follows from them for this election. `pods` has only the pods that this
/// election may have to write to, because it selects them or wrote to them under earlier specs.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub known: Known<'a>,
    /// The selected pods, and the labels and annotations that are written on them.
    pub scope: &'a Scope,
    /// The rules that decide which candidates may lead.
    pub rules: &'a Rules,
    /// Which label write of a handover comes first.
    pub order: HandoverOrder,
    /// How the operator treats the pod that led before.
    pub former_leader: FormerLeader,
    /// How long a leader may take to recover.
    pub failover_delay: Duration,
    /// Locks that this election holds under other keys than its present one.
    pub strays: &'a [(Key, Stored)],
    /// The answers of other clusters, or of this one, to an offer of the election's lock.
    pub bids: &'a [PlacedBid],
    /// The rules by which the lock is kept.
    pub policy: LockPolicy,
}

impl<'a> Deref for View<'a> {
    type Target = Known<'a>;

    fn deref(&self) -> &Known<'a> {
        &self.known
    }
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
    /// How late another cluster may see a change of the lock while nothing else changes.
    pub seen_after: Duration,
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
        seen_after: Duration::ZERO,
        grace: Duration::ZERO,
        vanished: None,
        not_before: Instant::after_origin(Duration::ZERO),
    };

    /// The rules by which the lock of these facts is kept.
    fn of(known: &Known<'_>) -> Self {
        let ttl = known.spec.map(|spec| spec.ttl).unwrap_or_default();
        match known.validity {
            Some(LockValidity::Unlimited) => Self::ALONE,
            validity => Self {
                shared: true,
                validity: validity.unwrap_or(LockValidity::Lapsed),
                when_lost: known.spec.map_or(WhenLost::Demote, |spec| spec.when_lost),
                silence: known.spec.map(|spec| spec.silence).unwrap_or_default(),
                seen_after: known.spec.map(|spec| spec.seen_after).unwrap_or_default(),
                grace: ttl,
                // Other clusters' watches ask again as often as this one's, and Consul adds up to a sixteenth.
                vanished: known.vanished,
                not_before: known.rewound.map_or(Instant::default(), |at| at + ttl * 9 / 8 + SLACK),
            },
        }
    }
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

impl<'a> View<'a> {
    /// The view of an election. `scope` and `rules` count while there is no valid spec.
    pub(crate) fn new(known: &Known<'a>, scope: &'a Scope, rules: &'a Rules, strays: &'a [(Key, Stored)]) -> Self {
        let spec = known.spec;
        Self {
            known: *known,
            scope: spec.map_or(scope, |spec| spec.scope),
            rules: spec.map_or(rules, |spec| spec.rules),
            order: spec.map_or(HandoverOrder::DemoteFirst, |spec| spec.order),
            former_leader: spec.map(|spec| spec.former_leader).unwrap_or_default(),
            failover_delay: spec.map(|spec| spec.failover_delay).unwrap_or_default(),
            strays,
            bids: known.locks.bids(known.key),
            policy: LockPolicy::of(known),
        }
    }

    /// Whether a pod is a candidate: its labels match the selector, and no other program owns the keys that are written on candidates.
    pub(crate) fn selects(&self, pod: &Pod) -> bool {
        self.scope.selector.matches(&pod.labels) && !self.foreign.contains(&pod.uid)
    }

    /// The same view with other pods and other locks.
    pub(crate) fn of<'b>(&'b self, pods: &'b [&'b Pod], strays: &'b [(Key, Stored)]) -> View<'b> {
        View { known: Known { pods, ..self.known }, strays, ..*self }
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

/// How the operator treats the pod that led before, when another pod is to lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FormerLeader {
    /// The pod runs on as a follower.
    #[default]
    Keep,
    /// The pod is deleted when the next one leads.
    Delete {
        /// Whether the deletion is an eviction, which `PodDisruptionBudgets` may refuse.
        evicts: bool,
    },
    /// E1: the pod is deleted, and no other one leads before its end is known.
    DeleteFirst {
        /// Whether the deletion is an eviction, which `PodDisruptionBudgets` may refuse.
        evicts: bool,
    },
}

impl FormerLeader {
    /// Whether the end of the former leader comes before the next leader.
    pub fn comes_first(self) -> bool {
        matches!(self, Self::DeleteFirst { .. })
    }
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
    /// E1: a candidate is to lead, and the end of this former leader is not known yet.
    AwaitingEnd(Holder),
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
