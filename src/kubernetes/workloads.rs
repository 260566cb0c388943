//! Workloads that follow a leader, as a slim type. This is the only place in this program that writes to them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::jiff::Timestamp as Wall;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use lictor_api::{JobTemplate, LeaderElection};
use lictor_core::{
    ELECTION_ANNOTATION, ENABLED_ANNOTATION, Failure, JobPlan, KEPT_ANNOTATION, Pairs, Selector, Setting,
    TEMPLATE_ANNOTATION, TERM_ANNOTATION, Timestamp, Uid, Version, WRITTEN_ANNOTATION, WorkloadClaim, WorkloadId,
    WorkloadKind, WorkloadOutcome, WriteWorkload,
};
use lictor_kubernetes::{Change, changes, failure, version_of, within};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Namespaces;

/// The name of this program's writes in `metadata.managedFields`.
pub const FIELD_MANAGER: &str = "lictor";

/// The annotation of a Job that has the time in its CronJob's schedule for which it was created.
const SCHEDULED_ANNOTATION: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// The annotations of a claim.
const CLAIM_ANNOTATIONS: [&str; 5] =
    [ELECTION_ANNOTATION, ENABLED_ANNOTATION, TERM_ANNOTATION, WRITTEN_ANNOTATION, KEPT_ANNOTATION];

/// The number of attempts to remove this program's name from an object.
const DISOWN_TRIES: usize = 5;

/// Kubernetes' default grace period, in seconds.
const DEFAULT_GRACE: u32 = 30;

