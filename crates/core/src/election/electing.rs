//! Writes the record that begins a term, or ends one without a leader.

use super::fitness::{Candidate, Decision, Fitness};
use super::phase::Intent;
use super::pod_writes::PodWrites;
use super::records::Records;
use super::report::Report;
use super::routes::Routes;
use super::switchovers::{self, Switching};
use super::workloads::{Target, WorkloadReconciler};
use crate::handover::Purpose;
use crate::identity::Identity;
use crate::step::Step;
use crate::timers::Timer;
use crate::view::{Desired, Situation, WhenLost};
use crate::{Announcement, Holder, Instant, Reason, Record, Stored, SwitchoverMark, Timestamp};

/// The parts that an election of a leader concerns.
pub(super) struct Electing<'e> {
    pub(super) records: &'e mut Records,
    pub(super) report: &'e mut Report,
    pub(super) fitness: &'e mut Fitness,
    pub(super) pod_writes: &'e mut PodWrites,
    pub(super) workloads: &'e mut WorkloadReconciler,
    pub(super) routes: &'e Routes,
}

impl Electing<'_> {
    /// Writes a record that names this candidate, or none. H1: before any pod is promoted.
    pub(super) fn elect(&mut self, stored: &Stored, candidate: Option<Candidate>, reason: Reason, step: &mut Step) {
        let view = step.view;
        self.report.situation = Situation::HandingOver;
        if candidate.is_some() && self.records.waits_for_rival(stored, step) {
            return;
        }
        match stored {
            Stored::Damaged(..) => {
                step.announce(Announcement::LockChanged { what: "edited by hand" });
            }
            Stored::Absent if matches!(reason, Reason::LockRestored | Reason::LockLost) => {
                step.announce(Announcement::LockChanged { what: "deleted" });
            }
            _ => {}
        }
        let lost = if view.policy.shared { self.records.lock.last() } else { None };
        let replaced = stored.written().or(lost).cloned();
        let target = candidate.map(|candidate| candidate.holder(&step.id.uid));
        let holder = target.as_ref().map(|(holder, _)| holder.clone());
        let since = replaced.as_ref().filter(|r| r.holder.as_ref().map(|h| &h.uid) == holder.as_ref().map(|h| &h.uid));
        let since = since.map(|record| record.since).or_else(|| self.kept_since(holder.as_ref())).unwrap_or(view.wall);
        let mut record = self.records.make_record(holder.clone(), replaced.as_ref(), since, step);
        if reason != Reason::Leaving {
            record.leaving = self.pod_writes.former.of_next(replaced.as_ref(), holder.as_ref(), view);
        }
        if let Some(mark) = &mut record.switchover {
            mark.remains.clear();
        }
        record.drain_obligation =
            self.records.obligations.to_record(replaced.as_ref(), self.records.lock.record(), view);
        if candidate.is_some() {
            record.term = self.records.terms.next(view.first_term);
            record.term_by_version = view.policy.shared;
        }
        // H14: the switchover by which this pod is elected. Another one may be accepted while the lock was given to this cluster.
        if let (Reason::SwitchedOver, Some(asked), Some(Candidate::Pod(pod))) =
            (&reason, view.switchovers.accepted, candidate)
            && self.switching(step.id).to(replaced.as_ref(), view).is_some_and(|to| to.uid == pod.uid)
        {
            record.switchover = Some(switchovers::mark(asked, replaced.as_ref(), pod));
        }
        match replaced.as_ref().map(|replaced| (&replaced.holder, &replaced.offer)) {
            Some((_, offer)) if candidate.is_none() => record.offer.clone_from(offer),
            // The other cluster did not get the lock. W12: the record says so for this term only.
            Some((None, Some(offer))) => {
                let remains = self.workloads.outlasting(step);
                record.switchover =
                    Some(SwitchoverMark { remains, ..SwitchoverMark::given_up(offer.switchover.clone()) });
            }
            _ => {}
        }
        for (_, stray) in view.strays {
            let scopes = stray.record().into_iter().flat_map(Record::scopes);
            record.add_former(scopes);
            record.switchover = record.switchover.or_else(|| stray.record()?.switchover.clone());
        }
        let expected = stored.version();
        let intent = Intent {
            key: view.key.clone(),
            record,
            chain: self.records.lock.chain(expected),
            previous: replaced.and_then(|record| record.holder),
            purpose: Purpose::Elect(reason),
            target,
            slices: self.routes.seen(view),
        };
        self.records.write(intent, expected, step);
    }

    /// C3, W3: takes the lock, which no cluster holds, if there is a candidate to lead. C6: and not before `vanished`.
    pub(super) fn take_lock(&mut self, stored: &Stored, vanished: Option<Instant>, step: &mut Step) {
        let view = step.view;
        let shows = self.pod_writes.somebody_may_lead(self.routes, step.id, view)
            || self.workloads.lets_run(Target::Await, step);
        if shows && view.policy.when_lost == WhenLost::Demote {
            return;
        }
        if view.desired == Desired::Leave {
            self.report.situation = Situation::Vacant;
            return;
        }
        if let Some(until) = vanished
            && view.now < until
        {
            // A person deleted the lock, or the store was put back. The other cluster may not know yet.
            self.report.situation = Situation::LockLost;
            step.wake_at(Timer::LockVanished, until);
            return;
        }
        if view.following.is_some_and(|following| !following.lock.is_known()) {
            // F2: no pod is promoted while the holder is unknown.
            self.report.situation = Situation::Vacant;
            return;
        }
        let own =
            stored.written().filter(|record| record.election == step.id.uid).or(self.records.lock.last()).cloned();
        let decision = self.fitness.decide(own.as_ref(), &self.pod_writes.troubles, step);
        let PodWrites { former, troubles, .. } = &mut *self.pod_writes;
        let (decision, awaited) = former.first(decision, stored, &self.records.lock, troubles, step);
        match decision {
            Decision::Keep(candidate) | Decision::KeepDespiteProbe(candidate, _) => {
                self.elect(stored, Some(candidate), Reason::LockLost, step);
            }
            Decision::Elect(candidate, reason) => self.elect(stored, Some(candidate), reason, step),
            Decision::Wait(why, until) => {
                self.report.situation = Situation::Recovering(why, until);
                step.wake_at(Timer::Recovery, until);
            }
            Decision::Vacate(_) | Decision::Nobody => {
                self.report.situation = awaited.map_or(Situation::Vacant, Situation::AwaitingEnd);
                self.pod_writes.maintain(stored, None, &self.records.lock, self.records.terms.highest(), step);
                self.workloads.reconcile(Target::Follow, self.records.circumstances(view), step);
            }
        }
    }

    /// When the pod began to lead whose record was lost.
    fn kept_since(&self, holder: Option<&Holder>) -> Option<Timestamp> {
        self.report
            .leader
            .as_ref()
            .filter(|(_, leader, _)| Some(&leader.uid) == holder.map(|h| &h.uid))
            .map(|(.., since)| *since)
    }

    /// Whether a switchover can be carried out.
    pub(super) fn switching<'s>(&'s self, id: &'s Identity) -> Switching<'s> {
        Switching { id, terms: self.records.terms, fitness: self.fitness, pod_writes: self.pod_writes }
    }
}
