//! Without the lock: what the operator does when another cluster leads, or may lead. The rules C3, C5, C6 and C7 of docs/protocol.md.
//!
//! Inside one cluster, compare-and-swap alone keeps two leaders apart. Other clusters that share the store can't be fenced at this
//! cluster's API server. So a cluster that may not hold the lock shows no leader, whatever else is wanted of the election, and takes the
//! lock again only after that.

use super::Election;
use super::fitness::Decision;
use super::phase::{Losing, Phase};
use super::workloads::{Circumstances, LOOK_AGAIN, Target, has_enabled};
use crate::step::Step;
use crate::timers::Timer;
use crate::view::{Desired, Situation, View, WhenLost};
use crate::{Announcement, Command, Instant, LockValidity, Reason, Record, RecordOutcome, Rival, Stored, Transition};

/// The reason why no pod of this cluster may show a leader label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unheld {
    /// The reason, for people.
    reason: Reason,
    /// Whether the lock as the store has shown it still counts. If not, the operator reads everything again when it can rely on the store.
    pub(super) known: bool,
}

impl Election {
    /// Why no pod may show a leader label now, whatever is wanted. `None` if this cluster holds the lock, or nothing is known of it yet.
    pub(super) fn unheld(&self, step: &Step) -> Option<Unheld> {
        let view = step.view;
        let policy = view.policy;
        if !policy.shared {
            return None;
        }
        let demote = policy.when_lost == WhenLost::Demote;
        // C7.
        let rewound = view.now < policy.not_before;
        // Each observation names the cause that it knows, whichever comes first.
        let unreliable = match policy.validity {
            validity if validity.lasts(view.now) => {
                (rewound && !shows_leadership(step)).then_some(Reason::StoreRewound)
            }
            _ if rewound => Some(Reason::StoreRewound),
            LockValidity::Ended => Some(Reason::LockLost),
            _ => Some(Reason::StoreLost),
        };
        match (self.lock.stored(), unreliable) {
            (Some(Stored::HeldByOther(..)), _) => Some(Unheld { reason: Reason::LockTaken, known: true }),
            (_, Some(reason)) if demote => Some(Unheld { reason, known: false }),
            (Some(Stored::Free(..) | Stored::Absent | Stored::Foreign(_)), _) if demote => {
                let reason = if rewound { Reason::StoreRewound } else { Reason::LockLost };
                Some(Unheld { reason, known: true })
            }
            _ => None,
        }
    }

    /// Whether a pod shows a leader label or a slice a leader, or may do so because of a write whose outcome is unknown.
    pub(super) fn somebody_may_lead(&self, view: &View) -> bool {
        shows_leader(view) || !self.promotions.is_empty() || self.routes.may_show(&self.id, view)
    }

    /// C3: takes the leader label off. A store that does not answer never delays this.
    pub(super) fn stand_down(&mut self, unheld: Unheld, step: &mut Step) {
        let view = step.view;
        let Unheld { reason, known } = unheld;
        if self.situation.shows_nobody() && shows_leader(view) {
            step.contest();
        }
        if view.desired == Desired::Withdraw {
            let around = Circumstances::of(&self.lock, self.terms, &self.obligations, view);
            self.workloads.suspend_jobs(around, step);
        }
        self.workloads.let_nothing_run();
        if matches!(&self.phase, Phase::HandingOver(handover) if handover.target().is_some()) {
            // The operator promotes no pod any more. It makes a promotion fail that it has sent already.
            self.phase = Phase::Idle;
        }
        if view.desired == Desired::Withdraw && !self.somebody_may_lead(view) {
            return;
        }
        if !known && view.desired != Desired::Withdraw {
            // The operator does not wait for the outcomes of commands, because it reads everything again when the store is back.
            self.phase = Phase::Idle;
            self.lock.forget();
        }
        self.lock.distrust();
        if let Some((_, holder, _)) = self.leader.take() {
            self.losing.get_or_insert(Losing { holder, since: view.now, reason });
        }
        if let Some(losing) = self.losing.as_mut().filter(|_| reason == Reason::StoreRewound) {
            // The restored store is why the lock or its session seemed to be gone.
            losing.reason = reason;
        }
        let stored = self.lock.stored().cloned().unwrap_or(Stored::Absent);
        self.maintain(&stored, None, step);
        self.route_nowhere(step);
        // A refused election must not touch what belongs to another one, and a paused one nothing new.
        let untouched =
            (known && reason != Reason::LockTaken) || matches!(view.desired, Desired::Freeze | Desired::Refuse);
        let target = if untouched { Target::Await } else { Target::Follow };
        if view.desired != Desired::Withdraw {
            self.reconcile(target, step);
        }
        if self.somebody_may_lead(view) || self.workloads.lets_run(target, step) {
            // The operator reports no leader elsewhere before this cluster shows none.
            self.situation = Situation::HandingOver;
            return;
        }
        if let Some(Losing { holder, since, reason }) = self.losing.take() {
            step.announce(Announcement::Transition(Transition {
                term: self.terms.highest(),
                leader: None,
                previous: Some(holder),
                reason,
                took: view.now.since(since),
            }));
        }
        if let Stored::HeldByOther(_, rival) = stored {
            self.follow(rival, step);
        } else if !known {
            self.situation = match reason {
                Reason::LockLost => Situation::LockLost,
                Reason::StoreRewound => Situation::StoreRewound,
                _ => Situation::StoreLost,
            };
        }
    }

