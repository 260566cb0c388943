//! The leader's entry in the store's own directory, for elections that ask for one. The entry follows the leader's label, off the critical
//! path.

use std::collections::BTreeMap;

use lictor_core::{Election, Failure, Instant, Key, Situation};

use super::Retry;
use crate::controller::executor::Executor;
use crate::controller::object::ElectionObject;
use crate::store::{RegisteredLeader, Registration};

/// The known state of an election's entry in its store's own directory.
#[derive(Default)]
pub(crate) struct Registered {
    /// The last registration that was written.
    known: Option<Registration>,
    in_flight: bool,
    retry: Retry,
}

impl Registered {
    /// Takes the result of a write. Returns the obstacle when the write first fails.
    pub(crate) fn take(
        &mut self,
        wanted: Registration,
        written: Result<bool, Failure>,
        now: Instant,
    ) -> Option<Failure> {
        self.in_flight = false;
        match written {
            Ok(true) => {
                self.retry.succeeded();
                self.known = Some(wanted);
                None
            }
            // The lock has moved on, so the wanted registration is decided again.
            Ok(false) => {
                self.retry.conflicted(now);
                None
            }
            Err(failure) => self.retry.failed(now).then_some(failure),
        }
    }

    /// Brings the registration up to date. Returns when to look again.
    pub(crate) fn follow(
        &mut self,
        object: &ElectionObject,
        decided: Option<(&Key, &Election)>,
        executor: &Executor,
        now: Instant,
    ) -> Option<Instant> {
        let wanted = self.wanted(object, decided.map(|(_, election)| election))?;
        if self.in_flight || self.known.as_ref() == Some(&wanted) {
            return None;
        }
        if now < self.retry.due() {
            return Some(self.retry.due());
        }
        let (key, election) = decided?;
        self.in_flight = true;
        tracing::debug!(election = %object.election(), "registering the leader: {wanted:?}");
        executor.register(object.id().clone(), key.clone(), election.version(), wanted);
        None
    }

    /// `None` if no registration is wanted, or another cluster has to write it.
    fn wanted(&self, object: &ElectionObject, election: Option<&Election>) -> Option<Registration> {
        let spec = object.spec()?;
        let known = self.known.as_ref().filter(|known| known.leader.is_some());
        let (Some(service), Some(cluster)) = (&spec.consul_service, spec.cluster_name()) else {
            // The user no longer wants an entry there.
            return known.map(|known| Registration { leader: None, ..known.clone() });
        };
        let election = election?;
        if matches!(election.situation(), Situation::LedElsewhere(_) | Situation::Starting | Situation::Stale)
            || election.is_busy()
        {
            return None;
        }
        let meta = |term: String, pod: &str| {
            let text = |text: &str| text.to_owned();
            BTreeMap::from([
                (text("term"), term),
                (text("pod"), text(pod)),
                (text("namespace"), object.election().namespace.to_string()),
                (text("cluster"), text(cluster)),
            ])
        };
        let leader = election.leader().and_then(|(term, holder, _)| {
            Some(RegisteredLeader {
                address: holder.ip.clone()?,
                port: service.port,
                meta: meta(term.to_string(), holder.pod.as_deref().unwrap_or_default()),
            })
        });
        // An entry that this process never registered needs no change unless there is a leader to register.
        if leader.is_none() && known.is_none() {
            return None;
        }
        Some(Registration { service: service.name.clone(), leader })
    }
}

/// Removes the leader of a deleted election from the directory.
pub(crate) fn deregister(object: &ElectionObject, executor: &Executor) {
    if let Some(spec) = object.spec()
        && let Some(service) = &spec.consul_service
    {
        let nobody = Registration { service: service.name.clone(), leader: None };
        executor.register(object.id().clone(), spec.key.clone(), None, nobody);
    }
}
