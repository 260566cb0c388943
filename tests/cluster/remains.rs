//! What an election leaves behind that has no finalizer, and when an election has one.

use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use lictor_testing::kubernetes::workloads::{following, idle_pod, job_spec, pod, setting};
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
    lab.delete_election(election).await;
    let there = lab.elections_api().get_opt(election).await.expect("the API server answers");
    assert!(there.is_none(), "nothing keeps it: {:?}", there.map(|election| election.metadata));
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
    lab.leases_api().create(&PostParams::default(), &foreign).await.expect("it can be made");

    let _operator = lab.operator(&[]);
    lab.wait_lock_gone("custom").await;
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
    recorder.assert_promises().await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_that_is_not_needed_is_taken_off_and_no_leader_moves() {
    let lab = orphaned("finalizer-off", json!({})).await;
    let recorder = lab.record().await;
    let before = lab.election("web").await;
    let merge = |patch: Value| Patch::Merge(patch);
    let finalizer = json!({"metadata": {"finalizers": ["lictor.dev/cleanup", "example.com/kept"]}});
    lab.elections_api().patch("web", &PatchParams::default(), &merge(finalizer)).await.expect("it can be put on");

    let _operator = lab.operator(&[]);
    let after = lab.wait_status("web", "only the other finalizer is left", |election| {
        election.finalizers() == ["example.com/kept"]
    });
    let (term, after) = (before.status.and_then(|status| status.term), after.await);
    assert_eq!(after.status.and_then(|status| status.term), term, "nobody was elected");
    recorder.assert_promises().await;
    // It is being deleted, and somebody else keeps it: what lictor wrote goes all the same.
    lab.delete_election("web").await;
    lab.wait_lock_gone("web").await;
    assert!(lab.roles().await.iter().all(|(_, role)| role.is_empty()));
    lab.elections_api()
        .patch("web", &PatchParams::default(), &merge(json!({"metadata": {"finalizers": null}})))
        .await
        .ok();
}

const SLICE: &str = "web-leader-lictor-ipv4";

/// An election with a slice and a Job of its own.
fn with_objects() -> Value {
    let job = json!({"kind": "Job", "name": "migrate", "jobTemplate": {"spec": job_spec(idle_pod())}});
    json!({"service": {"name": "web-leader"}, "workloads": [job]})
}

fn slices(lab: &Lab) -> Api<EndpointSlice> {
    Api::namespaced(lab.client.clone(), &lab.namespace)
}

/// Waits until the slice names exactly this pod.
async fn wait_named(lab: &Lab, pod: &str) -> EndpointSlice {
    eventually(&format!("{SLICE} names {pod}"), || async {
        let found = slices(lab).get(SLICE).await.map_err(|error| error.to_string())?;
        let named = found.endpoints.iter().map(|endpoint| endpoint.target_ref.clone().and_then(|pod| pod.name));
        if named.eq([Some(pod.to_owned())]) { Ok(found) } else { Err(format!("{:?}", found.endpoints)) }
    })
    .await
}

/// Deletes an election with a slice and a Job with `--cascade=orphan` while no operator runs. Only lictor's finalizer keeps it then.
/// Returns its leader.
async fn kept(test: &str) -> (Lab, String) {
    let lab = Lab::new(test).await;
    let operator = lab.operator(&[]);
    let service = json!({"metadata": {"name": "web-leader"}, "spec": {"ports": [{"port": 80, "targetPort": 8080}]}});
    let service: Service = serde_json::from_value(service).expect("a Service");
    let services: Api<Service> = Api::namespaced(lab.client.clone(), &lab.namespace);
    services.create(&PostParams::default(), &service).await.expect("a Service can be made");
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(with_objects()).await;
    let leader = lab.wait_any_leader().await;
    wait_named(&lab, &leader).await;
    lab.wait_workload("Job/migrate-1", "it runs", |found| setting(found) == false).await;
    operator.signal("KILL");
    lab.elections_api().delete("web", &DeleteParams::orphan()).await.expect("it can be deleted");
    wait_finalizers(&lab, 1).await;
    let slice = slices(&lab).get(SLICE).await.expect("it is kept");
    let job = lab.find("Job/migrate-1").await.expect("it is kept");
    assert!(slice.owner_references().is_empty(), "{slice:?}");
    assert!(job["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty), "{job}");
    (lab, leader)
}

/// A slice that stays names an address that soon is a dead pod's, and then another pod's.
#[tokio::test(flavor = "multi_thread")]
async fn an_election_takes_its_slice_and_its_jobs_with_it_whatever_its_deletion_was_to_keep() {
    let (lab, _) = kept("kept-none").await;
    let _operator = lab.operator(&[]);
    lab.wait_election_gone("web").await;
    let slice = slices(&lab).get_opt(SLICE).await.expect("the API server answers");
    assert!(slice.is_none(), "{slice:?}");
    eventually("the Job is gone", || async {
        lab.find("Job/migrate-1").await.map_or(Ok(()), |job| Err(job.to_string()))
    })
    .await;
}

/// Somebody took the finalizer off, too. Shows R3.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_election_of_the_name_left_is_taken_over() {
    let (lab, leader) = kept("kept-again").await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    lab.elections_api().patch("web", &PatchParams::default(), &free).await.expect("finalizers can be taken off");
    lab.wait_election_gone("web").await;
    lab.kill_pod(&leader).await;
    wait_named(&lab, &leader).await;

    let uid = lab.elect(with_objects()).await.uid();
    let _operator = lab.operator(&[]);
    let next = lab.wait_any_leader().await;
    let slice = wait_named(&lab, &next).await;
    let [owner] = slice.owner_references() else { panic!("{slice:?}") };
    assert_eq!(Some(&owner.uid), uid.as_ref());
    lab.wait_condition("web", "Routed", "True", "Routed").await;
    let own = format!("Job/migrate-{}", lab.term("web").await);
    let job = lab.wait_workload(&own, "it runs", |found| setting(found) == false).await;
    assert_eq!(job["metadata"]["ownerReferences"][0]["uid"].as_str().map(str::to_owned), uid);
    lab.wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
    let jobs = lab.api_of("Job").list(&ListParams::default()).await.expect("Jobs can be listed");
    assert_eq!(jobs.items.len(), 1, "{:?}", jobs.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
}
