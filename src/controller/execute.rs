//! Does in the world what elections ask for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, mpsc, watch};

use super::input::{ElectionId, Input};
use super::monotonic;
use crate::api::{LeaderElection, LeaderElectionStatus};
use crate::core::{ClaimState, Command, Failure, Outcome, PodOutcome, RecordOutcome, Stored, Version};
use crate::kubernetes::{ClaimUpdate, Elections, Event, Events, Pods};
use crate::store::{LockStore, Owner, Place, StoreEvent};
use crate::telemetry::Metrics;

/// Requests at one time that an election waits for. A handover needs three in a row; what is more would queue in the server.
const URGENT: usize = 64;
/// Requests at one time that nobody waits for: status and Events never stand in the way of a handover.
const COURTEOUS: usize = 8;

/// The hands of the loop. Clones share their limits.
#[derive(Clone)]
pub(super) struct Executor {
    pub(super) store: Arc<dyn LockStore>,
    pub(super) pods: Pods,
    pub(super) elections: Elections,
    pub(super) events: Events,
    pub(super) metrics: Metrics,
    inputs: mpsc::UnboundedSender<Input>,
    claim: watch::Receiver<ClaimUpdate>,
    urgent: Arc<Semaphore>,
    courteous: Arc<Semaphore>,
    pending: Arc<AtomicUsize>,
}

impl Executor {
    pub(super) fn new(
        store: Arc<dyn LockStore>,
        pods: Pods,
        elections: Elections,
        events: Events,
        metrics: Metrics,
        inputs: mpsc::UnboundedSender<Input>,
        claim: watch::Receiver<ClaimUpdate>,
    ) -> Self {
        let (urgent, courteous) = (Arc::new(Semaphore::new(URGENT)), Arc::new(Semaphore::new(COURTEOUS)));
        Self { store, pods, elections, events, metrics, inputs, claim, urgent, courteous, pending: Arc::default() }
    }

    /// Requests that are under way or wait for their turn.
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Carries out a command; its outcome comes back as an input.
    pub(super) fn perform(&self, id: ElectionId, place: Place, command: Command) {
        let (op, refused) = match &command {
            Command::ReadRecord { op, .. } => (*op, Outcome::RecordRead(Err(not_acting()))),
            Command::WriteRecord { op, .. } | Command::DeleteRecord { op, .. } => {
                (*op, Outcome::RecordWritten(RecordOutcome::Failed(not_acting())))
            }
            Command::ReadElection { op } => (*op, Outcome::ElectionRead(Err(not_acting()))),
            Command::ListLocks { op } => (*op, Outcome::LocksListed(Err(not_acting()))),
            Command::ListPods { op, .. } => (*op, Outcome::PodsListed(Err(not_acting()))),
            Command::ReadPod { op, .. } => (*op, Outcome::PodRead(Err(not_acting()))),
            Command::WritePod(write) => (write.op, Outcome::PodWritten(PodOutcome::Failed(not_acting()))),
            Command::Announce(_) => return,
        };
        let this = self.clone();
        self.spawn(self.urgent.clone(), move || async move {
            // The claim may have ended while this waited for its turn.
            let outcome = if this.acts() { this.request(&id, place, command).await } else { refused };
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

    /// Puts the finalizer on or takes it off; the outcome comes back as an input.
    pub(super) fn write_finalizer(&self, id: ElectionId, seen: LeaderElection, held: bool) {
        let this = self.clone();
        self.spawn(self.urgent.clone(), move || async move {
            let written = if this.acts() { this.elections.write_finalizer(&seen, held).await } else { Err(None) };
            let _ = this.inputs.send(Input::Written(id, Box::new(written)));
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

    async fn request(&self, id: &ElectionId, place: Place, command: Command) -> Outcome {
        let owner = Owner { name: id.name.clone(), uid: id.uid.clone() };
        let at = |key| Place { key, ..place.clone() };
        match command {
            Command::ReadRecord { key, .. } => Outcome::RecordRead(self.store.read(&at(key)).await),
            Command::WriteRecord { key, expected, record, .. } => {
                let place = at(key);
                let written = self.store.write(&place, &owner, expected, &record).await;
                if let RecordOutcome::Written(version) = &written {
                    self.show(place, *version, Stored::Record(*version, record));
                }
                Outcome::RecordWritten(written)
            }
            Command::DeleteRecord { key, version, .. } => {
                let place = at(key);
                let deleted = self.store.delete(&place, version).await;
                if let RecordOutcome::Written(_) = &deleted {
                    // A deletion has a version of its own, which is not told: the next one is the least that it can have.
                    self.show(place, Version(version.0 + 1), Stored::Absent);
                }
                Outcome::RecordWritten(deleted)
            }
            Command::ReadElection { .. } => Outcome::ElectionRead(self.elections.read(&id.namespace, &id.name).await),
            Command::ListLocks { .. } => Outcome::LocksListed(self.store.locks_of(&id.namespace, &id.uid).await),
            Command::ListPods { selectors, .. } => Outcome::PodsListed(self.pods.list(&id.namespace, &selectors).await),
            Command::ReadPod { name, .. } => Outcome::PodRead(self.pods.read(&id.namespace, &name).await),
            Command::WritePod(write) => Outcome::PodWritten(self.pods.write(&id.namespace, &write).await),
            Command::Announce(_) => Outcome::PodRead(Ok(None)),
        }
    }

    /// What was written is known at once, not only when the watch tells.
    fn show(&self, place: Place, version: Version, stored: Stored) {
        let _ = self.inputs.send(Input::Records(StoreEvent::Changed(place, version, stored)));
    }

    fn acts(&self) -> bool {
        matches!(self.claim.borrow().state, ClaimState::Acting(deadline) if monotonic() < deadline)
    }

    /// Begins the work when its turn comes. Until then it is small: thousands may wait.
    fn spawn<W: Future<Output = ()> + Send>(&self, turn: Arc<Semaphore>, work: impl FnOnce() -> W + Send + 'static) {
        let pending = self.pending.clone();
        pending.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            if let Ok(_turn) = turn.acquire_owned().await {
                Box::pin(work()).await;
            }
            pending.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn not_acting() -> Failure {
    Failure::Refused("this replica does not act any more".into())
}
