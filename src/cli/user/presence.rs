//! T1: whether the leader in the status exists, whatever the operator does.

use kube::ResourceExt;
use lictor_api::{ELECTED, Leader, LeaderElection, READY, markings};
use lictor_core::{Absence, Holder, Pod, Uid, absence};

use super::reading::{Reader, Seen, condition};
use crate::wording::missing;

/// The pods' own evidence about the leader in the status.
pub(super) enum Presence {
    /// The pod leads, as far as can be seen from here.
    Leads,
    /// The same, and why the pod can't be seen.
    Unseen(String),
    /// The pod does not lead, and why, as a sentence.
    Lost(String),
}

/// Reads the pod of the leader in the status.
pub(super) async fn find(reader: &Reader, election: &LeaderElection, leader: &Leader) -> Presence {
    let Some(pod) = leader.pod_name.as_deref().filter(|_| is_here(election)) else { return Presence::Leads };
    let namespace = election.metadata.namespace.as_deref().unwrap_or_default();
    let seen: Seen<Option<Pod>> = reader.pod(namespace, pod).await;
    match seen {
        Ok(found) => lost(election, leader, &found).map_or(Presence::Leads, Presence::Lost),
        Err(why) => Presence::Unseen(why),
    }
}

/// Why the leader in the status does not lead, according to the existing pods. `None`: it does, or it is not in this
/// cluster.
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
