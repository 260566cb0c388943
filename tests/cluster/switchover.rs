//! Switchovers: a leader is moved once, or it is said why not.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use lictor_api::{Switchover, SwitchoverStatus};
use lictor_testing::kubernetes::{Lab, Operator, PodSpec, User, eventually};
use serde_json::{Value, json};

fn api(lab: &Lab) -> Api<Switchover> {
    Api::namespaced(lab.client.clone(), &lab.namespace)
}

/// Creates a Switchover of the election `web`, with these further fields of the spec.
pub async fn ask(lab: &Lab, name: &str, spec: Value) -> Switchover {
    try_ask(lab, name, spec).await.expect("a Switchover can be made")
}

pub async fn try_ask(lab: &Lab, name: &str, spec: Value) -> kube::Result<Switchover> {
    let mut full = json!({"electionName": "web"});
    full.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    let object =
        json!({"apiVersion": "lictor.dev/v1alpha1", "kind": "Switchover", "metadata": {"name": name}, "spec": full});
    api(lab).create(&PostParams::default(), &serde_json::from_value(object).expect("a Switchover")).await
}

/// Waits until a condition has this status and reason. Returns the status with the condition's message.
pub async fn told(lab: &Lab, name: &str, type_: &str, status: &str, reason: &str) -> (SwitchoverStatus, String) {
    eventually(&format!("{name} is {type_} {status} {reason}"), || async {
        let found = api(lab).get(name).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let condition = found.conditions.iter().find(|c| c.type_ == type_ && c.status == status && c.reason == reason);
        let message = condition.map(|condition| condition.message.clone());
        message.map(|message| (found.clone(), message)).ok_or_else(|| format!("{found:?}"))
    })
    .await
}

pub async fn complete(lab: &Lab, name: &str) -> SwitchoverStatus {
    told(lab, name, "Complete", "True", "SwitchedOver").await.0
}

/// Waits until it has failed. Returns the message.
pub async fn failed(lab: &Lab, name: &str, reason: &str) -> String {
    let (status, message) = told(lab, name, "Failed", "True", reason).await;
    assert!(status.completion_time.is_some() && status.term.is_none(), "{status:?}");
    assert!(!status.conditions.iter().any(|condition| condition.type_ == "Complete"), "{status:?}");
    message
}

/// A group of ready pods of which `a` leads in term 1.
async fn led(test: &str, pods: &[&str], spec: Value) -> (Lab, Operator) {
    let lab = Lab::new(test).await;
    let operator = lab.operator(&[]);
    lab.elect(spec).await;
    lab.ready_pods(&pods[..1]).await;
    lab.wait_leader(pods[0]).await;
    lab.ready_pods(&pods[1..]).await;
    let total = u32::try_from(pods.len()).expect("a number");
    lab.wait_candidates(total, total).await;
    lab.wait_status("web", "the term is told", |web| web.status.as_ref().and_then(|s| s.term) == Some(1)).await;
    (lab, operator)
}

/// Waits until the operator has counted so many that ended like this.
async fn counts(operator: &Operator, result: &str, times: f64) {
    let name = format!("lictor_switchovers_total{{result=\"{result}\"}}");
    eventually(&format!("{name} is {times}"), || async {
        let counted = operator.metric(&name).await;
        if counted == Some(times) { Ok(()) } else { Err(format!("{counted:?}")) }
    })
    .await;
}

pub async fn term(lab: &Lab) -> i64 {
    lab.election("web").await.status.and_then(|status| status.term).expect("there is a term")
}

