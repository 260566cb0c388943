//! What restricted platforms ask of the chart's pods, objects and rights.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::helm::{CHART, CLUSTER, Values, find, helm, objects, template};
use crate::rendered::cases;

/// Returns the pods, by the names of their objects, each with `metadata` and `spec`.
pub fn pods(objects: &[Value]) -> Vec<(String, Value)> {
    let pod = |object: &Value| match object["kind"].as_str()? {
        "Pod" => Some(json!({"metadata": {
            "labels": object["metadata"]["labels"], "annotations": object["metadata"]["annotations"],
        }, "spec": object["spec"]})),
        "Deployment" | "Job" => Some(object["spec"]["template"].clone()),
        _ => None,
    };
    let name = |object: &Value| object["metadata"]["name"].as_str().expect("it has a name").to_owned();
    objects.iter().filter_map(|object| Some((name(object), pod(object)?))).collect()
}

/// Returns the pods that these values make. There are always those of the operator and of three hooks.
fn pods_of(values: &str) -> Vec<(String, Value)> {
    let pods = pods(&objects(&template(values, &[]).unwrap_or_else(|error| panic!("{values}: {error}"))));
    let names: Vec<&str> = pods.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(BTreeSet::from_iter(names), ["lictor", "lictor-test", "lictor-uninstall", "lictor-upgrade"].into());
    pods
}

/// Returns all keys in it.
fn keys(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Object(object) => object.keys().cloned().chain(object.values().flat_map(keys)).collect(),
        Value::Array(array) => array.iter().flat_map(keys).collect(),
        _ => BTreeSet::new(),
    }
}

/// OpenShift's restricted-v2 refuses users and groups outside of the ranges of the namespace.
#[test]
fn no_pod_names_a_user_or_group_by_number() {
    for (name, pod) in pods_of("{}") {
        let keys = keys(&pod);
        let numbers = ["runAsUser", "runAsGroup", "fsGroup", "supplementalGroups", "seLinuxOptions"];
        assert!(!numbers.iter().any(|key| keys.contains(*key)), "{name}: {pod}");
    }
}

#[test]
fn security_contexts_are_those_of_the_values_everywhere() {
    let values = "
        podSecurityContext: {runAsUser: 1000660000, seccompProfile: null}
        containerSecurityContext: {readOnlyRootFilesystem: null, capabilities: {drop: [NET_RAW]}}";
    for (name, pod) in pods_of(values) {
        let expected = json!({"runAsNonRoot": true, "runAsUser": 1_000_660_000});
        assert_eq!(pod["spec"]["securityContext"], expected, "{name}");
        let expected = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["NET_RAW"]}});
        assert_eq!(pod["spec"]["containers"][0]["securityContext"], expected, "{name}");
    }
}

#[test]
fn a_registry_and_its_secrets_can_be_set_for_all_pods() {
    let mirror = "global: {imageRegistry: mirror.example:5000, imagePullSecrets: [mirror, {name: registry}]}";
    for (repository, image) in [
        ("lictor", "mirror.example:5000/lictor:v1"),
        ("platform/lictor", "mirror.example:5000/platform/lictor:v1"),
        ("images.example/platform/lictor", "mirror.example:5000/platform/lictor:v1"),
        ("registry:5000/lictor", "mirror.example:5000/lictor:v1"),
        ("localhost/lictor", "mirror.example:5000/lictor:v1"),
    ] {
        let values =
            format!("{mirror}\nimage: {{repository: '{repository}', tag: v1}}\nimagePullSecrets: [{{name: registry}}]");
        for (name, pod) in pods_of(&values) {
            assert_eq!(pod["spec"]["containers"][0]["image"], image, "{name}: {repository}");
            assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "registry"}, {"name": "mirror"}]), "{name}");
        }
    }
    for (name, pod) in pods_of("{}") {
        assert_eq!(pod["spec"]["containers"][0]["image"], concat!("lictor:", env!("CARGO_PKG_VERSION")), "{name}");
        assert!(pod["spec"].get("imagePullSecrets").is_none(), "{name}: {pod}");
    }
}

/// A proxy beside the program of a Job never ends, and so the Job would not.
#[test]
fn service_meshes_leave_the_pods_of_hooks_alone_unless_told() {
    for (values, label, annotation) in [
        ("{}", "false", "disabled"),
        (
            "hooks: {podLabels: {sidecar.istio.io/inject: 'true'}, podAnnotations: {linkerd.io/inject: enabled}}",
            "true",
            "enabled",
        ),
    ] {
        for (name, pod) in pods_of(values) {
            let (labels, annotations) = (&pod["metadata"]["labels"], &pod["metadata"]["annotations"]);
            if name == "lictor" {
                assert!(labels.get("sidecar.istio.io/inject").is_none(), "{pod}");
            } else {
                assert_eq!(labels["sidecar.istio.io/inject"], label, "{name}");
                assert_eq!(annotations["linkerd.io/inject"], annotation, "{name}");
                assert_ne!(labels["app.kubernetes.io/name"], "lictor", "the Service would select it: {name}");
            }
        }
    }
}

