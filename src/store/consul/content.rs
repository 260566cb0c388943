//! The content of a lock's key: how lictor writes and reads it.

use std::collections::BTreeMap;

use lictor_consul::{Entry, LOCK_FLAGS};
use lictor_core::{Bid, DrainObligation, Holder, Key, PlacedBid, Record, Rival, Stored, Term, Uid, Version};
use serde::{Deserialize, Serialize};

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
        Some(Self { record: content.record.at(Version(lock.modify_index)), ..content })
    }
}

/// C16: a key that had a record of lictor's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The index at which the key was created. A later key of the same name has another one.
    pub(super) created: u64,
    /// The session that held the key with that record.
    pub(super) session: Option<String>,
    /// The drain obligation of the holder's workloads.
    pub(super) obligation: Option<DrainObligation>,
}

impl Known {
    /// Returns the drain obligation that the last seen holder may have left. Its later writes are unknown.
    pub(super) fn obligation(&self) -> Option<DrainObligation> {
        self.obligation.clone().map(|known| DrainObligation {
            wind_down_seconds: known.wind_down_seconds.max(known.waits_seconds),
            waits_seconds: 0,
            ended: false,
            ..known
        })
    }

    /// Returns the same obligation, if this session still holds the key.
    pub(super) fn obligation_of(&self, session: &str) -> Option<DrainObligation> {
        self.obligation().filter(|_| self.session.as_deref() == Some(session))
    }
}

/// The writer of records: the lictor of a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer<'a> {
    pub(super) cluster: &'a str,
    /// The installation, because two clusters may have the same name by mistake.
    pub(super) installation: &'a str,
}

impl Writer<'_> {
    /// C14: returns whether this writer wrote a record.
    pub(super) fn wrote(self, content: &Content) -> bool {
        content.cluster == self.cluster && content.installation.as_deref().is_none_or(|by| by == self.installation)
    }
}

/// A bid as other clusters find it, with all the names that together make it unique.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BidContent {
    pub(super) cluster: String,
    pub(super) namespace: String,
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) bid: Bid,
}

/// Returns the key of a cluster's bid for a lock.
pub(super) fn bid_key(lock: &str, cluster: &str) -> String {
    format!("{lock}{BIDS}{cluster}")
}

/// Returns the lock's key and the cluster, if a key is one of a bid.
fn bid_of(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once(BIDS)
}

/// Returns all bids in a listing, by the lock's key. Content that a person has written there is no bid.
pub(super) fn bids(entries: &[Entry]) -> BTreeMap<String, Vec<PlacedBid>> {
    let mut found: BTreeMap<String, Vec<PlacedBid>> = BTreeMap::new();
    for entry in entries {
        let Some((lock, of)) = bid_of(&entry.key) else { continue };
        let Ok(BidContent { cluster, namespace, name, bid }) = serde_json::from_slice(&entry.value) else { continue };
        if cluster == of && bid.record.term.is_credible(true) {
            let (version, session) = (Version(entry.modify_index), entry.session.clone());
            let placed = PlacedBid { cluster, namespace, name, version, session, bid };
            found.entry(lock.to_owned()).or_default().push(placed);
        }
    }
    found
}

impl Layout {
    /// Returns whether a key is that of a lock, and not one beside it.
    pub(super) fn is_lock(self, name: &str) -> bool {
        self.lock_of(name) == name && bid_of(name).is_none()
    }

    /// Returns the record's key, if it is not the lock's key.
    pub(super) fn beside(self, name: &str) -> Option<String> {
        match self {
            Self::Record => None,
            Self::LeaderName => Some(format!("{name}{BESIDE}")),
        }
    }

    /// Returns the lock's key that a key belongs to: the key itself, or the one whose record it holds.
    pub(super) fn lock_of(self, name: &str) -> &str {
        match self {
            Self::Record => name,
            Self::LeaderName => name.strip_suffix(BESIDE).unwrap_or(name),
        }
    }

    /// Returns the value of the lock's key.
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

