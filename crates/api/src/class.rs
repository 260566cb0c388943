//! `ElectionClass`: where the locks of elections are kept. An administrator writes it, like an `IngressClass`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bucket::BucketStore;
use super::consul::{ConsulStatus, ConsulStore};
use super::hub::HubStore;
use super::lenient::lenient;
use super::objects::ObjectsStatus;
use super::selector::LabelSelector;

/// The class of an election that names none, if no class is marked as the default.
pub const BUILT_IN_CLASS: &str = "lease";

/// The annotation that marks the default class, with the value `true`.
pub const DEFAULT_CLASS_ANNOTATION: &str = "lictor.dev/is-default-class";

/// The `spec.controller` of the classes that an operator without `--controller` serves.
pub const DEFAULT_CONTROLLER: &str = "lictor.dev/operator";

/// The default key templates for Leases, and for the stores that several clusters share.
macro_rules! lease_template {
    () => {
        "{name}"
    };
}
macro_rules! shared_template {
    () => {
        "services/{namespace}/{name}/leader"
    };
}

/// A CEL expression for the key template in effect. The schema has no default, because the default depends on the
/// store.
macro_rules! template_of {
    ($class:literal) => {
        concat!(
            "(has(",
            $class,
            ".keyTemplate) ? ",
            $class,
            ".keyTemplate : has(",
            $class,
            ".lease) ? '",
            lease_template!(),
            "' : '",
            shared_template!(),
            "')"
        )
    };
}

/// Where the locks of elections are kept, and which lictor serves them.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "lictor.dev",
    version = "v1alpha1",
    kind = "ElectionClass",
    shortname = "lec",
    category = "lictor",
    status = "ElectionClassStatus",
    derive = "PartialEq",
    doc = "Where the locks of elections are kept, and which lictor serves them.",
    printcolumn(name = "Controller", type_ = "string", json_path = ".spec.controller"),
    printcolumn(name = "Consul", type_ = "string", json_path = ".spec.consul.address"),
    printcolumn(name = "Bucket", type_ = "string", json_path = ".spec.bucket.url"),
    printcolumn(name = "Hub", type_ = "string", json_path = ".spec.hub.namespace"),
    printcolumn(name = "Keys", type_ = "string", json_path = ".spec.keyTemplate"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.lease), has(self.consul), has(self.bucket), has(self.hub)].exists_one(given, given)")
        .message("a class keeps its locks in exactly one store: write lease: {}, or for example consul: {address: \"http://consul.example:8500\", clusterName: west}, or bucket: {url: \"s3://locks/lictor\", clusterName: west}, or hub: {namespace: lictor-locks, clusterName: west}"),
    validation = Rule::new("has(self.consul) == has(oldSelf.consul) && has(self.bucket) == has(oldSelf.bucket) && has(self.hub) == has(oldSelf.hub)")
        .message("the store of a class can't be changed, because it holds the locks of running elections: make another class"),
    validation = Rule::new(concat!("has(self.lease) != has(oldSelf.lease) || ", template_of!("self"), " == ", template_of!("oldSelf")))
        .message("keyTemplate can't be changed, because it names the locks of running elections: make another class"),
    validation = Rule::new("!has(self.lease) || !has(self.keyTemplate) || self.keyTemplate.matches('^([a-z0-9.-]|[{]name[}]|[{]namespace[}])+$')")
        .message("keyTemplate for Leases may have lower-case letters, digits, '-', '.', {name} and {namespace}, for example {name}-leader"),
    validation = Rule::new("!has(self.lease) || !has(self.keyPattern) || self.keyPattern.matches('^([a-z0-9.*-]|[{]name[}]|[{]namespace[}])+$')")
        .message("keyPattern for Leases may have lower-case letters, digits, '-', '.', '*', {name} and {namespace}, for example {name}-*"),
    validation = Rule::new("has(self.lease) || !has(self.keyTemplate) || (self.keyTemplate.matches('^[a-z0-9_.-]+(/([a-z0-9_.-]|[{]name[}]|[{]namespace[}])+)+$') && !self.keyTemplate.contains('..') && !('/' + self.keyTemplate + '/').contains('/./'))")
        .message("keyTemplate for Consul, a bucket or a hub may have lower-case letters, digits, '/', '_', '-', '.', {name} and {namespace}; it begins with a fixed part and a '/', and has no '//', no '..' and no '/' at its end, for example services/{namespace}/{name}/leader"),
    validation = Rule::new("has(self.lease) || !has(self.keyPattern) || (self.keyPattern.matches('^[a-z0-9_.-]+(/([a-z0-9_.*-]|[{]name[}]|[{]namespace[}])+)+$') && !self.keyPattern.contains('..') && !('/' + self.keyPattern + '/').contains('/./'))")
        .message("keyPattern for Consul, a bucket or a hub may have lower-case letters, digits, '/', '_', '-', '.', '*', {name} and {namespace}; it begins with a fixed part and a '/', and has no '//', no '..' and no '/' at its end, for example services/{namespace}/*"),
    validation = Rule::new(concat!("has(self.lease) || !has(self.keyPattern) || self.keyPattern.split('/')[0] == ", template_of!("self"), ".split('/')[0]"))
        .message("keyPattern and keyTemplate must begin with the same fixed part up to the first '/', because lictor watches that part, for example services/{namespace}/* and services/{namespace}/{name}/leader"),
    validation = Rule::new(concat!("!has(self.consul) || self.consul.record != 'LeaderName' || !", template_of!("self"), ".endsWith('/record')"))
        .message("keyTemplate ends with /record, and with consul.record: LeaderName such a key holds the record of another lock: choose another end, for example services/{namespace}/{name}/leader"),
    validation = Rule::new("!has(self.followPattern) || ((has(self.consul) || has(self.bucket)) && self.followPattern.matches('^([A-Za-z0-9_./*-]|[{]name[}]|[{]namespace[}])+$'))")
        .message("followPattern is for classes with consul or bucket, and may have letters, digits, '/', '_', '-', '.', '*', {name} and {namespace}, for example services/{namespace}/*: elections follow Leases of their own namespace without it")
)]
pub struct ElectionClassSpec {
    /// The lictor deployment that serves this class: the value of its flag --controller. Default: lictor.dev/operator.
    #[serde(default = "default_controller")]
    #[schemars(length(min = 1, max = 253))]
    pub controller: String,

