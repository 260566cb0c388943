//! The knowledge of the election, and its age. Pure: time comes in from outside.

use std::time::Duration;

use lictor_core::{Instant, Timestamp, Version};
use serde::{Deserialize, Serialize};

use super::{Fact, Heard, Leader, Role};

/// The knowledge of the election.
#[derive(Clone, Debug)]
pub(super) struct Knowledge {
    /// How long the knowledge counts without a new confirmation; `None` means for ever.
    stale_after: Option<Duration>,
    fact: Option<Fact>,
    version: Version,
    /// When that version was learned.
    learned: Instant,
    /// When the last answered question was sent.
    confirmed: Option<Instant>,
    /// The same by this machine's wall clock, for people.
    heard: Option<Timestamp>,
    /// Whether the election has existed.
    found: bool,
    failure: Option<String>,
    ended: bool,
}

/// The published state of the election. Each change is an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// The role of this pod.
    pub(super) role: Role,
    /// The last known leader.
    pub(super) leader: Option<Leader>,
    pub(super) term: Option<i64>,
    pub(super) since: Option<Timestamp>,
    /// Whether there was no news for too long, or never.
    pub(super) stale: bool,
    /// Whether this process is ending.
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

    /// Takes news from a source.
    pub(super) fn hear(&mut self, heard: Heard, now: Instant, wall: Timestamp) {
        match heard {
            Heard::Confirmed { sent, version, fact } => {
                // An answer to a question that was sent after a version was known shows that version or a later one, unless the store has
                // gone back.
                if version >= self.version || sent >= self.learned {
                    self.learn(version, fact, now);
                }
                // An answer to an earlier question, or a repeated answer, does not make the knowledge younger.
                if Some(sent) > self.confirmed {
                    let ago = i64::try_from(now.since(sent).as_millis()).unwrap_or(i64::MAX);
                    (self.confirmed, self.heard) = (Some(sent), Some(Timestamp(wall.0.saturating_sub(ago))));
                    self.failure = None;
                }
            }
            // A change does not say until when nothing else has happened, so it does not make the knowledge younger.
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

    /// Notes that this process is ending. From now on it claims no knowledge.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Returns the published state.
    pub(super) fn state(&self, now: Instant) -> State {
        let nothing = Fact { role: Role::Follower, ..Fact::default() };
        let (fact, certain) = match &self.fact {
            None => return State { stale: true, ended: self.ended, ..State::default() },
            Some(fact) => match fact.until {
                None => (fact, false),
                Some(until) if now < until => (fact, true),
                // This pod no longer leads, whoever does.
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

    /// Returns when the published state changes if there is no news until then, or `None` if it does not change.
    pub(super) fn next_change(&self, now: Instant) -> Option<Instant> {
        let until = self.fact.as_ref().and_then(|fact| fact.until);
        [self.stale_at(), until].into_iter().flatten().filter(|at| now < *at).min()
    }

    /// Returns the greatest possible age of the knowledge, or `None` if there was no news yet.
    pub(super) fn age(&self, now: Instant) -> Option<Duration> {
        self.confirmed.map(|confirmed| now.since(confirmed))
    }

    /// Returns when the knowledge stops counting, or `None` if it was never confirmed.
    fn stale_at(&self) -> Option<Instant> {
        let confirmed = self.confirmed?;
        Some(confirmed + self.stale_after.unwrap_or(Duration::MAX))
    }

    pub(super) fn stale_after(&self) -> Option<Duration> {
        self.stale_after
    }

    /// Whether the election has existed.
    pub(super) fn is_found(&self) -> bool {
        self.found
    }

    /// Returns the oddity of the last news.
    pub(super) fn note(&self) -> Option<&str> {
        self.fact.as_ref()?.note.as_deref()
    }

    /// Returns when the last answered question was sent, by this machine's wall clock.
    pub(super) fn heard(&self) -> Option<Timestamp> {
        self.heard
    }

    /// Returns why there is no news at present, or the oddity of the last news.
    pub(super) fn problem(&self) -> Option<&str> {
        self.failure.as_deref().or_else(|| self.note())
    }

    /// Returns why there is no news at present.
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
        // An answer to an earlier question that comes late does not make the knowledge older.
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
        // A blocking question is answered even if nothing changes for long.
        assert_eq!(confirm(5, 20), Some(Timestamp(5_000)));
        // The same content comes again, because something else has changed.
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
        // The question was sent before version 6 was known.
        confirm(&mut known, 2, 5, FOLLOWS, 4);
        assert_eq!(known.state(at(4)).role, LEADS);
        // The question was sent after that.
        confirm(&mut known, 4, 5, FOLLOWS, 5);
        assert_eq!(known.state(at(5)).role, FOLLOWS);
        known.hear(Heard::Rewound, at(6), Timestamp(0));
        change(&mut known, 1, LEADS, 6);
        assert_eq!(known.state(at(6)).role, LEADS);
    }

    /// As for an agent, which holds its lock until a moment that it knows, and no longer.
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
        // An agent without the lock knows that, too, but has only heard who holds the lock.
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
