//! Which pod may lead, and which of several is preferred.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::{Instant, NEVER_LEADER_ANNOTATION, Node, PRIORITY_ANNOTATION, Pod, Timestamp};

/// What an election asks of its candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether a pod must be ready.
    pub require_ready: bool,
    /// How long this operator must have seen it ready, before it may be elected.
    pub min_ready: Duration,
    /// Weights by node.
    pub preference: Vec<Preference>,
    /// Whether a higher priority takes over from a healthy leader.
    pub preempt: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { require_ready: true, min_ready: Duration::ZERO, preference: Vec::new(), preempt: false }
    }
}

/// A weight for pods on nodes that carry all of these labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preference {
    /// Added to the weight of a pod that fits.
    pub weight: u32,
    /// The labels of the node.
    pub node_labels: BTreeMap<String, String>,
}

/// Why a pod can't lead. The first seven end a leadership, the rest only prevent a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotEligible {
    /// It has finished, or was evicted.
    Finished,
    /// Its deletion has been asked for.
    Deleting,
    /// Its eviction has been announced.
    Disrupted,
    /// Its user excluded it by annotation.
    NeverLeader,
    /// Its labels do not match the selector any more.
    NotSelected,
    /// Its node is not ready or can't be reached.
    NodeLost,
    /// It is not ready.
    NotReady,
    /// It is not bound to a node yet.
    NotScheduled,
    /// Its node is cordoned.
    NodeCordoned,
    /// It will have been ready for long enough at this moment.
    ReadyTooShortly(Instant),
    /// The candidate is the cluster, and the Deployment that it needs is not available.
    Unavailable,
}

impl NotEligible {
    /// Whether the same pod may well lead again by itself, so that a failover delay makes sense.
    pub fn may_recover(self) -> bool {
        matches!(self, Self::NodeLost | Self::NotReady | Self::Unavailable)
    }
}

/// Whether a pod that leads may go on.
///
/// # Errors
/// The reason for which it may not.
pub fn standing(pod: &Pod, node: Option<&Node>, rules: &Rules) -> Result<(), NotEligible> {
    if pod.finished {
        Err(NotEligible::Finished)
    } else if pod.deleting {
        Err(NotEligible::Deleting)
    } else if pod.disrupted {
        Err(NotEligible::Disrupted)
    } else if never_leader(pod) {
        Err(NotEligible::NeverLeader)
    } else if node.is_some_and(|node| node.lost) {
        Err(NotEligible::NodeLost)
    } else if rules.require_ready && !pod.ready {
        Err(NotEligible::NotReady)
    } else {
        Ok(())
    }
}

/// Whether a pod may be elected now.
///
/// # Errors
/// The reason for which it may not.
pub fn eligible(pod: &Pod, node: Option<&Node>, rules: &Rules, now: Instant) -> Result<(), NotEligible> {
    standing(pod, node, rules)?;
    if pod.node.is_none() {
        return Err(NotEligible::NotScheduled);
    }
    if node.is_some_and(|node| node.cordoned) {
        return Err(NotEligible::NodeCordoned);
    }
    if !rules.min_ready.is_zero() {
        let Some(since) = pod.ready_observed else { return Err(NotEligible::NotReady) };
        if since + rules.min_ready > now {
            return Err(NotEligible::ReadyTooShortly(since + rules.min_ready));
        }
    }
    Ok(())
}

/// What orders the eligible pods; the least is elected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(bool, Reverse<i64>, Reverse<u64>, Reverse<bool>, Timestamp, String);

/// The rank of a pod. `suspect`: it failed its probe when it led last. `shows_leader`: it carries the leader's label.
pub(super) fn rank(pod: &Pod, node: Option<&Node>, rules: &Rules, suspect: bool, shows_leader: bool) -> Rank {
    Rank(
        suspect,
        Reverse(priority(pod)),
        Reverse(weight(node, rules)),
        Reverse(shows_leader),
        pod.ready_since.unwrap_or(Timestamp(i64::MAX)),
        pod.name.clone(),
    )
}

