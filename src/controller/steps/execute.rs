//! The fourth step: what was decided is told, and sent.

use lictor_core::{Output, Pod};

use crate::controller::announce::{announce, announce_defects};
use crate::controller::executor::{Executor, Requester};
use crate::controller::index::Found;
use crate::controller::timers::Moment;

/// Tells what there is to tell, and sends the requests.
pub(crate) fn execute(found: &mut Found<'_>, output: Output, executor: &Executor, moment: Moment) {
    let Found { entry, around, .. } = found;
    let Output { requests, announcements, stores } = output;
    let candidates: Vec<&Pod> = entry.members.candidates().filter_map(|pod| around.pods.get(pod)).collect();
    announce_defects(entry, &candidates, executor);
    for announcement in announcements {
        announce(entry, announcement, executor, moment.wall);
    }
    for request in requests {
        let requester = Requester {
            id: entry.object.id().clone(),
            seen: entry.object.seen().clone(),
            spec: entry.object.spec().cloned(),
            claims: entry.workloads.claims().clone(),
            stores: stores.clone(),
        };
        let op = request.op;
        if let Some(grant) = executor.perform(requester, request) {
            entry.decisions.keep(op, grant);
        }
    }
}
