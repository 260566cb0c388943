//! Events that are no reason to disable anything, or to write at all.

use kube::api::{Api, DeleteParams, PostParams};
use lictor_api::ElectionClass;
use lictor_testing::kubernetes::Lab;
use lictor_testing::kubernetes::workloads::following;
use serde_json::json;

use super::{FOUR, all_enabled, four, two};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for what may change to stay as it is"]
async fn no_restart_of_an_operator_writes_to_what_is_enabled_and_one_write_stamps_what_is_disabled() {
    let (mut west, mut east) = two("wl-restart", json!({})).await;
    for kill in [false, true] {
        for (side, stamps) in [(&mut west, 0), (&mut east, 1)] {
            side.recorder.catch_up().await;
            let before = FOUR.map(|workload| side.recorder.writes(workload));
            if kill {
                side.operator.signal("KILL");
            } else {
                side.operator.stop().await;
            }
            side.operator = side.member.operator(&[]);
            side.operator.acts().await;
            let identity = side.operator.identity().await;
            if stamps == 0 {
                // It knows all of them, because it disables and enables the one that the election names now.
                side.elect(json!({"workloads": following(&["CronJob/nightly", "Deployment/live", "Job/import"])}))
                    .await;
                side.lab().wait_released("StatefulSet/queue", json!(2)).await;
                side.elect(json!({})).await;
                side.wait_all_enabled().await;
            } else {
                for workload in FOUR {
                    side.lab()
                        .wait_workload(workload, "it is stamped", |found| {
                            let writer =
                                lictor_testing::kubernetes::workloads::annotation(found, "lictor.dev/written-by");
                            writer.is_some_and(|writer| writer.contains(&format!("#{identity}/")))
                        })
                        .await;
                }
            }
            side.recorder.catch_up().await;
            let after = FOUR.map(|workload| side.recorder.writes(workload));
            for number in 0..3 {
                assert_eq!(after[number], before[number] + stamps, "{}: {}", FOUR[number], side.operator.log());
            }
        }
    }
    super::never_both_enabled(&west, &east).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_leadership_moves_within_the_cluster_nothing_is_disabled() {
    let lab = Lab::new("wl-within").await;
    let recorder = lab.record_workloads().await;
    let _operator = lab.operator(&[]);
    four(&lab, (3, 2)).await;
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({"workloads": following(&FOUR)})).await;
    let mut leader = lab.wait_any_leader().await;
    all_enabled(&lab, (3, 2)).await;
    for way in ["deleted", "not ready"] {
        if way == "deleted" {
            lab.kill_pod(&leader).await;
            lab.ready_pods(&[&leader]).await;
        } else {
            lab.set_condition(&leader, "Ready", false).await;
        }
        let next = if leader == "a" { "b" } else { "a" };
        lab.wait_leader(next).await;
        leader = next.to_owned();
        lab.wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
    }
    recorder.catch_up().await;
    assert_eq!((recorder.turns(false).len(), FOUR.map(|workload| recorder.writes(workload))), (0, [1; 4]));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_lock_moves_to_another_class_nothing_is_disabled() {
    let lab = Lab::new("wl-class").await;
    let recorder = lab.record_workloads().await;
    let _operator = lab.operator(&[]);
    four(&lab, (3, 2)).await;
    lab.ready_pods(&["a"]).await;
    let classes: Api<ElectionClass> = Api::all(lab.client.clone());
    let class = format!("{}-other", lab.namespace);
    let object = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": class},
        "spec": {"lease": {}, "keyTemplate": "{name}-other"},
    });
    let object = serde_json::from_value(object).expect("a class");
    classes.create(&PostParams::default(), &object).await.expect("a class can be made");
    lab.elect(json!({"workloads": following(&FOUR)})).await;
    all_enabled(&lab, (3, 2)).await;
    lab.elect(json!({"workloads": following(&FOUR), "className": class})).await;
    lictor_testing::kubernetes::eventually("the lock has moved", || async {
        match (lab.lease("web").await, lab.lease("web-other").await) {
            (None, Some(_)) => Ok(()),
            (one, two) => Err(format!("{one:?}\n{two:?}")),
        }
    })
    .await;
    lab.wait_leader("a").await;
    lab.wait_condition("web", "WorkloadsFollow", "True", "Follow").await;
    all_enabled(&lab, (3, 2)).await;
    recorder.catch_up().await;
    assert_eq!(recorder.turns(false).len(), 0);
    classes.delete(&class, &DeleteParams::default()).await.expect("it can be deleted");
}
