//! The stores of the classes that keep their locks in Consul: made, renewed when their settings or Secrets change, and told about
//! in the classes' status.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Client;
use lictor_consul::{self, Connect, Settings};
use lictor_core::{ClaimState, Failure, StoreId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant as TokioInstant, sleep_until};

use crate::api::{
    Classes, ConsulClass, ConsulRecord, ConsulStatus, Credentials, ElectionClass, ElectionClassStatus, READY, Refusal,
    SecretId, SecretKey, SessionNode, condition, consul_class, unknown, with_transition_times,
};
use crate::controller::input::Input;
use crate::controller::wording::in_seconds;
use crate::kubernetes::{ClaimUpdate, ElectionClasses, SecretChange, SecretData, watch_secrets};
use crate::process::{monotonic, wall};
use crate::store::{
    ConsulParameters, ConsulStore, Home, Layout, LockStore, Role, SessionKeeper, SessionSettings, Sessions, StoreEvent,
    Stores,
};

/// How often Consul is asked whether it answers, besides what the elections ask of it.
const CHECK_PERIOD: Duration = Duration::from_secs(30);
/// The same while something is wrong.
const CHECK_AGAIN: Duration = Duration::from_secs(2);
/// How long after a login it is not believed that Consul does not know its token.
const TOKEN_SETTLES: Duration = Duration::from_secs(1);
/// How long a stopping operator lets go of its sessions.
const FAREWELL: Duration = Duration::from_secs(3);

/// What all stores in Consul are made with.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) client: Client,
    /// Where Secrets without a namespace are.
    pub(crate) own_namespace: String,
    pub(crate) controller: String,
    pub(crate) timeout: Duration,
    pub(crate) stores: Stores,
    pub(crate) inputs: mpsc::UnboundedSender<Input>,
    pub(crate) claim: watch::Receiver<ClaimUpdate>,
    pub(crate) connect: Connect,
}

/// The stores in Consul, one for each class.
pub(crate) struct ConsulStores {
    world: World,
    runners: BTreeMap<String, Running>,
}

struct Running {
    class: watch::Sender<ElectionClass>,
    leave: watch::Sender<Option<bool>>,
    task: JoinHandle<()>,
    release_on_stop: bool,
}

/// The id of a class's store.
fn store_id(class: &str) -> StoreId {
    StoreId(format!("consul/{class}"))
}

impl ConsulStores {
    pub(crate) fn new(world: World) -> Self {
        Self { world, runners: BTreeMap::new() }
    }

    /// Takes the classes as they are now; returns the ids of stores that are new. The store of a class that is gone stays while
    /// `in_use` says so: its locks are to be kept until their elections are gone too.
    pub(crate) fn apply(&mut self, classes: &Classes, in_use: impl Fn(&StoreId) -> bool) -> Vec<StoreId> {
        let mut new = Vec::new();
        for (name, class) in classes {
            let served = class.spec.controller == self.world.controller;
            let Some(Ok(consul)) = consul_class(class).filter(|_| served) else { continue };
            if let Some(running) = self.runners.get_mut(name) {
                running.release_on_stop = consul.release_on_stop;
                running.class.send_if_modified(|known| {
                    let differs = known != class;
                    known.clone_from(class);
                    differs
                });
                continue;
            }
            let (sender, receiver) = watch::channel(class.clone());
            let (leave, leaving) = watch::channel(None);
            let runner = Runner::new(store_id(name), self.world.clone(), receiver, leaving);
            let release_on_stop = consul.release_on_stop;
            let running = Running { class: sender, leave, task: crate::process::spawn(runner.run()), release_on_stop };
            self.runners.insert(name.clone(), running);
            new.push(store_id(name));
        }
        let served =
            |name: &String| classes.get(name).is_some_and(|class| class.spec.controller == self.world.controller);
        let unused = |name: &&String| !served(name) && !in_use(&store_id(name));
        for name in self.runners.keys().filter(unused).cloned().collect::<Vec<_>>() {
            self.world.stores.remove(&store_id(&name));
            if let Some(mut running) = self.runners.remove(&name) {
                let _ = running.leave.send(Some(true));
                crate::process::spawn(async move {
                    let _ = (&mut running.task).await;
                    // Its channels are open until it has ended.
                    drop(running);
                });
            }
        }
        new
    }

