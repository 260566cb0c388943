//! Takes the outcomes of requests, and gives each to the part that it belongs to.

use super::Election;
use super::phase::{Phase, Verification, Withdrawal};
use super::routes::Taken;
use crate::handover::{Handover, Purpose};
use crate::{
    Announcement, ElectionRead, Failure, Holder, Instant, OpId, Outcome, PodChange, PodOutcome, RecordOutcome, Stored,
    Version,
};

impl Election {
    /// Takes the outcome of a command.
    pub(crate) fn take(&mut self, op: OpId, outcome: Outcome, now: Instant) {
        self.promotions.take(op, &outcome);
        match self.routes.take(op, &outcome, now) {
            Taken::Mine => return,
            Taken::RecordChanged => return self.lock.forget(),
            Taken::Others => {}
        }
        if let Some(uid) = self.promotions.awaits_fence(op) {
            self.failure = self.promotions.take_fence(&uid, outcome, now).or(self.failure.take());
            return;
        }
        if let Some(uid) = self.upkeep.awaits(op) {
            if let Some(failed) = self.upkeep.take(uid, outcome, &mut self.troubles, now) {
                self.told.extend(failed.told);
                self.failure = Some(failed.failure);
            }
            return;
        }
        if let Outcome::WorkloadWritten(outcome) = outcome {
            self.told.extend(self.workloads.take(op, outcome, now));
            return;
        }
        if let Outcome::BidWritten(outcome) = outcome {
            if !self.giving.take_cleared(op) {
                self.bidding.take(op, &outcome, now);
            }
            return;
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        self.phase = match (phase, outcome) {
            (Phase::Reading(expected), Outcome::RecordRead(read)) if expected == op => {
                self.take_read(read, now);
                Phase::Idle
            }
            (Phase::Verifying(verification), outcome) => self.take_verification(op, verification, outcome, now),
            (Phase::ListingMarked(expected), Outcome::PodsListed(listed)) if expected == op => {
                match listed {
                    Ok(_) => self.withdrawal = Withdrawal::Listed,
                    Err(failure) => self.fail(failure, now),
                }
                Phase::Idle
            }
            (Phase::Writing(expected, intent), Outcome::RecordWritten(written)) if expected == op => {
                self.take_written(intent, written, now)
            }
            (Phase::WriteUnknown(Some(expected), intent), Outcome::RecordRead(Err(failure))) if expected == op => {
                self.fail(failure, now);
                Phase::WriteUnknown(None, intent)
            }
            (Phase::WriteUnknown(Some(expected), intent), Outcome::RecordRead(read)) if expected == op => {
                self.take_read(read, now);
                match self.lock.stored() {
                    Some(Stored::Ours(version, record)) if *record == intent.record.clone().at(*version) => {
                        self.begin(*version, *intent)
                    }
                    _ => Phase::Idle,
                }
            }
            (Phase::Clearing(expected, key, replaced), Outcome::RecordWritten(written)) if expected == op => {
                self.strays.take(key, replaced, &written);
                match written {
                    RecordOutcome::Written(_) => self.backoff.reset(),
                    // The watch is about to show what the store has now.
                    RecordOutcome::Conflict => self.backoff.delay(now),
                    RecordOutcome::Delayed => self.backoff.delay_shortly(now),
                    RecordOutcome::Failed(failure) => self.fail(failure, now),
                }
                Phase::Idle
            }
            (Phase::AskingElection(expected, version), Outcome::ElectionRead(read)) if expected == op => {
                self.take_asked(version, read, now);
                Phase::Idle
            }
            (Phase::Inspecting(expected), Outcome::WorkloadsRead(read)) if expected == op => {
                match read {
                    Ok(_) => self.workloads.take_inspected(),
                    Err(failure) => self.fail(failure, now),
                }
                Phase::Idle
            }
            (Phase::Releasing(expected, record), Outcome::RecordWritten(released)) if expected == op => {
                self.take_released(*record, released, now);
                Phase::Idle
            }
            (Phase::Giving(expected, what), Outcome::RecordWritten(given)) if expected == op => {
                self.take_given(*what, given, now);
                Phase::Idle
            }
            (Phase::Deleting(expected), Outcome::RecordWritten(written)) if expected == op => {
                self.take_deleted(written, now);
                Phase::Idle
            }
            (Phase::HandingOver(mut handover), outcome) => {
                let wrote = matches!(outcome, Outcome::PodWritten(PodOutcome::Written(_)));
                let result = handover.take(op, outcome);
                self.take_found(&mut handover, wrote, result, now);
                Phase::HandingOver(handover)
            }
            (phase, _) => phase,
        };
    }

    /// Takes one of the answers that show the pods as they are since another writer's record.
    fn take_verification(&mut self, op: OpId, mut under_way: Verification, outcome: Outcome, now: Instant) -> Phase {
        let Some(answered) = under_way.reads.iter().position(|read| *read == op) else {
            return Phase::Verifying(under_way);
        };
        if let Outcome::PodRead(Err(failure)) | Outcome::PodsListed(Err(failure)) = outcome {
            self.fail(failure, now);
            return Phase::Idle;
        }
        under_way.reads.remove(answered);
        if under_way.reads.is_empty() {
            self.lock.verify(under_way.version, under_way.only);
            return Phase::Idle;
        }
        Phase::Verifying(under_way)
    }

    fn take_deleted(&mut self, deleted: RecordOutcome, now: Instant) {
        match deleted {
            RecordOutcome::Written(version) => self.lock.take_deleted(version),
            RecordOutcome::Conflict | RecordOutcome::Delayed => self.lock.forget(),
            RecordOutcome::Failed(failure) => {
                self.lock.forget();
                self.fail(failure, now);
            }
        }
    }

    /// Takes whether the election still exists. `version` is that of the record for which the operator asked, or `None` if the election is
    /// to be withdrawn.
    fn take_asked(&mut self, version: Option<Version>, read: Result<ElectionRead, Failure>, now: Instant) {
        let read = match read {
            Ok(read) => read,
            Err(failure) => return self.fail(failure, now),
        };
        let generation = read.generation_of(&self.id.uid);
        if self.gone && version.is_none() && generation != i64::MAX {
            // H13: the operator removes no mark before the API server, too, knows no such election.
            return self.backoff.delay(now);
        }
        self.backoff.reset();
        if !self.gone {
            self.known_generation = self.known_generation.max(generation);
        }
        match version {
            Some(version) => self.lock.confirm(version),
            None => self.withdrawal = Withdrawal::Confirmed,
        }
    }

    /// Takes what an answer told about a handover.
    fn take_found(&mut self, handover: &mut Handover, wrote: bool, result: Result<(), Failure>, now: Instant) {
        let found = std::mem::take(&mut handover.found);
        match result {
            // A successful read does not show that a write would succeed.
            Ok(()) if wrote => self.backoff.reset(),
            Ok(()) => {}
            // The present leader has a wait of its own, and nothing else waits for it.
            Err(failure) if handover.purpose == Purpose::Restore && found.refused.is_some() => {
                self.failure = Some(failure);
            }
            Err(failure) => self.fail(failure, now),
        }
        if let Some(Holder { pod: Some(pod), uid, .. }) = handover.target() {
            if let Some(failure) = &found.refused
                && self.troubles.note(uid, PodChange::Promote, false, failure, now)
            {
                let (pod, uid, why) = (pod.clone(), uid.clone(), failure.text().to_owned());
                self.told.push(Announcement::LabelsRefused { pod, uid, why });
            }
            if found.promoted {
                self.troubles.forget(uid, PodChange::Promote);
            }
        }
        if let Some((Holder { pod: Some(pod), uid, .. }, failure)) = found.unwritten
            && self.troubles.note(&uid, PodChange::Remove, false, &failure, now)
        {
            self.told.push(Announcement::LabelsRefused { pod, uid, why: failure.text().to_owned() });
        }
        found.gone.into_iter().for_each(|pod| self.upkeep.note_gone(pod));
        self.strays.find(found.locks);
        self.terms.see(found.term);
        self.known_generation = self.known_generation.max(found.generation.unwrap_or_default());
    }
}
