//! The fifth step: everything that follows the leader, off the critical path: the probe, the object's notes about its workloads, the
//! removal of an unneeded finalizer, and the registration.

use lictor_core::{Desired, Locks, PodCache, SharedStores};

use super::remark::remark;
use crate::controller::entry::{Entry, ProbeContext, Probed, Route};
use crate::controller::executor::Executor;
use crate::controller::index::ElectionContext;
use crate::controller::timers::{Moment, Soonest};

/// Updates everything that follows the leader.
pub(crate) fn follow(
    found: &mut ElectionContext<'_>,
    desired: Desired,
    probe_context: &ProbeContext,
    shared: &SharedStores,
    executor: &Executor,
    Moment { now, .. }: Moment,
    again: &mut Soonest,
) {
    let ElectionContext { entry, around, locks, told, .. } = found;
    let probed = probed(entry, around.pods).filter(|_| desired == Desired::Run);
    entry.probing.follow(probed, entry.object.id(), probe_context);
    let mut unrouted = entry.routing.unrouted(entry.services(), entry.object.id(), around.slices);
    unrouted
        .retain(|name| !around.services.get(name).is_some_and(|service| service.is_owned_by(&entry.object.id().uid)));
    let any = entry.members.candidates().next().is_some();
    let clean = is_clean(entry, locks);
    if desired == Desired::Run
        && let Some(claims) = entry.workloads.present_claims(&entry.object, any, clean, &unrouted)
    {
        if entry.writes.may_write_metadata(now) {
            let number = entry.writes.begin_metadata();
            executor.write_metadata(&entry.object, number, true, claims);
        }
        again.add(entry.writes.metadata_retry());
    }
    if desired == Desired::Run && entry.object.has_finalizer() && shared.are_listed() && !entry.needs_finalizer(locks) {
        if entry.writes.may_write_metadata(now) {
            let number = entry.writes.begin_metadata();
            executor.drop_finalizer(&entry.object, number);
        }
        again.add(entry.writes.metadata_retry());
    }
    let decided = entry.decisions.decided();
    again.add(entry.registered.follow(&entry.object, decided, executor, now));
    again.add(remark(entry, told.remarks, executor, now));
}

/// H16: whether nothing of earlier specs is left on pods, or can still get there.
fn is_clean(entry: &Entry, locks: &Locks) -> bool {
    let (Some(spec), Some(election)) = (entry.spec(), entry.election()) else { return false };
    let alone = locks.of(&entry.object.id().uid).all(|(key, _)| *key == spec.key);
    alone && entry.decisions.key() == Some(&spec.key) && election.has_cleaned_up(&spec.scope, entry.object.generation())
}

/// The present leader, if it is to be probed and has an address.
fn probed(entry: &Entry, pods: &PodCache) -> Option<Probed> {
    let probe = entry.spec()?.probe.as_ref()?;
    let (_, holder, _) = entry.election()?.leader()?;
    let pod = pods.get(holder.pod.as_ref()?).filter(|pod| pod.uid == holder.uid)?;
    let service = match entry.routing.route() {
        Route::By(service) | Route::Beside(service, _) => Some(service),
        Route::Off | Route::Unknown { .. } | Route::Unusable(_) => None,
    };
    Probed::of(pod, probe, service)
}
