//! Keeps the sessions that hold an operator's locks in Consul. [`SessionLife`] decides when to look up, create and renew a session; this
//! file does it.
//!
//! Sessions are found by their names, so that the next process, or another replica, continues with the same ones. With a new
//! session, every lock would have to change hands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, join, try_join};
use futures::stream::FuturesUnordered;
use lictor_consul::{Bound, Client, Error, NewSession, Renewal, Session};
use lictor_core::{
    Failure, FoundSession, Instant, LockValidity, Namesakes, SessionCommand, SessionLife, SessionParameters,
};
use lictor_process::nap;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::failure::failure;
use super::rights::try_write;
use crate::rights::{Rights, Tried, try_writes};
use crate::{Refusals, Role, Sessions};

/// Which sessions to keep.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// The prefix of the sessions' names `PREFIX/0`, `PREFIX/1`, … No other program may use these names on the same node.
    pub prefix: String,
    /// C14: the installations whose sessions may be beside these, or `None` if no other one may have any.
    pub namesakes: Option<Namesakes>,
    /// The sessions' dependency besides their renewals.
    pub home: Home,
    /// The number of sessions.
    pub count: usize,
    /// The time to live: at least 10 s, at most 24 h.
    pub ttl: Duration,
    /// How long no cluster can take the locks of a session that ended without releasing them. At most 60 s.
    pub lock_delay: Duration,
}

/// The dependency of sessions besides their renewals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// A node of their own in the catalog, without checks, which the keeper registers when it is missing. Only their TTL ends the sessions.
    Node {
        /// The node's name.
        name: String,
        /// The node's address. Consul requires one, though no machine is there. consul-k8s gives `127.0.0.1` to its own such node,
        /// `k8s-sync`. A reachable name or address would lead every program that resolves the node to another machine.
        address: String,
        /// The node's metadata.
        meta: BTreeMap<String, String>,
    },
    /// The node of the agent that answers, with its `serfHealth` check. The sessions end soon after that node dies. This is only for an
    /// agent that is always the same one, on the machine of this process.
    Agent,
}

/// Keeps sessions.
pub struct SessionKeeper {
    client: Client,
    settings: SessionSettings,
    clock: fn() -> Instant,
    each: Vec<Kept>,
    /// Whether the keeper keeps the sessions now, and so knows which exist.
    acts: bool,
    /// The number of the takeover by which this process keeps the sessions, or kept them last.
    takeover: u64,
    /// Whether the first session is made without a look before it.
    at_once: bool,
    /// The key without which a session is not found again.
    key: Option<String>,
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
    suspicion: Arc<Notify>,
    refusals: Arc<Refusals>,
    rights: Rights,
    updates: watch::Sender<Sessions>,
}

struct Kept {
    life: SessionLife,
    /// Whether a request for the session is under way.
    busy: bool,
    problem: Option<Problem>,
    /// How long the session's last renewal took.
    renewal: Duration,
}

/// The reason why a session can't be kept.
#[derive(Clone, PartialEq)]
struct Problem {
    failure: Failure,
    /// C14: whether another installation has the cluster's name.
    name_in_use: bool,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        failure(error).into()
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self { failure, name_in_use: false }
    }
}

impl Problem {
    fn name_in_use(elder: &Session) -> Self {
        let text = format!(
            "another lictor has used this class with this clusterName for longer: it keeps the session {} at the node \
             {} ({}), so this one keeps none and elects no leader: give one of the two clusters a class with another \
             consul.clusterName. If an installation that no longer exists left the session behind, wait for its TTL or \
             destroy it",
            elder.name, elder.node, elder.id
        );
        Self { failure: Failure::Refused(text), name_in_use: true }
    }
}

/// The outcome of a request.
enum Done {
    /// A look-up, with the sessions that waited for it when it was sent. The answer is too old for a session that began to wait
    /// later.
    LookedUp(Vec<usize>, Result<Vec<Session>, Error>),
    Created(usize, Instant, Result<Made, NotMade>),
    /// The session was read back after it was created, while it was used already.
    ReadBack(usize, String, Result<Made, NotMade>),
    Renewed(usize, String, Instant, Renewal),
    Destroyed(Session, Result<(), Error>),
    /// The keeper has tried writes.
    Tried(Tried),
}

