//! The third step: the core's decision from the known state.

use lictor_core::switchover::Verdict;
use lictor_core::{Following, Instant, Known, Output, Pod, Routing, Service, Slice};

use super::desire::{Aim, Sources};
use super::switch::{Switching, Wanted};
use crate::controller::entry::{Route, slices};
use crate::controller::index::ElectionContext;
use crate::controller::timers::Moment;

/// Takes a step of the election. `alone_from`: from when on no other replica can act. `begun`: how many decisions of any election were
/// begun. Also returns the verdict on each Switchover afterwards.
pub(crate) fn step(
    found: &mut ElectionContext<'_>,
    aim: &Aim,
    switching: Switching,
    sources: &Sources<'_>,
    alone_from: Instant,
    begun: &mut u64,
    Moment { now, wall }: Moment,
) -> (Output, Vec<(Wanted, Verdict)>) {
    let ElectionContext { entry, around, nodes, other_leaders, locks, vanished, .. } = found;
    let &Aim { desired, ref key, validity } = aim;
    let Sources { watches, shared, .. } = sources;
    let any = entry.members.candidates().next().is_some();
    let presence = entry.workloads.presence(&entry.object, any, entry.object.record(locks));
    entry.workloads.look(&entry.object, *around, watches, (desired, presence), wall);
    let pods: Vec<&Pod> = entry.members.all().filter_map(|pod| around.pods.get(pod)).collect();
    let slices: Vec<&Slice> = slices(entry.services(), around.slices).collect();
    let (restores_from, marks_from) = (entry.decisions.restores_from(), entry.decisions.marks_from());
    // A slice that is written before the object names its Service would be forgotten if the spec changes again.
    let noted = |service: &Service| entry.workloads.claims().services.contains(&service.name);
    let rule = entry.object.spec().and_then(|spec| spec.followed.as_ref()).map(|followed| &followed.rule);
    let known = Known {
        now,
        wall,
        generation: entry.object.generation(),
        desired,
        gone: entry.object.is_gone(),
        key,
        spec: entry.object.spec().map(|spec| spec.spec()),
        status_term: entry.object.status_term(),
        first_term: entry.object.spec().map(|spec| spec.first_term).unwrap_or_default(),
        cluster: entry.workloads.cluster(),
        following: rule.map(|rule| Following { rule, lock: &entry.followed }),
        workloads: entry.workloads.shown(),
        jobs: entry.workloads.jobs(),
        wind_down: entry.workloads.wind_down(),
        pods: &pods,
        foreign: entry.titles.foreign(),
        routing: match entry.routing.route() {
            Route::Off => Routing::Off,
            Route::By(service) | Route::Beside(service, _) if noted(service) => Routing::By(service),
            Route::Unknown { .. } | Route::Unusable(_) | Route::By(_) | Route::Beside(..) => Routing::Unusable,
        },
        slices: &slices,
        nodes,
        other_leaders,
        probe_failed: entry.probing.failed(),
        probe_answered: entry.probing.answered(),
        switchovers: switching.shown(),
        locks,
        validity,
        rewound: shared.rewound(&key.store),
        vanished: *vanished,
        noted: Some(&entry.workloads.claims().scopes),
        alone_from,
        restores_from,
        marks_from,
    };
    let output = entry.decisions.step(&known, begun);
    let judge = |wanted: &Wanted| entry.decisions.judge(&known, &wanted.asked, wanted.gives_up);
    let verdicts: Vec<Verdict> = switching.wanted().iter().map(judge).collect();
    (output, switching.into_wanted().into_iter().zip(verdicts).collect())
}
