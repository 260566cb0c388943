//! The election's record, and the write of it.

use std::sync::Arc;

use super::lock::Lock;
use super::obligations::Obligations;
use super::phase::{Intent, Phase, Verification};
use super::routes::Routes;
use super::terms::Terms;
use super::workloads::Circumstances;
use crate::handover::{Chain, Purpose};
use crate::step::Step;
use crate::timers::Timer;
use crate::view::View;
use crate::{Command, Holder, Key, OpId, Pod, Record, Stored, Timestamp, Version};

/// The election's record as last known, and what is under way: a write of the record, or a handover.
#[derive(Clone, Debug)]
pub(super) struct Records {
    pub(super) phase: Phase,
    pub(super) lock: Lock,
    pub(super) terms: Terms,
    pub(super) obligations: Obligations,
}

impl Records {
    pub(super) fn new(stored: Option<(Version, Arc<Stored>)>) -> Self {
        let (terms, obligations) = Default::default();
        Self { phase: Phase::Idle, lock: Lock::new(stored), terms, obligations }
    }

    /// Learns from the lock, as the view shows it with the pods and the status.
    pub(super) fn learn(&mut self, step: &Step) {
        let Step { id, view, .. } = *step;
        if let (true, Some(noted)) = (view.policy.shared, view.noted) {
            self.lock.believe(noted, view.scope, view.generation);
        }
        self.terms.learn(&self.lock, id, view);
        self.lock.learn(id, view.policy.shared);
        self.obligations.note(&self.lock, view);
    }

    /// What the workloads depend on.
    pub(super) fn circumstances(&self, view: &View) -> Circumstances<'_> {
        Circumstances::of(&self.lock, self.terms, &self.obligations, view)
    }

    /// L1: whether to wait, because another replica of this cluster acts as well, and may undo at once what this one writes.
    pub(super) fn waits_for_rival(&self, stored: &Stored, step: &mut Step) -> bool {
        let view = step.view;
        if self.lock.chain(stored.version()) != Chain::Rivals && !self.lock.is_undone(step.id) {
            return false;
        }
        let waits = view.now < view.restores_from;
        if waits {
            step.wake_at(Timer::PodRetry, view.restores_from);
        } else {
            step.contest();
        }
        waits
    }

    /// H10: a record says which spec it was written for.
    pub(super) fn make_record(
        &self,
        holder: Option<Holder>,
        replaced: Option<&Record>,
        since: Timestamp,
        step: &Step,
    ) -> Record {
        let Step { id, view, .. } = *step;
        let mut record = Record {
            term: self.terms.highest(),
            term_by_version: false,
            holder,
            operator_id: id.operator_id.clone(),
            since,
            election: id.uid.clone(),
            election_name: id.name.clone(),
            generation: view.generation,
            leaving: Vec::new(),
            scope: view.scope.clone(),
            former: Vec::new(),
            drain_obligation: replaced.and_then(|record| record.drain_obligation.clone()),
            switchover: replaced.or(self.lock.last()).and_then(|record| record.switchover.clone()),
            offer: None,
        };
        match replaced {
            Some(replaced) => record.add_former(replaced.scopes()),
            None => record.add_former(self.lock.scopes()),
        }
        record.add_former(view.noted.unwrap_or_default());
        record
    }

    /// Reads the record.
    pub(super) fn read(&mut self, step: &mut Step) {
        self.phase = Phase::Reading(self.ask(step.view.key, step));
    }

    /// H11: reads the record after a write whose outcome is unknown.
    pub(super) fn read_back(&mut self, intent: Box<Intent>, step: &mut Step) {
        self.phase = Phase::WriteUnknown(Some(self.ask(&intent.key, step)), intent);
    }

    fn ask(&mut self, key: &Key, step: &mut Step) -> OpId {
        self.lock.note_asked();
        step.request(Command::ReadRecord { key: key.clone() })
    }

    /// Asks the API server whether the election still exists. `version` is that of the record for which the operator asks, or `None` if the
    /// election is to be withdrawn.
    pub(super) fn ask_election(&mut self, version: Option<Version>, step: &mut Step) {
        let op = step.request(Command::ReadElection);
        self.phase = Phase::AskingElection(op, version);
    }

    /// Reads pods after another writer's record, because the caches may be older than it. The operator reads only the leader and the pod
    /// that is about to follow, because a list of a large group takes longer than the rest of a failover. It lists all pods if no pod
    /// is to lead, or if these two are not enough, because a third one may lead. Returns whether to look again.
    pub(super) fn verify(&mut self, record: &Record, version: Version, elected: Option<&Pod>, step: &mut Step) -> bool {
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

    /// Writes a record in place of the one of this version.
    pub(super) fn write(&mut self, intent: Intent, expected: Option<Version>, step: &mut Step) {
        let (key, record) = (intent.key.clone(), Box::new(intent.record.clone()));
        let op = step.request(Command::WriteRecord { key, expected, record });
        self.phase = Phase::Writing(op, Box::new(intent));
    }

    /// Writes a record that names the same holder in the same term.
    pub(super) fn amend(&mut self, replaced: &Stored, mut record: Record, routes: &Routes, step: &mut Step) {
        let Step { id, view, .. } = *step;
        (record.operator_id, record.term_by_version) = (id.operator_id.clone(), false);
        let (key, expected, slices) = (view.key.clone(), replaced.version(), routes.seen(view));
        let previous = replaced.record().and_then(|record| record.holder.clone());
        let chain = self.lock.chain(expected);
        let intent = Intent { key, record, previous, chain, purpose: Purpose::Tidy, target: None, slices };
        self.write(intent, expected, step);
    }
}
