//! The life of one Consul session: when it is looked up, made, and renewed, and how long its owner may rely on it. The rules C1, C2, C8 and
//! C9 of docs/protocol.md.
//!
//! The owner counts from the moment at which it *sent* the last renewal that succeeded, because Consul began to count later. Consul itself
//! waits twice as long before it ends a session (`agent/consul/session_ttl.go`), but no code here relies on that. A session that was found
//! has no lock validity until it is renewed, because the time of its last renewal is unknown.

use std::time::Duration;

use super::backoff::{Backoff, seed_of};
use super::{Instant, LockValidity};

/// The lengths of time in a session's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionParameters {
    /// How long a session lives without a renewal.
    pub ttl: Duration,
}

impl SessionParameters {
    /// The time from one renewal to the next.
    pub fn renewal(self) -> Duration {
        self.ttl / 3
    }

    /// C2: how long before the end an owner stops, because requests that it has sent may still be on their way, and clocks do not run
    /// equally fast.
    pub fn margin(self) -> Duration {
        self.ttl / 5
    }

    /// How long Consul may take to answer. A renewal that takes longer counts as lost, because another one needs its time, too.
    pub fn longest_request(self) -> Duration {
        self.ttl / 5
    }

    /// The longest time from one attempt to the next, while a renewal may still succeed in time.
    pub(crate) fn retry(self) -> Duration {
        self.ttl / 15
    }
}

/// A session that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSession {
    /// The session's ID.
    pub id: String,
    /// The TTL that the session was made with.
    pub ttl: Duration,
    /// The order in which sessions were made.
    pub create_index: u64,
}

/// C14: the names `CLUSTER/INSTALLATION/CLASS/NUMBER` of the sessions of all installations that have the same names of their cluster and
/// class. Only one of these installations may have sessions. A session of another class is no rival, because one Kubernetes cluster has no
/// two classes of a name, so two installations in it share the cluster's name rightly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namesakes {
    /// The beginning of all their names: `CLUSTER/`.
    pub cluster: String,
    /// This installation.
    pub installation: String,
    /// The name of the class.
    pub class: String,
}

impl Namesakes {
    /// The oldest session of another installation, if it is older than each session of this one. The order in which sessions were made
    /// decides, because both installations see it alike; no clock does. `of` returns a session's name, and its place in that order.
    pub fn elder<'a, S>(&self, sessions: impl Iterator<Item = &'a S>, of: impl Fn(&S) -> (&str, u64)) -> Option<&'a S> {
        let namesakes = sessions.filter(|session| self.installation_of(of(session).0).is_some());
        let oldest = namesakes.min_by_key(|session| of(session).1);
        oldest.filter(|oldest| self.installation_of(of(oldest).0) != Some(&self.installation))
    }

    /// The installation whose session has this name, if the session is for a class of this name in a cluster of this name.
    fn installation_of<'a>(&self, name: &'a str) -> Option<&'a str> {
        let (installation, rest) = name.strip_prefix(&self.cluster)?.split_once('/')?;
        rest.strip_prefix(&self.class)?.starts_with('/').then_some(installation)
    }
}

/// The next action that a session needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    /// Look for sessions of this name, past every cache.
    LookUp,
    /// Make a session.
    Create,
    /// Renew the session with this ID.
    Renew(String),
    /// Do nothing before this moment.
    Wait(Instant),
}

/// The life of one session, under one name.
#[derive(Clone, Debug)]
pub struct SessionLife {
    parameters: SessionParameters,
    seed: u64,
    /// The longest time from one renewal to the next, if that is shorter than the TTL requires.
    renew_every: Duration,
    state: State,
    /// The ID of the last session, by which it is recognized among several.
    last: Option<String>,
    /// The validity while no session is renewed: there was none, or the last one ended.
    without: LockValidity,
    /// The session seems to be gone, so the next renewal comes at once, to find out.
    suspected: bool,
    /// The outcome of the last renewal is unknown: see [`renewal_failed`](Self::renewal_failed).
    doubtful: bool,
    /// C15: the session is not renewed, because its owner may not write the locks that it holds.
    held_off: bool,
    /// The number of renewals, which spreads those of many sessions.
    renewals: u32,
    backoff: Backoff,
    /// The earliest moment of the next request.
    not_before: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// There may be a session of this name.
    Unknown,
    /// There is no session.
    Absent,
    /// There was a session at the last look.
    Present {
        id: String,
        ttl: Duration,
        /// When the last renewal that succeeded was sent.
        renewed: Option<Instant>,
    },
}

