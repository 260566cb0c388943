//! What an operator is made with.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use lictor_consul::Connect;
use tokio::sync::Notify;

use super::dial::Dial;
use crate::kubernetes::Namespaces;
use crate::store::LockStore;

/// What an operator is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To elect leaders.
    Serve,
    /// To take off all that was written for the elections that it would serve, as if they were deleted, and then to end. They stay.
    Withdraw,
}

/// What an operator is made with.
pub struct Parameters {
    /// What it is there for.
    pub purpose: Purpose,
    /// The cluster.
    pub client: Client,
    /// The part of it that is served.
    pub namespaces: Namespaces,
    /// The `spec.controller` of the classes that are served.
    pub controller: String,
    /// Of this start of this replica, unique.
    pub identity: String,
    /// How long an operator that was killed keeps the others waiting.
    pub lease_duration: Duration,
    /// The namespace of the operator's own Lease, and of Secrets that name none.
    pub own_namespace: String,
    /// The limit of each request.
    pub request_timeout: Duration,
    /// The locks in Leases.
    pub leases: Arc<dyn LockStore>,
    /// How the locks in Consul are reached.
    pub consul: Connect,
    /// How connections to pods are made.
    pub dial: Dial,
    /// Notified when another replica seems to act.
    pub doubt: Arc<Notify>,
}
