//! The third step: what the core decides, from what is known.

use lictor_core::{Instant, Known, Output, Pod, Routing, SharedStores, Slice};

use super::desire::Aim;
use crate::controller::entry::{Route, slices};
use crate::controller::index::Found;
use crate::controller::on_demand::OnDemandWatches;
use crate::controller::timers::Moment;

/// Takes a step of the election. `alone_from`: from when on no other replica can act. `begun`: how often any election was begun to be
/// decided.
pub(crate) fn step(
    found: &mut Found<'_>,
    aim: &Aim,
    watches: &OnDemandWatches,
    shared: &SharedStores,
    alone_from: Instant,
    begun: &mut u64,
    Moment { now, wall }: Moment,
) -> Output {
    let Found { entry, around, nodes, locks } = found;
    let &Aim { desired, ref key, validity } = aim;
    entry.workloads.look(&entry.object, *around, watches, desired, wall);
    let pods: Vec<&Pod> = entry.members.all().filter_map(|pod| around.pods.get(pod)).collect();
    let slices: Vec<&Slice> = slices(entry.services(), around.slices).collect();
    let known = Known {
        now,
        wall,
        generation: entry.object.generation(),
        desired,
        gone: entry.object.is_gone(),
        key,
        spec: entry.object.spec().map(|spec| spec.spec()),
        status_term: entry.object.status_term(),
        cluster: entry.workloads.cluster(),
        workloads: entry.workloads.shown(),
        jobs: entry.workloads.jobs(),
        wind_down: entry.workloads.wind_down(),
        pods: &pods,
        routing: match entry.routing.route() {
            Route::Off => Routing::Off,
            Route::Unknown { .. } | Route::Unusable(_) => Routing::Unusable,
            Route::By(service) => Routing::By(service),
        },
        slices: &slices,
        nodes,
        probe_failed: entry.probing.failed(),
        locks,
        validity,
        rewound: shared.rewound(&key.store),
        alone_from,
    };
    entry.decisions.step(&known, begun)
}
