//! Services that lictor creates: `spec.service.ports`.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use lictor_testing::kubernetes::{Lab, eventually};
use serde_json::{Value, json};

use crate::routing::{SLICE, wait_shown};

fn services(lab: &Lab) -> Api<Service> {
    Api::namespaced(lab.client.clone(), &lab.namespace)
}

/// An election with this `spec.service`.
fn with(service: &Value) -> Value {
    json!({"service": service})
}

fn http() -> Value {
    json!([{"name": "http", "port": 80, "targetPort": 8080}])
}

/// Waits until a Service is as it should be.
async fn wait_service(lab: &Lab, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("the Service {name}: {what}"), || async {
        let found = services(lab).get_opt(name).await.map_err(|error| error.to_string())?.ok_or("it is not there")?;
        let found = serde_json::to_value(found).expect("JSON");
        if is(&found) { Ok(found) } else { Err(format!("{found:#}")) }
    })
    .await
}

async fn wait_gone(lab: &Lab, name: &str) {
    eventually(&format!("the Service {name} is gone"), || async {
        let found = services(lab).get_opt(name).await.map_err(|error| error.to_string())?;
        found.map_or(Ok(()), |service| Err(format!("{service:?}")))
    })
    .await;
}

async fn wait_deleted(lab: &Lab) {
    eventually("the election is gone", || async {
        let found = lab.elections_api().get_opt("web").await.map_err(|error| error.to_string())?;
        found.map_or(Ok(()), |election| Err(format!("{:?}", election.metadata)))
    })
    .await;
}

