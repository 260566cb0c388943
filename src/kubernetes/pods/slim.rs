//! The parts of a pod that matter here.

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource;
use kube::api::Log;
use lictor_api::LONGEST_VALUE;
use lictor_core::{
    Control, Controller, ControllerKind, HttpProbe, KUBERNETES_CONDITIONS, NamedPort, OnlyByKubelet, Pod, ProbeRequest,
    ProbeTarget, ReadinessProbe, TEMPLATE_LABELS, TargetPort, Timestamp, Uid,
};
use lictor_kubernetes::version_of;
use serde::{Deserialize, Serialize};

use crate::kubernetes::nodes::SlimCondition;

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
    #[serde(default)]
    pub(super) name: String,
    /// The restart policy of an init container, which is a sidecar if this is `Always`.
    pub(super) restart_policy: Option<String>,
    #[serde(default)]
    pub(super) ports: Vec<SlimPort>,
    pub(super) readiness_probe: Option<k8s::Probe>,
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
    #[serde(default)]
    pub(super) container_statuses: Vec<SlimContainerStatus>,
    #[serde(default)]
    pub(super) init_container_statuses: Vec<SlimContainerStatus>,
    #[serde(default)]
    pub(super) ephemeral_container_statuses: Vec<SlimContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct SlimContainerStatus {
    #[serde(default)]
    pub(super) state: SlimState,
}

/// The state of a container: one of them, or that it waits.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct SlimState {
    pub(super) running: Option<Empty>,
    pub(super) terminated: Option<Empty>,
}

/// An object whose fields do not matter here.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Empty {}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct SlimIp {
    #[serde(default)]
    pub(super) ip: String,
}

