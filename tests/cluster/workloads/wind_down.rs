//! What was disabled may take some time to end. The operator releases the lock only then, but not later than the status says.

use std::time::Duration;

use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::workloads::{annotation, idle_pod, job_spec, pod, slow_pod, stuck_pod};
use lictor_testing::kubernetes::{Operator, Proxy, WorkloadRecorder};
use serde_json::{Value, json};

use crate::consul::member::{Member, entry};
use crate::switchover::{ask, told};

/// A cluster with these workloads.
struct Side {
    member: Member,
    recorder: WorkloadRecorder,
    operator: Operator,
}

/// Creates two clusters with a Deployment `live` of such pods, and with the Deployment `gate`. The west leads.
async fn two(test: &str, template: Value) -> (Side, Side) {
    let mut sides = Vec::new();
    for (cluster, replicas) in [("west", 2), ("east", 1)] {
        let fields = json!({"whenOperatorStops": "Release"});
        let member = Member::new(test, cluster, Consul::shared().address(), fields).await;
        let (recorder, operator) = (member.lab.record_workloads().await, member.operator(&[]));
        member.lab.gate().await;
        // Nothing runs in the east before it leads.
        let first = if cluster == "west" { replicas } else { 0 };
        member.lab.deployment("live", first, template.clone()).await;
        elect(&member, json!([{"kind": "Deployment", "name": "live", "replicas": replicas}])).await;
        match cluster {
            "west" => member.lab.wait_enabled("Deployment/live", json!(replicas)).await,
            _ => member.lab.wait_disabled("Deployment/live", json!(0)).await,
        }
        sides.push(Side { member, recorder, operator });
    }
    let [west, east] = sides.try_into().ok().expect("there are two");
    all_pods(&west, "live", 2).await;
    east.member.wait_led("west", None).await;
    (west, east)
}

async fn elect(member: &Member, workloads: Value) {
    let gate = json!({"availableDeploymentName": "gate"});
    member.elect_cluster(json!({"workloads": workloads, "eligibility": gate})).await;
}

/// Waits until this many pods of a Deployment are ready.
async fn all_pods(side: &Side, name: &str, count: u32) {
    let ready = |found: &Value| found["status"]["readyReplicas"] == json!(count);
    side.member.lab.wait_workload(&format!("Deployment/{name}"), &format!("{count} pods are ready"), ready).await;
}

fn wind_down(election: &lictor_api::LeaderElection) -> Option<u32> {
    Some(election.status.as_ref()?.workloads.as_ref()?.wind_down_seconds)
}

