//! A key in Consul that the candidates of an election hold themselves, and that lictor only reads.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use lictor_consul::{Client, Entry, Error};
use lictor_core::{FollowedLock, Holder, LONGEST_IDENTITY, LockHolder, NotHeld, Record, Timestamp, Version};
use lictor_locks::Content;
use lictor_locks::consul::failure;
use tokio::time::sleep;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(2);

/// Follows one key, by requests that wait so long for a change.
pub(super) fn follow(client: &Client, key: &str, wait: Duration) -> BoxStream<'static, FollowedLock> {
    let (client, key) = (client.clone(), key.to_owned());
    let follower = Follower { client, wait, key, index: 0, known: 0, retry: None, named: None };
    unfold(follower, |mut follower| async move { Some((follower.next().await, follower)) }).boxed()
}

struct Follower {
    client: Client,
    wait: Duration,
    key: String,
    index: u64,
    /// The index as of which the key was last reported.
    known: u64,
    /// How long to wait after the last failure.
    retry: Option<Duration>,
    /// The last session that was asked for, and its name.
    named: Option<(String, String)>,
}

impl Follower {
    async fn next(&mut self) -> FollowedLock {
        if let Some(retry) = self.retry {
            sleep(retry).await;
        }
        match self.ask().await {
            Ok(lock) => {
                self.retry = None;
                lock
            }
            Err(error) => {
                // After a failure, the next read does not wait for a change.
                self.index = 0;
                self.retry = Some(self.retry.map_or(FIRST_RETRY, |retry| (retry * 2).min(LONGEST_RETRY)));
                FollowedLock::Unknown(failure(error).text().to_owned())
            }
        }
    }

    async fn ask(&mut self) -> Result<FollowedLock, Error> {
        let (client, wait) = (self.client.clone(), self.wait);
        let (index, mut entry) = client.wait_key(&self.key, self.index, wait).await?;
        let at = |entry: &Option<Entry>, index| entry.as_ref().map_or(index, |entry| entry.modify_index);
        (self.index, self.known) = if at(&entry, index) < self.known {
            // A server that wrongly takes itself for Consul's leader answers with an earlier state. Or Consul was put back to an earlier
            // state, or has forgotten deleted keys. Only the present leader answers a consistent read.
            entry = client.read_key(&self.key).await?;
            (0, at(&entry, 0))
        } else {
            (index, at(&entry, index))
        };
        let Some(entry) = entry else { return Ok(FollowedLock::Free(NotHeld::Absent)) };
        let Some(session) = entry.session.clone() else { return Ok(FollowedLock::Free(NotHeld::Released)) };
        let said = said(&entry);
        if said.identity.is_empty() && self.named.as_ref().is_none_or(|(known, _)| *known != session) {
            // `consul lock` writes no value. A session never changes its name.
            let found = client.session(&session).await?;
            let name = found.map(|found| found.name).filter(|name| !name.is_empty());
            self.named = Some((session.clone(), name.unwrap_or_else(|| format!("the session {session}"))));
        }
        let of_session = self.named.as_ref().filter(|_| said.identity.is_empty()).map(|(_, name)| name.clone());
        Ok(FollowedLock::Held(LockHolder {
            identity: of_session.unwrap_or(said.identity.clone()),
            tenure: session,
            version: Version(entry.modify_index),
            transitions: i64::try_from(entry.lock_index).ok(),
            ..said
        }))
    }
}

