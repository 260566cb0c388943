//! Reads an election's spec into valid values, or into a description of what is wrong with it.

mod allowed;
mod followed_lock;
mod probe;
mod shared;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lictor_core::fits;

use super::reserved;
use super::{BUILT_IN_CLASS, DEFAULT_CLASS_ANNOTATION, DEFAULT_CONTROLLER, ElectionClass, LeaderElection};
use crate as api;

pub use followed_lock::Followed;
pub use probe::{Asked, Held, Probe};
pub use shared::{
    BucketPlace, ConsulClass, Credentials, HubPlace, ObjectClass, ObjectPlace, SecretId, SecretKey, SessionNode,
    Shared, SharedClass, TlsSources, shared_class,
};

/// All classes by name.
pub type Classes = BTreeMap<String, ElectionClass>;

/// The labels of each namespace, by its name.
pub type NamespaceLabels = BTreeMap<String, lictor_core::Pairs>;

/// Returns the classes, each with the names of the namespaces that it selects by their labels.
pub fn with_selected(classes: &Classes, namespaces: &NamespaceLabels) -> Classes {
    let mut classes = classes.clone();
    for allowed in classes.values_mut().filter_map(|class| class.spec.allowed_namespaces.as_mut()) {
        let Some(selector) = allowed.selector.as_ref().map(resolve_selector) else { continue };
        let selected = namespaces.iter().filter(|(_, labels)| selector.matches(labels)).map(|(name, _)| name);
        let new: Vec<String> = selected.filter(|name| !allowed.names.contains(name)).cloned().collect();
        allowed.names.extend(new);
    }
    classes
}

/// The spec of an election, as valid values.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// The class that serves the election.
    pub class_name: String,
    /// How the class keeps its locks in a store that several clusters share. `None`: it keeps them in Leases.
    pub shared: Option<SharedClass>,
    /// The lock's store and key.
    pub key: lictor_core::Key,
    /// The selected pods, and what lictor writes to them. Empty if the cluster itself is the candidate.
    pub scope: lictor_core::Scope,
    /// Set if the cluster itself is the candidate.
    pub cluster: Option<ClusterRule>,
    /// The lock that the candidates hold themselves. `None`: lictor elects the leader.
    pub followed: Option<Followed>,
    /// The Service through which the leader is reached.
    pub service: Option<Arc<api::LeaderService>>,
    /// The workloads that run only where the leader is.
    pub workloads: BTreeMap<lictor_core::WorkloadId, WorkloadRule>,
    /// The Jobs that lictor makes once for each term, by the beginning of their names.
    pub jobs: BTreeMap<String, api::JobTemplate>,
    /// Which candidates may lead.
    pub rules: lictor_core::Rules,
    /// Which label write of a handover comes first.
    pub order: lictor_core::HandoverOrder,
    /// How the operator treats the pod that led before.
    pub former_leader: lictor_core::FormerLeader,
    /// How long a leader may take to recover.
    pub failover_delay: Duration,
    /// How lictor probes the leader.
    pub probe: Option<Probe>,
    /// What happens to the leader when its lock can't be confirmed.
    pub when_lost: lictor_core::WhenLost,
    /// The Consul service that the leader is registered as.
    pub consul_service: Option<api::ConsulService>,
    /// H9: no new term is below this one.
    pub first_term: lictor_core::Term,
    /// Whether the election is frozen.
    pub paused: bool,
}

impl Resolved {
    /// Returns what the core needs to know about the election.
    pub fn spec(&self) -> lictor_core::Spec<'_> {
        lictor_core::Spec {
            scope: &self.scope,
            rules: &self.rules,
            order: self.order,
            former_leader: self.former_leader,
            failover_delay: self.failover_delay,
            when_lost: self.when_lost,
            ttl: self.shared.as_ref().map(|shared| shared.ttl()).unwrap_or_default(),
            silence: self.shared.as_ref().map(|shared| shared.expiry()).unwrap_or_default(),
            seen_after: self.shared.as_ref().map(|shared| shared.seen_after()).unwrap_or_default(),
        }
    }

    /// Returns the name of the Service through which the leader is reached.
    pub fn service_name(&self) -> Option<&str> {
        self.service.as_ref().map(|service| service.name.as_str())
    }

    /// Returns this cluster's name among the clusters that share the lock.
    pub fn cluster_name(&self) -> Option<&str> {
        self.shared.as_ref().map(|shared| shared.cluster())
    }
}

