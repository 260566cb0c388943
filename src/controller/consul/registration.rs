//! The leader in the store's own directory, where the user wants it there. Off the critical path: it follows the leader's label.

use std::collections::BTreeMap;
use std::time::Duration;

use lictor_core::{Failure, Instant, Situation};

use crate::controller::entry::Entry;
use crate::controller::executor::Executor;
use crate::controller::names::ElectionName;
use crate::process::monotonic;
use crate::store::{RegisteredLeader, Registration};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// What is known of an election's entry in its store's own directory.
#[derive(Default)]
pub(crate) struct Registered {
    /// What was written last.
    pub(crate) known: Option<Registration>,
    pub(crate) in_flight: bool,
    pub(crate) not_before: Instant,
    pub(crate) failures: u32,
    /// Whether it was told what keeps it from being written.
    pub(crate) told: bool,
}

/// Takes what became of a write; returns what kept it from succeeding, the first time.
pub(crate) fn take(entry: &mut Entry, wanted: Registration, written: Result<bool, Failure>) -> Option<Failure> {
    let registered = &mut entry.registered;
    registered.in_flight = false;
    match written {
        Ok(true) => {
            (registered.failures, registered.told) = (0, false);
            registered.known = Some(wanted);
            None
        }
        // The lock has moved on: what is wanted now, is found out anew.
        Ok(false) => {
            registered.not_before = monotonic() + FIRST_RETRY;
            None
        }
        Err(failure) => {
            registered.not_before = monotonic() + (FIRST_RETRY * (1 << registered.failures.min(6))).min(LONGEST_RETRY);
            registered.failures += 1;
            (!std::mem::replace(&mut registered.told, true)).then_some(failure)
        }
    }
}

/// Sees to it that the registration is what it should be; returns when to look again.
pub(crate) fn follow(entry: &mut Entry, executor: &Executor) -> Option<Instant> {
    let now = monotonic();
    let (wanted, name) = wanted(entry)?;
    let registered = &mut entry.registered;
    if registered.in_flight || registered.known.as_ref() == Some(&wanted) {
        return None;
    }
    if now < registered.not_before {
        return Some(registered.not_before);
    }
    let (key, election) = (entry.replica.key()?, entry.replica.election()?);
    registered.in_flight = true;
    tracing::debug!(election = %name, "registers the leader: {wanted:?}");
    executor.register(entry.id.clone(), key.clone(), election.version(), wanted);
    None
}

/// Takes the leader of an election that is deleted out of the directory.
pub(crate) fn forget(entry: &mut Entry, executor: &Executor) {
    if let Some(spec) = entry.spec()
        && let Some(service) = &spec.consul_service
    {
        let nobody = Registration { service: service.name.clone(), leader: None };
        executor.register(entry.id.clone(), spec.key.clone(), None, nobody);
    }
}

/// `None`: nothing is wanted, or it is not this cluster that has to say it.
fn wanted(entry: &Entry) -> Option<(Registration, ElectionName)> {
    let spec = entry.spec()?;
    let name = entry.id.election.clone();
    let known = entry.registered.known.as_ref().filter(|known| known.leader.is_some());
    let (Some(service), Some(consul)) = (&spec.consul_service, &spec.consul) else {
        // Its user does not want it there any more.
        return known.map(|known| (Registration { leader: None, ..known.clone() }, name));
    };
    let group = entry.election()?;
    if matches!(group.situation(), Situation::LedElsewhere(_) | Situation::Starting | Situation::Stale)
        || group.is_busy()
    {
        return None;
    }
    let meta = |term: String, pod: &str| {
        let text = |text: &str| text.to_owned();
        BTreeMap::from([
            (text("term"), term),
            (text("pod"), text(pod)),
            (text("namespace"), entry.id.election.namespace.to_string()),
            (text("cluster"), consul.cluster.clone()),
        ])
    };
    let leader = group.leader().and_then(|(term, holder, _)| {
        Some(RegisteredLeader {
            address: holder.ip.clone()?,
            port: service.port,
            meta: meta(term.to_string(), holder.pod.as_deref().unwrap_or_default()),
        })
    });
    // What was never registered by this process is nobody's concern, unless there is a leader to be told.
    if leader.is_none() && known.is_none() {
        return None;
    }
    Some((Registration { service: service.name.clone(), leader }, name))
}