/// A session that was created, and all sessions of its name that were found.
struct Made {
    id: String,
    found: Vec<Session>,
    /// The requested session, if it was not read back yet.
    unread: Option<NewSession>,
}

/// Why no session was created.
struct NotMade {
    /// Whether it is certain that no session was created.
    known: bool,
    problem: Problem,
}

impl NotMade {
    fn new(error: Error) -> Self {
        Self { known: !error.may_be_done(), problem: error.into() }
    }
}

impl SessionKeeper {
    /// Creates a keeper, and the receiver that follows the sessions.
    pub fn new(client: Client, settings: SessionSettings, clock: fn() -> Instant) -> (Self, watch::Receiver<Sessions>) {
        let parameters = SessionParameters { ttl: settings.ttl };
        let each: Vec<_> = (0..settings.count)
            .map(|index| SessionLife::new(&settings.name(index), parameters))
            .map(|life| Kept { life, busy: false, problem: None, renewal: Duration::ZERO })
            .collect();
        let (updates, receiver) = watch::channel(view(&each, 0, None, clock()));
        (
            Self {
                client,
                settings,
                clock,
                each,
                acts: false,
                takeover: 0,
                at_once: false,
                key: None,
                under_way: FuturesUnordered::new(),
                suspicion: Arc::default(),
                refusals: Arc::default(),
                rights: Rights::default(),
                updates,
            },
            receiver,
        )
    }

    /// Renews the sessions more often than their TTL requires.
    #[must_use]
    pub fn renewing_every(mut self, renew_every: Duration) -> Self {
        self.each.iter_mut().for_each(|kept| kept.life.renew_every(renew_every));
        self
    }

    /// A5: makes the first session without a look before it, because no other program makes one of its name. The keeper looks for sessions
    /// of an earlier process at the same moment. With [`Home::Agent`] it does not, because it has to ask for the node's name first.
    #[must_use]
    pub fn making_at_once(mut self) -> Self {
        self.at_once = matches!(self.settings.home, Home::Node { .. });
        if self.at_once {
            self.each.iter_mut().for_each(|kept| kept.life.make_at_once());
        }
        self
    }

    /// A5: finds a session of its name again only if it holds this key. Then a process that has released the key may destroy its session,
    /// although that request may arrive after another process has begun to keep sessions of this name.
    #[must_use]
    pub fn finding_the_holder_of(mut self, key: String) -> Self {
        self.key = Some(key);
        self
    }

    /// Returns the notifier for a session that seems to be gone. The keeper then renews the session at once, which shows whether it is.
    pub fn suspicion(&self) -> Arc<Notify> {
        self.suspicion.clone()
    }

    /// C15: returns the receiver of refusals to write a lock that these sessions hold.
    pub fn refusals(&self) -> Arc<Refusals> {
        self.refusals.clone()
    }

    /// Keeps the sessions until the role says otherwise or the role's sender is gone.
    pub async fn run(mut self, mut role: watch::Receiver<Role>) {
        loop {
            let now = *role.borrow_and_update();
            match now {
                Role::Acting(takeover) => {
                    if self.acts && takeover != self.takeover {
                        self.put_down();
                    }
                    self.takeover = takeover;
                    tokio::select! {
                        biased;
                        changed = role.changed() => if changed.is_err() { return },
                        () = self.act() => {}
                    }
                }
                Role::Standby => {
                    self.put_down();
                    if role.changed().await.is_err() {
                        return;
                    }
                }
                Role::Leave => return self.leave().await,
            }
        }
    }

    /// Keeps the sessions. This can be cancelled at any time.
    async fn act(&mut self) {
        self.acts = true;
        loop {
            let next = self.send();
            self.publish();
            tokio::select! {
                biased;
                Some(done) = self.under_way.next() => self.take(done),
                () = self.suspicion.notified() => self.each.iter_mut().for_each(|kept| kept.life.suspect()),
                () = self.refusals.told() => self.rights.take(self.refusals.drain(), (self.clock)()),
                () = nap(next.since((self.clock)())) => {}
            }
        }
    }

