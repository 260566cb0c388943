//! Pods that can't be labelled: when each is tried again, and when others go before it.
//!
//! Each pod has its own wait, so that one that can't be written to holds up no other.

use std::collections::BTreeMap;

use crate::core::backoff::Backoff;
use crate::core::{Failure, Instant, PodChange, Uid};

/// After so many refusals in a row other pods go first, and the user is told.
const REFUSED: u32 = 3;
/// After so many refusals in a row the marks of an election that goes are left on the pod.
pub(in crate::core) const LEFT: u32 = 5;
/// A pod that was refused may be tried again in the place of another one that is refused, after this time.
const TRIED_ANEW: std::time::Duration = std::time::Duration::from_secs(60);

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
        let new = Trouble { urgent, refusals: 0, why: String::new(), last: now, backoff: backoff.clone() };
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

    /// The marks of an election that goes stay on this pod.
    pub(super) fn leave(&mut self, uid: &Uid, why: String, now: Instant) {
        let trouble = Trouble { urgent: false, refusals: LEFT, why, last: now, backoff: Backoff::new(&uid.0) };
        self.known.insert((uid.clone(), PodChange::Remove), trouble);
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

    /// Whether a pod may be tried in the place of one that is refused.
    pub(super) fn may_be_tried(&self, uid: &Uid, now: Instant) -> bool {
        !self.is_refused(uid)
            || self.get(uid, PodChange::Promote).is_some_and(|trouble| now >= trouble.last + TRIED_ANEW)
    }

    /// Why the marks of an election that goes are left on this pod; `None`: they are not.
    pub(super) fn why_left(&self, uid: &Uid) -> Option<&str> {
        let trouble = self.get(uid, PodChange::Remove).filter(|trouble| trouble.refusals >= LEFT)?;
        Some(&trouble.why)
    }

    fn get(&self, uid: &Uid, change: PodChange) -> Option<&Trouble> {
        self.known.get(&(uid.clone(), change))
    }
}
