//! One operator's decisions about one group: from the known facts to requests, and the moment until which each may be sent.
//!
//! The caches of pods, nodes, workloads and locks are shared by all groups, and come in with each step. A replica keeps only what belongs
//! to one group: its [`Election`], the key under which it is decided, and the terms that it has reached.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::election::forecast;
use crate::overtaken::{HeldElsewhere, Overtaken};
use crate::step::Effects;
use crate::switchover::{Asked, Switchovers, Verdict};
use crate::view::{LockPolicy, View};
use crate::{
    Announcement, Command, Desired, Election, Following, Forecast, HandoverOrder, Instant, JobPlan, Key, LockValidity,
    Locks, Node, NotEligible, OpId, Outcome, Pod, ProbeFailure, Record, Routing, Rules, Scope, Situation, Slice,
    StoreId, Stored, Term, Timestamp, Uid, Version, WhenLost, Workload,
};

/// How much longer than necessary other clusters may take to see that a store was put back to an earlier state.
const SLACK: Duration = Duration::from_secs(1);

/// One operator's decisions about one group.
#[derive(Clone, Debug)]
pub struct Replica {
    name: String,
    uid: Uid,
    operator_id: String,
    deciding: Option<(Key, Election)>,
    /// The term that the group had reached when the API server's store was put back to an earlier state.
    reached: Term,
    /// C10.
    overtaken: Overtaken,
}

/// The user's spec, read into valid values.
#[derive(Clone, Copy)]
pub struct Spec<'a> {
    /// The selected pods, and the labels and annotations that are written on them.
    pub scope: &'a Scope,
    /// The rules that decide which candidates may lead.
    pub rules: &'a Rules,
    /// Which label write of a handover comes first.
    pub order: HandoverOrder,
    /// How long a leader may take to recover.
    pub failover_delay: Duration,
    /// How the operator treats the leader when its lock can't be confirmed.
    pub when_lost: WhenLost,
    /// The sessions' TTL, if other clusters share the lock.
    pub ttl: Duration,
    /// The longest time for which a holder that went silent keeps a lock.
    pub silence: Duration,
}

/// The facts around the group, as far as the operator knows them, when the group takes a step.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The moment of the step.
    pub now: Instant,
    /// The same moment for people.
    pub wall: Timestamp,
    /// The election's generation that the rest is read from.
    pub generation: i64,
    /// The user's goal for the election.
    pub desired: Desired,
    /// Whether the election is gone, as far as the operator knows. It removes the election's marks only if the API server, too, says so.
    pub gone: bool,
    /// The key of the election's lock.
    pub key: &'a Key,
    /// The user's spec, or `None` if there is no valid one. Then no candidate is elected any more, and the record says what to clean up.
    pub spec: Option<Spec<'a>>,
    /// The term in the status: no term may be below it.
    pub status_term: Term,
    /// H9: no new term may be below this one either.
    pub first_term: Term,
    /// Whether the cluster itself is the candidate, and may lead. `None` if the candidates are pods.
    pub cluster: Option<Result<(), NotEligible>>,
    /// The lock that the candidates hold themselves, if they elect the leader, or `None` if lictor elects it.
    pub following: Option<Following<'a>>,
    /// The workloads that follow the leader, or did. `None` if they are not known yet.
    pub workloads: Option<&'a [Workload]>,
    /// Jobs that are created once for each term.
    pub jobs: &'a [JobPlan],
    /// How long running workloads may take to end, in seconds.
    pub wind_down: u32,
    /// The pods that the operator may have to write to.
    pub pods: &'a [&'a Pod],
    /// O1: those of them on which another owner has a key, or may.
    pub foreign: &'a BTreeSet<Uid>,
    /// How clients reach the leader.
    pub routing: Routing<'a>,
    /// The slices that this election wrote, and those with the names of its Service's slices.
    pub slices: &'a [&'a Slice],
    /// The nodes by name.
    pub nodes: &'a BTreeMap<String, Node>,
    /// The pod whose probe fails, if it is the leader, and how.
    pub probe_failed: Option<(&'a Uid, ProbeFailure)>,
    /// The pod whose probe has succeeded since it became the leader, if any has.
    pub probe_answered: Option<&'a Uid>,
    /// The switchovers that the election's users ask for.
    pub switchovers: Switchovers<'a>,
    /// H16: the scopes that this cluster has noted in a place of its own and has not cleaned up. `None` if only this cluster can write
    /// records.
    pub noted: Option<&'a [Scope]>,
    /// All locks that were seen.
    pub locks: &'a Locks,
    /// The moment until which this cluster can rely on locks in the lock's store. `None` if nothing is known of that store.
    pub validity: Option<LockValidity>,
    /// When that store was last seen to be put back to an earlier state.
    pub rewound: Option<Instant>,
    /// C6: when a lock that another cluster held was last seen to vanish, even while this replica did not act.
    pub vanished: Option<Instant>,
    /// L6: the moment from which no other replica of this operator can act.
    pub alone_from: Instant,
    /// L1: the moment from which the operator may write again what another program has undone.
    pub restores_from: Instant,
    /// L1: the same for the marks on pods that do not lead.
    pub marks_from: Instant,
}

