//! The conditions of a status, by the conventions of the Kubernetes API.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The spec is valid, and this lictor serves it.
pub const ACCEPTED: &str = "Accepted";
/// The group has a leader.
pub const ELECTED: &str = "Elected";
/// The store of the lock answers.
pub const STORE_REACHABLE: &str = "StoreReachable";
/// The store of a class answers, and lictor has the rights that it needs there.
pub const READY: &str = "Ready";
/// The Service of an election reaches its leader.
pub const ROUTED: &str = "Routed";
/// The workloads of an election are as its leadership wants them.
pub const WORKLOADS_FOLLOW: &str = "WorkloadsFollow";
/// `spec.paused` is set.
pub const PAUSED: &str = "Paused";

const UNKNOWN: &str = "Unknown";

/// Makes a condition. `reason` is one `CamelCase` word. `message` is a sentence that says what to do, if there is something to
/// do.
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

/// Sets the time of each condition's last change: the time from `before` if the status is the same there, else `now`.
pub fn with_transition_times(mut conditions: Vec<Condition>, before: &[Condition], now: Timestamp) -> Vec<Condition> {
    for condition in &mut conditions {
        condition.last_transition_time = before
            .iter()
            .find(|old| old.type_ == condition.type_ && old.status == condition.status)
            .map_or(Time(now), |old| old.last_transition_time.clone());
    }
    conditions
}
