//! Elections that conflict. The one that already has what both want keeps it; otherwise the older one gets it.

use std::collections::BTreeMap;

use lictor_api::Refusal;
use lictor_core::{ELECTION_ANNOTATION, Locks, TERM_ANNOTATION};

use super::circles::{circular, depending};
use super::mentions::Mention;
use super::naming::{CatalogService, Filed};
use super::objects::{Content, Objects};
use crate::controller::entry::Entry;
use crate::controller::names::ElectionName;
use crate::controller::object::Standing;
use crate::wording::refusals;

/// The place of an election among those that want the same; the lowest goes first. The place depends on one election alone, so any two
/// elections have an order, and refusals never form a circle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Precedence<A> {
    standing: Standing,
    age: A,
}

/// What decides about conflicts.
pub(crate) struct Conflicts<'a> {
    pub(super) objects: &'a Objects,
    pub(super) filed: &'a Filed,
    pub(super) locks: &'a Locks,
}

impl Conflicts<'_> {
    /// Why an election has to give way to another one, if it has to.
    pub(crate) fn refusal(&self, election: &ElectionName) -> Option<Refusal> {
        let ElectionName { namespace, name } = election;
        let content = self.objects.namespaces.get(namespace)?;
        let entry = content.elections.get(name)?;
        let spec = entry.spec()?;
        let own = self.precedence(content, entry);
        let wins = |other: &Entry| {
            other.object.conflict().is_none() && other.spec().is_some() && self.precedence(content, other) < own
        };
        let namesakes = self.filed.naming.of(&spec.key).filter(|other| *other != election);
        if let Some(other) = namesakes.filter_map(|other| self.objects.named(other)).find(|other| wins(other)) {
            return Some(Refusal {
                reason: "KeyTaken",
                message: refusals::key_taken(&spec.key.name, &told(other, entry)),
            });
        }
        if let Some(service) = CatalogService::of(&entry.object)
            && let Some(other) = self
                .filed
                .registering
                .of(&service)
                .filter_map(|other| self.objects.named(other))
                .find(|other| wins(other))
        {
            return Some(Refusal {
                reason: "ServiceTaken",
                message: refusals::catalog_service_taken(&service.name, &told(other, entry)),
            });
        }
        for pod in entry.members.candidates() {
            let others = content.selecting(pod).filter(|other| *other != name);
            if let Some(other) = others.filter_map(|other| content.elections.get(other)).find(|other| wins(other)) {
                let labelled = marker(content, pod).is_some_and(|marker| marker == other.object.name());
                return Some(Refusal {
                    reason: "PodsTaken",
                    message: refusals::pod_taken(pod, labelled, &told(other, entry)),
                });
            }
        }
        let named = |other: &Entry| {
            let theirs = other.spec()?;
            let same = spec.workloads.keys().find(|id| theirs.workloads.contains_key(id)).map(ToString::to_string);
            let job = || spec.jobs.keys().find(|name| theirs.jobs.contains_key(*name));
            same.or_else(|| job().map(|name| format!("Job/{name} (a jobTemplate)")))
        };
        let wanted = |mention: &Mention| matches!(mention, Mention::Workload(_) | Mention::Jobs(_));
        let others = content.mentions.rivals_of(name, wanted).into_iter();
        let mut others = others.filter_map(|other| content.elections.get(other)).filter(|other| wins(other));
        if let Some((other, workload)) = others.find_map(|other| Some((other, named(other)?))) {
            return Some(Refusal {
                reason: "WorkloadTaken",
                message: refusals::workload_taken(&workload, &told(other, entry)),
            });
        }
        circular(content, entry, wins)
    }

    /// O1: the candidates that carry the mark of another election, which takes it off together with its labels, and that election.
    ///
    /// Whether the other election still selects the pod, or is refused or paused, does not matter: whoever writes the mark anew takes from
    /// the other election the only means to find its labels again. A person may have written the mark on this election's leader, which
    /// stays this election's.
    pub(crate) fn marked_by_others(&self, election: &ElectionName) -> BTreeMap<String, String> {
        let ElectionName { namespace, name } = election;
        let Some(content) = self.objects.namespaces.get(namespace) else { return BTreeMap::new() };
        let Some(entry) = content.elections.get(name) else { return BTreeMap::new() };
        let record = entry.object.record(self.locks).filter(|record| record.election == entry.object.id().uid);
        // H16: other programs can write a record in a shared store.
        let leader = record.filter(|_| !entry.object.shares_lock()).and_then(|record| record.holder.as_ref());
        let leads =
            |pod: &str| leader.is_some_and(|leader| content.pods.get(pod).is_some_and(|pod| pod.uid == leader.uid));
        let other = |pod: &String| {
            let marker = marker(content, pod).filter(|marker| *marker != name)?;
            // lictor never writes the mark without the term, but a template may have a copy of it.
            let written = content.pods.get(pod)?.annotations.contains_key(TERM_ANNOTATION);
            (written && content.elections.contains_key(marker) && !leads(pod)).then(|| (pod.clone(), marker.to_owned()))
        };
        entry.members.candidates().filter_map(other).collect()
    }

    /// The standing of an election among those that want the same.
    pub(crate) fn standing(&self, election: &ElectionName) -> Standing {
        let content = self.objects.namespaces.get(&election.namespace);
        let entry = content.and_then(|content| Some((content, content.elections.get(&election.name)?)));
        entry.map(|(content, entry)| self.standing_of(content, entry)).unwrap_or_default()
    }

    /// The election that names the same Service and goes before this one, if any. The owner of a Service that lictor has created goes first.
    pub(crate) fn older_on_service(&self, election: &ElectionName) -> Option<ElectionName> {
        let content = self.objects.namespaces.get(&election.namespace)?;
        let entry = content.elections.get(&election.name)?;
        let service = content.services.get(entry.spec()?.service_name()?);
        let owns = |entry: &Entry| service.is_some_and(|service| service.is_owned_by(&entry.object.id().uid));
        let own = (!owns(entry), self.precedence(content, entry));
        let wins = |other: &&Entry| {
            (other.object.conflict().is_none() || owns(other)) && (!owns(other), self.precedence(content, other)) < own
        };
        let others = content.mentions.rivals_of(&election.name, |mention| matches!(mention, Mention::Service(_)));
        let mut others = others.into_iter().filter_map(|other| content.elections.get(other)).map(AsRef::as_ref);
        others.find(wins).map(|other| other.object.election().clone())
    }

    fn precedence(&self, content: &Content, entry: &Entry) -> Precedence<impl Ord + use<>> {
        Precedence { standing: self.standing_of(content, entry), age: entry.object.age() }
    }

    fn standing_of(&self, content: &Content, entry: &Entry) -> Standing {
        let challenges = shares_marked_pod(content, entry)
            || shares_written_workload(content, entry)
            || self.shares_held_lock(entry);
        let since = entry.object.accepted_since();
        Standing { challenges, unaccepted: since.is_none(), since }
    }

    /// Whether the lock that an election names is held for another election that also names it.
    fn shares_held_lock(&self, entry: &Entry) -> bool {
        let Some(key) = entry.spec().map(|spec| &spec.key) else { return false };
        let Some(record) = entry.object.record(self.locks) else { return false };
        let mut namesakes = self.filed.naming.of(key).filter_map(|other| self.objects.named(other));
        record.election != entry.object.id().uid && namesakes.any(|other| other.object.id().uid == record.election)
    }
}

