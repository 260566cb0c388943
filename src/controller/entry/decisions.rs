//! This replica's decisions about one election, and the requests that it can still take back.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use lictor_core::{
    Contest, HeldElsewhere, Instant, Key, Known, Marks, OpId, Outcome, Output, Replica, Request, Stored, Term, Version,
    give_back,
};

use crate::controller::names::ElectionId;
use crate::controller::permit::Grant;

/// The decisions of one election.
pub(crate) struct Decisions {
    replica: Replica,
    /// Requests that can be taken back. They are taken back when they are no longer wanted.
    grants: BTreeMap<OpId, Grant>,
    contest: Contest,
    marks: Marks,
}

/// What the replica tells of its decisions. What changes them goes through the methods of [`Decisions`].
impl Deref for Decisions {
    type Target = Replica;

    fn deref(&self) -> &Replica {
        &self.replica
    }
}

impl Decisions {
    pub(crate) fn new(id: &ElectionId, operator_id: &str) -> Self {
        let replica = Replica::new(id.election.name.clone(), id.uid.clone(), operator_id.into());
        Self { replica, grants: BTreeMap::new(), contest: Contest::default(), marks: Marks::default() }
    }

    /// Takes a step, and takes back the requests that are no longer wanted.
    pub(crate) fn step(&mut self, known: &Known<'_>, begun: &mut u64) -> Output {
        let output = self.replica.step(known, begun);
        if output.contested {
            self.contest.note(known.now);
        }
        for request in &output.requests {
            self.marks.send(request.op, &request.command, known.now);
        }
        self.grants.retain(|op, _| self.replica.wants(*op));
        give_back(&mut self.grants);
        output
    }

    /// C10: the step of a replica that does not act.
    pub(crate) fn step_aside(&mut self, known: &HeldElsewhere<'_>, begun: &mut u64) -> Vec<Request> {
        self.replica.step_aside(known, begun)
    }

    /// L1: when this replica may first restore a value that another writer has undone.
    pub(crate) fn restores_from(&self) -> Instant {
        self.contest.restores_from()
    }

    /// L1: the same for the marks on pods that do not lead.
    pub(crate) fn marks_from(&self) -> Instant {
        self.marks.restores_from()
    }

    /// Keeps the grant that can take a request back.
    pub(crate) fn keep(&mut self, op: OpId, grant: Grant) {
        self.grants.insert(op, grant);
    }

    /// Takes an observed state of a lock. Returns whether the decisions are about that lock.
    pub(crate) fn observe(&mut self, key: &Key, version: Version, stored: &Arc<Stored>) -> bool {
        self.replica.observe(key, version, stored)
    }

    /// Takes the outcome of a request.
    pub(crate) fn take(&mut self, op: OpId, outcome: Outcome, now: Instant) {
        self.marks.take(op, &outcome, now);
        self.replica.take(op, outcome, now);
    }

    /// Remembers that the group has reached a term, even if everything is decided again.
    pub(crate) fn reach(&mut self, term: Term) {
        self.replica.reach(term);
    }

    /// Forgets the decisions, and takes back their requests.
    pub(crate) fn forget(&mut self) {
        self.replica.forget();
        self.grants.clear();
        self.marks = Marks::default();
    }
}
