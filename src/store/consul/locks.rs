//! Locks in Consul: one key each, held by a session that many of them share, written by transactions alone.
//!
//! The rules come from Consul's sources: a session that is shared is no mutual exclusion between those that share it, so each write
//! also compares the key's index (`check-index`, `lock`); a handover inside this cluster locks again with the same session and
//! never lets go; the flags are those of Consul's own library, so that its programs can take part, and wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use lictor_consul::{Client, Entry, Error, LOCK_FLAGS, OpError, Transaction, TxnOp};
use lictor_core::{Failure, Key, Record, RecordOutcome, StoreId, Stored, Version};
use tokio::sync::Notify;

use super::content::{Content, Layout, find};
use super::failure::{failure, refused};
use super::listing::Listings;
use super::sessions::Sessions;
use crate::store::{Owner, StoreScope};

/// How many sessions of others are remembered with their names.
const REMEMBERED: usize = 1024;
/// How many of them are asked for at one time.
const ASKED_AT_ONCE: usize = 8;

/// What a store in Consul is made with.
#[derive(Clone)]
pub struct ConsulParameters {
    /// The store's id in keys.
    pub id: StoreId,
    /// The way to Consul.
    pub client: Client,
    /// This cluster's name in records.
    pub cluster: String,
    /// What all keys begin with, up to a slash.
    pub prefix: String,
    /// Where records are.
    pub layout: Layout,
    /// How long the watch waits for a change before it asks again.
    pub wait: Duration,
    /// To be told when a session seems to be gone.
    pub suspicion: Arc<Notify>,
}

/// Locks in Consul. Clones share what they know.
#[derive(Clone)]
pub struct ConsulStore {
    pub(super) parameters: ConsulParameters,
    pub(super) sessions: tokio::sync::watch::Receiver<Sessions>,
    pub(super) listings: Listings,
    /// The sessions of others, for people, by id.
    rivals: Arc<Mutex<BTreeMap<String, String>>>,
}

impl ConsulStore {
    /// Locks that are held by these sessions.
    pub fn new(parameters: ConsulParameters, sessions: tokio::sync::watch::Receiver<Sessions>) -> Self {
        let listings = Listings::new(parameters.client.clone(), parameters.prefix.clone());
        Self { parameters, sessions, listings, rivals: Arc::default() }
    }

    pub(super) fn own(&self) -> Vec<String> {
        self.sessions.borrow().ids.iter().flatten().cloned().collect()
    }

    /// The session for a key: which one never matters, as long as each key keeps to it.
    fn session_for(&self, key: &Key) -> Result<String, Failure> {
        let sessions = self.sessions.borrow();
        let sum = key.name.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let index = sum.checked_rem(sessions.ids.len());
        index.and_then(|index| sessions.ids[index].clone()).ok_or_else(|| {
            let why = sessions.failure.as_ref().map(Failure::text);
            Failure::Refused(format!("there is no session at Consul yet: {}", why.unwrap_or("it is being made")))
        })
    }

    /// What a listing has under a name, where these are the sessions of this cluster. Asks who others are.
    pub(super) async fn stored(&self, entries: &[Entry], name: &str, own: &[String]) -> Stored {
        self.learn(self.stranger(entries, name, own).into_iter().collect()).await;
        self.shown(entries, name, own)
    }

    /// The same with what is known of others.
    pub(super) fn shown(&self, entries: &[Entry], name: &str, own: &[String]) -> Stored {
        let ConsulParameters { layout, cluster, .. } = &self.parameters;
        let (lock, beside) = (find(entries, name), layout.beside(name));
        let beside = beside.as_deref().and_then(|beside| find(entries, beside));
        layout.stored(lock, beside, cluster, own, |session| self.describe(session))
    }

    /// The session that holds a lock and was not asked for yet.
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

    /// Asks who these sessions of others are.
    pub(super) async fn learn(&self, sessions: BTreeSet<String>) {
        futures::stream::iter(sessions).for_each_concurrent(ASKED_AT_ONCE, |id| self.learn_one(id)).await;
    }

    async fn learn_one(&self, id: String) {
        let read = self.parameters.client.session(&id).await;
        let mut rivals = self.rivals();
        if rivals.len() >= REMEMBERED {
            rivals.clear();
        }
        // One that can't be read is not asked for again and again.
        let told = match read {
            Ok(Some(session)) => {
                let name =
                    if session.name.is_empty() { "without a name".into() } else { format!("{:?}", session.name) };
                format!("the session {name} of the node {} ({id})", session.node)
            }
            Ok(None) | Err(_) => format!("the session {id}"),
        };
        rivals.insert(id, told);
    }

    pub(super) async fn entries(&self, name: &str) -> Result<Vec<Entry>, Error> {
        match self.parameters.layout {
            Layout::Record => Ok(self.parameters.client.read_key(name).await?.into_iter().collect()),
            // In one answer: two would be of two moments.
            Layout::LeaderName => Ok(self.parameters.client.list(name).await?.1),
        }
    }

