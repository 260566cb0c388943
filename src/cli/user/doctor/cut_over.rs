//! The way of a Service from all pods of an election to only the leader, and back: in each state, the one command that
//! comes next. docs/routing.md follows the same way.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use kube::ResourceExt;
use lictor_api::{LeaderElection, ROUTED};
use lictor_core::{Pod, Scope};
use serde_json::json;

use super::finding::Finding;
use crate::cli::user::reading::{condition, conditions, full_name};
use crate::kubernetes::{NamedBySlice, ServiceSelector, SliceWriter};

type Labels = BTreeMap<String, String>;

/// An election with the pods that it is about.
pub(super) struct Group<'a> {
    pub(super) election: &'a LeaderElection,
    pub(super) scope: Scope,
}

/// The surroundings of the Services of a namespace.
pub(super) struct Surroundings {
    pub(super) pods: Vec<Pod>,
    /// Empty if no Service has slices of lictor, or may have some.
    pub(super) slices: Vec<NamedBySlice>,
    /// Whether there are elections whose labels are unknown.
    pub(super) unread: bool,
}

impl Group<'_> {
    /// The Service that the election names for its slices.
    pub(super) fn routed_by(&self) -> Option<&str> {
        self.election.spec.service.as_ref().map(|service| service.name.as_str())
    }

    /// The leader in this cluster, according to the operator.
    pub(super) fn leader(&self) -> Option<String> {
        let leader = self.election.status.as_ref()?.leader.as_ref()?.pod_name.clone();
        leader.filter(|_| !self.is_led_elsewhere())
    }

    /// Whether a Service selects one of the labels that distinguish the leader from the others.
    pub(super) fn is_asked_for(&self, service: &ServiceSelector) -> bool {
        self.labels().iter().any(|(key, value)| service.selector.get(key) == Some(value))
    }

    fn is_led_elsewhere(&self) -> bool {
        conditions(self.election).any(|condition| condition.reason == "LedElsewhere")
    }

    /// The labels that distinguish the leader from the others.
    fn labels(&self) -> Labels {
        let markings = &self.scope.markings;
        let own = markings.leader.labels.iter().filter(|(key, value)| markings.follower.labels.get(key) != Some(value));
        own.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn candidates<'p>(&self, pods: &'p [Pod]) -> Vec<&'p Pod> {
        pods.iter().filter(|pod| self.scope.selector.matches(&pod.labels) && !pod.finished).collect()
    }

    /// The pod that carries the leader's labels.
    fn labelled<'p>(&self, pods: &'p [Pod]) -> Option<&'p Pod> {
        let labels = self.labels();
        let carries = |pod: &&Pod| labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value));
        self.candidates(pods).into_iter().find(carries)
    }

    /// Whether a Service selects the leader of this group, even if there is none at present.
    fn is_for_leader(&self, service: &ServiceSelector, pods: &[Pod]) -> bool {
        self.is_asked_for(service) && self.would_reach_all(service, pods)
    }

    /// Whether a Service would reach all candidates without the leader's labels in its selector.
    fn would_reach_all(&self, service: &ServiceSelector, pods: &[Pod]) -> bool {
        let labels = self.labels();
        let rest = service.selector.iter().filter(|(key, value)| labels.get(*key) != Some(value));
        let selector: Labels = rest.map(|(key, value)| (key.clone(), value.clone())).collect();
        let fits = |pod: &&Pod| selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value));
        let candidates = self.candidates(pods);
        !service.selector.is_empty() && !candidates.is_empty() && candidates.iter().all(fits)
    }
}

/// Returns the next step for the Service of a group, and the Service's name. `None`: the Service has arrived, or the
/// next step can't be known from here.
pub(super) fn next_step(
    group: &Group,
    services: &[ServiceSelector],
    around: &Surroundings,
) -> Option<(String, Finding)> {
    let found = match group.routed_by() {
        Some(name) => {
            let service = services.iter().find(|service| service.name == name)?;
            let finding = if service.selector.is_empty() {
                follows_nobody(group, service, around)
            } else {
                has_selector(group, service, around)
            };
            finding.map(|finding| (service, finding))
        }
        None => services.iter().find_map(|service| Some((service, by_label(group, service, services, around)?))),
    };
    found.map(|(service, finding)| (service.name.clone(), finding))
}

