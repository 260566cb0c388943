//! H11, C4: writes that may still be carried out, because they wait for their turn, are on their way, or were not answered.
//!
//! Each write is for one version of its object, so it has no effect once the object has a later version.

use std::collections::BTreeMap;

use super::Object;
use crate::{Failure, OpId, Version, WriteOutcome};

/// The writes to one object that may still be carried out, with the version that each is for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Late(BTreeMap<OpId, Version>);

impl Late {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes a write that is about to be sent.
    pub(crate) fn send(&mut self, op: OpId, version: Version) {
        self.0.insert(op, version);
    }

    /// Whether one of the writes may still be carried out if the object has this version.
    pub(crate) fn may_change(&self, version: Version) -> bool {
        self.0.values().any(|of| *of >= version)
    }

    /// Forgets the writes that an object of this version makes fail.
    pub(crate) fn reach(&mut self, version: Version) {
        self.0.retain(|_, of| *of >= version);
    }

    /// Takes the outcome of one of these writes, and ignores that of any other.
    pub(crate) fn take<T: Object>(&mut self, op: OpId, outcome: &WriteOutcome<T>) {
        let Some(version) = self.0.get(&op).copied() else { return };
        match outcome {
            WriteOutcome::Failed(Failure::Unknown(_)) => {}
            WriteOutcome::Failed(_) => drop(self.0.remove(&op)),
            // A write that changed nothing leaves the object at its version, so it does not stop an earlier one.
            WriteOutcome::Written(object) => {
                self.0.remove(&op);
                self.reach(object.version());
            }
            WriteOutcome::Conflict => self.0.retain(|_, of| *of > version),
            WriteOutcome::Gone => self.0.clear(),
        }
    }
}
