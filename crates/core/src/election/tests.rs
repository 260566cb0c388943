//! What an election asks for, as exact lists of commands. The world around it answers at once and truthfully, except where a
//! scenario says otherwise; its pods are the election's cache too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use std::time::Duration;

mod gone;
mod handovers;
mod keys;
mod obligations;
mod odd_input;
mod promotions;
mod routing;
mod steering;
mod stray_answers;
mod told;
mod unwritable;
mod upkeep;
mod workloads;

use super::*;
use crate::view::LockPolicy;
use crate::{
    ELECTION_ANNOTATION, ElectionRead, HandoverOrder, JobPlan, Key, LockValidity, Marking, Markings, Node, NotEligible,
    Outcome, PRIORITY_ANNOTATION, PodChange, PodOutcome, RecordOutcome, Rival, Routing, Rules, Scope, Selector,
    Service, SessionLife, SessionParameters, Slice, TERM_ANNOTATION, WhenLost, Workload, WorkloadOutcome, WriteSlice,
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
    failover_delay: Duration,
    status_term: Term,
    pods: BTreeMap<String, Pod>,
    nodes: BTreeMap<String, Node>,
    /// Pods that the cache does not show.
    unseen: BTreeSet<String>,
    probe_failed: Option<Uid>,
    /// How the leader is reached; none: by its label alone.
    service: Option<Service>,
    /// It can't be used at present.
    unusable: bool,
    slices: BTreeMap<String, Slice>,
    strays: Vec<(Key, Stored)>,
    /// What a fresh listing of the locks shows.
    locks: Vec<(Key, Stored)>,
    stored: Stored,
    policy: LockPolicy,
    alone_from: Instant,
    cluster: Option<Result<(), NotEligible>>,
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
    last_op: OpId,
    version: u64,
    /// Answers to the next commands that begin with these words, in place of the true ones.
    instead: VecDeque<(&'static str, Outcome)>,
}

fn scope(key: &str) -> Scope {
    let marking = |value: &str| Marking {
        labels: BTreeMap::from([(key.to_owned(), value.to_owned())]),
        annotations: BTreeMap::new(),
    };
    let markings = Markings { leader: marking("leader"), follower: marking("follower") };
    let match_labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    Scope { selector: Selector { match_labels, match_expressions: Vec::new() }, markings }
}

fn uid(text: &str) -> Uid {
    Uid(text.into())
}

impl Lab {
    /// Pods p0, p1, … at versions 10, 11, …, all ready, and no record.
    fn new(pods: usize) -> Self {
        let election = Election::new("web".into(), uid("e"), "me".into(), Some((Version(0), Stored::Absent)), OpId(0));
        let mut lab = Self {
            election,
            now: Instant::after_origin(Duration::from_secs(100)),
            generation: 1,
            desired: Desired::Run,
            gone: false,
            scope: scope("role"),
            rules: Rules { require_ready: true, min_ready: Duration::ZERO, preference: Vec::new(), preempt: false },
            order: HandoverOrder::DemoteFirst,
            failover_delay: Duration::ZERO,
            status_term: Term(0),
            pods: BTreeMap::new(),
            nodes: BTreeMap::from([("n".to_owned(), Node::default())]),
            unseen: BTreeSet::new(),
            probe_failed: None,
            service: None,
            unusable: false,
            slices: BTreeMap::new(),
            strays: Vec::new(),
            locks: Vec::new(),
            stored: Stored::Absent,
            policy: LockPolicy::ALONE,
            alone_from: Instant::default(),
            cluster: None,
            workloads: Some(Vec::new()),
            jobs: Vec::new(),
            wind_down: 0,
            strips: false,
            keeps: false,
            lags: false,
            unseen_workloads: None,
            present: ElectionRead::Present { uid: uid("e"), generation: 1 },
            last_op: OpId(0),
            version: 9,
            instead: VecDeque::new(),
        };
        for number in 0..pods {
            let name = format!("p{number}");
            let pod = Pod {
                uid: uid(&name),
                labels: BTreeMap::from([("app".into(), "web".into())]),
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
        let stored = (self.stored.version().unwrap_or_default(), self.stored.clone());
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
        self.election.observe(version, self.stored.clone());
    }

    fn record(&self) -> Record {
        self.stored.record().cloned().unwrap()
    }

    fn instead(&mut self, of: &'static str, outcome: Outcome) {
        self.instead.push_back((of, outcome));
    }

    fn step(&mut self) -> Vec<Effect> {
        let pods: Vec<&Pod> = self.pods.values().filter(|pod| !self.unseen.contains(&pod.name)).collect();
        let slices: Vec<&Slice> = self.slices.values().collect();
        let key = Key::lease("", "k");
        let routing = match &self.service {
            None => Routing::Off,
            Some(_) if self.unusable => Routing::Unusable,
            Some(service) => Routing::By(service),
        };
        let view = View {
            now: self.now,
            wall: Timestamp(7),
            generation: self.generation,
            desired: self.desired,
            gone: self.gone,
            key: &key,
            scope: &self.scope,
            rules: &self.rules,
            order: self.order,
            failover_delay: self.failover_delay,
            status_term: self.status_term,
            cluster: self.cluster,
            workloads: self.workloads.as_deref(),
            jobs: &self.jobs,
            wind_down: self.wind_down,
            pods: &pods,
            routing,
            slices: &slices,
            nodes: &self.nodes,
            probe_failed: self.probe_failed.as_ref(),
            strays: &self.strays,
            policy: self.policy,
            alone_from: self.alone_from,
        };
        let effects = self.election.step(&view);
        for (op, command) in &effects.requests {
            assert!(*op > self.last_op, "{op:?} was given before: {effects:#?}");
            self.last_op = *op;
            let words = request(command);
            let leads = ["Promote ", "Enable ", "CreateJob ", "Route "].iter().any(|begin| words.starts_with(begin));
            assert_eq!(command.promotes(), leads, "{words}");
        }
        let told = effects.announcements.into_iter().map(Effect::Told);
        told.chain(effects.requests.into_iter().map(|(op, command)| Effect::Request(op, command))).collect()
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
            Command::DeleteRecord { version, .. } => {
                self.stored = Stored::Absent;
                Outcome::RecordWritten(RecordOutcome::Written(*version))
            }
            Command::ReadElection => Outcome::ElectionRead(Ok(self.present.clone())),
            Command::ListLocks => Outcome::LocksListed(Ok(self.locks.clone())),
            Command::ListPods { selectors } => {
                assert!(!selectors.is_empty() && !selectors.contains(&Selector::default()), "all pods: {selectors:?}");
                let listed = self.pods.values().filter(|pod| selectors.iter().any(|s| s.matches(&pod.labels)));
                Outcome::PodsListed(Ok(listed.cloned().collect()))
            }
            Command::ReadPod { name } => Outcome::PodRead(Ok(self.pods.get(name).cloned())),
            Command::WritePod(write) => {
                let mut pod = self.pods[&write.name].clone();
                if pod.version != write.version {
                    return Outcome::PodWritten(PodOutcome::Conflict);
                }
                patch(&mut pod.labels, &write.patch.labels);
                patch(&mut pod.annotations, &write.patch.annotations);
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

fn patch(to: &mut BTreeMap<String, String>, patch: &BTreeMap<String, Option<String>>) {
    for (key, value) in patch {
        match value {
            Some(value) => to.insert(key.clone(), value.clone()),
            None => to.remove(key),
        };
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
        Announcement::LedElsewhere(rival) => {
            format!("LedElsewhere {}", rival.cluster.as_deref().unwrap_or("?"))
        }
        Announcement::LockChanged { what } => format!("LockChanged {what}"),
        Announcement::Workload(id, change) => format!("{change:?} {id}"),
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_first_election_stamps_every_candidate_and_reads_the_election_again() {
    assert_eq!(
        Lab::new(3).run(),
        [
            "WriteRecord 1 p0",
            "ListPods",
            "ListLocks",
            "ReadElection",
            "Demote p1 1",
            "Demote p2 1",
            "Promote p0 1",
            "Transition p0 Vacant"
        ]
    );
}

#[test]
fn a_failover_is_three_requests_and_no_more() {
    let mut lab = Lab::led(3);
    lab.unready("p0");
    assert_eq!(lab.run(), ["WriteRecord 2 p1", "Demote p0 2", "Promote p1 2", "Transition p1 LeaderNotReady"]);
}

#[test]
fn a_restart_beside_a_healthy_leader_asks_for_nothing() {
    let mut lab = Lab::led(3).restarted();
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(*lab.election.situation(), Situation::Led);
}

#[test]
fn the_first_failover_after_a_restart_looks_at_all_afresh() {
    let mut lab = Lab::led(3).restarted();
    lab.unready("p0");
    assert_eq!(
        lab.run(),
        [
            "ListPods",
            "WriteRecord 2 p1",
            "ListPods",
            "ListLocks",
            "ReadElection",
            "Demote p0 2",
            "Demote p2 2",
            "Promote p1 2",
            "Transition p1 LeaderNotReady"
        ]
    );
}

#[test]
fn a_higher_priority_takes_over_only_where_preemption_is_wanted() {
    let mut lab = Lab::led(2);
    lab.edit("p1", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "5".into())));
    assert_eq!(lab.run(), NOTHING);
    lab.rules.preempt = true;
    assert_eq!(lab.run(), ["WriteRecord 2 p1", "Demote p0 2", "Promote p1 2", "Transition p1 Preempted"]);
}

#[test]
fn a_leader_has_the_failover_delay_to_recover() {
    let mut lab = Lab::led(2);
    lab.failover_delay = Duration::from_secs(5);
    lab.unready("p0");
    let until = lab.now + Duration::from_secs(5);
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(*lab.election.situation(), Situation::Recovering(NotEligible::NotReady, until));
    assert_eq!(lab.election.wake(), Some(until));
    lab.now = until;
    assert_eq!(lab.run()[0], "WriteRecord 2 p1");
}

#[test]
fn without_an_eligible_pod_the_leadership_is_vacated() {
    let mut lab = Lab::led(2);
    lab.unready("p1");
    lab.unready("p0");
    assert_eq!(lab.run(), ["WriteRecord 1 nobody", "Demote p0 1", "Transition nobody LeaderNotReady"]);
    assert_eq!(*lab.election.situation(), Situation::Vacant);
    lab.edit("p1", |pod| pod.ready = true);
    assert_eq!(lab.run(), ["WriteRecord 2 p1", "Promote p1 2", "Transition p1 Vacant"]);
}

#[test]
fn a_paused_election_does_nothing() {
    let mut lab = Lab::led(2);
    lab.desired = Desired::Freeze;
    lab.unready("p0");
    lab.edit("p1", |pod| drop(pod.labels.insert("role".into(), "leader".into())));
    assert_eq!(lab.run(), NOTHING);
}

#[test]
fn a_leader_label_that_was_taken_off_is_put_back_under_the_same_record() {
    let mut lab = Lab::led(2);
    lab.edit("p0", |pod| drop(pod.labels.remove("role")));
    assert_eq!(lab.run(), ["LabelDrift p0", "ReadRecord", "Promote p0 1"]);
}

#[test]
fn a_follower_that_somebody_labelled_leader_is_put_right() {
    let mut lab = Lab::led(2);
    lab.edit("p1", |pod| drop(pod.labels.insert("role".into(), "leader".into())));
    assert_eq!(lab.run(), ["LabelDrift p1", "Demote p1 1"]);
}

#[test]
fn after_a_conflict_the_pod_is_read_then_the_record_then_it_is_promoted() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    lab.instead("Promote p1", Outcome::PodWritten(PodOutcome::Conflict));
    let all = lab.run();
    // The world did carry it out, so the pod is found promoted.
    assert_eq!(all[2..], ["Promote p1 2", "ReadPod p1", "Transition p1 LeaderNotReady"]);

    let mut lab = Lab::led(2);
    lab.unready("p0");
    let stale = lab.step();
    assert_eq!(in_words(&stale[0]), "WriteRecord 2 p1");
    lab.edit("p1", |pod| drop(pod.annotations.insert("another".into(), "change".into())));
    let (op, outcome) = lab.answer(&stale[0], "").unwrap();
    lab.election.take(op, outcome, lab.now);
    assert_eq!(
        lab.run(),
        ["Demote p0 2", "Promote p1 2", "ReadPod p1", "ReadRecord", "Promote p1 2", "Transition p1 LeaderNotReady"]
    );
}

#[test]
fn a_record_write_without_an_answer_is_read_and_its_own_goes_on() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    let lost = RecordOutcome::Failed(Failure::Unknown("no answer".into()));
    lab.instead("WriteRecord", Outcome::RecordWritten(lost));
    assert_eq!(lab.run(), ["WriteRecord 2 p1"]);
    lab.now = lab.now + Duration::from_secs(1);
    assert_eq!(lab.run(), ["ReadRecord", "Demote p0 2", "Promote p1 2", "Transition p1 LeaderNotReady"]);
}

#[test]
fn while_the_record_can_not_be_read_its_write_is_not_repeated() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    let lost = || Failure::Unknown("no answer".into());
    lab.instead("WriteRecord", Outcome::RecordWritten(RecordOutcome::Failed(lost())));
    lab.instead("ReadRecord", Outcome::RecordRead(Err(lost())));
    assert_eq!(lab.run(), ["WriteRecord 2 p1"]);
    for expected in
        [&["ReadRecord"][..], &["ReadRecord", "Demote p0 2", "Promote p1 2", "Transition p1 LeaderNotReady"]]
    {
        lab.now = lab.now + Duration::from_secs(1);
        assert_eq!(lab.run(), expected);
    }
}

#[test]
fn a_record_that_is_not_the_one_whose_write_is_unknown_is_somebody_elses() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    let other = Record { operator_id: "other".into(), ..lab.record() };
    lab.instead("WriteRecord", Outcome::RecordWritten(RecordOutcome::Failed(Failure::Unknown("no answer".into()))));
    lab.run();
    lab.store(|version| Stored::Ours(version, other));
    lab.now = lab.now + Duration::from_secs(1);
    let all = lab.run();
    assert_eq!(all[..3], ["ReadRecord", "ListPods", "WriteRecord 2 p1"], "{all:#?}");
}

#[test]
fn a_deleted_record_is_made_anew_for_the_same_leader() {
    let mut lab = Lab::led(2);
    lab.store(|_| Stored::Absent);
    assert_eq!(
        lab.run(),
        [
            "LockChanged deleted",
            "WriteRecord 2 p0",
            "ListPods",
            "ListLocks",
            "ReadElection",
            "Demote p1 2",
            "Promote p0 2",
            "Transition p0 LockRestored"
        ]
    );
}

#[test]
fn an_edited_record_is_replaced_for_the_same_leader() {
    let mut lab = Lab::led(2);
    lab.store(|version| Stored::Damaged(version, Term(40)));
    let all = lab.run();
    assert_eq!(all[..3], ["LockChanged edited by hand", "WriteRecord 41 p0", "ListPods"]);
    assert_eq!(all.last().unwrap(), "Transition p0 LockRestored");
}

#[test]
fn a_leader_whose_store_was_put_back_begins_a_term_above_all_that_were_given() {
    let mut lab = Lab::led(2).restarted();
    lab.election = lab.election.that_had_reached(Term(7));
    let all = lab.run();
    assert_eq!(all[..2], ["ListPods", "WriteRecord 8 p0"]);
    assert_eq!(all.last().unwrap(), "Transition p0 LockRestored");
    assert_eq!(lab.run(), [""; 0]);
    lab.pods.remove("p0");
    assert_eq!(lab.run()[0], "WriteRecord 9 p1");
}

#[test]
fn a_term_is_above_all_that_is_known_and_incredible_hints_are_not() {
    let mut lab = Lab::new(1);
    lab.status_term = Term(5);
    assert_eq!(lab.run()[0], "WriteRecord 6 p0");

    let noted = |term: &str| {
        let mut lab = Lab::new(1);
        lab.edit("p0", |pod| {
            pod.annotations.insert(ELECTION_ANNOTATION.into(), "web".into());
            pod.annotations.insert(TERM_ANNOTATION.into(), term.into());
        });
        lab.run()[0].clone()
    };
    assert_eq!(noted("8"), "WriteRecord 9 p0");
    assert_eq!(noted("2147483647"), "WriteRecord 1 p0");
}

#[test]
fn a_term_that_only_a_fresh_list_shows_is_outbid() {
    let mut lab = Lab::new(2);
    let mut listed = lab.pods["p1"].clone();
    listed.annotations.insert(ELECTION_ANNOTATION.into(), "web".into());
    listed.annotations.insert(TERM_ANNOTATION.into(), "4".into());
    lab.instead("ListPods", Outcome::PodsListed(Ok(vec![listed])));
    let all = lab.run();
    assert_eq!(all[..5], ["WriteRecord 1 p0", "ListPods", "ListLocks", "ReadElection", "ReadRecord"]);
    assert!(all.contains(&"WriteRecord 5 p0".to_owned()), "{all:#?}");
    assert!(!all.contains(&"Promote p0 1".to_owned()), "{all:#?}");
}

#[test]
fn a_change_of_the_labels_cleans_up_after_itself() {
    let mut lab = Lab::led(2);
    lab.scope = scope("mode");
    lab.generation = 2;
    assert_eq!(
        lab.run(),
        ["WriteRecord 2 p0, former", "Promote p0 2", "Transition p0 SpecChanged", "Demote p1 2", "WriteRecord 2 p0"]
    );
    assert!(lab.pods.values().all(|pod| !pod.labels.contains_key("role")));
}

#[test]
fn a_change_of_the_labels_while_nobody_leads_is_in_the_record_first() {
    let mut lab = Lab::led(1);
    lab.unready("p0");
    lab.run();
    lab.scope = scope("mode");
    lab.generation = 2;
    assert_eq!(lab.run(), ["WriteRecord 1 nobody, former", "Demote p0 1", "WriteRecord 1 nobody"]);
}

#[test]
fn a_withdrawal_takes_off_all_labels_and_then_the_record() {
    let mut lab = Lab::led(2);
    lab.desired = Desired::Withdraw;
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    assert_eq!(
        lab.run(),
        ["ReadElection", "ReadRecord", "WriteRecord 1 nobody", "ListPods", "Remove p0", "Remove p1", "DeleteRecord"]
    );
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
    assert!(lab.pods.values().all(|pod| pod.annotations.is_empty() && pod.labels.len() == 1));
}

#[test]
fn a_withdrawal_of_an_election_that_is_gone_touches_nothing() {
    let mut lab = Lab::led(2);
    lab.desired = Desired::Withdraw;
    lab.present = ElectionRead::Present { uid: uid("its successor"), generation: 1 };
    assert_eq!(lab.run(), ["ReadElection"]);
    assert_eq!(*lab.election.situation(), Situation::Stale);
}

#[test]
fn promote_first_turns_the_order_round() {
    let mut lab = Lab::led(2);
    lab.order = HandoverOrder::PromoteFirst;
    lab.unready("p0");
    assert_eq!(lab.run(), ["WriteRecord 2 p1", "Promote p1 2", "Demote p0 2", "Transition p1 LeaderNotReady"]);
}

#[test]
fn a_failed_probe_moves_the_leadership_if_there_is_anywhere_to_go() {
    let mut lab = Lab::led(2);
    lab.probe_failed = Some(uid("p0"));
    assert_eq!(lab.run(), ["WriteRecord 2 p1", "Demote p0 2", "Promote p1 2", "Transition p1 ProbeFailed"]);

    let mut lab = Lab::led(1);
    lab.probe_failed = Some(uid("p0"));
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(*lab.election.situation(), Situation::LedDespiteProbe);
}

/// Shows H10.
#[test]
fn a_view_that_is_older_than_the_record_does_nothing() {
    let mut lab = Lab::led(2);
    let newer = Record { generation: 2, ..lab.record() };
    lab.store(|version| Stored::Ours(version, newer));
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    lab.unready("p0");
    assert_eq!(lab.run(), ["ReadElection"]);
    assert_eq!(*lab.election.situation(), Situation::Stale);
    lab.generation = 2;
    assert!(lab.run().contains(&"Promote p1 2".to_owned()));
}

#[test]
fn a_record_of_a_generation_that_never_was_is_not_believed() {
    let mut lab = Lab::led(2);
    let edited = Record { generation: 9, ..lab.record() };
    lab.store(|version| Stored::Ours(version, edited));
    assert_eq!(
        lab.run(),
        [
            "ReadElection",
            "LockChanged edited by hand",
            "WriteRecord 2 p0",
            "ListPods",
            "ListLocks",
            "ReadElection",
            "Demote p1 2",
            "Promote p0 2",
            "Transition p0 LockRestored"
        ]
    );
}

#[test]
fn a_lock_that_is_free_is_not_kept_by_a_generation_that_never_was() {
    let mut lab = Lab::led(2);
    lab.policy = LockPolicy { shared: true, ..LockPolicy::ALONE };
    let edited = Record { generation: 9, ..lab.record() };
    lab.store(|version| Stored::Free(version, Some(edited), None));
    let asked = lab.run();
    assert!(asked.contains(&"ReadElection".to_owned()), "{asked:?}");
    assert_eq!(*lab.election.situation(), Situation::Led);
}

#[test]
fn a_term_in_the_status_that_leaves_none_for_others_is_not_believed() {
    let mut lab = Lab::led(2);
    lab.status_term = Term(i32::MAX.into());
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(lab.election.term(), Term(1));
    // One that is only high is: the record may have been put back to an earlier state.
    lab.status_term = Term(1_000_000_000);
    lab.unready("p0");
    assert!(lab.run().contains(&"Promote p1 1000000001".to_owned()));
}

#[test]
fn a_lock_that_moves_here_goes_on_from_the_term_that_the_status_shows() {
    let mut lab = Lab::new(2);
    lab.status_term = Term(i32::MAX.into());
    assert_eq!(lab.step().iter().map(in_words).collect::<Vec<_>>(), ["WriteRecord 2147483648 p0"]);
}

#[test]
fn a_view_that_turns_out_to_be_old_writes_to_no_pod_until_it_is_newer() {
    let mut lab = Lab::new(2);
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    assert_eq!(lab.run(), ["WriteRecord 1 p0", "ListPods", "ListLocks", "ReadElection"]);
    assert_eq!(*lab.election.situation(), Situation::Stale);
    lab.generation = 2;
    assert!(lab.run().contains(&"Promote p0 2".to_owned()));
}

#[test]
fn a_record_of_an_earlier_election_is_replaced_only_by_the_present_one() {
    let mut lab = Lab::led(2);
    let others = Record { election: uid("another"), ..lab.record() };
    lab.store(|version| Stored::Ours(version, others));
    lab.present = ElectionRead::Present { uid: uid("another"), generation: 1 };
    assert_eq!(lab.run(), ["ListPods", "ReadElection"]);
    assert_eq!(*lab.election.situation(), Situation::Stale);
}

#[test]
fn a_foreign_lock_is_looked_at_more_and_more_seldom() {
    let mut lab = Lab::led(1).restarted();
    lab.stored = Stored::Foreign("theirs".into());
    lab.election.lock = Lock::new(Some((lab.stored.version().unwrap_or_default(), lab.stored.clone())));
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(*lab.election.situation(), Situation::Foreign("theirs".into()));
    let first = lab.election.wake().unwrap();
    lab.now = first;
    assert_eq!(lab.run(), ["ReadRecord"]);
    let second = lab.election.wake().unwrap();
    assert!(second.since(first) > first.since(Instant::after_origin(Duration::from_secs(100))));
}

#[test]
fn a_pod_that_is_gone_is_not_tried_again_while_the_cache_still_shows_it() {
    let mut lab = Lab::led(3);
    lab.unready("p0");
    lab.instead("Promote p1", Outcome::PodWritten(PodOutcome::Gone));
    let all = lab.run();
    assert_eq!(all[..4], ["WriteRecord 2 p1", "Demote p0 2", "Promote p1 2", "ReadRecord"]);
    assert_eq!(all.iter().filter(|words| words.starts_with("Promote")).count(), 2, "{all:#?}");
    assert_eq!(all.last().unwrap(), "Transition p2 LeaderGone");
}

#[test]
fn an_answer_that_is_older_than_the_watch_is_not_believed() {
    let mut lab = Lab::led(2);
    let (before, record) = (lab.stored.clone(), lab.record());
    lab.election.lock.forget();
    let command = lab.step().remove(0);
    assert_eq!(in_words(&command), "ReadRecord");
    let newer = Record { operator_id: "other".into(), term: Term(2), ..record };
    lab.store(|version| Stored::Ours(version, newer.clone()));
    let Effect::Request(op, Command::ReadRecord { .. }) = command else { panic!("{command:?}") };
    lab.election.take(op, Outcome::RecordRead(Ok(before)), lab.now);
    assert_eq!(lab.election.record(), Some(&newer));
}

#[test]
fn a_lock_under_an_earlier_key_is_emptied_first_and_deleted_last() {
    let mut lab = Lab::led(2);
    lab.strays = vec![(Key::lease("", "old"), lab.stored.clone())];
    lab.stored = Stored::Absent;
    lab = lab.restarted();
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    let mut all = Vec::new();
    for _ in 0..12 {
        for command in lab.step() {
            let words = in_words(&command);
            let outcome = match &command {
                Effect::Request(op, Command::WriteRecord { key, record, .. }) if key.name == "old" => {
                    lab.locks = vec![(key.clone(), Stored::Ours(Version(500), record.clone()))];
                    Some((*op, Outcome::RecordWritten(RecordOutcome::Written(Version(500)))))
                }
                Effect::Request(op, Command::DeleteRecord { version, .. }) => {
                    assert_eq!(*version, Version(500));
                    Some((*op, Outcome::RecordWritten(RecordOutcome::Written(*version))))
                }
                command => lab.answer(command, &words),
            };
            if let Some((op, outcome)) = outcome {
                lab.election.take(op, outcome, lab.now);
            }
            all.push(words);
        }
    }
    assert_eq!(all[..3], ["WriteRecord 1 nobody", "WriteRecord 2 p0", "ListPods"]);
    assert_eq!(all.iter().filter(|words| *words == "DeleteRecord").count(), 1, "{all:#?}");
    assert_eq!(all.last().unwrap(), "DeleteRecord");
}

#[test]
fn a_lock_under_another_key_that_only_a_fresh_listing_shows_is_emptied_before_anybody_is_promoted() {
    let mut lab = Lab::led(2);
    let Stored::Ours(_, mut rival) = lab.stored.clone() else { panic!("there is a record") };
    rival.operator_id = "another".into();
    lab.locks = vec![(Key::lease("", "old"), Stored::Ours(Version(400), rival))];
    lab.stored = Stored::Absent;
    lab = lab.restarted();
    let mut all = Vec::new();
    for _ in 0..12 {
        for command in lab.step() {
            let words = in_words(&command);
            let outcome = match &command {
                Effect::Request(op, Command::WriteRecord { key, expected, record }) if key.name == "old" => {
                    assert_eq!((*expected, &record.holder), (Some(Version(400)), &None));
                    assert!(!all.iter().any(|words: &String| words.starts_with("Promote")), "{all:#?}");
                    lab.locks = vec![(key.clone(), Stored::Ours(Version(500), record.clone()))];
                    Some((*op, Outcome::RecordWritten(RecordOutcome::Written(Version(500)))))
                }
                command => lab.answer(command, &words),
            };
            if let Some((op, outcome)) = outcome {
                lab.election.take(op, outcome, lab.now);
            }
            all.push(words);
        }
    }
    assert!(all.iter().any(|words| words.ends_with("nobody")), "{all:#?}");
    assert!(all.iter().any(|words| words.starts_with("Promote p0")), "{all:#?}");
}

// Shared stores: others may take the lock.

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

#[test]
fn in_a_shared_store_the_term_is_the_version_of_the_lock() {
    let lab = shared(2);
    let Stored::Ours(version, record) = &lab.stored else { panic!("{:?}", lab.stored) };
    assert_eq!(record.term, Term(version.0.try_into().unwrap()));
    assert_eq!(lab.pods["p0"].annotations[TERM_ANNOTATION], record.term.to_string());
    assert_eq!(lab.election.leader().unwrap().0, record.term);
}

#[test]
fn a_handover_never_lets_go_of_a_shared_lock() {
    let mut lab = shared(2);
    lab.unready("p0");
    let all = lab.run();
    assert_eq!(all.len(), 4, "{all:#?}");
    assert!(all[0].ends_with(" p1") && all[1].starts_with("Demote p0") && all[2].starts_with("Promote p1"), "{all:#?}");
}

#[test]
fn without_an_eligible_pod_a_shared_lock_is_let_go_of_after_the_leader_is_demoted() {
    let mut lab = shared(1);
    lab.unready("p0");
    let all = lab.run();
    let words: Vec<&str> = all.iter().map(|words| words.split(' ').next().unwrap()).collect();
    assert_eq!(words, ["WriteRecord", "Demote", "Transition", "ReleaseRecord"], "{all:#?}");
    lab.edit("p0", |pod| pod.ready = true);
    let all = lab.run();
    assert!(all[0].starts_with("WriteRecord") && all[0].ends_with(" p0"), "{all:#?}");
    assert!(all.iter().any(|words| words.starts_with("Promote p0")), "{all:#?}");
}

#[test]
fn an_operator_that_leaves_demotes_and_then_lets_go() {
    let mut lab = shared(2);
    lab.desired = Desired::Leave;
    let all = lab.run();
    assert_eq!(all.last().unwrap(), "ReleaseRecord", "{all:#?}");
    assert!(all.iter().any(|words| words == "Transition nobody Leaving"), "{all:#?}");
    assert_eq!(lab.run(), NOTHING);
}

/// Shows L6.
#[test]
fn while_another_replica_may_act_the_lock_is_kept() {
    let mut lab = shared(2);
    (lab.desired, lab.alone_from) = (Desired::Leave, lab.now + Duration::from_secs(9));
    let all = lab.run();
    assert!(all.iter().any(|words| words == "Transition nobody Leaving"), "the leader is demoted at once: {all:#?}");
    assert!(!all.contains(&"ReleaseRecord".into()), "{all:#?}");
    assert!(lab.election.is_unfinished(), "who stops waits for that");
    assert_eq!(lab.election.wake(), Some(lab.alone_from));
    lab.now = lab.alone_from;
    assert_eq!(lab.run(), ["ReleaseRecord"]);
    assert!(!lab.election.is_unfinished());
}

#[test]
fn when_the_validity_ends_the_leader_is_demoted_though_the_store_says_nothing() {
    let mut lab = shared(2);
    lab.now = lab.now + Duration::from_secs(12);
    let all = lab.run();
    assert_eq!(all.len(), 2, "{all:#?}");
    assert!(all[0].starts_with("Demote p0"), "{all:#?}");
    assert_eq!(all[1], "Transition nobody StoreLost");
    assert_eq!(*lab.election.situation(), Situation::StoreLost);
    // The store answers again, and the lock is still there: the same leader, under a new term.
    let before = lab.record().term;
    lab.policy.validity = LockValidity::Until(lab.now + Duration::from_secs(12));
    let all = lab.run();
    assert_eq!(all[0], "ReadRecord");
    assert!(all.iter().any(|words| words.starts_with("Promote p0")), "{all:#?}");
    assert!(lab.record().term > before);
}

/// A session of the TTL that `shared` is kept by, made now.
fn session(lab: &Lab) -> SessionLife {
    let ttl = Duration::from_secs(15);
    let mut life = SessionLife::new("lictor/0", SessionParameters { ttl });
    life.looked_up(vec![], lab.now);
    life.created("s".into(), ttl, lab.now, lab.now);
    life
}

#[test]
fn a_session_that_ended_is_told_as_a_lost_lock_whichever_watch_brings_it_first() {
    for key_first in [false, true] {
        let mut lab = shared(2);
        let (record, mut life) = (lab.record(), session(&lab));
        let free = |lab: &mut Lab| lab.store(|version| Stored::Free(version, Some(record.clone()), None));
        let mut due = Vec::new();
        if key_first {
            free(&mut lab);
            due = lab.step();
        }
        life.lost("s", lab.now);
        lab.policy.validity = life.validity(lab.now);
        for command in due {
            if let Some((op, outcome)) = lab.answer(&command, &in_words(&command)) {
                lab.election.take(op, outcome, lab.now);
            }
        }
        let all = lab.run();
        let told = all.iter().find(|words| words.starts_with("Transition nobody"));
        assert_eq!(told.map(String::as_str), Some("Transition nobody LockLost"), "{all:#?}");
        assert_eq!(*lab.election.situation(), Situation::LockLost);
        assert!(!lab.election.is_unconfirmed(), "the store has answered");
        // The other one changes nothing of that.
        free(&mut lab);
        assert_eq!(lab.run(), NOTHING);
        lab.policy.validity = LockValidity::Until(lab.now + Duration::from_secs(12));
        let all = lab.run();
        assert!(all.iter().any(|words| words.starts_with("Promote p0")), "{all:#?}");
    }
}

#[test]
fn that_the_store_was_put_back_is_told_whether_the_session_or_the_lock_is_missed_first() {
    for validity in [
        LockValidity::Ended,
        LockValidity::Lapsed,
        LockValidity::Until(Instant::after_origin(Duration::from_secs(1000))),
    ] {
        let mut lab = shared(2);
        lab.policy.validity = validity;
        if validity.lasts(lab.now) {
            lab.store(|_| Stored::Absent);
        }
        // The first that is heard of, and then why.
        lab.step();
        lab.policy.not_before = lab.now + Duration::from_secs(10);
        let name = lab.pods["p0"].clone();
        lab.put(Pod { labels: BTreeMap::from([("app".into(), "web".into())]), ..name });
        let all = lab.run();
        assert!(all.contains(&"Transition nobody StoreRewound".to_owned()), "{all:#?}");
        assert_eq!(*lab.election.situation(), Situation::StoreRewound);
    }
}

#[test]
fn a_promotion_that_is_due_is_not_sent_after_the_validity() {
    let mut lab = shared(2);
    lab.unready("p0");
    let write = lab.step();
    for command in write {
        let words = in_words(&command);
        let (op, outcome) = lab.answer(&command, &words).unwrap();
        lab.election.take(op, outcome, lab.now);
    }
    lab.now = lab.now + Duration::from_secs(12);
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("Promote")), "{all:#?}");
}

