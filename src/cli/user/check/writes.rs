//! What the operator would write for a planned election: on its pods, and on other objects.

use std::collections::BTreeSet;

use lictor_api::{LeaderService, SharedClass};
use lictor_core::{
    DELETION_COST_ANNOTATION, ELECTION_ANNOTATION, Marking, Markings, Pairs, Pod, Setting, Stored, TERM_ANNOTATION,
    WorkloadId,
};

use super::plan::Plan;
use super::rivals::Rival;
use crate::cli::user::outlook::{Outlook, Sight};
use crate::cli::user::reading::Reader;
use crate::kubernetes::{ServiceDefect, ServiceObject, ServiceSelector, WorkloadObject};
use crate::wording::refusals;

/// So many names are listed.
const LISTED: usize = 5;

/// What the operator would write, in sentences.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// On the pods.
    pub(super) pods: Vec<String>,
    /// The values on pods that it would replace.
    pub(super) overwrites: Vec<String>,
    /// The Services whose selectors the labels concern.
    pub(super) selected_by: Vec<String>,
    /// The other objects that it would create or change.
    pub(super) objects: Vec<String>,
    /// What would keep clients from reaching the leader through spec.service.
    pub(super) troubles: Vec<String>,
    pub(super) unseen: Vec<String>,
}

impl Writes {
    /// Reads what is there. `pods`: the candidates that the operator would write to.
    pub(super) async fn of(
        reader: &Reader,
        plan: &Plan<'_>,
        sight: &Sight,
        outlook: &Outlook,
        rivals: &[Rival],
    ) -> Self {
        let alive = sight.pods.iter().flatten().filter(|pod| !pod.finished && !pod.deleting);
        let selects = |pod: &&Pod| plan.spec.cluster.is_none() && plan.spec.scope.selector.matches(&pod.labels);
        let (pods, left): (Vec<&Pod>, Vec<&Pod>) = alive.partition(selects);
        let mut writes = Self::default();
        let leader = outlook.winner.as_deref();
        let markings = &plan.spec.scope.markings;
        writes.pods = on_pods(markings, &pods, leader);
        let marked = left.iter().filter(|pod| pod.annotations.get(ELECTION_ANNOTATION) == Some(plan.name.as_str()));
        let marked: Vec<&str> = marked.map(|pod| pod.name.as_str()).collect();
        if !marked.is_empty() {
            writes.pods.push(format!(
                "all that it wrote on {} is taken off, because it selects them no more",
                listed(&marked)
            ));
        }
        writes.overwrites = overwrites(markings, &pods, leader, &plan.name);
        match reader.services(&plan.namespaces()).await {
            Ok(services) => writes.selected_by = selected_by(&services, markings, &pods, leader),
            Err(why) => writes.unseen.push(format!("the Services that select by these labels: {why}")),
        }
        writes.objects.push(lock(plan.spec.shared.as_ref(), sight, &plan.spec.key.name));
        if let Some(service) = plan.spec.service.as_deref() {
            match reader.service(&plan.namespace, &service.name).await {
                Ok(found) => writes.take_service(plan, service, found.as_ref(), rivals),
                Err(why) => writes.unseen.push(format!("the Service {}: {why}", service.name)),
            }
        }
        let ids: Vec<WorkloadId> = plan.spec.workloads.keys().cloned().collect();
        match reader.workloads(&plan.namespace, &ids).await {
            Ok(found) => writes.objects.extend(ids.iter().map(|id| workload(id, &found))),
            Err(why) => writes.unseen.push(format!("the workloads: {why}")),
        }
        let jobs = plan.spec.jobs.keys();
        writes.objects.extend(jobs.map(|name| format!("a Job whose name begins with {name}, for each term")));
        if let Some(service) = &plan.spec.consul_service {
            let text = format!(
                "the service {} in Consul's catalog: the leader's address, port {}",
                service.name, service.port
            );
            writes.objects.push(text);
        }
        writes
    }

    /// Takes the Service that the election names.
    fn take_service(
        &mut self,
        plan: &Plan<'_>,
        wanted: &LeaderService,
        found: Option<&ServiceObject>,
        rivals: &[Rival],
    ) {
        let (namespace, name) = (plan.namespace.as_str(), wanted.name.as_str());
        let trouble = match found {
            _ if let Some(other) = rivals.iter().find(|other| other.has_service(namespace, name)) => {
                Some(refusals::service_taken(name, &other.full_name()))
            }
            None if !wanted.is_created() => Some(refusals::service_missing(namespace, name)),
            Some(found) if let Err(defect) = &found.usable => Some(match defect {
                ServiceDefect::HasSelector => refusals::service_has_selector(namespace, name),
                ServiceDefect::ExternalName => refusals::service_is_external(name),
            }),
            Some(found) if wanted.is_created() && !found.fits(wanted) && found.election() != Some(&plan.name) => {
                Some(refusals::service_not_own(namespace, name))
            }
            None | Some(_) => None,
        };
        if let Some(trouble) = trouble {
            self.troubles.push(trouble);
            return;
        }
        let service = match found {
            None => format!("the Service {name}: created, without a selector"),
            Some(found) if found.election() == Some(&plan.name) => {
                format!("the Service {name}: kept as spec.service says")
            }
            Some(_) => format!("the Service {name}: stays as it is"),
        };
        let slices = format!(
            "the EndpointSlices {name}-lictor-ipv4 and {name}-lictor-ipv6, by the Service's families: the leader's address"
        );
        self.objects.extend([service, slices]);
    }
}