/// The next step for a Service and an election that names none.
fn by_label(
    group: &Group,
    service: &ServiceSelector,
    services: &[ServiceSelector],
    around: &Surroundings,
) -> Option<Finding> {
    let ServiceSelector { namespace, name, selector } = service;
    let (pods, election) = (&around.pods, group.election.name_any());
    let candidates = group.candidates(pods);
    if group.is_for_leader(service, pods) {
        let never_led = group.election.status.as_ref().and_then(|status| status.term).is_none();
        return (never_led && group.labelled(pods).is_none()).then(|| {
            Finding::wrong(format!(
                "the Service {namespace}/{name} reaches no pod: it selects {}, and the election {election} has had no \
                 leader yet. Until it has one, let the Service reach all pods: {}",
                listed(&group.labels()),
                take_off(service, &group.labels())
            ))
        });
    }
    if selector.is_empty() {
        let left = |slice: &&NamedBySlice| slice.service == *name && slice.writer == SliceWriter::Kubernetes;
        let named = around.slices.iter().filter(left).flat_map(|slice| &slice.pods);
        let stale: Vec<&str> =
            named.map(String::as_str).filter(|pod| candidates.iter().any(|one| one.name == *pod)).collect();
        return (!stale.is_empty()).then(|| {
            let spec = json!({"spec": {"service": {"name": name}}});
            Finding::wrong(format!(
                "the Service {namespace}/{name} has no selector, and the endpoints that Kubernetes wrote while it had \
                 one still list {}, whichever pod leads. To make it follow the leader: kubectl -n {namespace} patch le \
                 {election} --type=merge -p '{spec}'",
                stale.join(", ")
            ))
        });
    }
    if candidates.len() < 2
        || !candidates.iter().all(|pod| selects(service, pod))
        || services.iter().any(|one| group.is_for_leader(one, pods))
    {
        return None;
    }
    let all = format!(
        "the Service {namespace}/{name} reaches all {} candidates of the election {election}, and no Service reaches \
         only its leader.",
        candidates.len()
    );
    Some(Finding::note(if group.labelled(pods).is_some() || group.is_led_elsewhere() {
        format!("{all} If this Service should: {}", add(service, &group.labels()))
    } else {
        format!(
            "{all} No pod carries {} yet: kubectl lictor explain {election} -n {namespace}",
            listed(&group.labels())
        )
    }))
}

/// The next step if the election's Service has a selector.
fn has_selector(group: &Group, service: &ServiceSelector, around: &Surroundings) -> Option<Finding> {
    let ServiceSelector { namespace, name, .. } = service;
    // The operator reports any other obstacle.
    condition(group.election, ROUTED).filter(|routed| routed.reason == "ServiceHasSelector")?;
    let election = full_name(group.election);
    let what = format!("the Service {namespace}/{name}, which the election {election} names, has a selector");
    let leader = group.labelled(&around.pods);
    if !group.is_asked_for(service) {
        return Some(Finding::wrong(if leader.is_some() {
            format!(
                "{what}, and reaches all pods that it matches. First let it reach only the leader: {}",
                add(service, &group.labels())
            )
        } else {
            let election = group.election.name_any();
            format!("{what}, and there is no leader yet: kubectl lictor explain {election} -n {namespace}")
        }));
    }
    let leader = leader?;
    let alone = |writer| {
        let of = |slice: &&NamedBySlice| slice.service == *name && slice.writer == writer;
        let mut named = around.slices.iter().filter(of).flat_map(|slice| &slice.pods).peekable();
        named.peek().is_some() && named.all(|pod| *pod == leader.name)
    };
    if !alone(SliceWriter::Kubernetes) {
        return Some(Finding::wrong(format!(
            "{what}, and Kubernetes has not yet narrowed its endpoints to {}: check again in a moment",
            leader.name
        )));
    }
    let off = remove("service", service, &["/spec/selector".into()]);
    Some(Finding::wrong(if alone(SliceWriter::Lictor) {
        let election = ServiceSelector { name: group.election.name_any(), ..service.clone() };
        let back = remove("le", &election, &["/spec/service".into()]);
        format!("{what} again. To return to the label: {back}. If the selector is a mistake: {off}")
    } else {
        format!("{what}, so Kubernetes writes its endpoints. Let lictor write them: {off}")
    }))
}

