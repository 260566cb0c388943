//! `LeaderElection`: one group of pods, one of which leads.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use lictor_core::KUBERNETES_CONDITIONS;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LONGEST_VALUE;
use super::followed_lock::{ElectedBy, FollowedLock, FollowedLockStatus};
use super::lenient::lenient;
use super::probe::Probe;
use super::reserved;
use super::selector::{LabelSelector, map_of_strings, short_values};
use super::service::LeaderService;
use super::workload::{Workload, WorkloadsStatus};

/// A CEL expression for the labels in effect. The schema deliberately has no default, because the API server would
/// store it in the object and add labels that a user applies later to it instead of replacing it.
macro_rules! leader_labels {
    () => {
        "(has(self.leader) && has(self.leader.labels) ? self.leader.labels : {'role': 'leader'})"
    };
}
macro_rules! follower_labels {
    () => {
        "(has(self.follower) && has(self.follower.labels) ? self.follower.labels : {'role': 'follower'})"
    };
}

/// A CEL expression: the annotation of the preference `p` is one that the election writes on pods of this role.
macro_rules! written_on {
    ($role:literal) => {
        concat!(
            "(has(self.",
            $role,
            ") && has(self.",
            $role,
            ".annotations) && p.byAnnotation in self.",
            $role,
            ".annotations)"
        )
    };
}

