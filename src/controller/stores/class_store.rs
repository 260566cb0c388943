//! What the runner of a class asks of the class's store, whatever kind of store it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use kube::Client;
use lictor_api::{ElectionClassStatus, Refusal, SecretId, SecretKey, SharedClass};
use lictor_core::Uid;
use lictor_locks::Role;
use lictor_locks::lease::ClaimUpdate;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::controller::input::Input;
use crate::kubernetes::SecretData;
use crate::store::{StoreEvent, Stores};

/// The parameters that the stores of all classes share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    /// The name of this process, which no other process ever has.
    pub(crate) identity: String,
    /// The namespace of Secrets that name none.
    pub(crate) own_namespace: String,
    pub(crate) controller: String,
    pub(crate) timeout: Duration,
    pub(crate) stores: Stores,
    pub(crate) inputs: mpsc::UnboundedSender<Input>,
    pub(crate) claim: watch::Receiver<ClaimUpdate>,
    /// The number of keepers of sessions in buckets so far, which tells each from every other one of this process.
    pub(crate) keepers: Arc<AtomicU64>,
}

/// The store of one class, which its runner keeps while the class is served.
pub(crate) trait ClassStore: Send {
    /// Makes the store, or makes it again if its settings have changed. Does nothing while something that it needs is not known yet.
    /// Returns whether to check at once that the store answers.
    fn make<'a>(
        &'a mut self,
        class: &'a SharedClass,
        secrets: &'a Secrets,
        installation: &'a Uid,
        role: Role,
    ) -> BoxFuture<'a, Result<bool, Trouble>>;

    /// Whether the store is made.
    fn is_made(&self) -> bool;

    /// Takes this replica's role for the sessions.
    fn set_role(&self, role: Role);

    /// Waits for the next news. Nothing is lost if the caller stops waiting.
    fn next(&mut self) -> BoxFuture<'_, News>;

    /// Checks that the store answers. Returns `None` if it is not made.
    fn check(&mut self) -> BoxFuture<'_, Option<Result<(), Trouble>>>;

    /// Writes into the class's status what only this kind of store has to say. It is asked while the store answers.
    fn describe(&self, status: &mut ElectionClassStatus);

    /// Ends the store. `destroy`: whether to destroy the sessions, else they stay for a successor.
    fn leave(self: Box<Self>, destroy: bool) -> BoxFuture<'static, ()>;
}

/// News of a store.
pub(crate) enum News {
    /// The obstacle to watching the locks; `None` if they can be watched.
    Watched(Option<String>),
    /// The state of the sessions: what is wrong with them, and the warning that renewals take almost as long as they may.
    Sessions(Option<Trouble>, Option<String>),
    /// The store has to be checked at this time, if that is earlier than planned.
    CheckBy(Instant),
    /// The store has to be made again.
    Ended,
}

/// A problem of a store, for its class's condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Trouble {
    /// The problem that invalid settings cause.
    pub(crate) fn invalid_settings(error: &impl ToString) -> Self {
        Self { reason: "InvalidSettings", message: error.to_string() }
    }
}

impl From<Refusal> for Trouble {
    fn from(Refusal { reason, message }: Refusal) -> Self {
        Self { reason, message }
    }
}

/// The known Secrets; `None` if a Secret does not exist.
pub(crate) type Secrets = BTreeMap<SecretId, Option<SecretData>>;

/// A whole Secret; `None` until it has been read.
pub(crate) fn whole<'a>(secrets: &'a Secrets, id: &SecretId) -> Result<Option<&'a SecretData>, Trouble> {
    match secrets.get(id) {
        None => Ok(None),
        Some(None) => Err(Trouble { reason: "SecretMissing", message: format!("there is no Secret {id}: create it") }),
        Some(Some(data)) => Ok(Some(data)),
    }
}

/// A value in a Secret; `None` until the Secret has been read.
pub(crate) fn secret<'a>(secrets: &'a Secrets, key: &SecretKey) -> Result<Option<&'a [u8]>, Trouble> {
    let Some(data) = whole(secrets, &key.secret)? else { return Ok(None) };
    data.get(&key.key).map(Some).ok_or_else(|| {
        let keys: Vec<&str> = data.keys().collect();
        let message = format!("the Secret {} has no key {:?}; it has: {}", key.secret, key.key, keys.join(", "));
        Trouble { reason: "SecretMissing", message }
    })
}

/// Passes on the events of the locks' watch, and whether the watch works. It runs in a task of its own, because the runner may wait for
/// a server, and news of the lock validity must not be late.
pub(crate) async fn forward(
    mut events: BoxStream<'static, StoreEvent>,
    heard: mpsc::UnboundedSender<Option<String>>,
    inputs: mpsc::UnboundedSender<Input>,
) {
    while let Some(event) = events.next().await {
        let failure = match &event {
            StoreEvent::Broken(_, failure) => Some(Some(failure.text().to_owned())),
            StoreEvent::LockValidity(..)
            | StoreEvent::Elsewhere(..)
            | StoreEvent::Bids(..)
            | StoreEvent::Remarks(..) => None,
            StoreEvent::All(..) | StoreEvent::Rewound(..) | StoreEvent::Changed(..) | StoreEvent::Resumed(_) => {
                Some(None)
            }
        };
        let gone = failure.is_some_and(|failure| heard.send(failure).is_err());
        if gone || inputs.send(Input::Records(event)).is_err() {
            return;
        }
    }
}