/// The next step if the election's Service has no selector, and its old slices still list another pod than the leader.
/// Deleting them would leave the Service without endpoints for a moment. With its selector, Kubernetes corrects them.
fn follows_nobody(group: &Group, service: &ServiceSelector, around: &Surroundings) -> Option<Finding> {
    let ServiceSelector { namespace, name, .. } = service;
    let leader = group.labelled(&around.pods)?;
    let named = |writer| {
        let of = move |slice: &&NamedBySlice| slice.service == *name && slice.writer == writer;
        around.slices.iter().filter(of).flat_map(|slice| &slice.pods)
    };
    let others: Vec<&str> =
        named(SliceWriter::Kubernetes).filter(|pod| **pod != leader.name).map(String::as_str).collect();
    if others.is_empty() || named(SliceWriter::Lictor).next().is_some() {
        return None;
    }
    let mut selector = Labels::from(&group.scope.selector.match_labels);
    if selector.is_empty() || !group.scope.selector.match_expressions.is_empty() {
        return None;
    }
    selector.extend(group.labels());
    Some(Finding::wrong(format!(
        "the Service {namespace}/{name} reaches {}, because Kubernetes wrote its endpoints while it had a selector, \
         but {} leads now. Restore the selector: {}",
        others.join(", "),
        leader.name,
        add(service, &selector)
    )))
}

/// Whether a Service selects the leader's label that elections write by default.
pub(super) fn asks_by_default(service: &ServiceSelector) -> bool {
    service.selector.get("role").is_some_and(|role| role == "leader")
}

/// Returns the finding for a Service if no election of its namespace writes a label that it selects.
pub(super) fn without_election(service: &ServiceSelector, pods: &[Pod]) -> Option<Finding> {
    (asks_by_default(service) && !pods.iter().any(|pod| selects(service, pod))).then(|| {
        let labels = Labels::from([("role".to_owned(), "leader".to_owned())]);
        let ServiceSelector { namespace, name, .. } = service;
        Finding::note(format!(
            "the Service {namespace}/{name} selects {} and reaches no pod, because no election in {namespace} writes \
             that label. Create one; until it has a leader, let the Service reach all pods: {}",
            listed(&labels),
            take_off(service, &labels)
        ))
    })
}

/// Whether a Service selects a pod.
pub(super) fn selects(service: &ServiceSelector, pod: &Pod) -> bool {
    !pod.finished
        && !service.selector.is_empty()
        && service.selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
}

/// The command that adds labels to the selector of a Service.
fn add(ServiceSelector { namespace, name, .. }: &ServiceSelector, labels: &Labels) -> String {
    format!("kubectl -n {namespace} patch service {name} -p '{}'", json!({"spec": {"selector": labels}}))
}

/// The command that takes labels off the selector of a Service.
fn take_off(service: &ServiceSelector, labels: &Labels) -> String {
    let keys = labels.keys().filter(|key| service.selector.contains_key(*key));
    let paths: Vec<String> =
        keys.map(|key| format!("/spec/selector/{}", key.replace('~', "~0").replace('/', "~1"))).collect();
    remove("service", service, &paths)
}

/// The command that removes fields of an object in the namespace of a Service.
fn remove(kind: &str, ServiceSelector { namespace, name, .. }: &ServiceSelector, paths: &[String]) -> String {
    let operations: Vec<_> = paths.iter().map(|path| json!({"op": "remove", "path": path})).collect();
    format!("kubectl -n {namespace} patch {kind} {name} --type=json -p '{}'", json!(operations))
}

fn listed(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}
