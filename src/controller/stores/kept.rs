//! The locks of a class at work: their watch, and the keeper of the sessions that hold them.

use std::sync::Arc;

use lictor_core::StoreId;
use lictor_locks::{Role, Sessions};
use lictor_process::spawn;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::class_store::{Context, Trouble, forward};
use crate::store::{LockStore, SharedStore};

/// Two tasks, which end with this. The sessions stay, because a successor finds them by their names.
pub(crate) struct Kept {
    pub(crate) sessions: watch::Receiver<Sessions>,
    /// The obstacle to watching the locks; `None` if there is none.
    pub(crate) watched: mpsc::UnboundedReceiver<Option<String>>,
    forwarder: JoinHandle<()>,
    keeper: JoinHandle<()>,
    role: watch::Sender<Role>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.forwarder.abort();
        self.keeper.abort();
    }
}

impl Kept {
    /// Begins to keep sessions and to watch locks. The store is registered from now on.
    pub(crate) fn start<F>(
        id: &StoreId,
        locks: SharedStore,
        sessions: watch::Receiver<Sessions>,
        keep: impl FnOnce(watch::Receiver<Role>) -> F,
        role: Role,
        context: &Context,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (role, roles) = watch::channel(role);
        let (heard, watched) = mpsc::unbounded_channel();
        let forwarder = spawn(forward(locks.watch(), heard, context.inputs.clone()));
        context.stores.insert(id.clone(), Arc::new(locks));
        Self { sessions, watched, forwarder, keeper: spawn(keep(roles)), role }
    }

    /// Takes this replica's role for the sessions.
    pub(crate) fn set_role(&self, role: Role) {
        self.role.send_if_modified(|known| std::mem::replace(known, role) != role);
    }

    /// Destroys the sessions.
    pub(crate) async fn destroy(&mut self) {
        let _ = self.role.send(Role::Leave);
        let _ = (&mut self.keeper).await;
    }
}

/// What is wrong with sessions.
pub(crate) fn trouble(sessions: &Sessions) -> Option<Trouble> {
    // C15.
    if let Some(denied) = &sessions.denied {
        let message = format!("{}; until then, this cluster gives up the locks that it holds", denied.text());
        return Some(Trouble { reason: "Forbidden", message });
    }
    let reason = if sessions.name_in_use { "ClusterNameInUse" } else { "SessionsFail" };
    sessions.failure.as_ref().map(|failure| Trouble { reason, message: failure.text().to_owned() })
}
