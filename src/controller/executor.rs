//! Carries out the requests of elections.

mod leaders;
mod repeats;
mod requests;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use lictor_api::{Claims, LeaderElection, LeaderElectionStatus, Resolved, Switchover, SwitchoverStatus};
use lictor_core::{
    Bid, Command, Failure, Key, Outcome, PlacedBid, Pod, Record, RecordOutcome, Request, Selector, Slice, SliceOutcome,
    StoreId, Stored, Term, TitleRead, Uid, Unread, Version, WorkloadClaim, WorkloadId, WorkloadOutcome, WriteSlice,
};
use lictor_kubernetes::{Change, version_of};
use lictor_locks::lease::ClaimUpdate;
use lictor_process::monotonic;
use tokio::sync::{mpsc, watch};

use self::leaders::list_pods;
use self::repeats::Repeats;
use self::requests::{Gate, Queue, Requests};
use super::input::Input;
use super::names::{ElectionId, ElectionName, Namespace, SwitchoverId};
use super::object::ElectionObject;
use super::permit::{Grant, Permit};
use crate::kubernetes::lanes::{Class, Limits, Share};
use crate::kubernetes::{
    Answer, Controllers, Elections, Event, Events, MarkedPods, MatchingPods, Pods, ServiceWrite, Services, Slices,
    Switchovers, WorkloadObject, Workloads,
};
use crate::store::{Difference, LockStore, Owner, Registration, SharedLocks, StoreEvent, Stores};
use crate::telemetry::Metrics;

/// Concurrent requests to the API server. A handover needs three in a row, and more would only queue in the server. The groups are
/// namespaces: a webhook that hangs in one of them blocks a quarter at most.
const CLUSTER: Limits = Limits { all: 64, group: 16, member: 12 };
/// Concurrent requests to stores outside the cluster. If they hang, no pod waits for them. The groups are stores.
const OUTSIDE: Limits = Limits { all: 64, group: 48, member: 12 };
/// Concurrent requests that nothing waits for, so that status and Events never stand in the way of a handover.
const COURTEOUS: Limits = Limits { all: 8, group: 6, member: 4 };
/// How long a list for a new group waits at most for other new groups.
const LONGEST_PATIENCE: Duration = Duration::from_secs(1);
/// The most Events that wait, of one election and of all. Further Events are dropped.
const EVENTS_OF_ONE: usize = 16;
const EVENTS: usize = 1024;

/// An election at the moment of its request.
pub(super) struct Requester {
    pub(super) id: ElectionId,
    pub(super) seen: Arc<LeaderElection>,
    /// The valid spec.
    pub(super) spec: Option<Arc<Resolved>>,
    /// The workloads that the election has changed.
    pub(super) claims: Arc<Claims>,
    /// The stores in which the election may have locks.
    pub(super) stores: Arc<BTreeSet<StoreId>>,
    /// Whether the election has had no leader yet, according to its status and its lock.
    pub(super) is_new: bool,
    /// The same, also while its first handover is under way.
    pub(super) begins: bool,
}

/// Sends the loop's requests. Clones share everything, and a clone is only one pointer, because thousands of requests may wait with one
/// each.
#[derive(Clone)]
pub(super) struct Executor(Arc<Inner>);

/// The contents of an [`Executor`].
pub(super) struct Inner {
    stores: Stores,
    pods: Pods,
    controllers: Controllers,
    matching: MatchingPods,
    marked: MarkedPods,
    workloads: Workloads,
    slices: Slices,
    services: Services,
    elections: Elections,
    switchovers: Switchovers,
    events: Events,
    pub(super) metrics: Metrics,
    requests: Requests,
    cluster: Queue,
    outside: Queue,
    courteous: Queue,
    repeats: Mutex<Repeats>,
}

