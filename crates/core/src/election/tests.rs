//! What an election asks for, as exact lists of commands. The world around it answers at once and truthfully, except where a
//! scenario says otherwise; its pods are the election's cache too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use std::time::Duration;

mod across;
mod choice;
mod contests;
mod drain;
mod followed;
mod foreign;
mod forged;
mod former;
mod gone;
mod handovers;
mod keys;
mod leaders;
mod obligations;
mod odd_input;
mod presence;
mod promotions;
mod records;
mod rollouts;
mod routing;
mod shared_locks;
mod specs;
mod steering;
mod stray_answers;
mod switchovers;
mod told;
mod unwritable;
mod upkeep;
mod workloads;

use super::*;
use crate::backoff::Backoff;
use crate::switchover::{Asked, Hold, Switchovers, Verdict};
use crate::view::LockPolicy;
use crate::{
    Announcement, Command, ELECTION_ANNOTATION, ElectionRead, Failure, FollowedLock, Following, HandoverOrder, Holder,
    IdentityRule, IdentitySource, JobPlan, Key, Known, LockValidity, Locks, Marking, Markings, Node, NotEligible,
    OtherLeader, Outcome, PRIORITY_ANNOTATION, Pairs, PlacedBid, PodChange, PodOutcome, ProbeFailure, RecordOutcome,
    Rival, Routing, Rules, Scope, Selector, Service, SessionLife, SessionParameters, Slice, TERM_ANNOTATION, Timestamp,
    Unavailable, WhenLost, Workload, WorkloadOutcome, WriteSlice,
};

/// What follows from a step, one thing at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Effect {
    Told(Announcement),
    Request(OpId, Command),
}

impl Effect {
    fn op(&self) -> Option<OpId> {
        match self {
            Self::Told(_) => None,
            Self::Request(op, _) => Some(*op),
        }
    }

    /// Its outcome where it came to no result.
    fn failed(&self, failure: Failure) -> Option<Outcome> {
        match self {
            Self::Told(_) => None,
            Self::Request(_, command) => Some(command.failed(failure)),
        }
    }
}

