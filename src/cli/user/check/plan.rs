//! What `check` works on: an election of the file, and what it meets.

use lictor_api::{Classes, LeaderElection, Resolved};

use crate::cli::user::reading::Seen;
use crate::kubernetes::Namespaces;

/// What the elections of the file meet.
pub(super) struct Known {
    pub(super) classes: Seen<Classes>,
    /// The elections of the file that come first.
    pub(super) earlier: Vec<LeaderElection>,
}

/// An election whose spec can be read.
pub(super) struct Plan<'a> {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) spec: &'a Resolved,
}

impl Plan<'_> {
    pub(super) fn namespaces(&self) -> Namespaces {
        Namespaces::new(vec![self.namespace.clone()])
    }
}
