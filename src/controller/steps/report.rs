//! The last step: an election's metrics and its status.

use std::time::Duration;

use lictor_api::{LeaderElectionStatus, READY, Refusal};
use lictor_core::{Desired, Election, Locks, Node, Pod, Situation};

use crate::controller::announce::{announce_obstacle, announce_refusal};
use crate::controller::entry::Entry;
use crate::controller::executor::Executor;
use crate::controller::index::ElectionContext;
use crate::controller::object::holder_name;
use crate::controller::status::{is_undecided, obstacle, refusal_message, status};
use crate::controller::timers::{Moment, Soonest};
use crate::telemetry::{ElectionFigures, Metrics};

/// Updates the metrics, and writes the status if it differs and no write is under way.
pub(crate) fn report(
    found: &mut ElectionContext<'_>,
    desired: Desired,
    metrics: &Metrics,
    executor: &Executor,
    operator_lease: Duration,
    moment: Moment,
    again: &mut Soonest,
) {
    let ElectionContext { entry, around, nodes, locks, told: elsewhere, .. } = found;
    let candidates = entry.members.candidates().filter_map(|pod| around.pods.get(pod));
    let node = |pod: &Pod| pod.node.as_ref().and_then(|node| nodes.get(node));
    let candidates: Vec<(&Pod, Option<&Node>)> = candidates.map(|pod| (pod, node(pod))).collect();
    let before = entry.object.last_status();
    let told = || status(entry, &candidates, *around, *elsewhere, moment, operator_lease);
    let status = if desired == Desired::Withdraw { None } else { told() };
    let mismatched = label_mismatch(entry, candidates.iter().map(|(pod, _)| *pod), locks);
    metrics.record(figures(entry, !candidates.is_empty(), status.as_ref().unwrap_or(&before), mismatched));
    let Some(status) = status else { return };
    if status == before || entry.writes.is_under_way() {
        return;
    }
    let backlog = if is_undecided(&status) { executor.backlog() } else { Duration::ZERO };
    if let Some(due) = entry.writes.status_waits(is_important(&status, &before), backlog, moment.now) {
        return again.add(due);
    }
    if let Some(Refusal { reason, message }) = entry.object.refusal()
        && !before.conditions.iter().any(|old| old.reason == *reason && old.message == refusal_message(message))
    {
        announce_refusal(entry, reason, message, executor);
    }
    if let Some((reason, message)) = obstacle(entry, &status.conditions)
        && !before.conditions.iter().any(|old| old.reason == reason && old.message == message)
    {
        announce_obstacle(entry, reason, message, executor);
    }
    let (number, permit) = entry.writes.begin_status();
    executor.write_status(&entry.object, number, permit, status);
}

fn figures(entry: &Entry, has_candidate: bool, status: &LeaderElectionStatus, label_mismatch: u32) -> ElectionFigures {
    let (name, election) = (entry.object.election(), entry.election());
    let is_led_elsewhere = |election: &Election| matches!(election.situation(), Situation::LedElsewhere(_));
    ElectionFigures {
        namespace: name.namespace.to_string(),
        name: name.name.clone(),
        leader: election.and_then(Election::leader).map(|(_, holder, _)| holder_name(&entry.object, holder)),
        term: election.map_or(0, |election| election.term().0),
        transitions: entry.history.transitions(),
        label_drift: entry.history.label_drift(),
        // A group with a leader in another cluster needs no candidate here.
        has_candidate: (has_candidate || entry.workloads.cluster().is_some())
            && !election.is_some_and(is_led_elsewhere),
        candidates: status.candidates.as_ref().map(|count| (count.total, count.eligible)).unwrap_or_default(),
        paused: entry.object.spec().is_some_and(|spec| spec.paused),
        ready: status
            .conditions
            .iter()
            .find(|condition| condition.type_ == READY)
            .map(|ready| (ready.status == "True", ready.reason.clone())),
        label_mismatch,
    }
}

/// How many pods carry the leader label without being the leader by the lock, or the other way round.
fn label_mismatch<'a>(entry: &Entry, candidates: impl Iterator<Item = &'a Pod>, locks: &Locks) -> u32 {
    let Some(spec) = entry.spec().filter(|_| entry.object.refusal().is_none()) else { return 0 };
    let record = locks.get(&spec.key).and_then(|(_, stored)| stored.record());
    let leader = record.and_then(|record| record.holder.as_ref()).map(|holder| &holder.uid);
    let differs = |pod: &&Pod| spec.scope.markings.shows_leader(pod) != (leader == Some(&pod.uid));
    u32::try_from(candidates.filter(differs).count()).unwrap_or(u32::MAX)
}

/// Whether a status can't wait for a moment. A status can if it only counts candidates again, or says that nothing is decided yet.
fn is_important(status: &LeaderElectionStatus, before: &LeaderElectionStatus) -> bool {
    !is_undecided(status)
        && (status.leader != before.leader
            || status.conditions != before.conditions
            || status.observed_generation != before.observed_generation
            || status.history.len() != before.history.len())
}
