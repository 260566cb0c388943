//! Locks in a store that clusters share: one key each, held by a session that many locks share.
//!
//! A shared session does not exclude the locks that share it, so each write is also for one version of the key. A handover inside this
//! cluster writes again with the same session, and so holds the lock without a gap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use lictor_core::{Failure, Key, Record, RecordOutcome, StoreId, Stored, Version};
use lictor_locks::{Content, Entry, Layout, find};
use lictor_locks::{Refusals, Refused, Sessions};
use tokio::sync::Notify;

use super::content::{Writer, json};
use super::keys::{Hold, Keys};
use super::listing::Listings;
use super::seen::Seen;
use crate::store::{Owner, StoreScope};

/// The number of other clusters' sessions whose names are remembered.
const REMEMBERED: usize = 1024;
/// The number of sessions that are asked for at a time.
const ASKED_AT_ONCE: usize = 8;

/// The parameters of a store.
#[derive(Clone)]
pub(in crate::store) struct SharedParameters {
    /// The store's id in keys.
    pub(in crate::store) id: StoreId,
    /// This cluster's name in records.
    pub(in crate::store) cluster: String,
    /// This installation of lictor in the cluster, as records name it.
    pub(in crate::store) installation: String,
    /// The place of records.
    pub(in crate::store) layout: Layout,
    /// Notified when a session seems to be gone.
    pub(in crate::store) suspicion: Arc<Notify>,
    /// Receives the locks that this cluster holds and may not write.
    pub(in crate::store) refusals: Arc<Refusals>,
}

/// The locks in one store. Clones share their knowledge.
#[derive(Clone)]
pub struct SharedStore {
    pub(super) keys: Arc<dyn Keys>,
    pub(super) parameters: SharedParameters,
    pub(super) sessions: tokio::sync::watch::Receiver<Sessions>,
    pub(super) listings: Listings,
    pub(super) seen: Seen,
    /// Descriptions of other clusters' sessions for a person, by id.
    rivals: Arc<Mutex<BTreeMap<String, String>>>,
}

impl SharedStore {
    /// Creates a store whose locks these sessions hold.
    pub(in crate::store) fn new(
        keys: Arc<dyn Keys>,
        parameters: SharedParameters,
        sessions: tokio::sync::watch::Receiver<Sessions>,
    ) -> Self {
        let listings = Listings::new(keys.clone(), parameters.layout);
        Self { keys, parameters, sessions, listings, seen: Seen::default(), rivals: Arc::default() }
    }

    pub(super) fn own(&self) -> Vec<String> {
        self.sessions.borrow().ids.iter().flatten().cloned().collect()
    }

    /// Returns the session for a key. Any session will do, as long as each key keeps its session.
    pub(super) fn session_for(&self, key: &Key) -> Result<String, Failure> {
        let sessions = self.sessions.borrow();
        let sum = key.name.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let index = sum.checked_rem(sessions.ids.len());
        index.and_then(|index| sessions.ids[index].clone()).ok_or_else(|| {
            let why = sessions.failure.as_ref().map(Failure::text);
            Failure::Refused(format!("there is no session yet: {}", why.unwrap_or("it is being created")))
        })
    }

    /// Returns the state of a lock by its name in a listing, if `own` are the sessions of this cluster. It asks Consul about an unknown
    /// holder.
    pub(super) async fn stored(&self, entries: &[Entry], name: &str, own: &[String]) -> Stored {
        self.learn(self.stranger(entries, name, own).into_iter().collect()).await;
        self.shown(entries, name, own)
    }

    /// Returns the same without asking Consul.
    pub(super) fn shown(&self, entries: &[Entry], name: &str, own: &[String]) -> Stored {
        let (lock, beside) = (find(entries, name), Layout::found_beside(entries, name));
        let known = lock.and_then(|lock| self.seen.known(lock));
        let layout = self.parameters.layout;
        let shown = self.writer().stored(layout, lock, beside, known.as_ref(), own, |session| self.describe(session));
        match shown {
            Stored::Foreign(what) => {
                Stored::Foreign(format!("{what}; if it is not needed, {}", self.keys.deletion(name)))
            }
            shown => shown,
        }
    }

    /// Returns whether this installation wrote the content of a name in a listing.
    pub(super) fn wrote(&self, entries: &[Entry], name: &str) -> bool {
        let beside = Layout::found_beside(entries, name);
        let content = find(entries, name).and_then(|lock| self.parameters.layout.content_of(lock, beside));
        content.is_some_and(|(content, _)| self.writer().wrote(&content))
    }