#[test]
fn with_keep_the_leader_stays_while_the_store_is_silent_and_goes_when_somebody_else_holds_the_lock() {
    let mut lab = shared(2);
    lab.policy.when_lost = WhenLost::Keep;
    lab.now = lab.now + Duration::from_secs(12);
    assert_eq!(lab.run(), NOTHING);
    lab.store(|version| Stored::HeldByOther(version, rival()));
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("Demote p0")), "{all:#?}");
    assert!(all.iter().any(|words| words == "LedElsewhere east"), "{all:#?}");
}

#[test]
fn a_lock_that_is_lost_costs_the_label_and_is_taken_again_for_the_same_pod() {
    let mut lab = shared(3);
    lab.edit("p2", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "9".into())));
    let record = lab.record();
    lab.store(|version| Stored::Free(version, Some(record), None));
    let free = lab.stored.clone();
    lab.instead("WriteRecord", Outcome::RecordWritten(RecordOutcome::Delayed));
    let all = lab.run();
    assert!(all[0].starts_with("Demote p0"), "{all:#?}");
    assert!(all.contains(&"Transition nobody LockLost".to_owned()), "{all:#?}");
    assert!(!all.iter().any(|words| words.starts_with("Promote")), "the store still delays: {all:#?}");
    lab.stored = free;
    lab.now = lab.now + Duration::from_secs(1);
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("Promote p0")), "{all:#?}");
    assert_eq!(all.last().unwrap(), "Transition p0 LockLost");
}