/// Waits until the operator has looked at all that was written before this, and checks that the leader is still the same.
async fn stays(lab: &Lab, leader: &str, total: u32) {
    lab.pod("latest", PodSpec::default()).await;
    lab.wait_ready("latest", true).await;
    eventually("the operator has seen the latest pod", || async {
        let status = lab.election("web").await.status.unwrap_or_default();
        let counted = status.candidates.map(|count| count.total);
        if counted == Some(total) { Ok(()) } else { Err(format!("{counted:?}")) }
    })
    .await;
    lab.wait_leader(leader).await;
    lab.kill_pod("latest").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_is_moved_once_and_the_result_is_kept() {
    let (lab, operator) = led("swo", &["a", "b", "c"], json!({})).await;
    let recorder = lab.record().await;
    let spec = json!({"toPodName": "c", "fromTerm": 1, "requestedBy": "ann"});
    ask(&lab, "first", spec.clone()).await;
    lab.try_kubectl(&["wait", "--for=condition=Accepted", "swo/first", "--timeout=60s"], None).expect("it is accepted");
    lab.try_kubectl(&["wait", "--for=condition=Complete", "swo/first", "--timeout=60s"], None).expect("it is complete");
    lab.wait_leader("c").await;
    lab.wait_reason("c", "SwitchedOver").await;
    let status = complete(&lab, "first").await;
    let (from, to) = (status.from.expect("there was a leader"), status.to.expect("there is one"));
    assert_eq!((from.pod_name.as_str(), to.pod_name.as_str(), status.term), ("a", "c", Some(2)));
    let pod = lab.get_pod("c").await;
    assert_eq!((to.pod_uid, status.requested_by.as_deref()), (pod.metadata.uid, Some("ann")));
    assert!(status.duration_milliseconds.is_some_and(|took| (1..60_000).contains(&took)));
    assert!(status.accept_time.is_some() && status.completion_time.is_some());
    let note = lab.wait_event("LeaderElection", "web", "Elected").await;
    assert!(note.contains("Switchover") || note.contains("no leader before"), "{note}");
    counts(&operator, "Complete", 1.0).await;

    let row = lab.try_kubectl(&["get", "swo"], None).expect("kubectl shows it");
    let head: Vec<&str> = row.lines().next().expect("a head").split_whitespace().collect();
    assert_eq!(head.join(" "), "NAME ELECTION TO FROM TERM STATUS REASON AGE");
    let row: Vec<&str> = row.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(row[..6], ["first", "web", "c", "1", "Complete", "SwitchedOver"]);

    // Somebody creates it again, as GitOps tools do.
    api(&lab).delete("first", &DeleteParams::default()).await.expect("it can be deleted");
    ask(&lab, "first", spec).await;
    let message = failed(&lab, "first", "Superseded").await;
    assert!(message.contains("in term 2") && message.contains("spec.fromTerm is 1"), "{message}");
    let note = lab.wait_event("LeaderElection", "web", "SwitchoverFailed").await;
    assert!(note.contains("Switchover first failed") && note.contains("in term 2"), "{note}");
    stays(&lab, "c", 4).await;
    assert_eq!(recorder.assert_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_is_refused_with_its_reason() {
    let (lab, operator) = led("swo-refused", &["a", "b", "c", "d"], json!({})).await;
    lab.pod("e", PodSpec { labels: json!({"app": "other"}), ..PodSpec::default() }).await;
    lab.patch_pod("b", json!({"metadata": {"annotations": {"lictor.dev/never-leader": "true"}}})).await;
    lab.set_condition("c", "Ready", false).await;
    lab.wait_candidates(2, 4).await;
    for (name, spec, reason, says) in [
        ("leads", json!({"toPodName": "a", "fromTerm": 1}), "AlreadyLeader", "a is already the leader"),
        ("never", json!({"toPodName": "b", "fromTerm": 1}), "NeverLeader", "lictor.dev/never-leader"),
        (
            "never-by-force",
            json!({"toPodName": "b", "fromTerm": 1, "force": true}),
            "NeverLeader",
            "choose another pod",
        ),
        ("unready", json!({"toPodName": "c", "fromTerm": 1}), "NotEligible", "the pod is not ready"),
        ("other", json!({"toPodName": "e", "fromTerm": 1}), "NotACandidate", "selects no pod e"),
        ("nobody", json!({"toPodName": "z", "fromTerm": 1}), "NotACandidate", "selects no pod z"),
        (
            "early",
            json!({"toPodName": "d", "fromTerm": 2}),
            "TermNotReached",
            "only in term 1, and spec.fromTerm is 2: create it again with fromTerm: 1",
        ),
        ("missing", json!({"electionName": "wob", "fromTerm": 1}), "ElectionNotFound", "no LeaderElection wob"),
    ] {
        ask(&lab, name, spec).await;
        let message = failed(&lab, name, reason).await;
        assert!(message.contains(says), "{name}: {message}");
        let (status, same) = told(&lab, name, "Accepted", "False", reason).await;
        assert!(same == message && status.accept_time.is_none(), "{status:?}");
    }
    counts(&operator, "NotACandidate", 2.0).await;

    // The schema refuses what is wrong whatever the cluster is like.
    for (spec, says) in [
        (json!({}), "spec.fromTerm: Required value"),
        (json!({"fromTerm": 0}), "spec.fromTerm in body should be greater than or equal to 1"),
        (json!({"fromTerm": 1, "force": true}), "spec.force needs spec.toPodName: name the pod"),
        (json!({"fromTerm": 1, "notBeforeTime": "soon"}), "spec.notBeforeTime in body must be of type date-time"),
        (json!({"fromTerm": 1, "deadlineSeconds": 0}), "spec.deadlineSeconds in body should be greater"),
        (json!({"fromTerm": 1, "holdSeconds": -1}), "spec.holdSeconds in body should be greater"),
        (json!({"fromTerm": 1, "electionName": ""}), "spec.electionName in body should be at least 1 chars"),
    ] {
        let mut full = json!({"electionName": "web"});
        full.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
        let object = json!({"apiVersion": "lictor.dev/v1alpha1", "kind": "Switchover", "metadata": {"name": "bad"}, "spec": full});
        let refused = lab.try_kubectl(&["create", "-f", "-"], Some(&object.to_string())).expect_err("it is refused");
        assert!(refused.contains(says), "{spec}: {refused}");
    }
    let patch = r#"{"spec":{"toPodName":"d"}}"#;
    let refused =
        lab.try_kubectl(&["patch", "swo", "unready", "--type=merge", "-p", patch], None).expect_err("refused");
    assert!(refused.contains("a Switchover can't be changed: delete it"), "{refused}");
    lab.wait_leader("a").await;
    assert_eq!(term(&lab).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn elections_that_are_not_run_here_are_left_alone() {
    let (lab, _operator) = led("swo-still", &["a", "b"], json!({})).await;
    lab.elect(json!({"paused": true})).await;
    lab.wait_condition("web", "Paused", "True", "Paused").await;
    ask(&lab, "paused", json!({"toPodName": "b", "fromTerm": 1})).await;
    let message = failed(&lab, "paused", "Paused").await;
    assert!(message.contains("set its spec.paused to false"), "{message}");
    // One that may wait, waits for it.
    ask(&lab, "patient", json!({"toPodName": "b", "fromTerm": 1, "deadlineSeconds": 600})).await;
    told(&lab, "patient", "Accepted", "Unknown", "Paused").await;
    lab.wait_leader("a").await;
    lab.elect(json!({})).await;
    complete(&lab, "patient").await;
    lab.wait_leader("b").await;

    // Without a selector, a Lease has only one cluster to elect.
    lab.apply_election("bare", json!({})).await;
    lab.wait_condition("bare", "Accepted", "False", "NoCandidates").await;
    ask(&lab, "bare", json!({"electionName": "bare", "fromTerm": 1})).await;
    failed(&lab, "bare", "ElectionNotAccepted").await;

    // The election goes while one waits for it.
    ask(&lab, "left", json!({"toPodName": "z", "fromTerm": 2, "deadlineSeconds": 600})).await;
    told(&lab, "left", "Accepted", "Unknown", "NotACandidate").await;
    lab.delete_election("web").await;
    failed(&lab, "left", "ElectionNotFound").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_may_wait_waits_for_its_target_until_its_deadline() {
    let (lab, _operator) = led("swo-deadline", &["a", "b"], json!({})).await;
    lab.set_condition("b", "Ready", false).await;
    lab.wait_candidates(1, 2).await;
    ask(&lab, "short", json!({"toPodName": "b", "fromTerm": 1, "deadlineSeconds": 2})).await;
    let message = failed(&lab, "short", "DeadlineExceeded").await;
    assert!(message.contains("spec.deadlineSeconds (2) have passed") && message.contains("not ready"), "{message}");
    ask(&lab, "long", json!({"toPodName": "b", "fromTerm": 1, "deadlineSeconds": 600})).await;
    let (_, message) = told(&lab, "long", "Accepted", "Unknown", "NotEligible").await;
    assert!(message.contains("b can't be elected: the pod is not ready"), "{message}");
    ask(&lab, "any", json!({"fromTerm": 1})).await;
    failed(&lab, "any", "NoEligiblePod").await;
    lab.wait_leader("a").await;
    lab.set_condition("b", "Ready", true).await;
    complete(&lab, "long").await;
    lab.wait_leader("b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_done_before_its_time() {
    let (lab, _operator) = led("swo-later", &["a", "b"], json!({})).await;
    let time = Timestamp::now() + SignedDuration::from_secs(4);
    let far = Timestamp::now() + SignedDuration::from_hours(1);
    ask(&lab, "far", json!({"toPodName": "b", "fromTerm": 1, "notBeforeTime": far.to_string()})).await;
    ask(&lab, "soon", json!({"toPodName": "b", "fromTerm": 1, "notBeforeTime": time.to_string()})).await;
    let (_, message) = told(&lab, "soon", "Accepted", "Unknown", "Scheduled").await;
    assert!(message.contains(&time.to_string()), "{message}");
    lab.wait_leader("a").await;
    let status = complete(&lab, "soon").await;
    // Times of a status have whole seconds.
    let accepted = status.accept_time.expect("it was accepted").0;
    assert!(accepted.as_second() >= time.as_second(), "{accepted} is before {time}");
    // The one that waits for its time is out of date at once.
    failed(&lab, "far", "Superseded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_leader_is_held_back_also_over_a_restart() {
    let lab = Lab::new("swo-hold").await;
    let recorder = lab.record().await;
    let mut operator = lab.operator(&[]);
    let high = PodSpec { annotations: json!({"lictor.dev/priority": "9"}), ..PodSpec::default() };
    lab.pod("a", high.clone()).await;
    lab.wait_ready("a", true).await;
    lab.elect(json!({"preemption": "HigherPriority"})).await;
    lab.wait_leader("a").await;
    lab.ready_pods(&["b"]).await;
    lab.wait_candidates(2, 2).await;
    ask(&lab, "hold", json!({"toPodName": "b", "fromTerm": 1})).await;
    complete(&lab, "hold").await;
    lab.wait_leader("b").await;
    stays(&lab, "b", 3).await;
    operator.signal("KILL");
    operator.ended().await;
    operator = lab.operator(&[]);
    operator.sees_leader(&lab.namespace, "web", "b").await;
    stays(&lab, "b", 3).await;
    // It ends with its Switchover.
    api(&lab).delete("hold", &DeleteParams::default()).await.expect("it can be deleted");
    lab.wait_leader("a").await;
    lab.wait_reason("a", "Preempted").await;

    // And by itself.
    let now = term(&lab).await;
    ask(&lab, "short", json!({"toPodName": "b", "fromTerm": now, "holdSeconds": 2})).await;
    let status = complete(&lab, "short").await;
    lab.wait_leader("a").await;
    let back = lab.wait_status("web", "a leads again", |web| {
        web.status.as_ref().is_some_and(|status| status.history.first().is_some_and(|entry| entry.term == now + 2))
    });
    let back = back.await.status.expect("a status").history[0].completion_time.clone().expect("a time");
    // Both times have whole seconds.
    let held = back.0.as_second() - status.completion_time.expect("a time").0.as_second();
    assert!(held >= 1, "{held} s");
    recorder.assert_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_force_a_pod_leads_that_is_not_ready() {
    let (lab, _operator) = led("swo-force", &["a", "b"], json!({})).await;
    let recorder = lab.record().await;
    lab.set_condition("b", "Ready", false).await;
    lab.wait_candidates(1, 2).await;
    ask(&lab, "force", json!({"toPodName": "b", "fromTerm": 1, "force": true, "holdSeconds": 6})).await;
    complete(&lab, "force").await;
    lab.wait_leader("b").await;
    lab.pod("c", PodSpec { labels: json!({"app": "other"}), ..PodSpec::default() }).await;
    lab.wait_leader("b").await;
    // When its time to become ready is over, it is replaced as any other.
    lab.wait_leader("a").await;
    lab.wait_reason("a", "LeaderNotReady").await;
    assert_eq!(recorder.assert_promises().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_at_once_the_older_one_wins() {
    let (lab, operator) = led("swo-two", &["a", "b", "c"], json!({})).await;
    let recorder = lab.record().await;
    operator.signal("STOP");
    // Made within one second or not: the first by name is also the older one.
    ask(&lab, "a-first", json!({"toPodName": "b", "fromTerm": 1})).await;
    ask(&lab, "b-second", json!({"toPodName": "c", "fromTerm": 1})).await;
    operator.signal("CONT");
    complete(&lab, "a-first").await;
    lab.wait_leader("b").await;
    let second = eventually("the second one has failed", || async {
        let status = api(&lab).get("b-second").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let failed = status.conditions.iter().find(|condition| condition.type_ == "Failed");
        failed.map(|condition| condition.reason.clone()).ok_or_else(|| format!("{status:?}"))
    });
    let reason = second.await;
    assert!(["AnotherUnderWay", "Superseded"].contains(&reason.as_str()), "{reason}");
    stays(&lab, "b", 4).await;
    assert_eq!(recorder.assert_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_is_deleted_after_its_time() {
    let (lab, _operator) = led("swo-ttl", &["a", "b"], json!({})).await;
    let gone = async |name: &str| {
        eventually(&format!("{name} is gone"), || async {
            let found = api(&lab).get_opt(name).await.map_err(|error| error.to_string())?;
            found.map_or(Ok(()), |found| Err(format!("{:?}", found.status)))
        })
        .await;
    };
    ask(&lab, "failed", json!({"toPodName": "a", "fromTerm": 1, "ttlSecondsAfterFinished": 0})).await;
    gone("failed").await;
    let spec = json!({"toPodName": "b", "fromTerm": 1, "ttlSecondsAfterFinished": 0, "holdSeconds": 4});
    ask(&lab, "held", spec).await;
    let status = complete(&lab, "held").await;
    gone("held").await;
    let kept = Timestamp::now().as_second() - status.completion_time.expect("a time").0.as_second();
    assert!(kept >= 3, "it is there while it holds the old leader back: {kept} s");
    // Without the field it is kept.
    ask(&lab, "kept", json!({"toPodName": "b", "fromTerm": 2})).await;
    failed(&lab, "kept", "AlreadyLeader").await;
    stays(&lab, "b", 3).await;
    assert!(api(&lab).get_opt("kept").await.expect("it can be read").is_some());
}

/// H14: the operator is killed when the record is written, and what it has come to is not told yet.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_operator_finds_out_what_was_done() {
    let (lab, mut operator) = led("swo-killed", &["a", "b", "c"], json!({})).await;
    let recorder = lab.record().await;
    let spec = json!({
        "matchConstraints": {"resourceRules": [{
            "apiGroups": ["lictor.dev"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["switchovers/status"],
        }]},
        "validations": [{
            "expression": "!object.status.conditions.exists(c, c.type == 'Complete' || c.type == 'Failed')",
            "message": "hands off",
        }],
    });
    ask(&lab, "probe", json!({"electionName": "nobody", "fromTerm": 1, "notBeforeTime": "2126-01-01T00:00:00Z"})).await;
    failed(&lab, "probe", "ElectionNotFound").await;
    let patch = r#"{"status":{"term":7}}"#;
    let tried = ["patch", "swo", "probe", "--subresource=status", "--type=merge", "-p", patch, "--dry-run=server"];
    lab.impose("Validating", ("lictor.dev", "switchovers"), spec, |lab| match lab.try_kubectl(&tried, None) {
        Err(error) if error.contains("hands off") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    ask(&lab, "cut", json!({"toPodName": "c", "fromTerm": 1})).await;
    lab.wait_leader("c").await;
    operator.logs("hands off").await;
    operator.signal("KILL");
    operator.ended().await;
    told(&lab, "cut", "Accepted", "True", "Accepted").await;
    // What another one asks for waits for that.
    ask(&lab, "later", json!({"toPodName": "b", "fromTerm": 1})).await;
    lab.lift("Validating");
    eventually("the policy is gone", || async { lab.try_kubectl(&tried, None).map(drop) }).await;
    let _operator = lab.operator(&[]);
    let status = complete(&lab, "cut").await;
    assert_eq!((status.term, status.duration_milliseconds), (Some(2), None), "nobody knows how long it took");
    failed(&lab, "later", "Superseded").await;
    stays(&lab, "c", 4).await;
    assert_eq!(recorder.assert_promises().await, 2);
}

/// The operator is killed when its user was told that it is accepted, and nothing else is done. The second time, nothing can come of it,
/// and that is written into the record first (H15).
#[tokio::test(flavor = "multi_thread")]
async fn the_next_operator_goes_on_with_what_was_accepted() {
    let (lab, mut operator) = led("swo-goes-on", &["a", "b"], json!({})).await;
    let recorder = lab.record().await;
    operator.signal("KILL");
    operator.ended().await;
    let accept = async |name: &str, to: &str| {
        let condition = json!({
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let (a, uid) = (lab.get_pod("a").await.metadata.uid, lab.get_pod(to).await.metadata.uid);
        let status = json!({"status": {
            "from": {"podName": "a", "podUID": a}, "to": {"podName": to, "podUID": uid}, "conditions": [condition],
        }});
        let patched = api(&lab).patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await;
        patched.expect("a status can be patched");
    };
    ask(&lab, "accepted", json!({"toPodName": "b", "fromTerm": 1})).await;
    accept("accepted", "b").await;
    let mut operator = lab.operator(&[]);
    let status = complete(&lab, "accepted").await;
    assert_eq!((status.term, status.duration_milliseconds), (Some(2), None));
    lab.wait_leader("b").await;

    // The target that was accepted is gone, and another pod has its name.
    operator.signal("KILL");
    operator.ended().await;
    ask(&lab, "again", json!({"toPodName": "a", "fromTerm": 2})).await;
    accept("again", "a").await;
    lab.kill_pod("a").await;
    lab.ready_pods(&["a"]).await;
    let before = lab.lease("web").await.expect("the Lease exists").metadata.resource_version;
    let _operator = lab.operator(&[]);
    let message = failed(&lab, "again", "NotACandidate").await;
    assert!(message.contains("a new pod of the same name does not count"), "{message}");
    let after = lab.lease("web").await.expect("the Lease exists").metadata.resource_version;
    assert_ne!(before, after, "H15: a late record of the operator that was killed would fail");
    stays(&lab, "b", 3).await;
    assert_eq!(term(&lab).await, 2);
    assert_eq!(recorder.assert_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_rights_all_else_works() {
    let lab = Lab::new("swo-rights").await;
    let user = User::new(&lab).await;
    user.may(|_, resource| !resource.starts_with("switchovers")).await;
    let operator = user.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    operator.logs("not allowed to list switchovers").await;
    assert_eq!(operator.get("/readyz").await.0, 200);
    ask(&lab, "unseen", json!({"fromTerm": 1})).await;
    let other = if leader == "a" { "b" } else { "a" };
    lab.kill_pod(&leader).await;
    lab.wait_leader(other).await;
    let (_, message) = told(&lab, "unseen", "Accepted", "Unknown", "Pending").await;
    assert!(message.contains("no operator has looked at this Switchover yet"), "{message}");
    user.may(|_, _| true).await;
    failed(&lab, "unseen", "Superseded").await;
}

/// Two switchovers in a row, each from the term of the other: the pods that they replace come last, and are meant all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_can_be_moved_back_at_once() {
    let (lab, _operator) = led("swo-back", &["a", "b"], json!({})).await;
    let recorder = lab.record().await;
    let mut leader = "a";
    for now in 1..5 {
        let next = if leader == "a" { "b" } else { "a" };
        let name = format!("to-{next}-{now}");
        ask(&lab, &name, json!({"toPodName": next, "fromTerm": now})).await;
        assert_eq!(complete(&lab, &name).await.term, Some(now + 1));
        lab.wait_leader(next).await;
        leader = next;
    }
    assert_eq!(recorder.assert_promises().await, 5);
    assert!(recorder.longest_vacancy() < Duration::from_secs(5));
}
