//! What may answer in Consul's place, and what others may write into its keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use lictor::store::{ConsulParameters, LockStore, SharedStore, StoreEvent};
use lictor_consul::{Bound, Error, LOCK_FLAGS, NewSession, Renewal, Transaction, TxnOp};
use lictor_core::{Instant, Key, LockValidity, StoreId, Stored};
use lictor_locks::Layout;
use lictor_locks::consul::{Home, SessionKeeper, SessionSettings};
use lictor_locks::{Role, Sessions};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::sync::watch::Sender;

use crate::json::{anything, changed, number, spoilt, text};
use crate::objects;
use crate::server::{Answer, Lab};

const SESSION: &str = "4711";

fn entry(key: &str, value: &[u8], session: Option<&str>, index: u64) -> Value {
    let mut entry = json!({
        "LockIndex": 1, "Key": key, "Flags": LOCK_FLAGS, "Value": STANDARD.encode(value), "CreateIndex": 5, "ModifyIndex": index,
    });
    if let Some(session) = session {
        entry["Session"] = session.into();
    }
    entry
}

fn session() -> Value {
    json!({
        "ID": SESSION, "Name": "n", "Node": "o", "LockDelay": 15_000_000_000_u64, "Behavior": "release", "TTL": "1m30s",
        "NodeChecks": ["serfHealth"], "ServiceChecks": [{"ID": "c"}], "CreateIndex": 5, "ModifyIndex": 5,
    })
}

/// Makes the content of a lock's key.
fn content() -> Value {
    let mut content = objects::record();
    (content["cluster"], content["namespace"], content["name"]) = ("west".into(), "shop".into(), "web".into());
    content
}

/// Makes an answer of each kind, damaged, with any status and any index.
fn answer() -> BoxedStrategy<Answer> {
    let service = json!({"ID": "i", "Service": "s", "Tags": ["t"], "Address": "a", "Port": 80, "Meta": {"a": "b"}, "ModifyIndex": 4});
    let kv = entry("a", b"x", None, 7);
    let documents = [
        json!([kv.clone()]),
        json!([session()]),
        json!({"ID": SESSION}),
        json!(true),
        json!("10.0.0.1:8300"),
        json!({"Results": [{"KV": kv}, {"Service": service}], "Errors": null, "Index": 4}),
        json!({"Results": null, "Errors": [{"OpIndex": 0, "What": "failed index check"}]}),
        json!({"Node": {"Address": "a", "Meta": null}, "Services": {"i": service}}),
        json!({"Config": {"Version": "1.20.0", "NodeName": "n", "Datacenter": "dc1"}}),
        json!({"SecretID": "s", "AccessorID": "a", "CreateTime": "2020-01-01T10:00:00Z", "ExpirationTime": "2020-01-01T11:00:00Z"}),
    ];
    let said =
        vec!["No cluster leader", "ACL not found", "Permission denied", "Session id '4711' not found", "<html>", ""];
    let bodies = prop_oneof![
        5 => prop::sample::select(documents.to_vec()).prop_flat_map(spoilt),
        1 => prop::sample::select(said).prop_map(|text| text.as_bytes().to_vec()),
    ];
    let status =
        prop_oneof![5 => prop::sample::select(vec![200_u16, 200, 404, 403, 409, 429, 500, 503]), 1 => 200_u16..600];
    let index = prop_oneof![
        3 => (0_u64..100).prop_map(|index| index.to_string()),
        1 => prop::sample::select(vec![u64::MAX.to_string(), "-1".into(), "18446744073709551616".into(), String::new()]),
    ];
    let index = prop::option::weighted(0.8, index.prop_map(|index| format!("X-Consul-Index: {index}\r\n")));
    (status, index, bodies)
        .prop_map(|(status, index, body)| Answer { status, headers: index.unwrap_or_default(), body })
        .boxed()
}

fn read<T: std::fmt::Debug>(status: u16, read: Result<T, Error>, missing: bool) -> Result<(), TestCaseError> {
    match read {
        Ok(found) => prop_assert!((200..300).contains(&status) || (missing && status == 404), "{status}: {found:?}"),
        Err(error) => prop_assert!(error.to_string().len() > 10, "{error:?}"),
    }
    Ok(())
}

#[test]
fn nonsense_in_place_of_an_answer_is_told_as_such() {
    let lab = Lab::new();
    let client = lab.within(|| lab.server.consul());
    let wait = Duration::from_millis(10);
    lab.check(256, &answer(), async |answer| {
        let status = answer.status;
        lab.server.always(answer);
        read(status, client.read_key("a").await, true)?;
        read(status, client.list("a/").await, true)?;
        for index in [0, 5, u64::MAX] {
            let waited = client.wait("a/", index, wait).await;
            prop_assert!(!matches!(waited, Ok((next, _)) if next != 0 && next < index), "{waited:?}");
            read(status, waited, true)?;
        }
        read(status, client.sessions_of_node("n").await, false)?;
        read(status, client.session(SESSION).await, false)?;
        read(status, client.node("n").await, false)?;
        read(status, client.leader_known().await, false)?;
        read(status, client.login("m", "t").await, false)?;
        // Without the right, nothing is known of the agent, and that is not an error.
        let agent = client.agent_self().await;
        prop_assert!(agent.is_err() || matches!(status, 200..=299 | 403), "{status}: {agent:?}");
        Ok(())
    });
}

