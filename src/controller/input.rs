//! The inputs of the loop.

use futures::StreamExt;
use lictor_api::{ElectionClass, LeaderElection, Switchover};
use lictor_core::{
    Failure, FollowedLock, Key, Node, OpId, Outcome, Pairs, Pod, ProbeFailure, Slice, TitleRead, Uid, Version,
    WorkloadId, WorkloadKind,
};
use lictor_kubernetes::Change;
use lictor_locks::lease::ClaimUpdate;
use lictor_process::spawn;
use tokio::sync::mpsc;

use super::names::{ElectionId, Namespace, SwitchoverId};
use crate::kubernetes::{Leftovers, ServiceObject, ServiceWrite, WorkloadObject};
use crate::store::{Registration, StoreEvent};

/// An observation, or the result of a request.
#[derive(Debug)]
pub enum Input {
    /// Pods, each with its namespace.
    Pods(Change<(String, Pod)>),
    /// Nodes, each with its name.
    Nodes(Change<(String, Node)>),
    /// Classes, each with its name.
    Classes(Change<(String, ElectionClass)>),
    /// The labels of namespaces, each with the name.
    Labels(Change<(String, Pairs)>),
    /// Elections.
    Elections(Change<(Version, Uid, LeaderElection)>),
    /// Switchovers.
    Switchovers(Change<(Version, Uid, Switchover)>),
    /// Workloads of a kind.
    Workloads(WorkloadKind, Change<WorkloadObject>),
    /// One workload of a namespace from the answer to a request, or the uid of a workload that no longer exists.
    Workload(Namespace, WorkloadId, Result<Box<WorkloadObject>, Uid>),
    /// Services.
    Services(Change<ServiceObject>),
    /// Slices that lictor writes, each with its namespace.
    Slices(Change<(String, Slice)>),
    /// One slice of a namespace from the answer to a request, or the name and uid of a slice that no longer exists.
    Slice(Namespace, Result<Box<Slice>, (String, Uid)>),
    /// The leftovers in the Service of an election, other than lictor's slices, that the search with this number found.
    Leftovers(ElectionId, u64, Result<Leftovers, Failure>),
    /// The outcome of this write of a Service that lictor creates: its uid and version; `None` if the Service had changed meanwhile, or is
    /// gone.
    Service(ElectionId, ServiceWrite, Result<Option<(Uid, Version)>, Failure>),
    /// The owners of the keys on a candidate of an election: the object with this uid, as it was read.
    Title(ElectionId, Uid, Result<TitleRead, Failure>),
    /// News of locks.
    Records(StoreEvent),
    /// The state of a lock that candidates hold themselves.
    Followed(Key, FollowedLock),
    /// The outcome of a command.
    Outcome(ElectionId, OpId, Outcome),
    /// The outcome of the write with this number of the election itself; `None` if it was not sent, or the election had changed meanwhile.
    Written(ElectionId, u64, Box<Result<LeaderElection, Option<Failure>>>),
    /// The outcome of the write with this number of a Switchover; a deletion returns no object. The failure is `None` if the write was not
    /// sent, or the Switchover had changed meanwhile.
    Switched(SwitchoverId, u64, Box<Result<Option<Switchover>, Option<Failure>>>),
    /// The outcome of a registration of the leader in the store's own directory.
    Registered(ElectionId, Registration, Result<bool, Failure>),
    /// The outcome of the write of a remark for the cluster that leads.
    Remarked(ElectionId, Result<(), Failure>),
    /// Whether the leader that is probed under this number fails in this way, and if so the address and the answer.
    Probed(ElectionId, u64, ProbeFailure, Result<(), String>),
    /// Whether this replica acts.
    Claim(ClaimUpdate),
}

/// Passes inputs on until the receiver is gone.
pub(super) fn forward(
    sender: &mpsc::UnboundedSender<Input>,
    inputs: impl futures::Stream<Item = Input> + Send + 'static,
) {
    let sender = sender.clone();
    spawn(async move {
        let mut inputs = std::pin::pin!(inputs);
        loop {
            tokio::select! {
                biased;
                () = sender.closed() => return,
                input = inputs.next() => match input {
                    Some(input) => drop(sender.send(input)),
                    None => return,
                }
            }
        }
    });
}
