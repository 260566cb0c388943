//! Reads every revision of the objects of a kind in a namespace. The reader shares no code with the operator's watches, because it reads
//! the API server's own stream line by line.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use tokio::task::JoinHandle;

/// Records the result of `revision` for each object and whether the object is deleted, starting with all existing objects, until the
/// returned task is aborted.
pub async fn record<K, R>(
    api: Api<K>,
    revision: impl Fn(&K, bool) -> R + Send + 'static,
) -> (Arc<Mutex<Vec<R>>>, JoinHandle<()>)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    R: Send + 'static,
{
    let first = api.list(&ListParams::default()).await.expect("they can be listed");
    let mut version = first.metadata.resource_version.clone().expect("a list has a version");
    let revisions = Arc::new(Mutex::new(first.items.iter().map(|object| revision(object, false)).collect::<Vec<_>>()));
    let kept = revisions.clone();
    let task = tokio::spawn(async move {
        loop {
            let Ok(stream) = api.watch(&WatchParams::default().timeout(290), &version).await else {
                // When the test's runtime ends, its client fails at once, every time. Without a point at which it can be
                // cancelled, this loop would keep the runtime from ending.
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let mut stream = stream.boxed();
            while let Some(Ok(event)) = stream.next().await {
                let (object, deleted) = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                    WatchEvent::Deleted(object) => (object, true),
                    // If nothing changed for minutes, the server would forget the version of the last change.
                    WatchEvent::Bookmark(mark) => {
                        version = mark.metadata.resource_version;
                        continue;
                    }
                    WatchEvent::Error(error) => panic!("the recorder lost its place: {error:?}"),
                };
                version = object.resource_version().expect("an object has a version");
                kept.lock().unwrap().push(revision(&object, deleted));
            }
        }
    });
    (revisions, task)
}
