//! Nodes, as a slim type, because only a small part of a node matters here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::iter;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource};
use lictor_core::{Failure, Node};
use lictor_kubernetes::{failure, within};
use serde::{Deserialize, Serialize};

/// The number of nodes that are read at once.
const AT_ONCE: usize = 16;

/// The taints of nodes that no longer run pods: the node controller can't reach them, or the cloud or a person says that they are shut
/// down.
const LOST_TAINTS: [&str; 4] = [
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/not-ready",
    OUT_OF_SERVICE,
    "node.cloudprovider.kubernetes.io/shutdown",
];

/// E1: the taint by which a person, or a program, says that a node is shut down, so that its pods can run elsewhere.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The taints of nodes that still run pods, but not for long. They count like `spec.unschedulable`, which has a taint of its own that some
/// tools write alone. Taints that may be taken back, like `DeletionCandidateOfClusterAutoscaler`, are not among them.
const LEAVING_TAINTS: [&str; 5] = [
    "node.kubernetes.io/unschedulable",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "cloud.google.com/impending-node-termination",
];

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
    pub(super) reason: Option<String>,
}

impl From<SlimNode> for Node {
    fn from(node: SlimNode) -> Self {
        let SlimNode { metadata, spec, status } = node;
        let tainted = |by: &[&str]| spec.taints.iter().any(|taint| by.contains(&taint.key.as_str()));
        // A node without the condition is new: its kubelet has not reported yet.
        let not_ready = status.conditions.iter().any(|c| c.type_ == "Ready" && c.status != "True");
        Self {
            lost: tainted(&LOST_TAINTS) || not_ready,
            cordoned: spec.unschedulable || tainted(&LEAVING_TAINTS),
            out_of_service: tainted(&[OUT_OF_SERVICE]),
            labels: metadata.labels.unwrap_or_default().into(),
        }
    }
}

/// Reads these nodes, as they are now. A node that does not exist is left out.
///
/// # Errors
/// If there is no answer, or a refusal.
pub async fn read_nodes(
    client: &Client,
    names: BTreeSet<String>,
    timeout: Duration,
) -> Result<BTreeMap<String, Node>, Failure> {
    let api: Api<SlimNode> = Api::all(client.clone());
    let read = |name: String| async {
        let read = within(timeout, api.get_opt(&name)).await;
        let read = read.map_err(|error| failure("get", "nodes", &error))?;
        Ok(read.map(|node| (name, Node::from(node))))
    };
    iter(names).map(read).buffer_unordered(AT_ONCE).try_filter_map(|node| async { Ok(node) }).try_collect().await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(spec: &serde_json::Value) -> (bool, bool) {
        let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let node: SlimNode = serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap();
        let node = Node::from(node);
        (node.lost, node.cordoned)
    }

    #[test]
    fn what_taints_mean() {
        let tainted = |key: &str| node(&json!({"taints": [{"key": "other"}, {"key": key, "effect": "NoSchedule"}]}));
        for key in ["node.kubernetes.io/out-of-service", "node.cloudprovider.kubernetes.io/shutdown"] {
            assert_eq!(tainted(key), (true, false), "{key}");
        }
        for key in ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "node.kubernetes.io/unschedulable"] {
            assert_eq!(tainted(key), (false, true), "{key}");
        }
        for key in ["DeletionCandidateOfClusterAutoscaler", "node-role.kubernetes.io/control-plane"] {
            assert_eq!(tainted(key), (false, false), "{key}");
        }
        assert_eq!(node(&json!({"unschedulable": true})), (false, true));
    }
}
