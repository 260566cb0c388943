//! Pods that can't be labelled: when each is tried again, and when others go before it.
//!
//! Each pod has its own wait, so that one that can't be written to holds up no other.

use std::collections::BTreeMap;
use std::time::Duration;

use super::lock::Lock;
use crate::backoff::Backoff;
use crate::view::View;
use crate::{Failure, Instant, Pod, PodChange, Uid};

/// After so many refusals in a row other pods go first, and the user is told.
const REFUSED: u32 = 3;
/// After so many refusals in a row, over so long a time, the marks of an election that goes are left on the pod. An API server that was
/// just started, or has too much to do, refuses for a moment.
const LEFT: u32 = 5;
const LEFT_AFTER: Duration = Duration::from_secs(15);
/// A pod that was refused may be tried again after this time, where nobody leads that is fit: what refused it may be gone.
const TRIED_ANEW: Duration = Duration::from_secs(60);

/// What kept pods from being written to, by pod and by what was to be written.
#[derive(Clone, Debug, Default)]
pub(super) struct Troubles {
    known: BTreeMap<(Uid, PodChange), Trouble>,
    /// The generation of the election for which these writes were made: another one writes something else.
    generation: i64,
}

#[derive(Clone, Debug)]
struct Trouble {
    /// Whether the pod shows the leader's label and should not.
    urgent: bool,
    refusals: u32,
    /// What the API server said, or what it keeps instead.
    why: String,
    first: Instant,
    last: Instant,
    backoff: Backoff,
}

impl Troubles {
    /// Forgets pods that are no more, and what an earlier spec wrote.
    pub(super) fn retain(&mut self, generation: i64, exists: impl Fn(&Uid) -> bool) {
        if generation != self.generation {
            self.known.clear();
            self.generation = generation;
        }
        self.known.retain(|(uid, _), _| exists(uid));
    }

    /// A write failed. Returns whether the user has to be told: it was refused, or had no effect, for the third time in a row.
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

    /// A write succeeded.
    pub(super) fn forget(&mut self, uid: &Uid, change: PodChange) {
        self.known.remove(&(uid.clone(), change));
    }

    /// Until when a pod is left alone, if at all.
    pub(super) fn waits(&self, uid: &Uid, change: PodChange, urgent: bool, now: Instant) -> Option<Instant> {
        self.get(uid, change).filter(|trouble| trouble.urgent == urgent)?.backoff.waits(now)
    }

    /// Whether the last write of this kind failed.
    pub(super) fn has(&self, uid: &Uid, change: PodChange) -> bool {
        self.get(uid, change).is_some()
    }

    /// Whether a pod was refused as the leader: others go before it.
    pub(super) fn is_refused(&self, uid: &Uid) -> bool {
        self.get(uid, PodChange::Promote).is_some_and(|trouble| trouble.refusals >= REFUSED)
    }

    /// Whether a pod is tried as any other where nobody leads, and may be tried in the place of one that is refused.
    pub(super) fn may_be_tried(&self, uid: &Uid, now: Instant) -> bool {
        !self.is_refused(uid)
            || self.get(uid, PodChange::Promote).is_some_and(|trouble| now >= trouble.last + TRIED_ANEW)
    }

    /// Whether an election that goes leaves its marks on this pod. Where others share the lock, one that shows the leader's label is
    /// never left, for another cluster would lead beside it.
    pub(super) fn is_left(&self, pod: &Pod, lock: &Lock, view: &View) -> bool {
        let leads = view.policy.shared && lock.shows_leader(pod, view.scope);
        self.why_left(&pod.uid).is_some() && !leads
    }

    /// Why they are left.
    pub(super) fn why_left(&self, uid: &Uid) -> Option<&str> {
        let trouble = self.get(uid, PodChange::Remove)?;
        (trouble.refusals >= LEFT && trouble.last >= trouble.first + LEFT_AFTER).then_some(&trouble.why)
    }

    fn get(&self, uid: &Uid, change: PodChange) -> Option<&Trouble> {
        self.known.get(&(uid.clone(), change))
    }
}
