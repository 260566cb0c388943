//! The news of a source.

use lictor_core::{Instant, Timestamp, Version};
use serde::{Deserialize, Serialize};

/// The role of a pod or a cluster in the election.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// There was no news yet, or none for too long.
    #[default]
    Unknown,
    /// The pod or cluster does not lead.
    Follower,
    /// The pod or cluster leads.
    Leader,
}

/// The leader, as far as the source knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// The name of the pod; of the cluster, if the cluster leads; or of another program, as that calls itself.
    pub name: String,
    /// The pod; `None` if the cluster itself leads, or a program other than lictor.
    pub pod: Option<String>,
    /// The pod's uid.
    pub uid: Option<String>,
    /// The cluster, if several share the lock.
    pub cluster: Option<String>,
    /// The pod's node.
    pub node: Option<String>,
    /// The leader's address.
    pub address: Option<String>,
}

/// The state of the election, according to a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fact {
    /// The role of this pod.
    pub role: Role,
    /// The leader; `None` if there is none, or the source does not know it.
    pub leader: Option<Leader>,
    /// The term; `None` if the source does not know it.
    pub term: Option<i64>,
    /// When the leader began to lead, by the clock of its elector, for people.
    pub since: Option<Timestamp>,
    /// An oddity of this state, for people.
    pub note: Option<String>,
    /// Whether the election does not exist.
    pub missing: bool,
    /// Until when the source vouches for the role, however old the news is, because the holder of a lock knows this. `None` if it does
    /// not.
    pub until: Option<Instant>,
}

/// News from a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The answer to a question that was sent at this moment. The answer shows everything that had happened by then.
    Confirmed {
        /// When the question was sent.
        sent: Instant,
        /// The version of the answer.
        version: Version,
        /// The answer.
        fact: Fact,
    },
    /// A change that the source reported by itself, at some time after the change.
    Changed {
        /// The version of the change.
        version: Version,
        /// The state after the change.
        fact: Fact,
    },
    /// The versions have gone back, because the store was restored to an earlier state.
    Rewound,
    /// The source can't be reached at present. The text is for people.
    Failed(String),
}
