//! A leader that can't continue is replaced.

use futures::StreamExt;
use futures::future::ready;
use futures::stream;
use kube::ResourceExt;
use lictor_testing::kubernetes::{Lab, Operator, PodSpec, Recorder, eventually, slow};
use serde_json::{Value, json};

/// Creates the pods a, b and c, one of which leads.
async fn led(test: &str, pods: PodSpec) -> (Lab, Recorder, Operator, String) {
    let lab = Lab::new(test).await;
    let recorder = lab.record().await;
    let operator = lab.operator(&[]);
    lab.elect(json!({})).await;
    for pod in ["a", "b", "c"] {
        lab.pod(pod, pods.clone()).await;
    }
    let leader = lab.wait_any_leader().await;
    for pod in ["a", "b", "c"] {
        lab.wait_ready(pod, true).await;
    }
    (lab, recorder, operator, leader)
}

/// Waits until another pod leads for this reason, and checks that no promise was broken.
async fn replaced(lab: &Lab, recorder: &Recorder, old: &str, reason: &str) -> String {
    let new = eventually("another pod leads", || async {
        let roles = lab.roles().await;
        let leader = roles.iter().find(|(pod, role)| pod != old && role == "leader");
        leader.map(|(pod, _)| pod.clone()).ok_or_else(|| format!("{roles:?}"))
    })
    .await;
    lab.wait_reason(&new, reason).await;
    assert_eq!(recorder.assert_promises().await, 2);
    new
}

/// What happens to the leader.
enum Trigger {
    /// It is deleted, and terminates slowly.
    Deletion,
    /// A condition is set.
    Condition(&'static str, bool),
    /// Its status is patched, except for the condition Ready: the phase alone has to count.
    Status(Value),
    /// It is patched.
    Patch(Value),
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_go_on_is_replaced() {
    use Trigger::{Condition, Deletion, Patch, Status};
    let excluded = json!({"metadata": {"annotations": {"lictor.dev/never-leader": "true"}}});
    let cases = [
        ("deleted", Deletion, "LeaderDeleted"),
        ("not-ready", Condition("Ready", false), "LeaderNotReady"),
        ("finished", Status(json!({"phase": "Succeeded"})), "LeaderFinished"),
        ("evicted", Status(json!({"phase": "Failed", "reason": "Evicted"})), "LeaderFinished"),
        ("disrupted", Condition("DisruptionTarget", true), "LeaderDisrupted"),
        ("excluded", Patch(excluded), "LeaderExcluded"),
        ("left", Patch(json!({"metadata": {"labels": {"app": "other"}}})), "LeaderNotSelected"),
    ];
    // Only some run at a time, because each has its own operator.
    let run = |(test, trigger, reason)| async move {
        tokio::spawn(loses_its_leader(test, trigger, reason)).await.err().map(|_| test)
    };
    let failed: Vec<_> = stream::iter(cases).map(run).buffer_unordered(3).filter_map(ready).collect().await;
    assert!(failed.is_empty(), "these cases failed: {failed:?}");
}

/// Runs one case, with its own group and operator.
async fn loses_its_leader(test: &'static str, trigger: Trigger, reason: &'static str) {
    let pods = if matches!(trigger, Trigger::Deletion) { slow() } else { PodSpec::default() };
    let (lab, recorder, _operator, old) = led(test, pods).await;
    match trigger {
        Trigger::Deletion => lab.delete_pod_slowly(&old).await,
        Trigger::Condition(type_, holds) => lab.set_condition(&old, type_, holds).await,
        Trigger::Status(status) => lab.patch_pod_status(&old, status).await,
        Trigger::Patch(patch) => lab.patch_pod(&old, patch).await,
    }
    let new = replaced(&lab, &recorder, &old, reason).await;
    match reason {
        "LeaderFinished" => {}
        // It was cleaned, and is not in the group any more.
        "LeaderNotSelected" => lab.wait_clean(&old).await,
        _ => lab.wait_leader(&new).await,
    }
    if reason == "LeaderDeleted" {
        assert!(lab.get_pod(&old).await.metadata.deletion_timestamp.is_some(), "it still terminates");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_may_recover_within_the_failover_delay_but_not_from_its_deletion() {
    let lab = Lab::new("delay").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    // This is longer than the test may take, so the end of the delay does not move the leadership here.
    lab.elect(json!({"handover": {"failoverDelaySeconds": 600}})).await;
    lab.ready_pods(&["a", "b"]).await;
    let old = lab.wait_any_leader().await;
    lab.set_condition(&old, "Ready", false).await;
    lab.wait_condition("web", "Elected", "True", "WaitingForRecovery").await;
    lab.set_condition(&old, "Ready", true).await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    assert_eq!(recorder.assert_promises().await, 1, "the leader recovered in time");

    lab.set_condition(&old, "Ready", false).await;
    lab.wait_condition("web", "Elected", "True", "WaitingForRecovery").await;
    lab.delete_pod(&old).await;
    let new = if old == "a" { "b" } else { "a" };
    lab.wait_leader(new).await;
    assert_eq!(recorder.assert_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_recreated_under_the_leaders_name_does_not_inherit_its_leadership() {
    let lab = Lab::new("recreated").await;
    let recorder = lab.record().await;
    let _operator = lab.operator(&[]);
    lab.elect(json!({})).await;
    lab.ready_pods(&["a"]).await;
    lab.wait_leader("a").await;
    let (before, term) = (lab.get_pod("a").await, lab.term("web").await);
    // Not by way of the simulated node: it deletes by name, and once for each change of a pod that is deleted. So it may delete the
    // next pod of that name.
    lab.kill_pod("a").await;
    let after = lab.pod("a", PodSpec::default()).await;
    assert!(!after.labels().contains_key("role"));
    lab.wait_leader("a").await;
    lab.wait_status("web", "the status names the new pod", |election| {
        let leader = election.status.as_ref().and_then(|status| status.leader.as_ref());
        leader.is_some_and(|leader| leader.pod_uid == after.metadata.uid)
    })
    .await;
    assert_ne!(before.uid(), after.uid());
    assert!(lab.term("web").await > term);
    assert_eq!(recorder.assert_promises().await, 2);
}
