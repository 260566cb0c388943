//! A planned handover between clusters: everything ends in one before anything starts in the other.

use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::workloads::following;
use serde_json::json;

use super::{FOUR, Side, never_both_enabled, never_both_run, settled, two};
use crate::consul::member::{Member, entry};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn the_workloads_of_an_operator_that_releases_at_its_end_move_with_their_own_numbers() {
    let (mut west, mut east) = two("wl-release", json!({"whenOperatorStops": "Release"})).await;
    let from = east.recorder.catch_up().await;
    let status = west.operator.stop().await;
    assert!(status.success(), "{status}");
    west.wait_all_disabled().await;
    east.wait_all_enabled().await;
    east.member.wait_led("east", None).await;
    never_both_run(&west, &east, from).await;

    // The operator that comes back finds them disabled, and leaves them so.
    west.operator = west.member.operator(&[]);
    west.member.wait_led("east", None).await;
    settled(&west).await;
    // The east's class keeps the lock when its operator stops, and the next operator continues with it.
    east.operator.stop().await;
    east.operator = east.member.operator(&[]);
    east.operator.acts().await;
    east.lab().wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
    east.wait_all_enabled().await;
    never_both_run(&west, &east, from).await;
    assert_eq!(east.recorder.turns(true).len(), 4, "each was enabled once");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn the_workloads_move_when_the_cluster_is_no_candidate_any_more_and_do_not_come_back_by_themselves() {
    let (west, east) = two("wl-gate", json!({})).await;
    let from = east.recorder.catch_up().await;
    west.lab().open_gate(false).await;
    east.wait_all_enabled().await;
    west.wait_all_disabled().await;
    west.member.wait_led("east", None).await;
    never_both_run(&west, &east, from).await;
    for (side, reason) in [(&west, "WorkloadDisabled"), (&east, "WorkloadEnabled")] {
        let note = side.lab().wait_event("LeaderElection", "web", reason).await;
        assert!(FOUR.iter().any(|workload| note.starts_with(workload)), "{note}");
    }

    west.lab().open_gate(true).await;
    west.lab().wait_candidates(1, 1).await;
    west.member.wait_led("east", None).await;
    // The way back, to a side that has led before.
    east.lab().open_gate(false).await;
    west.wait_all_enabled().await;
    east.wait_all_disabled().await;
    never_both_run(&west, &east, from).await;
    assert_eq!((west.recorder.turns(true).len(), east.recorder.turns(true).len()), (8, 4));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn the_workloads_follow_a_deleted_election_to_the_other_cluster() {
    let (west, east) = two("wl-deleted", json!({})).await;
    west.lab().delete_election("web").await;
    east.wait_all_enabled().await;
    for (workload, with) in
        [("Deployment/live", json!(3)), ("StatefulSet/queue", json!(2)), ("Job/import", json!(false))]
    {
        west.lab().wait_released(workload, with).await;
    }
    let found = entry(Consul::shared(), &west.member.key()).await.expect("the key is there");
    assert_eq!(found["Value"]["cluster"], "east", "{found}");
    never_both_enabled(&west, &east).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn while_paused_nothing_moves() {
    let (west, east) = two("wl-paused", json!({})).await;
    for side in [&west, &east] {
        side.elect(json!({"paused": true})).await;
        side.lab().wait_condition("web", "Paused", "True", "Paused").await;
    }
    let before = [west.recorder.catch_up().await, east.recorder.catch_up().await];
    west.lab().open_gate(false).await;
    west.lab().wait_candidates(0, 1).await;
    west.lab().scale("Deployment/live", 4, "test").await;
    for (side, before) in [&west, &east].into_iter().zip(before) {
        side.recorder.catch_up().await;
        let seen = side.recorder.seen();
        let written: Vec<_> = seen.iter().filter(|seen| seen.version > before && seen.written_by().is_some()).collect();
        assert!(written.iter().all(|seen| seen.key == "Deployment/live"), "{written:#?}");
    }
    west.lab().wait_enabled("Deployment/live", json!(4)).await;

    both_go_on(&west, &east).await;
    never_both_enabled(&west, &east).await;
}

async fn both_go_on(west: &Side, east: &Side) {
    for side in [west, east] {
        side.elect(json!({"paused": false})).await;
    }
    east.wait_all_enabled().await;
    west.lab().wait_disabled("Deployment/live", json!(4)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn workloads_follow_a_pod_to_its_cluster_too() {
    let (west, east) = two_with_pods("wl-pods").await;
    let from = east.recorder.catch_up().await;
    west.lab().kill_pod("a").await;
    east.lab().wait_leader("b").await;
    east.wait_all_enabled().await;
    west.wait_all_disabled().await;
    never_both_run(&west, &east, from).await;
}

/// Creates two clusters with a pod each as candidates. The pod in the west leads.
async fn two_with_pods(test: &str) -> (Side, Side) {
    let address = Consul::shared().address();
    let west = Side::new(Member::new(test, "west", address, json!({})).await, (3, 2)).await;
    let east = Side::new(Member::new(test, "east", address, json!({})).await, (2, 1)).await;
    for (side, pod) in [(&west, "a"), (&east, "b")] {
        side.lab().ready_pods(&[pod]).await;
        side.member.elect(json!({"workloads": following(&FOUR)})).await;
        west.wait_all_enabled().await;
    }
    east.wait_all_disabled().await;
    settled(&east).await;
    (west, east)
}
