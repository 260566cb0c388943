//! The Service that lictor creates for an election with `spec.service.ports`, and keeps as the spec says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lictor_api::LeaderService;
use lictor_core::{Failure, Instant, Uid, Version};

use super::Retry;
use crate::controller::object::ElectionObject;
use crate::kubernetes::{ServiceObject, ServiceWrite};

/// The shortest time between two writes, so that a program that writes other values into the Service makes no storm of writes.
const PAUSE: Duration = Duration::from_secs(1);

/// The known state of the Service that lictor creates.
#[derive(Default)]
pub(crate) struct CreatedService {
    /// The Service after the last write, and what was written.
    written: Option<(Uid, Version, Arc<LeaderService>)>,
    under_way: bool,
    retry: Retry,
    not_before: Instant,
    /// When a write that is wanted may begin.
    due: Option<Instant>,
    failures: u32,
    failure: Option<Failure>,
    /// The spec that the failures are about.
    failed: Option<Arc<LeaderService>>,
}

impl CreatedService {
    /// Why the last write failed, if it did.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// How many writes in a row have failed.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// When to look again, if a write is wanted that has to wait.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The next write, if one is due. `named`: the Services that the election names, or has named.
    pub(crate) fn next(
        &mut self,
        object: &ElectionObject,
        named: &[String],
        services: &BTreeMap<String, ServiceObject>,
        now: Instant,
    ) -> Option<ServiceWrite> {
        let id = object.id();
        let wanted = object.spec()?.service.as_ref();
        if self.failed.as_ref() != wanted {
            // A corrected spec is tried at once.
            (self.failed, self.failure, self.failures) = (wanted.cloned(), None, 0);
            self.retry = Retry::default();
        }
        let is_former = |name: &&String| wanted.is_none_or(|wanted| wanted.name != **name);
        let mut former = named.iter().filter(is_former).filter_map(|name| services.get(name));
        let former = former.find(|service| service.is_owned_by(&id.uid) && !service.deleting);
        // A former Service stays until its successor can be used.
        let succeeded = wanted.is_none_or(|wanted| {
            services.get(&wanted.name).is_some_and(|found| {
                found.usable.is_ok() && (found.is_owned_by(&id.uid) || !wanted.is_created() || found.fits(wanted))
            })
        });
        let write = wanted.and_then(|wanted| self.upkeep(object, wanted, services));
        let write = write.or_else(|| former.filter(|_| succeeded).map(deletion));
        let Some(write) = write else {
            (self.failure, self.failures, self.due) = (None, 0, None);
            return None;
        };
        self.begin(now).then_some(write)
    }

    /// The next deletion of one of these Services, if it is due.
    pub(crate) fn next_deletion(&mut self, owned: Vec<&ServiceObject>, now: Instant) -> Option<ServiceWrite> {
        let write = owned.into_iter().next().map(deletion)?;
        self.begin(now).then_some(write)
    }

    fn begin(&mut self, now: Instant) -> bool {
        let at = self.not_before.max(self.retry.due());
        let begins = !self.under_way && now >= at;
        self.due = (!self.under_way && !begins).then_some(at);
        self.under_way |= begins;
        begins
    }

    /// The write that brings the Service that the spec describes up to date.
    fn upkeep(
        &self,
        object: &ElectionObject,
        wanted: &Arc<LeaderService>,
        services: &BTreeMap<String, ServiceObject>,
    ) -> Option<ServiceWrite> {
        if !wanted.is_created() {
            let found =
                services.get(&wanted.name).filter(|found| found.is_owned_by(&object.id().uid) && !found.deleting)?;
            let (name, uid, version) = (found.name.clone(), found.uid.clone(), found.version);
            return Some(ServiceWrite::Release { name, uid, version });
        }
        let Some(found) = services.get(&wanted.name) else { return Some(ServiceWrite::Create(wanted.clone())) };
        if !found.is_of(&object.id().uid, object.name()) || found.deleting {
            return None;
        }
        // Whatever has changed the Service since may have changed what the spec describes. If not, the API server writes nothing.
        let is_current = self
            .written
            .as_ref()
            .is_some_and(|(uid, version, spec)| *uid == found.uid && *version >= found.version && spec == wanted);
        (!is_current).then(|| ServiceWrite::Keep {
            uid: found.uid.clone(),
            version: found.version,
            spec: wanted.clone(),
            earlier: found.written.clone(),
            adopts: !found.is_owned_by(&object.id().uid),
        })
    }

    /// Takes the outcome of a write. Returns the obstacle when a write first fails.
    pub(crate) fn take(
        &mut self,
        write: &ServiceWrite,
        written: Result<Option<(Uid, Version)>, Failure>,
        now: Instant,
    ) -> Option<Failure> {
        self.under_way = false;
        self.not_before = now + PAUSE;
        match written {
            Ok(written) => {
                (self.failure, self.failures) = (None, 0);
                self.retry.succeeded();
                // After a creation, one more write notes on the Service which uid it has.
                if let (Some((uid, version)), ServiceWrite::Keep { spec, .. }) = (written, write) {
                    self.written = Some((uid, version, spec.clone()));
                }
                None
            }
            Err(failure) => {
                self.failures += 1;
                self.failure = Some(failure.clone());
                self.retry.failed(now).then_some(failure)
            }
        }
    }
}

fn deletion(service: &ServiceObject) -> ServiceWrite {
    ServiceWrite::Delete { name: service.name.clone(), uid: service.uid.clone() }
}
