//! `spec.workloads`: the workloads that run only where the leader is, and their status.

use std::collections::{BTreeMap, BTreeSet};

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A workload that runs only in the cluster that leads.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.replicas) || self.kind in ['Deployment', 'StatefulSet']")
        .message("workloads[].replicas is for a Deployment or a StatefulSet: leave it out, because lictor enables a CronJob or Job by spec.suspend alone"),
    validation = Rule::new("!has(self.whenDisabled) || self.kind == 'CronJob'")
        .message("workloads[].whenDisabled is for a CronJob, whose running Jobs may continue: leave it out, because the other kinds end their pods when they are disabled"),
    validation = Rule::new("!has(self.jobTemplate) || self.kind == 'Job'")
        .message("workloads[].jobTemplate needs kind: Job, because lictor makes one Job from it for each term: write kind: Job, or leave jobTemplate out"),
    validation = Rule::new("!has(self.jobTemplate) || !has(self.whenReleased)")
        .message("workloads[].whenReleased can't be used with jobTemplate, because the Jobs that lictor made are deleted with the election: leave it out"),
    validation = Rule::new("!has(self.jobTemplate) || (size(self.name) <= 42 && self.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))")
        .message("workloads[].name with a jobTemplate is the beginning of the Jobs' names, NAME-TERM: write at most 42 lower-case letters, digits and '-', for example migrate")
)]
pub struct Workload {
    /// The kind: CronJob, Job, Deployment or StatefulSet.
    pub kind: WorkloadKind,

    /// The name, in the election's namespace. The workload may be created after the election. With jobTemplate, the
    /// beginning of the Jobs' names.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The number of replicas that lictor gives a Deployment or StatefulSet when it enables it, 1 to 10000. While the
    /// workload is enabled, lictor accepts changes that others make. Default: the number from before lictor disabled
    /// the workload, which its annotation lictor.dev/kept holds; 1 if that number was 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub replicas: Option<i32>,

    /// What happens to running Jobs of a CronJob when lictor disables it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_disabled: Option<WhenDisabled>,

    /// What happens to the workload when it is removed from this list or the election is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_released: Option<WhenReleased>,

    /// Makes one Job, named NAME-TERM, for each term in which this cluster leads. The template is like that of a
    /// CronJob: metadata (labels and annotations) and spec. lictor first deletes the Job of the previous term. It never
    /// starts two Jobs for one term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_template: Option<JobTemplate>,
}

/// The kind of a workload.
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

// The CRD has the text of the type, not that of the optional field.
/// Controls what happens to running Jobs of a CronJob when lictor disables it. Suspend (default): they run to
/// completion, even while another cluster leads. DeleteRunning: lictor deletes them, and the next cluster waits until
/// their pods have ended.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum WhenDisabled {
    /// The Jobs run to completion.
    #[default]
    Suspend,
    /// lictor deletes the Jobs.
    DeleteRunning,
}

/// Controls what happens to the workload when it is removed from the list or the election is deleted. Restore
/// (default): lictor restores the state from before this election. LeaveAsIs: the workload stays enabled or disabled.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum WhenReleased {
    /// lictor restores the state from before this election.
    #[default]
    Restore,
    /// The workload stays as it is.
    LeaveAsIs,
}

/// The template of Jobs, like a CronJob's `jobTemplate`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
pub struct JobTemplate {
    /// The Jobs' labels and annotations.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "free")]
    pub metadata: Map<String, Value>,

    /// The spec of a Job, without suspend. The API server validates it when lictor makes the first Job.
    #[schemars(schema_with = "free")]
    pub spec: Map<String, Value>,
}

/// The state of an election's workloads.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadsStatus {
    /// How long the workloads may take to end after they were disabled, in seconds: the longest grace period of their
    /// pods, plus some time for the controllers. If another cluster takes over a lock that was not released, it waits
    /// this long before it enables its own workloads.
    pub wind_down_seconds: u32,

    /// The state of each workload after lictor's last write.
    #[serde(default)]
    pub items: Vec<WorkloadStatus>,
}

/// The state of one workload.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// The workload's kind, as in spec.workloads.
    pub kind: WorkloadKind,
    /// The workload's name. With a jobTemplate, the name of the current term's Job.
    pub name: String,
    /// Enabled: this cluster leads, and the workload runs. Waiting: this cluster leads, and waits until the workload of
    /// another cluster has ended. Finished: the Job has ended. Disabled: the workload may not run, and none of its pods
    /// run. WindingDown: the workload may not run, and its last pods are ending. Missing: there is no workload of this
    /// name. Failing: lictor can't read or write the workload; the condition WorkloadsFollow says why. Untouched:
    /// lictor leaves the workload as it is, because the election's selector has never matched a pod.
    pub state: WorkloadState,
}

/// The state of a workload.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum WorkloadState {
    /// This cluster leads, and the workload runs.
    Enabled,
    /// This cluster leads, and waits until the workload of another cluster has ended.
    Waiting,
    /// The Job has ended.
    Finished,
    /// The workload may not run, and none of its pods run.
    Disabled,
    /// The workload may not run, and its last pods are ending.
    WindingDown,
    /// There is no workload of this name.
    Missing,
    /// lictor can't read or write the workload; the condition WorkloadsFollow says why.
    Failing,
    /// lictor leaves the workload as it is, because no pod has ever been a candidate.
    Untouched,
}

fn free(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// The annotation in which lictor lists what an election has changed and must give back: workloads, Services of which
/// it has slices, and the pods' labels and annotations. lictor writes the annotation before it changes anything in the
/// list.
pub const WORKLOADS_ANNOTATION: &str = "lictor.dev/workloads";

/// The content of the annotation.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Claims {
    /// The workloads by kind and name, with what happens to each when it leaves the election.
    #[serde(default)]
    pub claims: BTreeMap<String, WhenReleased>,
    /// By template, the last term for which a Job was made.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub started: BTreeMap<String, i64>,
    /// The Services of which the election may have slices.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub services: BTreeSet<String>,
    /// By workload, its setting from before it was disabled. The workload's own annotation holds the same until someone
    /// removes it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept: BTreeMap<String, Kept>,
    /// The selector that has matched pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<lictor_core::Selector>,
    /// H16: what was written on which pods and is not cleaned up yet, if others can write the lock's record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<lictor_core::Scope>,
}

/// A workload's setting from before it was disabled.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Kept {
    /// The workload's uid, because another workload of the same name had another setting.
    pub uid: String,
    /// Its number of replicas, or whether it was suspended.
    pub setting: lictor_core::Setting,
}

impl Claims {
    /// Reads the annotation. An annotation that can't be read counts as empty.
    pub fn of(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let text = annotations.and_then(|annotations| annotations.get(WORKLOADS_ANNOTATION));
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Returns the annotation's text, or `None` if there is nothing to say.
    pub fn text(&self) -> Option<String> {
        if *self == Self::default() { None } else { serde_json::to_string(self).ok() }
    }

    /// Returns the claimed workloads.
    pub fn ids(&self) -> impl Iterator<Item = (lictor_core::WorkloadId, WhenReleased)> {
        self.claims.iter().filter_map(|(text, release)| {
            let (kind, name) = text.split_once('/')?;
            let kind = serde_json::from_value(Value::String(kind.into())).ok()?;
            Some((lictor_core::WorkloadId { kind, name: name.into() }, *release))
        })
    }
}
