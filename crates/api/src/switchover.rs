//! `Switchover`: moves the leadership of one election to another pod, once.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lenient::lenient;

/// Moves the leadership of one election to another pod or to another cluster, once. The election must still be in the
/// term that fromTerm names. A Switchover that is created again, for example by a GitOps tool, therefore never moves
/// the leadership a second time.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "lictor.dev",
    version = "v1alpha1",
    kind = "Switchover",
    namespaced,
    shortname = "swo",
    selectable = ".spec.electionName",
    category = "lictor",
    status = "SwitchoverStatus",
    derive = "PartialEq",
    doc = "Moves the leadership of one election to another pod or to another cluster, once.",
    printcolumn(name = "Election", type_ = "string", json_path = ".spec.electionName"),
    printcolumn(name = "To", type_ = "string", json_path = ".status.to.podName"),
    printcolumn(name = "From term", type_ = "integer", json_path = ".spec.fromTerm"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.status=='True')].type"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[*].reason"),
    printcolumn(name = "To cluster", type_ = "string", json_path = ".spec.toClusterName", priority = 1),
    printcolumn(name = "From", type_ = "string", json_path = ".status.from.podName", priority = 1),
    printcolumn(name = "Term", type_ = "integer", json_path = ".status.term", priority = 1),
    printcolumn(name = "Milliseconds", type_ = "integer", json_path = ".status.durationMilliseconds", priority = 1),
    printcolumn(name = "Requested by", type_ = "string", json_path = ".status.requestedBy", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self == oldSelf")
        .message("a Switchover can't be changed: delete it, and create another one"),
    validation = Rule::new("!self.force || has(self.toPodName)")
        .message("spec.force needs spec.toPodName: name the pod that is to lead even if it is not ready or its node is cordoned"),
    validation = Rule::new("!has(self.toClusterName) || !has(self.toPodName)")
        .message("leave out spec.toPodName or spec.toClusterName, because the other cluster itself elects its leader")
)]
pub struct SwitchoverSpec {
    /// The name of the LeaderElection in the same namespace.
    #[schemars(length(min = 1, max = 200))]
    pub election_name: String,

    /// The name of the pod that is to lead. Default: the pod that lictor would elect if the current leader were gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub to_pod_name: Option<String>,

    /// The name of the cluster that is to lead: the clusterName of its ElectionClass. The cluster that leads now demotes
    /// its leader and hands over the lock in a single step, so that no third cluster can take it. The other cluster must
    /// be able to lead: if it does not confirm this in time, the Switchover fails with the reason NotReady, and the
    /// leader stays. Needs a class that keeps its locks in Consul, a bucket or a hub, and can't be combined with toPodName.
    /// Default: the leadership stays in this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub to_cluster_name: Option<String>,

    /// The term that is to end: status.term of the election. If the election is in a later term when the Switchover is
    /// due, the Switchover fails with the reason Superseded, and the leadership does not move.
    #[schemars(range(min = 1))]
    pub from_term: i64,

    /// The earliest time at which lictor acts, by the operator's clock. Default: at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub not_before_time: Option<String>,

    /// How long the Switchover may wait, in seconds from its creation or from notBeforeTime, until nothing blocks it:
    /// the pod becomes ready, the election is no longer paused, another Switchover ends. After that it fails with the
    /// reason DeadlineExceeded. Default: the Switchover does not wait, and fails at once if something blocks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub deadline_seconds: Option<u32>,

    /// Whether toPodName is elected even if it is not ready, lacks a condition in spec.eligibility.conditions of the election,
    /// or its node is cordoned. The pod then has holdSeconds to become ready and to get the conditions before lictor
    /// replaces it like any leader that lacks them. Even with force, lictor does not elect a pod
    /// that is being deleted, has finished, is on a lost node, or has the annotation lictor.dev/never-leader. Default:
    /// false.
    #[serde(default)]
    pub force: bool,

    /// For how long lictor does not preempt the new leader and ranks the old one last among the eligible pods, in
    /// seconds. Within that time, lictor elects the old leader again only if no other pod is eligible. The time ends
    /// early if the Switchover is deleted. Default: 300.
    #[serde(default = "hold_seconds")]
    #[schemars(range(min = 0, max = 2_592_000))]
    pub hold_seconds: u32,

    /// How long lictor keeps the Switchover after it is complete or has failed, in seconds, and at least until
    /// holdSeconds are over. lictor then deletes it. Default: lictor never deletes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub ttl_seconds_after_finished: Option<u32>,

    /// Who asks for the Switchover, shown in the status. A policy of the chart admits only the name of the user who
    /// creates the Switchover. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub requested_by: Option<String>,
}

/// The state of a Switchover, as lictor sees it, and its result.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SwitchoverStatus {
    /// The metadata.generation that this status describes.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The leader that is replaced. Absent until the Switchover is accepted, and if there was no leader then.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub from: Option<SwitchoverPod>,

    /// The pod that is to lead, or leads. It has no uid until the Switchover is accepted. With toClusterName, it is absent
    /// until the Switchover is complete, and stays absent if that cluster elects no pod.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub to: Option<SwitchoverPod>,

    /// The term in which the new leader leads. Absent until the Switchover is complete.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub term: Option<i64>,

    /// The milliseconds from when the Switchover was accepted until the API server confirmed the new leader's label or,
    /// with toClusterName, until the operator saw the record of the other cluster name it. Absent until then, and if
    /// another operator took over in between.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub duration_milliseconds: Option<i64>,

    /// Who asked for the Switchover: spec.requestedBy.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,

    /// The time at which the Switchover was accepted.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub accept_time: Option<Time>,

    /// The time at which the Switchover was complete or had failed.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// Complete is True when the new leader has its label; with toClusterName, when the record of the other cluster names
    /// it. Failed is True when the Switchover has ended in any other way. Accepted is True when nothing blocked the
    /// Switchover and lictor has begun, False if lictor refuses it, and Unknown while it waits; the reason and the
    /// message say for what. Complete and Failed are never present together.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A pod that leads, has led, or is to lead.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SwitchoverPod {
    /// The pod's name.
    pub pod_name: String,
    /// The pod's uid.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
}

fn hold_seconds() -> u32 {
    300
}
