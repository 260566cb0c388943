//! Elections that wait for each other for ever: the workloads of each make the candidates of the next, and the last one's workloads make
//! those of the first. Once none of them has a leader, all these workloads are switched off, and no leader can come. The shortest such
//! circle is an election whose workloads make its own candidates. W11.

use std::collections::{BTreeMap, BTreeSet};

use lictor_api::{JobTemplate, Refusal};
use lictor_core::{Pairs, Pod, WorkloadId, WorkloadKind};

use super::mentions::Mention;
use super::objects::Content;
use crate::controller::entry::Entry;
use crate::controller::lookup::{circle, reached};
use crate::controller::object::CIRCULAR_WORKLOADS;
use crate::kubernetes::WorkloadObject;
use crate::wording::refusals::makes_own_candidates;

/// Why an election is refused if its workloads are part of a circle. `wins`: whether another election goes before this one. The last
/// election of each circle is refused.
pub(super) fn circular(content: &Content, entry: &Entry, wins: impl Fn(&Entry) -> bool) -> Option<Refusal> {
    if !names_workloads(entry) {
        return None;
    }
    let start = entry.object.name().to_owned();
    let goes_on = |other: &String| {
        *other == start || content.elections.get(other).is_some_and(|other| names_workloads(other) && wins(other))
    };
    let parts = circle(&start, |name| makes(content, name).into_keys().filter(goes_on).collect())?;
    let steps = parts.iter().zip(parts.iter().cycle().skip(1)).map(|(election, next)| {
        let workload = makes(content, election).remove(next).unwrap_or_default();
        (election, workload, next)
    });
    let message = if parts.len() == 1 {
        let workload = makes(content, &start).remove(&start).unwrap_or_default();
        makes_own_candidates(&workload)
    } else {
        let steps: Vec<String> = steps
            .map(|(election, workload, next)| format!("{election} has {workload}, which makes candidates of {next}"))
            .collect();
        format!(
            "the workloads of {} elections form a circle: {}. Without leaders, lictor would disable all of them, and no candidate \
             would be left to elect: take one of them out of spec.workloads",
            parts.len(),
            steps.join("; ")
        )
    };
    Some(Refusal { reason: CIRCULAR_WORKLOADS, message })
}

/// The elections whose candidates depend on the workloads of an election, directly or through others.
pub(super) fn depending(content: &Content, election: &str) -> BTreeSet<String> {
    let goes_on = |name: &String| content.elections.get(name).is_some_and(|entry| names_workloads(entry));
    reached(&election.to_owned(), |name| makes(content, name).into_keys().filter(goes_on).collect())
}

/// The same, if one of the candidates may have made the election depend on others, or stop depending on them.
pub(super) fn depending_by(content: &Content, entry: &Entry, pod: &Pod) -> BTreeSet<String> {
    let is_made = || maker(pod).is_none_or(|id| content.mentions.by(&Mention::Workload(id)).next().is_some());
    if names_workloads(entry) && is_made() { depending(content, entry.object.name()) } else { BTreeSet::new() }
}

/// The elections whose candidates an election's workloads make, with the workload.
fn makes(content: &Content, election: &str) -> BTreeMap<String, String> {
    let Some(entry) = content.elections.get(election) else { return BTreeMap::new() };
    let Some(spec) = entry.spec() else { return BTreeMap::new() };
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for id in spec.workloads.keys() {
        let gates =
            content.mentions.by(&Mention::Followed(id.clone())).filter(|name| is_gate(content, name, id)).cloned();
        let object = content.workloads.get(id);
        let made = object.map(|object| made_by(content, object)).unwrap_or_default();
        found.extend(gates.chain(made).map(|name| (name, id.to_string())));
    }
    for (name, template) in &spec.jobs {
        let jobs = content.workloads.owned_by(&entry.object.id().uid);
        let jobs = jobs.filter(|job| job.template.as_ref() == Some(name)).flat_map(|job| made_by(content, job));
        let made = selected_by(content, &labels_of(template)).chain(jobs);
        found.extend(made.map(|other| (other, format!("Job/{name} (a jobTemplate)"))));
    }
    found
}

/// The elections whose candidates a workload makes, according to its template and to its pods, whose labels may differ by now.
fn made_by(content: &Content, object: &WorkloadObject) -> BTreeSet<String> {
    let jobs = content.workloads.owned_by(&object.uid).filter(|_| object.id.kind == WorkloadKind::CronJob);
    let sources = [object].into_iter().chain(jobs);
    let pods = sources.flat_map(|source| {
        let pods = content.labels.pods_of(&source.selector, &content.pods).into_iter();
        pods.filter(|pod| source.selector.matches(&pod.labels) && maker(pod).is_none_or(|id| id == source.id))
    });
    let by_pods = pods.flat_map(|pod| content.selecting(&pod.name)).cloned();
    let mut labels = object.pod_labels.clone();
    labels.extend(given(object.id.kind).iter().map(|key| (*key, "")));
    selected_by(content, &labels).chain(by_pods).collect()
}

/// The elections whose selectors match these labels.
fn selected_by<'a>(content: &'a Content, labels: &Pairs) -> impl Iterator<Item = String> + use<'a> {
    let pod = Pod { labels: labels.clone(), ..Pod::default() };
    let may: BTreeSet<String> = content.labels.elections_of(&pod).cloned().collect();
    may.into_iter().filter(move |name| {
        let spec = content.elections.get(name).and_then(|entry| entry.spec());
        spec.is_some_and(|spec| spec.scope.selector.matches(&pod.labels))
    })
}

/// Whether a Deployment has to be available before an election's cluster may lead.
fn is_gate(content: &Content, election: &str, id: &WorkloadId) -> bool {
    let entry = content.elections.get(election);
    let gate = entry.and_then(|entry| entry.object.available_deployment());
    id.kind == WorkloadKind::Deployment && gate == Some(&id.name)
}

fn names_workloads(entry: &Entry) -> bool {
    entry.spec().is_some_and(|spec| !spec.workloads.is_empty() || !spec.jobs.is_empty())
}

/// The Deployment or StatefulSet that made a pod; `None` if the pod does not say.
fn maker(pod: &Pod) -> Option<WorkloadId> {
    let owner = pod.owner.as_ref()?;
    let deployment = owner.strip_prefix("ReplicaSet/").and_then(|name| name.strip_suffix('-'));
    let of_kind = |kind| move |name: &str| WorkloadId { kind, name: name.into() };
    deployment
        .map(of_kind(WorkloadKind::Deployment))
        .or_else(|| owner.strip_prefix("StatefulSet/").map(of_kind(WorkloadKind::StatefulSet)))
}

/// The labels that a workload's controllers add to those of its template. Only the pods show their values.
fn given(kind: WorkloadKind) -> &'static [&'static str] {
    match kind {
        WorkloadKind::Deployment => &["pod-template-hash"],
        WorkloadKind::StatefulSet => &["controller-revision-hash", "statefulset.kubernetes.io/pod-name"],
        WorkloadKind::Job | WorkloadKind::CronJob => {
            &["batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"]
        }
    }
}

/// The labels of a Job's pods, according to its template.
fn labels_of(template: &JobTemplate) -> Pairs {
    let pod = template.spec.get("template").and_then(|template| template.get("metadata"));
    let labels = pod.and_then(|metadata| metadata.get("labels")?.as_object());
    let text = |(name, value): (&String, &serde_json::Value)| Some((name.clone(), value.as_str()?.to_owned()));
    labels.into_iter().flatten().filter_map(text).collect()
}
