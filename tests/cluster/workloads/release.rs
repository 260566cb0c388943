//! Workloads that leave an election.

use std::time::Duration;

use kube::ResourceExt;
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::workloads::{annotation, following, managers, setting};
use lictor_testing::kubernetes::{Lab, Operator, Proxy};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{FOUR, all_disabled, all_enabled, four};
use crate::consul::member::Member;

/// Creates one workload of each kind, which follow a pod `a`, with this value of `whenReleased`.
async fn led(test: &str, when_released: Option<&str>) -> (Lab, Operator) {
    let lab = Lab::new(test).await;
    let operator = lab.operator(&[]);
    four(&lab, (3, 2)).await;
    lab.ready_pods(&["a"]).await;
    lab.elect(json!({"workloads": list(&FOUR, when_released)})).await;
    all_enabled(&lab, (3, 2)).await;
    (lab, operator)
}

fn list(workloads: &[&str], when_released: Option<&str>) -> Value {
    let mut list = following(workloads);
    for workload in list.as_array_mut().into_iter().flatten() {
        if let Some(when_released) = when_released {
            workload["whenReleased"] = json!(when_released);
        }
    }
    list
}

/// Checks that nothing of lictor is left on them, and that they have these settings, in the order of [`FOUR`].
async fn all_released(lab: &Lab, settings: [Value; 4]) {
    for (workload, with) in FOUR.into_iter().zip(settings) {
        lab.wait_released(workload, with).await;
    }
}

