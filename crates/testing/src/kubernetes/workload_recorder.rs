//! Records every revision of the workloads in a namespace and of their pods, and checks the promise at each. The recorder shares no code
//! with the operator's watches, because it reads the API server's own streams line by line.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::revisions::record;
use super::workloads::{ENABLED, WRITTEN, annotation, idle_pod, job_spec, pod, resource, setting};
use super::{Lab, eventually};

const KINDS: [&str; 5] = ["CronJob", "Deployment", "Job", "Pod", "StatefulSet"];

/// One revision of one object.
#[derive(Clone)]
pub struct Seen {
    pub version: u64,
    /// The kind and name, for example `Deployment/live`.
    pub key: String,
    pub object: Value,
    pub deleted: bool,
    pub at: Instant,
}

impl Seen {
    fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap_or_default()
    }

    fn uid(&self) -> String {
        self.object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns whether an election claims the object.
    pub fn claimed(&self) -> bool {
        annotation(&self.object, ENABLED).is_some()
    }

    /// Returns whether the object's spec lets it run, and it has not ended.
    pub fn may_run(&self) -> bool {
        let ends = |c: &Value| (c["type"] == "Complete" || c["type"] == "Failed") && c["status"] == "True";
        let ended = self.object["status"]["conditions"].as_array().into_iter().flatten().any(ends);
        let allowed = !matches!(setting(&self.object), Value::Bool(true)) && *setting(&self.object) != json!(0);
        !self.deleted && allowed && !(self.kind() == "Job" && ended)
    }

    /// Returns whether the object is a workload's pod that has not ended.
    fn pod_runs(&self) -> bool {
        let phase = self.object["status"]["phase"].as_str();
        let owned = !self.object["metadata"]["ownerReferences"].is_null();
        self.kind() == "Pod" && owned && !self.deleted && !matches!(phase, Some("Succeeded" | "Failed"))
    }

    /// Returns the lictor that wrote the object last, and the number of that write.
    pub fn written_by(&self) -> Option<&str> {
        annotation(&self.object, WRITTEN)
    }
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let annotations = &self.object["metadata"]["annotations"];
        let deleted = if self.deleted { ", deleted" } else { "" };
        let (version, key, field) = (self.version, &self.key, setting(&self.object));
        write!(f, "{version}: {key} {field}{deleted} {annotations}")
    }
}

/// Records from its creation on.
pub struct WorkloadRecorder {
    client: Client,
    namespace: String,
    /// The revisions of each kind.
    seen: Vec<Arc<Mutex<Vec<Seen>>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Lab {
    /// Records every revision of the workloads and of their pods from now on.
    pub async fn record_workloads(&self) -> WorkloadRecorder {
        WorkloadRecorder::start(self.client.clone(), &self.namespace).await
    }
}

impl WorkloadRecorder {
    /// Starts with all existing objects.
    pub async fn start(client: Client, namespace: &str) -> Self {
        let mut seen = Vec::new();
        let mut tasks = Vec::new();
        for kind in KINDS {
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource(kind));
            let (of_kind, task) = record(api, move |object, deleted| revision(kind, object, deleted)).await;
            seen.push(of_kind);
            tasks.push(task);
        }
        Self { client, namespace: namespace.into(), seen, tasks }
    }

    /// Returns all revisions so far, in the API server's order.
    pub fn seen(&self) -> Vec<Seen> {
        let mut seen: Vec<_> = self.seen.iter().flat_map(|of_kind| of_kind.lock().unwrap().clone()).collect();
        seen.sort_by_key(|seen| seen.version);
        seen
    }

