//! The object of a key.

use lictor_core::LockSession;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The highest version that lictor believes. A person wrote any higher one by hand, and it would soon leave none.
pub(super) const HIGHEST: u64 = 1 << 53;

/// The content of a key's object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyObject {
    /// A number that rises with each write, and over a deletion. Tags have no order, so the order is in the content.
    pub version: u64,
    /// The version with which the key was created.
    pub created: u64,
    /// The session that holds the key. It may have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<LockSession>,
    /// The value. Absent if the key was deleted: the object stays, because a write that expects an earlier version may still arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

impl KeyObject {
    /// Reads an object's content: `None` if somebody else has written it.
    pub(super) fn read(content: &[u8]) -> Option<Self> {
        serde_json::from_slice(content).ok().filter(|object: &Self| object.version <= HIGHEST)
    }

    /// Returns the object's content.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Returns how [`Entry::session`](crate::Entry::session) names a session.
pub(super) fn name_of(session: &LockSession) -> String {
    format!("{}/{}", session.cluster, session.id)
}

/// Returns the session of a name.
pub(super) fn session_of(name: &str) -> Option<LockSession> {
    let (cluster, id) = name.split_once('/')?;
    Some(LockSession { cluster: cluster.to_owned(), id: id.to_owned() })
}
