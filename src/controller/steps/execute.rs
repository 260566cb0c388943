//! The fourth step: publishes the decisions, and sends the requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use lictor_core::{Output, Pod, StoreId};

use crate::controller::announce::{announce, announce_defects};
use crate::controller::entry::Entry;
use crate::controller::executor::{Executor, Requester};
use crate::controller::index::ElectionContext;
use crate::controller::timers::Moment;

/// Publishes the announcements, and sends the requests.
pub(crate) fn execute(found: &mut ElectionContext<'_>, output: Output, executor: &Executor, moment: Moment) {
    let ElectionContext { entry, around, .. } = found;
    let Output { requests, announcements, stores, .. } = output;
    let candidates: Vec<&Pod> = entry.members.candidates().filter_map(|pod| around.pods.get(pod)).collect();
    announce_defects(entry, &candidates, executor);
    for announcement in announcements {
        announce(entry, announcement, executor, moment.wall);
    }
    let stores = Arc::new(stores);
    for request in requests {
        let op = request.op;
        if let Some(grant) = executor.perform(requester(entry, &stores), request) {
            entry.decisions.keep(op, grant);
        }
    }
}

/// An election at the moment of its request. `stores`: where it may have locks.
pub(super) fn requester(entry: &Entry, stores: &Arc<BTreeSet<StoreId>>) -> Requester {
    Requester {
        id: entry.object.id().clone(),
        seen: entry.object.seen().clone(),
        spec: entry.object.spec().cloned(),
        claims: entry.workloads.claims().clone(),
        stores: stores.clone(),
        is_new: entry.is_new(),
        begins: entry.begins(),
    }
}
