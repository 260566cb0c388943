//! `LeaderElection`: one group of pods of which one is the leader. What a user writes, and what they see.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LONGEST_VALUE;
use super::lenient::lenient;
use super::workload::{Workload, WorkloadsStatus};

/// The labels in a rule, where the user may have left them out. There is no default in the schema on purpose: it would be kept in
/// the object, and labels that a user applies later would be added to it, not put in its place.
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

/// Elects one leader among the pods that the selector matches, and labels it, so that a Service whose selector has the
/// leader's label reaches the leader only. Jobs, CronJobs, Deployments and StatefulSets may follow it: they run only in the cluster
/// that the leader is in.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "lictor.dev",
    version = "v1alpha1",
    kind = "LeaderElection",
    namespaced,
    shortname = "le",
    category = "lictor",
    status = "LeaderElectionStatus",
    derive = "PartialEq",
    doc = "Elects one leader among the pods that its selector matches, and labels it.",
    printcolumn(name = "Leader", type_ = "string", json_path = ".status.leader.name"),
    printcolumn(name = "Term", type_ = "integer", json_path = ".status.term"),
    printcolumn(name = "Candidates", type_ = "string", json_path = ".status.candidates.summary"),
    printcolumn(name = "Class", type_ = "string", json_path = ".status.className"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.leader.nodeName", priority = 1),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".status.leader.clusterName", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Elected')].reason", priority = 1),
    printcolumn(name = "Workloads", type_ = "string", json_path = ".status.conditions[?(@.type=='WorkloadsFollow')].reason", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 200").message("metadata.name is longer than 200 characters: choose a shorter name")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(concat!(leader_labels!(), ".exists(k, !(k in ", follower_labels!(), ") || ", follower_labels!(), "[k] != ", leader_labels!(), "[k])"))
        .message("spec.leader.labels and spec.follower.labels are the same, so nobody could tell the leader: give one label different values, for example role: leader and role: follower"),
    validation = Rule::new(concat!("!has(self.selector) || !has(self.selector.matchLabels) || !self.selector.matchLabels.exists(k, k in ", leader_labels!(), " || k in ", follower_labels!(), ")"))
        .message("spec.selector.matchLabels contains a label that this election writes itself, so a pod would leave the group by being elected: select the pods by a label of their own, such as app"),
    validation = Rule::new(concat!("!has(self.selector) || !has(self.selector.matchExpressions) || !self.selector.matchExpressions.exists(e, e.key in ", leader_labels!(), " || e.key in ", follower_labels!(), ")"))
        .message("spec.selector.matchExpressions contains a label that this election writes itself, so a pod would leave the group by being elected: select the pods by a label of their own, such as app"),
    validation = Rule::new("has(self.selector) || !(has(self.probe) || has(self.consulService) || has(self.leader) || has(self.follower) || (has(self.preferences) && size(self.preferences) > 0))")
        .message("spec.probe, spec.consulService, spec.preferences, spec.leader and spec.follower are about pods, and without spec.selector the cluster itself is the candidate: write a selector, or leave them out"),
    validation = Rule::new("!has(self.selector) || !has(self.eligibility) || !has(self.eligibility.availableDeploymentName)")
        .message("spec.eligibility.availableDeploymentName is for elections without spec.selector, where the cluster itself is the candidate: leave one of the two out"),
    validation = Rule::new("!has(self.eligibility) || !has(self.eligibility.availableDeploymentName) || !has(self.workloads) || !self.workloads.exists(w, w.kind == 'Deployment' && w.name == self.eligibility.availableDeploymentName)")
        .message("spec.eligibility.availableDeploymentName names a Deployment that is in spec.workloads too: it would have to run before it may run; name one that always runs")
)]
pub struct LeaderElectionSpec {
    /// Name of the ElectionClass that says where the lock is kept and which lictor serves this election. Default: the class
    /// with the annotation lictor.dev/is-default-class: "true"; without one, the built-in class "lease", which keeps the
    /// lock in a Lease beside the election.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub class_name: Option<String>,

    /// The pods of this namespace that are candidates. Left out: the cluster itself is the only candidate here, for an election
    /// between clusters that share one Consul.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<PodSelector>,

    /// Name of the lock in the store: of the Lease, or the key in Consul. Default: made from the class's keyTemplate, which is
    /// {name} for Leases and services/{namespace}/{name}/leader for Consul. It must fit the keyPattern of the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub key: Option<String>,

