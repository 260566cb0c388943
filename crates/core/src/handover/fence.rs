//! A pod that the operator must write to before it promotes another one, so that requests of other writers for the pod fail (H4).

use crate::handover::not_a_conflict;
use crate::step::Step;
use crate::{Command, Failure, OpId, Outcome, Pod, PodChange, PodOutcome, PodPatch, Uid, Version, WritePod};

/// A pod that the operator must write to, and whose write must be acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    name: String,
    /// How often the write was refused, or had no effect.
    refusals: u32,
    /// The version for which the API server answered the last write with a conflict.
    conflicted: Option<Version>,
    state: FenceState,
}

#[derive(Clone, Debug)]
enum FenceState {
    Due(Box<Pod>),
    Sent(OpId, Box<Pod>),
    Unread,
    Reading(OpId),
}

impl Fence {
    /// A fence for a pod as it was seen.
    pub(crate) fn due(pod: Pod) -> Self {
        Self { name: pod.name.clone(), refusals: 0, conflicted: None, state: FenceState::Due(Box::new(pod)) }
    }

    /// A fence for a pod that has to be read first.
    pub(crate) fn unread(name: String) -> Self {
        Self { name, refusals: 0, conflicted: None, state: FenceState::Unread }
    }

    /// Sends the requests that can be sent now. Returns whether the fence still stands. `patch` makes the write for a pod as it was seen.
    pub(crate) fn advance(&mut self, patch: impl FnOnce(&Pod) -> (PodChange, PodPatch), step: &mut Step) -> bool {
        self.state = match std::mem::replace(&mut self.state, FenceState::Unread) {
            FenceState::Due(pod) => {
                let (change, patch) = patch(&pod);
                if patch.is_empty() {
                    return false;
                }
                let op = step.request(Command::WritePod(WritePod::new(change, &pod, patch)));
                FenceState::Sent(op, pod)
            }
            FenceState::Unread => {
                let op = step.request(Command::ReadPod { name: self.name.clone() });
                FenceState::Reading(op)
            }
            sent => sent,
        };
        true
    }

    pub(crate) fn pod_name(&self) -> &str {
        &self.name
    }

    /// The pod as it was seen when the awaited write was sent.
    pub(crate) fn sent_for(&self) -> Option<&Pod> {
        match &self.state {
            FenceState::Sent(_, seen) => Some(seen),
            FenceState::Due(_) | FenceState::Unread | FenceState::Reading(_) => None,
        }
    }

    /// Whether the write was refused, or had no effect, and no further attempt is under way.
    pub(crate) fn is_refused(&self) -> bool {
        self.refusals > 0 && matches!(self.state, FenceState::Due(_) | FenceState::Unread)
    }

    /// The pod that is to be written to once more after a refusal.
    pub(crate) fn due_again(&self) -> Option<&Pod> {
        match &self.state {
            FenceState::Due(pod) if self.refusals > 0 => Some(pod),
            _ => None,
        }
    }

    pub(crate) fn awaits(&self, op: OpId) -> bool {
        matches!(&self.state, FenceState::Sent(expected, _) | FenceState::Reading(expected) if *expected == op)
    }

    /// Returns the fence if it still stands. `lacks` says why an acknowledged write does not count. After a refusal the operator reads the
    /// pod again, because it may not need the write.
    pub(crate) fn take(
        mut self,
        uid: &Uid,
        lacks: Option<String>,
        outcome: Outcome,
    ) -> (Option<Self>, Result<(), Failure>) {
        let mut result = Ok(());
        let mut failed = |failure: Failure, then: FenceState| {
            result = Err(failure);
            Some(then)
        };
        let state = match (self.state, outcome) {
            (FenceState::Sent(_, seen), Outcome::PodWritten(written)) => match (written, lacks) {
                (PodOutcome::Written(pod), Some(what)) => {
                    self.refusals += 1;
                    failed(Failure::Rewritten(what), FenceState::Due(pod))
                }
                (PodOutcome::Written(_) | PodOutcome::Gone, _) => None,
                (PodOutcome::Conflict, _) => {
                    self.conflicted = Some(seen.version);
                    Some(FenceState::Unread)
                }
                (PodOutcome::Failed(Failure::Unknown(text)), _) => failed(Failure::Unknown(text), FenceState::Unread),
                (PodOutcome::Failed(failure), _) => {
                    self.refusals += 1;
                    failed(failure, FenceState::Unread)
                }
            },
            (FenceState::Reading(_), Outcome::PodRead(read)) => match read {
                Ok(Some(pod)) if pod.uid == *uid && self.conflicted.take() == Some(pod.version) => {
                    self.refusals += 1;
                    failed(not_a_conflict(&pod), FenceState::Due(Box::new(pod)))
                }
                Ok(Some(pod)) if pod.uid == *uid => Some(FenceState::Due(Box::new(pod))),
                Ok(_) => None,
                Err(failure) => failed(failure, FenceState::Unread),
            },
            (state, _) => Some(state),
        };
        let Some(state) = state else { return (None, result) };
        self.state = state;
        (Some(self), result)
    }
}
