//! The status of classes, and the Secrets that they refer to.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use lictor::kubernetes::{ElectionClasses, SecretChange, watch_secrets};
use lictor_api::{ConsulStatus, ElectionClass, ElectionClassStatus, READY, SecretId, condition, with_transition_times};
use lictor_testing::kubernetes::Lab;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_class_is_written_only_on_the_version_that_was_seen() {
    let lab = Lab::new("class-status").await;
    let classes: Api<ElectionClass> = Api::all(lab.client.clone());
    let name = format!("status-{}", lab.namespace);
    let object = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": name},
        "spec": {
            "consul": {"address": "http://consul.example:8500", "clusterName": "west"},
            // The operators of other tests must not serve it.
            "controller": "test/nobody",
        },
    });
    let object = serde_json::from_value(object).expect("a class");
    let made = classes.create(&PostParams::default(), &object).await.expect("a class can be made");
    let writer = ElectionClasses::new(lab.client.clone(), Duration::from_secs(5));
    let ready = |ready: bool| ElectionClassStatus {
        observed_generation: made.metadata.generation,
        conditions: with_transition_times(
            vec![condition(READY, ready, if ready { "Answers" } else { "NoAnswer" }, "as it is", 1)],
            &[],
            Timestamp::UNIX_EPOCH,
        ),
        ..ElectionClassStatus::default()
    };
    let status = |is_ready, consul: Option<ConsulStatus>| ElectionClassStatus { consul, ..ready(is_ready) };
    let consul =
        ConsulStatus { version: "1.22.3".into(), node_name: Some("lictor-west".into()), sessions: vec!["a".into()] };
    let all = status(true, Some(consul.clone()));
    let written = writer.write_status(&made, &all).await.expect("it can be written");
    assert_eq!(written.status.as_ref(), Some(&all));
    let text = lab.try_kubectl(&["get", "lec", &name], None).expect("kubectl shows it");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "CONTROLLER", "CONSUL", "BUCKET", "HUB", "KEYS", "READY", "STATUS", "AGE"]);
    assert_eq!(rows[1][1..5], ["test/nobody", "http://consul.example:8500", "True", "Answers"], "{text}");

    // What is not known any more is removed.
    let less = status(false, Some(ConsulStatus { node_name: None, sessions: Vec::new(), ..consul }));
    let written = writer.write_status(&written, &less).await.expect("it can be written");
    assert_eq!(written.status.as_ref(), Some(&less));
    let none = status(false, None);
    let written = writer.write_status(&written, &none).await.expect("it can be written");
    assert_eq!(written.status.as_ref(), Some(&none));

    assert_eq!(writer.write_status(&made, &all).await, Err(None), "it has changed meanwhile");
    classes.delete(&name, &DeleteParams::default()).await.expect("it can be deleted");
    assert_eq!(writer.write_status(&written, &all).await, Err(None), "it is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_secret_is_followed_through_its_life() {
    let lab = Lab::new("secrets").await;
    let secrets: Api<Secret> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let own = SecretId { namespace: None, name: "token".into() };
    let other = SecretId { namespace: Some("default".into()), name: format!("no-{}", lab.namespace) };
    let both = BTreeSet::from([own.clone(), other.clone()]);
    let mut watch = watch_secrets(&lab.client, &lab.namespace, both);
    let mut next = async || {
        tokio::time::timeout(Duration::from_secs(30), watch.next()).await.expect("it is told").expect("it goes on")
    };
    // Another Secret, which no class refers to.
    let put = async |name: &str, token: &str| {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"token": token},
        });
        secrets.patch(name, &PatchParams::apply("test"), &Patch::Apply(object)).await.expect("a Secret can be applied");
    };
    put("other", "x").await;
    let mut first = [next().await, next().await];
    first.sort_by_key(|(id, _)| id.clone());
    assert_eq!(first, [(own.clone(), SecretChange::Absent), (other, SecretChange::Absent)]);
    for token in ["one", "two"] {
        put("token", token).await;
        let (id, change) = next().await;
        assert_eq!(id, own);
        let SecretChange::Present(data) = change else { panic!("{change:?}") };
        assert_eq!(data.get("token"), Some(token.as_bytes()));
        assert_eq!(data.keys().collect::<Vec<_>>(), ["token"]);
    }
    secrets.delete("token", &DeleteParams::default()).await.expect("it can be deleted");
    assert_eq!(next().await, (own, SecretChange::Absent));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_is_offered_to_namespaces_by_their_labels() {
    let lab = Lab::new("class-labels").await;
    let _operator = lab.operator(&[]);
    let name = format!("labelled-{}", lab.namespace);
    let class = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": name},
        "spec": {"lease": {}, "allowedNamespaces": {"selector": {"matchLabels": {"team": lab.namespace}}}},
    });
    lab.try_kubectl(&["apply", "-f", "-"], Some(&class.to_string())).expect("a class can be made");
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({"className": name})).await;
    let label = |label: &str| {
        lab.try_kubectl(&["label", "namespace", &lab.namespace, label], None).expect("a namespace can be labelled")
    };
    let message = lab.wait_condition("web", "Ready", "False", "ClassNotOffered").await;
    assert!(message.contains("give it the labels there"), "{message}");
    label(&format!("team={}", lab.namespace));
    lab.wait_any_leader().await;
    label("team-");
    lab.wait_condition("web", "Ready", "False", "ClassNotOffered").await;
    label(&format!("team={}", lab.namespace));
    lab.wait_condition("web", "Ready", "True", "Led").await;
    lab.try_kubectl(&["delete", "lec", &name], None).expect("a class can be deleted");
}
