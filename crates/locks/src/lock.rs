//! The lock that a process keeps, whatever store has it.

use std::sync::Arc;
use std::time::Duration;

use lictor_core::{Failure, HeldLock, Instant, Term, Timestamp};
use lictor_process::{monotonic, nap};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The known state of the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockUpdate {
    /// The lock, while this process holds it.
    pub held: Option<HeldLock>,
    /// The other holder that was seen last.
    pub other: Option<Other>,
    /// When the last answered question about the lock was sent; for a Lease, when its last news came. `None` if there
    /// was no news yet.
    pub heard: Option<Instant>,
    /// The obstacle that keeps this process from hearing of the lock, or from ever getting it.
    pub problem: Option<Problem>,
}

/// Another holder of the lock, according to itself. For people, and for clients that want to reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Other {
    /// The holder's name.
    pub name: String,
    /// The holder's node.
    pub node: Option<String>,
    /// The holder's address.
    pub address: Option<String>,
    /// The holder's term.
    pub term: Option<Term>,
    /// Since when the holder leads, by its own clock.
    pub since: Option<Timestamp>,
}

impl Other {
    /// Returns a holder of which only the name is known.
    pub fn named(name: String) -> Self {
        Self { name, ..Self::default() }
    }
}

/// An obstacle on the way to the lock, as a text for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The Lease is the lock of an election of pods, so this process never writes it, and never gets the lock.
    #[error("the Lease {lease} is the lock of {owner}, which the operator alone writes")]
    Taken {
        /// The namespace and the name of the Lease.
        lease: String,
        /// The election.
        owner: String,
    },
    /// Another program has written the object, so this process never writes it, and never gets the lock.
    #[error("another program has written the object {object}, so it is no lock")]
    NotALock {
        /// The object's name.
        object: String,
    },
    /// The store does not answer, or refuses. The lock's keeper keeps trying.
    #[error("{}", .0.text())]
    Failed(Failure),
}

/// The state of a lock after its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The store has confirmed that this process does not hold the lock, so another one can acquire it at once.
    Confirmed,
    /// If this process held the lock, the lock expires: a Lease or an object when its duration is over, a key with its
    /// session.
    Unconfirmed,
}

/// A lock that a task acquires as soon as it is free, and renews. Drop it to stop renewing without a release, so that
/// the lock expires.
pub struct Lock {
    updates: watch::Receiver<LockUpdate>,
    /// A notification makes the task acquire the lock again, in a higher term.
    again: Arc<Notify>,
    /// The value true makes the task release the lock and end.
    stop: watch::Sender<bool>,
    task: JoinHandle<Released>,
}

impl Lock {
    pub(crate) fn new(
        updates: watch::Receiver<LockUpdate>,
        again: Arc<Notify>,
        stop: watch::Sender<bool>,
        task: JoinHandle<Released>,
    ) -> Self {
        Self { updates, again, stop, task }
    }

    /// Returns the known state of the lock.
    pub fn state(&self) -> LockUpdate {
        self.updates.borrow().clone()
    }

    /// Returns a receiver of the known state of the lock, which ends with the lock's keeper.
    pub(crate) fn updates(&self) -> watch::Receiver<LockUpdate> {
        self.updates.clone()
    }

    /// Waits for a change of the lock, and returns its state. `None` means that the lock's keeper has ended by a
    /// defect, and that the lock expires. The wait can be cancelled at any time.
    pub async fn changed(&mut self) -> Option<LockUpdate> {
        self.updates.changed().await.ok()?;
        Some(self.updates.borrow_and_update().clone())
    }

    /// Waits until this process may do what only the lock's holder may do: it holds the lock, and no earlier holder can
    /// still rely on it. `None` has the meaning of [`changed`](Self::changed). The wait can be cancelled at any time.
    pub async fn acquired(&mut self) -> Option<HeldLock> {
        loop {
            let (now, held) = (monotonic(), self.updates.borrow_and_update().held);
            let wait = match held {
                Some(held) if now < held.from => held.from.since(now),
                Some(held) if now < held.until => return Some(held),
                _ => Duration::MAX,
            };
            tokio::select! {
                biased;
                changed = self.updates.changed() => changed.ok()?,
                () = nap(wait) => {}
            }
        }
    }

