//! The only path for requests. Each waits for its turn, unless it joins a request that others share. Its gate is checked right before it
//! begins, and its end is always reported.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use lictor_core::{ClaimState, Failure, Request};
use lictor_kubernetes::defect;
use lictor_locks::lease::ClaimUpdate;
use lictor_process::monotonic;
use tokio::sync::{mpsc, watch};

use crate::controller::input::Input;
use crate::controller::permit::Permit;
use crate::kubernetes::lanes::{Class, Lanes, Limits, Share};

/// The requests per second that an API server answers when it shares two cores with etcd.
const IN_A_SECOND: usize = 100;

/// Begins a request. Until then it is small, because thousands may wait.
type Start = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// Requests that share their limits. Clones are the same queue.
#[derive(Clone)]
pub(crate) struct Queue(Arc<Mutex<Lanes<Start>>>);

/// The conditions that must still hold when a request's turn comes, besides that this replica acts.
#[derive(Clone)]
pub(crate) struct Gate {
    /// The election's request, if it is one.
    pub(crate) request: Option<Arc<Request>>,
    /// Lets the requester take the request back.
    pub(crate) permit: Option<Permit>,
}

/// Sends requests, and passes their results to the loop. Clones count together.
#[derive(Clone)]
pub(crate) struct Requests {
    inputs: mpsc::UnboundedSender<Input>,
    claim: watch::Receiver<ClaimUpdate>,
    pending: Arc<AtomicUsize>,
}

impl Gate {
    /// No further condition.
    pub(crate) const OPEN: Self = Self { request: None, permit: None };
}

impl Queue {
    pub(crate) fn new(limits: Limits) -> Self {
        Self(Arc::new(Mutex::new(Lanes::new(limits))))
    }

    pub(crate) fn lanes(&self) -> MutexGuard<'_, Lanes<Start>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins as many requests as the limits allow.
    fn begin(&self) {
        loop {
            let next = self.lanes().next();
            let Some((turn, start)) = next else { return };
            let this = self.clone();
            lictor_process::spawn(async move {
                start().await;
                this.lanes().end(&turn);
                this.begin();
            });
        }
    }
}

impl Requests {
    pub(crate) fn new(inputs: mpsc::UnboundedSender<Input>, claim: watch::Receiver<ClaimUpdate>) -> Self {
        Self { inputs, claim, pending: Arc::default() }
    }

    /// Requests that are under way or wait for their turn.
    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Roughly how long these requests take, in whole seconds; zero if there are few.
    pub(crate) fn backlog(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.pending() / IN_A_SECOND).unwrap_or(0))
    }

    /// Passes an input to the loop.
    pub(crate) fn tell(&self, input: Input) {
        let _ = self.inputs.send(input);
    }

    /// C4, C10: why a request must no longer be sent; `None` if it may be.
    pub(crate) fn refusal(&self, gate: &Gate) -> Option<Failure> {
        let acts = matches!(self.claim.borrow().state, ClaimState::Acting(deadline) if monotonic() < deadline);
        let unclaimed = gate.request.as_ref().is_some_and(|request| request.unclaimed);
        let why = if !acts && !unclaimed {
            "this replica no longer acts"
        } else if gate.request.as_ref().is_some_and(|request| !request.may_be_sent(monotonic())) {
            "the lock can no longer be confirmed"
        } else if gate.permit.as_ref().is_some_and(|permit| !permit.begin()) {
            "the request is no longer wanted"
        } else {
            return None;
        };
        Some(Failure::Refused(why.into()))
    }

    /// Sends a request when its turn comes. The loop gets the result of `work`, or that of `failed` if the request is not sent (`Refused`)
    /// or panics (`Unknown`).
    pub(crate) fn submit<W>(
        &self,
        queue: &Queue,
        share: &Share,
        class: Class,
        gate: Gate,
        failed: impl FnOnce(Failure) -> Option<Input> + Send + 'static,
        work: impl FnOnce(Gate) -> W + Send + 'static,
    ) where
        W: Future<Output = Option<Input>> + Send,
    {
        let start = self.start(gate, failed, work);
        queue.lanes().push(share, class, start);
        queue.begin();
    }

    /// The same without a turn, for requesters that share one request, however many they are.
    pub(crate) fn join<W>(
        &self,
        gate: Gate,
        failed: impl FnOnce(Failure) -> Option<Input> + Send + 'static,
        work: impl FnOnce(Gate) -> W + Send + 'static,
    ) where
        W: Future<Output = Option<Input>> + Send,
    {
        lictor_process::spawn(self.start(gate, failed, work)());
    }

    fn start<W>(
        &self,
        gate: Gate,
        failed: impl FnOnce(Failure) -> Option<Input> + Send + 'static,
        work: impl FnOnce(Gate) -> W + Send + 'static,
    ) -> Start
    where
        W: Future<Output = Option<Input>> + Send,
    {
        let this = self.clone();
        let pending = Pending::new(&self.pending);
        Box::new(move || {
            Box::pin(async move {
                let _pending = pending;
                let input = if let Some(refusal) = this.refusal(&gate) {
                    failed(refusal)
                } else {
                    let done = AssertUnwindSafe(async move { work(gate).await }).catch_unwind().await;
                    done.unwrap_or_else(|_| failed(defect()))
                };
                if let Some(input) = input {
                    this.tell(input);
                }
            })
        })
    }
}

/// Lowers the count when it is dropped.
struct Pending(Arc<AtomicUsize>);

impl Pending {
    fn new(pending: &Arc<AtomicUsize>) -> Self {
        pending.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(pending))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
