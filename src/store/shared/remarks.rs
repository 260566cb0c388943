//! Remarks: what a cluster that does not lead tells the one that does.

use lictor_core::{Failure, Key, RecordOutcome, Term};
use lictor_locks::bid_key;

use super::content::{BidContent, json};
use super::store::SharedStore;
use crate::store::{Difference, Remark};

impl SharedStore {
    /// Writes or deletes this cluster's remark. A bid that stands there stays.
    pub(super) async fn place_remark(&self, key: &Key, remark: Option<(Term, Difference)>) -> Result<(), Failure> {
        let cluster = self.parameters.cluster.clone();
        let name = bid_key(&key.name, &cluster);
        let present = self.keys.read(&name).await?;
        let outcome = match (remark, present) {
            (_, Some(entry))
                if serde_json::from_slice::<BidContent>(&entry.value).is_ok() && entry.session.is_some() =>
            {
                return Ok(());
            }
            (Some((term, difference)), present) => {
                let value = json(&Remark { cluster, term, difference })?;
                self.hold(&name, value, self.session_for(key)?, present).await
            }
            (None, None) => return Ok(()),
            (None, Some(entry)) => self.take_bid_away(key, &cluster, entry.version).await,
        };
        match outcome {
            RecordOutcome::Failed(failure) => Err(failure),
            // The watch is about to show a change.
            RecordOutcome::Written(_) | RecordOutcome::Conflict | RecordOutcome::Delayed => Ok(()),
        }
    }
}
