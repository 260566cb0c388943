//! Two clusters that share a lock in a store with sessions, one operator in each. The promise between them rests on lengths of
//! time, so there is time here: it goes on in ticks, and within a tick things happen in any order.
//!
//! What may happen: the way to the store is cut; what is sent to it is lost, or is done and the answer is lost or late; a session
//! that is not renewed ends at any time between the TTL and twice that; an operator crashes, and another one begins after a while;
//! a clock misses a tick; a pod becomes unready.
//!
//! What is assumed: an operator decides in time; what it asks of its API server is done before the next tick, or never; watches are
//! no later than that, unless the way is cut. There is no lock delay, so that nothing rests on it.
//!
//! What is left out: what becomes of requests inside a cluster that are late or lost, which is the subject of the other model; more
//! than one pod in a cluster; a store that loses its data or is put back; CronJobs and Jobs.

mod server;
mod time;
mod told;

use std::sync::Arc;
use std::time::Duration;

use lictor_core::{self as core, Command, Outcome, Record, Term, Version, Workload};
use stateright::{Model, Property};

use super::explore::Memo;
use super::identity::{Known, RANGE};
use super::member::{Answer, Ask, Input, Member, Sent, TTL};
use super::rules::{Counted, Rule, Seen};
use super::world::{Preconditions, World};

pub const NAMES: [&str; 2] = ["west", "east"];

const CHECKS: Preconditions =
    Preconditions { versions: true, uids: true, compare_and_swap: true, slice_versions: true, labels_count: true };

/// How often each thing may go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// The way to the store is cut; it may be mended at any time.
    pub cuts: u8,
    /// A request to the store, or its answer, is lost.
    pub lost: u8,
    /// An answer of the store comes late.
    pub late: u8,
    pub crashes: u8,
    /// A clock misses a tick.
    pub slow: u8,
    /// A pod becomes unready, or what the cluster needs to be a candidate is not available.
    pub unready: u8,
}

/// What is to be explored.
#[derive(Clone)]
pub struct Clusters {
    pub tick: Duration,
    /// Whether the clusters themselves are the candidates, and a Deployment runs where the leader is; if not, one pod in each.
    pub workload: bool,
    /// The least for which the store keeps a session without a renewal.
    pub keeps: Duration,
    /// From a crash to the next operator.
    pub returns: Duration,
    pub faults: Faults,
    /// How many ticks a request to the store may be on its way.
    pub delay: u64,
    /// How many ticks a promotion may wait for its turn to be sent.
    pub queue: u64,
    /// Whether both begin at once; if not, the first one leads already.
    pub fresh: bool,
    pub off: Vec<Rule>,
    pub calms: bool,
    pub seen: Arc<Seen>,
    pub memo: Arc<Memo<Reaction>>,
}

