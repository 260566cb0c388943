//! The stores of the classes that keep their locks in Consul: made, renewed when their settings or Secrets change, and told about
//! in the classes' status.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::jiff::Timestamp as Wall;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant as TokioInstant;

use super::announce::{in_seconds, text};
use super::input::Input;
use super::monotonic;
use crate::api::{
    Classes, ConsulClass, ConsulRecord, ConsulStatus, Credentials, ElectionClass, ElectionClassStatus, READY, Refusal,
    SecretId, SecretKey, SessionNode, condition, consul_class, with_transition_times,
};
use crate::consul::{self, Settings};
use crate::core::{ClaimState, StoreId};
use crate::kubernetes::{ClaimUpdate, ElectionClasses, SecretChange, SecretData, watch_secrets};
use crate::store::{
    ConsulParameters, ConsulStore, Home, Layout, LockStore, Role, SessionKeeper, SessionSettings, Sessions, StoreEvent,
    Stores,
};

/// How often Consul is asked whether it answers, besides what the elections ask of it.
const CHECK_PERIOD: Duration = Duration::from_secs(30);
/// The same while something is wrong.
const CHECK_AGAIN: Duration = Duration::from_secs(2);
/// How long a stopping operator lets go of its sessions.
const FAREWELL: Duration = Duration::from_secs(3);

/// What all stores in Consul are made with.
#[derive(Clone)]
pub(super) struct World {
    pub(super) client: Client,
    /// Where Secrets without a namespace are.
    pub(super) own_namespace: String,
    pub(super) controller: String,
    pub(super) timeout: Duration,
    pub(super) stores: Stores,
    pub(super) inputs: mpsc::UnboundedSender<Input>,
    pub(super) claim: watch::Receiver<ClaimUpdate>,
}

/// The stores in Consul, one for each class.
pub(super) struct ConsulStores {
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
    pub(super) fn new(world: World) -> Self {
        Self { world, runners: BTreeMap::new() }
    }

    /// Takes the classes as they are now; returns the ids of stores that are new. The store of a class that is gone stays while
    /// `in_use` says so: its locks are to be kept until their elections are gone too.
    pub(super) fn apply(&mut self, classes: &Classes, in_use: impl Fn(&StoreId) -> bool) -> Vec<StoreId> {
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
            let runner = Runner { id: store_id(name), world: self.world.clone(), class: receiver, leave: leaving };
            let release_on_stop = consul.release_on_stop;
            let running = Running { class: sender, leave, task: tokio::spawn(runner.run()), release_on_stop };
            self.runners.insert(name.clone(), running);
            new.push(store_id(name));
        }
        self.runners.retain(|name, running| {
            let keep = classes.contains_key(name) || in_use(&store_id(name));
            if !keep {
                let _ = running.leave.send(Some(true));
                self.world.stores.remove(&store_id(name));
            }
            keep
        });
        new
    }

    /// Whether an operator that stops gives up what it holds in a store.
    pub(super) fn releases_on_stop(&self, store: &StoreId) -> bool {
        self.runners.iter().any(|(name, running)| store_id(name) == *store && running.release_on_stop)
    }

    /// Ends all: sessions that are given up are destroyed, the others are left for a successor to find.
    pub(super) async fn stop(self) {
        let mut tasks = Vec::new();
        for running in self.runners.into_values() {
            let _ = running.leave.send(Some(running.release_on_stop));
            tasks.push(running.task);
        }
        let _ = tokio::time::timeout(FAREWELL, futures::future::join_all(tasks)).await;
    }
}

/// One class's store, for as long as it is served.
struct Runner {
    id: StoreId,
    world: World,
    class: watch::Receiver<ElectionClass>,
    /// Set at the end: whether the sessions are to be destroyed.
    leave: watch::Receiver<Option<bool>>,
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
    client: consul::Client,
    token: Option<String>,
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
    secret: String,
    renew: Option<TokioInstant>,
}

