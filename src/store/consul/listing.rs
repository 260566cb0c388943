//! Consistent listings of all locks. Callers that ask before a listing is sent share it, because a thousand elections ask at once
//! after the loss of a whole cluster.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, TryFutureExt};
use lictor_consul::{Client, Entry, Error};

type Listing = Shared<BoxFuture<'static, Result<Arc<Vec<Entry>>, Error>>>;

/// Shares the listings of one prefix.
#[derive(Clone)]
pub(super) struct Listings {
    client: Client,
    prefix: String,
    /// Lets one listing run at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The listing that is not sent yet.
    next: Arc<Mutex<Option<Listing>>>,
}

impl Listings {
    pub(super) fn new(client: Client, prefix: String) -> Self {
        Self { client, prefix, turn: Arc::default(), next: Arc::default() }
    }

    /// Lists all entries in the order of their keys. The request is sent after this call.
    pub(super) async fn list(&self) -> Result<Arc<Vec<Entry>>, Error> {
        let listing = self.next().get_or_insert_with(|| self.clone().send().boxed().shared()).clone();
        listing.await
    }

    async fn send(self) -> Result<Arc<Vec<Entry>>, Error> {
        let _turn = self.turn.lock().await;
        // Later callers wait for the next listing.
        self.next().take();
        self.client.list(&self.prefix).map_ok(|(_, entries)| Arc::new(entries)).await
    }

    fn next(&self) -> std::sync::MutexGuard<'_, Option<Listing>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
