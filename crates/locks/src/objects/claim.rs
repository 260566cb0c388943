//! The object of a lock that one process holds: its content, and its reading and writing.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::stream::BoxStream;
use lictor_core::{ClaimParameters, Failure, LockHolder, Term, Timestamp, Version};
use lictor_objects::{Object, Objects, Put, Tag, Trial, honours_conditions};
use lictor_process::wall;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::timeout;

use super::content::HIGHEST;
use crate::claim::{ClaimStore, Claimed, News, Unwritten, Write, polls};
use crate::lock::{LockUpdate, Other};

/// The holder in place of which nobody acts. No process has such a name, because it has spaces.
const UNKNOWN: &str = "an unknown holder";

/// The settings for a lock in an object.
#[derive(Clone, Debug)]
pub struct ObjectLockSettings {
    /// The object's name. An [`ObjectLock`](super::ObjectLock) writes one beside it that ends in `.trial`, which shows that the store honours
    /// conditions.
    pub name: String,
    /// The process, as the object names its holder. A process takes a lock with its own name for its own, so no other one may have it.
    pub identity: String,
    /// How long the lock lasts after a renewal, in whole seconds. A lease of Azure lasts 15 to 60.
    pub duration: Duration,
    /// The node of the holder, for readers of the object.
    pub node: Option<String>,
    /// The address of the holder, for readers of the object.
    pub advertise: Option<String>,
}

/// The content of the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimObject {
    /// A number that rises with each write, so that no content comes twice: a store may make the tag from the content.
    pub(super) version: u64,
    /// How long the others wait for the next version; of a released lock: [`lictor_core::Claim::released`].
    pub(super) duration_seconds: u64,
    /// When this version was written, by the clock of its writer, for people.
    pub(super) written: Timestamp,
    #[serde(flatten)]
    pub(super) state: State,
}

/// The state of the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub(super) enum State {
    /// A process holds the lock.
    Held(Holding),
    /// The last holder has given the lock back.
    Released,
    /// There was no object. A person may have deleted it while a process held the lock, so the others wait as for a holder.
    Missing,
}

/// The holder of the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Holding {
    /// The holder's name, which no other process has.
    pub(super) holder: String,
    /// The holder's node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    /// The holder's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) address: Option<String>,
    /// The holder's term.
    pub(super) term: Term,
    /// Since when the holder has this term, by its own clock.
    pub(super) since: Timestamp,
}

impl Holding {
    /// Returns what is told to whoever only follows the lock. `version`: that of the object or the mark.
    pub(super) fn followed(self, version: u64) -> LockHolder {
        LockHolder {
            tenure: format!("{} {}", self.term, self.holder),
            identity: self.holder,
            address: self.address,
            version: Version(version),
            transitions: None,
            since: Some(self.since),
        }
    }
}

impl ClaimObject {
    /// Reads an object's content: `None` if somebody else has written it.
    pub(super) fn read(content: &[u8]) -> Option<Self> {
        serde_json::from_slice(content).ok().filter(|object: &Self| object.version <= HIGHEST)
    }
}

/// The object in its store.
pub(super) struct ClaimInObject {
    objects: Arc<dyn Objects>,
    settings: ObjectLockSettings,
    /// What this process knows of the lock, with the term in which it holds it.
    lock: watch::Receiver<LockUpdate>,
    /// B7: whether the store was shown to honour conditions. A failed trial is no result.
    trial: OnceLock<Result<(), Failure>>,
    known: Mutex<Known>,
}

/// The object, as this process last read or wrote it.
#[derive(Default)]
struct Known {
    tag: Option<Tag>,
    version: u64,
    /// The highest version that this process has tried to write.
    tried: u64,
    /// The longest duration that a holder has published.
    longest: u64,
    /// The last term of this process, and since when it has had it.
    led: Option<(Term, Timestamp)>,
}

impl Known {
    /// A8: takes a state of the object, and returns its version. If the tag is another one, the version is later, even if a person has put
    /// an earlier content there.
    fn take(&mut self, tag: Tag, version: u64) -> Version {
        if self.tag.as_ref() != Some(&tag) {
            self.version = version.max(self.version + 1);
            self.tag = Some(tag);
        }
        Version(self.version)
    }

    /// Returns the version of the next write, which is higher than all that this process knows.
    fn next(&mut self) -> u64 {
        self.tried = self.tried.max(self.version) + 1;
        self.tried
    }
}

impl ClaimInObject {
    pub(super) fn new(
        objects: Arc<dyn Objects>,
        settings: ObjectLockSettings,
        lock: watch::Receiver<LockUpdate>,
    ) -> Self {
        Self { objects, settings, lock, trial: OnceLock::new(), known: Mutex::default() }
    }

    /// B7: shows once that the store honours conditions.
    async fn try_conditions(&self) -> Result<(), Failure> {
        if let Some(tried) = self.trial.get() {
            return tried.clone();
        }
        let result = match honours_conditions(&*self.objects, &format!("{}.trial", self.settings.name)).await {
            Ok(()) => Ok(()),
            Err(Trial::Ignored(message)) => Err(Failure::Refused(message)),
            Err(Trial::Failed(failure)) => return Err(failure),
        };
        self.trial.get_or_init(|| result).clone()
    }

    async fn get(&self, limit: Duration) -> Result<Option<Object>, Failure> {
        let read = timeout(limit, self.objects.get(&self.settings.name)).await;
        read.unwrap_or_else(|_| Err(Failure::Unknown(format!("the store has not answered within {limit:?}"))))
    }

