//! The servers, as they really are: pods, locks, the election and its workloads. They carry out what they are asked for by the
//! preconditions alone, and see to it that no promise is broken.

use std::collections::BTreeMap;
use std::time::Duration;

use lictor_core::invariants::{at_most_one_leader, term_rises};
use lictor_core::switchover::Asked;
use lictor_core::{
    Bid, Command, Desired, ElectionRead, FollowedLock, HandoverOrder, Instant, Key, LockValidity, Marking, Markings,
    Outcome, PlacedBid, Pod, PodOutcome, Record, RecordOutcome, Rival, Rules, Scope, Selector, Stored, SwitchoverMark,
    TERM_ANNOTATION, Term, Timestamp, Uid, Version, Workload, WorkloadOutcome, WritePod, WriteWorkload,
};

/// The election's name.
pub const ELECTION: &str = "web";

/// The name of this cluster, where locks are shared.
pub const HERE: &str = "west";

/// Where the store's versions begin: so that nobody takes one for a version of the API server's.
const FIRST_INDEX: u64 = 100;

/// The election, as its user wrote it.
#[derive(Clone)]
pub struct Spec {
    pub uid: Uid,
    pub generation: i64,
    pub desired: Desired,
    /// There is no such election any more.
    pub gone: bool,
    pub key: Key,
    pub scope: Scope,
    pub rules: Rules,
    pub order: HandoverOrder,
    pub failover_delay: Duration,
    pub wind_down: u32,
}

pub struct World {
    pub now: Instant,
    pub pods: BTreeMap<String, Pod>,
    pub locks: BTreeMap<Key, (Version, Stored)>,
    /// What clusters have answered to an offer of the election's lock.
    pub bids: Vec<PlacedBid>,
    pub election: Spec,
    /// Until when what is held in the lock's store is surely this cluster's own.
    pub validity: LockValidity,
    /// The sessions' TTL.
    pub ttl: Duration,
    /// How long a lock is kept whose holder is silent.
    pub silence: Duration,
    pub workloads: Vec<Workload>,
    /// The lock that the candidates hold themselves, if they elect the leader.
    pub followed: Option<FollowedLock>,
    /// The switchover that was accepted, and whether it is given up.
    pub accepted: Option<(Asked, bool)>,
    /// How many operators were started: from the first on, each change of the election is a generation of its own.
    pub started: u64,
    /// The last leadership that began.
    pub led: Option<(Uid, Term)>,
    /// When the store was last put back.
    pub rewound: Option<Instant>,
    revision: u64,
    index: u64,
    snapshot: (BTreeMap<Key, (Version, Stored)>, u64),
}

impl World {
    pub fn new() -> Self {
        let election = Spec {
            uid: Uid(ELECTION.into()),
            generation: 1,
            desired: Desired::Run,
            gone: false,
            key: Key::lease("", ELECTION),
            scope: scope("role"),
            rules: Rules::default(),
            order: HandoverOrder::DemoteFirst,
            failover_delay: Duration::ZERO,
            wind_down: 0,
        };
        Self {
            now: Instant::default(),
            pods: BTreeMap::new(),
            locks: BTreeMap::new(),
            bids: Vec::new(),
            election,
            validity: LockValidity::Unlimited,
            ttl: Duration::ZERO,
            silence: Duration::ZERO,
            workloads: Vec::new(),
            followed: None,
            accepted: None,
            started: 0,
            led: None,
            rewound: None,
            revision: 0,
            index: FIRST_INDEX,
            snapshot: (BTreeMap::new(), FIRST_INDEX),
        }
    }

    pub fn wall(&self) -> Timestamp {
        Timestamp(self.now.since(Instant::default()).as_millis().try_into().unwrap())
    }

    /// One counter for all that the API server has: a version is never given twice.
    pub fn next_version(&mut self) -> Version {
        self.revision += 1;
        Version(self.revision)
    }