    /// Sends the requests that are due. Returns the latest time to call this again.
    fn send(&mut self) -> Instant {
        let now = (self.clock)();
        let mut again = now + Duration::from_secs(60);
        self.withhold(now);
        again = again.min(self.try_writes(now).unwrap_or(again));
        let mut lookers = vec![];
        for index in 0..self.each.len() {
            let kept = &mut self.each[index];
            // Wakes up in time to publish that a validity has ended.
            if let LockValidity::Until(deadline) = kept.life.validity(now) {
                again = again.min(deadline);
            }
            if kept.busy {
                continue;
            }
            kept.busy = true;
            match kept.life.next(now) {
                SessionCommand::Wait(until) => {
                    kept.busy = false;
                    again = again.min(until);
                }
                SessionCommand::LookUp => lookers.push(index),
                SessionCommand::Create => self.create(index),
                SessionCommand::Renew(id) => self.renew(index, id, now),
            }
        }
        if !lookers.is_empty() {
            let (client, home, key) = (self.client.clone(), self.settings.home.clone(), self.key.clone());
            self.under_way
                .push(Box::pin(async move { Done::LookedUp(lookers, look_up(&client, &home, key.as_deref()).await) }));
        }
        again
    }

    /// C15: renews no session while one of them holds a lock that may not be written.
    fn withhold(&mut self, now: Instant) {
        let off = self.rights.withhold(&ids(&self.each));
        for kept in &mut self.each {
            kept.life.hold_off(off, now);
        }
    }

    /// C15: tries whether locks may be written again, if that is due. Returns when it is due next.
    fn try_writes(&mut self, now: Instant) -> Option<Instant> {
        let due = self.rights.due()?;
        if now < due {
            return Some(due);
        }
        let (client, keys) = (self.client.clone(), self.rights.begin(&ids(&self.each)));
        let try_write = move |refused| Box::pin(try_write(client.clone(), refused)) as BoxFuture<'static, _>;
        self.under_way.push(Box::pin(async move { Done::Tried(try_writes(keys, try_write).await) }));
        None
    }

    fn create(&mut self, index: usize) {
        let (client, settings, clock) = (self.client.clone(), self.settings.clone(), self.clock);
        let (at_once, key) = (std::mem::take(&mut self.at_once), self.key.clone());
        self.under_way.push(Box::pin(async move {
            let (sent, result) = create(&client, &settings, index, clock, at_once, key.as_deref()).await;
            Done::Created(index, sent, result)
        }));
    }

    fn renew(&self, index: usize, id: String, now: Instant) {
        let client = self.client.clone();
        let limit = SessionParameters { ttl: self.settings.ttl }.longest_request();
        self.under_way.push(Box::pin(async move {
            let renewal = timeout(limit, client.renew(&id)).await.unwrap_or_else(|_| {
                Renewal::Failed(Error::Unknown(format!("can't renew the session {id}: no answer within {limit:?}")))
            });
            Done::Renewed(index, id, now, renewal)
        }));
    }

    /// Destroys sessions that no process uses. The TTL ends those that can't be destroyed.
    fn destroy(&self, sessions: Vec<Session>) {
        for session in sessions {
            let client = self.client.clone();
            self.under_way.push(Box::pin(async move {
                let result = client.destroy(&session.id).await;
                Done::Destroyed(session, result)
            }));
        }
    }

    fn take(&mut self, done: Done) {
        let now = (self.clock)();
        match done {
            Done::LookedUp(lookers, result) => {
                for index in lookers {
                    self.looked_up(index, result.as_ref(), now);
                }
            }
            Done::Created(index, sent, result) => self.created(index, sent, result, now),
            Done::ReadBack(index, id, result) => self.read_back(index, &id, result, now),
            Done::Renewed(index, id, sent, renewal) => self.renewed(index, &id, sent, renewal, now),
            Done::Tried(tried) => {
                let before = self.rights.denied().cloned();
                self.rights.tried(tried, &ids(&self.each), now);
                match self.rights.denied() {
                    Some(denied) if before.is_none() => {
                        tracing::warn!(
                            "{}: the sessions at Consul are not renewed, so that another cluster can lead",
                            denied.text()
                        );
                    }
                    None if before.is_some() => tracing::info!("the locks at Consul may be written again"),
                    _ => {}
                }
            }
            Done::Destroyed(Session { id, name, .. }, Ok(())) => {
                tracing::info!(session = id, name, "destroyed an unused session in Consul");
            }
            Done::Destroyed(Session { id, name, .. }, Err(error)) => {
                tracing::warn!(session = id, name, %error, "could not destroy an unused session in Consul: it ends by its TTL");
            }
        }
    }

