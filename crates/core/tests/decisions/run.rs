//! One run: faults in an order that the seed decides, then calm.

use std::time::Duration;

use lictor_core::{
    Command, Election, Failure, FollowedLock, Key, LockHolder, NEVER_LEADER_ANNOTATION, NotHeld, OpId, Outcome,
    PRIORITY_ANNOTATION, Pod, Situation, Stored, TERM_ANNOTATION, Term, Timestamp, Uid, Version, eligible, standing,
};

use super::Shown;
use super::operator::{Operator, instant};
use super::prng::Prng;
use super::world::{World, is_marked, scopes, shows_any_leader};

const STEPS: usize = 400;
const STREAMS: [&str; 4] = ["pods", "nodes", "records", "elections"];
/// Rounds of requests without anything new to see: more than any handover needs.
const ROUNDS: usize = 30;
/// Times that the clock goes on before all has to be as it should.
const CALM: usize = 60;

/// A request of an operator.
struct Request {
    operator: usize,
    /// The start of the operator that sent it; only that one gets the answer.
    start: u32,
    election: Uid,
    op: OpId,
    command: Command,
    /// It was carried out, and this is the answer.
    answer: Option<Outcome>,
    /// Nobody waits for the answer any more.
    lost: bool,
}

/// What may go wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// An operator is hardly ever given a turn, or is again.
    Pause,
    /// A watch of an operator brings nothing, or does again.
    StuckWatch,
    Crash,
    Standby,
    Readiness,
    Lifecycle,
    Relabel,
    ManualEdit,
    Record,
    Scope,
    Key,
    Rules,
    Freeze,
    Withdraw,
    Node,
    Probe,
    Priority,
    Exclusion,
    /// Somebody else elects, by a lock that each operator sees in its own way.
    Follow,
}

const FAULTS: [Fault; 19] = [
    Fault::Pause,
    Fault::StuckWatch,
    Fault::Crash,
    Fault::Standby,
    Fault::Readiness,
    Fault::Lifecycle,
    Fault::Relabel,
    Fault::ManualEdit,
    Fault::Record,
    Fault::Scope,
    Fault::Key,
    Fault::Rules,
    Fault::Freeze,
    Fault::Withdraw,
    Fault::Node,
    Fault::Probe,
    Fault::Priority,
    Fault::Exclusion,
    Fault::Follow,
];

/// What makes late writers: leaders change without a write to any pod, and operators do not get to the end of what they began.
const LATE: [Fault; 5] = [Fault::Pause, Fault::Crash, Fault::Node, Fault::Probe, Fault::Standby];
/// What makes operators act by views of the past.
const OUTDATED: [Fault; 6] = [Fault::Key, Fault::StuckWatch, Fault::Crash, Fault::Node, Fault::Probe, Fault::Scope];

/// How often what happens. Every run has a mixture of its own and leaves many faults out, so that long chains of the others
/// come up (Groce and others, "Swarm testing", 2012).
struct Mixture {
    faults: Vec<Fault>,
    /// Of a hundred steps.
    fault: usize,
    deliver: usize,
    /// Of a hundred requests.
    lost: usize,
}

impl Mixture {
    fn new(prng: &mut Prng) -> Self {
        let (base, share): (&[Fault], usize) = match prng.below(5) {
            0 => (&LATE, 0),
            1 => (&OUTDATED, 5),
            2 => (&[], 15),
            3 => (&[], 30),
            _ => (&[], 50),
        };
        let faults = FAULTS.into_iter().filter(|fault| base.contains(fault) || prng.percent(share)).collect();
        Self {
            faults,
            fault: [4, 10, 25][prng.below(3)],
            deliver: [8, 25, 40][prng.below(3)],
            lost: [0, 5, 15][prng.below(3)],
        }
    }
}

pub struct Run {
    prng: Prng,
    world: World,
    operators: Vec<Operator>,
    requests: Vec<Request>,
    mixture: Mixture,
    faults: u64,
    log: Option<Vec<String>>,
}

macro_rules! note {
    ($run:expr, $($text:tt)*) => {
        if let Some(log) = &mut $run.log {
            log.push(format!($($text)*));
        }
    };
}

