//! One operator's decisions about one group: from the known facts to requests, and the moment until which each may be sent.
//!
//! The caches of pods, nodes, workloads and locks are shared by all groups, and come in with each step. A replica keeps only what belongs
//! to one group: its [`Election`], the key under which it is decided, and the terms that it has reached.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::identity::Identity;
use crate::overtaken::{HeldElsewhere, Overtaken};
use crate::step::Effects;
use crate::switchover::{Asked, Verdict};
use crate::view::View;
use crate::{
    Announcement, Command, Election, Instant, Key, Known, LockValidity, OpId, Outcome, Pod, Rules, Situation, StoreId,
    Stored, Term, Uid, Version,
};

/// One operator's decisions about one group.
#[derive(Clone, Debug)]
pub struct Replica {
    id: Identity,
    deciding: Option<(Key, Election)>,
    /// The term that the group had reached when the API server's store was put back to an earlier state.
    reached: Term,
    /// C10.
    overtaken: Overtaken,
}

/// The output of a step.
#[derive(Debug, Default)]
pub struct Output {
    /// The requests to send.
    pub requests: Vec<Request>,
    /// The announcements to make.
    pub announcements: Vec<Announcement>,
    /// The stores in which the group may have locks.
    pub stores: BTreeSet<StoreId>,
    /// Whether another program undoes what this operator writes. The other program may be a second replica that acts.
    pub contested: bool,
}

/// A request, with the time until which it may be sent.
#[derive(Clone, Debug)]
pub struct Request {
    /// The number under which the outcome comes back.
    pub op: OpId,
    /// The command to carry out.
    pub command: Command,
    /// The moment until which the lock can be relied on, if the command makes a pod or a workload lead. All other commands may be sent at
    /// any time.
    pub validity: LockValidity,
    /// Whether the request goes before others. Only a write to a pod that does not mislead clients can wait.
    pub urgent: bool,
    /// C10: whether a replica that does not act may send it.
    pub unclaimed: bool,
}

impl Request {
    fn unclaimed((op, command): (OpId, Command)) -> Self {
        Self { op, command, validity: LockValidity::Unlimited, urgent: true, unclaimed: true }
    }

    /// Whether the request may still be sent. A request that makes a pod or a workload lead may be sent only while the lock is surely held.
    pub fn may_be_sent(&self, now: Instant) -> bool {
        self.validity.lasts(now)
    }
}

impl Replica {
    /// A group for which nothing is decided yet. `operator_id` must be unique among all operators and all their starts.
    pub fn new(name: String, uid: Uid, operator_id: String) -> Self {
        let overtaken = Overtaken::new(&uid.0);
        let id = Identity { name, uid, operator_id };
        Self { id, deciding: None, reached: Term::default(), overtaken }
    }

    /// The group's election, while this operator decides it.
    pub fn election(&self) -> Option<&Election> {
        self.deciding.as_ref().map(|(_, election)| election)
    }

    /// The election, while this operator decides it, and the key of its lock.
    pub fn decided(&self) -> Option<(&Key, &Election)> {
        self.deciding.as_ref().map(|(key, election)| (key, election))
    }

    /// The key of the lock that the election is decided under.
    pub fn key(&self) -> Option<&Key> {
        self.deciding.as_ref().map(|(key, _)| key)
    }

    /// Whether a request may still be sent when its turn comes.
    pub fn may_send(&self, request: &Request, now: Instant) -> bool {
        request.may_be_sent(now) && self.wants(request.op)
    }

    /// Whether a request is still wanted, whatever the moment.
    pub fn wants(&self, op: OpId) -> bool {
        self.election().is_some_and(|election| election.wants(op))
    }

    /// Whether nothing is left of the election.
    pub fn is_withdrawn(&self) -> bool {
        self.election().is_some_and(|election| *election.situation() == Situation::Withdrawn)
    }

    /// Forgets all decisions. The next step begins again.
    pub fn forget(&mut self) {
        self.deciding = None;
    }

    /// Remembers that the group has reached a term, because the store was put back to an earlier state.
    pub fn reach(&mut self, term: Term) {
        self.reached = self.reached.max(term);
    }

