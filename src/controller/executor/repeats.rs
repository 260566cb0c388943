//! The filter for Events: an Event is not published again within a short time. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use lictor_core::Instant;

use crate::kubernetes::Event;

/// How long the same Event is not published again.
const QUIET: Duration = Duration::from_secs(10);

/// The Events that were published last.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    told: BTreeMap<Told, Instant>,
    /// The same Events, the oldest first.
    order: VecDeque<Told>,
}

/// The object of the Event, its reason and its note.
type Told = (Option<String>, &'static str, String);

impl Repeats {
    /// Notes an Event that is about to be published. Returns whether it is new.
    pub(crate) fn is_new(&mut self, event: &Event, now: Instant) -> bool {
        while let Some(oldest) = self.order.front()
            && self.told.get(oldest).is_none_or(|at| now.since(*at) >= QUIET)
        {
            self.told.remove(oldest);
            self.order.pop_front();
        }
        let told = (event.regarding.uid.clone(), event.reason, event.note.clone());
        if self.told.contains_key(&told) {
            return false;
        }
        self.told.insert(told.clone(), now);
        self.order.push_back(told);
        true
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    fn event(uid: &str, reason: &'static str, note: &str) -> Event {
        let regarding = ObjectReference { uid: Some(uid.into()), ..ObjectReference::default() };
        Event { regarding, related: None, warning: true, reason, action: "Relabel", note: note.into() }
    }

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn the_same_is_told_again_after_a_while_and_nothing_else_is_held_back() {
        let mut repeats = Repeats::default();
        let drift = event("a", "LabelDrift", "its labels were changed");
        assert!(repeats.is_new(&drift, at(0)));
        assert!(!repeats.is_new(&drift, at(9)));
        assert!(repeats.is_new(&event("b", "LabelDrift", "its labels were changed"), at(9)));
        assert!(repeats.is_new(&event("a", "Elected", "its labels were changed"), at(9)));
        assert!(repeats.is_new(&event("a", "LabelDrift", "in another way"), at(9)));
        assert!(repeats.is_new(&drift, at(10)));
        assert!(!repeats.is_new(&drift, at(19)));
        assert!(repeats.is_new(&drift, at(40)));
        assert_eq!((repeats.told.len(), repeats.order.len()), (1, 1), "what is over is forgotten");
    }
}
