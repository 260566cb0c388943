//! Decides which pod may lead, and which of several is preferred.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use super::{Instant, NEVER_LEADER_ANNOTATION, Node, PRIORITY_ANNOTATION, Pairs, Pod, Timestamp};

/// An election's requirements for its candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether a pod must be ready.
    pub require_ready: bool,
    /// The types of the conditions that a pod must have, each with the status `True`.
    pub conditions: Box<[Arc<str>]>,
    /// How long this operator must have seen a pod ready before it may be elected.
    pub min_ready: Duration,
    /// Weights by node.
    pub preference: Vec<Preference>,
    /// Whether a pod with a higher priority takes over from a healthy leader.
    pub preempt: bool,
    /// Whether a healthy leader on a node that is cordoned gives way to a pod on another node.
    pub leave_cordoned: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            require_ready: true,
            conditions: Box::default(),
            min_ready: Duration::ZERO,
            preference: Vec::new(),
            preempt: false,
            leave_cordoned: true,
        }
    }
}

/// A weight for pods on nodes that carry all of these labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preference {
    /// The number that is added to the weight of a matching pod.
    pub weight: u32,
    /// The labels of the node.
    pub node_labels: Pairs,
}

/// Why a pod can't lead. The first eight end a leadership, the rest only prevent a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotEligible {
    /// The pod has finished, or was evicted.
    Finished,
    /// The pod is being deleted.
    Deleting,
    /// The pod's eviction has been announced.
    Disrupted,
    /// A user excluded the pod by annotation.
    NeverLeader,
    /// The pod's labels no longer match the selector.
    NotSelected,
    /// The pod's node is not ready or can't be reached.
    NodeLost,
    /// The pod is not ready.
    NotReady,
    /// The pod lacks this condition, or the condition is not true.
    ConditionNotTrue(Arc<str>),
    /// The pod is not bound to a node yet.
    NotScheduled,
    /// The pod's node is cordoned, or about to be removed.
    NodeCordoned,
    /// The pod will have been ready for long enough at this moment.
    ReadyTooShortly(Instant),
    /// The candidate is the cluster, and the Deployment that it needs is not available.
    Unavailable,
}

/// The candidate is the cluster, and the Deployment that it needs is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

impl From<Unavailable> for NotEligible {
    fn from(_: Unavailable) -> Self {
        Self::Unavailable
    }
}

impl NotEligible {
    /// Whether the same pod is likely to recover by itself, so that a failover delay makes sense.
    pub fn may_recover(&self) -> bool {
        matches!(self, Self::NodeLost | Self::NotReady | Self::ConditionNotTrue(_) | Self::Unavailable)
    }
}

/// Checks whether a pod that leads may continue.
///
/// # Errors
/// Returns the reason why it may not.
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
    } else if let Some(missing) = rules.conditions.iter().find(|wanted| !pod.conditions.contains(*wanted)) {
        Err(NotEligible::ConditionNotTrue(missing.clone()))
    } else {
        Ok(())
    }
}

/// Checks whether a pod may be elected now.
///
/// # Errors
/// Returns the reason why it may not.
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

/// Checks whether a pod may be elected although it is not ready, lacks a condition or is on a cordoned node, because a user says so.
///
/// # Errors
/// Returns the reason why it may not.
pub(super) fn eligible_by_force(
    pod: &Pod,
    node: Option<&Node>,
    rules: &Rules,
    now: Instant,
) -> Result<(), NotEligible> {
    let (conditions, min_ready) = (Box::default(), Duration::ZERO);
    let forced = Rules { require_ready: false, conditions, min_ready, ..rules.clone() };
    match eligible(pod, node, &forced, now) {
        Err(NotEligible::NodeCordoned) => Ok(()),
        fitness => fitness,
    }
}

/// The rank of an eligible pod. The pod with the least rank is elected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(bool, bool, Reverse<i64>, Reverse<u64>, Reverse<bool>, bool, Timestamp, String);

