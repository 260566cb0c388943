//! Pods that the operator can't label: when it tries each again, and when it prefers other pods.
//!
//! Each pod has its own wait, so that one that can't be written to holds up no other.

use std::collections::BTreeMap;
use std::time::Duration;

use super::lock::Lock;
use crate::backoff::Backoff;
use crate::view::View;
use crate::{Failure, Instant, Pod, PodChange, Uid};

/// After this many refusals in a row, the operator prefers other pods, and tells the user.
const REFUSED: u32 = 3;
/// After this many refusals in a row, over at least this time, the operator leaves the marks of a withdrawn election on the pod. An API
/// server that has just started, or is overloaded, refuses only for a moment.
const LEFT: u32 = 5;
const LEFT_AFTER: Duration = Duration::from_secs(15);
/// A refused pod may be tried again after this time, if there is no fit leader, because the cause of the refusal may be gone.
const TRIED_ANEW: Duration = Duration::from_secs(60);

/// The failed writes to pods, by pod and by the change that was to be written.
#[derive(Clone, Debug, Default)]
pub(super) struct Troubles {
    known: BTreeMap<(Uid, PodChange), Trouble>,
    /// The generation of the election for which these writes were made. Another generation writes something else.
    generation: i64,
}

#[derive(Clone, Debug)]
struct Trouble {
    /// Whether the pod shows a leader label that it should not.
    urgent: bool,
    refusals: u32,
    /// The API server's answer, or the value that it keeps instead.
    why: String,
    first: Instant,
    last: Instant,
    backoff: Backoff,
}

impl Troubles {
    /// Forgets pods that are gone, and the failed writes of an earlier spec.
    pub(super) fn retain(&mut self, generation: i64, exists: impl Fn(&Uid) -> bool) {
        if generation != self.generation {
            self.known.clear();
            self.generation = generation;
        }
        self.known.retain(|(uid, _), _| exists(uid));
    }

    /// Notes that a write failed. Returns whether to tell the user, because it was refused, or had no effect, for the third time in a row.
    pub(super) fn note(&mut self, uid: &Uid, change: PodChange, urgent: bool, failure: &Failure, now: Instant) -> bool {
        let backoff = Backoff::new(&uid.0);
        let new = Trouble { urgent, refusals: 0, why: String::new(), first: now, last: now, backoff: backoff.clone() };
        let trouble = self.known.entry((uid.clone(), change)).or_insert(new);
        if trouble.urgent != urgent {
            (trouble.urgent, trouble.backoff) = (urgent, backoff);
        }
        trouble.last = now;
        failure.text().clone_into(&mut trouble.why);
        if urgent {
            trouble.backoff.delay_shortly(now);
        } else {
            trouble.backoff.delay(now);
        }
        if matches!(failure, Failure::Unknown(_)) {
            return false;
        }
        trouble.refusals = trouble.refusals.saturating_add(1);
        trouble.refusals == REFUSED
    }

    /// Notes that a write succeeded.
    pub(super) fn forget(&mut self, uid: &Uid, change: PodChange) {
        self.known.remove(&(uid.clone(), change));
    }

    /// The moment until which the operator leaves a pod alone, if at all.
    pub(super) fn waits(&self, uid: &Uid, change: PodChange, urgent: bool, now: Instant) -> Option<Instant> {
        self.get(uid, change).filter(|trouble| trouble.urgent == urgent)?.backoff.waits(now)
    }

    /// Whether the last write of this kind failed.
    pub(super) fn has(&self, uid: &Uid, change: PodChange) -> bool {
        self.get(uid, change).is_some()
    }

    /// Whether the operator prefers other pods to this one, which was refused as the leader.
    pub(super) fn is_refused(&self, uid: &Uid) -> bool {
        self.get(uid, PodChange::Promote).is_some_and(|trouble| trouble.refusals >= REFUSED)
    }

    /// E1: whether a former leader can't be deleted, because the deletion was refused again and again.
    pub(super) fn keeps(&self, uid: &Uid) -> bool {
        self.undeleted(uid).is_some_and(|trouble| trouble.refusals >= REFUSED)
    }

    /// E2: why a former leader is not deleted, if that failed.
    pub(super) fn why_undeleted(&self, uid: &Uid) -> Option<&str> {
        self.undeleted(uid).map(|trouble| trouble.why.as_str())
    }

    fn undeleted(&self, uid: &Uid) -> Option<&Trouble> {
        self.get(uid, PodChange::Evict).or_else(|| self.get(uid, PodChange::Delete))
    }

    /// Whether a pod counts like any other while there is no leader, and may be tried instead of one that is refused.
    pub(super) fn may_be_tried(&self, uid: &Uid, now: Instant) -> bool {
        !self.is_refused(uid)
            || self.get(uid, PodChange::Promote).is_some_and(|trouble| now >= trouble.last + TRIED_ANEW)
    }

    /// Whether a withdrawn election leaves its marks on this pod. If clusters share the lock, a pod that shows a leader label is never
    /// left, because another cluster would lead beside it.
    pub(super) fn is_left(&self, pod: &Pod, lock: &Lock, view: &View) -> bool {
        let leads = view.policy.shared && lock.shows_leader(pod, view.scope);
        self.why_left(&pod.uid).is_some() && !leads
    }

    /// Why the marks are left.
    pub(super) fn why_left(&self, uid: &Uid) -> Option<&str> {
        let trouble = self.get(uid, PodChange::Remove)?;
        (trouble.refusals >= LEFT && trouble.last >= trouble.first + LEFT_AFTER).then_some(&trouble.why)
    }

    fn get(&self, uid: &Uid, change: PodChange) -> Option<&Trouble> {
        self.known.get(&(uid.clone(), change))
    }
}
