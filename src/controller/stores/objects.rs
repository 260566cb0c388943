//! The store of a class that keeps its locks in objects, each of which can be replaced only if it has not changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use lictor_api::{
    BucketPlace, ElectionClassStatus, HubPlace, ObjectClass, ObjectPlace, ObjectsCluster, ObjectsStatus, Shared,
    SharedClass,
};
use lictor_core::{Failure, SessionParameters, StoreId, Uid};
use lictor_locks::objects::{ObjectKeeper, ObjectKeys, ObjectSettings, TRIAL};
use lictor_locks::{Hub, Role};
use lictor_objects::{Bucket, BucketSettings, Credentials, Objects, Trial, honours_conditions};
use lictor_process::monotonic;

use super::class_store::{ClassStore, Context, News, Secrets, Trouble, secret, whole};
use super::kept::{self, Kept};
use crate::kubernetes::connect_by;
use crate::store::ObjectParameters;

/// How a store of objects is reached.
pub type Open = Arc<dyn Fn(Site, Client) -> BoxFuture<'static, Result<Arc<dyn Objects>, String>> + Send + Sync>;

/// A store of objects, with all that it takes to reach it.
#[derive(Clone, PartialEq)]
pub enum Site {
    /// A bucket.
    Bucket(BucketSettings),
    /// A namespace of a cluster.
    Hub {
        /// The namespace.
        namespace: String,
        /// The kubeconfig. `None`: this cluster is the hub.
        kubeconfig: Option<Vec<u8>>,
        /// How long a request may take.
        timeout: Duration,
    },
}

/// Reaches a store by its own protocol.
pub(super) async fn open(site: Site, own: Client) -> Result<Arc<dyn Objects>, String> {
    Ok(match site {
        Site::Bucket(settings) => Arc::new(Bucket::new(&settings).map_err(|error| error.to_string())?),
        Site::Hub { namespace, kubeconfig, timeout } => {
            let hub = match kubeconfig {
                None => own,
                Some(kubeconfig) => connect_by(&kubeconfig, timeout).await.map_err(|error| error.to_string())?,
            };
            Arc::new(Hub::new(hub, &namespace, timeout))
        }
    })
}

/// The store of a class in objects.
pub(crate) struct InObjects {
    id: StoreId,
    context: Context,
    open: Open,
    store: Option<Store>,
}

/// A running store.
struct Store {
    made: Made,
    objects: Arc<dyn Objects>,
    keys: ObjectKeys,
    kept: Kept,
}

/// What a store is made from. It is made again when that changes.
#[derive(Clone, PartialEq)]
struct Made {
    site: Site,
    /// It changes only if a person deletes the class and makes it anew.
    cluster: String,
    session: SessionParameters,
    poll: Duration,
}

impl InObjects {
    pub(crate) fn new(id: StoreId, context: Context, open: Open) -> Self {
        Self { id, context, open, store: None }
    }

    /// Returns what the store of a class is made from; `None` until its Secret has been read.
    fn made(&self, class: &ObjectClass, secrets: &Secrets) -> Result<Option<Made>, Trouble> {
        let session = SessionParameters { ttl: class.ttl };
        let timeout = self.context.timeout.min(session.longest_request());
        let site = match &class.place {
            ObjectPlace::Bucket(place) => bucket(place, timeout, secrets)?.map(Site::Bucket),
            ObjectPlace::Hub(place) => hub(place, timeout, secrets)?,
        };
        Ok(site.map(|site| Made { site, cluster: class.cluster.clone(), session, poll: class.poll }))
    }

    /// Makes the store, after a trial has shown that it honours conditions.
    async fn begin(
        &mut self,
        class: &ObjectClass,
        secrets: &Secrets,
        installation: &Uid,
        role: Role,
    ) -> Result<bool, Trouble> {
        let Some(made) = self.made(class, secrets)? else { return Ok(false) };
        if self.store.as_ref().is_some_and(|store| store.made == made) {
            return Ok(false);
        }
        let objects = (self.open)(made.site.clone(), self.context.client.clone())
            .await
            .map_err(|error| Trouble::invalid_settings(&error))?;
        honours_conditions(&*objects, TRIAL).await.map_err(|trial| match trial {
            Trial::Ignored(message) => Trouble { reason: "ConditionsIgnored", message },
            Trial::Failed(failure) => trouble(&failure),
        })?;
        self.store = None;
        self.store = Some(Store::start(&self.id, class, made, objects, installation, role, &self.context));
        Ok(true)
    }

    async fn news(&mut self) -> News {
        let heard = match &mut self.store {
            Some(store) => tokio::select! {
                biased;
                watched = store.kept.watched.recv() => watched.map(News::Watched),
                changed = store.kept.sessions.changed() => changed.ok().map(|()| {
                    News::Sessions(kept::trouble(&store.kept.sessions.borrow_and_update()), None)
                }),
            },
            None => futures::future::pending().await,
        };
        // The store's tasks have ended.
        heard.unwrap_or_else(|| {
            self.store = None;
            News::Ended
        })
    }
}