    fn follow(&mut self, rival: Rival, step: &mut Step) {
        self.lock.forget_last();
        self.failure = None;
        self.terms.see(rival.term);
        let known = match &self.situation {
            Situation::LedElsewhere(known) => Some(known.as_ref()),
            _ => None,
        };
        let told = known.is_some_and(|known| known.leads_as(&rival));
        // W12: only a change that this process has seen is news.
        let fails = known.filter(|known| known.switchover != rival.switchover);
        let remains = fails.and(rival.switchover.as_ref()).map(|mark| mark.remains.clone()).unwrap_or_default();
        if !told {
            step.announce(Announcement::LedElsewhere(rival.clone()));
        }
        if let (false, Some(cluster)) = (remains.is_empty(), rival.cluster.clone()) {
            step.announce(Announcement::NotHandedOver { cluster, remains });
        }
        self.situation = Situation::LedElsewhere(Box::new(rival));
    }

    /// C3, W3: takes the lock, which no cluster holds, if there is a candidate to lead.
    pub(super) fn take_lock(&mut self, stored: &Stored, step: &mut Step) {
        let view = step.view;
        let shows = self.somebody_may_lead(view) || self.workloads.lets_run(Target::Await, step);
        if shows && view.policy.when_lost == WhenLost::Demote {
            return;
        }
        if view.desired == Desired::Leave {
            self.situation = Situation::Vacant;
            return;
        }
        if let Some(until) = self.rivals.vanished_until(view)
            && view.now < until
        {
            // A person deleted the lock, or the store was put back. The other cluster may not know yet.
            self.situation = Situation::LockLost;
            step.wake_at(Timer::LockVanished, until);
            return;
        }
        if view.following.is_some_and(|following| !following.lock.is_known()) {
            // F2: no pod is promoted while the holder is unknown.
            self.situation = Situation::Vacant;
            return;
        }
        let own = stored.written().filter(|record| record.election == self.id.uid).or(self.lock.last()).cloned();
        match self.fitness.decide(own.as_ref(), &self.troubles, step) {
            Decision::Keep(candidate) | Decision::KeepDespiteProbe(candidate, _) => {
                self.write(stored, Some(candidate), Reason::LockLost, step);
            }
            Decision::Elect(candidate, reason) => self.write(stored, Some(candidate), reason, step),
            Decision::Wait(why, until) => {
                self.situation = Situation::Recovering(why, until);
                step.wake_at(Timer::Recovery, until);
            }
            Decision::Vacate(_) | Decision::Nobody => {
                self.situation = Situation::Vacant;
                self.maintain(stored, None, step);
                self.reconcile(Target::Follow, step);
            }
        }
    }

    /// C5, W3: releases the lock to other clusters, if no leader is recorded here, no pod shows otherwise, and no workload runs any more.
    /// L6: and if no other replica can change that.
    pub(super) fn release(&mut self, stored: &Stored, step: &mut Step) {
        let view = step.view;
        let Stored::Ours(version, record) = stored else { return };
        let unsettled =
            record.holder.is_some() || self.somebody_may_lead(view) || self.workloads.lets_run(Target::Follow, step);
        if !view.policy.shared || unsettled || !matches!(self.phase, Phase::Idle) {
            return;
        }
        if self.workloads.winds_down(step) {
            return;
        }
        if view.desired == Desired::Leave && !self.workloads.outlasting(step).is_empty() {
            // W12: the operator lets the lock expire, and the next holder waits.
            return self.workloads.keep_lock(view.now + LOOK_AGAIN);
        }
        if view.now < view.alone_from {
            self.workloads.keep_lock(view.alone_from);
            step.wake_at(Timer::Alone, view.alone_from);
            return;
        }
        if let Some(ended) = self.obligations.ended(record, &self.id, view) {
            match self.workloads.inspect(step) {
                Some(op) => self.phase = Phase::Inspecting(op),
                None => self.amend(record, *version, ended, step),
            }
            return;
        }
        if self.hand_over_lock(record, *version, step) {
            return;
        }
        let op = step.request(Command::ReleaseRecord { key: view.key.clone(), version: *version });
        self.phase = Phase::Releasing(op, Box::new(record.clone()));
    }

    pub(super) fn take_released(&mut self, record: Record, released: RecordOutcome, now: Instant) {
        self.lock.forget();
        match released {
            RecordOutcome::Written(version) => {
                self.backoff.reset();
                self.lock.take_written(version, Stored::Free(version, Some(record), None));
            }
            RecordOutcome::Conflict => {}
            RecordOutcome::Delayed => self.backoff.delay_shortly(now),
            RecordOutcome::Failed(failure) => self.fail(failure, now),
        }
    }
}

/// Whether a pod or a workload shows that this cluster leads.
fn shows_leadership(step: &Step) -> bool {
    shows_leader(step.view) || has_enabled(step)
}

fn shows_leader(view: &View) -> bool {
    view.pods.iter().any(|pod| view.scope.markings.shows_leader(pod))
}