impl Runner {
    async fn run(mut self) {
        let mut claim = self.world.claim.clone();
        let mut class = self.class.borrow_and_update().clone();
        let mut known = Secrets::new();
        let mut secrets = self.watch_secrets(&class);
        let mut store: Option<Store> = None;
        let mut login: Option<Login> = None;
        let mut role = Duty::default();
        let mut report = Report::default();
        let mut check = TokioInstant::now();
        loop {
            let duty = role.duty(&claim.borrow_and_update(), release_after(&class));
            if let Some(store) = &store {
                store.role.send_if_modified(|role| std::mem::replace(role, duty) != duty);
            }
            let trouble = self.make(&class, &known, &mut store, &mut login, duty).await.err();
            if let Some(trouble) = trouble {
                report.settings = Some(trouble);
                check = check.min(TokioInstant::now() + CHECK_AGAIN);
            } else if report.settings.take().is_some() {
                check = TokioInstant::now();
            }
            if let Some(status) = self.status(&class, &report, store.as_ref()) {
                self.write_status(&class, &status).await;
            }
            let (waits, asks) = (role.waits(), store.is_some() || report.settings.is_some());
            let event = async {
                match &mut store {
                    Some(store) => tokio::select! {
                        watched = store.watched.recv() => Happened::Watched(watched),
                        changed = store.sessions.changed() => Happened::Sessions(changed.is_ok()),
                    },
                    None => futures::future::pending().await,
                }
            };
            tokio::select! {
                happened = event => match happened {
                    Happened::Watched(Some(failure)) => {
                        if report.watch != failure {
                            self.log(failure.as_deref(), "the locks can be watched again");
                            report.watch = failure;
                            check = TokioInstant::now();
                        }
                    }
                    Happened::Watched(None) | Happened::Sessions(false) => {
                        // The tasks behind it have ended: made anew.
                        store = None;
                    }
                    Happened::Sessions(true) => {
                        let failure = store.as_mut().and_then(|store| store.sessions.borrow_and_update().failure.clone());
                        let failure = failure.as_ref().map(|failure| text(failure).to_owned());
                        if report.sessions != failure {
                            self.log(failure.as_deref(), "the sessions are kept again");
                            report.sessions = failure;
                            check = TokioInstant::now();
                        }
                    }
                },
                changed = self.class.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let next = self.class.borrow_and_update().clone();
                    if consul_class(&next).and_then(Result::ok).map(|class| class.secrets())
                        != consul_class(&class).and_then(Result::ok).map(|class| class.secrets())
                    {
                        known.clear();
                        secrets = self.watch_secrets(&next);
                    }
                    class = next;
                }
                Some((secret, change)) = secrets.next() => match change {
                    SecretChange::Present(data) => drop(known.insert(secret, Some(data))),
                    SecretChange::Absent => drop(known.insert(secret, None)),
                    SecretChange::Broken(failure) => {
                        tracing::warn!(class = self.name(), %secret, "{}", text(&failure.into()));
                    }
                },
                changed = claim.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                _ = self.leave.changed() => {
                    let destroy = self.leave.borrow().unwrap_or(true);
                    return self.farewell(store, login, destroy).await;
                }
                () = tokio::time::sleep_until(check), if asks => {
                    let client = store.as_ref().map(|store| store.client.clone());
                    if let Some(client) = client {
                        report.check = Some(Self::ask(&client).await);
                    }
                    let unknown = report.check.as_ref().is_some_and(|check| matches!(check, Err(consul::Error::UnknownToken(_))));
                    if unknown {
                        login = None;
                    }
                    let period = if report.trouble().is_some() { CHECK_AGAIN } else { CHECK_PERIOD };
                    check = TokioInstant::now() + period;
                }
                () = role.due(), if waits => {}
                () = renewal(login.as_ref()) => login = None,
            }
        }
    }

    fn name(&self) -> &str {
        self.id.0.strip_prefix("consul/").unwrap_or(&self.id.0)
    }

    fn log(&self, failure: Option<&str>, recovered: &str) {
        match failure {
            Some(failure) => tracing::warn!(class = self.name(), "{failure}"),
            None => tracing::info!(class = self.name(), "{recovered}"),
        }
    }

    fn watch_secrets(&self, class: &ElectionClass) -> BoxStream<'static, (SecretId, SecretChange)> {
        let secrets = consul_class(class).and_then(Result::ok).map(|class| class.secrets()).unwrap_or_default();
        watch_secrets(&self.world.client, &self.world.own_namespace, secrets)
    }

    /// Makes the store, or makes it anew, if what it is made of has changed; a new token alone is only handed on.
    async fn make(
        &self,
        class: &ElectionClass,
        secrets: &Secrets,
        store: &mut Option<Store>,
        login: &mut Option<Login>,
        duty: Role,
    ) -> Result<(), Trouble> {
        let Some(resolved) = consul_class(class) else { return Ok(()) };
        let resolved = resolved.map_err(|Refusal { reason, message }| Trouble { reason, message })?;
        // Without the Lease's uid it is not known which sessions are this installation's.
        let Some(installation) = self.world.claim.borrow().installation.clone() else { return Ok(()) };
        let Some(made) = made(&resolved, secrets, self.world.timeout)? else { return Ok(()) };
        let token = match &resolved.credentials {
            Credentials::Anonymous => None,
            Credentials::Secret(key) => match secret(secrets, key)? {
                Some(token) => Some(String::from_utf8_lossy(token).trim().to_owned()),
                None => return Ok(()),
            },
            Credentials::Login { method, token_path } => {
                if login.is_none() {
                    *login = Some(self.log_in(&made.settings, method, token_path).await?);
                }
                login.as_ref().map(|login| login.secret.clone())
            }
        };
        let invalid = |message: String| Trouble { reason: "InvalidSettings", message };
        if let Some(store) = store
            && store.made == made
        {
            if store.token != token {
                store.client.set_token(token.as_deref()).map_err(|error| invalid(error.to_string()))?;
                tracing::info!(class = self.name(), "goes on with a new token");
                store.token = token;
            }
            return Ok(());
        }
        let client = consul::Client::new(&made.settings).map_err(|error| invalid(error.to_string()))?;
        client.set_token(token.as_deref()).map_err(|error| invalid(error.to_string()))?;
        let short: String = installation.0.chars().take(8).collect();
        let (role, roles) = watch::channel(duty);
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
        };
        let locks = ConsulStore::new(parameters, sessions.clone());
        let (heard, watched) = mpsc::unbounded_channel();
        // Not by way of this task, which may wait for a server: what is told of the tenure must not be late.
        let forwarder = tokio::spawn(forward(locks.watch(), heard, self.world.inputs.clone()));
        self.world.stores.insert(self.id.clone(), std::sync::Arc::new(locks));
        tracing::info!(class = self.name(), address = made.settings.address, "keeps locks in Consul");
        *store = Some(Store {
            made,
            client,
            token,
            sessions,
            watched,
            forwarder,
            keeper: tokio::spawn(keeper.run(roles)),
            role,
        });
        Ok(())
    }

    async fn log_in(&self, settings: &Settings, method: &str, path: &Path) -> Result<Login, Trouble> {
        let trouble = |reason, message| Trouble { reason, message };
        let bearer = std::fs::read_to_string(path).map_err(|error| {
            let message = format!("the service account's token {} can't be read: {error}", path.display());
            trouble("NoServiceAccountToken", message)
        })?;
        let client = consul::Client::new(settings).map_err(|error| trouble("InvalidSettings", error.to_string()))?;
        let login = client
            .login(method, bearer.trim())
            .await
            .map_err(|error| trouble("LoginFails", format!("can't log in by the auth method {method}: {error}")))?;
        let renew = login.lifetime.map(|lifetime| TokioInstant::now() + lifetime * 2 / 3);
        tracing::info!(class = self.name(), method, "logged in at Consul");
        Ok(Login { secret: login.secret, renew })
    }

    async fn ask(client: &consul::Client) -> Result<consul::Agent, consul::Error> {
        if !client.leader_known().await? {
            return Err(consul::Error::NoLeader(
                "Consul has no leader at present: its servers can't agree on one".into(),
            ));
        }
        client.agent_self().await
    }

    /// What the class's status tells; only the replica that acts writes it, and only what has changed.
    fn status(&self, class: &ElectionClass, report: &Report, store: Option<&Store>) -> Option<ElectionClassStatus> {
        let acts = matches!(self.world.claim.borrow().state, ClaimState::Acting(until) if monotonic() < until);
        if !acts || (report.check.is_none() && report.settings.is_none()) {
            return None;
        }
        let before = class.status.clone().unwrap_or_default();
        let generation = class.metadata.generation.unwrap_or_default();
        let ready = match report.trouble() {
            Some(Trouble { reason, message }) => condition(READY, false, reason, message, generation),
            None => condition(READY, true, "Answers", "Consul answers, and the sessions are kept", generation),
        };
        let now = in_seconds(Wall::now());
        let mut status = ElectionClassStatus {
            observed_generation: Some(generation),
            conditions: with_transition_times(vec![ready], &before.conditions, now),
            ..before.clone()
        };
        if let (Some(Ok(agent)), Some(store)) = (&report.check, store) {
            let sessions = store.sessions.borrow().ids.iter().flatten().cloned().collect();
            let node = match &store.made.node {
                SessionNode::Own(node) => Some(node.clone()),
                SessionNode::Agent => agent.node.clone(),
            };
            let version = agent.version.clone().unwrap_or_else(|| "unknown".into());
            status.consul = Some(ConsulStatus { version, node, sessions });
        }
        (status != before).then_some(status)
    }

    async fn write_status(&self, class: &ElectionClass, status: &ElectionClassStatus) {
        let classes = ElectionClasses::new(self.world.client.clone(), self.world.timeout);
        match classes.write_status(class, status).await {
            Ok(_) | Err(None) => {}
            Err(Some(failure)) => tracing::debug!(class = self.name(), "{}", text(&failure)),
        }
    }

    async fn farewell(&self, store: Option<Store>, login: Option<Login>, destroy: bool) {
        let Some(mut store) = store else { return };
        if destroy {
            let _ = store.role.send(Role::Leave);
            let _ = (&mut store.keeper).await;
        }
        if let Some(login) = login {
            let _ = store.client.logout(&login.secret).await;
        }
    }
}

