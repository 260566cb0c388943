//! The part of a status about the workloads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use lictor_api::{WORKLOADS_FOLLOW, WorkloadState, WorkloadStatus, WorkloadsStatus, condition, unknown};
use lictor_core::{Election, Instant, Wish, Workload, WorkloadKind};

use crate::controller::entry::Entry;

/// The states of the workloads, if they are known, and their condition; `None` if the election has none.
pub(crate) fn told(entry: &Entry, group: &Election, now: Instant) -> Option<(Option<WorkloadsStatus>, Condition)> {
    let (spec, known) = (entry.spec()?, &entry.workloads);
    if spec.workloads.is_empty() && spec.jobs.is_empty() {
        return None;
    }
    let Some(workloads) = known.shown() else {
        let message = "the workloads have not been read yet";
        return Some((None, unknown(WORKLOADS_FOLLOW, "NotReadYet", message, entry.object.generation())));
    };
    let mut items = Vec::new();
    for id in spec.workloads.keys() {
        let found = workloads.iter().find(|workload| workload.id == *id);
        let forbidden = known.forbidden().contains_key(&id.kind);
        let state = match found {
            _ if forbidden || group.workload_failures().contains_key(id) => WorkloadState::Failing,
            None => WorkloadState::Missing,
            Some(workload) => state(workload, group, entry.object.name(), now),
        };
        items.push(WorkloadStatus { kind: id.kind.into(), name: id.name.clone(), state });
    }
    for plan in known.jobs() {
        let of = |workload: &&Workload| match workload.wish {
            Wish::FollowTerm(term) => plan.job(term) == workload.id,
            Wish::Follow { .. } | Wish::Delete | Wish::Release { .. } | Wish::Stay => false,
        };
        if let Some(job) = workloads.iter().filter(of).max_by_key(|job| job.version) {
            let failing = group.workload_failures().contains_key(&job.id);
            let state = if failing { WorkloadState::Failing } else { state(job, group, entry.object.name(), now) };
            items.push(WorkloadStatus { kind: job.id.kind.into(), name: job.id.name.clone(), state });
        }
    }
    let condition = follow(entry, group, &items, now);
    Some((Some(WorkloadsStatus { wind_down_seconds: known.wind_down(), items }), condition))
}

fn state(workload: &Workload, group: &Election, election: &str, now: Instant) -> WorkloadState {
    let enabled = workload.claim.as_ref().is_some_and(|claim| claim.enabled && claim.election == election);
    match (enabled, group.leader().is_some() || group.absent().is_some()) {
        _ if workload.finished => WorkloadState::Finished,
        _ if workload.wish == Wish::Stay => WorkloadState::Untouched,
        (true, true) => WorkloadState::Enabled,
        (false, true) if group.workloads_wait(now).is_some() => WorkloadState::Waiting,
        _ if workload.remains => WorkloadState::WindingDown,
        _ => WorkloadState::Disabled,
    }
}

fn follow(entry: &Entry, group: &Election, items: &[WorkloadStatus], now: Instant) -> Condition {
    let told = |holds: bool, reason: &str, message: String| {
        condition(WORKLOADS_FOLLOW, holds, reason, message, entry.object.generation())
    };
    if let Some(failure) = entry.workloads.forbidden().values().next() {
        return told(false, "Forbidden", failure.text().into());
    }
    if let Some((id, failure)) = group.workload_failures().iter().next() {
        let reason = if failure.is_forbidden() { "Forbidden" } else { "WriteFails" };
        return told(false, reason, format!("{id}: the operator keeps trying: {}", failure.text()));
    }
    let among = |state: WorkloadState| {
        let names = items.iter().filter(move |item| item.state == state);
        let names: Vec<String> = names.map(|item| format!("{:?}/{}", item.kind, item.name)).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    if let Some(names) = among(WorkloadState::Missing) {
        return told(
            false,
            "Missing",
            format!("there is no {names} in this namespace: create it, or take it out of spec.workloads"),
        );
    }
    if let Some(names) = among(WorkloadState::Untouched) {
        let message = format!(
            "{names}: left unchanged, because spec.selector of the election {} has never matched a pod: check \
             spec.selector against the pods' labels",
            entry.object.name()
        );
        return told(false, "NeverMatched", message);
    }
    if let Some(id) = group.contested_workloads(now).next() {
        let who = entry.workloads.setter(id).map_or_else(|| "another program".into(), |setter| format!("{setter:?}"));
        let field = match id.kind {
            WorkloadKind::Deployment | WorkloadKind::StatefulSet => "spec.replicas",
            WorkloadKind::CronJob | WorkloadKind::Job => "spec.suspend",
        };
        let message = format!(
            "{who} keeps setting {field} of {id} to another value, and lictor keeps correcting it: remove the field \
             from the manifest, or make {who} ignore it"
        );
        return told(false, "Contested", message);
    }
    if let Some(names) = among(WorkloadState::Waiting) {
        let seconds = group
            .record()
            .and_then(|record| record.drain_obligation.as_ref())
            .map_or(0, |obligation| obligation.waits_seconds);
        let message = format!(
            "{names}: enabled at most {seconds} s after the other cluster lost the lock without releasing it, because \
             its workloads may take that long to end"
        );
        return told(false, "Waiting", message);
    }
    if let Some(names) = among(WorkloadState::WindingDown) {
        return told(false, "WindingDown", format!("{names}: disabled, and its last pods are ending"));
    }
    told(true, "Follow", "the workloads are as the leadership requires".into())
}
