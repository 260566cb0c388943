//! One operator: the real decisions of a group, with caches of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lictor_core::switchover::{Asked, Switchovers, Verdict};
use lictor_core::{
    Command, Desired, FollowedLock, Following, IdentityRule, IdentitySource, Instant, Known, Locks, Node, OpId,
    Outcome, Output, Pod, Replica, Request, Situation, Uid, WhenLost,
};

use super::world::{ELECTION, Spec, World};

/// What an operator watches; while it does not see one of these, it goes on with what it knows.
pub const WATCHES: [&str; 4] = ["pods", "locks", "election", "followed"];

pub struct Operator {
    pub name: String,
    /// The number of this start: the same name may be started again.
    pub start: u64,
    pub paused: bool,
    /// It stops, and leaves the lock to others.
    pub leaves: bool,
    pub blind: BTreeSet<&'static str>,
    pods: BTreeMap<String, Pod>,
    locks: Locks,
    followed: Option<FollowedLock>,
    spec: Spec,
    /// It has seen the election, not only what is left of it.
    knows_spec: bool,
    group: Option<(Uid, Replica)>,
    begun: u64,
    /// When the store was put back, as far as it knows.
    rewound: Option<Instant>,
    told: String,
    /// What it says of the switchover.
    verdict: Option<(Uid, Verdict)>,
}

/// A request that is on its way.
pub struct Held {
    pub operator: String,
    pub start: u64,
    pub election: Uid,
    pub op: OpId,
    pub command: Command,
}

impl Operator {
    pub fn new(name: &str, world: &mut World) -> Self {
        world.started += 1;
        let mut operator = Self {
            name: name.into(),
            start: world.started,
            paused: false,
            leaves: false,
            blind: BTreeSet::new(),
            pods: world.pods.clone(),
            locks: Locks::default(),
            followed: world.followed.clone(),
            spec: world.election.clone(),
            knows_spec: !world.election.gone,
            group: None,
            begun: 0,
            rewound: world.rewound,
            told: describe(&Situation::Starting, ""),
            verdict: None,
        };
        operator.see_locks(world);
        operator
    }

    /// Its watches bring what is there now.
    fn observe(&mut self, world: &World) {
        let sees = |watch| !self.blind.contains(watch);
        if sees("election") {
            self.knows_spec |= !world.election.gone;
            self.spec = world.election.clone();
        }
        if sees("pods") {
            self.pods.clone_from(&world.pods);
        }
        if sees("followed") {
            self.followed.clone_from(&world.followed);
        }
        if sees("locks") {
            self.see_locks(world);
        }
    }

    fn see_locks(&mut self, world: &World) {
        if self.rewound != world.rewound {
            // What was decided under versions that are given anew, is decided anew.
            self.rewound = world.rewound;
            self.locks = Locks::default();
            if let Some((_, replica)) = &mut self.group {
                replica.forget();
            }
        }
        for (key, (version, stored)) in &world.locks {
            let stored = Arc::new(stored.clone());
            if self.locks.put(key, *version, &stored).is_some()
                && let Some((_, replica)) = &mut self.group
            {
                replica.observe(key, *version, &stored);
            }
        }
        self.locks.put_bids(&world.election.key, world.bids.clone());
    }

