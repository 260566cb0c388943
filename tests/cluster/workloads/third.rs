//! A third cluster: what the first one left still runs, whoever had the lock meanwhile.

use std::time::{Duration, Instant};

use lictor_testing::Link;
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::workloads::{following, pod, slow_pod};
use lictor_testing::kubernetes::{Cluster, Operator, WorkloadRecorder};
use serde_json::json;

use crate::consul::member::Member;

struct Side {
    member: Member,
    recorder: WorkloadRecorder,
    operator: Operator,
}

impl Side {
    /// Creates it with a Deployment whose pods take this long to end, and with an election for it.
    async fn new(test: &str, cluster: &str, address: &str, grace: Option<u32>) -> Self {
        let member = Member::new(test, cluster, address, json!({})).await;
        let (recorder, operator) = (member.lab.record_workloads().await, member.operator(&[]));
        member.lab.gate().await;
        let (replicas, template) = grace.map_or((0, pod()), |grace| (1, slow_pod(grace)));
        member.lab.deployment("live", replicas, template).await;
        let gate = json!({"availableDeploymentName": "gate"});
        member.elect_cluster(json!({"workloads": following(&["Deployment/live"]), "eligibility": gate})).await;
        Self { member, recorder, operator }
    }
}

/// The west is cut off, and what it left takes 45 s to end. Before that, the lock passes to the south, in one way or the other.
async fn three(test: &str, killed: bool) {
    let proxy = Link::to(Consul::shared().server(1).socket());
    let west = Side::new(test, "west", &format!("http://{}", proxy.address()), Some(45)).await;
    west.member.lab.wait_enabled("Deployment/live", json!(1)).await;
    west.member.lab.wait_workload("Deployment/live", "it runs", |found| found["status"]["readyReplicas"] == 1).await;
    let east = Side::new(test, "east", Consul::shared().address(), None).await;
    east.member.wait_led("west", None).await;
    proxy.disable().await;
    let began = Instant::now();
    east.member.lab.wait_condition("web", "WorkloadsFollow", "False", "Waiting").await;
    let south = Side::new(test, "south", Consul::shared().address(), None).await;
    south.member.wait_led("east", None).await;
    if killed {
        east.operator.signal("KILL");
    } else {
        east.member.lab.open_gate(false).await;
    }
    let all = [&west.recorder, &east.recorder, &south.recorder];
    // This waits for longer than a test's patience.
    tokio::time::sleep(Duration::from_secs(40)).await;
    south.member.lab.wait_enabled("Deployment/live", json!(1)).await;
    for recorder in all {
        recorder.catch_up().await;
    }
    WorkloadRecorder::assert_never_both_enabled(&all);
    WorkloadRecorder::assert_never_both_run(&all, 0);
    eprintln!("measured: {test}: {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn a_third_cluster_waits_for_what_the_first_left_also_if_the_second_lets_go_of_the_lock_before() {
    // Starting them blocks this thread.
    let _ = (Consul::shared(), Cluster::shared());
    tokio::join!(three("wl-third", false), three("wl-third-killed", true));
}