/// Elects one leader among the pods that the selector matches, and labels it. A Service whose selector includes the
/// leader's label reaches only the leader. Jobs, CronJobs, Deployments and StatefulSets can follow the leader: they run
/// only in the leader's cluster.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "lictor.dev",
    version = "v1alpha1",
    kind = "LeaderElection",
    namespaced,
    shortname = "le",
    selectable = ".spec.className",
    category = "lictor",
    status = "LeaderElectionStatus",
    derive = "PartialEq",
    doc = "Elects one leader among the pods that its selector matches, and labels it.",
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Leader", type_ = "string", json_path = ".status.leader.name"),
    printcolumn(name = "Term", type_ = "integer", json_path = ".status.term"),
    printcolumn(name = "Candidates", type_ = "string", json_path = ".status.candidates.summary"),
    printcolumn(name = "Class", type_ = "string", json_path = ".status.className"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.leader.nodeName", priority = 1),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".status.leader.clusterName", priority = 1),
    printcolumn(name = "Holder", type_ = "string", json_path = ".status.followedLock.holder", priority = 1),
    printcolumn(name = "Workloads", type_ = "string", json_path = ".status.conditions[?(@.type=='WorkloadsFollow')].reason", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 200").message("metadata.name is longer than 200 characters: choose a shorter name")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(concat!(leader_labels!(), ".exists(k, !(k in ", follower_labels!(), ") || ", follower_labels!(), "[k] != ", leader_labels!(), "[k])"))
        .message("spec.leader.labels and spec.follower.labels are the same, so the leader could not be told apart: give one label different values, for example role: leader and role: follower"),
    validation = Rule::new(concat!("!has(self.selector) || !has(self.selector.matchLabels) || !self.selector.matchLabels.exists(k, k in ", leader_labels!(), " || k in ", follower_labels!(), ")"))
        .message("spec.selector.matchLabels contains a label that this election writes itself, so a pod would leave the group when it is elected: select the pods by another label, such as app"),
    validation = Rule::new(concat!("!has(self.selector) || !has(self.selector.matchExpressions) || !self.selector.matchExpressions.exists(e, e.key in ", leader_labels!(), " || e.key in ", follower_labels!(), ")"))
        .message("spec.selector.matchExpressions contains a label that this election writes itself, so a pod would leave the group when it is elected: select the pods by another label, such as app"),
    validation = Rule::new("has(self.selector) || !(has(self.probe) || (has(self.sharedStore) && has(self.sharedStore.consulService)) || has(self.service) || has(self.leader) || has(self.follower) || (has(self.preferences) && size(self.preferences) > 0) || (has(self.eligibility) && has(self.eligibility.conditions) && size(self.eligibility.conditions) > 0))")
        .message("spec.probe, spec.sharedStore.consulService, spec.service, spec.preferences, spec.eligibility.conditions, spec.leader and spec.follower are about pods, but without spec.selector the cluster itself is the candidate: write a selector, or leave them out"),
    validation = Rule::new("has(self.selector) || !has(self.handover) || !has(self.handover.formerLeader) || self.handover.formerLeader == 'Keep'")
        .message("spec.handover.formerLeader is about pods, but without spec.selector the cluster itself is the candidate: write a selector, or leave it out"),
    validation = Rule::new("!has(self.selector) || !has(self.eligibility) || !has(self.eligibility.availableDeploymentName)")
        .message("spec.eligibility.availableDeploymentName is for elections without spec.selector, where the cluster itself is the candidate: leave one of the two out"),
    validation = Rule::new("!has(self.eligibility) || !has(self.eligibility.availableDeploymentName) || !has(self.workloads) || !self.workloads.exists(w, w.kind == 'Deployment' && w.name == self.eligibility.availableDeploymentName)")
        .message("spec.eligibility.availableDeploymentName names a Deployment that is in spec.workloads too, so it would have to run before it may run: name one that always runs"),
    validation = Rule::new(concat!("!has(self.preferences) || !self.preferences.exists(p, has(p.byAnnotation) && (", written_on!("leader"), " || ", written_on!("follower"), "))"))
        .message("spec.preferences[].byAnnotation names an annotation that this election writes itself: name one that a program of yours writes, such as example.com/lag"),
    validation = Rule::new("(has(self.electedBy) && self.electedBy == 'Candidates') == has(self.followedLock)")
        .message("spec.followedLock names the lock that the candidates hold, and goes with spec.electedBy: Candidates: write both, or leave both out"),
    validation = Rule::new("!has(self.followedLock) || has(self.selector)")
        .message("spec.electedBy: Candidates needs spec.selector: the leader is the pod that holds the lock in spec.followedLock"),
    validation = Rule::new("!has(self.probe) || !has(self.probe.connection) || has(self.probe.connection.port) || !self.probe.connection.enabled || has(self.service)")
        .message("probe.connection needs a port, because there is no spec.service: write for example connection: {port: 8080}"),
    validation = Rule::new("!has(self.followedLock) || !(has(self.probe) || (has(self.preemption) && self.preemption != 'Never') || (has(self.preferences) && size(self.preferences) > 0))")
        .message("spec.probe, spec.preemption and spec.preferences control which pod lictor elects, but with spec.electedBy: Candidates the candidates elect the leader themselves: leave them out")
)]
pub struct LeaderElectionSpec {
    /// The name of the ElectionClass that says where the lock is kept and which lictor serves this election. Default:
    /// the class with the annotation lictor.dev/is-default-class: "true". If there is none, the built-in class "lease",
    /// which keeps the lock in a Lease in the election's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub class_name: Option<String>,

    /// The pods of this namespace that are candidates. If this field is left out, the cluster itself is the only
    /// candidate here. Use this for an election between clusters that share a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub selector: Option<LabelSelector>,

    /// The name of the lock in its store: the name of the Lease, or the key in Consul, a bucket or a hub. It must match the
    /// keyPattern of the class. Default: the name that the keyTemplate of the class gives, which by default is {name} for
    /// Leases and services/{namespace}/{name}/leader for Consul, buckets and hubs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub key: Option<String>,

    /// The number of the first term. Default: One.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_term: Option<FirstTerm>,

    /// Selects who elects the leader. Operator (default): lictor does. Candidates: the candidates do, with their own
    /// lock. The leader is the pod that holds the lock in spec.followedLock, as long as it is eligible. lictor follows
    /// that lock, and maintains the labels, the status, the workloads and the routing. The label lags behind the lock,
    /// so a pod must act on the lock and not on the label.
    #[serde(default)]
    pub elected_by: ElectedBy,

