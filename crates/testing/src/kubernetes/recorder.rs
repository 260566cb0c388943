//! Records every revision of the pods in a namespace, and checks the promises at each. The recorder shares no code with the operator's
//! watches, because it reads the API server's own stream line by line.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

use super::eventually;
use super::revisions::record;

/// The state of one pod at one revision.
#[derive(Clone, Debug)]
pub struct Revision {
    pub version: u64,
    pub pod: String,
    pub uid: String,
    pub role: Option<String>,
    pub term: Option<i64>,
    /// The election that wrote the pod.
    pub election: Option<String>,
    pub ready: bool,
    /// Whether no operator would elect the pod, because it is being deleted or has finished.
    pub leaving: bool,
    pub deleted: bool,
    pub at: Instant,
}

impl Revision {
    fn leads(&self) -> bool {
        !self.deleted && self.role.as_deref() == Some("leader")
    }
}

/// Records from its creation on.
pub struct Recorder {
    api: Api<Pod>,
    revisions: Arc<Mutex<Vec<Revision>>>,
    task: JoinHandle<()>,
}

impl Recorder {
    /// Starts with all existing pods.
    pub async fn start(client: Client, namespace: &str) -> Self {
        let api: Api<Pod> = Api::namespaced(client, namespace);
        let (revisions, task) = record(api.clone(), revision).await;
        Self { api, revisions, task }
    }

    /// Returns all revisions so far, in the API server's order.
    pub fn revisions(&self) -> Vec<Revision> {
        let mut revisions = self.revisions.lock().unwrap().clone();
        revisions.sort_by_key(|revision| revision.version);
        revisions
    }

    /// Waits until everything that has happened so far is recorded: creates a pod that no election selects, and waits for it.
    pub async fn catch_up(&self) {
        let object = json!({
            "metadata": {"generateName": "recorder-"},
            "spec": {"containers": [{"name": "main", "image": "example/none"}], "schedulerName": "none"},
        });
        let object = serde_json::from_value(object).expect("a pod");
        let mark = self.api.create(&PostParams::default(), &object).await.expect("a pod can be made").name_any();
        eventually("the recorder catches up", || async {
            let seen = self.revisions.lock().unwrap().iter().any(|revision| revision.pod == mark);
            seen.then_some(()).ok_or_else(|| format!("{mark} is not seen"))
        })
        .await;
        let now = DeleteParams::default().grace_period(0);
        self.api.delete(&mark, &now).await.expect("a pod can be deleted");
    }

    /// Catches up, and panics unless at every revision at most one pod carried `role: leader`, and each new leader had a higher term than
    /// all earlier ones in the same election. Returns the number of leaderships.
    pub async fn assert_promises(&self) -> usize {
        self.assert_promises_but_for(&[]).await
    }

    /// Does the same, if the test itself wrote the leader label at these versions. The label counts as absent until the pod's next
    /// revision.
    pub async fn assert_promises_but_for(&self, by_hand: &[u64]) -> usize {
        self.catch_up().await;
        promises(&self.revisions(), by_hand, &[])
    }

    /// Does the same for several namespaces that have one leader together. One API server serves them, so its versions give the
    /// order.
    pub async fn assert_joint_promises(all: &[&Self]) -> usize {
        Self::assert_joint_promises_but_for(all, &[]).await
    }

    /// Does the same if docs/consul.md allows two leaders: these pods, which led already, may lead beside another one from these versions
    /// on. In the end they must have been demoted.
    pub async fn assert_joint_promises_but_for(all: &[&Self], excused: &[(&str, u64)]) -> usize {
        for recorder in all {
            recorder.catch_up().await;
        }
        let mut revisions: Vec<Revision> = all.iter().flat_map(|recorder| recorder.revisions()).collect();
        revisions.sort_by_key(|revision| revision.version);
        promises(&revisions, &[], excused)
    }

    /// Returns the version of the last event so far.
    pub async fn version(&self) -> u64 {
        self.catch_up().await;
        self.revisions().last().map_or(0, |revision| revision.version)
    }

    /// Returns when a pod last stopped being the leader, by the recorder's own clock.
    pub async fn demoted_at(&self) -> Option<Instant> {
        self.catch_up().await;
        let revisions = self.revisions();
        let led = |revision: &Revision, before: &[Revision]| {
            let earlier = before.iter().rev().find(|earlier| earlier.uid == revision.uid);
            earlier.is_some_and(Revision::leads) && !revision.leads()
        };
        let mut ends = (0..revisions.len()).filter(|at| led(&revisions[*at], &revisions[..*at]));
        ends.next_back().map(|at| revisions[at].at)
    }

