//! The state of the stores that clusters share, apart from the locks in them. Leases need none of this.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Instant, LockValidity, StoreId};

/// The stores that clusters share.
#[derive(Clone, Debug, Default)]
pub struct SharedStores {
    each: BTreeMap<StoreId, State>,
    /// The number of the takeover by which this replica acts.
    takeover: u64,
}

#[derive(Clone, Debug)]
struct State {
    /// Whether the store's locks were listed.
    listed: bool,
    /// The validity of the locks held there, with the number of the takeover under which the store's watch told of it, and listed the
    /// locks before.
    validity: Option<(u64, LockValidity)>,
    /// When the operator began to wait for the store's answers.
    since: Instant,
    /// C3: how long it waits before it treats the locks there as lost. Its predecessor renewed them until a moment that it does not know.
    patience: Duration,
    /// The state by which the store's elections were last decided: whether its locks were listed, and whether the locks held there surely
    /// last, or are known to have ended.
    decided: (bool, Option<(bool, bool)>),
    /// When the store was last seen to be put back to an earlier state.
    rewound: Option<Instant>,
}

/// The operator's knowledge of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// The operator knows the locks, and how long it can rely on them.
    Full(LockValidity),
    /// The operator knows nothing yet, and waits until this moment.
    Awaited(Instant),
    /// The operator knows nothing.
    Nothing,
}

impl SharedStores {
    /// Adds a store, for whose first answers an operator that begins to act waits no longer than `patience`. A known store with new settings
    /// keeps its state.
    pub fn add(&mut self, id: StoreId, patience: Duration, now: Instant) {
        let state = self.each.entry(id).or_insert(State {
            listed: false,
            validity: None,
            since: now,
            patience,
            decided: (false, None),
            rewound: None,
        });
        state.patience = patience;
    }

    /// Starts the wait for answers again, because this replica begins to act, by the takeover with this number. L7: before another
    /// takeover, another replica may have acted, and given locks away or lost them, so what was told under an earlier one is of no use. A
    /// watch may have told of this takeover before the caller learns of it.
    pub fn await_anew(&mut self, takeover: u64, now: Instant) {
        let again = std::mem::replace(&mut self.takeover, takeover) == takeover;
        for state in self.each.values_mut() {
            state.since = now;
            state.validity = state.validity.filter(|(_, validity)| !again || validity.lasts(now));
        }
    }

    /// Notes that a store's watch has listed its locks.
    pub fn list(&mut self, id: &StoreId) {
        if let Some(state) = self.each.get_mut(id) {
            state.listed = true;
        }
    }

    /// Notes that a store's watch has listed its locks, and that the store was put back to an earlier state.
    pub fn rewind(&mut self, id: &StoreId, now: Instant) {
        if let Some(state) = self.each.get_mut(id) {
            (state.listed, state.rewound) = (true, Some(now));
        }
    }

    /// Takes the moment until which the locks held in a store can be relied on, as its watch reports under a takeover.
    pub fn hold(&mut self, id: &StoreId, takeover: u64, validity: LockValidity, now: Instant) {
        if let Some(state) = self.each.get_mut(id) {
            // A new client or certificate takes nothing away: a validity that was certain until a moment remains so. Their first report may
            // name no takeover yet.
            let unknown = validity == LockValidity::Unknown;
            let remains =
                |&(of, known): &(u64, LockValidity)| takeover < of || takeover == of && unknown && known.lasts(now);
            state.validity = state.validity.filter(remains).or((!unknown).then_some((takeover, validity)));
        }
    }

    /// The stores whose elections must be decided again, because the knowledge of them has changed since the last call, or a lock validity
    /// has ended. The owner of the sessions reports that end, too, but perhaps too late.
    pub fn changed(&mut self, now: Instant) -> Vec<StoreId> {
        let mut changed = Vec::new();
        for (id, state) in &mut self.each {
            let known = (
                state.listed,
                state.validity(self.takeover).map(|validity| (validity.lasts(now), validity == LockValidity::Ended)),
            );
            if std::mem::replace(&mut state.decided, known) != known {
                changed.push(id.clone());
            }
        }
        changed
    }

    /// Whether the locks of all stores are known by the present takeover.
    pub fn are_listed(&self) -> bool {
        self.each.values().all(|state| state.listed && state.validity(self.takeover).is_some())
    }

    /// When a store was last seen to be put back to an earlier state.
    pub fn rewound(&self, id: &StoreId) -> Option<Instant> {
        self.each.get(id)?.rewound
    }

    /// When the next lock validity ends, unless it is renewed before.
    pub fn next_end(&self, now: Instant) -> Option<Instant> {
        let ends = self.each.values().filter_map(|state| match state.validity(self.takeover) {
            Some(LockValidity::Until(end)) if now < end => Some(end),
            _ => None,
        });
        ends.min()
    }

    /// The operator's knowledge of a store. A store that is not shared is known by its locks alone.
    pub fn knowledge(&self, id: &StoreId, now: Instant) -> Knowledge {
        if *id == StoreId::leases() || *id == StoreId::default() {
            return Knowledge::Full(LockValidity::Unlimited);
        }
        let Some(state) = self.each.get(id) else { return Knowledge::Nothing };
        match state.validity(self.takeover) {
            Some(validity) if state.listed => Knowledge::Full(validity),
            _ if now < state.since + state.patience => Knowledge::Awaited(state.since + state.patience),
            _ => Knowledge::Nothing,
        }
    }
}

