//! Reads and writes keys.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::BoxStream;
use lictor_core::{Failure, FollowedLock, LockSession, RecordOutcome, SessionObject, Version};
use lictor_objects::{Object, Objects, Put, Tag};
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::content::{KeyObject, name_of, session_of};
use super::view::{Sight, View};
use super::{follow, of_key, of_session};
use crate::Entry;

/// The keys in a store of objects. Clones share their knowledge.
#[derive(Clone)]
pub struct ObjectKeys(Arc<Shared>);

pub(super) struct Shared {
    pub(super) objects: Arc<dyn Objects>,
    /// The shortest time from one look to the next.
    poll: Duration,
    view: Mutex<View>,
    /// The index of the view.
    index: watch::Sender<u64>,
    /// The index up to which a listener has taken the keys.
    pub(super) delivered: watch::Sender<u64>,
    /// How many times somebody has asked for a poll.
    asked: AtomicU64,
    pub(super) wanted: Notify,
    /// The number of these requests that the last poll has answered, and why it failed if it did.
    pub(super) answered: watch::Sender<(u64, Option<Failure>)>,
    /// The other clusters, and whether the session of each may still be relied on.
    pub(super) clusters: Mutex<Vec<(String, bool)>>,
}

impl ObjectKeys {
    pub(super) fn new(objects: Arc<dyn Objects>, poll: Duration) -> Self {
        Self(Arc::new(Shared {
            objects,
            poll,
            view: Mutex::default(),
            index: watch::Sender::new(0),
            delivered: watch::Sender::new(0),
            asked: AtomicU64::new(0),
            wanted: Notify::new(),
            answered: watch::Sender::new((0, Some(Failure::Refused("the store was not read yet".into())))),
            clusters: Mutex::default(),
        }))
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// Returns the other clusters that have or had a session, and whether the session of each may still be relied on.
    pub fn clusters(&self) -> Vec<(String, bool)> {
        self.0.clusters.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads a key from the store itself.
    ///
    /// # Errors
    /// If the store does not answer, or refuses.
    pub async fn read(&self, key: &str) -> Result<Option<Entry>, Failure> {
        let began = self.0.view().begin();
        let Some(object) = self.0.objects.get(&of_key(key)).await? else {
            let known = self.0.view().get(key).is_some();
            if known {
                self.0.want();
            }
            return Ok(None);
        };
        let over = match KeyObject::read(&object.content) {
            Some(KeyObject { session: Some(session), .. }) => self.0.is_over(&session).await?,
            _ => false,
        };
        let entry = {
            let mut view = self.0.view();
            view.take(key, &object, over, began);
            view.entry(key)
        };
        self.0.tell();
        Ok(entry)
    }

    /// Lists all keys from the store itself, in order.
    ///
    /// # Errors
    /// If the store does not answer, or refuses.
    pub async fn list(&self) -> Result<Vec<Entry>, Failure> {
        let mine = self.0.want();
        let mut answered = self.0.answered.subscribe();
        // The sender lives as long as this, so an error never comes.
        let failed = answered.wait_for(|(answered, _)| *answered >= mine).await.ok().and_then(|told| told.1.clone());
        failed.map_or_else(|| Ok(self.0.view().entries()), Err)
    }

    /// Waits until a key is known to differ from what it was at `index`, and returns all keys, with the next index. With an `index` of 0 it
    /// waits only until the store was read.
    ///
    /// # Errors
    /// If the store can't be read. With an `index` of 0 the next attempt decides.
    pub async fn wait(&self, index: u64) -> Result<(u64, Vec<Entry>), Failure> {
        self.0.delivered.send_if_modified(|known| std::mem::replace(known, index.max(*known)) < index);
        let (mut changed, mut answered) = (self.0.index.subscribe(), self.0.answered.subscribe());
        let mut knows_of_failure = index == 0;
        loop {
            match answered.borrow_and_update().1.clone() {
                Some(failure) if !knows_of_failure => return Err(failure),
                Some(_) => {}
                None => {
                    let view = self.0.view();
                    if index == 0 || view.index() > index {
                        return Ok((view.index().max(1), view.entries()));
                    }
                }
            }
            tokio::select! {
                biased;
                _ = changed.changed() => {}
                _ = answered.changed() => knows_of_failure = false,
            }
        }
    }

    /// Returns whether the store was put back to an earlier state after one index and up to another.
    pub fn is_rewound(&self, after: u64, until: u64) -> bool {
        self.0.view().is_rewound(after, until)
    }

    /// Writes a key, and lets a session hold it, if the key still has its version and no session of others holds it.
    pub async fn hold(
        &self,
        key: &str,
        expected: Option<Version>,
        value: &[u8],
        session: &str,
        own: &[String],
    ) -> RecordOutcome {
        let Some(session) = session_of(session) else { return RecordOutcome::Conflict };
        let Ok(seen) = self.at(key, expected).await else { return self.conflict() };
        let free = |seen: &Sight| seen.holder().is_none_or(|holder| own.contains(&name_of(holder)));
        if seen.as_ref().is_some_and(|seen| !free(seen)) {
            return self.conflict();
        }
        let value = match serde_json::from_slice(value) {
            Ok(value) => value,
            Err(error) => return RecordOutcome::Failed(Failure::Refused(format!("the value is no JSON: {error}"))),
        };
        self.write(key, seen.as_ref(), Some(session), Some(value)).await
    }

    /// Hands a key that a session of this cluster holds to another cluster's session, if both still are as they were seen.
    pub async fn give(&self, key: &str, version: Version, value: &[u8], to: &str) -> RecordOutcome {
        let Some(to) = session_of(to) else { return RecordOutcome::Conflict };
        match self.0.is_over(&to).await {
            Ok(false) => {}
            Ok(true) => return self.conflict(),
            Err(failure) => return RecordOutcome::Failed(failure),
        }
        let (Ok(Some(seen)), Ok(value)) = (self.at(key, Some(version)).await, serde_json::from_slice(value)) else {
            return self.conflict();
        };
        self.write(key, Some(&seen), Some(to), Some(value)).await
    }

    /// Lets go of a key, whose value stays, if it still has its version.
    pub async fn release(&self, key: &str, version: Version) -> RecordOutcome {
        let Ok(Some(seen)) = self.at(key, Some(version)).await else { return self.conflict() };
        let value = seen.content.as_ref().ok().and_then(|object| object.value.clone());
        self.write(key, Some(&seen), None, value).await
    }

    /// Deletes a key, if it still has its version.
    pub async fn delete(&self, key: &str, version: Version) -> RecordOutcome {
        let Ok(Some(seen)) = self.at(key, Some(version)).await else { return self.conflict() };
        match self.write(key, Some(&seen), None, None).await {
            RecordOutcome::Written(_) => RecordOutcome::Written(version),
            outcome => outcome,
        }
    }

    /// Follows an object that is no key, but a lock of which one process is the holder.
    pub fn follow(&self, name: &str) -> BoxStream<'static, FollowedLock> {
        follow::follow(self.0.objects.clone(), name.to_owned(), self.0.poll)
    }

    /// Returns what a person does to delete the object of a key.
    pub fn deletion(&self, key: &str) -> String {
        self.0.objects.deletion(&of_key(key))
    }

    /// C15: writes a key as it is, to see whether it may be written.
    ///
    /// # Errors
    /// If the store refuses, or does not answer.
    pub(super) async fn try_write(&self, key: &str) -> Result<(), Failure> {
        let Some(object) = self.0.objects.get(&of_key(key)).await? else { return Ok(()) };
        match self.0.objects.put(&of_key(key), Some(&object.tag), object.content).await {
            Put::Done(_) | Put::Conflict => Ok(()),
            Put::Failed(failure) => Err(failure),
        }
    }

    /// Returns what is known of a key if it has the expected version. `None` as the version: the key must not exist, or be deleted. The store
    /// is asked if the key is not known so.
    async fn at(&self, key: &str, expected: Option<Version>) -> Result<Option<Sight>, ()> {
        let known = || self.0.view().get(key).cloned();
        match at(known(), expected) {
            Ok(seen) => Ok(seen),
            // A failure of this read is a conflict, too: the caller reads the key again.
            Err(()) => self.read(key).await.map_err(drop).and_then(|_| at(known(), expected)),
        }
    }

    async fn write(
        &self,
        key: &str,
        seen: Option<&Sight>,
        session: Option<LockSession>,
        value: Option<Value>,
    ) -> RecordOutcome {
        let (began, version) = {
            let mut view = self.0.view();
            (view.begin(), view.next_version())
        };
        let created = match seen {
            Some(Sight { content: Ok(object), .. }) if object.value.is_some() => object.created,
            _ => version,
        };
        let content = KeyObject { version, created, session, value }.to_bytes();
        match self.0.objects.put(&of_key(key), seen.map(|seen| &seen.tag), content.clone()).await {
            Put::Done(tag) => {
                self.0.view().take(key, &Object { tag, content }, false, began);
                self.0.tell();
                RecordOutcome::Written(Version(version * 2))
            }
            Put::Conflict => self.conflict(),
            Put::Failed(failure) => {
                // A write whose outcome is unknown may have changed the key.
                self.0.want();
                RecordOutcome::Failed(failure)
            }
        }
    }

    /// The key has changed, which the next poll shows.
    fn conflict(&self) -> RecordOutcome {
        self.0.want();
        RecordOutcome::Conflict
    }
}

impl Shared {
    pub(super) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a poll that begins after this.
    pub(super) fn want(&self) -> u64 {
        let mine = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.wanted.notify_one();
        mine
    }

