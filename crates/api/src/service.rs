//! `spec.service`: the Service through which clients reach the leader.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The Service through which clients reach the leader. With ports, lictor creates the Service. Without ports, the
/// Service is yours.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.ports) && size(self.ports) > 0 || !(has(self.type) || has(self.labels) || has(self.annotations) || has(self.ipFamilyPolicy) || has(self.ipFamilies))")
        .message("service.type, labels, annotations, ipFamilyPolicy and ipFamilies describe a Service that lictor creates, and without service.ports lictor creates none: write the ports, or write these fields into your own Service"),
    validation = Rule::new("!has(self.ports) || size(self.ports) < 2 || self.ports.all(port, has(port.name))")
        .message("a Service with several ports needs a name for each: write service.ports[].name, for example http"),
    validation = Rule::new("!has(self.annotations) || self.annotations.all(key, !key.startsWith('lictor.dev/'))")
        .message("service.annotations has a name that lictor writes itself (lictor.dev/...): write another name"),
    validation = Rule::new("!has(self.labels) || self.labels.all(key, key != 'app.kubernetes.io/managed-by' && !key.startsWith('lictor.dev/'))")
        .message("service.labels has a name that lictor writes itself (app.kubernetes.io/managed-by or lictor.dev/...): write another name")
)]
pub struct LeaderService {
    /// The name of a Service in this namespace that no other election names. At most 63 lower-case letters, digits and
    /// '-', with a letter or digit at both ends. The slices are named NAME-lictor-ipv4 and NAME-lictor-ipv6.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')").message("service.name may have lower-case letters, digits and '-', and must begin and end with a letter or digit, for example web-leader"))]
    pub name: String,

    /// The ports. lictor then creates a Service without a selector, keeps it as this spec says, and deletes it with the
    /// election. It refuses to change a Service that it did not create. Default: none. The Service is then yours, and
    /// must have no selector.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["port", "protocol"]))]
    pub ports: Vec<LeaderServicePort>,

    /// The type of the Service. Default: ClusterIP.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<LeaderServiceType>,

    /// Labels of the Service. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub labels: BTreeMap<String, String>,

    /// Annotations of the Service, for example those that a load balancer reads. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub annotations: BTreeMap<String, String>,

    /// Whether the Service has addresses of one family or of both, as in a Service. Default: SingleStack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_family_policy: Option<IpFamilyPolicy>,

    /// The families of addresses, as in a Service. Default: those of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "atomic"))]
    pub ip_families: Vec<IpFamily>,
}

/// A port of the Service.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LeaderServicePort {
    /// The name, which a Service with several ports needs: at most 63 lower-case letters, digits and '-'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')").message("service.ports[].name may have lower-case letters, digits and '-', and must begin and end with a letter or digit, for example http"))]
    pub name: Option<String>,

    /// The port at which clients reach the Service, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,

    /// The port of the leader's pod, as a number or as the name of a container's port. Default: the same as port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<IntOrString>,

    /// The protocol. Default: TCP.
    #[serde(default)]
    pub protocol: Protocol,

    /// The protocol of the application, as in a Service, for example kubernetes.io/h2c. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub app_protocol: Option<String>,

    /// The port on each node, 1 to 65535, for a Service of the type NodePort or LoadBalancer. Default: Kubernetes
    /// chooses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub node_port: Option<u16>,
}

/// The type of a Service.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum LeaderServiceType {
    /// The Service has an address inside the cluster.
    ClusterIP,
    /// The Service also has a port on each node.
    NodePort,
    /// The Service also has a load balancer outside of the cluster.
    LoadBalancer,
}

/// The protocol of a port.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[allow(missing_docs, clippy::upper_case_acronyms, reason = "the names are Kubernetes' own")]
pub enum Protocol {
    #[default]
    TCP,
    UDP,
    SCTP,
}

/// The number of families of addresses.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum IpFamilyPolicy {
    /// One family.
    SingleStack,
    /// Both families, if the cluster has both.
    PreferDualStack,
    /// Both families.
    RequireDualStack,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Kubernetes' own")]
pub enum IpFamily {
    IPv4,
    IPv6,
}

impl LeaderService {
    /// Returns whether lictor creates the Service.
    pub fn is_created(&self) -> bool {
        !self.ports.is_empty()
    }

    /// Returns the `spec` of the Service that lictor creates. A patch with it sets each field that the election names, and the
    /// list of ports as a whole.
    pub fn service_spec(&self) -> Value {
        let mut spec = json!({"ports": self.ports, "type": self.type_.unwrap_or(LeaderServiceType::ClusterIP)});
        if let Some(policy) = self.ip_family_policy {
            spec["ipFamilyPolicy"] = json!(policy);
        }
        if !self.ip_families.is_empty() {
            spec["ipFamilies"] = json!(self.ip_families);
        }
        spec
    }
}
