//! L1: how often to write again what another program undoes.
//!
//! Two replicas that act at once may want different things, for example because only one of them hears the store. The replica that writes
//! that a pod leads then waits before each further attempt. The replica that removes that never waits. A contest is not part of an
//! election, so the model need not explore how long ago a write was undone.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Command, Instant, OpId, Outcome, PodChange, PodOutcome, Uid};

/// The moment until which the operator waits after another program has undone a write.
#[derive(Clone, Debug, Default)]
pub struct Contest(Instant);

impl Contest {
    const WAIT: Duration = Duration::from_millis(500);
    /// The longest wait.
    const LONGEST: Duration = Duration::from_secs(1);
    /// The contest is over after this time.
    const QUIET: Duration = Duration::from_secs(2);

    /// Notes that an acknowledged write was undone. The first time makes no difference, because a person may have edited a label.
    pub fn note(&mut self, now: Instant) {
        let goes_on = self.0 != Instant::default() && now.since(self.0) <= Self::QUIET;
        self.0 = if goes_on { (self.0.max(now) + Self::WAIT).min(now + Self::LONGEST) } else { now };
    }

    /// The moment from which the operator may write again.
    pub fn restores_from(&self) -> Instant {
        self.0
    }
}

/// The marks on pods that do not lead, which a controller may remove for ever. The leader does not wait for them, because they have a pace
/// of their own.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    contest: Contest,
    /// The pods whose writes are under way.
    sent: BTreeMap<OpId, Uid>,
    /// When the API server acknowledged the last write of each pod, unless that was long ago.
    written: BTreeMap<Uid, Instant>,
}

impl Marks {
    /// Notes that a request is sent. A pod that was written to just before is written to again only if another program has undone that.
    pub fn send(&mut self, op: OpId, command: &Command, now: Instant) {
        let Command::WritePod(write) = command else { return };
        if write.change == PodChange::Promote {
            return;
        }
        self.written.retain(|_, at| now.since(*at) <= Contest::QUIET);
        if self.written.remove(&write.uid).is_some() {
            self.contest.note(now);
        }
        self.sent.insert(op, write.uid.clone());
    }

    /// Takes the outcome of a request.
    pub fn take(&mut self, op: OpId, outcome: &Outcome, now: Instant) {
        let Some(uid) = self.sent.remove(&op) else { return };
        if let Outcome::PodWritten(PodOutcome::Written(_)) = outcome {
            self.written.insert(uid, now);
        }
    }

    /// The moment from which the operator may write marks again.
    pub fn restores_from(&self) -> Instant {
        self.contest.restores_from()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::after_origin(Duration::from_millis(milliseconds))
    }

    /// Writes at the first moment at which that may be done, and somebody undoes it a millisecond later, for so long. Returns when it was
    /// written.
    fn written(contest: &mut Contest, from: u64, length: u64) -> Vec<u64> {
        let (mut times, mut undone) = (Vec::new(), true);
        for now in from..from + length {
            // An election decides by what was known before it says that something is undone.
            let may = at(now) >= contest.restores_from();
            if std::mem::take(&mut undone) {
                contest.note(at(now));
            }
            if may {
                times.push(now - from);
                undone = true;
            }
        }
        times
    }

    #[test]
    fn what_is_undone_again_and_again_is_written_a_few_times_a_second() {
        let mut contest = Contest::default();
        let times = written(&mut contest, 5_000, 5_000);
        assert_eq!(&times[..2], [0, 1], "a person may have done it");
        for second in 0..5_000 {
            let within = times.iter().filter(|time| (second..second + 1_000).contains(*time)).count();
            assert!(within <= 5, "{times:?}");
        }
    }

    proptest! {
        /// Whatever happens: after two quiet seconds nothing waits, and no wait is longer than a second.
        #[test]
        fn no_wait_is_long(undone in prop::collection::vec(0_u64..3_000, 1..60)) {
            let (mut contest, mut now) = (Contest::default(), 1_000_u64);
            for later in undone {
                now += later;
                contest.note(at(now));
                prop_assert!(contest.restores_from() <= at(now + 1_000));
                let mut quiet = contest.clone();
                quiet.note(at(now + 3_001));
                prop_assert_eq!(quiet.restores_from(), at(now + 3_001));
            }
        }
    }
}