impl SessionLife {
    const LONGEST_RETRY: Duration = Duration::from_secs(4);

    /// A session of which nothing is known. `name` also seeds the jitter.
    pub fn new(name: &str, parameters: SessionParameters) -> Self {
        Self::with_seed(seed_of(name), parameters)
    }

    fn with_seed(seed: u64, parameters: SessionParameters) -> Self {
        Self {
            parameters,
            seed,
            renew_every: Duration::MAX,
            state: State::Unknown,
            last: None,
            without: LockValidity::Unknown,
            suspected: false,
            doubtful: false,
            held_off: false,
            renewals: 0,
            backoff: Backoff::with_seed(seed),
            not_before: Instant::default(),
        }
    }

    /// Renews the session more often than its TTL requires, at least once in `renew_every`, so that it survives a longer failure of Consul.
    pub fn renew_every(&mut self, renew_every: Duration) {
        self.renew_every = renew_every;
    }

    /// A5: makes the first session without a look before it. The owner looks at the same moment for sessions of an earlier process, and
    /// reports them by [`created_among`](Self::created_among).
    pub fn make_at_once(&mut self) {
        self.state = State::Absent;
    }

    /// The next action.
    pub fn next(&self, now: Instant) -> SessionCommand {
        let (due, command) = match &self.state {
            State::Unknown => (self.not_before, SessionCommand::LookUp),
            State::Absent => (self.not_before, SessionCommand::Create),
            State::Present { .. } if self.doubtful || self.held_off => (self.not_before, SessionCommand::LookUp),
            State::Present { id, ttl, renewed } => {
                let due = renewed.filter(|_| !self.suspected).map_or(self.not_before, |renewed| {
                    let interval = SessionParameters { ttl: *ttl }.renewal().min(self.renew_every);
                    (renewed + interval - self.jitter(interval)).max(self.not_before)
                });
                (due, SessionCommand::Renew(id.clone()))
            }
        };
        if now < due { SessionCommand::Wait(due) } else { command }
    }

    /// Notes a hint that the session is gone: the next renewal comes at once, to find out.
    pub fn suspect(&mut self) {
        self.suspected = true;
    }

    /// C15: sets whether the session is not renewed, because its owner may not write the locks that it holds. The owner then only looks
    /// whether the session has ended. It does not destroy the session, because another replica, which it can't see, may act and rely on it.
    pub fn hold_off(&mut self, off: bool, now: Instant) {
        if std::mem::replace(&mut self.held_off, off) != off {
            self.not_before = now;
        }
    }

    /// How long the owner may rely on the session.
    pub fn validity(&self, now: Instant) -> LockValidity {
        match self.deadline() {
            Some(deadline) if now < deadline => LockValidity::Until(deadline),
            Some(_) => LockValidity::Lapsed,
            None => self.without,
        }
    }

    /// The session's ID, while there is no reason to believe that the session has ended.
    pub fn id(&self) -> Option<&str> {
        match &self.state {
            State::Present { id, .. } => Some(id),
            State::Unknown | State::Absent => None,
        }
    }

