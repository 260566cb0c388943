//! Keeps the remark by which a cluster that does not lead tells the one that does how their elections differ, off the critical path.

use lictor_core::{Election, Instant, Situation};

use crate::controller::entry::Entry;
use crate::controller::executor::Executor;
use crate::controller::object::ElectionObject;
use crate::controller::status::seen_difference;
use crate::controller::timers::Soonest;
use crate::store::Remark;

/// How often to try to take a remark back, before the election goes without.
const ATTEMPTS: u32 = 3;

/// Brings this cluster's remark among those of a lock up to date. Returns when to look again.
pub(super) fn remark(entry: &mut Entry, remarks: &[Remark], executor: &Executor, now: Instant) -> Option<Instant> {
    let (key, election) = entry.decisions.decided()?;
    if !is_known(election) {
        return None;
    }
    let wanted = entry.spec().and_then(|spec| seen_difference(election, spec)).map(|(rival, what)| (rival.term, what));
    if own(&entry.object, remarks).map(|remark| (remark.term, remark.difference)) == wanted {
        return None;
    }
    if let Err(later) = entry.remarking.begin(now) {
        return later;
    }
    executor.remark(entry.object.id().clone(), key.clone(), wanted);
    None
}

/// Whether it is known which remark to make, and no bid has its place.
fn is_known(election: &Election) -> bool {
    match election.situation() {
        Situation::LedElsewhere(rival) => rival.offer.is_none(),
        situation => matches!(situation, Situation::Led | Situation::Vacant),
    }
}

/// This cluster's own remark.
fn own<'a>(object: &ElectionObject, remarks: &'a [Remark]) -> Option<&'a Remark> {
    let shared = object.spec()?.shared.as_ref()?;
    remarks.iter().find(|remark| remark.cluster == shared.cluster())
}

/// Takes back the remark of an election that is deleted. Returns whether the remark is still there, and can perhaps be taken back.
pub(super) fn take_back(
    entry: &mut Entry,
    remarks: &[Remark],
    executor: &Executor,
    now: Instant,
    again: &mut Soonest,
) -> bool {
    let key = entry.spec().map(|spec| spec.key.clone()).filter(|_| own(&entry.object, remarks).is_some());
    let Some(key) = key.filter(|_| entry.remarking.failures() < ATTEMPTS) else { return false };
    match entry.remarking.begin(now) {
        Ok(()) => executor.remark(entry.object.id().clone(), key, None),
        Err(later) => again.add(later),
    }
    true
}
