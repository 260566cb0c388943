//! Two clusters with their own API servers, and one Consul. One observer's own clock gives the order.

use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::workloads::{following, pod};
use lictor_testing::kubernetes::{Cluster, Lab, Operator, WorkloadRecorder};
use serde_json::json;

use crate::consul::member::Member;

const WORKLOADS: [&str; 2] = ["CronJob/nightly", "Deployment/live"];

/// Creates a cluster with a CronJob and a Deployment, and with an election for them.
async fn side(cluster: &'static Cluster, name: &str) -> (Member, Operator, WorkloadRecorder) {
    let lab = Lab::of(cluster, &format!("wl-apart-{name}")).await;
    let fields = json!({"whenOperatorStops": "Release"});
    let member = Member::of(lab, "wl-apart", name, Consul::shared().address(), fields).await;
    let (recorder, operator) = (member.lab.record_workloads().await, member.operator(&[]));
    member.lab.cron_job("nightly", super::NEVER, pod()).await;
    member.lab.deployment("live", 3, pod()).await;
    member.elect_cluster(json!({"workloads": following(&WORKLOADS)})).await;
    (member, operator, recorder)
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
    let (west, mut operator, west_seen) = side(Cluster::shared(), "west").await;
    enabled(&west).await;
    let (east, _other, east_seen) = side(Cluster::second(), "east").await;
    disabled(&east).await;
    east.wait_led("west", None).await;
    let before = east_seen.turns(true).len();

    operator.stop().await;
    enabled(&east).await;
    disabled(&west).await;
    east.wait_led("east", None).await;
    for recorder in [&west_seen, &east_seen] {
        recorder.catch_up().await;
    }
    let off = *west_seen.turns(false).last().expect("it was disabled");
    let on = east_seen.turns(true);
    assert_eq!((before, on.len()), (0, 2), "the east enabled each once");
    assert!(on.iter().all(|on| *on > off), "{:?} before the west's last, {:#?}", on.iter().min(), west_seen.seen());
}
