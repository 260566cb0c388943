//! The step instead of the last ones, when nothing is left of an election: its finalizer goes, if it has one.

use crate::api::Claims;
use crate::controller::announce::announce_left;
use crate::controller::entry::Entry;
use crate::controller::executor::Executor;
use crate::controller::status::farewell;
use crate::controller::timers::{Moment, Soonest};

use super::metadata::write_metadata;

/// That it can't be told must not keep what was written from being taken off.
const ATTEMPTS: u32 = 3;

/// Says in the status of an election that stays that it is served no more, and then takes the finalizer off.
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

/// Returns whether that is still to be done.
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
