//! What a process knows of the keys in a store of objects.

use std::collections::{BTreeMap, BTreeSet};

use lictor_core::{LockSession, Version};
use lictor_objects::{Object, Tag};

use super::content::{KeyObject, name_of};
use crate::Entry;

/// The keys, as last read or written.
#[derive(Debug, Default)]
pub(super) struct View {
    /// A number that rises with each change, and is higher than all versions of keys.
    index: u64,
    /// The index of the last time that the store was seen to be put back to an earlier state.
    rewound: u64,
    /// The number of this process's reads and writes.
    now: u64,
    keys: BTreeMap<String, Sight>,
}

/// A key's object.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    pub(super) tag: Tag,
    /// The content, or what somebody else has written there.
    pub(super) content: Result<KeyObject, Vec<u8>>,
    /// Whether the session that holds the key has ended. It never comes back.
    over: bool,
    /// The version that is told. It is twice the object's own, and one more once its session has ended, because that changes no object.
    version: u64,
    /// When this was taken, by [`View::now`].
    pub(super) taken: u64,
}

impl Sight {
    /// Returns the session that holds the key.
    pub(super) fn holder(&self) -> Option<&LockSession> {
        self.content.as_ref().ok()?.session.as_ref().filter(|_| !self.over)
    }

    pub(super) fn version(&self) -> Version {
        Version(self.version)
    }

    /// Whether the key was deleted.
    pub(super) fn is_deleted(&self) -> bool {
        self.content.as_ref().is_ok_and(|object| object.value.is_none())
    }

    fn entry(&self, key: &str) -> Option<Entry> {
        let (value, created, is_lock) = match &self.content {
            Ok(object) => (serde_json::to_vec(object.value.as_ref()?).ok()?, object.created, true),
            Err(other) => (other.clone(), 0, false),
        };
        let session = self.holder().map(name_of);
        Some(Entry { key: key.to_owned(), value, is_lock, session, created, version: self.version() })
    }
}

impl View {
    pub(super) fn index(&self) -> u64 {
        self.index
    }

    /// Returns whether the store was seen to be put back after one index and up to another.
    pub(super) fn is_rewound(&self, after: u64, until: u64) -> bool {
        self.rewound > after && self.rewound <= until
    }

    /// Returns the moment to compare with before a request is sent.
    pub(super) fn begin(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    pub(super) fn get(&self, key: &str) -> Option<&Sight> {
        self.keys.get(key)
    }

    pub(super) fn tags(&self) -> BTreeMap<String, Tag> {
        self.keys.iter().map(|(key, sight)| (key.clone(), sight.tag.clone())).collect()
    }

    /// Returns the sessions that hold keys.
    pub(super) fn holders(&self) -> BTreeSet<LockSession> {
        self.keys.values().filter_map(Sight::holder).cloned().collect()
    }

    /// B5: returns the version of the next write: higher than every version and index that this process has told.
    pub(super) fn next_version(&self) -> u64 {
        self.index / 2 + 1
    }

    pub(super) fn entry(&self, key: &str) -> Option<Entry> {
        self.keys.get(key)?.entry(key)
    }

    /// Returns the keys that exist, in order.
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.keys.iter().filter_map(|(key, sight)| sight.entry(key)).collect()
    }

    /// Takes the object of a key from the answer to a request that began at this moment. An answer that is older than what is known is
    /// left out.
    pub(super) fn take(&mut self, key: &str, object: &Object, over: bool, began: u64) {
        let content = KeyObject::read(&object.content).ok_or_else(|| object.content.clone());
        let own = |content: &Result<KeyObject, Vec<u8>>| content.as_ref().ok().map(|object| object.version);
        let before = self.keys.get(key);
        if before.is_some_and(|before| {
            before.tag == object.tag || (before.taken > began && own(&content) <= own(&before.content))
        }) {
            return;
        }
        self.now += 1;
        if before.is_some_and(|before| before.content == content) {
            // Somebody wrote the same again.
            if let Some(sight) = self.keys.get_mut(key) {
                (sight.tag, sight.taken) = (object.tag.clone(), self.now);
            }
            return;
        }
        let plain = own(&content).map(|version| version.saturating_mul(2).saturating_add(u64::from(over)));
        let lower = before.and_then(|before| own(&before.content)).zip(own(&content)).is_some_and(|(a, b)| b < a);
        let version = match (plain, before) {
            (Some(plain), _) if lower => plain,
            // A person has edited the object and kept its version.
            (Some(plain), Some(before)) => plain.max(before.version + 1),
            (Some(plain), None) => plain,
            (None, before) => before.map_or(self.index + 1, |before| before.version + 1),
        };
        let sight = Sight { tag: object.tag.clone(), content, over, version, taken: self.now };
        self.keys.insert(key.to_owned(), sight);
        self.changed(version);
        if lower {
            self.rewound = self.index;
        }
    }

