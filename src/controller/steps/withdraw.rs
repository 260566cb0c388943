//! The step that replaces the last ones when nothing of an election is left: its finalizer goes, if it has one.

use std::collections::BTreeMap;

use lictor_api::Claims;
use lictor_core::Instant;

use crate::controller::announce::announce_left;
use crate::controller::entry::Entry;
use crate::controller::executor::Executor;
use crate::controller::status::farewell;
use crate::controller::timers::{Moment, Soonest};
use crate::kubernetes::ServiceObject;
use crate::store::Remark;

use super::metadata::write_metadata;
use super::remark::take_back;

/// How often to try. A status that can't be written must not keep lictor from removing what it wrote.
const ATTEMPTS: u32 = 3;

/// Writes into the status of an election that stays that it is no longer served, and then removes the finalizer.
pub(crate) fn withdraw(
    entry: &mut Entry,
    services: &BTreeMap<String, ServiceObject>,
    remarks: &[Remark],
    executor: &Executor,
    moment: Moment,
    again: &mut Soonest,
) {
    if !entry.object.is_deleted() && write_farewell(entry, executor, moment, again) {
        return;
    }
    if delete_services(entry, services, executor, moment.now, again) {
        return;
    }
    if let Some((left, why)) = entry.workloads.take_left() {
        announce_left(entry, &left, &why, executor);
    }
    if entry.object.has_finalizer() || **entry.workloads.claims() != Claims::default() {
        if take_back(entry, remarks, executor, moment.now, again) {
            return;
        }
        return write_metadata(entry, false, Claims::default(), executor, moment.now, again);
    }
    entry.probing.stop();
    entry.withdrawn = true;
}

/// Deletes the Services that lictor created for the election. Returns whether one is still there, and can perhaps be deleted.
fn delete_services(
    entry: &mut Entry,
    services: &BTreeMap<String, ServiceObject>,
    executor: &Executor,
    now: Instant,
    again: &mut Soonest,
) -> bool {
    let owned = services.values().filter(|service| service.is_of(&entry.object.id().uid, entry.object.name()));
    let owned: Vec<&ServiceObject> = owned.filter(|service| !service.deleting).collect();
    if owned.is_empty() || entry.service.failures() >= ATTEMPTS {
        return false;
    }
    if let Some(write) = entry.service.next_deletion(owned, now) {
        executor.write_service(&entry.object, write);
    }
    again.add(entry.service.due());
    true
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