    /// Whether an operator that stops gives up what it holds in a store.
    pub(crate) fn releases_on_stop(&self, store: &StoreId) -> bool {
        self.runners.iter().any(|(name, running)| store_id(name) == *store && running.release_on_stop)
    }

    /// Ends all: sessions that are given up are destroyed, if nobody leads by them any more according to `vacated`; the others are
    /// left for a successor to find, or to expire.
    pub(crate) async fn stop(mut self, vacated: impl Fn(&StoreId) -> bool) {
        for (name, running) in &self.runners {
            let destroy = running.release_on_stop && vacated(&store_id(name));
            let _ = running.leave.send(Some(destroy));
        }
        let tasks = self.runners.values_mut().map(|running| &mut running.task);
        let _ = tokio::time::timeout(FAREWELL, futures::future::join_all(tasks)).await;
    }
}

/// One class's store, for as long as it is served.
struct Runner {
    id: StoreId,
    world: World,
    classes: watch::Receiver<ElectionClass>,
    /// Set at the end: whether the sessions are to be destroyed.
    leave: watch::Receiver<Option<bool>>,
    claim: watch::Receiver<ClaimUpdate>,
    class: ElectionClass,
    known: Secrets,
    secrets: BoxStream<'static, (SecretId, SecretChange)>,
    store: Option<Store>,
    login: Option<Login>,
    duty: Duty,
    report: Report,
    /// When Consul is asked next whether it answers.
    check: TokioInstant,
}

/// Something that a runner has to look at.
enum Happened {
    /// The locks can be watched, or not.
    Watched(Watched),
    Sessions(bool),
    Rejected,
    Class,
    Secret(SecretId, SecretChange),
    Claim,
    CheckDue,
    LoginDue,
    DutyDue,
    Leave,
    /// The operator is gone.
    Orphaned,
}

/// What is heard of a store's watch.
enum Watched {
    Works,
    Fails(String),
    Ended,
}

/// What a store is made of; made anew when this changes.
#[derive(Clone, PartialEq)]
struct Made {
    settings: Settings,
    cluster: String,
    prefix: String,
    record: ConsulRecord,
    node: SessionNode,
    sessions: usize,
    ttl: Duration,
    lock_delay: Duration,
}

/// A store at work.
struct Store {
    made: Made,
    client: lictor_consul::Client,
    token: Option<String>,
    /// Changes when Consul does not know the token.
    rejections: watch::Receiver<u64>,
    sessions: watch::Receiver<Sessions>,
    /// What keeps the locks from being watched, or that nothing does.
    watched: mpsc::UnboundedReceiver<Option<String>>,
    forwarder: JoinHandle<()>,
    keeper: JoinHandle<()>,
    role: watch::Sender<Role>,
}

impl Drop for Store {
    /// The sessions stay: a successor finds them by their names.
    fn drop(&mut self) {
        self.forwarder.abort();
        self.keeper.abort();
    }
}

/// What is known of a Secret.
type Secrets = BTreeMap<SecretId, Option<SecretData>>;

/// What is wrong with a store, for its class's condition.
struct Trouble {
    reason: &'static str,
    message: String,
}

/// A token from a login.
struct Login {
    at: TokioInstant,
    secret: String,
    renew: Option<TokioInstant>,
}

impl Runner {
    fn new(
        id: StoreId,
        world: World,
        mut classes: watch::Receiver<ElectionClass>,
        leave: watch::Receiver<Option<bool>>,
    ) -> Self {
        let class = classes.borrow_and_update().clone();
        Self {
            secrets: watch_secrets(&world.client, &world.own_namespace, secrets_of(&class)),
            claim: world.claim.clone(),
            id,
            world,
            classes,
            leave,
            class,
            known: Secrets::new(),
            store: None,
            login: None,
            duty: Duty::default(),
            report: Report::default(),
            check: TokioInstant::now(),
        }
    }

    async fn run(mut self) {
        loop {
            let role = self.duty.role(&self.claim.borrow_and_update(), release_after(&self.class));
            if let Some(store) = &self.store {
                store.role.send_if_modified(|known| std::mem::replace(known, role) != role);
            }
            if let Err(trouble) = self.make(role).await {
                self.report.settings = Some(trouble);
                self.check = self.check.min(TokioInstant::now() + CHECK_AGAIN);
            } else if self.report.settings.take().is_some() {
                self.check = TokioInstant::now();
            }
            if let Some(status) = self.status() {
                self.write_status(&status).await;
            }
            match self.next().await {
                Happened::Orphaned => return,
                Happened::Leave => return self.farewell().await,
                happened => self.take(happened).await,
            }
        }
    }

