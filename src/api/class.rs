//! `ElectionClass`: what an administrator offers, like an `IngressClass`.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The class of elections that name none, where no class is marked as the default.
pub const BUILT_IN_CLASS: &str = "lease";

/// Marks the class of elections that name none, with the value `true`.
pub const DEFAULT_CLASS_ANNOTATION: &str = "lictor.dev/is-default-class";

/// The `spec.controller` of classes that a lictor started without `--controller` serves.
pub const DEFAULT_CONTROLLER: &str = "lictor.dev/operator";

/// Where the locks of elections are kept, and which lictor serves them.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "lictor.dev",
    version = "v1alpha1",
    kind = "ElectionClass",
    shortname = "lec",
    derive = "PartialEq",
    doc = "Where the locks of elections are kept, and which lictor serves them.",
    printcolumn(name = "Controller", type_ = "string", json_path = ".spec.controller"),
    printcolumn(name = "Keys", type_ = "string", json_path = ".spec.keyTemplate"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.lease)").message("the class names no store for its locks: write lease: {}")
)]
pub struct ElectionClassSpec {
    /// The lictor deployment that serves this class: the value of its --controller. Default: lictor.dev/operator.
    #[serde(default = "default_controller")]
    #[schemars(length(min = 1, max = 253))]
    pub controller: String,

    /// Keeps each lock in a Lease in the election's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseStore>,

    /// How the lock of an election without spec.key is named. {name} and {namespace} stand for the election's. It must
    /// contain {name}, else all elections of a namespace would share one lock, and can't be changed. Default: {name}.
    #[serde(default = "default_key_template")]
    #[schemars(length(min = 6, max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("keyTemplate can't be changed, for the locks of running elections are named by it: make another class"))]
    #[x_kube(validation = Rule::new("self.contains('{name}')").message("keyTemplate must contain {name}, else all elections of a namespace would share one lock"))]
    #[x_kube(validation = Rule::new("self.matches('^([a-z0-9.-]|[{]name[}]|[{]namespace[}])+$')").message("keyTemplate may have lower-case letters, digits, '-', '.', {name} and {namespace}, for example {name}-leader"))]
    pub key_template: String,

    /// Which names users may give to their locks with spec.key: {name} and {namespace} stand for the election's, * for any
    /// characters. Default: none, each lock is named by keyTemplate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^([a-z0-9.*-]|[{]name[}]|[{]namespace[}])+$')").message("keyPattern may have lower-case letters, digits, '-', '.', '*', {name} and {namespace}, for example {name}-*"))]
    pub key_pattern: Option<String>,
}

/// Locks in Leases; nothing has to be set.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct LeaseStore {}

fn default_controller() -> String {
    DEFAULT_CONTROLLER.into()
}

pub(super) fn default_key_template() -> String {
    "{name}".into()
}
