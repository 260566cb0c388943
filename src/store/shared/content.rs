//! What a lock's key tells the operator of a cluster. [`Content`] is what lictor writes there.

use std::collections::BTreeMap;

use lictor_core::{Bid, DrainObligation, Failure, Key, PlacedBid, Rival, Stored, Term};
use lictor_locks::{Content, Entry, Layout, bid_of};
use serde::{Deserialize, Serialize};

use crate::store::Remark;

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

    /// Returns the state of a lock whose class has this layout. `beside` is the entry that may be its record, in either layout. `known` is
    /// the knowledge of its key, and `own` are the sessions of this cluster. `describe` describes a session for a person.
    pub(super) fn stored(
        self,
        layout: Layout,
        lock: Option<&Entry>,
        beside: Option<&Entry>,
        known: Option<&Known>,
        own: &[String],
        describe: impl Fn(&str) -> String,
    ) -> Stored {
        let Some(lock) = lock else { return Stored::Absent };
        let version = lock.version;
        let content = layout.content_of(lock, beside);
        match &lock.session {
            Some(session) if own.contains(session) => match content {
                // A cluster with the other layout may have given this one the lock (C11), without a leader.
                Some((Content { record, .. }, other_layout))
                    if lock.is_lock && !(other_layout && record.holder.is_some()) =>
                {
                    Stored::Ours(version, record.at(version))
                }
                // The key's index is higher than every term that the lock had.
                _ => Stored::Damaged(version, Term(i64::try_from(version.0).unwrap_or(i64::MAX))),
            },
            Some(session) => Stored::HeldByOther(
                version,
                match content {
                    Some((Content { cluster: holder, installation, namespace, name, record }, other_layout)) => {
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
                            offer: record.offer.filter(|offer| offer.cluster == self.cluster),
                            election: if namespace.is_empty() { Default::default() } else { (namespace, name) },
                            other_layout,
                            given: installation.is_none(),
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
                Some((content, false)) if self.wrote(&content) => {
                    Stored::Free(version, Some(content.record.at(version)), None)
                }
                Some((content, _)) => Stored::Free(version, None, content.record.drain_obligation),
                // C16: a person wrote to the key. Or a program that uses Consul's own library released it, which sets that library's flags.
                None if known.is_some() || lock.is_lock => {
                    Stored::Free(version, None, known.and_then(Known::obligation))
                }
                None => Stored::Foreign(format!(
                    "the key {} is not a lock, or no longer one: a person or another program wrote it, and no session \
                     holds it",
                    lock.key
                )),
            },
        }
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

/// Returns all bids in a listing, by the lock's key. Content that a person has written there is no bid.
pub(super) fn bids(entries: &[Entry]) -> BTreeMap<String, Vec<PlacedBid>> {
    let mut found: BTreeMap<String, Vec<PlacedBid>> = BTreeMap::new();
    for entry in entries {
        let Some((lock, of)) = bid_of(&entry.key) else { continue };
        let Ok(BidContent { cluster, namespace, name, bid }) = serde_json::from_slice(&entry.value) else { continue };
        if cluster == of && bid.record.term.is_credible(true) {
            let (version, session) = (entry.version, entry.session.clone());
            let placed = PlacedBid { cluster, namespace, name, version, session, bid };
            found.entry(lock.to_owned()).or_default().push(placed);
        }
    }
    found
}

/// Returns all remarks in a listing, by the lock's key. They stand in the place of bids, and end with their cluster's session.
pub(super) fn remarks(entries: &[Entry]) -> BTreeMap<String, Vec<Remark>> {
    let mut found: BTreeMap<String, Vec<Remark>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.session.is_some()) {
        let Some((lock, of)) = bid_of(&entry.key) else { continue };
        let remark = serde_json::from_slice(&entry.value).ok().filter(|remark: &Remark| remark.cluster == of);
        if let Some(remark) = remark {
            found.entry(lock.to_owned()).or_default().push(remark);
        }
    }
    found
}

/// Returns the JSON of what is written under a key.
pub(super) fn json(content: &impl Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(content).map_err(|error| Failure::Refused(format!("a record can't be written as JSON: {error}")))
}

/// Returns the key of a lock in a store without namespaces.
pub(super) fn key(store: &lictor_core::StoreId, name: &str) -> Key {
    Key { store: store.clone(), namespace: String::new(), name: name.into() }
}

#[cfg(test)]
mod tests {
    use lictor_core::{Record, Version};
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
                is_lock: true,
                session: None,
                created: 1,
                version: Version(7),
            };
            let writer = Writer { cluster: "west", installation: "a" };
            writer.stored(Layout::Record, Some(&entry), None, None, &[], str::to_owned)
        };
        for own in [Some("a"), None] {
            assert!(matches!(shown(own), Stored::Free(Version(7), Some(_), None)), "{own:?}");
        }
        assert!(matches!(shown(Some("b")), Stored::Free(Version(7), None, Some(_))), "its drain obligation holds here");
    }

    /// C11.
    #[test]
    fn a_lock_that_a_cluster_with_the_other_layout_gave_is_this_clusters() {
        let record: Record = serde_json::from_value(json!({
            "term": 5, "election": "e", "generation": 1, "since": 5, "operatorId": "op",
            "scope": {"selector": {}, "leader": {}, "follower": {}}, "drainObligation": {"windDownSeconds": 30},
        }))
        .unwrap();
        let (cluster, namespace, name) = ("west".to_owned(), "shop".to_owned(), "web".to_owned());
        let json =
            serde_json::to_vec(&Content { cluster, installation: None, namespace, name, record: record.clone() })
                .unwrap();
        for (here, there) in [(Layout::Record, Layout::LeaderName), (Layout::LeaderName, Layout::Record)] {
            let entry = |key: String, value, session: Option<&str>| Entry {
                key,
                value,
                is_lock: true,
                session: session.map(str::to_owned),
                created: 1,
                version: Version(7),
            };
            let lock = entry("p/web".into(), there.value(&json, "west", &record), Some("s"));
            let beside = there.beside("p/web").map(|key| entry(key, json.clone(), None));
            let writer = Writer { cluster: "west", installation: "a" };
            let stored = writer.stored(here, Some(&lock), beside.as_ref(), None, &["s".to_owned()], str::to_owned);
            assert_eq!(stored, Stored::Ours(Version(7), record.clone().at(Version(7))), "{here:?}");
        }
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
                let entry = |key: &str, value: Vec<u8>, is_lock, session: Option<&str>| Entry {
                    key: key.into(),
                    value,
                    is_lock,
                    session: session.map(str::to_owned),
                    created: 1,
                    version: Version(7),
                };
                let mut entries = vec![entry("p/web", there.value(&json, "east", &record), true, session)];
                entries.extend(there.beside("p/web").map(|beside| entry(&beside, json.clone(), false, None)));
                let sessions = if own { vec!["s".to_owned()] } else { vec![] };
                let beside = Layout::found_beside(&entries, "p/web");
                match writer.stored(here, Some(&entries[0]), beside, None, &sessions, str::to_owned) {
                    // Only a person writes another cluster's leader under this cluster's session.
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
