//! A lock that is an object's own lease: that of a blob in Azure. The store's clock ends the lease, and programs that know nothing of lictor
//! can take it.
//!
//! A9: the store says that a lease is held, and never by whom. The holder writes its name and the lease's id into the object's metadata, and
//! a reader believes the name only if the store confirms that the lease has this id now.

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::BoxStream;
use lictor_core::{Failure, FollowedLock, LockHolder, NotHeld, Term, Timestamp, Version};
use lictor_objects::{Action, LeaseState, Leased, Leases};
use lictor_process::{monotonic, wall};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::timeout;

use super::claim::{Holding, ObjectLockSettings};
use super::content::HIGHEST;
use crate::claim::{ClaimStore, ClaimUpdate, Claimed, News, Unwritten, Write, polls, start};
use crate::lock::{Lock, LockUpdate, Other, Problem};

/// The name of the metadata that says who holds the lease: a [`Mark`] in JSON.
const MARK: &str = "lictor";

/// Any holder of the lease but this process. No process has such a name, because it has spaces. Nothing has to wait for one holder after
/// another has followed it, so they need no names of their own.
const ANOTHER: &str = "another holder";

/// What a holder is called that has written no name.
const ANOTHER_PROGRAM: &str = "another program";

/// The duration of a lease that is free: [`lictor_core::Claim::released`]. Whoever had it before relies on it no more.
const FREE: Duration = Duration::from_secs(1);

/// A lock that is the lease of an object.
pub struct LeasedObjectLock;

impl LeasedObjectLock {
    /// Begins to keep a lock.
    pub fn start(object: Arc<dyn Leases>, settings: ObjectLockSettings) -> Lock {
        let (identity, duration) = (settings.identity.clone(), settings.duration);
        let problem = |claim: &ClaimUpdate| claim.failure.clone().map(Problem::Failed);
        start(identity, duration, |lock| ClaimInLease::new(object, settings, lock), problem)
    }
}

/// What the holder of the lease writes into the metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    /// A number that rises with each mark.
    version: u64,
    /// The id of the holder's lease.
    lease: String,
    #[serde(flatten)]
    holding: Holding,
}

impl Mark {
    /// Returns the mark of an object: `None` if it has none that lictor has written.
    fn of(object: &Leased) -> Option<Self> {
        serde_json::from_str(object.metadata.get(MARK)?).ok().filter(|mark: &Self| mark.version <= HIGHEST)
    }

    /// Returns the mark as ASCII, because a header has nothing else.
    fn to_text(&self) -> Result<String, Failure> {
        let json = serde_json::to_string(self).map_err(|error| Failure::Refused(error.to_string()))?;
        let ascii = |unit: u16| match u8::try_from(unit).ok().filter(u8::is_ascii) {
            Some(ascii) => char::from(ascii).to_string(),
            None => format!("\\u{unit:04x}"),
        };
        Ok(json.encode_utf16().map(ascii).collect())
    }
}

/// Who has the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Has {
    Nobody,
    /// This process.
    Own,
    /// An earlier process in the place of this one.
    Earlier,
    Another,
}

/// Returns who has the lease, for whoever only reads it.
///
/// # Errors
/// If the store does not answer, or refuses.
pub(super) async fn holder(object: &dyn Leases) -> Result<FollowedLock, Failure> {
    let Some(seen) = object.look(None).await? else { return Ok(FollowedLock::Free(NotHeld::Absent)) };
    match seen.state {
        LeaseState::Available | LeaseState::Broken => return Ok(FollowedLock::Free(NotHeld::Released)),
        LeaseState::Expired => return Ok(FollowedLock::Free(NotHeld::Expired)),
        LeaseState::Leased | LeaseState::Breaking => {}
    }
    let mark = match Mark::of(&seen) {
        Some(mark) => object.look(Some(&mark.lease)).await?.and_then(|now| Mark::of(&now)).filter(|now| *now == mark),
        None => None,
    };
    let Some(Mark { version, holding, .. }) = mark else {
        let (identity, tenure) = (ANOTHER_PROGRAM.to_owned(), ANOTHER_PROGRAM.to_owned());
        return Ok(FollowedLock::Held(LockHolder { identity, tenure, ..LockHolder::default() }));
    };
    Ok(FollowedLock::Held(holding.followed(version)))
}

/// The object in its store.
struct ClaimInLease {
    object: Arc<dyn Leases>,
    settings: ObjectLockSettings,
    /// What this process knows of the lock, with the term in which it holds it.
    lock: watch::Receiver<LockUpdate>,
    /// The id of this process's lease. No other lock has ever had it, so a late request for another one changes nothing of this one.
    id: String,
    known: Mutex<Known>,
}

