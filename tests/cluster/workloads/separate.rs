//! Two clusters with their own API servers, and one Consul. One observer's own clock gives the order.

use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::workloads::{following, pod};
use lictor_testing::kubernetes::{Cluster, Lab, Operator, WorkloadRecorder};
use serde_json::json;

use crate::consul::member::Member;

const WORKLOADS: [&str; 2] = ["CronJob/nightly", "Deployment/live"];

/// Creates a cluster with a CronJob and a Deployment, and with an election for them.
async fn side(cluster: &'static Cluster, lab: &str, test: &str, name: &str) -> (Member, Operator, WorkloadRecorder) {
    let lab = Lab::of(cluster, lab).await;
    let fields = json!({"whenOperatorStops": "Release"});
    let member = Member::of(lab, test, name, Consul::shared().address(), fields).await;
    let (recorder, operator) = (member.lab.record_workloads().await, member.operator(&[]));
    member.lab.cron_job("nightly", super::NEVER, pod()).await;
    member.lab.deployment("live", 3, pod()).await;
    member.elect_cluster(json!({"workloads": following(&WORKLOADS)})).await;
    (member, operator, recorder)
}

/// The first cluster disables everything before the second one enables anything.
async fn assert_one_after_the_other(first: &WorkloadRecorder, second: &WorkloadRecorder) {
    for recorder in [first, second] {
        recorder.catch_up().await;
    }
    let off = *first.turns(false).last().expect("it was disabled");
    let on = second.turns(true);
    assert_eq!(on.len(), 2, "the second one enabled each once");
    assert!(on.iter().all(|on| *on > off), "{:?} before the first's last, {:#?}", on.iter().min(), first.seen());
}

async fn enabled(member: &Member) {
    member.lab.wait_enabled("CronJob/nightly", json!(false)).await;
    member.lab.wait_enabled("Deployment/live", json!(3)).await;
}

async fn disabled(member: &Member) {
    member.lab.wait_disabled("CronJob/nightly", json!(false)).await;
    member.lab.wait_disabled("Deployment/live", json!(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn workloads_move_between_separate_control_planes() {
    let (west, mut operator, west_seen) = side(Cluster::shared(), "wl-apart-west", "wl-apart", "west").await;
    enabled(&west).await;
    let (east, _other, east_seen) = side(Cluster::second(), "wl-apart-east", "wl-apart", "east").await;
    disabled(&east).await;
    east.wait_led("west", None).await;
    assert_eq!(east_seen.turns(true).len(), 0);

    operator.stop().await;
    enabled(&east).await;
    disabled(&west).await;
    east.wait_led("east", None).await;
    assert_one_after_the_other(&west_seen, &east_seen).await;
}

/// C14.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn of_two_clusters_with_copied_values_the_second_says_so_and_waits() {
    let copied = async |cluster| side(cluster, "wl-copied", "wl-copied", "west").await;
    let (first, mut operator, first_seen) = copied(Cluster::shared()).await;
    enabled(&first).await;
    let (second, _other, second_seen) = copied(Cluster::second()).await;
    let message = second.wait_class("False", "ClusterNameInUse").await;
    assert!(message.contains("consul.clusterName"), "{message}");
    disabled(&second).await;
    first.wait_class("True", "Answers").await;
    assert_eq!(second_seen.turns(true).len(), 0);

    operator.stop().await;
    enabled(&second).await;
    second.wait_class("True", "Answers").await;
    assert_one_after_the_other(&first_seen, &second_seen).await;
}
