//! A lock at a key in Consul, with a session of the process's own. [`SessionKeeper`] keeps the session, and [`KeyLock`] decides when to try
//! to acquire the lock.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use lictor_consul::{Client, Entry, Error, LOCK_FLAGS, OpError, Transaction, TxnOp};
use lictor_core::{
    Failure, HeldLock, Holder, Instant, KeyCommand, KeyLock, LockValidity, Record, Scope, SeenKey, Term, Uid, Version,
};
use lictor_process::{monotonic, nap, spawn, wall};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

use super::failure::failure;
use super::sessions::{Home, SessionKeeper, SessionSettings};
use crate::content::Content;
use crate::lock::{Lock, LockUpdate, Other, Problem, Released};
use crate::{Role, Sessions};

/// The settings for a lock in Consul.
#[derive(Clone, Debug)]
pub struct ConsulLockSettings {
    /// The key.
    pub key: String,
    /// The process, as the key's value and the session name it.
    pub identity: String,
    /// The session's name, which no other process uses at the same time.
    pub session: String,
    /// The node or checks that the session depends on besides its renewals.
    pub home: Home,
    /// The session's time to live.
    pub ttl: Duration,
    /// The session's lock delay.
    pub lock_delay: Duration,
    /// The longest time from one renewal to the next. A third of the TTL counts if that is shorter.
    pub renew_every: Duration,
    /// The address of the leader, for readers of the key.
    pub advertise: Option<String>,
    /// The node of the leader, for readers of the key.
    pub node: Option<String>,
}

impl ConsulLockSettings {
    /// Returns how long news of another holder counts, so that one blocking query may fail.
    pub fn stale_after(ttl: Duration) -> Duration {
        wait(ttl) * 3
    }
}

/// A lock at a key in Consul.
pub struct ConsulLock {
    client: Client,
    settings: ConsulLockSettings,
    /// A unique name for each start of a process.
    instance: String,
    sessions: watch::Receiver<Sessions>,
    suspicion: Arc<Notify>,
    again: Arc<Notify>,
    lock: KeyLock,
    /// The term of the held lock; before that, the highest term that was seen in the key.
    term: Term,
    /// The other holder of the lock, according to the value that was seen last.
    leader: Option<Other>,
    /// The session with which this process last tried to acquire the lock.
    own: Option<String>,
    /// When the last answered question about the key was sent.
    heard: Option<Instant>,
    updates: watch::Sender<LockUpdate>,
    /// Whether a request to acquire the lock may still be carried out.
    in_doubt: bool,
    /// The problem that was logged last.
    problem: Option<Failure>,
    /// Why this process does not hear of the key at present.
    unheard: Option<Failure>,
}

/// The result of a blocking query.
enum Watched {
    /// The time at which the question was sent, the index of the answer, and the key.
    Seen(Instant, Version, Option<Entry>),
    /// Consul's indexes have gone back.
    Rewound,
    /// Consul can't be queried at present, for this reason.
    Broken(Failure),
}

impl ConsulLock {
    /// Begins to keep a lock. `instance` is a name for this start of this process.
    pub fn start(client: Client, settings: ConsulLockSettings, instance: String) -> Lock {
        let sessions = SessionSettings {
            prefix: settings.session.clone(),
            namesakes: None,
            home: settings.home.clone(),
            count: 1,
            ttl: settings.ttl,
            lock_delay: settings.lock_delay,
        };
        let (keeper, sessions) = SessionKeeper::new(client.clone(), sessions, monotonic);
        let keeper = keeper.renewing_every(settings.renew_every).making_at_once();
        let keeper = keeper.finding_the_holder_of(settings.key.clone());
        let (role, roles) = watch::channel(Role::Acting(1));
        let (updates, receiver) = watch::channel(LockUpdate::default());
        let (stop, stopping) = watch::channel(false);
        let (suspicion, again) = (keeper.suspicion(), Arc::<Notify>::default());
        let lock = KeyLock::new(&instance, settings.ttl);
        let lock = Self {
            client,
            settings,
            instance,
            sessions,
            suspicion,
            again: again.clone(),
            lock,
            term: Term::default(),
            leader: None,
            own: None,
            heard: None,
            updates,
            in_doubt: false,
            problem: None,
            unheard: None,
        };
        let kept = async move {
            let keeper = keeper.run(roles);
            let lock = async move {
                // A5: the next process in this place may use a session that may still hold the lock, so that session ends by its TTL.
                if lock.keep(stopping).await {
                    role.send_replace(Role::Leave);
                    return Released::Confirmed;
                }
                Released::Unconfirmed
            };
            join(keeper, lock).await.1
        };
        Lock::new(receiver, again, stop, spawn(kept))
    }