impl Deref for Executor {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Executor {
    pub(super) fn new(
        stores: Stores,
        client: &Client,
        request_timeout: Duration,
        identity: &str,
        metrics: Metrics,
        inputs: mpsc::UnboundedSender<Input>,
        claim: watch::Receiver<ClaimUpdate>,
    ) -> Self {
        let pods = Pods::new(client.clone(), request_timeout);
        let [cluster, outside, courteous] = [CLUSTER, OUTSIDE, COURTEOUS].map(Queue::new);
        Self(Arc::new(Inner {
            stores,
            matching: MatchingPods::new(pods.clone()),
            marked: MarkedPods::new(pods.clone()),
            pods,
            controllers: Controllers::new(client.clone(), request_timeout),
            workloads: Workloads::new(client.clone(), request_timeout),
            slices: Slices::new(client.clone(), request_timeout),
            services: Services::new(client.clone(), request_timeout),
            elections: Elections::new(client.clone(), request_timeout),
            switchovers: Switchovers::new(client.clone(), request_timeout),
            events: Events::new(client.clone(), identity),
            metrics,
            requests: Requests::new(inputs, claim),
            cluster,
            outside,
            courteous,
            repeats: Mutex::default(),
        }))
    }

    /// Requests that are under way or wait for their turn.
    pub(super) fn pending(&self) -> usize {
        self.requests.pending()
    }

    /// Roughly how long these requests take, in whole seconds.
    pub(super) fn backlog(&self) -> Duration {
        self.requests.backlog()
    }

    /// Carries out a request; its outcome comes back as an input. A request that makes a pod or a workload lead is not sent once it is no
    /// longer allowed, or once the returned grant was dropped.
    pub(super) fn perform(&self, requester: Requester, request: Request) -> Option<Grant> {
        let (queue, share) = self.way_of(&requester, &request.command);
        let class = class_of(&requester, &request);
        let (grant, permit) = request.command.promotes().then(Grant::new).unzip();
        let request = Arc::new(request);
        let gate = Gate { request: Some(request.clone()), permit };
        let (this, failed) = (self.clone(), self.failed(&requester.id, &request));
        let shared = is_shared(&requester, &request.command);
        let work = move |gate| async move {
            let outcome = this.request(&requester, &gate, &request.command).await;
            Some(this.outcome(requester.id, &request, outcome))
        };
        if shared {
            self.requests.join(gate, failed, work);
        } else {
            self.requests.submit(queue, &share, class, gate, failed, work);
        }
        grant
    }

    /// How long a list for a new group may wait for other groups: a millisecond for each request of a new group that waits for its turn.
    /// `None` if the group has a leader, or the request has a turn.
    fn patience(&self, requester: &Requester, command: &Command) -> Option<Duration> {
        let waiting = u64::try_from(self.cluster.lanes().waiting(Class::New)).unwrap_or(u64::MAX);
        let waits = requester.begins && is_shared(requester, command);
        waits.then(|| Duration::from_millis(waiting).min(LONGEST_PATIENCE))
    }

    /// The outcome of a request that is not sent.
    fn failed(
        &self,
        id: &ElectionId,
        request: &Arc<Request>,
    ) -> impl FnOnce(Failure) -> Option<Input> + Send + 'static {
        let (this, id, unsent) = (self.clone(), id.clone(), request.clone());
        move |failure| {
            let outcome = unsent.command.failed(failure);
            Some(this.outcome(id, &unsent, outcome))
        }
    }

    /// The queue of a command, and its share of that queue.
    fn way_of(&self, requester: &Requester, command: &Command) -> (&Queue, Share) {
        let shared = |store: &&StoreId| **store != StoreId::leases();
        let store = match command {
            Command::ReadRecord { key, .. }
            | Command::WriteRecord { key, .. }
            | Command::ReleaseRecord { key, .. }
            | Command::GiveRecord { key, .. }
            | Command::WriteBid { key, .. }
            | Command::RemoveBid { key, .. }
            | Command::DeleteRecord { key, .. } => Some(&key.store).filter(shared),
            Command::ListLocks => requester.stores.iter().find(shared),
            _ => None,
        };
        let (queue, group) = match store {
            Some(store) => (&self.outside, store.0.clone()),
            None => (&self.cluster, requester.id.election.namespace.to_string()),
        };
        (queue, Share { group, member: requester.id.election.to_string() })
    }

