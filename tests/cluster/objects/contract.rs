//! The contract of all stores, in buckets on real servers of the protocols of S3 and Azure, and in a hub.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lictor::store::{LockStore, ObjectParameters, Owner, SharedStore};
use lictor_core::{Key, LockValidity, SessionObject, StoreId, Uid};
use lictor_locks::objects::{ObjectKeeper, ObjectSettings};
use lictor_locks::{Hub, Role};
use lictor_objects::{Bucket, Object, Objects, Put};
use lictor_process::monotonic;
use lictor_testing::buckets::{Buckets, Kind};
use lictor_testing::contract::World;
use lictor_testing::kubernetes::{Cluster, Lab, eventually};
use serde_json::{Value, json};
use tokio::sync::watch;

struct InObjects {
    objects: Arc<dyn Objects>,
    store: SharedStore,
    other: SharedStore,
    _roles: [watch::Sender<Role>; 2],
}

impl InObjects {
    async fn in_bucket(kind: Kind) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let settings = Buckets::shared(kind).create(&format!("contract-{number}")).await;
        Self::new(|| Arc::new(Bucket::new(&settings).expect("valid settings"))).await
    }

    async fn in_hub() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let hub = Lab::of(Cluster::second(), &format!("hub-contract-{number}")).await;
        Self::new(|| Arc::new(Hub::new(hub.client.clone(), &hub.namespace, Duration::from_secs(5)))).await
    }

    async fn new(objects: impl Fn() -> Arc<dyn Objects>) -> Self {
        let (store, role) = Self::store_of("west", objects()).await;
        let (other, others) = Self::store_of("east", objects()).await;
        Self { objects: objects(), store, other, _roles: [role, others] }
    }

    /// The store of a cluster.
    async fn store_of(cluster: &str, objects: Arc<dyn Objects>) -> (SharedStore, watch::Sender<Role>) {
        let settings = ObjectSettings {
            cluster: cluster.into(),
            installation: cluster.into(),
            writer: format!("{cluster}-1"),
            ttl: Duration::from_secs(10),
            poll: Duration::from_millis(100),
        };
        let (role, roles) = watch::channel(Role::Acting(1));
        let (keeper, keys, sessions) = ObjectKeeper::new(objects, settings, monotonic);
        let (suspicion, refusals) = (keeper.suspicion(), keeper.refusals());
        tokio::spawn(keeper.run(roles));
        let parameters = ObjectParameters {
            id: StoreId("objects/test".into()),
            keys,
            cluster: cluster.into(),
            installation: cluster.into(),
            suspicion,
            refusals,
        };
        let store = parameters.store(sessions.clone());
        // The session counts once a listener has taken the keys.
        let mut listener = store.watch();
        let listens = async { while futures::StreamExt::next(&mut listener).await.is_some() {} };
        let valid = eventually("there is a session", || async {
            match sessions.borrow().validity {
                LockValidity::Until(_) => Ok(()),
                validity => Err(format!("{validity:?}")),
            }
        });
        tokio::select! { () = listens => {}, () = valid => {} }
        (store, role)
    }

    async fn edit(&self, key: &Key, edit: impl Fn(&[u8]) -> Vec<u8>) {
        let name = format!("locks/{}.json", key.name);
        let object = self.objects.get(&name).await.expect("the server answers");
        let (tag, content) = object.map_or((None, vec![]), |Object { tag, content }| (Some(tag), content));
        let put = self.objects.put(&name, tag.as_ref(), edit(&content)).await;
        assert!(matches!(put, Put::Done(_)), "{put:?}");
    }
}

impl World for InObjects {
    fn store(&self) -> &dyn LockStore {
        &self.store
    }

    fn other(&self) -> Option<&dyn LockStore> {
        Some(&self.other)
    }

    async fn end_session(&self, id: &str) {
        let (cluster, _) = id.split_once('/').expect("a cluster and an ID");
        let name = format!("sessions/{cluster}.json");
        let ended = async {
            let Object { tag, content } = self.objects.get(&name).await.ok()??;
            let session: SessionObject = serde_json::from_slice(&content).ok()?;
            let content = serde_json::to_vec(&session.ended_by("test")).ok()?;
            matches!(self.objects.put(&name, Some(&tag), content).await, Put::Done(_)).then_some(())
        };
        ended.await.expect("nobody renews it at this moment");
    }

    fn key(&self, name: &str) -> Key {
        Key { store: StoreId("objects/test".into()), namespace: String::new(), name: name.into() }
    }

    fn owner(&self) -> Owner {
        Owner { namespace: "shop".into(), name: "web".into(), uid: Uid("uid of web".into()) }
    }

    async fn put_foreign(&self, key: &Key) {
        self.edit(key, |_| b"somebody's".to_vec()).await;
    }

    async fn damage(&self, key: &Key, way: usize) {
        self.edit(key, |content| {
            let mut object: Value = serde_json::from_slice(content).expect("JSON");
            match way {
                0 => object["value"] = json!("mine"),
                1 => object["value"]["term"] = json!(null),
                2 => object["value"] = json!({}),
                _ => object["value"]["holder"] = json!("b"),
            }
            serde_json::to_vec(&object).expect("JSON")
        })
        .await;
    }

    const WAYS: usize = 4;
}

mod s3 {
    use super::*;
    lictor_testing::contract!(|_test| InObjects::in_bucket(Kind::S3));
}

mod azure {
    use super::*;
    lictor_testing::contract!(|_test| InObjects::in_bucket(Kind::Azure));
}

mod hub {
    use super::*;
    lictor_testing::contract!(|_test| InObjects::in_hub());
}
