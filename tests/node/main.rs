//! What users install, on real nodes: the operator's image, by Helm, with real pods and probes behind a real Service, and a
//! client that calls that Service all the time. `make e2e-node` runs it. It takes about ten minutes, and prints what the client
//! saw. `make e2e-node ONLY=switches RUNS=20` runs a part of it, and that part more often.
//!
//! There is only one test with nodes, so that nothing runs beside the measurements. Where the machine can't run real nodes (hack/node.sh
//! says why), it is skipped, and fails with `CI=true`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::large_futures, reason = "a test is as long as its story")]

mod caller;
mod connections;
mod consul;
mod drain;
mod figures;
mod files;
mod former;
mod group;
mod inside;
mod keeper;
mod nodes;
mod noise;
mod plan;
mod release;
mod switches;
mod timeline;

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use lictor_testing::eventually;
use serde_json::json;

use self::caller::Caller;
use self::consul::Consul;
use self::figures::Figures;
use self::group::{Group, Reach, seen};
use self::nodes::Nodes;
use self::plan::{Part, Plan};
use self::release::Release;

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

// More threads than cores: what is watched and called must not wait for a look at all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn an_installation_on_real_nodes() {
    let plan = Plan::from_environment();
    let images = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [web, lets_go, agent, report] =
        ["web.tar", "lets-go.tar", "consul.tar", "report.tar"].map(|image| images.join(image));
    let operator = nodes::operator_image();
    nodes::go_image(&web, group::KEEPS, "tests/node/web/main.go");
    nodes::go_image(&lets_go, group::LETS_GO, "examples/know/connections/server.go");
    let consul = Consul::pack(&agent);
    nodes::image_with_lictor(&report, inside::REPORT, &operator);
    let Some(nodes) = Nodes::start(2, &[&operator, &web, &lets_go, &agent, &report]) else {
        lictor_testing::skip("there are no real nodes on this machine");
        return;
    };
    let mut figures = Figures::default();
    // Kubernetes probes one group, and only lictor the other.
    let web = Group::make(&nodes, "web", true, Reach::Label).await;
    let deep = Group::make(&nodes, "deep", false, Reach::Label).await;
    web.runs().await;
    deep.runs().await;
    if plan.has(Part::KubeProxy) {
        kube_proxy_alone(&nodes, &web, &mut figures).await;
    }
    let release = installs(&nodes, &web, &deep, &mut figures).await;
    if plan.has(Part::Files) {
        files::follow_the_label(&web, &mut figures).await;
        files::stay_in_a_pod_that_is_deleted(&deep, &mut figures).await;
    }
    if plan.has(Part::Inside) {
        inside::programs_hear_who_leads(&nodes, &mut figures).await;
        inside::a_command_runs_in_one_pod_only(&nodes, &mut figures).await;
    }
    if plan.has(Part::Pods) {
        pods_fail(&web, &mut figures).await;
    }
    // Nobody looks at these calls meanwhile, and they take time from what is measured.
    web.caller.pause(true);
    if plan.has(Part::Switches) {
        switches::measure(&nodes, &deep, plan.runs, &mut figures).await;
    }
    if plan.has(Part::Former) {
        former::ends_first(&nodes, &mut figures).await;
    }
    if plan.has(Part::Drain) {
        drain::measure(&nodes, plan.runs, &mut figures).await;
    }
    if plan.has(Part::Connections) {
        connections::measure(&nodes, &deep, &mut figures).await;
    }
    web.caller.pause(false);
    if plan.has(Part::Hangs) {
        hangs(&web, &deep, &mut figures).await;
    }
    if plan.has(Part::Operator) {
        operator_fails(&release, &web, &mut figures).await;
    }
    if plan.has(Part::Upgrade) {
        upgrades(&release, &web, &mut figures).await;
    }
    if plan.has(Part::Kubelet) {
        kubelet_stops(&nodes, &web, &deep, &mut figures).await;
    }
    if plan.has(Part::Consul) {
        locks_in_consul(&nodes, &consul, &web, &mut figures).await;
    }
    // The last part installs it anew.
    if plan.has(Part::Uninstall) || plan.has(Part::Node) {
        uninstalls(&nodes, &release, &web, &deep, &mut figures).await;
    }
    if plan.has(Part::Node) {
        node_dies(&nodes, &web, &deep, &mut figures).await;
    }

    for group in [&web, &deep] {
        let leaderships = group.recorder.assert_promises().await;
        println!("{}: {leaderships} leaderships, and never two at a time", group.name);
    }
    figures.print();
    // The file of the whole is not replaced by one of a part.
    let file = if plan.is_whole() { "node.json" } else { "node-part.json" };
    figures.write(&Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench").join(file));
}

