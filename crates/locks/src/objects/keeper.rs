//! Keeps the session of one cluster, ends the sessions of other clusters that nobody renews, and polls the store.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, OptionFuture};
use futures::stream::BoxStream;
use lictor_core::{
    CasCommand, CasSession, Failure, Instant, LockSession, LockValidity, ObjectTag, SessionEnd, SessionObject,
    SessionParameters, SessionWatch, SessionWrite,
};
use lictor_objects::{Objects, Put, Tag};
use lictor_process::nap;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::content::name_of;
use super::keys::{ObjectKeys, Shared};
use super::poll::{Found, KnownSessions, Polled, poll};
use super::{Named, of_session};
use crate::rights::{Rights, Tried, try_writes};
use crate::{Refusals, Refused, Role, Sessions};

/// How long after a change the store is polled at its shortest interval, because a handover between clusters consists of several changes.
const LIVELY: Duration = Duration::from_secs(10);
/// How long a look into the store may take.
const LONGEST_POLL: Duration = Duration::from_secs(30);

/// Which session to keep, and how.
#[derive(Clone, Debug)]
pub struct ObjectSettings {
    /// The cluster, whose session has its name.
    pub cluster: String,
    /// C14: this installation of lictor in the cluster.
    pub installation: String,
    /// This process, which has a name that no other process ever has.
    pub writer: String,
    /// How long the other clusters wait for the next renewal.
    pub ttl: Duration,
    /// The shortest time from one look into the store to the next.
    pub poll: Duration,
}

/// Keeps a session.
pub struct ObjectKeeper {
    keys: ObjectKeys,
    settings: ObjectSettings,
    clock: fn() -> Instant,
    life: CasSession,
    others: SessionWatch,
    known: KnownSessions,
    /// The request for the session that is under way.
    session: Option<BoxFuture<'static, Done>>,
    /// The session of another cluster that is being ended.
    end: Option<BoxFuture<'static, (SessionEnd, Put)>>,
    /// The look into the store that is under way, and the number of requests for it.
    poll: Option<BoxFuture<'static, (u64, Result<Polled, Failure>)>>,
    next_poll: Instant,
    /// The objects that seem to have changed, if the store tells that.
    changes: Option<BoxStream<'static, String>>,
    last_change: Option<Instant>,
    /// The index of the view after the last look.
    index: u64,
    /// The number of the takeover by which this process keeps the session, or kept it last.
    takeover: u64,
    /// The index of the view that a listener has to know before it can rely on the session, once that is known.
    reliable: Option<u64>,
    failure: Option<Failure>,
    /// C15: the locks that this cluster holds and may not write.
    rights: Rights,
    /// The trial of these rights that is under way.
    trial: Option<BoxFuture<'static, Tried>>,
    renewal: Duration,
    suspicion: Arc<Notify>,
    refusals: Arc<Refusals>,
    updates: watch::Sender<Sessions>,
}

/// The outcome of a request for the session.
enum Done {
    Read(Result<Found, Failure>),
    Written { object: SessionObject, sent: Instant, put: Put },
}

impl ObjectKeeper {
    /// Creates a keeper, the keys that it polls, and the receiver that follows its session.
    pub fn new(
        objects: Arc<dyn Objects>,
        settings: ObjectSettings,
        clock: fn() -> Instant,
    ) -> (Self, ObjectKeys, watch::Receiver<Sessions>) {
        let ObjectSettings { cluster, installation, writer, ttl, .. } = &settings;
        let life = CasSession::new(installation, writer, SessionParameters { ttl: *ttl });
        let others = SessionWatch::new(cluster, installation, writer, *ttl);
        let changes = objects.changes();
        let keys = ObjectKeys::new(objects, settings.poll);
        let (updates, receiver) = watch::channel(Sessions {
            ids: vec![None],
            takeover: 0,
            validities: vec![LockValidity::Unknown],
            validity: LockValidity::Unknown,
            failure: None,
            denied: None,
            name_in_use: false,
            renewal: Duration::ZERO,
        });
        let keeper = Self {
            keys: keys.clone(),
            settings,
            clock,
            life,
            others,
            known: KnownSessions::new(),
            session: None,
            end: None,
            poll: None,
            next_poll: Instant::default(),
            changes,
            last_change: None,
            index: 0,
            takeover: 0,
            reliable: None,
            failure: None,
            rights: Rights::default(),
            trial: None,
            renewal: Duration::ZERO,
            suspicion: Arc::default(),
            refusals: Arc::default(),
            updates,
        };
        (keeper, keys, receiver)
    }