#[test]
fn a_deleted_shared_lock_is_made_anew_for_the_same_pod_after_its_label_is_off() {
    let mut lab = shared(2);
    lab.store(|_| Stored::Absent);
    let all = lab.run();
    assert!(all[0].starts_with("Demote p0"), "{all:#?}");
    assert!(all.iter().any(|words| words.starts_with("Promote p0")), "{all:#?}");
}

#[test]
fn what_somebody_else_holds_is_followed_even_while_frozen() {
    for desired in [Desired::Run, Desired::Freeze] {
        let mut lab = shared(2);
        lab.desired = desired;
        lab.store(|version| Stored::HeldByOther(version, rival()));
        let all = lab.run();
        assert!(all.iter().any(|words| words.starts_with("Demote p0")), "{all:#?}");
        assert!(all.iter().all(|words| !words.starts_with("WriteRecord")), "{all:#?}");
        assert_eq!(*lab.election.situation(), Situation::LedElsewhere(rival()));
        assert_eq!(lab.election.leader(), None);
        assert!(lab.election.term() >= Term(500));
        assert_eq!(lab.run(), NOTHING);
    }
}

#[test]
fn a_lock_that_another_cluster_let_go_of_is_taken_under_a_higher_term() {
    let mut lab = shared(2);
    lab.store(|version| Stored::HeldByOther(version, rival()));
    lab.run();
    lab.store(|version| Stored::Free(version, None, None));
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("Promote")), "{all:#?}");
    assert!(lab.record().term > Term(500), "{:?}", lab.record().term);
}