/// Runs one seed. With `keeps_history` a failure comes with all that happened.
pub fn run(seed: u64, keeps_history: bool) -> Result<Shown, (String, Vec<String>)> {
    let mut run = Run::new(seed, keeps_history);
    run.all().map_err(|failure| (failure, run.log.take().unwrap_or_default()))?;
    Ok(Shown { faults: run.faults, ..run.world.shown })
}

impl Run {
    fn new(seed: u64, keeps_history: bool) -> Self {
        let mut prng = Prng::new(seed);
        let mixture = Mixture::new(&mut prng);
        let mut world = World::new(prng.below(3));
        let pods = 2 + prng.below(2);
        for pod in 0..pods {
            world.create_pod(&format!("p{pod}"), Some(["n0", "n1"][pod % 2]), true);
        }
        let operators = (0..2 + prng.below(2)).map(|number| Operator::new(format!("o{number}"))).collect();
        let log = keeps_history.then(Vec::new);
        Self { prng, world, operators, requests: Vec::new(), mixture, faults: 0, log }
    }

    fn all(&mut self) -> Result<(), String> {
        for operator in 0..self.operators.len() {
            self.start(operator);
        }
        for _ in 0..STEPS {
            self.fault_or_step()?;
        }
        self.calm()
    }

    // Faults

    fn fault_or_step(&mut self) -> Result<(), String> {
        if self.prng.percent(self.mixture.fault) {
            if let Some(fault) = self.prng.pick(&self.mixture.faults).copied() {
                self.inject(fault);
            }
            return Ok(());
        }
        if self.prng.percent(self.mixture.deliver) {
            self.deliver_something();
            return Ok(());
        }
        let operator = self.some_operator();
        match self.prng.below(100) {
            0..35 => drop(self.step(operator)),
            35..90 => self.some_request(operator)?,
            90..96 => {
                let by = [20, 200, 1_000, 5_000][self.prng.below(4)];
                self.advance(by);
            }
            96..98 => self.follow_up(operator),
            _ => self.burst(operator)?,
        }
        Ok(())
    }

