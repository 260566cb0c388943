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
    scopes: Vec<Coverage>,
    missing: BTreeSet<List>,
    broken: BTreeMap<List, Failure>,
    /// Lists of kinds whose CRD was deleted. What was known of them counts on, but no election can be served.
    unserved: BTreeSet<List>,
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
            scopes: namespaces.scopes().into_iter().map(Coverage::from).collect(),
            missing: first_lists(namespaces),
            broken: BTreeMap::new(),
            unserved: BTreeSet::new(),
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

    /// Whether all is known of at least one of the namespaces that are served.
    pub(super) fn knows_some(&self) -> bool {
        let lacks = |scope: &Coverage| {
            self.missing.iter().any(|(_, coverage)| coverage == scope || *coverage == Coverage::CLUSTER)
        };
        self.scopes.iter().any(|scope| !lacks(scope))
    }

    /// What it waits for, as a sentence.
    pub(super) fn waits(&self) -> String {
        self.sentences().join("; ")
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
            Change::All(scope, ..) | Change::Resumed(scope) => self.listed(resource, scope.clone().into()),
            Change::Broken(scope, failure) => {
                let optional = match failure {
                    WatchFailure::Forbidden(_) => OPTIONAL.contains(&resource),
                    WatchFailure::Unknown(_) => resource == SWITCHOVERS,
                    WatchFailure::Other(_) => false,
                };
                if optional {
                    self.arrive(&(resource, scope.clone().into()));
                } else if matches!(failure, WatchFailure::Unknown(_)) {
                    self.unserved.insert((resource, scope.clone().into()));
                }
                self.broken(resource, scope.clone().into(), &failure.clone().into());
            }
            Change::Applied(_) | Change::Deleted(_) | Change::Rewound(_) => {}
        }
    }

    /// A list has arrived, or the watch after one works again.
    pub(super) fn listed(&mut self, resource: &'static str, coverage: Coverage) {
        let list = (resource, coverage);
        self.arrive(&list);
        self.unserved.remove(&list);
        if self.broken.remove(&list).is_some() {
            tracing::info!(resource, namespace = list.1.name(), "the watch works again");
        }
        self.tell();
    }

    /// A watch does not work.
    pub(super) fn broken(&mut self, resource: &'static str, coverage: Coverage, failure: &Failure) {
        self.metrics.count_watch_failure(resource);
        let list = (resource, coverage);
        if self.broken.get(&list) != Some(failure) {
            tracing::warn!(resource, namespace = list.1.name(), "{}", failure.text());
            self.broken.insert(list, failure.clone());
        }
        self.tell();
    }

    fn arrive(&mut self, list: &List) {
        self.arrived |= self.missing.remove(list);
    }

    fn tell(&self) {
        self.health.synced(self.sentences());
    }

    /// What keeps this replica from acting: a sentence for each list.
    fn sentences(&self) -> Vec<String> {
        let wait = |list: &List| {
            let waits = || format!("waiting for the first list of {}", list.0);
            self.broken.get(list).map_or_else(waits, |failure| failure.text().to_owned())
        };
        let all: BTreeSet<&List> = self.missing.union(&self.unserved).collect();
        let mut sentences: Vec<String> = Vec::new();
        for sentence in all.into_iter().map(wait) {
            // Several namespaces lack the same.
            if !sentences.contains(&sentence) {
                sentences.push(sentence);
            }
        }
        sentences
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

    fn all_arrive(sync: &mut Sync) {
        for (resource, coverage) in sync.missing.clone() {
            sync.listed(resource, coverage);
        }
    }

    #[test]
    fn a_kind_whose_crd_is_deleted_is_told_and_what_was_known_of_it_counts_on() {
        let health = Health::default();
        let mut sync = Sync::new(&Namespaces::default(), health.clone(), Metrics::default());
        let unknown = |kind: &str| Failure::Refused(format!("the cluster does not know {kind}: install the CRDs"));
        let fails = |failure| Change::<()>::Broken(None, failure);
        sync.note("leaderelections", &fails(WatchFailure::Unknown(unknown("leaderelections"))));
        assert!(!sync.knows_some());
        let said = health.ready().expect_err("it waits");
        assert!(said.contains("the cluster does not know leaderelections: install the CRDs"), "{said}");
        assert!(
            said.contains("waiting for the first list of pods") && !said.contains("waiting for the cluster"),
            "{said}"
        );
        all_arrive(&mut sync);
        assert!(sync.knows_some() && health.ready().is_ok());

        let shop = Namespace::from("shop".to_owned());
        sync.note("leaderelections", &fails(WatchFailure::Unknown(unknown("leaderelections"))));
        assert_eq!(health.ready(), Err("the cluster does not know leaderelections: install the CRDs".into()));
        assert!(sync.knows(&shop) && sync.knows_some(), "leaders are looked after");
        // An installation of an earlier version has none, and an API server that is away says nothing about CRDs.
        sync.note("switchovers", &fails(WatchFailure::Unknown(unknown("switchovers"))));
        sync.note("pods", &fails(WatchFailure::Other(Failure::Unknown("away".into()))));
        sync.listed("leaderelections", Coverage::CLUSTER);
        assert_eq!(health.ready(), Ok(()));
    }

    #[test]
    fn a_replica_acts_as_soon_as_it_knows_one_of_its_namespaces() {
        let namespaces = Namespaces::new(vec!["shop".into(), "crm".into()]);
        let mut sync = Sync::new(&namespaces, Health::default(), Metrics::default());
        let refused = Failure::Forbidden("not allowed to list pods: no".into());
        sync.note("pods", &Change::<()>::Broken(Some("crm".into()), WatchFailure::Forbidden(refused)));
        let lists: Vec<List> =
            sync.missing.iter().filter(|list| *list != &("pods", Some("crm".to_owned()).into())).cloned().collect();
        for (resource, coverage) in lists {
            assert!(!sync.knows_some());
            sync.listed(resource, coverage);
        }
        assert!(sync.knows_some());
        assert_eq!(sync.waits(), "not allowed to list pods: no");
    }

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
