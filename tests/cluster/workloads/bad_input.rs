//! What users get wrong in `spec.workloads`, and what the API server says to that.

use lictor_testing::kubernetes::Lab;
use serde_json::{Value, json};

/// Makes an election of the cluster itself with these fields.
fn with(field: &str, value: impl Into<Value>) -> Value {
    json!({"className": "consul", field: value.into()})
}

/// Makes such an election with one workload.
fn workload(fields: impl Into<Value>) -> Value {
    with("workloads", json!([fields.into()]))
}

fn template(fields: impl Into<Value>) -> Value {
    let mut all = json!({"kind": "Job", "name": "migrate", "jobTemplate": {"spec": {}}});
    for (field, value) in fields.into().as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    workload(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_workload_is_refused_when_it_is_applied() {
    let lab = Lab::new("wl-bad").await;
    let live = json!({"kind": "Deployment", "name": "live"});
    let many: Value = (0..17).map(|number| json!({"kind": "Job", "name": format!("job-{number}")})).collect();
    let (replicas, when_disabled) =
        ("workloads[].replicas is for a Deployment or a StatefulSet", "workloads[].whenDisabled is for a CronJob");
    let name = "at most 42 lower-case letters, digits and '-', for example migrate";
    lab.assert_refused([
        (workload(json!({"name": "live"})), "spec.workloads[0].kind: Required value"),
        (workload(json!({"kind": "Deployment"})), "spec.workloads[0].name: Required value"),
        (workload(json!({"kind": "DaemonSet", "name": "x"})), "\"CronJob\", \"Deployment\", \"Job\", \"StatefulSet\""),
        (workload(json!({"kind": "Deployment", "name": ""})), "should be at least 1 chars long"),
        (workload(json!({"kind": "CronJob", "name": "x", "replicas": 1})), replicas),
        (workload(json!({"kind": "Job", "name": "x", "replicas": 1})), replicas),
        (workload(json!({"kind": "Deployment", "name": "x", "replicas": 0})), "should be greater than or equal to 1"),
        (
            workload(json!({"kind": "Deployment", "name": "x", "replicas": 10001})),
            "should be less than or equal to 10000",
        ),
        (workload(json!({"kind": "Job", "name": "x", "whenDisabled": "Suspend"})), when_disabled),
        (workload(json!({"kind": "Deployment", "name": "x", "whenDisabled": "DeleteRunning"})), when_disabled),
        (workload(json!({"kind": "CronJob", "name": "x", "whenDisabled": "Stop"})), "\"Suspend\", \"DeleteRunning\""),
        (workload(json!({"kind": "CronJob", "name": "x", "whenReleased": "Keep"})), "\"Restore\", \"LeaveAsIs\""),
        (
            workload(json!({"kind": "CronJob", "name": "x", "jobTemplate": {"spec": {}}})),
            "workloads[].jobTemplate needs kind: Job",
        ),
        (
            workload(json!({"kind": "CronJob", "name": "x", "suspend": true})),
            "unknown field \"spec.workloads[0].suspend\"",
        ),
        (template(json!({"whenReleased": "Restore"})), "workloads[].whenReleased can't be used with jobTemplate"),
        (template(json!({"jobTemplate": {}})), "jobTemplate.spec: Required value"),
        (template(json!({"name": "x".repeat(43)})), name),
        (template(json!({"name": "Migrate"})), name),
        (template(json!({"name": "migrate-"})), name),
        (template(json!({"name": "a.b"})), name),
        (with("workloads", json!([live, live])), "Duplicate value"),
        (with("workloads", many), "must have at most 16 items"),
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_go_together_with_the_clusters_own_candidacy_is_refused_when_it_is_applied() {
    let lab = Lab::new("wl-bad-candidate").await;
    let pods = "without spec.selector the cluster itself is the candidate: write a selector, or leave them out";
    let gate = json!({"availableDeploymentName": "gate"});
    let mut both = with("selector", json!({"matchLabels": {"app": "web"}}));
    both["eligibility"] = gate.clone();
    let mut itself = workload(json!({"kind": "Deployment", "name": "gate"}));
    itself["eligibility"] = gate.clone();
    lab.assert_refused([
        (with("probe", json!({"tcpSocket": {"port": 1}})), pods),
        (with("sharedStore", json!({"consulService": {"name": "web", "port": 80}})), pods),
        (with("preferences", json!([{"weight": 1, "zone": "a"}])), pods),
        (with("eligibility", json!({"conditions": ["example.com/caught-up"]})), pods),
        (with("leader", json!({"labels": {"role": "leader"}})), pods),
        (with("follower", json!({"labels": {"role": "other"}})), pods),
        (with("eligibility", json!({"availableDeploymentName": ""})), "should be at least 1 chars long"),
        (both, "spec.eligibility.availableDeploymentName is for elections without spec.selector"),
        (itself, "it would have to run before it may run: name one that always runs"),
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_election_may_say_of_workloads_is_accepted() {
    let lab = Lab::new("wl-good").await;
    let spec =
        json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}});
    let metadata = json!({"labels": {"team": "data"}, "annotations": {"example.com/x": "y"}});
    let all = json!([
        {"kind": "CronJob", "name": "same", "whenDisabled": "DeleteRunning", "whenReleased": "LeaveAsIs"},
        {"kind": "Deployment", "name": "same", "replicas": 10000, "whenReleased": "Restore"},
        {"kind": "StatefulSet", "name": "same", "replicas": 1},
        {"kind": "Job", "name": "same.with-a-dot"},
        {"kind": "Job", "name": "x".repeat(42), "jobTemplate": {"metadata": metadata, "spec": spec}},
    ]);
    let mut gate = with("workloads", all.clone());
    gate["eligibility"] = json!({"availableDeploymentName": "gate"});
    let mut selected = with("workloads", all.clone());
    selected["selector"] = json!({"matchLabels": {"app": "web"}});
    selected["probe"] = json!({"tcpSocket": {"port": 1}});
    let mut own = with("workloads", json!([{"kind": "StatefulSet", "name": "gate"}]));
    own["eligibility"] = json!({"availableDeploymentName": "gate"});
    for spec in [json!({}), with("workloads", json!([])), with("workloads", all), gate, selected, own] {
        assert_eq!(lab.dry_run(&spec), Ok(()), "{spec}");
    }
}