    /// Which candidates may be elected. A pod that is being deleted, has finished, or is on a node that is lost or cordoned,
    /// is never newly elected, whatever is written here.
    #[serde(default)]
    pub eligibility: Eligibility,

    /// Which of several eligible pods is elected: the one with the highest annotation lictor.dev/priority (an integer, default
    /// 0), then with the most weight from this list (default: empty), then the one that carries the leader label already,
    /// then the one that is ready for the longest time, then the first by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub preferences: Vec<Preference>,

    /// Whether a healthy leader gives way. Never (default): a leader stays until it fails. HigherPriority: an eligible pod
    /// with a higher annotation lictor.dev/priority takes over at once.
    #[serde(default)]
    pub preemption: Preemption,

    /// What is written on the leader. Default: the label role: leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<Marking>,

    /// What is written on the other candidates. Default: the label role: follower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follower: Option<Marking>,

    /// How the leadership passes from one pod to the next.
    #[serde(default)]
    pub handover: Handover,

    /// The leader's own health, asked by lictor over the network, for leaders that hang while they still look ready. Default:
    /// none, the pod's Ready condition alone counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,

    /// What happens to the leader while the store of the lock does not answer, for a class that keeps its locks in Consul.
    /// Demote (default): it loses its label before the lock can pass to another cluster, so there are never two leaders. Keep:
    /// it stays the leader here, even if another cluster elects one meanwhile: the promise of at most one leader is given up.
    #[serde(default)]
    pub when_store_is_lost: WhenStoreIsLost,

    /// Registers the leader as a service in Consul, with the tag leader, so that leader.NAME.service.consul leads to it. Only
    /// for a class that keeps its locks in Consul. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consul_service: Option<ConsulService>,

    /// Workloads of this namespace that run only where this cluster leads: each is enabled while a pod of this cluster, or without
    /// a selector the cluster itself, is the leader, and disabled otherwise. A CronJob or Job is disabled by spec.suspend, a
    /// Deployment or StatefulSet by 0 replicas. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["kind", "name"]))]
    pub workloads: Vec<Workload>,

    /// Freezes the election: nobody is promoted or demoted and no pod is labelled, no workload is enabled or disabled, the lock is
    /// kept. A handover that is under way is completed first. Default: false.
    #[serde(default)]
    pub paused: bool,
}

/// Selects pods by their labels; all that is given must hold.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)")
        .message("the selector is empty and would match every pod of the namespace: write matchLabels, for example {app: web}"),
    validation = Rule::new("!has(self.matchLabels) || self.matchLabels.all(k, !format.qualifiedName().validate(k).hasValue() && !format.labelValue().validate(self.matchLabels[k]).hasValue())")
        .message("matchLabels has a name or a value that Kubernetes does not take for a label: write at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit, for example {app: web}"),
    validation = Rule::new("!has(self.matchExpressions) || self.matchExpressions.all(e, !format.qualifiedName().validate(e.key).hasValue() && (!has(e.values) || e.values.all(v, !format.labelValue().validate(v).hasValue())))")
        .message("matchExpressions has a key or a value that Kubernetes does not take for a label: write at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit, for example {key: tier, operator: In, values: [front]}")
)]
pub struct PodSelector {
    /// Labels that a pod must carry, each with this value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16), schema_with = "short_values")]
    pub match_labels: BTreeMap<String, String>,

    /// Further requirements on a pod's labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub match_expressions: Vec<PodSelectorRequirement>,
}

/// One requirement on one label.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.operator in ['In', 'NotIn'] ? (has(self.values) && size(self.values) > 0) : (!has(self.values) || size(self.values) == 0)")
        .message("values goes with the operators In and NotIn, and they need at least one value; Exists and DoesNotExist take none")
)]
pub struct PodSelectorRequirement {
    /// The label's name.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,

    /// How the label is compared with the values.
    pub operator: PodSelectorOperator,

    /// The values for In and NotIn, at most 32, each at most 63 characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// How a label is compared: In and NotIn with the values, Exists and DoesNotExist by its presence.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Kubernetes' own")]
pub enum PodSelectorOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// Which candidates may be elected.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Eligibility {
    /// Whether a pod must have the condition Ready to be elected, and to stay leader. Default: true.
    #[serde(default = "yes")]
    pub require_ready: bool,

    /// How long a pod must have been ready, as seen by lictor, before it may be elected, in seconds, 0 to 86400. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86400))]
    pub min_ready_seconds: u32,

    /// Only without spec.selector: the name of a Deployment of this namespace that must have the condition Available for this
    /// cluster to be elected, and to stay leader. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub available_deployment_name: Option<String>,
}

