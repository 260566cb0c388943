//! O1, O2: what somebody else owns on a pod stays as it is, and no election makes a controller multiply its pods.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use lictor_testing::kubernetes::{Lab, PodSpec, User, eventually};
use serde_json::{Value, json};

/// Makes a Deployment `web` of two pods, whose template has these labels beside `app: web`, and waits until they are ready.
async fn deploy(lab: &Lab, selector: &Value, labels: &Value) {
    let mut all = json!({"app": "web"});
    for (key, value) in labels.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": 2, "selector": selector,
        "template": {
            "metadata": {"labels": all},
            "spec": {"containers": [{"name": "main", "image": "example/web:1"}], "terminationGracePeriodSeconds": 1},
        },
    }});
    lab.try_kubectl(&["create", "-f", "-"], Some(&object.to_string())).expect("a Deployment can be made");
    ready(lab).await;
}

/// Waits until the Deployment has two pods of its own that are ready.
async fn ready(lab: &Lab) {
    eventually("the Deployment has its pods", || async {
        let status = lab.try_kubectl(&["get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}"], None)?;
        if status == "2" { Ok(()) } else { Err(status) }
    })
    .await;
}

async fn pods(lab: &Lab) -> Vec<Pod> {
    lab.pods_api().list(&ListParams::default().labels("app=web")).await.expect("pods can be listed").items
}

/// Waits until the election is refused for a reason. Returns the message.
async fn refused(lab: &Lab, reason: &str) -> String {
    lab.wait_condition("web", "Ready", "False", reason).await;
    lab.wait_condition("web", "Accepted", "False", reason).await
}

