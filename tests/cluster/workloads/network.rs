//! A cluster that is cut off from Consul disables its workloads before the other one may enable them.

use std::time::Instant;

use lictor_testing::Link;
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::Cluster;
use serde_json::json;

use super::{Side, both, never_both_run};
use crate::consul::member::{LED_WITHIN, Member, TTL};

/// Creates two clusters. A proxy can cut the west off from Consul, but not the east.
async fn west_by_proxy(test: &str) -> (Link, Side, Side) {
    let proxy = Link::to(Consul::shared().server(1).socket());
    let west = Member::new(test, "west", &format!("http://{}", proxy.address()), json!({})).await;
    let east = Member::new(test, "east", Consul::shared().address(), json!({})).await;
    (proxy, Side::new(west, (3, 2)).await, Side::new(east, (2, 1)).await)
}

async fn cut() {
    let (proxy, west, east) = west_by_proxy("wl-cut").await;
    both(&west, &east, json!({})).await;
    let from = east.recorder.catch_up().await;
    let began = Instant::now();
    proxy.disable().await;
    west.lab().wait_condition("web", "Elected", "False", "StoreLost").await;
    west.wait_all_disabled().await;
    west.recorder.catch_up().await;
    let disabled = west.recorder.turns(false).last().expect("it was disabled").duration_since(began);
    assert!(disabled < TTL, "disabled after {disabled:?}");
    east.wait_all_enabled().await;
    let took = began.elapsed();
    assert!(took < LED_WITHIN, "{took:?}, and it may take {LED_WITHIN:?}");

    proxy.enable().await;
    west.member.wait_led("east", None).await;
    west.wait_all_disabled().await;
    never_both_run(&west, &east, from).await;
}

/// The user chose that the workloads stay enabled. This shows what that costs.
async fn keep() {
    let (proxy, west, east) = west_by_proxy("wl-keep").await;
    both(&west, &east, json!({"sharedStore": {"whenLost": "Keep"}})).await;
    proxy.disable().await;
    west.member.wait_class("False", "NoAnswer").await;
    east.wait_all_enabled().await;
    west.wait_all_enabled().await;
    west.recorder.catch_up().await;
    assert_eq!(west.recorder.turns(true).len(), 4, "nothing was disabled meanwhile");
    proxy.enable().await;
    west.wait_all_disabled().await;
    west.member.wait_led("east", None).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn a_cluster_that_is_cut_off_from_consul_disables_before_another_enables() {
    // Starting them blocks this thread.
    let _ = (Consul::shared(), Cluster::shared());
    tokio::join!(cut(), keep());
}