impl SlimStatus {
    fn has_finished(&self) -> bool {
        matches!(self.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// E1: whether no container runs any more, and none will. A kubelet reports a terminal phase only after the containers have ended;
    /// others, such as the garbage collector, set the phase alone, which leaves containers as running. It says that it has found the node
    /// gone.
    fn has_ended(&self) -> bool {
        let statuses = [&self.container_statuses, &self.init_container_statuses, &self.ephemeral_container_statuses];
        let mut states = statuses.into_iter().flatten().map(|status| &status.state);
        let kubelet = states.all(|state| state.running.is_none());
        let collected = |of: &SlimCondition| {
            of.type_ == "DisruptionTarget" && of.status == "True" && of.reason.as_deref() == Some("DeletionByPodGC")
        };
        self.has_finished() && (kubelet || self.conditions.iter().any(collected))
    }
}

impl SlimSpec {
    /// The containers on which the pod's readiness depends, and by whose ports' names it is reached.
    fn into_running(self) -> Vec<SlimContainer> {
        let sidecars = self.init_containers.into_iter();
        let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        self.containers.into_iter().chain(sidecars).collect()
    }
}

impl SlimContainer {
    /// The ports that have a name, by which a Service or a probe may ask for them. The first port of a name counts, as in Kubernetes.
    fn named_ports(&self) -> impl Iterator<Item = NamedPort> {
        self.ports.iter().filter_map(|SlimPort { name, protocol, container_port }| {
            let name = name.clone().filter(|name| !name.is_empty())?;
            let number = (*container_port).try_into().ok()?;
            Some(NamedPort { name, protocol: protocol.clone().unwrap_or_else(|| "TCP".into()), number })
        })
    }

    /// What the container's readiness probe asks.
    fn readiness(&self) -> Option<ReadinessProbe> {
        let k8s::Probe { http_get, tcp_socket, grpc, .. } = self.readiness_probe.as_ref()?;
        let target = match (http_get, tcp_socket, grpc) {
            (Some(http), ..) => self.target(&http.port, http.host.as_deref(), || request(http)),
            (_, Some(tcp), _) => self.target(&tcp.port, tcp.host.as_deref(), || ProbeRequest::Tcp),
            (.., Some(grpc)) => {
                let service = grpc.service.as_deref().unwrap_or_default();
                self.target(&IntOrString::Int(grpc.port), None, || ProbeRequest::Grpc(service.into()))
            }
            (None, None, None) => Err(OnlyByKubelet::Exec),
        };
        Some(ReadinessProbe { container: self.name.as_str().into(), target })
    }

    /// The target of the container's readiness probe. A kubelet looks a port's name up in the probe's own container.
    fn target(
        &self,
        port: &IntOrString,
        host: Option<&str>,
        request: impl FnOnce() -> ProbeRequest,
    ) -> Result<ProbeTarget, OnlyByKubelet> {
        if host.is_some_and(|host| !host.is_empty()) {
            return Err(OnlyByKubelet::OtherHost);
        }
        let named = |name: &String| self.named_ports().find(|port| port.name == *name).map(|port| port.number);
        let port = match port {
            IntOrString::Int(number) => TargetPort::Number((*number).try_into().unwrap_or_default()),
            IntOrString::String(name) => named(name).map_or_else(|| TargetPort::Name(name.clone()), TargetPort::Number),
        };
        Ok(ProbeTarget { port, request: request() })
    }
}

/// The request of a readiness probe, with the defaults of Kubernetes.
fn request(http: &k8s::HTTPGetAction) -> ProbeRequest {
    let headers = http.http_headers.iter().flatten();
    ProbeRequest::Http(Box::new(HttpProbe {
        tls: http.scheme.as_deref() == Some("HTTPS"),
        host: None,
        path: http.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/").into(),
        headers: headers.map(|header| (header.name.as_str().into(), header.value.as_str().into())).collect(),
    }))
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
        let node = spec.node_name.take();
        let containers = spec.into_running();
        let mut ports: Vec<NamedPort> = containers.iter().flat_map(SlimContainer::named_ports).collect();
        ports.shrink_to_fit();
        Self {
            name: metadata.name.unwrap_or_default(),
            uid: Uid(metadata.uid.unwrap_or_default()),
            version,
            labels: metadata.labels.unwrap_or_default().into(),
            annotations: annotations.into_iter().filter(|(_, value)| is_kept(value)).collect(),
            owner,
            control,
            created: created.unwrap_or_default(),
            node,
            ports,
            readiness_probes: containers.iter().filter_map(SlimContainer::readiness).collect(),
            ready_since: ready.and_then(|c| c.last_transition_time.as_ref()).map(|t| Timestamp(t.0.as_millisecond())),
            ready_observed: None,
            ready: ready.is_some(),
            conditions: status
                .conditions
                .iter()
                .filter(|c| is_kept_condition(c))
                .map(|c| c.type_.as_str().into())
                .collect(),
            deleting: metadata.deletion_timestamp.is_some(),
            finished: status.has_finished(),
            ended: status.has_ended(),
            finalizers: metadata.finalizers.unwrap_or_default().into(),
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

/// Returns whether lictor keeps a condition: one that an election may require, and that is true. Each pod has several of Kubernetes' own.
fn is_kept_condition(condition: &SlimCondition) -> bool {
    condition.status == "True" && !KUBERNETES_CONDITIONS.contains(&condition.type_.as_str())
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
                {"type": "example.com/caught-up", "status": "True"}, {"type": "example.com/warm", "status": "False"},
            ]},
        }));
        assert_eq!(
            (pod.version.0, pod.ready, pod.deleting, pod.disrupted, pod.finished),
            (12, true, true, true, false)
        );
        assert_eq!(pod.ready_since, Some(Timestamp(2000)));
        assert_eq!(pod.conditions.to_vec(), ["example.com/caught-up".into()]);
        assert_eq!(pod.annotations.keys().collect::<Vec<_>>(), ["most", "short"]);
    }

    /// E1.
    #[test]
    fn when_a_pod_has_ended() {
        let ended = |phase: &str, states: &[&str], conditions: serde_json::Value| {
            let statuses: Vec<_> = states.iter().map(|state| json!({"name": "c", "state": {*state: {}}})).collect();
            pod(json!({
                "metadata": {"finalizers": ["lictor.dev/leader"]},
                "status": {"phase": phase, "containerStatuses": statuses, "conditions": conditions},
            }))
            .ended
        };
        assert!(
            ended("Failed", &["terminated"], json!([])) && ended("Succeeded", &["terminated", "waiting"], json!([]))
        );
        assert!(!ended("Running", &["terminated"], json!([])), "a container may be started again");
        assert!(!ended("Failed", &["terminated", "running"], json!([])), "a taint has evicted it from a silent node");
        assert!(ended("Failed", &[], json!([])), "its kubelet has evicted it");
        let disrupted = |reason: &str| json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}]);
        assert!(ended("Failed", &["running"], disrupted("DeletionByPodGC")));
        assert!(!ended("Failed", &["running"], disrupted("DeletionByTaintManager")));
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
    fn what_the_readiness_probes_of_a_pod_ask() {
        let web = json!({"name": "web", "containerPort": 8443});
        let http = json!({"port": "web", "scheme": "HTTPS", "httpHeaders": [{"name": "X-A", "value": "b"}]});
        let found = pod(json!({
            "metadata": {"name": "web-0"},
            "spec": {
                "containers": [
                    {"name": "main", "ports": [web], "readinessProbe": {"httpGet": http, "timeoutSeconds": 5}},
                    {"name": "silent", "livenessProbe": {"tcpSocket": {"port": 1}}},
                    {"name": "lost", "readinessProbe": {"tcpSocket": {"port": "web"}}},
                    {"name": "rpc", "readinessProbe": {"grpc": {"port": 9000, "service": "shop"}}},
                    {"name": "script", "readinessProbe": {"exec": {"command": ["true"]}}},
                    {"name": "node", "readinessProbe": {"httpGet": {"port": 1, "host": "127.0.0.1"}}},
                ],
                "initContainers": [
                    {"name": "once", "readinessProbe": {"tcpSocket": {"port": 1}}},
                    {"name": "side", "restartPolicy": "Always", "readinessProbe": {"tcpSocket": {"port": 15}}},
                ],
            },
        }));
        let http = ProbeRequest::Http(Box::new(HttpProbe {
            tls: true,
            host: None,
            path: "/".into(),
            headers: [("X-A".into(), "b".into())].into(),
        }));
        let target = |port, request| Ok(ProbeTarget { port, request });
        let expected = [
            ("main", target(TargetPort::Number(8443), http)),
            ("lost", target(TargetPort::Name("web".into()), ProbeRequest::Tcp)),
            ("rpc", target(TargetPort::Number(9000), ProbeRequest::Grpc("shop".into()))),
            ("script", Err(OnlyByKubelet::Exec)),
            ("node", Err(OnlyByKubelet::OtherHost)),
            ("side", target(TargetPort::Number(15), ProbeRequest::Tcp)),
        ];
        let expected = expected.map(|(container, target)| ReadinessProbe { container: container.into(), target });
        assert_eq!(*found.readiness_probes, expected);
    }

    #[test]
    fn an_evicted_pod_has_finished() {
        assert!(pod(json!({"metadata": {}, "status": {"phase": "Failed", "reason": "Evicted"}})).finished);
    }
}
