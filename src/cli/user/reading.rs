//! Reads a cluster for the commands for users, with the user's own rights.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::anyhow;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::api::{ListParams, PartialObjectMeta, Patch, PatchParams, PostParams, ValidationDirective};
use kube::core::Request;
use kube::{Api, Client, Resource, ResourceExt};
use lictor_api::{Classes, ElectionClass, GROUP, LeaderElection, Switchover, with_selected};
use lictor_core::{
    Controller, Failure, Instant, Key, Node, OtherLeader, Pod, Provenance, Selection, Selector, Stored, Timestamp, Uid,
    Unavailable, WorkloadId, WorkloadKind,
};
use lictor_kubernetes::{GRANT_TO_OPERATOR, WatchFailure, failure, within};
use lictor_process::wall;
use serde_json::json;

use crate::kubernetes::{
    Controllers, Crds, Installed, NamedBySlice, Namespaces, Pods, ServiceObject, ServiceSelector, WorkloadObject,
    Workloads, list_services, list_slices, read_nodes, read_service,
};
use crate::store::{LeaseStore, LockStore};

/// The object that was read, or a sentence that says why it can't be seen.
pub(super) type Seen<T> = Result<T, String>;

/// The field manager of everything that the commands for users write.
const FIELD_MANAGER: &str = "kubectl-lictor";

/// Whose rights are checked.
pub(super) enum Whose {
    /// The rights of the user who runs the command.
    Own,
    /// The rights of the operator's service account, by its full name.
    Operators { account: String },
}

/// A right, as RBAC names it.
#[derive(Clone, Copy)]
pub(super) struct Right<'a> {
    /// `None`: in all namespaces.
    pub(super) namespace: Option<&'a str>,
    pub(super) group: &'a str,
    pub(super) resource: &'a str,
    /// `None`: all objects.
    pub(super) name: Option<&'a str>,
    pub(super) verb: &'a str,
}

/// Why a dry run had no result.
pub(super) enum DryRun {
    /// The API server refuses the election, and says why.
    Refused(String),
    /// The user has no right to apply elections.
    NotAllowed(String),
    /// Anything else.
    NoAnswer(String),
}

/// The time of the command, on a clock that began long before.
pub(super) const NOW: Instant = Instant::after_origin(Duration::from_secs(1 << 40));

/// Reads a cluster.
pub(super) struct Reader {
    client: Client,
    timeout: Duration,
}

impl Reader {
    /// Creates it. `timeout` bounds each request.
    pub(super) fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Reads one election.
    ///
    /// # Errors
    /// If no election has this name, or if it can't be read.
    pub(super) async fn election(&self, namespace: &str, name: &str) -> anyhow::Result<LeaderElection> {
        self.read(namespace, name).await.map(slim)
    }

    async fn read(&self, namespace: &str, name: &str) -> anyhow::Result<LeaderElection> {
        let api: Api<LeaderElection> = Api::namespaced(self.client.clone(), namespace);
        match within(self.timeout, api.get_opt(name)).await {
            Ok(Some(election)) => Ok(election),
            Ok(None) => Err(anyhow!(
                "there is no LeaderElection {name} in the namespace {namespace}: `kubectl lictor list -A` lists all, \
                 and -n names another namespace"
            )),
            Err(error) => Err(anyhow!(told("get", "leaderelections", &error))),
        }
    }

    /// Reads one election. `None`: there is none of that name.
    ///
    /// # Errors
    /// If it can't be read.
    pub(super) async fn find_election(&self, namespace: &str, name: &str) -> anyhow::Result<Option<LeaderElection>> {
        let api: Api<LeaderElection> = Api::namespaced(self.client.clone(), namespace);
        let found = within(self.timeout, api.get_opt(name)).await;
        found.map(|found| found.map(slim)).map_err(|error| anyhow!(told("get", "leaderelections", &error)))
    }