/// The holder of a key, as its value describes it.
fn said(entry: &Entry) -> LockHolder {
    if let Ok(Content { cluster, record, .. }) = serde_json::from_slice(&entry.value) {
        // The value is of an agent, or of an election of lictor's own.
        let Record { holder, since, .. } = record;
        let Some(Holder { pod, ip, .. }) = holder else {
            return LockHolder { identity: cluster, ..LockHolder::default() };
        };
        let since: Option<Timestamp> = Some(since);
        return LockHolder { identity: pod.unwrap_or(cluster), address: ip, since, ..LockHolder::default() };
    }
    let text = String::from_utf8_lossy(&entry.value);
    LockHolder { identity: text.trim().chars().take(LONGEST_IDENTITY).collect(), ..LockHolder::default() }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use futures::future::BoxFuture;
    use lictor_consul::{Broken, Client, Received, Sent, Settings, Transport};
    use reqwest::StatusCode;
    use serde_json::{Value, json};

    use super::*;

    /// Answers with these, one after the other. What was asked is noted.
    struct Answers(Mutex<Vec<Value>>, Arc<Mutex<Vec<String>>>);

    impl Transport for Answers {
        fn send(&self, sent: Sent) -> BoxFuture<'_, Result<Received, Broken>> {
            self.1.lock().unwrap().push(sent.url.path().to_owned());
            let answer = self.0.lock().unwrap().remove(0);
            Box::pin(async move {
                let status = if answer.is_null() { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
                Ok(Received { status, index: Some(7), body: answer.to_string().into_bytes() })
            })
        }
    }

    fn key(value: Option<&str>, session: Option<&str>) -> Value {
        json!([{"LockIndex": 4, "Key": "a/.lock", "Flags": 0, "Value": value, "Session": session, "CreateIndex": 1,
            "ModifyIndex": 9}])
    }

    fn session(name: &str) -> Value {
        json!([{"ID": "s", "Name": name, "Node": "n", "TTL": "10s", "LockDelay": 0, "Behavior": "release",
            "NodeChecks": [], "ServiceChecks": [], "CreateIndex": 3}])
    }

    async fn told(answers: Vec<Value>, times: usize) -> (Vec<FollowedLock>, Vec<String>) {
        let asked = Arc::default();
        let transport = Arc::new(Answers(Mutex::new(answers), Arc::clone(&asked)));
        let client = Client::simulated(&Settings::new("http://consul"), transport).unwrap();
        let told = follow(&client, "a/.lock", Duration::from_secs(10)).take(times).collect().await;
        let asked = asked.lock().unwrap().clone();
        (told, asked)
    }

    fn holder(lock: &FollowedLock) -> (&str, Option<&str>) {
        let FollowedLock::Held(holder) = lock else { panic!("{lock:?}") };
        assert_eq!((holder.transitions, holder.version, holder.tenure.as_str()), (Some(4), Version(9), "s"));
        (&holder.identity, holder.address.as_deref())
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_is_named_by_the_value_or_by_the_name_of_its_session() {
        let (value, empty) = (key(Some("d2ViLTEK"), Some("s")), key(None, Some("s")));
        let (told, asked) = told(vec![value, empty.clone(), session("web-2"), empty], 3).await;
        let holders: Vec<_> = told.iter().map(holder).collect();
        assert_eq!(holders, [("web-1", None), ("web-2", None), ("web-2", None)]);
        assert_eq!(asked.iter().filter(|path| path.contains("session")).count(), 1, "its name never changes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_behind_does_not_bring_an_earlier_holder_back() {
        let by = |holder: &str, index: u64| {
            json!([{"LockIndex": 4, "Key": "a/.lock", "Flags": 0, "Value": STANDARD.encode(holder), "Session": "s",
                "CreateIndex": 1, "ModifyIndex": index}])
        };
        // An absent key is as old as the answer, whose index is 7.
        for late in [by("web-1", 8), json!([])] {
            let answers = vec![by("web-1", 8), by("web-2", 9), late, by("web-2", 9), by("web-3", 10)];
            let (told, asked) = told(answers, 4).await;
            let holders = told.iter().map(|lock| match lock {
                FollowedLock::Held(holder) => holder.identity.as_str(),
                _ => "nobody",
            });
            assert_eq!(holders.collect::<Vec<_>>(), ["web-1", "web-2", "web-2", "web-3"]);
            assert_eq!(asked.len(), 5);
        }
        // Consul was put back to an earlier state, and counts from there.
        let (told, _) = told(vec![by("web-2", 9), by("web-1", 5), by("web-1", 5), by("web-2", 6)], 3).await;
        assert!(matches!(&told[2], FollowedLock::Held(holder) if holder.version == Version(6)), "{told:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_says_its_name_and_its_address() {
        let record = json!({"cluster": "web-1", "namespace": "", "name": "a/.lock", "term": 3, "termByVersion": true,
            "holder": {"pod": "web-1", "uid": "u", "node": "n", "ip": "10.0.0.1:80"}, "operatorId": "x", "since": 5,
            "election": "", "generation": 0, "scope": {"selector": {}, "leader": {}, "follower": {}}});
        let encoded = STANDARD.encode(record.to_string());
        let (told, _) = told(vec![key(Some(&encoded), Some("s"))], 1).await;
        assert_eq!(holder(&told[0]), ("web-1", Some("10.0.0.1:80")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_nobody_holds_is_free_and_a_failure_says_nothing() {
        // The answer's index is lower than the key's was, so the key is read once more.
        let (told, _) = told(vec![key(Some("eA=="), None), Value::Null, json!([]), json!([])], 3).await;
        assert_eq!(told[0], FollowedLock::Free(NotHeld::Released));
        assert!(matches!(told[1], FollowedLock::Unknown(_)), "{told:?}");
        assert_eq!(told[2], FollowedLock::Free(NotHeld::Absent));
    }
}
