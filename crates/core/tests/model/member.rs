//! The operator of one of several clusters: the real decisions of a group, the real life of a session, and what is known of the store.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use lictor_core::{
    Command, ElectionRead, Failure, FoundSession, HandoverOrder, Instant, Key, Knowledge, Known, LockValidity, Locks,
    OpId, Outcome, Pod, PodOutcome, RecordOutcome, Replica, Request, Rules, Scope, SessionCommand, SessionLife,
    SessionParameters, Setting, SharedStores, Spec, StoreId, Stored, Uid, Unavailable, Version, WhenLost, Wish,
    Workload, WorkloadId, WorkloadKind,
};

use super::clusters::NAMES;
use super::identity::operator_id;
use super::rules::Rule;
use super::world::{ELECTION, spec};

pub const TTL: Duration = Duration::from_secs(15);
/// How long the pods of a Deployment may take to end.
pub const WIND_DOWN: Duration = Duration::from_secs(6);

const PARAMETERS: SessionParameters = SessionParameters { ttl: TTL };

#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a rule of its own")]
pub struct Member {
    number: usize,
    replica: Replica,
    begun: u64,
    locks: Locks,
    stores: SharedStores,
    life: SessionLife,
    /// A request for the session is under way.
    asking: bool,
    pub pod: Option<Pod>,
    pub workload: Option<Workload>,
    pub available: bool,
    /// The version of the lock that was shown last.
    pub seen: Version,
    pub now: Instant,
    margin: bool,
    from_sending: bool,
    shows: bool,
}

/// What is asked of the world.
#[derive(Clone, Debug)]
pub enum Ask {
    /// A request of the core, with the number under which its outcome comes back; nobody waits for 0.
    Core(Request),
    Session(SessionCommand),
}

/// A request.
#[derive(Clone, Debug)]
pub struct Sent {
    pub ask: Ask,
    /// Whether its sender still waits for an answer.
    pub awaited: bool,
    /// By which session.
    pub session: Option<u32>,
    /// When it was sent, by its sender's clock.
    pub at: Instant,
    /// It was carried out, and this is on its way.
    pub answer: Option<Answer>,
}

#[derive(Clone, Debug)]
pub enum Answer {
    Core(Outcome),
    Found(Vec<FoundSession>),
    Made(u32),
    Renewed(bool),
    Nothing,
}

/// What comes to an operator.
pub enum Input {
    /// So much time has passed.
    Time(Duration),
    Lock(Version, Stored),
    Pod(Option<Pod>),
    Workload(Option<Workload>, bool),
    Answer(Sent, Answer),
    /// What was written is shown before the answer is taken.
    Shown(Option<Workload>, Sent, Answer),
}

impl Input {
    pub fn key(&self) -> u64 {
        let text = match self {
            Self::Time(length) => format!("time {length:?}"),
            Self::Lock(version, stored) => format!("lock {version:?} {stored:?}"),
            Self::Pod(pod) => format!("pod {pod:?}"),
            Self::Workload(workload, available) => format!("workload {workload:?} {available}"),
            Self::Answer(sent, answer) => format!("answer {sent:?} {answer:?}"),
            Self::Shown(workload, sent, answer) => format!("shown {workload:?} {sent:?} {answer:?}"),
        };
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        hasher.finish()
    }
}

impl Member {
    pub fn new(
        number: usize,
        start: u32,
        pod: Option<Pod>,
        workload: Option<Workload>,
        available: bool,
        off: &[Rule],
    ) -> Self {
        // The clocks of two processes have nothing in common.
        let now = Instant::after_origin(Duration::from_secs(1000));
        let mut stores = SharedStores::default();
        stores.add(key().store, Duration::from_secs(5), now);
        Self {
            number,
            replica: Replica::new(ELECTION.into(), uid(number), operator_id(number, start)),
            begun: start.into(),
            locks: Locks::default(),
            stores,
            life: SessionLife::new(NAMES[number], PARAMETERS),
            asking: false,
            pod,
            workload,
            available,
            seen: Version::default(),
            now,
            margin: !off.contains(&Rule::Margin),
            from_sending: !off.contains(&Rule::FromSending),
            shows: !off.contains(&Rule::AnswersShown),
        }
    }

    pub fn take(&mut self, input: &Input) -> Vec<Sent> {
        match input {
            Input::Time(length) => self.now = self.now + *length,
            Input::Lock(version, stored) => {
                self.see_lock(*version, stored);
                self.stores.list(&key().store);
            }
            Input::Pod(pod) => self.pod.clone_from(pod),
            Input::Workload(workload, available) => (self.workload, self.available) = (workload.clone(), *available),
            Input::Answer(sent, answer) => self.take_answer(sent, answer),
            Input::Shown(workload, sent, answer) => {
                self.workload.clone_from(workload);
                self.take_answer(sent, answer);
            }
        }
        self.act()
    }