/// The requirements for a cluster that is itself a candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterRule {
    /// A Deployment that must be available.
    pub available: Option<String>,
}

/// What lictor does with one workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkloadRule {
    /// The number of replicas that the workload gets when lictor enables it.
    pub replicas: Option<i32>,
    /// Whether lictor deletes running Jobs when it disables the workload.
    pub delete_running: bool,
    /// What happens to the workload when it leaves the election.
    pub when_released: api::WhenReleased,
}

/// Why lictor can't serve an election, for the condition `Accepted`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The condition's reason, in one word.
    pub reason: &'static str,
    /// What is wrong, and what to write instead.
    pub message: String,
}

/// Reads an election's spec. Returns `None` if its class belongs to a lictor with another controller name than
/// `controller`.
///
/// # Errors
/// Returns what is wrong with the spec, for the user.
pub fn resolve(election: &LeaderElection, classes: &Classes, controller: &str) -> Option<Result<Resolved, Refusal>> {
    let namespace = election.metadata.namespace.as_deref().unwrap_or_default();
    let class = match find_class(election.spec.class_name.as_deref(), namespace, classes) {
        Ok(class) => class,
        Err(refusal) => return Some(Err(refusal)),
    };
    if class.controller != controller {
        return None;
    }
    if !class.offered {
        let (name, offered) = (&class.name, offered(namespace, classes));
        let instead = match offered.as_str() {
            "" => String::new(),
            names => format!("write one of {names} into spec.className, or "),
        };
        return Some(Err(Refusal {
            reason: "ClassNotOffered",
            message: format!(
                "the ElectionClass {name:?} is not offered to the namespace {namespace:?}: {instead}let an \
                 administrator add it to the class's spec.allowedNamespaces, or give it the labels there"
            ),
        }));
    }
    Some(resolve_spec(election, &class))
}

fn resolve_spec(election: &LeaderElection, class: &Class) -> Result<Resolved, Refusal> {
    // This pattern names every field, so that a new one can't be forgotten.
    let api::LeaderElectionSpec {
        class_name: _,
        selector,
        key,
        first_term,
        elected_by: _,
        followed_lock: _,
        eligibility,
        preferences,
        preemption,
        leader: _,
        follower: _,
        when_label_in_use: _,
        handover,
        probe,
        shared_store: api::SharedStore { when_lost, consul_service },
        service,
        workloads,
        paused,
    } = &election.spec;
    let shared = class.shared.as_ref().map(Result::as_ref).transpose().map_err(Clone::clone)?;
    refuse_unserved(&election.spec, class, shared)?;
    let markings = markings(&election.spec);
    refuse_reserved(&markings.leader, "leader")?;
    refuse_reserved(&markings.follower, "follower")?;
    let name = election.metadata.name.as_deref().unwrap_or_default();
    let namespace = election.metadata.namespace.as_deref().unwrap_or_default();
    let key = resolve_key(election, key.as_deref(), class, shared)?;
    let expand = |template: &str| template.replace("{name}", name).replace("{namespace}", namespace);
    let followed = Followed::resolve(&election.spec, class, shared, &key, expand, namespace)?;
    let held = if service.is_some() && followed.is_none() { Held::OfService } else { Held::Off };
    if let Some(service) = consul_service {
        class.check_service(service, expand)?;
    }
    class.check_workloads(workloads)?;
    Ok(Resolved {
        class_name: class.name.clone(),
        shared: shared.cloned(),
        key,
        followed,
        scope: selector.as_ref().map_or_else(lictor_core::Scope::default, |selector| lictor_core::Scope {
            selector: resolve_selector(selector),
            markings,
        }),
        cluster: selector.is_none().then(|| ClusterRule { available: eligibility.available_deployment_name.clone() }),
        service: service.clone().map(Arc::new),
        workloads: workloads.iter().filter(|workload| workload.job_template.is_none()).map(resolve_workload).collect(),
        jobs: workloads
            .iter()
            .filter_map(|workload| Some((workload.name.clone(), workload.job_template.clone()?)))
            .collect(),
        rules: lictor_core::Rules {
            require_ready: eligibility.require_ready,
            conditions: eligibility.conditions.iter().map(|condition| condition.as_str().into()).collect(),
            min_ready: Duration::from_secs(eligibility.min_ready_seconds.into()),
            preferences: preferences.iter().map(resolve_preference).collect(),
            preempt: *preemption == api::Preemption::HigherPriority,
            leave_cordoned: eligibility.move_off_cordoned_nodes,
        },
        order: match handover.order {
            api::HandoverOrder::DemoteFirst => lictor_core::HandoverOrder::DemoteFirst,
            api::HandoverOrder::PromoteFirst => lictor_core::HandoverOrder::PromoteFirst,
        },
        former_leader: resolve_former_leader(handover),
        failover_delay: Duration::from_secs(handover.failover_delay_seconds.into()),
        probe: Probe::resolve(probe.as_ref(), held),
        when_lost: match when_lost {
            api::WhenLost::Demote => lictor_core::WhenLost::Demote,
            api::WhenLost::Keep => lictor_core::WhenLost::Keep,
        },
        consul_service: consul_service.clone(),
        first_term: resolve_first_term(*first_term, election),
        paused: *paused,
    })
}