    /// Returns the revisions of one workload.
    pub fn seen_of(&self, workload: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.key == workload).collect()
    }

    /// Returns how many times lictor wrote a workload. Each of its writes has its own number.
    pub fn writes(&self, workload: &str) -> usize {
        let seen = self.seen_of(workload);
        seen.iter().filter_map(Seen::written_by).collect::<BTreeSet<_>>().len()
    }

    /// Waits until everything that has happened so far is recorded, by creating an object of each kind that no test uses. Returns the
    /// version of the last one.
    pub async fn catch_up(&self) -> u64 {
        let labels = json!({"app": "recorder"});
        let mut template = pod();
        template["metadata"]["labels"] = labels.clone();
        let set =
            json!({"replicas": 0, "serviceName": "none", "selector": {"matchLabels": labels}, "template": template});
        let mut deployment = set.clone();
        deployment.as_object_mut().expect("an object").remove("serviceName");
        let mut job = job_spec(idle_pod());
        job["suspend"] = json!(true);
        let cron_job = json!({"schedule": "0 0 29 2 *", "suspend": true, "jobTemplate": {"spec": job.clone()}});
        let mut unscheduled = pod()["spec"].clone();
        unscheduled["schedulerName"] = json!("none");
        let mut last = 0;
        for (kind, spec) in KINDS.into_iter().zip([cron_job, deployment, job, unscheduled, set]) {
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind));
            let object = json!({"metadata": {"generateName": "recorder-"}, "spec": spec});
            let object = serde_json::from_value(object).expect("an object");
            let made = api.create(&PostParams::default(), &object).await.expect("it can be made");
            let key = format!("{kind}/{}", made.name_any());
            last = revision(kind, &made, false).version;
            eventually("the recorder catches up", || async {
                let found = self.seen().iter().any(|seen| seen.key == key);
                found.then_some(()).ok_or_else(|| format!("{key} is not seen"))
            })
            .await;
            let at_once = DeleteParams::background().grace_period(0);
            api.delete(&made.name_any(), &at_once).await.expect("it can be deleted");
        }
        last
    }

    /// Panics unless at every revision at most one of several clusters had enabled anything, and each enabling had a higher term than all
    /// earlier ones of the other clusters. The clusters are namespaces of one API server, so its versions give the order. A workload
    /// counts while it is claimed.
    pub fn assert_never_both_enabled(all: &[&Self]) {
        Self::assert_never_both_enabled_but_for(all, 0..0);
    }

    /// Does the same, but leaves out the versions in this range.
    pub fn assert_never_both_enabled_but_for(all: &[&Self], exempt: Range<u64>) {
        never_both_enabled(&merged(all), &exempt).unwrap_or_else(|wrong| panic!("{wrong}:\n{}", story(all)));
    }

    /// Panics unless from this version on, pods of workloads ran in at most one of the clusters at every revision.
    pub fn assert_never_both_run(all: &[&Self], from: u64) {
        never_both_run(&merged(all), from).unwrap_or_else(|wrong| panic!("{wrong}:\n{}", story(all)));
    }

    /// Returns the time from the last disabling in one cluster to the first enabling in the other after it, by the recorders' own
    /// clock.
    pub fn gap(from: &Self, to: &Self) -> Duration {
        let off = from.turns(false).last().copied().expect("it was disabled");
        let on = to.turns(true).into_iter().find(|on| *on > off).expect("the other was enabled after it");
        on.duration_since(off)
    }

    /// Returns when each claimed workload was enabled or disabled.
    pub fn turns(&self, enabled: bool) -> Vec<Instant> {
        let mut before: BTreeMap<String, bool> = BTreeMap::new();
        let seen = self.seen().into_iter().filter(|seen| seen.kind() != "Pod" && seen.claimed());
        seen.filter(|seen| {
            before.insert(seen.uid(), seen.may_run()) != Some(seen.may_run()) && seen.may_run() == enabled
        })
        .map(|seen| seen.at)
        .collect()
    }
}

impl Drop for WorkloadRecorder {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Checks all revisions of all sides in the order of their versions.
fn never_both_enabled(merged: &[(usize, Seen)], exempt: &Range<u64>) -> Result<(), String> {
    let mut enabled: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    let mut terms: BTreeMap<usize, i64> = BTreeMap::new();
    for (side, seen) in merged {
        let runs = seen.kind() != "Pod" && seen.claimed() && seen.may_run();
        let of_side = enabled.entry(*side).or_default();
        let began = !of_side.contains(&seen.uid());
        if runs {
            of_side.insert(seen.uid());
        } else {
            of_side.remove(&seen.uid());
        }
        if exempt.contains(&seen.version) {
            continue;
        }
        if enabled.values().filter(|enabled| !enabled.is_empty()).count() > 1 {
            return Err(format!("enabled in several clusters at {seen:?}"));
        }
        if runs && began && annotation(&seen.object, ENABLED) == Some("true") {
            let term = annotation(&seen.object, "lictor.dev/term").and_then(|term| term.parse().ok());
            let Some(term): Option<i64> = term else { return Err(format!("enabled without a term: {seen:?}")) };
            let others = terms.iter().filter(|(other, _)| *other != side).map(|(_, term)| *term).max();
            if others.is_some_and(|others| others >= term) {
                return Err(format!("the term does not rise: {seen:?}"));
            }
            terms.insert(*side, term.max(terms.get(side).copied().unwrap_or_default()));
        }
    }
    Ok(())
}

fn never_both_run(merged: &[(usize, Seen)], from: u64) -> Result<(), String> {
    let mut running: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    for (side, seen) in merged {
        if seen.kind() != "Pod" || seen.key.starts_with("Pod/gate-") {
            continue;
        }
        let of_side = running.entry(*side).or_default();
        if seen.pod_runs() {
            of_side.insert(seen.uid());
        } else {
            of_side.remove(&seen.uid());
        }
        if seen.version >= from && running.values().filter(|running| !running.is_empty()).count() > 1 {
            return Err(format!("pods in several clusters at {seen:?}, {running:?}"));
        }
    }
    Ok(())
}

fn merged(all: &[&WorkloadRecorder]) -> Vec<(usize, Seen)> {
    let sides = all.iter().enumerate();
    let mut merged: Vec<(usize, Seen)> =
        sides.flat_map(|(side, recorder)| recorder.seen().into_iter().map(move |seen| (side, seen))).collect();
    merged.sort_by_key(|(_, seen)| seen.version);
    merged
}

fn story(all: &[&WorkloadRecorder]) -> String {
    let lines = merged(all).into_iter().filter(|(_, seen)| seen.claimed() || seen.kind() == "Pod");
    lines.map(|(side, seen)| format!("{}: {seen:?}", all[side].namespace)).collect::<Vec<_>>().join("\n")
}

fn revision(kind: &str, object: &DynamicObject, deleted: bool) -> Seen {
    let mut value = serde_json::to_value(object).expect("JSON");
    // Items of a list do not name their kind.
    value["kind"] = json!(kind);
    Seen {
        version: object.resource_version().and_then(|version| version.parse().ok()).expect("a version is a number"),
        key: format!("{kind}/{}", object.name_any()),
        object: value,
        deleted,
        at: Instant::now(),
    }
}