    fn writer(&self) -> Writer<'_> {
        let SharedParameters { cluster, installation, .. } = &self.parameters;
        Writer { cluster, installation }
    }

    /// Returns the session that holds a lock, if it is not this cluster's and Consul was not asked about it yet.
    pub(super) fn stranger(&self, entries: &[Entry], name: &str, own: &[String]) -> Option<String> {
        let session = find(entries, name)?.session.as_ref().filter(|session| !own.contains(session))?;
        (!self.rivals().contains_key(session)).then(|| session.clone())
    }

    fn describe(&self, session: &str) -> String {
        self.rivals().get(session).cloned().unwrap_or_else(|| format!("the session {session}"))
    }

    fn rivals(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.rivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks Consul about the sessions of others.
    pub(super) async fn learn(&self, sessions: BTreeSet<String>) {
        futures::stream::iter(sessions).for_each_concurrent(ASKED_AT_ONCE, |id| self.learn_one(id)).await;
    }

    async fn learn_one(&self, id: String) {
        let told = self.keys.describe(&id).await;
        let mut rivals = self.rivals();
        if rivals.len() >= REMEMBERED {
            rivals.clear();
        }
        rivals.insert(id, told);
    }

    pub(super) async fn entries(&self, name: &str) -> Result<Vec<Entry>, Failure> {
        // The lock's key and the one beside it must come in one answer, so that they are of one moment. Another cluster may have written both,
        // whatever this one's layout is.
        self.keys.list(name).await
    }

    /// C15: tells the keeper of the sessions when Consul refuses, by its access rules, to change a lock that this cluster holds.
    pub(super) async fn noting_refusal(
        &self,
        key: &Key,
        change: impl Future<Output = Result<RecordOutcome, Failure>>,
    ) -> RecordOutcome {
        let outcome = change.await.unwrap_or_else(RecordOutcome::Failed);
        if matches!(outcome, RecordOutcome::Failed(Failure::Forbidden(_)))
            && let Some(session) = self.seen.holder(&key.name).filter(|session| self.own().contains(session))
        {
            let beside = self.parameters.layout.beside(&key.name);
            self.parameters.refusals.tell(Refused { key: key.name.clone(), beside, session });
        }
        outcome
    }

    pub(super) async fn lock(
        &self,
        key: &Key,
        owner: &Owner,
        expected: Option<Version>,
        record: &Record,
    ) -> Result<RecordOutcome, Failure> {
        let session = self.session_for(key)?;
        let SharedParameters { layout, cluster, installation, .. } = &self.parameters;
        let (namespace, name) = (owner.namespace.clone(), owner.name.clone());
        let installation = Some(installation.clone());
        let content = Content { cluster: cluster.clone(), installation, namespace, name, record: record.clone() };
        let json = json(&content)?;
        let value = layout.value(&json, cluster, record);
        let beside = layout.beside(&key.name).map(|key| (key, json));
        Ok(self.keys.hold(Hold { key: &key.name, expected, value, beside, session, own: &self.own() }).await)
    }

    pub(super) async fn unlock(&self, key: &Key, version: Version) -> Result<RecordOutcome, Failure> {
        let entries = self.entries(&key.name).await?;
        let Some(lock) = find(&entries, &key.name).filter(|lock| lock.version == version) else {
            return Ok(RecordOutcome::Conflict);
        };
        match &lock.session {
            Some(session) => Ok(self.keys.release(lock, session).await),
            None => Ok(RecordOutcome::Written(version)),
        }
    }

    pub(super) async fn remove(&self, key: &Key, version: Version) -> Result<RecordOutcome, Failure> {
        let entries = self.entries(&key.name).await?;
        match find(&entries, &key.name) {
            None => return Ok(RecordOutcome::Written(version)),
            Some(lock) if lock.version != version => return Ok(RecordOutcome::Conflict),
            Some(_) => {}
        }
        let beside = self.parameters.layout.beside(&key.name);
        let beside = beside.as_deref().and_then(|beside| find(&entries, beside));
        let beside = beside.map(|beside| (beside.key.clone(), beside.version));
        let keys: Vec<_> = std::iter::once((key.name.clone(), version)).chain(beside).collect();
        Ok(self.keys.delete(&keys).await)
    }

    pub(super) fn scope(&self) -> StoreScope {
        StoreScope { store: self.parameters.id.clone(), namespace: None }
    }
}