/// Refuses what a class can't do with the place where it keeps its locks.
fn refuse_unserved(spec: &api::LeaderElectionSpec, class: &Class, shared: Option<&SharedClass>) -> Result<(), Refusal> {
    if spec.shared_store.consul_service.is_some() && shared.and_then(SharedClass::consul).is_none() {
        return Err(Refusal {
            reason: "NotInConsul",
            message: format!(
                "spec.sharedStore.consulService needs a class that keeps its locks in Consul, and {:?} keeps them in {}: leave \
                 spec.sharedStore.consulService out, or name another class in spec.className",
                class.name,
                kind(shared)
            ),
        });
    }
    if spec.handover.former_leader == api::FormerLeader::DeleteFirst && shared.is_some() {
        return Err(Refusal {
            reason: "EndUnknown",
            message: format!(
                "spec.handover.formerLeader: DeleteFirst works within one cluster, because another cluster that takes \
                 the lock can't know whether a pod of this one has ended, and the class {:?} keeps its locks in {}: \
                 write Delete or Keep, or name a class that keeps its locks in Leases in spec.className",
                class.name,
                kind(shared)
            ),
        });
    }
    if spec.selector.is_none() && shared.is_none() {
        return Err(Refusal {
            reason: "NoCandidates",
            message: format!(
                "without spec.selector this cluster itself is the only candidate, and the class {:?} keeps its locks \
                 in Leases, which no other cluster sees: write a selector, or name a class with spec.consul or \
                 spec.bucket in spec.className",
                class.name
            ),
        });
    }
    Ok(())
}

/// The settings of a class. The built-in class belongs to the default controller, so that only one of two installations
/// serves it.
struct Class<'a> {
    name: String,
    controller: &'a str,
    offered: bool,
    key_template: &'a str,
    key_pattern: Option<&'a str>,
    follow_pattern: Option<&'a str>,
    service_pattern: Option<&'a str>,
    allowed_workloads: api::AllowedWorkloads,
    /// How the class keeps its locks, if not in Leases.
    shared: Option<Result<SharedClass, Refusal>>,
}

