//! The write of an election's finalizer and claims, which several steps need.

use lictor_api::Claims;
use lictor_core::Instant;

use crate::controller::entry::Entry;
use crate::controller::entry::deregister;
use crate::controller::executor::Executor;
use crate::controller::timers::Soonest;

/// Adds the finalizer and notes which workloads are changed before anything else is written. Removes the finalizer after everything else
/// is gone.
pub(crate) fn write_metadata(
    entry: &mut Entry,
    held: bool,
    claims: Claims,
    executor: &Executor,
    now: Instant,
    again: &mut Soonest,
) {
    entry.probing.stop();
    if entry.writes.may_write_metadata(now) {
        let number = entry.writes.begin_metadata();
        if !held {
            deregister(&entry.object, executor);
        }
        executor.write_metadata(&entry.object, number, held, claims);
    }
    again.add(entry.writes.metadata_retry());
}