    /// The lock that the candidates hold if spec.electedBy is Candidates. lictor only reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed_lock: Option<FollowedLock>,

    /// Which candidates may be elected. Regardless of these settings, lictor never elects a pod that is being deleted,
    /// has finished, or is on a lost or cordoned node.
    #[serde(default)]
    pub eligibility: Eligibility,

    /// What ranks eligible pods. lictor elects the pod with the highest annotation lictor.dev/priority (an integer,
    /// default 0). Ties are broken by this list, in its order, then by the leader label that a pod already carries, then
    /// by the newest template of the pod's Deployment, StatefulSet or DaemonSet, then by the longest time ready, then by
    /// name. No entry of this list moves a healthy leader. Default: an empty list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub preferences: Vec<Preference>,

    /// Whether another pod can replace a healthy leader. Never (default): a leader stays until it fails.
    /// HigherPriority: an eligible pod with a higher annotation lictor.dev/priority takes over at once.
    #[serde(default)]
    pub preemption: Preemption,

    /// The labels and annotations of the leader. Default: the label role: leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<Marking>,

    /// The labels and annotations of the other candidates. Default: the label role: follower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follower: Option<Marking>,

    /// Controls what lictor does with a pod on which one of these labels or annotations already has a value that this
    /// election did not write. Refuse (default): lictor writes nothing to that pod, and the pod is not a candidate; the
    /// status says so. Replace: lictor writes its own value, keeps the previous one in the pod's annotation
    /// lictor.dev/replaced, and restores it when the election is deleted. In both cases, lictor adopts a value that was
    /// set by hand and equals the one that this election would write. lictor never writes a label by which the pod's
    /// controller selects its pods.
    #[serde(default)]
    pub when_label_in_use: WhenLabelInUse,

    /// How lictor hands the leadership from one pod to the next.
    #[serde(default)]
    pub handover: Handover,

    /// Checks the leader over the network, to find a leader that hangs or whose process has ended while it still looks
    /// ready. Default: none. lictor then looks only at the pod's condition Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,

    /// What matters only for a class that keeps its locks in a store that several clusters share: Consul, a bucket or a
    /// hub.
    #[serde(default)]
    pub shared_store: SharedStore,

    /// The Service through which clients reach the leader. lictor writes its EndpointSlices, one for each address family.
    /// Each slice lists only the leader, so a single write replaces the old leader with the new one. Default: none. A
    /// Service of your own that selects the leader's label reaches the leader, too, a second later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<LeaderService>,

    /// The workloads of this namespace that run only while this cluster leads. lictor enables them while the leader is
    /// a pod of this cluster, or this cluster itself if there is no selector. Otherwise it disables them: a CronJob or
    /// Job by spec.suspend, a Deployment or StatefulSet by 0 replicas. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["kind", "name"]))]
    pub workloads: Vec<Workload>,

    /// Freezes the election. lictor keeps the lock, but promotes, demotes and labels no pod, and enables and disables
    /// no workload. A handover that has begun is still completed. Default: false.
    #[serde(default)]
    pub paused: bool,
}

/// The number of the first term. One (default): 1. CreationTime: the number of seconds from the beginning of 2026 until
/// the election was created. The terms of an election that is deleted and applied again then continue above its earlier
/// terms, unless its leader changed more often than once a second. Choose CreationTime if another system compares
/// terms. If you set it later, the next term starts at that number.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum FirstTerm {
    /// 1.
    One,
    /// The number of seconds from the beginning of 2026 until the election was created.
    CreationTime,
}