/// The lease, as this process last read or changed it.
#[derive(Default)]
struct Known {
    /// A number that rises with each reading that may show another state, and with each mark.
    version: u64,
    /// Whether a request for this process's lease may have been carried out.
    asked: bool,
    /// The id that the lease had last, of those that marks have named.
    id: Option<String>,
    /// The id of an earlier process's lease that this one takes for its own.
    earlier: Option<String>,
    /// The version and the term of this process's mark, while nothing else was read.
    marked: Option<(u64, Term)>,
    /// The last term of this process, and since when it has had it.
    led: Option<(Term, Timestamp)>,
}

impl ClaimInLease {
    fn new(object: Arc<dyn Leases>, settings: ObjectLockSettings, lock: watch::Receiver<LockUpdate>) -> Self {
        Self { object, settings, lock, id: new_id(), known: Mutex::default() }
    }

    /// Reads the lease, and who has it.
    async fn look(&self) -> Result<Claimed, Failure> {
        let first = {
            let known = self.known();
            if known.asked { Some(self.id.clone()) } else { known.id.clone() }
        };
        if let Some(id) = &first
            && let Some(leased) = self.object.look(Some(id)).await?
        {
            return Ok(self.take(&leased, Some(id)));
        }
        let object = if let Some(object) = self.object.look(None).await? {
            object
        } else {
            self.object.create().await?;
            let gone = || Failure::Refused("the object is created and deleted again and again".into());
            self.object.look(None).await?.ok_or_else(gone)?
        };
        let named =
            Mark::of(&object).map(|mark| mark.lease).filter(|id| !object.state.is_free() && first.as_ref() != Some(id));
        if let Some(id) = &named
            && let Some(leased) = self.object.look(Some(id)).await?
        {
            return Ok(self.take(&leased, Some(id)));
        }
        Ok(self.take(&object, None))
    }

    /// Takes a state of the object. `id` is that of its lease, if the store has confirmed it.
    fn take(&self, object: &Leased, id: Option<&str>) -> Claimed {
        let mark = Mark::of(object);
        // Whoever wrote the mark under another id no longer has the lease.
        let holding = mark.as_ref().filter(|mark| id == Some(&mark.lease)).map(|mark| mark.holding.clone());
        let has = match (&holding, object.state) {
            (_, state) if state.is_free() => Has::Nobody,
            // A person has ended the lease. Nobody can renew it.
            (_, LeaseState::Breaking) => Has::Another,
            _ if id == Some(&self.id) => Has::Own,
            (Some(holding), _) if holding.holder == self.settings.identity => Has::Earlier,
            _ => Has::Another,
        };
        let mut known = self.known();
        let found = mark.as_ref().map(|mark| mark.version);
        if has != Has::Own || known.marked.map(|(version, _)| version) != found {
            known.version = found.unwrap_or_else(now).max(known.version + 1);
            known.marked = None;
        }
        // A request of this process that has had no answer may still arrive, unless another lease was in its way.
        known.asked = known.asked && (holding.is_none() || has == Has::Own);
        known.id = id.map(str::to_owned);
        known.earlier = id.filter(|_| has == Has::Earlier).map(str::to_owned);
        let version = known.version;
        drop(known);
        let told = holding.map(|Holding { holder, node, address, term, since }| Other {
            name: holder,
            node,
            address,
            term: Some(term),
            since: Some(since),
        });
        let (holder, told, duration) = match has {
            Has::Nobody => (None, None, FREE),
            Has::Own | Has::Earlier => (Some(self.settings.identity.clone()), told, self.settings.duration),
            Has::Another => {
                let told = told.unwrap_or_else(|| Other::named(ANOTHER_PROGRAM.to_owned()));
                (Some(ANOTHER.to_owned()), Some(told), self.settings.duration)
            }
        };
        claimed(version, holder, told, duration)
    }

    /// Acquires or renews the lease, and marks the object if its mark does not name this term.
    async fn hold(&self, takes_over: bool) -> Result<Claimed, Unwritten> {
        let (id, duration) = (self.id.as_str(), self.settings.duration);
        let earlier = self.known().earlier.clone();
        if let Some(from) = &earlier {
            self.ask(Action::Change { from, to: id }).await?;
            self.known().earlier = None;
        }
        self.ask(if takes_over { Action::Acquire { id, duration } } else { Action::Renew { id } }).await?;
        let held = self.lock.borrow().held.filter(|held| !takes_over && monotonic() < held.until).map(|held| held.term);
        let marked = self.known().marked;
        let version = match marked {
            Some((version, term)) if held == Some(term) => version,
            _ => self.mark(held).await?,
        };
        Ok(claimed(version, Some(self.settings.identity.clone()), None, duration))
    }

