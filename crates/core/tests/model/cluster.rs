//! One cluster with its lock in a Lease, and two operators that both act: nothing but the protocol keeps them apart.
//!
//! What may happen: a request is carried out at any time, in any order, and its answer comes at once, later, or never; an operator
//! gives up waiting, and what it sent may still be carried out at any time, or never; an operator sees what its watches tell as
//! late as it likes; it pauses at any point, which is to say that nothing happens to it; it crashes and begins anew, with caches
//! that may be as old as before; pods become unready, are deleted and made anew under the same name; a probe fails as seen by one
//! operator.
//!
//! What is left out: an operator decides after everything that it takes, and sees the last of several changes of an object; nobody
//! but the operators writes labels or the record; the spec does not change, so that `ReadElection` and `ListLocks` have the same
//! answer at any time, and get it at once. `tests/decisions` and `tests/simulation` have all this, at random.

mod calm;
mod server;
mod told;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use lictor_core::{Command, ElectionRead, Failure, OpId, Outcome, Pod, Slice, Stored, Version};
use stateright::{Model, Property};

use super::explore::Memo;
use super::identity::Known;
use super::operator::{Operator, Wishes, uid};
use super::rules::{Counted, Rule, Seen};
use super::world::{Preconditions, World, spec};

/// How often each thing may go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A probe fails, as one operator sees it: a change of leader without any write to a pod.
    pub probes: u8,
    /// An operator gives up waiting for an answer.
    pub lost: u8,
    /// An answer comes late.
    pub late: u8,
    /// An operator crashes.
    pub crashes: u8,
    /// A pod becomes unready.
    pub unready: u8,
    /// A pod is deleted, and perhaps made anew under the same name.
    pub deleted: u8,
}

/// What is to be explored.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Cluster {
    pub pods: usize,
    /// How many of them are not there in the beginning.
    pub absent: usize,
    /// How many terms there are at most. Two operators that both act can take over from each other for ever.
    pub terms: i64,
    pub faults: Faults,
    /// Whether the first operator has elected a leader already, and both know of it; if not, both begin at once.
    pub settled: bool,
    /// Whether the leader is also reached through a Service.
    pub routed: bool,
    /// E1: whether the former leader ends before the next one leads.
    pub ends_first: bool,
    /// Rules of the protocol that are switched off.
    pub off: Vec<Rule>,
    /// What may happen; all else is left out.
    pub only: Option<fn(Action) -> bool>,
    /// Whether it is looked at from each state how it goes on when nothing goes wrong any more.
    pub calms: bool,
    pub seen: Arc<Seen>,
    pub memo: Arc<Memo<Reaction>>,
}

#[derive(Clone, Debug)]
pub struct Request {
    operator: usize,
    /// Whether its sender still waits for an answer.
    awaited: bool,
    /// The number under which its outcome comes back; nobody waits for 0.
    op: OpId,
    command: Command,
    /// It was carried out, and this is on its way to its sender.
    answer: Option<Outcome>,
}

/// What comes to an operator.
enum Input {
    Pod(usize, Option<Arc<Known<Pod>>>, u32),
    Record(Arc<Known<(Version, Stored)>>),
    Slice(Arc<Known<Slice>>),
    Time,
    Probe,
    Outcome(OpId, Command, Outcome),
}

type Reaction = (Arc<Known<Operator>>, Vec<Arc<Known<Request>>>);

#[derive(Clone, Debug)]
pub struct State {
    world: World,
    operators: Vec<Arc<Known<Operator>>>,
    requests: Vec<Arc<Known<Request>>>,
    left: Faults,
    /// Whether the same may happen to both operators, so that which is which does not tell states apart.
    alike: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    SeesPod(usize, usize),
    SeesRecord(usize),
    SeesSlice(usize),
    Wakes(usize),
    /// Carried out, and answered if somebody waits for it.
    CarriedOut(usize),
    /// Carried out; the answer is on its way.
    Hidden(usize),
    Answered(usize),
    GivesUp(usize),
    Crashes(usize),
    ProbeFails(usize),
    Unready(usize),
    Ready(usize),
    Deleted(usize),
    /// E1: the containers of a pod that is deleted have ended.
    Ended(usize),
    Created(usize),
}