/// Which candidates may be elected.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(conditions_rule())
        .message("eligibility.conditions has the name of a condition of Kubernetes itself, or one that is not valid: write the type of a condition that a program of yours sets on its pod, for example example.com/caught-up. requireReady is about the condition Ready")
)]
pub struct Eligibility {
    /// Whether a pod must have the condition Ready to be elected and to remain the leader. Default: true.
    #[serde(default = "yes")]
    pub require_ready: bool,

    /// The types of at most 4 conditions of pods. A pod must have each of them with the status True to be elected and to
    /// remain the leader, as with the condition Ready: spec.handover.failoverDelaySeconds is also the time that a leader
    /// has to get a condition back. A program, such as a sidecar, sets them in the pod's status; a readiness gate is not
    /// needed. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(min = 1, max = 317)), extend("x-kubernetes-list-type" = "set"))]
    pub conditions: Vec<String>,

    /// How long lictor must have seen a pod ready before it may elect it, in seconds, 0 to 86400. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86400))]
    pub min_ready_seconds: u32,

    /// Whether a leader on a cordoned node, or on a node that is tainted because it is about to be removed, gives way
    /// at once to an eligible pod on another node, before it is evicted. The leader stays while there is no such pod.
    /// Default: true.
    #[serde(default = "yes")]
    pub move_off_cordoned_nodes: bool,

    /// The name of a Deployment in this namespace. This cluster can be elected, and can remain the leader, only while
    /// that Deployment has the condition Available. Only for elections without spec.selector. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub available_deployment_name: Option<String>,
}

impl Default for Handover {
    fn default() -> Self {
        Self {
            order: HandoverOrder::default(),
            former_leader: FormerLeader::default(),
            respect_disruption_budgets: yes(),
            failover_delay_seconds: 0,
        }
    }
}

impl Default for Eligibility {
    fn default() -> Self {
        Self {
            require_ready: true,
            conditions: Vec::new(),
            min_ready_seconds: 0,
            move_off_cordoned_nodes: true,
            available_deployment_name: None,
        }
    }
}

/// A weight for pods on certain nodes, an order of pods by a number that a program writes, or a wish to keep the leaders
/// of several elections apart.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.weight), has(self.byAnnotation), has(self.spread)].filter(one, one).size() == 1 && has(self.order) == has(self.byAnnotation) && (has(self.weight) ? has(self.zone) != has(self.nodeSelector) : !has(self.zone) && !has(self.nodeSelector))")
        .message("a preference is weight with exactly one of zone and nodeSelector, or byAnnotation with order, or spread: write for example {weight: 10, zone: eu-1a}, {byAnnotation: example.com/lag, order: Lowest} or {spread: {group: shards}}"),
    validation = Rule::new("!has(self.byAnnotation) || (!format.qualifiedName().validate(self.byAnnotation).hasValue() && !self.byAnnotation.startsWith('lictor.dev/'))")
        .message("byAnnotation is not a valid name of an annotation, or begins with lictor.dev/, which is reserved: write for example example.com/lag")
)]
pub struct Preference {
    /// The weight of a matching pod, 1 to 1000, with zone or nodeSelector. lictor adds up the weights of all entries that
    /// match a pod. The sum counts in the place of the first entry with a weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: Option<u32>,

    /// Matches pods on nodes in this zone, which is the value of the nodes' label topology.kubernetes.io/zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub zone: Option<String>,

    /// Matches pods on nodes that have all of these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    pub node_selector: Option<BTreeMap<String, String>>,

    /// The name of an annotation of the pods, in which a program writes a whole number (64 bits, with a sign). The pod
    /// with the best number is preferred, and one without a number comes last. The number is read when a leader is
    /// elected, so a change of it moves no leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub by_annotation: Option<String>,

    /// Which number in byAnnotation is the best one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<NumberOrder>,

    /// Prefers pods near which few other elections of a group have their leaders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
}

