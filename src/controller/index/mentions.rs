//! The things that a namespace's elections name, and the elections that name each.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use lictor_core::{Family, WorkloadId, WorkloadKind, slice_name};

use crate::controller::entry::Entry;

/// A thing that several elections may name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Mention {
    /// A workload in the spec, which the election wants for itself.
    Workload(WorkloadId),
    /// A prefix of the names of Jobs, in the spec.
    Jobs(String),
    /// A group of elections that keep their leaders apart.
    Group(Arc<str>),
    /// The Service in the spec.
    Service(String),
    /// A slice that the election has, or may have.
    Slice(String),
    /// A workload that matters to the election, including one that it has changed or waits for.
    Followed(WorkloadId),
}

/// The things that the elections of a namespace name. Most elections name nothing.
#[derive(Default)]
pub(crate) struct Mentions {
    of: HashMap<String, BTreeSet<Mention>>,
    by: HashMap<Mention, BTreeSet<String>>,
}

impl Mention {
    /// Everything that an election names.
    pub(crate) fn all_of(entry: &Entry) -> BTreeSet<Self> {
        let spec = entry.spec();
        let workloads = spec.into_iter().flat_map(|spec| spec.workloads.keys());
        let named = workloads.clone().cloned().map(Self::Workload);
        let jobs = spec.into_iter().flat_map(|spec| spec.jobs.keys().cloned().map(Self::Jobs));
        let service = spec.and_then(|spec| spec.service_name()).map(|name| Self::Service(name.into()));
        let slice = |service: &str| [Family::V4, Family::V6].map(|family| Self::Slice(slice_name(service, family)));
        let slices = entry.services().into_iter().flat_map(slice);
        let available = entry.object.available_deployment();
        let available = available.map(|name| WorkloadId { kind: WorkloadKind::Deployment, name: name.into() });
        let claimed = entry.workloads.claims().ids().map(|(id, _)| id);
        let followed = workloads.cloned().chain(claimed).chain(available).map(Self::Followed);
        let groups = spec.into_iter().flat_map(|spec| spec.rules.groups().cloned().map(Self::Group));
        named.chain(groups).chain(jobs).chain(service).chain(slices).chain(followed).collect()
    }
}

impl Mentions {
    /// The elections that name this.
    pub(crate) fn by<'a>(&'a self, mention: &Mention) -> impl Iterator<Item = &'a String> + use<'a> {
        self.by.get(mention).into_iter().flatten()
    }

    /// The other elections that want for themselves something that this election also wants.
    pub(crate) fn rivals_of(&self, election: &str, wanted: impl Fn(&Mention) -> bool) -> BTreeSet<&String> {
        let wanted = self.of.get(election).into_iter().flatten().filter(|mention| wanted(mention));
        wanted.flat_map(|mention| self.by(mention)).filter(|other| *other != election).collect()
    }

    /// Records that an election names exactly this from now on.
    pub(crate) fn set(&mut self, election: &str, now: BTreeSet<Mention>) {
        if self.of.get(election).map_or(now.is_empty(), |before| *before == now) {
            return;
        }
        for mention in self.of.remove(election).into_iter().flatten() {
            if let Some(by) = self.by.get_mut(&mention) {
                by.remove(election);
                if by.is_empty() {
                    self.by.remove(&mention);
                }
            }
        }
        for mention in &now {
            self.by.entry(mention.clone()).or_default().insert(election.into());
        }
        if !now.is_empty() {
            self.of.insert(election.into(), now);
        }
    }
}
