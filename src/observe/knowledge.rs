//! What is known of the election, and how old that is. Pure: time comes in from outside.

use std::time::Duration;

use lictor_core::{Instant, Timestamp, Version};
use serde::{Deserialize, Serialize};

use super::{Fact, Heard, Leader, Role};

/// What is known of the election.
#[derive(Clone, Debug)]
pub(super) struct Knowledge {
    /// For how long it counts without a new confirmation. None: for ever.
    stale_after: Option<Duration>,
    fact: Option<Fact>,
    version: Version,
    /// When that version was learned.
    learned: Instant,
    /// When the last question was sent that was answered.
    confirmed: Option<Instant>,
    /// The same by this machine's wall clock, for people.
    heard: Option<Timestamp>,
    /// Whether the election was there once.
    found: bool,
    failure: Option<String>,
    ended: bool,
}

/// What is told of the election. Each change of it is an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// What this pod is.
    pub(super) role: Role,
    /// The leader that was heard of last.
    pub(super) leader: Option<Leader>,
    pub(super) term: Option<i64>,
    pub(super) since: Option<Timestamp>,
    /// Nothing was heard for too long, or nothing ever.
    pub(super) stale: bool,
    /// This process ends.
    pub(super) ended: bool,
}

impl Knowledge {
    pub(super) fn new(stale_after: Option<Duration>) -> Self {
        Self {
            stale_after,
            fact: None,
            version: Version::default(),
            learned: Instant::default(),
            confirmed: None,
            heard: None,
            found: false,
            failure: None,
            ended: false,
        }
    }

    /// Takes what a source tells.
    pub(super) fn hear(&mut self, heard: Heard, now: Instant, wall: Timestamp) {
        match heard {
            Heard::Confirmed { sent, version, fact } => {
                // What was asked after a version was known shows that version or a later one, unless the store has gone back.
                if version >= self.version || sent >= self.learned {
                    self.learn(version, fact, now);
                }
                // An answer to an earlier question, or one that is told again, makes nothing younger.
                if Some(sent) > self.confirmed {
                    let ago = i64::try_from(now.since(sent).as_millis()).unwrap_or(i64::MAX);
                    (self.confirmed, self.heard) = (Some(sent), Some(Timestamp(wall.0.saturating_sub(ago))));
                    self.failure = None;
                }
            }
            // It does not say until when nothing else has happened: what is known gets no younger by it.
            Heard::Changed { version, fact } if version >= self.version => self.learn(version, fact, now),
            Heard::Changed { .. } => {}
            Heard::Rewound => self.version = Version::default(),
            Heard::Failed(why) => self.failure = Some(why),
        }
    }

    fn learn(&mut self, version: Version, fact: Fact, now: Instant) {
        self.found |= !fact.missing;
        (self.version, self.learned, self.fact) = (version, now, Some(fact));
    }

    /// Notes that this process ends. From now on it knows nothing.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Returns what is told.
    pub(super) fn state(&self, now: Instant) -> State {
        let nothing = Fact { role: Role::Follower, ..Fact::default() };
        let (fact, certain) = match &self.fact {
            None => return State { stale: true, ended: self.ended, ..State::default() },
            Some(fact) => match fact.until {
                None => (fact, false),
                Some(until) if now < until => (fact, true),
                // It leads no more, whoever does.
                Some(_) => (&nothing, true),
            },
        };
        let stale = self.stale_at().is_none_or(|at| at <= now) && !(certain && fact.role == Role::Leader);
        State {
            role: if self.ended || stale && !certain { Role::Unknown } else { fact.role },
            leader: fact.leader.clone(),
            term: fact.term,
            since: fact.since,
            stale,
            ended: self.ended,
        }
    }

    /// Returns when what is told changes, if nothing is heard until then. None: not at all.
    pub(super) fn next_change(&self, now: Instant) -> Option<Instant> {
        let until = self.fact.as_ref().and_then(|fact| fact.until);
        [self.stale_at(), until].into_iter().flatten().filter(|at| now < *at).min()
    }

    /// Returns how old what is known is at most. None: nothing was heard yet.
    pub(super) fn age(&self, now: Instant) -> Option<Duration> {
        self.confirmed.map(|confirmed| now.since(confirmed))
    }

    /// Returns when it counts no more. None: nothing was confirmed yet.
    fn stale_at(&self) -> Option<Instant> {
        let confirmed = self.confirmed?;
        Some(confirmed + self.stale_after.unwrap_or(Duration::MAX))
    }

    pub(super) fn stale_after(&self) -> Option<Duration> {
        self.stale_after
    }

    /// Whether the election was there once.
    pub(super) fn is_found(&self) -> bool {
        self.found
    }

    /// Returns what is odd about what was heard.
    pub(super) fn note(&self) -> Option<&str> {
        self.fact.as_ref()?.note.as_deref()
    }

    /// Returns when the last question was sent that was answered, by this machine's wall clock.
    pub(super) fn heard(&self) -> Option<Timestamp> {
        self.heard
    }

    /// Returns why nothing is heard at present, or what is odd about what was heard.
    pub(super) fn problem(&self) -> Option<&str> {
        self.failure.as_deref().or_else(|| self.note())
    }

    /// Returns why nothing is heard at present.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADS: Role = Role::Leader;
    const FOLLOWS: Role = Role::Follower;

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn fact(role: Role, term: i64) -> Fact {
        Fact { role, term: Some(term), ..Fact::default() }
    }

    fn known(stale_after: Option<u64>) -> Knowledge {
        Knowledge::new(stale_after.map(Duration::from_secs))
    }

