//! The watchdog looks after an agent from outside, so that no process of the agent outlives the lock, whatever becomes of the agent (A3).

use super::Instant;

/// The watchdog of one agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watchdog {
    until: Option<Instant>,
    /// The moment by which the agent must have said something, after it was asked to end.
    heard_by: Option<Instant>,
    ended: bool,
}

/// The action of a watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogCommand {
    /// Do nothing before this moment, unless an event comes, or, with `None`, until an event comes.
    Wait(Option<Instant>),
    /// Kill the processes that the agent runs, but not the agent itself. Then ask again.
    KillCommand,
    /// Kill the agent itself, which hangs. Then ask again.
    KillAgent,
    /// Kill everything, because the agent has ended. Then end.
    KillAll,
}

impl Watchdog {
    /// Takes the moment until which the agent's command may live, or `None` if there is no command.
    pub fn told(&mut self, until: Option<Instant>) {
        (self.until, self.heard_by) = (until, None);
    }

    /// Notes that the agent was asked to end. Any message from it before `by` shows that it does so.
    pub fn asked_to_end(&mut self, by: Instant) {
        self.heard_by = self.heard_by.or(Some(by));
    }

    /// Notes that the whole command is gone. The agent starts no other one before it says the moment until which that may live.
    pub fn cleared(&mut self) {
        self.until = None;
    }

    /// Notes that the agent has ended.
    pub fn ended(&mut self) {
        self.ended = true;
    }

    /// The next action.
    pub fn next(&self, now: Instant) -> WatchdogCommand {
        match self.until {
            _ if self.ended => WatchdogCommand::KillAll,
            _ if self.heard_by.is_some_and(|by| by <= now) => WatchdogCommand::KillAgent,
            Some(until) if until <= now => WatchdogCommand::KillCommand,
            until => WatchdogCommand::Wait(until.into_iter().chain(self.heard_by).min()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    /// Shows A3.
    #[test]
    fn a_command_that_outlives_the_lock_is_killed() {
        let mut watchdog = Watchdog::default();
        assert_eq!(watchdog.next(at(0)), WatchdogCommand::Wait(None));
        watchdog.told(Some(at(8)));
        assert_eq!(watchdog.next(at(7)), WatchdogCommand::Wait(Some(at(8))));
        assert_eq!(watchdog.next(at(8)), WatchdogCommand::KillCommand);
        assert_eq!(watchdog.next(at(9)), WatchdogCommand::KillCommand);
        watchdog.cleared();
        assert_eq!(watchdog.next(at(9)), WatchdogCommand::Wait(None));
        watchdog.told(Some(at(20)));
        watchdog.told(None);
        assert_eq!(watchdog.next(at(30)), WatchdogCommand::Wait(None));
    }

    /// Shows A3.
    #[test]
    fn an_agent_that_was_asked_to_end_and_says_nothing_is_killed() {
        let mut watchdog = Watchdog::default();
        watchdog.told(Some(at(8)));
        watchdog.asked_to_end(at(5));
        watchdog.asked_to_end(at(6));
        assert_eq!(watchdog.next(at(1)), WatchdogCommand::Wait(Some(at(5))));
        assert_eq!(watchdog.next(at(5)), WatchdogCommand::KillAgent);
        watchdog.ended();
        assert_eq!(watchdog.next(at(5)), WatchdogCommand::KillAll);

        let mut watchdog = Watchdog::default();
        watchdog.asked_to_end(at(5));
        watchdog.told(None);
        assert_eq!(watchdog.next(at(9)), WatchdogCommand::Wait(None), "it ends by itself");
    }

    /// Shows A3.
    #[test]
    fn nothing_outlives_the_agent() {
        let mut watchdog = Watchdog::default();
        watchdog.told(Some(at(8)));
        watchdog.ended();
        assert_eq!(watchdog.next(at(1)), WatchdogCommand::KillAll);
        watchdog.told(None);
        assert_eq!(watchdog.next(at(1)), WatchdogCommand::KillAll);
    }
}
