//! A pod that the operator must write to before it promotes another one, so that requests of other writers for the pod fail (H4).

use crate::step::Step;
use crate::write::{Shown, Versioned, not_a_conflict};
use crate::{Command, Failure, OpId, Outcome, Pod, PodChange, PodPatch, Uid, WritePod};

/// A pod that the operator must write to, and whose write must be acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    name: String,
    /// Whether the write was refused, or had no effect.
    refused: bool,
    /// The pod as it was seen, while the write is due or sent.
    seen: Option<Box<Pod>>,
    write: Versioned,
}

impl Fence {
    /// A fence for a pod as it was seen.
    pub(crate) fn due(pod: Pod) -> Self {
        Self { name: pod.name.clone(), refused: false, seen: Some(Box::new(pod)), write: Versioned::Due }
    }

    /// A fence for a pod that has to be read first.
    pub(crate) fn unread(name: String) -> Self {
        Self { name, refused: false, seen: None, write: Versioned::Unread(None) }
    }

    /// Sends the requests that can be sent now. Returns whether the fence still stands. `patch` makes the write for a pod as it was seen.
    pub(crate) fn advance(&mut self, patch: impl FnOnce(&Pod) -> (PodChange, PodPatch), step: &mut Step) -> bool {
        if let (Versioned::Due, Some(pod)) = (self.write, &self.seen) {
            let (change, patch) = patch(pod);
            if patch.is_empty() {
                return false;
            }
            let op = step.request(Command::WritePod(WritePod::new(change, pod, patch)));
            self.write = Versioned::Sent(op, Some(pod.version));
        }
        self.write.read(|| step.request(Command::ReadPod { name: self.name.clone() }));
        true
    }

    pub(crate) fn pod_name(&self) -> &str {
        &self.name
    }

    /// The pod as it was seen when the awaited write was sent.
    pub(crate) fn sent_for(&self) -> Option<&Pod> {
        self.seen.as_deref().filter(|_| matches!(self.write, Versioned::Sent(..)))
    }

    /// Whether the write was refused, or had no effect, and no further attempt is under way.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused && matches!(self.write, Versioned::Due | Versioned::Unread(_))
    }

    /// The pod that is to be written to once more after a refusal.
    pub(crate) fn due_again(&self) -> Option<&Pod> {
        self.seen.as_deref().filter(|_| self.refused && self.write == Versioned::Due)
    }

    pub(crate) fn awaits(&self, op: OpId) -> bool {
        self.write.awaits(op)
    }

    /// Returns the fence if it still stands. `lacks` says why an acknowledged write does not count. After a refusal the operator reads the
    /// pod again, because it may not need the write.
    pub(crate) fn take(
        mut self,
        uid: &Uid,
        lacks: Option<String>,
        outcome: Outcome,
    ) -> (Option<Self>, Result<(), Failure>) {
        let shown = self.write.take(uid, outcome);
        let seen = self.seen.take().filter(|_| !self.write.is_unread());
        let result;
        (self.seen, result) = match shown {
            Ok(Shown::Written(pod)) => match lacks {
                None => return (None, Ok(())),
                Some(what) => (Some(pod), Err(Failure::Rewritten(what))),
            },
            Ok(Shown::Read(pod)) => (Some(pod), Ok(())),
            Ok(Shown::Unchanged(pod)) => {
                let failure = not_a_conflict(&*pod);
                (Some(pod), Err(failure))
            }
            Ok(Shown::Gone) => return (None, Ok(())),
            Ok(Shown::Nothing) => (seen, Ok(())),
            Err(failure) => (None, Err(failure)),
        };
        if result.is_err() && self.write == Versioned::Due {
            self.refused = true;
            if self.seen.is_none() {
                self.write = Versioned::Unread(None);
            }
        }
        (Some(self), result)
    }
}
