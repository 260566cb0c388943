//! Decides what to do while nothing is under way.

use super::Election;
use super::fitness::{Candidate, Decision};
use super::phase::{Phase, Verification, Withdrawal};
use super::upkeep::drift;
use super::workloads::Target;
use crate::handover::{Chain, Handover};
use crate::step::Step;
use crate::timers::Timer;
use crate::view::{Desired, Situation, View};
use crate::{Command, Pod, PodChange, Reason, Record, Stored, SwitchoverMark, Version};

impl Election {
    /// Decides what to do while nothing is under way. Returns whether to look again.
    pub(super) fn idle(&mut self, step: &mut Step) -> bool {
        let view = step.view;
        if view.desired == Desired::Refuse {
            let record = self.record().filter(|record| record.election == self.id.uid);
            let held = record.and_then(|record| Some((record.term, record.holder.clone()?, record.since)));
            self.leader = self.leader.take().or(held);
            // W11.
            self.give_back(step);
            return false;
        }
        if view.desired == Desired::Freeze {
            let held = self.record().and_then(|record| Some((record.term, record.holder.clone()?, record.since)));
            if self.situation == Situation::HandingOver
                && let Some(record) = self.record()
            {
                // The handover is over, and no other one begins. Without a record of its own, this election is still taking labels off.
                self.situation = if record.holder.is_some() { Situation::Led } else { Situation::Vacant };
            }
            self.leader = self.leader.take().or(held);
            return false;
        }
        if self.known_generation > view.generation && !view.gone {
            // The API server has already reported a newer generation than this view's.
            self.situation = Situation::Stale;
            return false;
        }
        if view.desired != Desired::Withdraw {
            self.withdrawal = Withdrawal::Unconfirmed;
        } else if self.withdrawal == Withdrawal::Unconfirmed {
            // There may already be another election of that name. And the caches may be older than the last handover.
            self.ask_election(None, step);
            if !view.key.is_none() {
                self.lock.forget();
            }
            return false;
        }
        let Some(shared) = self.lock.share() else {
            self.read_record(step);
            return false;
        };
        let stored = &*shared;
        if view.desired == Desired::Withdraw && !self.give_up_workloads(step) {
            return false;
        }
        if let Stored::Foreign(what) = stored {
            return self.idle_beside_foreign(what.clone(), step);
        }
        if let Some(record) = stored.written()
            && record.election == self.id.uid
            && record.generation > view.generation
        {
            return self.idle_behind_record(stored.version(), step);
        }
        if let (Stored::HeldByOther(..), Desired::Run | Desired::Leave) = (stored, view.desired) {
            return false;
        }
        if self.clear_strays(step) {
            return false;
        }
        match (view.desired, stored) {
            (Desired::Withdraw, Stored::HeldByOther(..) | Stored::Free(_, None, _)) => {
                self.withdraw(&Stored::Absent, step)
            }
            (Desired::Withdraw, _) => self.withdraw(stored, step),
            (_, Stored::Absent | Stored::Free(..)) if view.policy.shared => {
                self.take_lock(stored, step);
                false
            }
            _ => self.run(stored, step),
        }
    }

    /// Reads pods after another writer's record, because the caches may be older than it. The operator reads only the leader and the pod
    /// that is about to follow, because a list of a large group takes longer than the rest of a failover. It lists all pods if none is to
    /// lead, or if the two that were read lead to a third one. Returns whether to look again.
    fn verify(&mut self, record: &Record, version: Version, elected: Option<&Pod>, step: &mut Step) -> bool {
        if let (Some(elected), false) = (elected, self.lock.is_partly_verified(version)) {
            let leader = record.holder.as_ref().filter(|holder| holder.uid != elected.uid);
            let names = leader.and_then(|holder| holder.pod.as_ref()).into_iter().chain([&elected.name]);
            let reads = names.map(|name| step.request(Command::ReadPod { name: name.clone() })).collect();
            self.phase = Phase::Verifying(Verification { reads, version, only: Some(elected.uid.clone()) });
            return false;
        }
        let selectors = step.view.scope.selectors_with(Some(record));
        if selectors.is_empty() {
            self.lock.verify(version, None);
            return true;
        }
        let op = step.request(Command::ListPods { selectors, leaders: Vec::new() });
        self.phase = Phase::Verifying(Verification { reads: vec![op], version, only: None });
        false
    }

