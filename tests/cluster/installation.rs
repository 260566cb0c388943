//! An installation as a whole: whether it works, whether it is the only one, and how it ends.

use std::path::Path;
use std::process::{Command, Output};

use kube::ResourceExt;
use kube::api::ListParams;
use lictor_testing::kubernetes::{Cluster, Lab, PodSpec, eventually};
use serde_json::json;

/// Runs the program until it ends.
fn lictor(kubeconfig: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lictor"));
    command.args(arguments).arg("--kubeconfig").arg(kubeconfig).env_remove("RUST_LOG").output().expect("lictor starts")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs `doctor` about this lab's installation alone.
async fn doctor(lab: &Lab, arguments: &[&str]) -> Output {
    run(lab, "doctor", &[&["--only-installation"], arguments].concat()).await
}

/// Runs a subcommand about this lab's installation, while the test continues.
fn begin(lab: &Lab, subcommand: &str, arguments: &[&str]) -> tokio::task::JoinHandle<Output> {
    let own = [subcommand, "--namespaces", &lab.namespace, "--lease-namespace", &lab.namespace];
    let all: Vec<String> = own.iter().chain(arguments).map(|argument| (*argument).to_owned()).collect();
    let kubeconfig = lab.cluster.kubeconfig().to_owned();
    tokio::task::spawn_blocking(move || lictor(&kubeconfig, &all.iter().map(String::as_str).collect::<Vec<_>>()))
}

async fn run(lab: &Lab, subcommand: &str, arguments: &[&str]) -> Output {
    begin(lab, subcommand, arguments).await.expect("it ends")
}

/// Creates the Deployment that a chart would create, to be scaled to zero.
fn deploy(lab: &Lab) {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "lictor"},
        "spec": {
            "selector": {"matchLabels": {"app": "lictor"}},
            "template": {
                "metadata": {"labels": {"app": "lictor"}},
                "spec": {"containers": [{"name": "main", "image": "lictor"}]},
            },
        },
    });
    lab.try_kubectl(&["apply", "-f", "-"], Some(&deployment.to_string())).expect("it can be applied");
}

