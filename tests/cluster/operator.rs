//! Several replicas of the operator: one acts, the others stand by, and no leader is disturbed when they change.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::jiff::{Timestamp, ToSpan};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use lictor_testing::free_address;
use lictor_testing::kubernetes::{Lab, Operator, PodSpec, eventually};
use serde_json::json;

/// How long a lab's operators wait for a silent one.
const LEASE: Duration = Duration::from_secs(3);
/// The time that a busy machine may add.
const SLACK: Duration = Duration::from_secs(4);

/// Reads the Lease of this lab's operators.
async fn operator_lease(lab: &Lab) -> LeaseSpec {
    let lease = lab.leases_api().get("lictor.dev-operator").await.expect("the operators have a Lease");
    lease.spec.expect("it has a spec")
}

/// Waits until the operators' Lease names this replica.
async fn wait_held_by(lab: &Lab, operator: &Operator) -> LeaseSpec {
    let identity = operator.identity().await;
    eventually(&format!("{identity} holds the Lease"), || async {
        let spec = operator_lease(lab).await;
        if spec.holder_identity.as_ref() == Some(&identity) { Ok(spec) } else { Err(format!("{spec:?}")) }
    })
    .await
}

/// Returns the resourceVersion of each pod, and of the lock of the election `web`.
async fn versions(lab: &Lab) -> BTreeMap<String, String> {
    let pods = lab.pods_api().list(&ListParams::default()).await.expect("pods can be listed");
    let lock = lab.leases_api().get("web").await.expect("the election has a lock");
    let version = |object: &dyn Fn() -> Option<String>| object().expect("an object has a version");
    let pods = pods.items.iter().map(|pod| (format!("pod {}", pod.name_any()), version(&|| pod.resource_version())));
    pods.chain([("lock".to_owned(), version(&|| lock.resource_version()))]).collect()
}

/// Waits until a replica knows the cluster, and acts or stands by.
pub async fn wait_ready(operator: &Operator, acting: bool) {
    eventually(&format!("it is ready, acting: {acting}"), || async {
        let ready = operator.get("/readyz").await;
        let acts = operator.metric("lictor_acting").await == Some(1.0);
        if ready.0 == 200 && acts == acting { Ok(()) } else { Err(format!("{ready:?}, acting: {acts}")) }
    })
    .await;
}

fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_replicas_one_acts() {
    let lab = Lab::new("replicas").await;
    let replicas = [lab.operator(&[]), lab.operator(&[]), lab.operator(&[])];
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    // The second time, somebody has deleted the Lease, and the first replica that comes creates it again.
    for _ in 0..2 {
        eventually("one acts, and the Lease names it", || async {
            let lease = operator_lease(&lab).await;
            let mut acting = Vec::new();
            for replica in &replicas {
                if replica.metric("lictor_acting").await == Some(1.0) {
                    acting.push(replica.identity().await);
                }
            }
            if acting.as_slice() == lease.holder_identity.as_slice() {
                Ok(())
            } else {
                Err(format!("{acting:?}, {lease:?}"))
            }
        })
        .await;
        for replica in &replicas {
            assert_eq!(replica.get("/readyz").await.0, 200, "a standby is ready");
            let tells = replica.metric("lictor_leader{").await.is_some();
            let acts = replica.metric("lictor_acting").await == Some(1.0);
            assert!(acts || !tells, "only the one that acts tells who leads");
        }
        lab.leases_api().delete("lictor.dev-operator", &DeleteParams::default()).await.expect("it can be deleted");
        eventually("it is made anew", || async {
            let lease = lab.leases_api().get_opt("lictor.dev-operator").await.map_err(|error| error.to_string())?;
            lease.map(|_| ()).ok_or_else(|| "there is none".to_owned())
        })
        .await;
    }
    lab.wait_leader(&leader).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_asked_to_end_hands_over_at_once() {
    let lab = Lab::new("sigterm").await;
    let recorder = lab.record().await;
    let mut first = lab.operator(&[]);
    first.acts().await;
    let second = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    wait_ready(&second, false).await;
    let status = first.stop().await;
    assert!(status.success(), "{status}");
    let took =
        seconds_between(first.logged_at("lictor is stopping").await, second.logged_at("this replica acts").await);
    assert!((0.0..1.0).contains(&took), "the other acted after {took} s");
    lab.kill_pod(&leader).await;
    lab.wait_any_leader().await;
    assert_eq!(recorder.assert_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for Leases to expire"]
async fn an_operator_that_was_killed_is_replaced_when_its_lease_has_ended() {
    let lab = Lab::new("sigkill").await;
    let recorder = lab.record().await;
    // Both have one name: what an earlier start of the same replica held belongs to another operator.
    let first = lab.operator(&["--identity", "same"]);
    first.acts().await;
    let second = lab.operator(&["--identity", "same"]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    wait_ready(&second, false).await;
    first.signal("KILL");
    lab.kill_pod(&leader).await;
    let renewed = operator_lease(&lab).await.renew_time.expect("it was renewed").0;
    let acquired = wait_held_by(&lab, &second).await.acquire_time.expect("it was acquired").0;
    let took = seconds_between(renewed, acquired);
    assert!((LEASE.as_secs_f64()..(LEASE + SLACK).as_secs_f64()).contains(&took), "after {took} s");
    let next = lab.wait_any_leader().await;
    assert_ne!(next, leader);
    assert_eq!(recorder.assert_promises().await, 2);
}

/// Where each replica is reached by the other, and a Lease that nobody waits for.
const PEERS: [&str; 6] = ["--peer-address", "127.0.0.1", "--peer-port", "0", "--lease-duration", "60s"];

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_whose_end_a_standby_sees_is_replaced_at_once() {
    let lab = Lab::new("seen").await;
    let recorder = lab.record().await;
    let first = lab.operator(&PEERS);
    first.acts().await;
    let second = lab.operator(&PEERS);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    wait_ready(&second, false).await;
    second.logs("connected to the acting replica").await;
    let killed = Timestamp::now();
    first.signal("KILL");
    lab.kill_pod(&leader).await;
    let took = seconds_between(killed, second.logged_at("this replica acts").await);
    assert!((0.0..SLACK.as_secs_f64()).contains(&took), "the other acted after {took} s");
    assert_ne!(lab.wait_any_leader().await, leader);
    assert_eq!(recorder.assert_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for Leases to expire"]
async fn an_operator_that_is_started_again_in_its_pod_continues_at_once_and_no_other_one_does() {
    let lab = Lab::new("own-pod").await;
    let port = free_address().port().to_string();
    let of = |uid: &'static str, lease: &'static str| {
        let own = ["--peer-address", "127.0.0.1", "--peer-port", &port, "--pod-uid", uid, "--lease-duration", lease];
        lab.operator(&own)
    };
    let first = of("one", "60s");
    first.acts().await;
    // Another process in that pod: it can't listen there, for the first one does.
    let beside = of("one", "60s");
    beside.logs("can't listen for the other replicas").await;
    wait_ready(&beside, false).await;
    drop(beside);
    first.signal("KILL");
    let second = of("one", "3s");
    let started = second.logged_at("lictor starts").await;
    let took = seconds_between(started, second.logged_at("this replica acts").await);
    assert!((0.0..SLACK.as_secs_f64()).contains(&took), "it acted after {took} s");
    wait_held_by(&lab, &second).await;
    // Another pod that got the same address.
    second.signal("KILL");
    let third = of("two", "3s");
    let started = third.logged_at("lictor starts").await;
    let took = seconds_between(started, third.logged_at("this replica acts").await);
    assert!((LEASE.as_secs_f64()..(LEASE + SLACK).as_secs_f64()).contains(&took), "it acted after {took} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_start_restart_or_take_over_of_the_operator_writes_to_a_pod() {
    let lab = Lab::new("restarts").await;
    let mut first = lab.operator(&[]);
    lab.ready_pods(&["a", "b", "c"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    let before = versions(&lab).await;
    // Each time, the operator has checked the election and found everything right: it reports the leader.
    let mut second = lab.operator(&[]);
    wait_ready(&second, false).await;
    assert!(first.stop().await.success());
    second.sees_leader(&lab.namespace, "web", &leader).await;
    assert_eq!(versions(&lab).await, before, "after a take-over");
    assert!(second.stop().await.success());
    let third = lab.operator(&[]);
    third.sees_leader(&lab.namespace, "web", &leader).await;
    assert_eq!(versions(&lab).await, before, "after a restart");
    drop(third);
    let fourth = lab.operator(&[]);
    fourth.sees_leader(&lab.namespace, "web", &leader).await;
    // It has also written to the pod that needs something, which is a fourth one, and to no other.
    lab.pod("d", PodSpec::default()).await;
    lab.wait_leader(&leader).await;
    let mut after = versions(&lab).await;
    after.remove("pod d");
    assert_eq!(after, before, "after a crash");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_lost_while_no_operator_ran_is_replaced_when_one_starts() {
    let lab = Lab::new("nobody-runs").await;
    let recorder = lab.record().await;
    let mut first = lab.operator(&[]);
    lab.ready_pods(&["a", "b", "c"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    assert!(first.stop().await.success());
    lab.kill_pod(&leader).await;
    let _second = lab.operator(&[]);
    let next = lab.wait_any_leader().await;
    assert_ne!(next, leader);
    lab.wait_reason(&next, "LeaderGone").await;
    let election = lab.wait_status("web", "the status tells it", |election| {
        election.status.iter().flat_map(|status| &status.leader).any(|leader| leader.pod_name.as_ref() == Some(&next))
    });
    let history = election.await.status.expect("it has a status").history;
    assert_eq!(history[0].previous_leader_name.as_deref(), Some(leader.as_str()));
    assert_eq!(recorder.assert_promises().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for Leases to expire"]
async fn an_operator_that_was_frozen_stands_by_when_it_wakes_up() {
    let lab = Lab::new("frozen").await;
    let recorder = lab.record().await;
    let first = lab.operator(&[]);
    first.acts().await;
    let second = lab.operator(&[]);
    lab.ready_pods(&["a", "b", "c"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    wait_ready(&second, false).await;
    first.signal("STOP");
    second.acts().await;
    lab.kill_pod(&leader).await;
    let next = lab.wait_any_leader().await;
    first.signal("CONT");
    first.logs("this replica stands by").await;
    wait_ready(&first, false).await;
    wait_ready(&second, true).await;
    lab.wait_leader(&next).await;
    lab.kill_pod(&next).await;
    lab.wait_any_leader().await;
    wait_held_by(&lab, &second).await;
    assert_eq!(recorder.assert_promises().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for Leases to expire"]
async fn an_operators_lease_ends_by_what_is_observed_and_not_by_its_timestamps() {
    let lab = Lab::new("timestamps").await;
    let now = Timestamp::now();
    // The holder, when it says that it renewed the Lease, the duration that it states, and how long a replica has to wait.
    let cases = [
        ("past", "somebody", now - (24 * 365).hours(), 3, 3),
        ("future", "somebody", now + (24 * 365).hours(), 3, 3),
        ("shorter", "somebody", now, 1, 1),
        ("longer", "somebody", now, 100_000, 3),
        ("released", "", now + (24 * 365).hours(), 300, 0),
    ];
    let mut replicas = Vec::new();
    for (name, holder, renewed, duration, wait) in cases {
        let lease = json!({
            "metadata": {"name": format!("example.com-{name}")},
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": duration,
                "renewTime": format!("{renewed:.6}"), "acquireTime": format!("{renewed:.6}"),
            },
        });
        let lease = serde_json::from_value(lease).expect("a Lease");
        lab.leases_api().create(&PostParams::default(), &lease).await.expect("a Lease can be made");
        let controller = format!("example.com/{name}");
        replicas.push((lab.operator(&["--controller", &controller]), name, f64::from(wait)));
    }
    for (replica, name, wait) in &replicas {
        let took =
            seconds_between(replica.logged_at("lictor starts").await, replica.logged_at("this replica acts").await);
        assert!((*wait..*wait + SLACK.as_secs_f64()).contains(&took), "{name}: after {took} s instead of {wait} s");
        let told = replica.log().contains("the Lease says that its holder keeps it for 100000 s");
        assert_eq!(told, *name == "longer", "{}", replica.log());
    }
}