    fn ask_election(&mut self, version: Option<Version>, step: &mut Step) {
        let op = step.request(Command::ReadElection);
        self.phase = Phase::AskingElection(op, version);
    }

    /// H10: the record was written for a generation of the election that the operator has not seen yet. Or there never was one, because a
    /// person edited the record, or the cluster was put back to an earlier state and the store of the lock was not.
    fn idle_behind_record(&mut self, version: Option<Version>, step: &mut Step) -> bool {
        self.situation = Situation::Stale;
        if self.lock.is_confirmed(version) {
            // The operator has asked the API server since, which knows no later generation than this view's.
            self.lock.disbelieve();
            return true;
        }
        self.ask_election(version, step);
        false
    }

    fn idle_beside_foreign(&mut self, what: String, step: &mut Step) -> bool {
        let view = step.view;
        if view.desired == Desired::Withdraw {
            // The lock is not lictor's, so it stays, and the operator takes the marks off the pods.
            return self.withdraw(&Stored::Absent, step);
        }
        self.situation = Situation::Foreign(what);
        self.reconcile(Target::Follow, step);
        if view.policy.shared {
            // The store's watch shows all keys.
            return false;
        }
        // No watch tells when the foreign lock goes, so the operator looks at it again, less and less often.
        self.lock.forget();
        self.backoff.delay(view.now);
        if let Some(until) = self.backoff.waits(view.now) {
            step.wake_at(Timer::Retry, until);
        }
        false
    }

