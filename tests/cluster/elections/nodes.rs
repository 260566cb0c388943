//! What the state of their nodes means for pods.

use lictor_testing::kubernetes::{Lab, PodSpec, eventually};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_on_a_lost_node_is_replaced() {
    let lab = Lab::new("lost-node").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    let mut nodes = Vec::new();
    for pod in ["a", "b", "c", "d"] {
        let node = lab.node(pod, json!({})).await;
        lab.ready_pods_on(&[(pod, &node)]).await;
        nodes.push(node);
    }
    // The node controller marks the pods of a lost node as not ready, which this test must not depend on.
    lab.elect(json!({"eligibility": {"requireReady": false}})).await;
    let node_of = |pod: &str| format!("{}-{pod}", lab.namespace);
    let mut leader = lab.wait_any_leader().await;
    // The node controller would remove a taint with another effect, because the node is ready.
    let unreachable = json!([{"key": "node.kubernetes.io/unreachable", "effect": "PreferNoSchedule"}]);
    let losses: [(&str, Value); 3] = [("False", Value::Null), ("Unknown", Value::Null), ("True", unreachable)];
    for (ready, taints) in losses {
        let node = node_of(&leader);
        if taints.is_null() {
            lab.set_node_ready(&node, ready).await;
        } else {
            lab.patch_node(&node, json!({"spec": {"taints": taints}})).await;
        }
        let old = leader;
        leader = eventually("another pod leads", || async {
            let next = lab.wait_any_leader().await;
            if next == old { Err(next) } else { Ok(next) }
        })
        .await;
        lab.wait_reason(&leader, "NodeLost").await;
        assert!(lab.get_pod(&old).await.metadata.deletion_timestamp.is_none(), "{old} was evicted");
    }
    recorder.catch_up().await;
    assert_eq!(recorder.assert_promises(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_node_keeps_its_leader_but_gets_no_new_one() {
    let lab = Lab::new("cordoned").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    let mut pods = Vec::new();
    for (pod, priority) in [("a", "3"), ("b", "2"), ("c", "1")] {
        let node = lab.node(pod, json!({})).await;
        let annotations = json!({"lictor.dev/priority": priority});
        lab.pod(pod, PodSpec { node: Some(node.clone()), annotations, ..PodSpec::default() }).await;
        lab.wait_ready(pod, true).await;
        pods.push(node);
    }
    lab.elect(json!({})).await;
    lab.wait_leader("a").await;
    for node in &pods[..2] {
        lab.patch_node(node, json!({"spec": {"unschedulable": true}})).await;
    }
    // The operator has seen both, and the leader is the same.
    lab.wait_candidates(1, 3).await;
    lab.wait_leader("a").await;
    recorder.catch_up().await;
    assert_eq!(recorder.assert_promises(), 1);
    lab.delete_pod("a").await;
    lab.wait_leader("c").await;
    recorder.catch_up().await;
    assert_eq!(recorder.assert_promises(), 2);
}
