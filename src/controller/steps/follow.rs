//! The fifth step: everything that follows the leader, off the critical path: the probe, the object's notes about its workloads, the
//! removal of an unneeded finalizer, and the registration.

use lictor_core::{Desired, Locks, PodCache, SharedStores};
use tokio::sync::mpsc;

use crate::controller::entry::{Entry, Probed, Reach};
use crate::controller::executor::Executor;
use crate::controller::index::Found;
use crate::controller::input::Input;
use crate::controller::timers::{Moment, Soonest};

/// Updates everything that follows the leader.
pub(crate) fn follow(
    found: &mut Found<'_>,
    desired: Desired,
    (reach, inputs, shared): (&Reach, &mpsc::UnboundedSender<Input>, &SharedStores),
    executor: &Executor,
    Moment { now, .. }: Moment,
    again: &mut Soonest,
) {
    let Found { entry, around, locks, .. } = found;
    let probed = probed(entry, around.pods).filter(|_| desired == Desired::Run);
    entry.probing.follow(probed, entry.object.id(), reach, inputs);
    let unrouted = entry.routing.unrouted(entry.services(), entry.object.id(), around.slices);
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
    again.add(entry.registered.follow(&entry.object, entry.decisions.decided(), executor, now));
}

/// H16: whether nothing of earlier specs is on pods any more, or can still get there.
fn is_clean(entry: &Entry, locks: &Locks) -> bool {
    let (Some(spec), Some(election)) = (entry.spec(), entry.election()) else { return false };
    let alone = locks.of(&entry.object.id().uid).all(|(key, _)| *key == spec.key);
    alone && entry.decisions.key() == Some(&spec.key) && election.has_cleaned_up(&spec.scope, entry.object.generation())
}

/// The present leader, if it is to be probed and has an address.
fn probed(entry: &Entry, pods: &PodCache) -> Option<Probed> {
    let probe = entry.spec()?.probe.clone()?;
    let (_, holder, _) = entry.election()?.leader()?;
    let pod = pods.get(holder.pod.as_ref()?).filter(|pod| pod.uid == holder.uid)?;
    Some(Probed { leader: holder.uid.clone(), ip: pod.ip.as_ref()?.parse().ok()?, probe })
}
