//! Elections that get in each other's way: the older one wins.

use super::Index;
use crate::api::Refusal;
use crate::controller::entry::Entry;
use crate::controller::names::ElectionName;

impl Index {
    /// Why an election has to give way to an older one, if it has to.
    pub(crate) fn conflict(&self, election: &ElectionName) -> Option<Refusal> {
        let ElectionName { namespace, name } = election;
        let content = self.namespaces.get(namespace)?;
        let entry = content.elections.get(name)?;
        let spec = entry.spec()?;
        let wins = |other: &Entry| {
            other.object.conflict().is_none() && other.spec().is_some() && other.object.is_older_than(&entry.object)
        };
        let namesakes = self.naming.of(&spec.key).filter(|other| *other != election);
        if let Some(other) = namesakes.filter_map(|other| self.named(other)).find(|other| wins(other)) {
            return Some(Refusal {
                reason: "KeyTaken",
                message: format!(
                    "the lock {:?} belongs to the older election {}: give this one another spec.key, or delete the other",
                    spec.key.name,
                    other.object.election()
                ),
            });
        }
        for pod in entry.members.candidates() {
            let others = content.selecting.get(pod).into_iter().flatten().filter(|other| *other != name);
            if let Some(other) = others.filter_map(|other| content.elections.get(other)).find(|other| wins(other)) {
                return Some(Refusal {
                    reason: "PodsTaken",
                    message: format!(
                        "the pod {pod:?} is labelled by the older election {} already: give this one a selector for pods of its \
                         own, or delete the other",
                        other.object.election()
                    ),
                });
            }
        }
        let named = |other: &Entry| {
            let theirs = other.spec()?;
            let same = spec.workloads.keys().find(|id| theirs.workloads.contains_key(id)).map(ToString::to_string);
            let job = || spec.jobs.keys().find(|name| theirs.jobs.contains_key(*name));
            same.or_else(|| job().map(|name| format!("Job/{name} (a jobTemplate)")))
        };
        let mut others =
            content.elections.values().filter(|other| other.object.id().uid != entry.object.id().uid && wins(other));
        let (other, workload) = others.find_map(|other| Some((other, named(other)?)))?;
        Some(Refusal {
            reason: "WorkloadTaken",
            message: format!(
                "{workload} is in spec.workloads of the older election {} already: take it out of one of the two, or delete \
                 the other",
                other.object.election()
            ),
        })
    }

    /// The other elections that share pods, workloads, a Service or the lock with this one.
    pub(crate) fn mark_neighbours(&mut self, election: &ElectionName) {
        let ElectionName { namespace, name } = election;
        let Some(content) = self.namespaces.get(namespace) else { return };
        let Some(entry) = content.elections.get(name) else { return };
        let pods = entry.members.candidates().filter_map(|pod| content.selecting.get(pod)).flatten();
        let has_workloads =
            |entry: &Entry| entry.spec().is_some_and(|spec| !spec.workloads.is_empty() || !spec.jobs.is_empty());
        let service = entry.spec().and_then(|spec| spec.service.as_ref());
        let names_it =
            |entry: &Entry| service.is_some() && entry.spec().and_then(|spec| spec.service.as_ref()) == service;
        let sharing = content
            .elections
            .values()
            .filter(|other| names_it(other) || (has_workloads(entry) && has_workloads(other)));
        let sharing = sharing.map(|other| other.object.election().clone());
        let key = entry.spec().map(|spec| &spec.key);
        let namesakes = key.into_iter().flat_map(|key| self.naming.of(key)).cloned();
        let pods = pods.map(|other| namespace.election(other));
        let neighbours = pods.chain(sharing).chain(namesakes).filter(|other| other != election);
        self.dirty.extend(neighbours);
    }
}