#[test]
fn nonsense_after_a_write_is_not_taken_for_done_or_refused() {
    let lab = Lab::new();
    let client = lab.within(|| lab.server.consul());
    let second = Duration::from_secs(1);
    let new = NewSession { name: "n".into(), bound: Bound::Agent, ttl: second * 15, lock_delay: second };
    let operations = [TxnOp::KvSet { key: "a".into(), value: vec![1], flags: 0 }];
    lab.check(256, &answer(), async |answer| {
        let (status, body) = (answer.status, String::from_utf8_lossy(&answer.body).into_owned());
        lab.server.always(answer);
        match client.transact(&operations).await {
            Transaction::Applied(_) => prop_assert!((200..300).contains(&status), "{status}"),
            Transaction::RolledBack(errors) => {
                prop_assert!(status == 409 && !errors.is_empty(), "{status}: {errors:?}");
            }
            Transaction::Failed(error) => {
                prop_assert!(
                    matches!(error, Error::Unknown(_)) || !(200..300).contains(&status),
                    "{status}: {error:?}"
                );
                read::<()>(status, Err(error), false)?;
            }
        }
        match client.renew(SESSION).await {
            Renewal::Renewed(session) => prop_assert!((200..300).contains(&status) && session.id == SESSION),
            Renewal::Lost => prop_assert!(status == 404 && body.contains(SESSION), "{status}: {body}"),
            Renewal::Failed(error) => read::<()>(status, Err(error), false)?,
        }
        read(status, client.create_session(&new).await, false)?;
        read(status, client.register_node("n", "127.0.0.1", &[].into()).await, false)?;
        read(status, client.deregister_node("n").await, false)?;
        let destroyed = client.destroy(SESSION).await;
        prop_assert!(
            destroyed.is_err() || (200..300).contains(&status) || body.contains("Unknown session"),
            "{status}: {body}"
        );
        Ok(())
    });
}

/// Makes a store that works until its sessions are dropped.
fn store(lab: &Lab, layout: Layout) -> (SharedStore, Sender<Sessions>) {
    let validity = LockValidity::Unlimited;
    let sessions = Sessions {
        ids: vec![Some(SESSION.into())],
        takeover: 1,
        validities: vec![validity],
        validity,
        failure: None,
        denied: None,
        name_in_use: false,
        renewal: Duration::ZERO,
    };
    let (kept, sessions) = tokio::sync::watch::channel(sessions);
    let parameters = ConsulParameters {
        id: StoreId("consul/gold".into()),
        client: lab.within(|| lab.server.consul()),
        cluster: "west".into(),
        installation: "a".into(),
        prefix: "services/".into(),
        layout,
        wait: Duration::from_millis(50),
        suspicion: Arc::default(),
        refusals: Arc::default(),
    };
    (parameters.store(sessions), kept)
}

/// Makes a key that somebody else may have written: any value, holder, flags and index.
fn odd_entry() -> BoxedStrategy<Value> {
    let value = prop_oneof![
        2 => changed(content()).prop_map(|content| content.to_string().into_bytes()),
        2 => spoilt(content()),
        1 => anything().prop_map(|value| value.to_string().into_bytes()),
        1 => text().prop_map(String::into_bytes),
    ];
    let session = prop_oneof![Just(None), Just(Some(SESSION.to_owned())), Just(Some("other".to_owned()))];
    let index = prop_oneof![1_u64..40, Just(u64::MAX), Just(u64::MAX - 1), Just(i64::MAX as u64)];
    let flags = prop_oneof![Just(LOCK_FLAGS), any::<u64>()];
    (value, session, flags, index)
        .prop_map(|(value, session, flags, index)| {
            let mut entry = entry("services/shop/odd/leader", &value, session.as_deref(), index);
            entry["Flags"] = flags.into();
            entry
        })
        .boxed()
}