#[allow(clippy::struct_excessive_bools, reason = "each is a fact that a test sets")]
struct Lab {
    election: Election,
    now: Instant,
    generation: i64,
    desired: Desired,
    gone: bool,
    scope: Scope,
    rules: Rules,
    order: HandoverOrder,
    former_leader: crate::FormerLeader,
    failover_delay: Duration,
    status_term: Term,
    first_term: Term,
    pods: BTreeMap<String, Pod>,
    nodes: BTreeMap<String, Node>,
    other_leaders: Vec<OtherLeader>,
    /// Pods that the cache does not show.
    unseen: BTreeSet<String>,
    /// Pods on which somebody else owns a key.
    foreign: BTreeSet<Uid>,
    probe_failed: Option<(Uid, ProbeFailure)>,
    probe_answered: Option<Uid>,
    /// The switchover that its user was told is accepted.
    accepted: Option<Asked>,
    gives_up: bool,
    holds: Vec<Hold>,
    /// How the leader is reached; none: by its label alone.
    service: Option<Service>,
    /// It can't be used at present.
    unusable: bool,
    slices: BTreeMap<String, Slice>,
    /// What the cluster has noted that it wrote on pods; none: nobody else can write the record.
    noted: Option<Vec<Scope>>,
    strays: Vec<(Key, Stored)>,
    /// What a fresh listing of the locks shows.
    locks: Vec<(Key, Stored)>,
    stored: Stored,
    bids: Vec<PlacedBid>,
    policy: LockPolicy,
    alone_from: Instant,
    contest: crate::Contest,
    marks: crate::Marks,
    cluster: Option<Result<(), Unavailable>>,
    /// The lock that the candidates hold themselves.
    followed: Option<FollowedLock>,
    workloads: Option<Vec<Workload>>,
    jobs: Vec<JobPlan>,
    wind_down: u32,
    /// Somebody takes what is written on workloads off at once.
    strips: bool,
    /// Somebody else has the same on them, so that it stays.
    keeps: bool,
    /// What becomes of Jobs is not shown.
    lags: bool,
    /// The workloads as the API server has them, where the cache does not show that yet.
    unseen_workloads: Option<Vec<Workload>>,
    present: ElectionRead,
    /// Whether somebody undoes what it writes, as the last step says.
    contested: bool,
    last_op: OpId,
    version: u64,
    /// Answers to the next commands that begin with these words, in place of the true ones.
    instead: VecDeque<(&'static str, Outcome)>,
}

fn scope(key: &str) -> Scope {
    let marking = |value: &str| Marking {
        labels: Pairs::from([(key.to_owned(), value.to_owned())]),
        annotations: Pairs::default(),
    };
    let markings = Markings { leader: marking("leader"), follower: marking("follower"), ..Markings::default() };
    let match_labels = Pairs::from([("app".to_owned(), "web".to_owned())]);
    Scope { selector: Selector { match_labels, match_expressions: Vec::new() }, markings }
}

fn uid(text: &str) -> Uid {
    Uid(text.into())
}

impl Lab {
    /// Pods p0, p1, … at versions 10, 11, …, all ready, and no record.
    fn new(pods: usize) -> Self {
        let election =
            Election::new("web".into(), uid("e"), "me".into(), Some((Version(0), Stored::Absent.into())), OpId(0));
        let mut lab = Self {
            election,
            now: Instant::after_origin(Duration::from_secs(100)),
            generation: 1,
            desired: Desired::Run,
            gone: false,
            scope: scope("role"),
            rules: Rules::default(),
            order: HandoverOrder::DemoteFirst,
            former_leader: crate::FormerLeader::Keep,
            failover_delay: Duration::ZERO,
            status_term: Term(0),
            first_term: Term(0),
            pods: BTreeMap::new(),
            nodes: BTreeMap::from([("n".to_owned(), Node::default())]),
            other_leaders: Vec::new(),
            unseen: BTreeSet::new(),
            foreign: BTreeSet::new(),
            probe_failed: None,
            probe_answered: None,
            accepted: None,
            gives_up: false,
            holds: Vec::new(),
            service: None,
            unusable: false,
            slices: BTreeMap::new(),
            noted: None,
            strays: Vec::new(),
            locks: Vec::new(),
            stored: Stored::Absent,
            bids: Vec::new(),
            policy: LockPolicy::ALONE,
            alone_from: Instant::default(),
            contest: crate::Contest::default(),
            marks: crate::Marks::default(),
            cluster: None,
            followed: None,
            workloads: Some(Vec::new()),
            jobs: Vec::new(),
            wind_down: 0,
            strips: false,
            keeps: false,
            lags: false,
            unseen_workloads: None,
            present: ElectionRead::Present { uid: uid("e"), generation: 1 },
            contested: false,
            last_op: OpId(0),
            version: 9,
            instead: VecDeque::new(),
        };
        for number in 0..pods {
            let name = format!("p{number}");
            let pod = Pod {
                uid: uid(&name),
                labels: Pairs::from([("app".into(), "web".into())]),
                node: Some("n".into()),
                ready: true,
                ready_observed: Some(Instant::default()),
                name,
                ..Pod::default()
            };
            lab.put(pod);
        }
        lab.version = 99;
        lab
    }

    /// With p0 elected by this election.
    fn led(pods: usize) -> Self {
        let mut lab = Self::new(pods);
        lab.run();
        assert_eq!(*lab.election.situation(), Situation::Led);
        lab
    }

    /// The same world, and an operator that was just started.
    fn restarted(mut self) -> Self {
        let stored = (self.stored.version().unwrap_or_default(), self.stored.clone().into());
        self.election = Election::new("web".into(), uid("e"), "other".into(), Some(stored), OpId(0));
        self.last_op = OpId(0);
        self
    }

    fn next_version(&mut self) -> Version {
        self.version += 1;
        Version(self.version)
    }

    fn put(&mut self, mut pod: Pod) -> Pod {
        pod.version = self.next_version();
        self.pods.insert(pod.name.clone(), pod.clone());
        pod
    }

    fn edit(&mut self, name: &str, edit: impl FnOnce(&mut Pod)) {
        let mut pod = self.pods[name].clone();
        edit(&mut pod);
        self.put(pod);
    }

    fn unready(&mut self, name: &str) {
        self.edit(name, |pod| pod.ready = false);
    }

    fn shows_leader(&self, name: &str) -> bool {
        self.pods.get(name).is_some_and(|pod| self.scope.markings.shows_leader(pod))
    }

    fn leader(&self) -> Option<&str> {
        self.pods.keys().find(|name| self.shows_leader(name)).map(String::as_str)
    }

