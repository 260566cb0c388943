//! Installation by Flux: its helm-controller runs here, and installs, upgrades and removes the chart as a HelmRelease says. The
//! archive of the chart comes from this test, in the place of Flux's source-controller.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, Uri};
use lictor_testing::kubernetes::{Cluster, eventually};
use lictor_testing::tool;
use serde_json::{Value, json};

use crate::gitops::{VALUES, age_of_crd, ready};
use crate::helm::{CHART, helm};
use crate::installed::cluster;

const NAMESPACE: &str = "lictor";

/// Flux's helm-controller, with a directory for what the test makes. It ends with the test.
struct Flux {
    cluster: &'static Cluster,
    child: Child,
    directory: PathBuf,
    charts: String,
}

impl Flux {
    async fn start(cluster: &'static Cluster) -> Self {
        install_kinds(cluster);
        let directory = std::env::temp_dir().join(format!("lictor-flux-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        let packages = ["0.1.0", "0.1.1"].map(|version| package(&directory, version));
        let charts = serve(packages.into()).await;
        let mut command = Command::new(tool("helm-controller"));
        command.args(["--metrics-addr=127.0.0.1:0", "--health-addr=127.0.0.1:0"]);
        let log = File::create(directory.join("log")).expect("a log can be made");
        command.env("KUBECONFIG", cluster.kubeconfig()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().expect("helm-controller starts");
        Self { cluster, child, directory, charts }
    }

    /// Publishes a version of the chart, as source-controller would. The object has been written so often, with this time.
    fn publish(&self, version: &str, generation: u32) {
        let digest = Command::new("sha256sum").arg(archive(&self.directory, version)).output().expect("it runs");
        let digest = String::from_utf8(digest.stdout).expect("it is text");
        let digest = format!("sha256:{}", digest.split(' ').next().expect("a sum"));
        self.apply(&json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart",
            "metadata": {"name": "lictor", "namespace": NAMESPACE},
            "status": {
                "observedGeneration": generation,
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "ChartPullSucceeded", "message": "pulled",
                    "observedGeneration": generation, "lastTransitionTime": "2026-11-22T12:00:00Z",
                }],
                "artifact": {
                    "path": format!("lictor-{version}.tgz"), "url": format!("{}/lictor-{version}.tgz", self.charts),
                    "revision": version, "digest": digest, "lastUpdateTime": "2026-11-22T12:00:00Z",
                },
            },
        }));
    }

    /// Applies the HelmRelease as docs/install.md has it, with these values.
    fn release(&self, values: &Value) {
        self.apply(&json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "lictor", "namespace": NAMESPACE},
            "spec": {"interval": "10m", "chartRef": {"kind": "HelmChart", "name": "lictor"}, "values": values},
        }));
    }

    fn apply(&self, object: &Value) {
        let applied = self.cluster.try_kubectl(&["apply", "-f", "-"], Some(&object.to_string()));
        applied.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits until this version of the chart is installed with so many replicas, and Flux says that the release is ready.
    async fn deployed(&self, version: &str, replicas: &str) {
        eventually(&format!("{version} is deployed"), || async {
            let found = self.cluster.kubectl(&["-n", NAMESPACE, "get", "helmrelease", "lictor", "-ojson"]);
            let found: Value = serde_json::from_str(&found).expect("it is JSON");
            let status = &found["status"];
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let ready = conditions.filter(|condition| condition["type"] == "Ready").any(|ready| {
                ready["status"] == "True" && ready["observedGeneration"] == found["metadata"]["generation"]
            });
            // Flux adds the digest to the version.
            let newest = &status["history"][0];
            let is_this = newest["chartVersion"].as_str().is_some_and(|found| found.starts_with(version));
            // Flux may upgrade twice: once for the version, and once for the values.
            let asked = ["-n", NAMESPACE, "get", "deployment", "lictor", "-ojsonpath={.spec.replicas}"];
            let as_asked = self.cluster.try_kubectl(&asked, None).is_ok_and(|found| found == replicas);
            let done = ready && is_this && as_asked && newest["status"] == "deployed";
            if done { Ok(()) } else { Err(format!("{status:#}\n{}", self.log())) }
        })
        .await;
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Returns the names of the Jobs that had a pod.
    fn jobs(&self) -> String {
        let about = ["--field-selector", "involvedObject.kind=Job", "-ojsonpath={.items[*].involvedObject.name}"];
        self.cluster.kubectl(&[["-n", NAMESPACE, "get", "events"].as_slice(), &about].concat())
    }
}

impl Drop for Flux {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Installs the kinds: the HelmRelease as Flux has it, and in the place of those that source-controller serves, kinds without a schema.
fn install_kinds(cluster: &Cluster) {
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/tools/flux");
    let found = Command::new("go")
        .args(["mod", "download", "-json", "github.com/fluxcd/helm-controller"])
        .current_dir(module)
        .output()
        .expect("go runs");
    let found: Value = serde_json::from_slice(&found.stdout).expect("it is JSON");
    let directory = Path::new(found["Dir"].as_str().expect("the module is there")).join("config/crd/bases");
    cluster.kubectl(&["apply", "--server-side", "-f", directory.to_str().expect("a path is text")]);
    for (kind, plural) in [("HelmChart", "helmcharts"), ("OCIRepository", "ocirepositories")] {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.source.toolkit.fluxcd.io")},
            "spec": {
                "group": "source.toolkit.fluxcd.io", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        });
        cluster.try_kubectl(&["apply", "-f", "-"], Some(&crd.to_string())).unwrap_or_else(|error| panic!("{error}"));
    }
    cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
}

fn archive(directory: &Path, version: &str) -> PathBuf {
    directory.join(format!("lictor-{version}.tgz"))
}

/// Packs the chart under a version. Returns its path at the server, and its bytes.
fn package(directory: &Path, version: &str) -> (String, Vec<u8>) {
    let to = directory.to_str().expect("a path is text");
    helm(None, &["package", CHART, "--version", version, "--destination", to]).expect("it can be packed");
    (format!("/lictor-{version}.tgz"), std::fs::read(archive(directory, version)).expect("it is there"))
}

/// Serves files for as long as the test runs. Returns the address.
async fn serve(files: BTreeMap<String, Vec<u8>>) -> String {
    let files = Arc::new(files);
    let app = Router::new().fallback(move |uri: Uri| {
        let found = files.get(uri.path()).cloned().ok_or(StatusCode::NOT_FOUND);
        async move { found }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a control plane of its own, and Flux"]
async fn flux_installs_upgrades_and_removes_it() {
    let cluster = cluster("flux");
    cluster.kubectl(&["create", "namespace", NAMESPACE]);
    // The control plane of the tests has the CRDs already.
    let crds = ["leaderelections.lictor.dev", "electionclasses.lictor.dev", "switchovers.lictor.dev"];
    cluster.kubectl(&[["delete", "crd", "--ignore-not-found"].as_slice(), &crds].concat());
    let flux = Flux::start(cluster).await;
    let mut values: Value = serde_saphyr::from_str(VALUES).expect("it is YAML");

    flux.publish("0.1.0", 1);
    flux.release(&values);
    flux.deployed("0.1.0", "2").await;
    ready(cluster, "2");
    assert_eq!(age_of_crd(cluster), env!("CARGO_PKG_VERSION"));
    assert_eq!(cluster.kubectl(&["get", "lec", "-oname"]).trim(), "electionclass.lictor.dev/fleet");
    assert_eq!(flux.jobs(), "", "an installation takes no hook");

    // By default, Flux leaves CRDs as they are when it upgrades. The chart's own Job renews them.
    values["replicaCount"] = json!(3);
    flux.release(&values);
    flux.publish("0.1.1", 2);
    flux.deployed("0.1.1", "3").await;
    ready(cluster, "3");
    assert!(flux.jobs().contains("lictor-upgrade"), "{}", flux.jobs());

    // The Job of the removal withdraws what lictor wrote. Classes and CRDs stay.
    cluster.kubectl(&["-n", NAMESPACE, "delete", "helmrelease", "lictor", "--timeout=60s"]);
    assert!(flux.jobs().contains("lictor-uninstall"), "{}", flux.jobs());
    cluster.kubectl(&["-n", NAMESPACE, "wait", "--for=delete", "deployment/lictor", "--timeout=60s"]);
    assert_eq!(cluster.kubectl(&["get", "lec", "-oname"]).trim(), "electionclass.lictor.dev/fleet");
    assert_eq!(age_of_crd(cluster), env!("CARGO_PKG_VERSION"));
}