async fn edit(lab: &Lab, name: &str, patch: Value) {
    let merge = Patch::Merge(patch);
    services(lab).patch(name, &PatchParams::default(), &merge).await.expect("a Service can be edited");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_created_kept_and_deleted_with_its_election() {
    let lab = Lab::new("made-service").await;
    let recorder = lab.record_slices().await;
    let operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    let spec = |ports: Value| {
        with(
            &json!({"name": "web-leader", "ports": ports, "labels": {"team": "shop"}, "annotations": {"a.example/b": "c"}}),
        )
    };
    lab.apply_election("earlier", json!({"selector": {"matchLabels": {"app": "none"}}})).await;
    // Times have whole seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    lab.elect(spec(http())).await;
    let leader = lab.wait_any_leader().await;
    let made = wait_service(&lab, "web-leader", "it is created", |_| true).await;
    assert_eq!((&made["spec"]["selector"], &made["spec"]["type"]), (&Value::Null, &json!("ClusterIP")));
    assert_eq!((&made["metadata"]["labels"]["team"], &made["spec"]["ports"][0]["port"]), (&json!("shop"), &json!(80)));
    let owner = &made["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("LeaderElection"), &json!("web")));
    wait_shown(&lab, SLICE, &leader).await;
    lab.wait_condition("web", "Routed", "True", "Routed").await;

    // A person edits the Service, also while no operator is there. Labels that others add stay.
    edit(
        &lab,
        "web-leader",
        json!({"spec": {"ports": [{"name": "other", "port": 81}]}, "metadata": {"labels": {"mine": "1"}}}),
    )
    .await;
    wait_service(&lab, "web-leader", "the port is put back", |found| {
        found["spec"]["ports"][0]["port"] == 80 && found["metadata"]["labels"]["mine"] == "1"
    })
    .await;
    drop(operator);
    edit(&lab, "web-leader", json!({"metadata": {"labels": {"team": "other"}}})).await;
    let _operator = lab.operator(&[]);
    let label = |found: &Value| found["metadata"]["labels"]["team"] == "shop";
    let kept = wait_service(&lab, "web-leader", "the label is put back", label).await;
    assert_eq!(kept["spec"]["clusterIP"], made["spec"]["clusterIP"]);

    // The spec is edited: a label goes, a port comes.
    let two = json!([{"name": "http", "port": 80, "targetPort": 8080}, {"name": "admin", "port": 9000}]);
    lab.elect(with(&json!({"name": "web-leader", "ports": two, "type": "NodePort"}))).await;
    let changed = wait_service(&lab, "web-leader", "it is as the spec says", |found| {
        let labels = &found["metadata"]["labels"];
        found["spec"]["ports"][1]["port"] == 9000 && labels["team"].is_null() && labels["mine"] == "1"
    })
    .await;
    assert!(
        changed["spec"]["ports"][0]["nodePort"].is_number()
            && changed["metadata"]["annotations"]["a.example/b"].is_null()
    );
    // A later write of lictor's keeps the nodes' ports, and what others add.
    edit(&lab, "web-leader", json!({"metadata": {"annotations": {"note": "x"}}})).await;
    lab.elect(with(&json!({"name": "web-leader", "ports": two, "type": "NodePort", "labels": {"team": "shop"}}))).await;
    let found = wait_service(&lab, "web-leader", "the label is there", label).await;
    assert_eq!(found["spec"]["ports"], changed["spec"]["ports"]);
    assert_eq!(found["metadata"]["annotations"]["note"], "x");

    // An older election that names it by mistake takes nothing away.
    lab.apply_election(
        "earlier",
        json!({"selector": {"matchLabels": {"app": "none"}}, "service": {"name": "web-leader"}}),
    )
    .await;
    lab.wait_condition("earlier", "Routed", "False", "TakenByElection").await;
    lab.wait_condition("web", "Routed", "True", "Routed").await;
    lab.delete_election("earlier").await;
    services(&lab).delete("web-leader", &DeleteParams::default()).await.expect("it can be deleted");
    let uid = made["metadata"]["uid"].clone();
    wait_service(&lab, "web-leader", "it is created again", |found| found["metadata"]["uid"] != uid).await;
    // A former Service stays until the next one can be used.
    let taken = json!({"metadata": {"name": "taken"}, "spec": {"ports": [{"port": 9}]}});
    let taken: Service = serde_json::from_value(taken).expect("a Service");
    services(&lab).create(&PostParams::default(), &taken).await.expect("a Service can be made");
    lab.elect(with(&json!({"name": "taken", "ports": http()}))).await;
    lab.wait_condition("web", "Routed", "False", "ServiceNotOwned").await;
    wait_service(&lab, "web-leader", "it is still there", |_| true).await;
    lab.elect(with(&json!({"name": "web-main", "ports": http()}))).await;
    wait_service(&lab, "web-main", "it is created", |_| true).await;
    wait_gone(&lab, "web-leader").await;
    wait_shown(&lab, "web-main-lictor-ipv4", &leader).await;

    // Without ports it is the user's, and stays.
    lab.elect(with(&json!({"name": "web-main"}))).await;
    let bare =
        |found: &Value| found["metadata"]["ownerReferences"].is_null() && found["metadata"]["annotations"].is_null();
    let left = wait_service(&lab, "web-main", "it has no mark of lictor's", bare).await;
    lab.wait_condition("web", "Routed", "True", "Routed").await;
    lab.elect(with(&json!({"name": "web-third", "ports": http()}))).await;
    wait_shown(&lab, "web-third-lictor-ipv4", &leader).await;
    lab.delete_election("web").await;
    wait_gone(&lab, "web-third").await;
    let found = wait_service(&lab, "web-main", "it is still there", |_| true).await;
    assert_eq!(found["metadata"]["resourceVersion"], left["metadata"]["resourceVersion"]);
    recorder.assert_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_somebody_else_is_used_if_it_fits_and_never_changed() {
    let lab = Lab::new("own-service").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a"]).await;
    let own = json!({"metadata": {"name": "web-leader"}, "spec": {"ports": http()}});
    let own: Service = serde_json::from_value(own).expect("a Service");
    let made = services(&lab).create(&PostParams::default(), &own).await.expect("a Service can be made");
    lab.elect(with(&json!({"name": "web-leader", "ports": [{"port": 81}]}))).await;
    let message = lab.wait_condition("web", "Routed", "False", "ServiceNotOwned").await;
    assert!(
        message.contains("remove spec.service.ports") && message.contains("delete service web-leader"),
        "{message}"
    );
    lab.elect(with(&json!({"name": "web-leader", "ports": http()}))).await;
    lab.wait_condition("web", "Routed", "True", "Routed").await;
    wait_shown(&lab, SLICE, "a").await;
    lab.delete_election("web").await;
    wait_deleted(&lab).await;
    let left = services(&lab).get("web-leader").await.expect("it is still there");
    assert_eq!(left.resource_version(), made.resource_version(), "nothing was written there");

    // The API server refuses what the schema could not see.
    lab.elect(with(&json!({"name": "broken", "ports": [{"port": 80, "nodePort": 30080}]}))).await;
    let message = lab.wait_condition("web", "Routed", "False", "ServiceNotWritten").await;
    assert!(message.contains("nodePort"), "{message}");
    lab.wait_leader("a").await;
    lab.elect(with(&json!({"name": "broken", "ports": [{"port": 80}]}))).await;
    lab.wait_condition("web", "Routed", "True", "Routed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_whose_election_leaves_its_dependents_behind_is_deleted_or_taken_over() {
    let lab = Lab::new("orphan-service").await;
    let operator = lab.operator(&[]);
    lab.ready_pods(&["a"]).await;
    let spec = || with(&json!({"name": "web-leader", "ports": http()}));
    lab.elect(spec()).await;
    let made = wait_service(&lab, "web-leader", "it is created", |_| true).await;
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    lab.elections_api().delete("web", &orphan).await.expect("it can be deleted");
    wait_gone(&lab, "web-leader").await;
    wait_deleted(&lab).await;

    // An owner that was taken off by hand, as the garbage collector does it while no operator is there.
    lab.elect(spec()).await;
    let noted = |found: &Value| {
        let uid = found["metadata"]["uid"].as_str().unwrap_or_default();
        let keys = found["metadata"]["annotations"]["lictor.dev/service-keys"].as_str().unwrap_or_default();
        found["metadata"]["uid"] != made["metadata"]["uid"] && keys.contains(uid)
    };
    let next = wait_service(&lab, "web-leader", "it is created again, and says so", noted).await;
    drop(operator);
    edit(&lab, "web-leader", json!({"metadata": {"ownerReferences": null}})).await;
    let _operator = lab.operator(&[]);
    let owned = |found: &Value| found["metadata"]["ownerReferences"][0]["kind"] == "LeaderElection";
    let found = wait_service(&lab, "web-leader", "it has its owner again", owned).await;
    assert_eq!(found["metadata"]["uid"], next["metadata"]["uid"]);
}
