//! How long to wait after a failure.

use std::time::Duration;

use super::Instant;

/// Exponential back-off. The jitter comes from the owner's id, so that the elections of a broken cluster do not try again all at
/// once, and the same run gives the same times.
#[derive(Debug)]
pub(super) struct Backoff {
    seed: u64,
    failures: u32,
    until: Option<Instant>,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(10);

    pub(super) fn new(owner: &str) -> Self {
        Self::with_seed(seed_of(owner))
    }

    /// With a seed of 0 there is no jitter.
    pub(super) fn with_seed(seed: u64) -> Self {
        Self { seed, failures: 0, until: None }
    }

    /// One more failure.
    pub(super) fn delay(&mut self, now: Instant) {
        let exponential = Self::FIRST.saturating_mul(1 << self.failures.min(10)).min(Self::LONGEST);
        let jitter = self.seed.rotate_left(self.failures * 7) % 256;
        self.until =
            Some(now + exponential + exponential.mul_f64(0.001 * f64::from(u8::try_from(jitter).unwrap_or(0))));
        self.failures = self.failures.saturating_add(1);
    }

    /// One more attempt that came too early; the next ones are not far apart.
    pub(super) fn delay_shortly(&mut self, now: Instant) {
        self.failures = self.failures.min(3);
        self.delay(now);
    }

    /// Until when to wait, if at all.
    pub(super) fn waits(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    /// A success.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
        self.until = None;
    }
}

/// A number that differs from owner to owner. FNV-1a: any spread will do.
pub(super) fn seed_of(owner: &str) -> u64 {
    owner.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
