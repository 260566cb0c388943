//! Helm, and what the chart renders.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use lictor_testing::tool;
use serde_json::Value;

/// The chart's directory.
pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/lictor");

/// Runs helm. Returns what it printed, or its error text. It ignores the configuration of this machine's user.
pub fn helm(kubeconfig: Option<&Path>, arguments: &[&str]) -> Result<String, String> {
    static HELM: OnceLock<PathBuf> = OnceLock::new();
    let helm = HELM.get_or_init(|| tool("helm"));
    let nowhere = std::env::temp_dir().join(format!("lictor-no-helm-{}", std::process::id()));
    let mut command = Command::new(helm);
    command.args(arguments);
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, &nowhere);
    }
    command.env("KUBECONFIG", kubeconfig.unwrap_or(&nowhere));
    let output = command.output().expect("helm runs");
    let _ = std::fs::remove_dir_all(&nowhere);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// What every API server has and `helm template` does not assume: with it, the chart is rendered as `helm install` renders it.
pub const CLUSTER: &str = "--api-versions=apiregistration.k8s.io/v1";

/// Returns what `helm install` renders with these values.
pub fn template(values: &str, more: &[&str]) -> Result<String, String> {
    template_alone(values, &[&[CLUSTER], more].concat())
}

/// Returns what `helm template` renders with these values.
pub fn template_alone(values: &str, more: &[&str]) -> Result<String, String> {
    let file = Values::new(values);
    let arguments = ["template", "lictor", CHART, "--namespace", "lictor", "--kube-version", "1.33.0", "--values"];
    let all: Vec<&str> = arguments.into_iter().chain([file.path()]).chain(more.iter().copied()).collect();
    helm(None, &all)
}

/// Returns the objects in a stream of several.
pub fn objects(text: &str) -> Vec<Value> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).expect("it is YAML");
    objects.into_iter().filter(|object| !object.is_null()).collect()
}

/// Returns the one object of this kind whose name ends with `name`.
pub fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found: Vec<_> = objects
        .iter()
        .filter(|object| object["kind"] == kind)
        .filter(|object| object["metadata"]["name"].as_str().is_some_and(|found| found.ends_with(name)))
        .collect();
    let [one] = found.as_slice() else { panic!("{} objects {kind} …{name}", found.len()) };
    one
}

/// Returns the arguments of the only container of a Deployment, Job or Pod.
pub fn arguments(object: &Value) -> Vec<String> {
    let spec = if object["kind"] == "Pod" { &object["spec"] } else { &object["spec"]["template"]["spec"] };
    let arguments = spec["containers"][0]["args"].as_array().expect("it has arguments");
    arguments.iter().map(|argument| argument.as_str().expect("they are text").to_owned()).collect()
}

/// A file with values. It is deleted with the test.
pub struct Values(PathBuf);

impl Values {
    pub fn new(text: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("lictor-values-{}-{number}.yaml", std::process::id()));
        std::fs::write(&path, text).expect("a file can be written");
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("the path is text")
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
