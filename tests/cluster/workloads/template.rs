//! One Job for each term, from a template. The leader is a pod, and the lock is a Lease.

use kube::ResourceExt;
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::workloads::{ENABLED, annotation, idle_pod, job_spec, pod, setting};
use lictor_testing::kubernetes::{Lab, Operator, WorkloadRecorder};
use serde_json::{Value, json};

use crate::consul::member::Member;

/// Creates an election with a template of Jobs with such pods, and two pods, one of which leads.
async fn led(test: &str, template: Value) -> (Lab, Operator, WorkloadRecorder, String) {
    let lab = Lab::new(test).await;
    let recorder = lab.record_workloads().await;
    let operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    let metadata = json!({"labels": {"team": "data"}, "annotations": {"example.com/why": "a new leader"}});
    let template = json!({"metadata": metadata, "spec": job_spec(template)});
    let workloads = json!([{"kind": "Job", "name": "migrate", "jobTemplate": template}]);
    lab.elect(json!({"workloads": workloads})).await;
    let leader = lab.wait_any_leader().await;
    (lab, operator, recorder, leader)
}

/// Returns the Job of the present term.
async fn job(lab: &Lab) -> String {
    format!("Job/migrate-{}", lab.term("web").await)
}

async fn wait_runs(lab: &Lab, job: &str) -> Value {
    lab.wait_workload(job, "it runs", |found| setting(found) == false && annotation(found, ENABLED) == Some("true"))
        .await
}

/// Ends the present term, and waits for the next leader.
async fn next_term(lab: &Lab, leader: &str) -> String {
    lab.kill_pod(leader).await;
    let next = if leader == "a" { "b" } else { "a" };
    lab.wait_leader(next).await;
    lab.ready_pods(&[leader]).await;
    next.to_owned()
}