/// The elections that keep their leaders apart, and what counts as near.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!format.qualifiedName().validate(self.topologyKey).hasValue()")
        .message("spread.topologyKey is not a valid name of a label: write for example topology.kubernetes.io/zone")
)]
pub struct Spread {
    /// The name of the group. All elections of this namespace with a spread of this group belong to it. lictor prefers
    /// pods near which it has the fewest leaders. At most 63 lower-case letters, digits and '-', with a letter or digit
    /// at both ends.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')").message("spread.group may have lower-case letters, digits and '-', and must begin and end with a letter or digit, for example shards"))]
    pub group: String,

    /// The label of nodes by whose value two pods are near each other. A pod on a node without the label comes last.
    /// Default: kubernetes.io/hostname.
    #[serde(default = "hostname")]
    #[schemars(length(min = 1, max = 317))]
    pub topology_key: String,
}

fn hostname() -> String {
    "kubernetes.io/hostname".into()
}

/// Which of several numbers is the best.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum NumberOrder {
    /// The lowest one, as for a lag.
    Lowest,
    /// The highest one, as for a position in a log.
    Highest,
}

/// Whether another pod can replace a healthy leader.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum Preemption {
    /// A leader stays until it fails.
    #[default]
    Never,
    /// An eligible pod with a higher priority annotation takes over.
    HigherPriority,
}

/// The labels and annotations that lictor writes on a pod for its role.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.labels) || self.labels.all(k, !format.qualifiedName().validate(k).hasValue())")
        .message("labels has a name that is not valid in Kubernetes: write at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit, for example role"),
    validation = Rule::new("!has(self.labels) || self.labels.all(k, !format.labelValue().validate(self.labels[k]).hasValue())")
        .message("labels has a value that is not valid in Kubernetes: write at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit, for example leader"),
    validation = Rule::new("!has(self.annotations) || self.annotations.all(k, !format.qualifiedName().validate(k).hasValue())")
        .message("annotations has a name that is not valid in Kubernetes: write at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit, for example example.com/role"),
    validation = Rule::new("(!has(self.labels) || self.labels.all(k, !k.startsWith('lictor.dev/'))) && (!has(self.annotations) || self.annotations.all(k, !k.startsWith('lictor.dev/')))")
        .message("names that begin with lictor.dev/ are reserved: choose another prefix"),
    validation = Rule::new(reserved::labels_rule())
        .message("labels has a name that Kubernetes reserves for its own controllers, such as pod-template-hash, job-name, or a name below kubernetes.io. A controller would replace each pod whose value changes: write a name of your own, for example role"),
    validation = Rule::new(reserved::annotations_rule())
        .message("annotations has a name that Kubernetes' own controllers write, such as pod-template-hash, or a name below batch.kubernetes.io: write a name of your own, for example example.com/role")
)]
pub struct Marking {
    /// At most 8 labels. lictor removes labels of the other role that are not in this list. The API server rejects
    /// names that Kubernetes reserves for its own controllers, such as pod-template-hash, job-name, and all names below
    /// kubernetes.io and k8s.io except app.kubernetes.io. Default: role: leader on the leader, role: follower on the
    /// others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 8), schema_with = "short_values")]
    pub labels: Option<BTreeMap<String, String>>,

    /// At most 8 annotations, each of at most 1024 characters. The API server rejects names that Kubernetes' own
    /// controllers write, such as pod-template-hash, and names below batch.kubernetes.io. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8), schema_with = "annotation_values")]
    pub annotations: BTreeMap<String, String>,
}

/// Controls what lictor does with a pod on which a label or annotation of this election has a value that another
/// program wrote.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum WhenLabelInUse {
    /// lictor writes nothing to that pod.
    #[default]
    Refuse,
    /// lictor writes its own value, and restores the previous one afterwards.
    Replace,
}

