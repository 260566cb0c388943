//! Watches. Each begins with a whole list, and then reports changes.

use std::fmt::Debug;

use futures::stream::{BoxStream, select_all};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use lictor_api::{ElectionClass, LeaderElection, Switchover};
use lictor_core::{Node, Pairs, Pod, Uid, Version};
use lictor_kubernetes::{Change, LARGE_PAGE, Pages, changes, changes_in_pages, version_of};
use serde::de::DeserializeOwned;

use super::Namespaces;
use super::nodes::SlimNode;
use super::pods::{SlimPod, protobuf};

/// Watches pods, each with its namespace.
pub fn watch_pods(client: &Client, namespaces: &Namespaces) -> BoxStream<'static, Change<(String, Pod)>> {
    let apis = namespaces.apis::<SlimPod>(client);
    let slim = |pod: SlimPod| (pod.namespace().unwrap_or_default(), pod.into());
    let list = |(scope, api)| {
        let pages = Pages { list: |api, page| protobuf::list(api, page).boxed(), size: LARGE_PAGE };
        changes_in_pages(pages, "pods", scope, api, ListParams::default(), slim)
    };
    select_all(apis.into_iter().map(list)).boxed()
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
    watch_whole("leaderelections", client, namespaces)
}

/// Watches Switchovers, each with its version.
pub fn watch_switchovers(
    client: &Client,
    namespaces: &Namespaces,
) -> BoxStream<'static, Change<(Version, Uid, Switchover)>> {
    watch_whole("switchovers", client, namespaces)
}

/// Watches objects of one of lictor's kinds in the served namespaces, each as a whole.
fn watch_whole<K>(
    resource: &'static str,
    client: &Client,
    namespaces: &Namespaces,
) -> BoxStream<'static, Change<(Version, Uid, K)>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let slim = |mut object: K| {
        object.meta_mut().managed_fields = None;
        (version_of(&object), Uid(object.uid().unwrap_or_default()), object)
    };
    let apis = namespaces.apis::<K>(client).into_iter();
    let list = |(scope, api)| {
        let pages = Pages { list: |api: &Api<K>, page| api.list(page).boxed(), size: LARGE_PAGE };
        changes_in_pages(pages, resource, scope, api, ListParams::default(), slim)
    };
    select_all(apis.map(list)).boxed()
}

/// Watches the labels of namespaces, each with the namespace's name.
pub fn watch_labels(client: &Client) -> BoxStream<'static, Change<(String, Pairs)>> {
    changes("namespaces", None, Api::all(client.clone()), ListParams::default(), |namespace: Namespace| {
        (namespace.name_any(), namespace.metadata.labels.unwrap_or_default().into())
    })
}

/// Watches classes, each with its name.
pub fn watch_classes(client: &Client) -> BoxStream<'static, Change<(String, ElectionClass)>> {
    changes("electionclasses", None, Api::all(client.clone()), ListParams::default(), |class: ElectionClass| {
        (class.name_any(), class)
    })
}
