//! Services, as a slim type: only a Service without a selector can reach a leader by a slice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use lictor_api::{GROUP, LeaderElection, LeaderService, LeaderServicePort, LeaderServiceType};
use lictor_core::{ELECTION_ANNOTATION, Failure, Family, Service, ServicePort, TargetPort, Uid, Version};
use lictor_kubernetes::{Change, LICTOR, MANAGED_BY, changes, failure, version_of, within};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Namespaces;

/// The annotation, on a Service that lictor has created, with the names of the labels and annotations that it has written.
pub(super) const WRITTEN_ANNOTATION: &str = "lictor.dev/service-keys";

/// A Service as the API server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceObject {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: Uid,
    /// The observed version.
    pub version: Version,
    /// The part of the Service that matters, if a leader can be reached through it.
    pub usable: Result<Service, ServiceDefect>,
    /// The ports at which clients reach the Service, in the order of `usable`.
    pub ports: Vec<u16>,
    /// The type, if lictor can create such a Service.
    pub kind: Option<LeaderServiceType>,
    /// The election that the Service belongs to, by its uid or, if the owner was taken off, by its name.
    pub owner: Option<ServiceOwner>,
    /// The labels and annotations that lictor has written, apart from its own.
    pub written: WrittenKeys,
    /// Whether the Service is being deleted.
    pub deleting: bool,
}

/// The election for which lictor has created a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceOwner {
    /// The election with this name and uid, which owns the Service.
    Election(String, Uid),
    /// An election of this name, which was deleted without its dependents.
    Orphan(String),
}

/// Names of labels and annotations, as an annotation of a Service lists them, so that those that a later spec lacks are taken off.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(default)]
pub struct WrittenKeys {
    /// The Service's uid, or nothing just after its creation. A copy of the Service has another one.
    pub(super) uid: String,
    pub(super) labels: BTreeSet<String>,
    pub(super) annotations: BTreeSet<String>,
}

impl ServiceObject {
    /// Whether lictor has created the Service for this very election.
    pub fn is_owned_by(&self, election: &Uid) -> bool {
        matches!(&self.owner, Some(ServiceOwner::Election(_, owner)) if owner == election)
    }

    /// The name of the election that the Service belongs to, if lictor has created it.
    pub fn election(&self) -> Option<&str> {
        self.owner.as_ref().map(|(ServiceOwner::Election(name, _) | ServiceOwner::Orphan(name))| name.as_str())
    }

    /// Whether lictor has created the Service for this election, or for one of its name that was deleted without its dependents.
    pub fn is_of(&self, election: &Uid, name: &str) -> bool {
        self.is_owned_by(election) || matches!(&self.owner, Some(ServiceOwner::Orphan(of)) if of == name)
    }

    /// Whether the Service has the ports and the type that an election asks for, so that nothing has to be changed.
    pub fn fits(&self, wanted: &LeaderService) -> bool {
        let Ok(service) = &self.usable else { return false };
        let has = |port: &LeaderServicePort| {
            let ServicePort { name, protocol, target, .. } = ServicePort::from(slim(port));
            let same = |(own, number): (&ServicePort, &u16)| {
                *number == port.port && own.name == name && own.protocol == protocol && own.target == target
            };
            service.ports.iter().zip(&self.ports).any(same)
        };
        self.kind == Some(wanted.type_.unwrap_or(LeaderServiceType::ClusterIP))
            && self.ports.len() == wanted.ports.len()
            && wanted.ports.iter().all(has)
    }
}

/// A port as the API server would have it.
fn slim(port: &LeaderServicePort) -> SlimPort {
    SlimPort {
        name: port.name.clone().unwrap_or_default(),
        protocol: json!(port.protocol).as_str().map(str::to_owned),
        app_protocol: port.app_protocol.clone(),
        port: port.port.into(),
        target_port: port.target_port.clone(),
    }
}

/// Why no leader can be reached through a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceDefect {
    /// The Service has a selector, so Kubernetes writes its slices.
    HasSelector,
    /// The Service is only another name of something outside.
    ExternalName,
}

