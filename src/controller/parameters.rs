//! The parameters of an operator.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::Notify;

use super::dial::Dial;
use super::stores::Clients;
use crate::kubernetes::Namespaces;
use crate::store::LockStore;

/// The purpose of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To elect leaders.
    Serve,
    /// To remove everything that was written for the elections that the operator would serve, as if they were deleted, and then to end.
    /// The elections stay.
    Withdraw,
}

/// The parameters of an operator.
pub struct Parameters {
    /// The purpose.
    pub purpose: Purpose,
    /// The cluster.
    pub client: Client,
    /// The namespaces that are served.
    pub namespaces: Namespaces,
    /// The `spec.controller` of the classes that are served.
    pub controller: String,
    /// A unique name for this start of this replica.
    pub identity: String,
    /// How long the other replicas wait after an operator was killed.
    pub lease_duration: Duration,
    /// The namespace of the operator's own Lease, and of Secrets that name none.
    pub own_namespace: String,
    /// The limit of each request.
    pub request_timeout: Duration,
    /// The locks in Leases.
    pub leases: Arc<dyn LockStore>,
    /// How the stores of classes are reached.
    pub clients: Clients,
    /// The way connections to pods are made.
    pub dial: Dial,
    /// Notified when another replica seems to act.
    pub doubt: Arc<Notify>,
}
