//! T1: whether a leader is there. Conditions, columns, metrics, slices and commands all use this answer.

use crate::{ELECTION_ANNOTATION, Holder, Pod};

/// The defect of a leader that a record or a status names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// There is no pod with the leader's uid.
    Gone,
    /// The leader's pod has finished, or was evicted.
    Finished,
    /// The leader's pod does not carry the leader label.
    Unlabelled,
    /// Another election has since marked the leader's pod.
    Taken,
}

/// A leader of which something is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentLeader {
    /// The holder that the record names.
    pub holder: Holder,
    /// The defect.
    pub what: Absence,
}

/// Returns what is missing of an election's leader, by the pods that exist, or `None` if the leader is there. `shows_leader`: whether a pod
/// carries the leader label. A cluster that leads itself is always there.
pub fn absence<'a>(
    election: &str,
    leader: &Holder,
    pods: impl IntoIterator<Item = &'a Pod>,
    shows_leader: impl FnOnce(&Pod) -> bool,
) -> Option<Absence> {
    leader.pod.as_ref()?;
    match pods.into_iter().find(|pod| pod.uid == leader.uid) {
        None => Some(Absence::Gone),
        Some(pod) if pod.finished => Some(Absence::Finished),
        Some(pod) => match pod.annotations.get(ELECTION_ANNOTATION) {
            Some(name) if name != election => Some(Absence::Taken),
            // A template may have the same label, but lictor writes its own label together with the mark.
            mark if mark.is_none() || !shows_leader(pod) => Some(Absence::Unlabelled),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pairs, Uid};

    fn pod(uid: &str, finished: bool) -> Pod {
        let annotations = [(ELECTION_ANNOTATION, "web")].into_iter().collect();
        Pod { name: "a".into(), uid: Uid(uid.into()), finished, annotations, ..Pod::default() }
    }

    #[test]
    fn a_leader_is_there_by_its_uid_its_containers_and_its_label() {
        let leader = Holder { pod: Some("a".into()), uid: Uid("1".into()), node: None, ip: None };
        let found = |pods: &[Pod], labelled| absence("web", &leader, pods, |_| labelled);
        assert_eq!(found(&[pod("0", false), pod("1", false)], true), None);
        assert_eq!(found(&[], true), Some(Absence::Gone));
        assert_eq!(found(&[pod("2", false)], true), Some(Absence::Gone), "another pod has its name");
        assert_eq!(found(&[pod("1", true)], true), Some(Absence::Finished));
        assert_eq!(found(&[pod("1", false)], false), Some(Absence::Unlabelled));
        let marked =
            |election| Pod { annotations: [(ELECTION_ANNOTATION, election)].into_iter().collect(), ..pod("1", false) };
        let unmarked = Pod { annotations: Pairs::default(), ..pod("1", false) };
        assert_eq!(found(&[unmarked], true), Some(Absence::Unlabelled), "its template has the label");
        assert_eq!(found(&[marked("other")], true), Some(Absence::Taken));
        let cluster = Holder { pod: None, ..leader.clone() };
        assert_eq!(absence("web", &cluster, &[], |_| false), None);
    }
}
