//! Without the lock: what the operator does when another cluster leads, or may lead. The rules C3, C5, C6 and C7 of docs/protocol.md.
//!
//! Inside one cluster, compare-and-swap alone keeps two leaders apart. Other clusters that share the store can't be fenced at this
//! cluster's API server. So a cluster that may not hold the lock shows no leader, whatever else is wanted of the election, and takes the
//! lock again only after that.

use super::lock::Lock;
use super::phase::{Losing, Phase};
use super::pod_writes::{PodWrites, shows_leader};
use super::records::Records;
use super::report::Report;
use super::routes::{Goal, Routes};
use super::workloads::{Target, WorkloadReconciler, has_enabled};
use crate::step::Step;
use crate::view::{Desired, Situation, WhenLost};
use crate::{Announcement, LockValidity, Reason, Rival, Stored, Transition};

/// The reason why no pod of this cluster may show a leader label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unheld {
    /// The reason, for people.
    reason: Reason,
    /// Whether the lock as the store has shown it still counts. If not, the operator reads everything again when it can rely on the store.
    pub(super) known: bool,
}

/// The parts that the loss of the lock concerns.
pub(super) struct WithoutLock<'e> {
    pub(super) records: &'e mut Records,
    pub(super) report: &'e mut Report,
    pub(super) pod_writes: &'e mut PodWrites,
    pub(super) routes: &'e mut Routes,
    pub(super) workloads: &'e mut WorkloadReconciler,
    pub(super) losing: &'e mut Option<Losing>,
}

/// Why no pod may show a leader label now, whatever is wanted. `None` if this cluster holds the lock, or nothing is known of it yet.
pub(super) fn unheld(lock: &Lock, step: &Step) -> Option<Unheld> {
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
        validity if validity.lasts(view.now) => (rewound && !shows_leadership(step)).then_some(Reason::StoreRewound),
        _ if rewound => Some(Reason::StoreRewound),
        LockValidity::Ended => Some(Reason::LockLost),
        _ => Some(Reason::StoreLost),
    };
    match (lock.stored(), unreliable) {
        (Some(Stored::HeldByOther(..)), _) => Some(Unheld { reason: Reason::LockTaken, known: true }),
        (_, Some(reason)) if demote => Some(Unheld { reason, known: false }),
        (Some(Stored::Free(..) | Stored::Absent | Stored::Foreign(_)), _) if demote => {
            let reason = if rewound { Reason::StoreRewound } else { Reason::LockLost };
            Some(Unheld { reason, known: true })
        }
        _ => None,
    }
}

impl WithoutLock<'_> {
    /// C3: takes the leader label off. A store that does not answer never delays this.
    pub(super) fn stand_down(&mut self, unheld: &Unheld, step: &mut Step) {
        let view = step.view;
        let &Unheld { ref reason, known } = unheld;
        if self.report.situation.shows_nobody() && shows_leader(view) {
            step.contest();
        }
        if view.desired == Desired::Withdraw {
            self.workloads.suspend_jobs(self.records.circumstances(view), step);
        }
        self.workloads.let_nothing_run();
        if matches!(&self.records.phase, Phase::HandingOver(handover) if handover.target().is_some()) {
            // The operator promotes no pod any more. It makes a promotion fail that it has sent already.
            self.records.phase = Phase::Idle;
        }
        if view.desired == Desired::Withdraw && !self.pod_writes.somebody_may_lead(self.routes, step.id, view) {
            return;
        }
        if !known && view.desired != Desired::Withdraw {
            // The operator does not wait for the outcomes of commands, because it reads everything again when the store is back.
            self.records.phase = Phase::Idle;
            self.records.lock.forget();
        }
        self.records.lock.distrust();
        if let Some((_, holder, _)) = self.report.leader.take() {
            self.losing.get_or_insert(Losing { holder, since: view.now, reason: reason.clone() });
        }
        if let Some(losing) = self.losing.as_mut().filter(|_| *reason == Reason::StoreRewound) {
            // The restored store is why the lock or its session seemed to be gone.
            losing.reason = reason.clone();
        }
        let stored = self.records.lock.stored().cloned().unwrap_or(Stored::Absent);
        self.pod_writes.maintain(&stored, None, &self.records.lock, self.records.terms.highest(), step);
        self.routes.advance(&Goal::NobodyHere, step);
        // A refused election must not touch what belongs to another one, and a paused one nothing new.
        let untouched =
            (known && *reason != Reason::LockTaken) || matches!(view.desired, Desired::Freeze | Desired::Refuse);
        let target = if untouched { Target::Await } else { Target::Follow };
        if view.desired != Desired::Withdraw {
            self.workloads.reconcile(target, self.records.circumstances(view), step);
        }
        if self.pod_writes.somebody_may_lead(self.routes, step.id, view) || self.workloads.lets_run(target, step) {
            // The operator reports no leader elsewhere before this cluster shows none.
            self.report.situation = Situation::HandingOver;
            return;
        }
        if let Some(Losing { holder, since, reason }) = self.losing.take() {
            step.announce(Announcement::Transition(Transition {
                term: self.records.terms.highest(),
                leader: None,
                previous: Some(holder),
                reason,
                took: view.now.since(since),
            }));
        }
        if let Stored::HeldByOther(_, rival) = stored {
            self.follow(rival, step);
        } else if !known {
            self.report.situation = match reason {
                Reason::LockLost => Situation::LockLost,
                Reason::StoreRewound => Situation::StoreRewound,
                _ => Situation::StoreLost,
            };
        }
    }

    fn follow(&mut self, rival: Rival, step: &mut Step) {
        self.records.lock.forget_last();
        self.report.failure = None;
        self.records.terms.see(rival.term);
        let known = match &self.report.situation {
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
        self.report.situation = Situation::LedElsewhere(Box::new(rival));
    }
}

/// Whether a pod or a workload shows that this cluster leads.
fn shows_leadership(step: &Step) -> bool {
    shows_leader(step.view) || has_enabled(step)
}
