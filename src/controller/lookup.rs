//! The lookups in one namespace, so that nothing iterates over all objects: pods and elections by labels, workloads by owner, and circles.

mod circle;
mod labels;
mod workloads;

pub(super) use self::circle::{circle, reached};
pub(super) use self::labels::Labels;
pub(super) use self::workloads::WorkloadCache;