    /// Returns the notifier for a session that seems to have ended. The keeper then reads it at once.
    pub fn suspicion(&self) -> Arc<Notify> {
        self.suspicion.clone()
    }

    /// C15: returns the receiver of refusals to write a lock that the session holds.
    pub fn refusals(&self) -> Arc<Refusals> {
        self.refusals.clone()
    }

    /// Keeps the session until the role says otherwise or the role's sender is gone.
    pub async fn run(mut self, mut role: watch::Receiver<Role>) {
        let mut last = Role::Standby;
        loop {
            let now = *role.borrow_and_update();
            let acts = last != Role::Standby;
            match now {
                Role::Leave if acts => return self.leave().await,
                // Another replica of this cluster may rely on the session.
                Role::Leave => return,
                Role::Acting(_) | Role::Standby if now == last => {}
                Role::Acting(_) | Role::Standby => {
                    if acts {
                        self.stand_by();
                    }
                    if let Role::Acting(takeover) = now {
                        self.begin_to_act(takeover);
                    }
                }
            }
            last = now;
            tokio::select! {
                biased;
                changed = role.changed() => if changed.is_err() { return },
                () = self.step(now != Role::Standby) => {}
            }
        }
    }

    fn begin_to_act(&mut self, takeover: u64) {
        let now = (self.clock)();
        // B6: what was read while another replica acted may be old.
        (self.reliable, self.poll, self.next_poll) = (None, None, now);
        self.takeover = takeover;
        self.life.put_down(now);
    }

    fn stand_by(&mut self) {
        self.life.put_down((self.clock)());
        (self.session, self.end, self.trial, self.reliable) = (None, None, None, None);
        self.rights = Rights::default();
    }

    /// Sends what is due, and takes what has come. This can be cancelled at any time.
    async fn step(&mut self, acts: bool) {
        let next = self.send(acts);
        let shared = self.keys.shared().clone();
        let mut delivered = shared.delivered.subscribe();
        self.publish(acts);
        let awaits_listener = acts && self.reliable.is_some();
        tokio::select! {
            biased;
            Some(done) = OptionFuture::from(self.session.as_mut()) => {
                self.session = None;
                self.done(done);
            }
            Some((end, put)) = OptionFuture::from(self.end.as_mut()) => {
                self.end = None;
                self.ended(end, put);
            }
            Some((asked, polled)) = OptionFuture::from(self.poll.as_mut()) => {
                self.poll = None;
                self.polled(asked, polled);
            }
            Some(tried) = OptionFuture::from(self.trial.as_mut()) => {
                self.trial = None;
                let id = self.id();
                self.rights.tried(tried, &id.as_deref().into_iter().collect::<Vec<_>>(), (self.clock)());
            }
            _ = delivered.changed(), if awaits_listener => {}
            () = self.suspicion.notified(), if acts => self.life.suspect((self.clock)()),
            () = self.refusals.told(), if acts => self.rights.take(self.refusals.drain(), (self.clock)()),
            () = shared.wanted.notified() => self.next_poll = (self.clock)(),
            Some(changed) = OptionFuture::from(self.changes.as_mut().map(StreamExt::next)) => self.hear(changed),
            () = nap(next.since((self.clock)())) => {}
        }
    }

