//! The loop itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant as TokioInstant, sleep_until};

use super::announce::{announce, announce_defects, announce_refusal, holder_name, text};
use super::classes::{ConsulStores, World};
use super::entry::{Entry, Registered};
use super::execute::Executor;
use super::index::Index;
use super::input::{ElectionId, Input};
use super::locks::Locks;
use super::probe::{self, Prober};
use super::registration;
use super::shared::{Knowledge, Shared};
use super::status::status;
use super::workloads::{WorkloadWatches, followed, noted, template};
use super::{monotonic, wall};
use crate::api::{Claims, ConsulClass, LeaderElection, Refusal};
use crate::consul::Connect;
use crate::core::{
    ClaimState, Command, Desired, Election, Failure, HandoverOrder, Instant, Keeping, Key, OpId, Outcome, Pod,
    PodOutcome, Situation, StoreId, Stored, Tenure, Term, Version, View, WhenLost, WorkloadKind,
};
use crate::kubernetes::{
    Change, ClaimUpdate, Namespaces, WatchFailure, resource_name, watch_classes, watch_elections, watch_nodes,
    watch_pods,
};
use crate::process::spawn;
use crate::store::{LockStore, StoreEvent, Stores};
use crate::telemetry::{ElectionFigures, Health, Metrics};

/// A status that only counts candidates anew is not written more often than this.
const STATUS_PERIOD: Duration = Duration::from_secs(1);
/// What an operator can do without, if it has no right to it: a lost node is then seen by its pods' own conditions, later; and of
/// the classes only the built-in one is served.
const OPTIONAL: [&str; 2] = ["nodes", "electionclasses"];
/// How often it is looked whether a finalizer can be written.
const FINALIZER_RETRY: Duration = Duration::from_millis(200);
/// How much longer than it should take, other clusters may take to see that a store was put back to an earlier state.
const SLACK: Duration = Duration::from_secs(1);
/// How long a stopping operator finishes what it has begun.
const DRAIN: Duration = Duration::from_secs(5);
/// The same while workloads end whose lock is let go of then: less than Kubernetes gives a pod by default.
const WINDING_DOWN: Duration = Duration::from_secs(25);

