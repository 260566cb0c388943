//! Watches: each gives whole lists at its beginning and changes from then on.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{BoxStream, select_all};
use futures::{StreamExt, future};
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::nodes::SlimNode;
use super::pods::SlimPod;
use super::{Namespaces, WatchFailure, version_of, watch_failure};
use crate::api::{ElectionClass, LeaderElection};
use crate::core::{Node, Pod, Uid, Version};

/// What a watch tells.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// All there is, in this namespace or, with `None`, in the cluster.
    All(Option<String>, Vec<T>),
    /// One that is new or changed.
    Applied(T),
    /// One that is gone.
    Deleted(T),
    /// The watch does not work at present. It goes on trying.
    Broken(Option<String>, WatchFailure),
}

/// How long a broken watch waits before it begins anew: a failover must not wait for half a minute, as it would with kube's
/// default, after the API server is back.
#[derive(Debug, Default)]
pub struct Retry {
    failures: u32,
}

impl Retry {
    const FIRST: Duration = Duration::from_millis(200);
    const LONGEST: Duration = Duration::from_secs(3);
}

impl Iterator for Retry {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = Self::FIRST.saturating_mul(1 << self.failures.min(8)).min(Self::LONGEST);
        self.failures += 1;
        Some(delay)
    }
}

impl Backoff for Retry {
    fn reset(&mut self) {
        self.failures = 0;
    }
}

/// How everything is watched. A connection that died without a word is noticed after the timeout and 5 seconds.
pub fn watch_config() -> watcher::Config {
    watcher::Config::default().timeout(20)
}

/// Pods, each with its namespace.
pub fn watch_pods(client: &Client, namespaces: &Namespaces) -> BoxStream<'static, Change<(String, Pod)>> {
    let apis = namespaces.apis::<SlimPod>(client);
    let slim = |pod: SlimPod| (pod.namespace().unwrap_or_default(), pod.into());
    select_all(apis.into_iter().map(|(scope, api)| changes("pods", scope, api, watch_config(), slim))).boxed()
}

/// Nodes, each with its name.
pub fn watch_nodes(client: &Client) -> BoxStream<'static, Change<(String, Node)>> {
    changes("nodes", None, Api::all(client.clone()), watch_config(), |node: SlimNode| (node.name_any(), node.into()))
}

/// Elections, each with its version.
pub fn watch_elections(
    client: &Client,
    namespaces: &Namespaces,
) -> BoxStream<'static, Change<(Version, Uid, LeaderElection)>> {
    let apis = namespaces.apis::<LeaderElection>(client);
    let slim = |mut election: LeaderElection| {
        election.metadata.managed_fields = None;
        (version_of(&election), Uid(election.uid().unwrap_or_default()), election)
    };
    select_all(apis.into_iter().map(|(scope, api)| changes("leaderelections", scope, api, watch_config(), slim)))
        .boxed()
}

/// Classes, each with its name.
pub fn watch_classes(client: &Client) -> BoxStream<'static, Change<(String, ElectionClass)>> {
    changes("electionclasses", None, Api::all(client.clone()), watch_config(), |class: ElectionClass| {
        (class.name_any(), class)
    })
}

pub(super) fn changes<K, T>(
    resource: &'static str,
    scope: Option<String>,
    api: Api<K>,
    config: watcher::Config,
    slim: impl Fn(K) -> T + Send + 'static,
) -> BoxStream<'static, Change<T>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    T: Send + 'static,
{
    let mut first = Vec::new();
    watcher(api, config)
        .backoff(Retry::default())
        .filter_map(move |event| {
            future::ready(match event {
                Ok(Event::Init) => {
                    first.clear();
                    None
                }
                Ok(Event::InitApply(object)) => {
                    first.push(slim(object));
                    None
                }
                Ok(Event::InitDone) => Some(Change::All(scope.clone(), std::mem::take(&mut first))),
                Ok(Event::Apply(object)) => Some(Change::Applied(slim(object))),
                Ok(Event::Delete(object)) => Some(Change::Deleted(slim(object))),
                Err(error) => Some(Change::Broken(scope.clone(), watch_failure(resource, &error))),
            })
        })
        .boxed()
}