/// The labels and annotations, and on which pods.
fn on_pods(markings: &Markings, pods: &[&Pod], leader: Option<&str>) -> Vec<String> {
    let (leading, following): (Vec<&str>, Vec<&str>) =
        pods.iter().map(|pod| pod.name.as_str()).partition(|name| Some(*name) == leader);
    let mut lines = Vec::new();
    for (marking, names) in [(&markings.leader, &leading), (&markings.follower, &following)] {
        if !names.is_empty() {
            lines.extend(
                pairs(marking)
                    .into_iter()
                    .map(|(what, key, value)| format!("{what} {key}={value} on {}", listed(names))),
            );
        }
    }
    if pods.is_empty() {
        return lines;
    }
    let all: Vec<&str> = leading.iter().chain(&following).copied().collect();
    lines.push(format!("annotations {ELECTION_ANNOTATION} and {TERM_ANNOTATION} on {}", listed(&all)));
    let keeps_cost =
        |pod: &&&Pod| Some(pod.name.as_str()) == leader && !pod.annotations.contains_key(DELETION_COST_ANNOTATION);
    if let Some(pod) = pods.iter().find(keeps_cost) {
        lines.push(format!("annotation {DELETION_COST_ANNOTATION} on {}, so that a Deployment keeps it", pod.name));
    }
    if markings.holds && !leading.is_empty() {
        lines.push(format!("a finalizer on {}, until its end is known", listed(&leading)));
    }
    lines
}

/// The labels and annotations of a role: the kind, the key and the value.
fn pairs(marking: &Marking) -> Vec<(&'static str, String, String)> {
    let of = |what: &'static str, pairs: &Pairs| {
        pairs.iter().map(|(key, value)| (what, key.to_owned(), value.to_owned())).collect::<Vec<_>>()
    };
    [of("label", &marking.labels), of("annotation", &marking.annotations)].concat()
}

/// The values that are there, and that the election has not written.
fn overwrites(markings: &Markings, pods: &[&Pod], leader: Option<&str>, election: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for pod in pods.iter().filter(|pod| pod.annotations.get(ELECTION_ANNOTATION) != Some(election)) {
        let marking = if Some(pod.name.as_str()) == leader { &markings.leader } else { &markings.follower };
        for (what, key, value) in pairs(marking) {
            let present = if what == "label" { pod.labels.get(&key) } else { pod.annotations.get(&key) };
            let Some(present) = present else { continue };
            let then = if markings.replaces {
                "lictor keeps the value, and restores it later"
            } else {
                "lictor takes it over"
            };
            lines.push(if present == value {
                format!("{what} {key}={present} is on {} already; {then}", pod.name)
            } else {
                format!("{what} {key}={present} on {} becomes {value}; {then}", pod.name)
            });
        }
    }
    lines
}

/// The Services that select by a label which the election writes, and which candidates they reach.
fn selected_by(services: &[ServiceSelector], markings: &Markings, pods: &[&Pod], leader: Option<&str>) -> Vec<String> {
    let keys: BTreeSet<&str> = markings.label_keys().collect();
    let with = |pod: &Pod| {
        let leads = Some(pod.name.as_str()) == leader;
        let (marking, other) =
            if leads { (&markings.leader, &markings.follower) } else { (&markings.follower, &markings.leader) };
        let mut labels: std::collections::BTreeMap<String, String> =
            pod.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        other.labels.iter().for_each(|(key, _)| drop(labels.remove(key)));
        labels.extend(marking.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())));
        labels
    };
    let mut lines = Vec::new();
    for ServiceSelector { name, selector, .. } in
        services.iter().filter(|one| one.selector.keys().any(|key| keys.contains(key.as_str())))
    {
        let now: Vec<&str> = pods
            .iter()
            .filter(|pod| selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value)))
            .map(|pod| pod.name.as_str())
            .collect();
        let then: Vec<&str> = pods
            .iter()
            .filter(|pod| {
                let labels = with(pod);
                selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            })
            .map(|pod| pod.name.as_str())
            .collect();
        if !now.is_empty() || !then.is_empty() {
            let words: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let reaches = if now == then {
                format!("reaches {}", listed(&now))
            } else {
                format!("reaches {} of these pods now, and then {}", listed(&now), listed(&then))
            };
            lines.push(format!("the Service {name} ({}) {reaches}", words.join(",")));
        }
    }
    lines
}

