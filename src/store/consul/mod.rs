//! Locks in Consul, as a store.

mod followed;
mod keys;
mod service;

use std::sync::Arc;
use std::time::Duration;

use lictor_consul::Client;
use lictor_core::StoreId;
use lictor_locks::Layout;
use lictor_locks::{Refusals, Sessions};
use tokio::sync::Notify;

use self::keys::ConsulKeys;
use super::shared::{SharedParameters, SharedStore};

/// The parameters of a store in Consul.
#[derive(Clone)]
pub struct ConsulParameters {
    /// The store's id in keys.
    pub id: StoreId,
    /// The client for Consul.
    pub client: Client,
    /// This cluster's name in records.
    pub cluster: String,
    /// This installation of lictor in the cluster, as records name it.
    pub installation: String,
    /// The prefix of all keys. It ends with a slash.
    pub prefix: String,
    /// The place of records.
    pub layout: Layout,
    /// How long the watch waits for a change before it asks again.
    pub wait: Duration,
    /// Notified when a session seems to be gone.
    pub suspicion: Arc<Notify>,
    /// Receives the locks that this cluster holds and may not write.
    pub refusals: Arc<Refusals>,
}

impl ConsulParameters {
    /// Creates the store whose locks these sessions hold.
    pub fn store(self, sessions: tokio::sync::watch::Receiver<Sessions>) -> SharedStore {
        let Self { id, client, cluster, installation, prefix, layout, wait, suspicion, refusals } = self;
        let keys = ConsulKeys { client, prefix, wait, suspicion: suspicion.clone() };
        let parameters = SharedParameters { id, cluster, installation, layout, suspicion, refusals };
        SharedStore::new(Arc::new(keys), parameters, sessions)
    }
}
