//! Decides when an agent runs its command: only while it surely holds the lock. The A rules of docs/protocol.md.
//!
//! [`SessionLife`](super::SessionLife) and [`KeyLock`](super::KeyLock), or [`Claim`](super::Claim), keep the lock itself. Their knowledge
//! comes in as [`AgentEvent::Lock`]. The caller calls [`Agent::observe`] at [`Agent::wake_at`] at the latest.

use std::time::Duration;

use super::{Instant, Term};

/// The lengths of time in an agent's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentTiming {
    /// How long the lock lasts without a renewal.
    pub ttl: Duration,
    /// How long the command has from SIGTERM to SIGKILL if the lock could not be renewed.
    pub grace: Duration,
    /// How long the command has from SIGTERM to SIGKILL if the agent holds the lock and was asked to end, or to yield.
    pub stop_timeout: Duration,
    /// A7: how long the agent takes no part in the election after it has yielded.
    pub away: Duration,
    /// The earliest end of an agent, counted from the start of a command that has ended by itself.
    pub shortest_run: Duration,
}

impl AgentTiming {
    /// A2: how long before the end of the lock's validity the agent kills everything. The watchdog does the same at the end itself (A3).
    pub fn reserve(self) -> Duration {
        self.ttl / 50
    }

    /// The longest [`grace`](Self::grace). The validity ends four fifths of the TTL after a renewal, and the next renewal comes a third of
    /// the TTL after it. The time between must leave room for some more attempts.
    pub fn longest_grace(self) -> Duration {
        self.ttl * 3 / 10
    }

    fn kill_at(self, lock: HeldLock) -> Instant {
        lock.until - self.reserve()
    }

    fn terminate_at(self, lock: HeldLock) -> Instant {
        self.kill_at(lock) - self.grace
    }
}

/// The lock, as its holder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// The fencing token.
    pub term: Term,
    /// The moment from which no other holder can rely on the lock any more.
    pub from: Instant,
    /// The moment until which this process can rely on it: the end of its validity (C2, L2).
    pub until: Instant,
}

/// An event that an agent hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentEvent {
    /// The lock as far as it is known, or `None` if the agent does not hold it.
    Lock(Option<HeldLock>),
    /// The command's own process has ended, with this exit code.
    Ended(u8),
    /// The command has ended, and so has every process that comes from it.
    Gone,
    /// The agent is asked to end.
    Stop,
    /// The agent is asked to leave the lock to another one. Without the lock there is nothing to leave: see [`Agent::is_yielding`].
    Yield,
    /// The watchdog has ended.
    Orphaned,
    /// The lock was released, or could not be: this agent no longer has it, or it ends by itself.
    Released,
    /// Time has passed.
    Tick,
}

/// An action of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentAction {
    /// Tell the watchdog the moment until which the command may live, or `None` if there is no command.
    Guard(Option<Instant>),
    /// Start the command, which must not begin after `until`.
    Start {
        /// The fencing token.
        term: Term,
        /// The end of the lock's validity.
        until: Instant,
    },
    /// Ask the command to end, or, if it has ended, the processes that it has left behind.
    Terminate,
    /// Kill the command and every process that comes from it. The agent repeats this until [`AgentEvent::Gone`].
    Kill,
    /// Acquire the lock again, in a higher term, although the agent holds it.
    Reacquire,
    /// Release the lock, and take no further part in the election.
    Release,
    /// Take part in the election again.
    TakePart,
    /// End, with this exit code.
    Exit(u8),
}

/// The state of an agent, for everyone who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentState {
    /// The agent has no command: it waits for the lock, or for the moment at which it may rely on it.
    #[default]
    Waiting,
    /// The agent's command lives.
    Leading,
    /// The agent's command has to end.
    Ending,
    /// The agent releases the lock.
    Releasing,
    /// The agent has yielded, and takes no part in the election until this moment.
    Away(Instant),
    /// The agent has ended.
    Ended,
}

