//! What the operator knows of pods, on a real API server: the same, however it reads them.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use lictor::kubernetes::{MatchingPods, Namespaces, Pods, watch_pods};
use lictor_core::Selector;
use lictor_kubernetes::Change;
use lictor_testing::kubernetes::{Lab, PodSpec, eventually};
use serde_json::{Value, json};

/// The watch lists pods as protobuf, and all else reads them as JSON.
#[tokio::test]
async fn a_pod_is_the_same_in_the_first_list_and_in_an_answer() {
    let lab = Lab::new("same-pods").await;
    let create = async |name: &str, metadata: Value, spec: Value| {
        let mut pod =
            json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "example/web"}]}});
        merge(&mut pod["metadata"], &metadata);
        merge(&mut pod["spec"], &spec);
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        lab.pods_api().create(&PostParams::default(), &pod).await.expect("a pod can be made");
    };
    let hands_off = |mut metadata: Value| {
        merge(&mut metadata["annotations"], &json!({"test.lictor.dev/hands-off": "true"}));
        metadata
    };
    // No node is chosen for them: the node's loss in another test would change them.
    let nowhere = json!({"schedulerName": "nobody"});
    create("bare", json!({}), nowhere.clone()).await;
    lab.pod("slow", PodSpec { annotations: json!({"lictor.dev/term": "3"}), ..PodSpec::default() }).await;
    let owner = |name: &str, controller: Value| json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": name, "controller": controller});
    create(
        "rich",
        hands_off(json!({
            "labels": {"app": "web", "empty": "", "controller-revision-hash": "rich-5d8f"},
            "annotations": {"lictor.dev/election": "wéb", "lictor.dev/priority": "7"},
            "finalizers": ["test.lictor.dev/stays"],
            "ownerReferences": [owner("other", Value::Null), owner("rich", true.into())],
        })),
        json!({
            "schedulerName": "nobody",
            "containers": [
                {
                    "name": "main", "image": "a", "ports": [{"name": "web", "containerPort": 8080}, {"containerPort": 9000}],
                    "readinessProbe": {"httpGet": {"port": "web", "scheme": "HTTPS", "httpHeaders": [{"name": "a", "value": "b"}]}},
                },
                {
                    "name": "dns", "image": "a", "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}],
                    "readinessProbe": {"exec": {"command": ["true"]}},
                },
                {"name": "rpc", "image": "a", "readinessProbe": {"grpc": {"port": 1, "service": "shop"}}},
                {"name": "far", "image": "a", "readinessProbe": {"httpGet": {"path": "x", "port": 2, "host": "10.0.0.1"}}},
                {"name": "lost", "image": "a", "readinessProbe": {"tcpSocket": {"port": "web"}}},
            ],
            "initContainers": [
                {"name": "once", "image": "a", "ports": [{"name": "once", "containerPort": 1}]},
                {"name": "beside", "image": "a", "restartPolicy": "Always", "ports": [{"name": "admin", "containerPort": 9901}]},
            ],
        }),
    )
    .await;
    lab.patch_pod_status(
        "rich",
        json!({
            "phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}, {"ip": "fd00::1"}],
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-06T07:08:09Z"},
                // Kubernetes takes it off a pod that is not deleted in time.
                {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "lastTransitionTime": "2099-01-01T00:00:00Z"},
            ],
        }),
    )
    .await;
    lab.delete_pod_slowly("rich").await;
    create("finished", hands_off(json!({})), nowhere).await;
    lab.patch_pod_status("finished", json!({"phase": "Failed", "podIP": "10.1.2.4", "podIPs": [{"ip": "10.1.2.4"}]}))
        .await;

    let pods = Pods::new(lab.client.clone(), Duration::from_secs(20));
    // The scheduler and the simulated kubelet write to some of them meanwhile.
    let listed = eventually("no pod changes between the list and the answers", || async {
        let mut listed = watch_pods(&lab.client, &Namespaces::new(vec![lab.namespace.clone()]));
        let Some(Change::All(_, _, listed)) = listed.next().await else { panic!("a list comes first") };
        for (namespace, pod) in &listed {
            let read = pods.read(namespace, &pod.name).await.expect("it is answered").expect("it is there");
            if read.version != pod.version {
                return Err(format!("{} has changed", pod.name));
            }
            assert_eq!(*pod, read);
        }
        Ok(listed)
    })
    .await;
    let names: BTreeSet<&str> = listed.iter().map(|(_, pod)| pod.name.as_str()).collect();
    assert_eq!(names, ["bare", "finished", "rich", "slow"].into());
    let rich = listed.iter().find(|(_, pod)| pod.name == "rich").map(|(_, pod)| pod).expect("it is there");
    let addresses: Vec<&str> = rich.addresses().collect();
    assert_eq!((rich.ports.len(), addresses), (3, vec!["10.1.2.3", "fd00::1"]));
    assert_eq!(rich.readiness_probes.len(), 5);
    let all = rich.ready && rich.deleting && rich.disrupted && rich.owner.is_some() && rich.ready_since.is_some();
    assert!(all, "{rich:?}");
}

/// Groups that ask at the same time share a list.
#[tokio::test]
async fn each_group_gets_its_own_pods_when_many_ask_at_the_same_time() {
    let lab = Lab::new("many-ask").await;
    for app in ["a", "b", "c"] {
        for tier in ["front", "back"] {
            let labels = json!({"app": app, "tier": tier});
            lab.pod(&format!("{app}-{tier}"), PodSpec { labels, ..PodSpec::default() }).await;
        }
    }
    let pods = MatchingPods::new(Pods::new(lab.client.clone(), Duration::from_secs(20)));
    let selector = |json: Value| serde_json::from_value::<Selector>(json).expect("a selector");
    let labels = |labels: Value| selector(json!({"matchLabels": labels}));
    let expected: [(Selector, &[&str]); 6] = [
        (labels(json!({"app": "a"})), &["a-back", "a-front"]),
        (labels(json!({"app": "b"})), &["b-back", "b-front"]),
        (labels(json!({"app": "none"})), &[]),
        (labels(json!({"app": "a", "tier": "back"})), &["a-back"]),
        (labels(json!({"app": "b", "tier": "front"})), &["b-front"]),
        (
            selector(
                json!({"matchLabels": {"tier": "back"}, "matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b"]}]}),
            ),
            &["a-back", "c-back"],
        ),
    ];
    let asked =
        expected.iter().flat_map(|expected| std::iter::repeat_n(expected, 5)).map(async |(selector, expected)| {
            let listed =
                pods.list(&lab.namespace, std::slice::from_ref(selector), None).await.expect("pods can be listed");
            let mut names: Vec<String> = listed.into_iter().map(|pod| pod.name).collect();
            names.sort();
            assert_eq!(names, *expected, "{selector:?}");
        });
    futures::future::join_all(asked).await;
}

fn merge(into: &mut Value, from: &Value) {
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in from.as_object().expect("an object") {
        into[key] = value.clone();
    }
}
