//! How long failures keep from trying again.

use std::time::Duration;

use proptest::prelude::*;

use super::{at, config};
use crate::backoff::Backoff;

const LONGEST: Duration = Duration::from_millis(12_550);
const SHORTEST: Duration = Duration::from_millis(100);

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn a_failure_is_waited_for_between_a_tenth_of_a_second_and_some_more_than_ten(
        owner in ".*",
        steps in prop::collection::vec((any::<bool>(), 0_u64..100_000), 1..60),
    ) {
        let (mut backoff, mut now, mut failures) = (Backoff::new(&owner), 1_000, 0_u32);
        let mut until = at(now);
        for (shortly, later) in steps {
            if shortly {
                backoff.delay_shortly(at(now));
            } else {
                // After a quiet time it is a first failure again.
                failures = if at(now).since(until) > Duration::from_secs(10) { 1 } else { failures + 1 };
                backoff.delay(at(now));
            }
            until = backoff.waits(at(now)).unwrap_or(until);
            let wait = backoff.waits(at(now)).map(|until| until.since(at(now)));
            prop_assert!(wait >= Some(SHORTEST) && wait <= Some(LONGEST), "{wait:?}");
            if shortly {
                prop_assert!(wait <= Some(Duration::from_millis(1_010)), "{wait:?}");
            } else {
                let least = SHORTEST * 2_u32.pow(failures.min(8) - 1);
                prop_assert!(wait >= Some(least.min(Duration::from_secs(10))), "{wait:?} after {failures}");
            }
            now += later;
            prop_assert!(backoff.waits(at(now) + LONGEST).is_none());
        }
        backoff.reset();
        prop_assert!(backoff.waits(at(now)).is_none());
    }
}

/// A store that is away for years.
#[test]
fn failures_without_an_end_are_counted() {
    let mut backoff = Backoff::new("web");
    for _ in 0..100_000 {
        backoff.delay(at(0));
    }
    assert!(backoff.waits(at(0)).is_some());
}
