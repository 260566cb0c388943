//! Nodes, as a slim type, because only little of a node matters here.

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use lictor_core::Node;
use serde::{Deserialize, Serialize};

/// The taints that the node controller puts on nodes that can't run pods any more.
const LOST_TAINTS: [&str; 2] = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];

/// The parts of a node that matter here.
#[derive(Clone, Debug, Default, Deserialize, Serialize, Resource)]
#[resource(inherit = k8s::Node)]
pub struct SlimNode {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimSpec,
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct SlimSpec {
    #[serde(default)]
    unschedulable: bool,
    #[serde(default)]
    taints: Vec<SlimTaint>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct SlimTaint {
    key: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct SlimStatus {
    #[serde(default)]
    conditions: Vec<SlimCondition>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct SlimCondition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    #[serde(rename = "lastTransitionTime")]
    pub(super) last_transition_time: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
}

impl From<SlimNode> for Node {
    fn from(node: SlimNode) -> Self {
        let SlimNode { metadata, spec, status } = node;
        let tainted = spec.taints.iter().any(|taint| LOST_TAINTS.contains(&taint.key.as_str()));
        // A node without the condition is new: its kubelet has not reported yet.
        let not_ready = status.conditions.iter().any(|c| c.type_ == "Ready" && c.status != "True");
        Self { labels: metadata.labels.unwrap_or_default(), lost: tainted || not_ready, cordoned: spec.unschedulable }
    }
}
