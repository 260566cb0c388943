//! Keeps a claim: reads and writes its record when [`lictor_core::Claim`] says so, and publishes what follows.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use lictor_core::{Claim, ClaimCommand, ClaimParameters, ClaimState, Failure, Instant, Uid, Version};
use lictor_process::nap;
use tokio::sync::{Notify, mpsc, watch};

use super::holder::Holder;
use super::store::{ClaimStore, Claimed, News, Unwritten, Write};
use crate::lock::Other;

/// L1: the shortest time between two reads of the record that come because another replica seems to act.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// L2: how long the write of a record may take whose duration a person has shortened. Kubernetes knows no duration below a second.
const SHORTENED: Duration = Duration::from_millis(200);

/// Whether this replica acts, and the failure that keeps it from finding out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimUpdate {
    /// Whether this replica acts.
    pub state: ClaimState,
    /// The last failure.
    pub failure: Option<Failure>,
    /// Whether another replica acted when this one last looked.
    pub others: bool,
    /// The holder's own description.
    pub holder: Option<Holder>,
    /// L6: the moment from which no other replica can act.
    pub alone_from: Instant,
    /// The Lease's uid, which identifies this installation.
    pub installation: Option<Uid>,
    /// L7: how many times the record has passed to this replica.
    pub takeovers: u64,
    /// How many times the API server's store was seen to go back to an earlier state.
    pub rewound: u64,
    /// A6: the version of the write by which this replica began to act. It rises from one replica that acts to the next.
    pub since: Option<Version>,
    /// The version under which this replica holds the Lease. It changes with each renewal.
    pub held: Option<Version>,
    /// The other holder that was seen last, if it is known.
    pub leader: Option<Other>,
    /// The owner of the Lease, if it is one that this process must not write.
    pub owner: Option<String>,
    /// When the last request was sent that the store has answered. News that come without a request do not count.
    pub heard: Option<Instant>,
}

impl Default for ClaimUpdate {
    fn default() -> Self {
        Self {
            state: ClaimState::Standby,
            failure: None,
            others: false,
            holder: None,
            alone_from: Instant::default(),
            installation: None,
            takeovers: 0,
            rewound: 0,
            since: None,
            held: None,
            leader: None,
            owner: None,
            heard: None,
        }
    }
}

/// Keeps one process's claim.
pub(crate) struct ClaimKeeper {
    own: Holder,
    parameters: ClaimParameters,
    clock: fn() -> Instant,
    updates: watch::Sender<ClaimUpdate>,
    /// The names of holders whose processes are gone.
    gone: mpsc::UnboundedReceiver<String>,
    doubt: Arc<Notify>,
    /// Whether the record is read before news of it come.
    reads_first: bool,
}

impl ClaimKeeper {
    /// Creates a keeper, the receiver that follows the claim, and the sender for the names of holders whose processes are gone.
    pub(crate) fn new(
        own: Holder,
        parameters: ClaimParameters,
        clock: fn() -> Instant,
    ) -> (Self, watch::Receiver<ClaimUpdate>, mpsc::UnboundedSender<String>) {
        let (updates, receiver) = watch::channel(ClaimUpdate::default());
        let (sender, gone) = mpsc::unbounded_channel();
        let keeper = Self { own, parameters, clock, updates, gone, doubt: Arc::default(), reads_first: false };
        (keeper, receiver, sender)
    }

    /// Returns the notifier for signs that another replica acts. The claim then reads the record, at most once in [`BETWEEN_LOOKS`],
    /// because its news may be late, and the next renewal some seconds away.
    pub(crate) fn doubt(&self) -> Arc<Notify> {
        self.doubt.clone()
    }

    /// Reads the record before news of it come.
    #[must_use]
    pub(crate) fn reading_first(mut self) -> Self {
        self.reads_first = true;
        self
    }

