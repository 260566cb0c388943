//! The PodDisruptionBudget and the drain of nodes.

use lictor_testing::kubernetes::{Cluster, eventually};
use serde_json::{Value, json};

/// Drains the node of the only replica: when the replica is not ready, and when it is.
pub async fn the_only_replica_leaves_its_node(cluster: &'static Cluster, namespace: &str) {
    unready(cluster, namespace).await;
    drain(cluster, namespace).await;
    let rollout = ["-n", namespace, "rollout", "status", "deployment", "lictor", "--timeout=60s"];
    cluster.kubectl(&rollout);
    budget(cluster, namespace, 1).await;
    drain(cluster, namespace).await;
    cluster.kubectl(&rollout);
}

/// Makes the replica not ready, and waits until the budget counts it as that.
async fn unready(cluster: &'static Cluster, namespace: &str) {
    let pod = pod(cluster, namespace);
    let name = pod["metadata"]["name"].as_str().expect("it has a name");
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}).to_string();
    cluster.kubectl(&["-n", namespace, "patch", "pod", name, "--subresource=status", "-p", &patch]);
    budget(cluster, namespace, 0).await;
}

/// Waits until the budget counts so many healthy pods.
async fn budget(cluster: &'static Cluster, namespace: &str, healthy: usize) {
    eventually("the budget has counted", || async {
        let told = cluster.kubectl(&["-n", namespace, "get", "pdb", "lictor", "-ojsonpath={.status.currentHealthy}"]);
        if told == healthy.to_string() { Ok(()) } else { Err(told) }
    })
    .await;
}

/// Drains the replica's node, and lets pods be scheduled there again.
async fn drain(cluster: &'static Cluster, namespace: &str) {
    let before = pod(cluster, namespace);
    let node = before["spec"]["nodeName"].as_str().expect("it is on a node");
    let only = "--pod-selector=app.kubernetes.io/name=lictor";
    let drained = cluster.try_kubectl(&["drain", node, only, "--timeout=20s"], None);
    drained.unwrap_or_else(|error| panic!("{error}"));
    cluster.kubectl(&["uncordon", node]);
    let uid = |pod: &Value| pod["metadata"]["uid"].clone();
    eventually("there is a new replica", || async {
        let pods = pods(cluster, namespace);
        if pods.len() == 1 && uid(&pods[0]) != uid(&before) { Ok(()) } else { Err(format!("{} pods", pods.len())) }
    })
    .await;
}

fn pods(cluster: &Cluster, namespace: &str) -> Vec<Value> {
    let told = cluster.kubectl(&["-n", namespace, "get", "pods", "-l", "app.kubernetes.io/name=lictor", "-ojson"]);
    let list: Value = serde_json::from_str(&told).expect("it is JSON");
    list["items"].as_array().expect("it is a list").clone()
}

fn pod(cluster: &Cluster, namespace: &str) -> Value {
    let pods = pods(cluster, namespace);
    let [pod] = pods.as_slice() else { panic!("{} pods", pods.len()) };
    pod.clone()
}
