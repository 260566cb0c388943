//! Elections that get in each other's way: the older one wins.

use super::Index;
use super::mentions::Mention;
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
            let others = content.selecting(pod).filter(|other| *other != name);
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
        let wanted = |mention: &Mention| matches!(mention, Mention::Workload(_) | Mention::Jobs(_));
        let others = content.mentions.rivals_of(name, wanted).into_iter();
        let mut others = others.filter_map(|other| content.elections.get(other)).filter(|other| wins(other));
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

    /// The older election that names the same Service, if there is one.
    pub(crate) fn older_on_service(&self, election: &ElectionName) -> Option<ElectionName> {
        let content = self.namespaces.get(&election.namespace)?;
        let entry = content.elections.get(&election.name)?;
        let wins = |other: &&Entry| other.object.conflict().is_none() && other.object.is_older_than(&entry.object);
        let others = content.mentions.rivals_of(&election.name, |mention| matches!(mention, Mention::Service(_)));
        let mut others = others.into_iter().filter_map(|other| content.elections.get(other)).map(AsRef::as_ref);
        others.find(wins).map(|other| other.object.election().clone())
    }

    /// The other elections that share pods, workloads, a Service or the lock with this one.
    pub(crate) fn mark_neighbours(&mut self, election: &ElectionName) {
        let ElectionName { namespace, name } = election;
        let Some(content) = self.namespaces.get(namespace) else { return };
        let Some(entry) = content.elections.get(name) else { return };
        let pods = entry.members.candidates().flat_map(|pod| content.selecting(pod));
        let shared = |mention: &Mention| !matches!(mention, Mention::Slice(_) | Mention::Followed(_));
        let sharing = content.mentions.rivals_of(name, shared);
        let others = pods.chain(sharing).map(|other| namespace.election(other));
        let namesakes = entry.spec().into_iter().flat_map(|spec| self.naming.of(&spec.key)).cloned();
        self.dirty.extend(others.chain(namesakes).filter(|other| other != election));
    }
}
