//! Gives up locks and labels: those of an election that is deleted, and those under a key that is no longer the election's own.

use super::lock::Lock;
use super::phase::{Intent, Phase, Withdrawal};
use super::pod_writes::PodWrites;
use super::records::Records;
use super::report::Report;
use super::routes::Routes;
use super::routing::route;
use super::strays::Strays;
use crate::handover::{Handover, Purpose};
use crate::slice::SliceVersions;
use crate::step::Step;
use crate::view::{Desired, Situation};
use crate::{Announcement, Command, Key, Record, Scope, Stored, Timestamp};

/// The parts that a withdrawal concerns.
pub(super) struct Withdraw<'e> {
    pub(super) records: &'e mut Records,
    pub(super) report: &'e mut Report,
    pub(super) pod_writes: &'e mut PodWrites,
    pub(super) routes: &'e mut Routes,
    pub(super) strays: &'e mut Strays,
    pub(super) withdrawal: &'e mut Withdrawal,
}

impl Withdraw<'_> {
    /// H12: takes off all labels, then deletes the record.
    pub(super) fn withdraw(&mut self, stored: &Stored, step: &mut Step) -> bool {
        let view = step.view;
        route(self.records, *self.withdrawal, self.routes, step);
        let own = stored.version().is_some() && stored.written().is_none_or(|record| record.election == step.id.uid);
        let clean = !own && is_clean(self.pod_writes, self.routes, &self.records.lock, step);
        if *self.withdrawal == Withdrawal::Done && !clean {
            // A late writer of this election, or a new election of that name, has written a mark.
            *self.withdrawal = Withdrawal::Unconfirmed;
            self.report.situation = Situation::HandingOver;
            return true;
        }
        if *self.withdrawal == Withdrawal::Done || (clean && *self.withdrawal == Withdrawal::Listed) {
            if *self.withdrawal != Withdrawal::Done {
                self.tell_what_is_left(step);
            }
            *self.withdrawal = Withdrawal::Done;
            self.report.leader = None;
            self.report.situation = Situation::Withdrawn;
            return false;
        }
        self.report.situation = Situation::HandingOver;
        let version = stored.version();
        let chain = self.records.lock.chain(version);
        match (stored, version) {
            (Stored::Ours(_, record) | Stored::Free(_, Some(record), _), _) if record.election != step.id.uid => {
                // The record is of an earlier election of that name, and goes with that one. The marks on pods have only the name.
                self.withdraw_without_record(stored.written(), step)
            }
            (Stored::Ours(version, record), _)
                if record.holder.is_none()
                    && record.generation >= view.generation
                    && stray_scopes(view.strays)
                        .all(|scope| *scope == record.scope || record.former.contains(scope)) =>
            {
                self.records.phase =
                    Phase::HandingOver(Box::new(Handover::withdraw(&step.id.name, *version, record.clone(), chain)));
                true
            }
            (_, Some(version)) => {
                let mut record = self.records.make_record(None, stored.written(), view.wall, step);
                if let Some(written) = stored.written() {
                    // O1: the spec may have been refused since, so that the operator wrote nothing by it.
                    record.scope.clone_from(&written.scope);
                    record.former.retain(|former| *former != written.scope);
                }
                record.add_former(stray_scopes(view.strays));
                let previous = stored.written().and_then(|record| record.holder.clone());
                let (key, purpose, slices) = (view.key.clone(), Purpose::Withdraw, SliceVersions::new());
                let intent = Intent { key, record, previous, chain, purpose, target: None, slices };
                self.records.write(intent, Some(version), step);
                false
            }
            (_, None) => self.withdraw_without_record(None, step),
        }
    }

    fn tell_what_is_left(&self, step: &mut Step) {
        let view = step.view;
        for pod in view.pods.iter().filter(|pod| step.id.wrote(pod)) {
            let Some(why) = self.pod_writes.troubles.why_left(&pod.uid) else { continue };
            let (pod, uid, why) = (pod.name.clone(), pod.uid.clone(), why.to_owned());
            step.announce(Announcement::LabelsLeft { pod, uid, why });
        }
    }

    /// Takes off the marks that are found on the pods, for an election without a record of its own. Returns whether to look again.
    fn withdraw_without_record(&mut self, other: Option<&Record>, step: &mut Step) -> bool {
        let view = step.view;
        if *self.withdrawal != Withdrawal::Confirmed {
            self.remove_markings(other, step);
            return false;
        }
        let mut selectors = view.scope.selectors_with(other);
        for (_, stray) in view.strays {
            let others = view.scope.selectors_with(stray.written());
            selectors.extend(others.into_iter().filter(|selector| !selectors.contains(selector)).collect::<Vec<_>>());
        }
        if selectors.is_empty() {
            *self.withdrawal = Withdrawal::Listed;
            return true;
        }
        let op = step.request(Command::ListPods { selectors, leaders: Vec::new() });
        self.records.phase = Phase::ListingMarked(op);
        false
    }

    /// Takes off the marks that are found on the pods.
    fn remove_markings(&mut self, other: Option<&Record>, step: &mut Step) {
        let view = step.view;
        let scopes = other.into_iter().flat_map(Record::scopes).chain(stray_scopes(view.strays));
        // Nothing but a record says by which scopes the operator wrote (O1). Without one, it may be the spec's.
        let unrecorded = self.records.lock.scopes().is_empty().then_some(view.scope);
        let scopes = scopes.chain(self.records.lock.scopes()).chain(unrecorded);
        let scopes: Vec<&Scope> = scopes.collect();
        self.pod_writes.upkeep.remove(&scopes, &self.pod_writes.troubles, &self.records.lock, step);
    }

    /// H6: empties a lock under a key that is no longer the election's before the present one is taken, so that no operator with an older
    /// spec can continue with it. The operator deletes it when the present one is settled.
    pub(super) fn clear_strays(&mut self, step: &mut Step) -> bool {
        let view = step.view;
        self.strays.retain(view.strays);
        for (key, stray) in view.strays {
            match stray {
                Stored::Ours(_, record) | Stored::Free(_, Some(record), _) => self.records.terms.see(record.term),
                Stored::Damaged(_, term) => self.records.terms.see_hint(*term),
                Stored::Absent | Stored::Free(_, None, _) | Stored::HeldByOther(..) | Stored::Foreign(_) => {}
            }
            let Some((version, emptied)) = self.strays.state(key, stray, view.generation) else { continue };
            if !emptied {
                let mut record = self.records.make_record(None, stray.written(), Timestamp(0), step);
                record.term = self.records.terms.highest();
                let (key, record) = (key.clone(), Box::new(record));
                let op = step.request(Command::WriteRecord { key: key.clone(), expected: Some(version), record });
                self.records.phase = Phase::Clearing(op, key, version);
                return true;
            }
            let settled = match view.desired {
                // Until all pods are written, the lock's record says which scopes were written under it.
                Desired::Withdraw => {
                    matches!(*self.withdrawal, Withdrawal::Listed | Withdrawal::Done)
                        && is_clean(self.pod_writes, self.routes, &self.records.lock, step)
                }
                Desired::Run | Desired::Freeze | Desired::Refuse | Desired::Leave => {
                    let leads = self.records.lock.record().is_some_and(|record| record.scope == *view.scope)
                        && self.report.leader.is_some();
                    leads || matches!(self.report.situation, Situation::LedElsewhere(_))
                }
            };
            if settled {
                let op = step.request(Command::DeleteRecord { key: key.clone(), version });
                self.records.phase = Phase::Clearing(op, key.clone(), version);
                return true;
            }
        }
        false
    }
}

/// Whether no pod carries a mark of this election that can be taken off, and the election has no slice.
pub(super) fn is_clean(pod_writes: &PodWrites, routes: &Routes, lock: &Lock, step: &Step) -> bool {
    let Step { id, view, .. } = *step;
    routes.is_gone(id, view)
        && view.pods.iter().all(|pod| !id.wrote(pod) || pod_writes.troubles.is_left(pod, lock, view))
}

/// The scopes that were written under the election's other keys.
fn stray_scopes(strays: &[(Key, Stored)]) -> impl Iterator<Item = &Scope> {
    let records = strays.iter().filter_map(|(_, stray)| stray.written());
    records.flat_map(Record::scopes)
}