    async fn next(&mut self) -> Happened {
        let (waits, asks) = (self.duty.waits(), self.store.is_some() || self.report.settings.is_some());
        let until = self.duty.until.unwrap_or(self.check);
        let renew = self.login.as_ref().and_then(|login| login.renew);
        let store = async {
            match &mut self.store {
                Some(store) => tokio::select! {
                    biased;
                    watched = store.watched.recv() => Happened::Watched(match watched {
                        None => Watched::Ended,
                        Some(None) => Watched::Works,
                        Some(Some(failure)) => Watched::Fails(failure),
                    }),
                    changed = store.sessions.changed() => Happened::Sessions(changed.is_ok()),
                    _ = store.rejections.changed() => Happened::Rejected,
                },
                None => futures::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.leave.changed() => Happened::Leave,
            changed = self.claim.changed() => if changed.is_ok() { Happened::Claim } else { Happened::Orphaned },
            changed = self.classes.changed() => if changed.is_ok() { Happened::Class } else { Happened::Orphaned },
            happened = store => happened,
            Some((secret, change)) = self.secrets.next() => Happened::Secret(secret, change),
            () = sleep_until(self.check), if asks => Happened::CheckDue,
            () = sleep_until(until), if waits => Happened::DutyDue,
            () = sleep_until(renew.unwrap_or(until)), if renew.is_some() => Happened::LoginDue,
        }
    }

    async fn take(&mut self, happened: Happened) {
        match happened {
            Happened::Watched(Watched::Works) => self.take_watched(None),
            Happened::Watched(Watched::Fails(failure)) => self.take_watched(Some(failure)),
            // The tasks behind it have ended: made anew.
            Happened::Watched(Watched::Ended) | Happened::Sessions(false) => self.store = None,
            Happened::Sessions(true) => self.take_sessions(),
            Happened::Rejected => {
                // A request that was sent with the token before may still be told of.
                let fresh = self.login.as_ref().is_some_and(|login| login.at.elapsed() < TOKEN_SETTLES);
                if !fresh {
                    self.login = None;
                }
                // Asking tells of it again, so it is not done at once.
                self.check = self.check.min(TokioInstant::now() + TOKEN_SETTLES);
            }
            Happened::Class => {
                let next = self.classes.borrow_and_update().clone();
                if secrets_of(&next) != secrets_of(&self.class) {
                    self.known.clear();
                    self.secrets = watch_secrets(&self.world.client, &self.world.own_namespace, secrets_of(&next));
                }
                self.class = next;
            }
            Happened::Secret(secret, SecretChange::Present(data)) => drop(self.known.insert(secret, Some(data))),
            Happened::Secret(secret, SecretChange::Absent) => drop(self.known.insert(secret, None)),
            Happened::Secret(secret, SecretChange::Broken(failure)) => {
                tracing::warn!(class = self.name(), %secret, "{}", Failure::from(failure).text());
            }
            Happened::CheckDue => {
                let client = self.store.as_ref().map(|store| store.client.clone());
                if let Some(client) = client {
                    self.report.check = Some(ask(&client).await);
                }
                let period = if self.report.trouble().is_some() { CHECK_AGAIN } else { CHECK_PERIOD };
                self.check = TokioInstant::now() + period;
            }
            Happened::LoginDue => self.login = None,
            Happened::Claim | Happened::DutyDue | Happened::Leave | Happened::Orphaned => {}
        }
    }

    fn take_watched(&mut self, failure: Option<String>) {
        if self.report.watch != failure {
            self.log(failure.as_deref(), "the locks can be watched again");
            self.report.watch = failure;
            self.check = TokioInstant::now();
        }
    }

    fn take_sessions(&mut self) {
        let failure = self.store.as_mut().and_then(|store| store.sessions.borrow_and_update().failure.clone());
        let failure = failure.as_ref().map(|failure| failure.text().to_owned());
        if self.report.sessions != failure {
            self.log(failure.as_deref(), "the sessions are kept again");
            self.report.sessions = failure;
            self.check = TokioInstant::now();
        }
    }

    fn name(&self) -> &str {
        self.id.0.strip_prefix("consul/").unwrap_or(&self.id.0)
    }

    fn log(&self, failure: Option<&str>, recovered: &str) {
        if let Some(failure) = failure {
            tracing::warn!(class = self.name(), "{failure}");
        } else {
            tracing::info!(class = self.name(), "{recovered}");
        }
    }

    /// Makes the store, or makes it anew, if what it is made of has changed; a new token alone is only handed on.
    async fn make(&mut self, role: Role) -> Result<(), Trouble> {
        let Some(resolved) = consul_class(&self.class) else { return Ok(()) };
        let resolved = resolved.map_err(|Refusal { reason, message }| Trouble { reason, message })?;
        // Without the Lease's uid it is not known which sessions are this installation's.
        let Some(installation) = self.world.claim.borrow().installation.clone() else { return Ok(()) };
        let Some(made) = made(&resolved, &self.known, self.world.timeout)? else { return Ok(()) };
        let token = match &resolved.credentials {
            Credentials::Anonymous => None,
            Credentials::Secret(key) => match secret(&self.known, key)? {
                Some(token) => Some(String::from_utf8_lossy(token).trim().to_owned()),
                None => return Ok(()),
            },
            Credentials::Login { method, token_path } => {
                if self.login.is_none() {
                    self.login =
                        Some(log_in(&resolved.name, &self.world.connect, &made.settings, method, token_path).await?);
                }
                self.login.as_ref().map(|login| login.secret.clone())
            }
        };
        let invalid = |message: String| Trouble { reason: "InvalidSettings", message };
        if let Some(store) = self.store.as_mut().filter(|store| store.made == made) {
            if store.token != token {
                store.client.set_token(token.as_deref()).map_err(|error| invalid(error.to_string()))?;
                tracing::info!(class = resolved.name, "goes on with a new token");
                store.token = token;
                self.check = TokioInstant::now();
            }
            return Ok(());
        }
        let client = (self.world.connect)(&made.settings).map_err(|error| invalid(error.to_string()))?;
        client.set_token(token.as_deref()).map_err(|error| invalid(error.to_string()))?;
        let short: String = installation.0.chars().take(8).collect();
        let (role, roles) = watch::channel(role);
        let kept = SessionSettings {
            prefix: format!("lictor/{}/{short}/{}", made.cluster, self.name()),
            home: match &made.node {
                SessionNode::Own(node) => Home::Node {
                    name: node.clone(),
                    address: "127.0.0.1".into(),
                    meta: BTreeMap::from([("external-source".to_owned(), "lictor".to_owned())]),
                },
                SessionNode::Agent => Home::Agent,
            },
            count: made.sessions,
            ttl: made.ttl,
            lock_delay: made.lock_delay,
        };
        let (keeper, sessions) = SessionKeeper::new(client.clone(), kept, monotonic);
        let parameters = ConsulParameters {
            id: self.id.clone(),
            client: client.clone(),
            cluster: made.cluster.clone(),
            prefix: made.prefix.clone(),
            layout: match made.record {
                ConsulRecord::Record => Layout::Record,
                ConsulRecord::LeaderName => Layout::LeaderName,
            },
            wait: made.ttl.min(Duration::from_secs(60)),
            suspicion: keeper.suspicion(),
        };
        let locks = ConsulStore::new(parameters, sessions.clone());
        let (heard, watched) = mpsc::unbounded_channel();
        // Not by way of this task, which may wait for a server: what is told of the tenure must not be late.
        let forwarder = crate::process::spawn(forward(locks.watch(), heard, self.world.inputs.clone()));
        self.world.stores.insert(self.id.clone(), std::sync::Arc::new(locks));
        tracing::info!(class = self.name(), address = made.settings.address, "keeps locks in Consul");
        let (rejections, keeper) = (client.rejections(), crate::process::spawn(keeper.run(roles)));
        self.store = Some(Store { made, client, token, rejections, sessions, watched, forwarder, keeper, role });
        Ok(())
    }

    /// What the class's status tells; only the replica that acts writes it, and only what has changed.
    fn status(&self) -> Option<ElectionClassStatus> {
        let Self { class, report, store, .. } = self;
        let acts = matches!(self.world.claim.borrow().state, ClaimState::Acting(until) if monotonic() < until);
        let before = class.status.clone().unwrap_or_default();
        let asked = report.check.is_some() || report.settings.is_some();
        // What was said stays until more is known.
        if !acts || (!asked && before.conditions.iter().any(|old| old.type_ == READY)) {
            return None;
        }
        let generation = class.metadata.generation.unwrap_or_default();
        let ready = match report.trouble() {
            Some(Trouble { reason, message }) => condition(READY, false, reason, message, generation),
            None if !asked => unknown(READY, "NotAskedYet", "Consul has not answered yet", generation),
            None => condition(READY, true, "Answers", "Consul answers, and the sessions are kept", generation),
        };
        let now = in_seconds(wall());
        let mut status = ElectionClassStatus {
            observed_generation: Some(generation),
            conditions: with_transition_times(vec![ready], &before.conditions, now),
            ..before.clone()
        };
        if let (Some(Ok(agent)), Some(store)) = (&report.check, store) {
            let sessions = store.sessions.borrow().ids.iter().flatten().cloned().collect();
            let node_name = match &store.made.node {
                SessionNode::Own(node) => Some(node.clone()),
                SessionNode::Agent => agent.node.clone(),
            };
            let version = agent.version.clone().unwrap_or_else(|| "unknown".into());
            status.consul = Some(ConsulStatus { version, node_name, sessions });
        }
        (status != before).then_some(status)
    }

    async fn write_status(&mut self, status: &ElectionClassStatus) {
        let classes = ElectionClasses::new(self.world.client.clone(), self.world.timeout);
        match classes.write_status(&self.class, status).await {
            Ok(written) => self.class = written,
            // The watch is about to show what changed.
            Err(None) => {}
            Err(Some(failure)) => tracing::debug!(class = self.name(), "{}", failure.text()),
        }
    }

    async fn farewell(mut self) {
        let destroy = self.leave.borrow().unwrap_or(true);
        let Some(mut store) = self.store.take() else { return };
        if destroy {
            let _ = store.role.send(Role::Leave);
            let _ = (&mut store.keeper).await;
        }
        if let Some(login) = self.login {
            let _ = store.client.logout(&login.secret).await;
        }
    }
}

async fn ask(client: &lictor_consul::Client) -> Result<lictor_consul::Agent, lictor_consul::Error> {
    if !client.leader_known().await? {
        return Err(lictor_consul::Error::NoLeader(
            "Consul has no leader at present: its servers can't agree on one".into(),
        ));
    }
    client.agent_self().await
}

async fn log_in(
    class: &str,
    connect: &Connect,
    settings: &Settings,
    method: &str,
    path: &Path,
) -> Result<Login, Trouble> {
    let trouble = |reason, message| Trouble { reason, message };
    let bearer = std::fs::read_to_string(path).map_err(|error| {
        let message = format!("the service account's token {} can't be read: {error}", path.display());
        trouble("NoServiceAccountToken", message)
    })?;
    let client = connect(settings).map_err(|error| trouble("InvalidSettings", error.to_string()))?;
    let login = client
        .login(method, bearer.trim())
        .await
        .map_err(|error| trouble("LoginFails", format!("can't log in by the auth method {method}: {error}")))?;
    let renew = login.lifetime.map(|lifetime| TokioInstant::now() + lifetime * 2 / 3);
    tracing::info!(class, method, "logged in at Consul");
    Ok(Login { at: TokioInstant::now(), secret: login.secret, renew })
}

async fn forward(
    mut events: BoxStream<'static, StoreEvent>,
    heard: mpsc::UnboundedSender<Option<String>>,
    inputs: mpsc::UnboundedSender<Input>,
) {
    while let Some(event) = events.next().await {
        let failure = match &event {
            StoreEvent::Broken(_, failure) => Some(Some(failure.text().to_owned())),
            StoreEvent::Tenure(..) => None,
            StoreEvent::All(..) | StoreEvent::Rewound(..) | StoreEvent::Changed(..) => Some(None),
        };
        let gone = failure.is_some_and(|failure| heard.send(failure).is_err());
        if gone || inputs.send(Input::Records(event)).is_err() {
            return;
        }
    }
}

/// What went wrong with a store last, each by itself.
#[derive(Default)]
struct Report {
    settings: Option<Trouble>,
    check: Option<Result<lictor_consul::Agent, lictor_consul::Error>>,
    sessions: Option<String>,
    watch: Option<String>,
}

impl Report {
    fn trouble(&self) -> Option<Trouble> {
        if let Some(Trouble { reason, message }) = &self.settings {
            return Some(Trouble { reason, message: message.clone() });
        }
        if let Some(Err(error)) = &self.check {
            let reason = match error {
                lictor_consul::Error::Unreachable(_) | lictor_consul::Error::Unknown(_) => "NoAnswer",
                lictor_consul::Error::Forbidden(_) => "Forbidden",
                lictor_consul::Error::UnknownToken(_) => "TokenUnknown",
                lictor_consul::Error::Busy(_) => "Busy",
                lictor_consul::Error::NoLeader(_) => "NoLeader",
                lictor_consul::Error::NoNode(_) | lictor_consul::Error::Refused(_) => "Refused",
            };
            return Some(Trouble { reason, message: error.to_string() });
        }
        let (reason, failure) = match (&self.sessions, &self.watch) {
            (Some(failure), _) => ("SessionsFail", failure),
            (None, Some(failure)) => ("WatchFails", failure),
            (None, None) => return None,
        };
        Some(Trouble { reason, message: failure.clone() })
    }
}

/// Whether this replica keeps the sessions.
///
/// Whoever acts does; and whoever acted last goes on while this cluster's API server is away, for then nobody else can have begun to
/// act, and the leader is most likely fine.
#[derive(Default)]
struct Duty {
    acted: bool,
    /// When the locks are given up.
    until: Option<TokioInstant>,
}

impl Duty {
    fn role(&mut self, claim: &ClaimUpdate, release_after: Option<Duration>) -> Role {
        if matches!(claim.state, ClaimState::Acting(until) if monotonic() < until) {
            (self.acted, self.until) = (true, None);
            return Role::Acting;
        }
        if claim.others {
            self.acted = false;
        }
        if !self.acted {
            self.until = None;
            return Role::Standby;
        }
        let Some(after) = release_after else { return Role::Acting };
        let now = TokioInstant::now();
        // Not destroyed: perhaps another replica acts, which this one can't see, and goes on renewing them.
        if now < *self.until.get_or_insert(now + after) { Role::Acting } else { Role::Standby }
    }

