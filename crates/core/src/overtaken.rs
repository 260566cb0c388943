//! C10: the writes of a replica that does not act: it takes off the leader label of a pod, and the address in a slice, of a term that is
//! over because another cluster has taken the lock in a higher one.
//!
//! A term that is over stays so for ever, so the replica needs no claim and no clock. A pod that was elected in this cluster *afterwards*
//! has a higher term, and its promotion gave the pod another version, so a request for the version that was seen here fails. The replica's
//! knowledge may be old, though, because the election may have another lock by now. So after it has seen the pods, it reads the election
//! and the lock, and writes only if both are as it knew them.

use std::collections::BTreeSet;

use crate::backoff::Backoff;
use crate::identity::Identity;
use crate::marking::{Before, term_of};
use crate::{
    Command, ElectionRead, Instant, Key, OpId, Outcome, Pod, PodChange, PodOutcome, Rival, Scope, Slice, SliceContent,
    SliceOutcome, Stored, Term, Uid, WritePod, WriteSlice,
};

/// A group whose lock another cluster holds, as a replica that does not act sees it.
#[derive(Clone, Copy)]
pub struct HeldElsewhere<'a> {
    /// The moment of the step.
    pub now: Instant,
    /// The election's generation that the rest is read from.
    pub generation: i64,
    /// The key of the group's lock.
    pub key: &'a Key,
    /// The selected pods, and the labels and annotations that are written on them.
    pub scope: &'a Scope,
    /// The pods that the operator may have written to.
    pub pods: &'a [&'a Pod],
    /// The slices that the operator may have written.
    pub slices: &'a [&'a Slice],
    /// The holder of the lock, by the store's watch.
    pub rival: &'a Rival,
}

/// The marks that are being taken off.
#[derive(Clone, Debug)]
pub(crate) struct Overtaken {
    phase: Phase,
    backoff: Backoff,
    /// The holder of the lock for which the back-off counts.
    of: Option<(Option<String>, Term)>,
}

#[derive(Clone, Debug, Default)]
enum Phase {
    #[default]
    Idle,
    /// The replica reads the election and the lock.
    Confirming(Box<Confirming>),
    /// Both are as they were known, so these commands are to be sent.
    Confirmed(OpId, Vec<Command>),
    Writing(BTreeSet<OpId>),
}

#[derive(Clone, Debug)]
struct Confirming {
    /// The read of the election, or `None` if it was answered as expected.
    election: Option<OpId>,
    /// The read of the lock, or `None` if it was answered.
    lock: Option<OpId>,
    generation: i64,
    /// The cluster that holds the lock.
    cluster: Option<String>,
    last: OpId,
    /// The commands that take marks off, each with the term of its mark.
    due: Vec<(Term, Command)>,
}

impl Overtaken {
    pub(crate) fn new(seed: &str) -> Self {
        Self { phase: Phase::Idle, backoff: Backoff::new(seed), of: None }
    }

    /// Forgets the requests that are under way.
    pub(crate) fn forget(&mut self) {
        self.phase = Phase::Idle;
    }

    /// When the next step is due if nothing else happens.
    pub(crate) fn wake(&self, now: Instant) -> Option<Instant> {
        self.backoff.waits(now)
    }

    /// Decides what to do now. `begun` as for [`Replica::step`](crate::Replica::step).
    pub(crate) fn step(&mut self, id: &Identity, known: &HeldElsewhere, begun: &mut u64) -> Vec<(OpId, Command)> {
        let of = Some((known.rival.cluster.clone(), known.rival.term));
        if self.of != of {
            self.of = of;
            self.backoff.reset();
        }
        match std::mem::take(&mut self.phase) {
            Phase::Idle => {
                let due = due(id, known);
                if due.is_empty() {
                    self.backoff.reset();
                    return Vec::new();
                }
                if self.backoff.waits(known.now).is_some() {
                    return Vec::new();
                }
                *begun += 1;
                let first = OpId(*begun << 32);
                let [election, lock] = [1, 2].map(|after| OpId(first.0 + after));
                self.phase = Phase::Confirming(Box::new(Confirming {
                    election: Some(election),
                    lock: Some(lock),
                    generation: known.generation,
                    cluster: known.rival.cluster.clone(),
                    last: lock,
                    due,
                }));
                let lock = (lock, Command::ReadRecord { key: known.key.clone() });
                vec![(election, Command::ReadElection), lock]
            }
            Phase::Confirmed(last, commands) => {
                let ops = (1..).map(|after| OpId(last.0 + after));
                let requests: Vec<_> = ops.zip(commands).map(|(op, command)| (op, stamped(command, op))).collect();
                self.phase = Phase::Writing(requests.iter().map(|(op, _)| *op).collect());
                requests
            }
            busy => {
                self.phase = busy;
                Vec::new()
            }
        }
    }

