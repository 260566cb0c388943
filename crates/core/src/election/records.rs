//! Writes the record, takes the outcome, and learns from it.

use super::Election;
use super::fitness::Candidate;
use super::phase::{Intent, Phase};
use crate::handover::{Chain, Handover, Purpose};
use crate::step::Step;
use crate::timers::Timer;
use crate::view::{Situation, View};
use crate::{
    Announcement, Command, Failure, Holder, Instant, Pod, Reason, Record, RecordOutcome, Stored, SwitchoverMark,
    Timestamp, Version,
};

impl Election {
    /// Writes a record that names this candidate, or none. H1: before any pod is promoted.
    pub(super) fn write(&mut self, stored: &Stored, candidate: Option<Candidate>, reason: Reason, step: &mut Step) {
        let view = step.view;
        self.situation = Situation::HandingOver;
        if candidate.is_some() && self.waits_for_rival(stored, step) {
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
        let lost = if view.policy.shared { self.lock.last() } else { None };
        let replaced = stored.written().or(lost).cloned();
        let target = candidate.map(|candidate| candidate.holder(&self.id.uid));
        let holder = target.as_ref().map(|(holder, _)| holder.clone());
        let since = replaced.as_ref().filter(|r| r.holder.as_ref().map(|h| &h.uid) == holder.as_ref().map(|h| &h.uid));
        let since = since.map(|record| record.since).or_else(|| self.kept_since(holder.as_ref())).unwrap_or(view.wall);
        let mut record = self.make_record(view, holder.clone(), replaced.as_ref(), since);
        if let Some(mark) = &mut record.switchover {
            mark.remains.clear();
        }
        record.drain_obligation = self.obligations.to_record(replaced.as_ref(), self.lock.record(), view);
        if candidate.is_some() {
            record.term = self.terms.next(view.first_term);
            record.term_by_version = view.policy.shared;
        }
        // H14: the switchover by which this pod is elected. Another one may be accepted while the lock was given to this cluster.
        if let (Reason::SwitchedOver, Some(asked), Some(Candidate::Pod(pod))) =
            (reason, view.switchovers.accepted, candidate)
            && self.switch_to(replaced.as_ref(), view).is_some_and(|to| to.uid == pod.uid)
        {
            record.switchover = Some(Self::mark(asked, replaced.as_ref(), pod));
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
        let op =
            step.request(Command::WriteRecord { key: view.key.clone(), expected, record: Box::new(record.clone()) });
        let intent = Intent {
            key: view.key.clone(),
            record,
            chain: self.lock.chain(expected),
            previous: replaced.and_then(|record| record.holder),
            purpose: Purpose::Elect(reason),
            target,
            slices: self.routes.seen(view),
        };
        self.phase = Phase::Writing(op, Box::new(intent));
    }

    /// L1: whether to wait, because another replica of this cluster acts as well, and may undo at once what this one writes.
    pub(super) fn waits_for_rival(&self, stored: &Stored, step: &mut Step) -> bool {
        let view = step.view;
        if self.lock.chain(stored.version()) != Chain::Rivals {
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

    /// Corrects the other pods under a record that is right, and drops from the record what is cleaned up.
    pub(super) fn settle(&mut self, stored: &Stored, leader: Option<&Pod>, step: &mut Step) {
        let clean = self.maintain(stored, leader, step);
        if clean {
            self.failure = None;
        }
        let (Some(record), Some(version)) = (stored.record(), stored.version()) else { return };
        // In a shared store, another program may have written the leader's name, which does not show that its handover was completed.
        let completed = leader.is_some() && !(step.view.policy.shared && step.view.noted.is_some());
        if clean && !record.former.is_empty() && (completed || self.lock.is_fenced(Some(version))) {
            let tidied = Record {
                former: Vec::new(),
                term_by_version: false,
                generation: step.view.generation,
                operator_id: self.id.operator_id.clone(),
                ..record.clone()
            };
            self.amend(record, version, tidied, step);
        }
    }

    /// While this cluster leads: whether the record says how long the workloads about to be enabled may take to end. If not, the operator
    /// amends the record first.
    pub(super) fn announce_obligations(&mut self, record: &Record, version: Version, step: &mut Step) -> bool {
        let Some(announced) = self.obligations.announced(record, &self.id, step.view) else { return true };
        if matches!(self.phase, Phase::Idle) {
            self.amend(record, version, announced, step);
        }
        false
    }

    /// Writes a record that names the same holder in the same term.
    pub(super) fn amend(&mut self, replaced: &Record, version: Version, record: Record, step: &mut Step) {
        let (key, expected) = (step.view.key.clone(), Some(version));
        let op = step.request(Command::WriteRecord { key: key.clone(), expected, record: Box::new(record.clone()) });
        let (previous, chain) = (replaced.holder.clone(), self.lock.chain(expected));
        let slices = self.routes.seen(step.view);
        let intent = Intent { key, record, previous, chain, purpose: Purpose::Tidy, target: None, slices };
        self.phase = Phase::Writing(op, Box::new(intent));
    }

    /// When the pod began to lead whose record was lost.
    pub(super) fn kept_since(&self, holder: Option<&Holder>) -> Option<Timestamp> {
        self.leader
            .as_ref()
            .filter(|(_, leader, _)| Some(&leader.uid) == holder.map(|h| &h.uid))
            .map(|(.., since)| *since)
    }

    /// H10: a record says which spec it was written for.
    pub(super) fn make_record(
        &self,
        view: &View,
        holder: Option<Holder>,
        replaced: Option<&Record>,
        since: Timestamp,
    ) -> Record {
        let mut record = Record {
            term: self.terms.highest(),
            term_by_version: false,
            holder,
            operator_id: self.id.operator_id.clone(),
            since,
            election: self.id.uid.clone(),
            election_name: self.id.name.clone(),
            generation: view.generation,
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

    pub(super) fn take_written(&mut self, intent: Box<Intent>, written: RecordOutcome, now: Instant) -> Phase {
        match written {
            RecordOutcome::Written(version) => {
                self.backoff.reset();
                let stored = Stored::Ours(version, intent.record.clone().at(version));
                if self.lock.take_written(version, stored) { self.begin(version, *intent) } else { Phase::Idle }
            }
            RecordOutcome::Conflict => {
                self.lock.forget();
                Phase::Idle
            }
            RecordOutcome::Delayed => {
                self.situation = Situation::LockLost;
                self.backoff.delay_shortly(now);
                Phase::Idle
            }
            RecordOutcome::Failed(Failure::Unknown(text)) => {
                // H11: the operator reads the record before it does anything else.
                self.fail(Failure::Unknown(text), now);
                self.lock.forget();
                Phase::WriteUnknown(None, intent)
            }
            RecordOutcome::Failed(failure) => {
                self.fail(failure, now);
                Phase::Idle
            }
        }
    }

    /// The record is written, so the handover that it announces begins.
    pub(super) fn begin(&mut self, version: Version, intent: Intent) -> Phase {
        let Intent { record, previous, chain, purpose, target, slices, key: _ } = intent;
        if chain != Chain::Own {
            self.routes.distrust();
        }
        self.routes.confirm(version, slices);
        let record = record.at(version);
        self.terms.see(record.term);
        if purpose == Purpose::Tidy {
            if chain == Chain::Own {
                self.lock.fence(version);
            }
            return Phase::Idle;
        }
        Phase::HandingOver(Box::new(Handover::new(&self.id.name, version, record, previous, chain, purpose, target)))
    }

    pub(super) fn take_read(&mut self, read: Result<Stored, Failure>, now: Instant) {
        match read {
            Ok(stored) => {
                self.failure = None;
                self.lock.take_read(stored);
            }
            Err(failure) => self.fail(failure, now),
        }
    }

    pub(super) fn read_record(&mut self, step: &mut Step) {
        let view = step.view;
        let op = step.request(Command::ReadRecord { key: view.key.clone() });
        self.lock.note_asked();
        self.phase = Phase::Reading(op);
    }
}
