//! Contradictions between another cluster's record and this cluster's election, of which only one can be intended.

use lictor_core::{Election, Key, Rival, Situation};

use crate::api::Resolved;

/// Returns how another cluster differs, as a reason of the condition `StoreReachable` and a sentence. `other_key`: the key at which
/// another cluster has the lock of an election of this name.
pub(super) fn difference(
    group: &Election,
    spec: &Resolved,
    other_key: Option<(&Key, &Rival)>,
) -> Option<(&'static str, String)> {
    if let Some((key, rival)) = other_key {
        let message = format!(
            "the lock of this election is at the key {}, and {} has that of its election of the same name at {}, so there may be a leader in both: \
             give both classes the same keyTemplate, and both elections the same spec.key; or another name to one of the elections",
            spec.key.name,
            of(rival),
            key.name
        );
        return Some(("KeysDiffer", message));
    }
    let Situation::LedElsewhere(rival) = group.situation() else { return None };
    if rival.other_layout {
        let message = format!(
            "{} writes the record of this election in another way than this one: the class here has another consul.record. It can't be changed, so make \
             a class with the same consul.record as in the other clusters",
            of(rival)
        );
        return Some(("RecordsDiffer", message));
    }
    // A lock that was given away (C13) has no holder, and does not name that cluster's workloads yet. An agent has no workloads.
    if rival.holder.is_none() || rival.election.0.is_empty() {
        return None;
    }
    let here = !spec.workloads.is_empty() || !spec.jobs.is_empty();
    let (there, this) = (of(rival), "this cluster".to_owned());
    let (with, without) = match (here, rival.drain_obligation.is_some()) {
        (true, false) => (this, there),
        (false, true) => (there, this),
        _ => return None,
    };
    let message = format!(
        "only the election of {with} has spec.workloads, and that of {without} has none: the same programs may run in both clusters. Write the \
         same spec.workloads in all clusters",
    );
    Some(("WorkloadsDiffer", message))
}

fn of(rival: &Rival) -> String {
    match &rival.cluster {
        Some(cluster) => format!("the cluster {cluster}"),
        None => "another cluster".into(),
    }
}
