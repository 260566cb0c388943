//! The stores of the classes that keep their locks in Consul: one task for each.

use std::collections::BTreeMap;
use std::time::Duration;

use lictor_core::StoreId;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::runner::Runner;
use super::store::{Context, store_id};
use crate::api::{Classes, ElectionClass, consul_class};
use crate::process::spawn;

/// How long a stopping operator may take to release its sessions.
const FAREWELL: Duration = Duration::from_secs(3);

/// The stores in Consul, one for each class.
pub(crate) struct ConsulStores {
    context: Context,
    runners: BTreeMap<String, Running>,
}

struct Running {
    class: watch::Sender<ElectionClass>,
    leave: watch::Sender<Option<bool>>,
    task: JoinHandle<()>,
    release_on_stop: bool,
}

impl ConsulStores {
    pub(crate) fn new(context: Context) -> Self {
        Self { context, runners: BTreeMap::new() }
    }

    /// Takes the current classes. Returns the ids of new stores. The store of a deleted class stays while `in_use` says so, because its
    /// locks must be kept until their elections are gone too.
    pub(crate) fn apply(&mut self, classes: &Classes, in_use: impl Fn(&StoreId) -> bool) -> Vec<StoreId> {
        let mut new = Vec::new();
        for (name, class) in classes {
            let served = class.spec.controller == self.context.controller;
            let Some(Ok(consul)) = consul_class(class).filter(|_| served) else { continue };
            if let Some(running) = self.runners.get_mut(name) {
                running.release_on_stop = consul.release_on_stop;
                running.class.send_if_modified(|known| {
                    let differs = known != class;
                    known.clone_from(class);
                    differs
                });
                continue;
            }
            let (sender, receiver) = watch::channel(class.clone());
            let (leave, leaving) = watch::channel(None);
            let runner = Runner::new(store_id(name), self.context.clone(), receiver, leaving);
            let release_on_stop = consul.release_on_stop;
            let running = Running { class: sender, leave, task: spawn(runner.run()), release_on_stop };
            self.runners.insert(name.clone(), running);
            new.push(store_id(name));
        }
        let served =
            |name: &String| classes.get(name).is_some_and(|class| class.spec.controller == self.context.controller);
        let unused = |name: &&String| !served(name) && !in_use(&store_id(name));
        for name in self.runners.keys().filter(unused).cloned().collect::<Vec<_>>() {
            self.context.stores.remove(&store_id(&name));
            if let Some(mut running) = self.runners.remove(&name) {
                let _ = running.leave.send(Some(true));
                spawn(async move {
                    let _ = (&mut running.task).await;
                    // Its channels stay open until the task has ended.
                    drop(running);
                });
            }
        }
        new
    }

    /// Whether a stopping operator gives up its locks in a store.
    pub(crate) fn releases_on_stop(&self, store: &StoreId) -> bool {
        self.runners.iter().any(|(name, running)| store_id(name) == *store && running.release_on_stop)
    }

    /// Ends all tasks. Sessions to be given up are destroyed if `vacated` says that no leader relies on them any more. The others stay for
    /// a successor, or until they expire.
    pub(crate) async fn stop(mut self, vacated: impl Fn(&StoreId) -> bool) {
        for (name, running) in &self.runners {
            let destroy = running.release_on_stop && vacated(&store_id(name));
            let _ = running.leave.send(Some(destroy));
        }
        let tasks = self.runners.values_mut().map(|running| &mut running.task);
        let _ = tokio::time::timeout(FAREWELL, futures::future::join_all(tasks)).await;
    }
}
