//! Decides when a connection that the operator holds to a leader shows that the leader's process is gone.
//!
//! The kernel closes the sockets of a process when it ends, however it ends. Its connections are closed, and then new ones are *refused*,
//! because no process listens any more, while the pod's network still answers. Everything else says nothing: a missing answer, an
//! unreachable address, a connection that another program accepts. An address that never accepted anything says nothing either.

use std::time::Duration;

use crate::Instant;

/// How long connections must be accepted before a refusal counts, and before a leader that was gone counts as healthy. So the leadership
/// moves for this reason at most once in this time.
const STEADY: Duration = Duration::from_secs(1);
/// How long connections must be refused before the process counts as gone. A server that reopens its socket within this time has lost
/// nothing.
const REFUSED: Duration = Duration::from_millis(10);
/// The pause between attempts while the operator finds out whether the process is gone, and the first of the pauses that double.
const SHORTEST: Duration = Duration::from_millis(5);
/// The longest pause between two attempts.
const LONGEST: Duration = Duration::from_secs(1);
/// A connection that was open for this long is replaced at once when it is closed.
const LASTING: Duration = Duration::from_millis(500);

/// The outcome of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// The connection was accepted.
    Accepted,
    /// An accepted connection was closed, or reset, by the other side.
    Closed,
    /// The connection was refused, because no process listens there.
    Refused,
    /// The connection could not be made for another reason, or was lost for one.
    Failed,
}

/// The state of a leader by the connection that is held to it. It begins as healthy, and as never reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionState {
    gone: bool,
    /// Whether the leader has once accepted connections for some time.
    reached: bool,
    /// The start of the period in which only accepted and closed connections were seen.
    accepts_since: Option<Instant>,
    /// When the present connection was accepted.
    opened: Option<Instant>,
    /// The start of the period in which all connections are refused.
    refused_since: Option<Instant>,
    /// The last of the pauses that double.
    pause: Duration,
}

impl ConnectionState {
    /// Returns whether the process is gone.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Returns when to [`look`](Self::look) again while a connection is open.
    pub fn due(&self) -> Option<Instant> {
        let pending = self.gone || !self.reached;
        self.accepts_since.filter(|_| pending).map(|since| since + STEADY)
    }

    /// Notes that the connection is still open.
    pub fn look(&mut self, now: Instant) {
        if self.opened.is_some() && self.accepts_since.is_some_and(|since| since + STEADY <= now) {
            (self.reached, self.gone) = (true, false);
        }
    }

    /// Takes the outcome of a connection. Returns how long to wait before the next attempt. There is none while a connection is open.
    pub fn observe(&mut self, event: ConnectionEvent, now: Instant) -> Duration {
        match event {
            ConnectionEvent::Accepted => {
                self.refused_since = None;
                self.accepts_since.get_or_insert(now);
                self.opened = Some(now);
                self.look(now);
                Duration::ZERO
            }
            ConnectionEvent::Closed => {
                self.look(now);
                if self.opened.take().is_some_and(|opened| opened + LASTING <= now) {
                    self.pause = Duration::ZERO;
                    return Duration::ZERO;
                }
                self.lengthen()
            }
            ConnectionEvent::Refused => {
                (self.accepts_since, self.opened) = (None, None);
                let since = *self.refused_since.get_or_insert(now);
                self.gone |= self.reached && since + REFUSED <= now;
                if self.reached && !self.gone { SHORTEST } else { self.lengthen() }
            }
            ConnectionEvent::Failed => {
                (self.accepts_since, self.opened, self.refused_since) = (None, None, None);
                self.lengthen()
            }
        }
    }

    fn lengthen(&mut self) -> Duration {
        self.pause = (self.pause * 2).clamp(SHORTEST, LONGEST);
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::ConnectionEvent::{Accepted, Closed, Failed, Refused};
    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::after_origin(Duration::from_millis(milliseconds))
    }

    /// A leader that has accepted a connection at 0 and held it until 5000.
    fn held() -> ConnectionState {
        let mut state = ConnectionState::default();
        state.observe(Accepted, at(0));
        assert_eq!(state.observe(Closed, at(5_000)), Duration::ZERO, "it is tried again at once");
        state
    }

    #[test]
    fn a_process_is_gone_when_it_has_been_refused_for_ten_milliseconds() {
        let mut state = held();
        for (moment, gone) in [(5_000, false), (5_005, false), (5_009, false), (5_010, true)] {
            state.observe(Refused, at(moment));
            assert_eq!(state.is_gone(), gone, "{moment}");
        }
    }

    #[test]
    fn a_server_that_opens_its_socket_anew_within_ten_milliseconds_is_not_gone() {
        let mut state = held();
        for event in [(Refused, 5_000), (Refused, 5_005), (Accepted, 5_009), (Closed, 9_000), (Refused, 9_000)] {
            state.observe(event.0, at(event.1));
        }
        state.observe(Refused, at(9_009));
        assert!(!state.is_gone());
    }

    #[test]
    fn another_failure_between_two_refusals_begins_the_count_anew() {
        let mut state = held();
        for event in [(Refused, 5_000), (Failed, 5_005), (Refused, 6_000), (Refused, 6_009)] {
            state.observe(event.0, at(event.1));
            assert!(!state.is_gone());
        }
        state.observe(Refused, at(6_010));
        assert!(state.is_gone());
    }

    #[test]
    fn a_refusal_says_nothing_of_one_that_accepted_for_less_than_a_second() {
        let mut state = ConnectionState::default();
        for event in [(Refused, 0), (Refused, 500), (Accepted, 600), (Closed, 1_599), (Refused, 1_599)] {
            state.observe(event.0, at(event.1));
        }
        state.observe(Refused, at(2_000));
        assert!(!state.is_gone(), "it was never there for long");
    }

    #[test]
    fn one_that_is_gone_is_healthy_again_when_it_accepts_for_a_second() {
        let mut state = held();
        state.observe(Refused, at(5_000));
        state.observe(Refused, at(5_010));
        state.observe(Accepted, at(7_000));
        assert_eq!(state.due(), Some(at(8_000)));
        state.look(at(7_999));
        assert!(state.is_gone());
        state.look(at(8_000));
        assert!(!state.is_gone());
        assert_eq!(state.due(), None);
        // A refusal in between begins the second anew.
        state.observe(Closed, at(8_500));
        state.observe(Refused, at(8_500));
        state.observe(Refused, at(8_510));
        for event in [(Accepted, 9_000), (Closed, 9_900), (Refused, 9_900), (Accepted, 10_000)] {
            state.observe(event.0, at(event.1));
        }
        state.look(at(10_999));
        assert!(state.is_gone());
        state.look(at(11_000));
        assert!(!state.is_gone());
    }

    #[test]
    fn who_closes_at_once_is_tried_each_second_and_who_closes_each_second_at_once() {
        let mut state = ConnectionState::default();
        let mut pauses = Vec::new();
        for _ in 0..10 {
            state.observe(Accepted, at(0));
            pauses.push(state.observe(Closed, at(1)).as_millis());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 640, 1_000, 1_000]);
        state.observe(Accepted, at(1_000));
        assert_eq!(state.observe(Closed, at(1_999)), Duration::ZERO);
        state.observe(Accepted, at(2_000));
        assert_eq!(state.observe(Closed, at(2_001)), Duration::from_millis(5));
    }
}
