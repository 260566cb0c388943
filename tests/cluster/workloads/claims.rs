//! Workloads that are missing, and workloads that two elections name.

use lictor_testing::kubernetes::workloads::{annotation, following, idle_pod, pod};
use lictor_testing::kubernetes::{Lab, PodSpec, Seen};
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
    lab.delete_election("older").await;
    lab.wait_condition("younger", "Accepted", "True", "Accepted").await;
    lab.wait_enabled("Deployment/live", json!(2)).await;
    let found = lab.find("Deployment/live").await.expect("it exists");
    assert_eq!(annotation(&found, "lictor.dev/election"), Some("younger"));
    lab.wait_released("Deployment/more", json!(1)).await;
}

/// Shows W9.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_comes_back_as_it_was_although_its_annotations_were_removed() {
    let lab = Lab::new("wl-stripped").await;
    let mut operator = lab.operator(&[]);
    lab.ready_pods(&["a"]).await;
    lab.deployment("live", 4, pod()).await;
    lab.cron_job("nightly", super::NEVER, pod()).await;
    let four = |kept: serde_json::Value| [("Deployment/live", json!(4)), ("CronJob/nightly", kept)];
    lab.elect(json!({"workloads": following(&["Deployment/live", "CronJob/nightly"])})).await;
    for (workload, with) in four(json!(false)) {
        lab.wait_enabled(workload, with).await;
    }
    for restarts in [false, true] {
        let names: Vec<String> = lab.roles().await.into_iter().map(|(name, _)| name).collect();
        for name in names {
            lab.kill_pod(&name).await;
        }
        for (workload, kept) in four(json!(false)) {
            lab.wait_disabled(workload, kept).await;
        }
        lab.wait_status("web", "the election says what they had", |election| {
            let said = election.metadata.annotations.iter().flatten().find(|(name, _)| *name == "lictor.dev/workloads");
            said.is_some_and(|(_, said)| said.contains("\"setting\":4") && said.contains("\"setting\":false"))
        })
        .await;
        if restarts {
            operator.stop().await;
        }
        for (workload, _) in four(json!(false)) {
            let found = lab.find(workload).await.expect("it exists");
            let ours = found["metadata"]["annotations"].as_object().into_iter().flatten().map(|(name, _)| name.clone());
            let ours = ours.filter(|name| name.starts_with("lictor.dev/"));
            let none: serde_json::Map<String, serde_json::Value> = ours.map(|name| (name, json!(null))).collect();
            lab.patch(workload, json!({"metadata": {"annotations": none}})).await;
        }
        if restarts {
            operator = lab.operator(&[]);
        }
        for (workload, kept) in four(json!(false)) {
            lab.wait_disabled(workload, kept).await;
        }
        lab.ready_pods(&[if restarts { "c" } else { "b" }]).await;
        for (workload, with) in four(json!(false)) {
            lab.wait_enabled(workload, with).await;
        }
    }
}

/// Shows W10.
#[tokio::test(flavor = "multi_thread")]
async fn a_selector_that_has_never_matched_a_pod_switches_nothing_off() {
    let lab = Lab::new("wl-typo").await;
    let recorder = lab.record_workloads().await;
    let _operator = lab.operator(&[]);
    lab.deployment("shop", 2, pod()).await;
    lab.apply_election("shop", json!({"selector": {"matchLabels": {"app": "shop"}}})).await;
    lab.wait_condition("shop", "Elected", "True", "Elected").await;
    let typo =
        |app: &str| json!({"selector": {"matchLabels": {"app": app}}, "workloads": following(&["Deployment/shop"])});
    lab.apply_election("typo", typo("shpo")).await;
    let message = lab.wait_condition("typo", "WorkloadsFollow", "False", "NeverMatched").await;
    for part in ["Deployment/shop", "spec.selector", "election typo"] {
        assert!(message.contains(part), "{message}");
    }
    recorder.catch_up().await;
    assert!(recorder.seen_of("Deployment/shop").iter().all(|seen| !seen.claimed()), "nothing was written");

    // Once it has matched one, the workload runs only while it leads, and who goes without says why.
    lab.pod("a", PodSpec { labels: json!({"app": "shpo"}), ..PodSpec::default() }).await;
    lab.wait_enabled("Deployment/shop", json!(2)).await;
    lab.wait_condition("typo", "WorkloadsFollow", "True", "Follow").await;
    lab.kill_pod("a").await;
    lab.wait_disabled("Deployment/shop", json!(2)).await;
    let note = lab.wait_event("LeaderElection", "typo", "WorkloadDisabled").await;
    assert!(note.contains("Deployment/shop has 0 replicas, written by the election typo"), "{note}");
    lab.wait_status("shop", "it says why it has no candidate", |election| {
        let conditions = election.status.iter().flat_map(|status| &status.conditions);
        let mut elected = conditions.filter(|condition| condition.type_ == "Elected");
        elected
            .any(|elected| elected.message.contains("the Deployment shop has 0 replicas, written by the election typo"))
    })
    .await;

    // The next typing error leaves what runs as it is, too.
    lab.pod("b", PodSpec { labels: json!({"app": "shpo"}), ..PodSpec::default() }).await;
    lab.wait_enabled("Deployment/shop", json!(2)).await;
    lab.wait_condition("typo", "WorkloadsFollow", "True", "Follow").await;
    lab.apply_election("typo", typo("hsop")).await;
    lab.wait_condition("typo", "WorkloadsFollow", "False", "NeverMatched").await;
    recorder.catch_up().await;
    assert!(recorder.seen_of("Deployment/shop").last().is_some_and(Seen::may_run));
}