    /// Sends the requests that are due. Returns the latest time to call this again.
    fn send(&mut self, acts: bool) -> Instant {
        let now = (self.clock)();
        let mut again = now + Duration::from_secs(60);
        if self.poll.is_none() {
            let due = self.next_poll;
            if due <= now {
                self.begin_poll();
            } else {
                again = again.min(due);
            }
        }
        if !acts {
            return again;
        }
        if let LockValidity::Until(deadline) = self.life.validity(now) {
            again = again.min(deadline);
        }
        again = again.min(self.try_writes(now).unwrap_or(again));
        if self.session.is_none() {
            match self.life.next(now) {
                CasCommand::Wait(until) => again = again.min(until),
                CasCommand::Read => self.read(),
                CasCommand::Write { expected, object } => self.write(expected, object, now),
            }
        }
        if self.end.is_none() {
            match self.others.late(now).pop() {
                Some(end) => self.end_other(end),
                None => again = again.min(self.others.next_late().unwrap_or(again)),
            }
        }
        again
    }

    fn begin_poll(&mut self) {
        let (shared, known) = (self.keys.shared().clone(), self.known.clone());
        self.poll = Some(Box::pin(async move {
            let asked = shared.asked();
            let late = || Failure::Unknown(format!("the store has not answered within {LONGEST_POLL:?}"));
            (asked, timeout(LONGEST_POLL, poll(shared, known)).await.unwrap_or_else(|_| Err(late())))
        }));
    }

    fn read(&mut self) {
        let (shared, cluster) = (self.keys.shared().clone(), self.settings.cluster.clone());
        let limit = self.parameters().longest_request();
        self.session = Some(Box::pin(async move {
            let late = || Failure::Unknown(format!("the session was not read within {limit:?}"));
            Done::Read(timeout(limit, shared.session(&cluster)).await.unwrap_or_else(|_| Err(late())))
        }));
    }

    fn write(&mut self, expected: Option<ObjectTag>, object: SessionObject, sent: Instant) {
        let (shared, cluster) = (self.keys.shared().clone(), self.settings.cluster.clone());
        let limit = self.parameters().longest_request();
        self.session = Some(Box::pin(async move {
            let late = || Failure::Unknown(format!("the session was not written within {limit:?}"));
            let write = put(&shared, &cluster, expected, &object);
            let put = timeout(limit, write).await.unwrap_or_else(|_| Put::Failed(late()));
            Done::Written { object, sent, put }
        }));
    }

    /// B3: ends the session of another cluster.
    fn end_other(&mut self, end: SessionEnd) {
        let (shared, limit) = (self.keys.shared().clone(), self.parameters().longest_request());
        self.end = Some(Box::pin(async move {
            let late = || Put::Failed(Failure::Unknown(format!("the session was not ended within {limit:?}")));
            let write = put(&shared, &end.cluster, end.expected.clone(), &end.object);
            let put = timeout(limit, write).await.unwrap_or_else(|_| late());
            (end, put)
        }));
    }

    /// Takes what the store says by itself. Renewals of sessions can wait for the next look.
    fn hear(&mut self, changed: Option<String>) {
        match changed {
            Some(name) if matches!(Named::read(&name), Some(Named::Session(_))) => {}
            Some(_) => drop(self.keys.shared().want()),
            // The store says nothing any more.
            None => self.changes = None,
        }
    }

    fn done(&mut self, done: Done) {
        let now = (self.clock)();
        match done {
            Done::Read(Ok(found)) => {
                self.failure = None;
                self.life.read(found, now);
            }
            Done::Read(Err(failure)) => {
                self.life.read_failed(now);
                self.fail(failure);
            }
            Done::Written { object, sent, put } => {
                let outcome = match put {
                    Put::Done(Tag(tag)) => {
                        (self.failure, self.renewal) = (None, now.since(sent));
                        SessionWrite::Done(tag)
                    }
                    Put::Conflict => SessionWrite::Conflict,
                    Put::Failed(failure) => {
                        let refused = failure.is_refused();
                        self.fail(failure);
                        if refused { SessionWrite::Refused } else { SessionWrite::Unknown }
                    }
                };
                self.life.written(object, sent, outcome, now);
            }
        }
    }

