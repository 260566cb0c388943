//! Workloads that are missing, and workloads that two elections name.

use kube::api::DeleteParams;
use lictor_testing::kubernetes::workloads::{annotation, following, idle_pod, pod};
use lictor_testing::kubernetes::{Lab, PodSpec};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_workload_is_told_and_follows_as_soon_as_it_is_there() {
    let lab = Lab::new("wl-missing").await;
    let operator = lab.operator(&[]);
    lab.ready_pods(&["a"]).await;
    lab.deployment("live", 2, pod()).await;
    lab.elect(json!({"workloads": following(&["Deployment/live", "CronJob/nightly", "Job/import"])})).await;
    lab.wait_leader("a").await;
    lab.wait_enabled("Deployment/live", json!(2)).await;
    let message = lab.wait_condition("web", "WorkloadsFollow", "False", "Missing").await;
    assert!(message.contains("CronJob/nightly") && message.contains("Job/import"), "{message}");
    lab.wait_state("CronJob/nightly", "Missing").await;
    assert!(!operator.log().contains("\"ERROR\""), "{}", operator.log());

    lab.cron_job("nightly", super::NEVER, pod()).await;
    lab.wait_enabled("CronJob/nightly", json!(false)).await;
    lab.job("import", idle_pod()).await;
    lab.wait_enabled("Job/import", json!(false)).await;
    lab.wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
    // A workload that is deleted and created again is another one.
    lab.delete("Deployment/live").await;
    lab.wait_state("Deployment/live", "Missing").await;
    lab.kill_pod("a").await;
    lab.wait_disabled("CronJob/nightly", json!(false)).await;
    lab.deployment("live", 3, pod()).await;
    lab.wait_disabled("Deployment/live", json!(3)).await;
    lab.ready_pods(&["a"]).await;
    lab.wait_enabled("Deployment/live", json!(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_is_given_is_what_a_workload_gets_whenever_it_is_enabled() {
    let lab = Lab::new("wl-given").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a"]).await;
    for (name, had) in [("none", 0), ("some", 2)] {
        lab.deployment(name, had, pod()).await;
    }
    let given = |name: &str| json!({"kind": "Deployment", "name": name, "replicas": 4});
    lab.elect(json!({"workloads": [given("none"), given("some")]})).await;
    for name in ["Deployment/none", "Deployment/some"] {
        lab.wait_enabled(name, json!(4)).await;
        lab.scale(name, 6, "test").await;
    }
    lab.kill_pod("a").await;
    for name in ["Deployment/none", "Deployment/some"] {
        lab.wait_disabled(name, json!(6)).await;
    }
    lab.ready_pods(&["a"]).await;
    for name in ["Deployment/none", "Deployment/some"] {
        lab.wait_enabled(name, json!(4)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for the older election to let go"]
async fn of_two_elections_for_the_same_workload_the_younger_waits_until_the_older_lets_go_of_it() {
    let lab = Lab::new("wl-taken").await;
    let _operator = lab.operator(&[]);
    let recorder = lab.record_workloads().await;
    lab.ready_pods(&["a"]).await;
    let other = json!({"matchLabels": {"app": "other"}});
    lab.pod("b", PodSpec { labels: json!({"app": "other"}), ..PodSpec::default() }).await;
    lab.wait_ready("b", true).await;
    lab.deployment("live", 2, pod()).await;
    lab.deployment("more", 1, pod()).await;
    lab.elect_as("older", json!({"workloads": following(&["Deployment/live"])})).await;
    lab.wait_enabled("Deployment/live", json!(2)).await;
    let younger = |workloads: &[&str]| json!({"selector": other, "workloads": following(workloads)});
    lab.apply_election("younger", younger(&["Deployment/more", "Deployment/live"])).await;
    let message = lab.wait_condition("younger", "Accepted", "False", "WorkloadTaken").await;
    assert!(message.contains("Deployment/live") && message.contains("older"), "{message}");
    lab.wait_event("LeaderElection", "younger", "WorkloadTaken").await;
    // It has taken nothing, and the older election works on.
    assert!(lab.lease("younger").await.is_none());
    lab.kill_pod("a").await;
    lab.wait_disabled("Deployment/live", json!(2)).await;
    recorder.catch_up().await;
    assert!(recorder.seen_of("Deployment/more").iter().all(|seen| !seen.claimed()));

    // It gets what it does not share, as soon as it names nothing else.
    lab.apply_election("younger", younger(&["Deployment/more"])).await;
    lab.wait_condition("younger", "Accepted", "True", "Accepted").await;
    lab.wait_enabled("Deployment/more", json!(1)).await;
    lab.apply_election("younger", younger(&["Deployment/live"])).await;
    lab.wait_condition("younger", "Accepted", "False", "WorkloadTaken").await;
    lab.elections_api().delete("older", &DeleteParams::default()).await.expect("it can be deleted");
    lab.wait_condition("younger", "Accepted", "True", "Accepted").await;
    lab.wait_enabled("Deployment/live", json!(2)).await;
    let found = lab.find("Deployment/live").await.expect("it exists");
    assert_eq!(annotation(&found, "lictor.dev/election"), Some("younger"));
    lab.wait_released("Deployment/more", json!(1)).await;
}
