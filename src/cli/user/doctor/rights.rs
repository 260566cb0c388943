//! The operator's rights: those that it always needs, and those that classes and elections require.

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use lictor_api::{Classes, FormerLeader, LeaderElection, WhenDisabled, Workload, WorkloadKind, resolve, shared_class};

use super::finding::Finding;
use super::installation::Operator;
use crate::cli::installation::Installation;
use crate::cli::user::reading::{Reader, Right, Whose, full_name};
use crate::kubernetes::Namespaces;

/// Group, resource, verbs. docs/operating.md says what each is for.
type Need = (&'static str, &'static str, &'static [&'static str]);

/// The rights that the operator needs in each namespace that it serves.
const ALWAYS: [Need; 12] = [
    ("lictor.dev", "leaderelections", &["get", "list", "watch", "patch"]),
    ("lictor.dev", "leaderelections/status", &["patch"]),
    ("lictor.dev", "switchovers", &["list", "watch", "delete"]),
    ("lictor.dev", "switchovers/status", &["patch"]),
    ("", "pods", &["get", "list", "watch", "patch"]),
    ("apps", "replicasets", &["get"]),
    ("apps", "statefulsets", &["get"]),
    ("apps", "daemonsets", &["get"]),
    ("batch", "jobs", &["get"]),
    ("", "replicationcontrollers", &["get"]),
    ("coordination.k8s.io", "leases", LEASE),
    ("events.k8s.io", "events", &["create", "patch"]),
];

const LEASE: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];

/// The rights that the operator needs in the whole cluster. With `--namespaces` it can do without, and then serves only the
/// built-in class.
const CLASSES: Need = ("lictor.dev", "electionclasses", &["list", "watch"]);

/// The rights in the whole cluster that the operator can do without, and the consequence.
const HELPFUL: [(Need, &str); 2] = [
    (("", "nodes", &["list", "watch"]), "lictor notices lost nodes and drains late"),
    (("lictor.dev", "electionclasses/status", &["patch"]), "classes do not say whether their store answers"),
];

/// The right that the operator needs if a class selects namespaces by their labels, and the consequence if it lacks it.
const LABELS: (Need, &str) =
    (("", "namespaces", &["list", "watch"]), "a class with allowedNamespaces.selector is offered by name alone");

/// The rights that the operator needs if an election has spec.service.
const ROUTING: [Need; 3] = [
    ("", "services", &["list", "watch"]),
    ("", "endpoints", &["get"]),
    ("discovery.k8s.io", "endpointslices", &["get", "list", "watch", "create", "update", "delete"]),
];

/// The rights that the operator needs if an election's spec.service has ports.
const CREATED: Need = ("", "services", &["create", "patch", "delete"]);

/// The rights that the operator needs for the Secrets that its classes name.
const SECRET: Need = ("", "secrets", &["get", "list", "watch"]);

/// How many elections are named.
const MOST: usize = 3;
/// How many rights are asked about at a time.
const AT_ONCE: usize = 8;

/// A right in one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    /// `None`: all namespaces.
    namespace: Option<String>,
    group: &'static str,
    resource: &'static str,
    /// `None`: all objects.
    name: Option<String>,
    verb: &'static str,
}

/// Returns the rights of a need in one place.
fn wanted(namespace: Option<&str>, (group, resource, verbs): Need, name: Option<&str>) -> impl Iterator<Item = Wanted> {
    let (namespace, name) = (namespace.map(str::to_owned), name.map(str::to_owned));
    verbs.iter().map(move |verb| Wanted { namespace: namespace.clone(), group, resource, name: name.clone(), verb })
}

impl Wanted {
    fn of_what(&self) -> String {
        let name = self.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        let place = self.namespace.as_ref().map_or("all namespaces".into(), |name| format!("the namespace {name}"));
        format!("{}{name} in {place}", self.resource)
    }
}

/// Whose rights are checked: those of the operator's account or, if that is unknown, of whoever runs this.
pub(super) struct Account<'a> {
    reader: &'a Reader,
    operator: &'a Operator,
    whose: Whose,
    /// In words.
    whom: String,
}

impl<'a> Account<'a> {
    pub(super) async fn of(reader: &'a Reader, operator: &'a Operator) -> Self {
        let own = reader.user_name().await;
        let whose = whose(own.as_deref(), operator);
        let whom = match (&whose, &own) {
            (Whose::Operators { account }, _) => format!("the operator's account {account}"),
            (Whose::Own, Some(name)) => format!("you ({name}), who need not be the operator"),
            (Whose::Own, None) => "you, who need not be the operator".into(),
        };
        Self { reader, operator, whose, whom }
    }

