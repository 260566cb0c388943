//! However often the leader changes: changes that can wait become ever rarer, and end a row only by calm.

use proptest::prelude::*;

use super::{at, config};
use crate::{Flapping, ProbeFailure, Reason};

proptest! {
    #![proptest_config(config(512))]

    /// Somebody wants a change that can wait all the time, and other changes come in between: in any ten minutes there are at most eight
    /// that could wait.
    #[test]
    fn changes_that_can_wait_become_rare(
        steps in prop::collection::vec((1..20_000_u64, prop::bool::weighted(0.05)), 1..400),
    ) {
        let (mut row, mut now, mut waited) = (Flapping::default(), 0_u64, Vec::new());
        for (later, lost) in steps {
            now += later;
            if lost {
                row.note(&Reason::LeaderGone, at(now));
            } else if row.waits(at(now)).is_none() {
                row.note(&Reason::ProbeFailed(ProbeFailure::NoAnswer), at(now));
                waited.push(now);
            }
        }
        for first in &waited {
            let within = waited.iter().filter(|other| (*first..first + 600_000).contains(other)).count();
            prop_assert!(within <= 8, "{within} changes within ten minutes: {waited:?}");
        }
    }
}