/// What an operator is made with.
pub struct Parameters {
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
    index: Index,
    executor: Executor,
    elector: String,
    lease_duration: Duration,
    inputs: mpsc::UnboundedReceiver<Input>,
    sender: mpsc::UnboundedSender<Input>,
    claim: watch::Receiver<ClaimUpdate>,
    http: reqwest::Client,
    acting: bool,
    /// How many elections were begun to be decided, those of one group anew included.
    begun: u64,
    sync: Sync,
    shared: Shared,
    consul: ConsulStores,
    watches: WorkloadWatches,
    timers: BTreeSet<(Instant, String, String)>,
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
        let scopes = namespaces.scopes();
        let missing = scopes
            .iter()
            .flat_map(|scope| ["pods", "leaderelections", "leases"].map(|resource| (resource, scope.clone())))
            .chain([("nodes", None), ("electionclasses", None)]);
        let sync = Sync { missing: missing.collect(), broken: BTreeMap::new() };
        let watches = WorkloadWatches::new(client.clone(), namespaces.clone(), sender.clone());
        forward(&sender, watch_pods(&client, &namespaces).map(Input::Pods));
        forward(&sender, watch_nodes(&client).map(Input::Nodes));
        forward(&sender, watch_classes(&client).map(Input::Classes));
        forward(&sender, watch_elections(&client, &namespaces).map(Input::Elections));
        forward(&sender, leases.watch().map(Input::Records));
        let updates = futures::stream::unfold(claim.clone(), |mut claim| async move {
            claim.changed().await.ok()?;
            let update = claim.borrow_and_update().clone();
            Some((Input::Claim(update), claim))
        });
        forward(&sender, updates);
        Ok(Self {
            elector: format!("{controller}#{identity}"),
            index: Index::new(controller),
            executor,
            lease_duration,
            inputs,
            sender,
            claim,
            http: probe::client()?,
            acting: false,
            begun: 0,
            sync,
            shared: Shared::default(),
            consul,
            watches,
            timers: BTreeSet::new(),
            metrics,
            health,
        })
    }

    /// Runs until `stop` is set, then finishes the handovers that are under way.
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
                let (acting, index) = (self.acting, &self.index);
                return self.consul.stop(|store| acting && index.is_vacated(store)).await;
            }
            self.health.beat();
            let wake = self.timers.first().map_or(now + Duration::from_secs(1), |(at, ..)| *at);
            let wake = wake.min(now + Duration::from_secs(1)).min(draining.as_ref().map_or(wake, |drain| drain.until));
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
                    // What has arrived already is taken as one observation.
                    for _ in 0..256 {
                        let Ok(input) = self.inputs.try_recv() else { break };
                        self.take(input);
                    }
                }
                () = sleep_until(TokioInstant::now() + wake.since(now)) => {}
            }
            self.step(draining.is_some());
        }
    }

    /// Whether workloads end whose lock is let go of then.
    fn winds_down(&mut self) -> bool {
        self.index.entries().any(|entry| entry.group().and_then(Election::winding_down).is_some())
    }

    fn is_busy(&mut self) -> bool {
        // A handover that is complete is still to be told, in the status and by Events.
        self.acting
            && (self.executor.pending() > 0
                || self.index.entries().any(|entry| entry.group().is_some_and(Election::is_unfinished)))
    }

    // Observations

    fn take(&mut self, input: Input) {
        match input {
            Input::Pods(change) => {
                self.note_sync("pods", &change);
                self.index.apply_pods(change);
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
                    self.metrics.forget(&gone.id.namespace, &gone.id.name);
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
            Input::Workload(namespace, id, Err(uid)) => self.index.remove_workload(&namespace, &id, &uid),
            Input::Records(event) => {
                match &event {
                    StoreEvent::All(scope, _) if scope.store == StoreId::leases() => {
                        self.synced("leases", scope.namespace.clone());
                    }
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
                self.shared.observe(&event, monotonic());
                self.index.apply_records(event);
            }
            Input::Outcome(id, op, outcome) => self.take_outcome(&id, op, outcome),
            Input::Written(id, written) => self.take_written(&id, *written),
            Input::Registered(id, wanted, written) => {
                if let Some(entry) = self.index.entry(&id) {
                    if let Some(failure) = registration::take(entry, wanted, written) {
                        tracing::warn!(election = %format!("{}/{}", id.namespace, id.name), "{}", text(&failure));
                    }
                    self.index.mark(&id.namespace, &id.name);
                }
            }
            Input::Probed(id, leader, failed) => {
                if let Some(entry) = self.index.entry(&id)
                    && entry.prober.as_ref().is_some_and(|prober| prober.leader == leader)
                {
                    entry.probe_failed = failed.then_some(leader);
                    self.index.mark(&id.namespace, &id.name);
                }
            }
            Input::Claim(ClaimUpdate { state, failure, .. }) => {
                self.health.claim_failed(failure.as_ref().map(text));
                if matches!(state, ClaimState::Standby) {
                    self.stand_by();
                }
            }
        }
    }

    fn note_sync<T>(&mut self, resource: &'static str, change: &Change<T>) {
        match change {
            Change::All(scope, _) => self.synced(resource, scope.clone()),
            Change::Broken(scope, failure) => {
                if matches!(failure, WatchFailure::Forbidden(_)) && OPTIONAL.contains(&resource) {
                    self.sync.missing.remove(&(resource, scope.clone()));
                }
                self.broken(resource, scope.clone(), &failure.clone().into());
            }
            Change::Applied(_) | Change::Deleted(_) => {}
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
        if self.sync.broken.get(&what).map(String::as_str) != Some(text(failure)) {
            tracing::warn!(resource, namespace = what.1.as_deref().unwrap_or("*"), "{}", text(failure));
            self.sync.broken.insert(what, text(failure).into());
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
    fn knows(&self, namespace: &str) -> bool {
        !self.sync.missing.iter().any(|(_, scope)| scope.as_deref().is_none_or(|scope| scope == namespace))
    }

    fn take_outcome(&mut self, id: &ElectionId, op: OpId, outcome: Outcome) {
        let namespace = id.namespace.as_str();
        match &outcome {
            Outcome::PodWritten(PodOutcome::Written(pod)) => self.index.put_pod(namespace, (**pod).clone()),
            Outcome::PodRead(Ok(Some(pod))) => self.index.put_pod(namespace, pod.clone()),
            Outcome::PodsListed(Ok(pods)) => {
                for pod in pods {
                    self.index.put_pod(namespace, pod.clone());
                }
            }
            _ => {}
        }
        let now = monotonic();
        if let Some(entry) = self.index.entry(id)
            && let Some((_, group)) = &mut entry.group
        {
            group.take(op, outcome, now);
            self.index.mark(&id.namespace, &id.name);
        }
    }

    fn take_written(&mut self, id: &ElectionId, written: Result<LeaderElection, Option<Failure>>) {
        let now = monotonic();
        let Some(entry) = self.index.entry(id) else { return };
        entry.status.in_flight = false;
        match written {
            Ok(election) => {
                entry.status.failures = 0;
                entry.status.told = false;
                let version = crate::kubernetes::version_of(&election);
                self.index.put_election(version, id.uid.clone(), election);
            }
            // The watch is about to show what changed.
            Err(None) => entry.status.not_before = now + Duration::from_millis(200),
            Err(Some(failure)) => {
                let delay = Duration::from_millis(500) * (1 << entry.status.failures.min(5));
                entry.status.failures += 1;
                entry.status.not_before = now + delay;
                if !std::mem::replace(&mut entry.status.told, true) {
                    tracing::warn!(election = %format!("{}/{}", id.namespace, id.name), "{}", text(&failure));
                }
                self.metrics.count_write_failure("leaderelections", &failure);
            }
        }
        self.index.mark(&id.namespace, &id.name);
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
        while self.timers.first().is_some_and(|(at, ..)| *at <= now) {
            if let Some((_, namespace, name)) = self.timers.pop_first() {
                self.index.mark(&namespace, &name);
            }
        }
        for store in self.shared.changed(now) {
            self.index.mark_store(&store);
        }
        if self.acting {
            for (namespace, name) in self.index.take_dirty() {
                if self.knows(&namespace) {
                    self.decide(&namespace, &name, draining);
                } else {
                    self.timers.insert((now + Duration::from_secs(1), namespace, name));
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
            entry.group = None;
            entry.prober = None;
            entry.probe_failed = None;
            entry.status.history = None;
            entry.registered = Registered::default();
            entry.wake = None;
        }
        self.metrics.forget_all();
        self.index.mark_all();
    }

    /// Looks at one election: is it accepted, what is wanted of it, what does it ask for, what follows.
    fn decide(&mut self, namespace: &str, name: &str, draining: bool) {
        let now = monotonic();
        let conflict = self.index.conflict(namespace, name);
        let Some(content) = self.index.namespaces.get_mut(namespace) else { return };
        let Some(entry) = content.elections.get(name) else { return };
        let held = held_lock(&self.index.locks, entry, &self.elector);
        let Some(entry) = content.elections.get_mut(name) else { return };
        let neighbours_care = entry.conflict.is_some() != conflict.is_some();
        entry.conflict = conflict;
        let refusal = match &entry.resolved {
            Some(Err(refusal)) => Some(refusal.clone()),
            _ => entry.conflict.clone(),
        };
        let Some(desired) = desired(entry, refusal.as_ref(), held.as_ref(), draining) else {
            entry.group = None;
            entry.prober = None;
            return;
        };
        let lacks = desired == Desired::Run && (!entry.has_finalizer() || entry.lacking_claims().is_some());
        if lacks {
            let claims = entry.lacking_claims().unwrap_or_else(|| entry.claims.clone());
            // What was never written to, has nothing to lose.
            let new = !entry.has_finalizer() && entry.group.is_none();
            self.write_metadata(namespace, name, true, claims);
            if new {
                return;
            }
        }
        let Some(entry) = self.index.namespaces.get_mut(namespace).and_then(|content| content.elections.get_mut(name))
        else {
            return;
        };
        self.watches.begin(entry.kinds());
        let unseen = entry.available_deployment().is_some() && !self.watches.knows(WorkloadKind::Deployment, namespace);
        // A leader whose lock is lost is demoted all the same.
        let desired = if desired == Desired::Run && (lacks || unseen) { Desired::Freeze } else { desired };
        let deleted = entry.is_deleted();
        let key = key_of(entry, held);
        let desired = match desired {
            Desired::Freeze if draining && self.consul.releases_on_stop(&key.store) => Desired::Leave,
            desired => desired,
        };
        let tenure = match self.shared.knowledge(&key.store, now) {
            Knowledge::Full(tenure) => Some(tenure),
            Knowledge::Nothing => None,
            Knowledge::Awaited(until) => {
                self.timers.insert((until, namespace.into(), name.into()));
                return;
            }
        };
        let (wake, withdrawn) = self.step_election(namespace, name, &key, desired, tenure);
        if withdrawn && deleted {
            self.write_metadata(namespace, name, false, Claims::default());
            return;
        }
        self.follow_up(namespace, name, refusal.as_ref(), desired, wake);
        if neighbours_care {
            self.index.mark_neighbours(namespace, name);
        }
    }

    /// One step of an election; returns when the next one is due, and whether nothing is left of it. `tenure`: that of its lock's
    /// store, of which otherwise nothing is known.
    fn step_election(
        &mut self,
        namespace: &str,
        name: &str,
        key: &Key,
        desired: Desired,
        tenure: Option<Tenure>,
    ) -> (Option<Instant>, bool) {
        let now = monotonic();
        let Some(content) = self.index.namespaces.get_mut(namespace) else { return (None, false) };
        let known = content.elections.get(name).map(|entry| followed(entry, content, &self.watches, desired, wall()));
        let (Some(entry), Some(known)) = (content.elections.get_mut(name), known) else { return (None, false) };
        entry.followed = known;
        let locks = &self.index.locks;
        let strays: Vec<(Key, Stored)> = locks
            .of(&entry.id.uid)
            .filter(|(other, _)| *other != key)
            .map(|(key, stored)| (key.clone(), stored.clone()))
            .collect();
        if entry.group.as_ref().is_some_and(|(known, _)| known != key) {
            entry.group = None;
        }
        let (elector, begun) = (&self.elector, &mut self.begun);
        let (_, group) = entry.group.get_or_insert_with(|| {
            let known = tenure.map(|_| locks.get(key).cloned().unwrap_or((Version::default(), Stored::Absent)));
            // What was sent before it was begun anew is still answered, and must not be taken for an answer to it.
            *begun += 1;
            let (name, uid) = (entry.id.name.clone(), entry.id.uid.clone());
            (key.clone(), Election::new(name, uid, elector.clone(), known, OpId(*begun << 32)))
        });
        let spec = entry.resolved.as_ref().and_then(|resolved| resolved.as_ref().ok());
        // Without a valid spec nobody is elected any more, and the record says what there is to clean up.
        let recorded = || group.record().map(|record| record.scope.clone()).unwrap_or_default();
        let scope = spec.map_or_else(recorded, |spec| spec.scope.clone());
        let pods: Vec<&Pod> = entry.members.iter().filter_map(|pod| content.pods.get(pod)).collect();
        let nodes = &self.index.nodes;
        let consul = spec.and_then(|spec| spec.consul.as_ref());
        let ttl = consul.map(|consul| consul.ttl).unwrap_or_default();
        let keeping = match tenure {
            Some(Tenure::Unlimited) => Keeping::ALONE,
            tenure => Keeping {
                shared: true,
                tenure: tenure.unwrap_or(Tenure::Lapsed),
                when_lost: spec.map_or(WhenLost::Demote, |spec| spec.when_lost),
                silence: consul.map(ConsulClass::expiry).unwrap_or_default(),
                grace: ttl,
                // Other clusters' watches ask anew as often as this one's, and Consul adds up to a sixteenth.
                not_before: self.shared.rewound(&key.store).map_or(Instant::default(), |at| at + ttl * 9 / 8 + SLACK),
            },
        };
        let view = View {
            now,
            wall: wall(),
            generation: entry.object.metadata.generation.unwrap_or_default(),
            desired,
            key,
            scope: &scope,
            rules: &spec.map(|spec| spec.rules.clone()).unwrap_or_default(),
            order: spec.map_or(HandoverOrder::DemoteFirst, |spec| spec.order),
            failover_delay: spec.map(|spec| spec.failover_delay).unwrap_or_default(),
            status_term: status_term(&entry.object),
            cluster: entry.followed.cluster,
            workloads: entry.followed.workloads.as_deref(),
            jobs: &entry.followed.jobs,
            wind_down: entry.followed.wind_down,
            pods: &pods,
            node: &|name| nodes.get(name),
            probe_failed: entry.probe_failed.as_ref(),
            strays: &strays,
            keeping,
        };
        let commands = group.step(&view);
        let (wake, withdrawn) = (group.wake(), *group.situation() == Situation::Withdrawn);
        let selected: Vec<&Pod> = entry.selected.iter().filter_map(|pod| content.pods.get(pod)).collect();
        announce_defects(entry, &selected, &self.executor);
        let mut stores = BTreeSet::from([StoreId::leases(), key.store.clone()]);
        stores.extend(strays.iter().map(|(key, _)| key.store.clone()));
        for command in commands {
            match command {
                Command::Announce(announcement) => announce(entry, announcement, &self.executor),
                Command::NoteJob { op, plan, term } => {
                    let claims = noted(entry, &plan, term);
                    self.executor.note_job(entry.id.clone(), entry.object.clone(), op, claims);
                }
                Command::CreateJob { ref plan, .. } => {
                    let template = template(entry, plan).cloned();
                    let (id, seen) = (entry.id.clone(), entry.object.clone());
                    self.executor.create_job(id, seen, keeping.tenure, command, template);
                }
                command => self.executor.perform(entry.id.clone(), stores.clone(), keeping.tenure, command),
            }
        }
        (wake, withdrawn)
    }

    /// Puts the finalizer on, and says which workloads are changed, before anything else is written; takes it off after everything
    /// else is gone.
    fn write_metadata(&mut self, namespace: &str, name: &str, held: bool, claims: Claims) {
        let now = monotonic();
        let Some(content) = self.index.namespaces.get_mut(namespace) else { return };
        let Some(entry) = content.elections.get_mut(name) else { return };
        entry.prober = None;
        if !entry.status.in_flight && now >= entry.status.not_before {
            entry.status.in_flight = true;
            if !held {
                registration::forget(entry, &self.executor);
            }
            self.executor.write_metadata(entry.id.clone(), entry.object.clone(), held, claims);
        }
        let retry = entry.status.not_before.max(now + FINALIZER_RETRY);
        self.timers.insert((retry, namespace.into(), name.into()));
    }

    /// Probe, status, metrics and the next wake.
    fn follow_up(
        &mut self,
        namespace: &str,
        name: &str,
        refusal: Option<&Refusal>,
        desired: Desired,
        wake: Option<Instant>,
    ) {
        let now = monotonic();
        let Some(content) = self.index.namespaces.get_mut(namespace) else { return };
        let Some(entry) = content.elections.get_mut(name) else { return };
        follow_leader(entry, &content.pods, desired, &self.http, &self.sender);
        let selected = entry.selected.iter().filter_map(|pod| content.pods.get(pod));
        let nodes = &self.index.nodes;
        let candidates: Vec<_> =
            selected.map(|pod| (pod, pod.node.as_ref().and_then(|node| nodes.get(node)))).collect();
        self.metrics.record(ElectionFigures {
            namespace: namespace.into(),
            name: name.into(),
            leader: entry.group().and_then(Election::leader).map(|(_, holder, _)| holder_name(entry, holder)),
            term: entry.group().map_or(0, |group| group.term().0),
            transitions: entry.figures.transitions,
            label_drift: entry.figures.label_drift,
            // A group that another cluster leads has its leader.
            has_candidate: (!candidates.is_empty() || entry.followed.cluster.is_some())
                && !entry.group().is_some_and(|group| matches!(group.situation(), Situation::LedElsewhere(_))),
        });
        if desired == Desired::Run
            && !entry.status.in_flight
            && now >= entry.status.not_before
            && let Some(claims) = entry.superfluous_claims()
        {
            entry.status.in_flight = true;
            self.executor.write_metadata(entry.id.clone(), entry.object.clone(), true, claims);
        }
        let mut next = [wake, registration::follow(entry, &self.executor)].into_iter().flatten().min();
        if desired != Desired::Withdraw
            && let Some(status) = status(entry, refusal, &candidates, now, self.lease_duration)
        {
            let before = entry.last_status();
            if status != before && !entry.status.in_flight {
                let important = status.leader != before.leader
                    || status.conditions != before.conditions
                    || status.observed_generation != before.observed_generation
                    || status.history.len() != before.history.len();
                let due =
                    if important { entry.status.not_before } else { entry.status.not_before.max(now + STATUS_PERIOD) };
                let due = if entry.wake.is_some_and(|wake| wake <= now) { entry.status.not_before } else { due };
                if now >= due {
                    if let Some(Refusal { reason, message }) = refusal
                        && !before.conditions.iter().any(|old| old.reason == *reason && old.message == *message)
                    {
                        announce_refusal(entry, reason, message, &self.executor);
                    }
                    entry.status.in_flight = true;
                    entry.wake = None;
                    self.executor.write_status(entry.id.clone(), entry.object.clone(), status);
                } else {
                    let at = entry.wake.filter(|wake| *wake > now).unwrap_or(due).max(entry.status.not_before);
                    entry.wake = Some(at);
                    next = Some(next.map_or(at, |next| next.min(at)));
                }
            }
        }
        if let Some(at) = next {
            self.timers.insert((at, namespace.into(), name.into()));
        }
    }
}

pub(super) fn forward(
    sender: &mpsc::UnboundedSender<Input>,
    inputs: impl futures::Stream<Item = Input> + Send + 'static,
) {
    let sender = sender.clone();
    spawn(async move {
        let mut inputs = std::pin::pin!(inputs);
        while let Some(input) = inputs.next().await {
            if sender.send(input).is_err() {
                return;
            }
        }
    });
}

/// What is wanted of an election; `None`: nothing, it is somebody else's.
fn desired(entry: &Entry, refusal: Option<&Refusal>, held: Option<&Key>, draining: bool) -> Option<Desired> {
    if entry.is_deleted() {
        return entry.has_finalizer().then_some(Desired::Withdraw);
    }
    if entry.resolved.is_none() {
        // Another lictor serves its class now; what this one holds, it gives up.
        return held.map(|_| Desired::Withdraw);
    }
    let frozen = refusal.is_some() || draining || entry.spec().is_some_and(|spec| spec.paused);
    Some(if frozen { Desired::Freeze } else { Desired::Run })
}

/// A lock of this election that this lictor wrote.
fn held_lock(locks: &Locks, entry: &Entry, elector: &str) -> Option<Key> {
    let controller = |elector: &str| elector.split('#').next().map(str::to_owned);
    let own =
        |stored: &Stored| stored.written().is_some_and(|record| controller(&record.elector) == controller(elector));
    locks.of(&entry.id.uid).find(|(_, stored)| own(stored)).map(|(key, _)| key.clone())
}

/// The lock to work with: that of the spec; without a valid one that which is held.
fn key_of(entry: &Entry, held: Option<Key>) -> Key {
    match (&entry.conflict, entry.spec()) {
        // A lock that belongs to another election is not even looked at.
        (Some(conflict), _) if conflict.reason == "KeyTaken" => Key::none(),
        (_, Some(spec)) => spec.key.clone(),
        (_, None) => held.unwrap_or_else(|| Key::lease(&entry.id.namespace, &entry.id.name)),
    }
}

fn status_term(election: &LeaderElection) -> Term {
    let term = election.status.as_ref().and_then(|status| status.term).unwrap_or_default();
    Term(term.max(0))
}

/// Probes the present leader, and nobody else.
fn follow_leader(
    entry: &mut Entry,
    pods: &BTreeMap<String, Pod>,
    desired: Desired,
    http: &reqwest::Client,
    inputs: &mpsc::UnboundedSender<Input>,
) {
    let wanted =
        entry.spec().and_then(|spec| spec.probe.clone()).filter(|_| desired == Desired::Run).and_then(|probe| {
            let (_, holder, _) = entry.group()?.leader()?;
            let pod = pods.get(holder.pod.as_ref()?).filter(|pod| pod.uid == holder.uid)?;
            let ip = pod.ip.as_ref()?.parse().ok()?;
            Some((holder.uid.clone(), ip, probe))
        });
    let Some((leader, ip, probe)) = wanted else {
        entry.prober = None;
        entry.probe_failed = None;
        return;
    };
    if entry.prober.as_ref().is_some_and(|prober| prober.leader == leader && prober.ip == ip && prober.probe == probe) {
        return;
    }
    entry.probe_failed = None;
    entry.prober = Some(Prober::start(entry.id.clone(), leader, ip, probe, http.clone(), inputs.clone()));
}
