//! The loop itself.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use lictor_api::{COMPLETE, ElectionClass, LeaderElection, Switchover};
use lictor_core::{
    ClaimState, Election, Failure, FollowedLock, Instant, Key, OpId, Outcome, SharedStores, StoreId, Uid, Version,
};
use lictor_kubernetes::{Change, version_of};
use lictor_locks::lease::ClaimUpdate;
use lictor_process::{NAP, monotonic, nap, wall};
use tokio::sync::{Notify, mpsc, watch};

use super::announce::announce_failed_switchover;
use super::class_status::ClassReporter;
use super::entry::{ProbeContext, WATCHED, probe_client};
use super::executor::Executor;
use super::followed::FollowedLocks;
use super::index::Index;
use super::input::{Input, forward};
use super::names::{ElectionId, ElectionName, SwitchoverId};
use super::on_demand::{OnDemandWatches, Watched};
use super::parameters::{Parameters, Purpose};
use super::steps::{
    Circumstances, Sources, accept, desire, execute, follow, gather, keep_service, refuse_all, report, settle, step,
    step_aside, withdraw,
};
use super::stores::{ClassStores, Context};
use super::switchover::Written;
use super::sync::{LABELS, Sync};
use super::timers::{Moment, Soonest, Timers};
use crate::kubernetes::{
    Namespaces, ServiceWrite, resource_name, watch_classes, watch_elections, watch_nodes, watch_pods, watch_switchovers,
};
use crate::store::{LockStore, Registration, StoreEvent, Stores};
use crate::telemetry::{Health, Metrics};

/// How long a stopping operator may take to finish what it has begun.
const DRAIN: Duration = Duration::from_secs(5);
/// The same while workloads must end before their lock is released: less than Kubernetes gives a pod by default.
const WINDING_DOWN: Duration = Duration::from_secs(25);

/// How many elections are decided before the loop takes new inputs.
const AT_ONCE: usize = 32;

/// The operator.
pub struct Controller {
    purpose: Purpose,
    index: Index,
    executor: Executor,
    operator_id: String,
    lease_duration: Duration,
    inputs: mpsc::UnboundedReceiver<Input>,
    /// The inputs from the watches of the cluster. The watches end when this is dropped.
    observed: mpsc::UnboundedReceiver<Input>,
    client: Client,
    namespaces: Namespaces,
    leases: Arc<dyn LockStore>,
    /// How many times the operator's own Lease has asked to learn everything again.
    rewound: u64,
    claim: watch::Receiver<ClaimUpdate>,
    probe_context: ProbeContext,
    /// Notified when another replica seems to act.
    doubt: Arc<Notify>,
    acting: bool,
    /// L7: the number of the takeover by which this replica acts, or acted last.
    takeovers: u64,
    /// Whether this replica has announced that it acts, which it does only when it knows enough to decide.
    said_so: bool,
    /// How many decisions were begun, including repeated ones of one group.
    begun: u64,
    sync: Sync,
    shared: SharedStores,
    stores: ClassStores,
    classes: ClassReporter,
    watches: OnDemandWatches,
    followed: FollowedLocks,
    timers: Timers,
    metrics: Metrics,
    health: Health,
}

/// The time that a stopping operator has left.
struct Drain {
    until: Instant,
    at_most: Instant,
}

