//! Where a class keeps its locks in a hub.

use super::common::SecretKey;

/// A namespace of a cluster, and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubPlace {
    /// The namespace.
    pub namespace: String,
    /// The kubeconfig. `None`: this cluster is the hub.
    pub kubeconfig: Option<SecretKey>,
}
