//! C10: the only step of a replica that does not act, for an election whose lock another cluster holds.

use std::sync::Arc;

use lictor_core::{Command, HeldElsewhere, Instant, Pod, Slice};

use super::execute::requester;
use crate::controller::entry::slices;
use crate::controller::executor::Executor;
use crate::controller::index::ElectionContext;

/// Removes the leadership that was here until another cluster took the lock. Returns when to look again.
pub(crate) fn step_aside(
    found: &mut ElectionContext<'_>,
    executor: &Executor,
    begun: &mut u64,
    now: Instant,
) -> Option<Instant> {
    let ElectionContext { entry, around, rival, .. } = found;
    let (Some(rival), Some(spec)) = (rival, entry.object.spec().cloned()) else { return None };
    // An election never reads a lock that belongs to another election.
    if entry.object.key(None) != spec.key {
        return None;
    }
    let pods: Vec<&Pod> = entry.members.all().filter_map(|pod| around.pods.get(pod)).collect();
    let slices: Vec<&Slice> = slices(entry.services(), around.slices).collect();
    let known = HeldElsewhere {
        now,
        generation: entry.object.generation(),
        key: &spec.key,
        scope: &spec.scope,
        pods: &pods,
        slices: &slices,
        rival,
    };
    for request in entry.decisions.step_aside(&known, begun) {
        if matches!(request.command, Command::WritePod(_) | Command::WriteSlice(_)) {
            let cluster = rival.cluster.as_deref().unwrap_or_default();
            let election = entry.object.election();
            tracing::info!(%election, cluster, term = rival.term.0, "another cluster leads: {}", request.command);
        }
        executor.perform(requester(entry, &Arc::default()), request);
    }
    entry.decisions.aside_until(now)
}
