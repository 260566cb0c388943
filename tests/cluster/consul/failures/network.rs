//! The network to Consul, by Toxiproxy: cut, cut in one direction, cut in the middle of an answer, and slow.

use std::time::{Duration, Instant};

use lictor_testing::consul::{Consul, ToxicProxy, Toxiproxy};
use lictor_testing::kubernetes::{Cluster, eventually};
use serde_json::{Value, json};

use super::super::member::{Member, entry, sessions};
use super::{Side, kept_their_promises, two, within};

/// Creates two clusters. A proxy can disturb the west's connections to Consul, but not the east's.
async fn west_by_proxy(toxiproxy: &Toxiproxy, test: &str) -> (ToxicProxy, Side, Side) {
    let proxy = toxiproxy.proxy(Consul::shared().server(1).socket()).await;
    let west = Member::new(test, "west", &format!("http://{}", proxy.address()), json!({})).await;
    let east = Member::new(test, "east", Consul::shared().address(), json!({})).await;
    let (west, east) = two(west, east).await;
    (proxy, west, east)
}

/// Cuts the west off. It demotes before the east takes over, and follows when its connection works again.
async fn cut(toxiproxy: &Toxiproxy, test: &str, toxic: Option<Value>) {
    let (proxy, west, east) = west_by_proxy(toxiproxy, test).await;
    let began = Instant::now();
    match &toxic {
        None => proxy.disable().await,
        Some(toxic) => proxy.toxic(toxic.clone()).await,
    }
    let message = west.member.lab.wait_condition("web", "Elected", "False", "StoreLost").await;
    assert!(message.contains("could not be confirmed in time"), "{message}");
    west.member.lab.wait_condition("web", "StoreReachable", "False", "NoAnswer").await;
    let note = west.member.lab.wait_event("LeaderElection", "web", "NoLeader").await;
    assert!(note.contains("could not be confirmed in time"), "{note}");
    let message = west.member.wait_class("False", "NoAnswer").await;
    assert!(message.contains("Consul"), "{message}");
    west.operator.logs("a session in Consul can't be kept").await;
    let demoted = west.recorder.demoted_at().await.expect("it was demoted").duration_since(began);
    assert!(demoted < super::TTL, "demoted after {demoted:?}");

    east.member.lab.wait_leader("b").await;
    within(&format!("{test}, the other cluster leads (demoted after {demoted:.1?})"), began);
    let began = Instant::now();
    proxy.enable().await;
    proxy.clear().await;
    west.member.wait_led_elsewhere("east", "b").await;
    within(&format!("{test}, the first follows when its way is free"), began);
    west.member.wait_class("True", "Answers").await;
    assert_eq!(kept_their_promises(&[&west, &east]).await, 2);
}

/// C16: a person writes to the key while the cluster that leads is cut off. The other one saw whose key it was, and leads.
async fn edited(toxiproxy: &Toxiproxy) {
    let test = "net-edited";
    let (proxy, west, east) = west_by_proxy(toxiproxy, test).await;
    proxy.disable().await;
    let began = Instant::now();
    put(&west.member.key()).await;
    east.member.lab.wait_leader("b").await;
    within(&format!("{test}, the other cluster leads"), began);
    proxy.enable().await;
    west.member.wait_led_elsewhere("east", "b").await;
    assert_eq!(kept_their_promises(&[&west, &east]).await, 2);
}

/// The same where no other cluster could lead: the one that led puts the lock right when it reaches Consul again.
async fn edited_alone(toxiproxy: &Toxiproxy) {
    let proxy = toxiproxy.proxy(Consul::shared().server(1).socket()).await;
    let west = Member::new("net-alone", "west", &format!("http://{}", proxy.address()), json!({})).await;
    let (west, leader) = Side::led(west, &["a"]).await;
    proxy.disable().await;
    put(&west.member.key()).await;
    unheld(&west.member.key()).await;
    let began = Instant::now();
    proxy.enable().await;
    west.member.lab.wait_leader(&leader).await;
    within("net-alone, led again by the same cluster", began);
    west.member.lab.wait_condition("web", "Elected", "True", "Elected").await;
    assert_eq!(west.recorder.assert_promises().await, 2);
}

