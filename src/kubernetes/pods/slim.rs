//! The parts of a pod that matter here.

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use kube::api::Log;
use lictor_core::{Control, Controller, ControllerKind, NamedPort, Pod, TEMPLATE_LABELS, Timestamp, Uid};
use serde::{Deserialize, Serialize};

use crate::api::LONGEST_VALUE;
use crate::kubernetes::nodes::SlimCondition;
use crate::kubernetes::version_of;

/// The parts of a pod that matter here.
#[derive(Clone, Debug, Default, Deserialize, Serialize, Resource)]
#[resource(inherit = k8s::Pod)]
pub struct SlimPod {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: SlimSpec,
    #[serde(default)]
    pub(super) status: SlimStatus,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlimSpec {
    pub(super) node_name: Option<String>,
    #[serde(default)]
    pub(super) containers: Vec<SlimContainer>,
    #[serde(default)]
    pub(super) init_containers: Vec<SlimContainer>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlimContainer {
    /// The restart policy of an init container, which is a sidecar if this is `Always`.
    pub(super) restart_policy: Option<String>,
    #[serde(default)]
    pub(super) ports: Vec<SlimPort>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlimPort {
    pub(super) name: Option<String>,
    pub(super) protocol: Option<String>,
    #[serde(default)]
    pub(super) container_port: i32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlimStatus {
    pub(super) phase: Option<String>,
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Option<String>,
    #[serde(default, rename = "podIPs")]
    pub(super) pod_ips: Vec<SlimIp>,
    #[serde(default)]
    pub(super) conditions: Vec<SlimCondition>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct SlimIp {
    #[serde(default)]
    pub(super) ip: String,
}

impl SlimSpec {
    /// The ports that have a name, by which a Service may ask for them. The first port of a name counts, as in Kubernetes.
    fn named_ports(self) -> Vec<NamedPort> {
        let sidecars = self.init_containers.into_iter();
        let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let ports = self.containers.into_iter().chain(sidecars).flat_map(|container| container.ports);
        let named = ports.filter_map(|SlimPort { name, protocol, container_port }| {
            let name = name.filter(|name| !name.is_empty())?;
            let number = container_port.try_into().ok()?;
            Some(NamedPort { name, protocol: protocol.unwrap_or_else(|| "TCP".into()), number })
        });
        let mut named: Vec<NamedPort> = named.collect();
        named.shrink_to_fit();
        named
    }
}

impl From<SlimPod> for Pod {
    fn from(pod: SlimPod) -> Self {
        let version = version_of(&pod);
        let SlimPod { metadata, mut spec, status } = pod;
        let (owner, control) = (owner(&metadata), control(&metadata));
        let created = metadata.creation_timestamp.as_ref().map(|time| Timestamp(time.0.as_millisecond()));
        let holds = |type_: &str| status.conditions.iter().find(|c| c.type_ == type_ && c.status == "True");
        let annotations = metadata.annotations.unwrap_or_default();
        let ready = holds("Ready");
        Self {
            name: metadata.name.unwrap_or_default(),
            uid: Uid(metadata.uid.unwrap_or_default()),
            version,
            labels: metadata.labels.unwrap_or_default().into(),
            annotations: annotations.into_iter().filter(|(_, value)| is_kept(value)).collect(),
            owner,
            control,
            created: created.unwrap_or_default(),
            node: spec.node_name.take(),
            ports: spec.named_ports(),
            ready_since: ready.and_then(|c| c.last_transition_time.as_ref()).map(|t| Timestamp(t.0.as_millisecond())),
            ready_observed: None,
            ready: ready.is_some(),
            deleting: metadata.deletion_timestamp.is_some(),
            finished: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            disrupted: holds("DisruptionTarget").is_some(),
            // The first one is that of `podIP`.
            other_ip: status.pod_ips.into_iter().nth(1).map(|other| other.ip).filter(|ip| !ip.is_empty()),
            ip: status.pod_ip,
        }
    }
}

/// Returns the owner that created a pod from one of several templates: its StatefulSet or DaemonSet, or, for a Deployment, the common part
/// of the names of its ReplicaSets.
fn owner(metadata: &ObjectMeta) -> Option<String> {
    let labels = metadata.labels.as_ref()?;
    let template = TEMPLATE_LABELS.iter().find_map(|label| labels.get(*label))?;
    let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    let name = owner.name.strip_suffix(template.as_str()).unwrap_or(&owner.name);
    Some(format!("{}/{name}", owner.kind))
}

/// Returns the pod's relation to a controller. A controller gives its pods names that the API server completes, and lets go of a pod that
/// it no longer selects.
fn control(metadata: &ObjectMeta) -> Control {
    let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    match (owner, metadata.generate_name.as_deref().is_none_or(str::is_empty)) {
        (Some(owner), _) => Control::By(Box::new(Controller {
            kind: kind(owner),
            name: owner.name.clone(),
            uid: Uid(owner.uid.clone()),
        })),
        (None, false) => Control::Released,
        (None, true) => Control::None,
    }
}

/// Returns the kind of a controller. Another API's controllers may have the same kind in another group.
fn kind(owner: &OwnerReference) -> ControllerKind {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    match (group, owner.kind.as_str()) {
        ("apps", "ReplicaSet") => ControllerKind::ReplicaSet,
        ("apps", "StatefulSet") => ControllerKind::StatefulSet,
        ("apps", "DaemonSet") => ControllerKind::DaemonSet,
        ("batch", "Job") => ControllerKind::Job,
        ("", "ReplicationController") => ControllerKind::ReplicationController,
        _ => ControllerKind::Other,
    }
}

/// Returns whether lictor writes and reads an annotation. lictor ignores a longer value than the API server's schema allows, counted in
/// characters.
fn is_kept(value: &str) -> bool {
    value.chars().nth(LONGEST_VALUE).is_none()
}

impl Log for SlimPod {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(json: serde_json::Value) -> Pod {
        serde_json::from_value::<SlimPod>(json).unwrap().into()
    }

    #[test]
    fn what_matters_of_a_pod() {
        let pod = pod(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-0", "uid": "u", "resourceVersion": "12", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"short": "x", "long": "x".repeat(1025), "most": "漢".repeat(1024)},
            },
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:02Z"},
                {"type": "DisruptionTarget", "status": "True"},
            ]},
        }));
        assert_eq!(
            (pod.version.0, pod.ready, pod.deleting, pod.disrupted, pod.finished),
            (12, true, true, true, false)
        );
        assert_eq!(pod.ready_since, Some(Timestamp(2000)));
        assert_eq!(pod.annotations.keys().collect::<Vec<_>>(), ["most", "short"]);
    }