    /// Waits until this process may no longer rely on the lock that it [`acquired`](Self::acquired): the lock was not
    /// renewed in time, or is lost, or is held in another term. The wait can be cancelled at any time.
    pub async fn lost(&mut self, acquired: HeldLock) {
        loop {
            let (now, held) = (monotonic(), self.updates.borrow_and_update().held);
            let Some(held) = held.filter(|held| held.term == acquired.term && now < held.until) else { return };
            tokio::select! {
                biased;
                changed = self.updates.changed() => if changed.is_err() { return },
                () = nap(held.until.since(now)) => {}
            }
        }
    }

    /// Acquires the lock again, in a higher term.
    pub fn acquire_again(&self) {
        self.again.notify_one();
    }

    /// Gives the lock back, and waits at most for this long. The caller has stopped whatever only the lock's holder may
    /// do, because another process may hold the lock as soon as this is called.
    pub async fn release(mut self, limit: Duration) -> Released {
        self.stop.send_replace(true);
        if let Ok(released) = timeout(limit, &mut self.task).await {
            released.unwrap_or(Released::Unconfirmed)
        } else {
            tracing::warn!("could not release the lock in time: it expires by itself");
            Released::Unconfirmed
        }
    }
}

impl Drop for Lock {
    /// Two keepers must not share a session, and a lock that is dropped may still be relied on by what its owner has
    /// left behind. So its keeper ends at once, and does not release it.
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use lictor_process::{spawn, spawn_in, virtual_process};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn held(term: i64, from: u64, until: u64) -> LockUpdate {
        let held = HeldLock { term: Term(term), from: at(from), until: at(until) };
        LockUpdate { held: Some(held), ..LockUpdate::default() }
    }

    /// Returns a lock whose keeper is this task.
    fn lock(keeper: impl Future<Output = Released> + Send + 'static) -> (watch::Sender<LockUpdate>, Lock) {
        let (updates, receiver) = watch::channel(LockUpdate::default());
        let (stop, _) = watch::channel(false);
        (updates, Lock::new(receiver, Arc::default(), stop, spawn(keeper)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_counts_from_when_no_other_holder_relies_on_it_until_it_is_not_renewed() {
        let test = async {
            let (updates, mut lock) = lock(pending());
            updates.send_replace(held(5, 3, 10));
            let first = lock.acquired().await.unwrap();
            assert_eq!((first.term, monotonic()), (Term(5), at(3)), "an earlier holder may rely on it until then");
            let renewed = async {
                tokio::time::sleep(4 * SECOND).await;
                updates.send_replace(held(5, 3, 14));
            };
            tokio::join!(lock.lost(first), renewed);
            assert_eq!(monotonic(), at(14), "it was renewed once");
            assert!(timeout(SECOND, lock.acquired()).await.is_err(), "it is over");
            updates.send_replace(held(6, 0, 30));
            lock.lost(first).await;
            assert_eq!((lock.acquired().await.unwrap().term, monotonic()), (Term(6), at(15)));
            drop(updates);
            assert_eq!(lock.changed().await, None);
        };
        spawn_in(&virtual_process(), test).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_says_whether_it_is_sure() {
        let (_, confirmed) = lock(async { Released::Confirmed });
        assert_eq!(confirmed.release(SECOND).await, Released::Confirmed);
        let (_, hangs) = lock(pending());
        assert_eq!(hangs.release(SECOND).await, Released::Unconfirmed);
        let (_, broken) = lock(async { panic!("a defect") });
        assert_eq!(broken.release(SECOND).await, Released::Unconfirmed);
    }

    /// Programs that relied on the lock may still run, and another keeper may use its session.
    #[tokio::test(start_paused = true)]
    async fn a_lock_that_is_dropped_is_neither_kept_nor_released() {
        let (ends, ended) = tokio::sync::oneshot::channel::<()>();
        let (_, dropped) = lock(async move {
            let _ends = ends;
            pending().await
        });
        tokio::task::yield_now().await;
        drop(dropped);
        assert!(timeout(SECOND, ended).await.expect("the keeper ends at once").is_err());
    }
}
