//! Contradictions between the elections of two clusters, of which users can have meant only one.

use lictor_api::Resolved;
use lictor_core::{Election, Rival, Situation};

use crate::controller::entry::ToldElsewhere;
use crate::store::{Difference, Remark};

/// Returns how another cluster differs, as a reason of the condition `StoreReachable` and a sentence: what this cluster sees, or what a
/// cluster that does not lead has told.
pub(super) fn difference(
    group: &Election,
    spec: &Resolved,
    elsewhere: ToldElsewhere<'_>,
) -> Option<(&'static str, String)> {
    if let Some((key, rival)) = elsewhere.other_key {
        let message = format!(
            "the lock of this election has the key {}, but in {} the election of the same name uses {}, so both may \
             have a leader: give both classes the same keyTemplate, and both elections the same spec.key; or rename \
             one of the elections",
            spec.key.name,
            of(rival.cluster.as_deref()),
            key.name
        );
        return Some(("KeysDiffer", message));
    }
    if let Some((rival, difference)) = seen_difference(group, spec) {
        return Some(say(difference, &of(rival.cluster.as_deref()), THIS, &of(rival.cluster.as_deref())));
    }
    let remark = elsewhere.remarks.iter().find(|remark| concerns(remark, group, spec))?;
    let teller = of(Some(&remark.cluster));
    Some(say(remark.difference, THIS, &teller, &teller))
}

/// Returns how the cluster that leads differs from this one, which does not, and its record.
pub(crate) fn seen_difference<'a>(group: &'a Election, spec: &Resolved) -> Option<(&'a Rival, Difference)> {
    let Situation::LedElsewhere(rival) = group.situation() else { return None };
    if rival.other_layout {
        return Some((rival, Difference::Records));
    }
    // A lock that was given away (C13) has no holder, and does not name that cluster's workloads yet. An agent has no workloads.
    if rival.holder.is_none() || rival.election.0.is_empty() {
        return None;
    }
    let here = !spec.workloads.is_empty() || !spec.jobs.is_empty();
    match (here, rival.drain_obligation.is_some()) {
        (true, false) => Some((rival, Difference::OnlyWorkloads)),
        (false, true) => Some((rival, Difference::NoWorkloads)),
        _ => None,
    }
}

/// Whether another cluster's remark is about the present term, in which this cluster leads.
fn concerns(remark: &Remark, group: &Election, spec: &Resolved) -> bool {
    let own = spec.shared.as_ref().is_none_or(|shared| shared.cluster() == remark.cluster);
    !own && group.leader().is_some_and(|(term, ..)| *term == remark.term)
}

const THIS: &str = "this cluster";

/// `leading` has the lock, and `other` has not. `there` is the one of them that is not this cluster.
fn say(difference: Difference, leading: &str, other: &str, there: &str) -> (&'static str, String) {
    let workloads = |with: &str, without: &str| {
        let message = format!(
            "the election in {with} has spec.workloads, but that in {without} has none, so the same programs may run \
             in both clusters: write the same spec.workloads in all clusters"
        );
        ("WorkloadsDiffer", message)
    };
    match difference {
        Difference::OnlyWorkloads => workloads(other, leading),
        Difference::NoWorkloads => workloads(leading, other),
        Difference::Records => {
            let message = format!(
                "{there} writes the record of this election in another format, because its class has another \
                 consul.record. The field can't be changed, so create a class with the same consul.record as in the \
                 other clusters"
            );
            ("RecordsDiffer", message)
        }
    }
}

fn of(cluster: Option<&str>) -> String {
    cluster.map_or_else(|| "another cluster".into(), |cluster| format!("the cluster {cluster}"))
}
