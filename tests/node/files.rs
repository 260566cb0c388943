//! What a pod reads of its own label: docs/know-that-you-lead.md.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kube::api::DeleteParams;
use lictor_testing::PATIENCE;
use serde_json::{Value, json};

use crate::eventually;
use crate::figures::Figures;
use crate::group::{Group, PROGRAM};
use crate::nodes::Nodes;

/// A volume with the role and the term of the pod that mounts it there.
pub fn volume() -> Value {
    json!({"name": "podinfo", "downwardAPI": {"items": [
        {"path": "role", "fieldRef": {"fieldPath": "metadata.labels['role']"}},
        {"path": "term", "fieldRef": {"fieldPath": "metadata.annotations['lictor.dev/term']"}},
    ]}})
}

/// Where it is mounted.
pub const MOUNTED: &str = "/etc/podinfo";

/// Once in some hundred handovers, kubelet did not change a file within a minute after it saw the label. It looks at each pod again after
/// `syncFrequency`, a minute by default, and up to half as much again.
const KUBELETS_PATIENCE: Duration = Duration::from_secs(120);

/// The files of a pod, as its program sees them.
#[derive(Debug)]
struct Files {
    uid: String,
    directory: PathBuf,
}

impl Files {
    fn of(uid: &str) -> Self {
        let process = Nodes::process(uid, PROGRAM);
        Self {
            uid: uid.to_owned(),
            directory: Path::new("/proc").join(process.to_string()).join(format!("root{MOUNTED}")),
        }
    }

    /// Role and term of one moment; none while kubelet replaces them, or when the program has ended.
    fn read(&self) -> Option<(String, String)> {
        let version = self.directory.join(std::fs::read_link(self.directory.join("..data")).ok()?);
        let read = |name| std::fs::read_to_string(version.join(name)).ok();
        Some((read("role")?, read("term")?))
    }

    fn say(&self, role: &str) -> bool {
        self.read().is_some_and(|(said, _)| said == role)
    }
}

/// How long after the label the files of the new and of the old leader say so. Nobody dies here: the old leader may not lead any more.
pub async fn follow_the_label(web: &Group<'_>, figures: &mut Figures) {
    for _ in 0..6 {
        let old = web.calm(3).await;
        let (files, others): (Vec<_>, Vec<_>) =
            web.pods().into_values().map(|pod| Files::of(&pod.uid)).partition(|files| files.uid == old.uid);
        let began = Instant::now();
        web.may_lead(&old.pod, false).await;
        let (mut lost, mut gained) = (None, None);
        while lost.is_none() || gained.is_none() {
            assert!(began.elapsed() < KUBELETS_PATIENCE, "the files do not follow: {lost:?}, {gained:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
            lost = lost.or_else(|| files[0].say("follower").then(Instant::now));
            gained =
                gained.or_else(|| others.iter().find(|files| files.say("leader")).map(|next| (next, Instant::now())));
        }
        let (lost, (next, gained)) = (lost.expect("just seen"), gained.expect("just seen"));
        let leader = eventually("the recorder has seen it", || async {
            let leader = web.leader().await;
            if leader.uid == next.uid { Ok(leader) } else { Err(format!("{leader:?}")) }
        })
        .await;
        let term = leader.term.map(|term| term.to_string());
        assert_eq!(next.read().map(|(_, term)| term), term, "the file has the term of the label");
        let revisions = web.recorder.revisions();
        let demoted = revisions.iter().find(|revision| {
            revision.uid == old.uid && revision.at >= began && revision.role.as_deref() == Some("follower")
        });
        let demoted = demoted.expect("the recorder has seen it").at;
        figures.time("from the label to the file, new leader", gained.saturating_duration_since(leader.since));
        figures.time("from the label to the file, old leader", lost.saturating_duration_since(demoted));
        web.may_lead(&old.pod, true).await;
    }
}

/// Kubelet does not change the files of a pod that is being deleted. These pods run on for 2 s.
pub async fn stay_in_a_pod_that_is_deleted(deep: &Group<'_>, figures: &mut Figures) {
    let old = deep.calm(3).await;
    let files = Files::of(&old.uid);
    eventually("its file says that it leads", || async {
        if files.say("leader") { Ok(()) } else { Err(format!("{:?}", files.read())) }
    })
    .await;
    let began = Instant::now();
    deep.delete(&old.pod, &DeleteParams::default()).await;
    let mut late = None;
    while files.directory.exists() {
        assert!(began.elapsed() < PATIENCE, "the pod does not end");
        let demoted = deep.pods().get(&old.uid).is_some_and(|pod| pod.role.as_deref() == Some("follower"));
        if let Some((role, _)) = files.read() {
            assert_eq!(role, "leader", "kubelet has changed the files of a pod that is being deleted");
            late = late.max(demoted.then(|| began.elapsed()));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let late = late.expect("it ran on when it was demoted");
    figures.time("from the deletion of a leader that runs on for 2 s, as long as its file said that it leads", late);
}