    /// Keeps each lock in a Lease in the election's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseStore>,

    /// Keeps each lock in a key in Consul. Several clusters can share a Consul.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consul: Option<ConsulStore>,

    /// Keeps each lock in an object in a bucket of an object storage. Several clusters can share a bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketStore>,

    /// Keeps each lock in a Lease in one cluster, the hub, that several clusters can reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<HubStore>,

    /// The name of the lock of an election without spec.key. {name} and {namespace} stand for the election's name and
    /// namespace. The template must contain {name}; otherwise all elections of a namespace would share one lock. For
    /// Consul, buckets and hubs, use {namespace} as well; otherwise elections of the same name in different namespaces would
    /// compete for the same lock. This field can't be changed. Default: {name} for Leases,
    /// services/{namespace}/{name}/leader for Consul, buckets and hubs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 6, max = 512))]
    #[x_kube(validation = Rule::new("self.contains('{name}')").message("keyTemplate must contain {name}, else all elections of a namespace would share one lock"))]
    pub key_template: Option<String>,

    /// The names that users may give to their locks with spec.key. {name} and {namespace} stand for the election's name
    /// and namespace, * stands for any characters. For Consul, buckets and hubs, the part before the first '/' must be the same
    /// as in keyTemplate. Default: none. keyTemplate then names every lock, and users can't choose names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub key_pattern: Option<String>,

    /// The keys in Consul or the bucket that elections with spec.electedBy: Candidates may follow with spec.followedLock.key.
    /// {name} and {namespace} stand for the election's name and namespace, * stands for any characters. Anyone who may
    /// create elections can read in their status who holds such a key. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub follow_pattern: Option<String>,