    /// Returns the locks of a listing by the elections that wrote them, in whichever cluster these are.
    pub(super) fn by_election(self, entries: &[Entry]) -> BTreeMap<Uid, Vec<String>> {
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
    pub(super) fn found_beside<'a>(entries: &'a [Entry], key: &str) -> Option<&'a Entry> {
        find(entries, &Self::LeaderName.beside(key)?)
    }

    /// Returns the content of a lock, in this layout or in the other one, and whether it is in the other one, because another cluster's
    /// class may have another `record` by mistake. `beside` is the entry that may be its record.
    pub(super) fn content_of(self, lock: &Entry, beside: Option<&Entry>) -> Option<(Content, bool)> {
        let other = match self {
            Self::Record => Self::LeaderName,
            Self::LeaderName => Self::Record,
        };
        let own = self.content(lock, beside).map(|content| (content, false));
        own.or_else(|| Some((other.content(lock, beside)?, true)))
    }

    /// Returns the state of a lock. `beside` is the entry that may be its record, in either layout. `known` is the knowledge of its key,
    /// and `own` are the sessions of this cluster. `describe` describes a session for a person.
    pub(super) fn stored(
        self,
        lock: Option<&Entry>,
        beside: Option<&Entry>,
        known: Option<&Known>,
        writer: Writer<'_>,
        own: &[String],
        describe: impl Fn(&str) -> String,
    ) -> Stored {
        let Some(lock) = lock else { return Stored::Absent };
        let version = Version(lock.modify_index);
        let content = self.content_of(lock, beside);
        match &lock.session {
            Some(session) if own.contains(session) => match content {
                Some((content, false)) if lock.flags == LOCK_FLAGS => Stored::Ours(version, content.record.at(version)),
                // The key's index is higher than every term that the lock had.
                _ => Stored::Damaged(version, Term(i64::try_from(version.0).unwrap_or(i64::MAX))),
            },
            Some(session) => Stored::HeldByOther(
                version,
                match content {
                    Some((Content { cluster: holder, namespace, name, record, .. }, other_layout)) => {
                        let record = record.at(version);
                        Rival {
                            cluster: Some(holder),
                            term: record.term,
                            since: record.holder.is_some().then_some(record.since),
                            holder: record.holder,
                            session: session.clone(),
                            described: None,
                            drain_obligation: record.drain_obligation,
                            switchover: record.switchover,
                            offer: record.offer.filter(|offer| offer.cluster == writer.cluster),
                            election: if namespace.is_empty() { Default::default() } else { (namespace, name) },
                            other_layout,
                        }
                    }
                    None => Rival {
                        session: session.clone(),
                        described: Some(describe(session)),
                        drain_obligation: known.and_then(|known| known.obligation_of(session)),
                        ..Rival::default()
                    },
                },
            ),
            None => match content {
                Some((content, false)) if writer.wrote(&content) => {
                    Stored::Free(version, Some(content.record.at(version)), None)
                }
                Some((content, _)) => Stored::Free(version, None, content.record.drain_obligation),
                // C16: a person wrote to the key. Or a program that uses Consul's own library released it, which sets that library's flags.
                None if known.is_some() || lock.flags == LOCK_FLAGS => {
                    Stored::Free(version, None, known.and_then(Known::obligation))
                }
                None => Stored::Foreign(format!(
                    "the key {0} is not a lock, or not any more: a person or another program wrote it, its flags are {1}, and nobody holds it; \
                     if nobody needs it, `consul kv delete {0}`",
                    lock.key, lock.flags
                )),
            },
        }
    }

    pub(super) fn content(self, lock: &Entry, beside: Option<&Entry>) -> Option<Content> {
        let content = match self {
            Self::Record => serde_json::from_slice(&lock.value).ok(),
            Self::LeaderName => {
                let beside = beside?;
                let content: Content = serde_json::from_slice(&beside.value).ok()?;
                // One transaction writes both keys. A lock that has lost its session since has a later index and its old value.
                let together = beside.modify_index == lock.modify_index || lock.session.is_none();
                (together && lock.value == self.value(&[], &content.cluster, &content.record)).then_some(content)
            }
        };
        // A person wrote such a term by hand. If lictor believed it, the terms of this cluster could not rise any more.
        content.filter(|content| content.record.term.is_credible(true))
    }
}