#[derive(Clone, Debug, Deserialize, Serialize, Resource)]
#[resource(inherit = k8s::Service)]
struct SlimService {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimSpec,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimSpec {
    #[serde(rename = "type")]
    type_: Option<String>,
    selector: BTreeMap<String, String>,
    ip_families: Vec<String>,
    ports: Vec<SlimPort>,
    publish_not_ready_addresses: bool,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct SlimPort {
    #[serde(default)]
    name: String,
    protocol: Option<String>,
    app_protocol: Option<String>,
    port: i32,
    target_port: Option<IntOrString>,
}

impl From<SlimService> for ServiceObject {
    fn from(object: SlimService) -> Self {
        let version = version_of(&object);
        let SlimService { metadata, spec } = object;
        let note = metadata.annotations.as_ref().and_then(|annotations| annotations.get(WRITTEN_ANNOTATION));
        let note = note.and_then(|text| serde_json::from_str::<WrittenKeys>(text).ok());
        let note = note.filter(|note| note.uid.is_empty() || Some(&note.uid) == metadata.uid.as_ref());
        let owner = owner_of(&metadata, note.is_some());
        let written = note.unwrap_or_default();
        let kind = match spec.type_.as_deref() {
            None | Some("ClusterIP") => Some(LeaderServiceType::ClusterIP),
            Some("NodePort") => Some(LeaderServiceType::NodePort),
            Some("LoadBalancer") => Some(LeaderServiceType::LoadBalancer),
            Some(_) => None,
        };
        let name = metadata.name.unwrap_or_default();
        let mut ports = Vec::new();
        let usable = if spec.type_.as_deref() == Some("ExternalName") {
            Err(ServiceDefect::ExternalName)
        } else if !spec.selector.is_empty() {
            Err(ServiceDefect::HasSelector)
        } else {
            ports.extend(spec.ports.iter().map(|port| u16::try_from(port.port).unwrap_or_default()));
            Ok(Service {
                name: name.clone(),
                families: [Family::V4, Family::V6]
                    .into_iter()
                    .filter(|family| spec.ip_families.iter().any(|word| word == family.word()))
                    .collect(),
                ports: spec.ports.into_iter().map(ServicePort::from).collect(),
                publish_not_ready: spec.publish_not_ready_addresses,
                others: BTreeSet::new(),
            })
        };
        Self {
            namespace: metadata.namespace.unwrap_or_default(),
            name,
            uid: Uid(metadata.uid.unwrap_or_default()),
            version,
            usable,
            ports,
            kind,
            owner,
            written,
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

/// The election that a Service belongs to, if lictor has created it.
fn owner_of(metadata: &ObjectMeta, noted: bool) -> Option<ServiceOwner> {
    let owners = &metadata.owner_references.as_deref().unwrap_or_default();
    let is_election = |owner: &&OwnerReference| {
        owner.kind == LeaderElection::kind(&()) && owner.api_version.split('/').next() == Some(GROUP)
    };
    if let Some(owner) = owners.iter().find(is_election) {
        return Some(ServiceOwner::Election(owner.name.clone(), Uid(owner.uid.clone())));
    }
    let labelled = metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|by| by == LICTOR);
    let is_own = labelled && noted;
    let mark = metadata.annotations.as_ref().and_then(|annotations| annotations.get(ELECTION_ANNOTATION));
    mark.filter(|_| is_own && owners.is_empty()).cloned().map(ServiceOwner::Orphan)
}

impl From<SlimPort> for ServicePort {
    fn from(SlimPort { name, protocol, app_protocol, port, target_port }: SlimPort) -> Self {
        // The API server takes no other numbers than those of ports.
        let number = |number: i32| TargetPort::Number(number.try_into().unwrap_or_default());
        let target = match target_port {
            Some(IntOrString::String(name)) if !name.is_empty() => TargetPort::Name(name),
            Some(IntOrString::Int(target)) if target > 0 => number(target),
            _ => number(port),
        };
        Self { name, protocol: protocol.unwrap_or_else(|| "TCP".into()), app_protocol, target }
    }
}

/// The labels by which a Service reaches pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSelector {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The labels that a pod must have to be reached. Empty if another program writes the Service's slices.
    pub selector: BTreeMap<String, String>,
}

/// Lists the Services that reach pods.
///
/// # Errors
/// If there is no answer, or a refusal.
pub async fn list_services(
    client: &Client,
    namespaces: &Namespaces,
    timeout: Duration,
) -> Result<Vec<ServiceSelector>, Failure> {
    let mut found = Vec::new();
    for (_, api) in namespaces.apis::<SlimService>(client) {
        let listed = within(timeout, api.list(&ListParams::default())).await;
        let listed = listed.map_err(|error| failure("list", "services", &error))?;
        let reach_pods = listed.items.into_iter().filter(|one| one.spec.type_.as_deref() != Some("ExternalName"));
        found.extend(reach_pods.map(|SlimService { metadata, spec }| ServiceSelector {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            selector: spec.selector,
        }));
    }
    Ok(found)
}

/// Reads a Service. `None`: there is none of that name.
///
/// # Errors
/// If there is no answer, or a refusal.
pub async fn read_service(
    client: &Client,
    namespace: &str,
    name: &str,
    timeout: Duration,
) -> Result<Option<ServiceObject>, Failure> {
    let api: Api<SlimService> = Api::namespaced(client.clone(), namespace);
    let read = within(timeout, api.get_opt(name)).await;
    read.map(|found| found.map(ServiceObject::from)).map_err(|error| failure("get", "services", &error))
}

/// Watches all Services, whether or not an election names them. The operator keeps almost nothing of a Service through which no leader can
/// be reached.
pub fn watch_services(client: &Client, namespaces: &Namespaces) -> BoxStream<'static, Change<ServiceObject>> {
    let apis = namespaces.apis::<SlimService>(client);
    let watches = apis.into_iter().map(|(scope, api)| {
        changes("services", scope, api, ListParams::default(), |service: SlimService| ServiceObject::from(service))
    });
    select_all(watches).boxed()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn service(spec: &Value) -> ServiceObject {
        let object = json!({
            "metadata": {"name": "web-leader", "namespace": "shop", "uid": "u", "resourceVersion": "3"}, "spec": spec,
        });
        serde_json::from_value::<SlimService>(object).unwrap().into()
    }

