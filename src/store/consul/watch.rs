//! The watch: one blocking query for all keys of a store, and what the sessions say.
//!
//! An answer brings everything below the prefix, so it is compared with the one before. Nothing is told before it is known which
//! sessions are this cluster's own: its locks would be taken for somebody else's.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::Stream;
use futures::channel::mpsc;
use tokio::time::Instant;

use super::content::{find, key};
use super::{ConsulStore, Sessions};
use crate::consul::{Entry, Error};
use crate::core::{Stored, Tenure, Version};
use crate::process::spawn;
use crate::store::StoreEvent;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(2);
/// Answers are not asked for faster than this: each brings all locks along.
const PACE: Duration = Duration::from_millis(50);
/// So many after a quiet time come at once, for a handover between clusters is some changes in a row.
const BURST: u32 = 8;
/// How long nothing must have changed for that.
const QUIET: Duration = Duration::from_secs(1);

/// Follows the store for as long as somebody listens.
pub(super) fn watch(store: ConsulStore) -> impl Stream<Item = StoreEvent> + Send + 'static {
    let (told, events) = mpsc::unbounded();
    spawn(Watch { store, told, index: 0, entries: Vec::new(), listed: false, broken: false, own: None }.run());
    events
}

struct Watch {
    store: ConsulStore,
    told: mpsc::UnboundedSender<StoreEvent>,
    /// Of the last answer.
    index: u64,
    entries: Vec<Entry>,
    listed: bool,
    /// Whether the last request failed. The next one waits for nothing, and all that it brings is told: that the watch works
    /// again, though nothing has changed.
    broken: bool,
    /// The sessions under which the locks were told.
    own: Option<Vec<String>>,
}

impl Watch {
    async fn run(mut self) {
        let mut sessions = self.store.sessions.clone();
        let mut retry = FIRST_RETRY;
        let (mut pause, mut burst) = (Duration::ZERO, BURST);
        let known = sessions.borrow_and_update().clone();
        self.take_sessions(&known).await;
        loop {
            let (store, index) = (self.store.parameters.clone(), if self.broken { 0 } else { self.index });
            let asked = Instant::now() + pause;
            let query = async move {
                tokio::time::sleep(pause).await;
                store.client.wait(&store.prefix, index, store.wait).await
            };
            let mut query = std::pin::pin!(query);
            let answer = loop {
                tokio::select! {
                    biased;
                    changed = sessions.changed() => {
                        let now = sessions.borrow_and_update().clone();
                        if changed.is_err() {
                            return;
                        }
                        self.take_sessions(&now).await;
                    }
                    answer = &mut query => break answer,
                }
            };
            if self.told.is_closed() {
                return;
            }
            match answer {
                Ok((index, entries)) => {
                    burst = if asked.elapsed() >= QUIET { BURST } else { burst.saturating_sub(1) };
                    (retry, pause) =
                        (FIRST_RETRY, if burst > 0 { Duration::ZERO } else { PACE.saturating_sub(asked.elapsed()) });
                    self.take(index, entries).await;
                }
                Err(error) => {
                    self.broken = true;
                    self.tell(StoreEvent::Broken(self.store.scope(), Error::into(error)));
                    (pause, retry) = (retry, (retry * 2).min(LONGEST_RETRY));
                }
            }
        }
    }

    fn tell(&self, event: StoreEvent) {
        let _ = self.told.unbounded_send(event);
    }

    async fn take(&mut self, index: u64, entries: Vec<Entry>) {
        let rewound = self.listed && self.is_rewound(index, &entries);
        // After a step back all is asked for again, and an index of 0 would never wait.
        self.index = if rewound { 0 } else { index.max(1) };
        let before = std::mem::replace(&mut self.entries, entries);
        let (broken, listed) = (std::mem::take(&mut self.broken), std::mem::replace(&mut self.listed, true));
        if rewound || broken || !listed {
            self.tell_all(rewound).await;
        } else if let Some(own) = self.own.clone() {
            self.tell_changes(&before, index, &own).await;
        }
    }