    fn run(&mut self, stored: &Stored, step: &mut Step) -> bool {
        let view = step.view;
        if self.give_up(stored, step) {
            return false;
        }
        let record = stored.record();
        let decision = match view.desired {
            Desired::Leave if record.is_some_and(|record| record.holder.is_none()) => Decision::Nobody,
            Desired::Leave => Decision::Vacate(Reason::Leaving),
            _ => match self.switch_to(record, view) {
                Some(pod) => Decision::Elect(Candidate::Pod(pod), Reason::SwitchedOver),
                None => match self.give_way(stored, step) {
                    Some(decision) => decision,
                    None => self.fitness.decide(record, &self.troubles, step),
                },
            },
        };
        if let Some(situation) = decision.situation() {
            self.situation = situation;
        }
        let settled =
            decision.is_settled(record, self.terms, &self.id, view) && self.is_routable(&decision, stored, view);
        if let (false, Some(record), Some(version)) = (settled, record, stored.version())
            && !self.lock.is_fenced(Some(version))
            && !self.lock.is_verified(version, decision.pod())
        {
            return self.verify(record, version, decision.pod(), step);
        }
        if let (false, Some(record), Some(version)) = (settled, record, stored.version())
            && record.election != self.id.uid
            && !self.lock.is_confirmed(Some(version))
        {
            self.ask_election(Some(version), step);
            return false;
        }
        if settled {
            if let Decision::Keep(Candidate::Pod(pod)) | Decision::KeepDespiteProbe(Candidate::Pod(pod), _) = decision {
                self.troubles.forget(&pod.uid, PodChange::Promote);
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
                self.leader = record.and_then(|record| Some((record.term, record.holder.clone()?, record.since)));
                self.route(step);
                self.settle(stored, candidate.pod(), step);
                if let (Some(record), Some(version)) = (record, stored.version())
                    && self.announce_obligations(record, version, step)
                {
                    self.reconcile(Target::Lead(record.term), step);
                    self.offer(record, version, step);
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
                self.write(stored, Some(candidate), reason, step);
            }
            Decision::Vacate(reason) => self.write(stored, None, reason, step),
            Decision::Wait(why, until) => {
                self.situation = Situation::Recovering(why, until);
                step.wake_at(Timer::Recovery, until);
                let leader = record.and_then(|r| r.holder.as_ref());
                let pod = leader.and_then(|holder| view.pods.iter().find(|pod| pod.uid == holder.uid)).copied();
                self.route(step);
                self.maintain(stored, pod, step);
            }
            Decision::Nobody => {
                self.leader = None;
                self.situation = Situation::Vacant;
                self.reconcile(Target::Follow, step);
                self.route_nowhere(step);
                if let (false, Some(record), Some(version)) = (settled, record, stored.version()) {
                    // The labels that are written on pods while there is no leader have to be in the record, too.
                    let present = self.make_record(view, None, Some(record), record.since);
                    self.amend(record, version, present, step);
                    return false;
                }
                if record.is_some() && self.lock.chain(stored.version()) == Chain::Rivals {
                    // C5: requests that the other replica has on their way would show a leader here.
                    if !self.waits_for_rival(stored, step) {
                        self.write(stored, None, Reason::Resumed, step);
                    }
                    return false;
                }
                self.settle(stored, None, step);
                self.release(stored, step);
            }
        }
        false
    }

    /// Whether the slices are right, or this operator can correct them in this term because it has written the record itself.
    fn is_routable(&self, decision: &Decision, stored: &Stored, view: &View) -> bool {
        let keeps = matches!(decision, Decision::Keep(_) | Decision::KeepDespiteProbe(..));
        let right = |record| self.routes.is_settled(record, &self.id, view);
        !keeps || self.lock.is_fenced(stored.version()) || stored.record().is_none_or(right)
    }

    /// Keeps the leader, whose labels or record are not as they should be.
    fn keep(&mut self, candidate: Candidate, stored: &Stored, step: &mut Step) -> bool {
        let view = step.view;
        let (Some(record), Some(version)) = (stored.record(), stored.version()) else { return false };
        if record.scope != *view.scope || record.election != self.id.uid {
            self.write(stored, Some(candidate), Reason::SpecChanged, step);
            return false;
        }
        if self.terms.is_outdated(record.term) {
            self.write(stored, Some(candidate), Reason::LockRestored, step);
            return false;
        }
        let Candidate::Pod(pod) = candidate else { return false };
        if let Some(until) = self.troubles.waits(&pod.uid, PodChange::Promote, false, view.now) {
            step.wake_at(Timer::PodRetry, until);
            self.leader = None;
            self.situation = Situation::HandingOver;
            self.maintain(stored, Some(pod), step);
            return false;
        }
        if !self.lock.is_fenced(Some(version)) {
            self.write(stored, Some(candidate), Reason::Resumed, step);
            return false;
        }
        if self.leader.take_if(|(term, holder, _)| (*term, &holder.uid) == (record.term, &pod.uid)).is_some() {
            // The API server acknowledged the leader's promotion, so another program has changed its marks since.
            step.contest();
        }
        if view.now < view.restores_from {
            step.wake_at(Timer::PodRetry, view.restores_from);
            self.situation = Situation::HandingOver;
            self.maintain(stored, Some(pod), step);
            return false;
        }
        if !self.troubles.has(&pod.uid, PodChange::Promote) {
            step.announce(drift(pod));
        }
        self.phase = Phase::HandingOver(Box::new(Handover::restore(&self.id.name, version, record.clone(), pod)));
        true
    }

    /// Whether the leader shows its label, and the rest of its marks can't be written at present.
    fn leads_incompletely(&mut self, candidate: Candidate, record: Option<&Record>, step: &mut Step) -> bool {
        let view = step.view;
        let (Candidate::Pod(pod), Some(record)) = (candidate, record) else { return false };
        let current = record.scope == *view.scope && record.election == self.id.uid;
        let until = self.troubles.waits(&pod.uid, PodChange::Promote, false, view.now);
        let Some(until) = until.filter(|_| current && view.scope.markings.shows_leader(pod)) else { return false };
        step.wake_at(Timer::PodRetry, until);
        true
    }
}
