//! A deleted election leaves nothing behind.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use lictor_testing::kubernetes::{Lab, PodSpec, eventually};
use serde_json::{Value, json};

async fn deleted_leaves_nothing(test: &str, pause: bool) {
    let lab = Lab::new(test).await;
    let recorder = lab.record().await;
    let mut operator = lab.operator(&[]);
    for pod in ["a", "b"] {
        let labels = json!({"tier": "kept"});
        let annotations = json!({"example.com/note": "kept", "lictor.dev/priority": "1"});
        lab.pod(pod, PodSpec { labels, annotations, ..PodSpec::default() }).await;
        lab.wait_ready(pod, true).await;
    }
    let before = [lab.get_pod("a").await, lab.get_pod("b").await];
    let marking = |role: &str| json!({"labels": {"role": role}, "annotations": {"example.com/role": role}});
    let spec = json!({"leader": marking("leader"), "follower": marking("follower")});
    lab.elect(spec.clone()).await;
    lab.wait_any_leader().await;
    if pause {
        let mut paused = spec;
        paused["paused"] = Value::Bool(true);
        lab.elect(paused).await;
        lab.wait_condition("web", "Paused", "True", "Paused").await;
    }
    lab.delete_election("web").await;
    lab.wait_lock_gone("web").await;
    // It goes last.
    for before in before {
        let after = lab.get_pod(&before.name_any()).await;
        let kept = |pod: &Pod| (pod.uid(), pod.labels().clone(), pod.annotations().clone(), pod.spec.clone());
        assert_eq!(kept(&after), kept(&before));
    }
    assert_eq!(recorder.assert_promises().await, 1);
    // A new election of this name works, and a later operator finds nothing else to do.
    operator.stop().await;
    let _operator = lab.operator(&[]);
    lab.elect(json!({})).await;
    lab.wait_any_leader().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_election_leaves_nothing_and_the_pods_otherwise_as_they_were() {
    deleted_leaves_nothing("deleted-election", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_election_can_be_deleted_as_well() {
    deleted_leaves_nothing("deleted-paused", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_deleted_with_a_live_election_in_it_goes_and_others_are_served_on() {
    let (gone, kept) = (Lab::new("namespace-gone").await, Lab::new("namespace-kept").await);
    let both = format!("{},{}", gone.namespace, kept.namespace);
    let operator = kept.operator(&["--namespaces", &both]);
    for lab in [&gone, &kept] {
        lab.ready_pods(&["a", "b"]).await;
        lab.elect(json!({})).await;
        lab.wait_any_leader().await;
    }
    let before = operator.log().lines().count();
    let namespaces: Api<Namespace> = Api::all(gone.client.clone());
    namespaces.delete(&gone.namespace, &DeleteParams::default()).await.expect("it can be deleted");
    eventually("the namespace is gone", || async {
        let found = namespaces.get_opt(&gone.namespace).await.map_err(|error| error.to_string())?;
        found.map_or(Ok(()), |namespace| Err(format!("{:#?}", namespace.status)))
    })
    .await;
    eventually("nothing is told of it any more", || async {
        let (_, metrics) = operator.get("/metrics").await;
        if metrics.contains(&gone.namespace) { Err(metrics) } else { Ok(()) }
    })
    .await;
    let leader = kept.wait_any_leader().await;
    kept.kill_pod(&leader).await;
    kept.wait_any_leader().await;
    let log = operator.log();
    let said: Vec<&str> = log.lines().skip(before).collect();
    eprintln!("measured: a namespace goes with an election in it: {} lines of log", said.len());
    assert!(said.len() < 20, "{}", said.join("\n"));
    eventually("nothing is to be done", || async {
        let waits = operator.metric("lictor_queue_depth").await;
        if waits == Some(0.0) { Ok(()) } else { Err(format!("{waits:?}")) }
    })
    .await;
}

/// Shows H9. A system that compares terms would refuse every leader of an election whose terms begin anew.
#[tokio::test(flavor = "multi_thread")]
async fn an_election_that_is_applied_again_goes_on_above_its_earlier_terms() {
    let lab = Lab::new("terms-again").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    let spec = json!({"firstTerm": "CreationTime"});
    lab.elect(spec.clone()).await;
    let leader = lab.wait_any_leader().await;
    lab.kill_pod(&leader).await;
    let next = if leader == "a" { "b" } else { "a" };
    lab.wait_leader(next).await;
    let last = lab.term("web").await;
    lab.delete_election("web").await;
    lab.wait_lock_gone("web").await;
    // It led twice, so it needs two seconds.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;

    lab.elect(spec).await;
    lab.wait_leader(next).await;
    let again = lab.term("web").await;
    assert!(again > last, "term {again} after {last}");
    let pod = lab.get_pod(next).await;
    assert_eq!(pod.annotations()["lictor.dev/term"], again.to_string(), "the leader's pod shows it");
}
