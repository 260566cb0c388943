//! The keys of a class in Consul, written only in transactions.
//!
//! The rules come from Consul's sources. Each write also checks the key's index (`check-index`, `lock`). The flags are those of Consul's own
//! library, so that programs that use it can take part and wait.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use lictor_consul::{Client, LOCK_FLAGS, OpError, Transaction, TxnOp};
use lictor_core::{Failure, FollowedLock, RecordOutcome, Version};
use lictor_locks::consul::{failure, refused};
use lictor_locks::{Entry, find};
use tokio::sync::Notify;

use super::followed;
use crate::store::Directory;
use crate::store::shared::{Gift, Hold, Keys};

/// The keys below a prefix.
#[derive(Clone)]
pub(super) struct ConsulKeys {
    pub(super) client: Client,
    /// The prefix of all keys. It ends with a slash.
    pub(super) prefix: String,
    /// How long the watch waits for a change before it asks again.
    pub(super) wait: Duration,
    /// Notified when a session seems to be gone.
    pub(super) suspicion: Arc<Notify>,
}

impl Keys for ConsulKeys {
    fn list<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<Entry>, Failure>> {
        async move {
            let name = if name.is_empty() { &self.prefix } else { name };
            let (_, listed) = self.client.list(name).await.map_err(failure)?;
            Ok(entries(listed))
        }
        .boxed()
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Entry>, Failure>> {
        async move { Ok(self.client.read_key(name).await.map_err(failure)?.map(Entry::from)) }.boxed()
    }

    fn wait(&self, index: u64) -> BoxFuture<'_, Result<(u64, Vec<Entry>), Failure>> {
        async move {
            let (index, listed) = self.client.wait(&self.prefix, index, self.wait).await.map_err(failure)?;
            Ok((index, entries(listed)))
        }
        .boxed()
    }

    /// A lower index does not prove that, because the index also falls when Consul forgets deleted keys, a quarter of an hour later. An
    /// equal one does not disprove it, because a later change may have raised it again.
    fn is_rewound(&self, (before, known): (u64, &[Entry]), (after, present): (u64, &[Entry])) -> bool {
        let earlier = |entry: &Entry| match find(known, &entry.key) {
            Some(before) => entry.version < before.version,
            // A key that did not exist must be newer than the last answer.
            None => entry.version.0 <= before,
        };
        let missing = |before: &Entry| find(present, &before.key).is_none();
        present.iter().any(earlier) || (after < before && known.iter().any(missing))
    }

    fn hold<'a>(&'a self, hold: Hold<'a>) -> BoxFuture<'a, RecordOutcome> {
        self.lock(hold).map(|held| held.unwrap_or_else(RecordOutcome::Failed)).boxed()
    }