impl Default for Eligibility {
    fn default() -> Self {
        Self { require_ready: true, min_ready_seconds: 0, available_deployment_name: None }
    }
}

/// A weight for pods on certain nodes.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.zone) != has(self.nodeSelector)")
        .message("a preference needs exactly one of zone and nodeSelector: write for example {weight: 10, zone: eu-1a}")
)]
pub struct Preference {
    /// Added to a pod that fits, 1 to 1000. The weights of all entries that fit are summed up.
    #[schemars(range(min = 1, max = 1000))]
    pub weight: u32,

    /// Fits pods on nodes of this zone, that is, with this value of the label topology.kubernetes.io/zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub zone: Option<String>,

    /// Fits pods on nodes that carry all of these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    pub node_selector: Option<BTreeMap<String, String>>,
}

/// Whether a healthy leader gives way to another pod.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum Preemption {
    /// A leader stays until it fails.
    #[default]
    Never,
    /// An eligible pod with a higher priority annotation takes over.
    HigherPriority,
}

/// Labels and annotations that are written on a pod for its role.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.labels) || self.labels.all(k, !format.qualifiedName().validate(k).hasValue())")
        .message("labels has a name that Kubernetes does not take: write at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit, for example role"),
    validation = Rule::new("!has(self.labels) || self.labels.all(k, !format.labelValue().validate(self.labels[k]).hasValue())")
        .message("labels has a value that Kubernetes does not take: write at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit, for example leader"),
    validation = Rule::new("!has(self.annotations) || self.annotations.all(k, !format.qualifiedName().validate(k).hasValue())")
        .message("annotations has a name that Kubernetes does not take: write at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit, for example example.com/role"),
    validation = Rule::new("(!has(self.labels) || self.labels.all(k, !k.startsWith('lictor.dev/'))) && (!has(self.annotations) || self.annotations.all(k, !k.startsWith('lictor.dev/')))")
        .message("names that begin with lictor.dev/ are kept for lictor itself: choose another prefix")
)]
pub struct Marking {
    /// Labels, at most 8. Default: role: leader on the leader, role: follower on the others. A label of the other role that is not
    /// given here is taken off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 8), schema_with = "short_values")]
    pub labels: Option<BTreeMap<String, String>>,

    /// Annotations, at most 8, each at most 1024 characters. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8), schema_with = "annotation_values")]
    pub annotations: BTreeMap<String, String>,
}

/// How the leadership passes from one pod to the next.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Handover {
    /// DemoteFirst (default): the old leader loses its label before the next one gets it, so there are never two.
    /// PromoteFirst: the next one gets the label before the old one loses it, so a Service is never without a leader, and for
    /// some milliseconds has two: the promise of at most one leader is given up.
    #[serde(default)]
    pub order: HandoverOrder,

    /// How long a leader that stopped being ready, or whose node stopped being ready, may take to recover before another is
    /// elected, in seconds, 0 to 3600. A leader that was deleted, evicted or has finished is replaced at once. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 3600))]
    pub failover_delay_seconds: u32,
}

/// Which of the two label writes of a handover comes first.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum HandoverOrder {
    /// Never two leaders.
    #[default]
    DemoteFirst,
    /// Never none, at the price of two for a moment.
    PromoteFirst,
}

/// What happens to the leader while the lock's store does not answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum WhenStoreIsLost {
    /// It loses its label before the lock can pass to another cluster.
    #[default]
    Demote,
    /// It keeps its label, at the price of two leaders if another cluster elects one.
    Keep,
}

/// The leader as a service in Consul, at the address of its pod.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ConsulService {
    /// The service's name. At most 63 lower-case letters, digits and '-', beginning and ending with a letter or digit.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')").message("consulService.name may have lower-case letters, digits and '-', and must begin and end with a letter or digit, for example web"))]
    pub name: String,

    /// The port, a number from 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// How lictor asks the leader whether it works. The operator must be able to reach the pods' addresses.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.httpGet) != has(self.tcpSocket)")
        .message("a probe needs exactly one of httpGet and tcpSocket: write for example httpGet: {path: /leader, port: 8080}"),
    validation = Rule::new("self.timeoutSeconds <= self.periodSeconds")
        .message("probe.timeoutSeconds is longer than probe.periodSeconds: shorten the timeout or lengthen the period")
)]
pub struct Probe {
    /// Asks by an HTTP GET; an answer with a status from 200 to 399 is a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGet>,

    /// Asks by opening a TCP connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocket>,

