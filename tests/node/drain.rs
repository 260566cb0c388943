//! The node of the leader is drained, by kubectl, while its pods have two seconds to end.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::json;

use crate::figures::{Figures, Table};
use crate::group::{Failover, Group, Reach};
use crate::nodes::Nodes;

/// How often it is measured by the label.
const RUNS: usize = 3;
/// On the pods that are evicted, which leaves other groups alone.
const EVICTED: &str = "drained=yes";

/// Measures it by its Service, and by the label with and without a move before the eviction.
pub async fn measure(nodes: &Nodes, runs: usize, figures: &mut Figures) {
    let stays = json!({"eligibility": {"moveOffCordonedNodes": false}});
    let mut without_loss = 0;
    let routed_runs = runs.div_ceil(2);
    for (name, routed, spec, early, cause) in [
        ("drained-service", true, json!({}), true, "drained with its node, reached by its Service"),
        ("drained-label", false, json!({}), true, "the leader's node is drained, reached by its label"),
        ("drained-late", false, stays, false, "the same, and the leader moves when it is evicted"),
    ] {
        let reach = if routed { Reach::Service(spec.clone()) } else { Reach::Label };
        let group = Group::make(nodes, name, false, reach).await;
        group.runs().await;
        if !routed {
            group.elect("leader", &spec);
        }
        for _ in 0..if routed { routed_runs } else { RUNS } {
            let run = drained(nodes, &group, early).await;
            figures.switch(if routed { Table::Quiet } else { Table::Failures }, cause, run);
            without_loss += usize::from(routed && run.lost == 0);
        }
        println!("{name}: {} leaderships, and never two at a time", group.recorder.assert_promises().await);
        nodes.kubectl(&["delete", "leaderelections,services,deployments", "-n", name, "--all"]);
    }
    assert!(2 * without_loss > routed_runs, "by its Service, {without_loss} of {routed_runs} drains lost nothing");
}

/// Drains the leader's node until all pods of the group have left it, and puts one there again. `early`: the leader moves before it is
/// evicted.
async fn drained(nodes: &Nodes, group: &Group<'_>, early: bool) -> Failover {
    let leader = group.calm(3).await;
    let pods: Api<Pod> = Api::namespaced(group.client.clone(), group.name);
    let pod = pods.get(&leader.pod).await.expect("the leader exists");
    let node = pod.spec.and_then(|spec| spec.node_name).expect("it is on a node");
    nodes.kubectl(&["label", "pods", "-n", group.name, "--all", "--overwrite", EVICTED]);
    let selector = format!("--pod-selector={EVICTED}");
    let drain = ["drain", &node, &selector, "--timeout=60s"];
    let run = group.fails_over(3, async |_| drop(nodes.kubectl(&drain))).await;
    let told = ["-o", "jsonpath={.status.history[0].reason}"];
    let told = nodes.kubectl(&[["get", "leaderelection", "leader", "-n", group.name].as_slice(), &told].concat());
    assert_eq!(told == "NodeCordoned", early, "{told}");
    nodes.kubectl(&["uncordon", &node]);
    let next = group.calm(3).await;
    assert_eq!(next.term, leader.term.map(|term| term + 1), "it moves once");
    // The scheduler makes the next ones where there are the fewest.
    nodes.kubectl(&["delete", "pods", "-n", group.name, "-l", "role=follower"]);
    run
}
