//! The life of this cluster's own session: when its object is read and replaced, and how long this cluster may rely on it.

use std::time::Duration;

use super::object::{ObjectTag, SessionObject};
use crate::backoff::{Backoff, seed_of};
use crate::session::{SessionParameters, spread};
use crate::{Instant, LockValidity};

/// The next action that a session needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CasCommand {
    /// Read the session's object.
    Read,
    /// Write the session's object: create it if `expected` is `None`, or else replace it if it still has this tag.
    Write {
        /// The tag of the state that is replaced.
        expected: Option<ObjectTag>,
        /// The new state.
        object: SessionObject,
    },
    /// Do nothing before this moment.
    Wait(Instant),
}

/// The outcome of a write of the session's object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionWrite {
    /// The object has the new state, under this tag.
    Done(ObjectTag),
    /// The object has another state than expected.
    Conflict,
    /// The store refused, and did nothing.
    Refused,
    /// The store may have done it, may not have, or may still do so later.
    Unknown,
}

/// The life of one session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CasSession {
    parameters: SessionParameters,
    installation: String,
    /// This process, which is unique among all of all times.
    writer: String,
    seed: u64,
    state: State,
    /// The ID of the last session of this cluster.
    last: Option<String>,
    /// B1: when the last renewal of that session that succeeded was sent, and its TTL.
    renewed: Option<(Instant, Duration)>,
    /// A write whose outcome is unknown, and when it was sent.
    doubtful: Option<(SessionObject, Instant)>,
    /// The validity while no session is renewed: there was none, or the last one ended.
    without: LockValidity,
    suspected: bool,
    /// C15: the session is not renewed, because its owner may not write the locks that it holds.
    held_off: bool,
    /// A number that no two writes have that may be mistaken for each other: it rises with each new session, and with each write whose
    /// outcome stays unknown.
    made: u64,
    /// Until when this cluster could rely on the last session of all that were lost.
    relied: Instant,
    /// C14: the TTL of another installation's session by this name, if that was read last.
    namesake: Option<Duration>,
    /// Until when that installation may rely on its session, whose object a person has deleted.
    theirs: Instant,
    backoff: Backoff,
    /// The earliest moment of the next request.
    not_before: Instant,
}

/// What this process knows of the object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Nothing, or nothing that still holds.
    Unread,
    /// There is none.
    Absent,
    /// Its state, which is `None` if a person has written something else there.
    Read(ObjectTag, Option<SessionObject>),
}

impl CasSession {
    const LONGEST_RETRY: Duration = Duration::from_secs(4);

    /// Creates the life of a session of which nothing is known. `writer` names this process, and no other one of any time.
    pub fn new(installation: &str, writer: &str, parameters: SessionParameters) -> Self {
        Self::with_seed(seed_of(writer), installation, writer, parameters)
    }

    /// The same without jitter if the seed is 0.
    pub fn with_seed(seed: u64, installation: &str, writer: &str, parameters: SessionParameters) -> Self {
        Self {
            parameters,
            installation: installation.to_owned(),
            writer: writer.to_owned(),
            seed,
            state: State::Unread,
            last: None,
            renewed: None,
            doubtful: None,
            without: LockValidity::Unknown,
            suspected: false,
            held_off: false,
            made: 0,
            relied: Instant::default(),
            namesake: None,
            theirs: Instant::default(),
            backoff: Backoff::with_seed(seed),
            not_before: Instant::default(),
        }
    }

    /// The next action.
    pub fn next(&self, now: Instant) -> CasCommand {
        let (due, command) = match &self.state {
            State::Unread => (self.not_before, CasCommand::Read),
            // A person has deleted the object. The others wait for the whole TTL, unless a new session shows them that the last one is over.
            State::Absent => (self.not_before.max(self.relied), self.make(None)),
            // Its owner renews it, or the watch ends it.
            State::Read(_, Some(object)) if !object.ended && object.installation != self.installation => {
                (self.not_before, CasCommand::Read)
            }
            State::Read(_, Some(object)) if !object.ended && self.held_off => (self.not_before, CasCommand::Read),
            State::Read(tag, Some(object)) if !object.ended => {
                let due = self.renewed.filter(|_| !self.suspected).map_or(self.not_before, |(sent, ttl)| {
                    let interval = SessionParameters { ttl: ttl.min(self.parameters.ttl) }.renewal();
                    (sent + interval - spread(self.seed, object.renewals, interval)).max(self.not_before)
                });
                (due, CasCommand::Write { expected: Some(tag.clone()), object: self.renewal(object) })
            }
            State::Read(tag, None) => (self.not_before.max(self.relied), self.make(Some(tag.clone()))),
            State::Read(tag, _) => (self.not_before, self.make(Some(tag.clone()))),
        };
        if now < due { CasCommand::Wait(due) } else { command }
    }

