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
    taken: u64,
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

    pub(super) fn sessions(&self) -> impl Iterator<Item = &LockSession> {
        self.keys.values().filter_map(|sight| sight.content.as_ref().ok()?.session.as_ref())
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
        let content: Result<KeyObject, _> = serde_json::from_slice(&object.content).map_err(|_| object.content.clone());
        let own = |content: &Result<KeyObject, Vec<u8>>| content.as_ref().ok().map(|object| object.version);
        // Written anew as it was: C15.
        if let Some(before) = self.keys.get_mut(key).filter(|before| before.content == content) {
            before.tag = object.tag.clone();
            return;
        }
        let before = self.keys.get(key);
        if before.is_some_and(|before| {
            before.tag == object.tag || (before.taken > began && own(&content) <= own(&before.content))
        }) {
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
        self.now += 1;
        let sight = Sight { tag: object.tag.clone(), content, over, version, taken: self.now };
        self.keys.insert(key.to_owned(), sight);
        self.changed();
        if lower {
            self.rewound = self.index;
        }
    }

    /// Forgets the keys that a listing, which began at this moment, does not have.
    pub(super) fn retain(&mut self, listed: &BTreeSet<String>, began: u64) {
        let before = self.keys.len();
        self.keys.retain(|key, sight| listed.contains(key) || sight.taken > began);
        if self.keys.len() != before {
            self.changed();
        }
    }

    /// Notes which of the sessions that hold keys have ended.
    pub(super) fn end(&mut self, over: impl Fn(&LockSession) -> bool) {
        let mut changed = false;
        for sight in self.keys.values_mut().filter(|sight| !sight.over) {
            if sight.content.as_ref().ok().and_then(|object| object.session.as_ref()).is_some_and(&over) {
                (sight.over, sight.version) = (true, sight.version + 1);
                changed = true;
            }
        }
        if changed {
            self.changed();
        }
    }

    fn changed(&mut self) {
        let highest = self.keys.values().map(|sight| sight.version).max().unwrap_or_default();
        self.index = (self.index + 1).max(highest + 1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(tag: &str, version: u64, value: &str) -> Object {
        let session = Some(LockSession { cluster: "west".into(), id: "w.0".into() });
        let content = KeyObject { version, created: 1, session, value: Some(json!(value)) }.to_bytes();
        Object { tag: Tag(tag.into()), content }
    }

    fn told(view: &View) -> (u64, bool) {
        let entry = view.entry("a").unwrap();
        (entry.version.0, entry.session.is_some())
    }

    #[test]
    fn versions_rise_with_each_write_and_with_the_end_of_a_session_and_stay_below_the_index() {
        let mut view = View::default();
        let began = view.begin();
        view.take("a", &object("1", 1, "x"), false, began);
        assert_eq!(told(&view), (2, true));
        view.end(|session| session.id == "w.0");
        assert_eq!(told(&view), (3, false));
        assert!(view.index() > 3 && 2 * view.next_version() > view.index());
        let (began, version) = (view.begin(), view.next_version());
        view.take("a", &object("2", version, "x"), false, began);
        assert_eq!(told(&view), (2 * version, true));
    }

    #[test]
    fn an_answer_that_is_older_than_what_is_known_changes_nothing() {
        let mut view = View::default();
        let (poll, write) = (view.begin(), view.begin());
        view.take("a", &object("2", 2, "y"), false, write);
        view.take("a", &object("1", 1, "x"), false, poll);
        view.retain(&BTreeSet::new(), poll);
        assert_eq!(told(&view), (4, true), "the look began before the write");
        let later = view.begin();
        view.retain(&BTreeSet::new(), later);
        assert_eq!(view.entry("a"), None);
    }

    #[test]
    fn an_edit_has_another_version_and_the_same_content_has_not() {
        let mut view = View::default();
        view.take("a", &object("1", 1, "x"), false, 0);
        view.take("a", &object("2", 1, "x"), false, 9);
        assert_eq!((told(&view), view.get("a").unwrap().tag.0.as_str()), ((2, true), "2"));
        view.take("a", &object("3", 1, "mine"), false, 9);
        assert_eq!(told(&view), (3, true));
        let foreign = Object { tag: Tag("4".into()), content: b"mine".to_vec() };
        view.take("a", &foreign, false, 9);
        assert_eq!(view.entry("a").map(|entry| (entry.version.0, entry.is_lock)), Some((4, false)));
        assert!(!view.is_rewound(0, u64::MAX));
    }

    #[test]
    fn a_version_that_falls_shows_that_the_store_was_put_back() {
        let mut view = View::default();
        view.take("a", &object("9", 9, "y"), false, 0);
        let before = view.index();
        view.take("a", &object("8", 8, "x"), false, 9);
        assert_eq!(told(&view), (16, true));
        assert!(view.is_rewound(before, view.index()) && !view.is_rewound(view.index(), u64::MAX));
    }
}
