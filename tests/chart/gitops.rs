//! Installation without Helm: by Argo CD, whose own engine runs here, and by kubectl. And what Flux, Argo CD and Helm make of the health of
//! what is installed.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use lictor_testing::kubernetes::Cluster;
use lictor_testing::tool;
use serde_json::json;

use crate::helm::{CLUSTER, template, template_alone};
use crate::installed::cluster;

const NAMESPACE: &str = "lictor";
pub const VALUES: &str = "classes: [{name: fleet, spec: {lease: {}}}]";

/// Runs hack/tools/gitops. Returns what it printed, or its error text.
fn gitops(cluster: &Cluster, arguments: &[&str], input: &str) -> Result<String, String> {
    static GITOPS: OnceLock<std::path::PathBuf> = OnceLock::new();
    let mut command = Command::new(GITOPS.get_or_init(|| tool("gitops")));
    command.args(arguments).env("KUBECONFIG", cluster.kubeconfig());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    child.stdin.take().expect("it reads").write_all(input.as_bytes()).expect("it reads all");
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{}{}", text(&output.stdout), text(&output.stderr)))
    }
}

fn sync(cluster: &Cluster, manifests: &str) -> String {
    gitops(cluster, &["sync", NAMESPACE], manifests).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns what Argo CD renders: it tells Helm which APIs the cluster has.
fn rendered(values: &str) -> String {
    template(values, &["--include-crds"]).unwrap_or_else(|error| panic!("{error}"))
}

pub fn ready(cluster: &Cluster, replicas: &str) {
    cluster.kubectl(&["-n", NAMESPACE, "rollout", "status", "deployment", "lictor", "--timeout=60s"]);
    let ready = ["-n", NAMESPACE, "get", "deployment", "lictor", "-ojsonpath={.status.readyReplicas}"];
    assert_eq!(cluster.kubectl(&ready), replicas);
}

/// Panics if a hook was run, or its rights were given to anybody.
fn no_hook_ran(cluster: &Cluster) {
    assert_eq!(cluster.kubectl(&["-n", NAMESPACE, "get", "jobs", "-oname"]), "");
    let events = cluster.kubectl(&["-n", NAMESPACE, "get", "events", "-ojsonpath={.items[*].involvedObject.name}"]);
    assert!(!events.contains("lictor-upgrade") && !events.contains("lictor-uninstall"), "{events}");
    let roles = cluster.kubectl(&["get", "clusterrole,role", "-A", "-oname"]);
    assert!(!roles.contains("upgrade") && !roles.contains("uninstall"), "{roles}");
}

pub fn age_of_crd(cluster: &Cluster) -> String {
    cluster.kubectl(&[
        "get",
        "crd",
        "leaderelections.lictor.dev",
        "-ojsonpath={.metadata.annotations.lictor\\.dev/version}",
    ])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a control plane of its own"]
async fn argo_cd_installs_upgrades_and_removes_it_and_so_does_kubectl() {
    let cluster = cluster("gitops");
    cluster.kubectl(&["create", "namespace", NAMESPACE]);
    // The control plane of the tests has the CRDs already.
    cluster.kubectl(&[
        "delete",
        "crd",
        "leaderelections.lictor.dev",
        "electionclasses.lictor.dev",
        "switchovers.lictor.dev",
        "--ignore-not-found",
    ]);
    by_argo_cd(cluster);
    by_kubectl(cluster);
}

fn by_argo_cd(cluster: &Cluster) {
    let told = sync(cluster, &rendered(VALUES));
    assert!(told.contains("CustomResourceDefinition leaderelections.lictor.dev Synced"), "{told}");
    assert!(told.contains("ElectionClass fleet Synced"), "a class of the first install: {told}");
    ready(cluster, "2");
    no_hook_ran(cluster);
    let health = |kind: &str| {
        let objects = cluster.kubectl(&["-n", NAMESPACE, "get", kind, "lictor", "-oyaml"]);
        gitops(cluster, &["health"], &objects).unwrap_or_else(|error| panic!("{error}"))
    };
    assert_eq!(
        health("deployment").split_whitespace().take(4).collect::<Vec<_>>(),
        ["Deployment", "lictor", "Healthy", "Current"]
    );

    // An upgrade renews CRDs and whatever else differs.
    cluster.kubectl(&["annotate", "crd", "leaderelections.lictor.dev", "lictor.dev/version=0.0.9", "--overwrite"]);
    sync(cluster, &rendered(&format!("{VALUES}\nreplicaCount: 3")));
    assert_eq!(age_of_crd(cluster), env!("CARGO_PKG_VERSION"));
    ready(cluster, "3");
    no_hook_ran(cluster);

    // Elections, classes and CRDs outlive the application.
    let election = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    });
    cluster.try_kubectl(&["apply", "-f", "-"], Some(&election.to_string())).expect("it can be applied");
    let told = sync(cluster, "");
    assert!(told.contains("Deployment lictor Pruned"), "{told}");
    assert_eq!(cluster.kubectl(&["-n", "default", "get", "le", "-oname"]).trim(), "leaderelection.lictor.dev/web");
    assert_eq!(cluster.kubectl(&["get", "lec", "-oname"]).trim(), "electionclass.lictor.dev/fleet");
    // Argo CD deletes in the foreground: what a Deployment owns goes before it.
    cluster.kubectl(&["-n", NAMESPACE, "wait", "--for=delete", "deployment/lictor", "--timeout=60s"]);
    no_hook_ran(cluster);
    // Nobody has to wait for an operator that is gone.
    cluster.kubectl(&["-n", "default", "delete", "le", "web", "--timeout=30s"]);
    cluster.kubectl(&["delete", "lec", "fleet"]);
    let crds = ["leaderelections.lictor.dev", "electionclasses.lictor.dev", "switchovers.lictor.dev"];
    cluster.kubectl(&[["delete", "crd"].as_slice(), &crds, &["--timeout=30s"]].concat());
}

