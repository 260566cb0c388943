//! lictor corrects what people change by hand.

use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use lictor_testing::kubernetes::{Lab, Operator, PodSpec, Recorder, eventually};
use serde_json::{Value, json};

async fn led(test: &str) -> (Lab, Recorder, Operator, String, String) {
    let lab = Lab::new(test).await;
    let recorder = lab.record().await;
    // An operator that lost its own Lease on a busy machine would not know who changed what meanwhile.
    let operator = lab.operator(&["--lease-duration", "30s"]);
    lab.elect(json!({})).await;
    lab.ready_pods(&["a", "b", "c"]).await;
    let leader = lab.wait_any_leader().await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    let follower = if leader == "a" { "b" } else { "a" };
    (lab, recorder, operator, leader, follower.into())
}

/// Sets or removes the role label of a pod. Returns the version of that write.
async fn relabel(lab: &Lab, pod: &str, role: Value) -> u64 {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"role": role}}}));
    let patched = lab.pods_api().patch(pod, &PatchParams::default(), &patch).await.expect("a pod can be patched");
    patched.resource_version().and_then(|version| version.parse().ok()).expect("a version is a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_label_that_is_taken_off_by_hand_is_put_back() {
    let (lab, recorder, _operator, leader, _) = led("drift-leader").await;
    let term = lab.term("web").await;
    relabel(&lab, &leader, Value::Null).await;
    lab.wait_leader(&leader).await;
    let note = lab.wait_event("Pod", &leader, "LabelDrift").await;
    assert!(note.contains(&leader), "{note}");
    lab.wait_event("LeaderElection", "web", "LabelDrift").await;
    assert_eq!(recorder.assert_promises().await, 1);
    assert_eq!(lab.term("web").await, term, "it is the same leadership");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_made_with_the_leader_label_is_made_a_follower() {
    let (lab, recorder, _operator, leader, _) = led("drift-born").await;
    let born = lab.pod("d", PodSpec { labels: json!({"role": "leader"}), ..PodSpec::default() }).await;
    let born: u64 = born.resource_version().and_then(|version| version.parse().ok()).expect("a version");
    lab.wait_leader(&leader).await;
    recorder.catch_up().await;
    // It shows the label until the operator's first write, over several revisions if the scheduler was first.
    let until = recorder.revisions().into_iter().find(|r| r.pod == "d" && r.role.as_deref() == Some("follower"));
    let until = until.expect("it is a follower").version;
    let by_hand: Vec<u64> = recorder.versions_of("d").into_iter().filter(|v| (born..until).contains(v)).collect();
    assert_eq!(recorder.assert_promises_but_for(&by_hand).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_deleted_or_edited_by_hand_is_made_anew_and_the_leader_stays() {
    let (lab, recorder, _operator, leader, follower) = led("drift-lock").await;
    let edits: [Option<Value>; 5] = [
        Some(json!({"spec": {"holderIdentity": follower}})),
        Some(json!({"spec": {"leaseTransitions": 0}})),
        Some(json!({"metadata": {"annotations": {"lictor.dev/record": "garbage"}}})),
        Some(json!({"metadata": {"annotations": {"lictor.dev/record": null}}, "spec": {"leaseTransitions": null}})),
        None,
    ];
    let mut term = lab.term("web").await;
    for edit in edits {
        let what = format!("{edit:?}");
        match edit {
            Some(edit) => {
                let edited = lab.leases_api().patch("web", &PatchParams::default(), &Patch::Merge(edit)).await;
                edited.expect("a Lease can be edited");
            }
            None => {
                lab.leases_api().delete("web", &DeleteParams::default()).await.expect("a Lease can be deleted");
            }
        }
        term = eventually(&format!("the lock is made anew after {what}"), || async {
            let lease = lab.lease("web").await.ok_or("there is none")?;
            let spec = lease.spec.clone().unwrap_or_default();
            let found = i64::from(spec.lease_transitions.unwrap_or_default());
            let restored = spec.holder_identity.as_deref() == Some(leader.as_str()) && found > term;
            if restored { Ok(found) } else { Err(format!("{lease:?}")) }
        })
        .await;
        eventually("the leader carries the new term", || async {
            let pod = lab.get_pod(&leader).await;
            let shown = pod.annotations().get("lictor.dev/term").cloned().unwrap_or_default();
            if shown == term.to_string() { Ok(()) } else { Err(shown) }
        })
        .await;
        lab.wait_leader(&leader).await;
    }
    lab.wait_event("LeaderElection", "web", "LockChanged").await;
    assert_eq!(recorder.assert_promises().await, 1);
}
