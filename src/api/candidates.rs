//! Elections that the candidates hold themselves, by a lock that lictor follows and never writes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who elects the leader.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum ElectedBy {
    /// lictor elects one of the candidates that are eligible.
    #[default]
    Operator,
    /// The candidates elect the leader themselves: it is the one that holds the lock in spec.candidates.
    Candidates,
}

/// The lock that the candidates hold themselves, and which pod its holder is.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.lease) != has(self.consulKey)")
        .message("spec.candidates needs exactly one of lease and consulKey: write for example lease: {name: web-lock}")
)]
pub struct Candidates {
    /// A Lease of this namespace, as client-go's LeaseLock and lictor agent hold one. It can't be the Lease in which lictor keeps
    /// its own record of this election.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<FollowedLease>,

    /// A key in the Consul of this election's class, as Consul's api.Lock, consul lock (PREFIX/.lock) and lictor agent hold one. It
    /// must fit the followPattern of the class, and can't be the key in which lictor keeps its own record of this election.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub consul_key: Option<String>,

    /// Which pod the holder of the lock is.
    #[serde(default)]
    pub identity: Identity,
}

/// A Lease that the candidates hold.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FollowedLease {
    /// The name of the Lease, at most 253 lower-case letters, digits, '-' and '.'.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()").message("candidates.lease.name is not a name that a Lease can have: write lower-case letters, digits, '-' and '.', for example web-lock"))]
    pub name: String,
}

/// Which pod the holder of the lock is. The holder's name is holderIdentity of a Lease; the value of a key in Consul, or the name of the
/// session that holds it if the value is empty.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.from) && self.from == 'Annotation') == has(self.annotation)")
        .message("candidates.identity.annotation goes with from: Annotation, and is needed there: write for example {from: Annotation, annotation: example.com/member}"),
    validation = Rule::new("!has(self.pattern) || self.pattern.split('{identity}').size() == 2")
        .message("candidates.identity.pattern must have {identity} in it exactly once, where the pod's name, address or annotation stands: write for example \"{identity}_*\"")
)]
pub struct Identity {
    /// What of a pod is in the holder's name. PodName (default): its name, alone or with _ and anything after it. PodIP: one of its
    /// addresses, alone or with a port. Annotation: the value of an annotation.
    #[serde(default)]
    pub from: IdentityFrom,

    /// The annotation, if from is Annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub annotation: Option<String>,

    /// What the holder's whole name looks like: {identity} stands for what is in from, * for any characters. Default: as from says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 10, max = 253))]
    pub pattern: Option<String>,
}

/// What of a pod is in the name of the lock's holder.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum IdentityFrom {
    /// The pod's name.
    #[default]
    PodName,
    /// One of the pod's addresses.
    PodIP,
    /// The value of an annotation of the pod.
    Annotation,
}

/// The lock that the candidates hold, as lictor sees it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FollowedLockStatus {
    /// Held: somebody holds the lock. Free: nobody does. Unknown: it can't be read at present.
    pub state: String,
    /// The holder's name, as the lock has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The pod of this election that the holder is. Absent if it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// How often the lock was acquired, as it says itself: leaseTransitions of a Lease, LockIndex of a key in Consul.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transitions: Option<i64>,
    /// When the holder acquired it, by the holder's own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<Time>,
}
