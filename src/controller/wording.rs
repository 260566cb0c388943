//! The words that Events, logs and conditions share.

use k8s_openapi::jiff::Timestamp as Wall;
use lictor_core::{Holder, NotEligible, Reason, Rival, Timestamp};

use super::object::ElectionObject;

/// A leader by name: that of its pod, or of the cluster that is the leader itself.
pub(super) fn holder_name(object: &ElectionObject, holder: &Holder) -> String {
    let cluster = || object.spec().and_then(|spec| spec.consul.as_ref()).map(|consul| consul.cluster.clone());
    holder.pod.clone().or_else(cluster).unwrap_or_default()
}

/// The same in a sentence.
pub(super) fn told_holder(object: &ElectionObject, holder: &Holder) -> String {
    let name = holder_name(object, holder);
    if holder.pod.is_some() { name } else { format!("the cluster {name}") }
}

/// Kubernetes keeps whole seconds: with more, what is read back would differ from what was written.
pub(super) fn in_seconds(time: Timestamp) -> Wall {
    Wall::from_second(time.0.div_euclid(1000)).unwrap_or_default()
}

/// Why a leader changed, as half a sentence.
pub(super) fn describe(reason: Reason) -> &'static str {
    match reason {
        Reason::Vacant => "the group had none",
        Reason::LeaderGone => "the leader's pod is gone",
        Reason::LeaderUnfit(why) => not_eligible(why),
        Reason::NotLabelled => "the pod that was to lead can't be labelled",
        Reason::ProbeFailed => "the leader failed its probe",
        Reason::Preempted => "it has a higher priority",
        Reason::SpecChanged => "the election was changed",
        Reason::LockRestored => "the lock was lost and is made anew",
        Reason::Resumed => "the labels or the handover were left incomplete",
        Reason::LockLost => "the lock was lost",
        Reason::LockTaken => "somebody else holds the lock",
        Reason::StoreLost => "the lock could not be confirmed in time: the condition Ready of the class says why",
        Reason::StoreRewound => "the store of the lock was put back to an earlier state",
        Reason::Leaving => "the operator stops and leaves the lock to others",
    }
}

/// Who holds the lock that this cluster does not, as a sentence.
pub(super) fn led_elsewhere(rival: &Rival) -> String {
    let Rival { cluster, holder, session, .. } = rival;
    match (cluster, holder) {
        (Some(cluster), Some(Holder { pod: Some(pod), .. })) => format!("the leader is {pod} in the cluster {cluster}"),
        (Some(cluster), Some(Holder { pod: None, .. })) => format!("the leader is the cluster {cluster}"),
        (Some(cluster), None) => format!("the cluster {cluster} holds the lock"),
        (None, _) => format!(
            "the lock is held by {session}, and lictor did not write what is in it: its turn comes when that lets go"
        ),
    }
}

/// Why a pod can't lead, as half a sentence.
pub(super) fn not_eligible(why: NotEligible) -> &'static str {
    match why {
        NotEligible::Finished => "the pod has finished or was evicted",
        NotEligible::Deleting => "the pod is being deleted",
        NotEligible::Disrupted => "the pod is about to be evicted",
        NotEligible::NeverLeader => "the pod is annotated as never leader",
        NotEligible::NotSelected => "the pod does not match the selector any more",
        NotEligible::NodeLost => "the pod's node is not ready or unreachable",
        NotEligible::NotReady => "the pod is not ready",
        NotEligible::NotScheduled => "the pod has no node yet",
        NotEligible::NodeCordoned => "the pod's node is cordoned",
        NotEligible::ReadyTooShortly(_) => "the pod is not ready for long enough yet",
        NotEligible::Unavailable => "the Deployment in spec.eligibility.availableDeploymentName is not available",
    }
}