    fn outcome(&self, id: ElectionId, request: &Request, outcome: Outcome) -> Input {
        tracing::trace!(election = %id.election, "{} -> {outcome}", request.command);
        self.metrics.count_failure(&outcome);
        Input::Outcome(id, request.op, outcome)
    }

    /// Writes the status, unless the write is taken back before its turn. The outcome comes back as an input with the same number.
    pub(super) fn write_status(
        &self,
        object: &ElectionObject,
        number: u64,
        permit: Permit,
        status: LeaderElectionStatus,
    ) {
        let gate = Gate { permit: Some(permit), ..Gate::OPEN };
        let (this, id, seen) = (self.clone(), object.id().clone(), object.seen().clone());
        let failed = not_written(id.clone(), number);
        self.requests.submit(&self.courteous, &share(&id), Class::Urgent, gate, failed, move |_| async move {
            let written = this.elections.write_status(&seen, &status).await;
            Some(Input::Written(id, number, Box::new(written)))
        });
    }

    /// Writes the status of a Switchover, which the switch itself may wait for. The outcome comes back as an input with the same number.
    pub(super) fn write_switchover(
        &self,
        id: &SwitchoverId,
        seen: &Arc<Switchover>,
        number: u64,
        status: SwitchoverStatus,
    ) {
        let (this, id, seen) = (self.clone(), id.clone(), seen.clone());
        let (share, failed) = (share_of(&id.election), not_switched(id.clone(), number));
        self.requests.submit(&self.cluster, &share, Class::Wait, Gate::OPEN, failed, move |_| async move {
            let written = this.switchovers.write_status(&seen, &status).await;
            Some(Input::Switched(id, number, Box::new(written.map(Some))))
        });
    }

    /// Deletes a Switchover. The outcome comes back as an input with the same number.
    pub(super) fn delete_switchover(&self, id: &SwitchoverId, seen: &Arc<Switchover>, number: u64) {
        let (this, id, seen) = (self.clone(), id.clone(), seen.clone());
        let (share, failed) = (share_of(&id.election), not_switched(id.clone(), number));
        self.requests.submit(&self.courteous, &share, Class::Wait, Gate::OPEN, failed, move |_| async move {
            let deleted = this.switchovers.delete(&seen).await;
            Some(Input::Switched(id, number, Box::new(deleted.map(|()| None).map_err(Some))))
        });
    }

    /// Adds or removes the finalizer, and notes which workloads are changed. The outcome comes back as an input with the same number.
    pub(super) fn write_metadata(&self, object: &ElectionObject, number: u64, held: bool, claims: Claims) {
        let (this, id, seen) = (self.clone(), object.id().clone(), object.seen().clone());
        let failed = not_written(id.clone(), number);
        self.requests.submit(&self.cluster, &share(&id), Class::Wait, Gate::OPEN, failed, move |_| async move {
            let written = this.elections.write_metadata(&seen, held, &claims).await;
            Some(Input::Written(id, number, Box::new(written)))
        });
    }

    /// Looks for leftovers other than lictor's slices through which the election's Service reaches a pod. The result comes back as an
    /// input with the same number.
    pub(super) fn look_for_leftovers(&self, object: &ElectionObject, number: u64) {
        let Some(service) = object.spec().and_then(|spec| spec.service_name()).map(str::to_owned) else { return };
        let (this, id) = (self.clone(), object.id().clone());
        let of = id.clone();
        let failed = move |failure| Some(Input::Leftovers(of, number, Err(failure)));
        // At an operator's start, the first handover waits for this search.
        self.requests.submit(&self.cluster, &share(&id), Class::Urgent, Gate::OPEN, failed, move |_| async move {
            let found = this.slices.leftovers(&id.election.namespace, &service).await;
            Some(Input::Leftovers(id, number, found))
        });
    }

    /// Creates, changes or deletes the Service that the election describes, or described. The outcome comes back as an input.
    pub(super) fn write_service(&self, object: &ElectionObject, write: ServiceWrite) {
        let (this, id, seen) = (self.clone(), object.id().clone(), object.seen().clone());
        let (of, unsent) = (id.clone(), write.clone());
        let failed = move |failure| Some(Input::Service(of, unsent, Err(failure)));
        self.requests.submit(&self.cluster, &share(&id), Class::Wait, Gate::OPEN, failed, move |_| async move {
            let written = this.services.write(&seen, &write).await;
            Some(Input::Service(id, write, written))
        });
    }

