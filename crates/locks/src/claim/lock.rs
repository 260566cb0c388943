//! A lock that its keeper polls.

use std::sync::Arc;
use std::time::Duration;

use lictor_core::ClaimParameters;
use lictor_process::{monotonic, spawn};
use tokio::sync::{Notify, watch};

use super::holder::Holder;
use super::keeper::{ClaimKeeper, ClaimUpdate};
use super::store::ClaimStore;
use super::terms::follow;
use crate::lock::{Lock, LockUpdate, Problem, Released};

/// Begins to keep a lock under this name. `store` makes its store from what this process knows of the lock, and `problem` says what keeps the
/// process from it.
pub(crate) fn start<S: ClaimStore + 'static>(
    identity: String,
    duration: Duration,
    store: impl FnOnce(watch::Receiver<LockUpdate>) -> S,
    problem: impl Fn(&ClaimUpdate) -> Option<Problem> + Send + 'static,
) -> Lock {
    let own = Holder { identity, ..Holder::default() };
    let (keeper, claims, gone) = ClaimKeeper::new(own, ClaimParameters::patient(duration), monotonic);
    let (updates, receiver) = watch::channel(LockUpdate::default());
    let (stop, stopping) = watch::channel(false);
    let again = Arc::<Notify>::default();
    let (asked, store) = (again.clone(), store(receiver.clone()));
    let told = move |claim: &ClaimUpdate| (claim.heard, problem(claim));
    let task = spawn(async move {
        // The store does not show that its holder is gone, so this process waits for the lock to expire.
        let _gone = gone;
        tokio::select! {
            confirmed = keeper.reading_first().run(&store, stopping) => {
                if confirmed { Released::Confirmed } else { Released::Unconfirmed }
            }
            () = follow(claims, asked, updates, told) => Released::Unconfirmed,
        }
    });
    Lock::new(receiver, again, stop, task)
}
