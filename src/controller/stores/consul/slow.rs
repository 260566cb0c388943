//! The warning that renewals of sessions take almost as long as they may.

use std::time::Duration;

use tokio::time::Instant;

/// Renewals take almost as long as they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slow {
    /// The longest renewal since the first slow one.
    took: Duration,
    longest: Duration,
    /// When renewals count as fast again, unless another one is slow.
    until: Instant,
}

impl Slow {
    /// How long renewals have to stay fast before the warning ends.
    const CALMS: Duration = Duration::from_secs(60);

    /// Takes the time that a renewal took. A renewal is slow from half of the longest time on, because after a lost renewal, the next one
    /// is too late if it takes more than two thirds of that time.
    pub(crate) fn after(before: Option<Self>, renewal: Duration, longest: Duration, now: Instant) -> Option<Self> {
        if renewal * 2 < longest {
            return before.filter(|slow| now < slow.until);
        }
        let took = before.map_or(renewal, |slow| slow.took.max(renewal));
        Some(Self { took, longest, until: now + Self::CALMS.max(longest * 5) })
    }

    /// In whole tenths of a second, so that the status is not written at each renewal.
    pub(crate) fn told(self) -> String {
        let tenths = |time: Duration| time.as_millis().div_ceil(100);
        let seconds = |tenths: u128| format!("{}.{} s", tenths / 10, tenths % 10);
        format!(
            "Consul answers slowly: a renewal of a session took {}. A renewal that takes {} counts as lost, and all \
             leaders here are demoted soon after. Find out what is slow between here and Consul's servers, or raise \
             consul.sessions.ttlSeconds",
            seconds(tenths(self.took)),
            seconds(tenths(self.longest))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn renewals_that_come_near_their_longest_time_are_told_until_they_are_fast_for_a_minute() {
        let (ms, longest, start) = (Duration::from_millis, Duration::from_secs(2), Instant::now());
        assert_eq!(Slow::after(None, ms(999), longest, start), None);
        let slow = Slow::after(None, ms(1_010), longest, start).expect("it is slow");
        let slow = Slow::after(Some(slow), ms(1_510), longest, start + ms(3_000)).expect("it is slow");
        let slow = Slow::after(Some(slow), ms(1_001), longest, start + ms(6_000)).expect("it is slow");
        let again = Slow::after(Some(slow), ms(10), longest, start + ms(65_999));
        assert_eq!(again, Some(slow), "what was said stays");
        assert_eq!(Slow::after(again, ms(10), longest, start + ms(66_000)), None);
        let long = Slow::after(None, ms(20_000), ms(20_000), start);
        assert_eq!(Slow::after(long, ms(10), ms(20_000), start + ms(99_000)), long, "three renewals");
        assert!(slow.told().contains("took 1.6 s. A renewal that takes 2.0 s"), "{}", slow.told());
    }
}
