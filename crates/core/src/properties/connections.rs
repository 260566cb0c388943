//! Leaders that accept, close, refuse, or do not answer, in any order: what the connection that is held to them tells of them, and how
//! often it is made.

use proptest::prelude::*;

use super::{at, config};
use crate::{ConnectionEvent, ConnectionState};

/// What a server that is there shows.
const ACCEPTS: [ConnectionEvent; 2] = [ConnectionEvent::Accepted, ConnectionEvent::Closed];

/// How a leader behaves for a while.
#[derive(Clone, Copy, Debug)]
enum Server {
    /// Accepts connections, and keeps them.
    Holds,
    /// Accepts connections, and closes each after so many milliseconds.
    Closes(u64),
    /// Nobody listens.
    Dead,
    /// Nothing is heard of it.
    Silent,
}

fn server() -> impl Strategy<Value = (Server, u64)> {
    let server = prop_oneof![
        3 => Just(Server::Holds),
        2 => (0_u64..1_200).prop_map(Server::Closes),
        3 => Just(Server::Dead),
        1 => Just(Server::Silent),
    ];
    (server, prop_oneof![2 => 0_u64..20, 2 => 0_u64..1_500, 1 => 0_u64..8_000])
}

/// What was seen of a leader: each event, and when. A connection that is still open counts as one that was accepted again.
#[derive(Default)]
struct Seen {
    state: ConnectionState,
    events: Vec<(ConnectionEvent, u64)>,
    attempts: Vec<u64>,
    /// When it counted as gone, and when as healthy again; and after how many events.
    verdicts: Vec<(bool, u64, usize)>,
}

/// Holds a connection to a server that behaves like this in turn, each for so many milliseconds. A silent one is waited for for a
/// second; a connection to it is lost after three.
fn hold(servers: &[(Server, u64)]) -> Seen {
    let end: u64 = servers.iter().map(|(_, lasts)| lasts).sum();
    let of = |now: u64| {
        let mut until = 0;
        servers.iter().find(|(_, lasts)| {
            until += lasts;
            now < until
        })
    };
    let mut seen = Seen::default();
    // Since when a connection is open.
    let mut open: Option<u64> = None;
    let mut next = 0;
    let mut silent_for = 0;
    for now in 0..end {
        let Some(&(server, _)) = of(now) else { break };
        if let Some(opened) = open {
            silent_for = if matches!(server, Server::Silent) { silent_for + 1 } else { 0 };
            let event = match server {
                Server::Dead => Some(ConnectionEvent::Closed),
                Server::Closes(after) if now >= opened + after => Some(ConnectionEvent::Closed),
                Server::Silent if silent_for > 3_000 => Some(ConnectionEvent::Failed),
                _ => None,
            };
            match event {
                Some(event) => {
                    open = None;
                    next = now + seen.take(event, now);
                }
                None if seen.state.due().is_some_and(|due| due <= at(now)) => {
                    seen.events.push((ConnectionEvent::Accepted, now));
                    seen.state.look(at(now));
                    seen.note(now);
                }
                None => {}
            }
        }
        if open.is_none() && now >= next {
            seen.attempts.push(now);
            let (event, took) = match server {
                Server::Holds | Server::Closes(_) => (ConnectionEvent::Accepted, 0),
                Server::Dead => (ConnectionEvent::Refused, 0),
                Server::Silent => (ConnectionEvent::Failed, 1_000),
            };
            let pause = seen.take(event, now);
            if event == ConnectionEvent::Accepted {
                (open, silent_for) = (Some(now), 0);
            } else {
                // Nothing is tried twice at one moment.
                next = now + took + pause.max(1);
            }
        }
    }
    seen
}

