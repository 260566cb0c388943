//! Whether this replica keeps the sessions of a class's store.

use std::time::Duration;

use lictor_core::ClaimState;
use lictor_locks::Role;
use lictor_locks::lease::ClaimUpdate;
use lictor_process::monotonic;
use tokio::time::Instant;

/// Whether this replica keeps the sessions.
///
/// The acting replica does. The replica that acted last continues while this cluster's API server is away, because no other replica can
/// have begun to act, and the leader is most likely healthy.
#[derive(Default)]
pub(crate) struct Duty {
    acted: bool,
    /// The number of the takeover by which this replica acted last.
    takeover: u64,
    /// When this replica gives up the locks.
    until: Option<Instant>,
}

impl Duty {
    /// The present role. `release_after`: how long after it last acted the replica gives up the locks, if it ever does.
    pub(crate) fn role(&mut self, claim: &ClaimUpdate, release_after: Option<Duration>) -> Role {
        if matches!(claim.state, ClaimState::Acting(until) if monotonic() < until) {
            (self.acted, self.takeover, self.until) = (true, claim.takeovers, None);
            return Role::Acting(self.takeover);
        }
        if claim.others {
            self.acted = false;
        }
        if !self.acted {
            self.until = None;
            return Role::Standby;
        }
        let Some(after) = release_after else { return Role::Acting(self.takeover) };
        let now = Instant::now();
        // The sessions are not destroyed, because another replica may act without this one seeing it, and may still renew them.
        if now < *self.until.get_or_insert(now + after) { Role::Acting(self.takeover) } else { Role::Standby }
    }

    /// When this replica gives up the locks.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether that moment is still to come.
    pub(crate) fn waits(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}
