//! The condition `Ready`, as kstatus (sigs.k8s.io/cli-utils) reads it: derived from the other conditions, with nothing of its own.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use lictor_api::{
    ACCEPTED, ELECTED, PAUSED, READY, ROUTED, STALLED, STORE_REACHABLE, WORKLOADS_FOLLOW, condition, is_unknown,
    unknown, with_page, with_transition_times,
};

/// The refusals that only a change of the election or its class ends. All others can end by themselves: when the class arrives, or when
/// the other election is deleted.
const STALLING: [&str; 15] = [
    "AmbiguousDefaultClass",
    "ClassNotOffered",
    "EndUnknown",
    "FollowsItself",
    "InvalidCandidates",
    "InvalidClass",
    "KeyNotAllowed",
    "LabelInUse",
    "NoCandidates",
    "NoSuchStore",
    "NotInConsul",
    "PodsMultiply",
    "ReservedName",
    "ServiceNotAllowed",
    "WorkloadsNotAllowed",
];

/// The reasons of conditions that are True although there is a problem.
const LIMPING: [&str; 13] = [
    "ClassDeleted",
    "Flapping",
    "FollowedLockUnknown",
    "FormerLeaderStays",
    "KeysDiffer",
    "LabelInUse",
    "LabellingFails",
    "NotProbed",
    "ProbeFails",
    "RecordForged",
    "RecordsDiffer",
    "WaitingForRecovery",
    "WorkloadsDiffer",
];

/// Adds `Ready` and `Stalled` to an election's conditions, adds the page to read to the message of each unhealthy condition, and sets the
/// times.
pub(super) fn complete(
    mut conditions: Vec<Condition>,
    generation: i64,
    before: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    for condition in conditions.iter_mut().filter(|condition| !is_well(condition)) {
        condition.message = with_page(&condition.message, &condition.type_.to_lowercase());
    }
    let ready = ready(&conditions, generation);
    let refused = conditions.iter().any(|condition| condition.type_ == ACCEPTED && condition.status == "False");
    let stalled = refused && ready.status == "False" && STALLING.contains(&ready.reason.as_str());
    let stalled = stalled.then(|| condition(STALLED, true, &ready.reason, ready.message.clone(), generation));
    let all = [ready].into_iter().chain(stalled).chain(conditions).collect();
    with_transition_times(all, before, now)
}

/// The message of the condition `Accepted` of a refused election.
pub(crate) fn refusal_message(message: &str) -> String {
    with_page(message, &ACCEPTED.to_lowercase())
}

/// The reasons for which a paused election is unhealthy, because no user wanted that.
const LOST: [&str; 2] = ["LabelMissing", "LeaderGone"];

/// The first unhealthy condition gives `Ready` its reason and message. An election with a leader in another cluster is healthy, and so is
/// a paused one that has not lost its leader, because users wanted both.
fn ready(conditions: &[Condition], generation: i64) -> Condition {
    let find = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
    let trouble = |types: &[&str]| types.iter().filter_map(|type_| find(type_)).find(|found| !is_well(found));
    let elected = find(ELECTED);
    let paused = find(PAUSED).map(|paused| {
        let leaderless = elected.filter(|elected| elected.status != "True");
        let message = leaderless.map_or_else(|| paused.message.clone(), |elected| elected.message.clone());
        condition(READY, true, &paused.reason, message, generation)
    });
    let unwell = |trouble: &Condition| {
        let (reason, message) = (trouble.reason.as_str(), trouble.message.as_str());
        if is_unknown(conditions, &trouble.type_) {
            unknown(READY, reason, message, generation)
        } else {
            condition(READY, false, reason, message, generation)
        }
    };
    let well = || {
        let (reason, message) =
            elected.map(|elected| (elected.reason.as_str(), elected.message.as_str())).unwrap_or_default();
        condition(READY, true, if reason == ELECTED { "Led" } else { reason }, message, generation)
    };
    let lost = || elected.filter(|elected| LOST.contains(&elected.reason.as_str()));
    trouble(&[ACCEPTED])
        .or_else(lost)
        .map(unwell)
        .or(paused)
        .or_else(|| trouble(&[ELECTED, STORE_REACHABLE, ROUTED, WORKLOADS_FOLLOW]).map(unwell))
        .unwrap_or_else(well)
}

fn is_well(condition: &Condition) -> bool {
    condition.status == "True" && !LIMPING.contains(&condition.reason.as_str())
}