/// Returns how many times a Job of this name was created.
fn made(recorder: &WorkloadRecorder, job: &str) -> usize {
    let uids: std::collections::BTreeSet<_> =
        recorder.seen_of(job).iter().map(|seen| seen.object["metadata"]["uid"].to_string()).collect();
    uids.len()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for Jobs to end"]
async fn each_term_has_one_job_and_that_of_the_term_before_is_gone_first() {
    let (lab, _operator, recorder, leader) = led("wl-template", idle_pod()).await;
    let first = job(&lab).await;
    let found = wait_runs(&lab, &first).await;
    let owner = &found["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("LeaderElection"), &json!("web")), "{found}");
    assert_eq!(annotation(&found, "lictor.dev/template"), Some("migrate"));
    assert_eq!(annotation(&found, "example.com/why"), Some("a new leader"));
    assert_eq!(found["metadata"]["labels"]["team"], "data");
    lab.wait_state(&first, "Enabled").await;
    let note = lab.wait_event("LeaderElection", "web", "JobStarted").await;
    assert!(note.contains(first.trim_start_matches("Job/")), "{note}");

    next_term(&lab, &leader).await;
    let second = job(&lab).await;
    assert_ne!(first, second);
    wait_runs(&lab, &second).await;
    recorder.catch_up().await;
    let gone = recorder.seen_of(&first).into_iter().find(|seen| seen.deleted).expect("the first is gone");
    let made = recorder.seen_of(&second).into_iter().next().expect("the second was made");
    assert!(gone.version < made.version, "{gone:?}, {made:?}");
    assert!(!made.may_run(), "it is made suspended: {made:?}");
    let pods = recorder.seen().into_iter().filter(|seen| seen.key.starts_with("Pod/migrate-") && seen.deleted);
    assert!(pods.into_iter().any(|pod| pod.version < made.version), "the first one's pod is gone before it");

    lab.delete_election("web").await;
    lictor_testing::kubernetes::eventually("the Job goes with its election", || async {
        match lab.find(&second).await {
            None => Ok(()),
            Some(found) => Err(found.to_string()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for Jobs to end"]
async fn a_job_that_was_deleted_or_has_ended_is_not_started_again_in_its_term() {
    let (lab, mut operator, recorder, leader) = led("wl-once", pod()).await;
    let first = job(&lab).await;
    lab.wait_workload(&first, "it has ended", |found| found["status"]["succeeded"] == 1).await;
    operator.stop().await;
    operator = lab.operator(&[]);
    operator.sees_leader(&lab.namespace, "web", &leader).await;
    lab.delete(&first).await;
    operator.signal("KILL");
    operator = lab.operator(&[]);
    operator.sees_leader(&lab.namespace, "web", &leader).await;
    lab.wait_condition("web", "WorkloadsFollow", "True", "Follow").await;

    // The next Job is created as usual. By then, the first one would have been, too.
    next_term(&lab, &leader).await;
    let second = job(&lab).await;
    lab.wait_workload(&second, "it has ended", |found| found["status"]["succeeded"] == 1).await;
    recorder.catch_up().await;
    assert_eq!((made(&recorder, &first), made(&recorder, &second)), (1, 1), "{}", operator.log());
    let pods: std::collections::BTreeSet<_> =
        recorder.seen().into_iter().filter(|seen| seen.key.starts_with("Pod/migrate-")).map(|seen| seen.key).collect();
    assert_eq!(pods.len(), 2, "each ran once: {pods:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nobody_leads_the_job_is_suspended_and_the_next_term_has_another() {
    let (lab, operator, recorder, _leader) = led("wl-nobody", idle_pod()).await;
    let first = job(&lab).await;
    wait_runs(&lab, &first).await;
    for pod in ["a", "b"] {
        lab.kill_pod(pod).await;
    }
    // The term may have moved to the other pod first.
    lab.wait_condition("web", "Elected", "False", "NoEligiblePod").await;
    lictor_testing::kubernetes::eventually("what there is of Jobs is suspended", || async {
        let jobs =
            lab.api_of("Job").list(&kube::api::ListParams::default()).await.map_err(|error| error.to_string())?;
        let running: Vec<_> = jobs.items.iter().filter(|job| job.data["spec"]["suspend"] != json!(true)).collect();
        if running.is_empty() {
            Ok(())
        } else {
            Err(format!("{:?}", running.iter().map(|job| job.name_any()).collect::<Vec<_>>()))
        }
    })
    .await;
    recorder.catch_up().await;
    let last = recorder.seen().into_iter().rfind(|seen| seen.key.starts_with("Job/migrate-")).expect("there was one");
    assert!(!last.may_run(), "{last:?}");

    lab.ready_pods(&["a"]).await;
    lab.wait_leader("a").await;
    let next = job(&lab).await;
    assert_ne!(next, first);
    wait_runs(&lab, &next).await;
    recorder.catch_up().await;
    assert_eq!(made(&recorder, &next), 1, "{}", operator.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_the_api_server_refuses_is_told_and_holds_nothing_up() {
    let lab = Lab::new("wl-refused").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a"]).await;
    lab.deployment("live", 1, pod()).await;
    let template = json!({"spec": {"template": {"spec": {"containers": []}}}});
    let job = json!({"kind": "Job", "name": "migrate", "jobTemplate": template});
    lab.elect(json!({"workloads": [job, {"kind": "Deployment", "name": "live"}]})).await;
    lab.wait_leader("a").await;
    lab.wait_enabled("Deployment/live", json!(1)).await;
    let message = lab.wait_condition("web", "WorkloadsFollow", "False", "WriteFails").await;
    assert!(message.contains("migrate") && message.contains("containers"), "{message}");
    lab.wait_condition("web", "Elected", "True", "Elected").await;

    let template = json!({"spec": job_spec(pod())});
    let job = json!({"kind": "Job", "name": "migrate", "jobTemplate": template});
    lab.elect(json!({"workloads": [job, {"kind": "Deployment", "name": "live"}]})).await;
    lab.wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
    let made = self::job(&lab).await;
    lab.wait_workload(&made, "it has ended", |found| found["status"]["succeeded"] == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn between_clusters_each_term_has_its_job_where_it_leads() {
    let template = json!({"spec": job_spec(idle_pod())});
    let spec = json!({"workloads": [{"kind": "Job", "name": "migrate", "jobTemplate": template}]});
    let mut sides = Vec::new();
    for cluster in ["west", "east"] {
        let fields = json!({"whenOperatorStops": "Release"});
        let member = Member::new("wl-terms", cluster, Consul::shared().address(), fields).await;
        let (recorder, operator) = (member.lab.record_workloads().await, member.operator(&[]));
        member.elect_cluster(spec.clone()).await;
        member.wait_led("west", None).await;
        sides.push((member, operator, recorder));
    }
    let mut jobs = Vec::new();
    // There and back.
    for to in [0, 1, 0] {
        let leads = &sides[to].0;
        let cluster = leads.cluster.clone();
        leads.wait_led(&cluster, None).await;
        let term = leads.lab.election("web").await.status.and_then(|status| status.term).expect("a term");
        let job = format!("Job/migrate-{term}");
        wait_runs(&leads.lab, &job).await;
        jobs.push(job);
        if jobs.len() < 3 {
            sides[to].1.stop().await;
            sides[to].1 = sides[to].0.operator(&[]);
        }
    }
    for (_, _, recorder) in &sides {
        recorder.catch_up().await;
    }
    let recorders = [&sides[0].2, &sides[1].2];
    WorkloadRecorder::assert_never_both_enabled(&recorders);
    WorkloadRecorder::assert_never_both_run(&recorders, 0);
    let [first, second, third] = jobs.as_slice() else { panic!("{jobs:?}") };
    assert!(sides[0].0.lab.find(first).await.is_none(), "the first one is gone");
    assert_eq!((made(recorders[0], first), made(recorders[1], second), made(recorders[0], third)), (1, 1, 1));
}
