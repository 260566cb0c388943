//! What happens to the pods when the election is changed.

use std::time::Duration;

use kube::ResourceExt;
use lictor_testing::kubernetes::workloads::{following, pod};
use lictor_testing::kubernetes::{Lab, PodSpec, eventually};
use serde_json::{Value, json};

fn grouped(group: &str) -> PodSpec {
    PodSpec { labels: json!({"group": group}), ..PodSpec::default() }
}

fn selecting(group: &str) -> Value {
    json!({"selector": {"matchLabels": {"group": group}}})
}

/// Waits until exactly these pods have these values of a label.
async fn wait_labels(lab: &Lab, key: &str, expected: &[(&str, &str)]) {
    eventually(&format!("{key} is {expected:?}"), || async {
        let pods = lab.pods_api().list(&kube::api::ListParams::default()).await.map_err(|error| error.to_string())?;
        let labelled = |pod: &k8s_openapi::api::core::v1::Pod| Some((pod.name_any(), pod.labels().get(key)?.clone()));
        let found: Vec<(String, String)> = pods.items.iter().filter_map(labelled).collect();
        let found: Vec<(&str, &str)> = found.iter().map(|(pod, value)| (pod.as_str(), value.as_str())).collect();
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_paused_nothing_is_written_even_if_the_leader_dies_and_then_it_goes_on() {
    let lab = Lab::new("paused").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    lab.elect(json!({})).await;
    lab.ready_pods(&["a", "b"]).await;
    let old = lab.wait_any_leader().await;
    lab.elect(json!({"paused": true})).await;
    lab.wait_condition("web", "Paused", "True", "Paused").await;
    // The operator has seen each of these, because it has counted the candidates again.
    lab.ready_pods(&["c"]).await;
    lab.wait_candidates(3, 3).await;
    lab.set_condition(&old, "Ready", false).await;
    lab.wait_candidates(2, 3).await;
    let lease = lab.lease("web").await.and_then(|lease| lease.resource_version());
    assert_eq!(lab.get_pod(&old).await.labels().get("role").map(String::as_str), Some("leader"));
    lab.delete_pod(&old).await;
    lab.wait_candidates(2, 2).await;
    let kept = if old == "a" { "b" } else { "a" };
    let mut roles = lab.roles().await;
    roles.sort();
    assert_eq!(roles, [(kept.to_owned(), "follower".to_owned()), ("c".to_owned(), String::new())]);
    assert_eq!(lab.lease("web").await.and_then(|lease| lease.resource_version()), lease, "the lock is kept");
    assert_eq!(recorder.assert_promises().await, 1);

    lab.elect(json!({"paused": false})).await;
    lab.wait_any_leader().await;
    lab.wait_status("web", "the condition Paused is gone", |election| {
        let conditions = election.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        !conditions.is_empty() && conditions.iter().all(|condition| condition.type_ != "Paused")
    })
    .await;
    assert_eq!(recorder.assert_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_another_selector_the_pods_of_the_earlier_one_are_cleaned() {
    let lab = Lab::new("selector").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    lab.elect(selecting("one")).await;
    for (pod, group) in [("a", "one"), ("b", "one"), ("c", "two"), ("d", "two")] {
        lab.pod(pod, grouped(group)).await;
        lab.wait_ready(pod, true).await;
    }
    wait_labels(&lab, "role", &[("a", "leader"), ("b", "follower")]).await;
    let term = lab.term("web").await;
    lab.elect(selecting("two")).await;
    wait_labels(&lab, "role", &[("c", "leader"), ("d", "follower")]).await;
    lab.wait_clean("a").await;
    lab.wait_clean("b").await;
    assert!(lab.term("web").await > term);
    assert_eq!(recorder.assert_promises().await, 2);
}

/// The object has the defaults in it, and `kubectl apply` merges with them.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_labels_of_ones_own_replace_the_default_ones() {
    let lab = Lab::new("own-labels").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a"]).await;
    let manifest = |more: &str| {
        let head = "apiVersion: lictor.dev/v1alpha1\nkind: LeaderElection\nmetadata: {name: web}\n";
        format!("{head}spec:\n  selector: {{matchLabels: {{app: web}}}}\n{more}")
    };
    lab.try_kubectl(&["apply", "-f", "-"], Some(&manifest(""))).expect("it can be applied");
    lab.wait_leader("a").await;
    let own = "  leader: {labels: {tier: primary}}\n  follower: {labels: {tier: secondary}}\n";
    lab.try_kubectl(&["apply", "-f", "-"], Some(&manifest(own))).expect("it can be applied");
    wait_labels(&lab, "tier", &[("a", "primary")]).await;
    wait_labels(&lab, "role", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_elections_for_the_same_pods_the_younger_waits_until_the_older_is_deleted() {
    let lab = Lab::new("two-elections").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b", "c"]).await;
    lab.elect_as("older", json!({})).await;
    let first = lab.wait_any_leader().await;
    lab.elect_as("younger", json!({})).await;
    let message = lab.wait_condition("younger", "Accepted", "False", "PodsTaken").await;
    assert!(message.contains(&format!("{}/older", lab.namespace)), "{message}");
    // The older election works on, and the younger one has taken no lock.
    lab.delete_pod(&first).await;
    let second = eventually("another pod leads", || async {
        let next = lab.wait_any_leader().await;
        if next == first { Err(next) } else { Ok(next) }
    })
    .await;
    let owner = lab.get_pod(&second).await.annotations().get("lictor.dev/election").cloned();
    assert_eq!(owner.as_deref(), Some("older"));
    assert!(lab.lease("younger").await.is_none());
    assert_eq!(recorder.assert_promises().await, 2);

    lab.delete_election("older").await;
    lab.wait_condition("younger", "Accepted", "True", "Accepted").await;
    let third = lab.wait_any_leader().await;
    let owner = lab.get_pod(&third).await.annotations().get("lictor.dev/election").cloned();
    assert_eq!(owner.as_deref(), Some("younger"));
    assert_eq!(recorder.assert_promises().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_election_does_not_take_what_another_one_has_already_although_it_is_older() {
    let lab = Lab::new("edited").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.pod("own", PodSpec { labels: json!({"app": "own"}), ..PodSpec::default() }).await;
    lab.deployment("live", 2, pod()).await;
    let own = json!({"matchLabels": {"app": "own"}});
    let with = |field: &str, value: Value| {
        let mut spec = json!({"selector": own});
        spec[field] = value;
        spec
    };
    lab.apply_election("older", with("workloads", json!([]))).await;
    lab.wait_condition("older", "Elected", "True", "Elected").await;
    // Times have whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    lab.elect_as("younger", json!({"workloads": following(&["Deployment/live"])})).await;
    let leader = lab.wait_any_leader().await;
    lab.wait_enabled("Deployment/live", json!(2)).await;
    lab.wait_condition("younger", "Accepted", "True", "Accepted").await;
    let full_name = format!("the election {}/younger", lab.namespace);

    let edits = [
        ("PodsTaken", with("selector", json!({"matchLabels": {"app": "web"}})), "labelled by"),
        ("WorkloadTaken", with("workloads", following(&["Deployment/live"])), "Deployment/live"),
        ("KeyTaken", with("key", json!("younger")), "the lock"),
    ];
    for (reason, spec, what) in edits {
        lab.apply_election("older", spec).await;
        let message = lab.wait_condition("older", "Accepted", "False", reason).await;
        assert!(message.contains(&full_name) && message.contains(what), "{message}");
        lab.apply_election("older", with("workloads", json!([]))).await;
        lab.wait_condition("older", "Accepted", "True", "Accepted").await;
    }
    // One that is refused stays so also when nobody is labelled for a moment, and through a restart of the operator.
    lab.apply_election("older", with("selector", json!({"matchLabels": {"app": "web"}}))).await;
    lab.wait_condition("older", "Accepted", "False", "PodsTaken").await;
    lab.wait_leader(&leader).await;
    // The younger one was accepted in an earlier second than the older one could be now.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for pod in ["a", "b"] {
        lab.kill_pod(pod).await;
    }
    lab.wait_disabled("Deployment/live", json!(2)).await;
    lab.ready_pods(&["c"]).await;
    lab.wait_leader("c").await;
    lab.wait_enabled("Deployment/live", json!(2)).await;
    let owner = lab.get_pod("c").await.annotations().get("lictor.dev/election").cloned();
    assert_eq!(owner.as_deref(), Some("younger"));
    lab.wait_condition("younger", "Accepted", "True", "Accepted").await;
    lab.wait_condition("older", "Accepted", "False", "PodsTaken").await;
}

/// O1: the other election's labels would stay on the pods for ever, because its mark is all that leads to them.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_an_edited_election_has_marked_are_no_candidates_of_another_one_until_they_are_clean() {
    let lab = Lab::new("left-marked").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.deployment("other", 1, pod()).await;
    let marks = json!({"leader": {"labels": {"tier": "leader"}}, "follower": {"labels": {"tier": "follower"}}});
    let with = |app: &str, workloads: Value| {
        let mut spec = marks.clone();
        spec["selector"] = json!({"matchLabels": {"app": app}});
        spec["workloads"] = workloads;
        spec
    };
    lab.apply_election("first", with("web", json!([]))).await;
    lab.wait_condition("first", "Elected", "True", "Elected").await;

    // The edited election is refused, so that it leaves its labels where they are.
    lab.apply_election("first", with("other", following(&["Deployment/other"]))).await;
    lab.wait_condition("first", "Accepted", "False", "CircularWorkloads").await;
    lab.apply_election("second", json!({"selector": {"matchLabels": {"app": "web"}}})).await;
    let message = lab.wait_condition("second", "Accepted", "False", "LabelInUse").await;
    assert!(message.contains("still carries the labels of the election first"), "{message}");
    lab.ready_pods(&["c"]).await;
    wait_labels(&lab, "role", &[("c", "leader")]).await;
    for pod in ["a", "b"] {
        let pod = lab.get_pod(pod).await;
        assert_eq!(pod.annotations().get("lictor.dev/election").map(String::as_str), Some("first"));
        assert!(pod.labels().contains_key("tier") && !pod.labels().contains_key("role"), "{:?}", pod.labels());
    }
    // Once the edited election takes them off, the pods are candidates.
    lab.apply_election("first", with("other", json!([]))).await;
    wait_labels(&lab, "role", &[("a", "follower"), ("b", "follower"), ("c", "leader")]).await;
    for election in ["first", "second"] {
        lab.delete_election(election).await;
    }
    for key in ["tier", "role"] {
        wait_labels(&lab, key, &[]).await;
    }
}
