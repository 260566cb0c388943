//! What an election leaves behind that has no finalizer, and when an election has one.

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use lictor_testing::kubernetes::workloads::{following, pod};
use lictor_testing::kubernetes::{Lab, eventually};
use serde_json::{Value, json};

/// Creates pods `a` and `b` and an election of them with a leader, and kills the operator.
async fn orphaned(test: &str, spec: Value) -> Lab {
    let lab = Lab::new(test).await;
    let operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(spec).await;
    lab.wait_any_leader().await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    operator.signal("KILL");
    lab
}

async fn delete(lab: &Lab, election: &str) {
    lab.elections_api().delete(election, &DeleteParams::default()).await.expect("it can be deleted");
    let there = lab.elections_api().get_opt(election).await.expect("the API server answers");
    assert!(there.is_none(), "nothing keeps it: {:?}", there.map(|election| election.metadata));
}

async fn wait_no_lease(lab: &Lab, name: &str) {
    eventually("the lock is gone", || async {
        lab.lease(name).await.map_or(Ok(()), |lease| Err(format!("{lease:?}")))
    })
    .await;
}

async fn wait_finalizers(lab: &Lab, number: usize) {
    lab.wait_status("web", &format!("it has {number} finalizers"), |election| election.finalizers().len() == number)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_with_elections_goes_while_no_operator_runs() {
    let lab = orphaned("no-operator", json!({})).await;
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    namespaces.delete(&lab.namespace, &DeleteParams::default()).await.expect("it can be deleted");
    eventually("the namespace is gone", || async {
        let found = namespaces.get_opt(&lab.namespace).await.map_err(|error| error.to_string())?;
        found.map_or(Ok(()), |namespace| Err(format!("{:#?}", namespace.status)))
    })
    .await;
}

/// Shows H13.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_while_no_operator_runs_is_cleaned_up_by_the_next_one() {
    let lab = orphaned("orphan", json!({"key": "custom"})).await;
    lab.apply_election("other", json!({"selector": {"matchLabels": {"app": "other"}}})).await;
    delete(&lab, "web").await;
    assert!(lab.lease("custom").await.is_some(), "it says what is to be cleaned up");
    // Without the chart's policies, anybody may make such a Lease. Another installation's is left alone.
    let mut foreign = lab.leases_api().get("custom").await.expect("it is there");
    let (uid, other) = (foreign.labels()["lictor.dev/election-uid"].clone(), "a-uid-of-nobody");
    let record = foreign.annotations()["lictor.dev/record"].replace("lictor.dev/operator#", "example.com/other#");
    let record = record.replace(&uid, other);
    foreign.metadata = serde_json::from_value(json!({
        "name": "foreign", "labels": {"app.kubernetes.io/managed-by": "lictor", "lictor.dev/election-uid": other}, "annotations": {"lictor.dev/record": record},
    }))
    .expect("metadata");
    lab.leases_api().create(&kube::api::PostParams::default(), &foreign).await.expect("it can be made");

    let _operator = lab.operator(&[]);
    wait_no_lease(&lab, "custom").await;
    for pod in ["a", "b"] {
        let pod = lab.get_pod(pod).await;
        assert!(!pod.labels().contains_key("role"), "{:?}", pod.labels());
        assert!(!pod.annotations().keys().any(|key| key.starts_with("lictor.dev/")), "{:?}", pod.annotations());
    }
    lab.wait_condition("other", "Elected", "False", "NoEligiblePod").await;
    assert!(lab.lease("foreign").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_election_that_is_made_anew_meanwhile_leads_without_what_the_last_one_left() {
    let lab = orphaned("orphan-anew", json!({"key": "custom", "leader": {"labels": {"role": "leader"}}})).await;
    let recorder = lab.record().await;
    delete(&lab, "web").await;
    lab.elect(json!({"key": "another"})).await;
    let _operator = lab.operator(&[]);
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    lab.wait_any_leader().await;
    assert!(lab.lease("custom").await.is_none() && lab.lease("another").await.is_some());
    recorder.catch_up().await;
    recorder.assert_promises();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_election_has_a_finalizer_while_workloads_follow_it() {
    let lab = Lab::new("finalizer").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a"]).await;
    lab.deployment("report", 1, pod()).await;
    lab.elect(json!({})).await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    wait_finalizers(&lab, 0).await;
    lab.elect(json!({"workloads": following(&["Deployment/report"])})).await;
    lab.wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
    wait_finalizers(&lab, 1).await;
    lab.elect(json!({})).await;
    wait_finalizers(&lab, 0).await;
    lab.wait_leader("a").await;
}

/// Versions before 0.1.0 gave each election a finalizer, and each Lease an owner.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_takes_off_the_finalizer_that_is_not_needed_and_moves_no_leader() {
    let lab = orphaned("finalizer-off", json!({})).await;
    let recorder = lab.record().await;
    let before = lab.election("web").await;
    let merge = |patch: Value| Patch::Merge(patch);
    let finalizer = json!({"metadata": {"finalizers": ["lictor.dev/cleanup", "example.com/kept"]}});
    lab.elections_api().patch("web", &PatchParams::default(), &merge(finalizer)).await.expect("it can be put on");
    let owner =
        json!({"apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "name": "web", "uid": before.uid()});
    let metadata = json!({"metadata": {"ownerReferences": [owner]}});
    lab.leases_api().patch("web", &PatchParams::default(), &merge(metadata)).await.expect("it can have an owner");

    let _operator = lab.operator(&[]);
    let after = lab.wait_status("web", "only the other finalizer is left", |election| {
        election.finalizers() == ["example.com/kept"]
    });
    let (term, after) = (before.status.and_then(|status| status.term), after.await);
    assert_eq!(after.status.and_then(|status| status.term), term, "nobody was elected");
    assert!(lab.leases_api().get("web").await.expect("it is there").owner_references().is_empty());
    recorder.catch_up().await;
    recorder.assert_promises();
    // It is being deleted, and somebody else keeps it: what lictor wrote goes all the same.
    lab.elections_api().delete("web", &DeleteParams::default()).await.expect("it can be deleted");
    wait_no_lease(&lab, "web").await;
    assert!(lab.roles().await.iter().all(|(_, role)| role.is_empty()));
    lab.elections_api()
        .patch("web", &PatchParams::default(), &merge(json!({"metadata": {"finalizers": null}})))
        .await
        .ok();
}
