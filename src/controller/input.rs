//! What the loop is told.

use futures::StreamExt;
use lictor_core::{
    Failure, FollowedLock, Key, Node, OpId, Outcome, Pod, ProbeFailure, Slice, TitleRead, Uid, Version, WorkloadId,
    WorkloadKind,
};
use tokio::sync::mpsc;

use super::names::{ElectionId, Namespace, SwitchoverId};
use crate::api::{ElectionClass, LeaderElection, Switchover};
use crate::kubernetes::{Change, ClaimUpdate, Leftovers, ServiceObject, WorkloadObject};
use crate::process::spawn;
use crate::store::{Registration, StoreEvent};

/// An observation.
#[derive(Debug)]
pub enum Input {
    /// Of pods, each with its namespace.
    Pods(Change<(String, Pod)>),
    /// Of nodes, each with its name.
    Nodes(Change<(String, Node)>),
    /// Of classes, each with its name.
    Classes(Change<(String, ElectionClass)>),
    /// Of elections.
    Elections(Change<(Version, Uid, LeaderElection)>),
    /// Of Switchovers.
    Switchovers(Change<(Version, Uid, Switchover)>),
    /// Of workloads of a kind.
    Workloads(WorkloadKind, Change<WorkloadObject>),
    /// Of one workload of a namespace, by the answer to a request; the uid of one that is no more.
    Workload(Namespace, WorkloadId, Result<Box<WorkloadObject>, Uid>),
    /// Of Services.
    Services(Change<ServiceObject>),
    /// Of the slices that lictor writes, each with its namespace.
    Slices(Change<(String, Slice)>),
    /// Of one slice of a namespace, by the answer to a request; the name and uid of one that is no more.
    Slice(Namespace, Result<Box<Slice>, (String, Uid)>),
    /// What else than lictor's slices the Service of an election reaches somebody by: what the search of this number found.
    Leftovers(ElectionId, u64, Result<Leftovers, Failure>),
    /// Whose the keys are on a candidate of an election: what was read of the object with this uid.
    Title(ElectionId, Uid, Result<TitleRead, Failure>),
    /// Of locks.
    Records(StoreEvent),
    /// Of a lock that candidates hold themselves.
    Followed(Key, FollowedLock),
    /// The outcome of a command.
    Outcome(ElectionId, OpId, Outcome),
    /// The outcome of the write of the election itself that has this number; `None`: it was not sent, or the election had changed
    /// meanwhile.
    Written(ElectionId, u64, Box<Result<LeaderElection, Option<Failure>>>),
    /// The outcome of the write of a Switchover that has this number; of a deletion there is nothing left. `None`: it was not sent, or the
    /// Switchover had changed meanwhile.
    Switched(SwitchoverId, u64, Box<Result<Option<Switchover>, Option<Failure>>>),
    /// The outcome of a registration of the leader in the store's own directory.
    Registered(ElectionId, Registration, Result<bool, Failure>),
    /// Whether the leader that is probed under this number fails in this way: if it does, where it was asked and what came back.
    Probed(ElectionId, u64, ProbeFailure, Result<(), String>),
    /// Whether this replica acts.
    Claim(ClaimUpdate),
}

/// Hands on for as long as somebody takes it.
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