impl Cluster {
    pub fn new(pods: usize, terms: i64, faults: Faults) -> Self {
        Self {
            pods,
            absent: 0,
            terms,
            faults,
            settled: false,
            routed: false,
            ends_first: false,
            off: Vec::new(),
            only: None,
            calms: false,
            seen: Arc::default(),
            memo: Arc::default(),
        }
    }

    fn lacks(&self, rule: Rule) -> bool {
        self.off.contains(&rule)
    }

    fn checks(&self) -> Preconditions {
        Preconditions {
            versions: !self.lacks(Rule::PodVersions),
            uids: !self.lacks(Rule::PodUids),
            compare_and_swap: !self.lacks(Rule::CompareAndSwap),
            labels_count: !(self.routed && self.lacks(Rule::Confirmation)),
            slice_versions: !self.lacks(Rule::SliceVersions),
        }
    }

    // What operators do

    /// Something comes to an operator, and it decides. Whether that was worked out before, depends on nothing else.
    fn give(&self, state: &mut State, number: usize, input: &Input) {
        let key = (state.operators[number].exact(), input.key());
        let (operator, requests) = self.memo.get(key, || {
            let mut operator = state.operators[number].value.clone();
            input.reach(&mut operator, !self.lacks(Rule::AnswersShown));
            let requests = Self::decide(&mut operator, number);
            (Arc::new(Known::new(operator)), requests)
        });
        state.operators[number] = operator;
        state.requests.extend(requests);
    }

    fn decide(operator: &mut Operator, number: usize) -> Vec<Arc<Known<Request>>> {
        let mut requests = Vec::new();
        // What begins anew sees what it likes before it decides anything.
        let mut due = if operator.awake { operator.step() } else { Vec::new() };
        while !due.is_empty() {
            for lictor_core::Request { op, command, .. } in std::mem::take(&mut due) {
                let constant = match &command {
                    Command::ReadElection => {
                        Some(Outcome::ElectionRead(Ok(ElectionRead::Present { uid: uid(), generation: 1 })))
                    }
                    Command::ListLocks => Some(Outcome::LocksListed(Ok(locks(operator)))),
                    _ => None,
                };
                if let Some(outcome) = constant {
                    operator.take(op, &command, outcome, true);
                    due.extend(operator.step());
                } else {
                    let request = Request { operator: number, awaited: true, op, command, answer: None };
                    requests.push(Arc::new(Known::new(request)));
                }
            }
        }
        requests
    }

    fn answer(&self, state: &mut State, request: &Request, outcome: Outcome) {
        self.give(state, request.operator, &Input::Outcome(request.op, request.command.clone(), outcome));
    }

    /// Whether a request that nobody waits for could still do anything.
    fn is_idle(&self, world: &World, request: &Request) -> bool {
        match &request.command {
            Command::WritePod(write) => world.allows(self.checks(), write).is_some(),
            Command::WriteSlice(write) => !world.allows_slice(self.checks(), write),
            Command::WriteRecord { expected, .. } => {
                self.checks().compare_and_swap && world.record.1.version() != *expected
            }
            _ => true,
        }
    }

    /// Nobody waits for the answers of these any more.
    fn abandon(state: &mut State, which: impl Fn(usize, &Request) -> bool) {
        for (at, request) in state.requests.iter_mut().enumerate() {
            if request.awaited && which(at, request) {
                let mut left = request.value.clone();
                left.awaited = false;
                left.op = OpId(0);
                *request = Arc::new(Known::new(left));
            }
        }
        state.requests.retain(|request| request.awaited || request.answer.is_none());
    }

    fn tidy(&self, state: &mut State) {
        let State { requests, world, .. } = state;
        requests.retain(|request| request.awaited || !self.is_idle(world, request));
        requests.sort_by(|a, b| {
            (a.operator, a.awaited, a.shape().order()).cmp(&(b.operator, b.awaited, b.shape().order()))
        });
        // Of two that are the same, the second would do nothing.
        requests.dedup_by(|a, b| !a.awaited && a.command == b.command);
    }
}

