//! One operator: the real core with caches of its own, fed as the controller feeds it (`src/controller/index.rs`, `run.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lictor_core::{
    Command, Desired, ELECTION_ANNOTATION, Election, HandoverOrder, Instant, Key, LockPolicy, Node, OpId, Outcome, Pod,
    Record, Situation, Stored, Term, Timestamp, Uid, Version, View,
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
    seen: Seen,
    pods: BTreeMap<String, Pod>,
    deleted: BTreeSet<Uid>,
    nodes: BTreeMap<String, Node>,
    records: BTreeMap<Key, (Version, Stored)>,
    pub object: Option<Object>,
    group: Option<(Key, Uid, Election)>,
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
            seen: Seen::default(),
            pods: BTreeMap::new(),
            deleted: BTreeSet::new(),
            nodes: BTreeMap::new(),
            records: BTreeMap::new(),
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
        self.group.as_ref().map(|(_, _, election)| election.situation())
    }

    pub fn election(&self) -> Option<&Election> {
        self.group.as_ref().map(|(_, _, election)| election)
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
                    if self.pods.get(&name).is_some_and(|pod| pod.uid == uid) {
                        self.pods.remove(&name);
                    }
                    self.deleted.insert(uid);
                }
                None => return self.nothing_new(stream),
            },
            1 => match history.nodes.get(at).cloned() {
                Some((name, node)) => drop(self.nodes.insert(name, node)),
                None => return self.nothing_new(stream),
            },
            2 => match history.records.get(at).cloned() {
                Some((key, version, stored)) => self.put_record(key, version, stored),
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

    fn put_pod(&mut self, mut pod: Pod, now: u64) {
        let known = self.pods.get(&pod.name).filter(|known| known.uid == pod.uid);
        if self.deleted.contains(&pod.uid) || known.is_some_and(|known| known.version >= pod.version) {
            return;
        }
        let since = known.and_then(|known| known.ready_observed).unwrap_or_else(|| instant(now));
        pod.ready_observed = pod.ready.then_some(since);
        self.pods.insert(pod.name.clone(), pod);
    }

    fn put_record(&mut self, key: Key, version: Version, stored: Stored) {
        if self.records.get(&key).is_some_and(|(known, _)| *known >= version) {
            return;
        }
        if let Some((own, _, election)) = &mut self.group
            && *own == key
        {
            election.observe(version, stored.clone());
        }
        self.records.insert(key, (version, stored));
    }

    /// Takes the outcome of a command that it sent for the election of this uid.
    pub fn take(&mut self, election: &Uid, op: OpId, outcome: Outcome, now: u64) {
        for pod in outcome.pods() {
            self.put_pod(pod.clone(), now);
        }
        if let Some((_, uid, group)) = &mut self.group
            && uid == election
        {
            group.take(op, outcome, instant(now));
        }
    }

    // Decisions

    /// One step; returns the commands that are to be carried out, and the election that they are for.
    pub fn step(&mut self, now: u64) -> (Uid, Vec<(OpId, Command)>) {
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
        let key = &object.spec.key;
        if self.group.as_ref().is_some_and(|(known, uid, _)| known != key || *uid != object.uid) {
            self.group = None;
        }
        if self.group.is_none() {
            self.begun += 1;
        }
        let (operator_id, first) = (self.operator_id(), OpId(self.begun << 32));
        let records = &self.records;
        let (_, _, group) = self.group.get_or_insert_with(|| {
            let stored = records.get(key).cloned().unwrap_or((Version(0), Stored::Absent));
            (
                key.clone(),
                object.uid.clone(),
                Election::new(ELECTION.into(), object.uid.clone(), operator_id, Some(stored), first),
            )
        });
        let strays: Vec<(Key, Stored)> = records
            .iter()
            .filter(|(other, (_, stored))| *other != key && stored.record().is_some_and(|r| r.election == object.uid))
            .map(|(key, (_, stored))| (key.clone(), stored.clone()))
            .collect();
        let known = strays.iter().map(|(_, stored)| stored).chain(records.get(key).map(|(_, stored)| stored));
        let known: Vec<&Record> = known.filter_map(Stored::record).collect();
        let pods: Vec<&Pod> = self.pods.values().filter(|pod| concerns(pod, &object, &known)).collect();
        let view = View {
            now: instant(now),
            wall: Timestamp(i64::try_from(now).unwrap_or(0)),
            generation: object.generation,
            desired,
            key,
            scope: &object.spec.scope,
            rules: &object.spec.rules,
            order: HandoverOrder::DemoteFirst,
            failover_delay: object.spec.failover_delay,
            status_term: object.status_term,
            cluster: None,
            workloads: Some(&[]),
            jobs: &[],
            wind_down: 0,
            pods: &pods,
            nodes: &self.nodes,
            probe_failed: self.probe_failed.as_ref(),
            strays: &strays,
            policy: LockPolicy::ALONE,
        };
        (object.uid.clone(), group.step(&view).requests)
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

fn concerns(pod: &Pod, object: &Object, records: &[&Record]) -> bool {
    let earlier = |record: &&Record| {
        record.former.iter().chain([&record.scope]).any(|scope| scope.selector.matches(&pod.labels))
            || record.holder.as_ref().is_some_and(|holder| holder.uid == pod.uid)
    };
    object.spec.scope.selector.matches(&pod.labels)
        || pod.annotations.get(ELECTION_ANNOTATION).is_some_and(|name| name == ELECTION)
        || records.iter().any(earlier)
}

pub fn instant(now: u64) -> Instant {
    Instant::after_origin(Duration::from_millis(now))
}
