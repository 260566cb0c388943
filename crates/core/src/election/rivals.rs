//! C6: another cluster that had the lock, and may not know yet that it has lost it.

use super::lock::Lock;
use crate::view::View;
use crate::{Instant, Stored};

/// The operator's observations of other clusters.
#[derive(Clone, Debug, Default)]
pub(super) struct Rivals {
    /// The session by which a pod led in another cluster or could begin to, when the lock was last seen.
    led_by: Option<String>,
    /// When that lock vanished, though the other cluster did not release it.
    vanished: Option<Instant>,
}

impl Rivals {
    /// Remembers whether another cluster led, or could begin to, when the lock was last seen, and when it ceased to, although it did not release the lock.
    pub(super) fn note(&mut self, lock: &Lock, now: Instant) {
        match lock.stored() {
            // A person wrote to the key, which did not end that leadership: the same session still holds the lock.
            Some(Stored::HeldByOther(_, rival))
                if rival.cluster.is_none() && self.led_by.as_ref() == Some(&rival.session) =>
            {
                self.vanished = None;
            }
            Some(Stored::HeldByOther(_, rival)) => {
                let leads = rival.may_lead().then(|| rival.session.clone());
                (self.led_by, self.vanished) = (leads, None);
            }
            // Nor did the other cluster release a lock in a bucket whose object another program has overwritten, which may be deleted next.
            Some(Stored::Absent | Stored::Foreign(_)) if self.led_by.is_some() => {
                self.vanished.get_or_insert(now);
            }
            // Consul has its own delay for a lock whose session has ended.
            Some(_) => (self.led_by, self.vanished) = (None, None),
            None => {}
        }
    }

    /// The moment until which the operator does not take the lock, because the other cluster may not know yet that it has vanished.
    pub(super) fn vanished_until(&self, view: &View) -> Option<Instant> {
        self.vanished.max(view.policy.vanished).map(|since| since + view.policy.grace)
    }
}