impl State {
    /// What is known of the locks held there by a replica that acts by this takeover.
    fn validity(&self, takeover: u64) -> Option<LockValidity> {
        self.validity.filter(|(of, _)| *of == takeover).map(|(_, validity)| validity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn store() -> StoreId {
        StoreId("consul/a".into())
    }

    fn tells(stores: &mut SharedStores, validity: LockValidity) {
        stores.hold(&store(), stores.takeover, validity, at(0));
    }

    fn lists(stores: &mut SharedStores) {
        stores.list(&store());
    }

    #[test]
    fn the_end_of_a_validity_is_noticed_whoever_tells_of_it() {
        let mut stores = SharedStores::default();
        stores.add(store(), Duration::from_secs(5), at(0));
        lists(&mut stores);
        tells(&mut stores, LockValidity::Until(at(8)));
        assert_eq!(stores.changed(at(1)), [store()]);
        assert_eq!((stores.changed(at(7)), stores.next_end(at(7))), (vec![], Some(at(8))));
        assert_eq!((stores.changed(at(8)), stores.next_end(at(8))), (vec![store()], None));
        assert_eq!(stores.changed(at(9)), []);

        // Told late, or at that very moment, it is the same.
        tells(&mut stores, LockValidity::Until(at(18)));
        assert_eq!(stores.changed(at(10)), [store()]);
        tells(&mut stores, LockValidity::Lapsed);
        assert_eq!(stores.changed(at(18)), [store()]);
        tells(&mut stores, LockValidity::Until(at(30)));
        assert_eq!(stores.changed(at(20)), [store()]);
        tells(&mut stores, LockValidity::Until(at(33)));
        assert_eq!(stores.changed(at(31)), []);
    }

    /// Shows L7.
    #[test]
    fn what_was_known_before_another_replica_acted_counts_no_more() {
        let mut stores = SharedStores::default();
        stores.add(store(), Duration::from_secs(5), at(0));
        stores.await_anew(1, at(0));
        lists(&mut stores);
        tells(&mut stores, LockValidity::Until(at(24)));
        stores.await_anew(1, at(5));
        assert_eq!(stores.knowledge(&store(), at(5)), Knowledge::Full(LockValidity::Until(at(24))));
        stores.await_anew(2, at(6));
        assert_eq!(stores.knowledge(&store(), at(6)), Knowledge::Awaited(at(11)));
        // What was told under the earlier takeover comes late.
        stores.hold(&store(), 1, LockValidity::Until(at(30)), at(7));
        assert_eq!(stores.knowledge(&store(), at(7)), Knowledge::Awaited(at(11)));
        stores.hold(&store(), 2, LockValidity::Until(at(31)), at(8));
        assert_eq!(stores.knowledge(&store(), at(8)), Knowledge::Full(LockValidity::Until(at(31))));
        for late in [LockValidity::Unknown, LockValidity::Ended, LockValidity::Until(at(40))] {
            stores.hold(&store(), 1, late, at(9));
            assert_eq!(stores.knowledge(&store(), at(9)), Knowledge::Full(LockValidity::Until(at(31))), "{late:?}");
        }
    }

    /// Shows L7: the watch may learn of the takeover first.
    #[test]
    fn what_is_told_of_a_takeover_before_the_replica_acts_by_it_counts_once_it_does() {
        let mut stores = SharedStores::default();
        stores.add(store(), Duration::from_secs(5), at(0));
        stores.list(&store());
        stores.hold(&store(), 1, LockValidity::Until(at(24)), at(1));
        assert_eq!(stores.knowledge(&store(), at(6)), Knowledge::Nothing);
        stores.await_anew(1, at(6));
        assert_eq!(stores.knowledge(&store(), at(6)), Knowledge::Full(LockValidity::Until(at(24))));
    }

    /// Shows C3.
    #[test]
    fn who_begins_to_act_waits_as_long_as_the_store_allows() {
        let mut stores = SharedStores::default();
        for (patience, acts) in [(5, 10), (1, 20)] {
            stores.add(store(), Duration::from_secs(patience), at(0));
            stores.await_anew(acts, at(acts));
            let until = acts + patience;
            assert_eq!(stores.knowledge(&store(), at(until - 1)), Knowledge::Awaited(at(until)));
            assert_eq!(stores.knowledge(&store(), at(until)), Knowledge::Nothing);
        }
    }

    #[test]
    fn locks_that_are_listed_after_the_session_is_known_are_noticed() {
        let mut stores = SharedStores::default();
        stores.add(store(), Duration::from_secs(5), at(0));
        tells(&mut stores, LockValidity::Until(at(18)));
        assert_eq!(stores.changed(at(10)), [store()]);
        assert_eq!(stores.knowledge(&store(), at(10)), Knowledge::Nothing);
        lists(&mut stores);
        assert_eq!(stores.changed(at(10)), [store()]);
        assert_eq!(stores.knowledge(&store(), at(10)), Knowledge::Full(LockValidity::Until(at(18))));
    }
}
