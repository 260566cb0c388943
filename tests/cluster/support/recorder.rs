//! Keeps every revision of the pods of a namespace, and says whether the promise was kept at each. It shares no code with the
//! operator's watches: it reads the API server's own stream line by line.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use tokio::task::JoinHandle;

/// One revision of one pod: what it showed.
#[derive(Clone, Debug)]
pub struct Revision {
    pub version: u64,
    pub pod: String,
    pub uid: String,
    pub role: Option<String>,
    pub term: Option<i64>,
    pub deleted: bool,
    pub at: std::time::Instant,
}

/// Records from the moment at which it is made.
pub struct Recorder {
    revisions: Arc<Mutex<Vec<Revision>>>,
    task: JoinHandle<()>,
}

impl Recorder {
    /// Starts with all that there is.
    pub async fn start(client: Client, namespace: &str) -> Self {
        use futures::StreamExt;
        let api: Api<Pod> = Api::namespaced(client, namespace);
        let first = api.list(&ListParams::default()).await.expect("pods can be listed");
        let mut version = first.metadata.resource_version.clone().expect("a list has a version");
        let revisions = Arc::new(Mutex::new(first.items.iter().map(|pod| revision(pod, false)).collect::<Vec<_>>()));
        let kept = revisions.clone();
        let task = tokio::spawn(async move {
            loop {
                let Ok(stream) = api.watch(&WatchParams::default().disable_bookmarks().timeout(290), &version).await
                else {
                    continue;
                };
                let mut stream = stream.boxed();
                while let Some(Ok(event)) = stream.next().await {
                    let (pod, deleted) = match event {
                        WatchEvent::Added(pod) | WatchEvent::Modified(pod) => (pod, false),
                        WatchEvent::Deleted(pod) => (pod, true),
                        WatchEvent::Bookmark(_) => continue,
                        WatchEvent::Error(error) => panic!("the recorder lost its place: {error:?}"),
                    };
                    version = pod.resource_version().expect("a pod has a version");
                    kept.lock().unwrap().push(revision(&pod, deleted));
                }
            }
        });
        Self { revisions, task }
    }

    /// All revisions so far, in the API server's order.
    pub fn revisions(&self) -> Vec<Revision> {
        let mut revisions = self.revisions.lock().unwrap().clone();
        revisions.sort_by_key(|revision| revision.version);
        revisions
    }

    /// Panics unless at every revision at most one pod carried `role: leader`, and each new leader had a higher term.
    /// Returns how many leaderships there were.
    pub fn assert_promises(&self) -> usize {
        let mut leaders: BTreeMap<String, Revision> = BTreeMap::new();
        let (mut last, mut count) = (None, 0);
        for revision in self.revisions() {
            let leads = !revision.deleted && revision.role.as_deref() == Some("leader");
            if !leads {
                leaders.remove(&revision.uid);
                continue;
            }
            if leaders.insert(revision.uid.clone(), revision.clone()).is_none() {
                count += 1;
                let term = revision.term.expect("a leader carries its term");
                assert!(last.is_none_or(|last| last < term), "term {term} after {last:?}: {:#?}", self.revisions());
                last = Some(term);
            }
            assert!(
                leaders.len() <= 1,
                "two leaders at version {}: {:#?}\n{:#?}",
                revision.version,
                leaders,
                self.revisions()
            );
        }
        count
    }

    /// The versions of all writes that changed a pod of this name.
    pub fn versions_of(&self, pod: &str) -> Vec<u64> {
        self.revisions().iter().filter(|revision| revision.pod == pod).map(|revision| revision.version).collect()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn revision(pod: &Pod, deleted: bool) -> Revision {
    Revision {
        version: pod.resource_version().and_then(|version| version.parse().ok()).expect("a version is a number"),
        pod: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        role: pod.labels().get("role").cloned(),
        term: pod.annotations().get("lictor.dev/term").and_then(|term| term.parse().ok()),
        deleted,
        at: std::time::Instant::now(),
    }
}
