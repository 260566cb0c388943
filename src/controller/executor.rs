//! Does in the world what elections ask for.

mod lanes;
mod permit;
mod repeats;
mod requests;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use lictor_core::{
    Command, Failure, Key, OpId, Outcome, Pod, Record, RecordOutcome, Request, Selector, StoreId, Stored, Version,
    WorkloadId, WorkloadOutcome,
};
use tokio::sync::{mpsc, watch};

use self::lanes::{Class, Limits, Share};
pub(super) use self::permit::{Grant, Permit};
use self::repeats::Repeats;
use self::requests::{Gate, Queue, Requests};
use super::input::Input;
use super::names::{ElectionId, Namespace};
use crate::api::{Claims, JobTemplate, LeaderElection, LeaderElectionStatus};
use crate::kubernetes::{
    Answer, Change, ClaimUpdate, Elections, Event, Events, Pods, WorkloadObject, Workloads, version_of,
};
use crate::process::monotonic;
use crate::store::{Owner, Registration, StoreEvent, Stores};
use crate::telemetry::Metrics;

/// Requests to the API server at one time. A handover needs three in a row; what is more would queue in the server. The groups are
/// namespaces: a webhook that hangs in one of them takes a quarter at most.
const CLUSTER: Limits = Limits { all: 64, group: 16, member: 12 };
/// Requests at one time to stores outside of the cluster: where they hang, no pod waits for them. The groups are stores.
const OUTSIDE: Limits = Limits { all: 64, group: 48, member: 12 };
/// Requests at one time that nobody waits for: status and Events never stand in the way of a handover.
const COURTEOUS: Limits = Limits { all: 8, group: 6, member: 4 };
/// Events that wait, of one election and of all: more are not told.
const EVENTS_OF_ONE: usize = 16;
const EVENTS: usize = 1024;

