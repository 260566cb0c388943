//! Which first lists have arrived, and which watches do not work.

use std::collections::{BTreeMap, BTreeSet};

use lictor_core::Failure;

use super::names::{Coverage, ElectionName, Namespace};
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
    /// Elections that can't be decided before lists have arrived.
    postponed: BTreeSet<ElectionName>,
    /// Whether a list has arrived since they were looked at.
    arrived: bool,
    health: Health,
    metrics: Metrics,
}

impl Sync {
    /// Nothing has been listed yet.
    pub(super) fn new(namespaces: &Namespaces, health: Health, metrics: Metrics) -> Self {
        Self {
            missing: first_lists(namespaces),
            broken: BTreeMap::new(),
            postponed: BTreeSet::new(),
            arrived: false,
            health,
            metrics,
        }
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

    /// An election waits until all is known of its namespace.
    pub(super) fn postpone(&mut self, election: ElectionName) {
        self.postponed.insert(election);
    }

    /// Those that waited, and need not wait any more.
    pub(super) fn take_known(&mut self) -> Vec<ElectionName> {
        if !std::mem::take(&mut self.arrived) {
            return Vec::new();
        }
        let (known, postponed): (Vec<_>, _) =
            std::mem::take(&mut self.postponed).into_iter().partition(|election| self.knows(&election.namespace));
        self.postponed = BTreeSet::from_iter::<Vec<_>>(postponed);
        known
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
                    self.arrive(&(resource, scope.clone().into()));
                }
                self.broken(resource, scope.clone().into(), &failure.clone().into());
            }
            Change::Applied(_) | Change::Deleted(_) | Change::Rewound(_) => {}
        }
    }

    /// A list has arrived.
    pub(super) fn listed(&mut self, resource: &'static str, coverage: Coverage) {
        let list = (resource, coverage);
        self.arrive(&list);
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

    fn arrive(&mut self, list: &List) {
        self.arrived |= self.missing.remove(list);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_lists_is_decided_as_soon_as_the_last_of_its_namespace_arrives() {
        let namespaces = Namespaces::new(vec!["shop".into(), "crm".into()]);
        let mut sync = Sync::new(&namespaces, Health::default(), Metrics::default());
        let election = |namespace: &str| Namespace::from(namespace.to_owned()).election("web");
        for namespace in ["shop", "crm"] {
            sync.postpone(election(namespace));
        }
        let lists: Vec<List> = sync.missing.iter().cloned().collect();
        let (crm, others): (Vec<_>, Vec<_>) =
            lists.into_iter().partition(|(_, coverage)| *coverage == Some("crm".to_owned()).into());
        for (resource, coverage) in others {
            assert_eq!(sync.take_known(), []);
            sync.listed(resource, coverage);
        }
        assert_eq!(sync.take_known(), [election("shop")]);
        assert_eq!(sync.take_known(), [], "once");
        for (resource, coverage) in crm {
            sync.listed(resource, coverage);
        }
        assert_eq!(sync.take_known(), [election("crm")]);
    }
}