    /// The namespaces whose elections may use this class, by name, by label, or both. Default: all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<AllowedNamespaces>,

    /// The workloads that elections of this class may list in spec.workloads. All (default): any workloads of their
    /// namespace. Existing: no jobTemplate, because with a jobTemplate anyone who may create elections can run pods as
    /// any service account of the namespace. None: no workloads.
    #[serde(default)]
    pub allowed_workloads: AllowedWorkloads,
}

impl ElectionClassSpec {
    /// Returns a class that keeps its locks in Leases, with all defaults.
    pub fn in_leases() -> Self {
        Self {
            controller: default_controller(),
            lease: Some(LeaseStore {}),
            consul: None,
            bucket: None,
            hub: None,
            key_template: None,
            key_pattern: None,
            follow_pattern: None,
            allowed_namespaces: None,
            allowed_workloads: AllowedWorkloads::All,
        }
    }

    /// Returns whether elections of a namespace may use this class. Of a class that selects namespaces by their labels,
    /// this knows those that [`super::with_selected`] has named.
    pub fn is_offered_to(&self, namespace: &str) -> bool {
        self.allowed_namespaces.as_ref().is_none_or(|allowed| allowed.names.iter().any(|name| name == namespace))
    }

    /// Returns whether this class selects namespaces by their labels.
    pub fn selects_namespaces(&self) -> bool {
        self.allowed_namespaces.as_ref().is_some_and(|allowed| allowed.selector.is_some())
    }

    /// Returns the template for the names of locks: the class's own, or the default of its store.
    pub fn effective_key_template(&self) -> &str {
        let is_shared = self.consul.is_some() || self.bucket.is_some() || self.hub.is_some();
        let default = if is_shared { shared_template!() } else { lease_template!() };
        self.key_template.as_deref().unwrap_or(default)
    }
}

/// Namespaces by name, by label, or both.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.selector) || (has(self.names) && size(self.names) > 0)")
        .message("allowedNamespaces is empty, and would allow no namespace: write names, for example {names: [shop]}, or selector, for example {selector: {matchLabels: {team: shop}}}, or leave it out to allow all")
)]
pub struct AllowedNamespaces {
    /// The names of allowed namespaces. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub names: Vec<String>,

    /// Allows the namespaces with these labels, also those that get them later. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub selector: Option<LabelSelector>,
}

/// The workloads that elections of a class may list in spec.workloads.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum AllowedWorkloads {
    /// Any workloads of their namespace.
    #[default]
    All,
    /// Workloads that exist already, so no jobTemplate.
    Existing,
    /// No workloads.
    None,
}

/// Keeps the locks in Leases. There are no settings.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct LeaseStore {}

/// The state of a class, as lictor sees it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ElectionClassStatus {
    /// The metadata.generation that this status describes.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The Consul that answered last. Absent for other stores, and until Consul has answered for the first time.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub consul: Option<ConsulStatus>,

    /// The bucket that keeps the locks. Absent for other stores, and until it has answered for the first time.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub bucket: Option<ObjectsStatus>,

    /// The hub that keeps the locks. Absent for other stores, and until it has answered for the first time.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub hub: Option<ObjectsStatus>,

    /// Ready is True while a lictor serves the class, the store answers, and lictor has the rights that it needs there.
    /// It is Unknown until the store has answered. The message says what is wrong and what to do. Stalled is present
    /// while the values of the class contradict each other, because then waiting does not help.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

impl ElectionClassStatus {
    /// Returns the sessions that the operator keeps in a shared store.
    pub fn sessions(&self) -> &[String] {
        let in_objects = || self.bucket.as_ref().or(self.hub.as_ref()).map(|objects| objects.session.as_slice());
        self.consul.as_ref().map(|consul| consul.sessions.as_slice()).or_else(in_objects).unwrap_or_default()
    }
}

fn default_controller() -> String {
    DEFAULT_CONTROLLER.into()
}