    fn take_answer(&mut self, sent: &Sent, answer: &Answer) {
        let now = self.now;
        let since = if self.from_sending { sent.at } else { now };
        match (&sent.ask, answer) {
            (Ask::Core(request), Answer::Core(outcome)) => self.take_outcome(request, outcome.clone()),
            (Ask::Core(request), _) => self.take_outcome(request, unknown(&request.command)),
            (Ask::Session(ask), answer) => {
                self.asking = false;
                match (ask, answer) {
                    (SessionCommand::LookUp, Answer::Found(found)) => drop(self.life.looked_up(found.clone(), now)),
                    (SessionCommand::LookUp, _) => self.life.look_up_failed(now),
                    (SessionCommand::Create, Answer::Made(number)) => {
                        self.life.created(number.to_string(), TTL, since, now);
                    }
                    (SessionCommand::Create, _) => self.life.create_failed(false, now),
                    (SessionCommand::Renew(id), Answer::Renewed(true)) => self.life.renewed(id, TTL, since, now),
                    (SessionCommand::Renew(id), Answer::Renewed(false)) => self.life.lost(id, now),
                    (SessionCommand::Renew(id), _) => self.life.renewal_failed(id, false, now),
                    (SessionCommand::Wait(_), _) => {}
                }
            }
        }
    }

    fn take_outcome(&mut self, request: &Request, outcome: Outcome) {
        match (&outcome, &request.command) {
            (Outcome::PodWritten(PodOutcome::Written(pod)), _) if self.shows => self.show(pod),
            (Outcome::PodRead(Ok(Some(pod))), _) => self.show(pod),
            (Outcome::PodsListed(Ok(pods)), _) => pods.iter().for_each(|pod| self.show(pod)),
            (Outcome::RecordWritten(RecordOutcome::Written(version)), Command::WriteRecord { record, .. }) => {
                self.see_lock(*version, &Stored::Ours(*version, record.clone().at(*version)));
            }
            _ => {}
        }
        self.replica.take(request.op, outcome, self.now);
    }

    fn see_lock(&mut self, version: Version, stored: &Stored) {
        let key = key();
        self.seen = self.seen.max(version);
        let stored = Arc::new(stored.clone());
        if self.locks.put(&key, version, &stored).is_some() {
            self.replica.observe(&key, version, &stored);
        }
    }

    /// Whether a request is still to be sent when its turn comes.
    pub fn may_send(&self, request: &Request) -> bool {
        self.replica.may_send(request, self.now)
    }

    fn show(&mut self, pod: &Pod) {
        if self.pod.as_ref().is_none_or(|known| known.version < pod.version) {
            self.pod = Some(pod.clone());
        }
    }

    /// Until when it may rely on what it holds.
    fn validity(&self) -> LockValidity {
        if self.margin {
            return self.life.validity(self.now);
        }
        match self.life.validity(self.now - PARAMETERS.margin()) {
            LockValidity::Until(deadline) => LockValidity::Until(deadline + PARAMETERS.margin()),
            other => other,
        }
    }

    pub fn relies_until(&self) -> Option<Instant> {
        match self.validity() {
            LockValidity::Until(deadline) => Some(deadline),
            _ => None,
        }
    }

    fn act(&mut self) -> Vec<Sent> {
        let mut asks = Vec::new();
        if !self.asking {
            let next = self.life.next(self.now);
            if !matches!(next, SessionCommand::Wait(_)) {
                self.asking = true;
                asks.push(Ask::Session(next));
            }
        }
        let store = key().store;
        // Each cluster has one operator here, and so one takeover.
        self.stores.hold(&store, 0, self.validity(), self.now);
        let validity = match self.stores.knowledge(&store, self.now) {
            Knowledge::Full(validity) => Some(Some(validity)),
            Knowledge::Nothing => Some(None),
            Knowledge::Awaited(_) => None,
        };
        if let Some(validity) = validity {
            let mut due = self.step(validity);
            while !due.is_empty() {
                for request in std::mem::take(&mut due) {
                    if let Command::ReadElection = request.command {
                        let uid = uid(self.number);
                        let read = Outcome::ElectionRead(Ok(ElectionRead::Present { uid, generation: 1 }));
                        self.replica.take(request.op, read, self.now);
                        due.extend(self.step(validity));
                    } else {
                        asks.push(Ask::Core(request));
                    }
                }
            }
        }
        let session = self.life.id().and_then(|id| id.parse().ok());
        let sent = |ask: Ask| {
            let at = if matches!(ask, Ask::Session(_)) { self.now } else { Instant::default() };
            Sent { ask, awaited: true, session, at, answer: None }
        };
        asks.into_iter().map(sent).collect()
    }

