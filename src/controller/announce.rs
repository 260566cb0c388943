//! The announcements of elections, as Events, logs and history.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use lictor_api::{HistoryEntry, LeaderElection, Switchover};
use lictor_core::{
    Announcement, Failure, Holder, Pod, ProbeFailure, Reason, Rules, Timestamp, Transition, Uid, WorkloadChange,
    WorkloadId, WorkloadKind, annotation_defect,
};

use super::entry::Entry;
use super::executor::Executor;
use super::names::SwitchoverId;
use super::object::{holder_name, told_holder};
use crate::kubernetes::Event;
use crate::wording::{describe, in_seconds, led_elsewhere, not_handed_over};

/// Publishes one announcement of an election.
pub(super) fn announce(entry: &mut Entry, announcement: Announcement, executor: &Executor, wall: Timestamp) {
    match announcement {
        Announcement::Transition(transition) => announce_transition(entry, transition, executor, wall),
        Announcement::LabelDrift { pod, uid } => {
            entry.history.count_drift();
            tracing::warn!(election = %entry.object.election(), %pod, "another program changed the labels, and lictor corrects them");
            let note = format!("another program changed the labels of pod {pod}, and lictor corrects them");
            tell_both(entry, &pod, &uid, "LabelDrift", "Relabel", &note, executor);
        }
        Announcement::LabelsRefused { pod, uid, why } => {
            tracing::warn!(election = %entry.object.election(), %pod, "can't write the labels, and tries again: {why}");
            let note = format!("can't write the labels of pod {pod}, so other pods take precedence: {why}");
            tell_both(entry, &pod, &uid, "LabelsRefused", "Relabel", &note, executor);
        }
        Announcement::LabelsLeft { pod, uid, why } => {
            tracing::warn!(election = %entry.object.election(), %pod, "can't remove the labels, so they stay: {why}");
            let note = format!("the election ends, but its labels stay on pod {pod}: remove them by hand: {why}");
            tell_both(entry, &pod, &uid, "LabelsLeft", "Relabel", &note, executor);
        }
        Announcement::FormerLeaderDeleted { pod, uid } => {
            tracing::info!(election = %entry.object.election(), %pod, "the former leader is deleted");
            let note = format!("pod {pod} no longer leads, so lictor deletes it (spec.handover.formerLeader)");
            let pod = pod_reference(entry, &pod, &uid);
            tell(entry, Some(pod), false, "FormerLeaderDeleted", "Delete", note, executor);
        }
        Announcement::FormerLeaderStays { pod, uid, why } => {
            tracing::warn!(election = %entry.object.election(), %pod, "can't delete the former leader, and tries again: {why}");
            let note = format!("can't delete pod {pod}, which no longer leads, and tries again: {why}");
            tell_both(entry, &pod, &uid, "FormerLeaderStays", "Delete", &note, executor);
        }
        Announcement::LedElsewhere(rival) => {
            let note = led_elsewhere(&rival);
            tracing::info!(election = %entry.object.election(), "{note}");
            tell(entry, None, false, "LedElsewhere", "Follow", note, executor);
        }
        Announcement::NotHandedOver { cluster, remains } => {
            let note = not_handed_over(&cluster, &remains);
            tracing::warn!(election = %entry.object.election(), "{note}");
            tell(entry, None, true, "NotHandedOver", "Follow", note, executor);
        }
        Announcement::Workload(id, change) => announce_workload(entry, &id, change, executor),
        Announcement::LockChanged { what } => {
            tracing::warn!(election = %entry.object.election(), "the lock was {what}, and lictor restores it");
            let note = format!("the lock was {what}, and lictor restores it under a new term");
            tell(entry, None, true, "LockChanged", "RestoreLock", note, executor);
        }
    }
}

/// Reports the workloads that a departing election leaves as they are.
pub(super) fn announce_left(entry: &Entry, left: &[WorkloadId], why: &Failure, executor: &Executor) {
    let names = left.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let note = format!("the election ends, but can't give back {names}, which stay as they are: {}", why.text());
    tracing::warn!(election = %entry.object.election(), "{note}");
    tell(entry, None, true, "WorkloadsLeft", "Release", note, executor);
}