/// Measures what remains without any decision: a person moves a label from one pod to another.
async fn kube_proxy_alone(nodes: &Nodes, web: &Group<'_>, figures: &mut Figures) {
    nodes.apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "by-hand", "namespace": web.name},
        "spec": {"selector": {"app": "web", "hand": "here"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }));
    let pods: Vec<String> = web.pods().into_values().map(|pod| pod.pod).collect();
    let caller = Caller::start(Group::address(&web.client, web.name, "by-hand").await);
    let label = async |pod: &str, value: serde_json::Value| {
        let patch = kube::api::Patch::Merge(json!({"metadata": {"labels": {"hand": value}}}));
        let api = kube::Api::<Pod>::namespaced(web.client.clone(), web.name);
        api.patch(pod, &kube::api::PatchParams::default(), &patch).await.expect("a pod can be labelled");
    };
    label(&pods[0], json!("here")).await;
    for run in 0..6 {
        let (old, new) = (&pods[run % 3], &pods[(run + 1) % 3]);
        eventually("the labelled pod answers, and alone", || async {
            let calls = caller.since(Instant::now().checked_sub(Duration::from_millis(1500)).expect("not at boot"));
            let alone = calls.len() > 20 && calls.iter().all(|call| call.answer.as_ref() == Ok(old));
            if alone { Ok(()) } else { Err(format!("{:?}", calls.last())) }
        })
        .await;
        let began = Instant::now();
        label(old, json!(null)).await;
        label(new, json!("here")).await;
        figures
            .failover("a label is moved by hand (kube-proxy alone)", seen(&caller, began, new, Instant::now()).await);
    }
    nodes.kubectl(&["label", "pods", "-n", web.name, "--all", "hand-"]);
}

async fn installs<'a>(nodes: &'a Nodes, web: &Group<'a>, deep: &Group<'a>, figures: &mut Figures) -> Release<'a> {
    let began = Instant::now();
    let release = Release::install(nodes).await;
    web.elect("leader", &json!({}));
    web.leader().await;
    figures.time("`helm install` and `kubectl apply` of an election, to the leader's label", began.elapsed());
    deep.elect(
        "leader",
        &json!({"probe": {
            "httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 3,
        }}),
    );
    deep.leader().await;
    release.runs().await;
    let began = Instant::now();
    release.test();
    figures.time("`helm test`", began.elapsed());
    release
}

async fn pods_fail(web: &Group<'_>, figures: &mut Figures) {
    for _ in 0..5 {
        figures.failover("the leader's process is killed (`kill -9` in the container)", web.is_killed().await);
    }
    for _ in 0..3 {
        figures.failover("the leader's pod is deleted, its program ends on SIGTERM", web.is_deleted().await);
    }
    for _ in 0..3 {
        let now = DeleteParams::default().grace_period(0);
        let run = web.fails_over(3, async |leader| web.delete(&leader.pod, &now).await).await;
        figures.failover("the leader's pod is deleted by force", run);
    }
}

async fn hangs(web: &Group<'_>, deep: &Group<'_>, figures: &mut Figures) {
    for (group, cause) in [
        (web, "the leader hangs, Kubernetes probes it (each second, 3 failures)"),
        (deep, "the leader hangs, lictor probes it (`spec.probe`, each second, 3 failures)"),
    ] {
        for _ in 0..3 {
            let hanging = group.calm(3).await;
            let run = group.fails_over(3, async |leader| Group::signal(leader, "STOP")).await;
            Group::signal(&hanging, "CONT");
            figures.failover(cause, run);
        }
    }
}

/// Ends operators: the leader stays, and its callers still reach it.
async fn operator_fails(release: &Release<'_>, web: &Group<'_>, figures: &mut Figures) {
    let leader = web.calm(3).await;
    let began = Instant::now();
    for _ in 0..2 {
        let time = release.acts_again(async |pod| release.delete(pod).await).await;
        figures.time("the acting operator's pod is deleted, until one acts", time);
        release.runs().await;
    }
    let time = release.acts_again(async |pod| Release::kill(pod)).await;
    figures.time("the acting operator's process is killed (`kill -9`), until one acts", time);
    release.runs().await;
    web.assert_none_lost(began, "while the operator was away").await;
    assert_eq!((web.leader().await.uid, web.leader().await.term), (leader.uid, leader.term), "the leader stays");
    // A container that is killed again and again is started later and later, so it is few times.
    for _ in 0..3 {
        let operator = release.acting().await;
        // A leader whose process is started again at once may be ready before anybody acts, and then it stays the leader.
        let now = DeleteParams::default().grace_period(0);
        let lose_both = async |leader: &group::Leader| {
            Release::kill(&operator);
            web.delete(&leader.pod, &now).await;
        };
        let run = web.fails_over(3, lose_both).await;
        figures.failover("the acting operator's process is killed, and the leader's pod deleted by force at once", run);
        release.runs().await;
    }
}