    /// Somebody else changes what is in the store, and the watch tells.
    fn store(&mut self, make: impl FnOnce(Version) -> Stored) {
        let version = self.next_version();
        self.stored = make(version);
        self.election.observe(version, self.stored.clone().into());
    }

    fn record(&self) -> Record {
        self.stored.record().cloned().unwrap()
    }

    fn instead(&mut self, of: &'static str, outcome: Outcome) {
        self.instead.push_back((of, outcome));
    }

    fn step(&mut self) -> Vec<Effect> {
        let effects = self.shown(Election::step);
        self.contested = effects.contested;
        if effects.contested {
            self.contest.note(self.now);
        }
        for (op, command) in &effects.requests {
            assert!(*op > self.last_op, "{op:?} was given before: {effects:#?}");
            self.last_op = *op;
            self.marks.send(*op, command, self.now);
            let words = request(command);
            let leads = ["Promote ", "Enable ", "CreateJob ", "Route "].iter().any(|begin| words.starts_with(begin));
            assert_eq!(command.promotes(), leads, "{words}");
        }
        let told = effects.announcements.into_iter().map(Effect::Told);
        told.chain(effects.requests.into_iter().map(|(op, command)| Effect::Request(op, command))).collect()
    }

    /// Shows the election what there is.
    fn shown<T>(&mut self, show: impl FnOnce(&mut Election, &View) -> T) -> T {
        let pods: Vec<&Pod> = self.pods.values().filter(|pod| !self.unseen.contains(&pod.name)).collect();
        let slices: Vec<&Slice> = self.slices.values().collect();
        let (key, locks) = (Key::lease("", "k"), Locks::default());
        let rule = IdentityRule { source: IdentitySource::PodName, pattern: None };
        let routing = match &self.service {
            None => Routing::Off,
            Some(_) if self.unusable => Routing::Unusable,
            Some(service) => Routing::By(service),
        };
        let known = Known {
            wall: Timestamp(7),
            generation: self.generation,
            desired: self.desired,
            gone: self.gone,
            status_term: self.status_term,
            first_term: self.first_term,
            cluster: self.cluster,
            following: self.followed.as_ref().map(|lock| Following { rule: &rule, lock }),
            workloads: self.workloads.as_deref(),
            jobs: &self.jobs,
            wind_down: self.wind_down,
            pods: &pods,
            foreign: &self.foreign,
            routing,
            slices: &slices,
            nodes: &self.nodes,
            other_leaders: &self.other_leaders,
            probe_failed: self.probe_failed.as_ref().map(|(uid, failure)| (uid, *failure)),
            probe_answered: self.probe_answered.as_ref(),
            switchovers: Switchovers { accepted: self.accepted.as_ref(), gives_up: self.gives_up, holds: &self.holds },
            noted: self.noted.as_deref(),
            alone_from: self.alone_from,
            restores_from: self.contest.restores_from(),
            marks_from: self.marks.restores_from(),
            ..Known::new(self.now, &key, &locks)
        };
        let view = View {
            former_leader: self.former_leader,
            known,
            scope: &self.scope,
            rules: &self.rules,
            order: self.order,
            failover_delay: self.failover_delay,
            strays: &self.strays,
            bids: &self.bids,
            policy: self.policy,
        };
        show(&mut self.election, &view)
    }

    /// Steps and answers until nothing more is asked for; returns all that was, in words.
    fn run(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..20 {
            let effects = self.step();
            if effects.is_empty() {
                return all;
            }
            for effect in effects {
                let words = in_words(&effect);
                if let Some((op, outcome)) = self.answer(&effect, &words) {
                    self.marks.take(op, &outcome, self.now);
                    self.election.take(op, outcome, self.now);
                }
                all.push(words);
            }
        }
        panic!("it goes on and on: {all:#?}")
    }

    fn answer(&mut self, effect: &Effect, words: &str) -> Option<(OpId, Outcome)> {
        let Effect::Request(op, command) = effect else { return None };
        let outcome = self.answer_truly(command);
        match self.instead.front() {
            Some((of, _)) if words.starts_with(of) => Some((*op, self.instead.pop_front()?.1)),
            _ => Some((*op, outcome)),
        }
    }