    /// Whether the store was put back to an earlier state. That the index falls does not prove it: it also falls when Consul forgets
    /// what was deleted, a quarter of an hour later. And a later change may have brought it back to where it was.
    fn is_rewound(&self, index: u64, entries: &[Entry]) -> bool {
        let earlier = |entry: &Entry| match find(&self.entries, &entry.key) {
            Some(before) => entry.modify_index < before.modify_index,
            // It was not there, and so must be of later.
            None => entry.modify_index <= self.index,
        };
        let missing = |before: &Entry| find(entries, &before.key).is_none();
        entries.iter().any(earlier) || (index < self.index && self.entries.iter().any(missing))
    }

    async fn tell_all(&mut self, rewound: bool) {
        let Some(own) = self.own.clone().filter(|_| self.listed) else { return };
        let mut all = Vec::new();
        for name in self.names() {
            let stored = self.store.stored(&self.entries, &name, &own).await;
            if let Some(version) = self.version(&name) {
                all.push((key(&self.store.parameters.id, &name), version, stored));
            }
        }
        let scope = self.store.scope();
        self.tell(if rewound {
            StoreEvent::Rewound(scope, all)
        } else {
            StoreEvent::All(scope, Version(self.index), all)
        });
    }

    async fn tell_changes(&mut self, before: &[Entry], index: u64, own: &[String]) {
        let layout = self.store.parameters.layout;
        let id = self.store.parameters.id.clone();
        let versions = |entries: &[Entry]| -> BTreeMap<String, u64> {
            entries.iter().map(|entry| (entry.key.clone(), entry.modify_index)).collect()
        };
        let (old, new) = (versions(before), versions(&self.entries));
        let differs = |name: &&String| old.get(*name) != new.get(*name);
        let mut changed: Vec<String> =
            old.keys().chain(new.keys()).filter(differs).map(|name| layout.lock_of(name).to_owned()).collect();
        changed.sort_unstable();
        changed.dedup();
        for name in changed {
            let before = find(before, &name).and_then(|entry| entry.session.clone());
            if before.is_some_and(|session| {
                own.contains(&session) && find(&self.entries, &name).is_none_or(|entry| entry.session.is_none())
            }) {
                // Let go of, or its session is gone.
                self.store.parameters.suspicion.notify_one();
            }
            let (version, stored) = match self.version(&name) {
                Some(version) => (version, self.store.stored(&self.entries, &name, own).await),
                None => (Version(index.max(old.get(&name).map_or(0, |old| old.saturating_add(1)))), Stored::Absent),
            };
            self.tell(StoreEvent::Changed(key(&id, &name), version, stored));
        }
    }

    /// The names of all locks.
    fn names(&self) -> Vec<String> {
        let layout = self.store.parameters.layout;
        let locks = self.entries.iter().filter(|entry| layout.lock_of(&entry.key) == entry.key);
        locks.map(|entry| entry.key.clone()).collect()
    }

    fn version(&self, name: &str) -> Option<Version> {
        find(&self.entries, name).map(|entry| Version(entry.modify_index))
    }

    async fn take_sessions(&mut self, sessions: &Sessions) {
        let tenure = sessions.tenure;
        let own: Vec<String> = sessions.ids.iter().flatten().cloned().collect();
        if tenure == Tenure::Unknown {
            // Not looked up yet, or another replica keeps them: what it locks would be taken for somebody else's.
            self.own = None;
        } else if self.own.as_ref() != Some(&own) {
            // What is held by a session that was not known as this cluster's own, looks different from now on.
            let is_new = |id: &String| self.own.as_ref().is_some_and(|known| !known.contains(id)) && own.contains(id);
            let held = self.entries.iter().any(|entry| entry.session.as_ref().is_some_and(is_new));
            let first = self.own.is_none();
            self.own = Some(own);
            if first || held {
                self.tell_all(held).await;
            }
        }
        self.tell(StoreEvent::Tenure(self.store.parameters.id.clone(), tenure));
    }
}
