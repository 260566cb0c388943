//! One operator: the real core with caches of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lictor_core::{
    Concern, Deletions, Desired, Election, FollowedLock, Following, HandoverOrder, IdentityRule, IdentitySource,
    Instant, Key, Known, Locks, Members, Node, OpId, Outcome, Pod, PodCache, ProbeFailure, Replica, Request, Situation,
    Spec, Stored, Term, Timestamp, Uid, Version, WhenLost,
};

use super::world::{ELECTION, History, Object, PodEvent, World};

/// How much of each watch was delivered.
#[derive(Clone, Copy, Default)]
pub struct Seen {
    pub pods: usize,
    pub nodes: usize,
    pub records: usize,
    pub elections: usize,
}

pub struct Operator {
    pub name: String,
    /// How often it was started. What was sent before, is answered to nobody.
    pub start: u32,
    pub runs: bool,
    /// On its way to be paused: it is hardly ever given a turn.
    pub slow: bool,
    /// Which watches are stuck.
    pub stuck: [bool; 4],
    pub probe_failed: Option<Uid>,
    /// The lock that the candidates hold themselves, if they elect the leader.
    pub followed: Option<FollowedLock>,
    seen: Seen,
    pods: PodCache,
    deletions: Deletions,
    nodes: BTreeMap<String, Node>,
    locks: Locks,
    pub object: Option<Object>,
    group: Option<(Uid, Replica)>,
    /// How many elections it has begun to decide.
    begun: u64,
}

impl Operator {
    pub fn new(name: String) -> Self {
        Self {
            name,
            start: 0,
            runs: false,
            slow: false,
            stuck: [false; 4],
            probe_failed: None,
            followed: None,
            seen: Seen::default(),
            pods: PodCache::default(),
            deletions: Deletions::default(),
            nodes: BTreeMap::new(),
            locks: Locks::default(),
            object: None,
            group: None,
            begun: 0,
        }
    }

    /// It knows nothing but what its first lists show, and they may be of the past.
    pub fn start(&mut self, history: &History, lag: &mut dyn FnMut() -> usize, now: u64) {
        *self = Self { start: self.start + 1, runs: true, ..Self::new(self.name.clone()) };
        let upto = Seen {
            pods: history.pods.len().saturating_sub(lag()),
            nodes: history.nodes.len().saturating_sub(lag()),
            records: history.records.len().saturating_sub(lag()),
            elections: history.elections.len().saturating_sub(lag()),
        };
        for stream in 0..4 {
            while self.lags_behind(stream, upto) {
                self.deliver(stream, history, now);
            }
        }
    }

    pub fn stop(&mut self) {
        self.runs = false;
        self.group = None;
    }

    /// It loses its claim, and forgets its decisions but not its caches.
    pub fn stand_by(&mut self) {
        self.group = None;
    }

    pub fn operator_id(&self) -> String {
        format!("{}#{}", self.name, self.start)
    }

    pub fn situation(&self) -> Option<&Situation> {
        self.election().map(Election::situation)
    }

    pub fn election(&self) -> Option<&Election> {
        self.group.as_ref().and_then(|(_, replica)| replica.election())
    }

    // Observations

    fn lags_behind(&self, stream: usize, upto: Seen) -> bool {
        match stream {
            0 => self.seen.pods < upto.pods,
            1 => self.seen.nodes < upto.nodes,
            2 => self.seen.records < upto.records,
            _ => self.seen.elections < upto.elections,
        }
    }

    /// Delivers the next event of one watch; returns whether there was one.
    pub fn deliver(&mut self, stream: usize, history: &History, now: u64) -> bool {
        let seen = &mut self.seen;
        let index = match stream {
            0 => &mut seen.pods,
            1 => &mut seen.nodes,
            2 => &mut seen.records,
            _ => &mut seen.elections,
        };
        let at = *index;
        *index += 1;
        match stream {
            0 => match history.pods.get(at).cloned() {
                Some(PodEvent::Applied(pod)) => self.put_pod(pod, now),
                Some(PodEvent::Deleted(name, uid)) => {
                    self.pods.remove(&name, &uid);
                    self.deletions.note(&uid, Version(u64::MAX));
                }
                None => return self.nothing_new(stream),
            },
            1 => match history.nodes.get(at).cloned() {
                Some((name, node)) => drop(self.nodes.insert(name, node)),
                None => return self.nothing_new(stream),
            },
            2 => match history.records.get(at).cloned() {
                Some((key, version, stored)) => self.put_record(&key, version, &stored),
                None => return self.nothing_new(stream),
            },
            _ => match history.elections.get(at).cloned() {
                Some(object) => self.object = object,
                None => return self.nothing_new(stream),
            },
        }
        true
    }

