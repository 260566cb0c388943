//! A key of a store that clusters share, and how lictor writes and reads what is in it.

use std::collections::BTreeMap;

use lictor_consul::LOCK_FLAGS;
use lictor_core::{Holder, Record, Uid, Version};
use serde::{Deserialize, Serialize};

/// A key of a store, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// Whether the key is marked as a lock, which a plain write by a person undoes.
    pub is_lock: bool,
    /// The session that holds the key, as far as the store knows.
    pub session: Option<String>,
    /// What tells the key from an earlier one of its name.
    pub created: u64,
    /// The version, which rises with each change of the key or of its holder.
    pub version: Version,
}

impl From<lictor_consul::Entry> for Entry {
    fn from(entry: lictor_consul::Entry) -> Self {
        let lictor_consul::Entry { key, value, flags, session, lock_index: _, create_index, modify_index } = entry;
        let (is_lock, version) = (flags == LOCK_FLAGS, Version(modify_index));
        Self { key, value, is_lock, session, created: create_index, version }
    }
}

/// The end of the record's key, where the lock's key holds only the leader's name.
const BESIDE: &str = "/record";

/// The text between a lock's key and the name of the cluster that bids for it. Neither contains this text.
const BIDS: &str = "/.bid/";

/// The place of the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// In the lock's key.
    #[default]
    Record,
    /// In a second key. The lock's key holds the leader's name.
    LeaderName,
}

/// A record as people and other clusters find it, with all the names that together make it unique.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// The writer of the record: a cluster, or an agent.
    pub cluster: String,
    /// The installation of that cluster that wrote the record. Absent if an agent wrote it, or if another cluster gave it with the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installation: Option<String>,
    /// The election's namespace, empty for an agent.
    pub namespace: String,
    /// The election's name, or an agent's key.
    pub name: String,
    /// The record.
    #[serde(flatten)]
    pub record: Record,
}

impl Content {
    /// Returns the content of a lock in a listing, whatever its layout is, for programs that only read. `None` if lictor has not written
    /// it.
    pub fn of(entries: &[Entry], key: &str) -> Option<Self> {
        let lock = find(entries, key)?;
        let (content, _) = Layout::default().content_of(lock, Layout::found_beside(entries, key))?;
        Some(Self { record: content.record.at(lock.version), ..content })
    }
}

impl Layout {
    /// Returns whether a key is that of a lock, and not one beside it.
    pub fn is_lock(self, name: &str) -> bool {
        self.lock_of(name) == name && bid_of(name).is_none()
    }

    /// Returns the record's key, if it is not the lock's key.
    pub fn beside(self, name: &str) -> Option<String> {
        match self {
            Self::Record => None,
            Self::LeaderName => Some(format!("{name}{BESIDE}")),
        }
    }

    /// Returns the lock's key that a key belongs to: the key itself, or the one whose record it holds.
    pub fn lock_of(self, name: &str) -> &str {
        match self {
            Self::Record => name,
            Self::LeaderName => name.strip_suffix(BESIDE).unwrap_or(name),
        }
    }

    /// Returns the value of the lock's key.
    pub fn value(self, json: &[u8], cluster: &str, record: &Record) -> Vec<u8> {
        match self {
            Self::Record => json.to_vec(),
            Self::LeaderName => match &record.holder {
                // The cluster itself leads.
                Some(Holder { pod: None, .. }) => cluster.into(),
                Some(Holder { pod: Some(pod), .. }) => pod.as_str().into(),
                None => Vec::new(),
            },
        }
    }

    /// Returns the locks of a listing by the elections that wrote them, in whichever cluster these are.
    pub fn by_election(self, entries: &[Entry]) -> BTreeMap<Uid, Vec<String>> {
        let mut locks: BTreeMap<Uid, Vec<String>> = BTreeMap::new();
        for lock in entries.iter().filter(|entry| self.is_lock(&entry.key)) {
            let beside = self.beside(&lock.key);
            if let Some(content) = self.content(lock, beside.as_deref().and_then(|beside| find(entries, beside))) {
                locks.entry(content.record.election).or_default().push(lock.key.clone());
            }
        }
        locks
    }

    /// Returns the entry that may be a record beside a lock's key.
    pub fn found_beside<'a>(entries: &'a [Entry], key: &str) -> Option<&'a Entry> {
        find(entries, &Self::LeaderName.beside(key)?)
    }

    /// Returns the content of a lock, in this layout or in the other one, and whether it is in the other one, because another cluster's
    /// class may have another `record` by mistake. `beside` is the entry that may be its record.
    pub fn content_of(self, lock: &Entry, beside: Option<&Entry>) -> Option<(Content, bool)> {
        let other = match self {
            Self::Record => Self::LeaderName,
            Self::LeaderName => Self::Record,
        };
        let own = self.content(lock, beside).map(|content| (content, false));
        own.or_else(|| Some((other.content(lock, beside)?, true)))
    }

    /// Returns the content of a lock in this layout.
    pub fn content(self, lock: &Entry, beside: Option<&Entry>) -> Option<Content> {
        let content = match self {
            Self::Record => serde_json::from_slice(&lock.value).ok(),
            Self::LeaderName => {
                let beside = beside?;
                let content: Content = serde_json::from_slice(&beside.value).ok()?;
                // One transaction writes both keys. A lock that has lost its session since has a later index and its old value.
                let together = beside.version == lock.version || lock.session.is_none();
                (together && lock.value == self.value(&[], &content.cluster, &content.record)).then_some(content)
            }
        };
        // A person wrote such a term by hand. If lictor believed it, the terms of this cluster could no longer rise.
        content.filter(|content| content.record.term.is_credible(true))
    }
}

/// Returns the key of a cluster's bid for a lock.
pub fn bid_key(lock: &str, cluster: &str) -> String {
    format!("{lock}{BIDS}{cluster}")
}

/// Returns the lock's key and the cluster, if a key is one of a bid.
pub fn bid_of(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once(BIDS)
}

/// Returns the entry of a key in a listing, which is sorted by keys.
pub fn find<'a>(entries: &'a [Entry], name: &str) -> Option<&'a Entry> {
    entries.binary_search_by(|entry| entry.key.as_str().cmp(name)).ok().map(|at| &entries[at])
}
