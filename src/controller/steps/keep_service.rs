//! The step that keeps the Service that the spec describes, off the critical path.

use lictor_core::{Desired, Instant};

use crate::controller::entry::{Obstacle, Route};
use crate::controller::executor::Executor;
use crate::controller::index::ElectionContext;
use crate::controller::on_demand::{OnDemandWatches, Watched};
use crate::controller::timers::Soonest;

/// Creates the Service, brings it up to date, or deletes one that an earlier spec described. An election whose Service belongs to another
/// election writes none.
pub(crate) fn keep_service(
    found: &mut ElectionContext<'_>,
    desired: Desired,
    watches: &OnDemandWatches,
    executor: &Executor,
    now: Instant,
    again: &mut Soonest,
) {
    let ElectionContext { entry, around, .. } = found;
    if desired != Desired::Run || !watches.knows(Watched::Services, &entry.object.election().namespace) {
        return;
    }
    if let Route::Unusable(Obstacle::Taken(_)) = entry.routing.route() {
        return;
    }
    let named: Vec<String> = entry.services().into_iter().map(str::to_owned).collect();
    if let Some(write) = entry.service.next(&entry.object, &named, around.services, now) {
        executor.write_service(&entry.object, write);
    }
    again.add(entry.service.due());
}
