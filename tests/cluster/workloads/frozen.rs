//! Operators that hang, and operators that can't reach their own API server.

use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::{Cluster, Proxy, WorkloadRecorder};
use serde_json::{Value, json};

use super::{Side, both, never_both_run, settled, two};
use crate::consul::member::Member;

/// Creates two clusters, of which the west leads. Then the west's operator has no API server.
async fn cut_off(test: &str, policy: Value) -> (Proxy, Side, Side) {
    let address = Consul::shared().address();
    let proxy = Proxy::start(Cluster::shared()).await;
    let member = Member::new(test, "west", address, policy).await;
    let mut west = Side::new(member, (3, 2)).await;
    west.operator.stop().await;
    west.operator = west.member.operator_at(proxy.kubeconfig());
    let east = Side::new(Member::new(test, "east", address, json!({})).await, (2, 1)).await;
    both(&west, &east, json!({})).await;
    // A watch that is held back would never be answered.
    proxy.hold(|asked| !asked.path.contains("watch=true"));
    (proxy, west, east)
}

/// By default an operator keeps its locks while it can't reach its cluster.
async fn hold() {
    let (proxy, west, east) = cut_off("wl-no-api", json!({})).await;
    let from = east.recorder.catch_up().await;
    west.operator.logs("this replica stands by").await;
    // This is more than twice the TTL: Consul would have given the lock away.
    tokio::time::sleep(std::time::Duration::from_secs(25)).await;
    east.member.wait_led("west", None).await;
    proxy.hold(|_| false);
    west.lab().open_gate(false).await;
    east.wait_all_enabled().await;
    west.wait_all_disabled().await;
    never_both_run(&west, &east, from).await;
}

/// A hanging operator's locks expire. When it continues, it disables everything.
async fn hangs() {
    let (west, east) = two("wl-hangs", json!({})).await;
    let hung = west.recorder.catch_up().await;
    west.operator.signal("STOP");
    east.wait_all_enabled().await;
    west.operator.signal("CONT");
    west.wait_all_disabled().await;
    west.member.wait_led("east", None).await;
    settled(&west).await;
    let back = west.recorder.catch_up().await;
    east.recorder.catch_up().await;
    WorkloadRecorder::assert_never_both_enabled_but_for(&[&west.recorder, &east.recorder], hung..back);
    assert_eq!(west.recorder.turns(true).len(), 4, "what goes on enables nothing");
    east.wait_all_enabled().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn an_operator_without_its_api_server_keeps_the_lock_and_one_that_hung_disables_first() {
    // Starting them blocks this thread.
    let _ = (Consul::shared(), Cluster::shared());
    tokio::join!(hold(), hangs());
}