    async fn transact(&self, name: &str, operations: &[TxnOp]) -> Result<RecordOutcome, Vec<OpError>> {
        match self.parameters.client.transact(operations).await {
            Transaction::Applied(applied) => Ok(match applied.entry(name) {
                Some(entry) => RecordOutcome::Written(Version(entry.modify_index)),
                None => RecordOutcome::Failed(Failure::Unknown("Consul's answer does not tell the key's index".into())),
            }),
            Transaction::RolledBack(errors) => Err(errors),
            Transaction::Failed(error) => Ok(RecordOutcome::Failed(failure(error))),
        }
    }

    pub(super) async fn lock(
        &self,
        key: &Key,
        owner: &Owner,
        expected: Option<Version>,
        record: &Record,
    ) -> Result<RecordOutcome, Failure> {
        let session = self.session_for(key)?;
        let ConsulParameters { layout, cluster, .. } = &self.parameters;
        let (namespace, name) = (owner.namespace.clone(), owner.name.clone());
        let content = Content { cluster: cluster.clone(), namespace, name, record: record.clone() };
        let json = serde_json::to_vec(&content)
            .map_err(|error| Failure::Refused(format!("the record is no JSON: {error}")))?;
        let name = key.name.clone();
        let lock = TxnOp::KvLock {
            key: name.clone(),
            value: layout.value(&json, cluster, record),
            flags: LOCK_FLAGS,
            session: session.clone(),
        };
        let beside = layout.beside(&name).map(|key| TxnOp::KvSet { key, value: json, flags: 0 });
        let mut operations = vec![match expected {
            None => TxnOp::KvCheckNotExists { key: name.clone() },
            Some(Version(index)) => TxnOp::KvCheckIndex { key: name.clone(), index },
        }];
        let others = match expected {
            // Held by another session of this cluster's own, it moves without a gap.
            Some(_) => self.held_by(&name).await?.filter(|held| *held != session && self.own().contains(held)),
            None => None,
        };
        operations.extend(others.map(|session| TxnOp::KvUnlock {
            key: name.clone(),
            value: Vec::new(),
            flags: LOCK_FLAGS,
            session,
        }));
        operations.push(lock);
        operations.extend(beside);
        Ok(match self.transact(&name, &operations).await {
            Ok(outcome) => outcome,
            Err(errors) => {
                if errors.iter().any(OpError::is_session) {
                    self.parameters.suspicion.notify_one();
                }
                outcome_of(&errors)
            }
        })
    }

    /// Only with several sessions a key may be held by another one of this cluster's own.
    async fn held_by(&self, name: &str) -> Result<Option<String>, Failure> {
        if self.own().len() < 2 {
            return Ok(None);
        }
        Ok(self.parameters.client.read_key(name).await.map_err(failure)?.and_then(|entry| entry.session))
    }

    pub(super) async fn unlock(&self, key: &Key, version: Version) -> Result<RecordOutcome, Failure> {
        let entries = self.entries(&key.name).await.map_err(failure)?;
        let Some(lock) = find(&entries, &key.name).filter(|lock| lock.modify_index == version.0) else {
            return Ok(RecordOutcome::Conflict);
        };
        let Some(session) = lock.session.clone() else { return Ok(RecordOutcome::Written(version)) };
        let name = key.name.clone();
        let operations = [
            TxnOp::KvCheckIndex { key: name.clone(), index: version.0 },
            // An unlock overwrites value and flags.
            TxnOp::KvUnlock { key: name.clone(), value: lock.value.clone(), flags: LOCK_FLAGS, session },
        ];
        Ok(self.transact(&name, &operations).await.unwrap_or_else(|errors| outcome_of(&errors)))
    }

    pub(super) async fn remove(&self, key: &Key, version: Version) -> Result<RecordOutcome, Failure> {
        let entries = self.entries(&key.name).await.map_err(failure)?;
        let beside = self.parameters.layout.beside(&key.name);
        match find(&entries, &key.name) {
            None => return Ok(RecordOutcome::Written(version)),
            Some(lock) if lock.modify_index != version.0 => return Ok(RecordOutcome::Conflict),
            Some(_) => {}
        }
        let mut operations = vec![TxnOp::KvDeleteCas { key: key.name.clone(), index: version.0 }];
        let beside = beside.as_deref().and_then(|beside| find(&entries, beside));
        operations
            .extend(beside.map(|beside| TxnOp::KvDeleteCas { key: beside.key.clone(), index: beside.modify_index }));
        Ok(match self.parameters.client.transact(&operations).await {
            Transaction::Applied(_) => RecordOutcome::Written(version),
            Transaction::RolledBack(_) => RecordOutcome::Conflict,
            Transaction::Failed(error) => RecordOutcome::Failed(failure(error)),
        })
    }

    pub(super) fn scope(&self) -> StoreScope {
        StoreScope { store: self.parameters.id.clone(), namespace: None }
    }
}

/// Why a write was rolled back.
fn outcome_of(errors: &[OpError]) -> RecordOutcome {
    let any = |of: fn(&OpError) -> bool| errors.iter().any(of);
    if any(OpError::is_index) || any(OpError::is_held) || any(OpError::is_not_held) {
        RecordOutcome::Conflict
    } else if any(OpError::is_lock_delay) {
        RecordOutcome::Delayed
    } else {
        RecordOutcome::Failed(refused("the lock", errors))
    }
}
