//! The loop's knowledge of one election. Each part belongs to the file that defines it.

mod decisions;
mod history;
mod probing;
mod registration;
mod remarking;
mod routing;
mod service;
mod titles;
mod workloads;
mod writes;

use std::collections::BTreeSet;

use lictor_api::{Claims, LeaderElection, Resolved};
use lictor_core::{Election, FollowedLock, Following, Holder, Key, Locks, Members, Rival, StoreId, Version};

use self::decisions::Decisions;
use self::history::History;
pub(super) use self::probing::{ProbeContext, Probed, Probing, Unasked, probe_client};
use self::registration::Registered;
pub(super) use self::registration::deregister;
use self::remarking::Remarking;
pub(super) use self::routing::{Obstacle, Route, Routing, WATCHED, slices};
use self::service::CreatedService;
pub(super) use self::titles::Group;
use self::titles::Titles;
pub(super) use self::workloads::{Surroundings, Workloads};
use self::writes::OwnWrites;
pub(super) use self::writes::Retry;
use super::names::ElectionId;
use super::object::ElectionObject;
use crate::store::Remark;

/// What is known of the elections of the same name in other clusters.
#[derive(Clone, Copy)]
pub(super) struct ToldElsewhere<'a> {
    /// Another key at which another cluster holds the lock.
    pub(super) other_key: Option<(&'a Key, &'a Rival)>,
    /// The differences that clusters which do not lead have told.
    pub(super) remarks: &'a [Remark],
}

/// One election.
pub(super) struct Entry {
    pub(super) object: ElectionObject,
    pub(super) members: Members,
    pub(super) workloads: Workloads,
    pub(super) routing: Routing,
    pub(super) service: CreatedService,
    pub(super) titles: Titles,
    pub(super) decisions: Decisions,
    pub(super) probing: Probing,
    pub(super) history: History,
    pub(super) writes: OwnWrites,
    pub(super) registered: Registered,
    pub(super) remarking: Remarking,
    /// The known state of the lock that the candidates hold themselves.
    pub(super) followed: FollowedLock,
    /// Whether nothing of the election is left, and its object says so.
    pub(super) withdrawn: bool,
}

impl Entry {
    pub(super) fn new(id: ElectionId, version: Version, seen: LeaderElection, operator_id: &str) -> Self {
        Self {
            decisions: Decisions::new(&id, operator_id),
            workloads: Workloads::new(&seen),
            object: ElectionObject::new(id, version, seen),
            members: Members::default(),
            routing: Routing::default(),
            service: CreatedService::default(),
            titles: Titles::default(),
            probing: Probing::default(),
            history: History::default(),
            writes: OwnWrites::default(),
            registered: Registered::default(),
            remarking: Remarking::default(),
            followed: FollowedLock::Unread,
            withdrawn: false,
        }
    }

    /// The valid spec, if this operator serves the election.
    pub(super) fn spec(&self) -> Option<&Resolved> {
        self.object.spec().map(AsRef::as_ref)
    }

    /// Whether its object needs the finalizer, because something must be done before the object vanishes and could not be done later. A
    /// Lease records by itself what lictor wrote on which pods.
    pub(super) fn needs_finalizer(&self, locks: &Locks) -> bool {
        let shared = |key: &Key| key.store != StoreId::leases();
        let follows = |spec: &Resolved| shared(&spec.key) || !spec.workloads.is_empty() || !spec.jobs.is_empty();
        self.spec().is_some_and(follows)
            || **self.workloads.claims() != Claims::default()
            || locks.of(&self.object.id().uid).any(|(key, _)| shared(key))
    }

    /// The election's decisions, while this replica makes any.
    pub(super) fn election(&self) -> Option<&Election> {
        self.decisions.election()
    }

    /// The pod that leads, or that this replica is making the leader, or else the one that the lock's record names.
    pub(super) fn coming_leader<'a>(&'a self, locks: &'a Locks) -> Option<&'a Holder> {
        let recorded = || {
            let (_, lock) = locks.get(&self.spec()?.key)?;
            lock.record().filter(|record| record.election == self.object.id().uid)?.holder.as_ref()
        };
        self.election().map_or_else(recorded, Election::coming_leader)
    }

    /// Whether the election has no leader, according to its status and its lock.
    pub(super) fn is_new(&self) -> bool {
        let recorded = self.election().and_then(Election::record).and_then(|record| record.holder.as_ref());
        recorded.is_none() && self.is_told_without_leader()
    }

    /// Whether the election is about to get a leader, and replaces none.
    pub(super) fn begins(&self) -> bool {
        self.is_new() || (self.is_told_without_leader() && self.election().is_some_and(Election::is_first_handover))
    }

    /// Whether its status names no leader.
    fn is_told_without_leader(&self) -> bool {
        self.object.seen().status.as_ref().is_none_or(|status| status.leader.is_none())
    }

    /// The lock that the election follows, if its candidates elect the leader themselves.
    pub(super) fn following(&self) -> Option<Following<'_>> {
        let rule = &self.spec()?.followed.as_ref()?.rule;
        Some(Following { rule, lock: &self.followed })
    }

    /// The Services for which the election has slices, or may have.
    pub(super) fn services(&self) -> BTreeSet<&str> {
        let wanted = self.spec().and_then(|spec| spec.service_name());
        wanted.into_iter().chain(self.workloads.claims().services.iter().map(String::as_str)).collect()
    }

    /// Takes the current object. Returns whether the spec has to be resolved again.
    pub(super) fn renew(&mut self, version: Version, seen: LeaderElection) -> bool {
        let noted = self.workloads.claims().clone();
        self.workloads.renew(&seen);
        let selects_others = self.workloads.claims().scopes != noted.scopes;
        self.object.renew(version, seen) || selects_others
    }

    /// Forgets the state that only an acting replica needs.
    pub(super) fn stand_by(&mut self) {
        self.decisions.forget();
        self.probing.stop();
        self.routing.forget();
        self.service = CreatedService::default();
        self.titles.forget();
        self.history.forget();
        self.registered = Registered::default();
        self.remarking = Remarking::default();
        self.writes.forget();
        self.withdrawn = false;
    }
}