    /// Keeps the lock until `stop` is set, and then releases it. Returns whether its session surely does not hold it.
    async fn keep(mut self, mut stop: watch::Receiver<bool>) -> bool {
        let (seen, mut watched) = mpsc::channel(1);
        let watching = spawn(watch_key(self.client.clone(), self.settings.key.clone(), wait(self.settings.ttl), seen));
        let mut heard = false;
        while !*stop.borrow() {
            let session = self.session();
            self.lock.session(session.as_deref());
            self.publish();
            let now = monotonic();
            let wait = match self.lock.next(now) {
                // The watch starts with the present state, and retries by itself.
                KeyCommand::Read if !heard => Duration::MAX,
                KeyCommand::Read => {
                    self.read().await;
                    continue;
                }
                KeyCommand::Lock { session, expected } => {
                    self.acquire(&session, expected).await;
                    continue;
                }
                KeyCommand::Wait(until) => until.map_or(Duration::MAX, |until| until.since(now)),
            };
            // The state of the session changes without an event when its validity ends.
            let wait = match self.validity() {
                // The keeper is about to report that the session is over, and until then there is nothing to do.
                LockValidity::Until(until) if now < until => wait.min(until.since(now)),
                _ => wait,
            };
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                () = self.again.notified() => self.lock.reacquire(),
                changed = self.sessions.changed() => if changed.is_err() { break },
                Some(seen) = watched.recv() => match seen {
                    Watched::Seen(sent, index, entry) => {
                        (heard, self.unheard) = (true, None);
                        self.see(sent, index, entry);
                    }
                    Watched::Rewound => {
                        heard = true;
                        self.lock.forget();
                    }
                    Watched::Broken(why) => self.unheard = Some(why),
                },
                () = nap(wait) => {}
            }
        }
        watching.abort();
        self.release().await
    }

    fn validity(&self) -> LockValidity {
        self.sessions.borrow().validity
    }

    /// Returns the session, while it is valid.
    fn session(&self) -> Option<String> {
        let sessions = self.sessions.borrow();
        sessions.ids.first()?.clone().filter(|_| sessions.validity.lasts(monotonic()))
    }

    fn publish(&self) {
        let held = match (self.lock.held(), self.validity()) {
            (Some(_), LockValidity::Until(until)) => {
                Some(HeldLock { term: self.term, from: Instant::default(), until })
            }
            _ => None,
        };
        // Without news of the key, this process can't tell whether the lock is free.
        let other = self.leader.clone().filter(|_| held.is_none() && !self.lock.is_free());
        let problem = self.unheard.clone().or_else(|| self.problem.clone()).map(Problem::Failed);
        let new = LockUpdate { held, other, heard: self.heard, problem };
        self.updates.send_if_modified(|update| {
            let differs = *update != new;
            *update = new;
            differs
        });
    }

    fn see(&mut self, sent: Instant, index: Version, entry: Option<Entry>) {
        self.heard = self.heard.max(Some(sent));
        let content: Option<Content> = entry.as_ref().and_then(|entry| serde_json::from_slice(&entry.value).ok());
        let content = content.zip(entry.as_ref()).map(|(content, entry)| {
            let record = content.record.at(Version(entry.modify_index));
            Content { record, ..content }
        });
        let term = content.as_ref().map(|content| content.record.term).filter(|term| term.is_credible(true));
        if self.lock.held().is_none() {
            self.term = self.term.max(term.unwrap_or_default());
        }
        let holder = entry.as_ref().and_then(|entry| entry.session.clone());
        let key = entry.map(|entry| SeenKey { version: Version(entry.modify_index), session: entry.session });
        if !self.lock.observe(index, key, monotonic()) {
            // The watch may report a state from before a read.
            return;
        }
        self.leader = holder.filter(|session| self.own.as_ref() != Some(session)).map(|session| match content {
            Some(Content { cluster, record, .. }) => {
                let since = record.holder.is_some().then_some(record.since);
                let (node, address) = record.holder.map(|holder| (holder.node, holder.ip)).unwrap_or_default();
                Other { name: cluster, node, address, term, since }
            }
            None => Other::named(format!("the session {session}")),
        });
    }

    async fn read(&mut self) {
        let sent = monotonic();
        match self.client.read_key(&self.settings.key).await {
            Ok(Some(entry)) => {
                self.problem = None;
                self.see(sent, Version(entry.modify_index), Some(entry));
            }
            Ok(None) => {
                (self.problem, self.leader, self.heard) = (None, None, Some(sent));
                self.lock.absent(monotonic());
            }
            Err(error) => {
                self.lock.failed(error.may_be_done(), monotonic());
                self.note(failure(error));
            }
        }
    }

    async fn acquire(&mut self, session: &str, expected: Option<Version>) {
        let key = self.settings.key.clone();
        // In practice the key's index is the term. This term is higher only if Consul was restored to an earlier state.
        let record = self.record(self.term.next(), true);
        let operations = [
            match expected {
                None => TxnOp::KvCheckNotExists { key: key.clone() },
                Some(Version(index)) => TxnOp::KvCheckIndex { key: key.clone(), index },
            },
            TxnOp::KvLock {
                key: key.clone(),
                value: self.value(&record),
                flags: LOCK_FLAGS,
                session: session.to_owned(),
            },
        ];
        self.own = Some(session.to_owned());
        let sent = monotonic();
        match self.client.transact(&operations).await {
            Transaction::Applied(applied) => {
                let Some(version) = applied.entry(&key).map(|entry| Version(entry.modify_index)) else {
                    return self.lock.failed(true, monotonic());
                };
                (self.problem, self.in_doubt) = (None, false);
                self.lock.locked(session, version);
                self.term = record.at(version).term;
                (self.leader, self.heard) = (None, Some(sent));
            }
            Transaction::RolledBack(errors) => {
                let any = |of: fn(&OpError) -> bool| errors.iter().any(of);
                if any(OpError::is_session) {
                    self.suspicion.notify_one();
                    self.lock.failed(true, monotonic());
                } else if any(OpError::is_index) || any(OpError::is_held) {
                    self.lock.overtaken();
                } else if any(OpError::is_lock_delay) {
                    self.lock.delayed(monotonic());
                } else {
                    self.lock.failed(false, monotonic());
                    let said = errors.into_iter().map(|error| error.what).collect::<Vec<_>>();
                    self.note(Failure::Refused(said.join("; ")));
                }
            }
            Transaction::Failed(error) => {
                self.in_doubt |= error.may_be_done();
                self.lock.failed(error.may_be_done(), monotonic());
                self.note(failure(error));
            }
        }
    }

    /// Releases the lock if this session has it, even by a request whose answer was lost. Returns whether the release is sure.
    async fn release(&mut self) -> bool {
        let released = timeout(self.settings.ttl / 2, async {
            loop {
                let session = self.sessions.borrow().ids.first().cloned().flatten();
                let Some(session) = session else { return };
                match self.unlock(&session).await {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(error) => self.note(failure(error)),
                }
                nap(Duration::from_millis(100)).await;
            }
        });
        let released = released.await.is_ok();
        if !released {
            tracing::warn!(key = self.settings.key, "could not release the lock: it ends with its session");
        }
        self.updates.send_replace(LockUpdate::default());
        released && !self.in_doubt
    }

    /// Returns whether the session no longer holds the lock.
    async fn unlock(&mut self, session: &str) -> Result<bool, Error> {
        let key = self.settings.key.clone();
        let Some(entry) = self.client.read_key(&key).await? else { return Ok(true) };
        if entry.session.as_deref() != Some(session) {
            return Ok(true);
        }
        let value = self.value(&self.record(self.term, false));
        let operations = [
            TxnOp::KvCheckIndex { key: key.clone(), index: entry.modify_index },
            TxnOp::KvUnlock { key, value, flags: LOCK_FLAGS, session: session.to_owned() },
        ];
        match self.client.transact(&operations).await {
            Transaction::Applied(_) => {
                // Any request that is still under way names an earlier version of the key.
                self.in_doubt = false;
                Ok(true)
            }
            Transaction::RolledBack(_) => Ok(false),
            Transaction::Failed(error) => Err(error),
        }
    }

    /// Returns the leader and its address, for readers of the key.
    fn record(&self, term: Term, leads: bool) -> Record {
        let ConsulLockSettings { identity, advertise, node, .. } = &self.settings;
        let holder = Holder {
            pod: Some(identity.clone()),
            uid: Uid(self.instance.clone()),
            node: node.clone(),
            ip: advertise.clone(),
        };
        Record {
            leaving: Vec::new(),
            term,
            term_by_version: true,
            holder: leads.then_some(holder),
            operator_id: self.instance.clone(),
            since: wall(),
            election: Uid(String::new()),
            election_name: String::new(),
            generation: 0,
            scope: Scope::default(),
            former: vec![],
            drain_obligation: None,
            switchover: None,
            offer: None,
        }
    }

    fn value(&self, record: &Record) -> Vec<u8> {
        let content = Content {
            cluster: self.settings.identity.clone(),
            installation: None,
            namespace: String::new(),
            name: self.settings.key.clone(),
            record: record.clone(),
        };
        serde_json::to_vec(&content).unwrap_or_default()
    }

    fn note(&mut self, problem: Failure) {
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(key = self.settings.key, problem = problem.text(), "the lock can't be acquired at present");
            self.problem = Some(problem);
        }
    }
}

/// Returns how long a blocking query waits.
fn wait(ttl: Duration) -> Duration {
    ttl.min(Duration::from_secs(60))
}

/// Reports the changes of a key, by blocking queries.
async fn watch_key(client: Client, key: String, wait: Duration, seen: mpsc::Sender<Watched>) {
    let (mut index, mut pause) = (0, Duration::ZERO);
    loop {
        let sent = monotonic();
        match client.wait(&key, index, wait).await {
            Ok((next, entries)) => {
                pause = Duration::ZERO;
                let entry = entries.into_iter().find(|entry| entry.key == key);
                let watched = if next < index { Watched::Rewound } else { Watched::Seen(sent, Version(next), entry) };
                index = next;
                if seen.send(watched).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                if pause.is_zero() {
                    tracing::warn!(%error, "the lock can't be watched at present");
                }
                if seen.send(Watched::Broken(failure(error))).await.is_err() {
                    return;
                }
                pause = (pause * 2).clamp(Duration::from_millis(100), Duration::from_secs(2));
                nap(pause).await;
            }
        }
    }
}