impl Seen {
    fn take(&mut self, event: ConnectionEvent, now: u64) -> u64 {
        self.events.push((event, now));
        let pause = self.state.observe(event, at(now));
        self.note(now);
        u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)
    }

    fn note(&mut self, now: u64) {
        let gone = self.verdicts.last().is_some_and(|(gone, ..)| *gone);
        if self.state.is_gone() != gone {
            self.verdicts.push((!gone, now, self.events.len()));
        }
    }

    /// For how long nothing else than these was seen, up to the last of so many events.
    fn only(&self, these: &[ConnectionEvent], count: usize) -> u64 {
        let seen = &self.events[..count];
        let first = seen.iter().rev().take_while(|(event, _)| these.contains(event)).last();
        first.zip(seen.last()).map(|((_, first), (_, last))| last - first).unwrap_or_default()
    }

    /// Whether it accepted connections for a second, with nothing else in between, before the last of so many events.
    fn was_steady(&self, count: usize) -> bool {
        (1..count).any(|count| self.only(&ACCEPTS, count) >= 1_000)
    }
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn a_process_is_gone_only_if_it_was_reached_and_is_refused_for_a_while(
        servers in prop::collection::vec(server(), 1..24),
    ) {
        let seen = hold(&servers);
        for (gone, when, count) in &seen.verdicts {
            if *gone {
                let refused = seen.only(&[ConnectionEvent::Refused], *count);
                prop_assert!(refused >= 10, "gone at {when}: {:?}", seen.events);
                prop_assert!(seen.was_steady(*count), "gone at {when}, and was never there: {:?}", seen.events);
            } else {
                let accepted = seen.only(&ACCEPTS, *count);
                prop_assert!(accepted >= 1_000, "back at {when}: {:?}", seen.events);
            }
        }
        // So the leadership does not move to and fro.
        let lost: Vec<u64> = seen.verdicts.iter().filter(|(gone, ..)| *gone).map(|(_, when, _)| *when).collect();
        prop_assert!(lost.windows(2).all(|two| two[0] + 1_000 <= two[1]), "{lost:?}");
    }

    #[test]
    fn without_a_refusal_nobody_is_gone(servers in prop::collection::vec(server(), 1..24)) {
        let accepting: Vec<(Server, u64)> =
            servers.into_iter().filter(|(server, _)| !matches!(server, Server::Dead)).collect();
        prop_assert_eq!(hold(&accepting).verdicts, []);
    }

    #[test]
    fn a_process_that_ends_while_its_connection_is_open_is_gone_in_milliseconds(
        before in prop::collection::vec(server(), 0..8),
        held in 3_000_u64..9_000,
    ) {
        let ends = before.iter().map(|(_, lasts)| lasts).sum::<u64>() + held;
        let servers = [before, vec![(Server::Holds, held), (Server::Dead, 1_000)]].concat();
        let seen = hold(&servers);
        let (gone, when, _) = seen.verdicts.last().copied().unwrap_or_default();
        prop_assert!(gone && (ends..=ends + 20).contains(&when), "ends at {ends}: {:?}", seen.verdicts);
    }

    #[test]
    fn no_server_makes_it_try_without_a_pause(servers in prop::collection::vec(server(), 1..24)) {
        let attempts = hold(&servers).attempts;
        let in_a_second = |first: &u64| attempts.iter().filter(|at| (*first..first + 1_000).contains(*at)).count();
        let most = attempts.iter().map(in_a_second).max().unwrap_or_default();
        prop_assert!(most <= 32, "{most} in a second: {attempts:?}");
    }
}

#[test]
fn a_server_that_closes_each_second_is_connected_to_once_a_second() {
    let each_second = hold(&[(Server::Closes(1_000), 600_000)]);
    assert!((590..=601).contains(&each_second.attempts.len()), "{}", each_second.attempts.len());
    let at_once = hold(&[(Server::Closes(0), 600_000)]);
    assert!((590..=620).contains(&at_once.attempts.len()), "{}", at_once.attempts.len());
    assert_eq!((each_second.verdicts, at_once.verdicts), (vec![], vec![]));
}
