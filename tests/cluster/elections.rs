//! Which pod leads, and how the leadership moves.

use lictor_testing::kubernetes::{Lab, PodSpec};
use serde_json::json;

mod choice;
mod connection;
mod deletion;
mod deletion_cost;
mod drift;
mod failover;
mod nodes;
mod ownership;
mod probe;
mod rollout;
mod spec;

#[tokio::test(flavor = "multi_thread")]
async fn three_ready_pods_get_one_leader_and_two_followers() {
    let lab = Lab::new("three").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b", "c"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    lab.pod("d", PodSpec::default()).await;
    lab.wait_leader(&leader).await;
    recorder.catch_up().await;
    assert_eq!(recorder.assert_promises(), 1);
}