    fn inject(&mut self, fault: Fault) {
        self.faults += 1;
        let operator = self.prng.below(self.operators.len());
        let pod = format!("p{}", self.prng.below(4));
        let choice = self.prng.below(4);
        match fault {
            Fault::Pause => {
                let slow = &mut self.operators[operator].slow;
                *slow = !*slow;
                note!(self, "o{operator} is slow: {}", self.operators[operator].slow);
            }
            Fault::StuckWatch => {
                let stuck = &mut self.operators[operator].stuck[choice];
                *stuck = !*stuck;
                note!(self, "o{operator} sees the {} not at all, or again", STREAMS[choice]);
            }
            Fault::Crash => self.start(operator),
            Fault::Standby => {
                note!(self, "o{operator} loses its claim and gets it again");
                self.operators[operator].stand_by();
            }
            Fault::Readiness => {
                let since = Timestamp(i64::try_from(self.world.now).unwrap_or(0));
                note!(self, "{pod} is ready, or is not any more");
                self.world.edit_pod(&pod, |pod| {
                    pod.ready = !pod.ready;
                    pod.ready_since = pod.ready.then_some(since);
                });
            }
            Fault::Lifecycle => self.live_or_die(&pod),
            Fault::Relabel => {
                note!(self, "{pod} moves to the other tier");
                self.world.edit_pod(&pod, |pod| {
                    let tier = if pod.labels.get("tier").is_some_and(|tier| tier == "a") { "b" } else { "a" };
                    pod.labels.insert("tier".into(), tier.into());
                });
            }
            Fault::ManualEdit => {
                note!(self, "by hand: {} on {pod}", ["leader", "no role", "no term", "another role"][choice]);
                self.world.edit_pod(&pod, |pod| match choice {
                    0 => drop(pod.labels.insert("role".into(), "leader".into())),
                    1 => drop(pod.labels.remove("role")),
                    2 => drop(pod.annotations.remove(TERM_ANNOTATION)),
                    _ => drop(pod.labels.insert("role".into(), "other".into())),
                });
            }
            Fault::Record => self.spoil_record(),
            Fault::Scope | Fault::Key | Fault::Rules | Fault::Freeze | Fault::Withdraw => self.change_election(fault),
            Fault::Node => {
                let name = ["n0", "n1"][choice % 2];
                let mut node = self.world.nodes[name].clone();
                if choice < 2 {
                    node.lost = !node.lost;
                } else {
                    node.cordoned = !node.cordoned;
                }
                note!(self, "{name} is {node:?}");
                self.world.put_node(name, node);
            }
            Fault::Probe => {
                let leader = self.operators[operator].election().and_then(Election::leader);
                let leader = leader.map(|(_, holder, _)| holder.uid.clone());
                let failed = &mut self.operators[operator].probe_failed;
                *failed = if failed.is_some() { None } else { leader };
                note!(self, "the probe of o{operator} fails: {:?}", self.operators[operator].probe_failed);
            }
            Fault::Priority => {
                note!(self, "{pod} has priority {choice}");
                let priority = choice.to_string();
                self.world.edit_pod(&pod, |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), priority)));
            }
            Fault::Follow => self.follow(operator, &pod, choice),
            Fault::Exclusion => {
                note!(self, "{pod} may never lead, or may again");
                self.world.edit_pod(&pod, |pod| {
                    if pod.annotations.remove(NEVER_LEADER_ANNOTATION).is_none() {
                        pod.annotations.insert(NEVER_LEADER_ANNOTATION.into(), "true".into());
                    }
                });
            }
        }
    }

    /// F: the candidates hold a lock themselves. All operators hear of it, or only one.
    fn follow(&mut self, operator: usize, pod: &str, choice: usize) {
        let version = Version(self.faults);
        let lock = match choice {
            0 => None,
            1 => Some(FollowedLock::Unknown(String::new())),
            2 => Some(FollowedLock::Free(NotHeld::Released)),
            _ => {
                let tenure = self.prng.below(3).to_string();
                Some(FollowedLock::Held(LockHolder { identity: pod.into(), tenure, version, ..LockHolder::default() }))
            }
        };
        note!(self, "o{operator}, or each, sees the candidates' lock: {lock:?}");
        let one = self.prng.percent(50);
        for (number, other) in self.operators.iter_mut().enumerate() {
            if !one || number == operator {
                other.followed.clone_from(&lock);
            }
        }
    }

    fn live_or_die(&mut self, name: &str) {
        match self.world.pods.get(name) {
            None => {
                let node = ["n0", "n1"][self.prng.below(2)];
                let (node, ready) = (self.prng.percent(90).then_some(node), self.prng.percent(70));
                note!(self, "{name} is created, ready: {ready}");
                self.world.create_pod(name, node, ready);
            }
            Some(pod) if pod.deleting => {
                note!(self, "{name} is gone");
                self.world.remove_pod(name);
            }
            Some(_) => {
                note!(self, "{name} is being deleted");
                self.world.edit_pod(name, |pod| {
                    pod.deleting = true;
                    pod.ready = false;
                });
            }
        }
    }

    fn spoil_record(&mut self) {
        let keys: Vec<Key> = self.world.records.keys().cloned().collect();
        let Some(key) = self.prng.pick(&keys).cloned() else { return };
        let Stored::Ours(_, record) = self.world.stored(&key) else { return };
        let hint = [record.term, Term(0), Term(i64::MAX)][self.prng.below(3)];
        if self.prng.percent(50) {
            note!(self, "by hand: the record {key} is deleted");
            self.world.spoil_record(&key, |_| Stored::Absent);
        } else {
            note!(self, "by hand: the record {key} is edited, term {hint}");
            self.world.spoil_record(&key, |version| Stored::Damaged(version, hint));
        }
    }

    fn change_election(&mut self, fault: Fault) {
        let scope = self.prng.below(3);
        if self.world.election.is_none() {
            note!(self, "the election is made anew, scope {scope}");
            self.world.create_election(scope);
            return;
        }
        match fault {
            Fault::Scope => {
                note!(self, "the spec has scope {scope}");
                self.world.edit_election(|object| object.spec.scope = scopes().swap_remove(scope));
            }
            Fault::Key => {
                let key = Key::lease("", format!("k{}", self.prng.below(2)));
                note!(self, "the spec has key {key}");
                self.world.edit_election(|object| object.spec.key = key);
            }
            Fault::Freeze => {
                note!(self, "pause is turned round");
                self.world.edit_election(|object| object.spec.paused = !object.spec.paused);
            }
            Fault::Withdraw => {
                note!(self, "the election is deleted");
                self.world.edit_election(|object| object.deleting = true);
            }
            _ => {
                let (min_ready, delay) = ([0, 2][self.prng.below(2)], [0, 3][self.prng.below(2)]);
                note!(self, "preemption is turned round, {min_ready} s ready, {delay} s to recover");
                self.world.edit_election(|object| {
                    object.spec.rules.preempt = !object.spec.rules.preempt;
                    object.spec.rules.min_ready = Duration::from_secs(min_ready);
                    object.spec.failover_delay = Duration::from_secs(delay);
                });
            }
        }
    }

    // What operators do

    /// Any operator, one that is on its way to be paused only seldom.
    fn some_operator(&mut self) -> usize {
        let swift: Vec<usize> = (0..self.operators.len()).filter(|operator| !self.operators[*operator].slow).collect();
        if swift.is_empty() || self.prng.percent(4) {
            self.prng.below(self.operators.len())
        } else {
            swift[self.prng.below(swift.len())]
        }
    }

    fn start(&mut self, operator: usize) {
        note!(self, "o{operator} starts anew");
        let far = if self.prng.percent(30) { 6 } else { 1 };
        let prng = &mut self.prng;
        self.operators[operator].start(&self.world.history, &mut || prng.below(far), self.world.now);
    }

    fn advance(&mut self, by: u64) {
        self.world.now += by;
        note!(self, "{by} ms pass");
    }

    fn deliver_something(&mut self) {
        let operator = self.some_operator();
        let stream = [0, 0, 1, 2, 2, 3][self.prng.below(6)];
        if self.operators[operator].stuck[stream] {
            return;
        }
        // Often all that there is, as a watch that is not held up does.
        let most = if self.prng.percent(50) { usize::MAX } else { 1 };
        let mut delivered = 0;
        while delivered < most && self.operators[operator].deliver(stream, &self.world.history, self.world.now) {
            delivered += 1;
        }
        if delivered > 0 {
            note!(self, "o{operator} sees {delivered} of {}", STREAMS[stream]);
        }
    }

    fn step(&mut self, operator: usize) -> usize {
        let (election, requests) = self.operators[operator].step(self.world.now);
        let start = self.operators[operator].start;
        for request in &requests {
            note!(self, "o{operator}/{start} wants {}", request.command);
        }
        let sent = requests.len();
        self.requests.extend(requests.into_iter().map(|request| Request {
            operator,
            start,
            election: election.clone(),
            op: request.op,
            command: request.command,
            answer: None,
            lost: false,
        }));
        sent
    }

    fn follow_up(&mut self, operator: usize) {
        if self.operators[operator].follow_up(&mut self.world) {
            note!(self, "o{operator} writes the status or takes the finalizer off");
        }
    }

    fn some_request(&mut self, operator: usize) -> Result<(), String> {
        let others: Vec<usize> =
            (0..self.requests.len()).filter(|index| self.requests[*index].operator == operator).collect();
        let Some(index) = self.prng.pick(&others).copied() else { return Ok(()) };
        let orphan = self.requests[index].lost || self.requests[index].start != self.operators[operator].start;
        if orphan && self.prng.percent(80) {
            return Ok(());
        }
        match self.prng.below(100) {
            at if at < self.mixture.lost => self.lose(index),
            at if at < 2 * self.mixture.lost => self.refuse(index),
            // The answer takes its time.
            at if at > 92 => self.carry_out(index)?,
            _ => {
                self.carry_out(index)?;
                self.answer(index);
            }
        }
        Ok(())
    }

    /// The request reaches its server.
    fn carry_out(&mut self, index: usize) -> Result<(), String> {
        let request = &mut self.requests[index];
        if request.answer.is_some() {
            return Ok(());
        }
        let outcome = self.world.carry_out(&request.election, &request.command);
        let late = if request.lost || request.start != self.operators[request.operator].start { "late, " } else { "" };
        note!(
            self,
            "o{}/{}: {late}{} -> {}",
            request.operator,
            request.start,
            request.command,
            outcome.as_ref().map_or_else(Clone::clone, ToString::to_string)
        );
        request.answer = Some(outcome?);
        Ok(())
    }

    /// The answer reaches the operator, if it still waits.
    fn answer(&mut self, index: usize) {
        let Request { operator, start, election, op, answer, lost, .. } = self.requests.swap_remove(index);
        let operator = &mut self.operators[operator];
        if let (Some(answer), false) = (answer, lost || start != operator.start) {
            operator.take(&election, op, answer, self.world.now);
        }
    }

    /// The operator gives up waiting; the request may still be on its way.
    fn lose(&mut self, index: usize) {
        let now = self.world.now;
        let request = &mut self.requests[index];
        note!(self, "o{}: the answer is lost: {}", request.operator, request.command);
        let operator = &mut self.operators[request.operator];
        if !request.lost && request.start == operator.start {
            let lost = Failure::Unknown("no answer".into());
            operator.take(&request.election, request.op, request.command.failed(lost), now);
        }
        request.lost = true;
        if request.answer.is_some() || self.prng.percent(20) {
            self.requests.swap_remove(index);
        }
    }

    fn refuse(&mut self, index: usize) {
        let request = &mut self.requests[index];
        if request.answer.is_none() && !request.lost {
            note!(self, "o{}: refused: {}", request.operator, request.command);
            request.answer = Some(request.command.failed(Failure::Refused("not now".into())));
            self.answer(index);
        }
    }

    /// One operator alone, with nothing new to see and at one moment: it must come to rest.
    fn burst(&mut self, operator: usize) -> Result<(), String> {
        note!(self, "o{operator} has its way");
        for _ in 0..ROUNDS {
            let sent = self.step(operator);
            let start = self.operators[operator].start;
            let mut answered = 0;
            while let Some(index) = self
                .requests
                .iter()
                .position(|request| request.operator == operator && request.start == start && !request.lost)
            {
                self.carry_out(index)?;
                self.answer(index);
                answered += 1;
            }
            if sent + answered == 0 {
                return Ok(());
            }
        }
        Err(format!("o{operator} goes on and on with nothing new to see"))
    }

    // Calm

    fn calm(&mut self) -> Result<(), String> {
        let last = self.prng.below(self.operators.len());
        note!(self, "calm: o{last} is left");
        for operator in 0..self.operators.len() {
            if operator != last {
                self.operators[operator].stop();
            }
        }
        self.operators[last].probe_failed = None;
        self.operators[last].followed = None;
        // What is still on its way, comes or never comes.
        while !self.requests.is_empty() {
            let index = self.prng.below(self.requests.len());
            if self.prng.percent(60) {
                self.carry_out(index)?;
            }
            let operator = self.requests[index].operator;
            if self.requests[index].answer.is_none() && operator == last {
                self.lose(index);
                self.requests.retain(|request| !(request.lost && request.operator == last));
            } else if operator == last {
                self.answer(index);
            } else {
                self.requests.swap_remove(index);
            }
            if self.prng.percent(20) {
                self.step(last);
            }
        }
        if self.world.election.as_ref().is_some_and(|object| object.spec.paused && !object.deleting) {
            self.world.edit_election(|object| object.spec.paused = false);
        }
        let mut verdict = Ok(());
        for round in 0..CALM {
            for stream in 0..4 {
                while self.operators[last].deliver(stream, &self.world.history, self.world.now) {}
            }
            self.burst(last)?;
            self.follow_up(last);
            self.world.collect_garbage();
            let object = self.world.election.clone();
            verdict = self.check_calm(last);
            // The longest waits of the spec are over.
            if round > 10 && verdict.is_ok() && object.is_none_or(|object| !object.deleting) {
                // It has to stay like this.
                let quiet = self.step(last) == 0;
                self.advance(30_000);
                let quiet = quiet && self.step(last) == 0;
                return if quiet { Ok(()) } else { Err("it is not quiet when all is done".into()) };
            }
            self.advance(1_000);
        }
        verdict
    }

    fn check_calm(&self, last: usize) -> Result<(), String> {
        let world = &self.world;
        let excused = |pod: &Pod| world.labelled_by_hand(pod) || world.is_demoted_late(pod);
        let Some(object) = &world.election else {
            if let Some(pod) = world.pods.values().find(|pod| is_marked(pod) && !excused(pod)) {
                return Err(format!("{} is still marked, and the election is gone: {pod:?}", pod.name));
            }
            let records: Vec<&Stored> = world.records.values().filter(|stored| **stored != Stored::Absent).collect();
            return if records.is_empty() { Ok(()) } else { Err(format!("records are left: {records:?}")) };
        };
        if object.deleting {
            return Err("the election is still being deleted".into());
        }
        let (scope, rules) = (&object.spec.scope, &object.spec.rules);
        let node = |pod: &Pod| pod.node.as_ref().and_then(|node| world.nodes.get(node));
        let selected: Vec<&Pod> = world.pods.values().filter(|pod| scope.selector.matches(&pod.labels)).collect();
        let now = instant(world.now + 10_000);
        let seen = |pod: &Pod| Pod { ready_observed: pod.ready.then(|| instant(0)), ..pod.clone() };
        let is_eligible = |pod: &Pod| eligible(&seen(pod), node(pod), rules, now).is_ok();
        let leaders: Vec<&Pod> = selected.iter().copied().filter(|pod| scope.markings.shows_leader(pod)).collect();
        let situation = self.operators[last].situation();
        match (situation, leaders.as_slice()) {
            (Some(Situation::Led), [leader]) => {
                if standing(leader, node(leader), rules).is_err() {
                    return Err(format!("{} leads and may not", leader.name));
                }
                let stored = world.stored(&object.spec.key);
                let holder = stored.record().and_then(|record| record.holder.as_ref());
                if holder.is_none_or(|holder| holder.uid != leader.uid) {
                    return Err(format!("{} leads, and the record is {stored:?}", leader.name));
                }
                if stored.record().is_none_or(|record| !record.former.is_empty() || record.election != object.uid) {
                    return Err(format!("the record is not tidy: {stored:?}"));
                }
                let term = stored.record().map(|record| record.term).unwrap_or_default();
                if !scope.markings.is_leader(leader, term) {
                    return Err(format!("{} is not wholly the leader", leader.name));
                }
            }
            (Some(Situation::Vacant), []) => {
                if let Some(pod) = selected.iter().find(|pod| is_eligible(pod)) {
                    return Err(format!("nobody leads, and {} is eligible", pod.name));
                }
            }
            _ => {
                let leaders: Vec<&String> = leaders.iter().map(|pod| &pod.name).collect();
                return Err(format!("{situation:?}, and {leaders:?} show the leader's label"));
            }
        }
        let mut strays = world.records.iter().filter(|(key, s)| **key != object.spec.key && s.record().is_some());
        // While nobody leads, an emptied one is kept: it may be all that knows the last term.
        let kept = |stray: &Stored| leaders.is_empty() && stray.record().is_some_and(|record| record.holder.is_none());
        if let Some((key, stray)) = strays.find(|(_, stray)| !kept(stray)) {
            return Err(format!("a record is left under {key}: {stray:?}"));
        }
        for pod in world.pods.values() {
            if scope.selector.matches(&pod.labels) {
                let leads = leaders.first().is_some_and(|leader| leader.uid == pod.uid);
                let leaves = pod.deleting || pod.finished;
                if !leads && !leaves && !scope.markings.is_follower(pod) {
                    return Err(format!("{} is no follower: {pod:?}", pod.name));
                }
                let leftover = scopes().iter().any(|old| old.markings.has_leftover(pod, &scope.markings));
                let explained = world.forgotten || world.made > 1 || self.mixture.faults.contains(&Fault::ManualEdit);
                if leftover && !leaves && !explained && !excused(pod) {
                    return Err(format!("{} has leftovers: {pod:?}", pod.name));
                }
            } else if is_marked(pod) || (shows_any_leader(pod) && !world.forgotten && !excused(pod)) {
                return Err(format!("{} is no candidate, and is marked: {pod:?}", pod.name));
            }
        }
        Ok(())
    }
}