/// Returns the settings for a bucket; `None` until its Secret has been read.
fn bucket(place: &BucketPlace, timeout: Duration, secrets: &Secrets) -> Result<Option<BucketSettings>, Trouble> {
    let credentials = match &place.secret {
        None => Credentials::Ambient,
        Some(id) => {
            let Some(data) = whole(secrets, id)? else { return Ok(None) };
            let value = |key: &str| Some((key.to_owned(), data.get(key)?.to_vec()));
            Credentials::Given(data.keys().filter_map(value).collect::<BTreeMap<_, _>>())
        }
    };
    let BucketPlace { url, region, endpoint, .. } = place.clone();
    Ok(Some(BucketSettings { url, region, endpoint, credentials, timeout }))
}

/// Returns what reaches a hub; `None` until its Secret has been read.
fn hub(place: &HubPlace, timeout: Duration, secrets: &Secrets) -> Result<Option<Site>, Trouble> {
    let namespace = place.namespace.clone();
    let Some(key) = &place.kubeconfig else { return Ok(Some(Site::Hub { namespace, kubeconfig: None, timeout })) };
    let kubeconfig = secret(secrets, key)?.map(<[u8]>::to_vec);
    Ok(kubeconfig.map(|kubeconfig| Site::Hub { namespace, kubeconfig: Some(kubeconfig), timeout }))
}

impl Store {
    fn start(
        id: &StoreId,
        class: &ObjectClass,
        made: Made,
        objects: Arc<dyn Objects>,
        installation: &Uid,
        role: Role,
        context: &Context,
    ) -> Self {
        let installation: String = installation.0.chars().take(8).collect();
        // A process may keep several sessions, one after the other or at once.
        let number = context.keepers.fetch_add(1, Ordering::Relaxed);
        let settings = ObjectSettings {
            cluster: class.cluster.clone(),
            // C14: two classes of one installation do not share a session either.
            installation: format!("{installation}/{}", class.name),
            writer: format!("{}.{number}", context.identity),
            ttl: class.ttl,
            poll: class.poll,
        };
        let (keeper, keys, sessions) = ObjectKeeper::new(objects.clone(), settings, monotonic);
        let (suspicion, refusals) = (keeper.suspicion(), keeper.refusals());
        let cluster = class.cluster.clone();
        let parameters =
            ObjectParameters { id: id.clone(), keys: keys.clone(), cluster, installation, suspicion, refusals };
        let locks = parameters.store(sessions.clone());
        tracing::info!(class = class.name, "keeping locks in {}", class.place());
        let kept = Kept::start(id, locks, sessions, |roles| keeper.run(roles), role, context);
        Self { made, objects, keys, kept }
    }
}

impl ClassStore for InObjects {
    fn make<'a>(
        &'a mut self,
        class: &'a SharedClass,
        secrets: &'a Secrets,
        installation: &'a Uid,
        role: Role,
    ) -> BoxFuture<'a, Result<bool, Trouble>> {
        async move {
            match class.objects() {
                Some(class) => self.begin(class, secrets, installation, role).await,
                None => Ok(false),
            }
        }
        .boxed()
    }

    fn is_made(&self) -> bool {
        self.store.is_some()
    }

    fn set_role(&self, role: Role) {
        if let Some(store) = &self.store {
            store.kept.set_role(role);
        }
    }

    fn next(&mut self) -> BoxFuture<'_, News> {
        self.news().boxed()
    }

    fn check(&mut self) -> BoxFuture<'_, Option<Result<(), Trouble>>> {
        async move {
            let objects = self.store.as_ref()?.objects.clone();
            Some(objects.check(TRIAL).await.map_err(|failure| trouble(&failure)))
        }
        .boxed()
    }

    fn describe(&self, status: &mut ElectionClassStatus) {
        let Some(store) = &self.store else { return };
        let session = store.kept.sessions.borrow().ids.iter().flatten().next().cloned();
        let clusters = store.keys.clusters().into_iter().map(|(name, live)| ObjectsCluster { name, live }).collect();
        let objects = ObjectsStatus { session, clusters };
        match store.made.site {
            Site::Bucket(_) => status.bucket = Some(objects),
            Site::Hub { .. } => status.hub = Some(objects),
        }
    }

    fn leave(mut self: Box<Self>, destroy: bool) -> BoxFuture<'static, ()> {
        async move {
            if let Some(store) = self.store.as_mut().filter(|_| destroy) {
                store.kept.destroy().await;
            }
        }
        .boxed()
    }
}

fn trouble(failure: &Failure) -> Trouble {
    let reason = match failure {
        Failure::Forbidden(_) => "Forbidden",
        Failure::Unknown(_) => "NoAnswer",
        Failure::Refused(_) | Failure::Rewritten(_) => "Refused",
    };
    Trouble { reason, message: failure.text().to_owned() }
}