/// How lictor hands the leadership from one pod to the next.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.formerLeader) || self.formerLeader != 'DeleteFirst' || !has(self.order) || self.order != 'PromoteFirst'")
        .message("spec.handover.formerLeader: DeleteFirst ends the former leader before the next one leads, and order: PromoteFirst promotes the next one first: leave one of the two out")
)]
pub struct Handover {
    /// Which of the two label writes comes first. DemoteFirst (default): the old leader loses its label before the next
    /// one gets it, so there are never two leader labels. PromoteFirst: the next leader gets the label before the old
    /// one loses it. A Service then always has a leader, but has two for some milliseconds. PromoteFirst gives up the
    /// guarantee of at most one leader.
    #[serde(default)]
    pub order: HandoverOrder,

    /// What lictor does with the pod of the former leader. Keep (default): the pod runs on as a follower. Delete: when
    /// the next leader is elected, lictor deletes the pod, so that its open connections end and its program starts
    /// clean. DeleteFirst: lictor deletes the pod, and elects no other one before all of its containers are known to
    /// have ended. At most one pod of the group then executes as the leader, but a handover takes as long as the pod
    /// takes to end, and a node that does not answer holds it up until somebody says that the node is off. Delete and
    /// DeleteFirst need the chart's value fencing.enabled.
    #[serde(default)]
    pub former_leader: FormerLeader,

    /// Whether lictor evicts the former leader, which a PodDisruptionBudget can refuse, instead of deleting it. Default:
    /// true.
    #[serde(default = "yes")]
    pub respect_disruption_budgets: bool,

    /// How long lictor waits for a leader that is not ready, lacks a condition in spec.eligibility.conditions, or whose
    /// node is not ready, to recover before it elects another pod, in seconds, 0 to 3600. lictor replaces a leader that
    /// is deleted, is evicted or has finished at once. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 3600))]
    pub failover_delay_seconds: u32,
}

/// What lictor does with the pod of the former leader.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum FormerLeader {
    /// The pod runs on as a follower.
    #[default]
    Keep,
    /// lictor deletes the pod when the next leader is elected.
    Delete,
    /// lictor deletes the pod, and elects no other one before it is known to have ended.
    DeleteFirst,
}

/// Which of the two label writes of a handover comes first.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum HandoverOrder {
    /// There are never two leaders.
    #[default]
    DemoteFirst,
    /// There is always a leader, but two for a moment.
    PromoteFirst,
}

/// What an election says of a store that several clusters share.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SharedStore {
    /// Controls what happens to the leader while the store does not answer. Demote (default): the leader loses its label
    /// before another cluster can acquire the lock, so there are never two leaders. Keep: the leader keeps its label,
    /// even if another cluster elects a leader meanwhile. Keep gives up the guarantee of at most one leader.
    #[serde(default)]
    pub when_lost: WhenLost,

    /// Registers the leader as a service in Consul with the tag leader, so that the name leader.NAME.service.consul
    /// resolves to it. This needs a class that keeps its locks in Consul. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consul_service: Option<ConsulService>,
}

/// What happens to the leader while the lock's store does not answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum WhenLost {
    /// The leader loses its label before another cluster can acquire the lock.
    #[default]
    Demote,
    /// The leader keeps its label. If another cluster elects a leader, there are two.
    Keep,
}