fn announce_workload(entry: &Entry, id: &WorkloadId, change: WorkloadChange, executor: &Executor) {
    let disabled = match (id.kind, entry.workloads.cluster(), entry.spec().is_some_and(|spec| spec.shared.is_some())) {
        (WorkloadKind::Deployment | WorkloadKind::StatefulSet, None, false) => {
            format!("has 0 replicas, written by the election {}: no pod leads it", entry.object.name())
        }
        (_, None, false) => format!("is suspended by the election {}: no pod leads it", entry.object.name()),
        _ => format!("is disabled by the election {}: this cluster does not lead", entry.object.name()),
    };
    let (warning, reason, action, what) = match change {
        WorkloadChange::Enabled => (false, "WorkloadEnabled", "Enable", "is enabled: this cluster leads"),
        WorkloadChange::Disabled => (false, "WorkloadDisabled", "Disable", disabled.as_str()),
        WorkloadChange::Released => {
            (false, "WorkloadReleased", "Release", "is given back: it no longer follows the leader")
        }
        WorkloadChange::Contested => {
            (true, "WorkloadContested", "Restore", "was changed by another program, and lictor corrects it")
        }
        WorkloadChange::RunningDeleted => {
            (false, "JobsDeleted", "Disable", "is disabled, and lictor deletes its running Jobs")
        }
        WorkloadChange::Created => (false, "JobStarted", "Enable", "is created for the current term"),
        WorkloadChange::Deleted | WorkloadChange::Noted => return,
    };
    tracing::info!(election = %entry.object.election(), workload = %id, "{id} {what}");
    tell(entry, None, warning, reason, action, format!("{id} {what}"), executor);
}

/// Reports annotations that can't be read, once for each pod.
pub(super) fn announce_defects(entry: &mut Entry, pods: &[&Pod], executor: &Executor) {
    let no_rules = Rules::default();
    let rules = entry.spec().map_or(&no_rules, |spec| &spec.rules);
    let defects: Vec<_> = pods.iter().filter_map(|pod| Some((*pod, annotation_defect(pod, rules)?))).collect();
    let new = entry.history.renew_defects(defects.iter().map(|(pod, _)| pod.uid.clone()).collect());
    for (pod, defect) in defects.into_iter().filter(|(pod, _)| new.contains(&pod.uid)) {
        tracing::warn!(election = %entry.object.election(), pod = %pod.name, "{defect}");
        let note = format!("pod {}: {defect}", pod.name);
        tell_both(entry, &pod.name, &pod.uid, "MalformedAnnotation", "Elect", &note, executor);
    }
}

/// Reports that an election is refused, or that a write for it fails.
pub(super) fn announce_refusal(entry: &Entry, reason: &'static str, message: &str, executor: &Executor) {
    tracing::warn!(election = %entry.object.election(), reason, "{message}");
    tell(entry, None, true, reason, "Accept", message.into(), executor);
}

/// Reports why the leader can't be reached through its Service.
pub(super) fn announce_obstacle(entry: &Entry, reason: &'static str, message: String, executor: &Executor) {
    tracing::warn!(election = %entry.object.election(), reason, "{message}");
    tell(entry, None, true, reason, "Route", message, executor);
}

/// Reports that a Switchover of an election has failed.
pub(super) fn announce_failed_switchover(entry: &Entry, id: &SwitchoverId, message: &str, executor: &Executor) {
    let switchover = ObjectReference {
        kind: Some(Switchover::kind(&()).into_owned()),
        name: Some(id.name.clone()),
        uid: Some(id.uid.0.clone()),
        ..reference(entry)
    };
    let note = format!("the Switchover {} failed: {message}", id.name);
    tell(entry, Some(switchover), true, "SwitchoverFailed", "Switch", note, executor);
}

fn announce_transition(entry: &mut Entry, transition: Transition, executor: &Executor, wall: Timestamp) {
    let Transition { term, leader, previous, reason, took } = transition;
    let new = leader.as_ref().map(|leader| holder_name(&entry.object, leader));
    let before = previous.as_ref().map(|previous| holder_name(&entry.object, previous));
    let milliseconds = i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
    tracing::info!(
        election = %entry.object.election(), pod = new.as_deref().unwrap_or_default(), term = term.0, reason = reason.word(),
        previous = before.as_deref().unwrap_or_default(), took_ms = milliseconds, "{}",
        if leader.is_some() { "leader elected" } else { "there is no leader" }
    );
    let is_failover = previous.is_some() && leader.is_some() && is_loss(&reason);
    if is_failover {
        executor.metrics.observe_failover(took);
    }
    let change = HistoryEntry {
        term: term.0,
        leader_name: new,
        previous_leader_name: before,
        reason: reason.word().into(),
        completion_time: Some(Time(in_seconds(wall))),
        duration_milliseconds: milliseconds,
    };
    entry.history.add(change, || entry.object.last_status().history);
    tell_transition(
        entry,
        leader.as_ref(),
        previous.as_ref(),
        &reason,
        &format!("term {term}"),
        milliseconds,
        executor,
    );
}