async fn upgrades(release: &Release<'_>, web: &Group<'_>, figures: &mut Figures) {
    let leader = web.calm(3).await;
    let before = release.pods().await;
    let began = Instant::now();
    release.upgrade();
    figures.time("`helm upgrade --wait`", began.elapsed());
    release.runs().await;
    assert!(release.pods().await.iter().all(|pod| !before.contains(pod)), "the operator's pods are new");
    web.assert_none_lost(began, "during the upgrade").await;
    assert_eq!((web.leader().await.uid, web.leader().await.term), (leader.uid, leader.term), "the leader stays");
}

/// Stops a kubelet: Kubernetes counts its node as lost, though the pods may run on and answer.
async fn kubelet_stops(nodes: &Nodes, web: &Group<'_>, deep: &Group<'_>, figures: &mut Figures) {
    web.led_on("node-2").await;
    deep.led_on("node-2").await;
    let began = Instant::now();
    nodes.order("pause kubelet 2");
    for group in [web, deep] {
        let next = group.leader_on("node-1").await;
        let run = group.watch(began, &next).await;
        figures
            .failover("the kubelet of the leader's node stops (node lost after 8 s here, after 50 s by default)", run);
    }
    nodes.order("resume kubelet 2");
    web.runs().await;
    deep.runs().await;
}

async fn locks_in_consul(nodes: &Nodes, consul: &Consul, web: &Group<'_>, figures: &mut Figures) {
    let mut last = "leader".to_owned();
    for (place, address) in [("on the host", consul.on_host(nodes).await), ("in a pod", Consul::in_pod(nodes))] {
        let class = format!("consul-{}", place.rsplit(' ').next().unwrap_or_default());
        nodes.apply(&json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": class},
            "spec": {"consul": {"address": address, "clusterName": "real"}},
        }));
        nodes.kubectl(&["delete", "leaderelection", "-n", web.name, &last]);
        last = class.clone();
        web.elect(&class, &json!({"className": class}));
        for _ in 0..3 {
            let run = web.is_killed().await;
            figures.failover(&format!("the leader's process is killed, with the lock in Consul {place}"), run);
        }
    }
}

async fn uninstalls(nodes: &Nodes, release: &Release<'_>, web: &Group<'_>, deep: &Group<'_>, figures: &mut Figures) {
    web.calm(3).await;
    let began = Instant::now();
    release.uninstall();
    figures.time("`helm uninstall`", began.elapsed());
    for group in [web, deep] {
        let left = nodes.kubectl(&["get", "pods", "-n", group.name, "-o", "jsonpath={.items[*].metadata}"]);
        assert!(!left.contains("lictor.dev/") && !left.contains("\"role\""), "labels or annotations are left: {left}");
    }
    let leases = nodes.kubectl(&["get", "leases", "-A", "--no-headers", "-o", "custom-columns=:.metadata.namespace"]);
    assert!(leases.split_whitespace().all(|namespace| namespace.starts_with("kube-")), "Leases are left in {leases}");
    let finalizers = nodes.kubectl(&["get", "leaderelections", "-A", "-o", "jsonpath={.items[*].metadata.finalizers}"]);
    assert_eq!(finalizers, "", "finalizers are left");
    let elections = nodes.kubectl(&["get", "leaderelections", "-A", "-o", "name"]);
    assert_eq!(elections.lines().count(), 2, "elections stay: {elections}");
}

/// Installs the chart again, which continues where it stopped. Then a node dies, with everything on it.
async fn node_dies<'a>(nodes: &'a Nodes, web: &Group<'a>, deep: &Group<'a>, figures: &mut Figures) {
    nodes.kubectl(&["delete", "leaderelection", "-n", web.name, "--all"]);
    let release = Release::install(nodes).await;
    web.elect("again", &json!({}));
    release.runs().await;
    // The network of the node outlives it here, so it would refuse the connection that lictor holds at once.
    let like = json!({"probe": {"likeReadiness": {"periodSeconds": 1, "failureThreshold": 3}, "connection": {"enabled": false}}});
    let like = Group::make(nodes, "like", true, Reach::Service(like)).await;
    like.runs().await;
    web.led_on("node-2").await;
    deep.led_on("node-2").await;
    like.led_on("node-2").await;
    release.acts_on("node-1").await;
    let began = Instant::now();
    nodes.order("kill node 2");
    for (group, cause) in [
        (&like, "the leader's node dies, lictor asks what its readinessProbe asks (`likeReadiness`), by its Service"),
        (deep, "the leader's node dies, lictor probes it (`spec.probe`)"),
        (web, "the leader's node dies (node lost after 8 s here, after 50 s by default)"),
    ] {
        let next = group.leader_on("node-1").await;
        figures.failover(cause, group.watch(began, &next).await);
    }
}