    fn fail(&mut self, failure: Failure) {
        if self.failure.as_ref() != Some(&failure) {
            tracing::warn!(cluster = self.settings.cluster, "the session can't be kept: {}", failure.text());
        }
        self.failure = Some(failure);
    }

    fn ended(&mut self, end: SessionEnd, put: Put) {
        let now = (self.clock)();
        match put {
            Put::Done(Tag(tag)) => {
                if end.object.ended {
                    let (cluster, session) = (&end.cluster, &end.object.id);
                    tracing::info!(cluster, session, "ended a session that was not renewed in time");
                }
                let over = LockSession { cluster: end.cluster.clone(), id: end.object.id.clone() };
                self.others.ended(end, tag, now);
                // The locks that name another session of that cluster are judged by the next look.
                self.keys.shared().view().end(|_, _, holder| *holder == over);
                self.keys.shared().tell();
                self.list_clusters();
                self.last_change = Some(now);
            }
            // Its owner has renewed it, or another cluster has ended it.
            Put::Conflict => {
                self.others.superseded(&end);
                // No object has this tag, so the next look reads the session.
                self.known.insert(end.cluster, (Some(ObjectTag::new()), None));
            }
            // Nobody knows. The next look shows that.
            Put::Failed(_) => self.others.wait_again(&end.cluster, now + self.parameters().longest_request()),
        }
        self.next_poll = now;
    }

    fn polled(&mut self, asked: u64, polled: Result<Polled, Failure>) {
        let (now, shared) = ((self.clock)(), self.keys.shared().clone());
        let failed = match polled {
            Ok(polled) => {
                self.look(polled, now);
                None
            }
            Err(failure) => Some(failure),
        };
        if failed.is_none() && self.reliable.is_none() {
            self.reliable = Some(shared.view().index());
        }
        shared.tell();
        shared.answered.send_replace((asked, failed));
        self.next_poll = if shared.asked() > asked { now } else { now + self.interval(now) };
    }

    /// Takes what a look has found.
    fn look(&mut self, Polled { began, listed, read, sessions }: Polled, now: Instant) {
        let shared = self.keys.shared().clone();
        let mut view = shared.view();
        view.retain(&listed, began);
        let holders: BTreeSet<_> = view.holders().into_iter().map(|holder| holder.cluster).collect();
        for (cluster, found) in sessions {
            let of = |(tag, object): &(ObjectTag, Option<SessionObject>)| {
                (Some(tag.clone()), object.as_ref().map(|object| object.id.clone()))
            };
            self.known.insert(cluster.clone(), found.as_ref().map_or((None, None), of));
            if let Some((_, Some(object))) = &found
                && object.ended
                && cluster == self.settings.cluster
            {
                self.life.seen_ended(&object.id, now);
            }
            // Another program's object, unless a lock or an earlier content says otherwise.
            let foreign =
                matches!(found, Some((_, None))) && !holders.contains(&cluster) && !self.others.knows(&cluster);
            if !foreign {
                self.others.see(&cluster, found, now);
            }
        }
        // B4: of a lock that was read meanwhile, by another request, the session may have been read before.
        view.end(|key, sight, holder| {
            let before = sight.taken <= began || read.get(key) == Some(&sight.tag);
            before && self.others.is_over(holder)
        });
        // Also if this process has changed something, because another cluster may be about to answer.
        if std::mem::replace(&mut self.index, view.index()) != view.index() {
            self.last_change = Some(now);
        }
        drop(view);
        self.list_clusters();
    }

    /// Tells which other clusters there are.
    fn list_clusters(&self) {
        let others = self.others.clusters().filter(|(cluster, _)| *cluster != self.settings.cluster);
        *self.keys.shared().clusters.lock().unwrap_or_else(PoisonError::into_inner) =
            others.map(|(cluster, live)| (cluster.to_owned(), live)).collect();
    }

