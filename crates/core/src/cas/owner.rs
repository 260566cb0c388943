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
    /// The number of sessions that this process has made.
    made: u64,
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
            backoff: Backoff::with_seed(seed),
            not_before: Instant::default(),
        }
    }

    /// The next action.
    pub fn next(&self, now: Instant) -> CasCommand {
        let (due, command) = match &self.state {
            State::Unread => (self.not_before, CasCommand::Read),
            State::Absent => (self.not_before, self.make(None)),
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
            State::Read(tag, _) => (self.not_before, self.make(Some(tag.clone()))),
        };
        if now < due { CasCommand::Wait(due) } else { command }
    }

    /// B5: makes a session with an ID that no other one ever had.
    fn make(&self, expected: Option<ObjectTag>) -> CasCommand {
        let object = SessionObject {
            id: format!("{}.{}", self.writer, self.made),
            installation: self.installation.clone(),
            writer: self.writer.clone(),
            renewals: 0,
            ttl_milliseconds: self.ttl(),
            ended: false,
        };
        CasCommand::Write { expected, object }
    }

    fn renewal(&self, object: &SessionObject) -> SessionObject {
        SessionObject {
            writer: self.writer.clone(),
            renewals: object.renewals.wrapping_add(1),
            ttl_milliseconds: self.ttl(),
            ..object.clone()
        }
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
        self.succeeded(now);
        self.state = match found {
            None => State::Absent,
            Some((tag, object)) => State::Read(tag, object),
        };
        let State::Read(_, Some(object)) = &self.state else { return self.lost() };
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
                self.made += u64::from(object.renewals == 0);
                self.doubtful = Some((object, sent));
                self.state = State::Unread;
                self.failed(now);
            }
        }
    }

    /// Another replica looks after the session from now on.
    pub fn put_down(&mut self, now: Instant) {
        (self.state, self.renewed, self.doubtful) = (State::Unread, None, None);
        (self.without, self.held_off) = (LockValidity::Unknown, false);
        self.succeeded(now);
    }

    fn lost(&mut self) {
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
