//! What is known of the stores that others share, beside the locks in them. Leases need none of this.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::core::{Instant, StoreId, Tenure};
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
        self.0.entry(id).or_insert(State { listed: false, tenure: None, since: now });
    }

    /// This replica begins to act.
    pub(super) fn await_anew(&mut self, now: Instant) {
        for state in self.0.values_mut() {
            state.since = now;
        }
    }

    /// Takes what a store's watch tells; returns whether it changed what may be decided.
    pub(super) fn observe(&mut self, event: &StoreEvent, now: Instant) -> bool {
        match event {
            StoreEvent::All(scope, _) | StoreEvent::Rewound(scope, _) => {
                self.0.get_mut(&scope.store).is_some_and(|state| !std::mem::replace(&mut state.listed, true))
            }
            StoreEvent::Tenure(store, tenure) => self.0.get_mut(store).is_some_and(|state| {
                let now_known = (*tenure != Tenure::Unknown).then_some(*tenure);
                let before = std::mem::replace(&mut state.tenure, now_known);
                before.map(|before| before.lasts(now)) != now_known.map(|tenure| tenure.lasts(now))
            }),
            StoreEvent::Changed(..) | StoreEvent::Broken(..) => false,
        }
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
