//! The watch: one request for all keys of a store, which waits for a change, and the state of the sessions.
//!
//! An answer has everything below the prefix, so the watch compares it with the one before. It reports nothing before it knows which
//! sessions are this cluster's own, because it would take their locks for another cluster's.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::channel::mpsc;
use lictor_core::{LockValidity, PlacedBid, Rival, Stored, Version};
use lictor_locks::Sessions;
use lictor_locks::{Entry, find};
use lictor_process::spawn;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::content::{bids, key, remarks};
use super::store::SharedStore;
use crate::store::{Elsewhere, Remark, StoreEvent};

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(2);
/// The shortest time between two queries, because each answer has all locks.
const PACE: Duration = Duration::from_millis(50);
/// The number of queries without a pause after a quiet time, because a handover between clusters consists of several changes in a row.
const BURST: u32 = 8;
/// How long nothing must have changed for a quiet time.
const QUIET: Duration = Duration::from_secs(1);

/// Follows the store for as long as a receiver listens.
pub(super) fn watch(store: SharedStore) -> impl Stream<Item = StoreEvent> + Send + 'static {
    let (told, events) = mpsc::unbounded();
    let sessions = store.sessions.clone();
    let (listed, broken, rewound, unheard) = (false, false, false, true);
    let (entries, elsewhere) = (Vec::new(), BTreeMap::new());
    let (own, reported) = (None, None);
    let (bids, remarks) = (BTreeMap::new(), BTreeMap::new());
    let watch = Watch {
        store,
        told,
        sessions,
        unheard,
        index: 0,
        entries,
        elsewhere,
        bids,
        remarks,
        listed,
        broken,
        rewound,
        takeover: 0,
        own,
        reported,
    };
    spawn(watch.run());
    events
}

#[allow(clippy::struct_excessive_bools, reason = "each is about something else")]
struct Watch {
    store: SharedStore,
    told: mpsc::UnboundedSender<StoreEvent>,
    sessions: tokio::sync::watch::Receiver<Sessions>,
    /// Whether the state of the sessions has to be read.
    unheard: bool,
    /// The index of the last answer.
    index: u64,
    entries: Vec<Entry>,
    /// The locks that other clusters hold, by the names of their keys.
    elsewhere: BTreeMap<String, Rival>,
    /// The bids, by the names of the locks' keys.
    bids: BTreeMap<String, Vec<PlacedBid>>,
    /// Other clusters' remarks, by the same names.
    remarks: BTreeMap<String, Vec<Remark>>,
    listed: bool,
    /// Whether the last request failed. The next one then does not wait for a change, and reports everything, so that the
    /// receiver learns that the watch works again.
    broken: bool,
    /// Whether the last answer came from a store that was put back. The next request then does not wait for a change.
    rewound: bool,
    /// L7: the takeover by which the sessions were kept when the locks were reported.
    takeover: u64,
    /// The sessions that were this cluster's own when the locks were reported.
    own: Option<Vec<String>>,
    /// The sessions that were this cluster's own when the locks were last reported, even while that is not known.
    reported: Option<Vec<String>>,
}

