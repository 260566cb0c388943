//! One cluster with its locks in Consul.

use std::time::Duration;

use kube::ResourceExt;
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::{Operator, Proxy, eventually};
use serde_json::json;

use super::member::{Member, entry, sessions};

/// Creates two ready pods, an operator, and a leader.
async fn led(test: &str) -> (Member, Operator, String) {
    let member = Member::new(test, "west", Consul::shared().address(), json!({})).await;
    let operator = member.operator(&[]);
    member.lab.ready_pods(&["a", "b"]).await;
    member.elect(json!({})).await;
    let leader = member.lab.wait_any_leader().await;
    (member, operator, leader)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_is_a_key_that_consuls_own_tools_understand() {
    let (member, _operator, leader) = led("consul-key").await;
    let found = entry(Consul::shared(), &member.key()).await.expect("the key is there");
    assert_eq!(found["Flags"], json!(0x2ddc_cbc0_58a5_0c18_u64));
    let [(_, session)] = sessions(Consul::shared(), &member).await.try_into().expect("one session");
    assert_eq!(found["Session"], json!(session));
    let record = &found["Value"];
    assert_eq!((&record["cluster"], &record["holder"]["pod"]), (&json!("west"), &json!(leader)), "{record}");
    let pod = member.lab.pods_api().get(&leader).await.expect("the pod exists");
    assert_eq!(pod.annotations()["lictor.dev/term"], found["ModifyIndex"].to_string(), "the term is the lock's index");
    let message = member.wait_class("True", "Answers").await;
    assert!(!message.is_empty());
    let class = member.classes_api().get(&member.class).await.expect("the class exists");
    let consul = class.status.and_then(|status| status.consul).expect("the class's status tells of Consul");
    assert_eq!((consul.version.as_str(), consul.sessions), ("1.22.3", vec![session]));
}

/// Shows H16: whoever may write the key can't have labels taken off the pods of others, also not by the next operator. And what the
/// election's object says goes when the next spec is cleaned up after the former one.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_record_takes_no_label_off_other_pods() {
    let member = Member::new("consul-forged", "west", Consul::shared().address(), json!({})).await;
    let lab = &member.lab;
    lab.ready_pods(&["a", "b", "db"]).await;
    lab.patch_pod("db", json!({"metadata": {"labels": {"app": "db", "tier": "leader"}}})).await;
    let mut operator = member.operator(&[]);
    member.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    let version = async || lab.pods_api().get("db").await.expect("the pod exists").resource_version();
    let before = version().await;
    let forge = async |leader: &str| {
        let pod = lab.get_pod(leader).await;
        let mut record = entry(Consul::shared(), &member.key()).await.expect("the key is there")["Value"].clone();
        let mut scope = record["scope"].clone();
        scope["selector"]["matchLabels"] = json!({"app": "db"});
        scope["leader"]["labels"] = json!({"tier": "leader"});
        record["former"] = json!([scope]);
        // With another term, it would be written anew at once. The pod has the term; the status follows later.
        record["termByVersion"] = json!(false);
        record["term"] = json!(pod.annotations()["lictor.dev/term"].parse::<i64>().expect("a term"));
        let path = format!("/v1/kv/{}?flags=3304740253564472344", member.key());
        Consul::shared().api().put(&path, record).await.expect("Consul answers").ok();
    };
    forge(&leader).await;
    let message = lab.wait_condition("web", "StoreReachable", "True", "RecordForged").await;
    assert!(message.contains("this cluster never wrote"), "{message}");
    let next = if leader == "a" { "b" } else { "a" };
    lab.kill_pod(&leader).await;
    lab.wait_leader(next).await;
    lab.wait_condition("web", "StoreReachable", "True", "Answers").await;
    forge(next).await;
    operator.signal("KILL");
    operator = member.operator(&[]);
    operator.sees_leader(&lab.namespace, "web", next).await;
    lab.wait_condition("web", "StoreReachable", "True", "RecordForged").await;

    member.elect(json!({"leader": {"labels": {"mode": "leader"}}, "follower": {"labels": {"mode": "follower"}}})).await;
    eventually("the former label is off, and the note of it as well", || async {
        let pod = lab.pods_api().get(next).await.map_err(|error| error.to_string())?;
        let election = lab.elections_api().get("web").await.map_err(|error| error.to_string())?;
        let noted = election.annotations().get("lictor.dev/workloads").cloned().unwrap_or_default();
        let clean = pod.labels().get("mode").is_some_and(|mode| mode == "leader") && !pod.labels().contains_key("role");
        let dropped = noted.contains("\"mode\"") && !noted.contains("\"role\"");
        if clean && dropped { Ok(()) } else { Err(format!("{:?}, {noted}", pod.labels())) }
    })
    .await;
    assert_eq!(version().await, before, "nothing was written on a pod of others");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_a_person_destroys_is_replaced_and_the_same_pod_leads_again() {
    let (member, _operator, leader) = led("consul-destroyed").await;
    let recorder = member.lab.record().await;
    let [(_, session)] = sessions(Consul::shared(), &member).await.try_into().expect("one session");
    Consul::shared().api().put(&format!("/v1/session/destroy/{session}"), "").await.expect("it is destroyed");
    member.lab.wait_event("LeaderElection", "web", "NoLeader").await;
    member.lab.wait_leader(&leader).await;
    let found = entry(Consul::shared(), &member.key()).await.expect("the key is there");
    assert_ne!(found["Session"], json!(session));
    recorder.assert_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_a_person_edits_deletes_or_gives_other_flags_is_put_right() {
    let (member, _operator, leader) = led("consul-edited").await;
    let recorder = member.lab.record().await;
    let path = format!("/v1/kv/{}", member.key());
    for way in ["edit", "flags", "delete", "delete and put"] {
        let before = entry(Consul::shared(), &member.key()).await.expect("the key is there");
        let raw = Consul::shared().api().get(&format!("{path}?raw")).await.expect("Consul answers").text;
        match way {
            "edit" => drop(Consul::shared().api().put(&path, "mine").await.expect("Consul answers")),
            "flags" => drop(Consul::shared().api().put(&format!("{path}?flags=7"), raw).await.expect("Consul answers")),
            _ => drop(Consul::shared().api().delete(&path).await.expect("Consul answers")),
        }
        eventually(&format!("the lock is put right after: {way}"), || async {
            let found = entry(Consul::shared(), &member.key()).await.unwrap_or_default();
            let right = found["Value"]["holder"]["pod"] == json!(leader)
                && found["ModifyIndex"].as_u64() > before["ModifyIndex"].as_u64()
                && found["Session"].is_string();
            if right { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
        member.lab.wait_leader(&leader).await;
    }
    recorder.assert_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_acts_again_knows_the_locks_that_another_wrote_meanwhile() {
    let (member, first, leader) = led("consul-replicas").await;
    let session = sessions(Consul::shared(), &member).await;
    let second = member.operator(&[]);
    first.signal("STOP");
    second.sees_leader(&member.lab.namespace, "web", &leader).await;
    first.signal("CONT");
    first.logs("this replica stands by").await;
    member.lab.kill_pod(&leader).await;
    let next = if leader == "a" { "b" } else { "a" };
    member.lab.wait_leader(next).await;
    let before = entry(Consul::shared(), &member.key()).await;
    let recorder = member.lab.record().await;
    second.signal("KILL");
    first.sees_leader(&member.lab.namespace, "web", next).await;
    assert_eq!(recorder.assert_promises().await, 1, "the leader that was there, and nothing else");
    assert_eq!(recorder.versions_of(next).len(), 1, "{:?}", recorder.revisions());
    assert_eq!(entry(Consul::shared(), &member.key()).await, before);
    assert_eq!(sessions(Consul::shared(), &member).await, session);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_survives_a_replica_that_is_killed_and_its_end_seen() {
    let peers = ["--peer-address", "127.0.0.1", "--peer-port", "0", "--lease-duration", "60s"];
    let member = Member::new("consul-seen", "west", Consul::shared().address(), json!({})).await;
    let first = member.operator(&peers);
    first.acts().await;
    member.lab.ready_pods(&["a", "b"]).await;
    member.elect(json!({})).await;
    let leader = member.lab.wait_any_leader().await;
    let (session, before) = (sessions(Consul::shared(), &member).await, entry(Consul::shared(), &member.key()).await);
    let recorder = member.lab.record().await;
    let second = member.operator(&peers);
    second.logs("connected to the acting replica").await;
    first.signal("KILL");
    second.sees_leader(&member.lab.namespace, "web", &leader).await;
    assert_eq!(entry(Consul::shared(), &member.key()).await, before);
    assert_eq!(sessions(Consul::shared(), &member).await, session);
    // It is renewed, and the lock is good for the next leader.
    member.lab.kill_pod(&leader).await;
    member.lab.wait_leader(if leader == "a" { "b" } else { "a" }).await;
    assert_eq!(sessions(Consul::shared(), &member).await, session);
    assert_eq!(recorder.assert_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_whose_settings_change_keeps_its_leaders_and_its_session() {
    let (member, operator, leader) = led("consul-settings").await;
    let session = sessions(Consul::shared(), &member).await;
    let recorder = member.lab.record().await;
    // An operator that has just begun to act waits five seconds for a store that it knows nothing of, and no longer.
    tokio::time::sleep(Duration::from_secs(6)).await;
    recorder.catch_up().await;
    let seen = recorder.versions_of(&leader).len();
    let address = Consul::shared().address().replace("127.0.0.1", "localhost");
    let fields = json!({"address": address, "clusterName": "west", "sessions": {"ttlSeconds": 12}});
    member.apply_class(fields).await;
    operator.logs(&address).await;
    member.wait_class("True", "Answers").await;
    // The new settings are in effect.
    let next = if leader == "a" { "b" } else { "a" };
    recorder.catch_up().await;
    assert_eq!(recorder.versions_of(&leader).len(), seen, "{:?}", recorder.revisions());
    member.lab.kill_pod(&leader).await;
    member.lab.wait_leader(next).await;
    assert_eq!(sessions(Consul::shared(), &member).await, session);
    assert_eq!(recorder.assert_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_is_unknown_until_its_consul_was_asked() {
    let token = json!({"tokenSecretRef": {"name": "consul-token"}});
    let member = Member::new("unasked", "west", Consul::shared().address(), token).await;
    let proxy = Proxy::start(member.lab.cluster).await;
    // Without the token there is nothing to ask with.
    proxy.hold(|asked| asked.path.contains("/secrets?"));
    let _operator = member.operator_at(proxy.kubeconfig());
    let message = member.wait_class("Unknown", "NotAskedYet").await;
    assert!(message.contains("Consul has not answered yet"), "{message}");
}