enum Happened {
    Watched(Option<Option<String>>),
    Sessions(bool),
}

async fn forward(
    mut events: BoxStream<'static, StoreEvent>,
    heard: mpsc::UnboundedSender<Option<String>>,
    inputs: mpsc::UnboundedSender<Input>,
) {
    while let Some(event) = events.next().await {
        let failure = match &event {
            StoreEvent::Broken(_, failure) => Some(Some(text(failure).to_owned())),
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
    check: Option<Result<consul::Agent, consul::Error>>,
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
                consul::Error::Unreachable(_) | consul::Error::Unknown(_) => "NoAnswer",
                consul::Error::Forbidden(_) => "Forbidden",
                consul::Error::UnknownToken(_) => "TokenUnknown",
                consul::Error::Busy(_) => "Busy",
                consul::Error::NoLeader(_) => "NoLeader",
                consul::Error::NoNode(_) | consul::Error::Refused(_) => "Refused",
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
    fn duty(&mut self, claim: &ClaimUpdate, release_after: Option<Duration>) -> Role {
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
        if now < *self.until.get_or_insert(now + after) { Role::Acting } else { Role::Leave }
    }

    fn waits(&self) -> bool {
        self.until.is_some_and(|until| TokioInstant::now() < until)
    }

    async fn due(&self) {
        if let Some(until) = self.until {
            tokio::time::sleep_until(until).await;
        }
    }
}

fn release_after(class: &ElectionClass) -> Option<Duration> {
    consul_class(class)?.ok()?.release_after
}

async fn renewal(login: Option<&Login>) {
    match login.and_then(|login| login.renew) {
        Some(at) => tokio::time::sleep_until(at).await,
        None => futures::future::pending().await,
    }
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
