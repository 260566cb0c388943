//! The control plane, and the steps that tests share in it.

mod cluster;
mod lab;
mod operator;
mod proxy;
mod recorder;
mod revisions;
mod silence;
mod slice_recorder;
mod user;
mod workload_recorder;
pub mod workloads;
mod world;

pub use cluster::Cluster;
pub use lab::{LEASE, Lab, PodSpec};
pub use operator::Operator;
pub use proxy::{Answered, Asked, Proxy};
pub use recorder::{Recorder, Revision, is_ready};
pub use revisions::record;
pub use silence::{hanging_webhook, silent_server};
pub use slice_recorder::{Reached, SliceRecorder, SliceRevision};
pub use user::User;
pub use workload_recorder::{Seen, WorkloadRecorder};
pub use world::slow;

pub use crate::wait::eventually;