/// Where the lock is, and whether it is there.
fn lock(shared: Option<&SharedClass>, sight: &Sight, key: &str) -> String {
    if let Some(shared) = shared {
        return format!("the lock {key} in {}, which is not visible from here", shared.place());
    }
    match &sight.lock {
        Some(Ok(Stored::Absent)) => format!("the Lease {key}: created"),
        Some(Ok(Stored::Ours(_, record))) => format!("the Lease {key}: there already, at the term {}", record.term),
        Some(Ok(Stored::Damaged(..))) => format!("the Lease {key}: written anew, because its record was edited"),
        Some(Ok(Stored::Foreign(what))) => format!("the Lease {key}: not written: {what}"),
        Some(Ok(Stored::HeldByOther(..) | Stored::Free(..)) | Err(_)) | None => format!("the Lease {key}"),
    }
}

fn workload(id: &WorkloadId, found: &[WorkloadObject]) -> String {
    match found.iter().find(|object| object.id == *id).map(|object| object.setting) {
        None => format!("{id}: does not exist yet"),
        Some(Setting::Suspend(suspend)) => format!("{id}: runs only where the leader is (suspend is {suspend} now)"),
        Some(Setting::Replicas(replicas)) => format!("{id}: runs only where the leader is ({replicas} replicas now)"),
    }
}

/// Some names, and the number of the others.
pub(super) fn listed(names: &[&str]) -> String {
    match names {
        [] => "none".into(),
        [only] => (*only).to_owned(),
        [first @ .., last] if names.len() <= LISTED => format!("{} and {last}", first.join(", ")),
        _ => format!("{} and {} more", names[..LISTED - 1].join(", "), names.len() - LISTED + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, labels: &[(&'static str, &'static str)]) -> Pod {
        let labels = [("app", "web")].iter().chain(labels).copied().collect();
        Pod { name: name.into(), labels, ..Pod::default() }
    }

    fn markings(replaces: bool) -> Markings {
        let marking = |role: &'static str| Marking {
            labels: [("role", role)].into_iter().collect(),
            annotations: Pairs::default(),
        };
        Markings { holds: false, leader: marking("leader"), follower: marking("follower"), replaces }
    }

    #[test]
    fn each_label_is_named_with_its_pods() {
        let pods = [pod("a", &[]), pod("b", &[]), pod("c", &[])];
        let pods: Vec<&Pod> = pods.iter().collect();
        assert_eq!(
            on_pods(&markings(false), &pods, Some("b")),
            [
                "label role=leader on b",
                "label role=follower on a and c",
                "annotations lictor.dev/election and lictor.dev/term on b, a and c",
                "annotation controller.kubernetes.io/pod-deletion-cost on b, so that a Deployment keeps it",
            ]
        );
        assert_eq!(on_pods(&markings(false), &[], None), [""; 0]);
    }

    #[test]
    fn values_that_are_there_are_overwritten_or_taken_over() {
        let mut own = pod("own", &[("role", "follower")]);
        own.annotations.insert(ELECTION_ANNOTATION.into(), "web".into());
        let pods = [pod("a", &[("role", "backend")]), pod("b", &[("role", "follower")]), pod("c", &[]), own];
        let pods: Vec<&Pod> = pods.iter().collect();
        assert_eq!(
            overwrites(&markings(true), &pods, Some("a"), "web"),
            [
                "label role=backend on a becomes leader; lictor keeps the value, and restores it later",
                "label role=follower is on b already; lictor keeps the value, and restores it later",
            ]
        );
    }

    #[test]
    fn services_by_the_label_are_named_with_whom_they_reach() {
        let service = |name: &str, selector: &[(&str, &str)]| ServiceSelector {
            namespace: "shop".into(),
            name: name.into(),
            selector: selector.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        };
        let pods = [pod("a", &[("role", "backend")]), pod("b", &[])];
        let pods: Vec<&Pod> = pods.iter().collect();
        let services = [
            service("all", &[("app", "web")]),
            service("leads", &[("app", "web"), ("role", "leader")]),
            service("old", &[("role", "backend")]),
            service("others", &[("app", "db"), ("role", "leader")]),
        ];
        assert_eq!(
            selected_by(&services, &markings(true), &pods, Some("a")),
            [
                "the Service leads (app=web,role=leader) reaches none of these pods now, and then a",
                "the Service old (role=backend) reaches a of these pods now, and then none",
            ]
        );
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(listed(&["a", "b", "c", "d", "e"]), "a, b, c, d and e");
        assert_eq!(listed(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
    }
}