    fn looked_up(&mut self, index: usize, result: Result<&Vec<Session>, &Error>, now: Instant) {
        let name = self.settings.name(index);
        let kept = &mut self.each[index];
        kept.busy = false;
        let sessions = match result {
            Ok(sessions) => sessions,
            Err(error) => {
                kept.life.look_up_failed(now);
                return self.failed(index, error.clone().into());
            }
        };
        if kept.life.id().is_some() {
            // This only checks whether Consul answers anything, or whether a session that is not renewed has ended.
            kept.life.looked_up(found(sessions), now);
            return;
        }
        if let Some(elder) = elder(self.settings.namesakes.as_ref(), sessions) {
            kept.life.look_up_failed(now);
            return self.failed(index, Problem::name_in_use(elder));
        }
        kept.problem = None;
        let named = sessions.iter().filter(|session| session.name == name).cloned().collect();
        let unused = choose(named, |found| kept.life.looked_up(found, now));
        if let Some(id) = kept.life.id() {
            tracing::info!(session = id, name, "found a session in Consul");
        }
        self.destroy(unused);
    }

    fn created(&mut self, index: usize, sent: Instant, result: Result<Made, NotMade>, now: Instant) {
        let kept = &mut self.each[index];
        kept.busy = false;
        match result {
            Ok(Made { id, found, unread }) => {
                kept.problem = None;
                let unused = choose(found, |found| kept.life.created_among(&id, found, sent, now));
                let name = self.settings.name(index);
                if kept.life.id() == Some(&id) {
                    tracing::info!(session = id, name, "created a session in Consul");
                    if let Some(new) = unread {
                        let client = self.client.clone();
                        self.under_way.push(Box::pin(async move {
                            let result = read_back(&client, &new, &id, None).await;
                            Done::ReadBack(index, id, result)
                        }));
                    }
                } else {
                    let other = kept.life.id();
                    tracing::info!(
                        session = other,
                        name,
                        "another replica created the session in Consul, and this one uses it"
                    );
                }
                self.destroy(unused);
            }
            Err(NotMade { known, problem }) => {
                kept.life.create_failed(known, now);
                self.failed(index, problem);
            }
        }
    }

    /// Takes Consul's view of a session that is used already.
    fn read_back(&mut self, index: usize, id: &str, result: Result<Made, NotMade>, now: Instant) {
        let kept = &mut self.each[index];
        if kept.life.id() != Some(id) {
            return;
        }
        match result {
            // A request of an earlier process may have arrived after the look.
            Ok(Made { found, .. }) => self.destroy(found.into_iter().filter(|session| session.id != id).collect()),
            Err(NotMade { known, problem }) => {
                if known {
                    kept.life.lost(id, now);
                }
                self.failed(index, problem);
            }
        }
    }

    fn renewed(&mut self, index: usize, id: &str, sent: Instant, renewal: Renewal, now: Instant) {
        let kept = &mut self.each[index];
        kept.busy = false;
        match renewal {
            Renewal::Renewed(session) => {
                (kept.problem, kept.renewal) = (None, now.since(sent));
                kept.life.renewed(id, session.ttl, sent, now);
            }
            Renewal::Lost => {
                tracing::warn!(session = id, "a session in Consul is gone: it ended, or it or its node was destroyed");
                kept.life.lost(id, now);
            }
            Renewal::Failed(error) => {
                kept.life.renewal_failed(id, !matches!(error, Error::Unknown(_)), now);
                self.failed(index, error.into());
            }
        }
    }

    fn failed(&mut self, index: usize, problem: Problem) {
        let before = &mut self.each[index].problem;
        if before.as_ref() != Some(&problem) {
            tracing::warn!(
                name = self.settings.name(index),
                problem = problem.failure.text(),
                "a session in Consul can't be kept"
            );
            *before = Some(problem);
        }
    }

