//! Checks that Services that select a leader's label reach a leader, and reports the next step for those that are being
//! moved.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use lictor_api::{ACCEPTED, Classes, LeaderElection};
use lictor_core::{Pod, Selector};

use super::cut_over::{Group, Surroundings, asks_by_default, next_step, selects, without_election};
use super::finding::Finding;
use crate::cli::user::outlook::read;
use crate::cli::user::reading::{Reader, condition, full_name};
use crate::kubernetes::{Namespaces, ServiceSelector};

/// The findings about Services.
#[derive(Default)]
pub(super) struct Checked {
    pub(super) findings: Vec<Finding>,
    /// The elections for which a finding says what to do about their Service.
    pub(super) explained: BTreeSet<String>,
}

/// Checks the Services in the namespaces that have elections, and Services elsewhere that select a leader's label.
pub(super) async fn check(reader: &Reader, namespaces: &Namespaces, elections: &[LeaderElection]) -> Checked {
    let classes = reader.classes().await.unwrap_or_default();
    let (groups, unread) = by_namespace(elections, &classes);
    let mut checked = Checked::default();
    let services = match reader.services(namespaces).await {
        Ok(services) => services,
        Err(why) => {
            checked.findings.push(Finding::unseen(format!("the Services were not checked: {why}")));
            return checked;
        }
    };
    let mut well = 0;
    for (namespace, services) in &in_namespaces(services) {
        let groups = groups.get(namespace).map_or(&[][..], Vec::as_slice);
        // Other problems of a namespace do not concern lictor.
        if groups.is_empty() && !services.iter().any(asks_by_default) {
            continue;
        }
        match surroundings(reader, namespace, groups, services).await {
            Ok(around) => {
                let around = Surroundings { unread: unread.contains(namespace), ..around };
                well += check_namespace(groups, services, &around, &mut checked);
            }
            Err(why) => {
                let why = format!("the Services of {namespace} were not checked: {why}");
                checked.findings.push(Finding::unseen(why));
            }
        }
    }
    if well > 0 || checked.findings.is_empty() {
        let text = format!("{well} Services that select a leader's label reach at most one pod");
        checked.findings.push(Finding::ok(text));
    }
    checked
}

/// Reads the surroundings of the Services of a namespace.
async fn surroundings(
    reader: &Reader,
    namespace: &str,
    groups: &[Group<'_>],
    services: &[ServiceSelector],
) -> Result<Surroundings, String> {
    let pods = reader.pods(namespace, &Selector::default()).await?;
    let by_slices =
        groups.iter().any(|group| group.routed_by().is_some()) || services.iter().any(|one| one.selector.is_empty());
    let slices = if by_slices { reader.slices(namespace).await? } else { Vec::new() };
    Ok(Surroundings { pods, slices, unread: false })
}

/// Returns how many Services reach only a leader, as they should.
fn check_namespace(
    groups: &[Group<'_>],
    services: &[ServiceSelector],
    around: &Surroundings,
    checked: &mut Checked,
) -> usize {
    let mut well = 0;
    // While a group is being moved to another Service, one finding says what comes next.
    let mut moving = BTreeSet::new();
    let mut steps = Vec::new();
    for group in groups {
        if let Some((service, step)) = next_step(group, services, around) {
            moving.insert(service);
            checked.explained.insert(full_name(group.election));
            steps.push(step);
        }
    }
    for service in services.iter().filter(|service| !moving.contains(&service.name)) {
        let meant: Vec<&Group> = groups.iter().filter(|group| group.is_asked_for(service)).collect();
        let reached: Vec<&Pod> = around.pods.iter().filter(|pod| selects(service, pod)).collect();
        if meant.is_empty() {
            checked.findings.extend(without_election(service, &around.pods).filter(|_| !around.unread));
            continue;
        }
        match misses(service, &meant, &reached) {
            Some(finding) => checked.findings.push(finding),
            None => well += 1,
        }
    }
    checked.findings.append(&mut steps);
    well
}

fn in_namespaces(services: Vec<ServiceSelector>) -> BTreeMap<String, Vec<ServiceSelector>> {
    let mut found: BTreeMap<String, Vec<ServiceSelector>> = BTreeMap::new();
    for service in services {
        found.entry(service.namespace.clone()).or_default().push(service);
    }
    found
}

/// Returns the elections of each namespace that lead pods, and the namespaces that have others.
fn by_namespace<'a>(
    elections: &'a [LeaderElection],
    classes: &Classes,
) -> (BTreeMap<String, Vec<Group<'a>>>, BTreeSet<String>) {
    let (mut found, mut unread): (BTreeMap<String, Vec<Group<'a>>>, BTreeSet<String>) = Default::default();
    for election in elections {
        // The pods of a refused election belong to another one.
        let refused = condition(election, ACCEPTED).is_some_and(|accepted| accepted.status == "False");
        let namespace = election.namespace().unwrap_or_default();
        if let (Ok(spec), _) = read(election, classes)
            && spec.cluster.is_none()
            && !refused
        {
            found.entry(namespace).or_default().push(Group { election, scope: spec.scope });
        } else {
            unread.insert(namespace);
        }
    }
    (found, unread)
}

/// Why a Service that selects a leader's label does not reach a leader.
fn misses(service: &ServiceSelector, meant: &[&Group], reached: &[&Pod]) -> Option<Finding> {
    let ServiceSelector { namespace, name, selector } = service;
    let place = format!("{namespace}/{name}");
    if reached.len() > 1 {
        let names: Vec<&str> = reached.iter().map(|pod| pod.name.as_str()).collect();
        return Some(Finding::note(format!(
            "the Service {place} reaches several leaders: {}. If it is for one election, add a label of its pods to \
             spec.selector",
            names.join(", ")
        )));
    }
    if !reached.is_empty() {
        return None;
    }
    let leaders: Vec<String> = meant.iter().filter_map(|group| group.leader()).collect();
    // Without any leader, the elections say why.
    (!leaders.is_empty()).then(|| {
        let selector: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
        Finding::wrong(format!(
            "the Service {place} reaches no pod: no leader ({}) has all labels of its selector, {}. Compare: kubectl \
             -n {namespace} get pods --show-labels, and correct spec.selector of the Service",
            leaders.join(", "),
            selector.join(",")
        ))
    })
}