    /// Returns the number of requests for a poll so far.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// Nobody polls any more.
    pub(super) fn abandon(&self) {
        let gone = Failure::Refused("the store is not used any more".into());
        self.answered.send_replace((u64::MAX, Some(gone)));
    }

    /// Tells the listeners that the view has changed.
    pub(super) fn tell(&self) {
        let index = self.view().index();
        self.index.send_if_modified(|known| std::mem::replace(known, index) != index);
    }

    /// B4: whether the session that a lock names has ended. The lock must have been read before.
    async fn is_over(&self, session: &LockSession) -> Result<bool, Failure> {
        let (_, object) = self.session(&session.cluster).await?.unwrap_or((String::new(), None));
        Ok(object.is_some_and(|object| object.shows_the_end_of(&session.id)))
    }

    /// Reads the session of a cluster: `None` if there is no object, and no content if the object is something else.
    pub(super) async fn session(&self, cluster: &str) -> Result<Option<(String, Option<SessionObject>)>, Failure> {
        let read = self.objects.get(&of_session(cluster)).await?;
        Ok(read.map(|Object { tag: Tag(tag), content }| (tag, serde_json::from_slice(&content).ok())))
    }
}

fn at(known: Option<Sight>, expected: Option<Version>) -> Result<Option<Sight>, ()> {
    match (known, expected) {
        (known, None) if known.as_ref().is_none_or(Sight::is_deleted) => Ok(known),
        (Some(seen), Some(version)) if seen.version() == version && !seen.is_deleted() => Ok(Some(seen)),
        _ => Err(()),
    }
}
