//! One operator: the real core with caches of its own, fed as the controller feeds it.

use std::collections::{BTreeMap, BTreeSet};

use lictor_core::{
    Announcement, Command, Desired, Effects, Election, Instant, Key, Node, OpId, Outcome, Pod, Situation, Stored, Uid,
    Version, View,
};

use super::world::{ELECTION, Spec, World};

/// What an operator watches; while it does not see one of these, it goes on with what it knows.
pub const WATCHES: [&str; 3] = ["pods", "locks", "election"];

pub struct Operator {
    pub name: String,
    /// The number of this start: the same name may be started again.
    pub start: u64,
    pub paused: bool,
    /// It stops, and leaves the lock to others.
    pub leaves: bool,
    pub blind: BTreeSet<&'static str>,
    pods: BTreeMap<String, Pod>,
    locks: BTreeMap<Key, (Version, Stored)>,
    spec: Spec,
    group: Option<(Key, Uid, Election)>,
    begun: u64,
    /// How often the store was put back, as far as it knows.
    rewound: u32,
    told: String,
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
        Self {
            name: name.into(),
            start: world.started,
            paused: false,
            leaves: false,
            blind: BTreeSet::new(),
            pods: world.pods.clone(),
            locks: world.locks.clone(),
            spec: world.election.clone(),
            group: None,
            begun: 0,
            rewound: world.rewound,
            told: describe(&Situation::Starting, ""),
        }
    }

    /// Its watches bring what is there now.
    fn observe(&mut self, world: &World) {
        let sees = |watch| !self.blind.contains(watch);
        if sees("election") {
            self.spec = world.election.clone();
        }
        if sees("pods") {
            self.pods.clone_from(&world.pods);
        }
        if sees("locks") {
            if self.rewound != world.rewound {
                // What was decided under versions that are given anew, is decided anew.
                (self.rewound, self.group) = (world.rewound, None);
            }
            for (key, (version, stored)) in &world.locks {
                if let Some((own, _, election)) = &mut self.group
                    && own == key
                {
                    election.observe(*version, stored.clone());
                }
            }
            self.locks.clone_from(&world.locks);
        }
    }

    /// One step; returns the election that the commands are for, too.
    pub fn step(&mut self, world: &World) -> (Uid, Vec<(OpId, Command)>, Vec<Announcement>) {
        self.observe(world);
        let Spec { uid, key, .. } = &self.spec;
        if self.group.as_ref().is_some_and(|(known, of, _)| known != key || of != uid) {
            self.group = None;
        }
        let (begun, locks, start) = (&mut self.begun, &self.locks, self.start);
        let (_, _, election) = self.group.get_or_insert_with(|| {
            *begun += 1;
            let stored = locks.get(key).cloned().unwrap_or((Version(0), Stored::Absent));
            let elector = format!("{}#{start}", self.name);
            let election = Election::new(ELECTION.into(), uid.clone(), elector, Some(stored), OpId(*begun << 32));
            (key.clone(), uid.clone(), election)
        });
        let own = |stored: &Stored| stored.written().is_some_and(|record| record.election == *uid);
        let strays = self.locks.iter().filter(|(other, (_, stored))| *other != key && own(stored));
        let strays: Vec<(Key, Stored)> = strays.map(|(key, (_, stored))| (key.clone(), stored.clone())).collect();
        let pods: Vec<&Pod> = self.pods.values().collect();
        let nodes = BTreeMap::from([("n".to_owned(), Node::default())]);
        let Effects { requests, announcements } = election.step(&View {
            now: world.now,
            wall: world.wall(),
            generation: self.spec.generation,
            desired: if self.leaves { Desired::Leave } else { self.spec.desired },
            key,
            scope: &self.spec.scope,
            rules: &self.spec.rules,
            order: self.spec.order,
            failover_delay: self.spec.failover_delay,
            status_term: lictor_core::Term(0),
            cluster: None,
            workloads: Some(&world.workloads),
            jobs: &[],
            wind_down: self.spec.wind_down,
            pods: &pods,
            nodes: &nodes,
            probe_failed: None,
            strays: &strays,
            keeping: world.keeping,
        });
        (uid.clone(), requests, announcements)
    }

    /// Takes the outcome of a command that it sent for the election of this uid. What was written or read is in its caches, too.
    pub fn take(&mut self, election: &Uid, op: OpId, outcome: Outcome, now: Instant) {
        for pod in outcome.pods() {
            if self.pods.get(&pod.name).is_none_or(|known| known.version < pod.version) {
                self.pods.insert(pod.name.clone(), pod.clone());
            }
        }
        if let Some((_, uid, group)) = &mut self.group
            && uid == election
        {
            group.take(op, outcome, now);
        }
    }

    /// What it takes the election to be about, if that is not what it told last.
    pub fn tell(&mut self, now: Instant) -> Option<String> {
        let (_, _, election) = self.group.as_ref()?;
        let leader = election.leader().map(|(term, holder, _)| format!("{} in term {term}", holder.uid));
        let leader = leader.unwrap_or("nobody".into());
        let waits = election.workloads_wait(now).map(|until| format!(", workloads wait until {}", seconds(until)));
        let ends = election.winding_down().map(|until| format!(", lock kept until {}", seconds(until)));
        let told = describe(election.situation(), &leader) + &waits.or(ends).unwrap_or_default();
        (told != self.told).then(|| self.told.clone_from(&told))?;
        Some(told)
    }
}

fn describe(situation: &Situation, leader: &str) -> String {
    match situation {
        Situation::Starting => "starting".into(),
        Situation::Led => format!("led by {leader}"),
        Situation::LedDespiteProbe => format!("led by {leader}, despite its probe"),
        Situation::HandingOver => "handing over".into(),
        Situation::Recovering(why, until) => format!("led by {leader}, {why:?}, may recover until {}", seconds(*until)),
        Situation::Vacant => "vacant".into(),
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