    /// Stops keeping the sessions, because another replica keeps them. It drops the requests under way; a session that they create is found
    /// by its name.
    fn put_down(&mut self) {
        self.acts = false;
        self.under_way.clear();
        self.rights = Rights::default();
        let now = (self.clock)();
        for Kept { life, busy, problem, renewal } in &mut self.each {
            life.put_down(now);
            (*busy, *problem, *renewal) = (false, None, Duration::ZERO);
        }
        self.publish();
    }

    async fn leave(mut self) {
        if !self.acts {
            return;
        }
        // A session that is being created must not stay behind, so this waits for it.
        let limit = self.client.timeout() * 3;
        let _ = timeout(limit, async {
            while let Some(done) = self.under_way.next().await {
                self.take(done);
            }
        })
        .await;
        let mut ids: Vec<_> = self.each.iter().filter_map(|kept| Some(kept.life.id()?.to_owned())).collect();
        if ids.len() < self.each.len() && self.key.is_none() {
            let names: Vec<_> = (0..self.each.len()).map(|index| self.settings.name(index)).collect();
            let found = look_up(&self.client, &self.settings.home, None).await.unwrap_or_default();
            let found = found.into_iter().filter(|session| names.contains(&session.name)).map(|session| session.id);
            ids.extend(found.filter(|id| !ids.contains(id)).collect::<Vec<_>>());
        }
        self.put_down();
        let destroyed = futures::future::join_all(ids.iter().map(|id| self.client.destroy(id))).await;
        for (session, error) in ids.iter().zip(destroyed).filter_map(|(id, result)| Some((id, result.err()?))) {
            tracing::warn!(session, %error, "could not destroy a session in Consul: it ends by its TTL");
        }
    }

    fn publish(&self) {
        let new = view(&self.each, self.takeover, self.rights.denied(), (self.clock)());
        self.updates.send_if_modified(|update| {
            let differs = *update != new;
            *update = new;
            differs
        });
    }
}

impl SessionSettings {
    fn name(&self, index: usize) -> String {
        format!("{}/{index}", self.prefix)
    }
}

fn ids(each: &[Kept]) -> Vec<&str> {
    each.iter().filter_map(|kept| kept.life.id()).collect()
}

fn view(each: &[Kept], takeover: u64, denied: Option<&Failure>, now: Instant) -> Sessions {
    let validities: Vec<_> = each.iter().map(|kept| kept.life.validity(now)).collect();
    let problem = each.iter().find_map(|kept| kept.problem.as_ref());
    Sessions {
        ids: each.iter().map(|kept| kept.life.id().map(str::to_owned)).collect(),
        takeover,
        validity: validities.iter().copied().min().unwrap_or(LockValidity::Unknown),
        validities,
        failure: problem.map(|problem| problem.failure.clone()),
        denied: denied.cloned(),
        name_in_use: problem.is_some_and(|problem| problem.name_in_use),
        renewal: each.iter().map(|kept| kept.renewal).max().unwrap_or_default(),
    }
}

/// Passes the usable sessions to `adopt`, which returns those that no process uses. Returns these, and the unusable ones.
fn choose(sessions: Vec<Session>, adopt: impl FnOnce(Vec<FoundSession>) -> Vec<FoundSession>) -> Vec<Session> {
    let (usable, mut unused): (Vec<_>, Vec<_>) = sessions.into_iter().partition(is_usable);
    let others = adopt(found(&usable));
    unused.extend(usable.into_iter().filter(|session| others.iter().any(|other| other.id == session.id)));
    unused
}

fn found(sessions: &[Session]) -> Vec<FoundSession> {
    let each = sessions.iter().map(|session| FoundSession {
        id: session.id.clone(),
        ttl: session.ttl,
        create_index: session.create_index,
    });
    each.collect()
}

/// Returns whether locks may use the session. A session without a TTL would keep them for ever, and a session that deletes its keys would
/// delete the terms, too.
fn is_usable(session: &Session) -> bool {
    !session.ttl.is_zero() && session.behavior == "release"
}