fn find_class<'a>(wanted: Option<&str>, namespace: &str, classes: &'a Classes) -> Result<Class<'a>, Refusal> {
    let defaults: Vec<&String> = classes.iter().filter(|(_, class)| is_default(class)).map(|(name, _)| name).collect();
    let name = match (wanted, defaults.as_slice()) {
        (Some(name), _) => name,
        (None, []) => BUILT_IN_CLASS,
        (None, [name]) => name,
        (None, several) => {
            let names = several.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(Refusal {
                reason: "AmbiguousDefaultClass",
                message: format!(
                    "several classes are marked as the default ({names}): name one in spec.className, or take the \
                     annotation {DEFAULT_CLASS_ANNOTATION} off all but one"
                ),
            });
        }
    };
    match classes.get(name) {
        Some(class) => Ok(Class {
            name: name.into(),
            controller: &class.spec.controller,
            offered: class.spec.is_offered_to(namespace),
            key_template: class.spec.effective_key_template(),
            key_pattern: class.spec.key_pattern.as_deref(),
            follow_pattern: class.spec.follow_pattern.as_deref(),
            service_pattern: class.spec.consul.as_ref().and_then(|consul| consul.service_pattern.as_deref()),
            allowed_workloads: class.spec.allowed_workloads,
            shared: shared_class(class),
        }),
        None if name == BUILT_IN_CLASS => Ok(Class {
            name: name.into(),
            controller: DEFAULT_CONTROLLER,
            offered: true,
            key_template: "{name}",
            key_pattern: Some("*"),
            follow_pattern: None,
            service_pattern: None,
            allowed_workloads: api::AllowedWorkloads::All,
            shared: None,
        }),
        None => {
            let offered = offered(namespace, classes);
            Err(Refusal {
                reason: "UnknownClass",
                message: format!(
                    "there is no ElectionClass {name:?}: write one of {offered} into spec.className, or leave it out \
                     for the default"
                ),
            })
        }
    }
}

/// Returns the name of the class's store in messages.
fn kind(shared: Option<&SharedClass>) -> &'static str {
    shared.map_or("Leases", |shared| shared.kind())
}

/// Returns the names of the classes that a namespace may use, for a message.
fn offered(namespace: &str, classes: &Classes) -> String {
    let names = classes.iter().filter(|(_, class)| class.spec.is_offered_to(namespace)).map(|(name, _)| name.as_str());
    let built_in = [BUILT_IN_CLASS].into_iter().filter(|name| !classes.contains_key(*name));
    names.chain(built_in).collect::<Vec<_>>().join(", ")
}

/// Returns whether any class is marked as the default.
pub fn has_default(classes: &Classes) -> bool {
    classes.values().any(is_default)
}

fn is_default(class: &ElectionClass) -> bool {
    class
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(DEFAULT_CLASS_ANNOTATION))
        .is_some_and(|value| value == "true")
}

/// Returns the lock's name. A key that a user sets must stay within what the class allows, because otherwise one tenant
/// could take the lock of another.
fn resolve_key(
    election: &LeaderElection,
    wanted: Option<&str>,
    class: &Class,
    shared: Option<&SharedClass>,
) -> Result<lictor_core::Key, Refusal> {
    let name = election.metadata.name.as_deref().unwrap_or_default();
    let namespace = election.metadata.namespace.as_deref().unwrap_or_default();
    let expand = |template: &str| template.replace("{name}", name).replace("{namespace}", namespace);
    let by_template = expand(class.key_template);
    let key = match wanted {
        None => by_template,
        Some(key) if key == by_template => by_template,
        Some(key) => match class.key_pattern {
            Some(pattern) if fits(&expand(pattern), key) => key.into(),
            Some(pattern) => {
                return Err(refused_key(format!(
                    "spec.key is {key:?}, and the class {:?} allows only {:?} here: write such a key, or leave \
                     spec.key out for {by_template:?}",
                    class.name,
                    expand(pattern)
                )));
            }
            None => {
                return Err(refused_key(format!(
                    "spec.key is {key:?}, and the class {:?} names every lock itself: leave spec.key out for \
                     {by_template:?}",
                    class.name
                )));
            }
        },
    };
    match shared {
        Some(shared) => {
            shared.check_key(&key)?;
            Ok(lictor_core::Key { store: shared.store(), namespace: String::new(), name: key })
        }
        None if is_lease_name(&key) => Ok(lictor_core::Key::lease(namespace, key)),
        None => Err(refused_key(format!(
            "the lock would be named {key:?}, which is not a valid name for a Lease: it may have lower-case letters, \
             digits, '-' and '.', must begin and end with a letter or digit, and has at most 253 characters"
        ))),
    }
}

fn refused_key(message: String) -> Refusal {
    Refusal { reason: "KeyNotAllowed", message }
}

fn is_lease_name(name: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= 253
        && name.split('.').all(|part| {
            edge(part.chars().next())
                && edge(part.chars().last())
                && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        })
}

