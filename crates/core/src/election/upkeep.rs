//! Corrects, outside of handovers, the marks on the pods that do not lead.

use std::collections::{BTreeMap, BTreeSet};

use super::former::has_ended;
use super::lock::Lock;
use super::promotions::Promotions;
use super::troubles::Troubles;
use crate::marking::{Before, ELECTION_ANNOTATION, TERM_ANNOTATION, is_held};
use crate::ownership::written_on;
use crate::step::Step;
use crate::timers::Timer;
use crate::write::{Shown, Versioned, not_a_conflict};
use crate::{
    Announcement, Command, Failure, Instant, Markings, OpId, Outcome, Pod, PodChange, PodPatch, Scope, Stored, Term,
    Uid, WritePod, give_back,
};

/// Writes to pods outside of handovers, and what their answers told about the pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Upkeep {
    writes: BTreeMap<Uid, Write>,
    /// Pods that are gone, though the cache may still show them.
    gone: BTreeSet<Uid>,
}

/// A write whose outcome is awaited.
#[derive(Clone, Debug)]
struct Write {
    /// Whether the pod shows a leader label.
    demotes: bool,
    asked: WritePod,
    state: Versioned,
}

/// The state that the operator brings pods to.
pub(super) struct Wanted<'a> {
    /// The lock, as last known.
    pub(super) stored: &'a Stored,
    /// The highest term.
    pub(super) term: Term,
    /// Markings of earlier specs that may still be on pods.
    pub(super) former: &'a [Markings],
    /// The scopes under which the pods may have been written, with the present one.
    pub(super) scopes: &'a [&'a Scope],
    /// The pod that stays as it is.
    pub(super) leader: Option<&'a Pod>,
    /// E2: how former leaders are deleted now, if they are.
    pub(super) deletion: Option<PodChange>,
    /// E1: the former leaders that this process has demoted.
    pub(super) demoted: &'a BTreeSet<Uid>,
}

/// Why a write failed, if it did, and the news of it for the user.
pub(super) struct Written {
    pub(super) failure: Option<Failure>,
    pub(super) told: Option<Announcement>,
}

impl Upkeep {
    /// Notes that a pod is gone, whatever the cache shows.
    pub(super) fn note_gone(&mut self, pod: Uid) {
        self.gone.insert(pod);
    }

