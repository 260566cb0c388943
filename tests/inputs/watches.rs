//! Whatever somebody writes into an object, a watch shows that object and all others.

use std::fmt::Debug;

use futures::StreamExt;
use futures::stream::BoxStream;
use lictor::kubernetes::{
    Namespaces, watch_classes, watch_elections, watch_nodes, watch_pods, watch_services, watch_slices, watch_workloads,
};
use lictor::store::{LeaseStore, LockStore, StoreEvent};
use lictor_core::{StoreId, Stored, WorkloadKind};
use lictor_kubernetes::Change;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::json::{changed, number, text};
use crate::objects;
use crate::server::{Answer, LIMIT, Lab, Server};

/// Lets the server send a list with a normal object and an odd one, then a change of the odd one, and then one of the normal one.
fn tells(server: &Server, good: &Value, odd: &Value) {
    let list = objects::list(&[good.clone(), odd.clone()]).to_string();
    let (mut good, mut odd) = (good.clone(), odd.clone());
    (good["metadata"]["resourceVersion"], odd["metadata"]["resourceVersion"]) = ("22".into(), "21".into());
    let events = [json!({"type": "MODIFIED", "object": odd}), json!({"type": "MODIFIED", "object": good})];
    let events = events.map(|event| format!("{event}\n")).concat();
    server.answers(move |request| {
        Answer::json(200, if request.contains("watch=true") { &events } else { &list }.as_bytes())
    });
}

/// Returns what the first list and the changes after it show, by name.
async fn seen<T: Debug>(
    mut watch: BoxStream<'static, Change<T>>,
    name: impl Fn(&T) -> String,
) -> Result<(), TestCaseError> {
    match watch.next().await {
        Some(Change::All(_, _, all)) => {
            let names: Vec<String> = all.iter().map(&name).collect();
            prop_assert_eq!(names, ["good", "odd"]);
        }
        other => return Err(TestCaseError::fail(format!("{other:?}"))),
    }
    for expected in ["odd", "good"] {
        match watch.next().await {
            Some(Change::Applied(object)) => prop_assert_eq!(name(&object), expected),
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        }
    }
    Ok(())
}

/// Makes a map of texts, which is all that the API server checks.
fn texts() -> BoxedStrategy<Value> {
    let names = prop_oneof![
        Just("lictor.dev/term".to_owned()),
        Just("lictor.dev/election".to_owned()),
        Just("lictor.dev/workloads".to_owned()),
        Just("lictor.dev/written-by".to_owned()),
        Just("lictor.dev/kept".to_owned()),
        text(),
    ];
    prop::collection::btree_map(names, text(), 0..5).prop_map(|pairs| json!(pairs)).boxed()
}

fn marked(object: &Value) -> BoxedStrategy<Value> {
    let object = object.clone();
    (texts(), texts())
        .prop_map(move |(labels, annotations)| {
            let mut object = object.clone();
            (object["metadata"]["labels"], object["metadata"]["annotations"]) = (labels, annotations);
            object
        })
        .boxed()
}

/// Makes an object with another value in one place.
fn with(object: BoxedStrategy<Value>, place: &'static str, what: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    (object, what)
        .prop_map(move |(mut object, what)| {
            if let Some(found) = object.pointer_mut(place) {
                *found = what;
            }
            object
        })
        .boxed()
}

#[test]
fn odd_pods_are_seen_beside_others() {
    let lab = Lab::new();
    let client = lab.within(|| lab.server.cluster());
    let conditions = prop::collection::vec(
        (text(), text()).prop_map(|(type_, status)| json!({"type": type_, "status": status})),
        0..3,
    );
    let odd = with(marked(&objects::pod("odd")), "/status/conditions", conditions.prop_map(Value::from).boxed());
    let odd = with(odd, "/status/phase", text().prop_map(Value::from).boxed());
    lab.check(64, &odd, async |odd| {
        tells(&lab.server, &objects::pod("good"), &odd);
        seen(watch_pods(&client, &Namespaces::default()), |(_, pod)| pod.name.clone()).await
    });
}

#[test]
fn odd_nodes_are_seen_beside_others() {
    let lab = Lab::new();
    let client = lab.within(|| lab.server.cluster());
    let taints =
        prop::collection::vec(text().prop_map(|key| json!({"key": key, "effect": "NoExecute", "value": key})), 0..3);
    let odd = with(marked(&objects::node("odd")), "/spec/taints", taints.prop_map(Value::from).boxed());
    lab.check(64, &odd, async |odd| {
        tells(&lab.server, &objects::node("good"), &odd);
        seen(watch_nodes(&client), |(name, _)| name.clone()).await
    });
}

#[test]
fn odd_services_are_seen_beside_others() {
    let lab = Lab::new();
    let client = lab.within(|| lab.server.cluster());
    let target = prop_oneof![text().prop_map(Value::from), any::<i32>().prop_map(Value::from), Just(Value::Null)];
    let port = (text(), any::<i32>(), target)
        .prop_map(|(name, port, target)| json!({"name": name, "port": port, "targetPort": target}));
    let ports = prop::collection::vec(port, 0..3).prop_map(Value::from).boxed();
    let odd = with(marked(&objects::service("odd")), "/spec/ports", ports);
    lab.check(64, &odd, async |odd| {
        tells(&lab.server, &objects::service("good"), &odd);
        seen(watch_services(&client, &Namespaces::default()), |service| service.name.clone()).await
    });
}