#[test]
fn common_labels_and_annotations_are_on_every_object_and_pod() {
    let more = [
        r#"commonLabels={"example.com/team":"a"}"#,
        r#"commonAnnotations={"example.com/cost":"b"}"#,
        // These are the user's, as they are.
        "extraObjects=[]",
    ];
    let more = more.map(|value| ["--set-json", value]);
    for (case, values) in cases() {
        let values = std::fs::read_to_string(&values).unwrap();
        let made = objects(&template(&values, more.as_flattened()).unwrap_or_else(|error| panic!("{case}: {error}")));
        let pods = pods(&made);
        for object in made.iter().chain(pods.iter().map(|(_, pod)| pod)) {
            assert_eq!(object["metadata"]["labels"]["example.com/team"], "a", "{case}: {object}");
            assert_eq!(object["metadata"]["annotations"]["example.com/cost"], "b", "{case}: {object}");
        }
        let deployment = find(&made, "Deployment", "");
        let selector = deployment["spec"]["selector"]["matchLabels"].as_object().expect("it has labels");
        assert_eq!(selector.len(), 2, "a selector can't be changed by an upgrade: {selector:?}");
    }
}

/// With `namespaces`, there are no rights on the cluster, whatever else is switched on. The policies are an administrator's
/// choice: docs/security.md.
#[test]
fn a_namespaced_installation_has_no_cluster_wide_object() {
    let all = "
        namespaces: [shop, bank]
        workloads: {enabled: true}
        secrets: [{name: token, namespace: shop}]
        upgrade: {crds: true}
        uninstall: {withdraw: true}
        rbac: {aggregate: true, classViewerGroups: [tenants]}
        networkPolicy: {enabled: true}
        policies: {operator: true, others: {enabled: true}}
        metrics: {serviceMonitor: {enabled: true}, rules: {enabled: true}, dashboard: {enabled: true}}";
    let namespaced = [
        "ConfigMap",
        "Deployment",
        "Job",
        "NetworkPolicy",
        "Pod",
        "PodDisruptionBudget",
        "PrometheusRule",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
    ];
    for values in ["namespaces: [shop]", all] {
        let made = objects(&template(values, &[]).unwrap());
        let policies = |object: &Value| object["kind"].as_str().unwrap().starts_with("ValidatingAdmissionPolicy");
        assert_eq!(made.iter().any(policies), values == all);
        for object in made.iter().filter(|object| !policies(object)) {
            let (kind, name) = (object["kind"].as_str().unwrap(), &object["metadata"]["name"]);
            assert!(namespaced.contains(&kind), "{kind} {name}");
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_else(|| panic!("{kind} {name}"));
            assert!(["lictor", "shop", "bank"].contains(&namespace), "{kind} {name} in {namespace}");
            if kind == "RoleBinding" {
                assert_eq!(object["roleRef"]["kind"], "Role", "a ClusterRole may have more: {name}");
            }
        }
        assert!(made.iter().any(|object| object["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"));
    }
}

/// The names of cluster-wide objects of two releases differ, whichever of name and namespace they share.
#[test]
fn two_releases_share_no_cluster_wide_name() {
    let values =
        Values::new("{workloads: {enabled: true}, uninstall: {deleteCRDs: true}, policies: {others: {enabled: true}}}");
    let names = |release: &str, namespace: &str| -> BTreeSet<String> {
        let made = helm(
            None,
            &["template", release, CHART, "-n", namespace, "--kube-version", "1.33.0", CLUSTER, "-f", values.path()],
        );
        let made = objects(&made.unwrap_or_else(|error| panic!("{error}")));
        let cluster_wide = made.iter().filter(|object| object["metadata"].get("namespace").is_none());
        cluster_wide.map(|object| format!("{} {}", object["kind"], object["metadata"]["name"])).collect()
    };
    let releases =
        [("lictor", "lictor"), ("lictor", "ops"), ("second", "lictor"), ("second", "second-lictor"), ("a", "b")];
    let all: Vec<_> = releases.iter().map(|(release, namespace)| names(release, namespace)).collect();
    assert!(all[0].contains(r#""ClusterRole" "lictor-view""#) && all[0].contains(r#""ClusterRole" "lictor-edit""#));
    let together: BTreeSet<_> = all.iter().flatten().collect();
    assert_eq!(together.len(), all.iter().map(BTreeSet::len).sum::<usize>(), "{together:?}");
}
