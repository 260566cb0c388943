//! T1: whether the leader that a status names is there, whatever the operator does.

use kube::ResourceExt;
use lictor_core::{Absence, Holder, Pod, Uid, absence};

use super::reading::{Reader, Seen, condition};
use crate::api::{ELECTED, Leader, LeaderElection, READY, markings};
use crate::wording::missing;

/// What was found of a leader that the status names.
pub(super) enum Found {
    /// It leads, as far as can be seen from here.
    Leads,
    /// The same, and why its pod can't be seen.
    Unseen(String),
    /// It does not, and why, as a sentence.
    Lost(String),
}

/// Reads the pod of the leader that the status names.
pub(super) async fn find(reader: &Reader, election: &LeaderElection, leader: &Leader) -> Found {
    let Some(pod) = leader.pod_name.as_deref().filter(|_| is_here(election)) else { return Found::Leads };
    let namespace = election.metadata.namespace.as_deref().unwrap_or_default();
    let seen: Seen<Option<Pod>> = reader.pod(namespace, pod).await;
    match seen {
        Ok(found) => lost(election, leader, &found).map_or(Found::Leads, Found::Lost),
        Err(why) => Found::Unseen(why),
    }
}

/// Why the leader that the status names does not lead, by the pods that there are; none: it does, or it is not in this cluster.
pub(super) fn lost<'a>(
    election: &LeaderElection,
    leader: &Leader,
    pods: impl IntoIterator<Item = &'a Pod>,
) -> Option<String> {
    let (Some(pod), Some(uid)) = (leader.pod_name.clone().filter(|_| is_here(election)), leader.pod_uid.clone()) else {
        return None;
    };
    let holder = Holder { pod: Some(pod.clone()), uid: Uid(uid), node: None, ip: None };
    let what: Absence = absence(&election.name_any(), &holder, pods, |pod| markings(&election.spec).shows_leader(pod))?;
    Some(missing(&pod, what).1)
}

/// Whether the leader is in this cluster.
fn is_here(election: &LeaderElection) -> bool {
    let elsewhere = |type_| condition(election, type_).is_some_and(|one| one.reason == "LedElsewhere");
    !elsewhere(ELECTED) && !elsewhere(READY)
}
