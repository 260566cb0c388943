//! Two clusters with a session each in a store that only replaces an object if it has not changed, and one lock: the B rules. The real
//! [`CasSession`] and [`SessionWatch`] decide.
//!
//! West's requests take effect at any moment after they were sent, also after it has given them up; so does what East does to West's session and
//! to the lock. East renews its own session at once. Reads are of one moment. Clocks run equally fast, so the margin is not needed here. Left out:
//! replicas, restarts, objects that a person edits, a store that is put back.

use std::sync::Arc;
use std::time::Duration;

use lictor_core::{
    CasCommand, CasSession, Instant, LockSession, LockValidity, SessionEnd, SessionObject, SessionParameters,
    SessionWatch, SessionWrite,
};
use stateright::{Model, Property};

use super::explore::{Told, counterexample, prove};
use super::rules::{Counted, Rule, Seen};

const TTL: Duration = Duration::from_secs(15);
/// A tick is as long as the margin.
const TICK: Duration = Duration::from_secs(3);
const CLUSTERS: [&str; 2] = ["west", "east"];

#[derive(Clone, Debug)]
struct Sessions {
    /// How many ticks there are.
    ticks: u32,
    /// How many writes of its session each cluster may give up before their answers.
    lost: u8,
    off: Vec<Rule>,
    seen: Arc<Seen>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    tick: u32,
    sessions: [Object; 2],
    lock: Lock,
    sides: [Side; 2],
}

/// A session's object, with the number of its state. There is none at 0.
type Object = (u32, Option<SessionObject>);
/// A lock's object: the number of its state, and who holds it.
type Lock = (u32, Option<LockSession>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Side {
    life: CasSession,
    watch: SessionWatch,
    /// The state of the other session that was read last.
    other: u32,
    /// The lock as it was read, and whether the other session was read after it.
    view: Option<(Lock, bool)>,
    /// The session under which the cluster holds the lock, as far as it knows.
    holds: Option<String>,
    renewal: Option<Write<SessionObject>>,
    /// A renewal that was given up, and has not taken effect.
    late: Option<Write<SessionObject>>,
    end: Option<Write<SessionObject>>,
    take: Option<Write<LockSession>>,
    lost: u8,
    takes: u8,
    ends: u8,
}

/// A request to replace the state of this number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Write<T> {
    expected: u32,
    value: T,
    sent: u32,
    /// The number of the new state, or that it was refused, once the request has arrived.
    result: Option<Result<u32, ()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    Read(usize),
    Send(usize),
    Renewed(usize),
    Answered(usize),
    GivenUp(usize),
    Late(usize),
    LookAtLock(usize),
    LookAtOther(usize),
    End(usize),
    Ended(usize),
    EndAnswered(usize),
    Take(usize),
    Taken(usize),
    TakeAnswered(usize),
}

fn at(tick: u32) -> Instant {
    Instant::after_origin(TICK * tick)
}

fn found((number, object): &Object) -> Option<(String, Option<SessionObject>)> {
    object.clone().map(|object| (number.to_string(), Some(object)))
}

fn number(tag: Option<String>) -> u32 {
    tag.map_or(0, |tag| tag.parse().expect("a number"))
}

impl World {
    fn acts(&self, cluster: usize) -> bool {
        let Side { life, holds, .. } = &self.sides[cluster];
        holds.is_some()
            && holds.as_deref() == life.id()
            && matches!(life.validity(at(self.tick)), LockValidity::Until(_))
    }

    fn put(&mut self, cluster: usize, write: &Write<SessionObject>) -> Result<u32, ()> {
        let (number, object) = &mut self.sessions[cluster];
        if *number != write.expected {
            return Err(());
        }
        (*number, *object) = (*number + 1, Some(write.value.clone()));
        Ok(*number)
    }
}

impl Sessions {
    fn new(ticks: u32, lost: u8) -> Self {
        Self { ticks, lost, off: vec![], seen: Arc::default() }
    }

    fn without(self, rule: Rule) -> Self {
        Self { off: vec![rule], ..self }
    }

    fn is(&self, rule: Rule) -> bool {
        !self.off.contains(&rule)
    }

    /// The sessions that a cluster may end now.
    fn late(&self, world: &World, cluster: usize) -> Option<SessionEnd> {
        let early = if self.is(Rule::WholeTtl) { Duration::ZERO } else { TTL / 2 };
        world.sides[cluster].watch.late(at(world.tick) + early).pop()
    }

    fn may_take(&self, world: &World, cluster: usize) -> bool {
        let side = &world.sides[cluster];
        let Some(((_, holder), read_after)) = &side.view else { return false };
        let free = match holder {
            None => true,
            Some(holder) if holder.cluster == CLUSTERS[cluster] => side.life.id() != Some(&holder.id),
            Some(holder) => {
                let over = side.watch.is_over(holder);
                let read = *read_after || !self.is(Rule::SessionAfterLock);
                read && (over || (!self.is(Rule::EndsBeforeTaking) && self.late(world, cluster).is_some()))
            }
        };
        free && side.takes > 0
            && side.take.is_none()
            && side.life.id().is_some()
            && matches!(side.life.validity(at(world.tick)), LockValidity::Until(_))
    }
}