    /// Reads the owners of the keys on a candidate (O1). The result comes back as an input.
    pub(super) fn read_title(&self, object: &ElectionObject, uid: Uid, unread: Unread) {
        let (this, id) = (self.clone(), object.id().clone());
        let (of, asked) = (id.clone(), uid.clone());
        let failed = move |failure| Some(Input::Title(of, asked, Err(failure)));
        // The first handover of the group waits for this read.
        self.requests.submit(&self.cluster, &share(&id), Class::Urgent, Gate::OPEN, failed, move |_| async move {
            let namespace = &id.election.namespace;
            let read = match unread {
                Unread::Pod(name) => this.pods.provenance(namespace, &name).await.map(TitleRead::Pod),
                Unread::Controller(controller) => {
                    this.controllers.selection(namespace, &controller).await.map(TitleRead::Controller)
                }
            };
            Some(Input::Title(id, uid, read))
        });
    }

    /// Removes a finalizer that an election no longer needs. The outcome comes back like that of other metadata.
    pub(super) fn drop_finalizer(&self, object: &ElectionObject, number: u64) {
        let (this, id, seen) = (self.clone(), object.id().clone(), object.seen().clone());
        let failed = not_written(id.clone(), number);
        self.requests.submit(&self.cluster, &share(&id), Class::Wait, Gate::OPEN, failed, move |_| async move {
            let written = this.elections.write_metadata(&seen, false, &Claims::default()).await;
            Some(Input::Written(id, number, Box::new(written)))
        });
    }

    /// Makes the Job of a term.
    async fn create_job(&self, of: &Requester, plan: &str, job: &WorkloadId, claim: &WorkloadClaim) -> Outcome {
        let Some(template) = of.spec.as_ref().and_then(|spec| spec.jobs.get(plan)) else {
            return not_done(Failure::Refused("the template no longer exists".into()));
        };
        let answer = self.workloads.create(&of.seen, plan, template, job, claim).await;
        self.show_workload(&of.id, job, answer)
    }

    /// Notes in the election's own object that the Job of a term was made.
    async fn note_job(&self, of: &Requester, plan: &str, term: Term) -> Outcome {
        let mut claims = Claims::clone(&of.claims);
        claims.started.insert(plan.into(), term.0);
        match self.elections.write_metadata(&of.seen, true, &claims).await {
            Ok(election) => {
                let shown = Change::Applied((version_of(&election), of.id.uid.clone(), election));
                self.requests.tell(Input::Elections(shown));
                Outcome::WorkloadWritten(WorkloadOutcome::Done)
            }
            Err(None) => not_done(Failure::Refused("the election changed meanwhile".into())),
            Err(Some(failure)) => not_done(failure),
        }
    }

    /// Shows the index the workload in an answer before the outcome arrives.
    fn show_workload(&self, id: &ElectionId, workload: &WorkloadId, answer: Answer) -> Outcome {
        if let Some(seen) = answer.seen {
            self.requests.tell(Input::Workload(id.election.namespace.clone(), workload.clone(), seen));
        }
        Outcome::WorkloadWritten(answer.outcome)
    }

    /// Registers the leader in the store's own directory. The outcome comes back as an input.
    pub(super) fn register(&self, id: ElectionId, key: Key, version: Option<Version>, wanted: Registration) {
        let this = self.clone();
        let (of, unwritten) = (id.clone(), wanted.clone());
        let failed = move |failure: Failure| {
            // A request that was dropped before it was sent is decided again on the next step.
            let failed = if failure.is_refused() { Ok(false) } else { Err(failure) };
            Some(Input::Registered(of, unwritten, failed))
        };
        let share = Share { group: key.store.0.clone(), member: id.election.to_string() };
        self.requests.submit(&self.outside, &share, Class::Wait, Gate::OPEN, failed, move |_| async move {
            let written = match this.stores.get(&key.store) {
                Ok(store) => match store.directory() {
                    Some(directory) => directory.register(&key, version, &wanted).await,
                    None => Ok(true),
                },
                Err(failure) => Err(failure),
            };
            Some(Input::Registered(id, wanted, written))
        });
    }

