//! Does in the world what elections ask for.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use kube::Client;
use tokio::sync::{Semaphore, mpsc, watch};

use super::input::{ElectionId, Input};
use super::monotonic;
use crate::api::{Claims, JobTemplate, LeaderElection, LeaderElectionStatus};
use crate::core::{
    ClaimState, Command, Failure, Key, OpId, Outcome, PodChange, Record, RecordOutcome, StoreId, Stored, Tenure,
    Version, WorkloadId, WorkloadOutcome,
};
use crate::kubernetes::{Answer, Change, ClaimUpdate, Elections, Event, Events, Pods, Workloads, version_of};
use crate::store::{Owner, Registration, StoreEvent, Stores};
use crate::telemetry::Metrics;

/// Requests at one time that an election waits for. A handover needs three in a row; what is more would queue in the server.
const URGENT: usize = 64;
/// Requests at one time to stores outside of the cluster: where they hang, no pod waits for them.
const OUTSIDE: usize = 64;
/// Requests at one time that nobody waits for: status and Events never stand in the way of a handover.
const COURTEOUS: usize = 8;

/// The hands of the loop. Clones share their limits.
#[derive(Clone)]
pub(super) struct Executor {
    stores: Stores,
    pods: Pods,
    workloads: Workloads,
    elections: Elections,
    events: Events,
    pub(super) metrics: Metrics,
    inputs: mpsc::UnboundedSender<Input>,
    claim: watch::Receiver<ClaimUpdate>,
    urgent: Arc<Semaphore>,
    outside: Arc<Semaphore>,
    courteous: Arc<Semaphore>,
    pending: Arc<AtomicUsize>,
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
        let [urgent, outside, courteous] = [URGENT, OUTSIDE, COURTEOUS].map(|limit| Arc::new(Semaphore::new(limit)));
        Self {
            stores,
            pods: Pods::new(client.clone(), request_timeout),
            workloads: Workloads::new(client.clone(), request_timeout),
            elections: Elections::new(client.clone(), request_timeout),
            events: Events::new(client.clone(), identity),
            metrics,
            inputs,
            claim,
            urgent,
            outside,
            courteous,
            pending: Arc::default(),
        }
    }

    /// Requests that are under way or wait for their turn.
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Carries out a command; its outcome comes back as an input. Nobody is promoted after the tenure under which it was decided.
    /// `stores`: where the election may have locks.
    pub(super) fn perform(&self, id: ElectionId, stores: BTreeSet<StoreId>, tenure: Tenure, command: Command) {
        let (Some(op), Some(refused)) = (command.op(), command.failed(not_acting())) else { return };
        let lost = command.failed(defect());
        let this = self.clone();
        let turn = match &command {
            Command::ReadRecord { key, .. }
            | Command::WriteRecord { key, .. }
            | Command::ReleaseRecord { key, .. }
            | Command::DeleteRecord { key, .. }
                if key.store != StoreId::leases() =>
            {
                &self.outside
            }
            Command::ListLocks { .. } if stores.len() > 1 => &self.outside,
            _ => &self.urgent,
        };
        let promotes = match &command {
            Command::WritePod(write) => write.change == PodChange::Promote,
            Command::WriteWorkload(write) => write.enables(),
            _ => false,
        };
        self.spawn(turn.clone(), move || async move {
            // The claim may have ended while this waited for its turn, and so may the tenure.
            let may = this.acts() && (!promotes || tenure.lasts(monotonic()));
            let asked = command.to_string();
            let outcome = if may {
                // Without an outcome the election would wait for ever.
                let request = AssertUnwindSafe(this.request(&id, &stores, tenure, command)).catch_unwind().await;
                request.unwrap_or_else(|_| lost.unwrap_or(refused))
            } else {
                refused
            };
            tracing::trace!(election = %format!("{}/{}", id.namespace, id.name), "{asked} -> {outcome}");
            this.metrics.count_failure(&outcome);
            let _ = this.inputs.send(Input::Outcome(id, op, outcome));
        });
    }

    /// Writes the status; the outcome comes back as an input.
    pub(super) fn write_status(&self, id: ElectionId, seen: LeaderElection, status: LeaderElectionStatus) {
        let this = self.clone();
        self.spawn(self.courteous.clone(), move || async move {
            let written = if this.acts() { this.elections.write_status(&seen, &status).await } else { Err(None) };
            let _ = this.inputs.send(Input::Written(id, Box::new(written)));
        });
    }

    /// Makes the Job of a term; the outcome comes back as an input. Not after the tenure under which that was decided.
    pub(super) fn create_job(
        &self,
        id: ElectionId,
        seen: LeaderElection,
        tenure: Tenure,
        command: Command,
        template: Option<JobTemplate>,
    ) {
        let Command::CreateJob { op, plan, id: job, claim } = command else { return };
        let this = self.clone();
        self.spawn(self.urgent.clone(), move || async move {
            let outcome = match template {
                Some(template) if this.acts() && tenure.lasts(monotonic()) => {
                    let answer = this.workloads.create(&seen, &plan, &template, &job, &claim).await;
                    this.show_workload(&id, &job, answer)
                }
                _ => Outcome::WorkloadWritten(WorkloadOutcome::Failed(not_acting())),
            };
            this.metrics.count_failure(&outcome);
            let _ = this.inputs.send(Input::Outcome(id, op, outcome));
        });
    }

    /// Notes in the election's own object that the Job of a term was made; the outcome comes back as an input.
    pub(super) fn note_job(&self, id: ElectionId, seen: LeaderElection, op: OpId, claims: Claims) {
        let this = self.clone();
        self.spawn(self.urgent.clone(), move || async move {
            let written = if this.acts() {
                this.elections.write_metadata(&seen, true, &claims).await
            } else {
                Err(Some(not_acting()))
            };
            let outcome = match written {
                Ok(election) => {
                    let version = version_of(&election);
                    let shown = Change::Applied((version, id.uid.clone(), election));
                    let _ = this.inputs.send(Input::Elections(shown));
                    WorkloadOutcome::Done
                }
                Err(None) => WorkloadOutcome::Failed(Failure::Refused("the election changed meanwhile".into())),
                Err(Some(failure)) => WorkloadOutcome::Failed(failure),
            };
            let _ = this.inputs.send(Input::Outcome(id, op, Outcome::WorkloadWritten(outcome)));
        });
    }

    /// What is there after a request is known before its outcome.
    fn show_workload(&self, id: &ElectionId, workload: &WorkloadId, answer: Answer) -> Outcome {
        if let Some(seen) = answer.seen {
            let _ = self.inputs.send(Input::Workload(id.namespace.clone(), workload.clone(), seen));
        }
        Outcome::WorkloadWritten(answer.outcome)
    }

    /// Puts the finalizer on or takes it off, and notes which workloads are changed; the outcome comes back as an input.
    pub(super) fn write_metadata(&self, id: ElectionId, seen: LeaderElection, held: bool, claims: Claims) {
        let this = self.clone();
        self.spawn(self.urgent.clone(), move || async move {
            let written =
                if this.acts() { this.elections.write_metadata(&seen, held, &claims).await } else { Err(None) };
            let _ = this.inputs.send(Input::Written(id, Box::new(written)));
        });
    }

    /// Says in the store's own directory who leads; the outcome comes back as an input.
    pub(super) fn register(&self, id: ElectionId, key: Key, version: Option<Version>, wanted: Registration) {
        let this = self.clone();
        self.spawn(self.courteous.clone(), move || async move {
            let written = match this.stores.get(&key.store) {
                Ok(store) => store.register(&key, version, &wanted).await,
                Err(failure) => Err(failure),
            };
            let _ = this.inputs.send(Input::Registered(id, wanted, written));
        });
    }

    /// Tells it as an Event.
    pub(super) fn tell(&self, event: Event) {
        let this = self.clone();
        self.spawn(self.courteous.clone(), move || async move {
            if let Err(error) = this.events.tell(event).await {
                this.metrics.count_event_failure();
                tracing::debug!(%error, "an Event could not be written");
            }
        });
    }

    async fn request(&self, id: &ElectionId, stores: &BTreeSet<StoreId>, tenure: Tenure, command: Command) -> Outcome {
        let written = |outcome: Result<_, _>| Outcome::RecordWritten(outcome.unwrap_or_else(RecordOutcome::Failed));
        match command {
            Command::ReadRecord { key, .. } => Outcome::RecordRead(match self.stores.get(&key.store) {
                Ok(store) => store.read(&key).await,
                Err(failure) => Err(failure),
            }),
            Command::WriteRecord { key, expected, record, .. } => {
                written(self.write_record(id, key, expected, record).await)
            }
            Command::ReleaseRecord { key, version, .. } => written(self.release_record(key, version).await),
            Command::DeleteRecord { key, version, .. } => written(self.delete_record(key, version).await),
            Command::ReadElection { .. } => Outcome::ElectionRead(self.elections.read(&id.namespace, &id.name).await),
            Command::ListLocks { .. } => Outcome::LocksListed(self.list_locks(id, stores).await),
            Command::ListPods { selectors, .. } => Outcome::PodsListed(self.pods.list(&id.namespace, &selectors).await),
            Command::ReadPod { name, .. } => Outcome::PodRead(self.pods.read(&id.namespace, &name).await),
            Command::WritePod(write) => Outcome::PodWritten(self.pods.write(&id.namespace, &write).await),
            Command::WriteWorkload(write) => {
                // Of two requests in a row, the second may come too late.
                let may = || self.acts() && (!write.enables() || tenure.lasts(monotonic()));
                let answer = self.workloads.write(&id.namespace, &write, may).await;
                self.show_workload(id, &write.id, answer)
            }
            Command::DeleteRunning { id: cron_job, uid, .. } => {
                let answer = self.workloads.delete_running(&id.namespace, &uid).await;
                self.show_workload(id, &cron_job, answer)
            }
            Command::DeleteJob { id: job, uid, .. } => {
                let answer = self.workloads.delete(&id.namespace, &job, &uid).await;
                self.show_workload(id, &job, answer)
            }
            Command::CreateJob { .. } | Command::NoteJob { .. } | Command::Announce(_) => Outcome::PodRead(Ok(None)),
        }
    }

    async fn write_record(
        &self,
        id: &ElectionId,
        key: Key,
        expected: Option<Version>,
        record: Record,
    ) -> Result<RecordOutcome, Failure> {
        let owner = Owner { namespace: id.namespace.clone(), name: id.name.clone(), uid: id.uid.clone() };
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
            locks.extend(self.stores.get(store)?.locks_of(&id.namespace, &id.uid).await?);
        }
        Ok(locks)
    }

    /// What was written is known at once, not only when the watch tells.
    fn show(&self, key: Key, version: Version, stored: Stored) {
        let _ = self.inputs.send(Input::Records(StoreEvent::Changed(key, version, stored)));
    }

    fn acts(&self) -> bool {
        matches!(self.claim.borrow().state, ClaimState::Acting(deadline) if monotonic() < deadline)
    }

    /// Begins the work when its turn comes. Until then it is small: thousands may wait.
    fn spawn<W: Future<Output = ()> + Send>(&self, turn: Arc<Semaphore>, work: impl FnOnce() -> W + Send + 'static) {
        let pending = self.pending.clone();
        pending.fetch_add(1, Ordering::Relaxed);
        crate::process::spawn(async move {
            // Also if it panics.
            let _pending = Pending(pending);
            if let Ok(_turn) = turn.acquire_owned().await {
                Box::pin(work()).await;
            }
        });
    }
}

/// One less when it goes.
struct Pending(Arc<AtomicUsize>);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn defect() -> Failure {
    Failure::Unknown("a defect of lictor, which its log tells as a panic: please report it".into())
}

fn not_acting() -> Failure {
    Failure::Refused("this replica does not act any more".into())
}