/// A workload as the API server has it.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, as the API server tells them")]
pub struct WorkloadObject {
    /// The namespace.
    pub namespace: String,
    /// The kind and name.
    pub id: WorkloadId,
    /// The uid.
    pub uid: Uid,
    /// The observed version.
    pub version: Version,
    /// Whether it may run.
    pub setting: Setting,
    /// The claim that an election wrote on the workload.
    pub claim: Option<WorkloadClaim>,
    /// The template that a Job was created from.
    pub template: Option<String>,
    /// The selector of its pods.
    pub selector: Selector,
    /// The labels of its pods, as its template has them.
    pub pod_labels: Pairs,
    /// How long its pods may take to end, in seconds.
    pub grace: u32,
    /// Whether its pods end one after the other.
    pub one_by_one: bool,
    /// Whether its deletion was requested.
    pub deleting: bool,
    /// Whether it is a Job that has ended.
    pub finished: bool,
    /// Whether its controller says that it has no pods left.
    pub idle: bool,
    /// Whether it is a Deployment that has the condition Available.
    pub available: bool,
    /// The CronJob that owns a Job.
    pub owner: Option<Uid>,
    /// Of a CronJob: the last time in its schedule for which a Job was created. Of a Job: the time for which it was created.
    pub tick: Option<Timestamp>,
    /// The last writer of its setting, unless that was lictor.
    pub setter: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimSpec {
    replicas: Option<i32>,
    suspend: Option<bool>,
    selector: Option<Selector>,
    template: SlimTemplate,
    job_template: SlimJobTemplate,
    pod_management_policy: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlimJobTemplate {
    spec: SlimJobSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlimJobSpec {
    template: SlimTemplate,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlimTemplate {
    metadata: SlimLabels,
    spec: SlimGrace,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlimLabels {
    labels: Option<Pairs>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimGrace {
    /// This may be any number: the API server accepts numbers here that it refuses in a pod.
    termination_grace_period_seconds: Value,
}

impl SlimGrace {
    fn seconds(&self) -> u32 {
        let given = self.termination_grace_period_seconds.as_i64();
        given.map_or(DEFAULT_GRACE, |seconds| u32::try_from(seconds.max(0)).unwrap_or(u32::MAX))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimStatus {
    observed_generation: i64,
    replicas: i32,
    active: Value,
    terminating: i32,
    conditions: Vec<SlimCondition>,
    last_schedule_time: Option<Wall>,
}

#[derive(Deserialize)]
struct SlimCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl WorkloadObject {
    /// Returns whether it can run, as far as its spec says.
    pub fn runs(&self) -> bool {
        self.setting.runs() && !self.finished
    }

    /// Returns the name of the election that created this Job from a template, if the Job no longer has an owner because the election was
    /// deleted with `--cascade=orphan`.
    pub fn orphan_of(&self) -> Option<&str> {
        let (claim, template) = (self.claim.as_ref()?, self.template.as_ref()?);
        let is_made = JobPlan { name: template.clone(), started: None }.term_of(&self.id).is_some();
        (is_made && self.owner.is_none()).then_some(&claim.election)
    }

    /// Returns whether an election created this Job from the template of this name, or an earlier election of the same name did.
    fn is_made_by(&self, election: &LeaderElection, template: &str) -> bool {
        let owned = self.owner.as_ref().is_some_and(|owner| Some(&owner.0) == election.metadata.uid.as_ref());
        let left = self.orphan_of().is_some() && self.orphan_of() == election.metadata.name.as_deref();
        self.template.as_deref() == Some(template) && (owned || left)
    }

    /// Returns the selector of its own pods, or `None` if its pods belong to Jobs in between.
    pub fn pods(&self) -> Option<&Selector> {
        Some(&self.selector).filter(|selector| **selector != Selector::default())
    }

    fn read(kind: WorkloadKind, object: &DynamicObject) -> Self {
        let version = version_of(object);
        let spec: SlimSpec = part(object, "spec");
        let status: SlimStatus = part(object, "status");
        let annotations = object.annotations();
        let holds = |types: &[&str]| {
            status.conditions.iter().any(|found| found.status == "True" && types.contains(&found.type_.as_str()))
        };
        let scaled = matches!(kind, WorkloadKind::Deployment | WorkloadKind::StatefulSet);
        let setting = if scaled {
            Setting::Replicas(spec.replicas.unwrap_or(1))
        } else {
            Setting::Suspend(spec.suspend.unwrap_or(false))
        };
        let template = if kind == WorkloadKind::CronJob { spec.job_template.spec.template } else { spec.template };
        let seen = status.observed_generation >= object.metadata.generation.unwrap_or_default();
        let own = object.owner_references().iter().find(|owner| owner.controller == Some(true));
        Self {
            id: WorkloadId { kind, name: object.name_any() },
            uid: Uid(object.uid().unwrap_or_default()),
            version,
            setting,
            claim: WorkloadClaim::read(annotations, setting),
            template: annotations.get(TEMPLATE_ANNOTATION).cloned(),
            selector: spec.selector.unwrap_or_default(),
            pod_labels: template.metadata.labels.unwrap_or_default(),
            grace: template.spec.seconds(),
            one_by_one: kind == WorkloadKind::StatefulSet && spec.pod_management_policy.as_deref() != Some("Parallel"),
            deleting: object.metadata.deletion_timestamp.is_some(),
            finished: kind == WorkloadKind::Job && holds(&["Complete", "Failed"]),
            idle: match kind {
                WorkloadKind::Deployment | WorkloadKind::StatefulSet => seen && status.replicas == 0,
                // The status of a Job names no generation. A condition says that its controller has seen `suspend`.
                WorkloadKind::Job => {
                    let none = status.active.as_i64().unwrap_or_default() == 0 && status.terminating == 0;
                    none && (setting.runs() || holds(&["Suspended"]))
                }
                WorkloadKind::CronJob => true,
            },
            available: holds(&["Available"]),
            owner: own.map(|owner| Uid(owner.uid.clone())),
            tick: match kind {
                WorkloadKind::CronJob => status.last_schedule_time,
                _ => annotations.get(SCHEDULED_ANNOTATION).and_then(|time| time.parse().ok()),
            }
            .map(|time| Timestamp(time.as_millisecond())),
            setter: setter(object, if scaled { "f:replicas" } else { "f:suspend" }),
            namespace: object.namespace().unwrap_or_default(),
        }
    }
}

/// Returns the fields of one part of an object that matter here.
fn part<T: DeserializeOwned + Default>(object: &DynamicObject, name: &str) -> T {
    object.data.get(name).and_then(|part| T::deserialize(part).ok()).unwrap_or_default()
}

/// Returns the last writer of a field of the spec, unless that was lictor.
fn setter(object: &DynamicObject, field: &str) -> Option<String> {
    let managed = object.metadata.managed_fields.iter().flatten();
    let wrote = managed.filter(|entry| {
        entry.manager.as_deref() != Some(FIELD_MANAGER)
            && entry
                .fields_v1
                .as_ref()
                .is_some_and(|fields| fields.0.get("f:spec").is_some_and(|spec| spec.get(field).is_some()))
    });
    wrote.max_by_key(|entry| entry.time.clone()).and_then(|entry| entry.manager.clone())
}

/// Watches all workloads of a kind, with or without an election.
pub fn watch_workloads(
    client: &Client,
    namespaces: &Namespaces,
    kind: WorkloadKind,
) -> BoxStream<'static, Change<WorkloadObject>> {
    let resource = resource(kind);
    let scopes = namespaces.scopes().into_iter().map(|scope| {
        let api: Api<DynamicObject> = match &scope {
            None => Api::all_with(client.clone(), &resource),
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        };
        changes(resource_name(kind), scope, api, ListParams::default(), move |object: DynamicObject| {
            WorkloadObject::read(kind, &object)
        })
    });
    select_all(scopes.collect::<Vec<_>>()).boxed()
}

/// The outcome of a request, with the workload as the answer shows it. `Err` in `seen` means that the workload is gone.
#[derive(Debug)]
pub struct Answer {
    /// The outcome for the election.
    pub outcome: WorkloadOutcome,
    /// The workload as the answer shows it, for the cache.
    pub seen: Option<Result<Box<WorkloadObject>, Uid>>,
}

impl Answer {
    fn unseen(outcome: WorkloadOutcome) -> Self {
        Self { outcome, seen: None }
    }
}

/// The workloads of one cluster.
#[derive(Clone)]
pub struct Workloads {
    client: Client,
    timeout: Duration,
}

impl Workloads {
    /// Creates the client. `timeout` bounds each request.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    /// Writes the state that an election wants: the one field of the workload, and the claim. The write succeeds only if the workload still
    /// has the uid and version that it is for. It uses server-side apply, so that every user can see who owns these fields. `may` returns
    /// whether there is still time to send it.
    pub async fn write(&self, namespace: &str, write: &WriteWorkload, may: impl Fn() -> bool) -> Answer {
        let (api, kind) = (self.api(namespace, write.id.kind), write.id.kind);
        let mut version = write.version;
        if let Some(tick) = write.after_tick.and_then(|tick| Wall::from_millisecond(tick.0).ok()) {
            let patch = json!({
                "metadata": {"uid": write.uid.0, "resourceVersion": version.to_string()},
                "status": {"lastScheduleTime": tick.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()},
            });
            let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
            match within(self.timeout, api.patch_status(&write.id.name, &parameters, &patch)).await {
                Ok(object) if !may() => {
                    // No pod runs yet.
                    let outcome = WorkloadOutcome::Failed(Failure::Refused(
                        "it is no longer certain that this cluster holds the lock".into(),
                    ));
                    return Answer { outcome, seen: Some(Ok(Box::new(WorkloadObject::read(kind, &object)))) };
                }
                Ok(object) => version = version_of(&object),
                Err(error) => return self.refused(namespace, &write.id, &write.uid, "patch", "/status", error).await,
            }
        }
        let resource = resource(kind);
        let field = match write.setting {
            Setting::Suspend(suspend) => json!({"suspend": suspend}),
            Setting::Replicas(replicas) => json!({"replicas": replicas}),
        };
        let mut applied = json!({
            "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {
                "name": write.id.name, "namespace": namespace,
                "uid": write.uid.0, "resourceVersion": version.to_string(),
            },
            "spec": field,
        });
        if let Some(claim) = &write.claim {
            applied["metadata"]["annotations"] = json!(claim.annotations());
        }
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        match within(self.timeout, api.patch(&write.id.name, &parameters, &Patch::Apply(applied))).await {
            Ok(object) if write.claim.is_none() => {
                let object = WorkloadObject::read(kind, &self.disown(&api, object).await);
                // If another field manager applied the claim too, it is still there, and does not count as given back.
                let outcome = if object.claim.is_some() {
                    let why = format!("{}: the annotations lictor.dev/* could not be removed", write.id);
                    WorkloadOutcome::Failed(Failure::Unknown(why))
                } else {
                    WorkloadOutcome::Done
                };
                Answer { outcome, seen: Some(Ok(Box::new(object))) }
            }
            Ok(object) => {
                Answer { outcome: WorkloadOutcome::Done, seen: Some(Ok(Box::new(WorkloadObject::read(kind, &object)))) }
            }
            Err(error) => self.refused(namespace, &write.id, &write.uid, "patch", "", error).await,
        }
    }

    /// Reads workloads, and the Jobs of the CronJobs among them. These are consistent reads, not from a cache of the API server.
    /// The result leaves out workloads that no longer exist.
    ///
    /// # Errors
    /// If there is no answer, or a refusal.
    pub async fn list(&self, namespace: &str, ids: &[WorkloadId]) -> Result<Vec<WorkloadObject>, Failure> {
        let mut found = Vec::new();
        for id in ids {
            found.extend(self.read(namespace, id).await?);
        }
        let cron_jobs: BTreeSet<Uid> = found
            .iter()
            .filter(|object| object.id.kind == WorkloadKind::CronJob)
            .map(|object| object.uid.clone())
            .collect();
        if !cron_jobs.is_empty() {
            let jobs = self.jobs(namespace).await.map_err(|error| failure("list", "jobs.batch", &error))?;
            found.extend(
                jobs.into_iter().filter(|job| job.owner.as_ref().is_some_and(|owner| cron_jobs.contains(owner))),
            );
        }
        Ok(found)
    }

    /// Deletes the Jobs of a CronJob that have not ended, after their pods.
    pub async fn delete_running(&self, namespace: &str, uid: &Uid) -> Answer {
        let jobs = match self.jobs(namespace).await {
            Ok(jobs) => jobs,
            Err(error) => return Answer::unseen(WorkloadOutcome::Failed(failure("list", "jobs.batch", &error))),
        };
        for job in jobs {
            if job.owner.as_ref() == Some(uid) && !job.finished && !job.deleting {
                let deleted = self.delete(namespace, &job.id, &job.uid).await;
                if let WorkloadOutcome::Failed(_) = deleted.outcome {
                    return deleted;
                }
            }
        }
        Answer::unseen(WorkloadOutcome::Done)
    }

    /// Deletes a Job, after its pods.
    pub async fn delete(&self, namespace: &str, id: &WorkloadId, uid: &Uid) -> Answer {
        let mut parameters = DeleteParams::foreground();
        parameters.preconditions = Some(kube::api::Preconditions { uid: Some(uid.0.clone()), resource_version: None });
        match within(self.timeout, self.api(namespace, id.kind).delete(&id.name, &parameters)).await {
            Ok(either) => {
                let seen = either.left().map(|object| Ok(Box::new(WorkloadObject::read(id.kind, &object))));
                Answer { outcome: WorkloadOutcome::Done, seen }
            }
            Err(error) => self.refused(namespace, id, uid, "delete", "", error).await,
        }
    }

    /// Creates a Job for an election from a template, suspended.
    pub async fn create(
        &self,
        election: &LeaderElection,
        plan: &str,
        template: &JobTemplate,
        id: &WorkloadId,
        claim: &WorkloadClaim,
    ) -> Answer {
        let namespace = election.namespace().unwrap_or_default();
        // The cache may not show the Job of an earlier term yet, and Jobs of two terms must never run at once.
        match self.jobs(&namespace).await {
            Ok(jobs) => {
                let other = |job: &WorkloadObject| job.is_made_by(election, plan) && job.id != *id;
                if let Some(other) = jobs.into_iter().find(other) {
                    return Answer { outcome: WorkloadOutcome::Conflict, seen: Some(Ok(Box::new(other))) };
                }
            }
            Err(error) => return Answer::unseen(WorkloadOutcome::Failed(failure("list", "jobs.batch", &error))),
        }
        let mut annotations: BTreeMap<String, Value> = claim
            .annotations()
            .into_iter()
            .chain([(TEMPLATE_ANNOTATION.to_owned(), plan.to_owned())])
            .map(|(name, value)| (name, Value::String(value)))
            .collect();
        let given = template.metadata.get("annotations").and_then(Value::as_object).cloned().unwrap_or_default();
        for (name, value) in given {
            annotations.entry(name).or_insert(value);
        }
        let mut owner = json!(election.controller_owner_ref(&()));
        owner["blockOwnerDeletion"] = Value::Bool(false);
        let mut spec = Value::Object(template.spec.clone());
        spec["suspend"] = Value::Bool(true);
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": id.name, "namespace": namespace, "ownerReferences": [owner],
                "labels": template.metadata.get("labels").cloned().unwrap_or_else(|| json!({})),
                "annotations": annotations,
            },
            "spec": spec,
        });
        let made = match serde_json::from_value::<DynamicObject>(job) {
            Ok(job) => {
                let parameters = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
                within(self.timeout, self.api(&namespace, WorkloadKind::Job).create(&parameters, &job)).await
            }
            Err(error) => Err(kube::Error::SerdeError(error)),
        };
        match made {
            Ok(object) => {
                let object = WorkloadObject::read(WorkloadKind::Job, &object);
                Answer { outcome: WorkloadOutcome::Done, seen: Some(Ok(Box::new(object))) }
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let found = self.read(&namespace, id).await;
                // A Job that belongs to an earlier election of this name is about to be garbage-collected.
                let ours = matches!(&found, Ok(Some(job)) if job.is_made_by(election, plan));
                let outcome = match &found {
                    Ok(_) if ours => WorkloadOutcome::Conflict,
                    Ok(_) => WorkloadOutcome::Failed(Failure::Refused(format!(
                        "there is already a Job {0} that this election did not create: delete it with `kubectl delete \
                         job {0}`",
                        id.name
                    ))),
                    Err(failure) => WorkloadOutcome::Failed(failure.clone()),
                };
                Answer { outcome, seen: found.ok().flatten().map(|object| Ok(Box::new(object))) }
            }
            Err(error) => Answer::unseen(WorkloadOutcome::Failed(failure("create", "jobs.batch", &error))),
        }
    }

    /// Removes this program's name from an object that it gave back, and the fields that stay after an apply because another field manager
    /// applied them, too. The object's controller often writes at the same moment, so this tries several times.
    async fn disown(&self, api: &Api<DynamicObject>, mut object: DynamicObject) -> DynamicObject {
        let written = |object: &DynamicObject| object.annotations().get(WRITTEN_ANNOTATION).cloned();
        let last = written(&object);
        for _ in 0..DISOWN_TRIES {
            let others = object.metadata.managed_fields.iter().flatten();
            let others: Vec<_> = others.filter(|entry| entry.manager.as_deref() != Some(FIELD_MANAGER)).collect();
            let others = if others.is_empty() { json!([{}]) } else { json!(others) };
            let left = object.annotations().keys().filter(|name| CLAIM_ANNOTATIONS.contains(&name.as_str()));
            let left: BTreeMap<&String, Value> = left.map(|name| (name, Value::Null)).collect();
            let patch = json!({"metadata": {
                "uid": object.uid(), "resourceVersion": object.resource_version(), "managedFields": others,
                "annotations": left,
            }});
            let name = object.name_any();
            let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
            match within(self.timeout, api.patch(&name, &parameters, &patch)).await {
                Ok(patched) => return patched,
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(_) => return object,
            }
            match within(self.timeout, api.get_opt(&name)).await {
                Ok(Some(found)) if found.uid() == object.uid() => object = found,
                Ok(_) | Err(_) => return object,
            }
            if written(&object) != last {
                // Another claim was made meanwhile.
                return object;
            }
        }
        object
    }

    /// Returns the meaning of a failed request. If the workload has changed meanwhile, it reads the workload again.
    async fn refused(
        &self,
        namespace: &str,
        id: &WorkloadId,
        uid: &Uid,
        verb: &str,
        subresource: &str,
        error: kube::Error,
    ) -> Answer {
        let changed = matches!(&error, kube::Error::Api(status) if status.is_conflict() || status.is_not_found());
        if !changed {
            let resource = format!("{}{subresource}", resource_name(id.kind));
            return Answer::unseen(WorkloadOutcome::Failed(failure(verb, &resource, &error)));
        }
        match self.read(namespace, id).await {
            Ok(Some(object)) if object.uid == *uid => {
                Answer { outcome: WorkloadOutcome::Conflict, seen: Some(Ok(Box::new(object))) }
            }
            Ok(Some(other)) => Answer { outcome: WorkloadOutcome::Gone, seen: Some(Ok(Box::new(other))) },
            Ok(None) => Answer { outcome: WorkloadOutcome::Gone, seen: Some(Err(uid.clone())) },
            Err(failure) => Answer::unseen(WorkloadOutcome::Failed(failure)),
        }
    }

    async fn jobs(&self, namespace: &str) -> kube::Result<Vec<WorkloadObject>> {
        let listed = within(self.timeout, self.api(namespace, WorkloadKind::Job).list(&ListParams::default())).await?;
        Ok(listed.items.iter().map(|job| WorkloadObject::read(WorkloadKind::Job, job)).collect())
    }

    async fn read(&self, namespace: &str, id: &WorkloadId) -> Result<Option<WorkloadObject>, Failure> {
        let read = within(self.timeout, self.api(namespace, id.kind).get_opt(&id.name)).await;
        let read = read.map_err(|error| failure("get", resource_name(id.kind), &error))?;
        Ok(read.map(|object| WorkloadObject::read(id.kind, &object)))
    }

    fn api(&self, namespace: &str, kind: WorkloadKind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource(kind))
    }
}

fn resource(kind: WorkloadKind) -> ApiResource {
    match kind {
        WorkloadKind::CronJob => ApiResource::erase::<CronJob>(&()),
        WorkloadKind::Job => ApiResource::erase::<Job>(&()),
        WorkloadKind::Deployment => ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&()),
        WorkloadKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
    }
}

/// Returns the name that RBAC and `kubectl` use.
pub fn resource_name(kind: WorkloadKind) -> &'static str {
    match kind {
        WorkloadKind::CronJob => "cronjobs.batch",
        WorkloadKind::Job => "jobs.batch",
        WorkloadKind::Deployment => "deployments.apps",
        WorkloadKind::StatefulSet => "statefulsets.apps",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::http::{Method, StatusCode, Uri};

    use super::*;
    use lictor_core::{OpId, Term};

    type Requests = Arc<Mutex<Vec<(Method, String, Value)>>>;

    /// Starts an API server that answers each request with the next of these answers.
    async fn server(answers: Vec<(u16, Value)>) -> (Workloads, Requests) {
        let (requests, answers) = (Requests::default(), Arc::new(Mutex::new(answers.into_iter())));
        let seen = requests.clone();
        let app = axum::Router::new().fallback(move |method: Method, uri: Uri, body: String| async move {
            seen.lock().unwrap().push((method, uri.path().into(), serde_json::from_str(&body).unwrap_or_default()));
            let (code, answer) = answers.lock().unwrap().next().unwrap_or_default();
            (StatusCode::from_u16(code).unwrap_or(StatusCode::GONE), answer.to_string())
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        let client = Client::try_from(kube::Config::new(uri)).unwrap();
        (Workloads::new(client, Duration::from_secs(5)), requests)
    }

    fn job(owner: &str) -> Value {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {
            "name": "migrate-1", "namespace": "n", "uid": "j", "resourceVersion": "5",
            "annotations": {TEMPLATE_ANNOTATION: "migrate", ELECTION_ANNOTATION: "web", "a": "b"},
            "ownerReferences": [
                {"apiVersion": "lictor.dev/v1", "kind": "LeaderElection", "name": "web", "uid": owner, "controller": true},
            ],
        }, "spec": {"suspend": true}})
    }

    fn status(code: u16, reason: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": ""})
    }

    fn id(kind: WorkloadKind, name: &str) -> WorkloadId {
        WorkloadId { kind, name: name.into() }
    }

    #[tokio::test]
    async fn a_job_of_an_earlier_election_of_that_name_is_not_its_own() {
        let election = serde_json::from_value::<LeaderElection>(json!({
            "apiVersion": "lictor.dev/v1", "kind": "LeaderElection",
            "metadata": {"name": "web", "namespace": "n", "uid": "new"}, "spec": {},
        }));
        let election = election.unwrap();
        // The last one was left to nobody, so it is found, and deleted first.
        for (owner, expected) in [("new", true), ("old", false), ("", true)] {
            let none = json!({"apiVersion": "batch/v1", "kind": "JobList", "metadata": {}, "items": []});
            let mut found = job(owner);
            if owner.is_empty() {
                found["metadata"]["ownerReferences"] = json!([]);
            }
            let answers = vec![(200, none), (409, status(409, "AlreadyExists")), (200, found)];
            let (workloads, _) = server(answers).await;
            let claim = WorkloadClaim {
                election: "web".into(),
                enabled: false,
                term: Term(1),
                writer: "me".into(),
                write: OpId(1),
                kept: Setting::Suspend(true),
            };
            let id = id(WorkloadKind::Job, "migrate-1");
            let answer = workloads.create(&election, "migrate", &JobTemplate::default(), &id, &claim).await;
            assert_eq!(answer.outcome == WorkloadOutcome::Conflict, expected, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn a_job_of_an_earlier_term_that_the_cache_does_not_show_is_found_before_another_is_made() {
        let election = serde_json::from_value::<LeaderElection>(json!({
            "apiVersion": "lictor.dev/v1", "kind": "LeaderElection",
            "metadata": {"name": "web", "namespace": "n", "uid": "e"}, "spec": {},
        }));
        let list = json!({"apiVersion": "batch/v1", "kind": "JobList", "metadata": {}, "items": [job("e")]});
        let (workloads, requests) = server(vec![(200, list)]).await;
        let claim =
            WorkloadClaim::read(&BTreeMap::from([(ELECTION_ANNOTATION.into(), "web".into())]), Setting::Suspend(true));
        let id = id(WorkloadKind::Job, "migrate-2");
        let answer =
            workloads.create(&election.unwrap(), "migrate", &JobTemplate::default(), &id, &claim.unwrap()).await;
        assert_eq!(answer.outcome, WorkloadOutcome::Conflict);
        assert!(matches!(answer.seen, Some(Ok(job)) if job.id.name == "migrate-1"));
        assert_eq!(requests.lock().unwrap().len(), 1, "nothing was made");
    }

    #[tokio::test]
    async fn what_others_apply_as_well_is_taken_off_what_is_given_back() {
        let mut free = job("e");
        free["metadata"]["annotations"] = json!({"a": "b"});
        for (last, done) in [(free, true), (job("e"), false)] {
            let (workloads, requests) = server(vec![(200, job("e")), (200, last)]).await;
            let write = WriteWorkload {
                id: id(WorkloadKind::Job, "migrate-1"),
                uid: Uid("j".into()),
                version: Version(4),
                setting: Setting::Suspend(false),
                claim: None,
                after_tick: None,
            };
            let answer = workloads.write("n", &write, || true).await;
            assert_eq!(answer.outcome == WorkloadOutcome::Done, done, "{answer:?}");
            let annotations = requests.lock().unwrap()[1].2["metadata"]["annotations"].clone();
            assert_eq!(annotations, json!({ELECTION_ANNOTATION: null}));
        }
    }
    #[tokio::test]
    async fn nothing_is_resumed_when_the_validity_has_ended_meanwhile() {
        let (workloads, requests) = server(vec![(200, job("e")), (200, job("e"))]).await;
        let write = WriteWorkload {
            id: id(WorkloadKind::CronJob, "nightly"),
            uid: Uid("j".into()),
            version: Version(4),
            setting: Setting::Suspend(false),
            claim: None,
            after_tick: Some(Timestamp(60_000)),
        };
        let answer = workloads.write("n", &write, || false).await;
        assert!(matches!(answer.outcome, WorkloadOutcome::Failed(Failure::Refused(_))), "{answer:?}");
        assert_eq!(requests.lock().unwrap().len(), 1);
    }
    #[test]
    fn a_suspended_job_is_idle_when_its_controller_has_seen_it() {
        let read = |conditions: Value| {
            let mut job = job("e");
            job["status"] = json!({"conditions": conditions});
            WorkloadObject::read(WorkloadKind::Job, &serde_json::from_value(job).unwrap()).idle
        };
        assert!(!read(json!([])));
        assert!(!read(json!([{"type": "Suspended", "status": "False"}])));
        assert!(read(json!([{"type": "Suspended", "status": "True"}])));
    }
}
