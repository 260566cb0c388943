//! Whether this replica keeps the sessions of a class's store.

use std::time::Duration;

use lictor_core::ClaimState;
use tokio::time::Instant;

use crate::kubernetes::ClaimUpdate;
use crate::process::monotonic;
use crate::store::Role;

/// Whether this replica keeps the sessions.
///
/// Whoever acts does; and whoever acted last goes on while this cluster's API server is away, for then nobody else can have begun to
/// act, and the leader is most likely fine.
#[derive(Default)]
pub(crate) struct Duty {
    acted: bool,
    /// When the locks are given up.
    until: Option<Instant>,
}

impl Duty {
    /// The role at present. `release_after`: how long after it acted last it gives the locks up, if ever.
    pub(crate) fn role(&mut self, claim: &ClaimUpdate, release_after: Option<Duration>) -> Role {
        if matches!(claim.state, ClaimState::Acting(until) if monotonic() < until) {
            (self.acted, self.until) = (true, None);
            return Role::Acting;
        }
        if claim.others {
            self.acted = false;
        }
        if !self.acted {
            self.until = None;
            return Role::Standby;
        }
        let Some(after) = release_after else { return Role::Acting };
        let now = Instant::now();
        // Not destroyed: perhaps another replica acts, which this one can't see, and goes on renewing them.
        if now < *self.until.get_or_insert(now + after) { Role::Acting } else { Role::Standby }
    }

    /// When the locks are given up.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether that is still to come.
    pub(crate) fn waits(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}