    /// One step; returns the election that the requests are for, too.
    pub fn step(&mut self, world: &World) -> (Uid, Output) {
        self.observe(world);
        let Spec { uid, key, .. } = &self.spec;
        self.group.take_if(|(of, _)| of != uid);
        let operator_id = format!("{}#{}", self.name, self.start);
        let new = || (uid.clone(), Replica::new(ELECTION.into(), uid.clone(), operator_id));
        let (_, replica) = self.group.get_or_insert_with(new);
        let pods: Vec<&Pod> = self.pods.values().collect();
        let nodes = BTreeMap::from([("n".to_owned(), Node::default())]);
        let rule = IdentityRule { source: IdentitySource::PodName, pattern: None };
        let known = Known {
            following: self.followed.as_ref().map(|lock| Following { rule: &rule, lock }),
            wall: world.wall(),
            generation: self.spec.generation,
            gone: self.spec.gone,
            desired: if self.leaves { Desired::Leave } else { self.spec.desired },
            spec: self.knows_spec.then_some(lictor_core::Spec {
                former_leader: lictor_core::FormerLeader::Keep,
                scope: &self.spec.scope,
                rules: &self.spec.rules,
                order: self.spec.order,
                failover_delay: self.spec.failover_delay,
                when_lost: WhenLost::Demote,
                ttl: world.ttl,
                silence: world.silence,
                seen_after: Duration::ZERO,
            }),
            workloads: Some(&world.workloads),
            wind_down: self.spec.wind_down,
            pods: &pods,
            nodes: &nodes,
            validity: Some(world.validity),
            switchovers: Switchovers {
                accepted: world.accepted.as_ref().map(|(asked, _)| asked),
                gives_up: world.accepted.as_ref().is_some_and(|(_, gives_up)| *gives_up),
                holds: &[],
            },
            rewound: self.rewound,
            ..Known::new(world.now, key, &self.locks)
        };
        let output = replica.step(&known, &mut self.begun);
        let judge = |(asked, gives_up): &(Asked, bool)| (asked.id.clone(), replica.judge(&known, asked, *gives_up));
        self.verdict = world.accepted.as_ref().map(judge);
        (uid.clone(), output)
    }

    /// Whether a request is still to be sent when its turn comes.
    pub fn may_send(&self, request: &Request, now: Instant) -> bool {
        let (_, replica) = self.group.as_ref().expect("it has asked for something");
        !request.command.promotes() || replica.may_send(request, now)
    }

    /// Takes the outcome of a command that it sent for the election of this uid. What was written or read is in its caches, too.
    pub fn take(&mut self, election: &Uid, op: OpId, outcome: Outcome, now: Instant) {
        for pod in outcome.pods() {
            if self.pods.get(&pod.name).is_none_or(|known| known.version < pod.version) {
                self.pods.insert(pod.name.clone(), pod.clone());
            }
        }
        if let Some((uid, replica)) = &mut self.group
            && uid == election
        {
            replica.take(op, outcome, now);
        }
    }

    /// What it takes the election to be about, if that is not what it told last.
    pub fn tell(&mut self, now: Instant) -> Option<String> {
        let election = self.group.as_ref()?.1.election()?;
        let leader = election.leader().map(|(term, holder, _)| format!("{} in term {term}", holder.uid));
        let leader = leader.unwrap_or("nobody".into());
        let waits = election.workloads_wait(now).map(|until| format!(", workloads wait until {}", seconds(until)));
        let ends = election.winding_down().map(|until| format!(", lock kept until {}", seconds(until)));
        let told = describe(election.situation(), &leader) + &waits.or(ends).unwrap_or_default();
        let said = self.verdict.as_ref().map(|(name, verdict)| format!(", switchover {name}: {verdict:?}"));
        let told = told + &said.unwrap_or_default();
        (told != self.told).then(|| self.told.clone_from(&told))?;
        Some(told)
    }
}

fn describe(situation: &Situation, leader: &str) -> String {
    match situation {
        Situation::Starting => "starting".into(),
        Situation::Led => format!("led by {leader}"),
        Situation::LedDespiteProbe(_) => format!("led by {leader}, despite its probe"),
        Situation::HandingOver => "handing over".into(),
        Situation::Recovering(why, until) => format!("led by {leader}, {why:?}, may recover until {}", seconds(*until)),
        Situation::Vacant => "vacant".into(),
        Situation::AwaitingEnd(former) => format!("awaiting the end of {}", former.pod.as_deref().unwrap_or_default()),
        Situation::Foreign(what) => format!("foreign lock: {what}"),
        Situation::LedElsewhere(rival) => format!("led elsewhere, {rival}"),
        Situation::LockLost => "lock lost".into(),
        Situation::StoreLost => "store lost".into(),
        Situation::StoreRewound => "store rewound".into(),
        Situation::Stale => "its view is of the past".into(),
        Situation::Withdrawn => "withdrawn".into(),
    }
}

fn seconds(at: Instant) -> String {
    format!("{} s", at.since(Instant::default()).as_secs_f64())
}