fn replicas(lab: &Lab) -> String {
    lab.try_kubectl(&["get", "deployment", "lictor", "-ojsonpath={.spec.replicas}"], None).expect("it is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_withdrawn_leaves_the_elections_alone_and_nothing_else() {
    let lab = Lab::new("withdraw").await;
    deploy(&lab);
    let mut operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.pod("other", PodSpec { labels: json!({"app": "other"}), ..PodSpec::default() }).await;
    lab.elect(json!({})).await;
    lab.apply_election("refused", json!({"selector": {"matchLabels": {"app": "x"}}, "className": "nowhere"})).await;
    lab.wait_any_leader().await;
    let before =
        lab.wait_status("web", "a term", |election| election.status.as_ref().is_some_and(|s| s.term.is_some()));
    let term = before.await.status.and_then(|status| status.term);

    let withdrawal = begin(&lab, "withdraw", &["--deployment", "lictor", "--timeout", "60"]);
    eventually("the Deployment is scaled to zero", || async {
        if replicas(&lab) == "0" { Ok(()) } else { Err(replicas(&lab)) }
    })
    .await;
    assert!(operator.stop().await.success());
    let output = withdrawal.await.expect("it ends");
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("removed all labels, annotations, locks and finalizers"), "{}", text(&output));

    let pods = lab.pods_api().list(&ListParams::default()).await.expect("pods can be listed");
    for pod in &pods.items {
        assert!(!pod.labels().contains_key("role"), "{:?}", pod.labels());
        assert!(!pod.annotations().keys().any(|key| key.starts_with("lictor.dev/")), "{:?}", pod.annotations());
    }
    let leases = lab.leases_api().list(&ListParams::default()).await.expect("leases can be listed");
    assert_eq!(leases.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [""; 0]);
    let election = lab.election("web").await;
    let status = election.status.clone().unwrap_or_default();
    assert!(election.finalizers().is_empty() && status.leader.is_none() && status.term == term, "{election:?}");
    lab.wait_condition("web", "Elected", "False", "Uninstalled").await;

    // An operator that is installed again continues where the last one stopped.
    let _operator = lab.operator(&[]);
    lab.wait_any_leader().await;
    lab.wait_status("web", "a higher term", |election| {
        election.status.as_ref().is_some_and(|status| status.term > term && status.leader.is_some())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawal_beside_an_operator_that_goes_on_ends_with_a_message_and_changes_nothing() {
    let lab = Lab::new("stubborn").await;
    deploy(&lab);
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    let output = run(&lab, "withdraw", &["--deployment", "lictor", "--timeout", "4"]).await;
    let said = text(&output);
    assert!(!output.status.success() && said.contains("not everything was removed within 4 s"), "{said}");
    assert!(said.contains(&format!("{}/web", lab.namespace)) && said.contains("scale deployment lictor"), "{said}");
    lab.wait_leader(&leader).await;
}

/// The chart's Job, applied by something else than `helm uninstall`.
#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawal_for_helm_does_nothing_where_helm_did_not_make_the_deployment() {
    let lab = Lab::new("not-helm").await;
    let mut operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    let arguments = ["--deployment", "lictor", "--helm-release", "mine", "--timeout", "60"];
    let output = run(&lab, "withdraw", &arguments).await;
    assert!(!output.status.success() && text(&output).contains("there is no Deployment"), "{}", text(&output));
    deploy(&lab);
    let annotate = |name: &str| {
        let annotation = format!("meta.helm.sh/release-name={name}");
        lab.try_kubectl(&["annotate", "deployment", "lictor", "--overwrite", &annotation], None).expect("it can be")
    };
    for of in [None, Some("another")] {
        of.map(annotate);
        let output = run(&lab, "withdraw", &arguments).await;
        assert!(output.status.success() && text(&output).contains("lictor withdraws nothing"), "{}", text(&output));
        assert_eq!(replicas(&lab), "1");
        lab.wait_leader(&leader).await;
    }
    annotate("mine");
    assert!(operator.stop().await.success());
    let output = run(&lab, "withdraw", &arguments).await;
    assert!(output.status.success() && text(&output).contains("removed all labels"), "{}", text(&output));
    assert!(lab.roles().await.iter().all(|(_, role)| role.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_deployment_what_is_left_of_an_installation_is_taken_off() {
    let lab = Lab::new("leftover").await;
    let operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    lab.wait_any_leader().await;
    operator.signal("KILL");
    let output = run(&lab, "withdraw", &["--deployment", "lictor"]).await;
    assert!(output.status.success() && text(&output).contains("no operator to stop"), "{}", text(&output));
    assert!(lab.roles().await.iter().all(|(_, role)| role.is_empty()));
}

/// An operator on somebody's own machine, as docs/install.md runs it from the sources.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_without_a_deployment_is_withdrawn_when_it_has_ended() {
    let lab = Lab::new("by-hand").await;
    let mut operator = lab.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    let output = run(&lab, "withdraw", &["--timeout", "4"]).await;
    let (said, identity) = (text(&output), operator.identity().await);
    assert!(!output.status.success() && said.contains("not everything was removed within 4 s"), "{said}");
    let lease = format!("{}/lictor.dev-operator", lab.namespace);
    for says in [
        format!("the operator {identity} holds the Lease {lease}: stop it, for example with Ctrl-C"),
        format!("The operator {identity} still acts: stop it, or name its Deployment with --deployment"),
    ] {
        assert!(said.contains(&says), "{says:?} is not in {said}");
    }
    lab.wait_leader(&leader).await;

    assert!(operator.stop().await.success());
    let output = run(&lab, "withdraw", &[]).await;
    assert!(output.status.success() && text(&output).contains("removed all labels"), "{}", text(&output));
    assert!(!text(&output).contains("Ctrl-C"), "nobody acts: {}", text(&output));
    assert!(lab.roles().await.iter().all(|(_, role)| role.is_empty()));
    let leases = lab.leases_api().list(&ListParams::default()).await.expect("leases can be listed");
    assert_eq!(leases.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_tells_what_is_well_and_what_is_not() {
    let lab = Lab::new("check").await;
    // A controller that no class names.
    let controller = format!("test/{}", lab.namespace);
    let said = text(&doctor(&lab, &["--controller", &controller, "--timeout", "1"]).await);
    assert!(said.contains("no class has the spec.controller") && said.contains("2 of these checks failed"), "{said}");
    let class = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": lab.namespace},
        "spec": {"controller": controller, "lease": {}},
    });
    lab.try_kubectl(&["apply", "-f", "-"], Some(&class.to_string())).expect("it can be applied");
    let output = doctor(&lab, &["--controller", &controller, "--timeout", "1"]).await;
    let said = text(&output);
    assert!(!output.status.success() && said.contains("wrong  no operator acts: there is no Lease"), "{said}");
    assert!(said.contains("1 of these checks failed"), "{said}");

    let operator = lab.operator(&["--controller", &controller]);
    operator.acts().await;
    let output = doctor(&lab, &["--controller", &controller]).await;
    assert!(output.status.success() && !text(&output).contains("wrong"), "{}", text(&output));
    lab.ready_pods(&["a"]).await;
    lab.elect(json!({"className": lab.namespace})).await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
    drop(operator);
    let output = doctor(&lab, &["--controller", &controller, "--timeout", "3"]).await;
    assert!(text(&output).contains("was not renewed within 3 s"), "{}", text(&output));
    // What the election says is from the time before that.
    let said = text(&run(&lab, "doctor", &["--controller", &controller, "--timeout", "1"]).await);
    assert!(said.contains("unseen not checked whether 1 of 1 elections are well"), "{said}");
    assert!(!said.contains("ok     1 of 1"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_installation_with_the_same_controller_is_refused_and_says_which_is_the_first() {
    let (lab, other) = (Lab::new("first").await, Lab::new("second").await);
    let mut first = lab.operator(&[]);
    first.acts().await;
    let both = format!("{},{}", lab.namespace, other.namespace);
    let start = || other.operator(&["--namespaces", &both]);
    let mut second = start();
    second.logs(&format!("from the namespace {}", lab.namespace)).await;
    assert_eq!(second.ended().await.code(), Some(1));
    // An operator ignores what it does not serve.
    other.operator(&[]).acts().await;
    assert!(first.stop().await.success());
    start().acts().await;
    // A Lease that nobody renews any more belongs to no operator.
    let abandoned = lab.operator(&[]);
    abandoned.acts().await;
    abandoned.signal("KILL");
    start().acts().await;
}

/// Removes a field from the CRD, so that the API server would drop it, and the leader would move to any pod.
async fn without_its_target_no_switchover_is_made(lab: &Lab, leader: &str) {
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let paths = ["x-kubernetes-validations", "properties/toPodName"].map(|path| format!("{schema}/{path}"));
    let patch = json!(paths.map(|path| json!({"op": "remove", "path": path}))).to_string();
    lab.cluster.kubectl(&["patch", "crd", "switchovers.lictor.dev", "--type=json", "-p", &patch]);
    let other = if leader == "a" { "b" } else { "a" };
    let switchover = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "Switchover", "metadata": {"name": "tried"},
        "spec": {"electionName": "web", "fromTerm": 1, "toPodName": other},
    });
    eventually("the API server knows the field no more", || async {
        let tried = ["create", "--dry-run=server", "--validate=strict", "-f", "-"];
        lab.try_kubectl(&tried, Some(&switchover.to_string())).err().map(drop).ok_or("it is accepted".to_owned())
    })
    .await;
    let arguments = ["switchover", "web", "--to", other, "-n", &lab.namespace];
    let output = lictor(lab.cluster.kubeconfig(), &arguments);
    let said = text(&output);
    assert!(
        !output.status.success() && said.contains("spec.toPodName") && said.contains("`lictor crd --apply`"),
        "{said}"
    );
    assert_eq!(lab.try_kubectl(&["get", "swo", "-oname"], None).as_deref(), Ok(""));
    assert_eq!(lab.wait_any_leader().await, leader);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a control plane of its own"]
async fn missing_or_older_crds_are_reported_and_renewed() {
    // The CRDs belong to the whole cluster, so this control plane has no other tests.
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&format!("older-{}", std::process::id()), 1)));
    let lab = Lab::of(cluster, "older").await;
    let said = text(&doctor(&lab, &["--timeout", "1"]).await);
    for kind in ["leaderelections", "electionclasses", "switchovers"] {
        assert!(said.contains(&format!("the CRD {kind}.lictor.dev is missing")), "{kind}: {said}");
    }
    assert!(said.contains("is missing: run `lictor crd --apply`") && !said.contains("without this right"), "{said}");
    let nothing = run(&lab, "withdraw", &["--deployment", "lictor"]).await;
    assert!(nothing.status.success() && text(&nothing).contains("there is nothing to remove"), "{}", text(&nothing));

    let apply = || text(&lictor(cluster.kubeconfig(), &["crd", "--apply"]));
    assert!(apply().contains("leaderelections.lictor.dev comes from lictor"), "{}", apply());
    cluster.kubectl(&["annotate", "crd", "leaderelections.lictor.dev", "lictor.dev/version=0.0.9", "--overwrite"]);
    let mut operator = lab.operator(&[]);
    operator.logs("the CRD comes from an older lictor").await;
    operator.acts().await;
    let said = text(&doctor(&lab, &[]).await);
    assert!(
        said.contains("leaderelections.lictor.dev comes from lictor 0.0.9") && said.contains("1 of these"),
        "{said}"
    );
    apply();
    let output = doctor(&lab, &[]).await;
    assert!(output.status.success(), "{}", text(&output));

    // Everything is deleted, but not while another installation uses it.
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let leader = lab.wait_any_leader().await;
    without_its_target_no_switchover_is_made(&lab, &leader).await;
    let delete = ["--deployment", "lictor", "--delete-crds"];
    let elsewhere = lictor(
        cluster.kubeconfig(),
        &[["withdraw", "--lease-namespace", "default", "--controller", "test/other"].as_slice(), &delete].concat(),
    );
    let said = text(&elsewhere);
    assert!(!elsewhere.status.success() && said.contains("another lictor serves 1 of the elections"), "{said}");
    assert!(operator.stop().await.success());
    let output = run(&lab, "withdraw", &delete).await;
    assert!(output.status.success() && text(&output).contains("1 elections, the classes"), "{}", text(&output));
    assert_eq!(cluster.kubectl(&["get", "crd", "-oname"]).trim(), "");
    assert!(lab.roles().await.iter().all(|(_, role)| role.is_empty()));
}

/// An operator before its CRDs are there, and when they are deleted under it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a control plane of its own"]
async fn an_operator_without_crds_says_so_and_does_not_say_that_it_acts() {
    const UNKNOWN: &str = "the cluster does not know leaderelections: install the CRDs";
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&format!("no-crds-{}", std::process::id()), 1)));
    let lab = Lab::of(cluster, "no-crds").await;
    let operator = lab.operator(&[]);
    operator.logs("this replica holds the operator's Lease, but elects no leader yet").await;
    let said = operator.get("/readyz").await;
    assert!(said.0 == 503 && said.1.contains(UNKNOWN) && !said.1.contains("waiting for the cluster"), "{said:?}");
    assert_eq!(operator.metric("lictor_acting").await, Some(0.0));
    assert!(!operator.log().contains("this replica acts"), "{}", operator.log());

    let is_ready = |code: u16, says: &'static str| {
        let operator = &operator;
        eventually(says, move || async move {
            let said = operator.get("/readyz").await;
            if said.0 == code && said.1.contains(says) { Ok(()) } else { Err(format!("{said:?}")) }
        })
    };
    cluster.install_crds();
    operator.acts().await;
    is_ready(200, "ok").await;
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    lab.wait_any_leader().await;

    let kinds = ["leaderelections.lictor.dev", "electionclasses.lictor.dev", "switchovers.lictor.dev"];
    cluster.kubectl(&[&["delete", "crd"], kinds.as_slice()].concat());
    is_ready(503, UNKNOWN).await;
    assert!(!operator.log().contains("404"), "{}", operator.log());
    cluster.install_crds();
    is_ready(200, "ok").await;
    lab.elect(json!({})).await;
    lab.wait_any_leader().await;
}
