//! The rights on workloads are separate: elections of pods work without them.

use lictor_testing::kubernetes::workloads::following;
use lictor_testing::kubernetes::{Lab, User};
use serde_json::json;

use super::{FOUR, all_disabled, all_enabled, four};

const WORKLOADS: [&str; 5] = ["deployments", "statefulsets", "cronjobs", "cronjobs/status", "jobs"];

#[tokio::test(flavor = "multi_thread")]
async fn without_the_rights_on_workloads_pods_are_elected_and_the_condition_names_what_is_missing() {
    let lab = Lab::new("wl-rights").await;
    let user = User::new(&lab).await;
    user.may(|_, resource| !WORKLOADS.contains(&resource)).await;
    let operator = user.operator(&[]);
    four(&lab, (3, 2)).await;
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    assert_eq!(operator.get("/readyz").await.0, 200);
    lab.elect(json!({"workloads": following(&FOUR)})).await;
    let message = lab.wait_condition("web", "WorkloadsFollow", "False", "Forbidden").await;
    assert!(message.contains("not allowed to list") && message.contains("grant it"), "{message}");
    for resource in ["deployments.apps", "statefulsets.apps", "cronjobs.batch", "jobs.batch"] {
        operator.logs(&format!("not allowed to list {resource}")).await;
    }
    lab.kill_pod(&leader).await;
    let next = lab.wait_any_leader().await;
    assert_ne!(next, leader);
    assert_eq!(operator.get("/readyz").await.0, 200);

    // The workloads with rights follow, whatever happens to the others.
    user.may(|_, resource| !resource.starts_with("cronjobs")).await;
    for (workload, with) in
        [("Deployment/live", json!(3)), ("StatefulSet/queue", json!(2)), ("Job/import", json!(false))]
    {
        lab.wait_enabled(workload, with).await;
    }
    lab.wait_message("web", "WorkloadsFollow", "Forbidden", "not allowed to list cronjobs.batch").await;
    lab.wait_state("CronJob/nightly", "Failing").await;
    user.may(|verb, resource| !WORKLOADS.contains(&resource) || verb != "patch").await;
    lab.wait_message("web", "WorkloadsFollow", "Forbidden", "not allowed to patch cronjobs.batch").await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    lab.pod(&leader, lictor_testing::kubernetes::PodSpec::default()).await;
    lab.wait_ready(&leader, true).await;
    lab.kill_pod(&next).await;
    lab.wait_leader(&leader).await;

    user.may(|_, _| true).await;
    all_enabled(&lab, (3, 2)).await;
    lab.wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
    lab.kill_pod(&leader).await;
    all_disabled(&lab, (3, 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_rights_on_the_kinds_that_are_listed_are_needed() {
    let lab = Lab::new("wl-one-right").await;
    let user = User::new(&lab).await;
    user.may(|_, resource| !WORKLOADS.contains(&resource) || resource == "deployments").await;
    let _operator = user.operator(&[]);
    four(&lab, (3, 2)).await;
    lab.ready_pods(&["a"]).await;
    lab.elect(json!({"workloads": following(&["Deployment/live"])})).await;
    lab.wait_enabled("Deployment/live", json!(3)).await;
    lab.wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
    lab.kill_pod("a").await;
    lab.wait_disabled("Deployment/live", json!(3)).await;
}
