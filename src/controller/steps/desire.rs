//! The second step: the goal for an election, and the lock by which it is decided.

use lictor_api::Resolved;
use lictor_core::{
    Desired, Election, FollowedLock, Key, Knowledge, LockValidity, Locks, Scope, SharedStores, WorkloadKind,
};

use super::metadata::write_metadata;
use crate::controller::entry::{Entry, Route, WATCHED};
use crate::controller::executor::Executor;
use crate::controller::index::ElectionContext;
use crate::controller::object::ElectionObject;
use crate::controller::on_demand::{OnDemandWatches, Watched};
use crate::controller::parameters::Purpose;
use crate::controller::stores::ClassStores;
use crate::controller::timers::{Moment, Soonest};

/// The intentions of this replica for all elections.
#[derive(Clone, Copy)]
pub(crate) struct Circumstances<'a> {
    pub(crate) purpose: Purpose,
    /// Whether the operator stops.
    pub(crate) draining: bool,
    pub(crate) operator_id: &'a str,
    pub(crate) moment: Moment,
}

/// The knowledge beside that of the index.
pub(crate) struct Sources<'a> {
    pub(crate) watches: &'a mut OnDemandWatches,
    pub(crate) shared: &'a SharedStores,
    pub(crate) stores: &'a ClassStores,
}

/// The goal for an election, with its lock.
pub(crate) struct Aim {
    pub(crate) desired: Desired,
    /// The place of its lock.
    pub(crate) key: Key,
    /// How long a held lock may be relied on; `None` if nothing is known of the store.
    pub(crate) validity: Option<LockValidity>,
}

impl Circumstances<'_> {
    /// Whether an election ends here.
    pub(crate) fn ends(&self, object: &ElectionObject) -> bool {
        object.is_deleted() || (self.purpose == Purpose::Withdraw && object.is_served())
    }

    /// The goal for an election, whatever is known of its lock; `None` if this lictor has nothing to do with the election.
    fn desired(&self, object: &ElectionObject, locks: &Locks, held: Option<&Key>) -> Option<Desired> {
        if self.ends(object) {
            return object.may_have_left(locks, self.operator_id).then_some(Desired::Withdraw);
        }
        if !object.is_served() {
            // Another lictor serves the class now, so this one gives up what it holds.
            return held.map(|_| Desired::Withdraw);
        }
        Some(if object.refusal().is_some() {
            Desired::Refuse
        } else if self.draining || object.spec().is_some_and(|spec| spec.paused) {
            Desired::Freeze
        } else {
            Desired::Run
        })
    }
}

/// Finds the goal; `None` if nothing is decided now.
pub(crate) fn desire(
    found: &mut ElectionContext<'_>,
    circumstances: Circumstances<'_>,
    Sources { watches, shared, stores }: &mut Sources<'_>,
    executor: &Executor,
    again: &mut Soonest,
) -> Option<Aim> {
    let ElectionContext { entry, locks, around, .. } = found;
    let Circumstances { draining, operator_id, moment, .. } = circumstances;
    let held = entry.object.held_lock(locks, operator_id).cloned();
    let Some(desired) = circumstances.desired(&entry.object, locks, held.as_ref()) else {
        entry.decisions.forget();
        entry.probing.stop();
        return None;
    };
    let lacking = entry.workloads.lacking_claims(&entry.object, locks);
    let unheld = entry.needs_finalizer(locks) && !entry.object.has_finalizer();
    let lacks = desired == Desired::Run && (unheld || lacking.is_some());
    if lacks {
        // An election that was never written to has nothing to lose.
        let new = !entry.object.has_finalizer() && entry.election().is_none();
        let claims = lacking.unwrap_or_else(|| entry.workloads.claims().as_ref().clone());
        write_metadata(entry, true, claims, executor, moment.now, again);
        if new {
            return None;
        }
    }
    watches.begin(entry.workloads.kinds(&entry.object).into_iter().map(Watched::Workloads));
    let routes = !entry.services().is_empty();
    watches.begin(WATCHED.into_iter().filter(|_| routes));
    let unread = routes && !watches.knows(Watched::Slices, &entry.object.election().namespace);
    if unread && desired == Desired::Withdraw {
        return None;
    }
    let leader = entry.decisions.election().and_then(Election::leader).map(|(_, holder, _)| &holder.uid);
    if let Some(number) = entry.routing.look(&entry.object, leader, &entry.service, *around, watches, moment.now) {
        executor.look_for_leftovers(&entry.object, number);
    }
    again.add(entry.routing.due());
    // A leader whose lock is lost is demoted all the same. A broken watch keeps no election waiting.
    let unseen = *entry.routing.route() == Route::Unknown { soon: true };
    let unfollowed = entry.following().is_some_and(|following| *following.lock == FollowedLock::Unread);
    // A paused election is judged as well, so that a dry run shows what keeps it from its pods.
    if desired == Desired::Run || (desired == Desired::Freeze && !draining) {
        for (uid, unread) in entry.titles.begin_reads(moment.now) {
            executor.read_title(&entry.object, uid, unread);
        }
        again.add(entry.titles.due());
    }
    let unseen = unseen || deployment_is_unseen(entry, watches) || workloads_are_unseen(entry, watches);
    // H16: a lock whose record has to be written again is not released before that is noted.
    let unnoted = lacking_scopes(entry);
    let waits = desired == Desired::Run && (lacks || unseen || unfollowed || entry.titles.wait());
    let desired = if waits { Desired::Freeze } else { desired };
    let key = entry.object.key(held);
    let desired = match desired {
        // The lock is not released before the operator knows which leader its slices show.
        Desired::Freeze | Desired::Refuse if draining && !unread && !unnoted && stores.releases_on_stop(&key.store) => {
            Desired::Leave
        }
        desired => desired,
    };
    let validity = match shared.knowledge(&key.store, moment.now) {
        Knowledge::Full(validity) => Some(validity),
        Knowledge::Nothing => None,
        Knowledge::Awaited(until) => {
            again.add(until);
            return None;
        }
    };
    Some(Aim { desired, key, validity })
}

/// H16: whether the object does not yet note what the present spec writes on pods.
fn lacking_scopes(entry: &Entry) -> bool {
    let noted = &entry.workloads.claims().scopes;
    let lacks = |spec: &Resolved| spec.scope != Scope::default() && !noted.contains(&spec.scope);
    entry.object.shares_lock() && entry.spec().is_some_and(lacks)
}

/// Whether the Deployment that must be available is still unknown.
fn deployment_is_unseen(entry: &Entry, watches: &OnDemandWatches) -> bool {
    let namespace = &entry.object.election().namespace;
    entry.object.available_deployment().is_some()
        && !watches.knows(Watched::Workloads(WorkloadKind::Deployment), namespace)
}

/// Whether a new election may still be refused because of workloads that are not known yet. A broken watch keeps no election waiting.
fn workloads_are_unseen(entry: &Entry, watches: &OnDemandWatches) -> bool {
    let namespace = &entry.object.election().namespace;
    let unseen = |watched| !watches.knows(watched, namespace) && !watches.is_broken(watched, namespace);
    entry.is_new() && entry.workloads.kinds(&entry.object).into_iter().map(Watched::Workloads).any(unseen)
}