    /// Returns the time to the next look: short while clusters hand locks over, or while a session may be late.
    fn interval(&self, now: Instant) -> Duration {
        let slow = self.parameters().renewal().max(self.settings.poll);
        let lively = self.last_change.is_some_and(|last| now.since(last) < LIVELY);
        let late = self.others.next_late().is_some_and(|late| late < now + self.settings.ttl / 2);
        if lively || late { self.settings.poll } else { slow }
    }

    fn parameters(&self) -> SessionParameters {
        SessionParameters { ttl: self.settings.ttl }
    }

    /// C15: does not renew the session while it holds a lock that may not be written, and tries whether it may be. Returns when that is due.
    fn try_writes(&mut self, now: Instant) -> Option<Instant> {
        let id = self.id();
        let own: Vec<&str> = id.as_deref().into_iter().collect();
        self.life.hold_off(self.rights.withhold(&own), now);
        let due = self.rights.due()?;
        if now < due {
            return Some(due);
        }
        let (keys, each) = (self.keys.clone(), self.rights.begin(&own));
        let try_write = move |refused: Refused| -> BoxFuture<'static, _> {
            let keys = keys.clone();
            Box::pin(async move { keys.try_write(&refused.key).await })
        };
        self.trial = Some(Box::pin(try_writes(each, try_write)));
        None
    }

    /// The session's name, while there is no reason to believe that the session has ended.
    fn id(&self) -> Option<String> {
        let id = self.life.id()?.to_owned();
        Some(name_of(&LockSession { cluster: self.settings.cluster.clone(), id }))
    }

    fn publish(&self, acts: bool) {
        let now = (self.clock)();
        let delivered = *self.keys.shared().delivered.borrow();
        let reliable = self.reliable.is_some_and(|index| delivered >= index);
        let validity = match self.life.validity(now) {
            _ if !acts => LockValidity::Unknown,
            LockValidity::Until(_) if !reliable => LockValidity::Unknown,
            validity => validity,
        };
        let id = self.id().filter(|_| acts);
        let name_in_use = self.life.name_in_use();
        let failure = name_in_use.map(|other| {
            Failure::Refused(format!(
                "another class, of this or another lictor, has this class's store and clusterName {}: it renews the session {} of \
                 {}, so this one keeps none and elects no leader: give one of the two classes another clusterName. If a \
                 class that no longer exists left the session behind, wait for its TTL",
                self.settings.cluster, other.id, other.installation
            ))
        });
        let new = Sessions {
            ids: vec![id],
            takeover: self.takeover,
            validities: vec![validity],
            validity,
            name_in_use: name_in_use.is_some(),
            failure: failure.or_else(|| self.failure.clone()),
            denied: self.rights.denied().cloned(),
            renewal: self.renewal,
        };
        self.updates.send_if_modified(|known| {
            let differs = *known != new;
            *known = new;
            differs
        });
    }

    /// Ends the session, so that other clusters can take its locks at once.
    async fn leave(mut self) {
        let limit = self.parameters().longest_request();
        let ends = async {
            // A session that is being made must not stay behind.
            OptionFuture::from(self.session.take()).await;
            loop {
                self.life.suspect((self.clock)());
                let Ok(found) = self.keys.shared().session(&self.settings.cluster).await else { return };
                self.life.read(found, (self.clock)());
                let Some((tag, object)) = self.life.end() else { return };
                if put(self.keys.shared(), &self.settings.cluster, Some(tag), &object).await != Put::Conflict {
                    return;
                }
            }
        };
        let _ = timeout(limit, ends).await;
    }
}

impl Drop for ObjectKeeper {
    /// Whoever waits for a look would wait for ever.
    fn drop(&mut self) {
        self.keys.shared().abandon();
    }
}

async fn put(shared: &Shared, cluster: &str, expected: Option<ObjectTag>, object: &SessionObject) -> Put {
    let content = match serde_json::to_vec(object) {
        Ok(content) => content,
        Err(error) => return Put::Failed(Failure::Refused(error.to_string())),
    };
    shared.objects.put(&of_session(cluster), expected.map(Tag).as_ref(), content).await
}
