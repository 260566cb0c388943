//! The last step: what is told of an election in its metrics and its status.

use std::time::Duration;

use lictor_core::{Desired, Election, Node, Pod, Situation};

use crate::api::{LeaderElectionStatus, Refusal};
use crate::controller::announce::announce_refusal;
use crate::controller::entry::Entry;
use crate::controller::executor::Executor;
use crate::controller::index::Found;
use crate::controller::status::{is_undecided, refusal_message, status};
use crate::controller::timers::{Moment, Soonest};
use crate::controller::wording::holder_name;
use crate::telemetry::{ElectionFigures, Metrics};

/// Renews the metrics, and writes the status if it differs and nothing is written.
pub(crate) fn report(
    found: &mut Found<'_>,
    desired: Desired,
    metrics: &Metrics,
    executor: &Executor,
    operator_lease: Duration,
    moment: Moment,
    again: &mut Soonest,
) {
    let Found { entry, around, nodes, .. } = found;
    let candidates = entry.members.candidates().filter_map(|pod| around.pods.get(pod));
    let node = |pod: &Pod| pod.node.as_ref().and_then(|node| nodes.get(node));
    let candidates: Vec<(&Pod, Option<&Node>)> = candidates.map(|pod| (pod, node(pod))).collect();
    metrics.record(figures(entry, !candidates.is_empty()));
    if desired == Desired::Withdraw {
        return;
    }
    let Some(status) = status(entry, &candidates, moment, operator_lease) else { return };
    let before = entry.object.last_status();
    if status == before || entry.writes.is_under_way() {
        return;
    }
    if let Some(due) = entry.writes.status_waits(is_important(&status, &before), moment.now) {
        return again.add(due);
    }
    if let Some(Refusal { reason, message }) = entry.object.refusal()
        && !before.conditions.iter().any(|old| old.reason == *reason && old.message == refusal_message(message))
    {
        announce_refusal(entry, reason, message, executor);
    }
    let (number, permit) = entry.writes.begin_status();
    executor.write_status(&entry.object, number, permit, status);
}

fn figures(entry: &Entry, has_candidate: bool) -> ElectionFigures {
    let (name, election) = (entry.object.election(), entry.election());
    let is_led_elsewhere = |election: &Election| matches!(election.situation(), Situation::LedElsewhere(_));
    ElectionFigures {
        namespace: name.namespace.to_string(),
        name: name.name.clone(),
        leader: election.and_then(Election::leader).map(|(_, holder, _)| holder_name(&entry.object, holder)),
        term: election.map_or(0, |election| election.term().0),
        transitions: entry.history.transitions(),
        label_drift: entry.history.label_drift(),
        // A group that another cluster leads has its leader.
        has_candidate: (has_candidate || entry.workloads.cluster().is_some())
            && !election.is_some_and(is_led_elsewhere),
    }
}

/// A status that only counts candidates anew, or says that nothing is decided yet, can wait for a moment.
fn is_important(status: &LeaderElectionStatus, before: &LeaderElectionStatus) -> bool {
    !is_undecided(status)
        && (status.leader != before.leader
            || status.conditions != before.conditions
            || status.observed_generation != before.observed_generation
            || status.history.len() != before.history.len())
}