    /// Tells the cluster that leads how this one differs, or takes that back. The outcome comes back as an input.
    pub(super) fn remark(&self, id: ElectionId, key: Key, remark: Option<(Term, Difference)>) {
        let (this, of) = (self.clone(), id.clone());
        let failed = move |failure: Failure| {
            // As in `register`.
            let failed = if failure.is_refused() { Ok(()) } else { Err(failure) };
            Some(Input::Remarked(of, failed))
        };
        let share = Share { group: key.store.0.clone(), member: id.election.to_string() };
        self.requests.submit(&self.outside, &share, Class::Wait, Gate::OPEN, failed, move |_| async move {
            let written = this.write_remark(&key, remark).await;
            Some(Input::Remarked(id, written))
        });
    }

    /// Publishes an Event, unless the same one was published just before, or too many are waiting.
    pub(super) fn tell(&self, id: &ElectionId, event: Event) {
        let share = share(id);
        let full = {
            let lanes = self.courteous.lanes();
            lanes.waiting(Class::Wait) >= EVENTS || lanes.waiting_of(&share, Class::Wait) >= EVENTS_OF_ONE
        };
        if full {
            return self.metrics.count_dropped_event("full");
        }
        if !self.repeats.lock().unwrap_or_else(PoisonError::into_inner).is_new(&event, monotonic()) {
            return self.metrics.count_dropped_event("repeated");
        }
        let this = self.clone();
        self.requests.submit(
            &self.courteous,
            &share,
            Class::Wait,
            Gate::OPEN,
            |_| None,
            move |_| async move {
                if let Err(error) = this.events.tell(event).await {
                    this.metrics.count_event_failure();
                    tracing::debug!(%error, "could not write an Event");
                }
                None
            },
        );
    }

    async fn request(&self, of: &Requester, gate: &Gate, command: &Command) -> Outcome {
        let Requester { id, stores, .. } = of;
        let ElectionName { namespace, name } = &id.election;
        let written = |outcome: Result<_, _>| Outcome::RecordWritten(outcome.unwrap_or_else(RecordOutcome::Failed));
        let placed = |outcome: Result<_, _>| Outcome::BidWritten(outcome.unwrap_or_else(RecordOutcome::Failed));
        match command {
            Command::ReadRecord { key } => Outcome::RecordRead(match self.stores.get(&key.store) {
                Ok(store) => store.read(key).await,
                Err(failure) => Err(failure),
            }),
            Command::WriteRecord { key, expected, record } => {
                written(self.write_record(id, key, *expected, record).await)
            }
            Command::ReleaseRecord { key, version } => written(self.release_record(key, *version).await),
            Command::GiveRecord { key, version, to, record } => {
                written(self.give_record(key, *version, to, record).await)
            }
            Command::WriteBid { key, bid } => placed(self.write_bid(id, key, bid).await),
            Command::RemoveBid { key, cluster, version } => placed(self.remove_bid(key, cluster, *version).await),
            Command::DeleteRecord { key, version } => written(self.delete_record(key, *version).await),
            Command::ReadElection => Outcome::ElectionRead(self.elections.read(namespace, name).await),
            Command::ListLocks => Outcome::LocksListed(self.list_locks(id, stores, self.patience(of, command)).await),
            Command::ListPods { selectors, leaders } => {
                let Inner { matching, marked, pods, .. } = &**self;
                let patience = self.patience(of, command);
                let listed = list_pods(&id.election, selectors, leaders, matching, marked, pods, patience);
                Outcome::PodsListed(listed.await)
            }
            Command::ReadPod { name } => Outcome::PodRead(self.pods.read(namespace, name).await),
            Command::WritePod(write) => Outcome::PodWritten(self.pods.write(namespace, write).await),
            Command::ReadSlice { name } => Outcome::SliceRead(self.read_slice(namespace, name).await),
            Command::WriteSlice(write) => Outcome::SliceWritten(self.write_slice(id, write).await),
            Command::ReadWorkloads { workloads } => {
                Outcome::WorkloadsRead(self.read_workloads(namespace, workloads).await)
            }
            Command::WriteWorkload(write) => {
                // The second of two requests in a row may come too late.
                let may = || self.requests.refusal(gate).is_none();
                let answer = self.workloads.write(namespace, write, may).await;
                self.show_workload(id, &write.id, answer)
            }
            Command::DeleteRunning { id: cron_job, uid } => {
                let answer = self.workloads.delete_running(namespace, uid).await;
                self.show_workload(id, cron_job, answer)
            }
            Command::DeleteJob { id: job, uid } => {
                let answer = self.workloads.delete(namespace, job, uid).await;
                self.show_workload(id, job, answer)
            }
            Command::CreateJob { plan, id: job, claim } => self.create_job(of, plan, job, claim).await,
            Command::NoteJob { plan, term } => self.note_job(of, plan, *term).await,
        }
    }