    /// Asks the API server what a patch would make of an election, and writes nothing.
    ///
    /// # Errors
    /// Why there is no result.
    pub(super) async fn dry_run(
        &self,
        namespace: &str,
        name: &str,
        patch: &Patch<serde_json::Value>,
    ) -> Result<LeaderElection, DryRun> {
        let api: Api<LeaderElection> = Api::namespaced(self.client.clone(), namespace);
        let parameters = PatchParams {
            dry_run: true,
            field_manager: Some(FIELD_MANAGER.into()),
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        let error = match within(self.timeout, api.patch(name, &parameters, patch)).await {
            Ok(election) => return Ok(slim(election)),
            Err(error) => error,
        };
        let text = told("patch", "leaderelections", &error);
        let kube::Error::Api(status) = &error else { return Err(DryRun::NoAnswer(text)) };
        if status.is_forbidden() {
            // A policy may refuse the election in the same way.
            let right = Right {
                namespace: Some(namespace),
                group: GROUP,
                resource: "leaderelections",
                name: None,
                verb: "patch",
            };
            let may = self.is_allowed(&Whose::Own, right).await.unwrap_or_default();
            return Err(if may { DryRun::Refused(status.message.clone()) } else { DryRun::NotAllowed(text) });
        }
        let about_namespace = status.details.as_ref().is_some_and(|details| details.kind == "namespaces");
        Err(match status.code {
            404 if about_namespace => DryRun::Refused(format!(
                "there is no namespace {namespace}: create it first, or name another one with -n"
            )),
            400 | 409 | 413 | 422 => DryRun::Refused(status.message.clone()),
            // A field that the schema does not have.
            500 if matches!(patch, Patch::Apply(_)) => DryRun::Refused(status.message.clone()),
            _ => DryRun::NoAnswer(text),
        })
    }

    /// Reads one election, and the names of the programs that apply its `spec.paused` from elsewhere, as GitOps tools
    /// do.
    ///
    /// # Errors
    /// If no election has this name, or if it can't be read.
    pub(super) async fn election_and_managers(
        &self,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<(LeaderElection, Vec<String>)> {
        let election = self.read(namespace, name).await?;
        let managers = election.managed_fields().iter().filter(|entry| {
            let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
            let owns = fields.is_some_and(|fields| fields.pointer("/f:spec/f:paused").is_some());
            owns && entry.operation.as_deref() == Some("Apply")
        });
        let managers = managers.filter_map(|entry| entry.manager.clone()).collect();
        Ok((slim(election), managers))
    }

    /// Sets `spec.paused` of exactly this election.
    ///
    /// # Errors
    /// If the election is gone, or can't be written.
    pub(super) async fn set_paused(&self, election: &LeaderElection, paused: bool) -> anyhow::Result<()> {
        let api: Api<LeaderElection> = self.api(election.namespace().as_deref());
        let patch = Patch::Merge(json!({"metadata": {"uid": election.uid()}, "spec": {"paused": paused}}));
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.into()),
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        let name = election.name_any();
        let written = within(self.timeout, api.patch(&name, &parameters, &patch)).await;
        written.map(drop).map_err(|error| match &error {
            kube::Error::Api(status) if status.is_conflict() => {
                anyhow!("{} was deleted and created again meanwhile: look at it, and try again", full_name(election))
            }
            error => anyhow!(told("patch", "leaderelections", error)),
        })
    }

    /// Lists the elections of a namespace, or of all.
    ///
    /// # Errors
    /// If they can't be listed.
    pub(super) async fn elections(&self, namespace: Option<&str>) -> anyhow::Result<Vec<LeaderElection>> {
        let api: Api<LeaderElection> = self.api(namespace);
        let listed = within(self.timeout, api.list(&ListParams::default())).await;
        let listed = listed.map_err(|error| anyhow!(told("list", "leaderelections", &error)))?;
        Ok(listed.items.into_iter().map(slim).collect())
    }

    /// Lists all classes.
    pub(super) async fn classes(&self) -> Seen<Classes> {
        self.classes_or_right().await.map_err(|(why, _)| why)
    }

    /// Lists all classes. If that fails, also returns whether the right is missing.
    pub(super) async fn classes_or_right(&self) -> Result<Classes, (String, bool)> {
        let api: Api<ElectionClass> = Api::all(self.client.clone());
        let listed = within(self.timeout, api.list(&ListParams::default())).await;
        let listed = listed.map_err(|error| {
            let forbidden = matches!(&error, kube::Error::Api(status) if status.is_forbidden());
            (told("list", "electionclasses", &error), forbidden)
        })?;
        let classes = listed.items.into_iter().map(|class| (class.name_any(), class)).collect();
        Ok(self.with_selected(classes).await)
    }

    /// Adds to these classes the namespaces that they select by their labels.
    pub(super) async fn with_selected(&self, mut classes: Classes) -> Classes {
        if classes.values().all(|class| !class.spec.selects_namespaces()) {
            return classes;
        }
        let api: Api<k8s::Namespace> = Api::all(self.client.clone());
        let Ok(listed) = within(self.timeout, api.list_metadata(&ListParams::default())).await else {
            // Nothing is known of the labels, and the operator says in the status whether it refuses an election.
            for class in classes.values_mut().filter(|class| class.spec.selects_namespaces()) {
                class.spec.allowed_namespaces = None;
            }
            return classes;
        };
        let labels =
            |one: PartialObjectMeta<k8s::Namespace>| (one.name_any(), one.metadata.labels.unwrap_or_default().into());
        with_selected(&classes, &listed.items.into_iter().map(labels).collect())
    }

    /// Lists the pods that a selector matches.
    pub(super) async fn pods(&self, namespace: &str, selector: &Selector) -> Seen<Vec<Pod>> {
        let pods = Pods::new(self.client.clone(), self.timeout);
        let listed = pods.list(namespace, selector).await.map_err(own)?;
        let wall = wall();
        let seen = |pod: Pod| Pod { ready_observed: pod.ready_since.map(|since| moment(since, wall)), ..pod };
        Ok(listed.into_iter().map(seen).collect())
    }

    /// Reads a pod. `None`: there is no such pod.
    pub(super) async fn pod(&self, namespace: &str, name: &str) -> Seen<Option<Pod>> {
        Pods::new(self.client.clone(), self.timeout).read(namespace, name).await.map_err(own)
    }

    /// Reads the nodes of these pods, and these other ones.
    pub(super) async fn nodes(&self, pods: &[Pod], others: &[OtherLeader]) -> Seen<BTreeMap<String, Node>> {
        let others = others.iter().map(|other| other.node.clone());
        let names: BTreeSet<String> = pods.iter().filter_map(|pod| pod.node.clone()).chain(others).collect();
        read_nodes(&self.client, names, self.timeout).await.map_err(own)
    }

    /// Reads a lock in a Lease.
    pub(super) async fn lease(&self, key: &Key) -> Seen<Stored> {
        let namespaces = Namespaces::new(vec![key.namespace.clone()]);
        LeaseStore::new(self.client.clone(), namespaces, self.timeout).read(key).await.map_err(own)
    }

    /// Reads workloads. Those that do not exist are left out.
    pub(super) async fn workloads(&self, namespace: &str, ids: &[WorkloadId]) -> Seen<Vec<WorkloadObject>> {
        Workloads::new(self.client.clone(), self.timeout).list(namespace, ids).await.map_err(own)
    }

    /// Reads a Service. `None`: there is none of that name.
    pub(super) async fn service(&self, namespace: &str, name: &str) -> Seen<Option<ServiceObject>> {
        read_service(&self.client, namespace, name, self.timeout).await.map_err(own)
    }

    /// Reads the labels that a controller selects its pods by.
    pub(super) async fn selection(&self, namespace: &str, controller: &Controller) -> Seen<Selection> {
        Controllers::new(self.client.clone(), self.timeout).selection(namespace, controller).await.map_err(own)
    }

    /// Reads which labels and annotations came with a pod. `None`: there is no such pod.
    pub(super) async fn provenance(&self, namespace: &str, pod: &str) -> Seen<Option<(Uid, Provenance)>> {
        Pods::new(self.client.clone(), self.timeout).provenance(namespace, pod).await.map_err(own)
    }

    /// Reads whether a Deployment is available.
    pub(super) async fn available(&self, namespace: &str, deployment: &str) -> Seen<Result<(), Unavailable>> {
        let workloads = Workloads::new(self.client.clone(), self.timeout);
        let id = WorkloadId { kind: WorkloadKind::Deployment, name: deployment.into() };
        let found = workloads.list(namespace, &[id]).await.map_err(own)?;
        let available = found.first().is_some_and(|deployment| deployment.available);
        Ok(if available { Ok(()) } else { Err(Unavailable) })
    }

    /// Lists the Events about an election, newest first.
    pub(super) async fn events(&self, election: &LeaderElection) -> Seen<Vec<Event>> {
        let namespace = election.namespace();
        let api: Api<Event> = self.api(namespace.as_deref());
        // An earlier election may have had the same name.
        let about = format!("regarding.uid={}", election.uid().unwrap_or_default());
        let listed = within(self.timeout, api.list(&ListParams::default().fields(&about))).await;
        let mut events = listed.map_err(|error| told("list", "events", &error))?.items;
        events.sort_by_key(|event| std::cmp::Reverse(last_seen(event)));
        Ok(events)
    }

    /// Reads the API server's version.
    ///
    /// # Errors
    /// If it does not answer.
    pub(super) async fn version(&self) -> kube::Result<Info> {
        within(self.timeout, self.client.apiserver_version()).await
    }

    /// Reads the state of the CRDs.
    ///
    /// # Errors
    /// If they can't be read.
    pub(super) async fn crds(&self) -> Result<Vec<(String, Installed)>, Failure> {
        Crds::new(self.client.clone(), self.timeout).installed().await
    }

    /// Lists the Services that select pods.
    pub(super) async fn services(&self, namespaces: &Namespaces) -> Seen<Vec<ServiceSelector>> {
        list_services(&self.client, namespaces, self.timeout).await.map_err(own)
    }

    /// Lists the pods in the slices of Services.
    pub(super) async fn slices(&self, namespace: &str) -> Seen<Vec<NamedBySlice>> {
        list_slices(&self.client, namespace, self.timeout).await.map_err(own)
    }

    /// Lists the Leases that hold locks.
    pub(super) async fn locks(&self, namespace: Option<&str>) -> Seen<Vec<Lease>> {
        let own = ListParams::default().labels("app.kubernetes.io/managed-by=lictor");
        let listed = within(self.timeout, self.api::<Lease>(namespace).list(&own)).await;
        listed.map(|list| list.items).map_err(|error| told("list", "leases", &error))
    }

    /// Lists Switchovers.
    pub(super) async fn switchovers(&self, namespace: Option<&str>) -> Seen<Vec<Switchover>> {
        let listed = within(self.timeout, self.api::<Switchover>(namespace).list(&ListParams::default())).await;
        listed.map(|list| list.items).map_err(|error| told("list", "switchovers", &error))
    }

    /// Reads one Switchover. `None`: it is gone.
    pub(super) async fn switchover(&self, namespace: &str, name: &str) -> Seen<Option<Switchover>> {
        let read = within(self.timeout, self.api::<Switchover>(Some(namespace)).get_opt(name)).await;
        read.map_err(|error| told("get", "switchovers", &error))
    }

    /// Creates a Switchover. If the answer is lost, checks whether the Switchover exists.
    ///
    /// # Errors
    /// If the API server refused it, or if it is unknown whether it was created.
    pub(super) async fn create_switchover(
        &self,
        namespace: &str,
        switchover: &Switchover,
    ) -> anyhow::Result<Switchover> {
        let api: Api<Switchover> = self.api(Some(namespace));
        let error = match within(self.timeout, self.client.request(strict_creation(&api, switchover)?)).await {
            Ok(created) => return Ok(created),
            Err(error) => error,
        };
        let name = switchover.name_any();
        if let Failure::Unknown(lost) = failure("create", "switchovers", &error) {
            return match self.switchover(namespace, &name).await {
                Ok(Some(created)) => Ok(created),
                Ok(None) => Err(anyhow!(
                    "{lost}; the Switchover does not exist yet: check again with `kubectl -n {namespace} get swo`"
                )),
                Err(_) => Err(anyhow!("{lost}; `kubectl -n {namespace} get swo {name}` shows whether it was created")),
            };
        }
        Err(anyhow!(told("create", "switchovers", &error)))
    }

    /// Lists the Events about elections that the API server still has.
    pub(super) async fn all_events(&self, namespace: Option<&str>) -> Seen<Vec<Event>> {
        let about = ListParams::default().fields("regarding.kind=LeaderElection");
        let listed = within(self.timeout, self.api::<Event>(namespace).list(&about)).await;
        listed.map(|list| list.items).map_err(|error| told("list", "events", &error))
    }

    /// Reads the last lines of the logs of pods, each with its pod's name.
    pub(super) async fn logs(&self, namespace: &str, labels: &str, lines: i64) -> Seen<Vec<(String, Seen<String>)>> {
        let logs = Pods::new(self.client.clone(), self.timeout).logs(namespace, labels, lines).await.map_err(own)?;
        Ok(logs.into_iter().map(|(pod, log)| (pod, log.map_err(own))).collect())
    }

    /// Lists Deployments by their labels.
    pub(super) async fn deployments(&self, namespace: &str, labels: &str) -> Seen<Vec<Deployment>> {
        let listed = within(self.timeout, self.api(Some(namespace)).list(&ListParams::default().labels(labels))).await;
        listed.map(|list| list.items).map_err(|error| told("list", "deployments", &error))
    }

    /// Lists the Leases of this name in all namespaces.
    pub(super) async fn leases(&self, name: &str) -> Seen<Vec<Lease>> {
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        let listed = within(self.timeout, self.api::<Lease>(None).list(&named)).await;
        listed.map(|list| list.items).map_err(|error| told("list", "leases", &error))
    }

    /// Reads the operator's own Lease.
    pub(super) async fn operator_lease(&self, namespace: &str, name: &str) -> Seen<Option<Lease>> {
        let read = within(self.timeout, self.api(Some(namespace)).get_opt(name)).await;
        read.map_err(|error| told("get", "leases", &error))
    }

    /// Returns the name by which the API server knows whoever runs this. `None`: it does not say.
    pub(super) async fn user_name(&self) -> Option<String> {
        self.review().await?.status?.user_info?.username
    }

    /// Returns the time by the API server's clock. `None`: it does not say.
    pub(super) async fn now(&self) -> Option<k8s_openapi::jiff::Timestamp> {
        self.review().await?.metadata.creation_timestamp.map(|time| time.0)
    }

    /// Asks the API server who runs this. It writes nothing by that, and stamps its answer with its time.
    async fn review(&self) -> Option<SelfSubjectReview> {
        let api: Api<SelfSubjectReview> = Api::all(self.client.clone());
        within(self.timeout, api.create(&PostParams::default(), &SelfSubjectReview::default())).await.ok()
    }

    /// Asks the API server whether an account has a right.
    pub(super) async fn is_allowed(&self, whose: &Whose, right: Right<'_>) -> Seen<bool> {
        let Right { namespace, group, resource, name, verb } = right;
        let (resource, subresource) = resource.split_once('/').map_or((resource, None), |(of, sub)| (of, Some(sub)));
        let attributes = Some(ResourceAttributes {
            group: Some(group.into()),
            namespace: namespace.map(Into::into),
            resource: Some(resource.into()),
            subresource: subresource.map(Into::into),
            name: name.map(Into::into),
            verb: Some(verb.into()),
            ..ResourceAttributes::default()
        });
        let status = match whose {
            Whose::Own => {
                let spec = SelfSubjectAccessReviewSpec { resource_attributes: attributes, ..Default::default() };
                let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
                let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
                let answer = within(self.timeout, api.create(&PostParams::default(), &review)).await;
                answer.map_err(|error| told("create", "selfsubjectaccessreviews", &error))?.status
            }
            Whose::Operators { account } => {
                let namespace = account.split(':').nth(2).unwrap_or_default();
                let groups = ["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
                let groups = groups.into_iter().chain(["system:authenticated".to_owned()]).collect();
                let spec = SubjectAccessReviewSpec {
                    resource_attributes: attributes,
                    user: Some(account.clone()),
                    groups: Some(groups),
                    ..Default::default()
                };
                let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
                let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
                let answer = within(self.timeout, api.create(&PostParams::default(), &review)).await;
                answer.map_err(|error| told("create", "subjectaccessreviews", &error))?.status
            }
        };
        Ok(status.is_some_and(|status| status.allowed))
    }

    fn api<K>(&self, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match namespace {
            None => Api::all(self.client.clone()),
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
        }
    }
}

/// Returns a condition of an election.
pub(super) fn condition<'a>(election: &'a LeaderElection, type_: &str) -> Option<&'a Condition> {
    conditions(election).find(|condition| condition.type_ == type_)
}