    fn nothing_new(&mut self, stream: usize) -> bool {
        match stream {
            0 => self.seen.pods -= 1,
            1 => self.seen.nodes -= 1,
            2 => self.seen.records -= 1,
            _ => self.seen.elections -= 1,
        }
        false
    }

    fn put_pod(&mut self, pod: Pod, now: u64) {
        self.pods.put(pod, &mut self.deletions, instant(now));
    }

    fn put_record(&mut self, key: &Key, version: Version, stored: &Stored) {
        let stored = Arc::new(stored.clone());
        if self.locks.put(key, version, &stored).is_some()
            && let Some((_, replica)) = &mut self.group
        {
            replica.observe(key, version, &stored);
        }
    }

    /// Takes the outcome of a command that it sent for the election of this uid.
    pub fn take(&mut self, election: &Uid, op: OpId, outcome: Outcome, now: u64) {
        for pod in outcome.pods() {
            self.put_pod(pod.clone(), now);
        }
        if let Some((uid, replica)) = &mut self.group
            && uid == election
        {
            replica.take(op, outcome, instant(now));
        }
    }

    // Decisions

    /// One step; returns the requests, and the election that they are for.
    pub fn step(&mut self, now: u64) -> (Uid, Vec<Request>) {
        let Some(object) = self.object.clone() else {
            self.group = None;
            return (Uid::default(), Vec::new());
        };
        let desired = if object.deleting {
            Desired::Withdraw
        } else if object.spec.paused {
            Desired::Freeze
        } else {
            Desired::Run
        };
        self.group.take_if(|(of, _)| *of != object.uid);
        let operator_id = self.operator_id();
        let new = || (object.uid.clone(), Replica::new(ELECTION.into(), object.uid.clone(), operator_id));
        let (_, replica) = self.group.get_or_insert_with(new);
        let (key, scope) = (&object.spec.key, &object.spec.scope);
        let record = self.locks.get(key).and_then(|(_, stored)| stored.written());
        let concern = Concern { election: ELECTION, selector: Some(&scope.selector), record, noted: None };
        let mut members = Members::default();
        members.learn(&concern, self.locks.of(&object.uid).filter_map(|(_, stored)| stored.written()));
        members.gather(self.pods.iter(), &concern);
        let pods: Vec<&Pod> = members.all().filter_map(|name| self.pods.get(name)).collect();
        let rule = IdentityRule { source: IdentitySource::PodName, pattern: None };
        let known = Known {
            following: self.followed.as_ref().map(|lock| Following { rule: &rule, lock }),
            wall: Timestamp(i64::try_from(now).unwrap_or(0)),
            generation: object.generation,
            desired,
            spec: Some(Spec {
                former_leader: lictor_core::FormerLeader::Keep,
                scope,
                rules: &object.spec.rules,
                order: HandoverOrder::DemoteFirst,
                failover_delay: object.spec.failover_delay,
                when_lost: WhenLost::Demote,
                ttl: Duration::ZERO,
                silence: Duration::ZERO,
                seen_after: Duration::ZERO,
            }),
            status_term: object.status_term,
            pods: &pods,
            nodes: &self.nodes,
            probe_failed: self.probe_failed.as_ref().map(|uid| (uid, ProbeFailure::NoAnswer)),
            ..Known::new(instant(now), key, &self.locks)
        };
        (object.uid.clone(), replica.step(&known, &mut self.begun).requests)
    }

    /// Writes the status, or takes the finalizer off; returns whether anything was written.
    pub fn follow_up(&mut self, world: &mut World) -> bool {
        let (Some(object), Some(election)) = (&self.object, self.election()) else { return false };
        if object.deleting {
            return *election.situation() == Situation::Withdrawn && world.finalize(object);
        }
        let term = election.leader().map_or(Term(0), |(term, ..)| *term);
        term > object.status_term && world.write_status(object, term)
    }
}

pub fn instant(now: u64) -> Instant {
    Instant::after_origin(Duration::from_millis(now))
}