/// Nothing was written on any pod: all have this role, and no annotation.
async fn assert_untouched(lab: &Lab, role: &str) {
    let pods = pods(lab).await;
    assert_eq!(pods.len(), 2, "{pods:#?}");
    for pod in pods {
        assert_eq!(pod.labels().get("role").map(String::as_str), Some(role), "{pod:#?}");
        assert!(pod.annotations().keys().all(|key| !key.starts_with("lictor.dev/")), "{pod:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_a_controller_selects_by_is_never_written_so_its_pods_do_not_multiply() {
    let lab = Lab::new("label-selected").await;
    let _operator = lab.operator(&[]);
    deploy(&lab, &json!({"matchLabels": {"app": "web", "role": "backend"}}), &json!({"role": "backend"})).await;
    // Nor does it help to insist.
    for insists in [json!({}), json!({"whenLabelInUse": "Replace"})] {
        lab.elect(insists).await;
        let message = refused(&lab, "LabelInUse").await;
        assert!(message.contains("the ReplicaSet web-") && message.contains("by the label role"), "{message}");
    }
    assert_untouched(&lab, "backend").await;
    // With labels of its own, it is served.
    let own = |value: &str| json!({"labels": {"example.com/leads": value}});
    lab.elect(json!({"leader": own("yes"), "follower": own("no")})).await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    let roles = pods(&lab).await;
    assert!(roles.iter().all(|pod| pod.labels().get("role").is_some_and(|role| role == "backend")), "{roles:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_from_a_template_is_not_taken_over_even_if_the_election_would_write_the_same() {
    let lab = Lab::new("label-from-template").await;
    let _operator = lab.operator(&[]);
    deploy(&lab, &json!({"matchLabels": {"app": "web"}}), &json!({"role": "follower"})).await;
    lab.elect(json!({})).await;
    let message = refused(&lab, "LabelInUse").await;
    assert!(message.contains("role=follower from its controller's template"), "{message}");
    assert_untouched(&lab, "follower").await;
}

/// The pods come with a label by which their ReplicaSet selects, and an election marks them by another one. Then its spec is edited.
#[tokio::test(flavor = "multi_thread")]
async fn a_spec_that_was_never_accepted_takes_no_label_off() {
    let lab = Lab::new("label-never-written").await;
    let _operator = lab.operator(&[]);
    deploy(&lab, &json!({"matchLabels": {"app": "web", "role": "leader"}}), &json!({"role": "leader"})).await;
    let own = json!({"labels": {"example.com/leads": "yes"}});
    let marked = || async {
        lab.elect(json!({"leader": own, "follower": {"labels": {}}})).await;
        lab.wait_condition("web", "Ready", "True", "Led").await;
    };
    marked().await;
    // The edited spec selects other pods, so those that are marked would be cleaned up by both specs.
    lab.elect(json!({"selector": {"matchLabels": {"app": "other"}}})).await;
    let message = refused(&lab, "LabelInUse").await;
    assert!(message.contains("role=leader from its controller's template"), "{message}");
    marked().await;
    lab.elect(json!({})).await;
    let message = refused(&lab, "LabelInUse").await;
    assert!(message.contains("by the label role"), "{message}");
    lab.delete_election("web").await;
    eventually("nothing is left of the election", || async {
        let left = |pod: &Pod| {
            pod.annotations()
                .keys()
                .chain(pod.labels().keys())
                .any(|key| ["lictor.dev/", "example.com/"].iter().any(|own| key.contains(own)))
        };
        let pods = pods(&lab).await;
        if pods.iter().any(left) { Err(format!("{pods:#?}")) } else { Ok(()) }
    })
    .await;
    assert_untouched(&lab, "leader").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_wrote_by_hand_is_taken_over() {
    let lab = Lab::new("label-by-hand").await;
    deploy(&lab, &json!({"matchLabels": {"app": "web"}}), &json!({})).await;
    let names: Vec<String> = pods(&lab).await.iter().map(ResourceExt::name_any).collect();
    for (pod, role) in names.iter().zip(["role=leader", "role=follower"]) {
        lab.try_kubectl(&["label", "pod", pod, role], None).expect("a pod can be labelled");
    }
    let _operator = lab.operator(&[]);
    lab.elect(json!({})).await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    lab.wait_leader(&names[0]).await;
    lab.delete_pod(&names[0]).await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    lab.wait_any_leader().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_user_insists_the_former_value_is_kept_and_restored() {
    let lab = Lab::new("label-replaced").await;
    let _operator = lab.operator(&[]);
    deploy(&lab, &json!({"matchLabels": {"app": "web"}}), &json!({"role": "backend"})).await;
    lab.elect(json!({})).await;
    refused(&lab, "LabelInUse").await;
    lab.elect(json!({"whenLabelInUse": "Replace"})).await;
    let leader = lab.wait_any_leader().await;
    let pod = lab.get_pod(&leader).await;
    assert_eq!(pod.annotations().get("lictor.dev/replaced").map(String::as_str), Some("label role=backend"));
    lab.delete_pod(&leader).await;
    ready(&lab).await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    lab.wait_any_leader().await;
    lab.delete_election("web").await;
    eventually("the former values are back", || async {
        let pods = pods(&lab).await;
        let restored = |pod: &Pod| {
            pod.labels().get("role").is_some_and(|role| role == "backend")
                && pod.annotations().keys().all(|key| !key.starts_with("lictor.dev/"))
        };
        if pods.iter().all(restored) { Ok(()) } else { Err(format!("{pods:#?}")) }
    })
    .await;
}

/// Selectors that match every pod before the election writes on it.
fn excluding() -> [Value; 2] {
    [
        json!({"key": "role", "operator": "DoesNotExist"}),
        json!({"key": "role", "operator": "NotIn", "values": ["leader"]}),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_a_controller_excludes_is_never_written() {
    for (number, expression) in excluding().into_iter().enumerate() {
        let lab = Lab::new(&format!("excluded-{number}")).await;
        let _operator = lab.operator(&[]);
        // A template that has a copy of the election's mark makes no difference.
        let object = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": {
            "replicas": 2, "serviceName": "web",
            "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [expression]},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"lictor.dev/election": "web"}},
                "spec": {"containers": [{"name": "main", "image": "example/web:1"}]},
            },
        }});
        lab.try_kubectl(&["create", "-f", "-"], Some(&object.to_string())).expect("a StatefulSet can be made");
        eventually("it has its pods", || async {
            let pods = pods(&lab).await.len();
            if pods == 2 { Ok(()) } else { Err(format!("{pods} pods")) }
        })
        .await;
        lab.elect(json!({})).await;
        let message = refused(&lab, "LabelInUse").await;
        assert!(message.contains("the StatefulSet web selects the pod web-"), "{message}");
        let pods = pods(&lab).await;
        assert!(
            pods.iter().all(|pod| pod.owner_references().len() == 1 && !pod.labels().contains_key("role")),
            "{pods:#?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_leave_a_controller_that_can_not_be_read_stop_the_election() {
    let lab = Lab::new("multiply").await;
    let user = User::new(&lab).await;
    user.may(|_, resource| resource != "replicasets").await;
    let _operator = user.operator(&[]);
    let [excluded, _] = excluding();
    deploy(&lab, &json!({"matchLabels": {"app": "web"}, "matchExpressions": [excluded]}), &json!({})).await;
    lab.elect(json!({})).await;
    let message = refused(&lab, "PodsMultiply").await;
    assert!(message.contains("have left their controller"), "{message}");
    // The Deployment has its two again, and nothing is written on them any more.
    ready(&lab).await;
    let all = pods(&lab).await;
    let unlabelled = all.iter().filter(|pod| !pod.labels().contains_key("role")).count();
    assert_eq!(unlabelled, 2, "{all:#?}");
    assert!(all.len() <= 12, "{} pods", all.len());
    refused(&lab, "PodsMultiply").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_somebody_takes_out_of_their_controller_stop_nothing() {
    let lab = Lab::new("taken-out").await;
    let mut operator = lab.operator(&[]);
    deploy(&lab, &json!({"matchLabels": {"app": "web", "tier": "live"}}), &json!({"tier": "live"})).await;
    lab.elect(json!({})).await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    lab.wait_candidates(2, 2).await;
    for pod in pods(&lab).await {
        lab.try_kubectl(&["label", "pod", &pod.name_any(), "tier=debug", "--overwrite"], None).expect("a label");
    }
    ready(&lab).await;
    lab.wait_candidates(4, 4).await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
    operator.stop().await;
    let _operator = lab.operator(&[]);
    let leader = lab.wait_any_leader().await;
    lab.delete_pod(&leader).await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_comes_later_with_a_label_of_its_own_takes_no_part_and_stops_nothing() {
    let lab = Lab::new("label-later").await;
    let recorder = lab.record().await;
    let mut operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let first = lab.wait_any_leader().await;
    lab.pod("debug", PodSpec { labels: json!({"role": "debug"}), ..PodSpec::default() }).await;
    lab.wait_ready("debug", true).await;
    let message = lab.wait_condition("web", "Elected", "True", "LabelInUse").await;
    assert!(message.contains("the pod debug has the label role=debug"), "{message}");
    lab.wait_candidates(2, 3).await;
    // Neither a failover nor another operator changes it.
    lab.delete_pod(&first).await;
    let second = if first == "a" { "b" } else { "a" };
    let leads = |pod: &'static str| {
        let lab = &lab;
        async move {
            eventually(&format!("{pod} leads"), || async {
                let roles = lab.roles().await;
                let role = |name: &str| roles.iter().find(|(pod, _)| pod == name).map(|(_, role)| role.as_str());
                if role(pod) == Some("leader") && role("debug") == Some("debug") {
                    Ok(())
                } else {
                    Err(format!("{roles:?}"))
                }
            })
            .await;
        }
    };
    leads(second).await;
    operator.stop().await;
    let _operator = lab.operator(&[]);
    lab.delete_pod(second).await;
    lab.wait_condition("web", "Ready", "False", "LabelInUse").await;
    let debug = lab.get_pod("debug").await;
    assert_eq!(debug.labels().get("role").map(String::as_str), Some("debug"));
    assert!(debug.annotations().keys().all(|key| !key.starts_with("lictor.dev/")), "{debug:#?}");
    recorder.assert_promises().await;
}
