//! The contract of all stores, on the simulated servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use lictor::kubernetes::Namespaces;
use lictor::store::{ConsulParameters, LeaseStore, LockStore, ObjectParameters, Owner, SharedStore};
use lictor_consul::Settings;
use lictor_core::{Key, LockValidity, StoreId, Uid};
use lictor_locks::Layout;
use lictor_locks::Role;
use lictor_locks::consul::{Home, SessionKeeper, SessionSettings};
use lictor_locks::objects::{ObjectKeeper, ObjectSettings};
use lictor_process::monotonic;
use lictor_testing::contract::World;
use serde_json::json;
use tokio::sync::watch;

use crate::servers::api::ApiServer;
use crate::servers::bucket::{Bucket, way};
use crate::servers::client::{connect, kubernetes};
use crate::servers::consul::{Consul, Request};
use crate::servers::link::Link;

fn owner() -> Owner {
    Owner { namespace: "shop".into(), name: "web".into(), uid: Uid("uid of web".into()) }
}

struct Leases {
    api: Arc<ApiServer>,
    store: LeaseStore,
}

impl Leases {
    #[allow(clippy::unused_async, reason = "as the contract wants it")]
    async fn new() -> Self {
        let api = ApiServer::new("west");
        let client = kubernetes(api.clone(), Link::new(1), Arc::new(|_, _, _, _| {}));
        Self { api, store: LeaseStore::new(client, Namespaces::default(), Duration::from_secs(5)) }
    }
}

impl World for Leases {
    fn store(&self) -> &dyn LockStore {
        &self.store
    }

    fn key(&self, name: &str) -> Key {
        Key::lease("shop", name)
    }

    fn owner(&self) -> Owner {
        owner()
    }

    async fn put_foreign(&self, key: &Key) {
        self.api.edit("leases", "shop", &key.name, |lease| lease["spec"] = json!({"holderIdentity": "somebody"}));
    }

    async fn damage(&self, key: &Key, way: usize) {
        self.api.edit("leases", "shop", &key.name, |lease| {
            let annotations = &mut lease["metadata"]["annotations"];
            match way {
                0 => annotations["lictor.dev/record"] = json!("{\"term\": 5, \"holder\""),
                1 => *annotations = json!({}),
                2 => lease["spec"]["holderIdentity"] = json!("b"),
                _ => lease["spec"]["leaseTransitions"] = json!(6),
            }
        });
    }

    const WAYS: usize = 4;
}

mod leases {
    use super::*;
    lictor_testing::contract!(|_test| Leases::new());
}

struct InConsul {
    consul: Arc<Consul>,
    store: SharedStore,
    other: SharedStore,
    layout: Layout,
    _roles: [watch::Sender<Role>; 2],
}

impl InConsul {
    async fn new(layout: Layout, elsewhere: Layout) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let consul = Consul::new(NUMBER.fetch_add(1, Ordering::Relaxed).into(), 1000);
        let (store, role) = Self::store_of("west", &consul, layout).await;
        let (other, others) = Self::store_of("east", &consul, elsewhere).await;
        Self { consul, store, other, layout, _roles: [role, others] }
    }

    /// The store of a cluster.
    async fn store_of(cluster: &str, consul: &Arc<Consul>, layout: Layout) -> (SharedStore, watch::Sender<Role>) {
        let connect = connect(consul.clone(), Link::new(2), Arc::new(|_, _, _, _| {}));
        let client = connect(&Settings::new("http://consul.example:8500")).unwrap();
        let settings = SessionSettings {
            prefix: format!("contract-{cluster}"),
            namesakes: None,
            home: Home::Node { name: "contract".into(), address: "127.0.0.1".into(), meta: BTreeMap::default() },
            count: 1,
            ttl: Duration::from_secs(10),
            lock_delay: Duration::ZERO,
        };
        let (role, roles) = watch::channel(Role::Acting(1));
        let (keeper, mut sessions) = SessionKeeper::new(client.clone(), settings, monotonic);
        let (suspicion, refusals) = (keeper.suspicion(), keeper.refusals());
        tokio::spawn(keeper.run(roles));
        sessions.wait_for(|sessions| matches!(sessions.validity, LockValidity::Until(_))).await.unwrap();
        let parameters = ConsulParameters {
            id: StoreId("consul/test".into()),
            client,
            cluster: cluster.into(),
            installation: "a".into(),
            prefix: String::from("locks/"),
            layout,
            wait: Duration::from_secs(10),
            suspicion,
            refusals,
        };
        (parameters.store(sessions), role)
    }

    async fn put(&self, path: &str, flags: &str, value: &[u8]) {
        let query = BTreeMap::from([("flags".to_owned(), flags.to_owned())]);
        let path = format!("kv/{path}");
        self.consul.handle(&Request { method: "PUT".into(), path, query, body: value.into() }).await;
    }
}

impl World for InConsul {
    fn store(&self) -> &dyn LockStore {
        &self.store
    }

