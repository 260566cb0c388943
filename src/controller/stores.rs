//! The stores of the classes that keep their locks where several clusters see them: one task for each.

mod class_store;
mod condition;
mod consul;
mod duty;
mod kept;
mod objects;
mod runner;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::ResourceExt;
use lictor_api::{Classes, ElectionClass, SharedClass, shared_class};
use lictor_consul::Connect;
use lictor_core::StoreId;
use lictor_process::spawn;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::class_store::ClassStore;
pub(super) use self::class_store::Context;
use self::consul::InConsul;
use self::objects::InObjects;
pub use self::objects::{Open, Site};
use self::runner::Runner;

/// How long a stopping operator may take to release its sessions.
const FAREWELL: Duration = Duration::from_secs(3);

/// How the stores of classes are reached. A simulation has its own.
#[derive(Clone)]
pub struct Clients {
    consul: Connect,
    objects: Open,
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            consul: Arc::new(lictor_consul::Client::new),
            objects: Arc::new(|site, own| objects::open(site, own).boxed()),
        }
    }
}

impl Clients {
    /// Reaches Consul in another way.
    #[must_use]
    pub fn with_consul(mut self, consul: Connect) -> Self {
        self.consul = consul;
        self
    }

    /// Reaches stores of objects in another way.
    #[must_use]
    pub fn with_objects(mut self, objects: Open) -> Self {
        self.objects = objects;
        self
    }
}

/// Returns the store of a class. It is not made yet.
fn class_store(class: &SharedClass, context: &Context, clients: &Clients) -> Box<dyn ClassStore> {
    match class {
        SharedClass::Consul(_) => Box::new(InConsul::new(class.store(), context.clone(), clients.consul.clone())),
        SharedClass::Objects(_) => Box::new(InObjects::new(class.store(), context.clone(), clients.objects.clone())),
    }
}

/// The stores of classes.
pub(super) struct ClassStores {
    context: Context,
    clients: Clients,
    runners: BTreeMap<StoreId, Running>,
}

struct Running {
    class: watch::Sender<ElectionClass>,
    leave: watch::Sender<Option<bool>>,
    task: JoinHandle<()>,
    release_on_stop: bool,
}

impl ClassStores {
    pub(super) fn new(context: Context, clients: Clients) -> Self {
        Self { context, clients, runners: BTreeMap::new() }
    }

    /// Takes the current classes. Returns the stores that they share, each with how long an operator that begins to act waits for its first
    /// answers. The store of a deleted class stays while `in_use` says so, because its locks must be kept until their elections are gone too.
    pub(super) fn apply(&mut self, classes: &Classes, in_use: impl Fn(&StoreId) -> bool) -> Vec<(StoreId, Duration)> {
        let mut all = Vec::new();
        for class in classes.values().filter(|class| class.spec.controller == self.context.controller) {
            let Some(Ok(shared)) = shared_class(class) else { continue };
            let (id, release_on_stop) = (shared.store(), shared.release_on_stop());
            all.push((id.clone(), shared.patience()));
            if let Some(running) = self.runners.get_mut(&id) {
                running.release_on_stop = release_on_stop;
                running.class.send_if_modified(|known| {
                    let differs = known != class;
                    known.clone_from(class);
                    differs
                });
                continue;
            }
            let (sender, receiver) = watch::channel(class.clone());
            let (leave, leaving) = watch::channel(None);
            let store = class_store(&shared, &self.context, &self.clients);
            let runner = Runner::new(shared.kind(), store, self.context.clone(), receiver, leaving);
            let running = Running { class: sender, leave, task: spawn(runner.run()), release_on_stop };
            self.runners.insert(id, running);
        }
        // A class may have been deleted and made again with another store. What an invalid class names is not known.
        let served = |id: &StoreId, running: &Running| {
            let class = classes.get(&running.class.borrow().name_any());
            let class = class.filter(|class| class.spec.controller == self.context.controller);
            class.and_then(shared_class).is_some_and(|read| read.map_or(true, |shared| shared.store() == *id))
        };
        let unused = |(id, running): &(&StoreId, &Running)| !served(id, running) && !in_use(id);
        for id in self.runners.iter().filter(unused).map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.context.stores.remove(&id);
            if let Some(mut running) = self.runners.remove(&id) {
                let _ = running.leave.send(Some(true));
                spawn(async move {
                    let _ = (&mut running.task).await;
                    // Its channels stay open until the task has ended.
                    drop(running);
                });
            }
        }
        all
    }

    /// Whether a stopping operator gives up its locks in a store.
    pub(super) fn releases_on_stop(&self, store: &StoreId) -> bool {
        self.runners.get(store).is_some_and(|running| running.release_on_stop)
    }

    /// Ends all tasks. Sessions to be given up are destroyed if `vacated` says that no leader still relies on them. The others stay for
    /// a successor, or until they expire.
    pub(super) async fn stop(mut self, vacated: impl Fn(&StoreId) -> bool) {
        for (id, running) in &self.runners {
            let destroy = running.release_on_stop && vacated(id);
            let _ = running.leave.send(Some(destroy));
        }
        let tasks = self.runners.values_mut().map(|running| &mut running.task);
        let _ = tokio::time::timeout(FAREWELL, futures::future::join_all(tasks)).await;
    }
}
