//! The network to Consul, by Toxiproxy: cut, cut in one direction, cut in the middle of an answer, and slow.

use std::time::{Duration, Instant};

use lictor_testing::consul::{Consul, ToxicProxy, Toxiproxy};
use lictor_testing::kubernetes::Cluster;
use serde_json::{Value, json};

use super::super::member::{Member, sessions};
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
    assert!(message.contains("If it takes 2.0 s, it counts as lost"), "{message}");
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
