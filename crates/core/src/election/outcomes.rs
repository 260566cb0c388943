//! Takes the outcomes of requests, and gives each to the part that it belongs to.

use super::across::Across;
use super::existence::Existence;
use super::phase::{Intent, Phase, Verification, Withdrawal};
use super::pod_writes::PodWrites;
use super::records::Records;
use super::report::Report;
use super::routes::{Routes, Taken};
use super::strays::Strays;
use super::workloads::WorkloadReconciler;
use crate::handover::{Chain, Handover, Purpose};
use crate::identity::Identity;
use crate::view::Situation;
use crate::{
    Announcement, ElectionRead, Failure, Holder, Instant, OpId, Outcome, PodChange, PodOutcome, RecordOutcome, Stored,
    Version,
};

/// The parts that outcomes concern.
pub(super) struct Outcomes<'e> {
    pub(super) id: &'e Identity,
    pub(super) records: &'e mut Records,
    pub(super) report: &'e mut Report,
    pub(super) pod_writes: &'e mut PodWrites,
    pub(super) routes: &'e mut Routes,
    pub(super) workloads: &'e mut WorkloadReconciler,
    pub(super) across: &'e mut Across,
    pub(super) strays: &'e mut Strays,
    pub(super) existence: &'e mut Existence,
}