    /// Takes a lock as a watch or an answer shows it. Returns whether it is the lock of the present election.
    pub fn observe(&mut self, key: &Key, version: Version, stored: &Arc<Stored>) -> bool {
        match &mut self.deciding {
            Some((of, election)) if of == key => {
                election.observe(version, stored.clone());
                true
            }
            _ => false,
        }
    }

    /// Takes the outcome of a request.
    pub fn take(&mut self, op: OpId, outcome: Outcome, now: Instant) {
        if self.overtaken.take(op, &outcome, &self.id.uid, now) {
            return;
        }
        if let Some((_, election)) = &mut self.deciding {
            election.take(op, outcome, now);
        }
    }

    /// C10: the requests of a replica that does not act, while another cluster holds the lock.
    pub fn step_aside(&mut self, known: &HeldElsewhere<'_>, begun: &mut u64) -> Vec<Request> {
        let requests = self.overtaken.step(&self.id, known, begun);
        requests.into_iter().map(Request::unclaimed).collect()
    }

    /// When to call [`step_aside`](Self::step_aside) again.
    pub fn aside_until(&self, now: Instant) -> Option<Instant> {
        self.overtaken.wake(now)
    }

    /// Takes a step. `begun` counts how often this process has begun to decide any group, because earlier requests are still answered, and
    /// their answers must not be taken for those of later requests.
    pub fn step(&mut self, known: &Known<'_>, begun: &mut u64) -> Output {
        let &Known { key, pods, .. } = known;
        let strays: Vec<(Key, Stored)> = known
            .locks
            .of(&self.id.uid)
            .filter(|(other, _)| *other != key)
            .map(|(key, stored)| (key.clone(), known.believed(key, stored)))
            .collect();
        let election = self.decide(known, begun);
        let recorded = known.recorded(election.record());
        let no_rules = Rules::default();
        let view = View::new(known, &recorded, &no_rules, &strays);
        let Effects { requests, announcements, contested } = election.step(&view);
        // Most steps write to no pod.
        let by_uid = LazyCell::new(|| pods.iter().map(|pod| (&pod.uid, *pod)).collect::<BTreeMap<&Uid, &Pod>>());
        let can_wait = |uid: &Uid| by_uid.get(uid).is_some_and(|pod| !election.may_lead(pod, view.scope));
        let request = |(op, command): (OpId, Command)| {
            let leads = command.promotes();
            let validity = if leads { view.policy.validity } else { LockValidity::Unlimited };
            let urgent = leads || !matches!(&command, Command::WritePod(write) if can_wait(&write.uid));
            Request { op, command, validity, urgent, unclaimed: false }
        };
        let mut stores = BTreeSet::from([StoreId::leases(), key.store.clone()]);
        stores.extend(strays.iter().map(|(key, _)| key.store.clone()));
        Output { requests: requests.into_iter().map(request).collect(), announcements, stores, contested }
    }

    /// The verdict on a switchover, after a step. `gives_up`: the switchover must not be carried out any more.
    pub fn judge(&self, known: &Known<'_>, asked: &Asked, gives_up: bool) -> Verdict {
        let Some((key, election)) = &self.deciding else { return Verdict::Unsettled };
        if key != known.key {
            return Verdict::Unsettled;
        }
        let recorded = known.recorded(election.record());
        election.judge(asked, gives_up, &View::new(known, &recorded, &Rules::default(), &[]))
    }

    fn decide(&mut self, known: &Known<'_>, begun: &mut u64) -> &mut Election {
        let &Known { key, locks, validity, .. } = known;
        self.deciding.take_if(|(of, _)| of != key);
        let (_, election) = self.deciding.get_or_insert_with(|| {
            let stored =
                validity.map(|_| locks.get(key).cloned().unwrap_or((Version::default(), Arc::new(Stored::Absent))));
            *begun += 1;
            self.overtaken.forget();
            let Identity { name, uid, operator_id } = self.id.clone();
            let election = Election::new(name, uid, operator_id, stored, OpId(*begun << 32));
            (key.clone(), election.that_had_reached(self.reached))
        });
        election
    }
}

#[cfg(test)]
mod tests;
