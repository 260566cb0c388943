//! Listings of all locks, past every cache, shared by all who asked before one was sent: after the loss of a whole cluster, a
//! thousand elections ask at once.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, TryFutureExt};
use lictor_consul::{Client, Entry, Error};

type Listing = Shared<BoxFuture<'static, Result<Arc<Vec<Entry>>, Error>>>;

/// Shares listings of one prefix.
#[derive(Clone)]
pub(super) struct Listings {
    client: Client,
    prefix: String,
    /// One at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The one that is not sent yet.
    next: Arc<Mutex<Option<Listing>>>,
}

impl Listings {
    pub(super) fn new(client: Client, prefix: String) -> Self {
        Self { client, prefix, turn: Arc::default(), next: Arc::default() }
    }

    /// All that is there, in the order of the keys; sent after this is called.
    pub(super) async fn list(&self) -> Result<Arc<Vec<Entry>>, Error> {
        let listing = self.next().get_or_insert_with(|| self.clone().send().boxed().shared()).clone();
        listing.await
    }

    async fn send(self) -> Result<Arc<Vec<Entry>>, Error> {
        let _turn = self.turn.lock().await;
        // Whoever asks from now on, waits for another one.
        self.next().take();
        self.client.list(&self.prefix).map_ok(|(_, entries)| Arc::new(entries)).await
    }

    fn next(&self) -> std::sync::MutexGuard<'_, Option<Listing>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
