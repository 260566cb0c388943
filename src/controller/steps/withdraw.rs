//! The step that replaces the last ones when nothing of an election is left: its finalizer goes, if it has one.

use crate::api::Claims;
use crate::controller::announce::announce_left;
use crate::controller::entry::Entry;
use crate::controller::executor::Executor;
use crate::controller::status::farewell;
use crate::controller::timers::{Moment, Soonest};

use super::metadata::write_metadata;

/// How often to try. A status that can't be written must not keep lictor from removing what it wrote.
const ATTEMPTS: u32 = 3;

/// Writes into the status of an election that stays that it is no longer served, and then removes the finalizer.
pub(crate) fn withdraw(entry: &mut Entry, executor: &Executor, moment: Moment, again: &mut Soonest) {
    if !entry.object.is_deleted() && write_farewell(entry, executor, moment, again) {
        return;
    }
    if let Some((left, why)) = entry.workloads.take_left() {
        announce_left(entry, &left, &why, executor);
    }
    if entry.object.has_finalizer() || **entry.workloads.claims() != Claims::default() {
        return write_metadata(entry, false, Claims::default(), executor, moment.now, again);
    }
    entry.probing.stop();
    entry.withdrawn = true;
}

/// Returns whether the status still has to be written.
fn write_farewell(entry: &mut Entry, executor: &Executor, Moment { now, wall }: Moment, again: &mut Soonest) -> bool {
    let status = farewell(entry, wall);
    if status == entry.object.last_status() || entry.writes.status_failures() >= ATTEMPTS {
        return false;
    }
    if entry.writes.may_write_status(now) {
        let (number, permit) = entry.writes.begin_status();
        executor.write_status(&entry.object, number, permit, status);
    }
    again.add(entry.writes.status_retry());
    true
}