/// Marks the other elections that share pods, workloads, a Service, an entry in Consul's catalog or the lock with this one, or whose
/// candidates its workloads make.
pub(super) fn mark_neighbours(objects: &mut Objects, filed: &Filed, election: &ElectionName) {
    let ElectionName { namespace, name } = election;
    let Some(content) = objects.namespaces.get(namespace) else { return };
    let Some(entry) = content.elections.get(name) else { return };
    // Pods that the election has marked count, too, because they are no candidates of others (`marked_by_others`).
    let pods = entry.members.all().flat_map(|pod| content.selecting(pod));
    let shared = |mention: &Mention| !matches!(mention, Mention::Slice(_) | Mention::Followed(_) | Mention::Group(_));
    let sharing = content.mentions.rivals_of(name, shared);
    let others = pods.chain(sharing).map(|other| namespace.election(other));
    let namesakes = entry.spec().into_iter().flat_map(|spec| filed.naming.of(&spec.key)).cloned();
    let service = CatalogService::of(&entry.object);
    let registering = service.iter().flat_map(|service| filed.registering.of(service)).cloned();
    let depending = depending(content, name).into_iter().map(|other| namespace.election(&other));
    objects.dirty.extend(others.chain(namesakes).chain(registering).chain(depending).filter(|other| other != election));
}

/// The election that has marked a pod.
fn marker<'a>(content: &'a Content, pod: &str) -> Option<&'a str> {
    content.pods.get(pod)?.annotations.get(ELECTION_ANNOTATION)
}

/// Whether an election selects a pod that another election has marked and still selects.
fn shares_marked_pod(content: &Content, entry: &Entry) -> bool {
    let others = |pod: &&String| {
        let marker = marker(content, pod).filter(|marker| *marker != entry.object.name());
        let marker = marker.and_then(|marker| content.elections.get(marker));
        marker.is_some_and(|marker| marker.spec().is_some() && marker.members.select(pod))
    };
    entry.members.candidates().any(|pod| others(&pod))
}

/// Whether an election names a workload that another election has written and still names.
fn shares_written_workload(content: &Content, entry: &Entry) -> bool {
    let mut named = entry.spec().into_iter().flat_map(|spec| spec.workloads.keys());
    named.any(|id| {
        let claim = content.workloads.get(id).and_then(|workload| workload.claim.as_ref());
        let writer = claim.map(|claim| &claim.election).filter(|writer| *writer != entry.object.name());
        let writer = writer.and_then(|writer| content.elections.get(writer)).and_then(|writer| writer.spec());
        writer.is_some_and(|spec| spec.workloads.contains_key(id))
    })
}

/// Describes another election in a sentence.
fn told(other: &Entry, entry: &Entry) -> String {
    let older = if other.object.age() < entry.object.age() { "older " } else { "" };
    format!("{older}election {}", other.object.election())
}
