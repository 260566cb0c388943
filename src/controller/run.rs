//! The loop itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant as TokioInstant, sleep_until};

use super::announce::{announce, announce_defects, announce_refusal, text};
use super::entry::Entry;
use super::execute::Executor;
use super::index::Index;
use super::input::{ElectionId, Input};
use super::probe::{self, Prober};
use super::status::status;
use super::{monotonic, wall};
use crate::api::{FINALIZER, LeaderElection, Refusal};
use crate::core::{
    ClaimState, Command, Desired, Election, Failure, Instant, Key, Outcome, Pod, PodOutcome, Stored, Term,
    Version, View,
};
use crate::kubernetes::{
    Change, ClaimUpdate, Elections, Events, Namespaces, Pods, watch_classes, watch_elections, watch_nodes, watch_pods,
};
use crate::store::{LockStore, Place, StoreEvent};
use crate::telemetry::{ElectionFigures, Health, Metrics};

/// A status that only counts candidates anew is not written more often than this.
const STATUS_PERIOD: Duration = Duration::from_secs(1);
/// How long a stopping operator finishes what it has begun.
const DRAIN: Duration = Duration::from_secs(5);

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
    /// The limit of each request.
    pub request_timeout: Duration,
    /// Where the locks are.
    pub store: Arc<dyn LockStore>,
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
    sync: Sync,
    timers: BTreeSet<(Instant, String, String)>,
    metrics: Metrics,
    health: Health,
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
        let Parameters { client, namespaces, controller, identity, lease_duration, request_timeout, store } = parameters;
        let (sender, inputs) = mpsc::unbounded_channel();
        let executor = Executor::new(
            store.clone(),
            Pods::new(client.clone(), request_timeout),
            Elections::new(client.clone(), request_timeout),
            Events::new(client.clone(), &identity),
            metrics.clone(),
            sender.clone(),
            claim.clone(),
        );
        let scopes = namespaces.scopes();
        let missing = scopes
            .iter()
            .flat_map(|scope| ["pods", "leaderelections", "leases"].map(|resource| (resource, scope.clone())))
            .chain([("nodes", None), ("electionclasses", None)]);
        let sync = Sync { missing: missing.collect(), broken: BTreeMap::new() };
        forward(&sender, watch_pods(&client, &namespaces).map(Input::Pods));
        forward(&sender, watch_nodes(&client).map(Input::Nodes));
        forward(&sender, watch_classes(&client).map(Input::Classes));
        forward(&sender, watch_elections(&client, &namespaces).map(Input::Elections));
        forward(&sender, store.watch().map(Input::Records));
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
            sync,
            timers: BTreeSet::new(),
            metrics,
            health,
        })
    }

    /// Runs until `stop` is set, then finishes the handovers that are under way.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut draining: Option<Instant> = None;
        loop {
            let now = monotonic();
            if draining.is_some_and(|until| now >= until || !self.is_busy()) {
                return;
            }
            self.health.beat();
            let wake = self.timers.first().map_or(now + Duration::from_secs(1), |(at, ..)| *at);
            let wake = wake.min(now + Duration::from_secs(1)).min(draining.unwrap_or(wake));
            tokio::select! {
                biased;
                changed = stop.changed(), if draining.is_none() => {
                    if changed.is_err() || *stop.borrow() {
                        draining = Some(monotonic() + DRAIN);
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

    fn is_busy(&mut self) -> bool {
        self.acting && self.index.entries().any(|entry| entry.group().is_some_and(Election::is_busy))
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
            }
            Input::Elections(change) => {
                self.note_sync("leaderelections", &change);
                for gone in self.index.apply_elections(change) {
                    self.metrics.forget(&gone.id.namespace, &gone.id.name);
                }
            }
            Input::Records(event) => {
                match &event {
                    StoreEvent::All(scope, _) => self.synced("leases", scope.clone()),
                    StoreEvent::Broken(failure) => self.broken("leases", None, failure),
                    StoreEvent::Changed(..) => {}
                }
                self.index.apply_records(event);
            }
            Input::Outcome(id, op, outcome) => self.take_outcome(&id, op, outcome),
            Input::Written(id, written) => self.take_written(&id, *written),
            Input::Probed(id, leader, failed) => {
                if let Some(entry) = self.index.entry(&id)
                    && entry.prober.as_ref().is_some_and(|prober| prober.leader == leader)
                {
                    entry.probe_failed = failed.then_some(leader);
                    self.index.mark(&id.namespace, &id.name);
                }
            }
            Input::Claim(ClaimUpdate { state, failure }) => {
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
            Change::Broken(scope, failure) => self.broken(resource, scope.clone(), failure),
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
        let optional = matches!(resource, "nodes" | "electionclasses");
        let what = (resource, scope);
        if optional && matches!(failure, Failure::Refused(_)) && resource == "nodes" {
            // Without a view of the nodes, pods on lost ones are seen by their own conditions, only later.
            self.sync.missing.remove(&what);
        }
        if optional && resource == "electionclasses" && text(failure).contains("not allowed") {
            self.sync.missing.remove(&what);
        }
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

    fn take_outcome(&mut self, id: &ElectionId, op: crate::core::OpId, outcome: Outcome) {
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
            entry.wake = None;
        }
        self.metrics.forget_all();
        self.index.mark_all();
    }

    fn decide(&mut self, namespace: &str, name: &str, draining: bool) {
        let now = monotonic();
        let conflict = self.index.conflict(namespace, name);
        let Some(content) = self.index.namespaces.get_mut(namespace) else { return };
        let Some(entry) = content.elections.get_mut(name) else { return };
        let conflict_changed = entry.conflict.is_some() != conflict.is_some();
        let refusal = match &entry.resolved {
            Some(Err(refusal)) => Some(refusal.clone()),
            _ => conflict.clone(),
        };
        let key_taken = conflict.as_ref().is_some_and(|conflict| conflict.reason == "KeyTaken");
        entry.conflict = conflict;
        let finalizer = entry.object.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
        let (key, mine) = lock_of(entry, &content.records, &self.elector);
        let desired = if entry.is_deleted() {
            Desired::Withdraw
        } else if entry.resolved.is_none() {
            if !mine {
                // Another lictor serves it, and nothing of ours is left.
                entry.group = None;
                entry.prober = None;
                return;
            }
            Desired::Withdraw
        } else if refusal.is_some() || entry.spec().is_some_and(|spec| spec.paused) || draining {
            Desired::Freeze
        } else {
            Desired::Run
        };
        if entry.is_deleted() && !finalizer {
            entry.prober = None;
            return;
        }
        if desired == Desired::Run && !finalizer {
            if !entry.status.in_flight && now >= entry.status.not_before {
                entry.status.in_flight = true;
                self.executor.write_finalizer(entry.id.clone(), entry.object.clone(), true);
            }
            let retry = entry.status.not_before.max(now + Duration::from_millis(50));
            self.timers.insert((retry, namespace.into(), name.into()));
            return;
        }
        // A lock that belongs to another election is not even looked at.
        let key = if key_taken { Key(String::new()) } else { key };
        if entry.group.as_ref().is_some_and(|(known, _)| *known != key) {
            entry.group = None;
        }
        let elector = &self.elector;
        let (_, group) = entry.group.get_or_insert_with(|| {
            let stored = content.records.get(&key).map_or(Stored::Absent, |(_, stored)| stored.clone());
            (key.clone(), Election::new(entry.id.name.clone(), entry.id.uid.clone(), elector.clone(), stored))
        });

        // One step of the election.
        let scope = entry.resolved.as_ref().and_then(|resolved| resolved.as_ref().ok()).map(|spec| spec.scope.clone());
        let scope = scope.or_else(|| group.record().map(|record| record.scope.clone())).unwrap_or_default();
        let spec = entry.resolved.as_ref().and_then(|resolved| resolved.as_ref().ok());
        let default_rules = crate::core::Rules {
            require_ready: true,
            min_ready: Duration::ZERO,
            preference: Vec::new(),
            preempt: false,
        };
        let pods: Vec<&Pod> = entry.members.iter().filter_map(|pod| content.pods.get(pod)).collect();
        let strays = strays(&entry.id, &key, &content.records);
        let nodes = &self.index.nodes;
        let view = View {
            now,
            wall: wall(),
            generation: entry.object.metadata.generation.unwrap_or_default(),
            desired,
            key: &key,
            scope: &scope,
            rules: spec.map_or(&default_rules, |spec| &spec.rules),
            order: spec.map_or(crate::core::HandoverOrder::DemoteFirst, |spec| spec.order),
            failover_delay: spec.map(|spec| spec.failover_delay).unwrap_or_default(),
            status_term: status_term(&entry.object),
            pods: &pods,
            node: &|name| nodes.get(name),
            probe_failed: entry.probe_failed.as_ref(),
            strays: &strays,
        };
        let commands = group.step(&view);
        let withdrawn = *group.situation() == crate::core::Situation::Withdrawn;
        let wake = group.wake();

        // What follows from it.
        let selected = entry.selected.iter().filter_map(|pod| content.pods.get(pod)).collect::<Vec<_>>();
        announce_defects(entry, &selected, &self.executor);
        let place = Place { namespace: namespace.into(), key };
        for command in commands {
            match command {
                Command::Announce(announcement) => announce(entry, announcement, &self.executor),
                command => self.executor.perform(entry.id.clone(), place.clone(), command),
            }
        }
        if withdrawn && entry.is_deleted() {
            entry.prober = None;
            if !entry.status.in_flight && now >= entry.status.not_before {
                entry.status.in_flight = true;
                self.executor.write_finalizer(entry.id.clone(), entry.object.clone(), false);
            }
            let retry = entry.status.not_before.max(now + Duration::from_millis(200));
            self.timers.insert((retry, namespace.into(), name.into()));
            return;
        }
        self.follow_up(namespace, name, refusal.as_ref(), desired, wake);
        if conflict_changed {
            self.index.mark_neighbours(namespace, name);
        }
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
            leader: entry.group().and_then(Election::leader).map(|(_, holder, _)| holder.pod.clone()),
            term: entry.group().map_or(0, |group| group.term().0),
            transitions: entry.figures.transitions,
            label_drift: entry.figures.label_drift,
            has_candidate: !candidates.is_empty(),
        });
        let mut next = wake;
        if desired != Desired::Withdraw
            && let Some(status) = status(entry, refusal, &candidates, now, self.lease_duration)
        {
            let before = entry.last_status();
            if status != before && !entry.status.in_flight {
                let important = status.leader != before.leader
                    || status.conditions != before.conditions
                    || status.observed_generation != before.observed_generation
                    || status.history.len() != before.history.len();
                let due = if important { entry.status.not_before } else { entry.status.not_before.max(now + STATUS_PERIOD) };
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

fn forward(sender: &mpsc::UnboundedSender<Input>, inputs: impl futures::Stream<Item = Input> + Send + 'static) {
    let sender = sender.clone();
    tokio::spawn(async move {
        let mut inputs = std::pin::pin!(inputs);
        while let Some(input) = inputs.next().await {
            if sender.send(input).is_err() {
                return;
            }
        }
    });
}

/// Where the election's lock is, and whether this lictor has written it.
fn lock_of(
    entry: &Entry,
    records: &BTreeMap<Key, (Version, Stored)>,
    elector: &str,
) -> (Key, bool) {
    let controller = elector.split('#').next().unwrap_or_default();
    let own = |stored: &Stored| {
        stored.record().is_some_and(|record| {
            record.election == entry.id.uid && record.elector.split('#').next() == Some(controller)
        })
    };
    let held = records.iter().find(|(_, (_, stored))| own(stored)).map(|(key, _)| key.clone());
    match entry.spec() {
        Some(spec) => (spec.key.clone(), held.is_some()),
        None => (held.clone().unwrap_or_else(|| Key(entry.id.name.clone())), held.is_some()),
    }
}

/// Locks of an election under other keys than its present one.
fn strays(id: &ElectionId, key: &Key, records: &BTreeMap<Key, (Version, Stored)>) -> Vec<(Key, Stored)> {
    let stray = |stored: &Stored| stored.record().is_some_and(|record| record.election == id.uid);
    let others = records.iter().filter(|(other, (_, stored))| *other != key && stray(stored));
    others.map(|(key, (_, stored))| (key.clone(), stored.clone())).collect()
}

fn status_term(election: &LeaderElection) -> Term {
    let term = election.status.as_ref().and_then(|status| status.term).unwrap_or_default();
    Term(i32::try_from(term.max(0)).unwrap_or(i32::MAX))
}

/// Probes the present leader, and nobody else.
fn follow_leader(
    entry: &mut Entry,
    pods: &BTreeMap<String, Pod>,
    desired: Desired,
    http: &reqwest::Client,
    inputs: &mpsc::UnboundedSender<Input>,
) {
    let wanted = entry.spec().and_then(|spec| spec.probe.clone()).filter(|_| desired == Desired::Run).and_then(|probe| {
        let (_, holder, _) = entry.group()?.leader()?;
        let pod = pods.get(&holder.pod).filter(|pod| pod.uid == holder.uid)?;
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