/// Another program makes the key anew while the cluster that leads is cut off. Nobody overwrites that, and both say what to do.
async fn made_anew(toxiproxy: &Toxiproxy) {
    let (proxy, west, east) = west_by_proxy(toxiproxy, "net-anew").await;
    let (key, api) = (west.member.key(), Consul::shared().api());
    proxy.disable().await;
    api.delete(&format!("/v1/kv/{key}")).await.expect("Consul answers").ok();
    put(&key).await;
    let before = entry(Consul::shared(), &key).await;
    proxy.enable().await;
    for side in [&east, &west] {
        let message = side.member.lab.wait_condition("web", "Elected", "False", "LockNotOurs").await;
        assert!(message.contains(&format!("consul kv delete {key}")), "{message}");
    }
    assert_eq!(entry(Consul::shared(), &key).await, before, "it is left alone");
    api.delete(&format!("/v1/kv/{key}")).await.expect("Consul answers").ok();
    eventually("one of them leads", || async {
        let roles = [west.member.lab.roles().await, east.member.lab.roles().await].concat();
        if roles.iter().any(|(_, role)| role == "leader") { Ok(()) } else { Err(format!("{roles:?}")) }
    })
    .await;
    kept_their_promises(&[&west, &east]).await;
}

async fn put(key: &str) {
    Consul::shared().api().put(&format!("/v1/kv/{key}"), "mine").await.expect("Consul answers").ok();
}

/// Waits until no session holds the key.
async fn unheld(key: &str) {
    eventually("nobody holds the key", || async {
        let found = entry(Consul::shared(), key).await.unwrap_or_default();
        if found["Session"].is_null() { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}

/// C16.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn a_key_that_a_person_writes_to_while_its_cluster_is_cut_off_is_put_right() {
    let toxiproxy = Toxiproxy::start();
    // Starting them blocks this thread.
    let _ = (Consul::shared(), Cluster::shared());
    tokio::join!(edited(&toxiproxy), edited_alone(&toxiproxy));
}

/// C16.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn a_key_that_another_program_makes_anew_while_its_cluster_is_cut_off_is_left_alone() {
    let toxiproxy = Toxiproxy::start();
    // Starting them blocks this thread.
    let _ = (Consul::shared(), Cluster::shared());
    made_anew(&toxiproxy).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn a_cluster_that_is_cut_off_from_consul_demotes_before_another_takes_over() {
    let toxiproxy = Toxiproxy::start();
    // Starting them blocks this thread.
    let _ = (Consul::shared(), Cluster::shared());
    let toxic = |type_: &str, stream: &str, attributes: Value| {
        Some(json!({"type": type_, "stream": stream, "attributes": attributes}))
    };
    // Either requests are lost; or answers are lost, so that Consul still gets each renewal; or an answer breaks off in its
    // header, and the connection is closed or reset.
    tokio::join!(
        cut(&toxiproxy, "net-cut", None),
        cut(&toxiproxy, "net-to", toxic("timeout", "upstream", json!({"timeout": 0}))),
        cut(&toxiproxy, "net-from", toxic("timeout", "downstream", json!({"timeout": 0}))),
        cut(&toxiproxy, "net-middle", toxic("limit_data", "downstream", json!({"bytes": 60}))),
        cut(&toxiproxy, "net-reset", toxic("reset_peer", "downstream", json!({"timeout": 0}))),
        slow(&toxiproxy, "net-slow"),
        nearly_too_slow(&toxiproxy, "net-slower"),
    );
}

/// Delays each answer by two thirds of the longest time that a request may take. No leader is demoted, and the class warns.
async fn nearly_too_slow(toxiproxy: &Toxiproxy, test: &str) {
    let (proxy, west, east) = west_by_proxy(toxiproxy, test).await;
    proxy.toxic(json!({"type": "latency", "stream": "downstream", "attributes": {"latency": 1330}})).await;
    let message = west.member.wait_class("True", "Slow").await;
    assert!(message.contains("A renewal that takes 2.0 s counts as lost"), "{message}");
    tokio::time::sleep(super::TTL + Duration::from_secs(2)).await;
    assert_eq!(west.recorder.demoted_at().await, None, "nobody was demoted");
    assert_eq!(kept_their_promises(&[&west, &east]).await, 1);
}

/// Delays each answer by two thirds of a second. No leader is demoted, and a failover still works.
async fn slow(toxiproxy: &Toxiproxy, test: &str) {
    let (proxy, west, east) = west_by_proxy(toxiproxy, test).await;
    let session = sessions(Consul::shared(), &west.member).await;
    proxy.toxic(json!({"type": "latency", "stream": "downstream", "attributes": {"latency": 660}})).await;
    // This is longer than an earlier renewal could last.
    tokio::time::sleep(super::TTL + Duration::from_secs(2)).await;
    assert_eq!(west.recorder.demoted_at().await, None, "nobody was demoted");
    assert_eq!(sessions(Consul::shared(), &west.member).await, session);
    west.member.lab.ready_pods(&["c"]).await;
    let began = Instant::now();
    west.member.lab.kill_pod("a").await;
    west.member.lab.wait_leader("c").await;
    within("net-slow, failover within the cluster", began);
    proxy.clear().await;
    west.member.wait_class("True", "Answers").await;
    east.member.wait_led_elsewhere("west", "c").await;
    assert_eq!(kept_their_promises(&[&west, &east]).await, 2);
}
