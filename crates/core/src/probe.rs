//! What a leader is asked, and when its answers count as a failure.

use std::time::Duration;

use super::TargetPort;

/// What a leader is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeTarget {
    /// The port of the pod.
    pub port: TargetPort,
    /// What is sent there.
    pub request: ProbeRequest,
}

/// What is sent to a pod, and which answer is a success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeRequest {
    /// An HTTP GET. A status from 200 to 399 is a success.
    Http(Box<HttpProbe>),
    /// Nothing. A TCP connection is a success.
    Tcp,
    /// A call of `grpc.health.v1.Health/Check` for this service, by gRPC without TLS. `SERVING` is a success.
    Grpc(Box<str>),
}

/// An HTTP GET to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProbe {
    /// Whether it is sent over TLS. The pod's certificate is not verified.
    pub tls: bool,
    /// The host in the URL, which the header Host and TLS name. The pod's address if there is none. The pod is asked either way.
    pub host: Option<Box<str>>,
    /// The path, and a query if there is one.
    pub path: Box<str>,
    /// Further headers, by name.
    pub headers: Box<[(Box<str>, Box<str>)]>,
}

/// What the readiness probe of a container asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadinessProbe {
    /// The container's name.
    pub container: Box<str>,
    /// What is asked, or why only the kubelet can ask it.
    pub target: Result<ProbeTarget, OnlyByKubelet>,
}

/// Why only the pod's kubelet can ask what a readiness probe asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnlyByKubelet {
    /// It runs a command in the container.
    Exec,
    /// It asks another host than the pod, such as the node's loopback address.
    OtherHost,
}

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
