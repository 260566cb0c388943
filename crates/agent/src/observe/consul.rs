//! The key of a lock in Consul.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, select, unfold};
use lictor_consul::Client;
use lictor_core::Version;
use lictor_locks::{Content, Entry};
use lictor_process::{monotonic, nap, nap_until};

use super::heard::{Fact, Heard, Leader};
use super::{Own, Role};

/// How long a blocking query waits.
const WAIT: Duration = Duration::from_secs(60);
/// The first pause of the watch after a failure, and the longest one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The longest value of a key that counts as a name.
const LONGEST_NAME: usize = 253;

/// Follows a key by blocking queries, which are quick, and by consistent reads every `every`, which show how old the knowledge is, because
/// a server that is cut off answers neither.
pub fn hear_key(client: &Client, key: &str, own: &Own, every: Duration) -> BoxStream<'static, Heard> {
    let reader = Reader { client: client.clone(), key: key.to_owned(), own: own.clone() };
    select(watch(reader.clone()), ask(reader, every)).boxed()
}

#[derive(Clone)]
struct Reader {
    client: Client,
    key: String,
    own: Own,
}

fn watch(reader: Reader) -> BoxStream<'static, Heard> {
    let watched = unfold((reader, 0, Duration::ZERO), |(reader, index, pause)| async move {
        nap(pause).await;
        let (heard, index, pause) = match reader.client.wait(&reader.key, index, WAIT).await {
            Ok((0, _)) => (Heard::Rewound, 0, Duration::ZERO),
            Ok((next, entries)) => {
                (Heard::Changed { version: Version(next), fact: reader.fact(entries) }, next, Duration::ZERO)
            }
            // The next server to answer may have lost its data, and would otherwise wait until its indexes reach this one.
            Err(error) => (Heard::Failed(error.to_string()), 0, (pause * 2).clamp(PAUSE.0, PAUSE.1)),
        };
        Some((heard, (reader, index, pause)))
    });
    watched.boxed()
}

/// Reads the key now and then every `every`; sooner after a failure.
fn ask(reader: Reader, every: Duration) -> BoxStream<'static, Heard> {
    let asked = unfold((reader, monotonic()), move |(reader, next)| async move {
        nap_until(next).await;
        let sent = monotonic();
        let (heard, pause) = match reader.client.list(&reader.key).await {
            Ok((index, entries)) => {
                (Heard::Confirmed { sent, version: Version(index), fact: reader.fact(entries) }, every)
            }
            Err(error) => (Heard::Failed(error.to_string()), every.min(Duration::from_secs(1))),
        };
        Some((heard, (reader, sent + pause)))
    });
    asked.boxed()
}

impl Reader {
    fn fact(&self, entries: Vec<lictor_consul::Entry>) -> Fact {
        let entries: Vec<Entry> = entries.into_iter().map(Entry::from).collect();
        fact(&self.key, &self.own, &entries)
    }
}

/// Returns the meaning of the entries below the key.
fn fact(key: &str, own: &Own, entries: &[Entry]) -> Fact {
    let Some(lock) = entries.iter().find(|entry| entry.key == key) else {
        let note = format!("there is no key {key}, or the token may not read it");
        return Fact { role: Role::Follower, note: Some(note), ..Fact::default() };
    };
    let content = Content::of(entries, key);
    let term = content.as_ref().map(|content| content.record.term.0);
    let Some(session) = &lock.session else { return Fact { role: Role::Follower, term, ..Fact::default() } };
    let (leader, since) = match content {
        Some(Content { cluster, record, .. }) => {
            let since = record.holder.is_some().then_some(record.since);
            let leader = record.holder.map(|holder| Leader {
                name: holder.pod.clone().unwrap_or_else(|| cluster.clone()),
                uid: holder.pod.is_some().then_some(holder.uid.0),
                pod: holder.pod,
                cluster: Some(cluster),
                node: holder.node,
                address: holder.ip,
            });
            (leader, since)
        }
        None => (Some(Leader { name: name(lock).unwrap_or_else(|| session.clone()), ..Leader::default() }), None),
    };
    Fact { role: own.role(leader.as_ref()), leader, term, since, ..Fact::default() }
}

/// Returns the name that another program has written into its lock, if the value looks like a name.
fn name(lock: &Entry) -> Option<String> {
    let text = std::str::from_utf8(&lock.value).ok()?.trim();
    let fits = !text.is_empty() && text.len() <= LONGEST_NAME && !text.contains(char::is_control);
    fits.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(own: &str, entries: &[Entry]) -> Fact {
        fact("a/leader", &Own { pod: own.into(), ..Own::default() }, entries)
    }

    fn entry(key: &str, value: &str, session: Option<&str>, index: u64) -> Entry {
        Entry {
            key: key.into(),
            value: value.into(),
            is_lock: true,
            session: session.map(Into::into),
            created: 1,
            version: Version(index),
        }
    }

    const RECORD: &str = r#"{"cluster":"west","namespace":"shop","name":"web","term":3,"termByVersion":true,
        "holder":{"pod":"web-1","uid":"u1","node":"n","ip":"10.0.0.1"},"operatorId":"o","since":1767225600000,"election":"e",
        "generation":1,"scope":{"selector":{},"leader":{},"follower":{}}}"#;

    #[test]
    fn the_key_says_who_leads() {
        let fact = |entries: &[Entry]| told("web-1", entries);
        let told = fact(&[entry("a/leader", RECORD, Some("s"), 12)]);
        assert_eq!((told.role, told.term), (Role::Leader, Some(12)), "the term is the key's index: {told:?}");
        let leader = told.leader.unwrap();
        assert_eq!((leader.cluster.as_deref(), leader.address.as_deref()), (Some("west"), Some("10.0.0.1")));
        // The session is gone, so the lock has no holder, whatever its value says.
        let told = fact(&[entry("a/leader", RECORD, None, 13)]);
        assert_eq!((told.role, told.leader, told.term), (Role::Follower, None, Some(13)));
        // The record is in a second key.
        let both = [entry("a/leader", "web-1", Some("s"), 14), entry("a/leader/record", RECORD, None, 14)];
        let told = fact(&both);
        assert_eq!((told.role, told.term), (Role::Leader, Some(14)));
    }

    #[test]
    fn another_program_is_named_as_it_names_itself() {
        let fact = |entries: &[Entry]| told("host-7", entries);
        let name = |value: &str| {
            let told = fact(&[entry("a/leader", value, Some("s"), 2)]);
            (told.leader.unwrap().name, told.role, told.term)
        };
        assert_eq!(name("host-7"), ("host-7".into(), Role::Leader, None));
        for (value, expected) in [("host-8\n", "host-8"), ("", "s"), ("a\nb", "s"), ("\u{0}", "s")] {
            assert_eq!(name(value), (expected.into(), Role::Follower, None), "{value:?}");
        }
        let absent = fact(&[entry("a/leader2", RECORD, Some("s"), 2)]);
        assert!(absent.leader.is_none() && absent.note.is_some_and(|note| note.contains("a/leader")));
    }
}
