//! The lock record of a group: the single truth about who leads it.

use serde::{Deserialize, Serialize};

use super::{Markings, Selector, Term, Timestamp, Uid, Version};

/// The record, as it is kept in the store. It is only ever written by compare-and-swap on the version last read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The present term, or the last one while there is no holder.
    pub term: Term,
    /// The leader; none while nobody could be elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// The operator replica that wrote it, unique for each start of a process.
    pub elector: String,
    /// Since when the holder leads, by the elector's clock: for people.
    pub since: Timestamp,
    /// The uid of the election that it was written for.
    pub election: Uid,
    /// The `metadata.generation` of the election that it was written for: an operator that sees an older one does not write.
    pub generation: i64,
    /// What was written on which pods under this record.
    pub scope: Scope,
    /// What was written under earlier records and is not cleaned up yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<Scope>,
}

impl Record {
    /// The markings of earlier specs that are not cleaned up yet.
    pub(super) fn former_markings(&self) -> Vec<Markings> {
        self.former.iter().map(|scope| scope.markings.clone()).collect()
    }
}

/// A pod that holds the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its name.
    pub pod: String,
    /// Its uid.
    pub uid: Uid,
    /// Its node, when it was elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its address, when it was elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

/// Which pods a spec concerns, and what it writes on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The candidates.
    pub selector: Selector,
    /// What is written on them.
    #[serde(flatten)]
    pub markings: Markings,
}

impl Scope {
    /// This selector and those of a record, each once.
    pub(super) fn selectors_with(&self, record: Option<&Record>) -> Vec<Selector> {
        let mut selectors = vec![self.selector.clone()];
        for Self { selector, .. } in
            record.into_iter().flat_map(|record| [&record.scope].into_iter().chain(&record.former))
        {
            if !selectors.contains(selector) {
                selectors.push(selector.clone());
            }
        }
        selectors
    }
}

/// What the store has under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Nothing.
    Absent,
    /// A record.
    Record(Version, Record),
    /// A record of this project that somebody edited: it names no holder that could be trusted. The term is a hint.
    Damaged(Version, Term),
    /// Something that this project did not write and must not touch; the text says what.
    Foreign(String),
}

impl Stored {
    /// The version, where there is one that can be replaced.
    pub fn version(&self) -> Option<Version> {
        match self {
            Self::Absent | Self::Foreign(_) => None,
            Self::Record(version, _) | Self::Damaged(version, _) => Some(*version),
        }
    }

    /// The record, where there is a sound one.
    pub fn record(&self) -> Option<&Record> {
        match self {
            Self::Record(_, record) => Some(record),
            Self::Absent | Self::Damaged(..) | Self::Foreign(_) => None,
        }
    }
}