    /// Time from one probe to the next, in seconds, 1 to 300. Default: 2.
    #[serde(default = "seconds::<2>")]
    #[schemars(range(min = 1, max = 300))]
    pub period_seconds: u32,

    /// How long an answer may take, in seconds, 1 to 300 and at most the period. Default: 1.
    #[serde(default = "seconds::<1>")]
    #[schemars(range(min = 1, max = 300))]
    pub timeout_seconds: u32,

    /// How many probes must fail in a row until the leader counts as failed, 1 to 100. Default: 3.
    #[serde(default = "seconds::<3>")]
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: u32,

    /// How many probes must succeed in a row until a failed leader counts as healthy again, 1 to 100. Default: 1.
    #[serde(default = "seconds::<1>")]
    #[schemars(range(min = 1, max = 100))]
    pub success_threshold: u32,
}

/// An HTTP GET to the leader's pod.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HttpGet {
    /// The path, beginning with a slash. Default: /.
    #[serde(default = "root_path")]
    #[schemars(length(max = 1024), regex(pattern = "^/"))]
    pub path: String,

    /// The port, a number from 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// A TCP connection to the leader's pod.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TcpSocket {
    /// The port, a number from 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// What lictor tells about an election. It is written after the fact: the truth is the lock.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LeaderElectionStatus {
    /// The metadata.generation that this status is about.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The class that serves this election.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub class_name: Option<String>,

    /// The present leader; absent while there is none.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,

    /// The number of the present leadership. It only ever rises; the leader's pod carries it as the annotation lictor.dev/term.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub term: Option<i64>,

    /// How many pods the selector matches.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub candidates: Option<CandidateCount>,

    /// Upper limit of the seconds from the moment at which a leader's loss can be seen (in the API server or by the probe) to
    /// the next leader's label, if an eligible pod exists, even if the acting operator is killed at that moment.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub worst_case_failover_seconds: Option<i64>,

    /// The workloads that follow the leader, if there are any.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub workloads: Option<WorkloadsStatus>,

    /// Accepted: the spec is valid and served. Elected: there is a leader. StoreReachable: the lock's store answers.
    /// WorkloadsFollow: the workloads are as the leadership wants them; present with spec.workloads. Paused: present while
    /// spec.paused is set. Unknown: it is not known yet; the message says what lictor waits for.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The last ten changes of leader, the newest first.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
}

/// Who leads: a pod, of this cluster or of another one, or a program that is not lictor.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    /// The leader as it is shown: the pod's name, or the cluster's, where the cluster itself is the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The pod's name; absent where a program that is not lictor holds the lock, or the cluster itself is the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// The pod's uid.
    #[serde(rename = "podUID", default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// The name of the cluster that the pod is in, where the lock is shared by several: the name in its class's consul.clusterName.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// The session that holds the lock, and what is known of it; only where it is not lictor's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The name of the node that the pod runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The pod's address.
    #[serde(rename = "podIP", default, skip_serializing_if = "Option::is_none")]
    pub pod_ip: Option<String>,
    /// When it became the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<Time>,
}

impl Leader {
    /// With its name.
    #[must_use]
    pub fn named(self) -> Self {
        let cluster = self.cluster_name.as_ref().filter(|_| self.session.is_none());
        Self { name: self.pod_name.as_ref().or(cluster).cloned(), ..self }
    }
}

/// How many pods take part.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CandidateCount {
    /// Pods that the selector matches and that have not finished.
    pub total: u32,
    /// Those of them that could be elected now.
    pub eligible: u32,
    /// Both as eligible/total, for the column.
    pub summary: String,
}

/// One change of leader.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// The term that began; for a group left without a leader, the one that ended.
    pub term: i64,
    /// The new leader, as in status.leader.name; absent where nobody could be elected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_name: Option<String>,
    /// The leader before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_leader_name: Option<String>,
    /// Why the leader changed, in one word.
    pub reason: String,
    /// When the change was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Milliseconds from the moment at which the operator saw the cause to the confirmed label.
    pub duration_milliseconds: i64,
}

fn yes() -> bool {
    true
}

fn seconds<const N: u32>() -> u32 {
    N
}

fn root_path() -> String {
    "/".into()
}

fn short_values(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    map_of_strings(63)
}

fn annotation_values(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    map_of_strings(LONGEST_VALUE)
}

/// The cost of a CEL rule is estimated from these limits, so a map without them is refused by the API server.
fn map_of_strings(longest: usize) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": longest},
    })
}
