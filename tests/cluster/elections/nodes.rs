//! What the state of their nodes means for pods.

use lictor_testing::kubernetes::{Lab, PodSpec, eventually, slow};
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
    assert_eq!(recorder.assert_promises().await, 4);
}

/// Pods a, b and c, each on a node of its own, the election `web` with these further fields, and its leader.
async fn on_nodes(lab: &Lab, spec: Value) -> String {
    for pod in ["a", "b", "c"] {
        let node = lab.node(pod, json!({})).await;
        let slowly = slow();
        lab.pod(pod, PodSpec { node: Some(node), ..slowly }).await;
    }
    for pod in ["a", "b", "c"] {
        lab.wait_ready(pod, true).await;
    }
    lab.elect(spec).await;
    lab.wait_any_leader().await
}

async fn cordon(lab: &Lab, pod: &str, cordoned: bool) {
    lab.patch_node(&format!("{}-{pod}", lab.namespace), json!({"spec": {"unschedulable": cordoned}})).await;
}

/// Waits until another pod leads because the old one's node is cordoned. Returns it.
async fn moved(lab: &Lab, old: &str) -> String {
    let next = eventually("another pod leads", || async {
        let next = lab.wait_any_leader().await;
        if next == old { Err(next) } else { Ok(next) }
    })
    .await;
    lab.wait_reason(&next, "NodeCordoned").await;
    let status = lab.election("web").await.status.expect("a status");
    assert!(status.history[0].duration_milliseconds < 1000, "{:?}", status.history[0]);
    next
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_moves_off_a_cordoned_node_by_one_write_of_its_slice_and_does_not_go_back_and_forth() {
    let lab = Lab::new("moves-off").await;
    let (recorder, slices) = (lab.record().await, lab.record_slices().await);
    let _operator = lab.operator(&[]);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web-leader"}, "spec": {"ports": [{"port": 80}]}});
    lab.try_kubectl(&["create", "-f", "-"], Some(&service.to_string())).expect("a Service can be made");
    let first = on_nodes(&lab, json!({"service": {"name": "web-leader"}})).await;
    lab.wait_condition("web", "Routed", "True", "Routed").await;
    let before = slices.catch_up().await;

    cordon(&lab, &first, true).await;
    let second = moved(&lab, &first).await;
    cordon(&lab, &first, false).await;
    lab.wait_candidates(3, 3).await;
    // Once more, and where all nodes are cordoned it stays.
    cordon(&lab, &second, true).await;
    let third = moved(&lab, &second).await;
    for pod in ["a", "b", "c"] {
        if pod != third {
            cordon(&lab, pod, true).await;
        }
    }
    cordon(&lab, &third, true).await;
    lab.wait_candidates(0, 3).await;
    lab.wait_leader(&third).await;
    cordon(&lab, &second, false).await;
    assert_eq!(moved(&lab, &third).await, second);

    slices.catch_up().await;
    assert_eq!(slices.writes_since("web-leader", before), 3, "one for each move");
    slices.assert_never_none("web-leader", "IPv4", before);
    assert_eq!(slices.assert_promises().await, 4);
    assert_eq!(recorder.assert_promises().await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_leader_moves_once() {
    let lab = Lab::new("drained").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    let old = on_nodes(&lab, json!({})).await;
    let node = format!("{}-{old}", lab.namespace);
    let drained = ["drain", &node, "--pod-selector=app=web", "--force", "--timeout=60s"];
    lab.cluster.try_kubectl(&drained, None).expect("the node is drained");
    assert!(lab.pods_api().get_opt(&old).await.expect("an answer").is_none());
    let new = lab.wait_any_leader().await;
    lab.wait_candidates(2, 2).await;
    lab.wait_leader(&new).await;
    assert_eq!(recorder.assert_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_moves_off_a_node_that_is_about_to_be_removed() {
    let lab = Lab::new("leaving-node").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    let mut leader = on_nodes(&lab, json!({})).await;
    for taint in ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"] {
        let taints = json!([{"key": taint, "effect": "NoSchedule"}]);
        lab.patch_node(&format!("{}-{leader}", lab.namespace), json!({"spec": {"taints": taints}})).await;
        leader = moved(&lab, &leader).await;
    }
    assert_eq!(recorder.assert_promises().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_node_keeps_its_leader_where_its_user_wants_that_but_gets_no_new_one() {
    let lab = Lab::new("cordoned").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    let first = on_nodes(&lab, json!({"eligibility": {"moveOffCordonedNodes": false}})).await;
    let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|pod| *pod != first).collect();
    for pod in [&first, others[0]] {
        cordon(&lab, pod, true).await;
    }
    // The operator has seen both, and the leader is the same.
    lab.wait_candidates(1, 3).await;
    lab.wait_leader(&first).await;
    assert_eq!(recorder.assert_promises().await, 1);
    // While an election is paused, its leader stays, too.
    lab.elect(json!({"eligibility": {"moveOffCordonedNodes": true}, "paused": true})).await;
    lab.wait_condition("web", "Paused", "True", "Paused").await;
    lab.wait_leader(&first).await;
    lab.elect(json!({"eligibility": {"moveOffCordonedNodes": false}})).await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
    lab.delete_pod(&first).await;
    lab.wait_leader(others[1]).await;
    assert_eq!(recorder.assert_promises().await, 2);
}