/// One agent.
#[derive(Clone, Debug)]
pub struct Agent {
    timing: AgentTiming,
    lock: Option<HeldLock>,
    run: Run,
    /// The last message to the watchdog.
    guarded: Option<Instant>,
    /// Whether the agent was asked to end.
    stopping: bool,
    /// Whether the watchdog is gone.
    orphaned: bool,
    /// Whether the agent was asked to leave the lock to another one.
    yielding: bool,
    /// When the last command was started.
    began: Instant,
    /// The exit code to hand on.
    code: Option<u8>,
    /// The term of the last command.
    last: Option<Term>,
    /// The term for which the agent has asked for a higher one.
    asked: Option<Term>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Absent,
    Running(Term),
    /// The command has to end. `since`: when SIGTERM was sent.
    Ending {
        term: Term,
        since: Instant,
    },
    Releasing,
    Away(Instant),
    Ended,
}

impl Agent {
    /// The time from one attempt to kill to the next one.
    const KILL_AGAIN: Duration = Duration::from_millis(10);

    /// Creates an agent that holds no lock.
    pub fn new(timing: AgentTiming) -> Self {
        let (lock, guarded, code, last, asked) = (None, None, None, None, None);
        let (stopping, orphaned, yielding) = (false, false, false);
        let began = Instant::default();
        Self { timing, lock, run: Run::Absent, guarded, stopping, orphaned, yielding, began, code, last, asked }
    }

    /// Takes an event. Returns the actions that follow, in this order.
    pub fn observe(&mut self, event: AgentEvent, now: Instant) -> Vec<AgentAction> {
        let mut actions = vec![];
        match event {
            AgentEvent::Lock(lock) => self.lock = lock,
            AgentEvent::Ended(code) => {
                // The elapsed time counts first, because the watchdog may have killed the command when the lock was over.
                self.decide(now, &mut actions);
                self.ended(code, now, &mut actions);
                return actions;
            }
            AgentEvent::Gone => {
                if let Run::Ending { .. } = self.run {
                    self.run = Run::Absent;
                }
            }
            AgentEvent::Stop => self.stopping = true,
            AgentEvent::Yield => {
                self.yielding |= match self.run {
                    Run::Absent => self.lock.is_some(),
                    Run::Running(_) | Run::Ending { .. } => true,
                    Run::Releasing | Run::Away(_) | Run::Ended => false,
                };
            }
            AgentEvent::Orphaned => (self.stopping, self.orphaned) = (true, true),
            AgentEvent::Released => {
                if self.run == Run::Releasing {
                    // A7. If the agent has to end as well, it does so afterwards: at once, or when a command that ended too soon has had
                    // its time.
                    let own = self.code.is_some().then_some(self.began + self.timing.shortest_run);
                    self.run = Run::Away(own.unwrap_or(now + self.timing.away));
                    (self.lock, self.yielding) = (None, false);
                }
            }
            AgentEvent::Tick => {}
        }
        self.decide(now, &mut actions);
        actions
    }

