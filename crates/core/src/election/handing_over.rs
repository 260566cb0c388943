//! Continues a handover that is under way, or ends it.

use super::fitness::Fitness;
use super::phase::{Phase, Withdrawal};
use super::pod_writes::PodWrites;
use super::records::Records;
use super::report::{Report, leadership};
use super::routes::Routes;
use super::withdraw::is_clean;
use crate::handover::{Handover, Progress, Purpose};
use crate::step::Step;
use crate::view::{Desired, Situation};
use crate::{Announcement, Command, Pod, PodChange, Transition};

/// The parts that a handover concerns.
pub(super) struct HandingOver<'e> {
    pub(super) records: &'e mut Records,
    pub(super) report: &'e mut Report,
    pub(super) fitness: &'e mut Fitness,
    pub(super) pod_writes: &'e mut PodWrites,
    pub(super) routes: &'e Routes,
    pub(super) withdrawal: &'e mut Withdrawal,
}

impl HandingOver<'_> {
    /// Continues a handover. Returns whether it ended.
    pub(super) fn go_on(&mut self, mut handover: Box<Handover>, step: &mut Step) -> bool {
        let view = step.view;
        self.report.situation = Situation::HandingOver;
        if self.records.lock.is_past(handover.version) {
            // Another writer wrote or deleted the record meanwhile, so the operator decides the rest again.
            return true;
        }
        if view.desired == Desired::Refuse {
            self.report.leader = None;
            return true;
        }
        if handover.is_refused() && handover.purpose == Purpose::Restore {
            // The operator tries again when the pod's own wait is over.
            return true;
        }
        if handover.is_refused()
            && handover.target().is_some_and(|target| {
                self.fitness.gives_way(&target.uid, &handover.record, &self.pod_writes.troubles, view)
            })
        {
            if handover.has_fenced() {
                self.records.lock.fence(handover.version);
            }
            return true;
        }
        let promotions = &self.pod_writes.promotions;
        let promoting = |pod: &Pod| promotions.may_come_to(pod);
        let (troubles, lock) = (&self.pod_writes.troubles, &self.records.lock);
        let left = |pod: &Pod| troubles.is_left(pod, lock, view);
        match handover.advance(&promoting, &left, step) {
            Progress::Waiting => {
                self.records.phase = Phase::HandingOver(handover);
                false
            }
            Progress::Abandoned => {
                self.records.lock.forget();
                true
            }
            Progress::Done if !self.has_routed(&handover, step) => {
                self.records.phase = Phase::HandingOver(handover);
                false
            }
            Progress::Done => {
                if handover.fenced {
                    self.records.lock.fence(handover.version);
                }
                self.finish(*handover, step);
                true
            }
        }
    }

    /// Whether the slices have followed, too. The operator retries a refused slice afterwards.
    fn has_routed(&self, handover: &Handover, step: &Step) -> bool {
        match handover.purpose {
            Purpose::Withdraw => self.routes.is_gone(step.id, step.view),
            Purpose::Elect(_) | Purpose::Restore | Purpose::Tidy => {
                self.routes.is_settled(&handover.record, step.id, step.view)
            }
        }
    }

    fn finish(&mut self, handover: Handover, step: &mut Step) {
        let view = step.view;
        if !handover.target().is_some_and(|target| self.pod_writes.troubles.has(&target.uid, PodChange::Promote)) {
            self.report.failure = None;
        }
        let took = self.fitness.take_duration(view.now);
        let Handover { record, previous, purpose, version, after_others, .. } = handover;
        match purpose {
            Purpose::Elect(reason) => {
                self.fitness.note_change(&reason, view.now);
                self.report.leader = leadership(&record);
                let previous =
                    previous.filter(|previous| record.holder.as_ref().is_none_or(|new| new.uid != previous.uid));
                if let Some(previous) = previous.as_ref().filter(|previous| record.leaving.contains(previous)) {
                    self.pod_writes.former.note_demoted(previous.uid.clone());
                }
                let leader = record.holder;
                if leader.is_some() || previous.is_some() {
                    let transition = Transition { term: record.term, leader, previous, reason, took };
                    step.announce(Announcement::Transition(transition));
                }
            }
            Purpose::Restore | Purpose::Tidy => {
                self.report.leader = leadership(&record);
            }
            // H12: the operator takes the stamps off before it deletes the record, by which they are found.
            Purpose::Withdraw if after_others && !is_clean(self.pod_writes, self.routes, &self.records.lock, step) => {
                self.report.leader = None;
            }
            Purpose::Withdraw => {
                self.report.leader = None;
                *self.withdrawal = Withdrawal::Listed;
                let op = step.request(Command::DeleteRecord { key: view.key.clone(), version });
                self.records.phase = Phase::Deleting(op);
            }
        }
    }
}