fn resolve_selector(selector: &api::LabelSelector) -> lictor_core::Selector {
    let requirement = |requirement: &api::LabelRequirement| lictor_core::Requirement {
        key: requirement.key.clone(),
        operator: match requirement.operator {
            api::LabelOperator::In => lictor_core::Operator::In,
            api::LabelOperator::NotIn => lictor_core::Operator::NotIn,
            api::LabelOperator::Exists => lictor_core::Operator::Exists,
            api::LabelOperator::DoesNotExist => lictor_core::Operator::DoesNotExist,
        },
        values: requirement.values.clone(),
    };
    lictor_core::Selector {
        match_labels: selector.match_labels.clone().into(),
        match_expressions: selector.match_expressions.iter().map(requirement).collect(),
    }
}

/// Returns what lictor writes to the pods of an election.
pub fn markings(spec: &api::LeaderElectionSpec) -> lictor_core::Markings {
    lictor_core::Markings {
        leader: resolve_marking(spec.leader.as_ref(), "leader"),
        follower: resolve_marking(spec.follower.as_ref(), "follower"),
        replaces: spec.when_label_in_use == api::WhenLabelInUse::Replace,
        holds: spec.handover.former_leader == api::FormerLeader::DeleteFirst,
    }
}

fn resolve_former_leader(handover: &api::Handover) -> lictor_core::FormerLeader {
    let evicts = handover.respect_disruption_budgets;
    match handover.former_leader {
        api::FormerLeader::Keep => lictor_core::FormerLeader::Keep,
        api::FormerLeader::Delete => lictor_core::FormerLeader::Delete { evicts },
        api::FormerLeader::DeleteFirst => lictor_core::FormerLeader::DeleteFirst { evicts },
    }
}

/// Returns what lictor writes for a role. The default is the label `role` with the role's name.
fn resolve_marking(marking: Option<&api::Marking>, role: &str) -> lictor_core::Marking {
    let marking = marking.cloned().unwrap_or_default();
    let default = || BTreeMap::from([("role".to_owned(), role.to_owned())]);
    lictor_core::Marking {
        labels: marking.labels.unwrap_or_else(default).into(),
        annotations: marking.annotations.into(),
    }
}

/// Refuses names that controllers own, because an older CRD may have let them in.
fn refuse_reserved(marking: &lictor_core::Marking, role: &str) -> Result<(), Refusal> {
    let label = marking.labels.keys().find(|name| reserved::is_label(name)).map(|name| ("labels", name));
    let annotation = || marking.annotations.keys().find(|name| reserved::is_annotation(name));
    let Some((field, name)) = label.or_else(|| annotation().map(|name| ("annotations", name))) else { return Ok(()) };
    Err(Refusal {
        reason: "ReservedName",
        message: format!(
            "spec.{role}.{field} has the name {name:?}, which is reserved for Kubernetes or lictor. A controller that \
             selects its pods by this name would replace each pod that lictor writes to: write a name of your own, for \
             example role"
        ),
    })
}

/// The beginning of 2026, in seconds since 1970. Terms that begin with a time count from then on, because a Lease shows
/// terms only up to 2^31. They last until 2094.
const TERMS_BEGIN: i64 = 1_767_225_600;

/// Returns the term below which no new one may be. The API server sets an election's creation time, so all operators
/// agree on it, whatever their clocks say.
fn resolve_first_term(first: Option<api::FirstTerm>, election: &LeaderElection) -> lictor_core::Term {
    let created = election.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
    let term = lictor_core::Term(created.saturating_sub(TERMS_BEGIN).max(1));
    let fits = first == Some(api::FirstTerm::CreationTime) && term.is_credible(false);
    if fits { term } else { lictor_core::Term::default() }
}

fn resolve_workload(workload: &api::Workload) -> (lictor_core::WorkloadId, WorkloadRule) {
    let rule = WorkloadRule {
        replicas: workload.replicas,
        delete_running: workload.when_disabled == Some(api::WhenDisabled::DeleteRunning),
        when_released: workload.when_released.unwrap_or_default(),
    };
    (lictor_core::WorkloadId { kind: workload.kind.into(), name: workload.name.clone() }, rule)
}

