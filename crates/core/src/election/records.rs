//! The record: what is written into it, what comes back, and what it teaches.

use super::decide::Candidate;
use super::step::Step;
use super::view::{Situation, View};
use super::{Election, Phase};
use crate::handover::{Handover, Purpose};
use crate::marking::term_of;
use crate::{
    Announcement, Command, Failure, Holder, Instant, Key, Reason, Record, RecordOutcome, Scope, Stored, Term,
    Timestamp, Version,
};

/// A record to be written, and what follows when it is.
#[derive(Clone, Debug)]
pub(super) struct Intent {
    pub(super) key: Key,
    pub(super) record: Record,
    /// What it replaces.
    pub(super) replaced: Option<Record>,
    /// Whether the chain of this operator's own records is unbroken.
    pub(super) fenced: bool,
    pub(super) purpose: Purpose,
    /// The target's version, read before the record is written.
    pub(super) target: Option<(Holder, Version)>,
}

impl Election {
    /// Writes a record that names this candidate, or none. H1: before anybody is promoted.
    pub(super) fn write(&mut self, stored: &Stored, candidate: Option<Candidate>, reason: Reason, step: &mut Step) {
        let view = step.view;
        self.situation = Situation::HandingOver;
        match stored {
            Stored::Damaged(..) => {
                step.announce(Announcement::LockChanged { what: "edited by hand" });
            }
            Stored::Absent if matches!(reason, Reason::LockRestored | Reason::LockLost) => {
                step.announce(Announcement::LockChanged { what: "deleted" });
            }
            _ => {}
        }
        let lost = if view.keeping.shared { self.last.as_ref() } else { None };
        let replaced = stored.written().or(lost).cloned();
        let target = candidate.map(|candidate| candidate.holder(&self.uid));
        let holder = target.as_ref().map(|(holder, _)| holder.clone());
        let since = replaced.as_ref().filter(|r| r.holder.as_ref().map(|h| &h.uid) == holder.as_ref().map(|h| &h.uid));
        let since = since.map(|record| record.since).or_else(|| self.kept_since(holder.as_ref())).unwrap_or(view.wall);
        let mut record = self.make_record(view, holder.clone(), replaced.as_ref(), since);
        record.legacy = self.legacy(replaced.as_ref(), view);
        if candidate.is_some() {
            record.term = self.highest_term.next();
            record.term_by_version = view.keeping.shared;
        }
        for (_, stray) in view.strays {
            let scopes = stray.record().into_iter().flat_map(|record| record.former.iter().chain([&record.scope]));
            add_former(&mut record, scopes);
        }
        let expected = stored.version();
        let op = step.request(Command::WriteRecord { key: view.key.clone(), expected, record: record.clone() });
        let intent = Intent {
            key: view.key.clone(),
            record,
            fenced: expected.is_some() && self.fenced == expected,
            replaced,
            purpose: Purpose::Elect(reason),
            target,
        };
        self.phase = Phase::Writing(op, Box::new(intent));
    }

    /// Since when a pod leads whose record was lost.
    pub(super) fn kept_since(&self, holder: Option<&Holder>) -> Option<Timestamp> {
        self.leader
            .as_ref()
            .filter(|(_, leader, _)| Some(&leader.uid) == holder.map(|h| &h.uid))
            .map(|(.., since)| *since)
    }

    /// H10: a record says what it was written for.
    pub(super) fn make_record(
        &self,
        view: &View,
        holder: Option<Holder>,
        replaced: Option<&Record>,
        since: Timestamp,
    ) -> Record {
        let mut record = Record {
            term: self.highest_term,
            term_by_version: false,
            holder,
            elector: self.elector.clone(),
            since,
            election: self.uid.clone(),
            generation: view.generation,
            scope: view.scope.clone(),
            former: Vec::new(),
            legacy: replaced.and_then(|record| record.legacy.clone()),
        };
        match replaced {
            Some(replaced) => add_former(&mut record, replaced.former.iter().chain([&replaced.scope])),
            None => add_former(&mut record, &self.scopes),
        }
        record
    }

