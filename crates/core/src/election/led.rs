//! Decides what to do while this cluster may lead, and nothing is under way.

use super::across::Across;
use super::electing::Electing;
use super::fitness::{Candidate, Decision, Fitness};
use super::phase::{Phase, Withdrawal};
use super::pod_writes::PodWrites;
use super::records::Records;
use super::release::release;
use super::report::{Report, leadership};
use super::routes::{Goal, Routes};
use super::routing::route;
use super::switchovers::given_up;
use super::upkeep::drift;
use super::workloads::{Target, WorkloadReconciler};
use crate::handover::{Chain, Handover};
use crate::step::Step;
use crate::timers::Timer;
use crate::view::{Desired, Situation, View};
use crate::{Pod, PodChange, Reason, Record, Stored, SwitchoverMark};

/// The parts that a leadership concerns.
pub(super) struct Led<'e> {
    pub(super) records: &'e mut Records,
    pub(super) report: &'e mut Report,
    pub(super) fitness: &'e mut Fitness,
    pub(super) pod_writes: &'e mut PodWrites,
    pub(super) routes: &'e mut Routes,
    pub(super) workloads: &'e mut WorkloadReconciler,
    pub(super) across: &'e mut Across,
}

impl Led<'_> {
    /// Elects a leader, keeps it, or demotes it. Returns whether to look again.
    pub(super) fn run(&mut self, stored: &Stored, step: &mut Step) -> bool {
        let view = step.view;
        let record = stored.record();
        if let Some(given_up) = record.and_then(|record| given_up(record, step.id, view)) {
            self.records.amend(stored, given_up, self.routes, step);
            return false;
        }
        let decision = match view.desired {
            Desired::Leave if record.is_some_and(|record| record.holder.is_none()) => Decision::Nobody,
            Desired::Leave => Decision::Vacate(Reason::Leaving),
            _ => match self.electing().switching(step.id).to(record, view).filter(|_| !self.is_kept(record, view)) {
                Some(pod) => Decision::Elect(Candidate::Pod(pod), Reason::SwitchedOver),
                None => match self.across.give_way(stored, self.records.terms, self.workloads, step) {
                    Some(decision) => decision,
                    None => self.fitness.decide(record, &self.pod_writes.troubles, step),
                },
            },
        };
        let PodWrites { former, troubles, .. } = &mut *self.pod_writes;
        former.deleted_from = self.fitness.flapping().deletes_from(view.now);
        let (decision, awaited) = former.first(decision, stored, &self.records.lock, troubles, step);
        if let Some(situation) = decision.situation() {
            self.report.situation = situation;
        }
        let settled =
            decision.is_settled(record, self.records.terms, step.id, view) && self.is_routable(&decision, stored, step);
        if let (false, Some(record), Some(version)) = (settled, record, stored.version())
            && !self.records.lock.is_fenced(Some(version))
            && !self.records.lock.is_verified(version, decision.pod())
        {
            return self.records.verify(record, version, decision.pod(), step);
        }
        if let (false, Some(record), Some(version)) = (settled, record, stored.version())
            && record.election != step.id.uid
            && !self.records.lock.is_confirmed(Some(version))
        {
            self.records.ask_election(Some(version), step);
            return false;
        }
        if settled {
            if let Decision::Keep(Candidate::Pod(pod)) | Decision::KeepDespiteProbe(Candidate::Pod(pod), _) = decision {
                self.pod_writes.troubles.forget(&pod.uid, PodChange::Promote);
            }
            self.fitness.forget_cause();
        } else {
            self.fitness.note_cause(view.now);
        }
        match decision {
            Decision::Keep(candidate) | Decision::KeepDespiteProbe(candidate, _)
                if settled || self.leads_incompletely(candidate, record, step) =>
            {
                let record = record.filter(|record| record.holder.is_some());
                self.report.leader = record.and_then(leadership);
                self.route(step);
                self.settle(stored, candidate.pod(), step);
                if let Some(record) = record
                    && self.announce_obligations(stored, record, step)
                {
                    self.workloads.reconcile(Target::Lead(record.term), self.records.circumstances(view), step);
                    self.across.offer(stored, self.records, self.routes, step);
                }
            }
            Decision::Keep(candidate) | Decision::KeepDespiteProbe(candidate, _) => {
                return self.keep(candidate, stored, step);
            }
            Decision::Elect(candidate, reason) => {
                // C13: another cluster has handed over the lock.
                let given = |mark: &SwitchoverMark| mark.cluster.is_some();
                let begins = record.is_some_and(|r| r.holder.is_none() && r.switchover.as_ref().is_some_and(given));
                let reason = if begins { Reason::SwitchedOver } else { reason };
                self.electing().elect(stored, Some(candidate), reason, step);
            }
            Decision::Vacate(reason) => self.electing().elect(stored, None, reason, step),
            Decision::Wait(why, until) => {
                self.report.situation = Situation::Recovering(why, until);
                step.wake_at(Timer::Recovery, until);
                let leader = record.and_then(|r| r.holder.as_ref());
                let pod = leader.and_then(|holder| view.pods.iter().find(|pod| pod.uid == holder.uid)).copied();
                self.route(step);
                self.maintain(stored, pod, step);
            }
            Decision::Nobody => {
                self.report.leader = None;
                self.report.situation = awaited.map_or(Situation::Vacant, Situation::AwaitingEnd);
                self.workloads.reconcile(Target::Follow, self.records.circumstances(view), step);
                self.routes.advance(&Goal::NobodyHere, step);
                if let (false, Some(record)) = (settled, record) {
                    // The labels that are written on pods while there is no leader have to be in the record, too.
                    let present = self.records.make_record(None, Some(record), record.since, step);
                    self.records.amend(stored, present, self.routes, step);
                    return false;
                }
                if record.is_some() && self.records.lock.chain(stored.version()) == Chain::Rivals {
                    // C5: requests that the other replica has on their way would show a leader here.
                    if !self.records.waits_for_rival(stored, step) {
                        self.electing().elect(stored, None, Reason::Resumed, step);
                    }
                    return false;
                }
                self.settle(stored, None, step);
                release(stored, self.records, self.workloads, self.across, self.pod_writes, self.routes, step);
            }
        }
        false
    }

    /// E1: whether the leader would have to end first, and can't be deleted.
    fn is_kept(&self, record: Option<&Record>, view: &View) -> bool {
        let leader = record.and_then(|record| record.holder.as_ref());
        view.former_leader.comes_first() && leader.is_some_and(|leader| self.pod_writes.troubles.keeps(&leader.uid))
    }

    /// Corrects the other pods under a record that is right, and drops from the record what is cleaned up.
    fn settle(&mut self, stored: &Stored, leader: Option<&Pod>, step: &mut Step) {
        let clean = self.maintain(stored, leader, step);
        if clean {
            self.report.failure = None;
        }
        let Some(record) = stored.record() else { return };
        // In a shared store, another program may have written the leader's name, which does not show that its handover was completed.
        let completed = leader.is_some() && !(step.view.policy.shared && step.view.noted.is_some());
        let done = !record.leaving.is_empty() && self.pod_writes.former.are_done(record, step.view);
        let tidy = !record.former.is_empty() && (completed || self.records.lock.is_fenced(stored.version()));
        if clean && (done || tidy) {
            let leaving = if done { Vec::new() } else { record.leaving.clone() };
            let former = if tidy { Vec::new() } else { record.former.clone() };
            let generation = if tidy { step.view.generation } else { record.generation };
            let tidied = Record { generation, leaving, former, ..record.clone() };
            self.records.amend(stored, tidied, self.routes, step);
        }
    }

    /// While this cluster leads: whether the record says how long the workloads about to be enabled may take to end. If not, the operator
    /// amends the record first.
    fn announce_obligations(&mut self, stored: &Stored, record: &Record, step: &mut Step) -> bool {
        let Some(announced) = self.records.obligations.announced(record, step.view) else { return true };
        if matches!(self.records.phase, Phase::Idle) {
            self.records.amend(stored, announced, self.routes, step);
        }
        false
    }

    /// Whether the slices are right, or this operator can correct them in this term because it has written the record itself.
    fn is_routable(&self, decision: &Decision, stored: &Stored, step: &Step) -> bool {
        let keeps = matches!(decision, Decision::Keep(_) | Decision::KeepDespiteProbe(..));
        let right = |record| self.routes.is_settled(record, step.id, step.view);
        !keeps || self.records.lock.is_fenced(stored.version()) || stored.record().is_none_or(right)
    }

    /// Keeps the leader, whose labels or record are not as they should be.
    fn keep(&mut self, candidate: Candidate, stored: &Stored, step: &mut Step) -> bool {
        let view = step.view;
        let (Some(record), Some(version)) = (stored.record(), stored.version()) else { return false };
        if record.scope != *view.scope || record.election != step.id.uid {
            self.electing().elect(stored, Some(candidate), Reason::SpecChanged, step);
            return false;
        }
        if self.records.terms.is_outdated(record.term) {
            self.electing().elect(stored, Some(candidate), Reason::LockRestored, step);
            return false;
        }
        let Candidate::Pod(pod) = candidate else { return false };
        if let Some(until) = self.pod_writes.troubles.waits(&pod.uid, PodChange::Promote, false, view.now) {
            step.wake_at(Timer::PodRetry, until);
            self.report.leader = None;
            self.report.situation = Situation::HandingOver;
            self.maintain(stored, Some(pod), step);
            return false;
        }
        if !self.records.lock.is_fenced(Some(version)) {
            self.electing().elect(stored, Some(candidate), Reason::Resumed, step);
            return false;
        }
        if self.report.leader.take_if(|(term, holder, _)| (*term, &holder.uid) == (record.term, &pod.uid)).is_some() {
            // The API server acknowledged the leader's promotion, so another program has changed its marks since.
            step.contest();
        }
        if view.now < view.restores_from {
            step.wake_at(Timer::PodRetry, view.restores_from);
            self.report.situation = Situation::HandingOver;
            self.maintain(stored, Some(pod), step);
            return false;
        }
        if !self.pod_writes.troubles.has(&pod.uid, PodChange::Promote) {
            step.announce(drift(pod));
        }
        self.records.phase =
            Phase::HandingOver(Box::new(Handover::restore(&step.id.name, version, record.clone(), pod)));
        true
    }

    /// Whether the leader shows its label, and the rest of its marks can't be written at present.
    fn leads_incompletely(&mut self, candidate: Candidate, record: Option<&Record>, step: &mut Step) -> bool {
        let view = step.view;
        let (Candidate::Pod(pod), Some(record)) = (candidate, record) else { return false };
        let current = record.scope == *view.scope && record.election == step.id.uid;
        let until = self.pod_writes.troubles.waits(&pod.uid, PodChange::Promote, false, view.now);
        let Some(until) = until.filter(|_| current && view.scope.markings.shows_leader(pod)) else { return false };
        step.wake_at(Timer::PodRetry, until);
        true
    }

    /// Lets the slices follow. Nothing is withdrawn.
    fn route(&mut self, step: &mut Step) {
        route(self.records, Withdrawal::Unconfirmed, self.routes, step);
    }

    fn maintain(&mut self, stored: &Stored, leader: Option<&Pod>, step: &mut Step) -> bool {
        self.pod_writes.maintain(stored, leader, &self.records.lock, self.records.terms.highest(), step)
    }

    /// The parts that the choice of a leader concerns.
    pub(super) fn electing(&mut self) -> Electing<'_> {
        let Self { records, report, fitness, pod_writes, workloads, routes, .. } = self;
        Electing { records, report, fitness, pod_writes, workloads, routes }
    }
}
