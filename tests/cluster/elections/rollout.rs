//! What Deployments do to their pods.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams, PostParams};
use lictor_testing::kubernetes::{Lab, eventually};
use serde_json::{Value, json};

/// How long a group may have no leader although a pod is eligible. A handover takes some milliseconds, but this machine may be
/// busy.
const SOON: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_and_scaling_to_zero_and_up_never_make_two_leaders_nor_leave_eligible_pods_without_one() {
    let lab = Lab::new("rollout").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    lab.elect(json!({})).await;
    let deployments: Api<Deployment> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let object = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"test.lictor.dev/terminate-slowly": "true"}},
                "spec": {"containers": [{"name": "main", "image": "example/web:1"}], "terminationGracePeriodSeconds": 3},
            },
        },
    });
    let object: Deployment = serde_json::from_value(object).expect("a Deployment");
    deployments.create(&PostParams::default(), &object).await.expect("a Deployment can be made");
    settled(&deployments, 3).await;
    lab.wait_any_leader().await;

    let image = json!([{"name": "main", "image": "example/web:2"}]);
    change(&deployments, json!({"spec": {"template": {"spec": {"containers": image}}}})).await;
    settled(&deployments, 3).await;
    lab.wait_any_leader().await;

    change(&deployments, json!({"spec": {"replicas": 0}})).await;
    settled(&deployments, 0).await;
    lab.wait_message("web", "Elected", "NoEligiblePod", "matches no pod").await;
    change(&deployments, json!({"spec": {"replicas": 3}})).await;
    settled(&deployments, 3).await;
    lab.wait_any_leader().await;

    recorder.catch_up().await;
    assert!(recorder.assert_promises() >= 3);
    // At every revision with a ready pod that is neither being deleted nor finished, there is a leader, or one follows soon.
    let vacancy = recorder.longest_vacancy();
    assert!(vacancy < SOON, "no leader for {vacancy:?}: {:#?}", recorder.revisions());
}

async fn change(deployments: &Api<Deployment>, patch: Value) {
    let patched = deployments.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.expect("a Deployment can be patched");
}

/// Waits until the rollout is complete, and the pods that it replaced are gone.
async fn settled(deployments: &Api<Deployment>, replicas: i32) {
    eventually(&format!("{replicas} replicas are rolled out"), || async {
        let deployment = deployments.get("web").await.map_err(|error| error.to_string())?;
        let status = deployment.status.unwrap_or_default();
        let counts = [status.replicas, status.updated_replicas, status.ready_replicas].map(Option::unwrap_or_default);
        let observed = status.observed_generation == deployment.metadata.generation;
        if observed && counts == [replicas; 3] { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
}
