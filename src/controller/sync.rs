//! The state of the watches: which first lists have arrived, and which watches are broken.

use std::collections::{BTreeMap, BTreeSet};

use lictor_core::Failure;
use lictor_kubernetes::{Change, WatchFailure};

use super::names::{Coverage, ElectionName, Namespace};
use crate::kubernetes::Namespaces;
use crate::telemetry::{Health, Metrics};

/// The resources that an operator can do without if it lacks the right. Without nodes, the operator notices a lost node later, by the
/// conditions of the node's pods. Without classes, only the built-in one is served. Without Switchovers or their CRD, there are none.
const OPTIONAL: [&str; 4] = ["nodes", "electionclasses", SWITCHOVERS, LABELS];
/// The labels of namespaces, which only some classes need. Without them, these classes are offered by name alone.
pub(super) const LABELS: &str = "namespaces";
/// The kind that was added later, so that its CRD may be missing after an upgrade.
const SWITCHOVERS: &str = "switchovers";

/// A list: the resource and the coverage.
type List = (&'static str, Coverage);

/// The state of the watches. This reports whether the operator is ready, and counts failures.
pub(super) struct Sync {
    scopes: Vec<Coverage>,
    missing: BTreeSet<List>,
    broken: BTreeMap<List, Failure>,
    /// Lists of kinds whose CRD was deleted. The known objects still count, but no election can be served.
    unserved: BTreeSet<List>,
    /// Elections that have to wait for lists.
    postponed: BTreeSet<ElectionName>,
    /// Whether a list has arrived since these elections were last checked.
    arrived: bool,
    health: Health,
    metrics: Metrics,
}

impl Sync {
    /// The state before any list has arrived.
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

    /// Expects all lists again.
    pub(super) fn begin_anew(&mut self, namespaces: &Namespaces) {
        self.missing = first_lists(namespaces);
        self.tell();
    }

    /// Expects one more list of the whole cluster.
    pub(super) fn expect(&mut self, resource: &'static str) {
        self.missing.insert((resource, Coverage::CLUSTER));
        self.tell();
    }

    /// Whether every list has arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether a namespace is fully known. A missing list of one namespace does not keep the others waiting.
    pub(super) fn knows(&self, namespace: &Namespace) -> bool {
        !self.missing.iter().any(|(_, coverage)| coverage.includes(namespace))
    }

    /// Whether at least one of the served namespaces is fully known.
    pub(super) fn knows_some(&self) -> bool {
        let lacks = |scope: &Coverage| {
            self.missing.iter().any(|(_, coverage)| coverage == scope || *coverage == Coverage::CLUSTER)
        };
        self.scopes.iter().any(|scope| !lacks(scope))
    }

    /// The lists that the operator waits for, as a sentence.
    pub(super) fn waits(&self) -> String {
        self.sentences().join("; ")
    }

    /// Lets an election wait until its namespace is fully known.
    pub(super) fn postpone(&mut self, election: ElectionName) {
        self.postponed.insert(election);
    }

    /// Takes the elections that no longer need to wait.
    pub(super) fn take_known(&mut self) -> Vec<ElectionName> {
        if !std::mem::take(&mut self.arrived) {
            return Vec::new();
        }
        let (known, postponed): (Vec<_>, _) =
            std::mem::take(&mut self.postponed).into_iter().partition(|election| self.knows(&election.namespace));
        self.postponed = BTreeSet::from_iter::<Vec<_>>(postponed);
        known
    }

    /// Notes what a change says about its watch.
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

    /// Notes that a list has arrived, or that the watch after it works again.
    pub(super) fn listed(&mut self, resource: &'static str, coverage: Coverage) {
        let list = (resource, coverage);
        self.arrive(&list);
        self.unserved.remove(&list);
        if self.broken.remove(&list).is_some() {
            tracing::info!(resource, namespace = list.1.name(), "the watch works again");
        }
        self.tell();
    }

    /// Notes that a watch is broken.
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

    /// The obstacles to acting: a sentence for each list.
    fn sentences(&self) -> Vec<String> {
        let wait = |list: &List| {
            let waits = || format!("waiting for the first list of {}", list.0);
            self.broken.get(list).map_or_else(waits, |failure| failure.text().to_owned())
        };
        let all: BTreeSet<&List> = self.missing.union(&self.unserved).collect();
        let mut sentences: Vec<String> = Vec::new();
        for sentence in all.into_iter().map(wait) {
            // Several namespaces may lack the same list.
            if !sentences.contains(&sentence) {
                sentences.push(sentence);
            }
        }
        sentences
    }
}

/// The lists that have to arrive before anything is decided.
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
        // An installation of an earlier version lacks this CRD, and an API server that is away says nothing about CRDs.
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