    /// Claims and renews the record until `stop` is set. Then releases it at once, so that a standby does not have to wait. Returns whether
    /// the store has confirmed that.
    pub(crate) async fn run<S: ClaimStore>(mut self, store: &S, mut stop: watch::Receiver<bool>) -> bool {
        let mut claim = Claim::new(self.own.identity.clone(), self.parameters);
        let mut watch = store.news();
        let (mut rewound, mut watch_at): (u64, Option<Instant>) = (0, None);
        // Why the last read that was due has failed.
        let mut unheard: Option<Failure> = None;
        let mut known = self.reads_first && self.look(store, &mut claim).await.is_ok();
        let mut looked: Option<Instant> = None;
        // The failure of the last write, until a write succeeds or another replica holds the record.
        let mut failed: Option<Failure> = None;
        while !*stop.borrow() {
            if std::mem::replace(&mut rewound, self.updates.borrow().rewound) != self.updates.borrow().rewound {
                // The watch still shows the past. An API server that was not restarted for the restore lists the past, too. So
                // the claim works without a watch for a while.
                watch = futures::stream::pending().boxed();
                watch_at = Some((self.clock)() + self.parameters.duration);
            }
            if watch_at.is_some_and(|at| (self.clock)() >= at) {
                (watch, watch_at) = (store.news(), None);
            }
            let now = (self.clock)();
            let wait = match claim.next(now) {
                ClaimCommand::Write { .. } if self.updates.borrow().owner.is_some() => Duration::MAX,
                ClaimCommand::Write { expected, takes_over } if known => {
                    failed = self.write(store, &mut claim, expected, takes_over).await;
                    unheard = unheard.filter(|_| failed.is_some());
                    self.publish(&claim, failed.clone().or_else(|| unheard.clone()));
                    continue;
                }
                ClaimCommand::Write { .. } => Duration::from_secs(1),
                ClaimCommand::Wait(until) => until.since(now),
            };
            // A claim that is not renewed ends by itself.
            let wait = match claim.state(now) {
                ClaimState::Acting(deadline) => wait.min(deadline.since(now)),
                ClaimState::Standby => wait,
            };
            let wait = watch_at.map_or(wait, |at| wait.min(at.since(now)));
            let again = looked.map(|at| at + BETWEEN_LOOKS).filter(|again| now < *again);
            let wait = again.map_or(wait, |again| wait.min(again.since(now)));
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                () = nap(wait) => {}
                Some(holder) = self.gone.recv() => claim.gone(&holder),
                () = self.doubt.notified(), if again.is_none() => {
                    looked = Some(now);
                    if claim.held().is_some() {
                        let _ = self.look(store, &mut claim).await;
                    }
                }
                news = watch.next() => match news {
                    Some(News::Seen(at, found)) => {
                        known = true;
                        self.see::<S>(&mut claim, at, found);
                    }
                    Some(News::Uncertain) => _ = self.look(store, &mut claim).await,
                    Some(News::Due) if claim.held().is_none() => {
                        unheard = self.look_when_due(store, &mut claim).await.err();
                        known |= unheard.is_none();
                    }
                    Some(News::Due) => {}
                    Some(News::Broken(failure)) => {
                        let (name, problem) = (store.name(), failure.text());
                        tracing::warn!(name, problem, "the {} can't be watched", S::KIND);
                        self.publish(&claim, Some(failure));
                        continue;
                    }
                    None => return false,
                }
            }
            failed = failed.filter(|_| !claim.is_others());
            if known && claim.is_shortened() && matches!(claim.next((self.clock)()), ClaimCommand::Write { .. }) {
                // L2: this write ends the shortening. If it fails, the published state says so.
                tracing::warn!(
                    name = store.name(),
                    "the {}'s duration was shortened: this replica restores it",
                    S::KIND
                );
                continue;
            }
            self.publish(&claim, failed.clone().or_else(|| unheard.clone()));
        }
        self.updates.send_modify(|update| update.state = ClaimState::Standby);
        match claim.held() {
            Some(version) => {
                let lasts = claim.released((self.clock)());
                let released = store.release(version, lasts, self.parameters.margin()).await;
                if let Err(failure) = &released {
                    let (name, problem) = (store.name(), failure.text());
                    tracing::warn!(
                        name,
                        problem,
                        "could not release the {}: others have to wait until it expires",
                        S::KIND
                    );
                }
                released.is_ok()
            }
            None => false,
        }
    }

    /// Takes the record as the news show it as of a version.
    fn see<S: ClaimStore>(&self, claim: &mut Claim, at: Version, found: Option<Claimed>) {
        if claim.knows_later(at) {
            return;
        }
        if let Some(found) = &found {
            self.identify(found);
        }
        self.observe::<S>(claim, found);
    }

    fn observe<S: ClaimStore>(&self, claim: &mut Claim, found: Option<Claimed>) {
        let before = claim.holder().cloned();
        let published = found.as_ref().map(|found| (found.version, found.holder.clone(), found.duration));
        claim.observe(published.clone(), (self.clock)());
        if let Some((_, Some(other), duration)) = published
            && duration > self.parameters.patience
            && claim.is_others()
            && claim.holder() == Some(&other)
            && before.as_ref() != Some(&other)
        {
            // L3.
            let (published, own) = (duration.as_secs(), self.parameters.patience.as_secs());
            tracing::warn!(
                holder = other,
                "the {} says that its holder keeps it for {published} s: this replica takes it over after {own} s \
                 without a renewal",
                S::KIND
            );
        }
        let (replica, told, owner) = found.map(|found| (found.replica, found.told, found.owner)).unwrap_or_default();
        if let Some(replica) = replica.as_ref().filter(|replica| replica.was_before(&self.own)) {
            claim.gone(&replica.identity);
        }
        let replica = replica.filter(|replica| claim.is_others() && claim.holder() == Some(&replica.identity));
        self.updates.send_if_modified(|update| {
            let new = ClaimUpdate { holder: replica, leader: told, owner, ..update.clone() };
            let differs = *update != new;
            *update = new;
            differs
        });
    }

    /// Compares the version in an answer with `known`, the highest version when the request was sent.
    fn compare(&self, claim: &mut Claim, found: &Claimed, known: Version) {
        if claim.goes_back(found.version, known) {
            self.updates.send_modify(|update| update.rewound += 1);
        }
    }

    /// Notes the uid of the record. The first one that is seen identifies the installation for as long as this process lives.
    fn identify(&self, found: &Claimed) {
        self.updates.send_if_modified(|update| {
            let known = update.installation.is_some();
            update.installation = update.installation.take().or_else(|| found.installation.clone());
            !known && update.installation.is_some()
        });
    }

    fn publish(&self, claim: &Claim, failure: Option<Failure>) {
        let (state, others, alone_from) = (claim.state((self.clock)()), claim.is_others(), claim.alone_from());
        self.updates.send_if_modified(|update| {
            let holder = update.holder.clone().filter(|_| others);
            let leader = update.leader.clone().filter(|_| others);
            let acts = matches!(state, ClaimState::Acting(_));
            let held = claim.held().filter(|_| acts);
            let since = update.since.or(held).filter(|_| acts);
            let takeovers = claim.takeovers();
            let own = ClaimUpdate { state, failure, others, holder, alone_from, since, held, leader, ..update.clone() };
            let new = ClaimUpdate { takeovers, ..own };
            let differs = *update != new;
            *update = new;
            differs
        });
    }

    /// Writes the record. Returns the failure, unless another process was faster.
    async fn write<S: ClaimStore>(
        &self,
        store: &S,
        claim: &mut Claim,
        expected: Option<Version>,
        takes_over: bool,
    ) -> Option<Failure> {
        let (sent, known) = ((self.clock)(), claim.known());
        // L2: other replicas wait for at least a second.
        let limit =
            if claim.is_shortened() { SHORTENED.min(self.parameters.margin()) } else { self.parameters.margin() };
        let written = store.write(Write { expected, takes_over, limit }).await;
        let now = (self.clock)();
        let failed = match written {
            Ok(found) => {
                self.identify(&found);
                self.compare(claim, &found, known);
                claim.written(found.version, sent, now);
                self.hear(sent);
                return None;
            }
            Err(Unwritten::Conflict) => None,
            Err(Unwritten::Failed(failure)) => Some(failure),
        };
        claim.failed(now);
        if let Some(failure) = &failed {
            tracing::warn!(name = store.name(), problem = failure.text(), "the {} can't be written", S::KIND);
            self.publish(claim, Some(failure.clone()));
        }
        let _ = self.look(store, claim).await;
        failed
    }

    /// Reads the record of which no news come. Logs a failure once.
    async fn look_when_due<S: ClaimStore>(&self, store: &S, claim: &mut Claim) -> Result<(), Failure> {
        let looked = self.look(store, claim).await;
        if let Err(failure) = &looked
            && self.updates.borrow().failure.as_ref() != Some(failure)
        {
            tracing::warn!(name = store.name(), problem = failure.text(), "the {} can't be read", S::KIND);
        }
        looked
    }

    /// Reads the record.
    async fn look<S: ClaimStore>(&self, store: &S, claim: &mut Claim) -> Result<(), Failure> {
        let (sent, known) = ((self.clock)(), claim.known());
        let found = store.read(self.parameters.margin()).await?;
        if let Some(found) = &found {
            self.compare(claim, found, known);
        }
        self.observe::<S>(claim, found);
        self.hear(sent);
        Ok(())
    }

    fn hear(&self, sent: Instant) {
        self.updates.send_modify(|update| update.heard = Some(sent));
    }
}