impl Model for Sessions {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let side = |cluster: usize| {
            let name = CLUSTERS[cluster];
            let mut life = CasSession::with_seed(0, name, name, SessionParameters { ttl: TTL });
            life.read(None, at(0));
            let CasCommand::Write { object, .. } = life.next(at(0)) else { panic!("no session") };
            life.written(object.clone(), at(0), SessionWrite::Done("1".into()), at(0));
            let holds = (cluster == 0).then(|| object.id.clone());
            let side = Side {
                life,
                watch: SessionWatch::new(name, name, name, TTL),
                other: 0,
                view: None,
                holds,
                renewal: None,
                late: None,
                end: None,
                take: None,
                lost: self.lost,
                takes: 1,
                ends: u8::from(cluster == 1),
            };
            (side, (1, Some(object)))
        };
        let ((west, a), (east, b)) = (side(0), side(1));
        let lock = (1, west.holds.clone().map(|id| LockSession { cluster: CLUSTERS[0].into(), id }));
        vec![World { tick: 0, sessions: [a, b], lock, sides: [west, east] }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.tick < self.ticks {
            actions.push(Action::Tick);
        }
        for cluster in 0..2 {
            let side = &world.sides[cluster];
            let waits = |write: &Option<Write<SessionObject>>| write.as_ref().map(|write| write.result.is_some());
            match side.life.next(at(world.tick)) {
                _ if cluster == 1 => {}
                CasCommand::Read if side.renewal.is_none() => actions.push(Action::Read(cluster)),
                CasCommand::Write { .. } if side.renewal.is_none() => actions.push(Action::Send(cluster)),
                _ => {}
            }
            match waits(&side.renewal) {
                Some(true) => actions.push(Action::Answered(cluster)),
                Some(false) => actions.push(Action::Renewed(cluster)),
                None => {}
            }
            if side.renewal.is_some() && side.late.is_none() && side.lost > 0 {
                actions.push(Action::GivenUp(cluster));
            }
            if side.late.is_some() {
                actions.push(Action::Late(cluster));
            }
            if side.view.as_ref().is_none_or(|(lock, _)| *lock != world.lock) {
                actions.push(Action::LookAtLock(cluster));
            }
            let (number, _) = &world.sessions[1 - cluster];
            if side.other != *number || side.view.as_ref().is_some_and(|(_, read_after)| !read_after) {
                actions.push(Action::LookAtOther(cluster));
            }
            match waits(&side.end) {
                Some(true) => actions.push(Action::EndAnswered(cluster)),
                Some(false) => actions.push(Action::Ended(cluster)),
                None if side.ends > 0 && self.is(Rule::EndsBeforeTaking) && self.late(world, cluster).is_some() => {
                    actions.push(Action::End(cluster));
                }
                None => {}
            }
            match side.take.as_ref().map(|take| take.result.is_some()) {
                Some(true) => actions.push(Action::TakeAnswered(cluster)),
                Some(false) => actions.push(Action::Taken(cluster)),
                None if self.may_take(world, cluster) => actions.push(Action::Take(cluster)),
                None => {}
            }
        }
    }