    /// Checks what an installation needs regardless of its elections.
    pub(super) async fn check(&self, installation: &Installation) -> Vec<Finding> {
        let namespaces = installation.namespaces();
        let mut needed = installed(&namespaces, &self.operator.namespace, &installation.lease_name());
        // Another finding reports that the classes can't be read.
        let classes = self.reader.classes().await.unwrap_or_default();
        needed.extend(secrets(&classes, &installation.controller, &self.operator.namespace));
        let mut findings = vec![match self.lacks(&needed).await {
            Ok(lacks) if lacks.is_empty() => {
                Finding::ok(format!("{} rights are granted to {}", needed.len(), self.whom))
            }
            Ok(lacks) => self.missing("", &lacks, "docs/operating.md lists them"),
            Err(unseen) => return vec![unseen],
        }];
        if !namespaces.scopes().contains(&None) {
            return findings;
        }
        let by_label = classes.values().any(|class| class.spec.selects_namespaces());
        for (need, without) in HELPFUL.into_iter().chain(by_label.then_some(LABELS)) {
            let wanted: Vec<Wanted> = wanted(None, need, None).collect();
            match self.lacks(&wanted).await {
                Ok(lacks) if lacks.is_empty() => {}
                Ok(lacks) => findings.push(Finding::note(format!(
                    "not granted to {}: {}. Everything else works, but {without}",
                    self.whom,
                    in_words(&lacks)
                ))),
                Err(unseen) => findings.push(unseen),
            }
        }
        findings
    }

    /// Checks what the elections of this installation require in addition: routing by slices, and workloads.
    pub(super) async fn check_elections(
        &self,
        installation: &Installation,
        elections: &[LeaderElection],
    ) -> Vec<Finding> {
        let classes = self.reader.classes().await.unwrap_or_default();
        let scopes = installation.namespaces().scopes();
        let served: Vec<&LeaderElection> =
            elections.iter().filter(|one| resolve(one, &classes, &installation.controller).is_some()).collect();
        let mut findings = Vec::new();
        for (field, docs, needs) in [
            (
                "spec.service",
                "With the chart, set routing.enabled; docs/operating.md lists them",
                routing as fn(&_) -> _,
            ),
            (
                "spec.handover.formerLeader",
                "With the chart, set fencing.enabled; docs/former-leader.md lists them",
                fencing,
            ),
            ("spec.workloads", "With the chart, set workloads.enabled; docs/workloads.md lists them", workloads),
        ] {
            let asks: Vec<(&LeaderElection, Vec<Need>)> =
                served.iter().map(|one| (*one, needs(one))).filter(|(_, needs)| !needs.is_empty()).collect();
            if asks.is_empty() {
                continue;
            }
            let mut needed: Vec<Wanted> = asks.iter().flat_map(|(one, needs)| asked(one, needs, &scopes)).collect();
            needed.sort();
            needed.dedup();
            let whose = names(asks.iter().map(|(one, _)| full_name(one)).collect());
            findings.push(match self.lacks(&needed).await {
                Ok(lacks) if lacks.is_empty() => {
                    Finding::ok(format!("{} more rights are granted, for {field} of {whose}", needed.len()))
                }
                Ok(lacks) => self.missing(&format!(" for {field} of {whose}"), &lacks, docs),
                Err(unseen) => unseen,
            });
        }
        findings
    }

    fn missing(&self, purpose: &str, lacks: &[Wanted], docs: &str) -> Finding {
        Finding::wrong(format!("rights are missing to {}{purpose}: {}. {docs}", self.whom, in_words(lacks)))
    }

    /// Returns which of these rights are not granted.
    ///
    /// # Errors
    /// Returns the finding to report if the API server can't be asked.
    async fn lacks(&self, needed: &[Wanted]) -> Result<Vec<Wanted>, Finding> {
        let answers = stream::iter(needed).map(|one| async move {
            let Wanted { namespace, group, resource, name, verb } = one;
            let right = Right { namespace: namespace.as_deref(), group, resource, name: name.as_deref(), verb };
            (one, self.reader.is_allowed(&self.whose, right).await)
        });
        let mut lacks = Vec::new();
        for (one, answer) in answers.buffered(AT_ONCE).collect::<Vec<_>>().await {
            match answer {
                Ok(true) => {}
                Ok(false) => lacks.push(one.clone()),
                Err(why) => {
                    let deployment = self.operator.deployment.as_ref().map(ResourceExt::name_any).unwrap_or_default();
                    return Err(Finding::unseen(format!(
                        "the operator's rights were not checked: {why}. It can check them itself: kubectl -n {} exec \
                         deploy/{deployment} -- /lictor doctor",
                        self.operator.namespace
                    )));
                }
            }
        }
        Ok(lacks)
    }
}