fn resolve_preference(preference: &api::Preference) -> lictor_core::Preference {
    if let (Some(annotation), Some(order)) = (&preference.by_annotation, preference.order) {
        let best = match order {
            api::NumberOrder::Lowest => lictor_core::Best::Lowest,
            api::NumberOrder::Highest => lictor_core::Best::Highest,
        };
        return lictor_core::Preference::Number { annotation: annotation.as_str().into(), best };
    }
    if let Some(api::Spread { group, topology_key }) = &preference.spread {
        let (group, topology_key) = (group.as_str().into(), topology_key.as_str().into());
        return lictor_core::Preference::Spread { group, topology_key };
    }
    let zone = preference.zone.iter().map(|zone| (lictor_core::ZONE_LABEL.to_owned(), zone.clone()));
    let node_labels = preference.node_selector.clone().unwrap_or_default().into_iter().chain(zone).collect();
    lictor_core::Preference::Weight { weight: preference.weight.unwrap_or_default(), node_labels }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn election(spec: serde_json::Value) -> LeaderElection {
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": "web"}});
        serde_json::from_value(json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": spec,
        }))
        .unwrap()
    }

    fn classes(list: &[(&str, bool, serde_json::Value)]) -> Classes {
        list.iter()
            .map(|(name, default, spec)| {
                let class = json!({
                    "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass",
                    "metadata": {"name": name, "annotations": {DEFAULT_CLASS_ANNOTATION: default.to_string()}}, "spec": spec,
                });
                ((*name).to_owned(), serde_json::from_value(class).unwrap())
            })
            .collect()
    }

    fn outcome(spec: serde_json::Value, classes: &Classes) -> Result<(String, String), &'static str> {
        match resolve(&election(spec), classes, DEFAULT_CONTROLLER) {
            None => Err("elsewhere"),
            Some(Ok(resolved)) => Ok((resolved.class_name, resolved.key.name)),
            Some(Err(refusal)) => Err(refusal.reason),
        }
    }

    #[test]
    fn the_class_is_the_named_one_then_the_default_one_then_the_built_in_one() {
        let ok = |class: &str, key: &str| Ok((class.to_owned(), key.to_owned()));
        let lease = |template: &str| json!({"lease": {}, "keyTemplate": template});
        let one = classes(&[("a", true, lease("{namespace}-{name}")), ("b", false, lease("b.{name}"))]);
        assert_eq!(outcome(json!({}), &Classes::new()), ok("lease", "web"));
        assert_eq!(outcome(json!({"className": "lease"}), &one), ok("lease", "web"));
        assert_eq!(outcome(json!({}), &one), ok("a", "shop-web"));
        assert_eq!(outcome(json!({"className": "b"}), &one), ok("b", "b.web"));
        assert_eq!(outcome(json!({"className": "c"}), &one), Err("UnknownClass"));
        let two = classes(&[("a", true, lease("{name}")), ("b", true, lease("{name}"))]);
        assert_eq!(outcome(json!({}), &two), Err("AmbiguousDefaultClass"));
        let foreign = classes(&[("a", true, json!({"lease": {}, "controller": "example.com/other"}))]);
        assert_eq!(outcome(json!({}), &foreign), Err("elsewhere"));
        assert_eq!(resolve(&election(json!({})), &Classes::new(), "example.com/other"), None, "one lictor serves it");
    }

    #[test]
    fn a_class_serves_the_namespaces_to_which_it_is_offered() {
        let to = |names: &[&str]| classes(&[("a", true, json!({"lease": {}, "allowedNamespaces": {"names": names}}))]);
        assert_eq!(outcome(json!({}), &to(&["bank", "shop"])), Ok(("a".into(), "web".into())));
        // Not another class in silence: its locks may be elsewhere.
        assert_eq!(outcome(json!({}), &to(&["bank"])), Err("ClassNotOffered"));
        assert_eq!(outcome(json!({"className": "a"}), &to(&["bank"])), Err("ClassNotOffered"));
        let message = resolve(&election(json!({"className": "a"})), &to(&["bank"]), DEFAULT_CONTROLLER);
        let message = message.and_then(Result::err).map(|refusal| refusal.message).unwrap_or_default();
        assert!(message.contains("write one of lease into spec.className"), "{message}");
        let all = classes(&[("lease", false, json!({"lease": {}, "allowedNamespaces": {"names": ["bank"]}}))]);
        assert_eq!(outcome(json!({}), &all), Err("ClassNotOffered"), "the built-in class can be taken away");
        let labelled =
            json!({"lease": {}, "allowedNamespaces": {"names": ["bank"], "selector": {"matchLabels": {"team": "a"}}}});
        let labelled = classes(&[("lease", false, labelled)]);
        let labels = |team: &str| -> Classes {
            let pairs = lictor_core::Pairs::from([("team".into(), team.into())]);
            with_selected(&labelled, &NamespaceLabels::from([("shop".into(), pairs)]))
        };
        assert!(outcome(json!({}), &labels("a")).is_ok(), "the label comes and goes");
        assert_eq!(outcome(json!({}), &labels("b")), Err("ClassNotOffered"));
        let foreign = json!({"lease": {}, "controller": "example.com/other", "allowedNamespaces": {"names": ["bank"]}});
        assert_eq!(outcome(json!({}), &classes(&[("a", true, foreign)])), Err("elsewhere"), "another lictor says it");
    }

    #[test]
    fn a_key_stays_inside_what_the_class_allows() {
        let of = |pattern: Option<&str>| {
            classes(&[("a", true, json!({"lease": {}, "keyTemplate": "{name}-lock", "keyPattern": pattern}))])
        };
        let key = |key: &str, pattern| outcome(json!({"key": key}), &of(pattern)).map(|(_, key)| key);
        assert_eq!(key("web-lock", None), Ok("web-lock".into()));
        assert_eq!(key("other", None), Err("KeyNotAllowed"));
        assert_eq!(key("shop-x", Some("{namespace}-*")), Ok("shop-x".into()));
        assert_eq!(key("bank-x", Some("{namespace}-*")), Err("KeyNotAllowed"));
        assert_eq!(key("shop-x_Y", Some("{namespace}-*")), Err("KeyNotAllowed"));
        assert_eq!(
            outcome(json!({"key": "anything.goes"}), &Classes::new()),
            Ok(("lease".into(), "anything.goes".into()))
        );
        assert_eq!(outcome(json!({"key": "../x"}), &Classes::new()), Err("KeyNotAllowed"));
    }

    #[test]
    fn a_former_leader_ends_first_only_where_no_other_cluster_takes_the_lock() {
        let consul = json!({"consul": {"address": "http://consul.example:8500", "clusterName": "west"}});
        let of = |what: &str, class: &serde_json::Value| {
            let spec = json!({"handover": {"formerLeader": what}});
            outcome(spec, &classes(&[("a", true, class.clone())])).map(|_| ())
        };
        assert_eq!(of("DeleteFirst", &json!({"lease": {}})), Ok(()));
        assert_eq!((of("DeleteFirst", &consul), of("Delete", &consul)), (Err("EndUnknown"), Ok(())));
    }

    #[test]
    fn a_lock_in_consul_is_named_by_the_template_and_stays_inside_the_pattern() {
        let of = |pattern: Option<&str>| {
            let consul = json!({"address": "http://consul.example:8500", "clusterName": "west"});
            classes(&[("a", true, json!({"consul": consul, "keyPattern": pattern}))])
        };
        let key = |key: Option<&str>, pattern| outcome(json!({"key": key}), &of(pattern)).map(|(_, key)| key);
        assert_eq!(key(None, None), Ok("services/shop/web/leader".into()));
        assert_eq!(key(Some("services/shop/web/leader"), None), Ok("services/shop/web/leader".into()));
        assert_eq!(key(Some("services/shop/x"), None), Err("KeyNotAllowed"));
        let tenants = Some("services/{namespace}/*");
        assert_eq!(key(Some("services/shop/x/y_z"), tenants), Ok("services/shop/x/y_z".into()));
        for other in
            ["services/bank/x", "services/shop/../bank/x", "services/shop//x", "services/shop/", "services/shop/X"]
        {
            assert_eq!(key(Some(other), tenants), Err("KeyNotAllowed"), "{other}");
        }
        assert_eq!(key(None, Some("elsewhere/*")), Err("InvalidClass"));
        let foreign =
            classes(&[("a", true, json!({"consul": {"address": "", "clusterName": ""}, "controller": "other"}))]);
        assert_eq!(outcome(json!({}), &foreign), Err("elsewhere"));
    }

    #[test]
    fn where_a_lock_is_kept_is_told_and_only_consul_knows_services() {
        let consul = classes(&[(
            "a",
            true,
            json!({"consul": {"address": "http://consul:8500", "clusterName": "west", "servicePattern": "{name}"}}),
        )]);
        let spec = json!({"sharedStore": {"consulService": {"name": "web", "port": 80}, "whenLost": "Keep"}});
        let resolved = resolve(&election(spec.clone()), &consul, DEFAULT_CONTROLLER).unwrap().unwrap();
        assert_eq!(resolved.key.store, lictor_core::StoreId("consul/a".into()));
        assert_eq!(resolved.when_lost, lictor_core::WhenLost::Keep);
        assert_eq!(resolved.consul_service, Some(api::ConsulService { name: "web".into(), port: 80 }));
        assert_eq!(outcome(spec, &Classes::new()), Err("NotInConsul"));
        let resolved = resolve(&election(json!({})), &Classes::new(), DEFAULT_CONTROLLER).unwrap().unwrap();
        assert_eq!(resolved.key.store, lictor_core::StoreId::leases());
        assert_eq!(resolved.when_lost, lictor_core::WhenLost::Demote);
    }

    /// The schema refuses this as well, but an election may be older than the schema.
    #[test]
    fn names_that_controllers_own_are_not_written_whatever_the_schema_let_in() {
        for (role, marking, named) in [
            ("leader", json!({"labels": {"role": "leader", "pod-template-hash": "x"}}), "labels"),
            ("follower", json!({"labels": {"batch.kubernetes.io/job-name": "x"}}), "labels"),
            ("follower", json!({"annotations": {"statefulset.kubernetes.io/pod-name": "x"}}), "annotations"),
            ("leader", json!({"annotations": {"lictor.dev/term": "7"}}), "annotations"),
        ] {
            let refused = resolve(&election(json!({role: marking})), &Classes::new(), DEFAULT_CONTROLLER);
            let refusal = refused.and_then(Result::err).unwrap_or_else(|| panic!("{marking} is refused"));
            assert_eq!(refusal.reason, "ReservedName");
            assert!(refusal.message.starts_with(&format!("spec.{role}.{named} has the name ")), "{}", refusal.message);
        }
        let cost = json!({"leader": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "5"}}});
        assert!(outcome(cost, &Classes::new()).is_ok(), "users need this one");
    }

    #[test]
    fn terms_begin_with_the_time_at_which_the_election_was_created_if_it_says_so() {
        let first = |first: serde_json::Value, created: &str| {
            let mut election = election(json!({"firstTerm": first}));
            let time = json!({"creationTimestamp": created});
            election.metadata.creation_timestamp =
                serde_json::from_value::<kube::core::ObjectMeta>(time).unwrap().creation_timestamp;
            resolve(&election, &Classes::new(), DEFAULT_CONTROLLER).unwrap().unwrap().first_term.0
        };
        let time = json!("CreationTime");
        assert_eq!(first(time.clone(), "2026-11-25T00:00:01Z"), 28_339_201);
        assert_eq!(first(time.clone(), "2090-01-01T00:00:00Z"), 2_019_686_400);
        for created in ["1970-01-01T00:00:00Z", "2026-01-01T00:00:00Z"] {
            assert_eq!(first(time.clone(), created), 1, "a clock that is wrong: {created}");
        }
        assert_eq!(first(time, "2200-01-01T00:00:00Z"), 0, "such a clock leaves no terms");
        assert_eq!((first(json!("One"), "2026-11-25T00:00:01Z"), first(json!(null), "2026-11-25T00:00:01Z")), (0, 0));
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text) in [
            ("a*c*", "abbc"),
            ("*", ""),
            ("**", ""),
            ("a", "a"),
            ("a*", "a"),
            ("*ab", "aab"),
            ("a*b*b", "abb"),
            ("*a*b*", "xayb"),
            ("é*", "éx"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a*c", "ab"), ("a", "ab"), ("a*a", "a"), ("a*b*b", "ab"), ("*a*b*", "xbya"), ("", "a")]
        {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }
}