    async fn read_slice(&self, namespace: &Namespace, name: &str) -> Result<Option<Slice>, Failure> {
        let read = self.slices.read(namespace, name).await?;
        if let Some(slice) = &read {
            self.requests.tell(Input::Slice(namespace.clone(), Ok(Box::new(slice.clone()))));
        }
        Ok(read)
    }

    /// Writes a slice. The index sees the new state before the outcome arrives.
    async fn write_slice(&self, ElectionId { election, .. }: &ElectionId, write: &WriteSlice) -> SliceOutcome {
        let outcome = self.slices.write(&election.namespace, &election.name, write).await;
        let seen = match (&outcome, write) {
            (SliceOutcome::Written(slice), _) => Some(Ok(slice.clone())),
            (SliceOutcome::Gone, WriteSlice::Replace { name, uid, .. } | WriteSlice::Delete { name, uid, .. }) => {
                Some(Err((name.clone(), uid.clone())))
            }
            _ => None,
        };
        if let Some(seen) = seen {
            self.requests.tell(Input::Slice(election.namespace.clone(), seen));
        }
        outcome
    }

    /// Passes the current workloads and their Jobs to the index, and returns their pods.
    async fn read_workloads(&self, namespace: &Namespace, workloads: &[WorkloadId]) -> Result<Vec<Pod>, Failure> {
        let found = self.workloads.list(namespace, workloads).await?;
        let selectors: Vec<Selector> = found.iter().filter_map(WorkloadObject::pods).cloned().collect();
        let pods = self.matching.list(namespace, &selectors, None).await?;
        for object in found {
            self.requests.tell(Input::Workload(namespace.clone(), object.id.clone(), Ok(Box::new(object))));
        }
        Ok(pods)
    }

    async fn write_record(
        &self,
        id: &ElectionId,
        key: &Key,
        expected: Option<Version>,
        record: &Record,
    ) -> Result<RecordOutcome, Failure> {
        let owner = owner(id);
        let written = self.stores.get(&key.store)?.write(key, &owner, expected, record).await;
        if let RecordOutcome::Written(version) = &written {
            self.show(key, *version, Stored::Ours(*version, record.clone().at(*version)));
        }
        Ok(written)
    }

    async fn release_record(&self, key: &Key, version: Version) -> Result<RecordOutcome, Failure> {
        let store = self.stores.get(&key.store)?;
        Ok(match store.shared() {
            Some(shared) => shared.release(key, version).await,
            // No other cluster waits for the lock.
            None => RecordOutcome::Written(version),
        })
    }

    async fn give_record(
        &self,
        key: &Key,
        version: Version,
        to: &PlacedBid,
        record: &Record,
    ) -> Result<RecordOutcome, Failure> {
        Ok(shared(&*self.stores.get(&key.store)?)?.give(key, version, to, record).await)
    }

    async fn write_bid(&self, id: &ElectionId, key: &Key, bid: &Bid) -> Result<RecordOutcome, Failure> {
        let written = shared(&*self.stores.get(&key.store)?)?.bid(key, &owner(id), bid).await;
        if let RecordOutcome::Failed(failure) = &written {
            tracing::warn!(election = %id.election, "another cluster offers the lock, but the bid for it can't be written: {}", failure.text());
        }
        Ok(written)
    }

