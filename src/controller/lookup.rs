//! What is looked up in one namespace, so that nothing walks over all that there is: pods and elections by labels, workloads by owner.

mod labels;
mod workloads;

pub(super) use self::labels::Labels;
pub(super) use self::workloads::WorkloadCache;
