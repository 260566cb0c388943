//! What is known of the stores that others share, beside the locks in them. Leases need none of this.

use std::collections::BTreeMap;
use std::time::Duration;

use lictor_core::{Instant, StoreId, Tenure};

use crate::store::StoreEvent;

/// How long a store's first answers are awaited by an operator that begins to act, before what was held there counts as lost. Its
/// predecessor renewed until a moment that it does not know.
const PATIENCE: Duration = Duration::from_secs(5);

/// The shared stores.
#[derive(Default)]
pub(super) struct Shared(BTreeMap<StoreId, State>);

struct State {
    /// Whether its locks were listed.
    listed: bool,
    tenure: Option<Tenure>,
    /// Since when its answers are awaited.
    since: Instant,
    /// What its elections were decided by last: whether its locks were listed, and whether what is held there surely lasts, or is
    /// known to have ended.
    decided: (bool, Option<(bool, bool)>),
    /// When it was last seen to be put back to an earlier state.
    rewound: Option<Instant>,
}

/// What is known of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// Its locks, and how long they are surely held.
    Full(Tenure),
    /// Nothing yet, and it is awaited until this moment.
    Awaited(Instant),
    /// Nothing.
    Nothing,
}

impl Shared {
    /// There is such a store; with new settings it goes on from what was known.
    pub(super) fn add(&mut self, id: StoreId, now: Instant) {
        self.0.entry(id).or_insert(State {
            listed: false,
            tenure: None,
            since: now,
            decided: (false, None),
            rewound: None,
        });
    }

    /// This replica begins to act.
    pub(super) fn await_anew(&mut self, now: Instant) {
        for state in self.0.values_mut() {
            state.since = now;
            state.tenure = state.tenure.filter(|tenure| tenure.lasts(now));
        }
    }

    /// Takes what a store's watch tells.
    pub(super) fn observe(&mut self, event: &StoreEvent, now: Instant) {
        match event {
            StoreEvent::All(scope, ..) | StoreEvent::Rewound(scope, _) => {
                if let Some(state) = self.0.get_mut(&scope.store) {
                    state.listed = true;
                    if matches!(event, StoreEvent::Rewound(..)) {
                        state.rewound = Some(now);
                    }
                }
            }
            StoreEvent::Tenure(store, tenure) => {
                if let Some(state) = self.0.get_mut(store) {
                    // A new client or another certificate takes nothing away: what is sure until a moment, is sure until then.
                    let still = state.tenure.filter(|known| *tenure == Tenure::Unknown && known.lasts(now));
                    state.tenure = still.or((*tenure != Tenure::Unknown).then_some(*tenure));
                }
            }
            StoreEvent::Changed(..) | StoreEvent::Broken(..) => {}
        }
    }

    /// The stores whose elections are to be decided anew: more or less is known than when this was asked last, or a tenure has
    /// ended since. Whoever keeps the sessions tells of that end, too, but perhaps too late.
    pub(super) fn changed(&mut self, now: Instant) -> Vec<StoreId> {
        let mut changed = Vec::new();
        for (id, state) in &mut self.0 {
            let known = (state.listed, state.tenure.map(|tenure| (tenure.lasts(now), tenure == Tenure::Ended)));
            if std::mem::replace(&mut state.decided, known) != known {
                changed.push(id.clone());
            }
        }
        changed
    }

    /// When a store was last seen to be put back to an earlier state.
    pub(super) fn rewound(&self, id: &StoreId) -> Option<Instant> {
        self.0.get(id)?.rewound
    }

    /// When the next tenure ends, unless it is renewed before.
    pub(super) fn next_end(&self, now: Instant) -> Option<Instant> {
        let ends = self.0.values().filter_map(|state| match state.tenure {
            Some(Tenure::Until(end)) if now < end => Some(end),
            _ => None,
        });
        ends.min()
    }

    /// What is known of a store; one that is not shared is known by its locks alone.
    pub(super) fn knowledge(&self, id: &StoreId, now: Instant) -> Knowledge {
        if *id == StoreId::leases() || *id == StoreId::default() {
            return Knowledge::Full(Tenure::Unlimited);
        }
        match self.0.get(id) {
            Some(State { listed: true, tenure: Some(tenure), .. }) => Knowledge::Full(*tenure),
            Some(State { since, .. }) if now < *since + PATIENCE => Knowledge::Awaited(*since + PATIENCE),
            _ => Knowledge::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreScope;
    use lictor_core::Version;

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn store() -> StoreId {
        StoreId("consul/a".into())
    }

    fn tells(shared: &mut Shared, tenure: Tenure) {
        shared.observe(&StoreEvent::Tenure(store(), tenure), at(0));
    }

    fn lists(shared: &mut Shared) {
        shared.observe(&StoreEvent::All(StoreScope { store: store(), namespace: None }, Version(1), vec![]), at(0));
    }

    #[test]
    fn the_end_of_a_tenure_is_noticed_whoever_tells_of_it() {
        let mut shared = Shared::default();
        shared.add(store(), at(0));
        lists(&mut shared);
        tells(&mut shared, Tenure::Until(at(8)));
        assert_eq!(shared.changed(at(1)), [store()]);
        assert_eq!((shared.changed(at(7)), shared.next_end(at(7))), (vec![], Some(at(8))));
        assert_eq!((shared.changed(at(8)), shared.next_end(at(8))), (vec![store()], None));
        assert_eq!(shared.changed(at(9)), []);

        // Told late, or at that very moment, it is the same.
        tells(&mut shared, Tenure::Until(at(18)));
        assert_eq!(shared.changed(at(10)), [store()]);
        tells(&mut shared, Tenure::Lapsed);
        assert_eq!(shared.changed(at(18)), [store()]);
        tells(&mut shared, Tenure::Until(at(30)));
        assert_eq!(shared.changed(at(20)), [store()]);
        tells(&mut shared, Tenure::Until(at(33)));
        assert_eq!(shared.changed(at(31)), []);
    }

    #[test]
    fn locks_that_are_listed_after_the_session_is_known_are_noticed() {
        let mut shared = Shared::default();
        shared.add(store(), at(0));
        tells(&mut shared, Tenure::Until(at(18)));
        assert_eq!(shared.changed(at(10)), [store()]);
        assert_eq!(shared.knowledge(&store(), at(10)), Knowledge::Nothing);
        lists(&mut shared);
        assert_eq!(shared.changed(at(10)), [store()]);
        assert_eq!(shared.knowledge(&store(), at(10)), Knowledge::Full(Tenure::Until(at(18))));
    }
}
