//! `spec.workloads`: what runs only where the leader is, and what is told about it.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A workload that follows the leader.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.replicas) || self.kind in ['Deployment', 'StatefulSet']")
        .message("workloads[].replicas is for a Deployment or a StatefulSet: leave it out, a CronJob or Job is enabled by spec.suspend alone"),
    validation = Rule::new("!has(self.onDisable) || self.kind == 'CronJob'")
        .message("workloads[].onDisable is for a CronJob, whose running Jobs may go on: leave it out, the others end their pods when they are disabled"),
    validation = Rule::new("!has(self.jobTemplate) || self.kind == 'Job'")
        .message("workloads[].jobTemplate goes with kind: Job: one Job is made from it for each term"),
    validation = Rule::new("!has(self.jobTemplate) || !has(self.onRelease)")
        .message("workloads[].onRelease does not go with jobTemplate: Jobs that lictor has made go with the election"),
    validation = Rule::new("!has(self.jobTemplate) || (size(self.name) <= 42 && self.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))")
        .message("workloads[].name with a jobTemplate is the beginning of the Jobs' names, NAME-TERM: at most 42 lower-case letters, digits and '-', for example migrate")
)]
pub struct Workload {
    /// CronJob, Job, Deployment or StatefulSet.
    pub kind: WorkloadKind,

    /// Its name, in the election's namespace. It may be made later. With a jobTemplate: what the Jobs' names begin with.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// How many replicas a Deployment or StatefulSet gets when it is enabled, 1 to 10000. What others set while it is enabled is
    /// respected. Default: the number that it had when it was disabled, which is kept in its annotation lictor.dev/kept; 1 if that
    /// was 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub replicas: Option<i32>,

    /// What becomes of the Jobs of a CronJob that still run when it is disabled. Suspend (default): they go on until they end by
    /// themselves, also while another cluster leads. DeleteRunning: they are deleted, and the next cluster waits until their pods
    /// have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disable: Option<OnDisable>,

    /// What becomes of the workload when it is taken out of this list or the election is deleted. Restore (default): it is put back
    /// to what it was before this election. LeaveAsIs: it stays as it is, enabled or disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_release: Option<OnRelease>,

    /// Makes one Job for each term in which this cluster leads, named NAME-TERM, from a template like that of a CronJob: metadata
    /// (labels, annotations) and spec. The Job of the term before is deleted first. None is started twice for a term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_template: Option<JobTemplate>,
}

/// What kind of workload.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are Kubernetes' own")]
pub enum WorkloadKind {
    CronJob,
    Deployment,
    Job,
    StatefulSet,
}

impl From<WorkloadKind> for lictor_core::WorkloadKind {
    fn from(kind: WorkloadKind) -> Self {
        match kind {
            WorkloadKind::CronJob => Self::CronJob,
            WorkloadKind::Deployment => Self::Deployment,
            WorkloadKind::Job => Self::Job,
            WorkloadKind::StatefulSet => Self::StatefulSet,
        }
    }
}

impl From<lictor_core::WorkloadKind> for WorkloadKind {
    fn from(kind: lictor_core::WorkloadKind) -> Self {
        match kind {
            lictor_core::WorkloadKind::CronJob => Self::CronJob,
            lictor_core::WorkloadKind::Deployment => Self::Deployment,
            lictor_core::WorkloadKind::Job => Self::Job,
            lictor_core::WorkloadKind::StatefulSet => Self::StatefulSet,
        }
    }
}

/// What becomes of a disabled CronJob's Jobs that still run.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum OnDisable {
    /// They go on.
    #[default]
    Suspend,
    /// They are deleted.
    DeleteRunning,
}

/// What becomes of a workload that an election does not concern any more.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum OnRelease {
    /// It is put back to what it was.
    #[default]
    Restore,
    /// It stays as it is.
    LeaveAsIs,
}

/// What the Jobs are made from, like a CronJob's `jobTemplate`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
pub struct JobTemplate {
    /// Labels and annotations.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "free")]
    pub metadata: Map<String, Value>,

    /// A Job's spec, without suspend. The API server looks at it when the first Job is made.
    #[schemars(schema_with = "free")]
    pub spec: Map<String, Value>,
}

/// What is told about the workloads of an election.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadsStatus {
    /// How long what runs may take to end once it is disabled, in seconds: the longest grace period of the pods, and some for the
    /// controllers. Another cluster that takes over a lock that was not released waits for so long before it enables its own.
    pub wind_down_seconds: u32,

    /// Each workload, as lictor left it.
    #[serde(default)]
    pub items: Vec<WorkloadStatus>,
}

/// What is told about one workload.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// Its kind, as in spec.workloads.
    pub kind: WorkloadKind,
    /// Its name; of the Job of the present term, where they are made from a template.
    pub name: String,
    /// How it is. Enabled: this cluster leads, and it runs. Waiting: this cluster leads, and it waits until what ran in another
    /// cluster has ended. Finished: a Job that has ended. Disabled: it is kept from running. WindingDown: so it is, and what runs of
    /// it is ending. Missing: there is none of that name. Failing: it can't be read or written, see the condition WorkloadsFollow.
    pub state: WorkloadState,
}

/// How a workload is.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum WorkloadState {
    /// This cluster leads, and it runs.
    Enabled,
    /// This cluster leads, and it waits until what ran in another cluster has ended.
    Waiting,
    /// A Job that has ended.
    Finished,
    /// It is kept from running, and nothing of it runs any more.
    Disabled,
    /// It is kept from running, and what runs of it is ending.
    WindingDown,
    /// There is none of that name.
    Missing,
    /// It can't be read or written: see the condition WorkloadsFollow.
    Failing,
}

fn free(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// On an election: the workloads that it has changed, and must give back. It is written before any of them is.
pub const WORKLOADS_ANNOTATION: &str = "lictor.dev/workloads";

/// What the annotation says.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Claims {
    /// By kind and name, what becomes of each when the election does not concern it any more.
    #[serde(default)]
    pub claims: BTreeMap<String, OnRelease>,
    /// By template, the last term for which a Job was made.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub started: BTreeMap<String, i64>,
}

impl Claims {
    /// Of an election; nothing, where the annotation can't be read.
    pub fn of(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let text = annotations.and_then(|annotations| annotations.get(WORKLOADS_ANNOTATION));
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// The annotation's text; none, where there is nothing to say.
    pub fn text(&self) -> Option<String> {
        if *self == Self::default() { None } else { serde_json::to_string(self).ok() }
    }

    /// The workloads that are claimed.
    pub fn ids(&self) -> impl Iterator<Item = (lictor_core::WorkloadId, OnRelease)> {
        self.claims.iter().filter_map(|(text, release)| {
            let (kind, name) = text.split_once('/')?;
            let kind = serde_json::from_value(Value::String(kind.into())).ok()?;
            Some((lictor_core::WorkloadId { kind, name: name.into() }, *release))
        })
    }
}
