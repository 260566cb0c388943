//! C10: the one step that a replica takes that does not act, where another cluster holds the lock.

use std::sync::Arc;

use lictor_core::{Command, HeldElsewhere, Instant, Pod, Slice};

use super::execute::requester;
use crate::controller::entry::slices;
use crate::controller::executor::Executor;
use crate::controller::index::Found;

/// Takes off what has led here until another cluster took the lock. Returns when to look again.
pub(crate) fn step_aside(found: &mut Found<'_>, executor: &Executor, begun: &mut u64, now: Instant) -> Option<Instant> {
    let Found { entry, around, rival, .. } = found;
    let (Some(rival), Some(spec)) = (rival, entry.object.spec().cloned()) else { return None };
    // A lock that belongs to another election is not even looked at.
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
