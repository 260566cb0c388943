//! What people do to locks and classes, and what refuses to let a workload be disabled.

use std::time::Duration;

use kube::api::DeleteParams;
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::workloads::ENABLED;
use lictor_testing::kubernetes::{Cluster, Lab, eventually};
use serde_json::{Value, json};

use super::{Side, never_both_enabled, two};
use crate::consul::member::{entry, sessions};

/// Waits until the lock is held under a later index than this, and everything is enabled in the holder's cluster. Returns that
/// cluster.
async fn wait_held(west: &Side, east: &Side, since: &Value) -> String {
    let holder = eventually("somebody holds the lock", || async {
        let found = entry(Consul::shared(), &west.member.key()).await.unwrap_or_default();
        let newer = found["ModifyIndex"].as_u64() > since["ModifyIndex"].as_u64();
        let cluster = found["Value"]["cluster"].as_str();
        cluster.filter(|_| newer && found["Session"].is_string()).map(str::to_owned).ok_or_else(|| found.to_string())
    })
    .await;
    let (leads, follows) = if holder == "west" { (west, east) } else { (east, west) };
    leads.wait_all_enabled().await;
    follows.wait_all_disabled().await;
    holder
}

/// Destroys the session, and deletes the key, of a cluster that leads.
async fn lock() {
    let (west, east) = two("wl-lock", json!({})).await;
    let mut holder = "west".to_owned();
    for way in ["destroy", "delete", "destroy"] {
        let before = entry(Consul::shared(), &west.member.key()).await.expect("the key is there");
        let leads = if holder == "west" { &west } else { &east };
        if way == "delete" {
            let path = format!("/v1/kv/{}", west.member.key());
            Consul::shared().api().delete(&path).await.expect("Consul answers").ok();
        } else {
            let [(_, session)] = sessions(Consul::shared(), &leads.member).await.try_into().expect("one session");
            let path = format!("/v1/session/destroy/{session}");
            Consul::shared().api().put(&path, "").await.expect("Consul answers").ok();
        }
        holder = wait_held(&west, &east, &before).await;
    }
    never_both_enabled(&west, &east).await;
}

/// Deletes the class of a cluster that leads. Its elections are served on.
async fn class() {
    let (west, east) = two("wl-no-class", json!({})).await;
    let delete = west.member.classes_api();
    delete.delete(&west.member.class, &DeleteParams::default()).await.expect("it can be deleted");
    west.lab().wait_condition("web", "Accepted", "True", "ClassDeleted").await;
    // Its locks and workloads stay as they are, for longer than a session lasts that nobody renews.
    let before = entry(Consul::shared(), &west.member.key()).await.expect("the key is there");
    tokio::time::sleep(Duration::from_secs(25)).await;
    west.wait_all_enabled().await;
    assert_eq!(entry(Consul::shared(), &west.member.key()).await.as_ref(), Some(&before));
    let address = Consul::shared().address();
    west.member.apply_class(json!({"address": address, "clusterName": "west", "sessions": {"ttlSeconds": 10}})).await;
    west.lab().wait_condition("web", "Accepted", "True", "Accepted").await;
    west.lab().open_gate(false).await;
    east.wait_all_enabled().await;
    west.wait_all_disabled().await;
    never_both_enabled(&west, &east).await;
    assert_eq!(west.recorder.turns(true).len(), 4, "nothing was disabled meanwhile");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn what_people_do_to_locks_and_classes_enables_nothing_twice() {
    // Starting them blocks this thread.
    let _ = (Consul::shared(), Cluster::shared());
    tokio::join!(lock(), class());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for locks to move between clusters"]
async fn a_lock_is_kept_as_long_as_something_can_not_be_disabled() {
    let (west, east) = two("wl-refuses", json!({})).await;
    let refuses = json!({"validations": [{
        "expression": "!has(object.spec.replicas) || object.spec.replicas > 0", "message": "we are open all day",
    }]});
    let in_force = |lab: &Lab| {
        let patch = ["patch", "deployment", "gate", "--dry-run=server", "-p", r#"{"spec":{"replicas":0}}"#];
        match lab.try_kubectl(&patch, None) {
            Err(error) if error.contains("open all day") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    west.lab().impose("Validating", ("apps", "deployments"), refuses, in_force).await;
    west.lab().open_gate(false).await;
    west.lab().wait_disabled("CronJob/nightly", json!(false)).await;
    let message = west.lab().wait_condition("web", "WorkloadsFollow", "False", "WriteFails").await;
    assert!(message.contains("Deployment/live") && message.contains("open all day"), "{message}");
    west.lab().wait_state("Deployment/live", "Failing").await;
    let held = entry(Consul::shared(), &west.member.key()).await.expect("the key is there");
    assert!(held["Session"].is_string() && held["Value"]["cluster"] == "west", "{held}");
    let live = west.lab().find("Deployment/live").await.expect("it exists");
    assert_eq!(live["metadata"]["annotations"][ENABLED], "true");

    west.lab().lift("Validating");
    east.wait_all_enabled().await;
    west.wait_all_disabled().await;
    never_both_enabled(&west, &east).await;
}
