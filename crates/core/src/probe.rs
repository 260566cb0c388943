//! Decides when a leader's own answers count as a failure.

use std::time::Duration;

/// How a leader is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeRules {
    /// The time from one probe to the next.
    pub period: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// The number of failures in a row after which the leader counts as failed.
    pub failure_threshold: u32,
    /// The number of successes in a row after which it counts as healthy again.
    pub success_threshold: u32,
}

impl ProbeRules {
    /// The longest time from the moment at which the leader stops answering until it counts as failed.
    pub fn detection(&self) -> Duration {
        self.period * self.failure_threshold + self.timeout
    }
}

/// The finding of a leader's probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeFailure {
    /// The leader did not answer as it should, often enough.
    NoAnswer,
    /// The leader's process is gone: no process listens at this port any more.
    ProcessGone(u16),
}

/// The answers of one leader. The state starts as healthy, so that a new leader has time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeState {
    failed: bool,
    /// Answers in a row that speak against the present state.
    contrary: u32,
}

impl ProbeState {
    /// Takes one answer. Returns whether the leader counts as failed now.
    pub fn observe(&mut self, success: bool, rules: &ProbeRules) -> bool {
        if success == self.failed {
            self.contrary += 1;
            let threshold = if self.failed { rules.success_threshold } else { rules.failure_threshold };
            if self.contrary >= threshold {
                self.failed = !self.failed;
                self.contrary = 0;
            }
        } else {
            self.contrary = 0;
        }
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_count_answers_in_a_row() {
        let rules = ProbeRules {
            period: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            failure_threshold: 3,
            success_threshold: 2,
        };
        let mut state = ProbeState::default();
        let seen: Vec<bool> = [false, false, true, false, false, false, true, false, true, true]
            .map(|success| state.observe(success, &rules))
            .into();
        assert_eq!(seen, [false, false, false, false, false, true, true, true, true, false]);
        assert_eq!(rules.detection(), Duration::from_secs(7));
    }
}
