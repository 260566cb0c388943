//! When to look at an election again.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::time::{sleep, timeout};

use super::reading::Reader;
use crate::kubernetes::{Namespaces, watch_elections, watch_pods};

/// How often to look again without a change, because ages grow, and nodes and locks are not watched.
const PERIOD: Duration = Duration::from_secs(2);
/// Changes within this time are shown together.
const TOGETHER: Duration = Duration::from_millis(100);

/// The changes of elections and pods in a namespace.
pub(super) struct Changes(BoxStream<'static, ()>);

impl Changes {
    /// Starts to watch.
    pub(super) fn new(reader: &Reader, namespace: &str) -> Self {
        let scope = Namespaces::new(vec![namespace.to_owned()]);
        let elections = watch_elections(reader.client(), &scope).map(drop);
        let pods = watch_pods(reader.client(), &scope).map(drop);
        Self(futures::stream::select(elections, pods).boxed())
    }

    /// Waits until something has changed, or until it is time to look again.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.0.next() => while timeout(TOGETHER, self.0.next()).await.is_ok() {},
            () = sleep(PERIOD) => {}
        }
    }
}