    fn answer_truly(&mut self, command: &Command) -> Outcome {
        match command {
            Command::ReadRecord { .. } => Outcome::RecordRead(Ok(self.stored.clone())),
            Command::WriteRecord { expected, record, .. } if self.stored.version() == *expected => {
                let version = self.next_version();
                self.stored = Stored::Ours(version, record.clone().at(version));
                Outcome::RecordWritten(RecordOutcome::Written(version))
            }
            Command::WriteRecord { .. } => Outcome::RecordWritten(RecordOutcome::Conflict),
            Command::ReleaseRecord { .. } => {
                let version = self.next_version();
                self.stored = Stored::Free(version, self.stored.record().cloned(), None);
                Outcome::RecordWritten(RecordOutcome::Written(version))
            }
            Command::GiveRecord { version, to, record, .. } => Outcome::RecordWritten(self.give(*version, to, record)),
            Command::WriteBid { bid, .. } => {
                let version = self.next_version();
                self.bids = vec![across::placed("west", version, bid.as_ref().clone())];
                Outcome::BidWritten(RecordOutcome::Written(version))
            }
            Command::RemoveBid { cluster, version, .. } => {
                self.bids.retain(|placed| (&placed.cluster, placed.version) != (cluster, *version));
                Outcome::BidWritten(RecordOutcome::Written(*version))
            }
            Command::DeleteRecord { version, .. } => {
                self.stored = Stored::Absent;
                Outcome::RecordWritten(RecordOutcome::Written(*version))
            }
            Command::ReadElection => Outcome::ElectionRead(Ok(self.present.clone())),
            Command::ListLocks => Outcome::LocksListed(Ok(self.locks.clone())),
            Command::ListPods { selectors, .. } => {
                assert!(!selectors.is_empty() && !selectors.contains(&Selector::default()), "all pods: {selectors:?}");
                let listed = self.pods.values().filter(|pod| command.lists(pod, "web"));
                Outcome::PodsListed(Ok(listed.cloned().collect()))
            }
            Command::ReadPod { name } => Outcome::PodRead(Ok(self.pods.get(name).cloned())),
            Command::WritePod(write) => {
                let mut pod = self.pods[&write.name].clone();
                if pod.version != write.version {
                    return Outcome::PodWritten(PodOutcome::Conflict);
                }
                write.patch.apply(&mut pod);
                pod.deleting |= matches!(write.change, PodChange::Delete | PodChange::Evict);
                if write.change == PodChange::Release && pod.deleting {
                    self.pods.remove(&pod.name);
                    return Outcome::PodWritten(PodOutcome::Written(Box::new(pod)));
                }
                Outcome::PodWritten(PodOutcome::Written(Box::new(self.put(pod))))
            }
            Command::ReadSlice { name } => Outcome::SliceRead(Ok(self.slices.get(name).cloned())),
            Command::WriteSlice(write) => Outcome::SliceWritten(self.write_slice(write)),
            Command::ReadWorkloads { .. } => {
                if let Some(there) = self.unseen_workloads.take() {
                    let shown = self.workloads.take().into_iter().flatten();
                    // The answer has what was written last, and what is started by others.
                    let found = shown.zip(there).map(|(shown, there)| Workload {
                        remains: there.remains,
                        last_tick: there.last_tick,
                        ..shown
                    });
                    self.workloads = Some(found.collect());
                }
                Outcome::WorkloadsRead(Ok(Vec::new()))
            }
            Command::WriteWorkload(write) => Outcome::WorkloadWritten(self.write_workload(write)),
            Command::DeleteRunning { id, .. } | Command::DeleteJob { id, .. } => {
                Outcome::WorkloadWritten(self.end_workload(id))
            }
            Command::CreateJob { id, claim, .. } => Outcome::WorkloadWritten(self.create_job(id, claim)),
            Command::NoteJob { plan, term } => {
                let noted = self.jobs.iter_mut().find(|known| known.name == *plan);
                noted.expect("the plan is known").started = Some(*term);
                Outcome::WorkloadWritten(WorkloadOutcome::Done)
            }
        }
    }
}

fn in_words(effect: &Effect) -> String {
    match effect {
        Effect::Told(announcement) => told(announcement),
        Effect::Request(_, command) => request(command),
    }
}

fn request(command: &Command) -> String {
    match command {
        Command::ReadRecord { .. } => "ReadRecord".into(),
        Command::WriteRecord { record, .. } => {
            let holder = record.holder.as_ref().map_or("nobody", |holder| holder.pod.as_deref().unwrap_or("cluster"));
            let former = if record.former.is_empty() { "" } else { ", former" };
            format!("WriteRecord {} {holder}{former}", record.term)
        }
        Command::ReleaseRecord { .. } => "ReleaseRecord".into(),
        Command::GiveRecord { to, record, .. } => format!("GiveRecord {} {}", record.term, to.cluster),
        Command::WriteBid { bid, .. } => format!("WriteBid {} {}", bid.saw, bid.eligible),
        Command::RemoveBid { cluster, .. } => format!("RemoveBid {cluster}"),
        Command::DeleteRecord { .. } => "DeleteRecord".into(),
        Command::ReadElection => "ReadElection".into(),
        Command::ListLocks => "ListLocks".into(),
        Command::ListPods { .. } => "ListPods".into(),
        Command::ReadPod { name, .. } => format!("ReadPod {name}"),
        Command::WritePod(write) => match write.patch.annotations.get(TERM_ANNOTATION) {
            Some(Some(term)) => format!("{:?} {} {term}", write.change, write.name),
            _ => format!("{:?} {}", write.change, write.name),
        },
        Command::ReadSlice { name } => format!("ReadSlice {name}"),
        Command::WriteSlice(write) => match write {
            WriteSlice::Create { name, content } => {
                assert!(!content.shows(), "a slice is made empty");
                format!("CreateSlice {name}")
            }
            WriteSlice::Replace { name, content, .. } => match content.endpoints.as_slice() {
                [] => format!("Empty {name} {}", content.term),
                [endpoint] => format!("Route {name} {} {}", endpoint.pod, content.term),
                more => panic!("more than one: {more:#?}"),
            },
            WriteSlice::Delete { name, .. } => format!("DeleteSlice {name}"),
        },
        Command::WriteWorkload(write) => {
            let what = match &write.claim {
                None => "Release",
                Some(claim) if claim.enabled => "Enable",
                Some(_) => "Disable",
            };
            format!("{what} {} {:?}", write.id, write.setting)
        }
        Command::ReadWorkloads { workloads, .. } => format!("ReadWorkloads {}", workloads.len()),
        Command::DeleteRunning { id, .. } => format!("DeleteRunning {id}"),
        Command::DeleteJob { id, .. } => format!("DeleteJob {id}"),
        Command::CreateJob { id, .. } => format!("CreateJob {id}"),
        Command::NoteJob { plan, term, .. } => format!("NoteJob {plan} {term}"),
    }
}

fn told(announcement: &Announcement) -> String {
    match announcement {
        Announcement::Transition(transition) => {
            let leader =
                transition.leader.as_ref().map_or("nobody", |leader| leader.pod.as_deref().unwrap_or("cluster"));
            format!("Transition {leader} {}", transition.reason.word())
        }
        Announcement::LabelDrift { pod, .. } => format!("LabelDrift {pod}"),
        Announcement::LabelsRefused { pod, .. } => format!("LabelsRefused {pod}"),
        Announcement::LabelsLeft { pod, .. } => format!("LabelsLeft {pod}"),
        Announcement::FormerLeaderDeleted { pod, .. } => format!("FormerLeaderDeleted {pod}"),
        Announcement::FormerLeaderStays { pod, .. } => format!("FormerLeaderStays {pod}"),
        Announcement::LedElsewhere(rival) => {
            format!("LedElsewhere {}", rival.cluster.as_deref().unwrap_or("?"))
        }
        Announcement::LockChanged { what } => format!("LockChanged {what}"),
        Announcement::NotHandedOver { cluster, remains } => format!("NotHandedOver {cluster} {remains:?}"),
        Announcement::Workload(id, change) => format!("{change:?} {id}"),
    }
}

const NOTHING: [&str; 0] = [];

/// With p0 elected under a lock that others may take.
fn shared(pods: usize) -> Lab {
    let mut lab = Lab::new(pods);
    let validity = LockValidity::Until(lab.now + Duration::from_secs(12));
    lab.policy = LockPolicy { shared: true, validity, ..LockPolicy::ALONE };
    lab.run();
    assert_eq!(*lab.election.situation(), Situation::Led);
    lab
}

fn rival() -> Rival {
    Rival { cluster: Some("east".into()), term: Term(500), ..Rival::default() }
}
