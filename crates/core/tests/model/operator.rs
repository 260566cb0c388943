//! One operator of a cluster: the real decisions of a group, with caches of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lictor_core::{
    Command, FormerLeader, HandoverOrder, Instant, Known, Locks, Outcome, Pod, PodOutcome, ProbeFailure, Record,
    RecordOutcome, Replica, Request, Routing, Slice, SliceOutcome, Spec, Stored, Uid, Version, WhenLost,
};

use super::identity::operator_id;
use super::world::{self, ELECTION};

#[derive(Clone, Debug)]
pub struct Operator {
    replica: Replica,
    /// What it knows of the pods, by slot.
    pub pods: BTreeMap<usize, Pod>,
    /// Of each slot the first pod that is not known to be gone.
    pub first: Vec<u32>,
    /// What it knows of the slice, where routing is explored.
    pub slice: Option<Slice>,
    locks: Locks,
    /// Up to which version its watch or an answer has shown the lock.
    pub seen: Version,
    pub now: Instant,
    pub probe_failed: Option<Uid>,
    /// Whom the record named that it replaced last.
    pub replaced: Option<Uid>,
    /// Whether it has decided anything since it was started.
    pub awake: bool,
    start: u32,
    /// How often it has begun to decide; no two starts give the same numbers to requests.
    begun: u64,
    wishes: Wishes,
}

/// What users wish of a handover.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// Two leaders rather than none.
    pub promotes_first: bool,
    /// E1: the end of the former leader before the next one.
    pub ends_first: bool,
}

impl Operator {
    pub fn new(
        number: usize,
        pods: BTreeMap<usize, Pod>,
        first: Vec<u32>,
        record: (Version, Stored),
        wishes: Wishes,
    ) -> Self {
        Self::of_start(number, 1, pods, first, wishes).knowing(record)
    }

    fn of_start(number: usize, start: u32, pods: BTreeMap<usize, Pod>, first: Vec<u32>, wishes: Wishes) -> Self {
        Self {
            replica: Replica::new(ELECTION.into(), uid(), operator_id(number, start)),
            pods,
            first,
            slice: None,
            locks: Locks::default(),
            seen: Version::default(),
            now: Instant::default(),
            probe_failed: None,
            replaced: None,
            awake: false,
            start,
            begun: start.into(),
            wishes,
        }
    }

    fn knowing(mut self, (at, stored): (Version, Stored)) -> Self {
        self.see_record(at, &stored);
        self
    }

    pub fn reaching(mut self, slice: Option<Slice>) -> Self {
        self.slice = slice;
        self
    }

    pub fn see_slice(&mut self, slice: &Slice) {
        if self.slice.as_ref().is_none_or(|known| known.version < slice.version) {
            self.slice = Some(slice.clone());
        }
    }

    /// It crashed, or was another one's turn to act for a while. What it knows of the world may be as old as it was.
    pub fn start_anew(&self, number: usize) -> Self {
        let Self { pods, first, .. } = self.clone();
        Self::of_start(number, self.start + 1, pods, first, self.wishes)
            .knowing((self.seen, self.lock()))
            .reaching(self.slice.clone())
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
        let (_, key, _) = world::spec();
        self.seen = self.seen.max(at);
        let stored = Arc::new(stored.clone());
        if self.locks.put(key, at, &stored).is_some() {
            self.replica.observe(key, at, &stored);
        }
    }

    /// The lock, as it was shown last.
    pub fn lock(&self) -> Stored {
        self.locks.get(world::spec().1).map_or(Stored::Absent, |(_, stored)| Stored::clone(stored))
    }

    /// Whom the record names by which it decides.
    pub fn named(&self) -> Option<&Uid> {
        holder(self.replica.election()?.record()?)
    }

    /// Whether it is in the middle of a handover.
    pub fn is_busy(&self) -> bool {
        self.replica.election().is_some_and(lictor_core::Election::is_busy)
    }

    /// When its next step is due if nothing else happens.
    pub fn due(&self) -> Option<Instant> {
        self.replica.election()?.wake()
    }

    /// Takes an outcome; what was read or written is known before.
    pub fn take(&mut self, op: lictor_core::OpId, command: &Command, outcome: Outcome, shows: bool) {
        match &outcome {
            _ if !shows => {}
            Outcome::PodWritten(PodOutcome::Written(pod)) => self.put_pod(pod),
            Outcome::PodRead(Ok(Some(pod))) => self.put_pod(pod),
            Outcome::PodsListed(Ok(pods)) => pods.iter().for_each(|pod| self.put_pod(pod)),
            Outcome::SliceWritten(SliceOutcome::Written(slice)) => self.see_slice(slice),
            Outcome::SliceRead(Ok(Some(slice))) => self.see_slice(slice),
            Outcome::RecordWritten(RecordOutcome::Written(version)) => {
                if let Command::WriteRecord { record, .. } = command {
                    self.see_record(*version, &Stored::Ours(*version, record.as_ref().clone()));
                }
            }
            _ => {}
        }
        self.replica.take(op, outcome, self.now);
    }

    /// One step: what is to be carried out.
    pub fn step(&mut self) -> Vec<Request> {
        let (_, key, rules) = world::spec();
        let scope = world::scope(self.wishes.ends_first);
        if self.probe_failed.is_some() && self.named() != self.probe_failed.as_ref() {
            self.probe_failed = None;
        }
        let pods: Vec<&Pod> = self.pods.values().collect();
        // Whoever does not fail its probe has answered it, so that who failed it earlier may lead again.
        let answered = self.named().filter(|_| self.probe_failed.is_none()).cloned();
        let order = if self.wishes.promotes_first { HandoverOrder::PromoteFirst } else { HandoverOrder::DemoteFirst };
        let ends_first = self.wishes.ends_first;
        let former_leader = if ends_first { FormerLeader::DeleteFirst { evicts: false } } else { FormerLeader::Keep };
        let spec = Spec {
            scope,
            rules,
            order,
            former_leader,
            failover_delay: Duration::ZERO,
            when_lost: WhenLost::Demote,
            ttl: Duration::ZERO,
            silence: Duration::ZERO,
            seen_after: Duration::ZERO,
        };
        let slices: Vec<&Slice> = self.slice.iter().collect();
        let known = Known {
            routing: if slices.is_empty() { Routing::Off } else { Routing::By(&world::SERVICE) },
            slices: &slices,
            spec: Some(spec),
            pods: &pods,
            probe_failed: self.probe_failed.as_ref().map(|uid| (uid, ProbeFailure::NoAnswer)),
            probe_answered: answered.as_ref(),
            ..Known::new(self.now, key, &self.locks)
        };
        let before = self.named().cloned();
        let requests = self.replica.step(&known, &mut self.begun).requests;
        if requests.iter().any(|request| matches!(request.command, Command::WriteRecord { .. })) {
            self.replaced = before;
        }
        requests
    }

    /// Time goes on until it wakes.
    pub fn wake(&mut self) {
        self.awake = true;
        if let Some(until) = self.due() {
            self.now = self.now.max(until);
        }
    }
}

pub fn holder(record: &Record) -> Option<&Uid> {
    record.holder.as_ref().map(|holder| &holder.uid)
}

pub fn uid() -> Uid {
    Uid("web-uid".into())
}