    /// Whether no write is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.writes.is_empty()
    }

    /// The pods that are gone.
    pub(super) fn gone(&self) -> &BTreeSet<Uid> {
        &self.gone
    }

    /// Forgets pods that the cache no longer shows.
    pub(super) fn retain(&mut self, pods: &[&Pod]) {
        self.gone.retain(|uid| pods.iter().any(|pod| pod.uid == *uid));
    }

    /// Corrects the marks on all pods but the leader. Returns whether nothing was left to do.
    pub(super) fn maintain(
        &mut self,
        wanted: &Wanted,
        promotions: &mut Promotions,
        troubles: &Troubles,
        step: &mut Step,
    ) -> bool {
        let &Wanted { stored, term, former, leader, .. } = wanted;
        let Step { id, view, .. } = *step;
        let mut clean = !self.reread(step);
        promotions.fence(leader, former, wanted.scopes, term, step);
        clean &= !leader.is_some_and(|leader| troubles.has(&leader.uid, PodChange::Promote));
        let markings = &view.scope.markings;
        for pod in view.pods.iter().copied().filter(|pod| leader.is_none_or(|leader| leader.uid != pod.uid)) {
            if self.writes.contains_key(&pod.uid) || promotions.contains(&pod.uid) {
                clean = false;
                continue;
            }
            let leftover = former.iter().any(|old| old.has_leftover(pod, markings));
            let Some((change, patch)) = needed(pod, wanted, leftover, step) else { continue };
            clean = false;
            let urgent = markings.shows_leader(pod) && change == PodChange::Demote;
            if let Some(until) = troubles.waits(&pod.uid, change, urgent, view.now) {
                step.wake_at(Timer::PodRetry, until);
                continue;
            }
            // A handover has left its stamp on a pod that takes no part. And an election waits for the end of a former leader.
            let stamped = view.foreign.contains(&pod.uid) || change != PodChange::Demote;
            if !urgent && !leftover && !stamped && view.now < view.marks_from {
                // L1: this write can wait.
                step.wake_at(Timer::PodRetry, view.marks_from);
                continue;
            }
            let unexpected = urgent || (id.wrote(pod) && !leftover);
            let told = troubles.has(&pod.uid, change);
            if change == PodChange::Demote && unexpected && !told && names_holder(stored) {
                step.announce(drift(pod));
            }
            self.write(WritePod::new(change, pod, patch), urgent, step);
        }
        clean
    }

    /// Takes the markings of these scopes off the pods of a withdrawn election.
    pub(super) fn remove(&mut self, scopes: &[&Scope], troubles: &Troubles, lock: &Lock, step: &mut Step) {
        let Step { id, view, .. } = *step;
        self.reread(step);
        for pod in view.pods.iter().copied() {
            if !id.wrote(pod) || self.writes.contains_key(&pod.uid) || troubles.is_left(pod, lock, view) {
                continue;
            }
            if let Some(until) = troubles.waits(&pod.uid, PodChange::Remove, false, view.now) {
                step.wake_at(Timer::PodRetry, until);
                continue;
            }
            let patch = Markings::removal(&written_on(scopes, pod), pod);
            self.write(WritePod::new(PodChange::Remove, pod, patch), false, step);
        }
    }

    /// E1: takes the finalizer off pods that have ended, also of an election that writes nothing else.
    pub(super) fn release(&mut self, troubles: &Troubles, step: &mut Step) {
        let Step { id, view, .. } = *step;
        self.reread(step);
        for pod in view.pods.iter().copied().filter(|pod| id.wrote(pod) && has_ended(pod, view)) {
            let Some(patch) = PodPatch::release(pod).filter(|_| !self.writes.contains_key(&pod.uid)) else { continue };
            match troubles.waits(&pod.uid, PodChange::Release, false, view.now) {
                Some(until) => step.wake_at(Timer::PodRetry, until),
                None => self.write(WritePod::new(PodChange::Release, pod, patch), false, step),
            }
        }
    }

    fn write(&mut self, write: WritePod, demotes: bool, step: &mut Step) {
        let op = step.request(Command::WritePod(write.clone()));
        let state = Versioned::Sent(op, Some(write.version));
        self.writes.insert(write.uid.clone(), Write { demotes, asked: write, state });
    }

    /// Reads the pods that differ from the cache. Returns whether any write is awaited.
    fn reread(&mut self, step: &mut Step) -> bool {
        for write in self.writes.values_mut() {
            write.state.read(|| step.request(Command::ReadPod { name: write.asked.name.clone() }));
        }
        !self.writes.is_empty()
    }

    /// The pod for which this outcome is awaited.
    pub(super) fn awaits(&self, op: OpId) -> Option<Uid> {
        self.writes.iter().find(|(_, write)| write.state.awaits(op)).map(|(uid, _)| uid.clone())
    }

    /// Takes an outcome that is awaited for a pod. Returns what is new, if anything is.
    pub(super) fn take(
        &mut self,
        uid: Uid,
        outcome: Outcome,
        troubles: &mut Troubles,
        now: Instant,
    ) -> Option<Written> {
        let mut write = self.writes.remove(&uid)?;
        give_back(&mut self.writes);
        let change = write.asked.change;
        let deletes = matches!(change, PodChange::Delete | PodChange::Evict);
        let failure = match write.state.take(&uid, outcome) {
            Ok(Shown::Written(pod)) => match write.asked.patch.lacks(&pod) {
                None => {
                    troubles.forget(&uid, change);
                    let told = deletes.then_some(Announcement::FormerLeaderDeleted { pod: write.asked.name, uid });
                    return Some(Written { failure: None, told });
                }
                Some(what) => Failure::Rewritten(what),
            },
            Ok(Shown::Gone) => {
                self.gone.insert(uid.clone());
                troubles.forget(&uid, change);
                let told = deletes.then_some(Announcement::FormerLeaderDeleted { pod: write.asked.name, uid });
                return Some(Written { failure: None, told });
            }
            Ok(Shown::Read(_)) => return None,
            Ok(Shown::Unchanged(pod)) => not_a_conflict(&*pod),
            Ok(Shown::Nothing) => {
                self.writes.insert(uid, write);
                return None;
            }
            Err(failure) => failure,
        };
        let WritePod { name: pod, .. } = write.asked;
        let why = failure.text().to_owned();
        let tell = troubles.note(&uid, change, write.demotes, &failure, now);
        let told = if deletes {
            Announcement::FormerLeaderStays { pod, uid, why }
        } else {
            Announcement::LabelsRefused { pod, uid, why }
        };
        let told = tell.then_some(told);
        // The next leader is labelled all the same: see `undeleted`.
        let failure = (!deletes).then_some(failure);
        Some(Written { failure, told })
    }
}

