//! Locks in Consul: one key each, held by a session that many locks share, and written only in transactions.
//!
//! The rules come from Consul's sources. A shared session does not exclude the locks that share it, so each write also checks the key's
//! index (`check-index`, `lock`). A handover inside this cluster locks again with the same session, and so holds the lock without a gap.
//! The flags are those of Consul's own library, so that programs that use it can take part and wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use lictor_consul::{Client, Entry, Error, LOCK_FLAGS, OpError, Transaction, TxnOp};
use lictor_core::{Failure, Key, Record, RecordOutcome, StoreId, Stored, Version};
use lictor_locks::consul::{Content, Layout, Refusals, Refused, Sessions, failure, find, refused};
use tokio::sync::Notify;

use super::content::Writer;
use super::listing::Listings;
use super::seen::Seen;
use crate::store::{Owner, StoreScope};

/// The number of other clusters' sessions whose names are remembered.
const REMEMBERED: usize = 1024;
/// The number of sessions that are asked for at a time.
const ASKED_AT_ONCE: usize = 8;

/// The parameters of a store in Consul.
#[derive(Clone)]
pub struct ConsulParameters {
    /// The store's id in keys.
    pub id: StoreId,
    /// The client for Consul.
    pub client: Client,
    /// This cluster's name in records.
    pub cluster: String,
    /// This installation of lictor in the cluster, as records name it.
    pub installation: String,
    /// The prefix of all keys. It ends with a slash.
    pub prefix: String,
    /// The place of records.
    pub layout: Layout,
    /// How long the watch waits for a change before it asks again.
    pub wait: Duration,
    /// Notified when a session seems to be gone.
    pub suspicion: Arc<Notify>,
    /// Receives the locks that this cluster holds and may not write.
    pub refusals: Arc<Refusals>,
}

/// The locks in one Consul. Clones share their knowledge.
#[derive(Clone)]
pub struct ConsulStore {
    pub(super) parameters: ConsulParameters,
    pub(super) sessions: tokio::sync::watch::Receiver<Sessions>,
    pub(super) listings: Listings,
    pub(super) seen: Seen,
    /// Descriptions of other clusters' sessions for a person, by id.
    rivals: Arc<Mutex<BTreeMap<String, String>>>,
}

impl ConsulStore {
    /// Creates a store whose locks these sessions hold.
    pub fn new(parameters: ConsulParameters, sessions: tokio::sync::watch::Receiver<Sessions>) -> Self {
        let listings = Listings::new(parameters.client.clone(), parameters.prefix.clone(), parameters.layout);
        Self { parameters, sessions, listings, seen: Seen::default(), rivals: Arc::default() }
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
            Failure::Refused(format!("there is no session at Consul yet: {}", why.unwrap_or("it is being created")))
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
        self.writer().stored(layout, lock, beside, known.as_ref(), own, |session| self.describe(session))
    }

    /// Returns whether this installation wrote the content of a name in a listing.
    pub(super) fn wrote(&self, entries: &[Entry], name: &str) -> bool {
        let beside = Layout::found_beside(entries, name);
        let content = find(entries, name).and_then(|lock| self.parameters.layout.content_of(lock, beside));
        content.is_some_and(|(content, _)| self.writer().wrote(&content))
    }

    fn writer(&self) -> Writer<'_> {
        let ConsulParameters { cluster, installation, .. } = &self.parameters;
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
        let read = self.parameters.client.session(&id).await;
        let mut rivals = self.rivals();
        if rivals.len() >= REMEMBERED {
            rivals.clear();
        }
        // A session that can't be read is not asked for again.
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
        // The lock's key and the one beside it must come in one answer, so that they are of one moment. Another cluster may have written both,
        // whatever this one's layout is.
        Ok(self.parameters.client.list(name).await?.1)
    }

    pub(super) async fn transact(&self, name: &str, operations: &[TxnOp]) -> Result<RecordOutcome, Vec<OpError>> {
        match self.parameters.client.transact(operations).await {
            Transaction::Applied(applied) => Ok(match applied.entry(name) {
                Some(entry) => RecordOutcome::Written(Version(entry.modify_index)),
                None => RecordOutcome::Failed(Failure::Unknown("Consul's answer lacks the key's index".into())),
            }),
            Transaction::RolledBack(errors) => Err(errors),
            Transaction::Failed(error) => Ok(RecordOutcome::Failed(failure(error))),
        }
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
        let ConsulParameters { layout, cluster, installation, .. } = &self.parameters;
        let (namespace, name) = (owner.namespace.clone(), owner.name.clone());
        let installation = Some(installation.clone());
        let content = Content { cluster: cluster.clone(), installation, namespace, name, record: record.clone() };
        let json = serde_json::to_vec(&content)
            .map_err(|error| Failure::Refused(format!("the record can't be written as JSON: {error}")))?;
        let name = key.name.clone();
        let lock = TxnOp::KvLock {
            key: name.clone(),
            value: layout.value(&json, cluster, record),
            flags: LOCK_FLAGS,
            session: session.clone(),
        };
        let beside = layout.beside(&name);
        // With an identical value, here the same leader's name, the lock would keep its index, and the record beside it gets another one.
        let renewed = beside.as_ref().filter(|_| expected.is_some()).map(|_| TxnOp::KvSet {
            key: name.clone(),
            value: json.clone(),
            flags: LOCK_FLAGS,
        });
        let beside = beside.map(|key| TxnOp::KvSet { key, value: json, flags: 0 });
        let mut operations = vec![match expected {
            None => TxnOp::KvCheckNotExists { key: name.clone() },
            Some(Version(index)) => TxnOp::KvCheckIndex { key: name.clone(), index },
        }];
        let others = match expected {
            // If another session of this cluster holds the lock, the lock moves to this one without a gap.
            Some(_) => self.held_by(&name).await?.filter(|held| *held != session && self.own().contains(held)),
            None => None,
        };
        operations.extend(others.map(|session| TxnOp::KvUnlock {
            key: name.clone(),
            value: Vec::new(),
            flags: LOCK_FLAGS,
            session,
        }));
        operations.extend(renewed);
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

    /// Returns the session of this cluster that holds a key. Only with several sessions can it be another one than the key's own.
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
            // An unlock overwrites the value and the flags.
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
        Ok(self.delete_at(&operations, version).await)
    }

    /// Deletes keys at their indexes. `version` is that of the lock or the bid.
    pub(super) async fn delete_at(&self, operations: &[TxnOp], version: Version) -> RecordOutcome {
        match self.parameters.client.transact(operations).await {
            Transaction::Applied(_) => RecordOutcome::Written(version),
            Transaction::RolledBack(_) => RecordOutcome::Conflict,
            Transaction::Failed(error) => RecordOutcome::Failed(failure(error)),
        }
    }

    pub(super) fn scope(&self) -> StoreScope {
        StoreScope { store: self.parameters.id.clone(), namespace: None }
    }
}

/// Returns why a write was rolled back.
pub(super) fn outcome_of(errors: &[OpError]) -> RecordOutcome {
    let any = |of: fn(&OpError) -> bool| errors.iter().any(of);
    if any(OpError::is_index) || any(OpError::is_held) || any(OpError::is_not_held) {
        RecordOutcome::Conflict
    } else if any(OpError::is_lock_delay) {
        RecordOutcome::Delayed
    } else {
        RecordOutcome::Failed(refused("the lock", errors))
    }
}
