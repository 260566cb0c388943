//! A session whose requests are answered late, never, or for another one: nobody relies on it for longer than Consul keeps it.

use std::time::Duration;

use proptest::prelude::*;

use super::{at, config};
use crate::{FoundSession, Instant, LockValidity, SessionCommand, SessionLife, SessionParameters};

const IDS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Copy, Debug)]
enum Event {
    Later(u64),
    Suspect,
    LookedUp(u8),
    LookUpFailed,
    Created(usize),
    CreateFailed(bool),
    /// A renewal that was sent so many milliseconds ago, of a session with such a TTL.
    Renewed(usize, u64, u64),
    RenewalFailed(usize, bool),
    Lost(usize),
    PutDown,
}

fn event() -> impl Strategy<Value = Event> {
    let ttl = prop_oneof![Just(0_u64), 10_000_u64..100_000];
    prop_oneof![
        4 => (0_u64..30_000).prop_map(Event::Later),
        1 => Just(Event::Suspect),
        2 => (0_u8..8).prop_map(Event::LookedUp),
        1 => Just(Event::LookUpFailed),
        1 => (0_usize..3).prop_map(Event::Created),
        1 => any::<bool>().prop_map(Event::CreateFailed),
        5 => (0_usize..3, 0_u64..60_000, ttl).prop_map(|(id, ago, ttl)| Event::Renewed(id, ago, ttl)),
        2 => (0_usize..3, any::<bool>()).prop_map(|(id, known)| Event::RenewalFailed(id, known)),
        1 => (0_usize..3).prop_map(Event::Lost),
        1 => Just(Event::PutDown),
    ]
}

proptest! {
    #![proptest_config(config(128))]

    #[test]
    fn a_validity_ends_a_fifth_before_the_ttl_of_a_renewal_that_succeeded(
        name in ".*",
        seconds in 10_u64..60,
        events in prop::collection::vec(event(), 1..100),
    ) {
        let own = Duration::from_secs(seconds);
        let mut life = SessionLife::new(&name, SessionParameters { ttl: own });
        let mut now = 100_000;
        // Until when each session is surely kept: what its renewals were sent for.
        let mut kept = [(Duration::ZERO, Instant::default()); 3];
        for event in events {
            let moment = at(now);
            let before = life.id().map(str::to_owned);
            match event {
                Event::Later(by) => now += by,
                Event::Suspect => life.suspect(),
                Event::LookedUp(which) => {
                    let found = |at: usize| FoundSession { id: IDS[at].into(), ttl: own, create_index: u64::from(which) };
                    let found = (0..3).filter(|at| which & (1 << at) != 0).map(found).collect();
                    if before.is_none() {
                        kept = [(own, Instant::default()); 3];
                    }
                    life.looked_up(found, moment);
                }
                Event::LookUpFailed => life.look_up_failed(moment),
                Event::Created(which) => {
                    kept[which] = (own, moment);
                    life.created(IDS[which].into(), own, moment, moment);
                }
                Event::CreateFailed(known) => life.create_failed(known, moment),
                Event::Renewed(which, ago, ttl) => {
                    let (sent, ttl) = (at(now - ago), Duration::from_millis(ttl));
                    let (known, last) = kept[which];
                    if before.as_deref() == Some(IDS[which]) && sent > last {
                        kept[which] = (if ttl.is_zero() { known } else { ttl }, sent);
                    }
                    life.renewed(IDS[which], ttl, sent, moment);
                }
                Event::RenewalFailed(which, known) => life.renewal_failed(IDS[which], known, moment),
                Event::Lost(which) => life.lost(IDS[which], moment),
                Event::PutDown => life.put_down(moment),
            }
            let moment = at(now);
            if let LockValidity::Until(end) = life.validity(moment) {
                let Some(id) = life.id() else { return Err(TestCaseError::fail("a validity without a session")) };
                let which = IDS.iter().position(|known| *known == id).unwrap_or_default();
                let (ttl, sent) = kept[which];
                prop_assert!(moment < end && end <= sent + ttl - ttl / 5, "{end:?} by {event:?} for {ttl:?} from {sent:?}");
            }
            if let Event::Lost(which) = event {
                prop_assert!(life.id() != Some(IDS[which]));
            }
            if let SessionCommand::Wait(until) = life.next(moment) {
                prop_assert!(moment < until && until.since(moment) <= Duration::from_secs(100), "{until:?}");
            }
        }
    }
}
