//! `ElectionClass.spec.hub`: which cluster keeps the locks, and how lictor reaches and uses it.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::objects::ObjectSessions;
use super::shared::{LockPolicy, LostCluster, SecretKeyRef};

/// Keeps the locks in Leases in a namespace of one cluster, the hub. All clusters whose classes name the same namespace
/// of the same hub elect one leader together.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HubStore {
    /// The namespace in the hub. lictor reads all Leases there, so give it a namespace of its own. This field must be the
    /// same in all clusters that share the locks, and can't be changed.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')").message("hub.namespace may have lower-case letters, digits and '-', and must begin and end with a letter or digit, for example lictor-locks"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("hub.namespace can't be changed, because running elections have their locks there: make another class"))]
    pub namespace: String,

    /// The Secret with a kubeconfig of the hub, which holds everything itself: it may name no files and run no programs.
    /// lictor reads the Secret again when it changes. Default: this cluster is the hub, and lictor reaches it as its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<SecretKeyRef>,

    /// This cluster's name in the records of locks and in status.leader.clusterName. Each class that has the same hub and
    /// namespace needs its own name, in this cluster and in all others. At most 63 lower-case letters, digits and '-',
    /// with a letter or digit at both ends. This field can't be changed.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')").message("hub.clusterName may have lower-case letters, digits and '-', and must begin and end with a letter or digit, for example west"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("hub.clusterName can't be changed, because the locks of running elections name it: make another class"))]
    pub cluster_name: String,

    /// The session that holds the locks: a Lease that lictor renews. All elections of the class share it.
    #[serde(default)]
    pub sessions: ObjectSessions,

    /// Controls what lictor does with its locks while it can reach the hub but not this cluster's API server.
    #[serde(default)]
    pub when_cluster_is_lost: LostCluster,

    /// Controls what the acting operator does with its locks when SIGTERM stops it. Hold (default): it keeps them for
    /// the replica that acts next, until the session expires. Release: it demotes its leaders and releases the locks at
    /// once so that other clusters can acquire them, even if another replica of this cluster stands by.
    #[serde(default)]
    pub when_operator_stops: LockPolicy,
}