type Reaction = (Arc<Known<Member>>, Vec<Arc<Known<Sent>>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Session {
    number: u32,
    renewed: u64,
}

/// A key with a lock, and sessions that it hangs on.
#[derive(Clone, Debug)]
struct Store {
    version: Version,
    held: Option<(usize, u32)>,
    written: Option<Arc<Known<(usize, Record)>>>,
    sessions: [Option<Session>; 2],
    /// How many sessions there were.
    made: [u32; 2],
}

#[derive(Clone, Debug)]
struct Cluster {
    world: World,
    workload: Option<Arc<Known<Workload>>>,
    available: bool,
    reachable: bool,
    /// Until when the pods of the Deployment may go on after it is disabled.
    ends: Option<u64>,
    member: Option<Arc<Known<Member>>>,
    /// From when there is an operator again.
    returns: u64,
    starts: u32,
}

#[derive(Clone, Debug)]
struct Request {
    cluster: usize,
    /// When it was sent.
    at: u64,
    sent: Arc<Known<Sent>>,
}

#[derive(Clone, Debug)]
pub struct State {
    /// How many ticks there were.
    now: u64,
    store: Store,
    clusters: [Cluster; 2],
    requests: Vec<Request>,
    left: Faults,
    promoted: Option<Term>,
    broken: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Ticks,
    /// The clock of this cluster misses it.
    TicksBut(usize),
    SeesLock(usize),
    CarriedOut(usize),
    /// Carried out; the answer is on its way.
    Hidden(usize),
    Answered(usize),
    /// Its sender hears nothing; it is not carried out, or not yet.
    Lost(usize),
    /// It is carried out, and its sender hears nothing.
    AnswerLost(usize),
    Cut(usize),
    Mended(usize),
    Expires(usize),
    Crashes(usize),
    Unready(usize),
    Ready(usize),
    Ended(usize),
}

impl Clusters {
    pub fn new(faults: Faults) -> Self {
        Self {
            tick: TTL / 5,
            workload: false,
            keeps: TTL,
            returns: TTL,
            faults,
            delay: 0,
            queue: 0,
            fresh: false,
            off: Vec::new(),
            calms: false,
            seen: Arc::default(),
            memo: Arc::default(),
        }
    }

    fn lacks(&self, rule: Rule) -> bool {
        self.off.contains(&rule)
    }

    fn ticks(&self, length: Duration) -> u64 {
        u64::try_from(length.as_millis().div_ceil(self.tick.as_millis())).unwrap_or(u64::MAX)
    }

    // The operators

    fn give(&self, state: &mut State, number: usize, input: &Input) {
        let Some(member) = state.clusters[number].member.clone() else { return };
        let key = (member.exact(), input.key());
        let (member, sent) = self.memo.get(key, || {
            let mut member = member.value.clone();
            let sent = member.take(input).into_iter().map(|sent| Arc::new(Known::new(sent))).collect();
            (Arc::new(Known::new(member)), sent)
        });
        state.clusters[number].member = Some(member);
        state.requests.extend(sent.into_iter().map(|sent| Request { cluster: number, at: state.now, sent }));
    }

    fn begin(&self, state: &mut State, number: usize) {
        let cluster = &mut state.clusters[number];
        cluster.starts += 1;
        let pod = cluster.world.pod(0).filter(|_| !self.workload).cloned();
        let workload = cluster.workload.as_ref().map(|workload| workload.value.clone());
        let member = Member::new(number, cluster.starts, pod, workload, cluster.available, &self.off);
        cluster.member = Some(Arc::new(Known::new(member)));
        self.give(state, number, &Input::Time(Duration::ZERO));
    }

    /// What is read in its own cluster, an operator has at once, and so it sees what changes there: what becomes of these when they
    /// are late, is the subject of the other model.
    fn settle(&self, state: &mut State) {
        let reads = |request: &Request| {
            request.sent.awaited
                && matches!(
                    request.sent.ask,
                    Ask::Core(core::Request {
                        command: Command::ListPods { .. } | Command::ReadPod { .. } | Command::ReadWorkloads { .. },
                        ..
                    })
                )
        };
        for number in 0..2 {
            loop {
                let cluster = &state.clusters[number];
                let Some(member) = &cluster.member else { break };
                let input = if lags_pod(cluster, member) {
                    Input::Pod(cluster.world.pod(0).cloned())
                } else if lags_workload(cluster, member) {
                    let workload = cluster.workload.as_ref().map(|workload| workload.value.clone());
                    Input::Workload(workload, cluster.available)
                } else if let Some(at) = state.requests.iter().position(|r| r.cluster == number && reads(r)) {
                    let request = state.requests.remove(at);
                    let answer = self.carry_out(state, &request);
                    Input::Answer(request.sent.value.clone(), answer)
                } else {
                    break;
                };
                self.give(state, number, &input);
            }
        }
    }
}

impl Model for Clusters {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let cluster = |number: usize| Cluster {
            world: World::new(1, 0, false),
            workload: self.workload.then(|| Arc::new(Known::new(super::member::workload(number)))),
            available: true,
            reachable: true,
            ends: None,
            member: None,
            returns: 0,
            starts: 0,
        };
        let store = Store { version: Version(RANGE), held: None, written: None, sessions: [None, None], made: [0, 0] };
        let (clusters, requests) = ([cluster(0), cluster(1)], Vec::new());
        let left = Faults::default();
        let mut state = State { now: 0, store, clusters, requests, left, promoted: None, broken: None };
        self.begin(&mut state, 0);
        self.begin(&mut state, 1);
        // The first cluster leads, and the second one has seen that.
        let mut actions = Vec::new();
        while !self.fresh && state.now < 3 {
            actions.clear();
            self.actions(&state, &mut actions);
            let turn = |action: &&Action| match action {
                Action::Ticks => 4,
                Action::Lost(_) => 5,
                Action::CarriedOut(at) => 1 + state.requests[*at].cluster,
                Action::SeesLock(number) => 1 + number,
                _ => 0,
            };
            let next = actions.iter().min_by_key(turn).and_then(|action| self.next_state(&state, *action));
            state = next.expect("nothing goes wrong");
        }
        state.left = self.faults;
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let State { now, store, clusters, requests, left, .. } = state;
        if self.is_due(state) {
            actions.push(Action::Ticks);
            if left.slow > 0 {
                actions.extend((0..2).filter(|number| clusters[*number].member.is_some()).map(Action::TicksBut));
            }
        }
        for (number, cluster) in clusters.iter().enumerate() {
            if cluster.member.is_some() {
                if cluster.reachable && lags(state, number) {
                    actions.push(Action::SeesLock(number));
                }
                if left.crashes > 0 && cluster.reachable {
                    actions.push(Action::Crashes(number));
                }
            }
            match cluster.reachable {
                true if left.cuts > 0 => actions.push(Action::Cut(number)),
                true => {}
                false => actions.push(Action::Mended(number)),
            }
            match cluster.available {
                true if left.unready > 0 => actions.push(Action::Unready(number)),
                true => {}
                false => actions.push(Action::Ready(number)),
            }
            if cluster.ends.is_some() {
                actions.push(Action::Ended(number));
            }
            if store.sessions[number].as_ref().is_some_and(|session| session.renewed + self.ticks(self.keeps) <= *now) {
                actions.push(Action::Expires(number));
            }
        }
        for (at, request) in requests.iter().enumerate() {
            let (sent, reachable) = (&request.sent, clusters[request.cluster].reachable);
            if sent.answer.is_some() {
                actions.push(Action::Answered(at));
                continue;
            }
            if reachable || !sent.to_store() {
                actions.push(Action::CarriedOut(at));
            }
            if sent.to_store() && sent.awaited {
                if !reachable || left.lost > 0 {
                    actions.push(Action::Lost(at));
                }
                if reachable && left.lost > 0 && sent.writes_to_store() {
                    actions.push(Action::AnswerLost(at));
                }
                if reachable && left.late > 0 && matches!(sent.ask, Ask::Session(_)) {
                    actions.push(Action::Hidden(at));
                }
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Ticks => self.tick(&mut state, None),
            Action::TicksBut(number) => {
                state.left.slow -= 1;
                self.tick(&mut state, Some(number));
            }
            Action::SeesLock(number) => {
                let input = Input::Lock(state.store.version, self.stored(&state, number));
                self.give(&mut state, number, &input);
            }
            Action::CarriedOut(at) => {
                let request = state.requests.remove(at);
                let member = state.clusters[request.cluster].member.as_ref().filter(|_| request.sent.awaited);
                let may_send = match (&request.sent.ask, member) {
                    (Ask::Core(core), Some(member)) if request.sent.promotes() => member.may_send(core),
                    _ => true,
                };
                let answer = if !may_send && !self.lacks(Rule::SentWhileValid) {
                    self.seen.count(Counted::TooLate);
                    Answer::Core(request.sent.refused()?)
                } else {
                    self.carry_out(&mut state, &request)
                };
                if request.sent.awaited {
                    if let (Answer::Core(Outcome::WorkloadWritten(_) | Outcome::WorkloadsRead(Ok(_))), Some(_)) =
                        (&answer, &state.clusters[request.cluster].workload)
                    {
                        let cluster = &state.clusters[request.cluster];
                        let workload = cluster.workload.as_ref().map(|workload| workload.value.clone());
                        let input = Input::Shown(workload, request.sent.value.clone(), answer);
                        self.give(&mut state, request.cluster, &input);
                    } else {
                        self.give(&mut state, request.cluster, &Input::Answer(request.sent.value.clone(), answer));
                    }
                }
            }
            Action::Hidden(at) => {
                state.left.late -= 1;
                let mut request = state.requests.remove(at);
                let answer = self.carry_out(&mut state, &request);
                request.sent = Arc::new(Known::new(Sent { answer: Some(answer), ..request.sent.value.clone() }));
                state.requests.push(request);
            }
            Action::Answered(at) => {
                let request = state.requests.remove(at);
                let answer = request.sent.answer.clone()?;
                self.give(&mut state, request.cluster, &Input::Answer(request.sent.value.clone(), answer));
            }
            Action::Lost(at) | Action::AnswerLost(at) => {
                let request = state.requests.remove(at);
                if state.clusters[request.cluster].reachable {
                    state.left.lost -= 1;
                }
                if action == Action::AnswerLost(at) {
                    self.carry_out(&mut state, &request);
                } else if request.sent.writes_record() {
                    let sent = Arc::new(Known::new(request.sent.forgotten()));
                    state.requests.push(Request { sent, ..request.clone() });
                }
                self.give(&mut state, request.cluster, &Input::Answer(request.sent.value.clone(), Answer::Nothing));
            }
            Action::Cut(number) => {
                state.left.cuts -= 1;
                state.clusters[number].reachable = false;
            }
            Action::Mended(number) => state.clusters[number].reachable = true,
            Action::Expires(number) => self.expire(&mut state, number),
            Action::Crashes(number) => {
                state.left.crashes -= 1;
                state.clusters[number].member = None;
                state.clusters[number].returns = state.now + self.ticks(self.returns);
                for request in state.requests.iter_mut().filter(|request| request.cluster == number) {
                    request.sent = Arc::new(Known::new(request.sent.forgotten()));
                }
                state.requests.retain(|request| request.sent.awaited || request.sent.writes());
            }
            Action::Unready(number) | Action::Ready(number) => {
                let cluster = &mut state.clusters[number];
                cluster.available = !cluster.available;
                state.left.unready -= u8::from(!cluster.available);
                let mut pod = cluster.world.pod(0)?.clone();
                pod.ready = cluster.available;
                cluster.world.put(0, pod);
            }
            Action::Ended(number) => end(&mut state.clusters[number]),
        }
        self.settle(&mut state);
        Self::judge(&mut state);
        Self::tidy(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![Property::always(
            "never two leaders, holders stop in time, and terms rise",
            |model: &Self, state: &State| state.broken.is_none() || model.seen.found(),
        )];
        if self.calms {
            properties.push(Property::always("from every state calm leads to one leader", Self::calms_down));
        }
        properties
    }

    fn within_boundary(&self, _: &State) -> bool {
        !self.seen.is_found()
    }
}

/// Something of the Deployment runs.
fn runs(cluster: &Cluster) -> bool {
    cluster.workload.as_ref().is_some_and(|workload| workload.remains)
}

fn end(cluster: &mut Cluster) {
    cluster.ends = None;
    if let Some(before) = &cluster.workload {
        let after = Workload { remains: before.setting.runs(), ..before.value.clone() };
        cluster.workload = Some(Arc::new(Known::new(after)));
    }
}

fn lags(state: &State, number: usize) -> bool {
    state.clusters[number].member.as_ref().is_some_and(|member| member.seen < state.store.version)
}

fn lags_pod(cluster: &Cluster, member: &Member) -> bool {
    let present = cluster.world.pod(0).map(|pod| pod.version);
    cluster.workload.is_none() && member.pod.as_ref().map(|pod| pod.version) != present
}

fn lags_workload(cluster: &Cluster, member: &Member) -> bool {
    let present = cluster.workload.as_ref().map(|workload| &workload.value);
    present.is_some() && (member.workload.as_ref() != present || member.available != cluster.available)
}
