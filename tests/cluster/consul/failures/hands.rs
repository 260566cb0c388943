//! What people do in Consul to the lock of two clusters, and to the node of the sessions.

use std::time::{Duration, Instant};

use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::{Cluster, eventually};
use serde_json::{Value, json};

use super::super::member::{Member, entry, sessions_of};
use super::{Side, kept_their_promises, two, within};

async fn at(test: &str, cluster: &str, fields: Value) -> Member {
    Member::new(test, cluster, Consul::shared().address(), fields).await
}

/// The key is deleted and edited. The other cluster must not lead before the first has demoted.
async fn key_between_clusters() {
    let test = "hand-key";
    let (west, east) = two(at(test, "west", json!({})).await, at(test, "east", json!({})).await).await;
    let path = format!("/v1/kv/{}", west.member.key());
    for way in ["delete", "edit", "delete", "delete and put", "delete"] {
        let before = entry(Consul::shared(), &west.member.key()).await.expect("the key is there");
        let api = Consul::shared().api();
        match way {
            "edit" => drop(api.put(&path, "mine").await.expect("Consul answers").ok()),
            "delete" => drop(api.delete(&path).await.expect("Consul answers").ok()),
            _ => {
                api.delete(&path).await.expect("Consul answers").ok();
                api.put(&format!("{path}?flags=3304740253564472344"), "mine").await.expect("Consul answers").ok();
            }
        }
        let began = Instant::now();
        eventually(&format!("one of them leads after: {way}"), || async {
            let found = entry(Consul::shared(), &west.member.key()).await.unwrap_or_default();
            let newer = found["ModifyIndex"].as_u64() > before["ModifyIndex"].as_u64();
            let roles = [west.member.lab.roles().await, east.member.lab.roles().await].concat();
            let leaders: Vec<&str> =
                roles.iter().filter(|(_, role)| role == "leader").map(|(pod, _)| pod.as_str()).collect();
            let holder = found["Value"]["holder"]["pod"].as_str().unwrap_or_default();
            if newer && leaders == [holder] { Ok(()) } else { Err(format!("{found}, {roles:?}")) }
        })
        .await;
        within(&format!("{test}, after: {way}"), began);
    }
    kept_their_promises(&[&west, &east]).await;
}

/// The key is deleted while the operator of the leader's cluster hangs. Its lock is still valid, so no other cluster may lead
/// yet.
async fn key_of_a_hanging_cluster() {
    let test = "hand-hangs";
    let (west, east) = two(at(test, "west", json!({})).await, at(test, "east", json!({})).await).await;
    west.operator.signal("STOP");
    Consul::shared().api().delete(&format!("/v1/kv/{}", west.member.key())).await.expect("Consul answers").ok();
    let began = Instant::now();
    let message = east.member.lab.wait_condition("web", "Elected", "False", "LockLost").await;
    assert!(message.contains("the lock was lost"), "{message}");
    // This is much longer than it takes to acquire a lock, and shorter than the lock's validity.
    tokio::time::sleep(Duration::from_secs(2)).await;
    west.operator.signal("CONT");
    west.member.lab.wait_leader("a").await;
    within("hand-hangs, led again by the same cluster", began);
    east.member.wait_led_elsewhere("west", "a").await;
    kept_their_promises(&[&west, &east]).await;
}

/// The node of the sessions is deregistered, so the sessions end.
async fn node() {
    let test = "hand-node";
    let member = at(test, "west", json!({"node": {"name": test}})).await;
    let (side, leader) = Side::led(member, &["a", "b"]).await;
    let before = sessions_of(Consul::shared(), &side.member, test).await;
    let gone = json!({"Node": test});
    Consul::shared().api().put("/v1/catalog/deregister", gone).await.expect("Consul answers").ok();
    let began = Instant::now();
    let note = side.member.lab.wait_event("LeaderElection", "web", "NoLeader").await;
    assert!(note.contains("the lock was lost"), "{note}");
    side.member.lab.wait_leader(&leader).await;
    within("hand-node, led again by the same pod", began);
    side.operator.logs("it or its node was destroyed").await;
    let after = sessions_of(Consul::shared(), &side.member, test).await;
    assert!(after.len() == 1 && after != before, "{after:?}");
    side.member.wait_class("True", "Answers").await;
    side.recorder.assert_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn what_people_do_to_keys_and_nodes_makes_no_two_leaders() {
    // Starting them blocks this thread.
    let _ = (Consul::shared(), Cluster::shared());
    tokio::join!(key_between_clusters(), key_of_a_hanging_cluster(), node());
}