    /// C9: takes the sessions that were found under this name, and adopts one: the session that this process used before, because locks may
    /// depend on it, or else the oldest. Returns the others, which no replica uses.
    pub fn looked_up(&mut self, found: Vec<FoundSession>, now: Instant) -> Vec<FoundSession> {
        if self.state != State::Unknown {
            // Consul answers again. The next renewal will tell the same about this session, unless there is none.
            self.doubtful = false;
            if let State::Present { id, .. } = &self.state
                && self.held_off
            {
                if found.iter().any(|session| session.id == *id) {
                    self.not_before = now + Self::LONGEST_RETRY;
                } else {
                    self.lost(&id.clone(), now);
                }
            }
            return vec![];
        }
        self.succeeded(now);
        let mut found = found;
        found.sort_by_key(|session| (self.last.as_ref() != Some(&session.id), session.create_index));
        if found.is_empty() {
            self.state = State::Absent;
            // A session that another replica kept meanwhile has ended, too.
            self.without = if self.last.is_some() { LockValidity::Ended } else { LockValidity::Lapsed };
            return vec![];
        }
        self.adopt(found.remove(0));
        found
    }

    fn adopt(&mut self, found: FoundSession) {
        let FoundSession { id, ttl, create_index: _ } = found;
        self.last = Some(id.clone());
        self.state = State::Present { id, ttl, renewed: None };
    }

    /// The look-up failed.
    pub fn look_up_failed(&mut self, now: Instant) {
        if self.state == State::Unknown || self.doubtful || self.held_off {
            self.failed(now);
        }
    }

    /// A session was made, by a request that was sent at `sent`.
    pub fn created(&mut self, id: String, ttl: Duration, sent: Instant, now: Instant) {
        self.last = Some(id.clone());
        self.state = State::Present { id, ttl, renewed: Some(sent) };
        self.succeeded(now);
    }

    /// A session was made, by a request that was sent at `sent`, and after that these were found under its name. Another replica may have
    /// made one at the same moment, and finds the same ones, so all replicas use the oldest. Returns the others, which no replica uses.
    pub fn created_among(
        &mut self,
        id: &str,
        mut found: Vec<FoundSession>,
        sent: Instant,
        now: Instant,
    ) -> Vec<FoundSession> {
        found.sort_by_key(|session| session.create_index);
        if found.is_empty() {
            self.create_failed(false, now);
            return found;
        }
        let oldest = found.remove(0);
        if oldest.id == id {
            self.created(oldest.id, oldest.ttl, sent, now);
        } else {
            self.adopt(oldest);
            self.succeeded(now);
        }
        found
    }

    /// No session could be made. If that is `known`, the next attempt only has to wait. Otherwise there may be a session now, and the owner
    /// looks for it first.
    pub fn create_failed(&mut self, known: bool, now: Instant) {
        self.state = if known { State::Absent } else { State::Unknown };
        self.failed(now);
    }

    /// C1: a renewal that was sent at `sent` succeeded, however late its answer came. The TTL may have changed.
    pub fn renewed(&mut self, id: &str, ttl: Duration, sent: Instant, now: Instant) {
        let State::Present { id: present, ttl: known, renewed } = &mut self.state else { return };
        if present != id {
            return;
        }
        if renewed.is_none_or(|renewed| renewed < sent) {
            *renewed = Some(sent);
            // Without a TTL the session would live for ever, and be renewed without a pause.
            *known = if ttl.is_zero() { *known } else { ttl };
        }
        self.renewals = self.renewals.wrapping_add(1);
        self.doubtful = false;
        self.succeeded(now);
    }

    /// C8: a renewal failed. If the failure is not `known`, Consul may have carried the renewal out. The owner then renews nothing until Consul
    /// has answered something: if only the answers are lost, renewals would keep the locks from every cluster, and not help their owner.
    pub fn renewal_failed(&mut self, id: &str, known: bool, now: Instant) {
        if self.id() == Some(id) {
            self.doubtful |= !known;
            self.failed(now);
        }
    }

    /// The session is gone. The owner looks for it before it makes another one, because a Consul server that has just become the leader may
    /// not know every session yet.
    pub fn lost(&mut self, id: &str, now: Instant) {
        if self.id() == Some(id) {
            self.state = State::Unknown;
            (self.without, self.doubtful) = (LockValidity::Ended, false);
            self.succeeded(now);
        }
    }