/// The hands of the loop. Clones share their limits.
#[derive(Clone)]
pub(super) struct Executor {
    stores: Stores,
    pods: Pods,
    workloads: Workloads,
    elections: Elections,
    events: Events,
    pub(super) metrics: Metrics,
    requests: Requests,
    cluster: Queue,
    outside: Queue,
    courteous: Queue,
    repeats: Arc<Mutex<Repeats>>,
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
        let [cluster, outside, courteous] = [CLUSTER, OUTSIDE, COURTEOUS].map(Queue::new);
        Self {
            stores,
            pods: Pods::new(client.clone(), request_timeout),
            workloads: Workloads::new(client.clone(), request_timeout),
            elections: Elections::new(client.clone(), request_timeout),
            events: Events::new(client.clone(), identity),
            metrics,
            requests: Requests::new(inputs, claim),
            cluster,
            outside,
            courteous,
            repeats: Arc::default(),
        }
    }

    /// Requests that are under way or wait for their turn.
    pub(super) fn pending(&self) -> usize {
        self.requests.pending()
    }

    /// Carries out a request; its outcome comes back as an input. `stores`: where the election may have locks. What makes a pod or a
    /// workload lead is not sent when it must not be any more, or when the grant that is returned was dropped.
    pub(super) fn perform(&self, id: ElectionId, stores: BTreeSet<StoreId>, request: Request) -> Option<Grant> {
        let (queue, group) = self.way_of(&id, &stores, &request.command);
        let share = Share { group, member: id.election.to_string() };
        let class = if request.urgent { Class::Urgent } else { Class::Wait };
        let (grant, gate) = gate(&request);
        let Request { op, command, .. } = request;
        let this = self.clone();
        let command = Arc::new(command);
        let (asked, of) = (command.clone(), id.clone());
        let failed = move |failure| Some(this.outcome(of, op, &asked.to_string(), asked.failed(failure)));
        let this = self.clone();
        self.requests.submit(queue, &share, class, gate, failed, move |gate| async move {
            let asked = command.to_string();
            let outcome = this.request(&id, &stores, &gate, Command::clone(&command)).await?;
            Some(this.outcome(id, op, &asked, outcome))
        });
        grant
    }

    /// By which queue a command goes out, and in which group of it.
    fn way_of(&self, id: &ElectionId, stores: &BTreeSet<StoreId>, command: &Command) -> (&Queue, String) {
        let shared = |store: &&StoreId| **store != StoreId::leases();
        let store = match command {
            Command::ReadRecord { key, .. }
            | Command::WriteRecord { key, .. }
            | Command::ReleaseRecord { key, .. }
            | Command::DeleteRecord { key, .. } => Some(&key.store).filter(shared),
            Command::ListLocks => stores.iter().find(shared),
            _ => None,
        };
        match store {
            Some(store) => (&self.outside, store.0.clone()),
            None => (&self.cluster, id.election.namespace.to_string()),
        }
    }

    fn outcome(&self, id: ElectionId, op: OpId, asked: &str, outcome: Outcome) -> Input {
        tracing::trace!(election = %id.election, "{asked} -> {outcome}");
        self.metrics.count_failure(&outcome);
        Input::Outcome(id, op, outcome)
    }

    /// Writes the status, unless it is taken back before its turn; the outcome comes back as an input under the same number.
    pub(super) fn write_status(
        &self,
        id: ElectionId,
        number: u64,
        permit: Permit,
        seen: LeaderElection,
        status: LeaderElectionStatus,
    ) {
        let gate = Gate { permit: Some(permit), ..Gate::OPEN };
        let this = self.clone();
        let failed = not_written(id.clone(), number);
        self.requests.submit(&self.courteous, &share(&id), Class::Urgent, gate, failed, move |_| async move {
            let written = this.elections.write_status(&seen, &status).await;
            Some(Input::Written(id, number, Box::new(written)))
        });
    }

    /// Puts the finalizer on or takes it off, and notes which workloads are changed; the outcome comes back as an input under the
    /// same number.
    pub(super) fn write_metadata(&self, id: ElectionId, number: u64, seen: LeaderElection, held: bool, claims: Claims) {
        let this = self.clone();
        let failed = not_written(id.clone(), number);
        self.requests.submit(&self.cluster, &share(&id), Class::Wait, Gate::OPEN, failed, move |_| async move {
            let written = this.elections.write_metadata(&seen, held, &claims).await;
            Some(Input::Written(id, number, Box::new(written)))
        });
    }

    /// Makes the Job of a term; the outcome comes back as an input. Not after the tenure under which that was decided, or when the
    /// grant that is returned was dropped.
    pub(super) fn create_job(
        &self,
        id: ElectionId,
        seen: LeaderElection,
        request: Request,
        template: Option<JobTemplate>,
    ) -> Option<Grant> {
        let (grant, gate) = gate(&request);
        let asked = request.command.to_string();
        let op = request.op;
        let Command::CreateJob { plan, id: job, claim } = request.command else { return None };
        let this = self.clone();
        let failed = self.workload_failed(&id, op, asked.clone());
        self.requests.submit(&self.cluster, &share(&id), Class::Urgent, gate, failed, move |_| async move {
            let outcome = match template {
                Some(template) => {
                    let answer = this.workloads.create(&seen, &plan, &template, &job, &claim).await;
                    this.show_workload(&id, &job, answer)
                }
                None => not_done(Failure::Refused("the template is no more".into())),
            };
            Some(this.outcome(id, op, &asked, outcome))
        });
        grant
    }

    /// Notes in the election's own object that the Job of a term was made; the outcome comes back as an input.
    pub(super) fn note_job(&self, id: ElectionId, seen: LeaderElection, op: OpId, command: &Command, claims: Claims) {
        let asked = command.to_string();
        let this = self.clone();
        let failed = self.workload_failed(&id, op, asked.clone());
        self.requests.submit(&self.cluster, &share(&id), Class::Urgent, Gate::OPEN, failed, move |_| async move {
            let outcome = match this.elections.write_metadata(&seen, true, &claims).await {
                Ok(election) => {
                    let version = version_of(&election);
                    let shown = Change::Applied((version, id.uid.clone(), election));
                    this.requests.tell(Input::Elections(shown));
                    Outcome::WorkloadWritten(WorkloadOutcome::Done)
                }
                Err(None) => not_done(Failure::Refused("the election changed meanwhile".into())),
                Err(Some(failure)) => not_done(failure),
            };
            Some(this.outcome(id, op, &asked, outcome))
        });
    }

    fn workload_failed(
        &self,
        id: &ElectionId,
        op: OpId,
        asked: String,
    ) -> impl FnOnce(Failure) -> Option<Input> + Send + 'static {
        let (this, id) = (self.clone(), id.clone());
        move |failure| Some(this.outcome(id, op, &asked, not_done(failure)))
    }

    /// What is there after a request is known before its outcome.
    fn show_workload(&self, id: &ElectionId, workload: &WorkloadId, answer: Answer) -> Outcome {
        if let Some(seen) = answer.seen {
            self.requests.tell(Input::Workload(id.election.namespace.clone(), workload.clone(), seen));
        }
        Outcome::WorkloadWritten(answer.outcome)
    }

    /// Says in the store's own directory who leads; the outcome comes back as an input.
    pub(super) fn register(&self, id: ElectionId, key: Key, version: Option<Version>, wanted: Registration) {
        let this = self.clone();
        let (of, unwritten) = (id.clone(), wanted.clone());
        let failed = move |failure| {
            // What is not sent any more, is found out anew.
            let failed = if let Failure::Refused(_) = failure { Ok(false) } else { Err(failure) };
            Some(Input::Registered(of, unwritten, failed))
        };
        let share = Share { group: key.store.0.clone(), member: id.election.to_string() };
        self.requests.submit(&self.outside, &share, Class::Wait, Gate::OPEN, failed, move |_| async move {
            let written = match this.stores.get(&key.store) {
                Ok(store) => store.register(&key, version, &wanted).await,
                Err(failure) => Err(failure),
            };
            Some(Input::Registered(id, wanted, written))
        });
    }

    /// Tells it as an Event, unless the same was told just before, or too many wait to be told already.
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
                    tracing::debug!(%error, "an Event could not be written");
                }
                None
            },
        );
    }

    async fn request(
        &self,
        id: &ElectionId,
        stores: &BTreeSet<StoreId>,
        gate: &Gate,
        command: Command,
    ) -> Option<Outcome> {
        let written = |outcome: Result<_, _>| Outcome::RecordWritten(outcome.unwrap_or_else(RecordOutcome::Failed));
        Some(match command {
            Command::ReadRecord { key, .. } => Outcome::RecordRead(match self.stores.get(&key.store) {
                Ok(store) => store.read(&key).await,
                Err(failure) => Err(failure),
            }),
            Command::WriteRecord { key, expected, record, .. } => {
                written(self.write_record(id, key, expected, record).await)
            }
            Command::ReleaseRecord { key, version, .. } => written(self.release_record(key, version).await),
            Command::DeleteRecord { key, version, .. } => written(self.delete_record(key, version).await),
            Command::ReadElection => {
                Outcome::ElectionRead(self.elections.read(&id.election.namespace, &id.election.name).await)
            }
            Command::ListLocks => Outcome::LocksListed(self.list_locks(id, stores).await),
            Command::ListPods { selectors, .. } => {
                Outcome::PodsListed(self.pods.list(&id.election.namespace, &selectors).await)
            }
            Command::ReadPod { name, .. } => Outcome::PodRead(self.pods.read(&id.election.namespace, &name).await),
            Command::WritePod(write) => Outcome::PodWritten(self.pods.write(&id.election.namespace, &write).await),
            Command::ReadWorkloads { workloads, .. } => {
                Outcome::WorkloadsRead(self.read_workloads(&id.election.namespace, &workloads).await)
            }
            Command::WriteWorkload(write) => {
                // Of two requests in a row, the second may come too late.
                let may = || self.requests.refusal(gate).is_none();
                let answer = self.workloads.write(&id.election.namespace, &write, may).await;
                self.show_workload(id, &write.id, answer)
            }
            Command::DeleteRunning { id: cron_job, uid, .. } => {
                let answer = self.workloads.delete_running(&id.election.namespace, &uid).await;
                self.show_workload(id, &cron_job, answer)
            }
            Command::DeleteJob { id: job, uid, .. } => {
                let answer = self.workloads.delete(&id.election.namespace, &job, &uid).await;
                self.show_workload(id, &job, answer)
            }
            // Each of these has a function of its own.
            Command::CreateJob { .. } | Command::NoteJob { .. } => return None,
        })
    }

    /// Shows workloads and their Jobs as they are now, and returns their pods.
    async fn read_workloads(&self, namespace: &Namespace, workloads: &[WorkloadId]) -> Result<Vec<Pod>, Failure> {
        let found = self.workloads.list(namespace, workloads).await?;
        let selectors: Vec<Selector> = found.iter().filter_map(WorkloadObject::pods).cloned().collect();
        let pods = self.pods.list(namespace, &selectors).await?;
        for object in found {
            self.requests.tell(Input::Workload(namespace.clone(), object.id.clone(), Ok(Box::new(object))));
        }
        Ok(pods)
    }

    async fn write_record(
        &self,
        id: &ElectionId,
        key: Key,
        expected: Option<Version>,
        record: Record,
    ) -> Result<RecordOutcome, Failure> {
        let owner =
            Owner { namespace: id.election.namespace.to_string(), name: id.election.name.clone(), uid: id.uid.clone() };
        let written = self.stores.get(&key.store)?.write(&key, &owner, expected, &record).await;
        if let RecordOutcome::Written(version) = &written {
            self.show(key, *version, Stored::Record(*version, record.at(*version)));
        }
        Ok(written)
    }

    async fn release_record(&self, key: Key, version: Version) -> Result<RecordOutcome, Failure> {
        Ok(self.stores.get(&key.store)?.release(&key, version).await)
    }

    async fn delete_record(&self, key: Key, version: Version) -> Result<RecordOutcome, Failure> {
        let deleted = self.stores.get(&key.store)?.delete(&key, version).await;
        if let RecordOutcome::Written(_) = &deleted {
            // A deletion has a version of its own, which is not told: the next one is the least that it can have.
            self.show(key, Version(version.0 + 1), Stored::Absent);
        }
        Ok(deleted)
    }

    async fn list_locks(&self, id: &ElectionId, stores: &BTreeSet<StoreId>) -> Result<Vec<(Key, Stored)>, Failure> {
        let mut locks = Vec::new();
        for store in stores {
            locks.extend(self.stores.get(store)?.locks_of(&id.election.namespace, &id.uid).await?);
        }
        Ok(locks)
    }

    /// What was written is known at once, not only when the watch tells.
    fn show(&self, key: Key, version: Version, stored: Stored) {
        self.requests.tell(Input::Records(StoreEvent::Changed(key, version, stored)));
    }
}

/// What must still hold when the turn of a request comes; and who can take it back, if it makes a pod or a workload lead here.
fn gate(request: &Request) -> (Option<Grant>, Gate) {
    if !request.command.promotes() {
        return (None, Gate::OPEN);
    }
    let (grant, permit) = Grant::new();
    (Some(grant), Gate { tenure: request.tenure, permit: Some(permit) })
}

fn share(id: &ElectionId) -> Share {
    Share { group: id.election.namespace.to_string(), member: id.election.name.clone() }
}

/// What is told of a write of an election's own object that was not sent, or broke off. The first is no failure: what is wanted, is
/// found out anew.
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
