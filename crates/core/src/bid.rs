//! The messages between two clusters before one hands the lock to the other: an offer, and a bid. The rules C11 to C13 of docs/protocol.md.

use serde::{Deserialize, Serialize};

use super::{Record, Uid, Version};

/// The answer of the cluster that is to lead. It is in a key of its own, which that cluster's session holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bid {
    /// The Switchover of the offer that this bid answers.
    pub switchover: Uid,
    /// C12: the version of the record that this bid answers. Each later record needs a new answer.
    pub saw: Version,
    /// Whether this cluster could lead now: a candidate is eligible, there is no leader here, and no workload runs here.
    pub eligible: bool,
    /// The record that the lock should have when this cluster gets it: for its own election and spec, and without a leader. Its term is the
    /// highest that this cluster has seen.
    pub record: Record,
}

/// A bid as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedBid {
    /// The cluster that made the bid.
    pub cluster: String,
    /// The election's namespace there.
    pub namespace: String,
    /// The election's name there.
    pub name: String,
    /// The version of the bid's key.
    pub version: Version,
    /// The session that holds the bid's key, and is to hold the lock. `None` if it has ended, and so has the bid.
    pub session: Option<String>,
    /// The bid's content.
    pub bid: Bid,
}
