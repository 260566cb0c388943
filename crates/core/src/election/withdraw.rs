//! Gives up locks and labels: those of an election that is deleted, and those under a key that is no longer the election's own.

use super::Election;
use super::phase::{Intent, Phase, Withdrawal};
use super::workloads::Circumstances;
use crate::handover::{Handover, Purpose};
use crate::slice::SliceVersions;
use crate::step::Step;
use crate::view::{Desired, Situation, View};
use crate::{Announcement, Command, Key, Markings, Record, Scope, Stored, Timestamp};

impl Election {
    /// Gives the workloads back, and waits for those that end with the election. Returns whether that is done.
    pub(super) fn give_up_workloads(&mut self, step: &mut Step) -> bool {
        {
            let around = Circumstances::of(&self.lock, self.terms, &self.obligations, step.view);
            self.workloads.release(around, step) && !self.workloads.winds_down(step)
        }
    }

    /// H12: takes off all labels, then deletes the record.
    pub(super) fn withdraw(&mut self, stored: &Stored, step: &mut Step) -> bool {
        let view = step.view;
        self.route(step);
        let own = stored.version().is_some() && stored.written().is_none_or(|record| record.election == self.id.uid);
        let clean = !own && self.is_clean(view);
        if self.withdrawal == Withdrawal::Done && !clean {
            // A late writer of this election, or a new election of that name, has written a mark.
            self.withdrawal = Withdrawal::Unconfirmed;
            self.situation = Situation::HandingOver;
            return true;
        }
        if self.withdrawal == Withdrawal::Done || (clean && self.withdrawal == Withdrawal::Listed) {
            if self.withdrawal != Withdrawal::Done {
                self.tell_what_is_left(step);
            }
            self.withdrawal = Withdrawal::Done;
            self.leader = None;
            self.situation = Situation::Withdrawn;
            return false;
        }
        self.situation = Situation::HandingOver;
        let version = stored.version();
        let chain = self.lock.chain(version);
        match (stored, version) {
            (Stored::Ours(_, record) | Stored::Free(_, Some(record), _), _) if record.election != self.id.uid => {
                // The record is of an earlier election of that name, and goes with that one. The marks on pods have only the name.
                self.withdraw_without_record(stored.written(), step)
            }
            (Stored::Ours(version, record), _)
                if record.holder.is_none()
                    && record.generation >= view.generation
                    && stray_scopes(view.strays)
                        .all(|scope| *scope == record.scope || record.former.contains(scope)) =>
            {
                self.phase =
                    Phase::HandingOver(Box::new(Handover::withdraw(&self.id.name, *version, record.clone(), chain)));
                true
            }
            (_, Some(version)) => {
                let mut record = self.make_record(view, None, stored.written(), view.wall);
                record.add_former(stray_scopes(view.strays));
                let op = step.request(Command::WriteRecord {
                    key: view.key.clone(),
                    expected: Some(version),
                    record: Box::new(record.clone()),
                });
                let previous = stored.written().and_then(|record| record.holder.clone());
                let key = view.key.clone();
                let intent = Intent {
                    key,
                    record,
                    previous,
                    chain,
                    purpose: Purpose::Withdraw,
                    target: None,
                    slices: SliceVersions::new(),
                };
                self.phase = Phase::Writing(op, Box::new(intent));
                false
            }
            (_, None) => self.withdraw_without_record(None, step),
        }
    }

    /// Whether no pod carries a mark of this election that can be taken off, and the election has no slice.
    pub(super) fn is_clean(&self, view: &View) -> bool {
        self.routes.is_gone(&self.id, view)
            && view.pods.iter().all(|pod| !self.id.wrote(pod) || self.troubles.is_left(pod, &self.lock, view))
    }

    fn tell_what_is_left(&self, step: &mut Step) {
        let view = step.view;
        for pod in view.pods.iter().filter(|pod| self.id.wrote(pod)) {
            let Some(why) = self.troubles.why_left(&pod.uid) else { continue };
            let (pod, uid, why) = (pod.name.clone(), pod.uid.clone(), why.to_owned());
            step.announce(Announcement::LabelsLeft { pod, uid, why });
        }
    }

    /// Takes off the marks that are found on the pods, for an election without a record of its own. Returns whether to look again.
    fn withdraw_without_record(&mut self, other: Option<&Record>, step: &mut Step) -> bool {
        let view = step.view;
        if self.withdrawal != Withdrawal::Confirmed {
            self.remove_markings(other, step);
            return false;
        }
        let mut selectors = view.scope.selectors_with(other);
        for (_, stray) in view.strays {
            let others = view.scope.selectors_with(stray.written());
            selectors.extend(others.into_iter().filter(|selector| !selectors.contains(selector)).collect::<Vec<_>>());
        }
        if selectors.is_empty() {
            self.withdrawal = Withdrawal::Listed;
            return true;
        }
        let op = step.request(Command::ListPods { selectors, leaders: Vec::new() });
        self.phase = Phase::ListingMarked(op);
        false
    }

    /// Takes off the marks that are found on the pods.
    fn remove_markings(&mut self, other: Option<&Record>, step: &mut Step) {
        let view = step.view;
        let scopes = other.into_iter().flat_map(Record::scopes).chain(stray_scopes(view.strays));
        let scopes = scopes.chain(self.lock.scopes()).chain([view.scope]);
        let written: Vec<&Markings> = scopes.map(|scope| &scope.markings).collect();
        self.upkeep.remove(&written, &self.troubles, &self.lock, step);
    }

    /// H6: empties a lock under a key that is no longer the election's before the present one is taken, so that no operator with an older
    /// spec can continue with it. The operator deletes it when the present one is settled.
    pub(super) fn clear_strays(&mut self, step: &mut Step) -> bool {
        let view = step.view;
        self.strays.retain(view.strays);
        for (key, stray) in view.strays {
            match stray {
                Stored::Ours(_, record) | Stored::Free(_, Some(record), _) => self.terms.see(record.term),
                Stored::Damaged(_, term) => self.terms.see_hint(*term),
                Stored::Absent | Stored::Free(_, None, _) | Stored::HeldByOther(..) | Stored::Foreign(_) => {}
            }
            let Some((version, emptied)) = self.strays.state(key, stray, view.generation) else { continue };
            if !emptied {
                let mut record = self.make_record(view, None, stray.written(), Timestamp(0));
                record.term = self.terms.highest();
                let op = step.request(Command::WriteRecord {
                    key: key.clone(),
                    expected: Some(version),
                    record: Box::new(record),
                });
                self.phase = Phase::Clearing(op, key.clone(), version);
                return true;
            }
            let settled = match view.desired {
                // Until all pods are written, the lock's record says which scopes were written under it.
                Desired::Withdraw => {
                    matches!(self.withdrawal, Withdrawal::Listed | Withdrawal::Done) && self.is_clean(view)
                }
                Desired::Run | Desired::Freeze | Desired::Refuse | Desired::Leave => {
                    self.record().is_some_and(|record| record.scope == *view.scope) && self.leader.is_some()
                }
            };
            if settled {
                let op = step.request(Command::DeleteRecord { key: key.clone(), version });
                self.phase = Phase::Clearing(op, key.clone(), version);
                return true;
            }
        }
        false
    }
}

/// The scopes that were written under the election's other keys.
fn stray_scopes(strays: &[(Key, Stored)]) -> impl Iterator<Item = &Scope> {
    let records = strays.iter().filter_map(|(_, stray)| stray.written());
    records.flat_map(Record::scopes)
}