    async fn write_remark(&self, key: &Key, remark: Option<(Term, Difference)>) -> Result<(), Failure> {
        shared(&*self.stores.get(&key.store)?)?.remark(key, remark).await
    }

    async fn remove_bid(&self, key: &Key, cluster: &str, version: Version) -> Result<RecordOutcome, Failure> {
        Ok(shared(&*self.stores.get(&key.store)?)?.remove_bid(key, cluster, version).await)
    }

    async fn delete_record(&self, key: &Key, version: Version) -> Result<RecordOutcome, Failure> {
        let deleted = self.stores.get(&key.store)?.delete(key, version).await;
        if let RecordOutcome::Written(_) = &deleted {
            // A deletion's own version is not reported, so this assumes the lowest possible one.
            self.show(key, Version(version.0 + 1), Stored::Absent);
        }
        Ok(deleted)
    }

    async fn list_locks(
        &self,
        id: &ElectionId,
        stores: &BTreeSet<StoreId>,
        patience: Option<Duration>,
    ) -> Result<Vec<(Key, Stored)>, Failure> {
        let mut locks = Vec::new();
        for store in stores {
            locks.extend(self.stores.get(store)?.locks_of(&id.election.namespace, &id.uid, patience).await?);
        }
        Ok(locks)
    }

    /// Passes a write to the index at once, before the watch shows it.
    fn show(&self, key: &Key, version: Version, stored: Stored) {
        self.requests.tell(Input::Records(StoreEvent::Changed(key.clone(), version, stored)));
    }
}

/// What only clusters that share a store ask of it.
fn shared(store: &dyn LockStore) -> Result<&dyn SharedLocks, Failure> {
    store.shared().ok_or_else(|| Failure::Refused("other clusters can't use the locks of this store".into()))
}

fn owner(id: &ElectionId) -> Owner {
    Owner { namespace: id.election.namespace.to_string(), name: id.election.name.clone(), uid: id.uid.clone() }
}

/// Whether all who ask at the same time share one request, so that none of them takes a turn.
fn is_shared(requester: &Requester, command: &Command) -> bool {
    match command {
        Command::ListPods { .. } => true,
        Command::ListLocks => requester.stores.iter().all(|store| *store == StoreId::leases()),
        _ => false,
    }
}

/// A request that takes something from a leader is never less urgent because the group is new.
fn class_of(requester: &Requester, request: &Request) -> Class {
    let prepares = matches!(
        request.command,
        Command::ReadElection
            | Command::ListLocks
            | Command::ListPods { .. }
            | Command::ReadRecord { .. }
            | Command::WriteRecord { .. }
    );
    if !request.urgent {
        Class::Wait
    } else if requester.is_new && prepares {
        Class::New
    } else {
        Class::Urgent
    }
}

fn share(id: &ElectionId) -> Share {
    share_of(&id.election)
}

fn share_of(election: &ElectionName) -> Share {
    Share { group: election.namespace.to_string(), member: election.name.clone() }
}

/// The same for a write of a Switchover.
fn not_switched(id: SwitchoverId, number: u64) -> impl FnOnce(Failure) -> Option<Input> + Send + 'static {
    move |failure| {
        let why = Some(failure).filter(|failure| matches!(failure, Failure::Unknown(_)));
        Some(Input::Switched(id, number, Box::new(Err(why))))
    }
}

/// The input for a write of an election's own object that was not sent, or broke off. Only the latter is a failure; a write that was not
/// sent is decided again.
fn not_written(id: ElectionId, number: u64) -> impl FnOnce(Failure) -> Option<Input> + Send + 'static {
    move |failure| {
        let why = Some(failure).filter(|failure| matches!(failure, Failure::Unknown(_)));
        Some(Input::Written(id, number, Box::new(Err(why))))
    }
}

fn not_done(failure: Failure) -> Outcome {
    Outcome::WorkloadWritten(WorkloadOutcome::Failed(failure))
}

#[cfg(test)]
mod tests;