    pub fn put_pod(&mut self, mut pod: Pod) -> Pod {
        pod.version = self.next_version();
        self.pods.insert(pod.name.clone(), pod.clone());
        pod
    }

    pub fn lock(&self, key: &Key) -> Stored {
        self.locks.get(key).map_or(Stored::Absent, |(_, stored)| stored.clone())
    }

    pub fn put_lock(&mut self, key: Key, make: impl FnOnce(Version) -> Stored) -> Version {
        self.index += 1;
        let version = Version(self.index);
        self.locks.insert(key, (version, make(version)));
        version
    }

    /// Keeps the store's state, to be put back to it.
    pub fn save(&mut self) {
        self.snapshot = (self.locks.clone(), self.index);
    }

    /// Puts the store back: its versions are given again.
    pub fn put_back(&mut self) {
        (self.locks, self.index) = self.snapshot.clone();
        self.rewound = Some(self.now);
    }

    /// Another cluster answers the record as it is, and whatever that offers.
    pub fn answer(&mut self, cluster: &str, eligible: bool) -> Option<()> {
        let Stored::Ours(saw, ours) = self.lock(&self.election.key) else { return None };
        let switchover = ours.offer.as_ref()?.switchover.clone();
        // Its election, and what it has seen of terms, are its own.
        let election = Spec { uid: Uid(format!("{ELECTION} of {cluster}")), ..self.election.clone() };
        let record = record(&election, ours.term, None);
        self.place_bid(cluster, Bid { switchover, saw, eligible, record });
        Some(())
    }

    /// The session of a cluster that has answered ends, which changes the key of the answer.
    pub fn end_bid(&mut self, cluster: &str) -> Option<()> {
        self.index += 1;
        let bid = self.bids.iter_mut().find(|placed| placed.cluster == cluster)?;
        (bid.session, bid.version) = (None, Version(self.index));
        Some(())
    }

    fn place_bid(&mut self, cluster: &str, bid: Bid) -> Version {
        self.index += 1;
        let version = Version(self.index);
        self.bids.retain(|placed| placed.cluster != cluster);
        self.bids.push(PlacedBid {
            cluster: cluster.into(),
            namespace: String::new(),
            name: ELECTION.into(),
            version,
            session: Some(format!("session of {cluster}")),
            bid,
        });
        version
    }

    /// The other cluster hands the lock over to this one, as C11 has it. The bid goes.
    pub fn be_given(&mut self, key: Key, term: Term) -> Option<Version> {
        let at = self.bids.iter().position(|placed| placed.cluster == HERE)?;
        let Bid { saw, switchover, record, .. } = self.bids[at].bid.clone();
        if !matches!(self.lock(&key), Stored::HeldByOther(version, _) if version == saw) {
            return None;
        }
        self.bids.remove(at);
        let mark = SwitchoverMark { id: switchover, cluster: Some(HERE.into()), ..SwitchoverMark::default() };
        Some(self.put_lock(key, |version| Stored::Ours(version, Record { term, switchover: Some(mark), ..record })))
    }

    /// C11: the transaction.
    fn give(&mut self, key: &Key, version: Version, to: &PlacedBid, record: &Record) -> RecordOutcome {
        let held = matches!(self.lock(key), Stored::Ours(at, _) if at == version);
        let (true, Some(session), true) = (held, to.session.clone(), self.bids.contains(to)) else {
            return RecordOutcome::Conflict;
        };
        self.bids.retain(|placed| placed != to);
        let rival = Rival {
            cluster: Some(to.cluster.clone()),
            term: record.term,
            session,
            drain_obligation: record.drain_obligation.clone(),
            switchover: record.switchover.clone(),
            ..Rival::default()
        };
        RecordOutcome::Written(self.put_lock(key.clone(), |version| Stored::HeldByOther(version, rival)))
    }