    fn release<'a>(&'a self, entry: &'a Entry, session: &'a str) -> BoxFuture<'a, RecordOutcome> {
        async move {
            let (key, session) = (entry.key.clone(), session.to_owned());
            let operations = [
                TxnOp::KvCheckIndex { key: key.clone(), index: entry.version.0 },
                // An unlock overwrites the value and the flags.
                TxnOp::KvUnlock { key, value: entry.value.clone(), flags: LOCK_FLAGS, session },
            ];
            self.transact(&entry.key, &operations).await.unwrap_or_else(|errors| outcome_of(&errors))
        }
        .boxed()
    }

    fn delete<'a>(&'a self, keys: &'a [(String, Version)]) -> BoxFuture<'a, RecordOutcome> {
        async move {
            let operation =
                |(key, version): &(String, Version)| TxnOp::KvDeleteCas { key: key.clone(), index: version.0 };
            let operations: Vec<_> = keys.iter().map(operation).collect();
            match self.client.transact(&operations).await {
                Transaction::Applied(_) => RecordOutcome::Written(keys.first().map_or(Version(0), |key| key.1)),
                Transaction::RolledBack(_) => RecordOutcome::Conflict,
                Transaction::Failed(error) => RecordOutcome::Failed(failure(error)),
            }
        }
        .boxed()
    }

    fn give<'a>(&'a self, gift: Gift<'a>) -> BoxFuture<'a, RecordOutcome> {
        async move {
            let Gift { lock: Entry { key, version, session, .. }, value, beside, bid: (bid, bid_version), session: to } =
                gift;
            let Some(session) = session.clone() else { return RecordOutcome::Conflict };
            let mut operations = vec![
                TxnOp::KvCheckIndex { key: key.clone(), index: version.0 },
                TxnOp::KvCheckIndex { key: bid.clone(), index: bid_version.0 },
                TxnOp::KvUnlock { key: key.clone(), value: Vec::new(), flags: LOCK_FLAGS, session },
                TxnOp::KvLock { key: key.clone(), value, flags: LOCK_FLAGS, session: to },
                TxnOp::KvDeleteCas { key: bid, index: bid_version.0 },
            ];
            operations.extend(beside.map(|(key, value)| TxnOp::KvSet { key, value, flags: 0 }));
            self.transact(key, &operations).await.unwrap_or_else(|errors| outcome_of(&errors))
        }
        .boxed()
    }

    fn describe<'a>(&'a self, id: &'a str) -> BoxFuture<'a, String> {
        async move {
            // A session that can't be read is not asked for again.
            match self.client.session(id).await {
                Ok(Some(session)) => {
                    let name =
                        if session.name.is_empty() { "without a name".into() } else { format!("{:?}", session.name) };
                    format!("the session {name} of the node {} ({id})", session.node)
                }
                Ok(None) | Err(_) => format!("the session {id}"),
            }
        }
        .boxed()
    }

    fn deletion(&self, name: &str) -> String {
        format!("`consul kv delete {name}`")
    }

    fn follow(&self, name: &str) -> BoxStream<'static, FollowedLock> {
        followed::follow(&self.client, name, self.wait)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        Some(self)
    }
}

impl ConsulKeys {
    async fn lock(&self, hold: Hold<'_>) -> Result<RecordOutcome, Failure> {
        let Hold { key, expected, value, beside, session, own } = hold;
        let name = key.to_owned();
        // With an identical value, here the same leader's name, the lock would keep its index, and the record beside it gets another one.
        let renewed = beside.as_ref().filter(|_| expected.is_some()).map(|(_, record)| TxnOp::KvSet {
            key: name.clone(),
            value: record.clone(),
            flags: LOCK_FLAGS,
        });
        let mut operations = vec![match expected {
            None => TxnOp::KvCheckNotExists { key: name.clone() },
            Some(Version(index)) => TxnOp::KvCheckIndex { key: name.clone(), index },
        }];
        // If another session of this cluster holds the lock, the lock moves to this one without a gap. This needs several sessions.
        let others = match expected {
            Some(_) if own.len() > 1 => {
                let holder = self.read(key).await?.and_then(|entry| entry.session);
                holder.filter(|holder| *holder != session && own.contains(holder))
            }
            _ => None,
        };
        operations.extend(others.map(|session| TxnOp::KvUnlock {
            key: name.clone(),
            value: Vec::new(),
            flags: LOCK_FLAGS,
            session,
        }));
        operations.extend(renewed);
        operations.push(TxnOp::KvLock { key: name, value, flags: LOCK_FLAGS, session });
        operations.extend(beside.map(|(key, value)| TxnOp::KvSet { key, value, flags: 0 }));
        Ok(self.transact(key, &operations).await.unwrap_or_else(|errors| {
            if errors.iter().any(OpError::is_session) {
                self.suspicion.notify_one();
            }
            outcome_of(&errors)
        }))
    }

    async fn transact(&self, key: &str, operations: &[TxnOp]) -> Result<RecordOutcome, Vec<OpError>> {
        match self.client.transact(operations).await {
            Transaction::Applied(applied) => Ok(match applied.entry(key) {
                Some(entry) => RecordOutcome::Written(Version(entry.modify_index)),
                None => RecordOutcome::Failed(Failure::Unknown("Consul's answer lacks the key's index".into())),
            }),
            Transaction::RolledBack(errors) => Err(errors),
            Transaction::Failed(error) => Ok(RecordOutcome::Failed(failure(error))),
        }
    }
}

fn entries(listed: Vec<lictor_consul::Entry>) -> Vec<Entry> {
    listed.into_iter().map(Entry::from).collect()
}

/// Returns why a write was rolled back.
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