    fn other(&self) -> Option<&dyn LockStore> {
        Some(&self.other)
    }

    async fn end_session(&self, id: &str) {
        let path = format!("session/destroy/{id}");
        self.consul.handle(&Request { method: "PUT".into(), path, query: BTreeMap::new(), body: Vec::new() }).await;
    }

    fn key(&self, name: &str) -> Key {
        Key { store: StoreId("consul/test".into()), namespace: String::new(), name: format!("locks/{name}") }
    }

    fn owner(&self) -> Owner {
        owner()
    }

    async fn put_foreign(&self, key: &Key) {
        self.put(&key.name, "0", b"somebody's").await;
    }

    async fn damage(&self, key: &Key, way: usize) {
        let raw = self.consul.value(&key.name).unwrap_or_default();
        match way {
            0 => self.put(&key.name, "0", b"mine").await,
            1 => self.put(&key.name, "7", &raw).await,
            2 => self.put(&key.name, "3304740253564472344", b"").await,
            _ if self.layout == Layout::LeaderName => {
                self.put(&format!("{}/record", key.name), "0", b"{}").await;
                self.put(&key.name, "0", &raw).await;
            }
            _ => self.put(&key.name, "0", &raw).await,
        }
    }

    const WAYS: usize = 4;
}

mod consul {
    use super::*;
    lictor_testing::contract!(|_test| InConsul::new(Layout::Record, Layout::Record));
}

mod consul_by_leader_name {
    use super::*;
    lictor_testing::contract!(|_test| InConsul::new(Layout::LeaderName, Layout::LeaderName));
}

/// The clusters' layouts differ by mistake.
mod consul_in_two_layouts {
    use super::*;
    lictor_testing::contract!(|_test| InConsul::new(Layout::LeaderName, Layout::Record));
}

struct InBucket {
    bucket: Arc<Bucket>,
    store: SharedStore,
    other: SharedStore,
    _roles: [watch::Sender<Role>; 2],
}

impl InBucket {
    async fn new(by_content: bool) -> Self {
        let bucket = Bucket::new(by_content);
        let (store, role) = Self::store_of("west", &bucket).await;
        let (other, others) = Self::store_of("east", &bucket).await;
        Self { bucket, store, other, _roles: [role, others] }
    }

    /// The store of a cluster.
    async fn store_of(cluster: &str, bucket: &Arc<Bucket>) -> (SharedStore, watch::Sender<Role>) {
        let objects = way(bucket.clone(), Link::new(2), Arc::new(|_, _, _, _| {}), Duration::from_secs(3));
        let settings = ObjectSettings {
            cluster: cluster.into(),
            installation: cluster.into(),
            writer: format!("{cluster}/1"),
            ttl: Duration::from_secs(10),
            poll: Duration::from_millis(100),
        };
        let (role, roles) = watch::channel(Role::Acting(1));
        let (keeper, keys, mut sessions) = ObjectKeeper::new(objects, settings, monotonic);
        let (suspicion, refusals) = (keeper.suspicion(), keeper.refusals());
        tokio::spawn(keeper.run(roles));
        let parameters = ObjectParameters {
            id: StoreId("bucket/test".into()),
            keys,
            cluster: cluster.into(),
            installation: cluster.into(),
            suspicion,
            refusals,
        };
        let store = parameters.store(sessions.clone());
        // The session counts once a listener has taken the keys.
        let mut listener = store.watch();
        let listens = async { while listener.next().await.is_some() {} };
        let valid = sessions.wait_for(|sessions| matches!(sessions.validity, LockValidity::Until(_)));
        tokio::select! { () = listens => {}, valid = valid => drop(valid.unwrap()) }
        (store, role)
    }
}

impl World for InBucket {
    fn store(&self) -> &dyn LockStore {
        &self.store
    }

    fn other(&self) -> Option<&dyn LockStore> {
        Some(&self.other)
    }

    async fn end_session(&self, id: &str) {
        let (cluster, _) = id.split_once('/').unwrap();
        self.bucket.end_session(cluster).unwrap();
    }

    fn key(&self, name: &str) -> Key {
        Key { store: StoreId("bucket/test".into()), namespace: String::new(), name: format!("locks/{name}") }
    }

    fn owner(&self) -> Owner {
        owner()
    }

    async fn put_foreign(&self, key: &Key) {
        self.bucket.overwrite(&key.name, b"somebody's");
    }

    async fn damage(&self, key: &Key, way: usize) {
        self.bucket.forge(&key.name, |value| match way {
            0 => *value = json!("mine"),
            1 => value["term"] = json!(null),
            2 => *value = json!({}),
            _ => value["holder"] = json!("b"),
        });
    }

    const WAYS: usize = 4;
}

mod bucket {
    use super::*;
    lictor_testing::contract!(|_test| InBucket::new(false));
}

/// Equal contents have equal tags.
mod bucket_by_content {
    use super::*;
    lictor_testing::contract!(|_test| InBucket::new(true));
}
