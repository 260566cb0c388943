//! The conditions of a status, by the conventions of the Kubernetes API.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The spec is valid, and this lictor serves it. Of a Switchover: nothing blocks it, and it has begun.
pub const ACCEPTED: &str = "Accepted";
/// Of a Switchover: the new leader has its label.
pub const COMPLETE: &str = "Complete";
/// Of a Switchover: it has ended without moving the leadership to the requested place.
pub const FAILED: &str = "Failed";
/// The group has a leader.
pub const ELECTED: &str = "Elected";
/// The store of the lock answers.
pub const STORE_REACHABLE: &str = "StoreReachable";
/// Everything works: an election does what it is for; a class is served, and its store answers.
pub const READY: &str = "Ready";
/// The Service of an election reaches its leader.
pub const ROUTED: &str = "Routed";
/// The object is not ready, and waiting does not help: a person has to change it. Absent otherwise, as kstatus
/// requires.
pub const STALLED: &str = "Stalled";
/// The reason of `Ready` until an operator has looked at an election for the first time. The API server itself writes
/// it.
pub const PENDING: &str = "Pending";
/// The workloads of an election are as its leadership requires.
pub const WORKLOADS_FOLLOW: &str = "WorkloadsFollow";
/// `spec.paused` is set.
pub const PAUSED: &str = "Paused";

const UNKNOWN: &str = "Unknown";

/// The address of the documents, without a slash at the end. A release sets it at build time.
pub const DOCUMENTS: &str = match option_env!("LICTOR_DOCUMENTS") {
    Some(address) => address,
    None => "docs",
};

/// The longest message, in characters, that the API conventions allow.
const LONGEST_MESSAGE: usize = 32_768;

/// Makes a condition. `reason` is one `CamelCase` word. `message` is a sentence that says what to do, if there is
/// anything to do.
pub fn condition(type_: &str, holds: bool, reason: &str, message: impl Into<String>, generation: i64) -> Condition {
    with_status(type_, if holds { "True" } else { "False" }, reason, message.into(), generation)
}

/// Makes a condition with the status Unknown.
pub fn unknown(type_: &str, reason: &str, message: impl Into<String>, generation: i64) -> Condition {
    with_status(type_, UNKNOWN, reason, message.into(), generation)
}

/// Returns whether the condition exists and has the status Unknown.
pub fn is_unknown(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == type_ && condition.status == UNKNOWN)
}

fn with_status(type_: &str, status: &str, reason: &str, message: String, generation: i64) -> Condition {
    Condition {
        type_: type_.into(),
        status: status.into(),
        reason: reason.into(),
        message,
        observed_generation: Some(generation),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    }
}

/// Returns the address of the section of docs/troubleshooting.md that says what to do.
pub fn page(section: &str) -> String {
    format!("{DOCUMENTS}/troubleshooting.md#{section}")
}

/// Appends the page to read to a message, unless the message ends with it already.
pub fn with_page(message: &str, section: &str) -> String {
    let end = format!("; see {}", page(section));
    let message = message.strip_suffix(&end).unwrap_or(message);
    let fits = LONGEST_MESSAGE.saturating_sub(end.chars().count());
    message.chars().take(fits).chain(end.chars()).collect()
}

/// Sets the time of each condition's last change: the time from `before` if the status is the same there, else `now`.
pub fn with_transition_times(mut conditions: Vec<Condition>, before: &[Condition], now: Timestamp) -> Vec<Condition> {
    for condition in &mut conditions {
        condition.last_transition_time = before
            .iter()
            .find(|old| old.type_ == condition.type_ && old.status == condition.status)
            // The API server's default has no time of its own.
            .filter(|old| old.last_transition_time.0 != Timestamp::UNIX_EPOCH)
            .map_or(Time(now), |old| old.last_transition_time.clone());
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_with_its_page_once_and_keeps_the_limit() {
        let once = with_page("the lock was lost", "elected");
        assert_eq!(once, format!("the lock was lost; see {DOCUMENTS}/troubleshooting.md#elected"));
        assert_eq!(with_page(&once, "elected"), once);
        let long = with_page(&"ä".repeat(40_000), "elected");
        assert_eq!(long.chars().count(), LONGEST_MESSAGE);
        assert!(long.ends_with(&format!("ä; see {}", page("elected"))));
    }

    #[test]
    fn a_condition_keeps_its_time_while_its_status_stays_and_takes_none_from_the_default() {
        let (then, now) = (Timestamp::from_second(1000).unwrap(), Timestamp::from_second(2000).unwrap());
        let at = |status: bool, time| with_transition_times(vec![condition(READY, status, "Led", "", 1)], &[], time);
        let time = |before: &[Condition]| {
            with_transition_times(vec![condition(READY, true, "Paused", "", 1)], before, now)[0].last_transition_time.0
        };
        assert_eq!(time(&at(true, then)), then);
        assert_eq!(time(&at(false, then)), now);
        assert_eq!(time(&at(true, Timestamp::UNIX_EPOCH)), now);
    }
}
