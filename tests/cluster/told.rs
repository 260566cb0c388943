//! T1: what is told of the leader is what is there, in every state of an election.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use lictor_api::ElectionClass;
use lictor_testing::kubernetes::{Lab, Operator, eventually};
use serde_json::{Value, json};

use crate::commands::{run, told};
use crate::routing::{SLICE, routed, wait_shown};

/// Waits until nobody is said to lead `web`: in the status, the columns, the metrics, and by `who`. Returns the message of `Elected`.
async fn wait_told_lost(lab: &Lab, operator: &Operator, reason: &str) -> String {
    let message = lab.wait_condition("web", "Elected", "False", reason).await;
    let status = lab.election("web").await.status.unwrap_or_default();
    assert_eq!(status.leader, None, "{status:#?}");
    let row = lab.try_kubectl(&["get", "le", "web", "--no-headers"], None).expect("kubectl shows it");
    let row: Vec<&str> = row.split_whitespace().collect();
    let term = status.term.unwrap_or_default().to_string();
    assert_eq!(row[..3], ["web", reason, &term], "no LEADER before the TERM: {row:?}");
    let leads = format!("lictor_leader{{namespace=\"{}\",election=\"web\"", lab.namespace);
    assert!(operator.metric(&leads).await.unwrap_or_default() < 0.5, "{message}");
    for arguments in [&["who", "web"][..], &["who", "web", "-o", "name"]] {
        let output = run(lab, arguments);
        let said = told(arguments, &output);
        assert!(output.status.code() == Some(3) && output.stdout.is_empty(), "{said}");
    }
    let problems = run(lab, &["list", "--problems"]);
    assert!(problems.status.code() == Some(3), "{}", told(&["list", "--problems"], &problems));
    assert!(String::from_utf8_lossy(&problems.stdout).contains(reason), "{}", told(&["list"], &problems));
    message
}