    /// B5: makes a session with an ID that no other one ever had.
    fn make(&self, expected: Option<ObjectTag>) -> CasCommand {
        let object = SessionObject {
            id: self.name(),
            installation: self.installation.clone(),
            writer: self.name(),
            renewals: 0,
            ttl_milliseconds: self.ttl(),
            ended: false,
        };
        CasCommand::Write { expected, object }
    }

    fn renewal(&self, object: &SessionObject) -> SessionObject {
        SessionObject {
            writer: self.name(),
            renewals: object.renewals.wrapping_add(1),
            ttl_milliseconds: self.ttl(),
            ..object.clone()
        }
    }

    /// The name of this process, and of its writes until one of them stays unknown. B5: the next session has it as its ID.
    fn name(&self) -> String {
        format!("{}.{}", self.writer, self.made)
    }

    fn ttl(&self) -> u64 {
        u64::try_from(self.parameters.ttl.as_millis()).unwrap_or(u64::MAX)
    }

    /// The write that ends the session, if there is one to end.
    pub fn end(&self) -> Option<(ObjectTag, SessionObject)> {
        match &self.state {
            State::Read(tag, Some(object)) if self.is_own(object) => Some((tag.clone(), object.ended_by(&self.writer))),
            _ => None,
        }
    }

    /// Notes a hint that the session has ended: the object is read at once.
    pub fn suspect(&mut self, now: Instant) {
        self.suspected = true;
        self.state = State::Unread;
        self.not_before = self.not_before.min(now);
    }

    /// Notes that the session of this ID was seen to have ended, which no later state undoes. The session's own requests may hang meanwhile.
    pub fn seen_ended(&mut self, id: &str, now: Instant) {
        if self.last.as_deref() == Some(id) {
            (self.state, self.renewed, self.without) = (State::Unread, None, LockValidity::Ended);
            self.not_before = self.not_before.min(now);
        }
    }

    /// C15: sets whether the session is not renewed, because its owner may not write the locks that it holds.
    pub fn hold_off(&mut self, off: bool, now: Instant) {
        if std::mem::replace(&mut self.held_off, off) != off {
            self.not_before = now;
        }
    }

    /// How long this cluster may rely on its session: B1, with C2's margin.
    pub fn validity(&self, now: Instant) -> LockValidity {
        match self.renewed {
            Some((sent, ttl)) if now < deadline(sent, ttl) => LockValidity::Until(deadline(sent, ttl)),
            Some(_) => LockValidity::Lapsed,
            None => self.without,
        }
    }

    /// The session's ID, while there is no reason to believe that the session has ended.
    pub fn id(&self) -> Option<&str> {
        match &self.state {
            State::Read(_, Some(object)) if self.is_own(object) => Some(&object.id),
            State::Unread => self.last.as_deref(),
            State::Absent | State::Read(..) => None,
        }
    }

    /// C14: the session of another installation that has this cluster's name.
    pub fn name_in_use(&self) -> Option<&SessionObject> {
        match &self.state {
            State::Read(_, Some(object)) if !object.ended && object.installation != self.installation => Some(object),
            _ => None,
        }
    }

    fn is_own(&self, object: &SessionObject) -> bool {
        !object.ended && object.installation == self.installation
    }

    /// Takes the object as it was read: `None` if there is none, and a tag without an object if its content is not a session.
    pub fn read(&mut self, found: Option<(ObjectTag, Option<SessionObject>)>, now: Instant) {
        let doubtful = self.doubtful.take();
        (self.suspected, self.not_before) = (false, now);
        if doubtful.is_none() {
            // Else it may be that reads alone are answered.
            self.backoff.reset();
        }
        self.state = match found {
            None => State::Absent,
            Some((tag, object)) => State::Read(tag, object.filter(|object| !object.is_vacant())),
        };
        let State::Read(_, Some(object)) = &self.state else {
            // The other clusters take a new session for the end of the last one.
            if let Some(ttl) = self.namesake.take() {
                self.theirs = now + ttl;
            }
            self.not_before = now.max(self.theirs);
            return self.lost();
        };
        self.namesake = (!self.is_own(object) && !object.ended).then(|| object.ttl());
        if !self.is_own(object) {
            if !object.ended {
                self.not_before = now + self.parameters.renewal();
            }
            return self.lost();
        }
        if self.last.as_ref() != Some(&object.id) {
            // Another replica made it, so the last one has ended. When this one was last renewed is not known.
            if self.last.replace(object.id.clone()).is_some() {
                self.without = LockValidity::Ended;
            }
            self.renewed = None;
        }
        // C8: the write whose outcome was unknown was done. It was sent before that.
        if let Some((_, sent)) = doubtful.filter(|(written, _)| written == object) {
            self.renewed = Some((sent, object.ttl()));
        }
        if self.held_off {
            self.not_before = now + self.parameters.renewal();
        }
    }