impl Controller {
    /// Makes an operator that knows nothing yet.
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
            clients,
            dial,
            doubt,
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
        let followed = FollowedLocks::new(stores.clone(), sender.clone());
        let classes = ClassReporter::start(&client, request_timeout, &controller, claim.clone());
        let context = Context {
            identity: identity.clone(),
            client: client.clone(),
            own_namespace,
            controller: controller.clone(),
            timeout: request_timeout,
            stores,
            inputs: sender.clone(),
            claim: claim.clone(),
            keepers: Arc::default(),
        };
        let class_stores = ClassStores::new(context, clients);
        let sync = Sync::new(&namespaces, health.clone(), metrics.clone());
        let (observed, watches) = watch_cluster(&client, &namespaces, leases.as_ref());
        let updates = futures::stream::unfold(claim.clone(), |mut claim| async move {
            claim.changed().await.ok()?;
            let update = claim.borrow_and_update().clone();
            Some((Input::Claim(update), claim))
        });
        forward(&sender, updates);
        let operator_id = format!("{controller}#{identity}");
        Ok(Self {
            purpose,
            index: Index::new(controller, operator_id.clone()),
            operator_id,
            executor,
            lease_duration,
            inputs,
            observed,
            client,
            namespaces,
            leases,
            rewound: 0,
            claim,
            probe_context: ProbeContext { http: probe_client()?, dial, inputs: sender },
            doubt,
            acting: false,
            takeovers: 0,
            said_so: false,
            begun: 0,
            sync,
            shared: SharedStores::default(),
            stores: class_stores,
            classes,
            watches,
            followed,
            timers: Timers::default(),
            metrics,
            health,
        })
    }

    /// Runs until `stop` is set, then finishes the handovers under way. An operator that withdraws runs until nothing is left.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut draining: Option<Drain> = None;
        loop {
            let now = monotonic();
            let winds_down = draining.is_some() && self.index.filed.winds_down();
            if let Some(drain) = draining.as_mut().filter(|_| winds_down) {
                // The work after the wind-down needs time, too.
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
                // All inputs that have arrived are taken, and more elections wait for a decision.
                () = tokio::task::yield_now(), if self.acting && self.index.dirty_count() > 0 => {}
                () = nap(wake.since(now)) => {}
            }
            self.step(draining.is_some());
        }
        // L6: another replica may still use the sessions.
        let alone = self.acting && self.claim.borrow().alone_from <= monotonic();
        let index = &self.index;
        self.stores.stop(|store| alone && index.objects.is_vacated(store)).await;
    }

    /// Whether the operator's purpose was to withdraw, and it no longer holds anything that it knows to be its own.
    fn is_withdrawn(&mut self) -> bool {
        self.purpose == Purpose::Withdraw
            && self.acting
            && self.sync.is_complete()
            && self.executor.pending() == 0
            && self.index.is_withdrawn()
    }

    fn is_busy(&self) -> bool {
        // A completed handover still has to reach the status and the Events.
        self.acting && (self.executor.pending() > 0 || self.index.dirty_count() > 0 || self.index.filed.is_unfinished())
    }

    // Observations

    /// Takes all inputs that have already arrived. Later inputs come after the next decisions.
    fn take_arrived(&mut self) {
        for _ in 0..self.inputs.len() + self.observed.len() {
            let Ok(input) = self.inputs.try_recv().or_else(|_| self.observed.try_recv()) else { break };
            self.take(input);
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Pods(change) => {
                self.note("pods", &change);
                self.index.pods().apply(change, monotonic());
            }
            Input::Nodes(change) => {
                self.note("nodes", &change);
                self.index.apply_nodes(change);
            }
            Input::Classes(change) => self.take_classes(change),
            Input::Labels(change) => {
                self.note_on_demand(Watched::Labels, LABELS, &change);
                self.index.elections().apply_labels(change);
            }
            Input::Elections(change) => self.take_elections(change),
            Input::Switchovers(change) => {
                self.note("switchovers", &change);
                self.index.switchovers().apply(change);
            }
            Input::Workloads(kind, change) => {
                self.note_on_demand(Watched::Workloads(kind), resource_name(kind), &change);
                self.index.workloads().apply(kind, change);
            }
            Input::Workload(_, _, Ok(object)) => self.index.workloads().put(*object),
            Input::Workload(namespace, id, Err(uid)) => self.index.workloads().lose(&namespace, &id, &uid),
            Input::Services(change) => {
                self.note_on_demand(Watched::Services, "services", &change);
                self.index.services().apply(change);
            }
            Input::Slices(change) => {
                self.note_on_demand(Watched::Slices, "endpointslices", &change);
                self.index.slices().apply(change);
            }
            Input::Slice(namespace, Ok(slice)) => self.index.slices().put(&namespace, *slice),
            Input::Slice(namespace, Err((name, uid))) => self.index.slices().lose(&namespace, &name, &uid),
            Input::Leftovers(id, number, found) => {
                if self.index.entry(&id).is_some_and(|entry| entry.routing.take(number, found, monotonic())) {
                    self.index.mark(&id.election);
                }
            }
            Input::Service(id, write, written) => self.take_service(&id, &write, written),
            Input::Title(id, uid, read) => {
                if let Some(entry) = self.index.entry(&id) {
                    entry.titles.take(uid, read, monotonic());
                    self.index.mark(&id.election);
                }
            }
            Input::Records(event) => {
                match &event {
                    StoreEvent::All(scope, ..) | StoreEvent::Resumed(scope) if scope.store == StoreId::leases() => {
                        self.sync.listed("leases", scope.namespace.clone().into());
                    }
                    StoreEvent::Rewound(scope, _) if scope.store == StoreId::leases() => return self.begin_anew(),
                    StoreEvent::Broken(scope, failure) if scope.store == StoreId::leases() => {
                        self.sync.broken("leases", scope.namespace.clone().into(), failure);
                    }
                    _ => {}
                }
                match &event {
                    StoreEvent::LockValidity(store, validity, _) => {
                        self.metrics.store_held(store, *validity);
                    }
                    StoreEvent::Broken(scope, _) if scope.store != StoreId::leases() => {
                        self.metrics.count_watch_failure(scope.store.kind());
                    }
                    _ => {}
                }
                self.observe_store(&event);
                self.index.records().apply(event, monotonic());
            }
            Input::Followed(key, lock) => self.take_followed(&key, lock),
            Input::Outcome(id, op, outcome) => self.take_outcome(&id, op, outcome),
            Input::Written(id, number, written) => self.take_written(&id, number, *written),
            Input::Switched(id, number, written) => self.take_switched(&id, number, *written),
            Input::Registered(id, wanted, written) => self.take_registered(&id, wanted, written),
            Input::Remarked(id, written) => {
                if let Some(entry) = self.index.entry(&id) {
                    if let Some(failure) = entry.remarking.take(written, monotonic()) {
                        tracing::warn!(election = %id.election, "{}", failure.text());
                    }
                    self.index.mark(&id.election);
                }
            }
            Input::Probed(id, number, failure, found) => {
                if self.index.entry(&id).is_some_and(|entry| entry.probing.take(number, failure, found)) {
                    self.index.mark_urgent(&id.election);
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

    /// Learns everything again, as after a start, because the API server's store was restored to an earlier state and gives known versions
    /// to other objects. The observer that noticed this reports it once.
    fn begin_anew(&mut self) {
        tracing::warn!(
            "the API server's store was restored to an earlier state, because its versions have gone back: lictor \
             reads everything again. If this repeats, restart every API server"
        );
        self.metrics.count_restore();
        self.index.forget_versions();
        self.stand_by();
        (self.observed, self.watches) = watch_cluster(&self.client, &self.namespaces, self.leases.as_ref());
        self.sync.begin_anew(&self.namespaces);
    }

    /// Begins the watches that elections with a Service need. A standby begins them too, so that it knows the objects when it acts.
    fn begin_routing(&mut self, change: &Change<(Version, Uid, LeaderElection)>) {
        let routes = |(_, _, election): &(Version, Uid, LeaderElection)| election.spec.service.is_some();
        let found = match change {
            Change::All(_, _, elections) => elections.iter().any(routes),
            Change::Applied(election) => routes(election),
            Change::Deleted(_) | Change::Rewound(_) | Change::Broken(..) | Change::Resumed(_) => false,
        };
        self.watches.begin(WATCHED.into_iter().filter(|_| found));
    }

    fn take_classes(&mut self, change: Change<(String, ElectionClass)>) {
        self.note("electionclasses", &change);
        self.index.elections().apply_classes(change);
        let (index, classes) = (&self.index, self.index.offers.written());
        if index.offers.by_label() && !self.watches.has_begun(Watched::Labels) {
            // Until the labels are known, no election is decided, because a refused one would let a younger one have its pods.
            self.sync.expect(LABELS);
            self.watches.begin([Watched::Labels]);
        }
        self.classes.apply(classes);
        for (id, patience) in self.stores.apply(classes, |id| index.locks.holds_any(id) || index.objects.uses(id)) {
            self.shared.add(id, patience, monotonic());
        }
    }

    fn take_elections(&mut self, change: Change<(Version, Uid, LeaderElection)>) {
        self.note("leaderelections", &change);
        self.begin_routing(&change);
        for gone in self.index.apply_elections(change) {
            self.metrics.forget(&gone.object.election().namespace, gone.object.name());
        }
    }

    fn take_followed(&mut self, key: &Key, lock: FollowedLock) {
        for election in self.followed.take(key, lock) {
            self.index.mark_urgent(&election);
        }
    }

    /// Begins or stops following the locks that the candidates of elections hold themselves.
    fn follow_locks(&mut self) {
        for election in self.index.take_following() {
            self.followed.follow(&election, self.index.followed_by(&election));
        }
    }

    fn note<T>(&mut self, resource: &'static str, change: &Change<T>) {
        self.sync.note(resource, change);
        if let Change::Rewound(_) = change {
            self.begin_anew();
        }
    }

    fn note_on_demand<T>(&mut self, watched: Watched, resource: &'static str, change: &Change<T>) {
        self.note(resource, change);
        if self.watches.observe(watched, change) {
            self.index.mark_all();
        }
    }

    fn take_outcome(&mut self, id: &ElectionId, op: OpId, outcome: Outcome) {
        let now = monotonic();
        for pod in outcome.pods() {
            self.index.pods().put(&id.election.namespace, pod.clone(), now);
        }
        if let Some(entry) = self.index.entry(id) {
            entry.decisions.take(op, outcome, now);
            self.index.note_decided(&id.election);
            self.index.mark_urgent(&id.election);
        }
    }

    fn take_written(&mut self, id: &ElectionId, number: u64, written: Result<LeaderElection, Option<Failure>>) {
        let now = monotonic();
        let Some(entry) = self.index.entry(id) else { return };
        let Some(retry) = entry.writes.end(number) else { return };
        match written {
            Ok(election) => {
                retry.succeeded();
                let version = version_of(&election);
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

    fn take_switched(&mut self, id: &SwitchoverId, number: u64, written: Result<Option<Switchover>, Option<Failure>>) {
        let now = monotonic();
        let Some(known) = self.index.switchovers().find(id) else { return };
        let version = known.version();
        let Some((what, retry)) = known.end(number) else { return };
        match written {
            Ok(Some(switchover)) => {
                retry.succeeded();
                self.index.switchovers().put(version_of(&switchover), id.uid.clone(), switchover);
                if what == Written::Ends {
                    self.tell_result(id);
                }
            }
            // A deletion's own version is not reported, so this assumes the lowest possible one.
            Ok(None) => self.index.switchovers().remove(id, Version(version.0 + 1)),
            Err(None) => retry.conflicted(now),
            Err(Some(failure)) => {
                if retry.failed(now) {
                    tracing::warn!(election = %id.election, switchover = %id.name, "{}", failure.text());
                }
                self.metrics.count_write_failure("switchovers", &failure);
            }
        }
        self.index.mark(&id.election);
    }

    /// Publishes how a Switchover has ended.
    fn tell_result(&mut self, id: &SwitchoverId) {
        let Some(known) = self.index.switchovers().find(id) else { return };
        let Some(result) = known.result() else { return };
        let message = known.status().conditions.first().map(|condition| condition.message.clone()).unwrap_or_default();
        self.metrics.count_switchover(&result);
        if result == COMPLETE {
            tracing::info!(election = %id.election, switchover = %id.name, "{message}");
            return;
        }
        tracing::warn!(election = %id.election, switchover = %id.name, reason = result, "{message}");
        if let Some(found) = self.index.find(&id.election) {
            announce_failed_switchover(found.entry, id, &message, &self.executor);
        }
    }

    /// Takes the events of a store's watch that are not about its locks.
    fn observe_store(&mut self, event: &StoreEvent) {
        match event {
            StoreEvent::All(scope, ..) => self.shared.list(&scope.store),
            StoreEvent::Rewound(scope, _) => self.shared.rewind(&scope.store, monotonic()),
            StoreEvent::LockValidity(store, validity, takeover) => {
                self.shared.hold(store, *takeover, *validity, monotonic());
            }
            StoreEvent::Changed(..)
            | StoreEvent::Broken(..)
            | StoreEvent::Resumed(_)
            | StoreEvent::Elsewhere(..)
            | StoreEvent::Bids(..)
            | StoreEvent::Remarks(..) => {}
        }
    }

    // Decisions

    fn step(&mut self, draining: bool) {
        let now = monotonic();
        let (state, takeovers) = {
            let claim = self.claim.borrow();
            (claim.state, claim.takeovers)
        };
        let acts = matches!(state, ClaimState::Acting(deadline) if now < deadline);
        if self.acting && takeovers != self.takeovers {
            // L7: another replica has acted meanwhile, unnoticed.
            self.stand_by();
        }
        if acts && !self.acting {
            (self.acting, self.takeovers) = (true, takeovers);
            self.index.act();
            self.shared.await_anew(takeovers, now);
            if !self.sync.knows_some() {
                tracing::info!(
                    problem = self.sync.waits(),
                    "this replica holds the operator's Lease, but elects no leader yet"
                );
            }
            self.index.mark_all();
        } else if !acts && self.acting {
            self.stand_by();
        }
        if self.acting && !self.said_so && self.sync.knows_some() {
            self.said_so = true;
            tracing::info!("this replica acts");
            self.metrics.acting(true);
        }
        while let Some(election) = self.timers.take_due(now) {
            self.index.mark(&election);
        }
        if self.acting {
            let sync = &self.sync;
            self.index.remains().find(|namespace| sync.knows(namespace));
        }
        for store in self.shared.changed(now) {
            self.index.objects.mark_store(&store);
        }
        self.follow_locks();
        for election in self.sync.take_known() {
            self.index.mark(&election);
        }
        if self.acting {
            for election in self.index.take_dirty(AT_ONCE) {
                self.timers.cancel(&election);
                if self.sync.knows(&election.namespace) {
                    self.decide(&election, draining);
                    self.index.note_decided(&election);
                } else {
                    self.sync.postpone(election);
                }
            }
        } else {
            self.step_aside();
        }
        self.metrics.queue_depth(self.index.dirty_count() + self.executor.pending());
    }

    /// C10: removes the leadership that another cluster has replaced, although this replica does not act.
    fn step_aside(&mut self) {
        let now = monotonic();
        for election in self.index.take_dirty(usize::MAX) {
            if !self.index.is_held_elsewhere(&election) {
                continue;
            }
            self.timers.cancel(&election);
            if !self.sync.knows(&election.namespace) {
                self.sync.postpone(election);
                continue;
            }
            let mut again = Soonest::default();
            if let Some((mut found, _)) = accept(&mut self.index, &election) {
                again.add(step_aside(&mut found, &self.executor, &mut self.begun, now));
            }
            self.look_again(&election, &again);
        }
    }

    fn take_service(
        &mut self,
        id: &ElectionId,
        write: &ServiceWrite,
        written: Result<Option<(Uid, Version)>, Failure>,
    ) {
        let Some(entry) = self.index.entry(id) else { return };
        if let Some(failure) = entry.service.take(write, written, monotonic()) {
            tracing::warn!(election = %id.election, "{}", failure.text());
        }
        self.index.mark(&id.election);
    }

    fn take_registered(&mut self, id: &ElectionId, wanted: Registration, written: Result<bool, Failure>) {
        let Some(entry) = self.index.entry(id) else { return };
        if let Some(failure) = entry.registered.take(wanted, written, monotonic()) {
            tracing::warn!(election = %id.election, "{}", failure.text());
        }
        self.index.mark(&id.election);
    }

    /// Decides one election, step by step.
    fn decide(&mut self, election: &ElectionName, draining: bool) {
        let moment = Moment { now: monotonic(), wall: wall() };
        let (purpose, operator_id) = (self.purpose, self.operator_id.as_str());
        let circumstances = Circumstances { purpose, draining, operator_id, moment };
        let mut again = Soonest::default();
        let Some((mut found, neighbours_care)) = accept(&mut self.index, election) else {
            return self.refuse_switchovers(election, moment);
        };
        found.entry.followed = self.followed.of(election).cloned().unwrap_or_default();
        let mut sources = Sources { watches: &mut self.watches, shared: &self.shared, stores: &self.stores };
        let Some(aim) = desire(&mut found, circumstances, &mut sources, &self.executor, &mut again) else {
            return self.look_again(election, &again);
        };
        let alone_from = self.claim.borrow().alone_from;
        let switching = gather(found.switchovers.as_deref_mut(), moment);
        let (output, verdicts) = step(&mut found, &aim, switching, &sources, alone_from, &mut self.begun, moment);
        if output.contested {
            self.doubt.notify_one();
        }
        execute(&mut found, output, &self.executor, moment);
        if settle(&mut found, verdicts, &self.executor, moment, &mut again) {
            again.add(moment.now);
        }
        if found.entry.decisions.is_withdrawn() && circumstances.ends(&found.entry.object) {
            withdraw(found.entry, found.around.services, found.told.remarks, &self.executor, moment, &mut again);
            if found.entry.object.is_gone() && found.entry.withdrawn {
                self.metrics.forget(&election.namespace, &election.name);
                self.index.bury(election);
                return self.index.mark(election);
            }
            return self.look_again(election, &again);
        }
        again.add(found.entry.election().and_then(Election::wake));
        keep_service(&mut found, aim.desired, &self.watches, &self.executor, moment.now, &mut again);
        follow(&mut found, aim.desired, &self.probe_context, &self.shared, &self.executor, moment, &mut again);
        report(&mut found, aim.desired, &self.metrics, &self.executor, self.lease_duration, moment, &mut again);
        self.look_again(election, &again);
        if neighbours_care {
            self.index.mark_neighbours(election);
        }
    }

    /// H14: fails the Switchovers of an election that does not exist.
    fn refuse_switchovers(&mut self, election: &ElectionName, moment: Moment) {
        let mut again = Soonest::default();
        if self.purpose == Purpose::Withdraw {
            return;
        }
        if let Some(all) = self.index.switchovers().of(election) {
            refuse_all(all, &self.executor, moment, &mut again);
        }
        self.look_again(election, &again);
    }

    fn look_again(&mut self, election: &ElectionName, again: &Soonest) {
        if let Some(at) = again.get() {
            self.timers.add(at, election.clone());
        }
    }

    fn stand_by(&mut self) {
        if self.acting {
            tracing::info!("this replica stands by");
        }
        (self.acting, self.said_so) = (false, false);
        self.metrics.acting(false);
        self.timers.clear();
        self.index.stand_by();
        for entry in self.index.objects.entries_mut() {
            entry.stand_by();
        }
        self.index.filed.forget_decided();
        self.metrics.forget_all();
        self.index.mark_all();
    }
}

/// Begins to watch the cluster. The watches of workloads, Services and slices begin when an election needs them.
fn watch_cluster(
    client: &Client,
    namespaces: &Namespaces,
    leases: &dyn LockStore,
) -> (mpsc::UnboundedReceiver<Input>, OnDemandWatches) {
    let (sender, observed) = mpsc::unbounded_channel();
    forward(&sender, watch_pods(client, namespaces).map(Input::Pods));
    forward(&sender, watch_nodes(client).map(Input::Nodes));
    forward(&sender, watch_classes(client).map(Input::Classes));
    forward(&sender, watch_elections(client, namespaces).map(Input::Elections));
    forward(&sender, watch_switchovers(client, namespaces).map(Input::Switchovers));
    forward(&sender, leases.watch().map(Input::Records));
    (observed, OnDemandWatches::new(client.clone(), namespaces.clone(), sender))
}

#[cfg(test)]
mod tests;