/// C14: returns the session of another installation that keeps this one from having any.
fn elder<'a>(namesakes: Option<&Namesakes>, sessions: &'a [Session]) -> Option<&'a Session> {
    let usable = sessions.iter().filter(|session| is_usable(session));
    namesakes?.elder(usable, |session| (&session.name, session.create_index))
}

/// Returns the sessions of a home, or, with a key, only the session that holds it.
async fn look_up(client: &Client, home: &Home, key: Option<&str>) -> Result<Vec<Session>, Error> {
    let Some(key) = key else { return sessions_of(client, home).await };
    let (sessions, entry) = try_join(sessions_of(client, home), client.read_key(key)).await?;
    let holder = entry.and_then(|entry| entry.session);
    Ok(sessions.into_iter().filter(|session| Some(&session.id) == holder.as_ref()).collect())
}

async fn sessions_of(client: &Client, home: &Home) -> Result<Vec<Session>, Error> {
    match home {
        Home::Node { name, .. } => client.sessions_of_node(name).await,
        Home::Agent => {
            let node = client.agent_self().await?.node.ok_or_else(|| {
                Error::Forbidden(
                    "not allowed to read the name of Consul's agent, to whose node the sessions should belong; give \
                     the token a policy with agent_prefix \"\" { policy = \"read\" }"
                        .into(),
                )
            })?;
            client.sessions_of_node(&node).await
        }
    }
}

/// Creates a session and reads it back, because Consul silently drops fields that it does not understand. With `at_once`, it looks at the
/// same moment for others of its name, and leaves the reading back to the caller. Also returns the moment at which the request was sent.
async fn create(
    client: &Client,
    settings: &SessionSettings,
    index: usize,
    clock: fn() -> Instant,
    at_once: bool,
    key: Option<&str>,
) -> (Instant, Result<Made, NotMade>) {
    let SessionSettings { home, ttl, lock_delay, .. } = settings;
    let bound = match home {
        Home::Node { name, .. } => Bound::Node(name.clone()),
        Home::Agent => Bound::Agent,
    };
    let new = NewSession { name: settings.name(index), bound, ttl: *ttl, lock_delay: *lock_delay };
    let mut sent = clock();
    let (mut created, others) = if at_once {
        let (created, found) = join(client.create_session(&new), look_up(client, home, key)).await;
        (created, found.ok())
    } else {
        (client.create_session(&new).await, None)
    };
    if let (Err(Error::NoNode(_)), Home::Node { name, address, meta }) = (&created, home) {
        if let Err(error) = client.register_node(name, address, meta).await {
            // Whether or not the node exists, the session does not.
            return (sent, Err(NotMade { known: true, problem: error.into() }));
        }
        sent = clock();
        created = client.create_session(&new).await;
    }
    let result = match (created, others) {
        (Ok(id), Some(others)) => Ok(unread(new, id, others)),
        (Ok(id), None) => read_back(client, &new, &id, settings.namesakes.as_ref()).await.map(|mut made| {
            made.found.retain(|session| key.is_none() || session.id == id);
            made
        }),
        (Err(error), _) => Err(NotMade::new(error)),
    };
    (sent, result)
}

/// Returns a session that was created, among others of its name. It is assumed to be as requested, and the newest.
fn unread(new: NewSession, id: String, others: Vec<Session>) -> Made {
    let mut found: Vec<_> = others.into_iter().filter(|session| session.name == new.name && session.id != id).collect();
    let NewSession { name, ttl, lock_delay, .. } = new.clone();
    found.push(Session {
        id: id.clone(),
        name,
        node: String::new(),
        ttl,
        lock_delay,
        behavior: "release".into(),
        node_checks: vec![],
        service_checks: vec![],
        create_index: u64::MAX,
    });
    Made { id, found, unread: Some(new) }
}