    /// The object could not be read.
    pub fn read_failed(&mut self, now: Instant) {
        self.failed(now);
    }

    /// Takes the outcome of a write that was sent at `sent`.
    pub fn written(&mut self, object: SessionObject, sent: Instant, outcome: SessionWrite, now: Instant) {
        match outcome {
            SessionWrite::Done(tag) => {
                self.made += u64::from(object.renewals == 0);
                self.last = Some(object.id.clone());
                self.renewed = Some((sent, object.ttl()));
                self.doubtful = None;
                self.state = State::Read(tag, Some(object));
                self.succeeded(now);
            }
            SessionWrite::Conflict => {
                self.state = State::Unread;
                self.succeeded(now);
            }
            SessionWrite::Refused => self.failed(now),
            // C8: nothing more is written until the object was read. If only the answers are lost, renewals would keep the locks from
            // every cluster, and not help their owner.
            SessionWrite::Unknown => {
                self.made += 1;
                self.doubtful = Some((object, sent));
                self.state = State::Unread;
                self.failed(now);
            }
        }
    }

    /// Another replica looks after the session from now on.
    pub fn put_down(&mut self, now: Instant) {
        // A write may be under way.
        self.made += 1;
        (self.state, self.renewed, self.doubtful) = (State::Unread, None, None);
        (self.without, self.held_off) = (LockValidity::Unknown, false);
        self.succeeded(now);
    }

    fn lost(&mut self) {
        if let Some((sent, ttl)) = self.renewed {
            self.relied = deadline(sent, ttl);
        }
        self.without = if self.last.is_some() { LockValidity::Ended } else { LockValidity::Lapsed };
        self.renewed = None;
    }

    fn succeeded(&mut self, now: Instant) {
        self.suspected = false;
        self.backoff.reset();
        self.not_before = now;
    }

    fn failed(&mut self, now: Instant) {
        self.backoff.delay(now);
        let until = self.backoff.waits(now).unwrap_or(now);
        self.not_before = match self.validity(now) {
            LockValidity::Until(_) => until.min(now + self.parameters.retry()),
            // There is no hurry for the lock, but meanwhile there is no leader.
            _ => until.min(now + Self::LONGEST_RETRY),
        };
    }
}