impl Input {
    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        match self {
            Self::Pod(slot, pod, next) => (0, slot, pod.as_ref().map(|pod| pod.exact()), next).hash(&mut hasher),
            Self::Record(record) => (1, record.exact()).hash(&mut hasher),
            Self::Slice(slice) => (5, slice.exact()).hash(&mut hasher),
            Self::Time => 2.hash(&mut hasher),
            Self::Probe => 3.hash(&mut hasher),
            Self::Outcome(op, command, outcome) => (4, format!("{op:?} {command:?} {outcome:?}")).hash(&mut hasher),
        }
        hasher.finish()
    }

    fn reach(&self, operator: &mut Operator, shows: bool) {
        match self {
            Self::Pod(slot, pod, next) => operator.see(*slot, pod.as_ref().map(|pod| &pod.value), *next),
            Self::Record(record) => operator.see_record(record.0, &record.1),
            Self::Slice(slice) => operator.see_slice(slice),
            Self::Time => operator.wake(),
            Self::Probe => operator.probe_failed = operator.named().cloned(),
            Self::Outcome(op, command, outcome) => operator.take(*op, command, outcome.clone(), shows),
        }
    }
}

impl Model for Cluster {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let world = World::new(self.pods, self.absent, self.routed);
        let wishes = Wishes { promotes_first: self.lacks(Rule::DemoteFirst), ends_first: self.ends_first };
        let start = |number| {
            let pods = (0..self.pods).filter_map(|slot| Some((slot, world.pod(slot)?.clone()))).collect();
            let first = vec![0; self.pods];
            let (record, slice) = (world.record.value.clone(), world.slice.as_ref().map(|slice| slice.value.clone()));
            let operator = Operator::new(number, pods, first, record, wishes);
            Arc::new(Known::new(operator.reaching(slice)))
        };
        let operators = (0..2).map(start).collect();
        let mut state =
            State { world, operators, requests: Vec::new(), left: Faults::default(), alike: self.only.is_none() };
        let mut actions = Vec::new();
        let all = Self { only: None, ..self.clone() };
        while self.settled && !self.is_quiet(&state) {
            actions.clear();
            all.actions(&state, &mut actions);
            let last = |action: &&Action| !matches!(action, Action::Wakes(1) | Action::Created(_));
            let next = actions.iter().find(last).unwrap_or(&Action::Wakes(1));
            state = self.next_state(&state, *next).expect("nothing goes wrong");
        }
        state.left = self.faults;
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let State { world, operators, requests, left, .. } = state;
        for (number, operator) in operators.iter().enumerate() {
            if left.crashes > 0 && operator.awake {
                actions.push(Action::Crashes(number));
            }
            if left.probes > 0 && operator.awake && operator.probe_failed.is_none() && operator.named().is_some() {
                actions.push(Action::ProbeFails(number));
            }
            if !operator.awake || operator.due().is_some() {
                actions.push(Action::Wakes(number));
            }
            if operator.seen < world.record.0 {
                actions.push(Action::SeesRecord(number));
            }
            if lags_slice(state, number) {
                actions.push(Action::SeesSlice(number));
            }
            actions.extend(
                (0..self.pods).filter(|slot| lags(state, number, *slot)).map(|slot| Action::SeesPod(number, slot)),
            );
        }
        for (slot, pod) in world.pods.iter().enumerate() {
            match pod {
                Some(pod) => {
                    if left.unready > 0 && pod.ready {
                        actions.push(Action::Unready(slot));
                    }
                    if !pod.ready {
                        actions.push(Action::Ready(slot));
                    }
                    if pod.deleting && !pod.ended {
                        actions.push(Action::Ended(slot));
                    }
                    if left.deleted > 0 {
                        actions.push(Action::Deleted(slot));
                    }
                }
                // Where the former leader ends first, no pod takes its place, because it could only lead in a third term.
                None if self.ends_first => {}
                None => actions.push(Action::Created(slot)),
            }
        }
        for (at, request) in requests.iter().enumerate() {
            if request.answer.is_some() {
                actions.push(Action::Answered(at));
            } else {
                actions.push(Action::CarriedOut(at));
                if left.late > 0 && request.awaited {
                    actions.push(Action::Hidden(at));
                }
            }
            if left.lost > 0 && request.awaited {
                actions.push(Action::GivesUp(at));
            }
        }
        if let Some(only) = self.only {
            actions.retain(|action| only(*action));
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::SeesPod(number, slot) => {
                let (present, next) = (state.world.pods[slot].clone(), state.world.made[slot]);
                self.give(&mut state, number, &Input::Pod(slot, present, next));
            }
            Action::SeesRecord(number) => {
                let record = state.world.record.clone();
                self.give(&mut state, number, &Input::Record(record));
            }
            Action::SeesSlice(number) => {
                let slice = state.world.slice.clone()?;
                self.give(&mut state, number, &Input::Slice(slice));
            }
            Action::Wakes(number) => self.give(&mut state, number, &Input::Time),
            Action::CarriedOut(at) => {
                let mut request = state.requests.remove(at).value.clone();
                let (outcome, later) = self.carry_out(&mut state, &request);
                if later {
                    let mut rest = request.clone();
                    rest.awaited = false;
                    rest.op = OpId(0);
                    state.requests.push(Arc::new(Known::new(rest)));
                }
                if request.awaited {
                    request.answer = None;
                    self.answer(&mut state, &request, outcome);
                }
            }
            Action::Hidden(at) => {
                let mut request = state.requests.remove(at).value.clone();
                let (outcome, later) = self.carry_out(&mut state, &request);
                if later {
                    return None;
                }
                request.answer = Some(outcome);
                state.left.late -= 1;
                state.requests.push(Arc::new(Known::new(request)));
            }
            Action::Answered(at) => {
                let request = state.requests.remove(at).value.clone();
                let outcome = request.answer.clone()?;
                self.answer(&mut state, &request, outcome);
            }
            Action::GivesUp(at) => {
                state.left.lost -= 1;
                let request = state.requests[at].value.clone();
                Self::abandon(&mut state, |other, _| other == at);
                self.answer(&mut state, &request, unknown(&request.command));
            }
            Action::Crashes(number) => {
                state.left.crashes -= 1;
                Self::abandon(&mut state, |_, request| request.operator == number);
                state.operators[number] = Arc::new(Known::new(state.operators[number].start_anew(number)));
            }
            Action::ProbeFails(number) => {
                state.left.probes -= 1;
                self.give(&mut state, number, &Input::Probe);
            }
            Action::Unready(slot) | Action::Ready(slot) => {
                let mut pod = state.world.pod(slot)?.clone();
                pod.ready = !pod.ready;
                state.left.unready -= u8::from(!pod.ready);
                state.world.put(slot, pod);
            }
            Action::Deleted(slot) => {
                state.left.deleted -= 1;
                state.world.pods[slot] = None;
            }
            Action::Ended(slot) => state.world.end(slot),
            Action::Created(slot) => state.world.create(slot),
        }
        self.tidy(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("never two leaders, and terms rise", |model: &Self, state: &State| {
                state.world.broken.is_none() || model.seen.found()
            }),
            Property::always("a quiet group with an eligible pod is led", |model, state| {
                if !model.is_quiet(state) {
                    return true;
                }
                model.seen.count(Counted::Quiet);
                Self::is_led(state)
            }),
        ];
        if self.calms {
            properties.push(Property::always("from every state calm leads to a leader", |model, state| {
                model.calms_down(state)
            }));
        }
        properties
    }

    fn within_boundary(&self, state: &State) -> bool {
        let term = state.world.record.1.record().map_or(0, |record| record.term.0);
        term <= self.terms && !self.seen.is_found()
    }
}

fn lags_slice(state: &State, number: usize) -> bool {
    let known = state.operators[number].slice.as_ref().map(|slice| slice.version);
    known < state.world.slice.as_ref().map(|slice| slice.version)
}

fn lags(state: &State, number: usize, slot: usize) -> bool {
    state.operators[number].lags(slot, state.world.pod(slot), state.world.made[slot])
}

/// The only lock is the present one.
fn locks(operator: &Operator) -> Vec<(lictor_core::Key, Stored)> {
    let (_, key, _) = spec();
    vec![(key.clone(), operator.lock())]
}

/// What an operator is told that gives up waiting.
fn unknown(command: &Command) -> Outcome {
    command.failed(Failure::Unknown("no answer".into()))
}
