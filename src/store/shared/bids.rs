//! Bids, and the handover of a lock to another cluster: C11 and C12 of docs/protocol.md.
//!
//! A bid is in a key beside the lock's, which the bidder's session holds. So the bid ends with its session: no session holds the key then,
//! and the key has another version.

use lictor_core::{Bid, Failure, Key, PlacedBid, Record, RecordOutcome, Version};
use lictor_locks::{Content, Entry, bid_key, find};

use super::content::{BidContent, json};
use super::keys::{Gift, Hold};
use super::store::SharedStore;
use crate::store::Owner;

impl SharedStore {
    /// Writes this cluster's bid. Only this cluster writes that key, and the holder of the lock deletes it.
    pub(super) async fn place_bid(&self, key: &Key, owner: &Owner, bid: &Bid) -> Result<RecordOutcome, Failure> {
        let (session, cluster) = (self.session_for(key)?, self.parameters.cluster.clone());
        let name = bid_key(&key.name, &cluster);
        let content =
            BidContent { cluster, namespace: owner.namespace.clone(), name: owner.name.clone(), bid: bid.clone() };
        let value = json(&content)?;
        let present = self.keys.read(&name).await?;
        Ok(self.hold(&name, value, session, present).await)
    }

    /// Writes a key that only this cluster writes, and lets this cluster's session hold it, unless the key has changed.
    pub(super) async fn hold(
        &self,
        key: &str,
        value: Vec<u8>,
        session: String,
        present: Option<Entry>,
    ) -> RecordOutcome {
        let expected = present.map(|entry| entry.version);
        self.keys.hold(Hold { key, expected, value, beside: None, session, own: &self.own() }).await
    }

    /// Deletes a bid, unless it has changed.
    pub(super) async fn take_bid_away(&self, key: &Key, cluster: &str, version: Version) -> RecordOutcome {
        self.keys.delete(&[(bid_key(&key.name, cluster), version)]).await
    }

    /// C11: hands the lock to the session that holds the bid. It fails if the lock or the bid has changed, or if that session has ended.
    pub(super) async fn hand_over(
        &self,
        key: &Key,
        version: Version,
        to: &PlacedBid,
        record: &Record,
    ) -> Result<RecordOutcome, Failure> {
        let Some(theirs) = to.session.clone() else { return Ok(RecordOutcome::Conflict) };
        let entries = self.keys.list(&key.name).await?;
        let lock = find(&entries, &key.name).filter(|lock| lock.version == version && self.holds(lock));
        let Some(lock) = lock else { return Ok(RecordOutcome::Conflict) };
        let layout = self.parameters.layout;
        let PlacedBid { cluster, namespace, name, .. } = to.clone();
        let content = Content { cluster, installation: None, namespace, name, record: record.clone() };
        let json = json(&content)?;
        let value = layout.value(&json, &content.cluster, record);
        let beside = layout.beside(&key.name).map(|key| (key, json));
        let bid = (bid_key(&key.name, &to.cluster), to.version);
        Ok(self.keys.give(Gift { lock, value, beside, bid, session: theirs }).await)
    }

    fn holds(&self, lock: &Entry) -> bool {
        lock.session.as_ref().is_some_and(|session| self.own().contains(session))
    }
}
