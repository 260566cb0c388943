//! The locks as the stores' watches have shown them, by the election that wrote each and by the holder that each names.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::small_set::SmallSet;
use crate::{Key, PlacedBid, StoreId, Stored, Uid, Version};

/// All locks, of all stores. An older observation never replaces a newer one.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    records: HashMap<Key, (Version, Arc<Stored>)>,
    /// The locks that each election wrote.
    written: HashMap<Uid, SmallSet<Key>>,
    /// The bids that answer offers of locks.
    bids: BTreeMap<Key, Vec<PlacedBid>>,
    /// The locks of this cluster that name each holder.
    naming: HashMap<Uid, SmallSet<Key>>,
}

impl Locks {
    /// The content of a key, as last seen.
    pub fn get(&self, key: &Key) -> Option<&(Version, Arc<Stored>)> {
        self.records.get(key)
    }

    /// The locks that were written for an election, wherever they are.
    pub fn of(&self, election: &Uid) -> impl Iterator<Item = (&Key, &Stored)> {
        let keys = self.written.get(election).into_iter().flat_map(SmallSet::keys);
        keys.filter_map(|key| self.records.get(key).map(|(_, stored)| (key, &**stored)))
    }

    /// The locks whose records, of this cluster, name a holder by its uid.
    pub fn naming(&self, holder: &Uid) -> impl Iterator<Item = &Key> {
        self.naming.get(holder).into_iter().flat_map(SmallSet::keys)
    }

    /// Takes the content of a key, as of a version. Returns the former content, unless that is as new.
    pub fn put(&mut self, key: &Key, version: Version, stored: &Arc<Stored>) -> Option<Arc<Stored>> {
        if self.records.get(key).is_some_and(|(known, _)| *known >= version) {
            return None;
        }
        let before = if **stored == Stored::Absent {
            self.records.remove(key)
        } else {
            self.records.insert(key.clone(), (version, stored.clone()))
        };
        let before = before.map_or_else(|| Arc::new(Stored::Absent), |(_, before)| before);
        self.disown(key, &before);
        if let Some(record) = stored.written() {
            self.written.entry(record.election.clone()).or_default().insert(key.clone(), ());
            if let Some(holder) = &record.holder {
                self.naming.entry(holder.uid.clone()).or_default().insert(key.clone(), ());
            }
        }
        Some(before)
    }

    /// The bids that answer an offer of a lock, as last seen.
    pub fn bids(&self, key: &Key) -> &[PlacedBid] {
        self.bids.get(key).map_or(&[], Vec::as_slice)
    }

    /// Forgets the bids inside a scope, because all of them are about to be reported.
    pub fn forget_bids(&mut self, inside: impl Fn(&Key) -> bool) {
        self.bids.retain(|key, _| !inside(key));
    }

    /// Takes all bids that answer an offer of a lock.
    pub fn put_bids(&mut self, key: &Key, bids: Vec<PlacedBid>) {
        if bids.is_empty() {
            self.bids.remove(key);
        } else {
            self.bids.insert(key.clone(), bids);
        }
    }

    /// The locks whose keys are inside a scope, in the order of the keys, and the versions at which they were seen.
    pub fn within(&self, inside: impl Fn(&Key) -> bool) -> Vec<(Key, Version)> {
        let found = self.records.iter().filter(|(key, _)| inside(key));
        let mut found: Vec<_> = found.map(|(key, (version, _))| (key.clone(), *version)).collect();
        found.sort();
        found
    }

    /// Whether this cluster holds any lock in a store.
    pub fn holds_any(&self, store: &StoreId) -> bool {
        self.records.iter().any(|(key, (_, stored))| key.store == *store && stored.record().is_some())
    }

    /// Forgets the locks inside a scope, because their versions begin again.
    pub fn forget(&mut self, inside: impl Fn(&Key) -> bool) {
        for (key, _) in self.within(inside) {
            if let Some((_, stored)) = self.records.remove(&key) {
                self.disown(&key, &stored);
            }
        }
    }

    fn disown(&mut self, key: &Key, stored: &Stored) {
        let Some(record) = stored.written() else { return };
        take_out(&mut self.written, &record.election, key);
        if let Some(holder) = &record.holder {
            take_out(&mut self.naming, &holder.uid, key);
        }
    }
}

fn take_out(keys: &mut HashMap<Uid, SmallSet<Key>>, uid: &Uid, key: &Key) {
    if let Some(of_it) = keys.get_mut(uid) {
        of_it.remove(key);
        if of_it.is_empty() {
            keys.remove(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Holder, Record, Scope, Term, Timestamp};

    fn stored(election: &str, version: u64) -> Arc<Stored> {
        let record = Record {
            leaving: Vec::new(),
            term: Term(1),
            term_by_version: false,
            holder: Some(Holder { pod: None, uid: Uid(format!("of {election}")), node: None, ip: None }),
            operator_id: "lictor#a".into(),
            since: Timestamp(0),
            election: Uid(election.into()),
            election_name: "web".into(),
            generation: 1,
            scope: Scope::default(),
            former: vec![],
            drain_obligation: None,
            switchover: None,
            offer: None,
        };
        Stored::Ours(Version(version), record).into()
    }

    #[test]
    fn a_lock_belongs_to_whoever_wrote_it_last() {
        let (key, mut locks) = (Key::lease("shop", "web"), Locks::default());
        let owned = |locks: &Locks, uid: &str| locks.of(&Uid(uid.into())).count();
        assert_eq!(locks.put(&key, Version(3), &stored("a", 3)), Some(Stored::Absent.into()));
        assert_eq!(locks.put(&key, Version(3), &stored("b", 3)), None, "it is no newer");
        assert_eq!((owned(&locks, "a"), owned(&locks, "b")), (1, 0));
        let named = |locks: &Locks, uid: &str| locks.naming(&Uid(uid.into())).count();
        assert_eq!((named(&locks, "of a"), named(&locks, "of b")), (1, 0));
        assert_eq!(locks.put(&key, Version(4), &stored("b", 4)), Some(stored("a", 3)));
        assert_eq!((owned(&locks, "a"), owned(&locks, "b")), (0, 1));
        assert_eq!((named(&locks, "of a"), named(&locks, "of b")), (0, 1));
        locks.forget(|key| key.store != StoreId::leases());
        assert_eq!(owned(&locks, "b"), 1);
        locks.forget(|key| key.store == StoreId::leases());
        assert!(locks.written.is_empty() && locks.naming.is_empty() && locks.get(&key).is_none());
        assert!(locks.put(&key, Version(1), &stored("a", 1)).is_some(), "its versions begin anew");
        assert!(locks.put(&key, Version(2), &Stored::Absent.into()).is_some() && locks.written.is_empty());
    }
}