fn deadline(sent: Instant, ttl: Duration) -> Instant {
    sent + ttl - SessionParameters { ttl }.margin()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(15);

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn life() -> CasSession {
        CasSession::with_seed(0, "here", "w", SessionParameters { ttl: TTL })
    }

    /// The write that is due.
    fn due(life: &CasSession, now: Instant) -> (Option<ObjectTag>, SessionObject) {
        let CasCommand::Write { expected, object } = life.next(now) else { panic!("{:?}", life.next(now)) };
        (expected, object)
    }

    /// Lets the write that is due end like this.
    fn write(life: &mut CasSession, sent: u64, answered: u64, outcome: SessionWrite) -> SessionObject {
        let (_, object) = due(life, at(sent));
        life.written(object.clone(), at(sent), outcome, at(answered));
        object
    }

    fn done(tag: &str) -> SessionWrite {
        SessionWrite::Done(tag.into())
    }

    /// A session that was made at second 0.
    fn made() -> (CasSession, SessionObject) {
        let mut life = life();
        life.read(None, at(0));
        let object = write(&mut life, 0, 0, done("1"));
        (life, object)
    }

    #[test]
    fn a_session_is_made_and_renewed_and_counts_from_the_sending() {
        let mut life = life();
        assert_eq!((life.next(at(0)), life.validity(at(0))), (CasCommand::Read, LockValidity::Unknown));
        life.read(None, at(0));
        assert_eq!(life.validity(at(0)), LockValidity::Lapsed, "there is none");
        let first = write(&mut life, 1, 3, done("1"));
        assert_eq!((first.renewals, first.ended, life.id()), (0, false, Some(first.id.as_str())));
        assert_eq!(life.validity(at(3)), LockValidity::Until(at(13)));
        assert_eq!(life.next(at(3)), CasCommand::Wait(at(6)));
        let (expected, renewal) = due(&life, at(6));
        assert_eq!((expected.as_deref(), renewal.renewals, &renewal.id), (Some("1"), 1, &first.id));
        write(&mut life, 6, 7, done("2"));
        assert_eq!(life.validity(at(17)), LockValidity::Until(at(18)));
        assert_eq!(life.validity(at(18)), LockValidity::Lapsed);
    }

    #[test]
    fn a_write_whose_outcome_is_unknown_counts_only_if_it_is_found_done() {
        for done in [false, true] {
            let (mut life, first) = made();
            let renewal = write(&mut life, 6, 9, SessionWrite::Unknown);
            assert_eq!(life.validity(at(9)), LockValidity::Until(at(12)));
            assert_eq!(life.next(at(10)), CasCommand::Read, "nothing is written before that");
            let found = if done { ("2".into(), Some(renewal)) } else { ("1".into(), Some(first)) };
            life.read(Some(found), at(10));
            let until = if done { at(18) } else { at(12) };
            assert_eq!(life.validity(at(10)), LockValidity::Until(until), "{done}");
        }
    }

    /// The others count from the first of the two.
    #[test]
    fn a_write_that_arrives_late_is_not_taken_for_a_later_one() {
        let (mut life, first) = made();
        let late = write(&mut life, 6, 9, SessionWrite::Unknown);
        life.read(Some(("1".into(), Some(first))), at(10));
        // The first one arrives. The second one conflicts with it, and that answer is lost.
        write(&mut life, 11, 14, SessionWrite::Unknown);
        life.read(Some(("2".into(), Some(late))), at(14));
        assert_eq!(life.validity(at(14)), LockValidity::Lapsed);
    }

    /// B5.
    #[test]
    fn no_id_is_used_again() {
        let mut life = life();
        life.read(None, at(0));
        let (_, under_way) = due(&life, at(0));
        life.put_down(at(1));
        // It arrived, another replica renewed it, and another cluster ended it.
        life.read(Some(("3".into(), Some(under_way.ended_by("far")))), at(30));
        let second = write(&mut life, 30, 31, SessionWrite::Unknown);
        life.read(Some(("5".into(), Some(second.ended_by("far")))), at(60));
        let (_, third) = due(&life, at(60));
        assert!(under_way.id != second.id && second.id != third.id && under_way.id != third.id, "{third:?}");
    }

    #[test]
    fn a_session_that_others_have_ended_is_followed_by_another() {
        let (mut life, first) = made();
        assert_eq!(life.end(), Some(("1".into(), first.ended_by("w"))));
        life.suspect(at(1));
        assert_eq!(life.next(at(1)), CasCommand::Read);
        life.read(Some(("2".into(), Some(first.ended_by("far")))), at(1));
        assert_eq!((life.validity(at(1)), life.id(), life.end()), (LockValidity::Ended, None, None));
        let (expected, next) = due(&life, at(1));
        assert_eq!(expected.as_deref(), Some("2"));
        assert_ne!(next.id, first.id);
    }

    #[test]
    fn a_session_that_is_seen_to_have_ended_is_relied_on_no_longer() {
        let (mut life, first) = made();
        life.seen_ended("another", at(1));
        assert_eq!(life.validity(at(1)), LockValidity::Until(at(12)));
        life.seen_ended(&first.id, at(1));
        assert_eq!((life.validity(at(1)), life.next(at(1))), (LockValidity::Ended, CasCommand::Read));
    }

    /// A new session would show the others at once that the last one is over.
    #[test]
    fn a_session_whose_object_a_person_destroyed_is_made_anew_when_nobody_relies_on_it() {
        for found in [None, Some(("2".to_owned(), None))] {
            let (mut life, _) = made();
            for seconds in [1, 2] {
                life.suspect(at(seconds));
                life.read(found.clone(), at(seconds));
                assert_eq!(life.validity(at(seconds)), LockValidity::Ended);
                assert_eq!(life.next(at(seconds)), CasCommand::Wait(at(12)), "{found:?}");
            }
            assert_eq!(due(&life, at(12)).0, found.map(|(tag, _)| tag));
        }
    }

    #[test]
    fn another_replica_goes_on_with_the_session_and_relies_on_it_once_it_has_renewed_it() {
        let (_, first) = made();
        let mut other = CasSession::with_seed(0, "here", "v", SessionParameters { ttl: TTL });
        other.read(Some(("1".into(), Some(first.clone()))), at(5));
        assert_eq!((other.validity(at(5)), other.id()), (LockValidity::Unknown, Some(first.id.as_str())));
        let renewal = write(&mut other, 5, 6, done("2"));
        assert_eq!((&renewal.id, other.validity(at(6))), (&first.id, LockValidity::Until(at(17))));
        other.put_down(at(7));
        assert_eq!(other.validity(at(7)), LockValidity::Unknown);
    }

    /// C14.
    #[test]
    fn a_session_of_another_installation_is_left_alone() {
        let (mut life, first) = made();
        let theirs = SessionObject { installation: "there".into(), id: "x.0".into(), ..first };
        life.suspect(at(1));
        life.read(Some(("2".into(), Some(theirs.clone()))), at(1));
        assert_eq!((life.name_in_use(), life.id(), life.end()), (Some(&theirs), None, None));
        assert_eq!(life.next(at(1)), CasCommand::Wait(at(6)));
        assert_eq!(life.next(at(6)), CasCommand::Read);
        life.read(Some(("3".into(), Some(theirs.ended_by("far")))), at(6));
        assert_eq!(due(&life, at(6)).0.as_deref(), Some("3"));
    }

    /// C14: a person has deleted it, and its owner may not know.
    #[test]
    fn a_session_of_another_installation_that_vanishes_is_waited_for() {
        for gone in [None, Some(("3".into(), None))] {
            let (_, first) = made();
            let theirs = SessionObject { installation: "there".into(), id: "x.0".into(), ..first };
            let mut life = CasSession::with_seed(0, "here", "w", SessionParameters { ttl: TTL });
            life.read(Some(("2".into(), Some(theirs))), at(1));
            for seen in [6, 7] {
                life.suspect(at(seen));
                life.read(gone.clone(), at(seen));
                assert_eq!(life.next(at(seen)), CasCommand::Wait(at(6) + TTL), "seen at {seen}");
            }
            assert_eq!(due(&life, at(6) + TTL).0, gone.map(|(tag, _)| tag));
        }
    }

    /// C15.
    #[test]
    fn a_session_that_is_held_off_is_not_renewed() {
        let (mut life, first) = made();
        life.hold_off(true, at(1));
        assert_eq!(life.next(at(6)), CasCommand::Read);
        life.read(Some(("1".into(), Some(first))), at(6));
        assert_eq!(life.next(at(6)), CasCommand::Wait(at(11)));
        assert_eq!(life.validity(at(12)), LockValidity::Lapsed);
        life.hold_off(false, at(8));
        assert_eq!(due(&life, at(8)).0.as_deref(), Some("1"));
    }

    /// A store may be too busy for writes alone.
    #[test]
    fn writes_that_stay_unknown_are_repeated_less_and_less_often() {
        let (mut life, first) = made();
        let mut now = at(6);
        for _ in 0..8 {
            let (_, object) = due(&life, now);
            life.written(object, now, SessionWrite::Unknown, now);
            if let CasCommand::Wait(until) = life.next(now) {
                now = until;
            }
            life.read(Some(("1".into(), Some(first.clone()))), now);
        }
        let (_, object) = due(&life, now);
        life.written(object, now, SessionWrite::Unknown, now);
        assert_eq!(life.next(now), CasCommand::Wait(now + Duration::from_secs(1)));
    }

    #[test]
    fn attempts_are_repeated_sooner_while_they_can_still_be_in_time() {
        let (mut life, _) = made();
        let wait = |life: &CasSession, now| match life.next(at(now)) {
            CasCommand::Wait(until) => until.since(at(now)),
            command => panic!("{command:?}"),
        };
        for _ in 0..8 {
            write(&mut life, 10, 10, SessionWrite::Refused);
            life.not_before = at(10);
        }
        write(&mut life, 10, 10, SessionWrite::Refused);
        assert_eq!(wait(&life, 10), Duration::from_secs(1));
        life.not_before = at(20);
        write(&mut life, 20, 20, SessionWrite::Refused);
        assert_eq!(wait(&life, 20), CasSession::LONGEST_RETRY);
    }
}
