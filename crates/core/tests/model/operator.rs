//! One operator of a cluster: the real core with caches of its own, fed as the controller feeds it.

use std::collections::BTreeMap;
use std::time::Duration;

use lictor_core::{
    Command, Desired, Election, HandoverOrder, Instant, Keeping, OpId, Outcome, Pod, PodOutcome, Record, RecordOutcome,
    Stored, Term, Timestamp, Uid, Version, View,
};

use super::identity::elector;
use super::world::{self, ELECTION};

#[derive(Clone, Debug)]
pub struct Operator {
    pub election: Election,
    /// What it knows of the pods, by slot.
    pub pods: BTreeMap<usize, Pod>,
    /// Of each slot the first pod that is not known to be gone.
    pub first: Vec<u32>,
    /// The lock, as its watch or an answer showed it last.
    pub record: (Version, Stored),
    pub now: Instant,
    pub probe_failed: Option<Uid>,
    /// Whom the record named that it replaced last.
    pub replaced: Option<Uid>,
    /// Whether it has decided anything since it was started.
    pub awake: bool,
    start: u32,
    /// As a user may wish who prefers two leaders to none.
    promotes_first: bool,
}

impl Operator {
    pub fn new(
        number: usize,
        pods: BTreeMap<usize, Pod>,
        first: Vec<u32>,
        record: (Version, Stored),
        promotes_first: bool,
    ) -> Self {
        Self {
            election: election(number, 1, &record),
            pods,
            first,
            record,
            now: Instant::default(),
            probe_failed: None,
            replaced: None,
            awake: false,
            start: 1,
            promotes_first,
        }
    }

    /// It crashed, or was another one's turn to act for a while. What it knows of the world may be as old as it was.
    pub fn start_anew(&self, number: usize) -> Self {
        let start = self.start + 1;
        let Self { pods, first, record, .. } = self.clone();
        Self { start, ..Self::new(number, pods, first, record, self.promotes_first) }
    }

    pub fn put_pod(&mut self, pod: &Pod) {
        let (slot, number) = world::place(&pod.uid);
        let known = self.pods.get(&slot).filter(|known| known.uid == pod.uid);
        if self.first[slot] <= number && known.is_none_or(|known| known.version < pod.version) {
            self.pods.insert(slot, pod.clone());
        }
    }

    /// Its watch shows what there is in a slot, or tells of a deletion that it does not know of yet.
    pub fn see(&mut self, slot: usize, present: Option<&Pod>, next: u32) {
        let first = present.map_or(next, |pod| world::place(&pod.uid).1);
        if self.first[slot] < first {
            self.first[slot] = first;
            self.pods.retain(|other, pod| *other != slot || world::place(&pod.uid).1 >= first);
        } else if let Some(pod) = present {
            self.put_pod(pod);
        }
    }

    /// Whether there is anything to be seen.
    pub fn lags(&self, slot: usize, present: Option<&Pod>, next: u32) -> bool {
        let known = self.pods.get(&slot);
        let first = present.map_or(next, |pod| world::place(&pod.uid).1);
        self.first[slot] < first
            || present.is_some_and(|pod| known.is_none_or(|known| known.uid != pod.uid || known.version < pod.version))
    }

    pub fn see_record(&mut self, at: Version, stored: &Stored) {
        if self.record.0 < at {
            self.record = (at, stored.clone());
        }
        self.election.observe(at, stored.clone());
    }

    /// Takes an outcome; what was read or written is known before.
    pub fn take(&mut self, op: OpId, command: &Command, outcome: Outcome, shows: bool) {
        match &outcome {
            _ if !shows => {}
            Outcome::PodWritten(PodOutcome::Written(pod)) => self.put_pod(pod),
            Outcome::PodRead(Ok(Some(pod))) => self.put_pod(pod),
            Outcome::PodsListed(Ok(pods)) => pods.iter().for_each(|pod| self.put_pod(pod)),
            Outcome::RecordWritten(RecordOutcome::Written(version)) => {
                if let Command::WriteRecord { record, .. } = command {
                    self.see_record(*version, &Stored::Record(*version, record.clone()));
                }
            }
            _ => {}
        }
        self.election.take(op, outcome, self.now);
    }

    /// One step: what is to be carried out.
    pub fn step(&mut self) -> Vec<(OpId, Command)> {
        let (scope, key, rules) = world::spec();
        if self.probe_failed.is_some()
            && self.election.record().is_some_and(|r| holder(r) != self.probe_failed.as_ref())
        {
            self.probe_failed = None;
        }
        let pods: Vec<&Pod> = self.pods.values().collect();
        let view = View {
            now: self.now,
            wall: Timestamp(0),
            generation: 1,
            desired: Desired::Run,
            key,
            scope,
            rules,
            order: if self.promotes_first { HandoverOrder::PromoteFirst } else { HandoverOrder::DemoteFirst },
            failover_delay: Duration::ZERO,
            status_term: Term(0),
            cluster: None,
            workloads: Some(&[]),
            jobs: &[],
            wind_down: 0,
            pods: &pods,
            nodes: &BTreeMap::new(),
            probe_failed: self.probe_failed.as_ref(),
            strays: &[],
            keeping: Keeping::ALONE,
        };
        let before = self.election.record().and_then(holder).cloned();
        let requests = self.election.step(&view).requests;
        if requests.iter().any(|(_, command)| matches!(command, Command::WriteRecord { .. })) {
            self.replaced = before;
        }
        requests
    }

    /// Time goes on until it wakes.
    pub fn wake(&mut self, number: usize) {
        if !self.awake {
            self.election = election(number, self.start, &self.record);
            self.awake = true;
        }
        if let Some(until) = self.election.wake() {
            self.now = self.now.max(until);
        }
    }
}

fn election(number: usize, start: u32, record: &(Version, Stored)) -> Election {
    let first = OpId(u64::from(start) << 32);
    Election::new(ELECTION.into(), uid(), elector(number, start), Some(record.clone()), first)
}

pub fn holder(record: &Record) -> Option<&Uid> {
    record.holder.as_ref().map(|holder| &holder.uid)
}

pub fn uid() -> Uid {
    Uid("web-uid".into())
}
