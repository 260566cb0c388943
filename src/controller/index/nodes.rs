//! Nodes, and the pods on each. An election that selects a pod on a changed node is decided again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lictor_core::{Node, Pod};
use lictor_kubernetes::Change;

use super::objects::Objects;
use crate::controller::names::Namespace;

#[derive(Default)]
pub(crate) struct Nodes {
    pub(super) known: BTreeMap<String, Node>,
    /// Pods by node.
    pub(super) pods: HashMap<String, BTreeSet<(Namespace, String)>>,
}

impl Nodes {
    pub(super) fn apply(&mut self, change: Change<(String, Node)>, objects: &mut Objects) {
        match change {
            Change::Applied((name, node)) => self.put(&name, Some(node), objects),
            Change::Deleted((name, _)) => self.put(&name, None, objects),
            Change::All(_, _, nodes) => {
                let nodes: BTreeMap<String, Node> = nodes.into_iter().collect();
                let gone: Vec<String> = self.known.keys().filter(|name| !nodes.contains_key(*name)).cloned().collect();
                for name in gone {
                    self.put(&name, None, objects);
                }
                for (name, node) in nodes {
                    self.put(&name, Some(node), objects);
                }
            }
            Change::Rewound(_) | Change::Broken(..) | Change::Resumed(_) => {}
        }
    }

    fn put(&mut self, name: &str, node: Option<Node>, objects: &mut Objects) {
        // Nodes report their status every few seconds, and hardly ever a change.
        if self.known.get(name) == node.as_ref() {
            return;
        }
        match node {
            Some(node) => self.known.insert(name.into(), node),
            None => self.known.remove(name),
        };
        for (namespace, pod) in self.pods.get(name).into_iter().flatten() {
            let Some(content) = objects.namespaces.get(namespace) else { continue };
            objects.dirty.extend(content.selecting(pod).map(|name| namespace.election(name)));
        }
    }

    /// Notes the node of a pod.
    pub(super) fn move_pod(&mut self, namespace: &Namespace, before: Option<&Pod>, now: Option<&Pod>) {
        let node = |pod: Option<&Pod>| pod.and_then(|pod| pod.node.clone());
        let (was, is) = (node(before), node(now));
        if was == is {
            return;
        }
        let place = |pod: &Pod| (namespace.clone(), pod.name.clone());
        if let (Some(node), Some(pod)) = (was, before)
            && let Some(pods) = self.pods.get_mut(&node)
        {
            pods.remove(&place(pod));
            if pods.is_empty() {
                self.pods.remove(&node);
            }
        }
        if let (Some(node), Some(pod)) = (is, now) {
            self.pods.entry(node).or_default().insert(place(pod));
        }
    }
}