    /// Returns how many pods carried `role: leader` after each revision, from the first leader on.
    pub fn leaders_since_first(&self) -> Vec<usize> {
        let mut leaders = BTreeSet::new();
        let counts = self.revisions().into_iter().map(move |revision| {
            if revision.leads() {
                leaders.insert(revision.uid)
            } else {
                leaders.remove(&revision.uid)
            };
            leaders.len()
        });
        counts.skip_while(|count| *count == 0).collect()
    }

    /// Returns the longest time without `role: leader` on a pod although there was always a pod that was ready, not being deleted and not
    /// finished, by the recorder's own clock.
    pub fn longest_vacancy(&self) -> Duration {
        longest_vacancy(&self.revisions())
    }

    /// Returns the versions of all writes to a pod of this name.
    pub fn versions_of(&self, pod: &str) -> Vec<u64> {
        self.revisions().iter().filter(|revision| revision.pod == pod).map(|revision| revision.version).collect()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn longest_vacancy(revisions: &[Revision]) -> Duration {
    let (mut leaders, mut eligible) = (BTreeSet::new(), BTreeSet::new());
    let (mut since, mut longest): (Option<Instant>, _) = (None, Duration::ZERO);
    for revision in revisions {
        let (uid, at) = (&revision.uid, revision.at);
        if revision.leads() {
            leaders.insert(uid.clone())
        } else {
            leaders.remove(uid)
        };
        let could = revision.ready && !revision.leaving && !revision.deleted;
        if could {
            eligible.insert(uid.clone())
        } else {
            eligible.remove(uid)
        };
        longest = longest.max(since.map(|since| at.duration_since(since)).unwrap_or_default());
        let vacant = leaders.is_empty() && !eligible.is_empty();
        since = vacant.then(|| since.unwrap_or(at));
    }
    longest
}

fn promises(revisions: &[Revision], by_hand: &[u64], excused: &[(&str, u64)]) -> usize {
    // The leaders, each with the revision since which it leads, and the term that it shows.
    let mut leaders: BTreeMap<String, (Revision, i64)> = BTreeMap::new();
    let mut last: BTreeMap<Option<String>, (i64, String)> = BTreeMap::new();
    let mut count = 0;
    for revision in revisions {
        if !revision.leads() || by_hand.contains(&revision.version) {
            leaders.remove(&revision.uid);
            continue;
        }
        let term = revision.term.expect("a leader carries its term");
        let begins = !leaders.contains_key(&revision.uid);
        let (_, shown) = leaders.entry(revision.uid.clone()).or_insert_with(|| (revision.clone(), i64::MIN));
        let changed = std::mem::replace(shown, term) != term;
        let leadership = (term, revision.uid.clone());
        // A label that is restored under its own term is the same leadership, and so is one whose record was written again.
        if changed && last.get(&revision.election) != Some(&leadership) {
            let before = last.insert(revision.election.clone(), leadership);
            let rises = before.as_ref().is_none_or(|(before, _)| *before < term);
            assert!(rises, "term {term} after {before:?}: {revisions:#?}");
            count += usize::from(begins);
        }
        let excuse = |leader: &Revision| {
            let mut ranges = excused.iter().filter(|(pod, _)| *pod == leader.pod);
            ranges.any(|(_, from)| leader.version <= *from && *from <= revision.version)
        };
        let alone = leaders.values().filter(|(leader, _)| !excuse(leader)).count() <= 1;
        assert!(alone, "two leaders at version {}: {:#?}\n{:#?}", revision.version, leaders, revisions);
    }
    assert!(leaders.len() <= 1, "two leaders in the end: {leaders:#?}\n{revisions:#?}");
    count
}

fn revision(pod: &Pod, deleted: bool) -> Revision {
    let finished = matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"));
    Revision {
        version: pod.resource_version().and_then(|version| version.parse().ok()).expect("a version is a number"),
        pod: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        role: pod.labels().get("role").cloned(),
        term: pod.annotations().get("lictor.dev/term").and_then(|term| term.parse().ok()),
        election: pod.annotations().get("lictor.dev/election").cloned(),
        ready: is_ready(pod),
        leaving: finished || pod.metadata.deletion_timestamp.is_some(),
        deleted,
        at: Instant::now(),
    }
}

/// Whether a pod's condition Ready is true.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