fn by_kubectl(cluster: &Cluster) {
    let apply = |manifests: &str| {
        cluster.try_kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], Some(manifests))
    };
    let all = template_alone("", &["--include-crds"]).expect("it can be rendered");
    apply(&all).unwrap_or_else(|error| panic!("{error}"));
    ready(cluster, "2");
    no_hook_ran(cluster);
    // A class is applied when its CRD is served.
    let classes = template_alone(VALUES, &["--show-only", "templates/classes.yaml"]).expect("it can be rendered");
    apply(&classes).unwrap_or_else(|error| panic!("{error}"));
    cluster.kubectl(&["annotate", "crd", "leaderelections.lictor.dev", "lictor.dev/version=0.0.9", "--overwrite"]);
    apply(&template_alone("replicaCount: 3", &["--include-crds"]).expect("it can be rendered"))
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(age_of_crd(cluster), env!("CARGO_PKG_VERSION"));
    ready(cluster, "3");
    no_hook_ran(cluster);
    // Even somebody who names the cluster's APIs, and applies the hooks, withdraws nothing.
    let hook = template("", &["--show-only", "templates/uninstall.yaml", CLUSTER]).expect("it can be rendered");
    assert!(hook.contains("--helm-release=lictor"), "{hook}");
    let release = ["-f", "-", "--selector", "app.kubernetes.io/name=lictor"];
    cluster
        .try_kubectl(&[&["delete"], release.as_slice()].concat(), Some(&all))
        .unwrap_or_else(|error| panic!("{error}"));
    // Argo CD deletes in the foreground: what a Deployment owns goes before it.
    cluster.kubectl(&["-n", NAMESPACE, "wait", "--for=delete", "deployment/lictor", "--timeout=60s"]);
    assert_ne!(cluster.kubectl(&["get", "crd", "-oname"]), "", "elections stay");
}
