//! Watches. Each begins with a whole list, and then reports changes.

use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use lictor_core::{Node, Pod, Uid, Version};

use super::list_watch::{Change, changes};
use super::nodes::SlimNode;
use super::pods::SlimPod;
use super::{Namespaces, version_of};
use crate::api::{ElectionClass, LeaderElection};

/// Watches pods, each with its namespace.
pub fn watch_pods(client: &Client, namespaces: &Namespaces) -> BoxStream<'static, Change<(String, Pod)>> {
    let apis = namespaces.apis::<SlimPod>(client);
    let slim = |pod: SlimPod| (pod.namespace().unwrap_or_default(), pod.into());
    select_all(apis.into_iter().map(|(scope, api)| changes("pods", scope, api, ListParams::default(), slim))).boxed()
}

/// Watches nodes, each with its name.
pub fn watch_nodes(client: &Client) -> BoxStream<'static, Change<(String, Node)>> {
    changes("nodes", None, Api::all(client.clone()), ListParams::default(), |node: SlimNode| {
        (node.name_any(), node.into())
    })
}

/// Watches elections, each with its version.
pub fn watch_elections(
    client: &Client,
    namespaces: &Namespaces,
) -> BoxStream<'static, Change<(Version, Uid, LeaderElection)>> {
    let apis = namespaces.apis::<LeaderElection>(client);
    let slim = |mut election: LeaderElection| {
        election.metadata.managed_fields = None;
        (version_of(&election), Uid(election.uid().unwrap_or_default()), election)
    };
    select_all(apis.into_iter().map(|(scope, api)| changes("leaderelections", scope, api, ListParams::default(), slim)))
        .boxed()
}

/// Watches classes, each with its name.
pub fn watch_classes(client: &Client) -> BoxStream<'static, Change<(String, ElectionClass)>> {
    changes("electionclasses", None, Api::all(client.clone()), ListParams::default(), |class: ElectionClass| {
        (class.name_any(), class)
    })
}