impl Watch {
    async fn run(mut self) {
        let mut retry = FIRST_RETRY;
        let (mut pause, mut burst) = (Duration::ZERO, BURST);
        loop {
            self.take_sessions().await;
            let (keys, index) = (self.store.keys.clone(), if self.broken || self.rewound { 0 } else { self.index });
            let asked = Instant::now() + pause;
            let (renewed, broken) = (Arc::new(Notify::new()), self.broken);
            let answers_again = renewed.clone();
            let query = async move {
                tokio::select! {
                    biased;
                    () = answers_again.notified(), if broken => {}
                    () = tokio::time::sleep(pause) => {}
                }
                keys.wait(index).await
            };
            let mut query = pin!(query);
            let answer = loop {
                tokio::select! {
                    biased;
                    changed = self.sessions.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        self.unheard = true;
                        // A session was renewed, so the store answers again. If the watch paused on, and a person destroyed the session
                        // meanwhile, this cluster would demote its leader too late.
                        if self.sessions.borrow().failure.is_none() {
                            renewed.notify_one();
                        }
                        self.take_sessions().await;
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
                Err(failure) => {
                    self.broken = true;
                    self.tell(StoreEvent::Broken(self.store.scope(), failure));
                    (pause, retry) = (retry, (retry * 2).min(LONGEST_RETRY));
                }
            }
        }
    }

    fn tell(&self, event: StoreEvent) {
        let _ = self.told.unbounded_send(event);
    }

    async fn take(&mut self, index: u64, entries: Vec<Entry>) {
        let rewound = self.listed && self.store.keys.is_rewound((self.index, &self.entries), (index, &entries));
        // After a step back, everything is read again. An index of 0 would never wait.
        (self.index, self.rewound) = (index.max(1), rewound);
        let before = std::mem::replace(&mut self.entries, entries);
        let changed = self.changed(&before);
        let (layout, own) = (self.store.parameters.layout, self.store.own());
        let visible = if rewound { self.names() } else { vec![] };
        self.store.seen.take(layout, &self.entries, changed.iter().chain(&visible), &own, rewound);
        self.tell_elsewhere(&changed);
        let (broken, listed) = (std::mem::take(&mut self.broken), std::mem::replace(&mut self.listed, true));
        if rewound || broken || !listed {
            self.tell_all(rewound).await;
        } else if let Some(own) = self.own.clone() {
            self.tell_changes(&before, changed, index, &own).await;
        }
        self.tell_bids();
    }

    /// C12: reports the bids that have changed, and the remarks.
    fn tell_bids(&mut self) {
        let (bids, remarks) = (bids(&self.entries), remarks(&self.entries));
        for (name, bids) in changes(&self.bids, &bids) {
            self.tell(StoreEvent::Bids(key(&self.store.parameters.id, &name), bids));
        }
        for (name, remarks) in changes(&self.remarks, &remarks) {
            self.tell(StoreEvent::Remarks(key(&self.store.parameters.id, &name), remarks));
        }
        (self.bids, self.remarks) = (bids, remarks);
    }

    async fn tell_all(&mut self, rewound: bool) {
        let Some(own) = self.own.clone().filter(|_| self.listed) else { return };
        let names = self.names();
        self.learn(&names, &own).await;
        let mut all = Vec::new();
        for name in names {
            let stored = self.store.shown(&self.entries, &name, &own);
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
        self.bids.clear();
        self.remarks.clear();
        self.tell_bids();
    }

    async fn tell_changes(&mut self, before: &[Entry], changed: Vec<String>, index: u64, own: &[String]) {
        for name in &changed {
            let before = find(before, name).and_then(|entry| entry.session.clone());
            if before.is_some_and(|session| {
                own.contains(&session) && find(&self.entries, name).is_none_or(|entry| entry.session.is_none())
            }) {
                // The lock was released, or its session is gone.
                self.store.parameters.suspicion.notify_one();
            }
        }
        // Questions about unknown holders must not delay known locks.
        let (strange, known): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|name| self.store.stranger(&self.entries, name, own).is_some());
        let tell = |this: &Self, names: &[String]| {
            for name in names {
                let (version, stored) = if let Some(version) = this.version(name) {
                    (version, this.store.shown(&this.entries, name, own))
                } else {
                    let old = find(before, name).map_or(0, |old| old.version.0.saturating_add(1));
                    (Version(index.max(old)), Stored::Absent)
                };
                this.tell(StoreEvent::Changed(key(&this.store.parameters.id, name), version, stored));
            }
        };
        tell(self, &known);
        self.learn(&strange, own).await;
        tell(self, &strange);
    }

    /// Returns the names of the locks that have changed, in order.
    fn changed(&self, before: &[Entry]) -> Vec<String> {
        let layout = self.store.parameters.layout;
        let differs = |entry: &&Entry, others: &[Entry]| {
            find(others, &entry.key).is_none_or(|other| other.version != entry.version)
        };
        let gone = before.iter().filter(|entry| differs(entry, &self.entries));
        let new = self.entries.iter().filter(|entry| differs(entry, before));
        let names = gone.chain(new).map(|entry| layout.lock_of(&entry.key)).filter(|name| layout.is_lock(name));
        names.map(str::to_owned).collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// C10: reports which locks other clusters hold, by their own records. This needs no knowledge of the sessions.
    fn tell_elsewhere(&mut self, changed: &[String]) {
        for name in changed {
            let (held, vanished) = match self.store.shown(&self.entries, name, &[]) {
                Stored::HeldByOther(_, rival) => (Some(rival), false),
                Stored::Absent | Stored::Foreign(_) => (None, true),
                Stored::Ours(..) | Stored::Free(..) | Stored::Damaged(..) => (None, false),
            };
            let rival = held.filter(|rival| rival.cluster.is_some() && !self.store.wrote(&self.entries, name));
            if self.elsewhere.get(name) == rival.as_ref() {
                continue;
            }
            let lock = key(&self.store.parameters.id, name);
            let now = if let Some(rival) = rival {
                self.elsewhere.insert(name.clone(), rival.clone());
                Elsewhere::Held(rival)
            } else {
                self.elsewhere.remove(name);
                if vanished { Elsewhere::Vanished } else { Elsewhere::LetGo }
            };
            self.tell(StoreEvent::Elsewhere(lock, now));
        }
    }

    /// Asks who holds these locks. This may take long, so the watch meanwhile reports renewals, and their absence.
    async fn learn(&mut self, names: &[String], own: &[String]) {
        let strangers = names.iter().filter_map(|name| self.store.stranger(&self.entries, name, own));
        let (store, strangers): (_, BTreeSet<String>) = (self.store.clone(), strangers.collect());
        let mut learning = pin!(async move { store.learn(strangers).await });
        loop {
            tokio::select! {
                biased;
                () = &mut learning => return,
                changed = self.sessions.changed() => {
                    if changed.is_err() {
                        // The keeper is gone, and so is the listener.
                        return learning.await;
                    }
                    let sessions = self.sessions.borrow_and_update().clone();
                    let (validity, is_own) = (sessions.validity, self.is_own(&sessions));
                    self.unheard |= !is_own || validity == LockValidity::Unknown;
                    // With another session, the locks have to be reported before their validity.
                    if is_own || !matches!(validity, LockValidity::Until(_) | LockValidity::Unlimited) {
                        self.tell_validity(&sessions);
                    }
                }
            }
        }
    }

    /// Returns whether the locks were reported with these sessions as this cluster's own, under the takeover by which they are kept.
    fn is_own(&self, sessions: &Sessions) -> bool {
        let own = self.own.as_ref().is_some_and(|own| own.iter().eq(sessions.ids.iter().flatten()));
        own && self.takeover == sessions.takeover
    }

    fn tell_validity(&self, Sessions { validity, takeover, .. }: &Sessions) {
        self.tell(StoreEvent::LockValidity(self.store.parameters.id.clone(), *validity, *takeover));
    }

    /// Returns the names of all locks.
    fn names(&self) -> Vec<String> {
        let layout = self.store.parameters.layout;
        let locks = self.entries.iter().filter(|entry| layout.is_lock(&entry.key));
        locks.map(|entry| entry.key.clone()).collect()
    }

    fn version(&self, name: &str) -> Option<Version> {
        find(&self.entries, name).map(|entry| entry.version)
    }

    /// Reports the moment until which the locks are valid. If the sessions changed, it reports all locks first.
    async fn take_sessions(&mut self) {
        while std::mem::take(&mut self.unheard) {
            let now = self.sessions.borrow_and_update().clone();
            self.take_present(&now).await;
        }
    }

    async fn take_present(&mut self, sessions: &Sessions) {
        let validity = sessions.validity;
        let own: Vec<String> = sessions.ids.iter().flatten().cloned().collect();
        if validity == LockValidity::Unknown {
            // The sessions are not looked up yet, or another replica keeps them, so their locks would be taken for another cluster's.
            self.own = None;
        } else if !self.is_own(sessions) {
            // A lock looks different if its session was not known as this cluster's own before. Its version is the same, so receivers have
            // to forget how it looked.
            let is_new =
                |id: &String| self.reported.as_ref().is_some_and(|known| !known.contains(id)) && own.contains(id);
            let held = self.entries.iter().any(|entry| entry.session.as_ref().is_some_and(is_new));
            let first = self.own.is_none() || self.takeover != sessions.takeover;
            self.takeover = sessions.takeover;
            (self.own, self.reported) = (Some(own.clone()), Some(own));
            if first || held {
                self.tell_all(held).await;
            }
        }
        // A state that was published meanwhile is newer. The locks of another session have to be reported before their validity.
        let now = self.sessions.borrow().clone();
        if (now.takeover, &now.ids) == (sessions.takeover, &sessions.ids) {
            self.tell_validity(&now);
        } else {
            self.unheard = true;
        }
    }
}

/// Returns the names whose values have changed, with the present ones, which are empty for a name that is gone.
fn changes<T: Clone + PartialEq>(
    before: &BTreeMap<String, Vec<T>>,
    present: &BTreeMap<String, Vec<T>>,
) -> Vec<(String, Vec<T>)> {
    let gone = before.keys().filter(|name| !present.contains_key(*name)).map(|name| (name.clone(), Vec::new()));
    let changed = present.iter().filter(|(name, values)| before.get(*name) != Some(values));
    gone.chain(changed.map(|(name, values)| (name.clone(), values.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::StreamExt;
    use futures::future::BoxFuture;
    use reqwest::StatusCode;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::store::ConsulParameters;
    use lictor_consul::{Broken, Client, Received, Sent, Settings, Transport};
    use lictor_core::{Instant, StoreId};
    use lictor_locks::Layout;

    /// A Consul with one lock that another cluster's session holds. It answers about that session as often as the test allows.
    struct Consul(Arc<Semaphore>);

    impl Transport for Consul {
        fn send(&self, request: Sent) -> BoxFuture<'_, Result<Received, Broken>> {
            Box::pin(async move {
                let told = |index, body: &str| Ok(Received { status: StatusCode::OK, index, body: body.into() });
                if request.url.path().starts_with("/v1/session/info/") {
                    self.0.acquire().await.expect("it is open").forget();
                    return told(
                        Some(3),
                        r#"[{"ID": "far", "Name": "theirs", "Node": "n", "TTL": "15s", "LockDelay": 0, "Behavior": "release",
                        "NodeChecks": [], "ServiceChecks": [], "CreateIndex": 3}]"#,
                    );
                }
                if request.url.query().is_some_and(|query| query.contains("index=7")) {
                    return std::future::pending().await;
                }
                told(
                    Some(7),
                    r#"[{"Key": "p/a", "Value": "", "Flags": 0, "Session": "far", "LockIndex": 1, "CreateIndex": 7, "ModifyIndex": 7}]"#,
                )
            })
        }
    }

    fn kept(seconds: u64) -> Sessions {
        let validity = LockValidity::Until(Instant::after_origin(Duration::from_secs(seconds)));
        Sessions {
            ids: vec![Some("near".into())],
            takeover: 1,
            validities: vec![validity],
            validity,
            failure: None,
            denied: None,
            name_in_use: false,
            renewal: Duration::ZERO,
        }
    }

    fn of(may_tell: &Arc<Semaphore>) -> ConsulParameters {
        let settings = Settings::new("http://consul");
        ConsulParameters {
            id: StoreId("consul/a".into()),
            client: Client::simulated(&settings, Arc::new(Consul(may_tell.clone()))).unwrap(),
            cluster: "west".into(),
            installation: "a".into(),
            prefix: "p/".into(),
            layout: Layout::Record,
            wait: Duration::from_secs(60),
            suspicion: Arc::default(),
            refusals: Arc::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_ends_while_the_locks_are_read_is_told_last() {
        let may_tell = Arc::new(Semaphore::new(0));
        let with = |validity| Sessions { validity, ..kept(10) };
        let (sessions, receiver) = tokio::sync::watch::channel(with(LockValidity::Unknown));
        let mut events = std::pin::pin!(watch(of(&may_tell).store(receiver)));
        let validity = |validity| Some(StoreEvent::LockValidity(StoreId("consul/a".into()), validity, 1));
        assert_eq!(events.next().await, validity(LockValidity::Unknown));
        // The keys are listed meanwhile. Then this cluster's session is found, and the watch asks who holds the lock.
        let hangs = tokio::time::timeout(Duration::from_millis(100), events.next()).await;
        assert!(hangs.is_err(), "{hangs:?}");
        sessions.send(kept(10)).unwrap();
        let hangs = tokio::time::timeout(Duration::from_millis(100), events.next()).await;
        assert!(hangs.is_err(), "{hangs:?}");
        sessions.send(with(LockValidity::Ended)).unwrap();
        assert_eq!(events.next().await, validity(LockValidity::Ended));
        may_tell.add_permits(1);
        assert!(matches!(events.next().await, Some(StoreEvent::All(..))));
        assert_eq!(events.next().await, validity(LockValidity::Ended));
    }

    #[tokio::test(start_paused = true)]
    async fn renewals_are_told_while_it_is_asked_whose_a_session_is() {
        let may_tell = Arc::new(Semaphore::new(0));
        let (sessions, receiver) = tokio::sync::watch::channel(kept(10));
        let parameters = of(&may_tell);
        let mut events = std::pin::pin!(watch(parameters.store(receiver)));
        let validity = |seconds| StoreEvent::LockValidity(StoreId("consul/a".into()), kept(seconds).validity, 1);
        assert_eq!(events.next().await, Some(validity(10)));
        for seconds in [20, 30] {
            tokio::time::sleep(Duration::from_millis(100)).await;
            sessions.send(kept(seconds)).unwrap();
            let told = tokio::time::timeout(Duration::from_secs(1), events.next()).await;
            assert_eq!(told, Ok(Some(validity(seconds))), "it hangs on the session of somebody else");
        }
        may_tell.add_permits(1);
        let Some(StoreEvent::All(_, _, all)) = events.next().await else { panic!("the locks are told") };
        let Stored::HeldByOther(_, rival) = &all[0].2 else { panic!("{all:?}") };
        assert!(rival.described.as_ref().is_some_and(|who| who.contains("theirs")), "{rival:?}");
    }

    /// The same as when this replica has a new session: a lock that it took for another cluster's looks different at the same version.
    #[tokio::test(start_paused = true)]
    async fn a_session_that_is_found_after_nothing_was_known_makes_the_listener_forget() {
        let (sessions, receiver) = tokio::sync::watch::channel(kept(10));
        let mut events = std::pin::pin!(watch(of(&Arc::new(Semaphore::new(9))).store(receiver)));
        while !matches!(events.next().await, Some(StoreEvent::All(..))) {}
        // It stands by, and acts again later, with the session that another replica has made.
        sessions.send(Sessions { validity: LockValidity::Unknown, ..kept(10) }).unwrap();
        while !matches!(events.next().await, Some(StoreEvent::LockValidity(_, LockValidity::Unknown, _))) {}
        sessions.send(Sessions { ids: vec![Some("far".into())], ..kept(20) }).unwrap();
        let told = tokio::time::timeout(Duration::from_secs(1), events.next()).await;
        assert!(matches!(told, Ok(Some(StoreEvent::Rewound(..)))), "{told:?}");
    }

    /// A Consul without a leader, until the test says otherwise.
    struct Leaderless(Arc<AtomicBool>);

    impl Transport for Leaderless {
        fn send(&self, _: Sent) -> BoxFuture<'_, Result<Received, Broken>> {
            let has_leader = self.0.load(Ordering::SeqCst);
            let status = if has_leader { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
            Box::pin(async move { Ok(Received { status, index: Some(7), body: "[]".into() }) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_was_renewed_ends_the_pause_after_a_failure() {
        let has_leader = Arc::new(AtomicBool::new(false));
        let (sessions, receiver) = tokio::sync::watch::channel(kept(10));
        let settings = Settings::new("http://consul");
        let client = Client::simulated(&settings, Arc::new(Leaderless(has_leader.clone()))).unwrap();
        let parameters = ConsulParameters { client, ..of(&Arc::new(Semaphore::new(0))) };
        let mut events = std::pin::pin!(watch(parameters.store(receiver)));
        let mut failures = 0;
        while failures < 8 {
            failures += usize::from(matches!(events.next().await, Some(StoreEvent::Broken(..))));
        }
        has_leader.store(true, Ordering::SeqCst);
        let since = tokio::time::Instant::now();
        sessions.send(kept(20)).unwrap();
        while !matches!(events.next().await, Some(StoreEvent::All(..))) {}
        assert!(since.elapsed() < Duration::from_millis(50), "the pause is 2 s by now: {:?}", since.elapsed());
    }
}
