//! The leader's deletion cost: what the ReplicaSet controller makes of it, and that a user's own stays.

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use lictor_testing::kubernetes::{Lab, PodSpec, eventually};
use serde_json::json;

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

async fn cost(lab: &Lab, pod: &str) -> Option<String> {
    lab.get_pod(pod).await.annotations().get(COST).cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_with_fewer_replicas_keeps_its_leader() {
    let lab = Lab::new("fewer").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    lab.elect(json!({"preemption": "HigherPriority"})).await;
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "example/web"}]}},
    }});
    lab.try_kubectl(&["create", "-f", "-"], Some(&object.to_string())).expect("a Deployment can be made");
    let first = lab.wait_any_leader().await;
    scale(&lab, 5).await;
    lab.wait_candidates(5, 5).await;
    // The ReplicaSet controller deletes pods that became ready last before others. One of these leads now.
    let pods: Vec<String> = lab.roles().await.into_iter().map(|(pod, _)| pod).collect();
    let last = pods.iter().find(|pod| **pod != first).expect("there are five");
    lab.patch_pod(last, json!({"metadata": {"annotations": {"lictor.dev/priority": "1"}}})).await;
    lab.wait_leader(last).await;
    assert_eq!((cost(&lab, last).await.as_deref(), cost(&lab, &first).await), (Some("1000"), None));
    scale(&lab, 1).await;
    lab.wait_candidates(1, 1).await;
    lab.wait_leader(last).await;
    assert_eq!(recorder.assert_promises().await, 2);
}

async fn scale(lab: &Lab, replicas: u32) {
    let deployments: Api<Deployment> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    deployments.patch("web", &PatchParams::default(), &patch).await.expect("a Deployment can be scaled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cost_that_somebody_else_writes_stays_and_lictors_own_goes_with_the_label() {
    let lab = Lab::new("own-cost").await;
    let _operator = lab.operator(&[]);
    let preferred =
        |priority: &str| PodSpec { annotations: json!({"lictor.dev/priority": priority}), ..PodSpec::default() };
    lab.pod("a", preferred("3")).await;
    let mut own = preferred("2");
    own.annotations[COST] = json!("1000");
    lab.pod("b", own).await;
    lab.pod("c", preferred("1")).await;
    for pod in ["a", "b", "c"] {
        lab.wait_ready(pod, true).await;
    }
    lab.elect(json!({})).await;
    lab.wait_leader("a").await;
    assert_eq!(cost(&lab, "a").await.as_deref(), Some("1000"));
    let never = |pod: &'static str| {
        lab.patch_pod(pod, json!({"metadata": {"annotations": {"lictor.dev/never-leader": "true"}}}))
    };
    never("a").await;
    lab.wait_leader("b").await;
    assert_eq!(cost(&lab, "a").await, None);
    never("b").await;
    lab.wait_leader("c").await;
    assert_eq!(cost(&lab, "b").await.as_deref(), Some("1000"), "it was there before, so it is its user's");
    lab.patch_pod("c", json!({"metadata": {"annotations": {COST: "-7"}}})).await;
    lab.delete_election("web").await;
    for pod in ["a", "b", "c"] {
        lab.wait_clean(pod).await;
    }
    eventually("the costs are those of users", || async {
        let costs = [cost(&lab, "a").await, cost(&lab, "b").await, cost(&lab, "c").await];
        let wanted = [None, Some("1000".to_owned()), Some("-7".to_owned())];
        if costs == wanted { Ok(()) } else { Err(format!("{costs:?}")) }
    })
    .await;
}
