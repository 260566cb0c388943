//! What a source tells.

use lictor_core::{Instant, Timestamp, Version};
use serde::{Deserialize, Serialize};

/// What a pod, or a cluster, is in the election.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Nothing was heard yet, or not for too long.
    #[default]
    Unknown,
    /// It does not lead.
    Follower,
    /// It leads.
    Leader,
}

/// The leader, as far as the source knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// The name of the pod; of the cluster, if that itself leads; of another program, as it calls itself.
    pub name: String,
    /// The pod. None: the cluster itself leads, or a program that is not lictor.
    pub pod: Option<String>,
    /// The pod's uid.
    pub uid: Option<String>,
    /// The cluster, where several share the lock.
    pub cluster: Option<String>,
    /// The pod's node.
    pub node: Option<String>,
    /// Where it is reached.
    pub address: Option<String>,
}

/// What a source says of the election.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fact {
    /// What this pod is.
    pub role: Role,
    /// The leader. None: nobody leads, or the source does not know who.
    pub leader: Option<Leader>,
    /// The term. None: the source does not know it.
    pub term: Option<i64>,
    /// Since when the leader leads, by the clock of whoever elected it: for people.
    pub since: Option<Timestamp>,
    /// What is odd about it, for people.
    pub note: Option<String>,
    /// There is no such election.
    pub missing: bool,
    /// Until when the source answers for the role itself, however long ago it was heard: who holds a lock knows that. None: it does not.
    pub until: Option<Instant>,
}

/// What comes from a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The answer to a question that was sent at this moment. It shows all that had happened by then.
    Confirmed {
        /// When the question was sent.
        sent: Instant,
        /// The version of what was answered.
        version: Version,
        /// What was answered.
        fact: Fact,
    },
    /// A change that the source told by itself, at some time after it has happened.
    Changed {
        /// The version of what was told.
        version: Version,
        /// What was told.
        fact: Fact,
    },
    /// The versions have gone back, because the store was put back to an earlier state.
    Rewound,
    /// The source can't be asked at present. The text is for people.
    Failed(String),
}
