//! The network to Consul, by a link: cut, cut in one direction, cut in the middle of an answer, and slow.

use std::time::{Duration, Instant};

use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::{Cluster, eventually};
use lictor_testing::{Disturbance, Link, Stream};
use serde_json::json;

use super::super::member::{Member, entry, sessions};
use super::{Side, kept_their_promises, two, within};

/// Creates two clusters. A proxy can disturb the west's connections to Consul, but not the east's.
async fn west_by_proxy(test: &str) -> (Link, Side, Side) {
    let proxy = Link::to(Consul::shared().server(1).socket());
    let west = Member::new(test, "west", &format!("http://{}", proxy.address()), json!({})).await;
    let east = Member::new(test, "east", Consul::shared().address(), json!({})).await;
    let (west, east) = two(west, east).await;
    (proxy, west, east)
}

/// Cuts the west off. It demotes before the east takes over, and follows when its connection works again.
async fn cut(test: &str, disturbance: Option<(Stream, Disturbance)>) {
    let (proxy, west, east) = west_by_proxy(test).await;
    let began = Instant::now();
    match disturbance {
        None => proxy.disable().await,
        Some((stream, disturbance)) => proxy.disturb(stream, disturbance).await,
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
async fn edited() {
    let test = "net-edited";
    let (proxy, west, east) = west_by_proxy(test).await;
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
async fn edited_alone() {
    let proxy = Link::to(Consul::shared().server(1).socket());
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
async fn made_anew() {
    let (proxy, west, east) = west_by_proxy("net-anew").await;
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
    // Starting them blocks this thread.
    let _ = (Consul::shared(), Cluster::shared());
    tokio::join!(edited(), edited_alone());
}

/// C16.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn a_key_that_another_program_makes_anew_while_its_cluster_is_cut_off_is_left_alone() {
    // Starting them blocks this thread.
    let _ = (Consul::shared(), Cluster::shared());
    made_anew().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn a_cluster_that_is_cut_off_from_consul_demotes_before_another_takes_over() {
    // Starting them blocks this thread.
    let _ = (Consul::shared(), Cluster::shared());
    // Either requests are lost; or answers are lost, so that Consul still gets each renewal; or an answer breaks off in its
    // header, and the connection is closed or reset.
    tokio::join!(
        cut("net-cut", None),
        cut("net-to", Some((Stream::Up, Disturbance::Lost))),
        cut("net-from", Some((Stream::Down, Disturbance::Lost))),
        cut("net-middle", Some((Stream::Down, Disturbance::Short { bytes: 60 }))),
        cut("net-reset", Some((Stream::Down, Disturbance::Reset { after: Duration::ZERO }))),
        slow("net-slow"),
        nearly_too_slow("net-slower"),
    );
}

const fn late(millis: u64) -> Disturbance {
    Disturbance::Late { by: Duration::from_millis(millis), jitter: Duration::ZERO }
}

/// Delays each answer by two thirds of the longest time that a request may take. No leader is demoted, and the class warns.
async fn nearly_too_slow(test: &str) {
    let (proxy, west, east) = west_by_proxy(test).await;
    proxy.disturb(Stream::Down, late(1330)).await;
    let message = west.member.wait_class("True", "Slow").await;
    assert!(message.contains("A renewal that takes 2.0 s counts as lost"), "{message}");
    tokio::time::sleep(super::TTL + Duration::from_secs(2)).await;
    assert_eq!(west.recorder.demoted_at().await, None, "nobody was demoted");
    assert_eq!(kept_their_promises(&[&west, &east]).await, 1);
}

/// Delays each answer by two thirds of a second. No leader is demoted, and a failover still works.
async fn slow(test: &str) {
    let (proxy, west, east) = west_by_proxy(test).await;
    let session = sessions(Consul::shared(), &west.member).await;
    proxy.disturb(Stream::Down, late(660)).await;
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
