//! A namespace that enforces the Pod Security Standard `restricted`.

use lictor_testing::kubernetes::Cluster;
use serde_json::{Value, json};

use super::Release;
use crate::helm::{objects, template};
use crate::platforms::pods;

/// Creates each pod of the release, also those of hooks, as the API server would let it be created in the release's namespace.
/// It refuses the same pods with weaker security contexts.
pub fn pods_are_made(release: &Release, cluster: &Cluster) {
    let installed = [release.get("manifest"), release.get("hooks")].concat();
    for (name, pod) in pods(&installed) {
        create(cluster, &pod).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for (values, says) in [
        ("podSecurityContext: {seccompProfile: null}", "seccompProfile"),
        ("podSecurityContext: {runAsNonRoot: null}", "runAsNonRoot != true"),
        ("containerSecurityContext: {capabilities: null}", "unrestricted capabilities"),
        ("containerSecurityContext: {allowPrivilegeEscalation: null}", "allowPrivilegeEscalation != false"),
    ] {
        let pods = pods(&objects(&template(values, &[]).expect("it is made")));
        assert!(pods.len() >= 2, "{pods:?}");
        for (name, pod) in pods {
            let told = create(cluster, &pod).expect_err("it is refused");
            assert!(
                told.contains("violates PodSecurity \"restricted") && told.contains(says),
                "{name}, {values}: {told}"
            );
        }
    }
}

fn create(cluster: &Cluster, pod: &Value) -> Result<String, String> {
    let mut spec = pod["spec"].clone();
    // The accounts of hooks are not there now.
    spec["serviceAccountName"] = json!("default");
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried", "namespace": "lictor"}, "spec": spec});
    cluster.try_kubectl(&["create", "--dry-run=server", "-f", "-"], Some(&pod.to_string()))
}
