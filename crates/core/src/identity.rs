//! Who decides an election.

use crate::{ELECTION_ANNOTATION, Pod, Uid, Workload, WorkloadClaim};

/// An election, and who decides it.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The election's name: what is written on pods and workloads.
    pub(crate) name: String,
    /// The election's uid: another one by the same name has another.
    pub(crate) uid: Uid,
    /// The replica of the operator, unique among all operators and all their starts.
    pub(crate) operator_id: String,
}

impl Identity {
    /// Whether a pod carries the mark of an election of this name.
    pub(crate) fn wrote(&self, pod: &Pod) -> bool {
        pod.annotations.get(ELECTION_ANNOTATION) == Some(&self.name)
    }

    /// What is written on a workload, if it is of this election.
    pub(crate) fn claim_of<'w>(&self, workload: &'w Workload) -> Option<&'w WorkloadClaim> {
        workload.claim.as_ref().filter(|claim| claim.election == self.name)
    }
}
