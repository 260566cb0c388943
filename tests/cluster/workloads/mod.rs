//! What runs only where the leader is: `spec.workloads`. Clusters that share a lock in Consul are namespaces with an operator
//! each, so that one API server's versions give the order.

mod bad_input;
mod candidate;
mod circles;
mod claims;
mod frozen;
mod handover;
mod hands;
mod killed;
mod late_writer;
mod network;
mod other_tools;
mod release;
mod rights;
mod separate;
mod steady;
mod switched;
mod template;
mod third;
mod ticks;
mod wind_down;

use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::workloads::{following, idle_pod, pod};
use lictor_testing::kubernetes::{Lab, Operator, WorkloadRecorder};
use serde_json::{Value, json};

use crate::consul::member::Member;

/// A schedule that no test reaches.
const NEVER: &str = "0 0 29 2 *";

/// One workload of each kind.
const FOUR: [&str; 4] = ["CronJob/nightly", "Deployment/live", "Job/import", "StatefulSet/queue"];

/// A cluster at work: its operator, and everything that its workloads showed.
struct Side {
    member: Member,
    operator: Operator,
    recorder: WorkloadRecorder,
    /// The numbers of replicas of its Deployment and its StatefulSet.
    replicas: (u32, u32),
}

impl Side {
    /// Creates it with one workload of each kind and the Deployment `gate`, and without an election.
    async fn new(member: Member, replicas: (u32, u32)) -> Self {
        let recorder = member.lab.record_workloads().await;
        let operator = member.operator(&[]);
        member.lab.gate().await;
        four(&member.lab, replicas).await;
        Self { member, operator, recorder, replicas }
    }

    /// Applies the election of the cluster itself, with these further fields.
    async fn elect(&self, spec: Value) {
        let mut full = json!({"workloads": following(&FOUR), "eligibility": {"availableDeploymentName": "gate"}});
        for (field, value) in spec.as_object().into_iter().flatten() {
            full[field] = value.clone();
        }
        self.member.elect_cluster(full).await;
    }

    fn lab(&self) -> &Lab {
        &self.member.lab
    }

    async fn wait_all_enabled(&self) {
        all_enabled(self.lab(), self.replicas).await;
    }

    async fn wait_all_disabled(&self) {
        all_disabled(self.lab(), self.replicas).await;
    }
}

/// Creates one workload of each kind.
async fn four(lab: &Lab, (live, queue): (u32, u32)) {
    lab.cron_job("nightly", NEVER, pod()).await;
    lab.deployment("live", live, pod()).await;
    lab.job("import", idle_pod()).await;
    lab.stateful_set("queue", queue, pod()).await;
}

async fn all_enabled(lab: &Lab, (live, queue): (u32, u32)) {
    for (workload, with) in FOUR.into_iter().zip([json!(false), json!(live), json!(false), json!(queue)]) {
        lab.wait_enabled(workload, with).await;
    }
}

async fn all_disabled(lab: &Lab, (live, queue): (u32, u32)) {
    for (workload, kept) in FOUR.into_iter().zip([json!(false), json!(live), json!(false), json!(queue)]) {
        lab.wait_disabled(workload, kept).await;
    }
}

/// Creates two clusters at one lock. The west leads. The fields are of the class's `consul` in the west.
async fn two(test: &str, fields: Value) -> (Side, Side) {
    let address = Consul::shared().address();
    let west = Side::new(Member::new(test, "west", address, fields).await, (3, 2)).await;
    let east = Side::new(Member::new(test, "east", address, json!({})).await, (2, 1)).await;
    both(&west, &east, json!({})).await;
    (west, east)
}

/// Lets both elect with these fields, the west first.
async fn both(west: &Side, east: &Side, spec: Value) {
    west.elect(spec.clone()).await;
    west.wait_all_enabled().await;
    east.elect(spec).await;
    east.wait_all_disabled().await;
    east.member.wait_led("west", None).await;
    settled(east).await;
}

/// Waits until nothing of a disabled cluster's workloads runs any more.
async fn settled(side: &Side) {
    for workload in FOUR {
        side.lab().wait_state(workload, "Disabled").await;
    }
}

/// Checks that nothing was enabled in both clusters at any revision.
async fn never_both_enabled(west: &Side, east: &Side) {
    for side in [west, east] {
        side.recorder.catch_up().await;
    }
    WorkloadRecorder::assert_never_both_enabled(&[&west.recorder, &east.recorder]);
}

/// Checks that pods did not run in both from this version on.
async fn never_both_run(west: &Side, east: &Side, from: u64) {
    never_both_enabled(west, east).await;
    WorkloadRecorder::assert_never_both_run(&[&west.recorder, &east.recorder], from);
}