#[cfg(test)]
mod tests {
    use lictor_api::page;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    /// A condition's type, status and reason.
    type Said<'a> = (&'a str, &'a str, &'a str);

    /// Returns the status and reason of `Ready`, and whether the election is stalled.
    fn told(conditions: &[Said<'_>]) -> (String, String, bool) {
        let made = conditions.iter().map(|&(type_, status, reason)| match status {
            "Unknown" => unknown(type_, reason, "so it is", 3),
            status => condition(type_, status == "True", reason, "so it is", 3),
        });
        let all = complete(made.collect(), 3, &[], NOW);
        assert!(all.iter().all(|condition| condition.observed_generation == Some(3)));
        let ready = all[0].clone();
        assert_eq!(ready.type_, READY);
        (ready.status, ready.reason, all.iter().any(|one| one.type_ == STALLED && one.status == "True"))
    }

    #[test]
    fn ready_follows_from_the_other_conditions() {
        let accepted = (ACCEPTED, "True", "Accepted");
        let elected = (ELECTED, "True", "Elected");
        let nobody = (ELECTED, "False", "NoEligiblePod");
        let answers = (STORE_REACHABLE, "True", "Answers");
        let silent = (STORE_REACHABLE, "False", "NoAnswer");
        let paused = (PAUSED, "True", "Paused");
        let cases: &[(&[Said<'_>], &str, &str)] = &[
            (&[accepted, elected, answers], "True", "Led"),
            (&[accepted, (ELECTED, "True", "LedElsewhere"), answers], "True", "LedElsewhere"),
            (&[accepted, (ELECTED, "True", "ProbeFails"), answers], "False", "ProbeFails"),
            (&[accepted, (ELECTED, "True", "LabellingFails"), answers], "False", "LabellingFails"),
            (&[accepted, (ELECTED, "True", "WaitingForRecovery"), answers], "False", "WaitingForRecovery"),
            (&[accepted, nobody, answers], "False", "NoEligiblePod"),
            (&[accepted, (ELECTED, "False", "LockNotOurs"), answers], "False", "LockNotOurs"),
            (&[accepted, (ELECTED, "Unknown", "HandingOver"), answers], "Unknown", "HandingOver"),
            // With sharedStore.whenLost: Keep.
            (&[accepted, elected, silent], "False", "NoAnswer"),
            (&[accepted, nobody, silent], "False", "NoEligiblePod"),
            (&[accepted, elected, answers, (WORKLOADS_FOLLOW, "True", "Follow")], "True", "Led"),
            (&[accepted, elected, answers, (WORKLOADS_FOLLOW, "False", "Missing")], "False", "Missing"),
            (&[accepted, elected, answers, (WORKLOADS_FOLLOW, "Unknown", "NotReadYet")], "Unknown", "NotReadYet"),
            (&[accepted, (ELECTED, "True", "LabelInUse"), answers], "False", "LabelInUse"),
            (&[accepted, elected, answers, paused], "True", "Paused"),
            (&[accepted, nobody, answers, paused], "True", "Paused"),
            (&[accepted, (ELECTED, "False", "LeaderGone"), answers, paused], "False", "LeaderGone"),
            (&[accepted, (ELECTED, "False", "LabelMissing"), answers, paused], "False", "LabelMissing"),
            (&[(ACCEPTED, "False", "Uninstalled"), (ELECTED, "False", "Uninstalled")], "False", "Uninstalled"),
        ];
        for (conditions, status, reason) in cases {
            assert_eq!(told(conditions), ((*status).into(), (*reason).into(), false), "{conditions:?}");
        }
    }

    #[test]
    fn a_refusal_comes_first_and_stalls_if_waiting_does_not_help() {
        let refused =
            |reason| told(&[(ACCEPTED, "False", reason), (ELECTED, "True", "Elected"), (PAUSED, "True", "Paused")]);
        for reason in ["CircularWorkloads", "KeyTaken", "PodsTaken", "ServiceTaken", "WorkloadTaken", "UnknownClass"] {
            assert_eq!(refused(reason), ("False".into(), reason.into(), false));
        }
        for reason in STALLING {
            assert_eq!(refused(reason), ("False".into(), reason.into(), true));
        }
    }

    #[test]
    fn what_is_not_well_ends_with_the_page_and_what_was_said_before_ends_with_it_once() {
        let said = |type_: &str, holds, reason| condition(type_, holds, reason, "so it is", 1);
        let made = vec![
            said(ACCEPTED, true, "Accepted"),
            said(ELECTED, false, "NoEligiblePod"),
            said(STORE_REACHABLE, true, "Answers"),
        ];
        let all = complete(made, 1, &[], NOW);
        let end = format!("so it is; see {}", page("elected"));
        let messages: Vec<_> = all.iter().map(|one| (one.type_.as_str(), one.message.as_str())).collect();
        assert_eq!(
            messages,
            [(READY, end.as_str()), (ACCEPTED, "so it is"), (ELECTED, &end), (STORE_REACHABLE, "so it is")]
        );
        let kept = all.into_iter().filter(|one| one.type_ == ELECTED);
        let refused = [said(ACCEPTED, false, "KeyTaken")].into_iter().chain(kept).collect();
        let all = complete(refused, 1, &[], NOW);
        assert_eq!(all[2].message, end);
        assert_eq!(
            (all[0].message.as_str(), all[1].message.as_str()),
            (&*refusal_message("so it is"), &*refusal_message("so it is"))
        );
    }

    #[test]
    fn a_paused_election_without_a_leader_says_that_it_has_none() {
        let elected = condition(ELECTED, false, "NoEligiblePod", "the election is frozen and has no leader", 1);
        let paused = condition(PAUSED, true, "Paused", "the election is frozen", 1);
        let ready = complete(vec![condition(ACCEPTED, true, "Accepted", "", 1), elected, paused], 1, &[], NOW);
        assert!(ready[0].message.contains("has no leader"), "{ready:#?}");
    }
}
