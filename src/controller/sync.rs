//! Which first lists have arrived, and which watches do not work.

use std::collections::{BTreeMap, BTreeSet};

use lictor_core::Failure;

use super::names::{Coverage, Namespace};
use crate::kubernetes::{Change, Namespaces, WatchFailure};
use crate::telemetry::{Health, Metrics};

/// What an operator can do without, if it has no right to it: a lost node is then seen by its pods' own conditions, later; and of
/// the classes only the built-in one is served. Nor is there a Switchover where they can't be seen, or their CRD is not installed.
const OPTIONAL: [&str; 3] = ["nodes", "electionclasses", SWITCHOVERS];
/// The kind that came later than the others, so that its CRD may be missing after an upgrade.
const SWITCHOVERS: &str = "switchovers";

/// A list: of which resource, and of what.
type List = (&'static str, Coverage);

/// What is known of the watches. It tells whether the operator is ready, and counts failures.
pub(super) struct Sync {
    missing: BTreeSet<List>,
    broken: BTreeMap<List, String>,
    health: Health,
    metrics: Metrics,
}

impl Sync {
    /// Nothing has been listed yet.
    pub(super) fn new(namespaces: &Namespaces, health: Health, metrics: Metrics) -> Self {
        Self { missing: first_lists(namespaces), broken: BTreeMap::new(), health, metrics }
    }

    /// All is to be listed anew.
    pub(super) fn begin_anew(&mut self, namespaces: &Namespaces) {
        self.missing = first_lists(namespaces);
        self.tell();
    }

    /// Whether nothing is missing.
    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether all is known of a namespace. What is missing in one namespace does not keep the others waiting.
    pub(super) fn knows(&self, namespace: &Namespace) -> bool {
        !self.missing.iter().any(|(_, coverage)| coverage.includes(namespace))
    }

    /// Notes what a change tells of its watch.
    pub(super) fn note<T>(&mut self, resource: &'static str, change: &Change<T>) {
        match change {
            Change::All(scope, ..) => self.listed(resource, scope.clone().into()),
            Change::Broken(scope, failure) => {
                let optional = match failure {
                    WatchFailure::Forbidden(_) => OPTIONAL.contains(&resource),
                    WatchFailure::Unknown(_) => resource == SWITCHOVERS,
                    WatchFailure::Other(_) => false,
                };
                if optional {
                    self.missing.remove(&(resource, scope.clone().into()));
                }
                self.broken(resource, scope.clone().into(), &failure.clone().into());
            }
            Change::Applied(_) | Change::Deleted(_) | Change::Rewound(_) => {}
        }
    }

    /// A list has arrived.
    pub(super) fn listed(&mut self, resource: &'static str, coverage: Coverage) {
        let list = (resource, coverage);
        self.missing.remove(&list);
        if self.broken.remove(&list).is_some() {
            tracing::info!(resource, namespace = list.1.name(), "the watch works again");
        }
        self.tell();
    }

    /// A watch does not work.
    pub(super) fn broken(&mut self, resource: &'static str, coverage: Coverage, failure: &Failure) {
        self.metrics.count_watch_failure(resource);
        let list = (resource, coverage);
        if self.broken.get(&list).map(String::as_str) != Some(failure.text()) {
            tracing::warn!(resource, namespace = list.1.name(), "{}", failure.text());
            self.broken.insert(list, failure.text().into());
        }
        self.tell();
    }

    fn tell(&self) {
        let wait =
            |list: &List| self.broken.get(list).cloned().unwrap_or_else(|| format!("the first list of {}", list.0));
        self.health.synced(self.missing.iter().map(wait).collect());
    }
}

/// What has to be listed before anything is decided.
fn first_lists(namespaces: &Namespaces) -> BTreeSet<List> {
    let scopes = namespaces.scopes();
    let lists = scopes
        .iter()
        .flat_map(|scope| {
            ["pods", "leaderelections", "leases", SWITCHOVERS].map(|resource| (resource, scope.clone().into()))
        })
        .chain(["nodes", "electionclasses"].map(|resource| (resource, Coverage::CLUSTER)));
    lists.collect()
}
