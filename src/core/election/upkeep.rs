//! Outside of handovers: puts right what is written on the other pods, and rids the record of what is cleaned up.

use super::records::Intent;
use super::view::View;
use super::{Election, Phase};
use crate::core::handover::Purpose;
use crate::core::{
    Announcement, Command, Instant, Markings, OpId, Outcome, Pod, PodChange, PodOutcome, Record, Stored, Uid, Version,
    WritePod,
};

/// A write to a pod outside of a handover, whose outcome is awaited.
#[derive(Clone, Debug)]
pub(super) struct Upkeep {
    /// Whether the pod shows the leader's label.
    demotes: bool,
    state: UpkeepState,
}

#[derive(Clone, Debug)]
enum UpkeepState {
    Writing(OpId, String),
    /// The pod is not what the cache shows.
    Unread(String),
    Reading(OpId),
}

impl Upkeep {
    /// A write that was just sent.
    pub(super) fn new(op: OpId, pod: &Pod, demotes: bool) -> Self {
        Self { demotes, state: UpkeepState::Writing(op, pod.name.clone()) }
    }

    pub(super) fn awaits(&self, op: OpId) -> bool {
        matches!(&self.state, UpkeepState::Writing(expected, _) | UpkeepState::Reading(expected) if *expected == op)
    }
}

impl Election {
    /// The record is right: puts the other pods right, and drops from the record what is cleaned up.
    pub(super) fn settle(&mut self, stored: &Stored, leader: Option<&Pod>, view: &View, commands: &mut Vec<Command>) {
        let clean = self.maintain(stored, leader, view, commands);
        if clean {
            self.failure = None;
        }
        let (Some(record), Some(version)) = (stored.record(), stored.version()) else { return };
        if clean && !record.former.is_empty() && (leader.is_some() || self.fenced == Some(version)) {
            let tidied = Record {
                former: Vec::new(),
                term_by_version: false,
                generation: view.generation,
                elector: self.elector.clone(),
                ..record.clone()
            };
            self.amend(record, version, tidied, view, commands);
        }
    }

    /// Writes a record that names the same holder in the same term.
    pub(super) fn amend(
        &mut self,
        replaced: &Record,
        version: Version,
        record: Record,
        view: &View,
        commands: &mut Vec<Command>,
    ) {
        let op = self.next_op();
        let (key, expected) = (view.key.clone(), Some(version));
        commands.push(Command::WriteRecord { op, key: key.clone(), expected, record: record.clone() });
        let (replaced, fenced) = (Some(replaced.clone()), self.fenced == expected);
        let intent = Intent { key, record, replaced, fenced, purpose: Purpose::Tidy, target: None };
        self.phase = Phase::Writing(op, Box::new(intent));
    }

    /// Puts right what is written on all pods but the leader; returns whether nothing was left to do.
    pub(super) fn maintain(
        &mut self,
        stored: &Stored,
        leader: Option<&Pod>,
        view: &View,
        commands: &mut Vec<Command>,
    ) -> bool {
        // While nobody can be elected, the record is still the one of an earlier spec, or under an earlier key.
        let records = view.strays.iter().map(|(_, stray)| stray).chain([stored]).filter_map(Stored::written);
        let scopes = records.flat_map(|record| record.former.iter().chain([&record.scope])).chain(&self.scopes);
        let former: Vec<Markings> =
            scopes.map(|scope| &scope.markings).filter(|old| *old != &view.scope.markings).cloned().collect();
        let term = self.highest_term;
        let mut clean = !self.reread(commands);
        // A pod that can't be labelled does not hold up another one's demotion.
        let (waits, urgent) = (self.upkeep_backoff.waits(view.now), self.demotion_backoff.waits(view.now));
        for until in [waits, urgent].into_iter().flatten() {
            self.wake_at(until);
            clean = false;
        }
        for pod in view.pods.iter().copied().filter(|pod| leader.is_none_or(|leader| leader.uid != pod.uid)) {
            let held_up = if view.scope.markings.shows_leader(pod) { urgent } else { waits };
            if held_up.is_some() {
                continue;
            }
            if self.maintenance.contains_key(&pod.uid) {
                clean = false;
                continue;
            }
            let markings = &view.scope.markings;
            let (change, patch) = if view.scope.selector.matches(&pod.labels) {
                let leaves = (pod.deleting || pod.finished) && !markings.shows_leader(pod);
                let leftover = former.iter().any(|old| old.has_leftover(pod, markings));
                if (leaves || markings.is_follower(pod)) && !leftover {
                    continue;
                }
                (PodChange::Demote, markings.demotion(&self.name, term, &former))
            } else {
                let all: Vec<&Markings> = former.iter().chain([markings]).collect();
                if !self.wrote(pod) {
                    continue;
                }
                (PodChange::Remove, Markings::removal(&all, pod))
            };
            if patch.is_empty() {
                continue;
            }
            clean = false;
            let unexpected = markings.shows_leader(pod)
                || (self.wrote(pod) && !former.iter().any(|old| old.has_leftover(pod, markings)));
            if change == PodChange::Demote && unexpected && record_is_settled(stored) {
                commands.push(drift(pod));
            }
            let op = self.next_op();
            self.maintenance.insert(pod.uid.clone(), Upkeep::new(op, pod, markings.shows_leader(pod)));
            commands.push(Command::WritePod(WritePod::new(op, change, pod, patch)));
        }
        clean
    }

    /// Asks for the pods that are not what the cache shows; returns whether there are any.
    pub(super) fn reread(&mut self, commands: &mut Vec<Command>) -> bool {
        let ops = &mut self.ops;
        for upkeep in self.maintenance.values_mut() {
            if let UpkeepState::Unread(name) = &mut upkeep.state {
                *ops += 1;
                commands.push(Command::ReadPod { op: OpId(*ops), name: std::mem::take(name) });
                upkeep.state = UpkeepState::Reading(OpId(*ops));
            }
        }
        !self.maintenance.is_empty()
    }

    pub(super) fn take_maintenance(&mut self, uid: Uid, outcome: Outcome, now: Instant) {
        let Some(Upkeep { demotes, state }) = self.maintenance.remove(&uid) else { return };
        match (state, outcome) {
            (UpkeepState::Writing(..), Outcome::PodWritten(PodOutcome::Written(_))) => {
                self.upkeep_backoff.reset();
                self.demotion_backoff.reset();
            }
            (UpkeepState::Writing(..), Outcome::PodWritten(PodOutcome::Gone)) => drop(self.gone.insert(uid)),
            (UpkeepState::Writing(_, name), Outcome::PodWritten(PodOutcome::Conflict)) => {
                self.maintenance.insert(uid, Upkeep { demotes, state: UpkeepState::Unread(name) });
            }
            (_, Outcome::PodRead(Ok(read))) => {
                self.upkeep_backoff.reset();
                if read.is_none_or(|pod| pod.uid != uid) {
                    self.gone.insert(uid);
                }
            }
            (_, Outcome::PodWritten(PodOutcome::Failed(failure)) | Outcome::PodRead(Err(failure))) => {
                self.failure = Some(failure);
                self.upkeep_backoff.delay(now);
                if demotes {
                    self.demotion_backoff.delay_shortly(now);
                }
            }
            _ => {}
        }
    }
}

fn record_is_settled(stored: &Stored) -> bool {
    stored.record().is_some_and(|record| record.holder.is_some())
}

pub(super) fn drift(pod: &Pod) -> Command {
    Command::Announce(Announcement::LabelDrift { pod: pod.name.clone(), uid: pod.uid.clone() })
}
