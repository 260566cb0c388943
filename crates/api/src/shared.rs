//! What a class says alike of every kind of store that several clusters share.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether lictor keeps its locks.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum LockPolicy {
    /// lictor keeps them.
    #[default]
    Hold,
    /// lictor releases them, so that other clusters can acquire them.
    Release,
}

/// Controls what lictor does while this cluster's API server does not answer.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LostCluster {
    /// Hold (default): lictor keeps the locks, because the leaders are most likely still running. Release: lictor stops
    /// renewing the sessions after releaseAfterSeconds. Once the sessions have ended, other clusters elect their own
    /// leaders. The pod here keeps its leader label until the API server answers again.
    #[serde(default)]
    pub policy: LockPolicy,

    /// For Release: how long the API server must be unreachable before lictor stops renewing the sessions, in seconds,
    /// 10 to 86400. Default: 60.
    #[serde(default = "number::<60>")]
    #[schemars(range(min = 10, max = 86400))]
    pub release_after_seconds: u32,
}

impl Default for LostCluster {
    fn default() -> Self {
        Self { policy: LockPolicy::Hold, release_after_seconds: 60 }
    }
}

/// A reference to a Secret.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// The Secret's namespace. Default: the namespace that lictor runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')").message("not a valid namespace: it may have lower-case letters, digits and '-', and must begin and end with a letter or digit, for example lictor"))]
    pub namespace: Option<String>,

    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')").message("not a valid Secret name: it may have lower-case letters, digits, '-' and '.', and must begin and end with a letter or digit, for example lictor-west"))]
    pub name: String,
}

/// A reference to one value in a Secret.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// The Secret's namespace. Default: the namespace that lictor runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')").message("not a valid namespace: it may have lower-case letters, digits and '-', and must begin and end with a letter or digit, for example lictor"))]
    pub namespace: Option<String>,

    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')").message("not a valid Secret name: it may have lower-case letters, digits, '-' and '.', and must begin and end with a letter or digit, for example consul-token"))]
    pub name: String,

    /// The key in the Secret's data. Default: ca.crt for certificate authorities, token for an ACL token,
    /// kubeconfig for a kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9._-]+$')").message("not a valid Secret key: it may have letters, digits, '-', '_' and '.', for example token"))]
    pub key: Option<String>,
}

/// Returns a default for a field.
pub(crate) fn number<const N: u32>() -> u32 {
    N
}
