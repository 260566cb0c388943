//! Elections whose workloads make their own candidates, or each other's.

use lictor_testing::kubernetes::workloads::{annotation, following, pod, setting};
use lictor_testing::kubernetes::{Lab, WorkloadRecorder};
use serde_json::{Value, json};

/// The spec of an election of the pods of one Deployment, or StatefulSet, with these workloads.
fn of(app: &str, workloads: &[&str]) -> Value {
    json!({"selector": {"matchLabels": {"app": app}}, "workloads": following(workloads)})
}

/// Checks that no election has written to a workload.
async fn untouched(recorder: &WorkloadRecorder, workload: &str) {
    recorder.catch_up().await;
    let seen = recorder.seen_of(workload);
    assert!(!seen.is_empty() && seen.iter().all(|seen| !seen.claimed()), "{workload}");
}

/// Shows W11.
#[tokio::test(flavor = "multi_thread")]
async fn an_election_whose_workloads_make_its_own_candidates_is_refused_before_anything_is_switched_off() {
    let lab = Lab::new("wl-self").await;
    let recorder = lab.record_workloads().await;
    let _operator = lab.operator(&[]);
    lab.deployment("self", 2, pod()).await;
    lab.stateful_set("queue", 1, pod()).await;
    for (election, workload) in [("self", "Deployment/self"), ("queue", "StatefulSet/queue")] {
        lab.apply_election(election, of(election, &[workload])).await;
        let message = lab.wait_condition(election, "Accepted", "False", "CircularWorkloads").await;
        assert!(message.contains(workload) && message.contains("spec.workloads"), "{message}");
        untouched(&recorder, workload).await;
    }
    // Without it, the election works.
    lab.apply_election("self", of("self", &[])).await;
    lab.wait_condition("self", "Elected", "True", "Elected").await;

    // What selects only pods without a label that each pod of a Deployment has, is no candidate that a Deployment makes.
    let expression = json!({"key": "pod-template-hash", "operator": "DoesNotExist"});
    let selector = json!({"matchLabels": {"app": "self"}, "matchExpressions": [expression]});
    lab.apply_election("bare", json!({"selector": selector, "workloads": following(&["Deployment/self"])})).await;
    lab.wait_condition("bare", "Accepted", "True", "Accepted").await;

    // The workload comes later than the election, and no pod tells yet whom it makes.
    lab.apply_election("later", of("later", &["Deployment/later"])).await;
    lab.wait_condition("later", "WorkloadsFollow", "False", "Missing").await;
    lab.deployment("later", 0, pod()).await;
    lab.wait_condition("later", "Accepted", "False", "CircularWorkloads").await;
    lab.scale("Deployment/later", 2, "test").await;
    lab.wait_workload("Deployment/later", "it runs", |found| found["status"]["readyReplicas"] == 2).await;
    untouched(&recorder, "Deployment/later").await;

    // The template does not tell it, but the pods do.
    lab.deployment("marked", 1, pod()).await;
    lab.wait_workload("Deployment/marked", "it runs", |found| found["status"]["readyReplicas"] == 1).await;
    let selector = json!({"matchLabels": {"by": "hand"}});
    lab.apply_election("hand", json!({"selector": selector, "workloads": following(&["Job/import"])})).await;
    lab.wait_condition("hand", "Elected", "False", "NoEligiblePod").await;
    lab.try_kubectl(&["label", "pod", "-l", "app=marked", "by=hand"], None).expect("pods can be labelled");
    lab.wait_condition("hand", "Elected", "True", "Elected").await;
    let workloads = following(&["Job/import", "Deployment/marked"]);
    lab.apply_election("hand", json!({"selector": selector, "workloads": workloads})).await;
    lab.wait_condition("hand", "Accepted", "False", "CircularWorkloads").await;
    untouched(&recorder, "Deployment/marked").await;
}

/// Shows W11.
#[tokio::test(flavor = "multi_thread")]
async fn of_elections_that_are_each_others_workload_the_last_one_is_refused_and_the_others_come_back() {
    let lab = Lab::new("wl-circle").await;
    let _operator = lab.operator(&[]);
    let names = ["red", "green", "blue"];
    for name in names {
        lab.deployment(name, 1, pod()).await;
    }
    lab.apply_election("red", of("red", &["Deployment/green"])).await;
    lab.apply_election("green", of("green", &["Deployment/blue"])).await;
    for (election, workload) in [("red", "Deployment/green"), ("green", "Deployment/blue")] {
        lab.wait_condition(election, "WorkloadsFollow", "True", "Follow").await;
        lab.wait_enabled(workload, json!(1)).await;
    }
    lab.apply_election("blue", of("blue", &["Deployment/red"])).await;
    let message = lab.wait_condition("blue", "Accepted", "False", "CircularWorkloads").await;
    let (first, second) = ("blue has Deployment/red, which makes candidates of red", "red has Deployment/green, which");
    assert!(message.contains(first) && message.contains(second) && message.contains("green has"), "{message}");
    // All is switched off with the first of them, and comes back with it.
    lab.scale("Deployment/red", 0, "test").await;
    for workload in ["Deployment/green", "Deployment/blue"] {
        lab.wait_disabled(workload, json!(1)).await;
    }
    lab.scale("Deployment/red", 1, "test").await;
    for workload in ["Deployment/green", "Deployment/blue"] {
        lab.wait_enabled(workload, json!(1)).await;
    }
    let red = lab.find("Deployment/red").await.expect("it exists");
    assert_eq!((setting(&red), annotation(&red, "lictor.dev/election")), (&json!(1), None));

    // The circle is opened at another place.
    lab.apply_election("green", of("green", &[])).await;
    lab.wait_condition("blue", "Accepted", "True", "Accepted").await;
    lab.wait_enabled("Deployment/red", json!(1)).await;
}

/// Shows W11.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_switched_off_when_a_circle_comes_about_is_given_back() {
    let lab = Lab::new("wl-closes").await;
    let _operator = lab.operator(&[]);
    lab.deployment("live", 2, pod()).await;
    lab.cron_job("nightly", super::NEVER, pod()).await;
    lab.ready_pods(&["a"]).await;
    lab.elect(json!({"workloads": following(&["Deployment/live", "CronJob/nightly"])})).await;
    lab.wait_leader("a").await;
    lab.wait_enabled("Deployment/live", json!(2)).await;
    lab.kill_pod("a").await;
    lab.wait_disabled("Deployment/live", json!(2)).await;
    lab.wait_disabled("CronJob/nightly", json!(false)).await;
    let labels = json!({"job": "nightly", "app": "web"});
    let template = json!({"spec": {"template": {"metadata": {"labels": labels}}}});
    lab.patch("CronJob/nightly", json!({"spec": {"jobTemplate": template}})).await;
    lab.wait_condition("web", "Accepted", "False", "CircularWorkloads").await;
    lab.wait_released("Deployment/live", json!(2)).await;
    lab.wait_released("CronJob/nightly", json!(false)).await;

    // Somebody who mends it gets what was asked for.
    lab.elect(json!({"workloads": following(&["Deployment/live"])})).await;
    lab.ready_pods(&["b"]).await;
    lab.wait_leader("b").await;
    lab.wait_enabled("Deployment/live", json!(2)).await;
}
