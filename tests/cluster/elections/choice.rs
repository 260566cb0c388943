//! Which of several pods is chosen.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lictor_api::LeaderElection;
use lictor_testing::kubernetes::{Lab, PodSpec};
use serde_json::{Value, json};

fn annotated(key: &str, value: &str) -> PodSpec {
    PodSpec { annotations: json!({ key: value }), ..PodSpec::default() }
}

fn priority(value: &str) -> PodSpec {
    annotated("lictor.dev/priority", value)
}

/// Creates pods, and waits until they are ready.
async fn pods(lab: &Lab, pods: Vec<(&str, PodSpec)>) {
    for (name, spec) in &pods {
        lab.pod(name, spec.clone()).await;
    }
    for (name, _) in &pods {
        lab.wait_ready(name, true).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn preferences_for_zones_and_nodes_add_up() {
    let lab = Lab::new("preference").await;
    let recorder = lab.record().await;
    let zone = |zone: &str| json!({"topology.kubernetes.io/zone": zone});
    let plain = lab.node("plain", zone("z2")).await;
    let fast = lab.node("fast", json!({"topology.kubernetes.io/zone": "z2", "disk": "ssd"})).await;
    let near = lab.node("near", zone("z1")).await;
    let both = lab.node("both", json!({"topology.kubernetes.io/zone": "z1", "disk": "ssd"})).await;
    lab.ready_pods_on(&[("a", &plain), ("b", &fast), ("c", &near), ("d", &both)]).await;
    let preferences = json!([{"weight": 10, "zone": "z1"}, {"weight": 4, "nodeSelector": {"disk": "ssd"}}, {"weight": 1, "zone": "z2"}]);
    lab.elect(json!({ "preferences": preferences })).await;
    let _operator = lab.operator(&[]);
    for next in ["d", "c", "b"] {
        lab.wait_leader(next).await;
        lab.delete_pod(next).await;
    }
    lab.wait_leader("a").await;
    assert_eq!(recorder.assert_promises().await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pod_with_the_best_number_is_elected_and_a_better_one_moves_no_leader() {
    let lab = Lab::new("number").await;
    let recorder = lab.record().await;
    let lag = |value: &str| annotated("example.com/lag", value);
    pods(&lab, vec![("a", PodSpec::default()), ("b", lag("7")), ("c", lag("5")), ("d", lag("1.5"))]).await;
    let preferences = json!([{"byAnnotation": "example.com/lag", "order": "Lowest"}]);
    lab.elect(json!({"preferences": preferences, "preemption": "HigherPriority"})).await;
    // The operator sees all pods before it elects one of them.
    let _operator = lab.operator(&[]);
    lab.wait_leader("c").await;
    lab.patch_pod("b", json!({"metadata": {"annotations": {"example.com/lag": "-1"}}})).await;
    lab.patch_pod("a", json!({"metadata": {"annotations": {"example.com/lag": "6"}}})).await;
    // The operator has seen that change when it has seen a later one.
    pods(&lab, vec![("e", lag("9"))]).await;
    lab.wait_candidates(5, 5).await;
    lab.wait_leader("c").await;
    for next in ["b", "a", "e", "d"] {
        let leader = lab.wait_any_leader().await;
        lab.delete_pod(&leader).await;
        lab.wait_leader(next).await;
    }
    assert_eq!(recorder.assert_promises().await, 5);
}

/// Of three elections with a pod on each of three nodes.
#[tokio::test(flavor = "multi_thread")]
async fn elections_of_a_group_spread_their_leaders_and_no_leader_is_moved_apart() {
    let lab = Lab::new("spread").await;
    let mut nodes = Vec::new();
    for node in ["one", "two", "three"] {
        nodes.push(lab.node(node, json!({"rack": node})).await);
    }
    let groups = ["a", "b", "c"];
    for group in groups {
        for (number, node) in nodes.iter().enumerate() {
            let (labels, node) = (json!({"app": group}), Some(node.clone()));
            lab.pod(&format!("{group}{number}"), PodSpec { labels, node, ..PodSpec::default() }).await;
        }
    }
    for pod in groups.iter().flat_map(|group| (0..3).map(move |number| format!("{group}{number}"))) {
        lab.wait_ready(&pod, true).await;
    }
    let spec = |group: &str| {
        let spread = json!({"spread": {"group": "shards", "topologyKey": "rack"}});
        json!({"selector": {"matchLabels": {"app": group}}, "preferences": [spread]})
    };
    for group in groups {
        lab.elect_as(group, spec(group)).await;
    }
    // All are elected at once.
    let _operator = lab.operator(&[]);
    let leaders = async || {
        let mut leaders = Vec::new();
        for group in groups {
            lab.wait_condition(group, "Ready", "True", "Led").await;
            let leader = lab.election(group).await.status.and_then(|status| status.leader).expect("there is a leader");
            leaders.push((leader.pod_name.expect("a pod leads"), leader.node_name.expect("it is on a node")));
        }
        leaders
    };
    let first = leaders().await;
    let on: BTreeSet<&String> = first.iter().map(|(_, node)| node).collect();
    assert_eq!(on.len(), 3, "{first:?}");
    // The other two nodes have a leader each, so the next one is beside another leader, which stays.
    lab.kill_pod(&first[0].0).await;
    let another = |election: &LeaderElection| {
        let leader = election.status.as_ref().and_then(|status| status.leader.as_ref()?.pod_name.as_ref());
        leader.is_some_and(|leader| *leader != first[0].0)
    };
    lab.wait_status("a", "another pod leads", another).await;
    assert_eq!(leaders().await[1..], first[1..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_leader_gives_way_to_a_higher_priority_only_where_preemption_is_asked_for() {
    let lab = Lab::new("preemption").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    lab.elect(json!({})).await;
    pods(&lab, vec![("a", PodSpec::default())]).await;
    lab.wait_leader("a").await;
    pods(&lab, vec![("b", priority("10"))]).await;
    // The operator has counted b as eligible, and did not move the leadership.
    lab.wait_candidates(2, 2).await;
    lab.wait_leader("a").await;
    assert_eq!(recorder.assert_promises().await, 1);

    lab.elect(json!({"preemption": "HigherPriority"})).await;
    lab.wait_leader("b").await;
    lab.wait_reason("b", "Preempted").await;
    // An equal priority is not higher, though its name comes first.
    pods(&lab, vec![("aa", priority("10"))]).await;
    lab.wait_candidates(3, 3).await;
    lab.wait_leader("b").await;
    assert_eq!(recorder.assert_promises().await, 2);
    // A priority that is raised later counts too.
    lab.patch_pod("a", json!({"metadata": {"annotations": {"lictor.dev/priority": "11"}}})).await;
    lab.wait_leader("a").await;
    assert_eq!(recorder.assert_promises().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_elected_only_after_it_has_been_ready_for_long_enough() {
    let lab = Lab::new("min-ready").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    lab.elect(json!({"eligibility": {"minReadySeconds": 600}})).await;
    let start = Instant::now();
    lab.ready_pods(&["a"]).await;
    lab.wait_message("web", "Elected", "NoEligiblePod", "not been ready for long enough").await;
    lab.elect(json!({"eligibility": {"minReadySeconds": 3}})).await;
    lab.wait_leader("a").await;
    // The operator can't have seen it ready before it existed.
    assert!(start.elapsed() >= Duration::from_secs(3), "after {:?}", start.elapsed());
    // A leader that has been ready for long stays the leader when the spec asks for longer.
    lab.elect(json!({"eligibility": {"minReadySeconds": 600}})).await;
    lab.pod("b", PodSpec::default()).await;
    lab.wait_candidates(0, 2).await;
    lab.wait_leader("a").await;
    assert_eq!(recorder.assert_promises().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_not_ready_are_elected_where_readiness_is_not_asked_for() {
    let lab = Lab::new("unready").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a"]).await;
    lab.set_condition("a", "Ready", false).await;
    lab.elect(json!({})).await;
    lab.wait_condition("web", "Elected", "False", "NoEligiblePod").await;
    lab.elect(json!({"eligibility": {"requireReady": false}})).await;
    lab.wait_leader("a").await;
    assert_eq!(recorder.assert_promises().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_pods_with_the_required_condition_lead_and_a_leader_that_loses_it_is_replaced() {
    let lab = Lab::new("condition").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    let condition = "example.com/caught-up";
    lab.elect(json!({"eligibility": {"conditions": [condition]}})).await;
    lab.ready_pods(&["a", "b"]).await;
    let why = "2x the pod's condition example.com/caught-up is not True";
    lab.wait_message("web", "Elected", "NoEligiblePod", why).await;
    lab.set_condition("b", condition, true).await;
    lab.wait_leader("b").await;
    lab.set_condition("a", condition, true).await;
    lab.wait_candidates(2, 2).await;
    lab.wait_leader("b").await;
    lab.set_condition("b", condition, false).await;
    lab.wait_leader("a").await;
    lab.wait_reason("a", "ConditionNotTrue").await;
    assert_eq!(recorder.assert_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_promote_first_a_planned_handover_never_leaves_the_group_without_a_leader() {
    let lab = Lab::new("promote-first").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    let spec: Value = json!({"preemption": "HigherPriority", "handover": {"order": "PromoteFirst"}});
    lab.elect(spec).await;
    pods(&lab, vec![("a", PodSpec::default())]).await;
    lab.wait_leader("a").await;
    // The second handover is the first one without a listing of all pods before it.
    for (pod, value) in [("b", "1"), ("c", "2"), ("d", "3")] {
        pods(&lab, vec![(pod, priority(value))]).await;
        lab.wait_leader(pod).await;
    }
    recorder.catch_up().await;
    let leaders = recorder.leaders_since_first();
    assert!(leaders.iter().all(|count| (1..=2).contains(count)), "{leaders:?}: {:#?}", recorder.revisions());
    assert_eq!(leaders.last(), Some(&1));
}