#[test]
fn an_operator_that_starts_without_the_store_demotes_before_anything_else() {
    let mut lab = shared(2);
    lab.policy.validity = LockValidity::Lapsed;
    lab.election = Election::new("web".into(), uid("e"), "other".into(), None, lab.last_op);
    let all = lab.run();
    assert_eq!(all.len(), 1, "{all:#?}");
    assert!(all[0].starts_with("Demote p0"), "{all:#?}");
}

#[test]
fn a_withdrawn_election_leaves_the_lock_of_others_alone() {
    for held in [true, false] {
        let mut lab = shared(2);
        lab.store(
            |version| if held { Stored::HeldByOther(version, rival()) } else { Stored::Free(version, None, None) },
        );
        lab.desired = Desired::Withdraw;
        let all = lab.run();
        assert!(!all.iter().any(|words| words.contains("Record") && !words.starts_with("Read")), "{all:#?}");
        assert!(lab.pods.values().all(|pod| !pod.labels.contains_key("role")), "{all:#?}");
        assert_eq!(*lab.election.situation(), Situation::Withdrawn);
    }
}

fn role(lab: &Lab) -> &str {
    lab.pods["p0"].labels.get("role").map_or("", String::as_str)
}

#[test]
fn a_lock_that_vanishes_while_another_cluster_leads_is_left_alone_for_a_while() {
    for released in [false, true] {
        let mut lab = shared(1);
        lab.policy.grace = Duration::from_secs(10);
        let holder = Holder { pod: Some("b".into()), uid: uid("b"), node: None, ip: None };
        let led = Rival { holder: Some(holder), ..rival() };
        lab.store(|version| Stored::HeldByOther(version, led));
        lab.run();
        assert_eq!(role(&lab), "follower");
        if released {
            lab.store(|version| Stored::HeldByOther(version, rival()));
            lab.run();
        }
        lab.store(|_| Stored::Absent);
        lab.run();
        if !released {
            assert_eq!((role(&lab), lab.election.situation()), ("follower", &Situation::LockLost));
            assert_eq!(lab.election.wake(), Some(lab.now + Duration::from_secs(10)));
            lab.now = lab.now + Duration::from_secs(10);
            lab.policy.validity = LockValidity::Until(lab.now + Duration::from_secs(12));
            lab.run();
        }
        assert_eq!(role(&lab), "leader", "it had let go: {released}");
    }
}

