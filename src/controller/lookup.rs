//! What is looked up in one namespace, so that nothing walks over all that there is: pods and elections by labels, workloads by owner; and circles.

mod circle;
mod labels;
mod workloads;

pub(super) use self::circle::{circle, reached};
pub(super) use self::labels::Labels;
pub(super) use self::workloads::WorkloadCache;
