//! Bids, and the handover of a lock to another cluster: C11 and C12 of docs/protocol.md.
//!
//! A bid is in a key beside the lock's, which the bidder's session holds. So Consul itself ends a bid when its session ends: no session
//! holds the key then, and it has another index.

use lictor_consul::{Entry, LOCK_FLAGS, OpError, TxnOp};
use lictor_core::{Bid, Failure, Key, PlacedBid, Record, RecordOutcome, Version};
use lictor_locks::consul::{Content, bid_key, failure, find};

use super::content::BidContent;
use super::locks::{ConsulStore, outcome_of};
use crate::store::Owner;

impl ConsulStore {
    /// Writes this cluster's bid. Only this cluster writes that key, and the holder of the lock deletes it.
    pub(super) async fn place_bid(&self, key: &Key, owner: &Owner, bid: &Bid) -> Result<RecordOutcome, Failure> {
        let (session, cluster) = (self.session_for(key)?, self.parameters.cluster.clone());
        let name = bid_key(&key.name, &cluster);
        let content =
            BidContent { cluster, namespace: owner.namespace.clone(), name: owner.name.clone(), bid: bid.clone() };
        let value = json(&content)?;
        let present = self.parameters.client.read_key(&name).await.map_err(failure)?;
        Ok(self.hold(&name, value, session, present).await)
    }

    /// Writes a key that only this cluster writes, and lets this cluster's session hold it, unless the key has changed.
    pub(super) async fn hold(
        &self,
        name: &str,
        value: Vec<u8>,
        session: String,
        present: Option<Entry>,
    ) -> RecordOutcome {
        let name = name.to_owned();
        let mut operations = vec![match &present {
            None => TxnOp::KvCheckNotExists { key: name.clone() },
            Some(entry) => TxnOp::KvCheckIndex { key: name.clone(), index: entry.modify_index },
        }];
        let held = present.and_then(|entry| entry.session).filter(|held| *held != session && self.own().contains(held));
        operations.extend(held.map(|held| TxnOp::KvUnlock {
            key: name.clone(),
            value: Vec::new(),
            flags: LOCK_FLAGS,
            session: held,
        }));
        operations.push(TxnOp::KvLock { key: name.clone(), value, flags: LOCK_FLAGS, session });
        self.transact(&name, &operations).await.unwrap_or_else(|errors| {
            if errors.iter().any(OpError::is_session) {
                self.parameters.suspicion.notify_one();
            }
            outcome_of(&errors)
        })
    }

    /// Deletes a bid, unless it has changed.
    pub(super) async fn take_bid_away(&self, key: &Key, cluster: &str, version: Version) -> RecordOutcome {
        let name = bid_key(&key.name, cluster);
        self.delete_at(&[TxnOp::KvDeleteCas { key: name, index: version.0 }], version).await
    }

    /// C11: hands the lock to the session that holds the bid, in one transaction. It fails if the lock or the bid has changed, or if that
    /// session has ended.
    pub(super) async fn hand_over(
        &self,
        key: &Key,
        version: Version,
        to: &PlacedBid,
        record: &Record,
    ) -> Result<RecordOutcome, Failure> {
        let Some(theirs) = to.session.clone() else { return Ok(RecordOutcome::Conflict) };
        let entries = self.entries(&key.name).await.map_err(failure)?;
        let lock = find(&entries, &key.name).filter(|lock| lock.modify_index == version.0);
        let Some(Entry { session: Some(session), .. }) = lock.filter(|lock| self.holds(lock)) else {
            return Ok(RecordOutcome::Conflict);
        };
        let layout = self.parameters.layout;
        let PlacedBid { cluster, namespace, name, .. } = to.clone();
        let content = Content { cluster, installation: None, namespace, name, record: record.clone() };
        let json = json(&content)?;
        let (name, bid) = (key.name.clone(), bid_key(&key.name, &to.cluster));
        let value = layout.value(&json, &content.cluster, record);
        let unlocked = (name.clone(), session.clone());
        let mut operations = vec![
            TxnOp::KvCheckIndex { key: name.clone(), index: version.0 },
            TxnOp::KvCheckIndex { key: bid.clone(), index: to.version.0 },
            TxnOp::KvUnlock { key: unlocked.0, value: Vec::new(), flags: LOCK_FLAGS, session: unlocked.1 },
            TxnOp::KvLock { key: name.clone(), value, flags: LOCK_FLAGS, session: theirs },
            TxnOp::KvDeleteCas { key: bid, index: to.version.0 },
        ];
        operations.extend(layout.beside(&name).map(|key| TxnOp::KvSet { key, value: json, flags: 0 }));
        Ok(self.transact(&name, &operations).await.unwrap_or_else(|errors| outcome_of(&errors)))
    }

    fn holds(&self, lock: &Entry) -> bool {
        lock.session.as_ref().is_some_and(|session| self.own().contains(session))
    }
}

pub(super) fn json(content: &impl serde::Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(content).map_err(|error| Failure::Refused(format!("a record can't be written as JSON: {error}")))
}