/// The write that a pod needs which does not lead, or `None` if the pod is as it should be.
fn needed(pod: &Pod, wanted: &Wanted, leftover: bool, step: &Step) -> Option<(PodChange, PodPatch)> {
    let Step { id, view, .. } = *step;
    let &Wanted { term, former, scopes, stored, deletion, .. } = wanted;
    let markings = &view.scope.markings;
    let leaves = stored.record().is_some_and(|record| record.leaving.iter().any(|holder| holder.uid == pod.uid));
    if let Some(needed) = needed_to_leave(pod, deletion.filter(|_| leaves), step) {
        return Some(needed);
    }
    if leaves && view.former_leader.comes_first() && !markings.shows_leader(pod) {
        // E1: the finalizer stays until the pod has ended, whatever else is wanted of it. A pod that may never have been promoted gets a
        // new version, for which there is no promotion.
        let unsure = !is_held(pod) && !wanted.demoted.contains(&pod.uid) && !pod.deleting;
        let demotion = || markings.demotion(&id.name, term, former, &Before::of(pod));
        return unsure.then(|| (PodChange::Demote, demotion()));
    }
    let (change, patch) = if view.selects(pod) {
        let leaves = (pod.deleting || pod.finished) && !markings.shows_leader(pod);
        // Without its mark, no operator would find the pod again when the election is withdrawn.
        if (leaves || (markings.is_follower(pod) && id.wrote(pod))) && !leftover {
            return None;
        }
        (PodChange::Demote, markings.demotion(&id.name, term, former, &Before::of(pod)))
    } else {
        if !id.wrote(pod) {
            return unstamp(pod);
        }
        let mut patch = Markings::removal(&written_on(scopes, pod), pod);
        if markings.holds && is_held(pod) {
            patch.keep_finalizer();
        }
        (PodChange::Remove, patch)
    };
    (!patch.is_empty()).then_some((change, patch))
}

/// The write that a former leader needs: its deletion (E2), or, because it has ended, the removal of its finalizer.
fn needed_to_leave(pod: &Pod, deletion: Option<PodChange>, step: &Step) -> Option<(PodChange, PodPatch)> {
    let Step { id, view, .. } = *step;
    let led = is_held(pod);
    let unheld = !led || !view.scope.markings.holds;
    if (id.wrote(pod) || view.selects(pod)) && (has_ended(pod, view) || (unheld && (pod.deleting || pod.finished))) {
        return PodPatch::release(pod).map(|patch| (PodChange::Release, patch));
    }
    // E1: a pod without the finalizer has never led, or its end is known.
    let due = if view.former_leader.comes_first() { led } else { !pod.finished };
    let deleted = deletion.filter(|_| due && id.wrote(pod) && !pod.deleting);
    deleted.map(|change| (change, PodPatch::default()))
}

/// O1: takes the term off a pod that is not the election's. A handover wrote the term alone, to change the pod's version.
fn unstamp(pod: &Pod) -> Option<(PodChange, PodPatch)> {
    let is_marked = pod.annotations.contains_key(ELECTION_ANNOTATION);
    let stamped = pod.annotations.contains_key(TERM_ANNOTATION) && !is_marked;
    stamped.then(|| {
        let mut patch = PodPatch::default();
        patch.annotations.insert(TERM_ANNOTATION.into(), None);
        (PodChange::Remove, patch)
    })
}

fn names_holder(stored: &Stored) -> bool {
    stored.record().is_some_and(|record| record.holder.is_some())
}

/// The announcement that another program changed the labels of a pod.
pub(super) fn drift(pod: &Pod) -> Announcement {
    Announcement::LabelDrift { pod: pod.name.clone(), uid: pod.uid.clone() }
}