impl<'a> Known<'a> {
    /// The facts of a group without pods, workloads and a spec, whose lock only this cluster writes.
    pub fn new(now: Instant, key: &'a Key, locks: &'a Locks) -> Self {
        static NO_NODES: BTreeMap<String, Node> = BTreeMap::new();
        static NO_PODS: BTreeSet<Uid> = BTreeSet::new();
        Self {
            now,
            wall: Timestamp(0),
            generation: 1,
            desired: Desired::Run,
            gone: false,
            key,
            spec: None,
            status_term: Term(0),
            first_term: Term(0),
            cluster: None,
            following: None,
            workloads: Some(&[]),
            jobs: &[],
            wind_down: 0,
            pods: &[],
            foreign: &NO_PODS,
            routing: Routing::Off,
            slices: &[],
            nodes: &NO_NODES,
            probe_failed: None,
            probe_answered: None,
            switchovers: Switchovers::default(),
            noted: None,
            locks,
            validity: Some(LockValidity::Unlimited),
            rewound: None,
            vanished: None,
            alone_from: Instant::default(),
            restores_from: Instant::default(),
            marks_from: Instant::default(),
        }
    }

    /// The decision that an operator would make about the leadership from these facts alone, without knowing which pods failed their probe
    /// earlier or could not be labelled. The call does nothing and remembers nothing. `record` is the lock's record, as it was read.
    /// Returns `None` if there is no valid spec.
    pub fn forecast(&self, name: &str, uid: &Uid, record: Option<&Record>) -> Option<Forecast<'a>> {
        let spec = self.spec?;
        Some(forecast(name, uid, &self.view((spec.scope, spec.rules), &[]), record))
    }

    /// H16: the part of a lock under another key that counts.
    fn believed(&self, key: &Key, stored: &Stored) -> Stored {
        match (self.noted, stored.written()) {
            (Some(noted), Some(record)) if key.store != StoreId::leases() => {
                stored.clone().with_written(record.believed(noted, &Scope::default()))
            }
            _ => stored.clone(),
        }
    }

    /// The scope of the record that counts while there is no valid spec.
    fn recorded(&self, election: &Election) -> Scope {
        let believed = |scope: &&Scope| match self.noted {
            Some(noted) if self.key.store != StoreId::leases() => noted.contains(scope),
            _ => true,
        };
        election.record().map(|record| &record.scope).filter(believed).cloned().unwrap_or_default()
    }

    /// The view of these facts for an election. `without_spec` counts while there is no valid spec.
    pub(crate) fn view<'b>(&self, without_spec: (&'b Scope, &'b Rules), strays: &'b [(Key, Stored)]) -> View<'b>
    where
        'a: 'b,
    {
        let &Self {
            now, wall, generation, desired, gone, key, spec, status_term, first_term, cluster, following, ..
        } = self;
        let &Self {
            workloads,
            jobs,
            wind_down,
            pods,
            foreign,
            nodes,
            probe_failed,
            probe_answered,
            switchovers,
            routing,
            slices,
            ..
        } = self;
        View {
            now,
            wall,
            generation,
            desired,
            gone,
            key,
            scope: spec.map_or(without_spec.0, |spec| spec.scope),
            rules: spec.map_or(without_spec.1, |spec| spec.rules),
            order: spec.map_or(HandoverOrder::DemoteFirst, |spec| spec.order),
            failover_delay: spec.map(|spec| spec.failover_delay).unwrap_or_default(),
            status_term,
            first_term,
            cluster,
            following,
            workloads,
            jobs,
            wind_down,
            pods,
            foreign,
            routing,
            slices,
            nodes,
            probe_failed,
            probe_answered,
            switchovers,
            noted: self.noted,
            strays,
            bids: self.locks.bids(key),
            policy: policy(self),
            alone_from: self.alone_from,
            restores_from: self.restores_from,
            marks_from: self.marks_from,
        }
    }
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
        Self { name, uid, operator_id, deciding: None, reached: Term::default(), overtaken }
    }

    /// The group's election, while this operator decides it.
    pub fn election(&self) -> Option<&Election> {
        self.deciding.as_ref().map(|(_, election)| election)
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
        if self.overtaken.take(op, &outcome, &self.uid, now) {
            return;
        }
        if let Some((_, election)) = &mut self.deciding {
            election.take(op, outcome, now);
        }
    }

    /// C10: the requests of a replica that does not act, while another cluster holds the lock.
    pub fn step_aside(&mut self, known: &HeldElsewhere<'_>, begun: &mut u64) -> Vec<Request> {
        let requests = self.overtaken.step((&self.name, &self.uid, &self.operator_id), known, begun);
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
            .of(&self.uid)
            .filter(|(other, _)| *other != key)
            .map(|(key, stored)| (key.clone(), known.believed(key, stored)))
            .collect();
        let election = self.decide(known, begun);
        let recorded = known.recorded(election);
        let no_rules = Rules::default();
        let view = known.view((&recorded, &no_rules), &strays);
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
        let recorded = known.recorded(election);
        election.judge(asked, gives_up, &known.view((&recorded, &Rules::default()), &[]))
    }

    fn decide(&mut self, known: &Known<'_>, begun: &mut u64) -> &mut Election {
        let &Known { key, locks, validity, .. } = known;
        self.deciding.take_if(|(of, _)| of != key);
        let (_, election) = self.deciding.get_or_insert_with(|| {
            let stored =
                validity.map(|_| locks.get(key).cloned().unwrap_or((Version::default(), Arc::new(Stored::Absent))));
            *begun += 1;
            self.overtaken.forget();
            let (name, uid, operator_id) = (self.name.clone(), self.uid.clone(), self.operator_id.clone());
            let election = Election::new(name, uid, operator_id, stored, OpId(*begun << 32));
            (key.clone(), election.that_had_reached(self.reached))
        });
        election
    }
}

fn policy(known: &Known<'_>) -> LockPolicy {
    let ttl = known.spec.map(|spec| spec.ttl).unwrap_or_default();
    match known.validity {
        Some(LockValidity::Unlimited) => LockPolicy::ALONE,
        validity => LockPolicy {
            shared: true,
            validity: validity.unwrap_or(LockValidity::Lapsed),
            when_lost: known.spec.map_or(WhenLost::Demote, |spec| spec.when_lost),
            silence: known.spec.map(|spec| spec.silence).unwrap_or_default(),
            grace: ttl,
            // Other clusters' watches ask again as often as this one's, and Consul adds up to a sixteenth.
            vanished: known.vanished,
            not_before: known.rewound.map_or(Instant::default(), |at| at + ttl * 9 / 8 + SLACK),
        },
    }
}

#[cfg(test)]
mod tests;