    #[allow(clippy::too_many_lines, reason = "an arm for each action")]
    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        let (tick, now) = (world.tick, at(world.tick));
        match action {
            Action::Tick => {
                world.tick += 1;
                let now = at(world.tick);
                match world.sides[1].life.next(now) {
                    CasCommand::Wait(_) => {}
                    CasCommand::Read => world.sides[1].life.read(found(&world.sessions[1]), now),
                    CasCommand::Write { expected, object } => {
                        let write = Write { expected: number(expected), value: object, sent: world.tick, result: None };
                        let new = world.put(1, &write).ok()?.to_string();
                        world.sides[1].life.written(write.value, now, SessionWrite::Done(new), now);
                    }
                }
            }
            Action::Read(cluster) => world.sides[cluster].life.read(found(&world.sessions[cluster]), now),
            Action::Send(cluster) => {
                let CasCommand::Write { expected, object } = world.sides[cluster].life.next(now) else { return None };
                let write = Write { expected: number(expected), value: object, sent: tick, result: None };
                world.sides[cluster].renewal = Some(write);
            }
            Action::Renewed(cluster) => {
                let mut write = world.sides[cluster].renewal.take()?;
                write.result = Some(world.put(cluster, &write));
                world.sides[cluster].renewal = Some(write);
            }
            Action::Answered(cluster) => {
                let side = &mut world.sides[cluster];
                let write = side.renewal.take()?;
                let sent = if self.is(Rule::FromSending) { write.sent } else { tick };
                let outcome = write.result?.map_or(SessionWrite::Conflict, |new| SessionWrite::Done(new.to_string()));
                side.life.written(write.value, at(sent), outcome, now);
            }
            Action::GivenUp(cluster) => {
                let side = &mut world.sides[cluster];
                let write = side.renewal.take()?;
                side.lost -= 1;
                side.life.written(write.value.clone(), at(write.sent), SessionWrite::Unknown, now);
                side.late = write.result.is_none().then_some(write);
            }
            Action::Late(cluster) => {
                let write = world.sides[cluster].late.take()?;
                let _ = world.put(cluster, &write);
            }
            Action::LookAtLock(cluster) => {
                let lock = world.lock.clone();
                let side = &mut world.sides[cluster];
                side.holds = match &lock.1 {
                    Some(holder) if holder.cluster == CLUSTERS[cluster] => Some(holder.id.clone()),
                    _ => None,
                };
                side.view = Some((lock, false));
            }
            Action::LookAtOther(cluster) => {
                let other = found(&world.sessions[1 - cluster]);
                let number = world.sessions[1 - cluster].0;
                let side = &mut world.sides[cluster];
                side.other = number;
                side.watch.see(CLUSTERS[1 - cluster], other, now);
                if let Some((_, read_after)) = &mut side.view {
                    *read_after = true;
                }
            }
            Action::End(cluster) => {
                let SessionEnd { expected, object, .. } = self.late(&world, cluster)?;
                let write = Write { expected: number(expected), value: object, sent: tick, result: None };
                world.sides[cluster].ends -= 1;
                world.sides[cluster].end = Some(write);
            }
            Action::Ended(cluster) => {
                let mut write = world.sides[cluster].end.take()?;
                write.result = Some(world.put(1 - cluster, &write));
                world.sides[cluster].end = Some(write);
            }
            Action::EndAnswered(cluster) => {
                let side = &mut world.sides[cluster];
                let write = side.end.take()?;
                if let Ok(new) = write.result? {
                    self.seen.count(Counted::Expired);
                    let expected = (write.expected > 0).then(|| write.expected.to_string());
                    let end = SessionEnd { cluster: CLUSTERS[1 - cluster].into(), expected, object: write.value };
                    side.watch.ended(end, new.to_string(), now);
                }
            }
            Action::Take(cluster) => {
                let side = &mut world.sides[cluster];
                let id = side.life.id()?.to_owned();
                let value = LockSession { cluster: CLUSTERS[cluster].into(), id };
                let expected = side.view.as_ref()?.0.0;
                side.takes -= 1;
                side.take = Some(Write { expected, value, sent: tick, result: None });
            }
            Action::Taken(cluster) => {
                let mut write = world.sides[cluster].take.take()?;
                let done = world.lock.0 == write.expected;
                if done {
                    world.lock = (write.expected + 1, Some(write.value.clone()));
                }
                write.result = Some(if done { Ok(world.lock.0) } else { Err(()) });
                world.sides[cluster].take = Some(write);
            }
            Action::TakeAnswered(cluster) => {
                let side = &mut world.sides[cluster];
                let write = side.take.take()?;
                match write.result? {
                    Ok(new) => {
                        side.holds = Some(write.value.id.clone());
                        side.view = Some(((new, Some(write.value)), false));
                        self.seen.count(if cluster == 1 { Counted::TakenOver } else { Counted::Written });
                    }
                    Err(()) => side.view = None,
                }
            }
        }
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("one cluster acts at a time", |_, world: &World| !(world.acts(0) && world.acts(1)))]
    }
}

impl Told for Sessions {
    const SHORT: bool = false;

    fn bounds(&self) -> String {
        format!("{} ticks, {} answers lost", self.ticks, self.lost)
    }

    fn seen(&self) -> &Seen {
        &self.seen
    }

    fn describe(&self, before: &World, action: &Action) -> String {
        format!("{}: {action:?}", before.tick)
    }
}

/// Shows B1 to B4.
#[test]
fn a_session_is_ended_by_another_cluster() {
    prove("sessions", Sessions::new(6, 0), &[Counted::Expired, Counted::TakenOver]);
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_a_session_that_is_ended_while_an_answer_is_lost() {
    prove("sessions", Sessions::new(6, 1), &[Counted::Expired, Counted::TakenOver]);
    prove("sessions", Sessions::new(7, 0), &[Counted::Expired, Counted::TakenOver]);
}

/// Shows what goes wrong without B1, B2, B3 or B4.
#[test]
fn each_rule_of_sessions_is_needed() {
    let rules = [(Rule::FromSending, 8), (Rule::WholeTtl, 6), (Rule::EndsBeforeTaking, 6), (Rule::SessionAfterLock, 5)];
    for (rule, ticks) in rules {
        let model = Sessions::new(ticks, 0).without(rule);
        assert!(counterexample("sessions", model).is_some(), "without {rule:?}, no two clusters act");
    }
}
