//! An election without a selector: the cluster itself is the candidate.

use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::Lab;
use lictor_testing::kubernetes::workloads::following;
use serde_json::json;

use super::{FOUR, four};
use crate::consul::member::{Member, entry};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_leads_while_the_deployment_that_it_needs_is_available() {
    let member = Member::new("wl-alone", "west", Consul::shared().address(), json!({})).await;
    let _operator = member.operator(&[]);
    four(&member.lab, (3, 2)).await;
    let gate = json!({"availableDeploymentName": "gate"});
    member.elect_cluster(json!({"workloads": following(&FOUR), "eligibility": gate})).await;
    // The Deployment is missing.
    member.lab.wait_candidates(0, 1).await;
    super::all_disabled(&member.lab, (3, 2)).await;
    member.lab.gate().await;
    member.wait_led("west", None).await;
    super::all_enabled(&member.lab, (3, 2)).await;
    member.lab.wait_condition("web", "Elected", "True", "Elected").await;
    member.lab.wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
    member.lab.wait_candidates(1, 1).await;
    let election = member.lab.election("web").await;
    let status = election.status.expect("it has a status");
    let found = entry(Consul::shared(), &member.key()).await.expect("the key is there");
    assert_eq!(found["Value"]["cluster"], "west", "{found}");
    assert_eq!(status.term.map(|term| json!(term)), Some(found["ModifyIndex"].clone()), "the term is the lock's index");
    let shown = member.lab.try_kubectl(&["get", "leaderelection", "web", "-o", "wide"], None).expect("it is shown");
    assert!(shown.contains("west") && shown.contains("1/1"), "{shown}");

    // There is no other cluster, so no cluster leads while it is not available.
    member.lab.open_gate(false).await;
    member.lab.wait_candidates(0, 1).await;
    super::all_disabled(&member.lab, (3, 2)).await;
    for workload in FOUR {
        member.lab.wait_state(workload, "Disabled").await;
    }
    member.lab.open_gate(true).await;
    super::all_enabled(&member.lab, (3, 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_delay_lets_the_deployment_come_back() {
    let member = Member::new("wl-delay", "west", Consul::shared().address(), json!({})).await;
    let _operator = member.operator(&[]);
    let recorder = member.lab.record_workloads().await;
    member.lab.gate().await;
    four(&member.lab, (3, 2)).await;
    member
        .elect_cluster(json!({
            "workloads": following(&FOUR), "eligibility": {"availableDeploymentName": "gate"},
            "handover": {"failoverDelaySeconds": 600},
        }))
        .await;
    super::all_enabled(&member.lab, (3, 2)).await;
    let term = member.lab.election("web").await.status.and_then(|status| status.term);
    member.lab.open_gate(false).await;
    member.lab.wait_candidates(0, 1).await;
    member.lab.open_gate(true).await;
    member.lab.wait_candidates(1, 1).await;
    recorder.catch_up().await;
    assert_eq!(recorder.turns(true).len(), 4, "nothing was disabled meanwhile");
    assert_eq!(member.lab.election("web").await.status.and_then(|status| status.term), term);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_lock_in_a_lease_a_cluster_is_no_candidate() {
    let lab = Lab::new("wl-lease").await;
    let _operator = lab.operator(&[]);
    let recorder = lab.record_workloads().await;
    four(&lab, (3, 2)).await;
    lab.apply_election("web", json!({"workloads": following(&FOUR)})).await;
    let message = lab.wait_condition("web", "Accepted", "False", "NoCandidates").await;
    assert!(message.contains("spec.selector") && message.contains("consul"), "{message}");
    recorder.catch_up().await;
    assert!(recorder.seen().iter().all(|seen| !seen.claimed()), "nothing is touched");
    lab.ready_pods(&["a"]).await;
    lab.elect(json!({"workloads": following(&FOUR)})).await;
    lab.wait_leader("a").await;
    super::all_enabled(&lab, (3, 2)).await;
}