/// Returns all conditions of an election.
pub(super) fn conditions(election: &LeaderElection) -> impl Iterator<Item = &Condition> {
    election.status.iter().flat_map(|status| &status.conditions)
}

/// Makes the request that creates a Switchover. The API server refuses it if its CRD lacks a field of the Switchover. By default, it would
/// drop the field, and a Switchover without its target moves the leader to any pod.
fn strict_creation(api: &Api<Switchover>, switchover: &Switchover) -> anyhow::Result<http::Request<Vec<u8>>> {
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    let (mut parts, body) =
        Request::new(api.resource_url()).create(&parameters, serde_json::to_vec(switchover)?)?.into_parts();
    parts.uri = format!("{}&fieldValidation=Strict", parts.uri).parse()?;
    Ok(http::Request::from_parts(parts, body))
}

/// Returns an election's namespace and name in the usual notation.
pub(super) fn full_name(election: &LeaderElection) -> String {
    format!("{}/{}", election.namespace().unwrap_or_default(), election.name_any())
}

/// Returns when an Event occurred last.
pub(super) fn last_seen(event: &Event) -> Option<k8s_openapi::jiff::Timestamp> {
    let repeated = event.series.as_ref().map(|series| series.last_observed_time.0);
    repeated.or_else(|| event.event_time.as_ref().map(|time| time.0))
}