    #[test]
    fn what_matters_of_a_service_without_a_selector() {
        let found = service(&json!({
            "type": "ClusterIP", "ipFamilies": ["IPv6", "IPv4"], "publishNotReadyAddresses": true,
            "ports": [
                {"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP", "appProtocol": "kubernetes.io/h2c"},
                {"name": "dns", "port": 53, "targetPort": 5353, "protocol": "UDP"},
                {"name": "raw", "port": 7000},
            ],
        }));
        assert_eq!((found.namespace.as_str(), found.name.as_str(), found.version), ("shop", "web-leader", Version(3)));
        let usable = found.usable.unwrap();
        assert_eq!((usable.families, usable.publish_not_ready), (vec![Family::V4, Family::V6], true));
        let ports: Vec<_> = usable.ports.iter().map(|port| (port.protocol.as_str(), &port.target)).collect();
        let [named, given, default] =
            [TargetPort::Name("web".into()), TargetPort::Number(5353), TargetPort::Number(7000)];
        assert_eq!(ports, [("TCP", &named), ("UDP", &given), ("TCP", &default)]);
        assert_eq!(usable.ports[0].app_protocol.as_deref(), Some("kubernetes.io/h2c"));
    }

    #[test]
    fn those_through_which_nobody_can_be_reached() {
        let selects = service(&json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}));
        assert_eq!(selects.usable, Err(ServiceDefect::HasSelector));
        let outside = service(&json!({"type": "ExternalName", "externalName": "db.example"}));
        assert_eq!(outside.usable, Err(ServiceDefect::ExternalName));
        assert!(service(&json!({"selector": {}, "ports": [{"port": 80}]})).usable.is_ok());
    }
}