    /// Carries a command out.
    ///
    /// # Errors
    /// A promise is broken by it.
    pub fn carry_out(&mut self, command: &Command, election: &Uid) -> Result<Outcome, String> {
        Ok(match command {
            Command::ReadRecord { key, .. } => Outcome::RecordRead(Ok(self.lock(key))),
            Command::WriteRecord { key, expected, record, .. } => {
                if matches!(self.lock(key), Stored::Free(..) | Stored::Absent) {
                    self.check_lock("taken")?;
                }
                let written = |version| Stored::Ours(version, record.clone().at(version));
                self.write_lock(key, *expected, written)
            }
            Command::ReleaseRecord { key, version, .. } => {
                self.check_lock("let go of")?;
                let record = self.lock(key).record().cloned();
                self.write_lock(key, Some(*version), |version| Stored::Free(version, record, None))
            }
            Command::GiveRecord { key, version, to, record } => {
                self.check_lock("handed over")?;
                Outcome::RecordWritten(self.give(key, *version, to, record))
            }
            Command::WriteBid { bid, .. } => {
                Outcome::BidWritten(RecordOutcome::Written(self.place_bid(HERE, bid.as_ref().clone())))
            }
            Command::RemoveBid { cluster, version, .. } => {
                let there = |placed: &PlacedBid| placed.cluster == *cluster && placed.version == *version;
                let found = self.bids.iter().any(there);
                self.bids.retain(|placed| !there(placed));
                Outcome::BidWritten(if found { RecordOutcome::Written(*version) } else { RecordOutcome::Conflict })
            }
            Command::DeleteRecord { key, version, .. } => {
                match self.write_lock(key, Some(*version), |_| Stored::Absent) {
                    Outcome::RecordWritten(RecordOutcome::Written(_)) => {
                        Outcome::RecordWritten(RecordOutcome::Written(*version))
                    }
                    conflict => conflict,
                }
            }
            Command::ReadElection => {
                let Spec { uid, generation, gone, .. } = self.election.clone();
                let read = if gone { ElectionRead::Gone } else { ElectionRead::Present { uid, generation } };
                Outcome::ElectionRead(Ok(read))
            }
            Command::ListLocks => {
                let own = |stored: &Stored| stored.written().is_some_and(|record| record.election == *election);
                let locks = self.locks.iter().filter(|(_, (_, stored))| own(stored));
                Outcome::LocksListed(Ok(locks.map(|(key, (_, stored))| (key.clone(), stored.clone())).collect()))
            }
            Command::ListPods { .. } => {
                let listed = self.pods.values().filter(|pod| command.lists(pod, ELECTION));
                Outcome::PodsListed(Ok(listed.cloned().collect()))
            }
            Command::ReadPod { name, .. } => Outcome::PodRead(Ok(self.pods.get(name).cloned())),
            Command::WritePod(write) => Outcome::PodWritten(self.write_pod(write)?),
            Command::WriteWorkload(write) => Outcome::WorkloadWritten(self.write_workload(write)?),
            Command::ReadWorkloads { .. } => Outcome::WorkloadsRead(Ok(Vec::new())),
            other => return Err(format!("no server here does `{other}`")),
        })
    }

    fn write_lock(&mut self, key: &Key, expected: Option<Version>, make: impl FnOnce(Version) -> Stored) -> Outcome {
        let stored = self.lock(key);
        let taken = matches!(stored, Stored::HeldByOther(..) | Stored::Foreign(_));
        Outcome::RecordWritten(if taken || stored.version() != expected {
            RecordOutcome::Conflict
        } else {
            RecordOutcome::Written(self.put_lock(key.clone(), make))
        })
    }

    fn write_pod(&mut self, write: &WritePod) -> Result<PodOutcome, String> {
        let Some(mut pod) = self.pods.get(&write.name).filter(|pod| pod.uid == write.uid).cloned() else {
            return Ok(PodOutcome::Gone);
        };
        if pod.version != write.version {
            return Ok(PodOutcome::Conflict);
        }
        write.patch.apply(&mut pod);
        let pod = self.put_pod(pod);
        self.check(&pod)?;
        Ok(PodOutcome::Written(Box::new(pod)))
    }