    pub(super) fn take_written(&mut self, intent: Box<Intent>, written: RecordOutcome, now: Instant) -> Phase {
        match written {
            RecordOutcome::Written(version) => {
                self.backoff.reset();
                if version < self.newest {
                    // The watch shows already that somebody wrote after us.
                    return Phase::Idle;
                }
                self.newest = version;
                self.stored = Some(Stored::Record(version, intent.record.clone().at(version)));
                self.begin(version, *intent)
            }
            RecordOutcome::Conflict => {
                self.stored = None;
                Phase::Idle
            }
            RecordOutcome::Delayed => {
                self.situation = Situation::LockLost;
                self.backoff.delay_shortly(now);
                Phase::Idle
            }
            RecordOutcome::Failed(Failure::Unknown(text)) => {
                // H11: it is read before anything is done.
                self.fail(Failure::Unknown(text), now);
                self.stored = None;
                Phase::WriteUnknown(None, intent)
            }
            RecordOutcome::Failed(failure) => {
                self.fail(failure, now);
                Phase::Idle
            }
        }
    }

    /// The record is written: the handover that it announces begins.
    pub(super) fn begin(&mut self, version: Version, intent: Intent) -> Phase {
        let Intent { record, replaced, fenced, purpose, target, key: _ } = intent;
        let record = record.at(version);
        self.highest_term = self.highest_term.max(record.term);
        if purpose == Purpose::Tidy {
            if fenced {
                self.fenced = Some(version);
            }
            return Phase::Idle;
        }
        Phase::HandingOver(Box::new(Handover::new(version, record, replaced, fenced, purpose, target)))
    }

    pub(super) fn take_read(&mut self, read: Result<Stored, Failure>, now: Instant) {
        match read {
            Ok(stored) => {
                self.failure = None;
                let older = stored.version().is_none_or(|version| version < self.newest);
                if older && self.newest > self.asked_at {
                    // The watch has brought something newer meanwhile; if not, it is read once more.
                    return;
                }
                if let Some(version) = stored.version().filter(|_| older) {
                    // What was known when it was asked for was no more: the store was put back, or had hidden it.
                    self.newest = version;
                    (self.fenced, self.verified, self.confirmed) = (None, None, None);
                }
                if let Some(version) = stored.version() {
                    self.newest = self.newest.max(version);
                }
                self.stored = Some(stored);
            }
            Err(failure) => self.fail(failure, now),
        }
    }

    pub(super) fn read_record(&mut self, step: &mut Step) {
        let view = step.view;
        let op = step.request(Command::ReadRecord { key: view.key.clone() });
        self.asked_at = self.newest;
        self.phase = Phase::Reading(op);
    }

    /// H9.
    pub(super) fn learn_terms(&mut self, view: &View) {
        let written = self.stored.as_ref().and_then(Stored::written);
        let recorded = written.map_or(Term::default(), |record| record.term);
        let mut sure = self.highest_term.max(recorded);
        // A lock that moves here from another store may have come too far for this one: that is for its user to know.
        let only_source = sure == Term::default() && self.stored.is_some() && !view.keeping.shared;
        if view.status_term.is_credible(view.keeping.shared) || only_source {
            sure = sure.max(view.status_term);
        }
        let mut highest = sure;
        if let Some(Stored::Damaged(_, hint)) = &self.stored {
            highest = highest.max(sure.raised_by_hint(*hint));
        }
        for pod in view.pods.iter().filter(|pod| self.wrote(pod)) {
            highest = highest.max(term_of(pod).map_or(highest, |term| sure.raised_by_hint(term)));
        }
        self.highest_term = highest;
    }

    /// A tidied record says that nothing is left of what was written before.
    pub(super) fn learn_scopes(&mut self) {
        let Some(Stored::Record(_, record)) = &self.stored else { return };
        if record.election == self.uid {
            self.last = Some(record.clone());
        }
        if record.election == self.uid && !record.former.iter().chain([&record.scope]).eq(&self.scopes) {
            self.scopes = record.former.iter().chain([&record.scope]).cloned().collect();
        }
    }
}

pub(super) fn add_former<'a>(record: &mut Record, scopes: impl IntoIterator<Item = &'a Scope>) {
    for scope in scopes {
        if *scope != record.scope && !record.former.contains(scope) {
            record.former.push(scope.clone());
        }
    }
}
