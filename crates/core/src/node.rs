//! What an election knows of a node.

use super::Pairs;

/// The well-known label with a node's zone.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// A node, as last observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// All labels.
    pub labels: Pairs,
    /// Whether its condition Ready is anything but true, or the taint for that is on it: its pods count as lost.
    pub lost: bool,
    /// Whether it is cordoned, or tainted because it is about to be removed: its pods are not newly elected, and leaders leave it.
    pub cordoned: bool,
}
