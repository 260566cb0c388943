//! Locks in this process, for tests and simulation, with faults on request.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use lictor_core::{Failure, Key, Record, RecordOutcome, StoreId, Stored, Uid, Version};
use tokio::sync::broadcast;

use super::{LockStore, Owner, StoreEvent, StoreScope};

/// What goes wrong with the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is refused.
    Refuse,
    /// It is lost on its way.
    LoseRequest,
    /// It is done, and the answer is lost.
    LoseAnswer,
    /// It is held back, and the answer is lost; [`MemoryStore::deliver_late`] lets it through.
    Delay,
}

/// A store in memory. Clones share their content.
#[derive(Clone)]
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
    changes: broadcast::Sender<StoreEvent>,
}

#[derive(Default)]
struct Inner {
    version: u64,
    records: BTreeMap<Key, Stored>,
    faults: VecDeque<Fault>,
    late: Vec<(Key, Change)>,
}

#[derive(Clone)]
enum Change {
    Write(Option<Version>, Box<Record>),
    Delete(Version),
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { inner: Arc::default(), changes: broadcast::channel(1024).0 }
    }
}

impl MemoryStore {
    /// The next request that has no fault yet gets this one.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push_back(fault);
    }

    /// Lets through what was held back, in order; returns the outcomes, which nobody waits for any more.
    pub fn deliver_late(&self) -> Vec<RecordOutcome> {
        let late = std::mem::take(&mut self.lock().late);
        late.into_iter().map(|(key, change)| self.apply(&key, change)).collect()
    }

    /// Puts something there that no [`Record`] is, as a person would.
    pub fn put(&self, key: &Key, make: impl FnOnce(Version) -> Stored) {
        let mut inner = self.lock();
        inner.version += 1;
        let version = Version(inner.version);
        let stored = make(version);
        inner.records.insert(key.clone(), stored.clone());
        let _ = self.changes.send(StoreEvent::Changed(key.clone(), version, stored));
    }

    fn request(&self, key: &Key, change: Change) -> RecordOutcome {
        let fault = self.lock().faults.pop_front();
        let unknown = || RecordOutcome::Failed(Failure::Unknown("the answer was lost".into()));
        match fault {
            None => self.apply(key, change),
            Some(Fault::Refuse) => RecordOutcome::Failed(Failure::Refused("refused on request".into())),
            Some(Fault::LoseRequest) => unknown(),
            Some(Fault::LoseAnswer) => {
                self.apply(key, change);
                unknown()
            }
            Some(Fault::Delay) => {
                self.lock().late.push((key.clone(), change));
                unknown()
            }
        }
    }

    fn apply(&self, key: &Key, change: Change) -> RecordOutcome {
        let mut inner = self.lock();
        let present = inner.records.get(key).cloned().unwrap_or(Stored::Absent);
        if let Stored::Foreign(_) = present {
            return RecordOutcome::Conflict;
        }
        let at = Version(inner.version + 1);
        let (written, stored) = match change {
            Change::Write(expected, record) if present.version() == expected => (at, Stored::Record(at, *record)),
            Change::Delete(version) if present == Stored::Absent => return RecordOutcome::Written(version),
            Change::Delete(version) if present.version() == Some(version) => (version, Stored::Absent),
            Change::Write(..) | Change::Delete(_) => return RecordOutcome::Conflict,
        };
        inner.version = at.0;
        inner.records.insert(key.clone(), stored.clone());
        let _ = self.changes.send(StoreEvent::Changed(key.clone(), at, stored));
        RecordOutcome::Written(written)
    }

    fn all(&self) -> StoreEvent {
        let scope = StoreScope { store: StoreId::leases(), namespace: None };
        let all = |(key, stored): (&Key, &Stored)| Some((key.clone(), stored.version()?, stored.clone()));
        let inner = self.lock();
        StoreEvent::All(scope, Version(inner.version), inner.records.iter().filter_map(all).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LockStore for MemoryStore {
    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Stored, Failure>> {
        async move {
            let mut inner = self.lock();
            match inner.faults.pop_front() {
                None => Ok(inner.records.get(key).cloned().unwrap_or(Stored::Absent)),
                Some(Fault::Refuse) => Err(Failure::Refused("refused on request".into())),
                Some(_) => Err(Failure::Unknown("the answer was lost".into())),
            }
        }
        .boxed()
    }

    fn locks_of<'a>(
        &'a self,
        namespace: &'a str,
        election: &'a Uid,
    ) -> BoxFuture<'a, Result<Vec<(Key, Stored)>, Failure>> {
        async move {
            let inner = self.lock();
            let own = inner.records.iter().filter(|(key, stored)| {
                key.namespace == namespace && stored.record().is_some_and(|record| record.election == *election)
            });
            Ok(own.map(|(key, stored)| (key.clone(), stored.clone())).collect())
        }
        .boxed()
    }

    fn write<'a>(
        &'a self,
        key: &'a Key,
        _owner: &'a Owner,
        expected: Option<Version>,
        record: &'a Record,
    ) -> BoxFuture<'a, RecordOutcome> {
        async move { self.request(key, Change::Write(expected, Box::new(record.clone()))) }.boxed()
    }

    fn delete<'a>(&'a self, key: &'a Key, version: Version) -> BoxFuture<'a, RecordOutcome> {
        async move { self.request(key, Change::Delete(version)) }.boxed()
    }

    fn watch(&self) -> BoxStream<'static, StoreEvent> {
        let changes = self.changes.subscribe();
        let store = self.clone();
        let first = self.all();
        let rest = futures::stream::unfold((changes, store), |(mut changes, store)| async move {
            let event = match changes.recv().await {
                Ok(event) => event,
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    // What is still in the channel is older than the list.
                    changes = changes.resubscribe();
                    store.all()
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            Some((event, (changes, store)))
        });
        futures::stream::iter([first]).chain(rest).boxed()
    }
}