    /// When to call [`observe`](Self::observe) at the latest, or `None` if only an event needs it.
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        match self.run {
            Run::Absent => self.lock.filter(|lock| now < lock.from && !self.is_over()).map(|lock| lock.from),
            Run::Running(_) => self.lock.map(|lock| self.timing.terminate_at(lock)),
            Run::Ending { term, since } => {
                let kill_at = self.kill_at(term, since);
                Some(kill_at.filter(|at| now < *at).unwrap_or(now + Self::KILL_AGAIN))
            }
            Run::Away(until) => Some(until),
            Run::Releasing | Run::Ended => None,
        }
    }

    /// Whether the agent leaves the lock to another one, or has done so.
    pub fn is_yielding(&self) -> bool {
        self.yielding || matches!(self.run, Run::Away(_)) && !self.is_over()
    }

    /// The agent's state.
    pub fn state(&self) -> AgentState {
        match self.run {
            Run::Absent => AgentState::Waiting,
            Run::Running(_) => AgentState::Leading,
            Run::Ending { .. } => AgentState::Ending,
            Run::Releasing => AgentState::Releasing,
            Run::Away(until) => AgentState::Away(until),
            Run::Ended => AgentState::Ended,
        }
    }

    fn ended(&mut self, code: u8, now: Instant, actions: &mut Vec<AgentAction>) {
        match self.run {
            Run::Running(term) => {
                // The command has ended by itself. No parent looks after the processes that it has left behind.
                self.code = Some(code);
                self.run = Run::Ending { term, since: now };
                actions.push(AgentAction::Terminate);
            }
            Run::Ending { term, since } => {
                // The exit code of a command that was ended because the lock was lost says nothing about the agent.
                if self.stopping && self.code.is_none() {
                    self.code = Some(code);
                }
                if !self.must_kill(term, since, now) {
                    actions.push(AgentAction::Terminate);
                }
            }
            _ => {}
        }
    }

    fn decide(&mut self, now: Instant, actions: &mut Vec<AgentAction>) {
        match self.run {
            // A4: no process lives any more.
            Run::Absent if self.is_over() || self.yielding => {
                self.guard(None, actions);
                self.run = Run::Releasing;
                actions.push(AgentAction::Release);
            }
            Run::Absent => match self.lock {
                // A6.
                Some(lock) if self.last.is_some_and(|last| lock.term <= last) => {
                    self.guard(None, actions);
                    if self.asked.replace(lock.term) != Some(lock.term) {
                        actions.push(AgentAction::Reacquire);
                    }
                }
                // A1.
                Some(lock) if lock.from <= now && now < self.timing.terminate_at(lock) => {
                    // A3: before the command begins.
                    self.guard(Some(lock.until), actions);
                    self.run = Run::Running(lock.term);
                    self.last = Some(lock.term);
                    self.began = now;
                    actions.push(AgentAction::Start { term: lock.term, until: lock.until });
                }
                _ => self.guard(None, actions),
            },
            Run::Running(term) => {
                self.guard_held(term, actions);
                let lasts = self.held(term).is_some_and(|lock| now < self.timing.terminate_at(lock));
                if self.stopping || self.yielding || !lasts {
                    self.run = Run::Ending { term, since: now };
                    let kills = self.must_kill(term, now, now);
                    actions.push(if kills { AgentAction::Kill } else { AgentAction::Terminate });
                }
            }
            Run::Ending { term, since } => {
                self.guard_held(term, actions);
                if self.must_kill(term, since, now) {
                    actions.push(AgentAction::Kill);
                }
            }
            Run::Away(until) if self.stopping || self.is_over() && until <= now => {
                self.run = Run::Ended;
                actions.push(AgentAction::Exit(self.code.unwrap_or(0)));
            }
            // A7.
            Run::Away(until) if until <= now => {
                self.run = Run::Absent;
                actions.push(AgentAction::TakePart);
            }
            Run::Away(_) | Run::Releasing | Run::Ended => {}
        }
    }

    /// Whether the agent has to end as soon as its command has ended.
    fn is_over(&self) -> bool {
        self.stopping || self.code.is_some()
    }

    /// A6: the lock under which the command was started. A lock that was lost and acquired again has another term.
    fn held(&self, term: Term) -> Option<HeldLock> {
        self.lock.filter(|lock| lock.term == term)
    }

    /// When everything is killed, or `None` for now.
    fn kill_at(&self, term: Term, since: Instant) -> Option<Instant> {
        let lock = self.held(term).filter(|_| !self.orphaned)?;
        Some(self.timing.kill_at(lock).min(since + self.timing.stop_timeout))
    }

    fn must_kill(&self, term: Term, since: Instant, now: Instant) -> bool {
        self.kill_at(term, since).is_none_or(|at| at <= now)
    }

    /// A3: after the loss of the lock, the watchdog keeps what it was told: that time is shorter, or over.
    fn guard_held(&mut self, term: Term, actions: &mut Vec<AgentAction>) {
        if let Some(lock) = self.held(term) {
            self.guard(Some(lock.until), actions);
        }
    }

    fn guard(&mut self, until: Option<Instant>, actions: &mut Vec<AgentAction>) {
        if self.guarded != until {
            self.guarded = until;
            actions.push(AgentAction::Guard(until));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AgentAction::{Exit, Guard, Kill, Reacquire, Release, Start, TakePart, Terminate};
    use super::*;

    /// SIGTERM 1.2 s and SIGKILL 0.2 s before the end of the validity.
    const TIMING: AgentTiming = AgentTiming {
        ttl: Duration::from_secs(10),
        grace: Duration::from_secs(1),
        stop_timeout: Duration::from_secs(5),
        away: Duration::from_secs(3),
        shortest_run: Duration::from_secs(1),
    };

    fn at(milliseconds: u64) -> Instant {
        Instant::after_origin(Duration::from_millis(milliseconds))
    }

    fn lock(term: i64, until: u64) -> AgentEvent {
        AgentEvent::Lock(Some(HeldLock { term: Term(term), from: at(0), until: at(until) }))
    }

    /// One whose command runs in term 7, with a lock until second 8.
    fn running() -> Agent {
        let mut agent = Agent::new(TIMING);
        let started = [Guard(Some(at(8000))), Start { term: Term(7), until: at(8000) }];
        assert_eq!(agent.observe(lock(7, 8000), at(0)), started);
        agent
    }

    #[test]
    fn without_a_lock_nothing_runs() {
        let mut agent = Agent::new(TIMING);
        assert_eq!(agent.observe(AgentEvent::Lock(None), at(0)), []);
        assert_eq!(agent.wake_at(at(0)), None);
        assert_eq!(agent.observe(AgentEvent::Stop, at(1)), [Release]);
        assert_eq!(agent.observe(AgentEvent::Released, at(2)), [Exit(0)]);
    }

    /// Shows A1.
    #[test]
    fn a_lock_that_another_one_may_still_rely_on_is_waited_for() {
        let mut agent = Agent::new(TIMING);
        let held = HeldLock { term: Term(7), from: at(500), until: at(8000) };
        assert_eq!(agent.observe(AgentEvent::Lock(Some(held)), at(0)), []);
        assert_eq!(agent.wake_at(at(0)), Some(at(500)));
        assert_eq!(agent.observe(AgentEvent::Tick, at(500)).len(), 2);
    }

    /// Shows A1.
    #[test]
    fn nothing_is_started_that_would_have_to_end_at_once() {
        let mut agent = Agent::new(TIMING);
        assert_eq!(agent.observe(lock(7, 8000), at(6800)), []);
        assert_eq!(agent.observe(lock(7, 9000), at(6801)).len(), 2);
    }

    /// Shows A2.
    #[test]
    fn a_lock_that_is_not_renewed_ends_the_command_before_its_validity() {
        let mut agent = running();
        assert_eq!(agent.wake_at(at(0)), Some(at(6800)));
        assert_eq!(agent.observe(AgentEvent::Tick, at(6799)), []);
        assert_eq!(agent.observe(AgentEvent::Tick, at(6800)), [Terminate]);
        assert_eq!(agent.wake_at(at(6800)), Some(at(7800)));
        assert_eq!(agent.observe(AgentEvent::Tick, at(7800)), [Kill]);
        assert_eq!(agent.wake_at(at(7800)), Some(at(7810)));
        assert_eq!(agent.observe(AgentEvent::Tick, at(7810)), [Kill]);
        assert_eq!(agent.observe(AgentEvent::Ended(137), at(7811)), [Kill]);
        // It is a candidate again.
        assert_eq!(agent.observe(AgentEvent::Gone, at(7812)), [Guard(None), Reacquire]);
        assert_eq!(agent.observe(lock(9, 20_000), at(12_000)).len(), 2);
    }

    /// Shows A2.
    #[test]
    fn a_lock_that_is_known_to_be_lost_ends_the_command_at_once() {
        let mut agent = running();
        assert_eq!(agent.observe(AgentEvent::Lock(None), at(100)), [Kill]);
        assert_eq!(agent.observe(AgentEvent::Gone, at(101)), [Guard(None)]);
    }

    /// Shows A6.
    #[test]
    fn a_lock_in_another_term_was_lost_in_between() {
        let mut agent = running();
        assert_eq!(agent.observe(lock(8, 12_000), at(100)), [Kill]);
        let again = [Guard(Some(at(12_000))), Start { term: Term(8), until: at(12_000) }];
        assert_eq!(agent.observe(AgentEvent::Gone, at(101)), again);
    }

    /// Shows A3.
    #[test]
    fn the_watchdog_hears_of_each_renewal() {
        let mut agent = running();
        assert_eq!(agent.observe(lock(7, 11_000), at(3000)), [Guard(Some(at(11_000)))]);
        assert_eq!(agent.observe(lock(7, 11_000), at(3001)), []);
    }

    /// Shows A6.
    #[test]
    fn each_command_has_a_term_of_its_own() {
        let mut agent = running();
        assert_eq!(agent.observe(AgentEvent::Tick, at(6800)), [Terminate]);
        assert_eq!(agent.observe(AgentEvent::Ended(143), at(6900)), [Terminate]);
        // In the meantime it was renewed after all.
        assert_eq!(agent.observe(lock(7, 14_000), at(6950)), [Guard(Some(at(14_000)))]);
        assert_eq!(agent.observe(AgentEvent::Gone, at(7000)), [Guard(None), Reacquire]);
        assert_eq!(agent.observe(lock(7, 15_000), at(7000)), []);
        assert_eq!(agent.observe(lock(9, 15_000), at(7100)).len(), 2);
    }

    #[test]
    fn a_renewal_that_comes_late_gives_the_command_its_time_to_end() {
        let mut agent = running();
        assert_eq!(agent.observe(AgentEvent::Tick, at(6800)), [Terminate]);
        assert_eq!(agent.observe(lock(7, 30_000), at(7000)), [Guard(Some(at(30_000)))]);
        assert_eq!(agent.wake_at(at(7000)), Some(at(11_800)));
        assert_eq!(agent.observe(AgentEvent::Tick, at(11_800)), [Kill]);
    }

    /// Shows A4.
    #[test]
    fn who_is_asked_to_end_releases_the_lock_when_nothing_lives_any_more() {
        let mut agent = running();
        assert_eq!(agent.observe(AgentEvent::Stop, at(1000)), [Terminate]);
        // Now what it has left behind.
        assert_eq!(agent.observe(AgentEvent::Ended(3), at(1100)), [Terminate]);
        assert_eq!(agent.observe(AgentEvent::Tick, at(6000)), [Kill]);
        assert_eq!(agent.observe(AgentEvent::Gone, at(6001)), [Guard(None), Release]);
        assert_eq!(agent.observe(AgentEvent::Lock(None), at(6002)), []);
        assert_eq!(agent.observe(AgentEvent::Released, at(6003)), [Exit(3)]);
    }

    /// Shows A4.
    #[test]
    fn a_command_that_ends_by_itself_ends_the_agent_with_its_code() {
        let mut agent = running();
        assert_eq!(agent.observe(AgentEvent::Ended(5), at(1000)), [Terminate]);
        assert_eq!(agent.observe(AgentEvent::Gone, at(1001)), [Guard(None), Release]);
        assert_eq!(agent.observe(AgentEvent::Released, at(1002)), [Exit(5)]);
    }

    #[test]
    fn a_command_that_ends_too_soon_delays_the_end_and_not_the_release() {
        let mut agent = running();
        assert_eq!(agent.observe(AgentEvent::Ended(5), at(100)), [Terminate]);
        assert_eq!(agent.observe(AgentEvent::Gone, at(101)), [Guard(None), Release]);
        assert_eq!(agent.observe(AgentEvent::Released, at(110)), []);
        assert_eq!(agent.wake_at(at(110)), Some(at(1000)));
        assert_eq!(agent.observe(AgentEvent::Yield, at(120)), []);
        assert!(!agent.is_yielding(), "it ends, and takes no part again");
        let mut asked = agent.clone();
        assert_eq!(asked.observe(AgentEvent::Stop, at(200)), [Exit(5)]);
        assert_eq!(agent.observe(AgentEvent::Tick, at(999)), []);
        assert_eq!(agent.observe(AgentEvent::Tick, at(1000)), [Exit(5)]);
    }

    #[test]
    fn without_a_watchdog_everything_ends_at_once() {
        let mut agent = running();
        assert_eq!(agent.observe(AgentEvent::Orphaned, at(1000)), [Kill]);
        assert_eq!(agent.observe(AgentEvent::Gone, at(1001)), [Guard(None), Release]);
    }

    #[test]
    fn a_frozen_agent_kills_first() {
        let mut agent = running();
        assert_eq!(agent.observe(AgentEvent::Tick, at(60_000)), [Kill]);
    }

    #[test]
    fn what_the_watchdog_has_killed_did_not_end_by_itself() {
        let mut agent = running();
        assert_eq!(agent.observe(AgentEvent::Ended(137), at(60_000)), [Kill]);
        assert_eq!(agent.observe(AgentEvent::Gone, at(60_001)), [Guard(None), Reacquire]);
        assert_eq!(agent.observe(lock(9, 80_000), at(60_002)).len(), 2);
    }

    /// Shows A7.
    #[test]
    fn who_yields_stays_away_and_then_takes_part_again() {
        let mut agent = running();
        assert_eq!(agent.observe(AgentEvent::Yield, at(1000)), [Terminate]);
        assert!(agent.is_yielding());
        // It is renewed until the command has ended, and killed as for an end.
        assert_eq!(agent.observe(lock(7, 11_000), at(2000)), [Guard(Some(at(11_000)))]);
        assert_eq!(agent.observe(AgentEvent::Tick, at(6000)), [Kill]);
        assert_eq!(agent.observe(AgentEvent::Ended(137), at(6001)), [Kill]);
        assert_eq!(agent.observe(AgentEvent::Gone, at(6002)), [Guard(None), Release]);
        assert_eq!(agent.observe(AgentEvent::Released, at(6100)), []);
        assert_eq!((agent.state(), agent.wake_at(at(6100))), (AgentState::Away(at(9100)), Some(at(9100))));
        assert_eq!(agent.observe(AgentEvent::Yield, at(7000)), []);
        assert!(agent.is_yielding(), "whoever asks again hears the same");
        assert_eq!(agent.observe(AgentEvent::Tick, at(9099)), []);
        assert_eq!(agent.observe(AgentEvent::Tick, at(9100)), [TakePart]);
        assert!(!agent.is_yielding());
        assert_eq!(agent.observe(lock(9, 20_000), at(9200)).len(), 2);
    }

    /// Shows A7.
    #[test]
    fn a_lock_without_a_command_can_be_left_to_others_too() {
        let mut agent = Agent::new(TIMING);
        let held = HeldLock { term: Term(7), from: at(5000), until: at(8000) };
        assert_eq!(agent.observe(AgentEvent::Lock(Some(held)), at(0)), []);
        assert_eq!(agent.observe(AgentEvent::Yield, at(1)), [Release]);
        assert_eq!(agent.observe(AgentEvent::Released, at(2)), []);
        assert_eq!(agent.observe(AgentEvent::Tick, at(3002)), [TakePart]);
    }

    #[test]
    fn who_does_not_hold_the_lock_has_nothing_to_yield() {
        let mut agent = Agent::new(TIMING);
        assert_eq!(agent.observe(AgentEvent::Yield, at(0)), []);
        assert!(!agent.is_yielding());
        assert_eq!(agent.observe(lock(7, 8000), at(1)).len(), 2);
    }

    #[test]
    fn who_is_asked_to_end_while_it_yields_ends() {
        let mut agent = running();
        assert_eq!(agent.observe(AgentEvent::Yield, at(1000)), [Terminate]);
        assert_eq!(agent.observe(AgentEvent::Stop, at(1001)), []);
        assert_eq!(agent.observe(AgentEvent::Ended(143), at(1002)), [Terminate]);
        assert_eq!(agent.observe(AgentEvent::Gone, at(1003)), [Guard(None), Release]);
        assert_eq!(agent.observe(AgentEvent::Released, at(1004)), [Exit(143)]);

        let mut away = running();
        for (event, expected) in [
            (AgentEvent::Yield, vec![Terminate]),
            (AgentEvent::Ended(143), vec![Terminate]),
            (AgentEvent::Gone, vec![Guard(None), Release]),
            (AgentEvent::Released, vec![]),
            (AgentEvent::Stop, vec![Exit(0)]),
        ] {
            assert_eq!(away.observe(event, at(1000)), expected);
        }
        assert_eq!(away.state(), AgentState::Ended);
    }
}
