//! What earlier versions have written. Each later version continues with it, and changes nothing that is right.
//!
//! `kept/VERSION/` has the lock and the pods' marks as that version wrote them. Names such as `$POD` replace what differs between
//! installations. A version that writes something else gets its own directory, and the older ones stay.

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::PostParams;
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::{Lab, eventually};
use serde_json::{Value, json};

use crate::consul::member::{Member, entry};

struct Kept {
    version: &'static str,
    lease: &'static str,
    pods: &'static str,
    consul: &'static str,
}

const PRESENT: Kept = Kept {
    version: "0-1-0",
    lease: include_str!("kept/0.1.0/lease.json"),
    pods: include_str!("kept/0.1.0/pods.json"),
    consul: include_str!("kept/0.1.0/consul.json"),
};
const ALL: [Kept; 1] = [PRESENT];

/// Returns a text with the values in place of the names.
fn filled(text: &str, names: &[(&str, &str)]) -> Value {
    let full = names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${name}"), value));
    serde_json::from_str(&full).expect("it is JSON")
}

/// Returns whether two values are the same, apart from what differs from run to run: a name, a term or a time.
fn alike(kept: &Value, written: &Value) -> bool {
    match (kept, written) {
        (Value::Object(kept), Value::Object(written)) => {
            kept.len() == written.len()
                && kept.iter().all(|(name, value)| written.get(name).is_some_and(|found| alike(value, found)))
        }
        (Value::Array(kept), Value::Array(written)) => {
            kept.len() == written.len() && kept.iter().zip(written).all(|(kept, written)| alike(kept, written))
        }
        // A Lease has its record as text.
        (Value::String(kept), Value::String(written)) if kept.starts_with('{') => {
            let read = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
            alike(&read(kept), &read(written))
        }
        (Value::String(kept), Value::String(written)) => kept.contains('$') || kept == written || is_time(written),
        (Value::Number(_), Value::Number(_)) => true,
        (kept, written) => kept == written,
    }
}

fn is_time(text: &str) -> bool {
    text.parse::<k8s_openapi::jiff::Timestamp>().is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_an_earlier_version_led_goes_on_as_it_is() {
    for kept in ALL {
        let lab = Lab::new(&format!("kept-{}", kept.version)).await;
        let recorder = lab.record().await;
        lab.ready_pods(&["a", "b"]).await;
        let election = lab.elect(json!({})).await.uid().expect("it has a uid");
        for (name, marks) in filled(kept.pods, &[]).as_object().expect("pods by name") {
            lab.patch_pod(name, json!({"metadata": marks})).await;
        }
        let pod = lab.pods_api().get("a").await.expect("the pod exists");
        let (uid, ip) = (pod.uid().expect("it has a uid"), pod.status.and_then(|status| status.pod_ip));
        let node = pod.spec.and_then(|spec| spec.node_name).expect("it has a node");
        let names = [
            ("ELECTION", election.as_str()),
            ("POD", &uid),
            ("NODE", &node),
            ("IP", ip.as_deref().unwrap_or("")),
            ("OPERATOR", "me"),
        ];
        let lease: Lease = serde_json::from_value(filled(kept.lease, &names)).expect("a Lease");
        let before = lab.leases_api().create(&PostParams::default(), &lease).await.expect("it can be made");

        let _operator = lab.operator(&[]);
        lab.wait_condition("web", "Elected", "True", "Elected").await;
        let status = lab.election("web").await.status.expect("it has a status");
        assert_eq!((status.leader.and_then(|leader| leader.pod_name), status.term), (Some("a".into()), Some(7)));
        assert_eq!(
            lab.leases_api().get("web").await.expect("it is there").resource_version(),
            before.resource_version()
        );
        // The next term is higher.
        lab.delete_pod("a").await;
        lab.wait_leader("b").await;
        lab.wait_status("web", "the term has risen", |e| e.status.as_ref().and_then(|s| s.term) == Some(8)).await;
        assert_eq!(recorder.assert_promises().await, 2, "the leader that was there, and the next one");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_present_version_writes_what_is_kept_of_it() {
    let lab = Lab::new("keeps").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.patch_pod("a", json!({"metadata": {"annotations": {"lictor.dev/priority": "1"}}})).await;
    lab.elect(json!({})).await;
    lab.wait_leader("a").await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    let mut lease = serde_json::to_value(lab.leases_api().get("web").await.expect("it is there")).expect("it is JSON");
    for part in ["namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        lease["metadata"].as_object_mut().and_then(|metadata| metadata.remove(part));
    }
    assert!(alike(&filled(PRESENT.lease, &[]), &lease), "{lease:#}");
    for (name, marks) in filled(PRESENT.pods, &[]).as_object().expect("pods by name") {
        let pod = lab.pods_api().get(name).await.expect("the pod exists");
        assert_eq!(pod.labels().get("role").map(String::as_str), marks["labels"]["role"].as_str());
        for annotation in marks["annotations"].as_object().expect("annotations").keys() {
            assert!(pod.annotations().contains_key(annotation), "{name}: {:?}", pod.annotations());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_in_consul_is_written_and_read_as_it_is_kept() {
    let _ = Consul::shared();
    let member = Member::new("kept-consul", "west", Consul::shared().address(), json!({})).await;
    member.lab.ready_pods(&["a"]).await;
    let mut operator = member.operator(&[]);
    member.elect(json!({})).await;
    member.lab.wait_leader("a").await;
    member.wait_led("west", Some("a")).await;
    let written = entry(Consul::shared(), &member.key()).await.expect("the key is there");
    assert!(alike(&filled(PRESENT.consul, &[]), &written["Value"]), "{written:#}");
    operator.stop().await;
    for kept in ALL {
        // Another cluster reads the leader from what that version wrote.
        let east = Member::of(
            Lab::new(&format!("kept-consul-{}", kept.version)).await,
            "kept-consul",
            "east",
            Consul::shared().address(),
            json!({}),
        )
        .await;
        let names = [
            ("NAMESPACE", member.lab.namespace.as_str()),
            ("POD", "u"),
            ("NODE", "n"),
            ("IP", "10.0.0.1"),
            ("OPERATOR", "me"),
            ("CONTROLLER", "c"),
            ("INSTALLATION", "i"),
            ("ELECTION", "e"),
        ];
        let value = filled(kept.consul, &names).to_string();
        let held = entry(Consul::shared(), &member.key()).await.expect("the key is there");
        let flags = &held["Flags"];
        let session = held["Session"].as_str().expect("the lock is kept while no operator runs").to_owned();
        let path = format!("/v1/kv/{}?flags={flags}&acquire={session}", member.key());
        eventually("the record is put there", || async {
            let answer = Consul::shared().api().put(&path, &value).await.map_err(|error| format!("{error:?}"))?;
            if answer.text.trim() == "true" { Ok(()) } else { Err(answer.text) }
        })
        .await;
        let _operator = east.operator(&[]);
        east.elect(json!({})).await;
        east.wait_led_elsewhere("west", "a").await;
    }
}
