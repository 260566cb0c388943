//! The watches of workloads: each begins when the first election names a workload of its kind.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use lictor_core::{Failure, WorkloadKind};
use tokio::sync::mpsc;

use super::input::{Input, forward};
use super::names::{Coverage, Namespace};
use crate::kubernetes::{Change, Namespaces, WatchFailure, WorkloadObject, watch_workloads};

/// The watches that have begun, and what they lack.
pub(super) struct WorkloadWatches {
    client: Client,
    namespaces: Namespaces,
    sender: mpsc::UnboundedSender<Input>,
    begun: BTreeSet<WorkloadKind>,
    missing: BTreeSet<(WorkloadKind, Coverage)>,
    forbidden: BTreeMap<(WorkloadKind, Coverage), Failure>,
}

impl WorkloadWatches {
    pub(super) fn new(client: Client, namespaces: Namespaces, sender: mpsc::UnboundedSender<Input>) -> Self {
        let (begun, missing, forbidden) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { client, namespaces, sender, begun, missing, forbidden }
    }

    /// Begins to watch these kinds, where that is not done already.
    pub(super) fn begin(&mut self, kinds: BTreeSet<WorkloadKind>) {
        for kind in kinds {
            if self.begun.insert(kind) {
                self.missing.extend(self.namespaces.scopes().into_iter().map(|scope| (kind, Coverage::from(scope))));
                let changes = watch_workloads(&self.client, &self.namespaces, kind);
                let inputs = futures::StreamExt::map(changes, move |change| Input::Workloads(kind, change));
                forward(&self.sender, inputs);
            }
        }
    }

    /// Notes what a change tells of its watch; returns whether more is known since.
    pub(super) fn observe(&mut self, kind: WorkloadKind, change: &Change<WorkloadObject>) -> bool {
        match change {
            Change::All(scope, ..) => {
                let what = (kind, scope.clone().into());
                let known = self.forbidden.remove(&what).is_some();
                self.missing.remove(&what) || known
            }
            Change::Broken(scope, WatchFailure::Forbidden(failure)) => {
                let what = (kind, scope.clone().into());
                let known = self.forbidden.insert(what.clone(), failure.clone()).is_none();
                self.missing.remove(&what) || known
            }
            Change::Broken(_, WatchFailure::Other(_))
            | Change::Rewound(_)
            | Change::Applied(_)
            | Change::Deleted(_) => false,
        }
    }

    /// Whether the workloads of a kind are known in a namespace, as far as there is a right to it.
    pub(super) fn knows(&self, kind: WorkloadKind, namespace: &Namespace) -> bool {
        self.begun.contains(&kind)
            && !self.missing.iter().any(|(missing, coverage)| *missing == kind && coverage.includes(namespace))
    }

    /// Why this operator can't see the workloads of a kind in a namespace.
    pub(super) fn forbidden(&self, kind: WorkloadKind, namespace: &Namespace) -> Option<&Failure> {
        let found =
            self.forbidden.iter().find(|((forbidden, coverage), _)| *forbidden == kind && coverage.includes(namespace));
        found.map(|(_, failure)| failure)
    }
}