/// Why one pod is preferred to another: the first difference between their ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advantage {
    /// The other pod failed its probe when it last led, or can't be labelled.
    Trusted,
    /// A switchover replaced the other pod a short time ago.
    NotHeldBack,
    /// The pod's priority, and the other pod's lower one.
    Priority(i64, i64),
    /// The pod's weight by the preferences, and the other pod's lower one.
    Weight(u64, u64),
    /// The pod carries the leader label already.
    Labelled,
    /// The pod was created from a newer template.
    NewerTemplate,
    /// The pod has been ready for longer.
    ReadyLonger,
    /// The pod's name comes first.
    Name,
}

impl Rank {
    /// Why this pod is preferred to another one, or `None` if it is not.
    pub fn advantage_over(&self, other: &Self) -> Option<Advantage> {
        let Self(suspect, held_back, Reverse(priority), Reverse(weight), shows_leader, outdated, ready_since, _) = self;
        let Self(_, _, Reverse(their_priority), Reverse(their_weight), ..) = other;
        (self < other).then(|| {
            if *suspect != other.0 {
                Advantage::Trusted
            } else if *held_back != other.1 {
                Advantage::NotHeldBack
            } else if priority != their_priority {
                Advantage::Priority(*priority, *their_priority)
            } else if weight != their_weight {
                Advantage::Weight(*weight, *their_weight)
            } else if *shows_leader != other.4 {
                Advantage::Labelled
            } else if *outdated != other.5 {
                Advantage::NewerTemplate
            } else if *ready_since != other.6 {
                Advantage::ReadyLonger
            } else {
                Advantage::Name
            }
        })
    }
}

/// The facts that order a candidate, apart from those on the pod and its node.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is one question of the order")]
pub(super) struct Standing {
    /// The pod failed its probe when it last led, or can't be labelled.
    pub suspect: bool,
    /// A switchover has just replaced the pod.
    pub held_back: bool,
    /// The pod carries the leader label.
    pub shows_leader: bool,
    /// The pod was created from an older template than others.
    pub outdated: bool,
}

/// The rank of a pod.
pub(super) fn rank(pod: &Pod, node: Option<&Node>, rules: &Rules, standing: Standing) -> Rank {
    Rank(
        standing.suspect,
        standing.held_back,
        Reverse(priority(pod)),
        Reverse(weight(node, rules)),
        Reverse(standing.shows_leader),
        standing.outdated,
        pod.ready_since.unwrap_or(Timestamp(i64::MAX)),
        pod.name.clone(),
    )
}