/// The priority that a user gave to a pod; 0 where it can't be read.
pub(super) fn priority(pod: &Pod) -> i64 {
    pod.annotations.get(PRIORITY_ANNOTATION).and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// What is wrong with the annotations that a user wrote on a pod, as a sentence that says what to write.
pub fn annotation_defect(pod: &Pod) -> Option<String> {
    if let Some(text) = pod.annotations.get(PRIORITY_ANNOTATION)
        && text.trim().parse::<i64>().is_err()
    {
        return Some(format!(
            "the annotation {PRIORITY_ANNOTATION} is {text:?}, which is no whole number, and 0 is used: write for example \"10\""
        ));
    }
    match pod.annotations.get(NEVER_LEADER_ANNOTATION).map(|text| text.trim()) {
        None | Some("true" | "false") => None,
        Some(text) => Some(format!(
            "the annotation {NEVER_LEADER_ANNOTATION} is {text:?} and is taken for \"true\": write \"true\" or take it off"
        )),
    }
}

/// Anything but a plain `false` keeps the pod from leading: whoever writes the annotation wants that.
fn never_leader(pod: &Pod) -> bool {
    pod.annotations.get(NEVER_LEADER_ANNOTATION).is_some_and(|text| text.trim() != "false")
}

fn weight(node: Option<&Node>, rules: &Rules) -> u64 {
    let Some(node) = node else { return 0 };
    let fits = |wanted: &BTreeMap<String, String>| wanted.iter().all(|(k, v)| node.labels.get(k) == Some(v));
    rules.preference.iter().filter(|p| fits(&p.node_labels)).map(|p| u64::from(p.weight)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules { require_ready: true, min_ready: Duration::ZERO, preference: Vec::new(), preempt: false }
    }

    fn ready(name: &str) -> Pod {
        Pod {
            name: name.into(),
            node: Some("n".into()),
            ready: true,
            ready_since: Some(Timestamp(100)),
            ready_observed: Some(Instant::default()),
            ..Pod::default()
        }
    }

    fn annotated(name: &str, key: &str, value: &str) -> Pod {
        Pod { annotations: BTreeMap::from([(key.into(), value.into())]), ..ready(name) }
    }

    const NOW: Instant = Instant::after_origin(Duration::from_secs(10));

    #[test]
    fn what_ends_a_leadership() {
        let lost = Node { lost: true, ..Node::default() };
        assert_eq!(standing(&ready("a"), None, &rules()), Ok(()));
        for (pod, node, why) in [
            (Pod { finished: true, ..ready("a") }, None, NotEligible::Finished),
            (Pod { deleting: true, ..ready("a") }, None, NotEligible::Deleting),
            (Pod { disrupted: true, ..ready("a") }, None, NotEligible::Disrupted),
            (annotated("a", NEVER_LEADER_ANNOTATION, "true"), None, NotEligible::NeverLeader),
            (annotated("a", NEVER_LEADER_ANNOTATION, "yes"), None, NotEligible::NeverLeader),
            (ready("a"), Some(&lost), NotEligible::NodeLost),
            (Pod { ready: false, ..ready("a") }, None, NotEligible::NotReady),
        ] {
            assert_eq!(standing(&pod, node, &rules()), Err(why));
        }
        assert_eq!(standing(&annotated("a", NEVER_LEADER_ANNOTATION, "false"), None, &rules()), Ok(()));
        assert_eq!(
            standing(&Pod { ready: false, ..ready("a") }, None, &Rules { require_ready: false, ..rules() }),
            Ok(())
        );
    }

    #[test]
    fn what_only_prevents_an_election() {
        let cordoned = Node { cordoned: true, ..Node::default() };
        let patient = Rules { min_ready: Duration::from_secs(10), ..rules() };
        assert_eq!(standing(&ready("a"), Some(&cordoned), &rules()), Ok(()));
        assert_eq!(eligible(&ready("a"), Some(&cordoned), &rules(), NOW), Err(NotEligible::NodeCordoned));
        assert_eq!(eligible(&Pod { node: None, ..ready("a") }, None, &rules(), NOW), Err(NotEligible::NotScheduled));
        assert_eq!(eligible(&ready("a"), None, &patient, NOW), Ok(()));
        assert_eq!(
            eligible(&ready("a"), None, &patient, NOW - Duration::from_millis(1)),
            Err(NotEligible::ReadyTooShortly(NOW))
        );
    }

    #[test]
    fn the_order_of_candidates() {
        let rules = Rules {
            preference: vec![Preference { weight: 5, node_labels: BTreeMap::from([("zone".into(), "a".into())]) }],
            ..rules()
        };
        let near = Node { labels: BTreeMap::from([("zone".into(), "a".into())]), ..Node::default() };
        let far = Node::default();
        let elder = Pod { ready_since: Some(Timestamp(50)), ..ready("z") };
        let rank = |pod: &Pod, node, suspect, leader| rank(pod, Some(node), &rules, suspect, leader);
        let order = [
            rank(&annotated("y", PRIORITY_ANNOTATION, "2"), &far, false, false),
            rank(&annotated("x", PRIORITY_ANNOTATION, "1"), &far, false, false),
            rank(&ready("w"), &near, false, false),
            rank(&ready("v"), &far, false, true),
            rank(&elder, &far, false, false),
            rank(&ready("a"), &far, false, false),
            rank(&ready("b"), &far, false, false),
            rank(&annotated("c", PRIORITY_ANNOTATION, "-1"), &far, false, false),
            rank(&annotated("d", PRIORITY_ANNOTATION, "9"), &near, true, true),
        ];
        assert!(order.is_sorted(), "{order:#?}");
    }

    #[test]
    fn malformed_annotations_are_named_and_harmless() {
        let pod = annotated("a", PRIORITY_ANNOTATION, "high");
        assert_eq!(priority(&pod), 0);
        assert!(annotation_defect(&pod).unwrap().contains("\"high\""));
        assert!(annotation_defect(&annotated("a", NEVER_LEADER_ANNOTATION, "maybe")).is_some());
        assert!(annotation_defect(&annotated("a", PRIORITY_ANNOTATION, " 12 ")).is_none());
    }
}
