//! The content of a session's object.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What tells one state of an object from every other: an ETag, a generation, a `resourceVersion`. Tags have no order.
pub type ObjectTag = String;

/// The content of a session's object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionObject {
    /// The session's ID, which no other session ever has.
    pub id: String,
    /// The installation whose replicas renew the session.
    pub installation: String,
    /// The process that wrote this state.
    pub writer: String,
    /// The number of renewals, which makes each state another one.
    pub renewals: u64,
    /// How long the others wait for the next renewal.
    pub ttl_milliseconds: u64,
    /// Whether the session has ended. An ended session never comes back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
}

impl SessionObject {
    /// How long the others wait for the next renewal.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_milliseconds)
    }

    /// The state that stands for a session whose object a person has deleted. The others count its TTL from a state of its own (B5), because an
    /// object may be absent, be made, and be absent again while nobody looks.
    pub fn vacant(writer: &str, number: u64, ttl: Duration) -> Self {
        Self {
            id: String::new(),
            installation: String::new(),
            writer: writer.to_owned(),
            renewals: number,
            ttl_milliseconds: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            ended: false,
        }
    }

    /// Whether this state shows that the session of an ID has ended.
    pub fn shows_the_end_of(&self, id: &str) -> bool {
        !self.is_vacant() && (self.ended || self.id != id)
    }

    /// Whether this state stands for a session whose object was deleted.
    pub fn is_vacant(&self) -> bool {
        self.id.is_empty() && !self.ended
    }

    /// The state that ends this session.
    #[must_use]
    pub fn ended_by(&self, writer: &str) -> Self {
        Self { writer: writer.to_owned(), ended: true, ..self.clone() }
    }
}

/// The session that a lock names as its holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockSession {
    /// The cluster whose session it is.
    pub cluster: String,
    /// The session's ID.
    pub id: String,
}