    fn waits(&self) -> bool {
        self.until.is_some_and(|until| TokioInstant::now() < until)
    }
}

fn release_after(class: &ElectionClass) -> Option<Duration> {
    consul_class(class)?.ok()?.release_after
}

fn secrets_of(class: &ElectionClass) -> BTreeSet<SecretId> {
    consul_class(class).and_then(Result::ok).map(|class| class.secrets()).unwrap_or_default()
}

/// What a store is made of; `None`: a Secret was not looked at yet.
fn made(class: &ConsulClass, secrets: &Secrets, timeout: Duration) -> Result<Option<Made>, Trouble> {
    let ca = match &class.tls.authorities {
        None => None,
        Some(key) => match secret(secrets, key)? {
            Some(ca) => Some(ca.to_vec()),
            None => return Ok(None),
        },
    };
    let identity = match &class.tls.certificate {
        None => None,
        Some(id) => {
            let part = |key: &str| secret(secrets, &SecretKey { secret: id.clone(), key: key.into() });
            match (part("tls.crt")?, part("tls.key")?) {
                (Some(certificate), Some(key)) => Some((certificate.to_vec(), key.to_vec())),
                _ => return Ok(None),
            }
        }
    };
    let settings = Settings {
        datacenter: class.datacenter.clone(),
        namespace: class.namespace.clone(),
        partition: class.partition.clone(),
        server_name: class.tls.server_name.clone(),
        ca,
        identity,
        timeout: timeout.min(class.ttl / 5),
        ..Settings::new(&class.address)
    };
    Ok(Some(Made {
        settings,
        cluster: class.cluster.clone(),
        prefix: class.prefix.clone(),
        record: class.record,
        node: class.node.clone(),
        sessions: class.sessions,
        ttl: class.ttl,
        lock_delay: class.lock_delay,
    }))
}

/// A value in a Secret; `None`: the Secret was not looked at yet.
fn secret<'a>(secrets: &'a Secrets, key: &SecretKey) -> Result<Option<&'a [u8]>, Trouble> {
    let missing = |message| Trouble { reason: "SecretMissing", message };
    match secrets.get(&key.secret) {
        None => Ok(None),
        Some(None) => Err(missing(format!("there is no Secret {}: create it", key.secret))),
        Some(Some(data)) => data.get(&key.key).map(Some).ok_or_else(|| {
            let keys: Vec<&str> = data.keys().collect();
            missing(format!("the Secret {} has no key {:?}; it has: {}", key.secret, key.key, keys.join(", ")))
        }),
    }
}