    fn confirm(known: &mut Knowledge, sent: u64, version: u64, role: Role, now: u64) {
        let heard = Heard::Confirmed { sent: at(sent), version: Version(version), fact: fact(role, 1) };
        known.hear(heard, at(now), Timestamp(0));
    }

    fn change(known: &mut Knowledge, version: u64, role: Role, now: u64) {
        known.hear(Heard::Changed { version: Version(version), fact: fact(role, 1) }, at(now), Timestamp(0));
    }

    #[test]
    fn age_counts_from_when_the_question_was_sent() {
        let mut known = known(Some(30));
        assert_eq!((known.age(at(5)), known.state(at(5)).role, known.state(at(5)).stale), (None, Role::Unknown, true));
        confirm(&mut known, 5, 1, LEADS, 9);
        assert_eq!(known.age(at(10)), Some(Duration::from_secs(5)));
        assert_eq!(known.state(at(34)).role, LEADS);
        let state = known.state(at(35));
        assert_eq!((state.role, state.stale, state.term), (Role::Unknown, true, Some(1)), "30 s after it was sent");
        // What was asked before, and is answered later, makes nothing older.
        confirm(&mut known, 40, 1, LEADS, 41);
        confirm(&mut known, 38, 1, LEADS, 42);
        assert_eq!(known.age(at(42)), Some(Duration::from_secs(2)));
    }

    #[test]
    fn when_it_was_heard_of_last_agrees_with_how_old_that_is() {
        let mut known = known(Some(30));
        let mut confirm = |sent: u64, now: u64| {
            let heard = Heard::Confirmed { sent: at(sent), version: Version(1), fact: fact(LEADS, 1) };
            known.hear(heard, at(now), Timestamp(i64::try_from(now * 1000).unwrap()));
            known.heard()
        };
        // A question that waits for a change is answered when there is none for long.
        assert_eq!(confirm(5, 20), Some(Timestamp(5_000)));
        // The same is told again, because something else has changed.
        assert_eq!(confirm(5, 26), Some(Timestamp(5_000)));
        assert_eq!(confirm(28, 29), Some(Timestamp(28_000)));
        assert_eq!(known.age(at(29)), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_change_is_believed_and_makes_nothing_younger() {
        let mut known = known(Some(30));
        change(&mut known, 1, LEADS, 1);
        assert_eq!(known.state(at(1)).role, Role::Unknown, "nobody knows how old it is");
        confirm(&mut known, 1, 1, FOLLOWS, 2);
        change(&mut known, 2, LEADS, 20);
        assert_eq!((known.state(at(30)).role, known.state(at(31)).role), (LEADS, Role::Unknown));
    }

    #[test]
    fn what_is_older_than_what_is_known_is_not_believed_unless_the_store_has_gone_back() {
        let mut known = known(Some(30));
        confirm(&mut known, 1, 5, FOLLOWS, 1);
        change(&mut known, 4, LEADS, 2);
        assert_eq!(known.state(at(2)).role, FOLLOWS);
        change(&mut known, 6, LEADS, 3);
        // It was asked before version 6 was known.
        confirm(&mut known, 2, 5, FOLLOWS, 4);
        assert_eq!(known.state(at(4)).role, LEADS);
        // It was asked after that.
        confirm(&mut known, 4, 5, FOLLOWS, 5);
        assert_eq!(known.state(at(5)).role, FOLLOWS);
        known.hear(Heard::Rewound, at(6), Timestamp(0));
        change(&mut known, 1, LEADS, 6);
        assert_eq!(known.state(at(6)).role, LEADS);
    }

    /// As of an agent: it holds its lock until a moment that it knows, and no longer.
    #[test]
    fn who_holds_a_lock_leads_until_that_is_over_and_not_a_moment_longer() {
        let mut known = known(Some(30));
        let hear = |known: &mut Knowledge, sent, until, role| {
            let fact = Fact { until: Some(at(until)), ..fact(role, 1) };
            known.hear(Heard::Confirmed { sent: at(sent), version: Version(1), fact }, at(sent), Timestamp(0));
        };
        hear(&mut known, 0, 100, LEADS);
        assert_eq!((known.state(at(99)).role, known.state(at(99)).stale), (LEADS, false), "it needs no confirmation");
        assert_eq!(known.next_change(at(40)), Some(at(100)));
        let over = known.state(at(100));
        assert_eq!((over.role, over.leader, over.term, over.stale), (FOLLOWS, None, None, true));
        // Who does not hold it knows that, too; who else does was heard.
        hear(&mut known, 200, 1_000_000, FOLLOWS);
        assert_eq!((known.state(at(229)).role, known.state(at(229)).stale), (FOLLOWS, false));
        assert_eq!(known.next_change(at(229)), Some(at(230)));
        assert_eq!((known.state(at(230)).role, known.state(at(230)).stale), (FOLLOWS, true));
        known.end();
        assert_eq!(known.state(at(229)).role, Role::Unknown);
    }

    #[test]
    fn without_a_limit_it_counts_for_ever_and_at_the_end_nobody_leads() {
        let mut known = known(None);
        assert!(known.state(at(1)).stale, "nothing was heard yet");
        confirm(&mut known, 1, 1, LEADS, 1);
        known.hear(Heard::Failed("away".into()), at(2), Timestamp(0));
        assert_eq!((known.state(at(1_000_000)).role, known.problem()), (LEADS, Some("away")));
        known.end();
        let state = known.state(at(3));
        assert_eq!((state.role, state.ended), (Role::Unknown, true));
    }
}
