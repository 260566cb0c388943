//! Elections in which the candidates elect their leader by a lock that lictor follows and never writes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who elects the leader.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum ElectedBy {
    /// lictor elects one of the eligible candidates.
    #[default]
    Operator,
    /// The candidates elect the leader themselves: the holder of the lock in spec.followedLock.
    Candidates,
}

/// The lock that the candidates hold, and how its holder maps to a pod.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.lease) != has(self.key)")
        .message("spec.followedLock needs exactly one of lease and key: write for example lease: {name: web-lock}")
)]
pub struct FollowedLock {
    /// A Lease of this namespace that the candidates hold, as client-go's LeaseLock and lictor agent do. Can't be the
    /// Lease in which lictor keeps its own record of this election.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<FollowedLease>,

    /// A key that the candidates hold in the store of this election's class: in Consul, as Consul's api.Lock, consul lock
    /// (PREFIX/.lock) and lictor agent do; or in a bucket, below the url of the class, as lictor agent does, also by the
    /// own lease of a blob in Azure. The key must match the followPattern of the class, and can't be the key in which
    /// lictor keeps its own record of this election.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub key: Option<String>,

    /// How the holder of the lock maps to a pod.
    #[serde(default)]
    pub identity: Identity,
}

/// A Lease that the candidates hold.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FollowedLease {
    /// The name of the Lease, at most 253 lower-case letters, digits, '-' and '.'.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()").message("followedLock.lease.name is not a valid name for a Lease: write lower-case letters, digits, '-' and '.', for example web-lock"))]
    pub name: String,
}

/// How the holder of the lock maps to a pod. The holder's name is the holderIdentity of a Lease, the holder in an
/// object, or the value of a key in Consul. If the key's value is empty, it is the name of the session that holds the key.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.from) && self.from == 'Annotation') == has(self.annotation)")
        .message("followedLock.identity.annotation is for from: Annotation, which needs it: write for example {from: Annotation, annotation: example.com/member}"),
    validation = Rule::new("!has(self.pattern) || self.pattern.split('{identity}').size() == 2")
        .message("followedLock.identity.pattern must contain {identity} exactly once, in place of the pod's name, address or annotation: write for example \"{identity}_*\"")
)]
pub struct Identity {
    /// The content of the holder's name. PodName (default): the pod's name, alone or followed by _ and any characters.
    /// PodIP: one of the pod's addresses, alone or with a port. Annotation: the value of an annotation of the pod.
    #[serde(default)]
    pub from: IdentityFrom,

    /// The name of the annotation, if from is Annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub annotation: Option<String>,

    /// The pattern of the holder's whole name. {identity} stands for the part that from describes, * stands for any
    /// characters. Default: the pattern that from implies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 10, max = 253))]
    pub pattern: Option<String>,
}

/// The content of the name of the lock's holder.
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
    /// Held: the lock has a holder. Free: the lock has none. Unknown: lictor can't read the lock at present.
    pub state: String,
    /// The holder's name, as the lock gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The name of the holder's pod. Absent if the holder is no pod of this election.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// How often the lock was acquired, by its own count: leaseTransitions of a Lease, LockIndex of a key in Consul.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transitions: Option<i64>,
    /// When the holder acquired the lock, by the holder's own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<Time>,
}