/// The rights that an installation needs in the namespaces that it serves, and in that of its own Lease.
fn installed(namespaces: &Namespaces, own_namespace: &str, lease: &str) -> Vec<Wanted> {
    let scopes = namespaces.scopes();
    let mut needed: Vec<Wanted> = Vec::new();
    for scope in &scopes {
        needed.extend(ALWAYS.into_iter().flat_map(|need| wanted(scope.as_deref(), need, None)));
        if scope.is_none() {
            needed.extend(wanted(None, CLASSES, None));
        }
    }
    let own = Some(own_namespace.to_owned());
    if !scopes.contains(&None) && !scopes.contains(&own) {
        // RBAC can't restrict creation by name.
        let name = |verb: &str| Some(lease).filter(|_| verb != "create");
        let own = LEASE.iter().map(|verb| Wanted {
            namespace: own.clone(),
            group: "coordination.k8s.io",
            resource: "leases",
            name: name(verb).map(str::to_owned),
            verb,
        });
        needed.extend(own);
    }
    needed
}

/// The Secrets that the classes of an operator name.
fn secrets<'a>(classes: &'a Classes, controller: &'a str, own_namespace: &'a str) -> impl Iterator<Item = Wanted> + 'a {
    let own = classes.values().filter(move |class| class.spec.controller == controller);
    let secrets = own.filter_map(|class| shared_class(class)?.ok()).flat_map(|class| class.secrets());
    secrets.flat_map(move |secret| {
        let namespace = secret.namespace.unwrap_or_else(|| own_namespace.to_owned());
        wanted(Some(&namespace), SECRET, Some(&secret.name)).collect::<Vec<_>>()
    })
}

fn routing(election: &LeaderElection) -> Vec<Need> {
    let service = election.spec.service.as_ref();
    let created = service.filter(|service| service.is_created()).map(|_| CREATED);
    service.into_iter().flat_map(|_| ROUTING).chain(created).collect()
}

fn fencing(election: &LeaderElection) -> Vec<Need> {
    let handover = &election.spec.handover;
    match (handover.former_leader, handover.respect_disruption_budgets) {
        (FormerLeader::Keep, _) => vec![],
        (FormerLeader::Delete | FormerLeader::DeleteFirst, true) => vec![("", "pods/eviction", &["create"])],
        (FormerLeader::Delete | FormerLeader::DeleteFirst, false) => vec![("", "pods", &["delete"])],
    }
}

fn workloads(election: &LeaderElection) -> Vec<Need> {
    const FOLLOW: &[&str] = &["get", "list", "watch", "patch"];
    let mut needs: Vec<Need> = Vec::new();
    for Workload { kind, when_disabled, job_template, .. } in &election.spec.workloads {
        match kind {
            WorkloadKind::CronJob => needs.extend([
                ("batch", "cronjobs", FOLLOW),
                ("batch", "cronjobs/status", &["patch"]),
                ("batch", "jobs", &["get", "list", "watch"]),
            ]),
            WorkloadKind::Deployment => needs.push(("apps", "deployments", FOLLOW)),
            WorkloadKind::Job => needs.push(("batch", "jobs", FOLLOW)),
            WorkloadKind::StatefulSet => needs.push(("apps", "statefulsets", FOLLOW)),
        }
        if *when_disabled == Some(WhenDisabled::DeleteRunning) {
            needs.push(("batch", "jobs", &["delete"]));
        }
        if job_template.is_some() {
            needs.push(("batch", "jobs", &["create", "delete"]));
        }
    }
    needs
}

/// The rights that an election requires, in all namespaces if its operator watches all of them.
fn asked(election: &LeaderElection, needs: &[Need], scopes: &[Option<String>]) -> Vec<Wanted> {
    let own = election.namespace();
    let place = if scopes.contains(&None) { None } else { own.as_deref() };
    // Elections of other namespaces are not served.
    let served = place.is_none() || scopes.contains(&own);
    needs.iter().filter(|_| served).flat_map(|need| wanted(place, *need, None)).collect()
}

/// Puts rights into words, grouped by resource.
fn in_words(lacks: &[Wanted]) -> String {
    let same = lacks.chunk_by(|one, next| one.of_what() == next.of_what());
    let told = same.map(|all| {
        let verbs: Vec<&str> = all.iter().map(|one| one.verb).collect();
        format!("{} {}", verbs.join("/"), all[0].of_what())
    });
    told.collect::<Vec<_>>().join(", ")
}

/// Names some, and says how many more there are.
fn names(all: Vec<String>) -> String {
    let more = all.len().saturating_sub(MOST);
    let named = all.into_iter().take(MOST).collect::<Vec<_>>().join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

/// The account whose rights matter.
fn whose(own: Option<&str>, operator: &Operator) -> Whose {
    let account = |deployment: &Deployment| {
        let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
        let name = pod.service_account_name.as_deref().unwrap_or("default");
        Some(format!("system:serviceaccount:{}:{name}", operator.namespace))
    };
    let found = operator.deployment.as_ref().and_then(account);
    match found {
        // The operator's own account needs no right to ask about itself.
        Some(account) if own != Some(&*account) => Whose::Operators { account },
        _ => Whose::Own,
    }
}
