//! Outside of handovers: puts right what is written on the other pods, and rids the record of what is cleaned up.

use super::records::Intent;
use super::step::Step;
use super::{Election, Phase};
use crate::handover::{Purpose, not_a_conflict};
use crate::{
    Announcement, Command, Failure, Instant, Markings, OpId, Outcome, Pod, PodChange, PodOutcome, Record, Stored, Uid,
    Version, WritePod,
};

/// A write to a pod outside of a handover, whose outcome is awaited.
#[derive(Clone, Debug)]
pub(super) struct Upkeep {
    /// Whether the pod shows the leader's label.
    demotes: bool,
    write: WritePod,
    state: UpkeepState,
}

#[derive(Clone, Debug)]
enum UpkeepState {
    Writing(OpId),
    /// The pod is not what the cache shows.
    Unread,
    Reading(OpId),
}

impl Upkeep {
    /// A write that was just sent.
    pub(super) fn new(op: OpId, write: WritePod, demotes: bool) -> Self {
        Self { demotes, write, state: UpkeepState::Writing(op) }
    }

    pub(super) fn awaits(&self, op: OpId) -> bool {
        match &self.state {
            UpkeepState::Unread => false,
            UpkeepState::Writing(expected) | UpkeepState::Reading(expected) => *expected == op,
        }
    }
}

impl Election {
    /// The record is right: puts the other pods right, and drops from the record what is cleaned up.
    pub(super) fn settle(&mut self, stored: &Stored, leader: Option<&Pod>, step: &mut Step) {
        let view = step.view;
        let clean = self.maintain(stored, leader, step);
        if clean {
            self.failure = None;
        }
        let (Some(record), Some(version)) = (stored.record(), stored.version()) else { return };
        if clean && !record.former.is_empty() && (leader.is_some() || self.lock.is_fenced(Some(version))) {
            let tidied = Record {
                former: Vec::new(),
                term_by_version: false,
                generation: view.generation,
                elector: self.id.operator_id.clone(),
                ..record.clone()
            };
            self.amend(record, version, tidied, step);
        }
    }

    /// Writes a record that names the same holder in the same term.
    pub(super) fn amend(&mut self, replaced: &Record, version: Version, record: Record, step: &mut Step) {
        let (key, expected) = (step.view.key.clone(), Some(version));
        let op = step.request(Command::WriteRecord { key: key.clone(), expected, record: record.clone() });
        let (replaced, fenced) = (Some(replaced.clone()), self.lock.is_fenced(expected));
        let intent = Intent { key, record, replaced, fenced, purpose: Purpose::Tidy, target: None };
        self.phase = Phase::Writing(op, Box::new(intent));
    }

    /// Puts right what is written on all pods but the leader; returns whether nothing was left to do.
    pub(super) fn maintain(&mut self, stored: &Stored, leader: Option<&Pod>, step: &mut Step) -> bool {
        let view = step.view;
        // While nobody can be elected, the record is still the one of an earlier spec, or under an earlier key.
        let records = view.strays.iter().map(|(_, stray)| stray).chain([stored]).filter_map(Stored::written);
        let scopes = records.flat_map(Record::scopes).chain(self.lock.scopes());
        let former: Vec<Markings> =
            scopes.map(|scope| &scope.markings).filter(|old| *old != &view.scope.markings).cloned().collect();
        let term = self.terms.highest();
        let mut clean = !self.reread(step);
        self.fence_promotions(leader, &former, step);
        clean &= !leader.is_some_and(|leader| self.troubles.has(&leader.uid, PodChange::Promote));
        for pod in view.pods.iter().copied().filter(|pod| leader.is_none_or(|leader| leader.uid != pod.uid)) {
            if self.maintenance.contains_key(&pod.uid) || self.promotions.contains(&pod.uid) {
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
                (PodChange::Demote, markings.demotion(&self.id.name, term, &former))
            } else {
                let all: Vec<&Markings> = former.iter().chain([markings]).collect();
                if !self.id.wrote(pod) {
                    continue;
                }
                (PodChange::Remove, Markings::removal(&all, pod))
            };
            if patch.is_empty() {
                continue;
            }
            clean = false;
            let urgent = markings.shows_leader(pod);
            if let Some(until) = self.troubles.waits(&pod.uid, change, urgent, view.now) {
                step.wake_at(until);
                continue;
            }
            let unexpected =
                urgent || (self.id.wrote(pod) && !former.iter().any(|old| old.has_leftover(pod, markings)));
            let told = self.troubles.has(&pod.uid, change);
            if change == PodChange::Demote && unexpected && !told && record_is_settled(stored) {
                step.announce(drift(pod));
            }
            let write = WritePod::new(change, pod, patch);
            let op = step.request(Command::WritePod(write.clone()));
            self.maintenance.insert(pod.uid.clone(), Upkeep::new(op, write, urgent));
        }
        clean
    }

    /// Asks for the pods that are not what the cache shows; returns whether there are any.
    pub(super) fn reread(&mut self, step: &mut Step) -> bool {
        for upkeep in self.maintenance.values_mut() {
            if let UpkeepState::Unread = upkeep.state {
                upkeep.state = UpkeepState::Reading(step.request(Command::ReadPod { name: upkeep.write.name.clone() }));
            }
        }
        !self.maintenance.is_empty()
    }

    pub(super) fn take_maintenance(&mut self, uid: Uid, outcome: Outcome, now: Instant) {
        let Some(upkeep) = self.maintenance.remove(&uid) else { return };
        let change = upkeep.write.change;
        match outcome {
            Outcome::PodWritten(PodOutcome::Written(pod)) => match upkeep.write.patch.lacks(&pod) {
                None => self.troubles.forget(&uid, change),
                Some(what) => self.note_trouble(&upkeep, Failure::Rewritten(what), now),
            },
            Outcome::PodWritten(PodOutcome::Gone) => drop(self.gone.insert(uid)),
            Outcome::PodWritten(PodOutcome::Conflict) => {
                self.maintenance.insert(uid, Upkeep { state: UpkeepState::Unread, ..upkeep });
            }
            Outcome::PodRead(Ok(Some(pod))) if pod.uid == uid && pod.version <= upkeep.write.version => {
                self.note_trouble(&upkeep, not_a_conflict(&pod), now);
            }
            Outcome::PodRead(Ok(read)) if read.as_ref().is_none_or(|pod| pod.uid != uid) => {
                self.gone.insert(uid);
            }
            Outcome::PodWritten(PodOutcome::Failed(failure)) | Outcome::PodRead(Err(failure)) => {
                self.note_trouble(&upkeep, failure, now);
            }
            _ => {}
        }
    }

    fn note_trouble(&mut self, upkeep: &Upkeep, failure: Failure, now: Instant) {
        let WritePod { uid, name: pod, change, .. } = &upkeep.write;
        let (pod, why) = (pod.clone(), failure.text().to_owned());
        if self.troubles.note(uid, *change, upkeep.demotes, &failure, now) {
            self.told.push(Announcement::LabelsRefused { pod, uid: uid.clone(), why });
        }
        self.failure = Some(failure);
    }
}

fn record_is_settled(stored: &Stored) -> bool {
    stored.record().is_some_and(|record| record.holder.is_some())
}

pub(super) fn drift(pod: &Pod) -> Announcement {
    Announcement::LabelDrift { pod: pod.name.clone(), uid: pod.uid.clone() }
}