/// Shows C7.
#[test]
fn after_the_store_was_put_back_only_who_leads_already_leads() {
    let mut lab = shared(1);
    lab.policy.not_before = lab.now + Duration::from_secs(10);
    assert_eq!(lab.run(), Vec::<String>::new());
    assert_eq!(*lab.election.situation(), Situation::Led);

    let mut lab = Lab::new(1);
    lab.policy = LockPolicy {
        shared: true,
        validity: LockValidity::Until(lab.now + Duration::from_secs(30)),
        ..LockPolicy::ALONE
    };
    lab.policy.not_before = lab.now + Duration::from_secs(10);
    lab.run();
    assert_eq!((role(&lab), lab.election.situation()), ("follower", &Situation::StoreRewound));
    assert_eq!(lab.election.wake(), Some(lab.now + Duration::from_secs(10)));
    lab.now = lab.now + Duration::from_secs(10);
    lab.run();
    assert_eq!(role(&lab), "leader");

    // A moment that has come is not waited for.
    let mut lab = shared(1);
    (lab.policy.validity, lab.policy.not_before) = (LockValidity::Lapsed, lab.now);
    lab.run();
    assert_eq!((lab.election.situation(), lab.election.wake()), (&Situation::StoreLost, None));
}

#[test]
fn after_a_restart_a_lock_that_ran_out_is_taken_again_for_the_same_pod_unless_an_earlier_election_left_it() {
    for (of, leader) in [("e", "p0"), ("another", "p2")] {
        let mut lab = shared(3);
        let record = Record { election: uid(of), ..lab.record() };
        lab.edit("p2", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "9".into())));
        lab.stored = Stored::Free(lab.next_version(), Some(record), None);
        let mut lab = lab.restarted();
        lab.run();
        assert_eq!(lab.leader(), Some(leader), "of election {of}");
    }
}