#[test]
fn odd_slices_are_seen_beside_others() {
    let lab = Lab::new();
    let client = lab.within(|| lab.server.cluster());
    let pod = prop_oneof![text().prop_map(|name| json!({"kind": name, "name": name})), Just(Value::Null)];
    let endpoint = (prop::collection::vec(text(), 0..3), pod)
        .prop_map(|(addresses, pod)| json!({"addresses": addresses, "targetRef": pod, "hints": {"forZones": []}}));
    let endpoints = prop::collection::vec(endpoint, 0..3).prop_map(Value::from);
    let endpoints = prop_oneof![endpoints, Just(Value::Null)].boxed();
    let odd = with(marked(&objects::slice("odd")), "/endpoints", endpoints);
    lab.check(64, &odd, async |odd| {
        tells(&lab.server, &objects::slice("good"), &odd);
        seen(watch_slices(&client, &Namespaces::default()), |(_, slice)| slice.name.clone()).await
    });
}

/// The API server checks the types of the fields of a status, but not that a number is small enough for a reader, or that a time
/// is one.
#[test]
fn elections_are_seen_beside_one_with_an_odd_status() {
    let lab = Lab::new();
    let client = lab.within(|| lab.server.cluster());
    let odd = with(marked(&objects::election("odd")), "/status", odd_status(objects::election_status()));
    lab.check(128, &odd, async |odd| {
        tells(&lab.server, &objects::election("good"), &odd);
        seen(watch_elections(&client, &Namespaces::default()), |(_, _, election)| {
            election.metadata.name.clone().unwrap_or_default()
        })
        .await
    });
}

#[test]
fn classes_are_seen_beside_one_with_an_odd_status() {
    let lab = Lab::new();
    let client = lab.within(|| lab.server.cluster());
    let status = objects::class("odd")["status"].clone();
    let odd = with(marked(&objects::class("odd")), "/status", odd_status(status));
    lab.check(64, &odd, async |odd| {
        tells(&lab.server, &objects::class("good"), &odd);
        seen(watch_classes(&client), |(name, _)| name.clone()).await
    });
}

/// Makes an object with changes anywhere, which is still an object.
fn odd_status(status: Value) -> BoxedStrategy<Value> {
    changed(status).prop_map(|status| if status.is_object() { status } else { json!({}) }).boxed()
}

#[test]
fn odd_workloads_are_seen_beside_others_and_the_field_that_lets_them_run_is_read() {
    let lab = Lab::new();
    let client = lab.within(|| lab.server.cluster());
    for kind in [WorkloadKind::CronJob, WorkloadKind::Deployment, WorkloadKind::Job, WorkloadKind::StatefulSet] {
        let name = kind.to_string();
        let odd = marked(&objects::workload(&name, "odd"));
        let odd = with(odd, "/spec/template/spec/terminationGracePeriodSeconds", number());
        let odd = with(odd, "/spec/jobTemplate/spec/template/spec/terminationGracePeriodSeconds", number());
        let odd = with(odd, "/status", odd_status(objects::workload(&name, "odd")["status"].clone()));
        lab.check(48, &odd, async |odd| {
            let good = objects::workload(&name, "good");
            tells(&lab.server, &good, &odd);
            let watch = watch_workloads(&client, &Namespaces::default(), kind);
            let mut settings = Vec::new();
            seen(watch, |object| object.id.name.clone()).await?;
            let mut watch = watch_workloads(&client, &Namespaces::default(), kind);
            if let Some(Change::All(_, _, all)) = watch.next().await {
                settings.extend(all.into_iter().map(|object| (object.setting, object.selector, object.one_by_one)));
            }
            prop_assert_eq!(&settings[0], &settings[1], "of {}", odd);
            Ok(())
        });
    }
}

#[test]
fn locks_are_seen_beside_one_with_an_odd_record() {
    let lab = Lab::new();
    let client = lab.within(|| lab.server.cluster());
    let odd = prop_oneof![
        text(),
        changed(objects::record()).prop_map(|record| record.to_string()),
        crate::json::spoilt(objects::record()).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
    ];
    lab.check(128, &odd, async |odd| {
        let record = objects::record().to_string();
        tells(&lab.server, &objects::lease("good", &record), &objects::lease("odd", &odd));
        let mut watch = LeaseStore::new(client.clone(), Namespaces::default(), LIMIT).watch();
        let Some(StoreEvent::All(scope, _, all)) = watch.next().await else {
            return Err(TestCaseError::fail("no first list"));
        };
        prop_assert_eq!(scope.store, StoreId::leases());
        let good = all.iter().find(|(key, ..)| key.name == "good").map(|(.., stored)| stored);
        prop_assert!(matches!(good, Some(Stored::Ours(..))), "{good:?}");
        prop_assert!(all.iter().any(|(key, ..)| key.name == "odd"));
        Ok(())
    });
}
