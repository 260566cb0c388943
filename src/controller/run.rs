//! The loop itself.

mod decide;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use lictor_consul::Connect;
use lictor_core::{ClaimState, Election, Failure, Instant, OpId, Outcome, SharedStores, StoreId};
use tokio::sync::{mpsc, watch};

use super::consul::{self, ConsulStores, Registered, World};
use super::entry::probe_client;
use super::executor::Executor;
use super::index::Index;
use super::input::{Input, forward};
use super::names::{ElectionId, Namespace};
use super::timers::Timers;
use super::workload_watches::WorkloadWatches;
use crate::api::LeaderElection;
use crate::kubernetes::{
    Change, ClaimUpdate, Namespaces, WatchFailure, resource_name, watch_classes, watch_elections, watch_nodes,
    watch_pods,
};
use crate::process::{NAP, monotonic, nap};
use crate::store::{LockStore, StoreEvent, Stores};
use crate::telemetry::{Health, Metrics};

/// What an operator can do without, if it has no right to it: a lost node is then seen by its pods' own conditions, later; and of
/// the classes only the built-in one is served.
const OPTIONAL: [&str; 2] = ["nodes", "electionclasses"];
/// How long a stopping operator finishes what it has begun.
const DRAIN: Duration = Duration::from_secs(5);
/// The same while workloads end whose lock is let go of then: less than Kubernetes gives a pod by default.
const WINDING_DOWN: Duration = Duration::from_secs(25);

/// What an operator is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To elect leaders.
    Serve,
    /// To take off all that was written for the elections that it would serve, as if they were deleted, and then to end. They stay.
    Withdraw,
}

/// What an operator is made with.
pub struct Parameters {
    /// What it is there for.
    pub purpose: Purpose,
    /// The cluster.
    pub client: Client,
    /// The part of it that is served.
    pub namespaces: Namespaces,
    /// The `spec.controller` of the classes that are served.
    pub controller: String,
    /// Of this start of this replica, unique.
    pub identity: String,
    /// How long an operator that was killed keeps the others waiting.
    pub lease_duration: Duration,
    /// The namespace of the operator's own Lease, and of Secrets that name none.
    pub own_namespace: String,
    /// The limit of each request.
    pub request_timeout: Duration,
    /// The locks in Leases.
    pub leases: Arc<dyn LockStore>,
    /// How the locks in Consul are reached.
    pub consul: Connect,
}

/// The operator.
pub struct Controller {
    purpose: Purpose,
    index: Index,
    executor: Executor,
    elector: String,
    lease_duration: Duration,
    inputs: mpsc::UnboundedReceiver<Input>,
    sender: mpsc::UnboundedSender<Input>,
    /// What the watches of the cluster tell. They end when this is dropped.
    observed: mpsc::UnboundedReceiver<Input>,
    client: Client,
    namespaces: Namespaces,
    leases: Arc<dyn LockStore>,
    /// How often the operator's own Lease has told that all is to be learnt anew.
    rewound: u64,
    claim: watch::Receiver<ClaimUpdate>,
    http: reqwest::Client,
    acting: bool,
    /// How many elections were begun to be decided, those of one group anew included.
    begun: u64,
    sync: Sync,
    shared: SharedStores,
    consul: ConsulStores,
    watches: WorkloadWatches,
    timers: Timers,
    metrics: Metrics,
    health: Health,
}

/// How long a stopping operator finishes what it has begun.
struct Drain {
    until: Instant,
    at_most: Instant,
}

