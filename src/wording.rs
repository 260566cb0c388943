//! What the core decides, in the words that Events, logs, conditions and commands share.

pub mod refusals;

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp as Wall;
use lictor_core::{Absence, Advantage, Holder, NotEligible, ProbeFailure, Reason, Rival, Timestamp};

/// Kubernetes keeps whole seconds: with more, a value would differ when read back.
pub fn in_seconds(time: Timestamp) -> Wall {
    Wall::from_second(time.0.div_euclid(1000)).unwrap_or_default()
}

/// Says why a leader changed, as half a sentence. `previous`: the leader before.
pub fn describe(reason: &Reason, previous: Option<&Holder>) -> Cow<'static, str> {
    Cow::Borrowed(match reason {
        Reason::Vacant => "there was no leader before",
        Reason::LeaderGone => "the leader's pod is gone",
        Reason::LeaderUnfit(why) => return not_eligible(why),
        Reason::NotLabelled => "the pod that was to lead can't be labelled",
        Reason::ProbeFailed(ProbeFailure::NoAnswer) => "the leader failed its probe",
        Reason::ProbeFailed(ProbeFailure::ProcessGone(port)) => {
            let address = previous.and_then(|previous| previous.ip.as_deref()).unwrap_or("its pod");
            return format!("the leader's process is gone: {address} refuses connections to port {port}").into();
        }
        Reason::Preempted => "it has a higher priority",
        Reason::NodeCordoned => "the old leader's node is cordoned or about to be removed",
        Reason::SwitchedOver => "a Switchover asked for it",
        Reason::CandidatesElected => "it holds the lock of the candidates (spec.followedLock)",
        Reason::CandidatesReleased => {
            "the leader no longer holds the lock of the candidates (spec.followedLock), and no other eligible pod does"
        }
        Reason::SpecChanged => "the election was changed",
        Reason::LockRestored => "the lock was lost and is restored",
        Reason::Resumed => "an earlier handover was left incomplete",
        Reason::LockLost => "the lock was lost",
        Reason::LockTaken => "another cluster or program holds the lock",
        Reason::StoreLost => "the lock could not be confirmed in time: the condition Ready of the class says why",
        Reason::StoreRewound => "the store of the lock was restored to an earlier state",
        Reason::Leaving => "the operator is stopping and leaves the lock to others",
    })
}

/// Says the same for a word of `status.history`. `None`: the word comes from another version of lictor.
pub fn described(word: &str) -> Option<&'static str> {
    const UNFIT: [NotEligible; 8] = [
        NotEligible::Finished,
        NotEligible::Deleting,
        NotEligible::Disrupted,
        NotEligible::NeverLeader,
        NotEligible::NotSelected,
        NotEligible::NodeLost,
        NotEligible::NotReady,
        NotEligible::Unavailable,
    ];
    const OTHERS: [Reason; 17] = [
        Reason::Vacant,
        Reason::LeaderGone,
        Reason::NotLabelled,
        Reason::ProbeFailed(ProbeFailure::NoAnswer),
        Reason::Preempted,
        Reason::NodeCordoned,
        Reason::SwitchedOver,
        Reason::CandidatesElected,
        Reason::CandidatesReleased,
        Reason::SpecChanged,
        Reason::LockRestored,
        Reason::Resumed,
        Reason::LockLost,
        Reason::LockTaken,
        Reason::StoreLost,
        Reason::StoreRewound,
        Reason::Leaving,
    ];
    // The word names neither the port, nor the condition, nor which of several reasons it was.
    if word == Reason::ProbeFailed(ProbeFailure::ProcessGone(0)).word() {
        return Some("the leader's process is gone");
    }
    if word == Reason::LeaderUnfit(NotEligible::ConditionNotTrue("".into())).word() {
        return Some("a condition in spec.eligibility.conditions is not True");
    }
    if word == Reason::LeaderUnfit(NotEligible::NotScheduled).word() {
        return Some("the leader is no longer eligible");
    }
    let reasons = UNFIT.map(Reason::LeaderUnfit).into_iter().chain(OTHERS);
    let found = reasons.into_iter().find(|reason| reason.word() == word)?;
    match describe(&found, None) {
        Cow::Borrowed(text) => Some(text),
        Cow::Owned(_) => None,
    }
}

/// Says what is missing of a leader in a record or a status: one word, and a sentence. T1.
pub fn missing(leader: &str, what: Absence) -> (&'static str, String) {
    match what {
        Absence::Gone => ("LeaderGone", format!("{leader} was the leader, but its pod is gone")),
        Absence::Finished => {
            ("LeaderGone", format!("{leader} was the leader, but its pod has finished or was evicted"))
        }
        Absence::Taken => (
            "LabelMissing",
            format!(
                "{leader} was the leader, but another election has labelled its pod since: its annotation \
                 lictor.dev/election names it"
            ),
        ),
        Absence::Unlabelled => (
            "LabelMissing",
            format!("{leader} is the leader according to the lock, but does not carry the leader label"),
        ),
    }
}

