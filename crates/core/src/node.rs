//! A node, as an election knows it.

use super::Pairs;

/// The well-known label with a node's zone.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// A node, as last observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// All labels.
    pub labels: Pairs,
    /// Whether the condition Ready is anything but true, or the taint for that is on the node, so its pods count as lost.
    pub lost: bool,
    /// Whether the node is cordoned, or tainted because it is about to be removed, so its pods are not newly elected, and leaders leave it.
    pub cordoned: bool,
    /// Whether the node has the taint by which a person, or a program, says that it is shut down, so that nothing runs there any more.
    pub out_of_service: bool,
}