#[test]
fn what_is_read_counts_even_if_the_store_was_put_back() {
    let mut lab = shared(1);
    let (before, version) = (lab.stored.clone(), lab.stored.version());
    // Hidden, it looks deleted, at a later version; then it is as it was.
    lab.store(|_| Stored::Absent);
    lab.stored = before;
    lab.run();
    assert_eq!(role(&lab), "leader");
    assert_eq!(*lab.election.situation(), Situation::Led);
    assert!(lab.stored.version() >= version);
}

/// Goes on until p0 is about to be demoted; returns all that is asked for at that moment, and answers nothing of it.
fn until_demotion(lab: &mut Lab) -> Vec<String> {
    for _ in 0..10 {
        let commands = lab.step();
        let all: Vec<String> = commands.iter().map(in_words).collect();
        if all.iter().any(|words| words.starts_with("Demote p0")) {
            return all;
        }
        for (command, words) in commands.iter().zip(&all) {
            if let Some((op, outcome)) = lab.answer(command, words) {
                lab.election.take(op, outcome, lab.now);
            }
        }
    }
    panic!("p0 is not demoted")
}

/// Shows C3.
#[test]
fn a_lost_lock_is_not_taken_again_before_the_label_is_off() {
    let mut lab = shared(2);
    let record = lab.record();
    lab.store(|version| Stored::Free(version, Some(record), None));
    assert_eq!(until_demotion(&mut lab).len(), 1);
    assert_eq!(lab.run(), NOTHING, "the answer is awaited");
}