/// W12: which workloads had not ended, as half a sentence, by their names.
pub fn remain<'a>(remains: impl IntoIterator<Item = (&'a String, &'a u32)>) -> String {
    let what = |(workload, number): (&String, &u32)| {
        let jobs = workload.starts_with("CronJob/");
        let thing = match (jobs, number) {
            (true, 1) => "Job",
            (true, _) => "Jobs",
            (false, 1) => "pod",
            (false, _) => "pods",
        };
        format!("{number} {thing} of {workload}")
    };
    let all: Vec<_> = remains.into_iter().map(what).collect();
    format!("{} still ran", all.join(", "))
}

/// W12: why the leading cluster has not handed over the lock, as a sentence.
pub fn not_handed_over(cluster: &str, remains: &BTreeMap<String, u32>) -> String {
    format!(
        "the cluster {cluster} did not hand over the lock, because {} when their time to end was over",
        remain(remains)
    )
}

/// Says who holds the lock that this cluster does not hold, as a sentence.
pub fn led_elsewhere(rival: &Rival) -> String {
    let Rival { cluster, holder, .. } = rival;
    let remains = rival.switchover.as_ref().map(|mark| &mark.remains).filter(|remains| !remains.is_empty());
    let leads = leads_elsewhere(rival);
    match (cluster, holder, remains) {
        (Some(cluster), Some(_), Some(remains)) => format!("{leads}; {}", not_handed_over(cluster, remains)),
        _ => leads,
    }
}

fn leads_elsewhere(rival: &Rival) -> String {
    let Rival { cluster, holder, .. } = rival;
    match (cluster, holder) {
        (Some(cluster), Some(Holder { pod: Some(pod), .. })) => format!("the leader is {pod} in the cluster {cluster}"),
        (Some(cluster), Some(Holder { pod: None, .. })) => format!("the leader is the cluster {cluster}"),
        (Some(cluster), None) => format!("the cluster {cluster} holds the lock"),
        (None, _) => format!(
            "another program holds the lock, by {}: this cluster can elect a leader when that program releases it",
            rival.whose_session()
        ),
    }
}

/// Says why a pod can't lead, as half a sentence.
pub fn not_eligible(why: &NotEligible) -> Cow<'static, str> {
    Cow::Borrowed(match why {
        NotEligible::Finished => "the pod has finished or was evicted",
        NotEligible::Deleting => "the pod is being deleted",
        NotEligible::Disrupted => "the pod is about to be evicted",
        NotEligible::NeverLeader => "the pod has the annotation lictor.dev/never-leader",
        NotEligible::NotSelected => "the pod no longer matches the selector",
        NotEligible::NodeLost => "the pod's node is not ready or unreachable",
        NotEligible::NotReady => "the pod is not ready",
        NotEligible::ConditionNotTrue(condition) => {
            return format!("the pod's condition {condition} is not True").into();
        }
        NotEligible::NotScheduled => "the pod has no node yet",
        NotEligible::NodeCordoned => "the pod's node is cordoned or about to be removed",
        NotEligible::ReadyTooShortly(_) => "the pod has not been ready for long enough",
        NotEligible::Unavailable => "the Deployment in spec.eligibility.availableDeploymentName is not available",
    })
}

/// Says why the pod of this name ranks before another one, as half a sentence.
pub fn advantage(first: &str, advantage: Advantage) -> String {
    match advantage {
        Advantage::Trusted => format!("{first} did not fail its probe and can be labelled"),
        Advantage::NotHeldBack => format!("{first} was not replaced by a switchover a short time ago"),
        Advantage::Priority(own, other) => format!("{first} has the higher priority, {own} against {other}"),
        Advantage::Weight(own, other) => format!("{first} has more weight by spec.preferences, {own} against {other}"),
        Advantage::Number(annotation, own, Some(other)) => {
            let which = if own < other { "lower" } else { "higher" };
            format!("{first} has the {which} {annotation}, {own} against {other}")
        }
        Advantage::Number(annotation, own, None) => {
            format!("{first} has {annotation}, {own}, and the other pod has none, or none that is a whole number")
        }
        Advantage::Apart(label, own, Some(other)) => {
            format!("{first} has fewer leaders of its group near it, {own} against {other} by {label}")
        }
        Advantage::Apart(label, ..) => format!("{first} is on a node with the label {label}, and the other pod is not"),
        Advantage::Labelled => format!("{first} carries the leader label already"),
        Advantage::NewerTemplate => format!("{first} was made from a newer template"),
        Advantage::ReadyLonger => format!("{first} has been ready for longer"),
        Advantage::Name => format!("{first} comes first by name, and nothing else distinguishes them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page has exactly the words that there are, as another test checks.
    #[test]
    fn each_reason_of_the_history_is_described() {
        let page = include_str!("../docs/troubleshooting.md");
        let (_, section) = page.split_once("\n### History\n").unwrap();
        let section = section.split("\n#").next().unwrap();
        let words: Vec<_> = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert!(words.len() > 20, "{words:?}");
        for word in words {
            assert!(described(word).is_some(), "{word}");
        }
        assert_eq!(described("Whatever"), None);
    }
}
