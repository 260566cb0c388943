//! An election, and the operator that decides it.

use crate::{ELECTION_ANNOTATION, Pod, Uid, Workload, WorkloadClaim};

/// An election, and the operator that decides it.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The election's name, which is written on pods and workloads.
    pub(crate) name: String,
    /// The election's uid, which another election of the same name does not have.
    pub(crate) uid: Uid,
    /// The replica of the operator, unique among all operators and all their starts.
    pub(crate) operator_id: String,
}

impl Identity {
    /// Whether a pod carries the mark of an election of this name.
    pub(crate) fn wrote(&self, pod: &Pod) -> bool {
        pod.annotations.get(ELECTION_ANNOTATION) == Some(&self.name)
    }

    /// The claim on a workload, if it is this election's.
    pub(crate) fn claim_of<'w>(&self, workload: &'w Workload) -> Option<&'w WorkloadClaim> {
        workload.claim.as_ref().filter(|claim| claim.election == self.name)
    }
}
