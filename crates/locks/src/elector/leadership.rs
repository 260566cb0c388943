//! One leadership, as the work that it allows sees it.

use std::sync::Arc;
use std::time::Duration;

use lictor_core::{HeldLock, Term};
use lictor_process::{monotonic, nap};
use tokio::sync::watch;

use crate::lock::LockUpdate;

/// One leadership of this replica. It can be cloned into tasks and threads, and keeps telling whether it lasts: it reads the lock's own
/// news and the clock at each call, so it needs nothing of the task that runs the work.
#[derive(Clone, Debug)]
pub struct Leadership(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    term: Term,
    updates: watch::Receiver<LockUpdate>,
    phase: watch::Sender<Phase>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Lasts,
    /// The work was told to end.
    Ending,
    /// The work has ended, or was dropped.
    Over,
}

impl Leadership {
    pub(super) fn new(term: Term, updates: watch::Receiver<LockUpdate>) -> Self {
        Self(Arc::new(Inner { term, updates, phase: watch::Sender::new(Phase::Lasts) }))
    }

    /// The fencing token: higher than that of every earlier leadership of any replica. Send it along with each write, and let the target
    /// refuse a lower one than the highest that it has seen.
    pub fn term(&self) -> Term {
        self.0.term
    }

    /// Returns whether no other replica can lead now. Ask right before a side effect; what is already under way can still arrive later, so
    /// the target has to compare [terms](Self::term).
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns the time for which surely no other replica can lead, even if the lock is never renewed again; zero when the leadership is
    /// over. It suits the time limit of a request, and grows with each renewal. The clock goes on while the machine is suspended.
    pub fn remaining(&self) -> Duration {
        if *self.0.phase.borrow() == Phase::Over {
            return Duration::ZERO;
        }
        let held = self.held(&self.0.updates.borrow());
        held.map_or(Duration::ZERO, |held| held.until.since(monotonic()))
    }

    /// Waits until the work has to end, or has ended: the leadership is over or about to be, or the elector was asked to stop or to yield.
    /// The wait can be cancelled at any time.
    pub async fn ending(&self) {
        let (mut phases, mut updates) = (self.0.phase.subscribe(), self.0.updates.clone());
        loop {
            let held = self.held(&updates.borrow_and_update());
            let left = held.map_or(Duration::ZERO, |held| held.until.since(monotonic()));
            if *phases.borrow_and_update() != Phase::Lasts || left.is_zero() {
                return;
            }
            tokio::select! {
                biased;
                _ = phases.changed() => {}
                changed = updates.changed() => if changed.is_err() {
                    // The lock's keeper is gone, so nothing renews the lock any more.
                    return;
                },
                () = nap(left) => {}
            }
        }
    }

    /// A6: a lock that was lost and acquired again has another term.
    fn held(&self, update: &LockUpdate) -> Option<HeldLock> {
        update.held.filter(|held| held.term == self.0.term)
    }

    pub(super) fn tell(&self) {
        self.proceed(Phase::Ending);
    }

    pub(super) fn end(&self) {
        self.proceed(Phase::Over);
    }

    fn proceed(&self, to: Phase) {
        self.0.phase.send_if_modified(|phase| {
            let differs = *phase < to;
            *phase = to.max(*phase);
            differs
        });
    }
}
