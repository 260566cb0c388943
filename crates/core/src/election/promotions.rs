//! H11 and C4: promotions whose outcome is unknown. They wait for their turn, are on their way, or were not answered.
//!
//! If the election continues without such a promotion, the operator writes to the pod, and counts it as a leader until the API server has acknowledged that write. It does the
//! same for workloads.

use std::collections::{BTreeMap, BTreeSet};

use crate::backoff::Backoff;
use crate::handover::Fence;
use crate::marking::{Before, is_held};
use crate::ownership::written_on;
use crate::step::Step;
use crate::timers::Timer;
use crate::view::View;
use crate::write::Late;
use crate::{
    Command, Failure, Instant, Markings, OpId, Outcome, Pod, PodChange, PodOutcome, PodPatch, Scope, Term, Uid,
    give_back,
};

/// The promotions by pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Promotions(BTreeMap<Uid, Box<Promotion>>);

/// The promotions of one pod that may still be carried out.
#[derive(Clone, Debug)]
struct Promotion {
    name: String,
    late: Late,
    /// The write that makes them fail.
    fence: Option<Fence>,
    backoff: Backoff,
}

impl Promotions {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, pod: &Uid) -> bool {
        self.0.contains_key(pod)
    }

    /// H8: whether a promotion of a pod may still be carried out, if the pod is as it was seen.
    pub(super) fn may_come_to(&self, pod: &Pod) -> bool {
        self.0.get(&pod.uid).is_some_and(|promotion| promotion.late.may_change(pod.version))
    }

    /// Notes the promotions among the requests that are about to be sent.
    pub(super) fn note(&mut self, requests: &[(OpId, Command)]) {
        for (op, command) in requests {
            let Command::WritePod(write) = command else { continue };
            if write.change != PodChange::Promote {
                continue;
            }
            let new = || {
                let backoff = Backoff::new(&write.uid.0);
                Box::new(Promotion { name: write.name.clone(), late: Late::default(), fence: None, backoff })
            };
            let known = self.0.entry(write.uid.clone()).or_insert_with(new);
            known.late.reach(write.version);
            if known.late.is_empty() {
                *known = new();
            }
            known.late.send(*op, write.version);
        }
    }

    /// Forgets promotions that can have no effect any more, as the known pods show.
    pub(super) fn forget(&mut self, gone: &BTreeSet<Uid>, pods: &[&Pod]) {
        self.retain(|uid, promotion| {
            if let Some(pod) = pods.iter().find(|pod| pod.uid == *uid) {
                promotion.late.reach(pod.version);
            }
            !gone.contains(uid) && !promotion.late.is_empty()
        });
    }

    fn retain(&mut self, mut stays: impl FnMut(&Uid, &mut Promotion) -> bool) {
        self.0.retain(|uid, promotion| stays(uid, promotion));
        give_back(&mut self.0);
    }

    /// Takes the outcome of a promotion.
    pub(super) fn take(&mut self, op: OpId, outcome: &Outcome) {
        let Outcome::PodWritten(written) = outcome else { return };
        self.retain(|_, promotion| {
            promotion.late.take(op, written);
            !promotion.late.is_empty()
        });
    }

    /// C4: writes to the pods whose promotions no handover awaits any more. `leader` stays as it is.
    pub(super) fn fence(
        &mut self,
        leader: Option<&Pod>,
        former: &[Markings],
        scopes: &[&Scope],
        term: Term,
        step: &mut Step,
    ) {
        let Step { id, view, .. } = *step;
        for (uid, promotion) in &mut self.0 {
            if leader.is_some_and(|leader| leader.uid == *uid) {
                continue;
            }
            if let Some(until) = promotion.backoff.waits(view.now) {
                step.wake_at(Timer::PodRetry, until);
                continue;
            }
            let seen = view.pods.iter().copied().find(|pod| pod.uid == *uid);
            let fence = promotion.fence.get_or_insert_with(|| match seen {
                Some(pod) => Fence::due(pod.clone()),
                None => Fence::unread(promotion.name.clone()),
            });
            fence.advance(|pod| stamp(&id.name, term, pod, (former, scopes), view), step);
        }
    }

    /// The pod for which such a write's outcome is awaited.
    pub(super) fn awaits_fence(&self, op: OpId) -> Option<Uid> {
        let awaits = |promotion: &Promotion| promotion.fence.as_ref().is_some_and(|fence| fence.awaits(op));
        self.0.iter().find(|(_, promotion)| awaits(promotion)).map(|(uid, _)| uid.clone())
    }

    /// Takes the outcome of such a write. Returns the failure, if there is one.
    pub(super) fn take_fence(&mut self, uid: &Uid, outcome: Outcome, now: Instant) -> Option<Failure> {
        let promotion = self.0.get_mut(uid)?;
        // A write that changed nothing does not stop the promotion.
        let unchanged = match &outcome {
            Outcome::PodWritten(PodOutcome::Written(pod)) if promotion.late.may_change(pod.version) => {
                Some(format!("a write to pod {} changed nothing", pod.name))
            }
            _ => None,
        };
        let (fence, result) = promotion.fence.take()?.take(uid, unchanged, outcome);
        promotion.fence = fence;
        if result.is_err() {
            promotion.backoff.delay_shortly(now);
        }
        if promotion.fence.is_none() {
            self.0.remove(uid);
            give_back(&mut self.0);
        }
        result.err()
    }
}

/// A patch that changes the pod's version whatever is on the pod, because the API server does not write a patch without a change.
fn stamp(
    election: &str,
    term: Term,
    pod: &Pod,
    (former, scopes): (&[Markings], &[&Scope]),
    view: &View,
) -> (PodChange, PodPatch) {
    if view.foreign.contains(&pod.uid) {
        let mut patch = PodPatch::default();
        patch.note_term(term);
        return (PodChange::Remove, patch);
    }
    let markings = &view.scope.markings;
    let demotion = markings.demotion(election, term, former, &Before::of(pod));
    if view.selects(pod) && demotion.lacks(pod).is_some() {
        return (PodChange::Demote, demotion);
    }
    let mut patch = Markings::removal(&written_on(scopes, pod), pod);
    if markings.holds && is_held(pod) {
        patch.keep_finalizer();
    }
    if patch.is_empty() {
        patch.stamp(election, term);
    }
    (PodChange::Remove, patch)
}
