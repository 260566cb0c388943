//! The lock at one key in Consul, for a holder with a session of its own: when to try to acquire it, and whether the holder has it.
//!
//! [`SessionLife`](super::SessionLife) judges whether the session is valid.

use std::time::Duration;

use super::backoff::Backoff;
use super::{Instant, Version};

/// A key, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenKey {
    /// The key's version.
    pub version: Version,
    /// The session that holds the key.
    pub session: Option<String>,
}

/// The next action that a lock needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyCommand {
    /// Read the key, past every cache.
    Read,
    /// Lock the key, by compare-and-swap.
    Lock {
        /// The session to lock it with.
        session: String,
        /// The version last seen, or `None` if there is no such key.
        expected: Option<Version>,
    },
    /// Do nothing before this moment, unless an event comes, or, with `None`, until an event comes.
    Wait(Option<Instant>),
}

/// One key, as a process sees it that wants to hold it.
#[derive(Clone, Debug)]
pub struct KeyLock {
    ttl: Duration,
    /// The session, while it is valid.
    session: Option<String>,
    seen: Seen,
    /// The highest version that was seen. An older version says nothing.
    known: Version,
    /// The version of this process's own write that acquired the lock.
    held: Option<Version>,
    backoff: Backoff,
    not_before: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Unknown,
    Absent,
    Present(SeenKey),
}

impl KeyLock {
    /// A key of which nothing is known. `owner` seeds the jitter, `ttl` is that of the sessions.
    pub fn new(owner: &str, ttl: Duration) -> Self {
        let (known, not_before) = (Version::default(), Instant::default());
        Self { ttl, session: None, seen: Seen::Unknown, known, held: None, backoff: Backoff::new(owner), not_before }
    }

    /// Sets the session that the key is to be locked with, or `None` if there is no valid one. A6: a holder that was without a session for
    /// a moment acquires the lock again, in another term.
    pub fn session(&mut self, session: Option<&str>) {
        if self.session.as_deref() != session {
            self.session = session.map(str::to_owned);
            self.held = None;
        }
    }

    /// Takes the key as an answer of this index shows it, or `None` if there is no such key. Returns whether that is news: a later version
    /// may be known.
    pub fn observe(&mut self, index: Version, key: Option<SeenKey>, now: Instant) -> bool {
        let version = key.as_ref().map_or(index, |key| key.version);
        if version < self.known {
            return false;
        }
        self.known = version;
        let next = key.map_or(Seen::Absent, Seen::Present);
        if next == Seen::Absent && self.holder().is_some_and(|holder| Some(holder) != self.session.as_deref()) {
            // C6: the holder did not release the key, and may not know yet.
            self.not_before = self.not_before.max(now + self.ttl);
        }
        self.seen = next;
        if self.holder().is_none() || self.holder() != self.session.as_deref() {
            self.held = None;
        }
        true
    }

    /// A6: acquires the lock again, in another term, although it is held.
    pub fn reacquire(&mut self) {
        self.held = None;
    }

    /// Takes the answer of a consistent read that there is no such key.
    pub fn absent(&mut self, now: Instant) {
        self.observe(self.known, None, now);
    }

    /// Forgets all that was seen before, because Consul's indexes have gone back: it was put back to an earlier state.
    pub fn forget(&mut self) {
        (self.seen, self.known, self.held) = (Seen::Unknown, Version::default(), None);
    }

    /// The next action.
    pub fn next(&self, now: Instant) -> KeyCommand {
        let wait = |until: Instant| (now < until).then_some(KeyCommand::Wait(Some(until)));
        let until = self.backoff.waits(now).map_or(self.not_before, |until| until.max(self.not_before));
        let expected = match &self.seen {
            Seen::Unknown => return wait(until).unwrap_or(KeyCommand::Read),
            Seen::Absent => None,
            Seen::Present(key) => Some(key.version),
        };
        // The key is free, or held by an earlier process in this one's place, which is gone (A5), or locked by a request whose answer was
        // lost: the version of a write of this process is its term (A6).
        let may_have = |own: &&String| self.holder().is_none_or(|holder| holder == *own) && self.held.is_none();
        match self.session.as_ref().filter(may_have) {
            Some(own) => wait(until).unwrap_or(KeyCommand::Lock { session: own.clone(), expected }),
            None => KeyCommand::Wait(None),
        }
    }

    /// Notes that a request to lock the key with this session succeeded.
    pub fn locked(&mut self, session: &str, version: Version) {
        self.backoff.reset();
        if version < self.known {
            return;
        }
        self.known = version;
        self.seen = Seen::Present(SeenKey { version, session: Some(session.to_owned()) });
        self.held = (self.session.as_deref() == Some(session)).then_some(version);
    }

    /// Notes that Consul gives the key to no session yet, because of its lock delay.
    pub fn delayed(&mut self, now: Instant) {
        self.backoff.delay_shortly(now);
    }

    /// Notes a refusal, because the key is not as it was seen.
    pub fn overtaken(&mut self) {
        self.seen = Seen::Unknown;
    }

    /// Notes that a request failed. If it may have been carried out, the key has to be read.
    pub fn failed(&mut self, may_be_done: bool, now: Instant) {
        self.backoff.delay(now);
        if may_be_done {
            self.seen = Seen::Unknown;
        }
    }

    /// The version under which this process acquired the lock, while it holds it.
    pub fn held(&self) -> Option<Version> {
        self.held
    }

    /// Whether the key had no holder when it was last seen.
    pub fn is_free(&self) -> bool {
        match &self.seen {
            Seen::Unknown => false,
            Seen::Absent => true,
            Seen::Present(key) => key.session.is_none(),
        }
    }

