//! What the classes share that keep their locks in objects: their session, and what their status says.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shared::number;

/// The session that holds the locks.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.pollSeconds * 3 <= self.ttlSeconds")
        .message("sessions.pollSeconds may be at most a third of ttlSeconds, so that one answer may be late")
)]
pub struct ObjectSessions {
    /// How long lictor may act after its last renewal of the session, in seconds, 5 to 86400. If lictor stops renewing,
    /// other clusters take its locks over after a third more than this time, and pollSeconds. A standby has to act before
    /// that, so this should be more than one and a half times the operator's lease duration. Default: 30.
    #[serde(default = "number::<30>")]
    #[schemars(range(min = 5, max = 86400))]
    pub ttl_seconds: u32,

    /// How often lictor looks into the store while clusters hand locks over or a session looks late, in seconds; at other
    /// times it looks every third of ttlSeconds. At least 1, and at most a third of ttlSeconds. Default: 1.
    #[serde(default = "number::<1>")]
    #[schemars(range(min = 1, max = 28800))]
    pub poll_seconds: u32,
}

impl Default for ObjectSessions {
    fn default() -> Self {
        Self { ttl_seconds: 30, poll_seconds: 1 }
    }
}

/// The state of the store of objects that keeps the locks.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ObjectsStatus {
    /// The session that holds this cluster's locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,

    /// The other clusters that have a session in the store, sorted by their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub clusters: Vec<ObjectsCluster>,
}

/// Another cluster that has a session in the store.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ObjectsCluster {
    /// The cluster's name: the clusterName of its class.
    pub name: String,

    /// Whether the cluster renews its session. Its locks are free if it does not.
    pub live: bool,
}
