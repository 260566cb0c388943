//! What Deployments do to their pods.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
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
    lab.wait_message("web", "Elected", "NoEligiblePod", "no pod matches spec.selector: scale up").await;
    change(&deployments, json!({"spec": {"replicas": 3}})).await;
    settled(&deployments, 3).await;
    lab.wait_any_leader().await;

    assert!(recorder.assert_promises().await >= 3);
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

/// A workload of three pods that are replaced one by one: a new one, where there is surge, before an old one goes.
fn of_three(kind: &str, more: &Value) -> String {
    let mut object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "example/web:1"}], "terminationGracePeriodSeconds": 1},
        },
    }});
    for (field, value) in more.as_object().expect("fields") {
        object["spec"][field] = value.clone();
    }
    object.to_string()
}

/// Waits until a pod that is made now is younger than all that there are: Kubernetes keeps whole seconds.
async fn later(lab: &Lab) {
    eventually("a second has begun in which no pod was made", || async {
        let pods = lab.pods_api().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let last = pods.items.iter().filter_map(ResourceExt::creation_timestamp).map(|time| time.0).max();
        let now = k8s_openapi::jiff::Timestamp::now();
        if last.is_none_or(|last| last.as_second() < now.as_second()) { Ok(()) } else { Err(format!("{last:?} {now}")) }
    })
    .await;
}

/// Changes the template, and waits until all pods are made from it.
async fn update(lab: &Lab, workload: &str, image: &str) {
    later(lab).await;
    lab.try_kubectl(&["set", "image", workload, &format!("main={image}")], None).expect("it can be updated");
    lab.try_kubectl(&["rollout", "status", workload, "--timeout=90s"], None).expect("it is updated");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_of_a_deployment_changes_once_while_it_is_updated_and_once_while_that_is_undone() {
    let lab = Lab::new("changes-once").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    lab.elect(json!({})).await;
    let surge = json!({"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}});
    lab.try_kubectl(&["create", "-f", "-"], Some(&of_three("Deployment", &surge))).expect("it can be made");
    lab.wait_candidates(3, 3).await;
    lab.wait_any_leader().await;
    assert_eq!(lab.term("web").await, 1);
    update(&lab, "deployment/web", "example/web:2").await;
    lab.wait_candidates(3, 3).await;
    lab.wait_any_leader().await;
    assert_eq!(lab.term("web").await, 2);
    // The former template is the newest again.
    later(&lab).await;
    lab.try_kubectl(&["rollout", "undo", "deployment/web"], None).expect("it can be undone");
    lab.try_kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"], None).expect("it is undone");
    lab.wait_candidates(3, 3).await;
    lab.wait_any_leader().await;
    assert_eq!(lab.term("web").await, 3);
    assert_eq!(recorder.assert_promises().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_of_a_stateful_set_changes_twice_at_most_while_it_is_updated() {
    let lab = Lab::new("changes-twice").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    lab.elect(json!({"preemption": "HigherPriority"})).await;
    let parallel = json!({"serviceName": "web", "podManagementPolicy": "Parallel"});
    lab.try_kubectl(&["create", "-f", "-"], Some(&of_three("StatefulSet", &parallel))).expect("it can be made");
    lab.wait_candidates(3, 3).await;
    // The last pod is replaced first, and the one after it comes first of the old ones.
    for (pod, priority) in [("web-2", "2"), ("web-1", "1")] {
        lab.patch_pod(pod, json!({"metadata": {"annotations": {"lictor.dev/priority": priority}}})).await;
    }
    lab.wait_leader("web-2").await;
    lab.wait_reason("web-2", if lab.term("web").await == 1 { "Vacant" } else { "Preempted" }).await;
    let before = lab.term("web").await;
    update(&lab, "statefulset/web", "example/web:2").await;
    lab.wait_candidates(3, 3).await;
    lab.wait_any_leader().await;
    let changes = lab.term("web").await - before;
    assert!((1..=2).contains(&changes), "{changes} changes");
    recorder.assert_promises().await;
}