    /// The session that held the key when it was last seen.
    pub fn holder(&self) -> Option<&str> {
        match &self.seen {
            Seen::Present(key) => key.session.as_deref(),
            Seen::Unknown | Seen::Absent => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn seen(version: u64, session: Option<&str>) -> SeenKey {
        SeenKey { version: Version(version), session: session.map(Into::into) }
    }

    fn lock(expected: Option<u64>) -> KeyCommand {
        KeyCommand::Lock { session: "own".into(), expected: expected.map(Version) }
    }

    /// One with a valid session, that has seen this at second 0.
    fn key(index: u64, key: impl Into<Option<SeenKey>>) -> KeyLock {
        let mut lock = KeyLock::new("a", Duration::from_secs(10));
        assert_eq!(lock.next(at(0)), KeyCommand::Read);
        lock.session(Some("own"));
        lock.observe(Version(index), key.into(), at(0));
        lock
    }

    #[test]
    fn a_key_of_which_nothing_is_known_is_not_called_free() {
        let mut held = key(5, seen(4, Some("theirs")));
        assert!(!held.is_free());
        held.failed(true, at(1));
        assert!(!held.is_free(), "nothing was answered");
        held.observe(Version(6), Some(seen(6, None)), at(2));
        assert!(held.is_free());
        held.forget();
        assert!(!held.is_free());
        assert!(key(5, None).is_free());
    }

    #[test]
    fn a_free_key_is_locked_at_once() {
        let mut free = key(5, None);
        assert_eq!(free.next(at(0)), lock(None));
        free.locked("own", Version(6));
        assert_eq!((free.held(), free.next(at(0))), (Some(Version(6)), KeyCommand::Wait(None)));
        assert_eq!(key(5, seen(4, None)).next(at(0)), lock(Some(4)));
    }

    #[test]
    fn without_a_session_nothing_is_locked() {
        let mut free = key(5, None);
        free.session(None);
        assert_eq!(free.next(at(0)), KeyCommand::Wait(None));
    }

    #[test]
    fn who_holds_it_is_waited_for() {
        let mut held = key(5, seen(5, Some("other")));
        assert_eq!(held.next(at(0)), KeyCommand::Wait(None));
        held.observe(Version(6), Some(seen(6, None)), at(3));
        assert_eq!(held.next(at(3)), lock(Some(6)));
        held.delayed(at(3));
        assert!(matches!(held.next(at(3)), KeyCommand::Wait(Some(until)) if until < at(4)));
    }

    /// Shows A6.
    #[test]
    fn what_an_earlier_process_holds_is_locked_anew_for_a_term_of_ones_own() {
        let mut held = key(5, seen(5, Some("own")));
        assert_eq!((held.held(), held.next(at(0))), (None, lock(Some(5))));
        held.locked("own", Version(9));
        assert_eq!(held.held(), Some(Version(9)));
        // Somebody writes another value: the lock stays.
        held.observe(Version(11), Some(seen(11, Some("own"))), at(1));
        assert_eq!(held.held(), Some(Version(9)));
        held.session(None);
        held.session(Some("own"));
        assert_eq!((held.held(), held.next(at(2))), (None, lock(Some(11))));
        held.locked("own", Version(12));
        held.reacquire();
        assert_eq!((held.held(), held.next(at(2))), (None, lock(Some(12))));
    }

    #[test]
    fn an_answer_that_is_older_than_ones_own_write_says_nothing() {
        let mut held = key(5, None);
        held.locked("own", Version(9));
        assert!(!held.observe(Version(7), None, at(1)));
        assert!(!held.observe(Version(9), Some(seen(8, Some("other"))), at(1)));
        assert_eq!(held.held(), Some(Version(9)));
        assert!(held.observe(Version(10), None, at(1)));
        assert_eq!((held.held(), held.next(at(1))), (None, lock(None)));
    }

    #[test]
    fn a_lock_that_somebody_took_is_not_held() {
        for taken in [seen(10, Some("other")), seen(10, None)] {
            let mut held = key(5, None);
            held.locked("own", Version(9));
            held.observe(Version(10), Some(taken), at(1));
            assert_eq!(held.held(), None);
        }
    }

    /// Shows C6.
    #[test]
    fn a_key_that_vanished_under_its_holder_is_left_alone_for_a_ttl() {
        let mut held = key(5, seen(5, Some("other")));
        held.observe(Version(6), None, at(3));
        assert_eq!(held.next(at(3)), KeyCommand::Wait(Some(at(13))));
        assert_eq!(held.next(at(13)), lock(None));
    }

    #[test]
    fn what_may_be_done_is_read_again() {
        let mut free = key(5, None);
        free.failed(true, at(0));
        assert!(matches!(free.next(at(0)), KeyCommand::Wait(Some(_))));
        assert_eq!(free.next(at(1)), KeyCommand::Read);
        free.observe(Version(6), Some(seen(6, Some("own"))), at(1));
        assert_eq!(free.next(at(1)), lock(Some(6)));
        free.overtaken();
        assert_eq!(free.next(at(1)), KeyCommand::Read);
        free.forget();
        free.observe(Version(1), None, at(1));
        assert_eq!(free.next(at(1)), lock(None));
    }

    #[test]
    fn an_answer_to_a_session_that_ended_meanwhile_holds_nothing() {
        let mut free = key(5, None);
        free.session(Some("next"));
        free.locked("own", Version(6));
        assert_eq!((free.held(), free.next(at(0))), (None, KeyCommand::Wait(None)));
    }
}