/// Returns why a request failed, for the user who sent it.
pub(super) fn told(verb: &str, resource: &str, error: &kube::Error) -> String {
    // If the whole group is unknown, the answer has no reason.
    let ours = ["leaderelections", "electionclasses", "switchovers"].contains(&resource);
    if ours && matches!(error, kube::Error::Api(status) if status.code == 404) {
        return unknown(resource);
    }
    // Only what the API server can't read at all, or not by its CRD, is a bad request.
    if ours && matches!(error, kube::Error::Api(status) if status.code == 400) {
        let why = own(failure(verb, resource, error));
        return format!("{why}. If the CRDs are older than this program, `lictor crd --apply` renews them");
    }
    own(failure(verb, resource, error))
}

/// Explains why the API server does not know a kind of lictor's.
fn unknown(resource: &str) -> String {
    format!(
        "the API server does not know {resource}: lictor is not installed in this cluster, its CRDs are older (`lictor \
         crd --apply` renews them), or the kubeconfig names another cluster"
    )
}

/// Returns why elections can't be watched, for whoever runs this.
pub(super) fn told_of_watch(failure: WatchFailure) -> String {
    match failure {
        WatchFailure::Unknown(_) => unknown("leaderelections"),
        WatchFailure::Forbidden(failure) | WatchFailure::Other(failure) => own(failure),
    }
}

/// Returns a failure's text without the advice for the operator's administrator.
fn own(failure: Failure) -> String {
    let text = failure.into_text();
    text.strip_suffix(GRANT_TO_OPERATOR).unwrap_or(&text).to_owned()
}

/// Returns since when the pod is ready, on the clock of this command. Its node's clock may differ.
fn moment(since: Timestamp, wall: Timestamp) -> Instant {
    NOW - Duration::from_millis(u64::try_from(wall.0.saturating_sub(since.0)).unwrap_or_default())
}

/// Returns the election without fields that are of no use to readers.
fn slim(mut election: LeaderElection) -> LeaderElection {
    election.metadata.managed_fields = None;
    election
}
