//! What is written under a lock's key, and what is found there.

use lictor_consul::{Entry, LOCK_FLAGS};
use lictor_core::{Holder, Key, Record, Rival, Stored, Term, Version};
use serde::{Deserialize, Serialize};

/// Below a lock's key: the record, where the key itself holds only the leader's name.
const BESIDE: &str = "/record";

/// Where the record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// In the lock's key.
    #[default]
    Record,
    /// Beside it; the lock's key holds the leader's name.
    LeaderName,
}

/// A record as people and other clusters find it: with the names that are unique only together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Content {
    pub(super) cluster: String,
    pub(super) namespace: String,
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) record: Record,
}

impl Layout {
    /// The key beside a lock's key.
    pub(super) fn beside(self, name: &str) -> Option<String> {
        match self {
            Self::Record => None,
            Self::LeaderName => Some(format!("{name}{BESIDE}")),
        }
    }

    /// The lock's key that a key belongs to: itself, or the one that it is beside.
    pub(super) fn lock_of(self, name: &str) -> &str {
        match self {
            Self::Record => name,
            Self::LeaderName => name.strip_suffix(BESIDE).unwrap_or(name),
        }
    }

    /// What the lock's key holds.
    pub(super) fn value(self, json: &[u8], cluster: &str, record: &Record) -> Vec<u8> {
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

    /// What is found under a lock's key; `own`: the sessions of this cluster; `describe`: a session, for people.
    pub(super) fn stored(
        self,
        lock: Option<&Entry>,
        beside: Option<&Entry>,
        cluster: &str,
        own: &[String],
        describe: impl Fn(&str) -> String,
    ) -> Stored {
        let Some(lock) = lock else { return Stored::Absent };
        let version = Version(lock.modify_index);
        let content = self.content(lock, beside);
        match &lock.session {
            Some(session) if own.contains(session) => match content {
                Some(content) if lock.flags == LOCK_FLAGS => Stored::Record(version, content.record.at(version)),
                // Its index is above every term that it ever had.
                _ => Stored::Damaged(version, Term(i64::try_from(version.0).unwrap_or(i64::MAX))),
            },
            Some(session) => Stored::Held(
                version,
                match content {
                    Some(Content { cluster, record, .. }) => {
                        let record = record.at(version);
                        Rival {
                            cluster: Some(cluster),
                            term: record.term,
                            since: record.holder.is_some().then_some(record.since),
                            holder: record.holder,
                            session: session.clone(),
                            legacy: record.legacy,
                        }
                    }
                    None => Rival { session: describe(session), ..Rival::default() },
                },
            ),
            None => match content {
                Some(content) if content.cluster == cluster => {
                    Stored::Free(version, Some(content.record.at(version)), None)
                }
                Some(content) => Stored::Free(version, None, content.record.legacy),
                // Released by a program with Consul's own library, by its sign.
                None if lock.flags == LOCK_FLAGS => Stored::Free(version, None, None),
                None => Stored::Foreign(format!(
                    "the key {} was not made by lictor and is no lock (its flags are {}, and nobody holds it)",
                    lock.key, lock.flags
                )),
            },
        }
    }

    fn content(self, lock: &Entry, beside: Option<&Entry>) -> Option<Content> {
        let content = match self {
            Self::Record => serde_json::from_slice(&lock.value).ok(),
            Self::LeaderName => {
                let beside = beside?;
                let content: Content = serde_json::from_slice(&beside.value).ok()?;
                // Both are written in one transaction. A lock that lost its session since has a later index, and its old value.
                let together = beside.modify_index == lock.modify_index || lock.session.is_none();
                (together && lock.value == self.value(&[], &content.cluster, &content.record)).then_some(content)
            }
        };
        // Somebody wrote it by hand; the terms that this cluster gives would stop to rise.
        content.filter(|content| content.record.term.is_credible(true))
    }
}

/// The entry of a key in a listing, which is sorted by them.
pub(super) fn find<'a>(entries: &'a [Entry], name: &str) -> Option<&'a Entry> {
    entries.binary_search_by(|entry| entry.key.as_str().cmp(name)).ok().map(|at| &entries[at])
}

/// The key of a lock in a store that knows no namespaces.
pub(super) fn key(store: &lictor_core::StoreId, name: &str) -> Key {
    Key { store: store.clone(), namespace: String::new(), name: name.into() }
}