    /// Writes a state of the object, and returns what the store has now.
    async fn put(&self, expected: Option<Tag>, object: ClaimObject, limit: Duration) -> Result<Claimed, Unwritten> {
        let refused = |error: serde_json::Error| Unwritten::Failed(Failure::Refused(error.to_string()));
        let content = serde_json::to_vec(&object).map_err(refused)?;
        let late = || Put::Failed(Failure::Unknown(format!("the store has not answered within {limit:?}")));
        let put = timeout(limit, self.objects.put(&self.settings.name, expected.as_ref(), content)).await;
        match put.unwrap_or_else(|_| late()) {
            Put::Done(tag) => Ok(self.claimed(tag, Some(object))),
            Put::Conflict => Err(Unwritten::Conflict),
            Put::Failed(failure) => Err(Unwritten::Failed(failure)),
        }
    }

    /// Takes a state of the object, which is `None` if somebody else has written it.
    fn claimed(&self, tag: Tag, object: Option<ClaimObject>) -> Claimed {
        let own = self.settings.duration;
        let mut known = self.known();
        let version = known.take(tag, object.as_ref().map_or(0, |object| object.version));
        let Some(ClaimObject { duration_seconds, state, .. }) = object else {
            let owner = Some("another program".to_owned());
            let (holder, duration) = (owner.clone(), own);
            return Claimed { version, holder, duration, replica: None, told: None, owner, installation: None };
        };
        let published = Duration::from_secs(duration_seconds);
        let (holder, told, duration) = match state {
            State::Released => (None, None, published),
            State::Missing => (Some(UNKNOWN.to_owned()), None, published.max(own)),
            State::Held(Holding { holder, node, address, term, since }) => {
                known.longest = known.longest.max(duration_seconds);
                let told = Other { name: holder.clone(), node, address, term: Some(term), since: Some(since) };
                (Some(holder), Some(told), published.max(own))
            }
        };
        Claimed { version, holder, duration, replica: None, told, owner: None, installation: None }
    }

    /// A8: creates the object in the name of nobody. The next holder waits for the duration from when it has seen that, because a person
    /// may have deleted the object while a process held the lock, which hears of that only with its next renewal.
    async fn create(&self, limit: Duration) -> Result<Claimed, Unwritten> {
        let (version, longest) = {
            let mut known = self.known();
            // Terms rise over a deletion, too, also for processes that have seen no earlier version.
            known.version = known.version.max(u64::try_from(wall().0).unwrap_or_default());
            (known.next(), known.longest)
        };
        let duration_seconds = longest.min(ClaimParameters::LONGEST.as_secs()).max(self.settings.duration.as_secs());
        let created =
            self.put(None, ClaimObject { version, duration_seconds, written: wall(), state: State::Missing }, limit);
        let created = created.await?;
        tracing::info!(
            object = self.settings.name,
            "the object of the lock is missing: there is no leader for {duration_seconds} s, because a person may have \
             deleted it while another process holds the lock"
        );
        Ok(created)
    }

    /// Returns what is to be replaced, and the version of the write that does so. `None`: the object has another version.
    fn replace(&self, expected: Option<Version>) -> Option<(Tag, u64)> {
        let mut known = self.known();
        let tag = known.tag.clone().filter(|_| expected == Some(Version(known.version)))?;
        Some((tag, known.next()))
    }

    /// Returns the holder for a write of this version. An agent that goes on keeps its term (A6).
    fn holding(&self, version: u64, takes_over: bool) -> Holding {
        let held = self.lock.borrow().held.map(|held| held.term).filter(|_| !takes_over);
        let term = held.unwrap_or_else(|| Term(i64::try_from(version).unwrap_or(i64::MAX)));
        let mut known = self.known();
        let (term, since) = known.led.filter(|(led, _)| *led == term).unwrap_or_else(|| (term, wall()));
        known.led = Some((term, since));
        let ObjectLockSettings { identity, node, advertise, .. } = self.settings.clone();
        Holding { holder: identity, node, address: advertise, term, since }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClaimStore for ClaimInObject {
    const KIND: &'static str = "object";

    fn name(&self) -> &str {
        &self.settings.name
    }

    fn news(&self) -> BoxStream<'_, News> {
        polls(self.settings.duration)
    }

    async fn read(&self, limit: Duration) -> Result<Option<Claimed>, Failure> {
        self.try_conditions().await?;
        let object = match self.get(limit).await? {
            Some(object) => object,
            None => match self.create(limit).await {
                Ok(created) => return Ok(Some(created)),
                Err(Unwritten::Failed(failure)) => return Err(failure),
                // Another process has created it.
                Err(Unwritten::Conflict) => {
                    let gone = || Failure::Refused("the object is created and deleted again and again".into());
                    self.get(limit).await?.ok_or_else(gone)?
                }
            },
        };
        let content = ClaimObject::read(&object.content);
        Ok(Some(self.claimed(object.tag, content)))
    }

    async fn write(&self, write: Write) -> Result<Claimed, Unwritten> {
        let (tag, version) = self.replace(write.expected).ok_or(Unwritten::Conflict)?;
        let state = State::Held(self.holding(version, write.takes_over));
        let duration_seconds = self.settings.duration.as_secs();
        self.put(Some(tag), ClaimObject { version, duration_seconds, written: wall(), state }, write.limit).await
    }

    async fn release(&self, version: Version, lasts: Duration, limit: Duration) -> Result<(), Failure> {
        let changed = || Failure::Refused("another process has changed the object".into());
        let (tag, version) = self.replace(Some(version)).ok_or_else(changed)?;
        let (duration_seconds, state) = (lasts.as_secs(), State::Released);
        match self.put(Some(tag), ClaimObject { version, duration_seconds, written: wall(), state }, limit).await {
            Ok(_) => Ok(()),
            Err(Unwritten::Conflict) => Err(changed()),
            Err(Unwritten::Failed(failure)) => Err(failure),
        }
    }
}
