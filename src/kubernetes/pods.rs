//! Pods, as a slim type. This is the only place in this program that writes to pods.

pub(super) mod protobuf;

use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, Log, LogParams, Patch, PatchParams};
use kube::{Api, Client, Resource};
use lictor_core::{
    ELECTION_ANNOTATION, Failure, NamedPort, Operator, Pod, PodOutcome, Selector, TEMPLATE_LABELS, Timestamp, Uid,
    WritePod,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::nodes::SlimCondition;
use super::{failure, version_of, within};
use crate::api::LONGEST_VALUE;

/// The parts of a pod that matter here.
#[derive(Clone, Debug, Default, Deserialize, Serialize, Resource)]
#[resource(inherit = k8s::Pod)]
pub struct SlimPod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimSpec,
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct SlimSpec {
    node_name: Option<String>,
    #[serde(default)]
    containers: Vec<SlimContainer>,
    #[serde(default)]
    init_containers: Vec<SlimContainer>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct SlimContainer {
    /// Of an init container: it is a sidecar, if this is `Always`.
    restart_policy: Option<String>,
    #[serde(default)]
    ports: Vec<SlimPort>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct SlimPort {
    name: Option<String>,
    protocol: Option<String>,
    #[serde(default)]
    container_port: i32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct SlimStatus {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(default, rename = "podIPs")]
    pod_ips: Vec<SlimIp>,
    #[serde(default)]
    conditions: Vec<SlimCondition>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct SlimIp {
    #[serde(default)]
    ip: String,
}

impl SlimSpec {
    /// The ports that have a name, by which a Service may ask for them. The first of a name counts, as in Kubernetes.
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
        let owner = owner(&metadata);
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

/// Returns what made a pod from one of several templates: its StatefulSet or DaemonSet, or for a Deployment what the names of its
/// ReplicaSets have in common.
fn owner(metadata: &ObjectMeta) -> Option<String> {
    let labels = metadata.labels.as_ref()?;
    let template = TEMPLATE_LABELS.iter().find_map(|label| labels.get(*label))?;
    let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    let name = owner.name.strip_suffix(template.as_str()).unwrap_or(&owner.name);
    Some(format!("{}/{name}", owner.kind))
}

/// Returns whether lictor writes and reads an annotation. A longer value than the API server's schema allows, counted in
/// characters, is ignored.
fn is_kept(value: &str) -> bool {
    value.chars().nth(LONGEST_VALUE).is_none()
}

impl Log for SlimPod {}

/// Elections, each with the name of a pod that it has marked.
pub type Marked = Vec<(String, String)>;

/// Of how many pods the metadata are listed at a time: a kilobyte each. For each page, the API server looks through all pods of the
/// namespace.
const PAGE: u32 = 5000;

/// The pods of one cluster.
#[derive(Clone)]
pub struct Pods {
    client: Client,
    timeout: Duration,
}

impl Pods {
    /// Creates it. `timeout` bounds each request.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    /// Patches one pod, if it still has the uid and the version that the patch is for.
    pub async fn write(&self, namespace: &str, write: &WritePod) -> PodOutcome {
        let patch = json!({"metadata": {
            "uid": write.uid.0,
            "resourceVersion": write.version.to_string(),
            "labels": write.patch.labels,
            "annotations": write.patch.annotations,
        }});
        let api = self.api(namespace);
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = api.patch(&write.name, &parameters, &patch);
        match within(self.timeout, patched).await {
            Ok(pod) => PodOutcome::Written(Box::new(pod.into())),
            Err(kube::Error::Api(status)) if status.is_conflict() => PodOutcome::Conflict,
            Err(kube::Error::Api(status)) if status.is_not_found() => PodOutcome::Gone,
            Err(error) => PodOutcome::Failed(failure("patch", "pods", &error)),
        }
    }

    /// Reads one pod from the API server.
    ///
    /// # Errors
    /// If there is no answer, or a refusal.
    pub async fn read(&self, namespace: &str, name: &str) -> Result<Option<Pod>, Failure> {
        match within(self.timeout, self.api(namespace).get_opt(name)).await {
            Ok(pod) => Ok(pod.map(Pod::from)),
            Err(error) => Err(failure("get", "pods", &error)),
        }
    }

    /// Lists the pods that a selector matches. This is a consistent read: whatever was written before is in it.
    ///
    /// # Errors
    /// If there is no answer, or a refusal.
    pub async fn list(&self, namespace: &str, selector: &Selector) -> Result<Vec<Pod>, Failure> {
        self.list_by(namespace, &as_text(selector)).await
    }

    /// The same for a selector in the form of a query.
    pub(super) async fn list_by(&self, namespace: &str, selector: &str) -> Result<Vec<Pod>, Failure> {
        let parameters = ListParams::default().labels(selector);
        match within(self.timeout, protobuf::list(&self.api(namespace), &parameters)).await {
            Ok(list) => Ok(list.items.into_iter().map(Pod::from).collect()),
            Err(error) => Err(failure("list", "pods", &error)),
        }
    }

    /// Lists the pods that a selector in the form of a query matches, by the election that has marked them. This is a consistent read,
    /// of the pods' metadata alone.
    pub(super) async fn list_marked(&self, namespace: &str, selector: &str) -> Result<Marked, Failure> {
        let api = self.api(namespace);
        let mut page = ListParams::default().labels(selector).limit(PAGE);
        let mut marked = Marked::new();
        loop {
            let listed = within(self.timeout, protobuf::list_metadata(&api, &page)).await;
            let listed = listed.map_err(|error| failure("list", "pods", &error))?;
            for ObjectMeta { name, annotations, .. } in listed.items.into_iter().map(|pod| pod.metadata) {
                let election = annotations.and_then(|mut all| all.remove(ELECTION_ANNOTATION));
                marked.extend(election.zip(name));
            }
            page.continue_token = listed.metadata.continue_.filter(|token| !token.is_empty());
            if page.continue_token.is_none() {
                return Ok(marked);
            }
        }
    }

    /// Reads the last lines of the logs of the pods with these labels, each with its pod's name.
    ///
    /// # Errors
    /// If the pods can't be listed. Why one log can't be read is in its place.
    pub async fn logs(
        &self,
        namespace: &str,
        labels: &str,
        lines: i64,
    ) -> Result<Vec<(String, Result<String, Failure>)>, Failure> {
        let api = self.api(namespace);
        let listed = within(self.timeout, api.list(&ListParams::default().labels(labels))).await;
        let listed = listed.map_err(|error| failure("list", "pods", &error))?;
        let parameters = LogParams { tail_lines: Some(lines), timestamps: true, ..LogParams::default() };
        let mut logs = Vec::new();
        for name in listed.items.into_iter().filter_map(|pod| pod.metadata.name) {
            let log = within(self.timeout, api.logs(&name, &parameters)).await;
            logs.push((name, log.map_err(|error| failure("get", "pods/log", &error))));
        }
        Ok(logs)
    }

    fn api(&self, namespace: &str) -> Api<SlimPod> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// Returns a selector in the form of a query to the API server.
pub(super) fn as_text(selector: &Selector) -> String {
    let labels = selector.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.match_expressions.iter().map(|requirement| {
        let (key, values) = (&requirement.key, requirement.values.join(","));
        match requirement.operator {
            Operator::In => format!("{key} in ({values})"),
            Operator::NotIn => format!("{key} notin ({values})"),
            Operator::Exists => key.clone(),
            Operator::DoesNotExist => format!("!{key}"),
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn selectors_as_text() {
        let selector: Selector = serde_json::from_value(json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["x", "y"]}, {"key": "b", "operator": "NotIn", "values": ["z"]},
                {"key": "c", "operator": "Exists"}, {"key": "d", "operator": "DoesNotExist"},
            ],
        }))
        .unwrap();
        assert_eq!(as_text(&selector), "app=web,a in (x,y),b notin (z),c,!d");
    }
}