    #[test]
    fn what_made_a_pod() {
        let made = |kind: &str, owner: &str, labels: serde_json::Value| {
            let found = pod(json!({"metadata": {
                "creationTimestamp": "1970-01-01T00:00:03Z", "labels": labels,
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Other", "name": "other", "uid": "o"},
                    {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "u", "controller": true},
                ],
            }}));
            assert_eq!(found.created, Timestamp(3000));
            found.owner
        };
        let of_template = |hash: &str| json!({"pod-template-hash": hash});
        for hash in ["64b8d6cc6f", "5d8f"] {
            let owner = made("ReplicaSet", &format!("web-{hash}"), of_template(hash));
            assert_eq!(owner.as_deref(), Some("ReplicaSet/web-"));
        }
        let revision = json!({"controller-revision-hash": "web-64b8d6cc6f", "pod-index": "0"});
        assert_eq!(made("StatefulSet", "web", revision).as_deref(), Some("StatefulSet/web"));
        assert_eq!(made("ReplicaSet", "web", json!({"app": "web"})), None);
        assert_eq!(pod(json!({"metadata": {"labels": of_template("5d8f")}})).owner, None);
    }

    #[test]
    fn which_controller_has_a_pod() {
        let of = |api_version: &str, kind: &str| {
            let owner = json!({"apiVersion": api_version, "kind": kind, "name": "web", "uid": "u", "controller": true});
            pod(json!({"metadata": {"generateName": "web-", "ownerReferences": [owner]}})).control
        };
        let kind = |api_version, kind| of(api_version, kind).controller().map(|controller| controller.kind);
        assert_eq!(kind("apps/v1", "StatefulSet"), Some(ControllerKind::StatefulSet));
        assert_eq!(kind("batch/v1", "Job"), Some(ControllerKind::Job));
        assert_eq!(kind("v1", "ReplicationController"), Some(ControllerKind::ReplicationController));
        assert_eq!(kind("apps.kruise.io/v1beta1", "StatefulSet"), Some(ControllerKind::Other));
        assert_eq!(pod(json!({"metadata": {"generateName": "web-"}})).control, Control::Released);
        assert_eq!(pod(json!({"metadata": {"name": "web"}})).control, Control::None);
    }

    #[test]
    fn where_a_pod_can_be_reached() {
        let found = pod(json!({
            "metadata": {"name": "web-0"},
            "spec": {
                "containers": [
                    {"name": "main", "ports": [{"name": "web", "containerPort": 8080}, {"containerPort": 9000}]},
                    {"name": "dns", "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}]},
                ],
                "initContainers": [
                    {"name": "once", "ports": [{"name": "once", "containerPort": 1}]},
                    {"name": "sidecar", "restartPolicy": "Always", "ports": [{"name": "admin", "containerPort": 9901}]},
                ],
            },
            "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
        }));
        let ports: Vec<_> = found.ports.iter().map(|port| (&*port.name, &*port.protocol, port.number)).collect();
        assert_eq!(ports, [("web", "TCP", 8080), ("dns", "UDP", 53), ("admin", "TCP", 9901)]);
        assert_eq!(found.addresses().collect::<Vec<_>>(), ["10.0.0.1", "fd00::1"]);

        let alone = pod(json!({"metadata": {}, "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}));
        assert_eq!((alone.other_ip, alone.ports.capacity()), (None, 0), "nothing is allocated");
    }

    #[test]
    fn an_evicted_pod_has_finished() {
        assert!(pod(json!({"metadata": {}, "status": {"phase": "Failed", "reason": "Evicted"}})).finished);
    }
}