    /// Another replica looks after the session from now on. Except for the ID, this knowledge grows old.
    pub fn put_down(&mut self, now: Instant) {
        self.state = State::Unknown;
        (self.without, self.doubtful, self.held_off) = (LockValidity::Unknown, false, false);
        self.succeeded(now);
    }

    fn deadline(&self) -> Option<Instant> {
        let State::Present { ttl, renewed, .. } = &self.state else { return None };
        Some(renewed.as_ref().copied()? + *ttl - SessionParameters { ttl: *ttl }.margin())
    }

    fn succeeded(&mut self, now: Instant) {
        self.suspected = false;
        self.backoff.reset();
        self.not_before = now;
    }

    fn failed(&mut self, now: Instant) {
        self.suspected = false;
        self.backoff.delay(now);
        let until = self.backoff.waits(now).unwrap_or(now);
        let most = self.parameters.retry();
        self.not_before = match self.validity(now) {
            LockValidity::Until(_) => until.min(now + most + self.jitter(most)),
            // There is no hurry for the lock, but meanwhile there is no leader.
            _ => until.min(now + Self::LONGEST_RETRY),
        };
    }

    fn jitter(&self, of: Duration) -> Duration {
        spread(self.seed, self.renewals.into(), of)
    }
}

/// A random length, up to a fifth of the given one, another one for each number.
pub(super) fn spread(seed: u64, number: u64, of: Duration) -> Duration {
    // SplitMix64's mixing: neighbours get quite different numbers, and a seed of 0 gets none.
    let mixed = seed.wrapping_mul(number.wrapping_add(1));
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 48;
    of.mul_f64(f64::from(u16::try_from(mixed).unwrap_or(0)) / 65536.0 / 5.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: SessionParameters = SessionParameters { ttl: Duration::from_secs(15) };

    fn at(seconds: u64) -> Instant {
        Instant::after_origin(Duration::from_secs(seconds))
    }

    fn milliseconds(milliseconds: u64) -> Instant {
        Instant::after_origin(Duration::from_millis(milliseconds))
    }

    fn found(id: &str, create_index: u64) -> FoundSession {
        FoundSession { id: id.into(), ttl: PARAMETERS.ttl, create_index }
    }

    fn renew(id: &str) -> SessionCommand {
        SessionCommand::Renew(id.into())
    }

    /// Without jitter.
    fn life() -> SessionLife {
        SessionLife::with_seed(0, PARAMETERS)
    }

    /// One that was made at second 0.
    fn made() -> SessionLife {
        let mut life = life();
        assert_eq!(life.looked_up(vec![], at(0)), []);
        life.created("a".into(), PARAMETERS.ttl, at(0), at(0));
        life
    }

    fn waits(life: &SessionLife, now: Instant) -> Instant {
        match life.next(now) {
            SessionCommand::Wait(until) => until,
            command => panic!("{command:?}"),
        }
    }

    #[test]
    fn of_all_installations_with_one_name_that_with_the_oldest_session_has_no_elder() {
        let namesakes =
            |own: &str| Namesakes { cluster: "lictor/west/".into(), installation: own.into(), class: "x".into() };
        let all =
            [("lictor/west/b/x/0", 5), ("lictor/west/a/x/1", 7), ("lictor/west/a/x/0", 3), ("lictor/east/c/x/0", 1)];
        let others = [("lictor/west/a/xy/0", 1), ("lictor/west/a/y/x/0", 1), ("lictor/west/a/x", 1)];
        let elder = |own, sessions: &[(&'static str, u64)]| {
            let found = namesakes(own).elder(sessions.iter(), |session| (session.0, session.1));
            found.map(|found| found.0)
        };
        assert_eq!((elder("a", &all), elder("b", &all)), (None, Some("lictor/west/a/x/0")));
        assert_eq!((elder("b", &all[..1]), elder("a", &all[..1])), (None, Some("lictor/west/b/x/0")));
        assert_eq!((elder("a", &all[3..]), elder("a", &[])), (None, None), "they have another cluster's name");
        assert_eq!(elder("b", &others), None, "they are of other classes");
    }

    #[test]
    fn a_session_that_was_made_counts_from_its_request_and_an_older_one_from_its_renewal() {
        let begun = || {
            let mut life = life();
            life.looked_up(vec![], at(0));
            life
        };
        let mut life = begun();
        assert_eq!(life.created_among("a", vec![found("b", 2), found("a", 1)], at(0), at(1)), [found("b", 2)]);
        assert_eq!(life.validity(at(1)), made().validity(at(1)));
        let mut life = begun();
        assert_eq!(life.created_among("b", vec![found("b", 2), found("a", 1)], at(0), at(1)), [found("b", 2)]);
        assert_eq!(life.next(at(1)), renew("a"));
        assert!(!life.validity(at(1)).lasts(at(1)));
    }

    #[test]
    fn a_session_is_kept_while_every_answer_takes_less_than_the_longest_request_and_lost_otherwise() {
        for seconds in [10, 15, 60] {
            let parameters = SessionParameters { ttl: Duration::from_secs(seconds) };
            // How long it is relied on if each answer takes so long, or up to a hundred renewals.
            let kept = |takes: Duration| {
                let limit = parameters.longest_request();
                let mut life = SessionLife::with_seed(0x9e37_79b9_7f4a_7c15, parameters);
                life.looked_up(vec![], at(0));
                life.created("a".into(), parameters.ttl, at(0), at(0));
                let (mut now, end) = (at(0), at(0) + parameters.ttl * 33);
                while now < end {
                    if !life.validity(now).lasts(now) {
                        return false;
                    }
                    now = match life.next(now) {
                        SessionCommand::Wait(until) => until,
                        SessionCommand::Renew(id) if takes < limit => {
                            life.renewed(&id, parameters.ttl, now, now + takes);
                            now + takes
                        }
                        SessionCommand::Renew(id) => {
                            life.renewal_failed(&id, false, now + limit);
                            now + limit
                        }
                        SessionCommand::LookUp => {
                            life.looked_up(vec![], now + takes);
                            now + takes
                        }
                        SessionCommand::Create => panic!("it is there"),
                    };
                }
                true
            };
            let longest = parameters.longest_request();
            assert!(kept(longest.saturating_sub(Duration::from_millis(1))), "{seconds}");
            assert!(!kept(longest), "{seconds}");
        }
    }

    #[test]
    fn the_jitter_is_that_of_splitmix64() {
        // What the generator gives from 0 on, as published with it: with its increment as the seed.
        let published =
            [0xe220_a839_7b1d_cdaf_u64, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f, 0xf88b_b8a8_724c_81ec];
        let mut life = SessionLife::with_seed(0x9e37_79b9_7f4a_7c15, PARAMETERS);
        for (renewals, number) in (0..).zip(published) {
            life.renewals = renewals;
            let share = f64::from(u16::try_from(number >> 48).unwrap()) / 65536.0;
            assert_eq!(life.jitter(Duration::from_secs(5)), Duration::from_secs(5).mul_f64(share / 5.0), "{renewals}");
        }
    }

    #[test]
    fn while_a_renewal_may_still_come_in_time_attempts_are_a_fifteenth_of_the_ttl_apart_or_somewhat_more() {
        let mut life = SessionLife::with_seed(0x9e37_79b9_7f4a_7c15, PARAMETERS);
        life.looked_up(vec![], at(0));
        life.created("a".into(), PARAMETERS.ttl, at(0), at(0));
        for _ in 0..6 {
            life.renewal_failed("a", true, at(5));
        }
        let wait = waits(&life, at(5)).since(at(5));
        assert!((PARAMETERS.retry()..PARAMETERS.retry() * 6 / 5).contains(&wait), "{wait:?}");
    }

    #[test]
    fn it_is_renewed_as_often_as_its_owner_wants_but_never_less_often_than_its_ttl_asks_for() {
        for (every, expected) in [(2, 2), (60, 5)] {
            let mut life = made();
            life.renew_every(Duration::from_secs(every));
            assert_eq!(waits(&life, at(0)), at(expected));
        }
    }

    /// C15.
    #[test]
    fn one_that_holds_what_may_not_be_written_is_not_renewed_until_it_may_be_or_it_has_ended() {
        let mut life = made();
        life.hold_off(true, at(1));
        assert_eq!(life.next(at(1)), SessionCommand::LookUp);
        assert_eq!(life.looked_up(vec![found("a", 1), found("b", 2)], at(1)), []);
        life.hold_off(true, at(2));
        assert_eq!(waits(&life, at(2)), at(1) + SessionLife::LONGEST_RETRY);
        assert_eq!(life.validity(at(2)), made().validity(at(2)), "what was renewed counts");
        let mut again = life.clone();
        again.hold_off(false, at(6));
        assert_eq!(again.next(at(6)), renew("a"));
        again.renewed("a", PARAMETERS.ttl, at(6), at(6));
        assert!(again.validity(at(17)).lasts(at(17)));
        assert_eq!(life.looked_up(vec![found("b", 2)], at(20)), []);
        assert_eq!((life.validity(at(20)), life.next(at(20))), (LockValidity::Ended, SessionCommand::LookUp));
    }

    #[test]
    fn one_that_seems_to_be_gone_is_renewed_at_once() {
        let mut life = made();
        assert!(matches!(life.next(at(1)), SessionCommand::Wait(_)));
        life.suspect();
        assert_eq!(life.next(at(1)), SessionCommand::Renew("a".into()));
        life.renewed("a", PARAMETERS.ttl, at(1), at(1));
        assert!(matches!(life.next(at(1)), SessionCommand::Wait(_)));
    }

    #[test]
    fn one_that_is_made_at_once_gives_way_to_what_an_earlier_process_left() {
        let mut life = life();
        life.make_at_once();
        assert_eq!(life.next(at(1)), SessionCommand::Create);
        assert_eq!(
            life.created_among("b", vec![found("b", u64::MAX), found("a", 1)], at(1), at(2)),
            [found("b", u64::MAX)]
        );
        assert_eq!((life.id(), life.next(at(2))), (Some("a"), renew("a")));
        // Whoever does not know what became of its request looks.
        let mut life = self::life();
        life.make_at_once();
        life.create_failed(false, at(1));
        assert_eq!(life.next(at(2)), SessionCommand::LookUp);
    }

    #[test]
    fn it_is_looked_up_before_it_is_made() {
        let mut life = life();
        assert_eq!(life.next(at(1)), SessionCommand::LookUp);
        assert_eq!(life.validity(at(1)), LockValidity::Unknown);
        life.looked_up(vec![], at(2));
        assert_eq!(life.next(at(2)), SessionCommand::Create);
        assert_eq!(life.validity(at(2)), LockValidity::Lapsed);
        life.created("a".into(), PARAMETERS.ttl, at(2), at(4));
        assert_eq!(life.id(), Some("a"));
        assert_eq!(life.validity(at(4)), LockValidity::Until(at(14)));
        assert_eq!(life.next(at(4)), SessionCommand::Wait(at(7)));
        assert_eq!(life.next(at(7)), renew("a"));
    }

    #[test]
    fn one_that_was_found_is_good_for_nothing_before_it_is_renewed() {
        let mut life = life();
        life.looked_up(vec![found("a", 1)], at(0));
        assert_eq!(life.id(), Some("a"));
        assert_eq!(life.validity(at(0)), LockValidity::Unknown);
        assert_eq!(life.next(at(0)), renew("a"));
        life.renewal_failed("a", true, at(1));
        assert_eq!(life.validity(at(60)), LockValidity::Unknown);
        life.renewed("a", PARAMETERS.ttl, at(61), at(62));
        assert_eq!(life.validity(at(62)), LockValidity::Until(at(73)));
    }

    #[test]
    fn the_oldest_of_several_is_adopted() {
        let mut life = life();
        let others = life.looked_up(vec![found("c", 9), found("b", 5), found("a", 7)], at(0));
        assert_eq!(life.id(), Some("b"));
        assert_eq!(others, [found("a", 7), found("c", 9)]);
    }

    #[test]
    fn the_one_that_was_used_before_is_adopted_again() {
        let mut life = made();
        life.put_down(at(3));
        assert_eq!((life.validity(at(3)), life.next(at(3))), (LockValidity::Unknown, SessionCommand::LookUp));
        let others = life.looked_up(vec![found("x", 1), found("a", 7)], at(4));
        assert_eq!(life.id(), Some("a"));
        assert_eq!(others, [found("x", 1)]);
        assert_eq!(life.validity(at(4)), LockValidity::Unknown);
    }

    #[test]
    fn another_one_than_before_is_another_replicas_and_as_good() {
        let mut life = made();
        life.put_down(at(3));
        life.looked_up(vec![found("x", 8)], at(4));
        assert_eq!((life.id(), life.validity(at(4))), (Some("x"), LockValidity::Unknown));
    }

    #[test]
    fn validity_ends_a_margin_before_the_ttl_counted_from_the_sending() {
        let mut life = made();
        life.renewed("a", PARAMETERS.ttl, at(5), at(9));
        assert_eq!(life.validity(at(16)), LockValidity::Until(at(17)));
        assert_eq!(life.validity(at(17)), LockValidity::Lapsed);
        assert_eq!(life.next(at(17)), renew("a"));
    }

    #[test]
    fn a_late_answer_counts_from_its_sending() {
        let mut life = made();
        assert_eq!(life.validity(at(12)), LockValidity::Lapsed);
        // Sent in time, answered after the deadline: good up to its own deadline, which may have passed, too.
        life.renewed("a", PARAMETERS.ttl, at(5), at(13));
        assert_eq!(life.validity(at(13)), LockValidity::Until(at(17)));
        life.renewed("a", PARAMETERS.ttl, at(6), at(40));
        assert_eq!(life.validity(at(40)), LockValidity::Lapsed);
        assert_eq!(life.next(at(40)), renew("a"));
    }

    #[test]
    fn answers_out_of_order_take_nothing_back() {
        let mut life = made();
        life.renewed("a", PARAMETERS.ttl, at(6), at(6));
        life.renewed("a", Duration::from_secs(90), at(5), at(7));
        assert_eq!(life.validity(at(7)), LockValidity::Until(at(18)));
    }

    #[test]
    fn a_lost_answer_is_no_renewal() {
        let mut life = made();
        life.renewal_failed("a", true, at(8));
        assert_eq!(life.validity(at(8)), LockValidity::Until(at(12)));
        assert_eq!(life.id(), Some("a"));
        assert_eq!(waits(&life, at(8)), milliseconds(8100));
    }

    #[test]
    fn it_tries_often_enough_while_a_renewal_may_come_in_time_and_seldom_afterwards() {
        let mut life = made();
        let mut tries = vec![];
        let mut now = at(5);
        while tries.len() < 14 {
            life.renewal_failed("a", true, now);
            now = waits(&life, now);
            tries.push(now);
        }
        let in_time = tries.iter().filter(|at_| **at_ < at(12)).count();
        assert_eq!(in_time, 9, "{tries:?}");
        assert_eq!(tries[13].since(tries[12]), Duration::from_secs(4));
        life.renewed("a", PARAMETERS.ttl, now, now);
        life.renewal_failed("a", true, now + Duration::from_secs(5));
        assert_eq!(waits(&life, now + Duration::from_secs(5)), now + Duration::from_millis(5100));
    }

    /// Shows C8.
    #[test]
    fn while_nothing_is_answered_nothing_is_renewed() {
        let mut life = made();
        life.renewal_failed("a", false, at(6));
        assert_eq!((life.id(), life.validity(at(6))), (Some("a"), LockValidity::Until(at(12))));
        assert_eq!(life.next(at(7)), SessionCommand::LookUp);
        life.look_up_failed(at(8));
        assert_eq!(waits(&life, at(8)), milliseconds(8200));
        assert_eq!(life.next(at(9)), SessionCommand::LookUp);
        // That it is not there says nothing yet: a new leader of Consul may not know of it.
        assert_eq!(life.looked_up(vec![], at(9)), []);
        assert_eq!(life.next(at(9)), renew("a"));
        // Answered, but not done: that is no reason to hurry.
        life.renewal_failed("a", false, at(9));
        assert_eq!(waits(&life, at(9)), milliseconds(9400));
        life.renewed("a", PARAMETERS.ttl, at(9), at(10));
        assert_eq!(life.next(at(14)), renew("a"));
    }

    #[test]
    fn one_that_is_lost_is_lost_at_once() {
        let mut life = made();
        life.lost("a", at(5));
        assert_eq!((life.id(), life.validity(at(5))), (None, LockValidity::Ended));
        assert_eq!(life.next(at(5)), SessionCommand::LookUp);
        // It was not, after all; still, what was said has been said.
        life.looked_up(vec![found("a", 1)], at(6));
        assert_eq!((life.id(), life.validity(at(6))), (Some("a"), LockValidity::Ended));
        life.renewed("a", PARAMETERS.ttl, at(6), at(6));
        assert_eq!(life.validity(at(6)), LockValidity::Until(at(18)));
    }

    #[test]
    fn after_a_create_of_unknown_outcome_it_is_looked_for() {
        let mut life = life();
        life.looked_up(vec![], at(0));
        life.create_failed(false, at(1));
        assert_eq!(life.next(at(2)), SessionCommand::LookUp);
        life.looked_up(vec![found("a", 3)], at(2));
        assert_eq!((life.id(), life.validity(at(2))), (Some("a"), LockValidity::Lapsed));
        assert_eq!(life.next(at(2)), renew("a"));
    }

    #[test]
    fn after_a_create_that_was_refused_it_is_made_again() {
        let mut life = life();
        life.looked_up(vec![], at(0));
        life.create_failed(true, at(1));
        assert_eq!(waits(&life, at(1)), milliseconds(1100));
        assert_eq!(life.next(at(2)), SessionCommand::Create);
    }

    #[test]
    fn a_session_of_another_ttl_counts_by_its_own() {
        let mut life = life();
        life.looked_up(vec![FoundSession { ttl: Duration::from_secs(60), ..found("a", 1) }], at(0));
        life.renewed("a", Duration::from_secs(60), at(0), at(0));
        assert_eq!(life.validity(at(0)), LockValidity::Until(at(48)));
        assert_eq!(life.next(at(0)), SessionCommand::Wait(at(20)));
        // Consul made it longer.
        life.renewed("a", Duration::from_secs(90), at(20), at(20));
        assert_eq!(life.validity(at(20)), LockValidity::Until(at(92)));
    }

    #[test]
    fn what_is_said_of_another_session_changes_nothing() {
        let mut life = made();
        life.renewed("b", PARAMETERS.ttl, at(9), at(9));
        life.renewal_failed("b", true, at(9));
        life.lost("b", at(9));
        assert_eq!(life.looked_up(vec![found("b", 1)], at(9)), []);
        life.look_up_failed(at(9));
        assert_eq!((life.id(), life.validity(at(9))), (Some("a"), LockValidity::Until(at(12))));
        assert_eq!(life.next(at(9)), renew("a"));
    }

    #[test]
    fn renewals_are_spread_and_never_later_than_a_third() {
        let mut times = std::collections::BTreeSet::new();
        for name in 0..20 {
            let mut life = SessionLife::new(&format!("lictor/{name}"), PARAMETERS);
            for sent in [0, 100, 200] {
                life.looked_up(vec![], at(sent));
                life.created("a".into(), PARAMETERS.ttl, at(sent), at(sent));
                life.renewed("a", PARAMETERS.ttl, at(sent), at(sent));
                let after = waits(&life, at(sent)).since(at(sent));
                assert!(after >= Duration::from_secs(4) && after <= Duration::from_secs(5), "{after:?}");
                times.insert(after);
            }
        }
        assert!(times.len() > 40, "{times:?}");
    }
}
