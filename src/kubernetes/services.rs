//! Services, as a slim type: only a Service without a selector can reach a leader by a slice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Client, Resource};
use lictor_core::{Failure, Family, Service, ServicePort, TargetPort, Uid, Version};
use serde::{Deserialize, Serialize};

use super::{Change, Namespaces, changes, failure, version_of, within};

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
        let name = metadata.name.unwrap_or_default();
        let usable = if spec.type_.as_deref() == Some("ExternalName") {
            Err(ServiceDefect::ExternalName)
        } else if !spec.selector.is_empty() {
            Err(ServiceDefect::HasSelector)
        } else {
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
        }
    }
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
    /// The labels that a pod must have to be reached. Empty if another program writes whom the Service reaches.
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
    use serde_json::{Value, json};

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
