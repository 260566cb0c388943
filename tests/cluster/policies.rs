//! Admission policies that get in the way: they change what is written to pods, or refuse it.

use kube::ResourceExt;
use lictor_testing::kubernetes::{Cluster, Lab, PodSpec, eventually};
use serde_json::{Value, json};

const PODS: (&str, &str) = ("", "pods");

/// Adds a policy that replaces every role.
async fn rewrite_roles(lab: &Lab) {
    let to_mine = "[JSONPatch{op: 'replace', path: '/metadata/labels/role', value: 'mine'}]";
    let spec = json!({
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConditions": [{"name": "role", "expression": "has(object.metadata.labels) && 'role' in object.metadata.labels"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": to_mine}}],
    });
    let in_force = |lab: &Lab| {
        let patch = r#"{"metadata":{"labels":{"role":"x"}}}"#;
        let arguments =
            ["patch", "pod", "a", "--dry-run=server", "-p", patch, "-o", "jsonpath={.metadata.labels.role}"];
        let kept = lab.try_kubectl(&arguments, None)?;
        if kept == "mine" { Ok(()) } else { Err(kept) }
    };
    lab.impose("Mutating", PODS, spec, in_force).await;
}

/// Adds a policy that refuses requests that match `fits`, in CEL.
async fn refuse(lab: &Lab, fits: &str, tried: &'static [&'static str]) {
    let spec = json!({"validations": [{"expression": format!("!({fits})"), "message": "hands off"}]});
    let in_force = move |lab: &Lab| match lab.try_kubectl(tried, None) {
        Err(error) if error.contains("hands off") => Ok(()),
        other => Err(format!("{other:?}")),
    };
    lab.impose("Validating", PODS, spec, in_force).await;
}

async fn versions(lab: &Lab, names: &[&str]) -> Vec<Option<String>> {
    let mut versions = Vec::new();
    for name in names {
        versions.push(lab.pods_api().get(name).await.expect("the pod exists").resource_version());
    }
    versions
}

#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_is_as_long_as_the_schema_allows_in_any_script() {
    let lab = Lab::new("wide").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({"leader": {"annotations": {"example.com/x": "漢".repeat(1024)}}})).await;
    let leader = lab.wait_any_leader().await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    let before = versions(&lab, &["a", "b"]).await;
    // By the end of another election's life, lictor would have written to the first one often.
    lab.pod("other", PodSpec { labels: json!({"app": "other"}), ..PodSpec::default() }).await;
    lab.elect_as("other", json!({"selector": {"matchLabels": {"app": "other"}}})).await;
    lab.wait_condition("other", "Elected", "True", "Elected").await;
    lab.wait_leader(&leader).await;
    assert_eq!(versions(&lab, &["a", "b"]).await, before, "nothing is written again");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a second control plane"]
async fn a_policy_that_rewrites_labels_is_told_and_not_fought() {
    let lab = Lab::of(Cluster::second(), "rewrites").await;
    lab.ready_pods(&["a", "b"]).await;
    rewrite_roles(&lab).await;
    let recorder = lab.record().await;
    let operator = lab.operator(&[]);
    lab.elect(json!({})).await;
    let note = lab.wait_event("LeaderElection", "web", "LabelsRefused").await;
    assert!(note.contains("label role") && note.contains("keeps \"mine\"") && note.contains("policy"), "{note}");
    let message = lab.wait_condition("web", "Elected", "False", "HandoverFails").await;
    assert!(message.contains("keeps \"mine\""), "{message}");
    // Another election works meanwhile.
    lab.pod("other", PodSpec { labels: json!({"app": "other", "role": "none"}), ..PodSpec::default() }).await;
    let task = json!({"labels": {"task": "main"}});
    let follower = json!({"labels": {"task": "none"}});
    let spec = json!({"selector": {"matchLabels": {"app": "other"}}, "leader": task, "follower": follower});
    lab.elect_as("other", spec).await;
    lab.wait_condition("other", "Elected", "True", "Elected").await;
    recorder.catch_up().await;
    // Each of two pods is tried three times as the leader, and demoted for the other one.
    let written = recorder.revisions().len();
    assert!(written < 40, "{written} revisions of pods\n{}", operator.log());
    lab.lift("Mutating");
    eventually("there is a leader when the policy is gone", || async {
        let roles = lab.roles().await;
        let leaders = roles.iter().filter(|(_, role)| role == "leader").count();
        if leaders == 1 { Ok(()) } else { Err(format!("{roles:?}")) }
    })
    .await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    recorder.assert_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_pod_leads_where_a_policy_refuses_the_first() {
    let lab = Lab::new("passed-over").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.patch_pod("a", json!({"metadata": {"annotations": {"lictor.dev/priority": "9"}}})).await;
    let fits = "object.metadata.name == 'a' && has(object.metadata.labels) && 'role' in object.metadata.labels && \
                object.metadata.labels.role == 'leader'";
    refuse(&lab, fits, &["label", "pod", "a", "role=leader", "--dry-run=server"]).await;
    lab.elect(json!({})).await;
    lab.wait_leader("b").await;
    let note = lab.wait_event("Pod", "a", "LabelsRefused").await;
    assert!(note.contains("hands off"), "{note}");
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    recorder.assert_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for five refusals over 15 s"]
async fn a_pod_that_can_not_be_written_to_keeps_no_election_from_going() {
    let lab = Lab::new("untouchable").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.patch_pod("a", json!({"metadata": {"annotations": {"lictor.dev/priority": "9"}}})).await;
    lab.elect(json!({})).await;
    lab.wait_leader("a").await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    refuse(&lab, "object.metadata.name == 'b'", &["label", "pod", "b", "x=y", "--dry-run=server"]).await;
    lab.delete_election("web").await;
    lab.wait_election_gone("web").await;
    let note = lab.wait_event("LeaderElection", "web", "LabelsLeft").await;
    assert!(note.contains("pod b") && note.contains("hands off"), "{note}");
    let roles: Vec<Value> = lab.roles().await.into_iter().map(|(pod, role)| json!([pod, role])).collect();
    assert!(!roles.contains(&json!(["a", "leader"])), "{roles:?}");
}