#[test]
fn whatever_is_in_a_key_the_locks_beside_it_are_seen_and_the_watch_goes_on() {
    let lab = Lab::new();
    let inputs = (prop::collection::vec(prop::option::of(odd_entry()), 3), prop::bool::ANY);
    lab.check(96, &inputs, async |(odd, beside)| {
        let answered = AtomicUsize::new(0);
        let good = move |index: u64| {
            let value = content().to_string().into_bytes();
            let mut entries = vec![entry("services/shop/web/leader", &value, Some(SESSION), index)];
            if beside {
                entries = vec![
                    entry("services/shop/web/leader", b"a", Some(SESSION), index),
                    entry("services/shop/web/leader/record", &value, None, index),
                ];
            }
            entries
        };
        let moments = odd.clone();
        lab.server.answers(move |request| {
            if !request.contains("/v1/kv/") {
                return Answer { status: 200, headers: "X-Consul-Index: 9\r\n".into(), body: b"[]".to_vec() };
            }
            let at = answered.fetch_add(1, Ordering::Relaxed);
            let odd = moments[at.min(moments.len() - 1)].clone();
            let index = 50 + at as u64;
            // Consul sorts them by their keys.
            let entries: Vec<Value> = odd.into_iter().chain(good(index)).collect();
            let headers = format!("X-Consul-Index: {index}\r\n");
            Answer { status: 200, headers, body: Value::from(entries).to_string().into_bytes() }
        });
        let (store, _kept) = store(&lab, if beside { Layout::LeaderName } else { Layout::Record });
        let mut watch = store.watch();
        let mut seen = 0;
        while seen < odd.len() + 1 {
            let told = match watch.next().await {
                Some(StoreEvent::All(_, _, all) | StoreEvent::Rewound(_, all)) => {
                    all.into_iter().find(|(key, ..)| key.name == "services/shop/web/leader").map(|(.., stored)| stored)
                }
                Some(StoreEvent::Changed(key, _, stored)) if key.name == "services/shop/web/leader" => Some(stored),
                Some(StoreEvent::Broken(_, failure)) => return Err(TestCaseError::fail(format!("{failure:?}"))),
                Some(_) => continue,
                None => return Err(TestCaseError::fail("the watch has ended")),
            };
            prop_assert!(matches!(told, Some(Stored::Ours(..))), "{told:?}");
            seen += 1;
        }
        Ok(())
    });
}

#[test]
fn a_lock_that_somebody_wrote_to_leaves_terms_for_others() {
    let lab = Lab::new();
    let (store, _kept) = store(&lab, Layout::Record);
    let key = Key { store: StoreId("consul/gold".into()), namespace: String::new(), name: "services/a".into() };
    let inputs = (number(), prop::sample::select(vec![SESSION, "other", ""]), 1_u64..1_000);
    lab.check(256, &inputs, async |(term, session, index)| {
        let mut content = content();
        content["term"] = term;
        let entry = entry("services/a", content.to_string().as_bytes(), Some(session), index);
        let headers = format!("X-Consul-Index: {index}\r\n");
        lab.server.always(Answer { status: 200, headers, body: json!([entry]).to_string().into_bytes() });
        let stored = store.read(&key).await.map_err(|failure| TestCaseError::fail(format!("{failure:?}")))?;
        let term = match &stored {
            Stored::HeldByOther(_, rival) => rival.term.0,
            stored => stored.written().map_or(0, |record| record.term.0),
        };
        prop_assert!(term < i64::MAX - 1_000_000, "{stored:?}");
        Ok(())
    });
}

#[test]
fn nonsense_does_not_end_whoever_keeps_the_sessions() {
    let lab = Lab::new();
    let settings = SessionSettings {
        prefix: "lictor/gold".into(),
        namesakes: None,
        home: Home::Node { name: "o".into(), address: "127.0.0.1".into(), meta: [].into() },
        count: 2,
        ttl: Duration::from_secs(15),
        lock_delay: Duration::from_secs(1),
    };
    lab.check(32, &prop::collection::vec(answer(), 8), async |answers| {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let given = answers.len();
        lab.server.answers(move |_| answers[counted.fetch_add(1, Ordering::Relaxed) % answers.len()].clone());
        let clock = || Instant::after_origin(Duration::from_secs(1_000));
        let (keeper, mut sessions) = SessionKeeper::new(lab.server.consul(), settings.clone(), clock);
        let suspicion = keeper.suspicion();
        let (role, acting) = tokio::sync::watch::channel(Role::Acting(1));
        let policy = tokio::spawn(keeper.run(acting));
        // It reports each new state, and sends nothing while it waits for its back-off by this clock.
        while asked.load(Ordering::Relaxed) < given && !policy.is_finished() {
            let changed = tokio::time::timeout(Duration::from_millis(20), sessions.changed()).await;
            let Sessions { ids, validities, .. } = sessions.borrow_and_update().clone();
            for (id, validity) in ids.iter().zip(validities) {
                prop_assert!(
                    id.is_some() || !matches!(validity, LockValidity::Until(_)),
                    "{validity:?} without a session"
                );
            }
            if changed.is_err() {
                break;
            }
            suspicion.notify_one();
        }
        prop_assert!(!policy.is_finished(), "it has ended: {:?}", policy.await);
        drop(role);
        Ok(())
    });
}
