//! Consistent listings of all locks. Callers that ask before a listing is sent share it, because a thousand elections ask at once
//! after the loss of a whole cluster.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use lictor_core::{Failure, Uid};
use lictor_locks::{Entry, Layout};

use super::keys::Keys;

type Listing = Shared<BoxFuture<'static, Result<Arc<Listed>, Failure>>>;

/// The content of a listing. Its records are read once, however many elections ask.
pub(super) struct Listed {
    entries: Vec<Entry>,
    by_election: BTreeMap<Uid, Vec<String>>,
}

impl Listed {
    /// Returns all entries in the order of their keys.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the names of the locks that were written for an election.
    pub(super) fn locks_of(&self, election: &Uid) -> impl Iterator<Item = &String> {
        self.by_election.get(election).into_iter().flatten()
    }
}

/// Shares the listings of one prefix.
#[derive(Clone)]
pub(super) struct Listings {
    keys: Arc<dyn Keys>,
    layout: Layout,
    /// Lets one listing run at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The listing that is not sent yet.
    next: Arc<Mutex<Option<Listing>>>,
}

impl Listings {
    pub(super) fn new(keys: Arc<dyn Keys>, layout: Layout) -> Self {
        Self { keys, layout, turn: Arc::default(), next: Arc::default() }
    }

    /// Lists all entries. The request is sent after this call.
    pub(super) async fn list(&self) -> Result<Arc<Listed>, Failure> {
        let listing = self.next().get_or_insert_with(|| self.clone().send().boxed().shared()).clone();
        listing.await
    }

    async fn send(self) -> Result<Arc<Listed>, Failure> {
        let _turn = self.turn.lock().await;
        // Later callers wait for the next listing.
        self.next().take();
        let entries = self.keys.list("").await?;
        let by_election = self.layout.by_election(&entries);
        Ok(Arc::new(Listed { entries, by_election }))
    }

    fn next(&self) -> std::sync::MutexGuard<'_, Option<Listing>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