#[test]
fn a_lock_is_not_let_go_of_before_the_label_is_off() {
    let mut lab = shared(1);
    // An operator that was killed between the record that names nobody and the demotion.
    let vacated = Record { holder: None, term_by_version: false, ..lab.record() };
    lab.store(|version| Stored::Ours(version, vacated));
    lab.unready("p0");
    lab = lab.restarted();
    assert_eq!(until_demotion(&mut lab).len(), 1);
    assert_eq!(lab.run(), NOTHING, "the answer is awaited");
}

#[test]
fn a_pod_that_can_not_be_labelled_does_not_hold_up_the_demotion_of_the_leader() {
    // Refused at about 0, 0.2 and 0.5 s: at whatever moment the lock is lost.
    for steps in 1..10 {
        let mut lab = shared(2);
        lab.edit("p1", |pod| drop(pod.labels.remove("role")));
        for _ in 0..steps {
            for command in lab.step() {
                if let Effect::Request(op, Command::WritePod(_)) = &command {
                    let refused = PodOutcome::Failed(Failure::Refused("a policy".into()));
                    lab.election.take(*op, Outcome::PodWritten(refused), lab.now);
                }
            }
            lab.now = lab.now + Duration::from_millis(100);
        }
        lab.now = lab.now - Duration::from_millis(100);
        lab.store(|version| Stored::HeldByOther(version, rival()));
        let waits = until_demotion(&mut lab).iter().all(|words| !words.starts_with("Demote p1"));
        assert!(waits, "that one has its time, after {steps} steps");
    }
}