    /// Asks for a change of the lease to one of this process.
    async fn ask(&self, action: Action<'_>) -> Result<(), Unwritten> {
        let asked = std::mem::replace(&mut self.known().asked, true);
        if self.object.lease(action).await.map_err(Unwritten::Failed)? {
            return Ok(());
        }
        self.known().asked = asked;
        Err(Unwritten::Conflict)
    }

    /// Writes the next mark, in a new term if none is given, and returns its version. The mark replaces exactly the one that was read under
    /// this lease, so a late one is refused, and terms rise from each holder to the next.
    async fn mark(&self, held: Option<Term>) -> Result<u64, Unwritten> {
        let mut object =
            self.object.look(Some(&self.id)).await.map_err(Unwritten::Failed)?.ok_or(Unwritten::Conflict)?;
        let found = Mark::of(&object).map_or_else(now, |mark| mark.version);
        let mark = {
            let mut known = self.known();
            (known.version, known.marked) = (found.max(known.version) + 1, None);
            let term = held.unwrap_or_else(|| Term(i64::try_from(known.version).unwrap_or(i64::MAX)));
            let (term, since) = known.led.filter(|(led, _)| *led == term).unwrap_or_else(|| (term, wall()));
            known.led = Some((term, since));
            let ObjectLockSettings { identity, node, advertise, .. } = self.settings.clone();
            let holding = Holding { holder: identity, node, address: advertise, term, since };
            Mark { version: known.version, lease: self.id.clone(), holding }
        };
        object.metadata.insert(MARK.to_owned(), mark.to_text().map_err(Unwritten::Failed)?);
        if !self.object.mark(&self.id, &object.tag, &object.metadata).await.map_err(Unwritten::Failed)? {
            return Err(Unwritten::Conflict);
        }
        self.known().marked = Some((mark.version, mark.holding.term));
        Ok(mark.version)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn claimed(version: u64, holder: Option<String>, told: Option<Other>, duration: Duration) -> Claimed {
    Claimed { version: Version(version), holder, duration, replica: None, told, owner: None, installation: None }
}

/// Returns the lowest version for an object without a mark. Terms rise even if a person deletes the mark, unless clocks are wrong.
fn now() -> u64 {
    u64::try_from(wall().0).unwrap_or_default()
}

/// Returns a GUID that was never made before.
fn new_id() -> String {
    let random = || RandomState::new().hash_one(std::process::id());
    let (high, low) = (random(), random());
    let parts = (high >> 32, (high >> 16) & 0xffff, high & 0xffff, low >> 48, low & 0xffff_ffff_ffff);
    format!("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", parts.0, parts.1, parts.2, parts.3, parts.4)
}

/// Limits the time of what takes several requests.
async fn within<T>(limit: Duration, asked: impl Future<Output = Result<T, Unwritten>>) -> Result<T, Unwritten> {
    let late = || Failure::Unknown(format!("the store has not answered within {limit:?}"));
    timeout(limit, asked).await.unwrap_or_else(|_| Err(Unwritten::Failed(late())))
}

impl ClaimStore for ClaimInLease {
    const KIND: &'static str = "lease";

    fn name(&self) -> &str {
        &self.settings.name
    }

    fn news(&self) -> BoxStream<'_, News> {
        polls(self.settings.duration)
    }

    async fn read(&self, limit: Duration) -> Result<Option<Claimed>, Failure> {
        let late = || Failure::Unknown(format!("the store has not answered within {limit:?}"));
        timeout(limit, self.look()).await.unwrap_or_else(|_| Err(late())).map(Some)
    }

    async fn write(&self, write: Write) -> Result<Claimed, Unwritten> {
        within(write.limit, self.hold(write.takes_over)).await
    }

    async fn release(&self, _: Version, _: Duration, limit: Duration) -> Result<(), Failure> {
        let release = async { self.object.lease(Action::Release { id: &self.id }).await.map_err(Unwritten::Failed) };
        match within(limit, release).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(Unwritten::Conflict) => Err(Failure::Refused("the lease is another holder's".into())),
            Err(Unwritten::Failed(failure)) => Err(failure),
        }
    }
}