    /// Takes the outcome of a request, if it is one of these. Returns whether it was.
    pub(crate) fn take(&mut self, op: OpId, outcome: &Outcome, uid: &Uid, now: Instant) -> bool {
        match &mut self.phase {
            Phase::Confirming(confirming) if [confirming.election, confirming.lock].contains(&Some(op)) => {
                if !confirming.take(op, outcome, uid) {
                    self.phase = Phase::Idle;
                    self.backoff.delay(now);
                } else if let Confirming { election: None, lock: None, last, due, .. } = &mut **confirming {
                    let commands = std::mem::take(due).into_iter().map(|(_, command)| command).collect();
                    self.phase = Phase::Confirmed(*last, commands);
                }
                true
            }
            Phase::Writing(ops) if ops.contains(&op) => {
                ops.remove(&op);
                let done = matches!(
                    outcome,
                    Outcome::PodWritten(PodOutcome::Written(_) | PodOutcome::Gone)
                        | Outcome::SliceWritten(SliceOutcome::Written(_) | SliceOutcome::Gone)
                );
                if ops.is_empty() {
                    self.phase = Phase::Idle;
                }
                if !done {
                    // The pod or slice was changed meanwhile, or the outcome is unknown: the watch will show the present state.
                    self.backoff.delay_shortly(now);
                }
                true
            }
            _ => false,
        }
    }
}

impl Confirming {
    /// Takes an answer. Returns whether everything is as it was known.
    fn take(&mut self, op: OpId, outcome: &Outcome, uid: &Uid) -> bool {
        match outcome {
            Outcome::ElectionRead(Ok(ElectionRead::Present { uid: of, generation })) => {
                self.election = None;
                of == uid && *generation == self.generation
            }
            Outcome::RecordRead(Ok(Stored::HeldByOther(_, rival))) if self.lock == Some(op) => {
                self.lock = None;
                self.due.retain(|(term, _)| *term < rival.term);
                rival.cluster.is_some() && rival.cluster == self.cluster && !self.due.is_empty()
            }
            _ => false,
        }
    }
}

/// The commands against leaders here whose term is below that of the cluster that holds the lock.
fn due(id: &Identity, known: &HeldElsewhere) -> Vec<(Term, Command)> {
    let Identity { name, uid, operator_id } = id;
    let HeldElsewhere { scope, rival, pods, slices, .. } = *known;
    let pods = pods.iter().filter_map(|pod| {
        let leads = id.wrote(pod) && scope.selector.matches(&pod.labels) && scope.markings.shows_leader(pod);
        let term = term_of(pod).filter(|term| leads && *term < rival.term)?;
        let patch = scope.markings.demotion(name, rival.term, &[], &Before::of(pod));
        Some((term, Command::WritePod(WritePod::new(PodChange::Demote, pod, patch))))
    });
    let slices = slices.iter().filter_map(|slice| {
        let SliceContent { service, family, term, .. } = &slice.content;
        let leads = slice.is_of(uid, name) && slice.content.shows() && *term < rival.term;
        let write = WriteSlice::Replace {
            name: slice.name.clone(),
            uid: slice.uid.clone(),
            version: slice.version,
            content: SliceContent::empty(uid, service, *family, *term),
            stamp: (operator_id.clone(), OpId(0)),
        };
        leads.then_some((*term, Command::WriteSlice(write)))
    });
    // The slice comes first, so that no Service reaches the pod when its label goes.
    slices.chain(pods).collect()
}

fn stamped(mut command: Command, op: OpId) -> Command {
    if let Command::WriteSlice(WriteSlice::Replace { stamp, .. }) = &mut command {
        stamp.1 = op;
    }
    command
}
