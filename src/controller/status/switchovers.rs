//! The status of a Switchover.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use lictor_api::{
    ACCEPTED, COMPLETE, FAILED, Switchover, SwitchoverPod, SwitchoverStatus, condition, unknown, with_transition_times,
};
use lictor_core::switchover::{Asked, Obstacle, Target};
use lictor_core::{NotEligible, Timestamp};

use crate::controller::switchover::Trouble;
use crate::wording::{in_seconds, not_eligible};

/// The pods and the term of a Switchover that is complete.
pub(crate) struct Result {
    /// `None` if another cluster leads instead of a pod.
    pub(crate) to: Option<SwitchoverPod>,
    pub(crate) term: i64,
    /// The time since it was accepted, if that is known.
    pub(crate) milliseconds: Option<i64>,
}

/// The status of a Switchover that waits.
pub(crate) fn waits(seen: &Switchover, why: &Trouble, wall: Timestamp) -> SwitchoverStatus {
    let Trouble { reason, message, .. } = why;
    let waits = unknown(ACCEPTED, reason, message, generation(seen));
    told(seen, vec![waits], wall)
}

/// The status of a Switchover that begins.
pub(crate) fn begins(
    seen: &Switchover,
    from: Option<SwitchoverPod>,
    to: Option<SwitchoverPod>,
    wall: Timestamp,
) -> SwitchoverStatus {
    let message = format!("{} is to lead instead of {}", new(seen, to.as_ref()), old(seen, from.as_ref()));
    let accepted = condition(ACCEPTED, true, "Accepted", message, generation(seen));
    SwitchoverStatus { from, to, accept_time: Some(Time(in_seconds(wall))), ..told(seen, vec![accepted], wall) }
}

/// The status of a completed Switchover.
pub(crate) fn completes(seen: &Switchover, result: Result, wall: Timestamp) -> SwitchoverStatus {
    let Result { to, term, milliseconds } = result;
    let before = seen.status.clone().unwrap_or_default();
    let (to_name, from) = (new(seen, to.as_ref()), old(seen, before.from.as_ref()));
    let message = format!("{to_name} leads instead of {from} in term {term}");
    let complete = condition(COMPLETE, true, "SwitchedOver", message, generation(seen));
    let conditions = [Some(complete), accepted(&before)].into_iter().flatten().collect();
    SwitchoverStatus {
        to,
        term: Some(term),
        duration_milliseconds: milliseconds,
        completion_time: Some(Time(in_seconds(wall))),
        ..told(seen, conditions, wall)
    }
}

/// The status of a failed Switchover.
pub(crate) fn fails(seen: &Switchover, why: &Trouble, wall: Timestamp) -> SwitchoverStatus {
    let Trouble { reason, message, .. } = why;
    let before = seen.status.clone().unwrap_or_default();
    let failed = condition(FAILED, true, reason, message, generation(seen));
    let accepted = accepted(&before).unwrap_or_else(|| condition(ACCEPTED, false, reason, message, generation(seen)));
    SwitchoverStatus { completion_time: Some(Time(in_seconds(wall))), ..told(seen, vec![failed, accepted], wall) }
}

fn told(seen: &Switchover, conditions: Vec<Condition>, wall: Timestamp) -> SwitchoverStatus {
    let before = seen.status.clone().unwrap_or_default();
    let named = seen.spec.to_pod_name.clone().map(|pod_name| SwitchoverPod { pod_name, pod_uid: None });
    SwitchoverStatus {
        observed_generation: Some(generation(seen)),
        to: before.to.clone().or(named),
        requested_by: seen.spec.requested_by.clone(),
        conditions: with_transition_times(conditions, &before.conditions, in_seconds(wall)),
        ..before
    }
}

fn accepted(status: &SwitchoverStatus) -> Option<Condition> {
    status.conditions.iter().find(|condition| condition.type_ == ACCEPTED && condition.status == "True").cloned()
}

fn generation(seen: &Switchover) -> i64 {
    seen.metadata.generation.unwrap_or_default()
}

/// The new leader, in words.
fn new(seen: &Switchover, to: Option<&SwitchoverPod>) -> String {
    match (to, &seen.spec.to_cluster_name) {
        (Some(pod), Some(cluster)) => format!("{} in the cluster {cluster}", pod.pod_name),
        (Some(pod), None) => pod.pod_name.clone(),
        (None, Some(cluster)) => format!("the cluster {cluster}"),
        (None, None) => "nobody".to_owned(),
    }
}