async fn read_back(
    client: &Client,
    new: &NewSession,
    id: &str,
    namesakes: Option<&Namesakes>,
) -> Result<Made, NotMade> {
    let read = match &new.bound {
        Bound::Node(node) => client.sessions_of_node(node).await,
        Bound::Agent => client.session(id).await.map(|session| session.into_iter().collect()),
    };
    // The session is found by its name later.
    let read = read.map_err(|error| NotMade { known: false, problem: error.into() })?;
    // C14: the other installation looked at the same moment as this one, and was there before.
    if let Some(elder) = elder(namesakes, &read) {
        let problem = Problem::name_in_use(elder);
        let destroyed = client.destroy(id).await;
        return Err(NotMade { known: destroyed.is_ok(), problem });
    }
    let named = |session: &Session| session.name == new.name || session.id == id;
    let found: Vec<_> = read.into_iter().filter(named).collect();
    let defect = match found.iter().find(|session| session.id == id) {
        // Another replica created a session before, and destroyed this one.
        None if found.iter().any(is_usable) => None,
        None => Some("it can't be seen; may the token read it, and is the node still there?".to_owned()),
        Some(session) => defect(session, new),
    };
    if defect.is_none() {
        return Ok(Made { id: id.into(), found, unread: None });
    }
    let text = format!("Consul created the session {} with a difference: {}", new.name, defect.unwrap_or_default());
    let destroyed = client.destroy(id).await;
    Err(NotMade { known: destroyed.is_ok(), problem: Failure::Refused(text).into() })
}

/// Returns how a session differs from the request, if it does.
fn defect(session: &Session, new: &NewSession) -> Option<String> {
    let NewSession { name, bound, ttl, lock_delay } = new;
    let checks = &session.node_checks;
    if session.name != *name {
        return Some(format!("its name is '{}'", session.name));
    }
    if session.ttl != *ttl {
        return Some(format!("its TTL is {:?} instead of {ttl:?}", session.ttl));
    }
    if session.lock_delay != *lock_delay {
        return Some(format!("its lock delay is {:?} instead of {lock_delay:?}", session.lock_delay));
    }
    if session.behavior != "release" {
        return Some(format!("its behaviour is '{}' instead of 'release'", session.behavior));
    }
    match bound {
        Bound::Node(node) if session.node != *node => Some(format!("its node is {} instead of {node}", session.node)),
        Bound::Node(_) if !checks.is_empty() => Some(format!("it depends on the checks {checks:?}")),
        Bound::Agent if checks.is_empty() => Some("it depends on no check of its node".to_owned()),
        _ if !session.service_checks.is_empty() => Some(format!("it depends on {:?}", session.service_checks)),
        Bound::Node(_) | Bound::Agent => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_session() -> NewSession {
        NewSession {
            name: "lictor/0".into(),
            bound: Bound::Node("lictor".into()),
            ttl: Duration::from_secs(15),
            lock_delay: Duration::from_secs(1),
        }
    }

    fn as_asked() -> Session {
        Session {
            id: "a".into(),
            name: "lictor/0".into(),
            node: "lictor".into(),
            ttl: Duration::from_secs(15),
            lock_delay: Duration::from_secs(1),
            behavior: "release".into(),
            node_checks: vec![],
            service_checks: vec![],
            create_index: 1,
        }
    }

    #[test]
    fn whatever_is_otherwise_than_asked_is_noticed() {
        assert_eq!(defect(&as_asked(), &new_session()), None);
        let second = Duration::from_secs(1);
        for otherwise in [
            Session { name: String::new(), ..as_asked() },
            Session { node: "server-1".into(), ..as_asked() },
            Session { ttl: Duration::ZERO, ..as_asked() },
            Session { lock_delay: second * 15, ..as_asked() },
            Session { behavior: "delete".into(), ..as_asked() },
            Session { node_checks: vec!["serfHealth".into()], ..as_asked() },
            Session { service_checks: vec!["web".into()], ..as_asked() },
        ] {
            assert!(defect(&otherwise, &new_session()).is_some(), "{otherwise:?}");
        }
        let on_agent = NewSession { bound: Bound::Agent, ..new_session() };
        assert!(defect(&as_asked(), &on_agent).is_some());
        assert_eq!(defect(&Session { node_checks: vec!["serfHealth".into()], ..as_asked() }, &on_agent), None);
    }

    #[test]
    fn no_lock_hangs_on_a_session_that_never_ends_or_deletes_its_keys() {
        assert!(is_usable(&as_asked()));
        assert!(!is_usable(&Session { ttl: Duration::ZERO, ..as_asked() }));
        assert!(!is_usable(&Session { behavior: "delete".into(), ..as_asked() }));
    }
}
