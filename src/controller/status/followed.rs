//! The part of a status about the lock that the candidates hold themselves.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use lictor_api::{ELECTED, Followed, FollowedLockStatus, Resolved, condition};
use lictor_core::{FollowedLock, Following, Instant, LockHolder, Node, NotHeld, Pod, Unmapped, eligible};

use crate::wording::{in_seconds, not_eligible};

/// The candidates, each with its node.
type Candidates<'a> = [(&'a Pod, Option<&'a Node>)];

/// The lock itself.
pub(super) fn followed_lock(following: Following<'_>, candidates: &Candidates<'_>) -> FollowedLockStatus {
    let state = |state: &str| FollowedLockStatus { state: state.into(), ..FollowedLockStatus::default() };
    match following.lock {
        FollowedLock::Unread | FollowedLock::Unknown(_) => state("Unknown"),
        FollowedLock::Free(_) => state("Free"),
        FollowedLock::Held(holder) => FollowedLockStatus {
            holder: Some(holder.identity.clone()),
            pod_name: pod_of(following, holder, candidates).ok().map(|(pod, _)| pod.name.clone()),
            transitions: holder.transitions,
            acquire_time: holder.since.map(in_seconds).map(Time),
            ..state("Held")
        },
    }
}

/// The condition `Elected`, if a pod leads although the lock's holder is unknown.
pub(super) fn led_unseen(followed: &Followed, lock: &FollowedLock, leader: &str, generation: i64) -> Option<Condition> {
    let FollowedLock::Unknown(why) = lock else { return None };
    let message = format!("{leader} remains the leader, because {} can't be read: {why}", followed.told());
    Some(condition(ELECTED, true, "FollowedLockUnknown", message, generation))
}

/// The condition `Elected`, if there is no leader.
pub(super) fn led_by_nobody(
    spec: &Resolved,
    following: Following<'_>,
    candidates: &Candidates<'_>,
    now: Instant,
    generation: i64,
) -> Condition {
    let told = spec.followed.as_ref().map(Followed::told).unwrap_or_default();
    let (reason, message) = match following.lock {
        FollowedLock::Unread => ("FollowedLockUnknown", format!("{told} has not been read yet")),
        FollowedLock::Unknown(why) => {
            ("FollowedLockUnknown", format!("no pod is elected, because {told} can't be read: {why}"))
        }
        FollowedLock::Free(NotHeld::Absent) => (
            "FollowedLockFree",
            format!("{told} does not exist, or may not be read, so none of the candidates holds it"),
        ),
        FollowedLock::Free(NotHeld::Released) => ("FollowedLockFree", format!("{told} has no holder")),
        FollowedLock::Free(NotHeld::Expired) => (
            "FollowedLockFree",
            format!(
                "the holder of {told} has not renewed it for longer than its leaseDurationSeconds, so it counts as free"
            ),
        ),
        FollowedLock::Held(holder) => held_by(holder, &told, spec, pod_of(following, holder, candidates), now),
    };
    condition(ELECTED, false, reason, message, generation)
}

fn held_by(
    holder: &LockHolder,
    told: &str,
    spec: &Resolved,
    found: Result<(&Pod, Option<&Node>), Unmapped>,
    now: Instant,
) -> (&'static str, String) {
    let identity = &holder.identity;
    match found {
        Err(Unmapped::Nobody) => (
            "HolderNotFound",
            format!(
                "{identity:?} holds {told}, but is no pod that the election selects: check spec.followedLock.identity \
                 and spec.selector"
            ),
        ),
        Err(Unmapped::Several) => (
            "HolderAmbiguous",
            format!(
                "{identity:?} holds {told}, but several pods that the election selects have that name, address or \
                 annotation: make spec.followedLock.identity distinguish them"
            ),
        ),
        Ok((pod, node)) => {
            let node = node.map(|node| Node { cordoned: false, ..node.clone() });
            match eligible(pod, node.as_ref(), &spec.rules, now) {
                Err(why) => {
                    let message = format!("{} holds {told}, but can't be the leader: {}", pod.name, not_eligible(&why));
                    ("HolderNotEligible", message)
                }
                Ok(()) => (
                    "HolderNotConfirmed",
                    format!(
                        "{told} is held in the name of {}, but an earlier pod of that name may have taken it: the pod \
                         leads once it writes to the lock",
                        pod.name
                    ),
                ),
            }
        }
    }
}

fn pod_of<'a>(
    following: Following<'_>,
    holder: &LockHolder,
    candidates: &Candidates<'a>,
) -> Result<(&'a Pod, Option<&'a Node>), Unmapped> {
    let pod = following.rule.find(holder, candidates.iter().map(|(pod, _)| *pod))?;
    let node = candidates.iter().find(|(other, _)| other.uid == pod.uid).and_then(|(_, node)| *node);
    Ok((pod, node))
}