/// The priority that a user gave to a pod, or 0 if it can't be read.
pub(super) fn priority(pod: &Pod) -> i64 {
    pod.annotations.get(PRIORITY_ANNOTATION).and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// The defect in the annotations that a user wrote on a pod, as a sentence that says what to write.
pub fn annotation_defect(pod: &Pod) -> Option<String> {
    if let Some(text) = pod.annotations.get(PRIORITY_ANNOTATION)
        && text.trim().parse::<i64>().is_err()
    {
        return Some(format!(
            "the annotation {PRIORITY_ANNOTATION} is {text:?}, which is no whole number, and 0 is used: write for example \"10\""
        ));
    }
    match pod.annotations.get(NEVER_LEADER_ANNOTATION).map(str::trim) {
        None | Some("true" | "false") => None,
        Some(text) => Some(format!(
            "the annotation {NEVER_LEADER_ANNOTATION} is {text:?} and is taken for \"true\": write \"true\" or take it off"
        )),
    }
}

/// Any value but a plain `false` keeps the pod from leading, because the user who writes the annotation wants that.
fn never_leader(pod: &Pod) -> bool {
    pod.annotations.get(NEVER_LEADER_ANNOTATION).is_some_and(|text| text.trim() != "false")
}

fn weight(node: Option<&Node>, rules: &Rules) -> u64 {
    let Some(node) = node else { return 0 };
    let fits = |wanted: &Pairs| wanted.iter().all(|(k, v)| node.labels.get(k) == Some(v));
    rules.preference.iter().filter(|p| fits(&p.node_labels)).map(|p| u64::from(p.weight)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules::default()
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
        Pod { annotations: Pairs::from([(key.into(), value.into())]), ..ready(name) }
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
        let rules_of =
            |wanted: &[&str]| Rules { conditions: wanted.iter().map(|one| (*one).into()).collect(), ..rules() };
        let has = Pod { conditions: ["a/x".into(), "a/y".into()].into(), ..ready("a") };
        assert_eq!(standing(&has, None, &rules_of(&["a/y", "a/x"])), Ok(()));
        let missing = standing(&has, None, &rules_of(&["a/x", "a/z", "a/w"]));
        assert_eq!(missing, Err(NotEligible::ConditionNotTrue("a/z".into())), "the first that is missing");
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
    fn what_force_skips() {
        let cordoned = Node { cordoned: true, ..Node::default() };
        let lost = Node { lost: true, cordoned: true, ..Node::default() };
        let patient = Rules { min_ready: Duration::from_secs(10), ..rules() };
        let unready = Pod { ready: false, ready_observed: None, ..ready("a") };
        assert_eq!(eligible_by_force(&unready, Some(&cordoned), &patient, NOW), Ok(()));
        for (pod, node, why) in [
            (Pod { finished: true, ..ready("a") }, &cordoned, NotEligible::Finished),
            (Pod { deleting: true, ..ready("a") }, &cordoned, NotEligible::Deleting),
            (Pod { disrupted: true, ..ready("a") }, &cordoned, NotEligible::Disrupted),
            (Pod { node: None, ..ready("a") }, &cordoned, NotEligible::NotScheduled),
            (annotated("a", NEVER_LEADER_ANNOTATION, "true"), &cordoned, NotEligible::NeverLeader),
            (ready("a"), &lost, NotEligible::NodeLost),
        ] {
            assert_eq!(eligible_by_force(&pod, Some(node), &patient, NOW), Err(why));
        }
    }

    #[test]
    fn the_order_of_candidates() {
        let rules = Rules {
            preference: vec![Preference { weight: 5, node_labels: Pairs::from([("zone".into(), "a".into())]) }],
            ..rules()
        };
        let near = Node { labels: Pairs::from([("zone".into(), "a".into())]), ..Node::default() };
        let far = Node::default();
        let elder = Pod { ready_since: Some(Timestamp(50)), ..ready("z") };
        let outdated = rank(&elder, Some(&far), &rules, Standing { outdated: true, ..Standing::default() });
        let preferred = annotated("e", PRIORITY_ANNOTATION, "9");
        let standing = Standing { held_back: true, shows_leader: true, ..Standing::default() };
        let held_back = rank(&preferred, Some(&near), &rules, standing);
        let rank = |pod: &Pod, node, suspect, shows_leader| {
            rank(pod, Some(node), &rules, Standing { suspect, shows_leader, ..Standing::default() })
        };
        let order = [
            rank(&annotated("y", PRIORITY_ANNOTATION, "2"), &far, false, false),
            rank(&annotated("x", PRIORITY_ANNOTATION, "1"), &far, false, false),
            rank(&ready("w"), &near, false, false),
            rank(&ready("v"), &far, false, true),
            rank(&elder, &far, false, false),
            rank(&ready("a"), &far, false, false),
            rank(&ready("b"), &far, false, false),
            outdated,
            rank(&annotated("c", PRIORITY_ANNOTATION, "-1"), &far, false, false),
            held_back,
            rank(&annotated("d", PRIORITY_ANNOTATION, "9"), &near, true, true),
        ];
        assert!(order.is_sorted(), "{order:#?}");
        let why: Vec<_> = order.windows(2).map(|pair| pair[0].advantage_over(&pair[1]).unwrap()).collect();
        let expected = [
            Advantage::Priority(2, 1),
            Advantage::Priority(1, 0),
            Advantage::Weight(5, 0),
            Advantage::Labelled,
            Advantage::ReadyLonger,
            Advantage::Name,
            Advantage::NewerTemplate,
            Advantage::Priority(0, -1),
            Advantage::NotHeldBack,
            Advantage::Trusted,
        ];
        assert_eq!(why, expected);
        assert!(order.windows(2).all(|pair| pair[1].advantage_over(&pair[0]).is_none()));
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
