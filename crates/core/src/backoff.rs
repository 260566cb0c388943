//! The wait after a failure.

use std::time::Duration;

use super::Instant;

/// Exponential back-off. The jitter comes from the owner's id, so that the elections of a broken cluster do not all retry at once, and the
/// same run has the same times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Backoff {
    seed: u64,
    failures: u32,
    until: Option<Instant>,
    /// When attempts began to come too early.
    early: Option<Instant>,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(800);

    pub(super) fn new(owner: &str) -> Self {
        Self::with_seed(seed_of(owner))
    }

    /// A back-off with this seed. A seed of 0 gives no jitter.
    pub(super) fn with_seed(seed: u64) -> Self {
        Self { seed, failures: 0, until: None, early: None }
    }

    /// Notes one more failure, or the first one, if there was none for a while.
    pub(super) fn delay(&mut self, now: Instant) {
        if self.until.is_some_and(|until| now.since(until) > Self::LONGEST) {
            self.failures = 0;
        }
        let exponential = Self::FIRST.saturating_mul(1 << self.failures.min(10)).min(Self::LONGEST);
        self.wait(exponential, now);
        self.failures = self.failures.saturating_add(1);
        self.early = None;
    }

    /// Notes one more attempt that came too early, by an unknown time. The next wait is a quarter of the whole wait so far, so that it adds
    /// little, whether that was a second or a minute.
    pub(super) fn delay_shortly(&mut self, now: Instant) {
        if self.until.is_some_and(|until| now.since(until) > Self::LONGEST) {
            self.early = None;
        }
        let since = *self.early.get_or_insert(now);
        self.wait((now.since(since) / 4).clamp(Self::FIRST, Self::SHORT), now);
    }

    fn wait(&mut self, period: Duration, now: Instant) {
        let jitter = self.seed.rotate_left(self.failures * 7) % 256;
        self.until = Some(now + period + period.mul_f64(0.001 * f64::from(u8::try_from(jitter).unwrap_or(0))));
    }

    /// The end of the wait, if there is one.
    pub(super) fn waits(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    /// Notes a success.
    pub(super) fn reset(&mut self) {
        (self.failures, self.until, self.early) = (0, None, None);
    }
}

/// Returns a number that differs from owner to owner, and is the same in each version of this program. FNV-1a: any spread will do.
pub fn seed_of(owner: &str) -> u64 {
    owner.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_added_to_a_wait_of_unknown_length() {
        for milliseconds in [1_000, 5_000, 15_000, 60_000] {
            let end = Instant::default() + Duration::from_millis(milliseconds);
            let (mut backoff, mut now, mut attempts) = (Backoff::new("a"), Instant::default(), 1);
            while now < end {
                backoff.delay_shortly(now);
                now = backoff.until.unwrap();
                attempts += 1;
            }
            assert!(now.since(end) < Duration::from_millis((milliseconds * 2 / 5).min(1_010)), "{now:?} for {end:?}");
            assert!(attempts < 10 + milliseconds / 800, "{attempts} attempts for {end:?}");
            // Another such wait begins anew.
            backoff.delay_shortly(now + Duration::from_secs(20));
            assert!(backoff.until.unwrap().since(now) < Duration::from_millis(20_130));
        }
    }

    #[test]
    fn a_failure_after_a_quiet_time_is_the_first_one() {
        let (mut backoff, now) = (Backoff::with_seed(0), Instant::default());
        for _ in 0..5 {
            backoff.delay(now);
        }
        let later = backoff.until.unwrap() + Backoff::LONGEST + Duration::from_secs(1);
        backoff.delay(later);
        assert_eq!(backoff.until, Some(later + Backoff::FIRST));
    }

    #[test]
    fn what_is_added_differs_from_one_failure_to_the_next() {
        let (mut backoff, now) = (Backoff::new("a"), Instant::default());
        let mut added = std::collections::BTreeSet::new();
        for failures in 0..7 {
            backoff.delay(now);
            added.insert(backoff.until.unwrap().since(now) / (1 << failures));
        }
        assert!(added.len() > 3, "{added:?}");
    }
}
