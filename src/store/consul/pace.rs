//! How soon the watch asks again.

use std::time::Duration;

use tokio::time::Instant;

/// The time between two queries, on average while all the time something changes, because each answer has all locks.
const PACE: Duration = Duration::from_millis(50);
/// How many queries go without a pause after a quiet time, because a handover between clusters is several changes in a row.
const BURST: u32 = 8;

/// Counts queries. Each quiet [`PACE`] pays for one without a pause, up to [`BURST`].
pub(super) struct Pace {
    /// When all queries so far are paid for.
    paid: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { paid: now }
    }

    /// A query was answered. Returns the pause before the next one.
    pub(super) fn next(&mut self, now: Instant) -> Duration {
        self.paid = self.paid.max(now) + PACE;
        self.paid.saturating_duration_since(now + PACE * BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_time_pays_for_queries_without_a_pause() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let at_once = |pace: &mut Pace, now| (0..100).take_while(|_| pace.next(now).is_zero()).count();
        assert_eq!(at_once(&mut pace, start), 8);
        // The one that came too early has paid for itself by its pause. So from then on they come at the pace.
        let later = start + PACE;
        assert_eq!(pace.next(later), PACE);
        assert_eq!(at_once(&mut pace, later + PACE * 5), 4);
        assert_eq!(at_once(&mut pace, later + Duration::from_secs(3600)), 8);
    }
}
