//! The watches that only some operators need. Each begins when the first election needs it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use lictor_core::{Failure, Instant, WorkloadKind};
use lictor_kubernetes::{Change, WatchFailure};
use lictor_process::monotonic;
use tokio::sync::mpsc;

use super::input::{Input, forward};
use super::names::{Coverage, Namespace};
use crate::kubernetes::{Namespaces, watch_labels, watch_services, watch_slices, watch_workloads};

/// How long a departing election waits for a watch that has never worked, because the API server may just have been started.
const PATIENCE: Duration = Duration::from_secs(60);

/// The subject of such a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watched {
    /// The workloads of a kind.
    Workloads(WorkloadKind),
    /// Services.
    Services,
    /// The `EndpointSlice`s that lictor writes.
    Slices,
    /// The labels of namespaces.
    Labels,
}

/// The watches that have begun, and their problems.
pub(super) struct OnDemandWatches {
    client: Client,
    namespaces: Namespaces,
    sender: mpsc::UnboundedSender<Input>,
    /// The watches that have begun, and when.
    begun: BTreeMap<Watched, Instant>,
    missing: BTreeSet<(Watched, Coverage)>,
    forbidden: BTreeMap<(Watched, Coverage), Failure>,
    /// Watches that fail for another reason.
    broken: BTreeMap<(Watched, Coverage), Failure>,
    /// The broken watches that a departing election no longer waits for.
    hopeless: BTreeSet<(Watched, Coverage)>,
}

impl OnDemandWatches {
    pub(super) fn new(client: Client, namespaces: Namespaces, sender: mpsc::UnboundedSender<Input>) -> Self {
        Self {
            client,
            namespaces,
            sender,
            begun: BTreeMap::new(),
            missing: BTreeSet::new(),
            forbidden: BTreeMap::new(),
            broken: BTreeMap::new(),
            hopeless: BTreeSet::new(),
        }
    }

    /// Whether such a watch has begun.
    pub(super) fn has_begun(&self, watched: Watched) -> bool {
        self.begun.contains_key(&watched)
    }

    /// Begins these watches, unless they run already.
    pub(super) fn begin(&mut self, all: impl IntoIterator<Item = Watched>) {
        for watched in all {
            if let Entry::Vacant(vacant) = self.begun.entry(watched) {
                vacant.insert(monotonic());
                let coverage: Vec<Coverage> = match watched {
                    Watched::Labels => vec![Coverage::CLUSTER],
                    _ => self.namespaces.scopes().into_iter().map(Coverage::from).collect(),
                };
                self.missing.extend(coverage.into_iter().map(|coverage| (watched, coverage)));
                self.watch(watched);
            }
        }
    }

    fn watch(&self, watched: Watched) {
        let Self { client, namespaces, sender, .. } = self;
        match watched {
            Watched::Workloads(kind) => {
                let inputs = watch_workloads(client, namespaces, kind);
                forward(sender, inputs.map(move |change| Input::Workloads(kind, change)));
            }
            Watched::Services => forward(sender, watch_services(client, namespaces).map(Input::Services)),
            Watched::Slices => forward(sender, watch_slices(client, namespaces).map(Input::Slices)),
            Watched::Labels => forward(sender, watch_labels(client).map(Input::Labels)),
        }
    }

    /// Notes what a change says about its watch. Returns whether more is known since.
    pub(super) fn observe<T>(&mut self, watched: Watched, change: &Change<T>) -> bool {
        match change {
            Change::All(scope, ..) | Change::Resumed(scope) => {
                let what = (watched, scope.clone().into());
                self.broken.remove(&what);
                self.hopeless.remove(&what);
                let known = self.forbidden.remove(&what).is_some();
                self.missing.remove(&what) || known
            }
            Change::Broken(scope, WatchFailure::Forbidden(failure)) => {
                let what = (watched, scope.clone().into());
                let known = self.forbidden.insert(what.clone(), failure.clone()).is_none();
                self.missing.remove(&what) || known
            }
            Change::Broken(scope, WatchFailure::Unknown(failure) | WatchFailure::Other(failure)) => {
                let what = (watched, scope.clone().into());
                let late = self.begun.get(&watched).is_some_and(|begun| monotonic() >= *begun + PATIENCE);
                let given_up = late && self.missing.contains(&what) && self.hopeless.insert(what.clone());
                self.broken.insert(what, failure.clone()).is_none() || given_up
            }
            Change::Rewound(_) | Change::Applied(_) | Change::Deleted(_) => false,
        }
    }

    /// Whether all objects of this kind in a namespace are known, as far as the operator has the right to see them.
    pub(super) fn knows(&self, watched: Watched, namespace: &Namespace) -> bool {
        self.begun.contains_key(&watched)
            && !self.missing.iter().any(|(missing, coverage)| *missing == watched && coverage.includes(namespace))
    }

    /// Whether the watch is broken at present, although the operator has the right to it.
    pub(super) fn is_broken(&self, watched: Watched, namespace: &Namespace) -> bool {
        self.broken.keys().any(|(broken, coverage)| *broken == watched && coverage.includes(namespace))
    }

    /// Why a departing election no longer waits for these objects, if so: they were never seen for a minute.
    pub(super) fn hopeless(&self, watched: Watched, namespace: &Namespace) -> Option<&Failure> {
        let mut of_it = self.hopeless.iter().filter(|(hopeless, _)| *hopeless == watched);
        self.broken.get(of_it.find(|(_, coverage)| coverage.includes(namespace))?)
    }

    /// Why this operator can't see these objects in a namespace.
    pub(super) fn forbidden(&self, watched: Watched, namespace: &Namespace) -> Option<&Failure> {
        let found = self
            .forbidden
            .iter()
            .find(|((forbidden, coverage), _)| *forbidden == watched && coverage.includes(namespace));
        found.map(|(_, failure)| failure)
    }
}
