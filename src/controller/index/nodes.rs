//! Nodes. An election that selects a pod on a changed node is decided again.

use std::collections::BTreeMap;

use lictor_core::Node;

use super::Index;
use crate::kubernetes::Change;

impl Index {
    pub(crate) fn apply_nodes(&mut self, change: Change<(String, Node)>) {
        match change {
            Change::Applied((name, node)) => self.put_node(&name, Some(node)),
            Change::Deleted((name, _)) => self.put_node(&name, None),
            Change::All(_, _, nodes) => {
                let nodes: BTreeMap<String, Node> = nodes.into_iter().collect();
                let gone: Vec<String> = self.nodes.keys().filter(|name| !nodes.contains_key(*name)).cloned().collect();
                for name in gone {
                    self.put_node(&name, None);
                }
                for (name, node) in nodes {
                    self.put_node(&name, Some(node));
                }
            }
            Change::Rewound(_) | Change::Broken(..) | Change::Resumed(_) => {}
        }
    }

    fn put_node(&mut self, name: &str, node: Option<Node>) {
        // Nodes report their status every few seconds, and hardly ever a change.
        if self.nodes.get(name) == node.as_ref() {
            return;
        }
        match node {
            Some(node) => self.nodes.insert(name.into(), node),
            None => self.nodes.remove(name),
        };
        for (namespace, pod) in self.on_node.get(name).into_iter().flatten() {
            let Some(content) = self.namespaces.get(namespace) else { continue };
            self.dirty.extend(content.selecting(pod).map(|name| namespace.election(name)));
        }
    }
}