    fn step(&mut self, validity: Option<LockValidity>) -> Vec<Request> {
        let (scope, rules, key) = (Scope::default(), Rules::default(), key());
        let pods: Vec<&Pod> = self.pod.iter().collect();
        let fitness = if self.available { Ok(()) } else { Err(Unavailable) };
        let workloads: Vec<Workload> = self.workload.iter().cloned().collect();
        let spec = Spec {
            former_leader: lictor_core::FormerLeader::Keep,
            scope: if self.workload.is_some() { &scope } else { spec().0 },
            rules: &rules,
            order: HandoverOrder::DemoteFirst,
            failover_delay: Duration::ZERO,
            when_lost: WhenLost::Demote,
            ttl: TTL,
            silence: 2 * TTL,
            seen_after: Duration::ZERO,
        };
        let known = Known {
            spec: Some(spec),
            cluster: self.workload.is_some().then_some(fitness),
            workloads: Some(&workloads),
            wind_down: if self.workload.is_some() { u32::try_from(WIND_DOWN.as_secs()).unwrap_or(u32::MAX) } else { 0 },
            pods: &pods,
            validity,
            ..Known::new(self.now, &key, &self.locks)
        };
        self.replica.step(&known, &mut self.begun).requests
    }
}

impl Sent {
    pub fn to_store(&self) -> bool {
        match &self.ask {
            Ask::Session(_) => true,
            Ask::Core(request) => !matches!(
                request.command,
                Command::ListPods { .. }
                    | Command::ReadPod { .. }
                    | Command::WritePod(_)
                    | Command::WriteWorkload(_)
                    | Command::ReadWorkloads { .. }
            ),
        }
    }

    pub fn command(&self) -> Option<&Command> {
        match &self.ask {
            Ask::Core(request) => Some(&request.command),
            Ask::Session(_) => None,
        }
    }

    /// Whether it shows that this cluster leads.
    pub fn promotes(&self) -> bool {
        self.command().is_some_and(Command::promotes)
    }

    pub fn writes_record(&self) -> bool {
        matches!(self.command(), Some(Command::WriteRecord { .. } | Command::ReleaseRecord { .. }))
    }

    pub fn writes_to_store(&self) -> bool {
        self.writes_record() || matches!(&self.ask, Ask::Session(SessionCommand::Create | SessionCommand::Renew(_)))
    }

    pub fn writes(&self) -> bool {
        self.writes_record() || matches!(self.command(), Some(Command::WritePod(_) | Command::WriteWorkload(_)))
    }

    /// What the executor answers that does not send it any more.
    pub fn refused(&self) -> Option<Outcome> {
        Some(self.command()?.failed(Failure::Refused("it may not be sent any more".into())))
    }

    /// Nobody waits for it any more.
    pub fn forgotten(&self) -> Self {
        let mut ask = self.ask.clone();
        if let Ask::Core(request) = &mut ask {
            (request.op, request.validity, request.urgent) = (OpId(0), LockValidity::Unlimited, false);
        }
        Self { ask, awaited: false, at: Instant::default(), answer: None, ..self.clone() }
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.ask {
            Ask::Core(request) => request.command.fmt(f),
            Ask::Session(SessionCommand::LookUp) => f.write_str("look up session"),
            Ask::Session(SessionCommand::Create) => f.write_str("make session"),
            Ask::Session(SessionCommand::Renew(id)) => write!(f, "renew session {id}"),
            Ask::Session(SessionCommand::Wait(_)) => f.write_str("wait"),
        }
    }
}

impl Answer {
    pub fn text(&self) -> String {
        match self {
            Self::Core(outcome) => outcome.to_string(),
            Self::Found(found) if found.is_empty() => "there is none".into(),
            Self::Found(found) => format!("session {}", found[0].id),
            Self::Made(number) => format!("session {number}"),
            Self::Renewed(lives) => if *lives { "renewed" } else { "it is no more" }.into(),
            Self::Nothing => "nothing".into(),
        }
    }
}

pub fn uid(number: usize) -> Uid {
    Uid(NAMES[number].into())
}

pub fn key() -> Key {
    Key { store: StoreId("consul".into()), namespace: String::new(), name: "web".into() }
}

pub fn workload(number: usize) -> Workload {
    Workload {
        id: WorkloadId { kind: WorkloadKind::Deployment, name: "web".into() },
        uid: Uid(format!("{}-web", NAMES[number])),
        version: Version(2 * super::identity::RANGE),
        setting: Setting::Replicas(0),
        claim: None,
        noted: None,
        deleting: false,
        finished: false,
        remains: false,
        running: 0,
        deletable: false,
        last_tick: None,
        wish: Wish::Follow { replicas: None },
    }
}

fn unknown(command: &Command) -> Outcome {
    command.failed(Failure::Unknown("no answer".into()))
}