/// Waits until the slice says of its one pod whether it is ready.
async fn wait_slice_ready(lab: &Lab, ready: bool) {
    let slices: Api<EndpointSlice> = Api::namespaced(lab.client.clone(), &lab.namespace);
    eventually(&format!("the slice says ready: {ready}"), || async {
        let slice = slices.get(SLICE).await.map_err(|error| error.to_string())?;
        let told: Vec<Option<bool>> =
            slice.endpoints.iter().map(|endpoint| endpoint.conditions.as_ref()?.ready).collect();
        if told == [Some(ready)] { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_paused_a_leader_that_is_gone_leaves_the_slice_and_everything_says_so() {
    let lab = Lab::new("told-paused").await;
    let operator = lab.operator(&[]);
    let (leader, other) = routed(&lab, json!({})).await;
    let mut spec = json!({"service": {"name": "web-leader"}, "paused": true});
    lab.elect(spec.clone()).await;
    lab.wait_condition("web", "Ready", "True", "Paused").await;

    // One that is only not ready stays the leader, and gets no new calls, as Kubernetes itself has it.
    lab.patch_pod(&leader, json!({"metadata": {"annotations": {"test.lictor.dev/hands-off": "true"}}})).await;
    for ready in [false, true] {
        lab.set_condition(&leader, "Ready", ready).await;
        wait_slice_ready(&lab, ready).await;
        lab.wait_condition("web", "Elected", "True", "Elected").await;
    }

    lab.kill_pod(&leader).await;
    wait_shown(&lab, SLICE, "").await;
    let message = wait_told_lost(&lab, &operator, "LeaderGone").await;
    assert!(message.contains(&format!("{leader} was the leader")) && message.contains("spec.paused"), "{message}");
    lab.wait_condition("web", "Routed", "False", "NoLeader").await;
    lab.wait_condition("web", "Ready", "False", "LeaderGone").await;
    assert_eq!(lab.roles().await, [(other.clone(), "follower".to_owned())], "nobody is promoted");

    spec["paused"] = json!(false);
    lab.elect(spec).await;
    lab.wait_leader(&other).await;
    wait_shown(&lab, SLICE, &other).await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
}

/// Its operator has just begun, and has not written the record: it takes nobody out whom it does not know to be gone.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_was_restarted_while_paused_takes_a_dead_leader_out_too() {
    let lab = Lab::new("told-restarted").await;
    let first = lab.operator(&[]);
    let (leader, _) = routed(&lab, json!({})).await;
    lab.elect(json!({"service": {"name": "web-leader"}, "paused": true})).await;
    lab.wait_condition("web", "Ready", "True", "Paused").await;
    drop(first);
    lab.kill_pod(&leader).await;
    // Without an operator, the status can't be right, and `who` looks by itself.
    assert!(lab.election("web").await.status.unwrap_or_default().leader.is_some());
    let output = run(&lab, &["who", "web", "-o", "name"]);
    let said = told(&["who"], &output);
    assert!(output.status.code() == Some(3) && said.contains("its pod is gone"), "{said}");
    let explained = told(&["explain"], &run(&lab, &["explain", "web"]));
    assert!(explained.contains("its pod is gone"), "{explained}");
    let operator = lab.operator(&[]);
    wait_shown(&lab, SLICE, "").await;
    wait_told_lost(&lab, &operator, "LeaderGone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_lock_can_not_be_written_a_leader_that_is_gone_is_told_and_leaves_the_slice() {
    let lab = Lab::new("told-no-lock").await;
    let operator = lab.operator(&[]);
    let (leader, other) = routed(&lab, json!({})).await;
    let spec = json!({"validations": [{"expression": "object.metadata.name != 'web'", "message": "frozen by a test"}]});
    let tried = ["annotate", "lease", "web", "test=x", "--overwrite", "--dry-run=server"];
    lab.impose("Validating", ("coordination.k8s.io", "leases"), spec, |lab| match lab.try_kubectl(&tried, None) {
        Err(text) if text.contains("frozen by a test") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    lab.kill_pod(&leader).await;
    let message = wait_told_lost(&lab, &operator, "LeaderGone").await;
    assert!(message.contains("frozen by a test"), "{message}");
    wait_shown(&lab, SLICE, "").await;
    lab.lift("Validating");
    lab.wait_leader(&other).await;
    wait_shown(&lab, SLICE, &other).await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_is_deleted_goes_on_serving_and_without_it_no_dead_leader_is_told() {
    let lab = Lab::new("told-class").await;
    let classes: Api<ElectionClass> = Api::all(lab.client.clone());
    let name = format!("told-{}", lab.namespace);
    let class = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": name}, "spec": {"lease": {}},
    });
    let parameters = PatchParams::apply("test").force();
    let apply =
        || async { classes.patch(&name, &parameters, &Patch::Apply(&class)).await.expect("a class can be applied") };
    apply().await;
    let operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b", "c"]).await;
    lab.elect(json!({"className": name})).await;
    let first = lab.wait_any_leader().await;
    lab.wait_condition("web", "Ready", "True", "Led").await;

    classes.delete(&name, &DeleteParams::default()).await.expect("it can be deleted");
    let message = lab.wait_condition("web", "Accepted", "True", "ClassDeleted").await;
    assert!(message.contains(&name), "{message}");
    lab.wait_condition("web", "Ready", "False", "ClassDeleted").await;
    // An election that it did not serve is refused.
    lab.apply_election("late", json!({"selector": {"matchLabels": {"app": "late"}}, "className": name})).await;
    lab.wait_condition("late", "Accepted", "False", "UnknownClass").await;
    lab.delete_election("late").await;
    lab.kill_pod(&first).await;
    let second = lab.wait_any_leader().await;
    lab.wait_status("web", "the next leader is told", |election| {
        let leader = election.status.as_ref().and_then(|status| status.leader.as_ref());
        leader.and_then(|leader| leader.pod_name.as_deref()) == Some(second.as_str())
    })
    .await;

    // A restarted operator knows nothing of the class. The leader that is there is told, and one that is gone is not.
    drop(operator);
    let operator = lab.operator(&[]);
    lab.wait_condition("web", "Accepted", "False", "UnknownClass").await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    operator.sees_leader(&lab.namespace, "web", &second).await;
    lab.kill_pod(&second).await;
    let message = wait_told_lost_while_refused(&lab, &operator).await;
    assert!(message.contains("Accepted"), "{message}");
    assert_eq!(lab.election("web").await.status.unwrap_or_default().candidates, None, "nobody knows the rules");

    apply().await;
    lab.wait_any_leader().await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
    classes.delete(&name, &DeleteParams::default()).await.expect("it can be deleted");
}

/// The same as [`wait_told_lost`], where another condition is the first that is not well.
async fn wait_told_lost_while_refused(lab: &Lab, operator: &Operator) -> String {
    let message = lab.wait_condition("web", "Elected", "False", "LeaderGone").await;
    let status = lab.election("web").await.status.unwrap_or_default();
    assert_eq!(status.leader, None, "{status:#?}");
    let leads = format!("lictor_leader{{namespace=\"{}\",election=\"web\"", lab.namespace);
    assert!(operator.metric(&leads).await.unwrap_or_default() < 0.5, "{message}");
    let output = run(lab, &["who", "web"]);
    assert_eq!(output.status.code(), Some(3), "{}", told(&["who", "web"], &output));
    message
}

/// Somebody takes the label off while nothing may be written.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_its_label_is_told_while_paused() {
    let lab = Lab::new("told-label").await;
    let operator = lab.operator(&[]);
    lab.ready_pods(&["a"]).await;
    lab.elect(json!({})).await;
    lab.wait_leader("a").await;
    lab.elect(json!({"paused": true})).await;
    lab.wait_condition("web", "Ready", "True", "Paused").await;
    lab.patch_pod("a", json!({"metadata": {"labels": {"role": Value::Null}}})).await;
    wait_told_lost(&lab, &operator, "LabelMissing").await;
    lab.elect(json!({"paused": false})).await;
    lab.wait_leader("a").await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
}