fn tell_transition(
    entry: &Entry,
    leader: Option<&Holder>,
    previous: Option<&Holder>,
    reason: &Reason,
    term: &str,
    milliseconds: i64,
    executor: &Executor,
) {
    let why = why(entry, reason, previous);
    let instead =
        previous.map(|previous| format!(" instead of {}", told_holder(&entry.object, previous))).unwrap_or_default();
    if let Some(leader) = leader {
        let pod = leader.pod.as_ref().map(|pod| pod_reference(entry, pod, &leader.uid));
        let name = told_holder(&entry.object, leader);
        let note = format!("{name} is the leader{instead} in {term}, after {milliseconds} ms: {why}");
        tell(entry, pod.clone(), false, "Elected", "Promote", note, executor);
        // A group's first leader is reported only once, because ten thousand groups may be new at the same time.
        if let Some(regarding) = pod.filter(|_| previous.is_some()) {
            executor.tell(
                entry.object.id(),
                Event {
                    regarding,
                    related: Some(reference(entry)),
                    warning: false,
                    reason: "Elected",
                    action: "Promote",
                    note: format!("leader of {} in {term}: {why}", entry.object.name()),
                },
            );
        }
    } else {
        let pod = |previous: &Holder| Some(pod_reference(entry, previous.pod.as_ref()?, &previous.uid));
        let related = previous.and_then(pod);
        let note = match previous {
            Some(previous) => {
                format!("{} no longer leads, and no other candidate does: {why}", told_holder(&entry.object, previous))
            }
            None => format!("there is no leader: {why}"),
        };
        tell(entry, related, true, "NoLeader", "Demote", note, executor);
    }
    if let Some(previous) = previous
        && let Some(pod) = &previous.pod
    {
        executor.tell(
            entry.object.id(),
            Event {
                regarding: pod_reference(entry, pod, &previous.uid),
                related: Some(reference(entry)),
                warning: false,
                reason: "Demoted",
                action: "Demote",
                note: format!("no longer leader of {}: {why}", entry.object.name()),
            },
        );
    }
}

/// Why a leader changed, as half a sentence. For a failed probe, the text includes how often it failed, where it was sent, and the answer.
fn why(entry: &Entry, reason: &Reason, previous: Option<&Holder>) -> String {
    let why = describe(reason, previous);
    let probed = || {
        let times = entry.spec()?.probe.as_ref()?.rules.failure_threshold;
        let told = entry.probing.told(&previous?.uid)?;
        Some(format!("{why} {times} times in a row: {told}"))
    };
    let probed = (*reason == Reason::ProbeFailed(ProbeFailure::NoAnswer)).then(probed).flatten();
    probed.unwrap_or_else(|| why.into_owned())
}

fn is_loss(reason: &Reason) -> bool {
    matches!(reason, Reason::LeaderGone | Reason::LeaderUnfit(_) | Reason::ProbeFailed(_) | Reason::LockLost)
}

fn tell_both(
    entry: &Entry,
    pod: &str,
    uid: &Uid,
    reason: &'static str,
    action: &'static str,
    note: &str,
    executor: &Executor,
) {
    let pod = pod_reference(entry, pod, uid);
    tell(entry, Some(pod.clone()), true, reason, action, note.into(), executor);
    let related = Some(reference(entry));
    executor
        .tell(entry.object.id(), Event { regarding: pod, related, warning: true, reason, action, note: note.into() });
}

fn tell(
    entry: &Entry,
    related: Option<ObjectReference>,
    warning: bool,
    reason: &'static str,
    action: &'static str,
    note: String,
    executor: &Executor,
) {
    executor.tell(entry.object.id(), Event { regarding: reference(entry), related, warning, reason, action, note });
}

fn reference(entry: &Entry) -> ObjectReference {
    ObjectReference {
        api_version: Some(LeaderElection::api_version(&()).into_owned()),
        kind: Some(LeaderElection::kind(&()).into_owned()),
        namespace: Some(entry.object.election().namespace.to_string()),
        name: Some(entry.object.name().into()),
        uid: Some(entry.object.id().uid.0.clone()),
        ..ObjectReference::default()
    }
}

fn pod_reference(entry: &Entry, name: &str, uid: &Uid) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(entry.object.election().namespace.to_string()),
        name: Some(name.into()),
        uid: Some(uid.0.clone()),
        ..ObjectReference::default()
    }
}