    /// What is promised of a pod that an operator has just written.
    fn check(&mut self, written: &Pod) -> Result<(), String> {
        let markings = &self.election.scope.markings;
        if !markings.shows_leader(written) {
            return Ok(());
        }
        if !at_most_one_leader(self.pods.values(), markings) {
            let leaders = self.pods.values().filter(|pod| markings.shows_leader(pod));
            let names: Vec<&str> = leaders.map(|pod| pod.name.as_str()).collect();
            return Err(format!("two pods show the leader's label: {}", names.join(", ")));
        }
        let term = Term(written.annotations.get(TERM_ANNOTATION).and_then(|term| term.parse().ok()).unwrap_or(0));
        let leadership = Some((written.uid.clone(), term));
        let before = self.led.as_ref().map(|(_, term)| *term);
        if leadership != self.led && !term_rises(before, term) {
            return Err(format!("{} leads in term {term}, after term {}", written.uid, before.unwrap_or_default()));
        }
        self.led = leadership;
        self.check_others(&written.name)
    }

    /// What is promised of a lock that others may take.
    fn check_lock(&self, what: &str) -> Result<(), String> {
        let leader = self.pods.values().find(|pod| self.election.scope.markings.shows_leader(pod));
        let runs = self.workloads.iter().find(|w| w.runs() && w.claim.as_ref().is_some_and(|claim| claim.enabled));
        let shows = leader.map(|pod| pod.name.clone()).or(runs.map(|workload| workload.id.to_string()));
        match shows {
            Some(name) if self.validity != LockValidity::Unlimited => {
                Err(format!("the lock is {what} while {name} shows a leader"))
            }
            _ => Ok(()),
        }
    }

    /// What is promised of clusters that share a lock.
    fn check_others(&self, here: &str) -> Result<(), String> {
        match self.lock(&self.election.key) {
            Stored::HeldByOther(_, rival) if rival.holder.is_some() => {
                Err(format!("{here} leads here, beside {rival}"))
            }
            _ => Ok(()),
        }
    }

    fn write_workload(&mut self, write: &WriteWorkload) -> Result<WorkloadOutcome, String> {
        let version = self.next_version();
        let Some(workload) = self.workloads.iter_mut().find(|workload| workload.id == write.id) else {
            return Ok(WorkloadOutcome::Gone);
        };
        if workload.version != write.version {
            return Ok(WorkloadOutcome::Conflict);
        }
        workload.version = version;
        workload.setting = write.setting;
        workload.claim.clone_from(&write.claim);
        workload.last_tick = workload.last_tick.max(write.after_tick);
        if write.enables() {
            self.check_others(&write.id.to_string())?;
        }
        Ok(WorkloadOutcome::Done)
    }
}

/// The pods with `app=web`, and the label by which they show their roles.
pub fn scope(label: &str) -> Scope {
    let marking = |role: &str| Marking { labels: [(label.to_owned(), role.to_owned())].into(), ..Marking::default() };
    let markings = Markings { leader: marking("leader"), follower: marking("follower"), ..Markings::default() };
    let match_labels = [("app".to_owned(), ELECTION.to_owned())].into();
    Scope { selector: Selector { match_labels, ..Selector::default() }, markings }
}

/// A record by another operator, now or earlier.
pub fn record(election: &Spec, term: Term, holder: Option<lictor_core::Holder>) -> Record {
    Record {
        leaving: Vec::new(),
        term,
        term_by_version: false,
        holder,
        operator_id: "another".into(),
        since: Timestamp(0),
        election: election.uid.clone(),
        election_name: ELECTION.into(),
        generation: election.generation,
        scope: election.scope.clone(),
        former: Vec::new(),
        drain_obligation: None,
        switchover: None,
        offer: None,
    }
}