    /// Forgets the keys that a listing, which began at this moment, does not have.
    pub(super) fn retain(&mut self, listed: &BTreeSet<String>, began: u64) {
        let before = self.keys.len();
        self.keys.retain(|key, sight| listed.contains(key) || sight.taken > began);
        if self.keys.len() != before {
            self.changed(0);
        }
    }

    /// Notes which of the sessions that hold keys have ended.
    pub(super) fn end(&mut self, over: impl Fn(&str, &Sight, &LockSession) -> bool) {
        let mut highest = None;
        for (key, sight) in &mut self.keys {
            if sight.holder().is_some_and(|holder| over(key, sight, holder)) {
                (sight.over, sight.version) = (true, sight.version + 1);
                highest = highest.max(Some(sight.version));
            }
        }
        if let Some(version) = highest {
            self.changed(version);
        }
    }

    /// Notes a change, which has led to this version.
    fn changed(&mut self, version: u64) {
        self.index = (self.index + 1).max(version + 1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lock(version: u64, value: u64) -> Vec<u8> {
        let session = Some(LockSession { cluster: "west".into(), id: "w.0".into() });
        KeyObject { version, created: 1, session, value: Some(json!(value)) }.to_bytes()
    }

    fn object(tag: &str, content: Vec<u8>) -> Object {
        Object { tag: Tag(tag.into()), content }
    }

    /// A view of the key `a` in these states, one after the other.
    fn view(states: &[(&str, Vec<u8>)]) -> View {
        let mut view = View::default();
        for (tag, content) in states {
            let began = view.begin();
            view.take("a", &object(tag, content.clone()), false, began);
        }
        view
    }

    fn version(view: &View) -> u64 {
        view.entry("a").expect("it is there").version.0
    }

    #[test]
    fn versions_rise_whatever_a_person_writes() {
        for (states, told) in [
            (vec![("1", lock(5, 0))], 10),
            (vec![("1", lock(5, 0)), ("2", lock(6, 0))], 12),
            (vec![("1", lock(5, 0)), ("2", lock(5, 1))], 11),
            // Somebody wrote the same again.
            (vec![("1", lock(5, 0)), ("2", lock(5, 0))], 10),
            (vec![("1", lock(5, 0)), ("2", b"mine".to_vec())], 11),
            (vec![("1", lock(5, 0)), ("2", b"mine".to_vec()), ("3", lock(5, 0))], 12),
            (vec![("1", b"mine".to_vec())], 1),
            (vec![("1", lock(5, 0)), ("2", lock(u64::MAX, 0))], 11),
        ] {
            let view = view(&states);
            assert_eq!(version(&view), told, "{states:?}");
            assert!(view.index() > told && view.next_version() * 2 > told, "{states:?}");
        }
    }

    #[test]
    fn a_store_that_was_put_back_is_noticed() {
        let mut view = view(&[("1", lock(5, 0))]);
        let before = view.index();
        let began = view.begin();
        view.take("a", &object("2", lock(3, 0)), false, began);
        assert_eq!(version(&view), 6);
        assert!(view.is_rewound(before, view.index()) && !view.is_rewound(view.index(), view.index() + 1));
        assert!(view.next_version() > 5, "versions rise over it");
    }

    #[test]
    fn an_answer_that_comes_after_a_later_one_is_left_out() {
        let mut view = View::default();
        let (early, late) = (view.begin(), view.begin());
        view.take("a", &object("2", lock(6, 0)), false, late);
        view.take("a", &object("1", lock(5, 0)), false, early);
        assert_eq!(version(&view), 12);
        view.retain(&BTreeSet::new(), late);
        assert!(view.entry("a").is_some(), "it was written after the listing began");
        let began = view.begin();
        view.retain(&BTreeSet::new(), began);
        assert!(view.entry("a").is_none());
    }
}
