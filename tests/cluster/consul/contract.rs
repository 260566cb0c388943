//! The contract of all stores, on real Consul servers of the present version and of an old one, in both layouts.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lictor::store::{ConsulParameters, LockStore, Owner, SharedStore};
use lictor_consul::{Client, Settings};
use lictor_core::{Key, LockValidity, StoreId, Uid};
use lictor_locks::Layout;
use lictor_locks::Role;
use lictor_locks::consul::{Home, SessionKeeper, SessionSettings};
use lictor_process::monotonic;
use lictor_testing::consul::{Consul, Kind};
use lictor_testing::contract::World;
use lictor_testing::kubernetes::eventually;
use tokio::sync::watch;

struct InConsul {
    consul: &'static Consul,
    store: SharedStore,
    other: SharedStore,
    prefix: String,
    layout: Layout,
    _roles: [watch::Sender<Role>; 2],
}

fn old() -> &'static Consul {
    static OLD: OnceLock<Consul> = OnceLock::new();
    OLD.get_or_init(|| Consul::start(Kind::Old))
}

impl InConsul {
    async fn new(consul: &'static Consul, layout: Layout) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let _ = rustls::crypto::ring::default_provider().install_default();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("contract-{}-{number}/", std::process::id());
        let (store, role) = Self::store_of("west", consul, layout, &prefix).await;
        let (other, others) = Self::store_of("east", consul, layout, &prefix).await;
        Self { consul, store, other, prefix, layout, _roles: [role, others] }
    }

    /// The store of a cluster.
    async fn store_of(
        cluster: &str,
        consul: &'static Consul,
        layout: Layout,
        prefix: &str,
    ) -> (SharedStore, watch::Sender<Role>) {
        let client = Client::new(&Settings::new(consul.address())).expect("a client can be made");
        let settings = SessionSettings {
            prefix: format!("{prefix}{cluster}"),
            namesakes: None,
            home: Home::Node { name: "contract".into(), address: "127.0.0.1".into(), meta: BTreeMap::default() },
            count: 1,
            ttl: Duration::from_secs(10),
            lock_delay: Duration::ZERO,
        };
        let (role, roles) = watch::channel(Role::Acting(1));
        let (keeper, sessions) = SessionKeeper::new(client.clone(), settings, monotonic);
        let (suspicion, refusals) = (keeper.suspicion(), keeper.refusals());
        tokio::spawn(keeper.run(roles));
        eventually("there is a session", || async {
            match sessions.borrow().validity {
                LockValidity::Until(_) => Ok(()),
                validity => Err(format!("{validity:?}")),
            }
        })
        .await;
        let parameters = ConsulParameters {
            id: StoreId("consul/test".into()),
            client,
            cluster: cluster.into(),
            installation: "a".into(),
            prefix: prefix.into(),
            layout,
            wait: Duration::from_secs(10),
            suspicion,
            refusals,
        };
        (parameters.store(sessions), role)
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
        self.consul.api().put(&format!("/v1/session/destroy/{id}"), "").await.expect("Consul answers").ok();
    }

    fn key(&self, name: &str) -> Key {
        Key { store: StoreId("consul/test".into()), namespace: String::new(), name: format!("{}{name}", self.prefix) }
    }

    fn owner(&self) -> Owner {
        Owner { namespace: "shop".into(), name: "web".into(), uid: Uid("uid of web".into()) }
    }

    async fn put_foreign(&self, key: &Key) {
        self.consul.api().put(&format!("/v1/kv/{}", key.name), "somebody's").await.expect("Consul answers").ok();
    }

    async fn damage(&self, key: &Key, way: usize) {
        let api = self.consul.api();
        let path = format!("/v1/kv/{}", key.name);
        let raw = api.get(&format!("{path}?raw")).await.expect("Consul answers").text;
        let edited = match way {
            0 => api.put(&path, "mine").await,
            1 => api.put(&format!("{path}?flags=7"), raw).await,
            2 => api.put(&path, raw).await,
            3 => api.put(&format!("{path}?flags=3304740253564472344"), "").await,
            _ if self.layout == Layout::Record => api.put(&path, raw.replace("\"holder\"", "\"folder\"") + " ").await,
            _ => api.put(&format!("{path}/record"), "{}").await.and(api.put(&path, raw).await),
        };
        edited.expect("Consul answers").ok();
    }

    const WAYS: usize = 4;
}

mod present {
    use super::*;
    lictor_testing::contract!(|_test| InConsul::new(Consul::shared(), Layout::Record));
}

mod leader_name {
    use super::*;
    lictor_testing::contract!(|_test| InConsul::new(Consul::shared(), Layout::LeaderName));
}

mod of_1_8 {
    use super::*;
    lictor_testing::contract!(|_test| InConsul::new(old(), Layout::Record));
}