/// Returns the entry of a key in a listing, which is sorted by keys.
pub(super) fn find<'a>(entries: &'a [Entry], name: &str) -> Option<&'a Entry> {
    entries.binary_search_by(|entry| entry.key.as_str().cmp(name)).ok().map(|at| &entries[at])
}

/// Returns the key of a lock in a store without namespaces.
pub(super) fn key(store: &lictor_core::StoreId, name: &str) -> Key {
    Key { store: store.clone(), namespace: String::new(), name: name.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// C14.
    #[test]
    fn a_record_of_another_installation_is_another_clusters_whatever_its_name() {
        let record = json!({
            "term": 5, "election": "e", "generation": 1, "since": 5, "operatorId": "op",
            "scope": {"selector": {}, "leader": {}, "follower": {}},
            "drainObligation": {"windDownSeconds": 30},
        });
        let shown = |installation: Option<&str>| {
            let mut content =
                json!({"cluster": "west", "installation": installation, "namespace": "shop", "name": "web"});
            content.as_object_mut().unwrap().extend(record.as_object().unwrap().clone());
            let entry = Entry {
                key: "lictor/shop/web".into(),
                value: serde_json::to_vec(&content).unwrap(),
                flags: LOCK_FLAGS,
                session: None,
                lock_index: 0,
                create_index: 1,
                modify_index: 7,
            };
            let writer = Writer { cluster: "west", installation: "a" };
            Layout::Record.stored(Some(&entry), None, None, writer, &[], str::to_owned)
        };
        for own in [Some("a"), None] {
            assert!(matches!(shown(own), Stored::Free(Version(7), Some(_), None)), "{own:?}");
        }
        assert!(matches!(shown(Some("b")), Stored::Free(Version(7), None, Some(_))), "its drain obligation holds here");
    }

    #[test]
    fn a_record_in_the_other_layout_is_another_clusters_and_is_read_all_the_same() {
        let record: Record = serde_json::from_value(json!({
            "term": 5, "election": "e", "generation": 1, "since": 5, "operatorId": "op",
            "holder": {"pod": "web-0", "uid": "u"}, "scope": {"selector": {}, "leader": {}, "follower": {}},
            "drainObligation": {"windDownSeconds": 30},
        }))
        .unwrap();
        let content = Content {
            cluster: "east".into(),
            installation: None,
            namespace: "shop".into(),
            name: "web".into(),
            record: record.clone(),
        };
        let json = serde_json::to_vec(&content).unwrap();
        let writer = Writer { cluster: "west", installation: "a" };
        for (here, there) in [(Layout::Record, Layout::LeaderName), (Layout::LeaderName, Layout::Record)] {
            for (session, own) in [(Some("s"), false), (Some("s"), true), (None, false)] {
                let entry = |key: &str, value: Vec<u8>, flags, session: Option<&str>| Entry {
                    key: key.into(),
                    value,
                    flags,
                    session: session.map(str::to_owned),
                    lock_index: 0,
                    create_index: 1,
                    modify_index: 7,
                };
                let mut entries = vec![entry("p/web", there.value(&json, "east", &record), LOCK_FLAGS, session)];
                entries.extend(there.beside("p/web").map(|beside| entry(&beside, json.clone(), 0, None)));
                let sessions = if own { vec!["s".to_owned()] } else { vec![] };
                let beside = Layout::found_beside(&entries, "p/web");
                match here.stored(Some(&entries[0]), beside, None, writer, &sessions, str::to_owned) {
                    Stored::Damaged(..) if own => {}
                    Stored::HeldByOther(_, rival) if session.is_some() => {
                        assert!(rival.other_layout && rival.drain_obligation.is_some(), "{rival:?}");
                        assert_eq!((rival.cluster.as_deref(), rival.term), (Some("east"), Term(5)));
                        assert_eq!(rival.election, ("shop".into(), "web".into()));
                    }
                    Stored::Free(Version(7), None, Some(left)) => assert_eq!(left.wind_down_seconds, 30),
                    stored => panic!("{here:?} {session:?} {own}: {stored:?}"),
                }
            }
        }
    }
}