/// The old leader, in words.
fn old<'a>(seen: &Switchover, from: Option<&'a SwitchoverPod>) -> &'a str {
    let nobody = if seen.spec.to_cluster_name.is_some() { "this cluster" } else { "no pod" };
    from.map_or(nobody, |pod| &pod.pod_name)
}

/// The obstacle to a Switchover, for people. `to`: the name of its target; `None` means any.
pub(crate) fn trouble(why: &Obstacle, asked: &Asked, to: Option<&str>) -> Trouble {
    let to = to.unwrap_or_default();
    let from = asked.from_term;
    let (reason, passes, message) = match why {
        Obstacle::Superseded(present) => (
            "Superseded",
            false,
            format!(
                "the election is in term {present}, and spec.fromTerm is {from}, so the leader has changed since: \
                 check the leader, and create another Switchover if you still want one"
            ),
        ),
        Obstacle::NotReached(present) => (
            "TermNotReached",
            true,
            format!("the election is only in term {present}, and spec.fromTerm is {from}: create it again with fromTerm: {present}"),
        ),
        Obstacle::LedElsewhere => (
            "LedElsewhere",
            false,
            "another cluster leads, or another program holds the lock: create the Switchover in the cluster that leads".to_owned(),
        ),
        Obstacle::NotShared => (
            "NotShared",
            false,
            "the locks of the election's class are in this cluster, so no other cluster can lead: leave spec.toClusterName \
             out, or keep the lock in a store that several clusters share"
                .to_owned(),
        ),
        Obstacle::NotReady { answers: true } => (
            "NotReady",
            true,
            format!(
                "the cluster {to} says that it can't lead now: `kubectl get leaderelections` and `kubectl lictor \
                 explain` there say why. Let it wait with spec.deadlineSeconds"
            ),
        ),
        Obstacle::NotReady { answers: false } => (
            "NotReady",
            true,
            format!(
                "the cluster {to} does not answer: spec.toClusterName must be the clusterName of a class there, with an \
                 election of the same lock and a running operator. Let it wait with spec.deadlineSeconds"
            ),
        ),
        Obstacle::NoSelector => (
            "NoSelector",
            false,
            "without spec.selector, the candidate is the cluster itself: name another cluster with spec.toClusterName"
                .to_owned(),
        ),
        Obstacle::ElectedByCandidates => (
            "ElectedByCandidates",
            false,
            "the candidates elect the leader themselves (spec.electedBy), and lictor never writes to their lock: let \
             the leader's program release it, for example by ending it with SIGTERM"
                .to_owned(),
        ),
        Obstacle::Frozen => {
            ("Paused", true, "the election is paused: set its spec.paused to false".to_owned())
        }
        Obstacle::Refused => (
            "ElectionNotAccepted",
            false,
            "the election is not accepted: its condition Accepted says why, and what to do".to_owned(),
        ),
        Obstacle::Leads if matches!(asked.to, Target::Cluster(_)) => {
            ("AlreadyLeader", false, format!("the cluster {to} is already the leader: there is nothing to do"))
        }
        Obstacle::Leads => ("AlreadyLeader", false, format!("{to} is already the leader: there is nothing to do")),
        Obstacle::NoCandidate if matches!(asked.to, Target::Pod(_)) => (
            "NotACandidate",
            false,
            format!("the pod {to} that was to lead is gone, or is no longer a candidate; a new pod of the same name does not count"),
        ),
        Obstacle::NoCandidate => (
            "NotACandidate",
            true,
            format!("the election selects no pod {to}: see kubectl get pods, and the election's spec.selector"),
        ),
        Obstacle::NotEligible(NotEligible::NeverLeader) => (
            "NeverLeader",
            false,
            format!("{to} has the annotation lictor.dev/never-leader: choose another pod, or remove the annotation"),
        ),
        Obstacle::NotEligible(why) => {
            let or = if why.yields_to_force() { ", or elect it anyway with spec.force" } else { "" };
            let message = format!("{to} can't be elected: {}. Let it wait with spec.deadlineSeconds{or}", not_eligible(why));
            ("NotEligible", true, message)
        }
        Obstacle::NobodyEligible => (
            "NoEligiblePod",
            true,
            "no other pod can be elected: see kubectl get pods. Let it wait with spec.deadlineSeconds".to_owned(),
        ),
    };
    Trouble { reason, message, passes }
}
