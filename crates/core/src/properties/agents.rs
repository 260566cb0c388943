//! An agent whose lock is renewed, lost and acquired again at any moment: its command lives only while the lock is held.

use std::time::Duration;

use proptest::prelude::*;

use super::{at, config};
use crate::{Agent, AgentAction, AgentEvent, AgentTiming, HeldLock, Instant, Term, Watchdog, WatchdogCommand};

const TIMING: AgentTiming = AgentTiming {
    ttl: Duration::from_secs(10),
    grace: Duration::from_secs(1),
    stop_timeout: Duration::from_secs(5),
    away: Duration::from_secs(3),
    shortest_run: Duration::from_secs(1),
};
/// From the sending of a renewal to the end of the validity.
const VALIDITY: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, Debug)]
enum Event {
    Later(u64),
    /// Time passes, and the agent's process does not run. Its watchdog does.
    Frozen(u64),
    /// A renewal that was sent so many milliseconds ago.
    Renewed(u64),
    Lost,
    AcquiredAgain,
    /// The command ends by itself.
    Ends(u8),
    /// All that was killed or has ended is noticed.
    Noticed,
    Stop,
    Yield,
    Orphaned,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0_u64..4000).prop_map(Event::Later),
        1 => (0_u64..30_000).prop_map(Event::Frozen),
        8 => (0_u64..3000).prop_map(Event::Renewed),
        1 => Just(Event::Lost),
        2 => Just(Event::AcquiredAgain),
        1 => any::<u8>().prop_map(Event::Ends),
        6 => Just(Event::Noticed),
        1 => Just(Event::Stop),
        2 => Just(Event::Yield),
        1 => Just(Event::Orphaned),
    ]
}

/// An agent, its watchdog, and what they run.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct World {
    agent: Agent,
    watchdog: Watchdog,
    now: u64,
    lock: Option<HeldLock>,
    /// The term of the command that lives.
    lives: Option<Term>,
    /// The command's process has ended, with this code, and the agent has not heard it yet.
    unheard: Option<u8>,
    /// Something was started, and the agent did not hear yet that nothing of it lives.
    dirty: bool,
    obeys: bool,
    released: bool,
    /// A7: until when the agent takes no part, once it has heard that the lock is released.
    away_until: Option<Instant>,
    exited: bool,
    last: Option<Term>,
}

impl World {
    fn now(&self) -> Instant {
        at(self.now)
    }

    fn tell(&mut self, event: AgentEvent) {
        for action in self.agent.observe(event, self.now()) {
            assert!(!self.exited, "{action:?} after the end");
            match action {
                AgentAction::Guard(until) => self.watchdog.told(until),
                AgentAction::Start { term, until } => {
                    assert!(!self.dirty && !self.released, "one at a time");
                    let lock = self.lock.expect("it is held");
                    assert_eq!((term, until), (lock.term, lock.until));
                    assert!(self.now() < until);
                    // A3.
                    assert_eq!(self.watchdog.next(self.now()), WatchdogCommand::Wait(Some(until)));
                    (self.lives, self.dirty) = (Some(term), true);
                    // A6.
                    assert!(self.last.replace(term).is_none_or(|last| last < term));
                }
                AgentAction::Terminate if self.obeys => self.die(143),
                AgentAction::Terminate | AgentAction::Reacquire => {}
                AgentAction::Kill => self.die(137),
                AgentAction::Release => {
                    // A4.
                    assert!(self.lives.is_none() && !self.dirty && !self.released);
                    (self.released, self.lock, self.away_until) = (true, None, None);
                }
                AgentAction::TakePart => {
                    // A7.
                    assert!(self.released && self.away_until.is_some_and(|until| until <= self.now()));
                    self.released = false;
                }
                AgentAction::Exit(_) => self.exited = true,
            }
        }
    }

    fn die(&mut self, code: u8) {
        if self.lives.take().is_some() {
            self.unheard = Some(code);
        }
    }

    /// Lets time pass. Who runs looks when it is due.
    fn pass(&mut self, milliseconds: u64, agent_runs: bool) {
        for _ in 0..milliseconds / 10 {
            self.now += 10;
            if let WatchdogCommand::KillCommand = self.watchdog.next(self.now()) {
                self.die(137);
            }
            if agent_runs && self.agent.wake_at(self.now()).is_some_and(|at| at <= self.now()) {
                self.tell(AgentEvent::Tick);
            }
            self.check();
        }
    }

    /// A1, A2, A3.
    fn check(&self) {
        if let Some(term) = self.lives {
            let lock = self.lock.expect("without a lock nothing lives");
            assert_eq!(lock.term, term, "what lives was started under this lock");
            assert!(self.now() < lock.until, "it lives at {:?} with {lock:?}", self.now());
        }
    }

    fn hold(&mut self, lock: Option<HeldLock>) {
        if self.released {
            // It takes no part.
            return;
        }
        self.lock = lock;
        self.tell(AgentEvent::Lock(lock));
        self.check();
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn a_command_lives_only_while_its_lock_is_held(
        obeys in any::<bool>(),
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut world = World {
            agent: Agent::new(TIMING), watchdog: Watchdog::default(), now: 100_000, lock: None, lives: None, unheard: None,
            dirty: false, obeys, released: false, away_until: None, exited: false, last: None,
        };
        let mut term = Term(1);
        for event in events {
            match event {
                Event::Later(milliseconds) => world.pass(milliseconds, true),
                Event::Frozen(milliseconds) => {
                    world.pass(milliseconds, false);
                    world.tell(AgentEvent::Tick);
                }
                Event::Renewed(ago) => {
                    let until = at(world.now - ago) + VALIDITY;
                    if let Some(lock) = world.lock.filter(|lock| lock.until < until) {
                        world.hold(Some(HeldLock { until, ..lock }));
                    }
                }
                Event::Lost => world.hold(None),
                Event::AcquiredAgain => {
                    // A6.
                    term = term.next();
                    world.hold(Some(HeldLock { term, from: world.now(), until: world.now() + VALIDITY }));
                }
                Event::Ends(code) => world.die(code),
                Event::Noticed => {
                    if let Some(code) = world.unheard.take() {
                        world.tell(AgentEvent::Ended(code));
                    }
                    if world.lives.is_none() && world.unheard.is_none() && std::mem::take(&mut world.dirty) {
                        world.tell(AgentEvent::Gone);
                    }
                    if world.released && world.away_until.is_none() && !world.exited {
                        world.away_until = Some(world.now() + TIMING.away);
                        world.tell(AgentEvent::Released);
                    }
                }
                Event::Stop => world.tell(AgentEvent::Stop),
                Event::Yield => world.tell(AgentEvent::Yield),
                Event::Orphaned => world.tell(AgentEvent::Orphaned),
            }
            world.check();
        }
    }
}