/// Which first lists have arrived.
struct Sync {
    missing: BTreeSet<(&'static str, Option<String>)>,
    broken: BTreeMap<(&'static str, Option<String>), String>,
}

impl Controller {
    /// An operator that knows nothing yet.
    ///
    /// # Errors
    /// If the system lacks what a client for probes needs.
    pub fn new(
        parameters: Parameters,
        claim: watch::Receiver<ClaimUpdate>,
        metrics: Metrics,
        health: Health,
    ) -> reqwest::Result<Self> {
        let Parameters {
            purpose,
            client,
            namespaces,
            controller,
            identity,
            lease_duration,
            own_namespace,
            request_timeout,
            leases,
            consul: connect,
        } = parameters;
        let (sender, inputs) = mpsc::unbounded_channel();
        let stores = Stores::default();
        stores.insert(StoreId::leases(), leases.clone());
        let executor = Executor::new(
            stores.clone(),
            &client,
            request_timeout,
            &identity,
            metrics.clone(),
            sender.clone(),
            claim.clone(),
        );
        let consul = ConsulStores::new(World {
            client: client.clone(),
            own_namespace,
            controller: controller.clone(),
            timeout: request_timeout,
            stores,
            inputs: sender.clone(),
            claim: claim.clone(),
            connect,
        });
        let sync = Sync { missing: first_lists(&namespaces), broken: BTreeMap::new() };
        let (observed, watches) = watch_cluster(&client, &namespaces, leases.as_ref());
        let updates = futures::stream::unfold(claim.clone(), |mut claim| async move {
            claim.changed().await.ok()?;
            let update = claim.borrow_and_update().clone();
            Some((Input::Claim(update), claim))
        });
        forward(&sender, updates);
        let elector = format!("{controller}#{identity}");
        Ok(Self {
            purpose,
            index: Index::new(controller, elector.clone()),
            elector,
            executor,
            lease_duration,
            inputs,
            sender,
            observed,
            client,
            namespaces,
            leases,
            rewound: 0,
            claim,
            http: probe_client()?,
            acting: false,
            begun: 0,
            sync,
            shared: SharedStores::default(),
            consul,
            watches,
            timers: Timers::default(),
            metrics,
            health,
        })
    }

    /// Runs until `stop` is set, then finishes the handovers that are under way. To withdraw, until nothing is left.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut draining: Option<Drain> = None;
        loop {
            let now = monotonic();
            let winds_down = draining.is_some() && self.winds_down();
            if let Some(drain) = draining.as_mut().filter(|_| winds_down) {
                // What is to be done when that is over, has its time, too.
                drain.until = (now + DRAIN).min(drain.at_most);
            }
            if draining.as_ref().is_some_and(|drain| now >= drain.until) || (draining.is_some() && !self.is_busy()) {
                break;
            }
            if self.is_withdrawn() {
                break;
            }
            self.health.beat();
            let wake = self.timers.next().unwrap_or(now + NAP);
            let wake = wake.min(now + NAP).min(draining.as_ref().map_or(wake, |drain| drain.until));
            let wake = self.shared.next_end(now).map_or(wake, |end| wake.min(end));
            tokio::select! {
                biased;
                changed = stop.changed(), if draining.is_none() => {
                    if changed.is_err() || *stop.borrow() {
                        let now = monotonic();
                        draining = Some(Drain { until: now + DRAIN, at_most: now + WINDING_DOWN });
                        self.index.mark_all();
                    }
                }
                input = self.inputs.recv() => {
                    let Some(input) = input else { return };
                    self.take(input);
                    self.take_arrived();
                }
                Some(input) = self.observed.recv() => {
                    self.take(input);
                    self.take_arrived();
                }
                () = nap(wake.since(now)) => {}
            }
            self.step(draining.is_some());
        }
        let (acting, index) = (self.acting, &self.index);
        self.consul.stop(|store| acting && index.is_vacated(store)).await;
    }

    /// Whether it is there to withdraw, and has done so: no election that it knows to be its own is held any more.
    fn is_withdrawn(&mut self) -> bool {
        self.purpose == Purpose::Withdraw
            && self.acting
            && self.sync.missing.is_empty()
            && self.executor.pending() == 0
            && !self.index.entries().any(|entry| entry.resolved.is_some() && entry.has_finalizer())
    }

    /// Whether workloads end whose lock is let go of then.
    fn winds_down(&mut self) -> bool {
        self.index.entries().any(|entry| entry.election().and_then(Election::winding_down).is_some())
    }

    fn is_busy(&mut self) -> bool {
        // A handover that is complete is still to be told, in the status and by Events.
        self.acting
            && (self.executor.pending() > 0
                || self.index.entries().any(|entry| entry.election().is_some_and(Election::is_unfinished)))
    }

    // Observations

    /// Takes what has arrived already, as one observation.
    fn take_arrived(&mut self) {
        for _ in 0..256 {
            let Ok(input) = self.inputs.try_recv().or_else(|_| self.observed.try_recv()) else { break };
            self.take(input);
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Pods(change) => {
                self.note_sync("pods", &change);
                self.index.apply_pods(change, monotonic());
            }
            Input::Nodes(change) => {
                self.note_sync("nodes", &change);
                self.index.apply_nodes(change);
            }
            Input::Classes(change) => {
                self.note_sync("electionclasses", &change);
                self.index.apply_classes(change);
                let locks = &self.index.locks;
                for id in self.consul.apply(&self.index.classes, |id| locks.holds_any(id)) {
                    self.shared.add(id, monotonic());
                }
            }
            Input::Elections(change) => {
                self.note_sync("leaderelections", &change);
                for gone in self.index.apply_elections(change) {
                    self.metrics.forget(&gone.id.election.namespace, &gone.id.election.name);
                }
            }
            Input::Workloads(kind, change) => {
                self.note_sync(resource_name(kind), &change);
                if self.watches.observe(kind, &change) {
                    self.index.mark_all();
                }
                self.index.apply_workloads(kind, change);
            }
            Input::Workload(_, _, Ok(object)) => self.index.put_workload(*object),
            Input::Workload(namespace, id, Err(uid)) => self.index.lose_workload(&namespace, &id, &uid),
            Input::Records(event) => {
                match &event {
                    StoreEvent::All(scope, ..) if scope.store == StoreId::leases() => {
                        self.synced("leases", scope.namespace.clone());
                    }
                    StoreEvent::Rewound(scope, _) if scope.store == StoreId::leases() => return self.begin_anew(),
                    StoreEvent::Broken(scope, failure) if scope.store == StoreId::leases() => {
                        self.broken("leases", scope.namespace.clone(), failure);
                    }
                    _ => {}
                }
                match &event {
                    StoreEvent::Tenure(store, tenure) => self.metrics.store_held(store, tenure.lasts(monotonic())),
                    StoreEvent::Broken(scope, _) if scope.store != StoreId::leases() => {
                        self.metrics.count_watch_failure("consul");
                    }
                    _ => {}
                }
                self.observe_store(&event);
                self.index.apply_records(event);
            }
            Input::Outcome(id, op, outcome) => self.take_outcome(&id, op, outcome),
            Input::Written(id, number, written) => self.take_written(&id, number, *written),
            Input::Registered(id, wanted, written) => {
                if let Some(entry) = self.index.entry(&id) {
                    if let Some(failure) = consul::take(entry, wanted, written) {
                        tracing::warn!(election = %id.election, "{}", failure.text());
                    }
                    self.index.mark(&id.election);
                }
            }
            Input::Probed(id, leader, failed) => {
                if let Some(entry) = self.index.entry(&id)
                    && entry.prober.as_ref().is_some_and(|prober| prober.leader == leader)
                {
                    entry.probe_failed = failed.then_some(leader);
                    self.index.mark(&id.election);
                }
            }
            Input::Claim(ClaimUpdate { state, failure, rewound, .. }) => {
                if std::mem::replace(&mut self.rewound, rewound) != rewound {
                    self.begin_anew();
                }
                self.health.claim_failed(failure.as_ref().map(Failure::text));
                if matches!(state, ClaimState::Standby) {
                    self.stand_by();
                }
            }
        }
    }

    /// The API server's store was put back to an earlier state: what it gave a version to is no more, and the version will be that of
    /// something else. All is learnt anew, as after a start. Who noticed it, notices it once.
    fn begin_anew(&mut self) {
        tracing::warn!(
            "the API server's store was put back to an earlier state, for versions have gone back: all is learnt anew. If that \
             does not end, start every API server anew"
        );
        self.metrics.count_restore();
        self.index.forget_versions();
        self.stand_by();
        self.sync.missing = first_lists(&self.namespaces);
        (self.observed, self.watches) = watch_cluster(&self.client, &self.namespaces, self.leases.as_ref());
        self.tell_health();
    }

    fn note_sync<T>(&mut self, resource: &'static str, change: &Change<T>) {
        match change {
            Change::All(scope, ..) => self.synced(resource, scope.clone()),
            Change::Broken(scope, failure) => {
                if matches!(failure, WatchFailure::Forbidden(_)) && OPTIONAL.contains(&resource) {
                    self.sync.missing.remove(&(resource, scope.clone()));
                }
                self.broken(resource, scope.clone(), &failure.clone().into());
            }
            Change::Applied(_) | Change::Deleted(_) => {}
            Change::Rewound(_) => self.begin_anew(),
        }
    }

    fn synced(&mut self, resource: &'static str, scope: Option<String>) {
        let what = (resource, scope);
        self.sync.missing.remove(&what);
        if self.sync.broken.remove(&what).is_some() {
            tracing::info!(resource, namespace = what.1.as_deref().unwrap_or("*"), "the watch works again");
        }
        self.tell_health();
    }

    fn broken(&mut self, resource: &'static str, scope: Option<String>, failure: &Failure) {
        self.metrics.count_watch_failure(resource);
        let what = (resource, scope);
        if self.sync.broken.get(&what).map(String::as_str) != Some(failure.text()) {
            tracing::warn!(resource, namespace = what.1.as_deref().unwrap_or("*"), "{}", failure.text());
            self.sync.broken.insert(what, failure.text().into());
        }
        self.tell_health();
    }

    fn tell_health(&self) {
        let waits: Vec<String> = self
            .sync
            .missing
            .iter()
            .map(|what| self.sync.broken.get(what).cloned().unwrap_or_else(|| format!("the first list of {}", what.0)))
            .collect();
        self.health.synced(waits);
    }

    /// Whether all is known of a namespace. What is missing in one namespace does not keep the others waiting.
    fn knows(&self, namespace: &Namespace) -> bool {
        !self.sync.missing.iter().any(|(_, scope)| scope.as_deref().is_none_or(|scope| *scope == **namespace))
    }

    fn take_outcome(&mut self, id: &ElectionId, op: OpId, outcome: Outcome) {
        let now = monotonic();
        for pod in outcome.pods() {
            self.index.put_pod(&id.election.namespace, pod.clone(), now);
        }
        if let Some(entry) = self.index.entry(id)
            && entry.election().is_some()
        {
            entry.replica.take(op, outcome, now);
            self.index.mark(&id.election);
        }
    }

    fn take_written(&mut self, id: &ElectionId, number: u64, written: Result<LeaderElection, Option<Failure>>) {
        let now = monotonic();
        let Some(entry) = self.index.entry(id) else { return };
        let Some(retry) = entry.writes.end(number) else { return };
        match written {
            Ok(election) => {
                retry.succeeded();
                let version = crate::kubernetes::version_of(&election);
                self.index.put_election(version, id.uid.clone(), election);
            }
            Err(None) => retry.conflicted(now),
            Err(Some(failure)) => {
                if retry.failed(now) {
                    tracing::warn!(election = %id.election, "{}", failure.text());
                }
                self.metrics.count_write_failure("leaderelections", &failure);
            }
        }
        self.index.mark(&id.election);
    }

    /// Takes what a store's watch tells beside its locks.
    fn observe_store(&mut self, event: &StoreEvent) {
        match event {
            StoreEvent::All(scope, ..) => self.shared.list(&scope.store),
            StoreEvent::Rewound(scope, _) => self.shared.rewind(&scope.store, monotonic()),
            StoreEvent::Tenure(store, tenure) => self.shared.hold(store, *tenure, monotonic()),
            StoreEvent::Changed(..) | StoreEvent::Broken(..) => {}
        }
    }

    // Decisions

    fn step(&mut self, draining: bool) {
        let now = monotonic();
        let acts = matches!(self.claim.borrow().state, ClaimState::Acting(deadline) if now < deadline);
        if acts && !self.acting {
            self.acting = true;
            self.shared.await_anew(now);
            tracing::info!("this replica acts");
            self.metrics.acting(true);
            self.index.mark_all();
        } else if !acts && self.acting {
            self.stand_by();
        }
        while let Some(election) = self.timers.take_due(now) {
            self.index.mark(&election);
        }
        for store in self.shared.changed(now) {
            self.index.mark_store(&store);
        }
        if self.acting {
            for election in self.index.take_dirty() {
                self.timers.cancel(&election);
                if self.knows(&election.namespace) {
                    self.decide(&election, draining);
                } else {
                    self.timers.add(now + Duration::from_secs(1), election);
                }
            }
        }
        self.metrics.queue_depth(self.index.dirty_count() + self.executor.pending());
    }

    fn stand_by(&mut self) {
        if self.acting {
            tracing::info!("this replica stands by");
        }
        self.acting = false;
        self.metrics.acting(false);
        self.timers.clear();
        for entry in self.index.entries() {
            entry.forget_decisions();
            entry.prober = None;
            entry.probe_failed = None;
            entry.history = None;
            entry.registered = Registered::default();
            entry.wake = None;
        }
        self.metrics.forget_all();
        self.index.mark_all();
    }
}

/// What has to be listed before anything is decided.
fn first_lists(namespaces: &Namespaces) -> BTreeSet<(&'static str, Option<String>)> {
    let scopes = namespaces.scopes();
    let lists = scopes
        .iter()
        .flat_map(|scope| ["pods", "leaderelections", "leases"].map(|resource| (resource, scope.clone())))
        .chain([("nodes", None), ("electionclasses", None)]);
    lists.collect()
}

/// Begins to watch the cluster. Workloads are watched when an election needs it.
fn watch_cluster(
    client: &Client,
    namespaces: &Namespaces,
    leases: &dyn LockStore,
) -> (mpsc::UnboundedReceiver<Input>, WorkloadWatches) {
    let (sender, observed) = mpsc::unbounded_channel();
    forward(&sender, watch_pods(client, namespaces).map(Input::Pods));
    forward(&sender, watch_nodes(client).map(Input::Nodes));
    forward(&sender, watch_classes(client).map(Input::Classes));
    forward(&sender, watch_elections(client, namespaces).map(Input::Elections));
    forward(&sender, leases.watch().map(Input::Records));
    (observed, WorkloadWatches::new(client.clone(), namespaces.clone(), sender))
}