impl Outcomes<'_> {
    /// Takes the outcome of a command.
    pub(super) fn take(mut self, op: OpId, outcome: Outcome, now: Instant) {
        self.pod_writes.promotions.take(op, &outcome);
        match self.routes.take(op, &outcome, now) {
            Taken::Mine => return,
            Taken::RecordChanged => return self.records.lock.forget(),
            Taken::Others => {}
        }
        if let Some(uid) = self.pod_writes.promotions.awaits_fence(op) {
            self.report.failure =
                self.pod_writes.promotions.take_fence(&uid, outcome, now).or(self.report.failure.take());
            return;
        }
        if let Some(uid) = self.pod_writes.upkeep.awaits(op) {
            if matches!(outcome, Outcome::PodWritten(PodOutcome::Written(_))) {
                self.pod_writes.former.note_demoted(uid.clone());
            }
            if let Some(written) = self.pod_writes.upkeep.take(uid, outcome, &mut self.pod_writes.troubles, now) {
                self.report.news.extend(written.told);
                self.report.failure = written.failure.or(self.report.failure.take());
            }
            return;
        }
        if self.pod_writes.former.awaits(op) {
            self.pod_writes.former.take(op, outcome);
            return;
        }
        if let Outcome::WorkloadWritten(outcome) = outcome {
            self.report.news.extend(self.workloads.take(op, outcome, now));
            return;
        }
        if let Outcome::BidWritten(outcome) = outcome {
            if !self.across.giving.take_cleared(op) {
                self.across.bidding.take(op, &outcome, now);
            }
            return;
        }
        let phase = std::mem::replace(&mut self.records.phase, Phase::Idle);
        self.records.phase = self.go_on(phase, op, outcome, now);
    }

    /// Takes the outcome that what is under way awaits. Returns what is under way then.
    fn go_on(&mut self, phase: Phase, op: OpId, outcome: Outcome, now: Instant) -> Phase {
        match (phase, outcome) {
            (Phase::Reading(expected), Outcome::RecordRead(read)) if expected == op => self.take_read(read, now),
            (Phase::Verifying(verification), outcome) => return self.take_verification(op, verification, outcome, now),
            (Phase::ListingMarked(expected), Outcome::PodsListed(listed)) if expected == op => match listed {
                Ok(_) => self.existence.withdrawal = Withdrawal::Listed,
                Err(failure) => self.report.fail(failure, now),
            },
            (Phase::Writing(expected, intent), Outcome::RecordWritten(written)) if expected == op => {
                return self.take_written(intent, &written, now);
            }
            (Phase::WriteUnknown(Some(expected), intent), Outcome::RecordRead(Err(failure))) if expected == op => {
                self.report.fail(failure, now);
                return Phase::WriteUnknown(None, intent);
            }
            (Phase::WriteUnknown(Some(expected), intent), Outcome::RecordRead(read)) if expected == op => {
                self.take_read(read, now);
                if let Some(Stored::Ours(version, record)) = self.records.lock.stored()
                    && *record == intent.record.clone().at(*version)
                {
                    return self.begin(*version, *intent);
                }
            }
            (Phase::Clearing(expected, key, replaced), Outcome::RecordWritten(written)) if expected == op => {
                self.strays.take(key, replaced, &written);
                if matches!(written, RecordOutcome::Conflict) {
                    // The watch is about to show what the store has now.
                    self.report.backoff.delay(now);
                }
                self.report.take_write(&written, now);
            }
            (Phase::AskingElection(expected, version), Outcome::ElectionRead(read)) if expected == op => {
                self.take_asked(version, read, now);
            }
            (Phase::Inspecting(expected), Outcome::WorkloadsRead(read)) if expected == op => match read {
                Ok(_) => self.workloads.take_inspected(),
                Err(failure) => self.report.fail(failure, now),
            },
            (Phase::Releasing(expected, record), Outcome::RecordWritten(released)) if expected == op => {
                self.report.take_write(&released, now);
                self.records.lock.forget();
                if let RecordOutcome::Written(version) = released {
                    self.records.lock.take_written(version, Stored::Free(version, Some(*record), None));
                }
            }
            (Phase::Giving(expected, what), Outcome::RecordWritten(given)) if expected == op => {
                self.across.take_given(*what, given, self.records, self.report, now);
            }
            (Phase::Deleting(expected), Outcome::RecordWritten(written)) if expected == op => {
                self.records.lock.forget();
                match written {
                    RecordOutcome::Written(version) => self.records.lock.take_deleted(version),
                    RecordOutcome::Conflict | RecordOutcome::Delayed => {}
                    RecordOutcome::Failed(failure) => self.report.fail(failure, now),
                }
            }
            (Phase::HandingOver(mut handover), outcome) => {
                let wrote = matches!(outcome, Outcome::PodWritten(PodOutcome::Written(_)));
                let result = handover.take(op, outcome);
                self.take_found(&mut handover, wrote, result, now);
                return Phase::HandingOver(handover);
            }
            (phase, _) => return phase,
        }
        Phase::Idle
    }

    fn take_written(&mut self, intent: Box<Intent>, written: &RecordOutcome, now: Instant) -> Phase {
        self.report.take_write(written, now);
        match written {
            &RecordOutcome::Written(version) => {
                let stored = Stored::Ours(version, intent.record.clone().at(version));
                if self.records.lock.take_written(version, stored) {
                    return self.begin(version, *intent);
                }
            }
            RecordOutcome::Conflict => self.records.lock.forget(),
            RecordOutcome::Delayed => self.report.situation = Situation::LockLost,
            RecordOutcome::Failed(Failure::Unknown(_)) => {
                // H11: the operator reads the record before it does anything else.
                self.records.lock.forget();
                return Phase::WriteUnknown(None, intent);
            }
            RecordOutcome::Failed(_) => {}
        }
        Phase::Idle
    }

    /// The record is written, so the handover that it announces begins.
    fn begin(&mut self, version: Version, intent: Intent) -> Phase {
        let Intent { record, previous, chain, purpose, target, slices, key: _ } = intent;
        if chain != Chain::Own {
            self.routes.distrust();
        }
        self.routes.confirm(version, slices);
        let record = record.at(version);
        self.records.terms.see(record.term);
        if purpose == Purpose::Tidy {
            if chain == Chain::Own {
                self.records.lock.fence(version);
            }
            return Phase::Idle;
        }
        Phase::HandingOver(Box::new(Handover::new(&self.id.name, version, record, previous, chain, purpose, target)))
    }

    fn take_read(&mut self, read: Result<Stored, Failure>, now: Instant) {
        match read {
            Ok(stored) => {
                self.report.failure = None;
                self.records.lock.take_read(stored);
            }
            Err(failure) => self.report.fail(failure, now),
        }
    }

    /// Takes one of the answers that show the pods as they are since another writer's record.
    fn take_verification(&mut self, op: OpId, mut under_way: Verification, outcome: Outcome, now: Instant) -> Phase {
        let Some(answered) = under_way.reads.iter().position(|read| *read == op) else {
            return Phase::Verifying(under_way);
        };
        if let Outcome::PodRead(Err(failure)) | Outcome::PodsListed(Err(failure)) = outcome {
            self.report.fail(failure, now);
            return Phase::Idle;
        }
        under_way.reads.remove(answered);
        if under_way.reads.is_empty() {
            self.records.lock.verify(under_way.version, under_way.only);
            return Phase::Idle;
        }
        Phase::Verifying(under_way)
    }

    /// Takes whether the election still exists. `version` is that of the record for which the operator asked, or `None` if the election is
    /// to be withdrawn.
    fn take_asked(&mut self, version: Option<Version>, read: Result<ElectionRead, Failure>, now: Instant) {
        let read = match read {
            Ok(read) => read,
            Err(failure) => return self.report.fail(failure, now),
        };
        let generation = read.generation_of(&self.id.uid);
        if self.existence.gone && version.is_none() && generation != i64::MAX {
            // H13: the operator removes no mark before the API server, too, knows no such election.
            return self.report.backoff.delay(now);
        }
        self.report.backoff.reset();
        if !self.existence.gone {
            self.existence.known_generation = self.existence.known_generation.max(generation);
        }
        match version {
            Some(version) => self.records.lock.confirm(version),
            None => self.existence.withdrawal = Withdrawal::Confirmed,
        }
    }

    /// Takes what an answer told about a handover.
    fn take_found(&mut self, handover: &mut Handover, wrote: bool, result: Result<(), Failure>, now: Instant) {
        let found = std::mem::take(&mut handover.findings);
        match result {
            // A successful read does not show that a write would succeed.
            Ok(()) if wrote => self.report.backoff.reset(),
            Ok(()) => {}
            // The present leader has a wait of its own, and nothing else waits for it.
            Err(failure) if handover.purpose == Purpose::Restore && found.refused.is_some() => {
                self.report.failure = Some(failure);
            }
            Err(failure) => self.report.fail(failure, now),
        }
        if let Some(Holder { pod: Some(pod), uid, .. }) = handover.target() {
            if let Some(failure) = &found.refused
                && self.pod_writes.troubles.note(uid, PodChange::Promote, false, failure, now)
            {
                let (pod, uid, why) = (pod.clone(), uid.clone(), failure.text().to_owned());
                self.report.news.push(Announcement::LabelsRefused { pod, uid, why });
            }
            if found.promoted {
                self.pod_writes.troubles.forget(uid, PodChange::Promote);
            }
        }
        if let Some((Holder { pod: Some(pod), uid, .. }, failure)) = found.unwritten
            && self.pod_writes.troubles.note(&uid, PodChange::Remove, false, &failure, now)
        {
            self.report.news.push(Announcement::LabelsRefused { pod, uid, why: failure.text().to_owned() });
        }
        found.gone.into_iter().for_each(|pod| self.pod_writes.upkeep.note_gone(pod));
        self.strays.find(found.locks);
        self.records.terms.see(found.term);
        self.existence.known_generation = self.existence.known_generation.max(found.generation.unwrap_or_default());
    }
}