async fn never_both(west: &Side, east: &Side) {
    for side in [west, east] {
        side.recorder.catch_up().await;
    }
    WorkloadRecorder::assert_never_both_enabled(&[&west.recorder, &east.recorder]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for pods that end slowly"]
async fn the_lock_is_kept_until_pods_that_end_slowly_are_gone() {
    let (west, east) = two("wl-slow", slow_pod(8)).await;
    west.member.lab.wait_status("web", "the time to end is told", |found| wind_down(found) == Some(13)).await;
    let before = entry(Consul::shared(), &west.member.key()).await.expect("the key is there");
    assert_eq!(before["Value"]["drainObligation"]["windDownSeconds"], 13, "{before}");
    let from = east.recorder.catch_up().await;
    west.member.lab.open_gate(false).await;
    west.member.lab.wait_state("Deployment/live", "WindingDown").await;
    let message = west.member.lab.wait_condition("web", "WorkloadsFollow", "False", "WindingDown").await;
    assert!(message.contains("live"), "{message}");
    let held = entry(Consul::shared(), &west.member.key()).await.expect("the key is there");
    assert_eq!((&held["Session"], &held["Value"]["holder"]), (&before["Session"], &Value::Null), "{held}");

    east.member.lab.wait_enabled("Deployment/live", json!(1)).await;
    west.member.lab.wait_state("Deployment/live", "Disabled").await;
    never_both(&west, &east).await;
    WorkloadRecorder::assert_never_both_run(&[&west.recorder, &east.recorder], from);
    let gap = WorkloadRecorder::gap(&west.recorder, &east.recorder);
    assert!((Duration::from_secs(6)..Duration::from_secs(13)).contains(&gap), "{gap:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for pods that end slowly"]
async fn an_operator_that_releases_at_its_end_waits_for_pods_that_end_slowly() {
    let (mut west, east) = two("wl-slow-stop", slow_pod(8)).await;
    let from = east.recorder.catch_up().await;
    let status = west.operator.stop().await;
    assert!(status.success(), "{status}: {}", west.operator.log());
    let lock = entry(Consul::shared(), &west.member.key()).await.expect("the key is there");
    let next = lock["Value"]["cluster"] == "east" || lock["Value"]["drainObligation"]["ended"] == true;
    assert!(next, "all had ended when it did: {lock}");
    east.member.lab.wait_enabled("Deployment/live", json!(1)).await;
    never_both(&west, &east).await;
    WorkloadRecorder::assert_never_both_run(&[&west.recorder, &east.recorder], from);
    let gap = WorkloadRecorder::gap(&west.recorder, &east.recorder);
    assert!((Duration::from_secs(6)..Duration::from_secs(13)).contains(&gap), "{gap:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for pods that end slowly"]
async fn pods_that_never_go_hold_the_lock_no_longer_than_the_status_says() {
    let (west, east) = two("wl-stuck", stuck_pod()).await;
    west.member.lab.wait_status("web", "the time to end is told", |found| wind_down(found) == Some(6)).await;
    west.member.lab.open_gate(false).await;
    east.member.lab.wait_enabled("Deployment/live", json!(1)).await;
    never_both(&west, &east).await;
    let gap = WorkloadRecorder::gap(&west.recorder, &east.recorder);
    assert!((Duration::from_secs(5)..Duration::from_secs(12)).contains(&gap), "{gap:?}");
}

/// Shows W12.
#[tokio::test(flavor = "multi_thread")]
async fn a_switchover_fails_where_the_pods_do_not_go() {
    let (west, east) = two("wl-stuck-switch", stuck_pod()).await;
    let term = |found: &lictor_api::LeaderElection| found.status.as_ref().and_then(|status| status.term);
    let from_term = term(&west.member.lab.election("web").await).expect("it leads in a term");
    ask(&west.member.lab, "there", json!({"fromTerm": from_term, "toClusterName": "east"})).await;
    let (_, message) = told(&west.member.lab, "there", "Failed", "True", "StillRunning").await;
    assert!(message.starts_with("2 pods of Deployment/live still ran "), "{message}");
    west.member.lab.wait_status("web", "the term rises", |found| term(found) > Some(from_term)).await;
    west.member.lab.wait_enabled("Deployment/live", json!(2)).await;
    let note = east.member.lab.wait_event("LeaderElection", "web", "NotHandedOver").await;
    assert!(note.contains("the cluster west did not hand over the lock, because 2 pods of Deployment/live"), "{note}");
    let message = east.member.lab.wait_condition("web", "Elected", "True", "LedElsewhere").await;
    assert!(message.contains("2 pods of Deployment/live still ran"), "{message}");
    never_both(&west, &east).await;
    assert!(east.recorder.turns(true).is_empty(), "it never ran in the east");
}

/// Creates two clusters with a CronJob whose Job runs, with this value of `whenDisabled`. With a proxy in front of the west's API
/// server, its operator does not see the Job.
async fn with_running_job(test: &str, when_disabled: &str, proxy: Option<&Proxy>) -> (Side, Side) {
    let mut sides = Vec::new();
    for cluster in ["west", "east"] {
        let member = Member::new(test, cluster, Consul::shared().address(), json!({})).await;
        let recorder = member.lab.record_workloads().await;
        let operator = match proxy {
            Some(proxy) if cluster == "west" => member.operator_at(proxy.kubeconfig()),
            _ => member.operator(&[]),
        };
        member.lab.gate().await;
        member.lab.cron_job("nightly", super::NEVER, pod()).await;
        elect(&member, json!([{"kind": "CronJob", "name": "nightly", "whenDisabled": when_disabled}])).await;
        match cluster {
            "west" => member.lab.wait_enabled("CronJob/nightly", json!(false)).await,
            _ => member.lab.wait_disabled("CronJob/nightly", json!(false)).await,
        }
        sides.push(Side { member, recorder, operator });
    }
    let [west, east] = sides.try_into().ok().expect("there are two");
    if let Some(proxy) = proxy {
        // The watch under way ends before its Job is created.
        proxy.hold(|asked| asked.path.contains("/jobs?") && asked.path.contains("watch=true"));
        proxy.held().await;
    }
    // This does the same as `kubectl create job --from=cronjob/nightly`.
    let lab = &west.member.lab;
    let owner = lab.find("CronJob/nightly").await.expect("it exists");
    lab.make_owned("Job/nightly-1", job_spec(idle_pod()), &owner).await;
    lab.wait_workload("Job/nightly-1", "it has a pod", |found| found["status"]["active"] == 1).await;
    east.member.wait_led("west", None).await;
    (west, east)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for pods that end slowly"]
async fn a_suspended_cron_jobs_jobs_go_on_unless_they_are_to_be_deleted() {
    // Starting them blocks this thread.
    let _ = (Consul::shared(), lictor_testing::kubernetes::Cluster::shared());
    let proxy = Proxy::start(lictor_testing::kubernetes::Cluster::shared()).await;
    let unseen = jobs_are_deleted("wl-jobs-unseen", Some(&proxy));
    tokio::join!(jobs_go_on(), jobs_are_deleted("wl-jobs-off", None), unseen);
}

async fn jobs_go_on() {
    let (west, east) = with_running_job("wl-jobs-on", "Suspend", None).await;
    west.member.lab.open_gate(false).await;
    east.member.lab.wait_enabled("CronJob/nightly", json!(false)).await;
    west.member.lab.wait_disabled("CronJob/nightly", json!(false)).await;
    let job = west.member.lab.find("Job/nightly-1").await.expect("it is still there");
    assert_eq!((&job["status"]["active"], &job["spec"]["suspend"]), (&json!(1), &json!(false)), "{job}");
    assert_eq!(annotation(&job, "lictor.dev/enabled"), None, "{job}");
    never_both(&west, &east).await;
}

async fn jobs_are_deleted(test: &str, proxy: Option<&Proxy>) {
    let (west, east) = with_running_job(test, "DeleteRunning", proxy).await;
    west.member.lab.wait_status("web", "the time to end is told", |found| wind_down(found) == Some(6)).await;
    let from = east.recorder.catch_up().await;
    west.member.lab.open_gate(false).await;
    east.member.lab.wait_enabled("CronJob/nightly", json!(false)).await;
    assert_eq!(west.member.lab.find("Job/nightly-1").await, None);
    never_both(&west, &east).await;
    WorkloadRecorder::assert_never_both_run(&[&west.recorder, &east.recorder], from);
    let gone = west.recorder.seen_of("Job/nightly-1").into_iter().find(|seen| seen.deleted).expect("it was deleted");
    let enabled = east.recorder.seen_of("CronJob/nightly").into_iter().find(|seen| seen.may_run() && seen.claimed());
    assert!(gone.version < enabled.expect("it was enabled").version);
}