/// The leader as a service in Consul, at the pod's address.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ConsulService {
    /// The service's name. At most 63 lower-case letters, digits and '-', with a letter or digit at both ends.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')").message("sharedStore.consulService.name may have lower-case letters, digits and '-', and must begin and end with a letter or digit, for example web"))]
    pub name: String,

    /// The service's port, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// The state of an election, as lictor sees it. lictor writes the status after it has acted. The lock is authoritative.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LeaderElectionStatus {
    /// The metadata.generation that this status describes.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The class that serves this election.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub class_name: Option<String>,

    /// The current leader. Absent while there is no leader.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,

    /// The number of the current leadership. It only rises while the election exists; spec.firstTerm says where it
    /// starts. lictor writes it to the leader's pod, in the annotation lictor.dev/term.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub term: Option<i64>,

    /// The lock that the candidates hold. Present if spec.electedBy is Candidates.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub followed_lock: Option<FollowedLockStatus>,

    /// The number of candidates: the pods that the selector matches, or 1 if the cluster itself is the candidate.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub candidates: Option<CandidateCount>,

    /// The longest time, in seconds, from the moment at which a leader's loss can be seen (at the API server or by the
    /// probe) until the next leader has its label. This assumes that an eligible pod exists, and holds even if the
    /// acting operator is killed at that moment. Absent if spec.electedBy is Candidates, because then only the
    /// candidates determine how soon they elect another leader, and with spec.handover.formerLeader: DeleteFirst,
    /// because the former leader may take any time to end.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub worst_case_failover_seconds: Option<i64>,

    /// The state of the workloads that follow the leader.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub workloads: Option<WorkloadsStatus>,

    /// Ready: a leader is elected here or in another cluster and the workloads follow, or spec.paused is set; otherwise
    /// the reason and the message are those of the condition that has a problem. Accepted: the spec is valid and lictor
    /// serves it. Elected: there is a leader. StoreReachable: the lock's store answers. Routed: the Service in
    /// spec.service reaches the leader; present while spec.service is set. WorkloadsFollow: the workloads are as the
    /// leadership requires; present while spec.workloads is set. Paused: present while spec.paused is set. Stalled:
    /// present while lictor refuses the election and waiting does not help. A condition is Unknown until lictor can
    /// determine it; the message says what lictor waits for.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The last ten changes of leader, newest first.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
}

/// The leader: a pod of this or of another cluster, a cluster itself, or a program other than lictor.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    /// The leader's name: that of the pod, or of the cluster if the cluster itself is the leader. Absent if a program
    /// other than lictor holds the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The pod's name. Absent if the cluster itself is the leader, or if a program other than lictor holds the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// The pod's uid.
    #[serde(rename = "podUID", default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// The name of the leader's cluster: the clusterName of its class. Absent if only one cluster can use the lock,
    /// or if a program other than lictor holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// The session that holds the lock, and what lictor knows about it. Present only if the session is not lictor's
    /// own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The name of the pod's node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The pod's IP address.
    #[serde(rename = "podIP", default, skip_serializing_if = "Option::is_none")]
    pub pod_ip: Option<String>,
    /// The time at which the leader was elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<Time>,
}

impl Leader {
    /// Sets `name` from the other fields.
    #[must_use]
    pub fn named(self) -> Self {
        let cluster = self.cluster_name.as_ref().filter(|_| self.session.is_none());
        Self { name: self.pod_name.as_ref().or(cluster).cloned(), ..self }
    }
}

/// The number of candidates.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CandidateCount {
    /// The number of pods that match the selector and have not finished.
    pub total: u32,
    /// The number of these pods that could be elected now.
    pub eligible: u32,
    /// Both numbers as eligible/total, for the column CANDIDATES.
    pub summary: String,
}

/// One change of leader.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// The term that began, or the term that ended if the group was left without a leader.
    pub term: i64,
    /// The new leader, as in status.leader.name. Absent if no candidate could be elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_name: Option<String>,
    /// The previous leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_leader_name: Option<String>,
    /// The reason of the change, in one word.
    pub reason: String,
    /// The time at which the change was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// The milliseconds from the moment at which the operator saw the cause until the API server confirmed the label.
    pub duration_milliseconds: i64,
}

/// A CEL rule of the requirements: each condition has a valid name, and is none of Kubernetes' own.
fn conditions_rule() -> String {
    let own = KUBERNETES_CONDITIONS.map(|name| format!("'{name}'")).join(", ");
    format!(
        "!has(self.conditions) || self.conditions.all(c, !format.qualifiedName().validate(c).hasValue() && !(c in [{own}]))"
    )
}

fn yes() -> bool {
    true
}

fn annotation_values(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    map_of_strings(LONGEST_VALUE)
}
