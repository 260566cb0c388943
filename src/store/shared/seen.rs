//! The last observation of each lock's key. A write by a person hides whose key it is, and a lost right hides the key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lictor_locks::{Entry, Layout, find};

use super::content::Known;

/// The keys of the locks, by their names. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Arc<Mutex<BTreeMap<String, Sight>>>);

/// A lock's key.
#[derive(Clone, Debug, Default)]
struct Sight {
    /// The session that held the key.
    session: Option<String>,
    known: Option<Known>,
}

impl Seen {
    /// Takes the locks that have changed in a listing. `own`: the sessions of this cluster. `rewound`: whether indexes began again, so that
    /// earlier observations say nothing.
    pub(super) fn take<'a>(
        &self,
        layout: Layout,
        entries: &[Entry],
        changed: impl Iterator<Item = &'a String>,
        own: &[String],
        rewound: bool,
    ) {
        let mut sights = self.sights();
        if rewound {
            sights.clear();
        }
        for name in changed {
            let Some(entry) = find(entries, name) else {
                // The key of a held lock may only be hidden.
                let held = |sight: &Sight| sight.session.as_ref().is_some_and(|session| own.contains(session));
                if !sights.get(name).is_some_and(held) {
                    sights.remove(name);
                }
                continue;
            };
            let beside = layout.beside(name).and_then(|beside| find(entries, &beside));
            let sight = sights.entry(name.clone()).or_default();
            if let Some(content) = layout.content(entry, beside).filter(|_| entry.is_lock) {
                let (created, session) = (entry.created, entry.session.clone());
                sight.known = Some(Known { created, session, obligation: content.record.drain_obligation });
            } else {
                let another = entry.session.is_some() && entry.session != sight.session;
                sight.known.take_if(|known| another || known.created != entry.created);
                if sight.known.is_some() && entry.session.is_none() {
                    tracing::warn!(
                        key = name,
                        "another program wrote to this key, which was a lock and has no holder now: it counts as a \
                         free lock"
                    );
                }
            }
            sight.session.clone_from(&entry.session);
        }
    }

    /// C16: returns the knowledge of a key that may have been written to since.
    pub(super) fn known(&self, entry: &Entry) -> Option<Known> {
        self.sights().get(&entry.key)?.known.clone().filter(|known| known.created == entry.created)
    }

    /// C15: returns the session that held a key when it was last visible.
    pub(super) fn holder(&self, name: &str) -> Option<String> {
        self.sights().get(name)?.session.clone()
    }

    fn sights(&self) -> MutexGuard<'_, BTreeMap<String, Sight>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use lictor_core::Version;
    use serde_json::json;

    use super::*;

    fn entry(value: &str, is_lock: bool, session: Option<&str>, created: u64) -> Entry {
        let (key, session) = ("p/web".to_owned(), session.map(str::to_owned));
        Entry { key, value: value.into(), is_lock, session, created, version: Version(created + 1) }
    }

    fn record(session: Option<&str>) -> Entry {
        let content = json!({
            "cluster": "west", "namespace": "shop", "name": "web", "term": 5, "election": "e", "generation": 1, "since": 5, "operatorId": "op",
            "scope": {"selector": {}, "leader": {}, "follower": {}},
            "drainObligation": {"windDownSeconds": 30, "ended": true},
        });
        entry(&content.to_string(), true, session, 7)
    }

    /// What is known in the end of the last of these states of a key.
    fn known_after(states: &[Option<Entry>]) -> Option<Known> {
        let seen = Seen::default();
        for state in states {
            let entries: Vec<Entry> = state.iter().cloned().collect();
            seen.take(Layout::Record, &entries, ["p/web".to_owned()].iter(), &["own".into()], false);
        }
        seen.known(states.last().unwrap().as_ref().unwrap())
    }

    /// C16.
    #[test]
    fn a_key_that_a_person_wrote_to_is_a_free_lock_and_one_that_was_made_anew_is_not() {
        let edited = || Some(entry("mine", false, None, 7));
        let known = known_after(&[Some(record(Some("far"))), edited()]).unwrap();
        let obligation = known.obligation().unwrap();
        assert_eq!(
            (obligation.wind_down_seconds, obligation.ended),
            (30, false),
            "what it has done since is not known"
        );
        let held = known_after(&[Some(record(Some("far"))), Some(entry("mine", false, Some("far"), 7))]).unwrap();
        assert!(held.obligation_of("far").is_some() && held.obligation_of("other").is_none());
        for others in [
            vec![edited()],
            vec![Some(record(Some("far"))), Some(entry("mine", false, None, 9))],
            vec![Some(record(Some("far"))), None, Some(entry("mine", false, None, 9))],
            vec![Some(record(Some("own"))), None, Some(entry("mine", false, None, 9))],
            vec![Some(record(Some("far"))), Some(entry("mine", false, Some("other"), 7)), edited()],
        ] {
            assert_eq!(known_after(&others), None, "{others:?}");
        }
    }

    /// C15.
    #[test]
    fn who_holds_a_key_is_remembered_when_it_is_hidden_if_that_is_this_cluster() {
        for (session, held) in [("own", Some("own")), ("far", None)] {
            let seen = Seen::default();
            for entries in [vec![record(Some(session))], vec![]] {
                seen.take(Layout::Record, &entries, ["p/web".to_owned()].iter(), &["own".into()], false);
            }
            assert_eq!(seen.holder("p/web").as_deref(), held);
        }
        let seen = Seen::default();
        seen.take(Layout::Record, &[record(Some("own"))], ["p/web".to_owned()].iter(), &[], false);
        seen.take(Layout::Record, &[], std::iter::empty(), &[], true);
        assert_eq!(seen.holder("p/web"), None, "indexes began again");
    }
}
