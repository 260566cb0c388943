//! Routing by slices: a Service without a selector reaches the leader, whatever becomes of the Service and of the slices.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use lictor_testing::kubernetes::{Lab, PodSpec, eventually, slow};
use serde_json::{Value, json};

pub const SLICE: &str = "web-leader-lictor-ipv4";

/// Routes the election `web` through the Service `web-leader`.
fn routing() -> Value {
    json!({"service": {"name": "web-leader"}})
}

fn services(lab: &Lab) -> Api<Service> {
    Api::namespaced(lab.client.clone(), &lab.namespace)
}

fn slices(lab: &Lab) -> Api<EndpointSlice> {
    Api::namespaced(lab.client.clone(), &lab.namespace)
}

/// Makes a Service with one port, and these further fields of its spec.
async fn service(lab: &Lab, name: &str, more: Value) {
    let mut spec = json!({"ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    for (field, value) in more.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    let object = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a Service");
    services(lab).create(&PostParams::default(), &object).await.expect("a Service can be made");
}

/// Waits until a slice names exactly this pod; "" means nobody.
pub async fn wait_shown(lab: &Lab, slice: &str, pod: &str) -> EndpointSlice {
    eventually(&format!("{slice} names {pod:?}"), || async {
        let found = slices(lab).get(slice).await.map_err(|error| error.to_string())?;
        let pods = found.endpoints.iter().map(|endpoint| endpoint.target_ref.clone().and_then(|pod| pod.name));
        let pods: Vec<String> = pods.map(Option::unwrap_or_default).collect();
        let wanted: Vec<&str> = Some(pod).filter(|pod| !pod.is_empty()).into_iter().collect();
        if pods == wanted { Ok(found) } else { Err(format!("{pods:?}")) }
    })
    .await
}

async fn wait_gone(lab: &Lab, slice: &str) {
    eventually(&format!("{slice} is gone"), || async {
        let found = slices(lab).get_opt(slice).await.map_err(|error| error.to_string())?;
        found.map_or(Ok(()), |slice| Err(format!("{slice:?}")))
    })
    .await;
}

/// Waits until the Service `web-leader` is said to reach this pod.
async fn wait_routed(lab: &Lab, pod: &str) -> String {
    eventually(&format!("web-leader reaches {pod}"), || async {
        let message = lab.wait_condition("web", "Routed", "True", "Routed").await;
        if message.contains(&format!(" {pod} at ")) { Ok(message) } else { Err(message) }
    })
    .await
}

/// Runs the first command in back-ticks of a message, as a person would.
fn run_command(lab: &Lab, message: &str) {
    for command in message.split('`').skip(1).step_by(2) {
        let words = command.strip_prefix("kubectl ").expect("a command of kubectl").replace('\'', "");
        let words: Vec<&str> = words.split(' ').collect();
        lab.cluster.kubectl(&words);
    }
}

/// Two ready pods, a leader, and a Service that reaches it.
pub async fn routed(lab: &Lab, more: Value) -> (String, String) {
    service(lab, "web-leader", json!({})).await;
    for name in ["a", "b"] {
        lab.pod(name, slow()).await;
        lab.wait_ready(name, true).await;
    }
    let mut spec = routing();
    for (field, value) in more.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    lab.elect(spec).await;
    let leader = lab.wait_any_leader().await;
    wait_shown(lab, SLICE, &leader).await;
    wait_routed(lab, &leader).await;
    let other = if leader == "a" { "b" } else { "a" };
    (leader, other.to_owned())
}

async fn uid(lab: &Lab, election: &str) -> String {
    lab.election(election).await.uid().expect("it has a uid")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slice_names_the_leader_with_all_that_routing_needs() {
    let lab = Lab::new("routed").await;
    let _operator = lab.operator(&[]);
    let (leader, _) = routed(&lab, json!({})).await;
    let slice = wait_shown(&lab, SLICE, &leader).await;
    let pod = lab.pods_api().get(&leader).await.expect("the leader exists");
    let (spec, status) = (pod.spec.clone().expect("a spec"), pod.status.clone().expect("a status"));
    let [endpoint] = slice.endpoints.as_slice() else { panic!("{slice:?}") };
    assert_eq!(Some(&endpoint.addresses), status.pod_ip.map(|ip| vec![ip]).as_ref());
    assert_eq!(endpoint.node_name, spec.node_name);
    let target = endpoint.target_ref.clone().expect("a target");
    assert_eq!((target.kind.as_deref(), target.uid), (Some("Pod"), pod.uid()));
    let conditions = endpoint.conditions.clone().expect("conditions");
    assert_eq!((conditions.ready, conditions.serving, conditions.terminating), (Some(true), Some(true), Some(false)));
    let ports = slice.ports.clone().expect("ports");
    assert_eq!(
        ports.iter().map(|port| (port.name.as_deref(), port.port)).collect::<Vec<_>>(),
        [(Some("http"), Some(8080))]
    );
    assert_eq!(slice.labels()["kubernetes.io/service-name"], "web-leader");
    assert_eq!(slice.labels()["endpointslice.kubernetes.io/managed-by"], "lictor.dev");
    let [owner] = slice.owner_references() else { panic!("{slice:?}") };
    assert_eq!((owner.kind.as_str(), &owner.uid), ("LeaderElection", &uid(&lab, "web").await));
    assert_eq!(slice.annotations()["lictor.dev/election"], "web");
    assert_eq!(slice.annotations()["lictor.dev/term"], lab.term("web").await.to_string());
    // Nothing is written once it is as it should be.
    let version = slice.resource_version();
    lab.patch_pod(&leader, json!({"metadata": {"annotations": {"example.com/x": "y"}}})).await;
    lab.wait_condition("web", "Routed", "True", "Routed").await;
    assert_eq!(wait_shown(&lab, SLICE, &leader).await.resource_version(), version);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_switchover_is_one_write_of_the_slice() {
    let lab = Lab::new("one-write").await;
    let (pods, recorder) = (lab.record().await, lab.record_slices().await);
    let _operator = lab.operator(&[]);
    let (leader, other) = routed(&lab, json!({"preemption": "HigherPriority"})).await;
    let before = recorder.catch_up().await;
    lab.patch_pod(&other, json!({"metadata": {"annotations": {"lictor.dev/priority": "9"}}})).await;
    lab.wait_leader(&other).await;
    wait_routed(&lab, &other).await;
    let first = recorder.catch_up().await;
    assert_eq!(recorder.writes_since("web-leader", before), 1);

    // A leader that is being deleted, and has time to end.
    lab.delete_pod_slowly(&other).await;
    wait_routed(&lab, &leader).await;
    recorder.catch_up().await;
    assert_eq!(recorder.writes_since("web-leader", first), 1);
    recorder.assert_never_none("web-leader", "IPv4", before);
    assert_eq!(recorder.assert_promises().await, 3);
    pods.assert_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_a_selector_is_refused_with_the_commands_that_mend_it() {
    let lab = Lab::new("service-selector").await;
    let recorder = lab.record_slices().await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(routing()).await;
    let leader = lab.wait_any_leader().await;
    let message = lab.wait_condition("web", "Routed", "False", "ServiceNotFound").await;
    assert!(message.contains("web-leader"), "{message}");

    service(&lab, "web-leader", json!({"selector": {"app": "web", "role": "leader"}})).await;
    let message = lab.wait_condition("web", "Routed", "False", "ServiceHasSelector").await;
    // Kubernetes' own controller has written its slice and the Endpoints.
    eventually("the Service reaches the leader by its label", || async {
        let reached = recorder.reached("web-leader", "IPv4");
        if reached.last().is_some_and(|reached| reached.addresses.len() == 1) {
            Ok(())
        } else {
            Err(format!("{reached:?}"))
        }
    })
    .await;
    lab.cluster.kubectl(&["-n", &lab.namespace, "wait", "--for=create", "endpoints/web-leader", "--timeout=30s"]);
    assert!(slices(&lab).get_opt(SLICE).await.expect("an answer").is_none(), "nothing is written before that");
    let before = recorder.catch_up().await;
    run_command(&lab, &message);
    let message = lab.wait_condition("web", "Routed", "False", "LeftoversNameLeader").await;
    assert_eq!(lab.wait_event("LeaderElection", "web", "LeftoversNameLeader").await, message);
    wait_shown(&lab, SLICE, &leader).await;
    run_command(&lab, &message);
    wait_routed(&lab, &leader).await;
    recorder.assert_always_somebody("web-leader", "IPv4", before);
    recorder.assert_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_that_somebody_else_wrote_are_in_the_way() {
    let lab = Lab::new("leftovers").await;
    let recorder = lab.record_slices().await;
    let _operator = lab.operator(&[]);
    service(&lab, "web-leader", json!({})).await;
    let foreign = json!({
        "metadata": {"name": "by-hand", "labels": {"kubernetes.io/service-name": "web-leader"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.7"]}], "ports": [{"name": "http", "port": 1}],
    });
    let foreign = serde_json::from_value(foreign).expect("a slice");
    // Shows R4: it names another address, so lictor's slice names nobody.
    slices(&lab).create(&PostParams::default(), &foreign).await.expect("a slice can be made");
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(routing()).await;
    let leader = lab.wait_any_leader().await;
    let message = lab.wait_condition("web", "Routed", "False", "LeftoverSlices").await;
    assert!(message.contains("by-hand"), "{message}");
    assert_eq!(lab.wait_event("LeaderElection", "web", "LeftoverSlices").await, message);
    run_command(&lab, &message);
    wait_routed(&lab, &leader).await;
    assert_eq!(recorder.assert_promises().await, 2);
}

/// Shows R3. The watch shows only slices with lictor's label.
#[tokio::test(flavor = "multi_thread")]
async fn when_a_slice_of_the_name_that_somebody_else_made_is_deleted_the_leader_is_reached() {
    let lab = Lab::new("slice-name").await;
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a"]).await;
    service(&lab, "web-leader", json!({})).await;
    let foreign = json!({"metadata": {"name": SLICE}, "addressType": "IPv4", "endpoints": []});
    let foreign = serde_json::from_value(foreign).expect("a slice");
    slices(&lab).create(&PostParams::default(), &foreign).await.expect("a slice can be made");
    lab.elect(routing()).await;
    let message = lab.wait_condition("web", "Routed", "False", "WriteFails").await;
    assert!(message.contains("belongs to another election, or to none"), "{message}");
    slices(&lab).delete(SLICE, &DeleteParams::default()).await.expect("it can be deleted");
    wait_shown(&lab, SLICE, "a").await;
    wait_routed(&lab, "a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_service_and_none() {
    let lab = Lab::new("renamed-service").await;
    let recorder = lab.record_slices().await;
    let operator = lab.operator(&[]);
    let (leader, _) = routed(&lab, json!({})).await;
    service(&lab, "web-main", json!({})).await;
    lab.elect(json!({"service": {"name": "web-main"}})).await;
    wait_shown(&lab, "web-main-lictor-ipv4", &leader).await;
    wait_gone(&lab, SLICE).await;
    eventually("the election notes what it has", || async {
        let election = lab.election("web").await;
        let noted = election.annotations().get("lictor.dev/workloads").cloned().unwrap_or_default();
        if noted.contains("web-main") && !noted.contains("web-leader") { Ok(()) } else { Err(noted) }
    })
    .await;
    // The field is taken out while no operator is there.
    drop(operator);
    lab.elect(json!({})).await;
    let _operator = lab.operator(&[]);
    wait_gone(&lab, "web-main-lictor-ipv4").await;
    lab.wait_status("web", "nothing is said of routing", |election| {
        let status = election.status.clone().unwrap_or_default();
        status.conditions.iter().all(|condition| condition.type_ != "Routed")
            && !election.annotations().contains_key("lictor.dev/workloads")
    })
    .await;
    lab.wait_leader(&leader).await;
    recorder.assert_promises().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_edits_is_put_right() {
    let lab = Lab::new("edited-slice").await;
    let recorder = lab.record_slices().await;
    let _operator = lab.operator(&[]);
    let (leader, other) = routed(&lab, json!({})).await;
    let good = slices(&lab).get(SLICE).await.expect("the slice exists");
    let other = lab.pods_api().get(&other).await.expect("the other pod exists");
    let mut by_hand = Vec::new();
    let edits = [
        json!({"endpoints": []}),
        json!({"endpoints": [{"addresses": [other.status.and_then(|status| status.pod_ip)]}]}),
        json!({"ports": [{"name": "http", "port": 1}]}),
        json!({"metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": null}}}),
        json!({"metadata": {"labels": {"service.kubernetes.io/headless": ""}}}),
        json!({"metadata": {"annotations": {"lictor.dev/term": "99"}}}),
    ];
    for edit in edits {
        let edited = slices(&lab).patch(SLICE, &PatchParams::default(), &Patch::Merge(edit.clone())).await;
        let edited = edited.expect("a slice can be edited");
        by_hand.push(edited.resource_version().and_then(|version| version.parse().ok()).expect("a version"));
        eventually(&format!("it is put right after {edit}"), || async {
            let found = slices(&lab).get(SLICE).await.map_err(|error| error.to_string())?;
            let term = |slice: &EndpointSlice| slice.annotations().get("lictor.dev/term").cloned();
            let same = (&found.endpoints, &found.ports, found.labels(), term(&found))
                == (&good.endpoints, &good.ports, good.labels(), term(&good));
            if same { Ok(()) } else { Err(format!("{found:#?}")) }
        })
        .await;
    }
    slices(&lab).delete(SLICE, &DeleteParams::default()).await.expect("a slice can be deleted");
    wait_shown(&lab, SLICE, &leader).await;
    recorder.assert_promises_but_for(&by_hand).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_takes_over_writes_only_what_is_wrong() {
    let lab = Lab::new("slice-takeover").await;
    let recorder = lab.record_slices().await;
    let operator = lab.operator(&[]);
    let (leader, other) = routed(&lab, json!({})).await;
    drop(operator);
    let before = recorder.catch_up().await;
    let operator = lab.operator(&[]);
    operator.acts().await;
    // What it found is as it should be, and that is told by a status which is written anew.
    lab.patch_pod(&other, json!({"metadata": {"annotations": {"lictor.dev/never-leader": "true"}}})).await;
    lab.wait_candidates(1, 2).await;
    lab.wait_condition("web", "Routed", "True", "Routed").await;
    assert_eq!(recorder.writes_since("web-leader", before), 0);
    lab.patch_pod(&other, json!({"metadata": {"annotations": {"lictor.dev/never-leader": null}}})).await;
    lab.wait_candidates(2, 2).await;
    lab.kill_pod(&leader).await;
    wait_routed(&lab, &other).await;
    recorder.catch_up().await;
    recorder.assert_never_none("web-leader", "IPv4", before);
    // The leader dies while nobody is there to see it.
    drop(operator);
    lab.ready_pods(&["c"]).await;
    lab.kill_pod(&other).await;
    let _operator = lab.operator(&[]);
    wait_routed(&lab, "c").await;
    assert_eq!(recorder.assert_promises().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_families_each_with_its_slice() {
    let lab = Lab::new("both-families").await;
    let recorder = lab.record_slices().await;
    let _operator = lab.operator(&[]);
    // A headless Service without a selector has both, whatever the cluster has.
    service(&lab, "web-leader", json!({"clusterIP": "None"})).await;
    lab.ready_pods(&["a", "b"]).await;
    for (pod, last) in [("a", 1), ("b", 2)] {
        let ips = [format!("10.9.0.{last}"), format!("fd00::{last}")];
        let status = json!({"status": {"podIP": ips[0], "podIPs": [{"ip": ips[0]}, {"ip": ips[1]}]}});
        let patched = lab.pods_api().patch_status(pod, &PatchParams::default(), &Patch::Merge(status)).await;
        patched.expect("a status can be patched");
    }
    lab.elect(routing()).await;
    let leader = lab.wait_any_leader().await;
    let message = wait_routed(&lab, &leader).await;
    assert!(message.contains("10.9.0.") && message.contains(" and fd00::"), "{message}");
    wait_shown(&lab, "web-leader-lictor-ipv6", &leader).await;
    let before = recorder.catch_up().await;
    lab.kill_pod(&leader).await;
    let other = lab.wait_any_leader().await;
    wait_routed(&lab, &other).await;
    recorder.catch_up().await;
    for family in ["IPv4", "IPv6"] {
        recorder.assert_never_none("web-leader", family, before);
    }
    assert_eq!(recorder.assert_promises().await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn named_ports_are_those_of_the_leaders_containers() {
    let lab = Lab::new("named-ports").await;
    let _operator = lab.operator(&[]);
    let ports = json!([
        {"name": "http", "port": 80, "targetPort": "web"}, {"name": "admin", "port": 81, "targetPort": "admin"},
    ]);
    service(&lab, "web-leader", json!({"ports": ports})).await;
    for (name, web) in [("a", 8080), ("b", 9090)] {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "example/web", "ports": [{"name": "web", "containerPort": web}]}],
                "initContainers": [{
                    "name": "proxy", "image": "example/proxy", "restartPolicy": "Always",
                    "ports": [{"name": if name == "a" { "admin" } else { "other" }, "containerPort": 9901}],
                }],
            },
        });
        let pod = serde_json::from_value(pod).expect("a pod");
        lab.pods_api().create(&PostParams::default(), &pod).await.expect("a pod can be made");
        lab.wait_ready(name, true).await;
    }
    lab.patch_pod("a", json!({"metadata": {"annotations": {"lictor.dev/priority": "1"}}})).await;
    lab.elect(routing()).await;
    wait_routed(&lab, "a").await;
    let numbers = |slice: EndpointSlice| slice.ports.into_iter().flatten().map(|port| port.port).collect::<Vec<_>>();
    assert_eq!(numbers(wait_shown(&lab, SLICE, "a").await), [Some(8080), Some(9901)]);
    lab.kill_pod("a").await;
    let message = lab.wait_condition("web", "Routed", "False", "NoSuchPort").await;
    assert!(message.contains("\"admin\""), "{message}");
    assert_eq!(numbers(wait_shown(&lab, SLICE, "b").await), [Some(9090)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_elections_the_older_one_has_the_service() {
    let lab = Lab::new("two-on-one").await;
    let recorder = lab.record_slices().await;
    let _operator = lab.operator(&[]);
    let (leader, _) = routed(&lab, json!({})).await;
    lab.pod("c", PodSpec { labels: json!({"app": "other"}), ..PodSpec::default() }).await;
    lab.wait_ready("c", true).await;
    let mut spec = routing();
    spec["selector"] = json!({"matchLabels": {"app": "other"}});
    // Times of creation are whole seconds, and of two in the same second the first by name is the older one.
    lab.apply_election("younger", spec).await;
    let message = lab.wait_condition("younger", "Routed", "False", "TakenByElection").await;
    assert!(message.contains("/web"), "{message}");
    lab.wait_condition("younger", "Elected", "True", "Elected").await;
    wait_shown(&lab, SLICE, &leader).await;
    lab.elect(json!({})).await;
    wait_shown(&lab, SLICE, "c").await;
    lab.wait_condition("younger", "Routed", "True", "Routed").await;
    assert_eq!(recorder.assert_promises().await, 2);
    let all = slices(&lab).list(&ListParams::default()).await.expect("slices can be listed");
    let [slice] = all.items.as_slice() else { panic!("{all:?}") };
    assert_eq!(slice.annotations()["lictor.dev/election"], "younger");
}
