//! What becomes of the former leader: `spec.handover.formerLeader`. The tests play the kubelet: on a simulated node, the object of a
//! deleted pod stays as it is while it has a finalizer.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use lictor_core::LEADER_FINALIZER;
use lictor_testing::kubernetes::{Lab, eventually};
use serde_json::json;

fn former(what: &str) -> serde_json::Value {
    json!({"handover": {"formerLeader": what}})
}

/// The kubelet reports that the pod's containers have ended.
async fn end(lab: &Lab, pod: &str) {
    let ended = json!({"name": "main", "image": "example/web", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 0}}});
    let status = json!({"status": {"phase": "Failed", "containerStatuses": [ended]}});
    let patched = lab.pods_api().patch_status(pod, &PatchParams::default(), &Patch::Merge(status)).await;
    patched.expect("a pod's status can be patched");
}

async fn wait_gone(lab: &Lab, pod: &str) {
    eventually(&format!("{pod} is gone"), || async {
        let found = lab.pods_api().get_opt(pod).await.map_err(|error| error.to_string())?;
        found.map_or(Ok(()), |pod| Err(format!("{:?} {:?}", pod.metadata, pod.status)))
    })
    .await;
}

/// E1: neither a deletion with force nor a restart of the operator ends the wait.
#[tokio::test(flavor = "multi_thread")]
async fn no_pod_leads_before_the_former_leader_has_ended() {
    let lab = Lab::new("former-first").await;
    let (recorder, mut operator) = (lab.record().await, lab.operator(&[]));
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(former("DeleteFirst")).await;
    let leader = lab.wait_any_leader().await;
    let other = if leader == "a" { "b" } else { "a" };
    assert_eq!(lab.pods_api().get(&leader).await.unwrap().finalizers(), [LEADER_FINALIZER]);

    lab.set_condition(&leader, "Ready", false).await;
    let message = lab.wait_condition("web", "Elected", "False", "FormerLeaderRuns").await;
    assert!(message.contains(&format!("before the former leader {leader} has ended")), "{message}");
    lab.wait_event("LeaderElection", "web", "FormerLeaderDeleted").await;
    let force = DeleteParams::default().grace_period(0);
    lab.pods_api().delete(&leader, &force).await.expect("a pod can be deleted");
    operator.signal("KILL");
    operator.ended().await;
    let _operator = lab.operator(&[]);
    lab.wait_condition("web", "Elected", "False", "FormerLeaderRuns").await;
    lab.wait_no_leader().await;
    assert!(lab.pods_api().get(&leader).await.unwrap().metadata.deletion_timestamp.is_some());

    end(&lab, &leader).await;
    lab.wait_leader(other).await;
    wait_gone(&lab, &leader).await;
    // The finalizer is off all pods when the election is gone.
    lab.delete_election("web").await;
    lab.wait_election_gone("web").await;
    eventually("the finalizer is off", || async {
        let pod = lab.pods_api().get(other).await.map_err(|error| error.to_string())?;
        if pod.finalizers().is_empty() { Ok(()) } else { Err(format!("{:?}", pod.metadata)) }
    })
    .await;
    recorder.assert_promises().await;
}

/// E2.
#[tokio::test(flavor = "multi_thread")]
async fn the_former_leader_is_deleted_unless_a_budget_speaks_against_it() {
    let lab = Lab::new("former-deleted").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let budget = json!({
        "metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    });
    budgets
        .create(&PostParams::default(), &serde_json::from_value(budget).unwrap())
        .await
        .expect("a budget can be made");
    lab.elect(former("Delete")).await;
    let leader = lab.wait_any_leader().await;
    let other = if leader == "a" { "b" } else { "a" };
    lab.patch_pod(&leader, json!({"metadata": {"annotations": {"lictor.dev/never-leader": "true"}}})).await;
    lab.wait_leader(other).await;
    let note = lab.wait_event("LeaderElection", "web", "FormerLeaderStays").await;
    assert!(note.contains("disruption budget"), "{note}");
    assert!(lab.pods_api().get(&leader).await.unwrap().metadata.deletion_timestamp.is_none());
    lab.elect(json!({"handover": {"formerLeader": "Delete", "respectDisruptionBudgets": false}})).await;
    wait_gone(&lab, &leader).await;
    lab.wait_event("LeaderElection", "web", "FormerLeaderDeleted").await;
    assert!(lab.pods_api().get(other).await.unwrap().metadata.deletion_timestamp.is_none());
}