/// Waits until the election notes exactly these workloads as those that it has to give back.
async fn tracks(lab: &Lab, workloads: &[&str]) {
    lab.wait_status("web", &format!("the election notes {workloads:?}"), |election| {
        let noted = election.annotations().get("lictor.dev/workloads").cloned().unwrap_or_default();
        FOUR.iter().all(|workload| noted.contains(workload) == workloads.contains(workload))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_taken_out_of_the_list_is_put_back_to_what_it_was() {
    let (lab, _operator) = led("wl-unlist", None).await;
    // It is enabled, and keeps its present number.
    lab.scale("Deployment/live", 4, "test").await;
    lab.elect(json!({"workloads": list(&FOUR[2..], None)})).await;
    lab.wait_released("CronJob/nightly", json!(false)).await;
    lab.wait_released("Deployment/live", json!(4)).await;
    lab.wait_enabled("Job/import", json!(false)).await;
    lab.wait_enabled("StatefulSet/queue", json!(2)).await;
    tracks(&lab, &FOUR[2..]).await;
    // It is disabled, and gets what it had before.
    lab.kill_pod("a").await;
    lab.wait_disabled("Job/import", json!(false)).await;
    lab.wait_disabled("StatefulSet/queue", json!(2)).await;
    lab.elect(json!({"workloads": []})).await;
    all_released(&lab, [json!(false), json!(4), json!(false), json!(2)]).await;
    tracks(&lab, &[]).await;

    // The election can take them again.
    lab.elect(json!({"workloads": list(&FOUR, None)})).await;
    all_disabled(&lab, (4, 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn a_deleted_election_puts_its_workloads_back_to_what_they_were() {
    let (lab, operator) = led("wl-delete", None).await;
    lab.kill_pod("a").await;
    all_disabled(&lab, (3, 2)).await;
    lab.delete_election("web").await;
    lab.wait_election_gone("web").await;
    all_released(&lab, [json!(false), json!(3), json!(false), json!(2)]).await;

    // A CronJob that was suspended before is suspended afterwards, though it was enabled meanwhile.
    lab.patch("CronJob/nightly", json!({"spec": {"suspend": true}})).await;
    lab.ready_pods(&["a"]).await;
    lab.elect(json!({"workloads": list(&FOUR, None)})).await;
    all_enabled(&lab, (3, 2)).await;
    lab.delete_election("web").await;
    lab.wait_election_gone("web").await;
    all_released(&lab, [json!(true), json!(3), json!(false), json!(2)]).await;
    drop(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_is_to_be_left_as_it_is_stays_so() {
    let (lab, _operator) = led("wl-leave", Some("LeaveAsIs")).await;
    lab.kill_pod("a").await;
    all_disabled(&lab, (3, 2)).await;
    lab.elect(json!({"workloads": list(&FOUR[2..], Some("LeaveAsIs"))})).await;
    lab.wait_released("CronJob/nightly", json!(true)).await;
    lab.wait_released("Deployment/live", json!(0)).await;
    lab.ready_pods(&["a"]).await;
    lab.wait_enabled("Job/import", json!(false)).await;
    lab.wait_enabled("StatefulSet/queue", json!(2)).await;
    lab.delete_election("web").await;
    lab.wait_election_gone("web").await;
    // It is not promised that the end of the leadership disables them first, but that nothing of lictor is left.
    for workload in &FOUR[2..] {
        let found = lab.find(workload).await.expect("it exists");
        let claimed = ["election", "enabled", "kept", "written-by"]
            .iter()
            .any(|name| annotation(&found, &format!("lictor.dev/{name}")).is_some());
        assert!(!claimed && !managers(&found).contains(&"lictor"), "{workload} {}: {found:#}", setting(&found));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_is_gone_does_not_hold_up_the_end_of_its_election() {
    let (lab, _operator) = led("wl-gone", None).await;
    lab.delete("Deployment/live").await;
    lab.delete("Job/import").await;
    lab.delete_election("web").await;
    lab.wait_election_gone("web").await;
    lab.wait_released("CronJob/nightly", json!(false)).await;
    lab.wait_released("StatefulSet/queue", json!(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_that_was_killed_could_not_put_back_the_next_one_does() {
    let (lab, operator) = led("wl-restore-late", None).await;
    lab.kill_pod("a").await;
    all_disabled(&lab, (3, 2)).await;
    drop(operator);
    lab.elect(json!({"workloads": list(&FOUR[2..], None)})).await;
    lab.delete_election("web").await;
    assert!(lab.elections_api().get_opt("web").await.expect("it can be read").is_some(), "its finalizer keeps it");
    let _operator = lab.operator(&[]);
    lab.wait_election_gone("web").await;
    all_released(&lab, [json!(false), json!(3), json!(false), json!(2)]).await;
}

/// The API server can't list one kind, for example because an object of it can't be converted. A proxy stands for it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for what the operator can't read, for a minute"]
async fn what_could_never_be_read_keeps_no_election_from_going_and_is_named() {
    let (lab, operator) = led("wl-unread", None).await;
    lab.kill_pod("a").await;
    all_disabled(&lab, (3, 2)).await;
    drop(operator);
    let proxy = Proxy::start(lab.cluster).await;
    proxy.hold(|asked| asked.method == "GET" && asked.path.contains("/cronjobs?"));
    let _operator = lab.operator_at(proxy.kubeconfig(), &[]);
    lab.delete_election("web").await;
    sleep(Duration::from_secs(50)).await;
    assert!(lab.elections_api().get_opt("web").await.expect("it can be read").is_some(), "it waits for a minute");
    lab.wait_election_gone("web").await;
    let note = lab.wait_event("LeaderElection", "web", "WorkloadsLeft").await;
    assert!(note.contains("CronJob/nightly") && !note.contains("Deployment/live"), "{note}");
    for (workload, with) in FOUR.into_iter().zip([json!(true), json!(3), json!(false), json!(2)]) {
        if workload == "CronJob/nightly" {
            lab.wait_disabled(workload, json!(false)).await;
        } else {
            lab.wait_released(workload, with).await;
        }
    }
}

/// Another cluster would run the same.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for what the operator can't read, for longer than a minute"]
async fn what_could_never_be_read_is_not_given_up_where_other_clusters_share_the_lock() {
    let member = Member::new("wl-unread-shared", "west", Consul::shared().address(), json!({})).await;
    let (lab, operator) = (&member.lab, member.operator(&[]));
    four(lab, (3, 2)).await;
    lab.ready_pods(&["a"]).await;
    member.elect(json!({"workloads": list(&FOUR, None)})).await;
    all_enabled(lab, (3, 2)).await;
    drop(operator);
    let proxy = Proxy::start(lab.cluster).await;
    proxy.hold(|asked| asked.method == "GET" && asked.path.contains("/cronjobs?"));
    let _operator = member.operator_at(proxy.kubeconfig());
    lab.delete_election("web").await;
    sleep(Duration::from_secs(100)).await;
    assert!(lab.elections_api().get_opt("web").await.expect("it can be read").is_some(), "it waits");
    proxy.hold(|_| false);
    lab.wait_election_gone("web").await;
    all_released(lab, [json!(false), json!(3), json!(false), json!(2)]).await;
}
