//! The conditions that a class's status reports about its store.

use std::time::Duration;

use lictor_core::Timestamp;
use tokio::time::Instant;

use super::settings::Trouble;
use crate::api::{ConsulStatus, ElectionClass, ElectionClassStatus, READY, SessionNode, condition, unknown};
use crate::controller::class_status::complete;
use crate::store::Sessions;

/// The last failure of each kind of a store's work.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) settings: Option<Trouble>,
    pub(crate) check: Option<Result<lictor_consul::Agent, lictor_consul::Error>>,
    pub(crate) sessions: Option<Trouble>,
    pub(crate) watch: Option<String>,
    pub(crate) slow: Option<Slow>,
}

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
    fn told(self) -> String {
        let tenths = |time: Duration| time.as_millis().div_ceil(100);
        let seconds = |tenths: u128| format!("{}.{} s", tenths / 10, tenths % 10);
        format!(
            "Consul answers slowly: a renewal of a session took {}. If it takes {}, it counts as lost, and soon all leaders here are demoted. Find what \
             is slow between here and Consul's servers, or raise consul.sessions.ttlSeconds",
            seconds(tenths(self.took)),
            seconds(tenths(self.longest))
        )
    }
}

impl Report {
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        if let Some(Trouble { reason, message }) = &self.settings {
            return Some(Trouble { reason, message: message.clone() });
        }
        if let Some(Err(error)) = &self.check {
            let reason = match error {
                lictor_consul::Error::Unreachable(_) | lictor_consul::Error::Unknown(_) => "NoAnswer",
                lictor_consul::Error::Forbidden(_) => "Forbidden",
                lictor_consul::Error::UnknownToken(_) => "TokenUnknown",
                lictor_consul::Error::Busy(_) => "Busy",
                lictor_consul::Error::NoLeader(_) => "NoLeader",
                lictor_consul::Error::NoNode(_) | lictor_consul::Error::Refused(_) => "Refused",
            };
            return Some(Trouble { reason, message: error.to_string() });
        }
        let watch = || Some(Trouble { reason: "WatchFails", message: self.watch.clone()? });
        self.sessions.clone().or_else(watch)
    }
}

/// The new status of the class, if it differs from the present one. `store`: the node of its sessions, and the sessions.
pub(crate) fn class_status(
    class: &ElectionClass,
    report: &Report,
    store: Option<(&SessionNode, &Sessions)>,
    wall: Timestamp,
) -> Option<ElectionClassStatus> {
    let before = class.status.clone().unwrap_or_default();
    let asked = report.check.is_some() || report.settings.is_some();
    // The previous condition stays until the operator knows more.
    if !asked && before.conditions.iter().any(|old| old.type_ == READY) {
        return None;
    }
    let generation = class.metadata.generation.unwrap_or_default();
    let ready = match (report.trouble(), report.slow) {
        (Some(Trouble { reason, message }), _) => condition(READY, false, reason, message, generation),
        (None, _) if !asked => unknown(READY, "NotAskedYet", "Consul has not answered yet", generation),
        (None, Some(slow)) => condition(READY, true, "Slow", slow.told(), generation),
        (None, None) => condition(READY, true, "Answers", "Consul answers, and the sessions are kept", generation),
    };
    let mut status = ElectionClassStatus {
        observed_generation: Some(generation),
        conditions: complete(ready, &before.conditions, wall),
        ..before.clone()
    };
    if let (Some(Ok(agent)), Some((node, sessions))) = (&report.check, store) {
        let sessions = sessions.ids.iter().flatten().cloned().collect();
        let node_name = match node {
            SessionNode::Own(node) => Some(node.clone()),
            SessionNode::Agent => agent.node.clone(),
        };
        let version = agent.version.clone().unwrap_or_else(|| "unknown".into());
        status.consul = Some(ConsulStatus { version, node_name, sessions });
    }
    (status != before).then_some(status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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

        let object = json!({"apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": "c"}, "spec": {"consul": {
            "address": "http://consul.example:8500", "clusterName": "west"}}});
        let class: ElectionClass = serde_json::from_value(object).expect("a class");
        let check = lictor_consul::Agent::default();
        let report = Report { check: Some(Ok(check)), slow: Some(slow), ..Report::default() };
        let status = class_status(&class, &report, None, Timestamp(0)).expect("it is new");
        let ready = &status.conditions[0];
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("True", "Slow"));
        assert!(ready.message.contains("took 1.6 s. If it takes 2.0 s"), "{}", ready.message);
    }
}
