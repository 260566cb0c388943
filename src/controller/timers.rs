//! The moment of a decision, and the time at which each election is looked at again if nothing else happens.

use std::collections::{BTreeSet, HashMap};

use lictor_core::{Instant, Timestamp};

use super::names::ElectionName;

/// The moment of a decision.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Instant,
    /// The same moment, for people.
    pub(super) wall: Timestamp,
}

/// The soonest of several moments, if any.
#[derive(Default)]
pub(super) struct Soonest(Option<Instant>);

impl Soonest {
    pub(super) fn add(&mut self, at: impl Into<Option<Instant>>) {
        self.0 = [self.0, at.into()].into_iter().flatten().min();
    }

    pub(super) fn get(&self) -> Option<Instant> {
        self.0
    }
}

/// One moment for each election: the soonest that was requested since the election was last looked at.
#[derive(Default)]
pub(super) struct Timers {
    due: HashMap<ElectionName, Instant>,
    order: BTreeSet<(Instant, ElectionName)>,
}

impl Timers {
    /// Requests a look at an election at this moment, unless an earlier one is requested.
    pub(super) fn add(&mut self, at: Instant, election: ElectionName) {
        if self.due.get(&election).is_some_and(|due| *due <= at) {
            return;
        }
        self.cancel(&election);
        self.order.insert((at, election.clone()));
        self.due.insert(election, at);
    }

    /// Drops the request for an election that is being looked at now, because the decision makes new ones.
    pub(super) fn cancel(&mut self, election: &ElectionName) {
        if let Some((election, at)) = self.due.remove_entry(election) {
            self.order.remove(&(at, election));
        }
    }

    /// The soonest moment.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes one election that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<ElectionName> {
        let (at, election) = self.order.first().filter(|(at, _)| *at <= now)?.clone();
        self.order.remove(&(at, election.clone()));
        self.due.remove(&election);
        Some(election)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::controller::names::Namespace;

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn name(name: &str) -> ElectionName {
        Namespace::from("shop").election(name)
    }

    #[test]
    fn an_election_has_one_moment_the_soonest() {
        let mut timers = Timers::default();
        for seconds in [5, 3, 4] {
            timers.add(at(seconds), name("a"));
        }
        timers.add(at(4), name("b"));
        assert_eq!(timers.next(), Some(at(3)));
        assert_eq!(timers.take_due(at(2)), None);
        assert_eq!(timers.take_due(at(9)), Some(name("a")));
        assert_eq!(timers.take_due(at(9)), Some(name("b")));
        assert_eq!(timers.take_due(at(9)), None, "the later moments of a went with the first");
    }

    #[test]
    fn one_that_is_looked_at_asks_anew() {
        let mut timers = Timers::default();
        timers.add(at(3), name("a"));
        timers.cancel(&name("a"));
        assert_eq!(timers.next(), None);
        timers.add(at(8), name("a"));
        assert_eq!(timers.next(), Some(at(8)));
        timers.clear();
        assert_eq!(timers.take_due(at(9)), None);
    }
}
