//! Decides which pod may lead, and which of several is preferred.

use std::cmp::Reverse;
use std::collections::BTreeMap;
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
    /// What ranks candidates of the same priority, in this order.
    pub preferences: Vec<Preference>,
    /// Whether a pod with a higher priority takes over from a healthy leader.
    pub preempt: bool,
    /// Whether a healthy leader on a node that is cordoned gives way to a pod on another node.
    pub leave_cordoned: bool,
}

impl Rules {
    /// The groups of elections that keep their leaders apart, among which this one is.
    pub fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.preferences.iter().filter_map(|preference| match preference {
            Preference::Spread { group, .. } => Some(group),
            Preference::Weight { .. } | Preference::Number { .. } => None,
        })
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            require_ready: true,
            conditions: Box::default(),
            min_ready: Duration::ZERO,
            preferences: Vec::new(),
            preempt: false,
            leave_cordoned: true,
        }
    }
}

/// A reason to prefer some candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preference {
    /// A weight for pods on nodes that carry all of these labels. All weights count together, in the place of the first.
    Weight {
        /// The number that is added to the weight of a matching pod.
        weight: u32,
        /// The labels of the node.
        node_labels: Pairs,
    },
    /// The whole number in an annotation of the pod. A pod without one comes last.
    Number {
        /// The name of the annotation.
        annotation: Arc<str>,
        /// Which numbers come first.
        best: Best,
    },
    /// Few leaders of other elections near the pod. A pod on a node without the label comes last.
    Spread {
        /// The elections that keep their leaders apart.
        group: Arc<str>,
        /// The label of nodes by which two of them are near each other.
        topology_key: Arc<str>,
    },
}

/// A leader of another election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherLeader {
    /// A group of that election.
    pub group: Arc<str>,
    /// The node of its leader.
    pub node: String,
}

/// How many leaders of other elections there are in each place, by the preference that counts them.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowds<'a>(Vec<BTreeMap<&'a str, u32>>);

impl<'a> Crowds<'a> {
    /// Counts the other leaders, in the order of the preferences.
    pub(super) fn of(rules: &Rules, other_leaders: &[OtherLeader], nodes: &'a BTreeMap<String, Node>) -> Self {
        let crowd = |preference: &Preference| {
            let mut crowd = BTreeMap::new();
            let Preference::Spread { group, topology_key } = preference else { return crowd };
            let near = other_leaders.iter().filter(|other_leader| other_leader.group == *group);
            for place in near.filter_map(|other_leader| nodes.get(&other_leader.node)?.labels.get(topology_key)) {
                *crowd.entry(place).or_default() += 1;
            }
            crowd
        };
        Self(rules.preferences.iter().map(crowd).collect())
    }

    fn near(&self, preference: usize, node: Option<&Node>, topology_key: &str) -> Option<u32> {
        let place = node?.labels.get(topology_key)?;
        Some(self.0.get(preference).and_then(|crowd| crowd.get(place)).copied().unwrap_or(0))
    }
}

/// Which of several numbers is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Best {
    /// The lowest one.
    Lowest,
    /// The highest one.
    Highest,
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
    /// Whether a user may make the pod the leader all the same, by force.
    pub fn yields_to_force(&self) -> bool {
        matches!(self, Self::NotReady | Self::ConditionNotTrue(_) | Self::NodeCordoned | Self::ReadyTooShortly(_))
    }

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

/// The rank of an eligible pod. The pod with the least rank is elected; an earlier field counts more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    suspect: bool,
    held_back: bool,
    priority: Reverse<i64>,
    preferences: Box<[Place]>,
    shows_leader: Reverse<bool>,
    outdated: bool,
    ready_since: Timestamp,
    name: String,
}

/// The place of a pod by one preference. The same preference has the same place in all ranks of an election.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// The sum of the weights.
    Weight(Reverse<u64>),
    /// The number in this annotation.
    Lowest(i64, Arc<str>),
    Highest(Reverse<i64>, Arc<str>),
    /// The number of leaders nearby, by this label.
    Near(u32, Arc<str>),
    /// The pod has no such number, or its node no such label.
    None,
}

/// Why one pod is preferred to another: the first difference between their ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advantage {
    /// The other pod failed its probe when it last led, or can't be labelled.
    Trusted,
    /// A switchover replaced the other pod a short time ago.
    NotHeldBack,
    /// The pod's priority, and the other pod's lower one.
    Priority(i64, i64),
    /// The pod's weight by the preferences, and the other pod's lower one.
    Weight(u64, u64),
    /// An annotation, the pod's number in it, and the other pod's worse one, if that has any.
    Number(Arc<str>, i64, Option<i64>),
    /// A label of nodes, the number of other elections' leaders where it has the value of the pod's node, and the higher number for the
    /// other pod, if its node has the label.
    Apart(Arc<str>, u32, Option<u32>),
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
        let by_preference =
            || self.preferences.iter().zip(&other.preferences).find_map(|(own, other)| own.advantage_over(other));
        (self < other).then(|| {
            if self.suspect != other.suspect {
                Advantage::Trusted
            } else if self.held_back != other.held_back {
                Advantage::NotHeldBack
            } else if self.priority != other.priority {
                Advantage::Priority(self.priority.0, other.priority.0)
            } else if let Some(advantage) = by_preference() {
                advantage
            } else if self.shows_leader != other.shows_leader {
                Advantage::Labelled
            } else if self.outdated != other.outdated {
                Advantage::NewerTemplate
            } else if self.ready_since != other.ready_since {
                Advantage::ReadyLonger
            } else {
                Advantage::Name
            }
        })
    }
}

impl Place {
    fn advantage_over(&self, other: &Self) -> Option<Advantage> {
        let (own, annotation) = match (self, other) {
            _ if self >= other => return None,
            (Self::Weight(own), Self::Weight(other)) => return Some(Advantage::Weight(own.0, other.0)),
            (Self::Near(own, label), Self::Near(other, _)) => {
                return Some(Advantage::Apart(label.clone(), *own, Some(*other)));
            }
            (Self::Near(own, label), _) => return Some(Advantage::Apart(label.clone(), *own, None)),
            (Self::Lowest(own, annotation) | Self::Highest(Reverse(own), annotation), _) => (own, annotation),
            (Self::Weight(_) | Self::None, _) => return None,
        };
        let other = match other {
            Self::Lowest(other, _) | Self::Highest(Reverse(other), _) => Some(*other),
            Self::Weight(_) | Self::Near(..) | Self::None => None,
        };
        Some(Advantage::Number(annotation.clone(), *own, other))
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
pub(super) fn rank(pod: &Pod, node: Option<&Node>, rules: &Rules, crowds: &Crowds, standing: Standing) -> Rank {
    Rank {
        suspect: standing.suspect,
        held_back: standing.held_back,
        priority: Reverse(priority(pod)),
        preferences: places(pod, node, rules, crowds),
        shows_leader: Reverse(standing.shows_leader),
        outdated: standing.outdated,
        ready_since: pod.ready_since.unwrap_or(Timestamp(i64::MAX)),
        name: pod.name.clone(),
    }
}

fn places(pod: &Pod, node: Option<&Node>, rules: &Rules, crowds: &Crowds) -> Box<[Place]> {
    let mut weighed = false;
    let place = |(at, preference): (usize, &Preference)| match preference {
        Preference::Weight { .. } => {
            let first = !std::mem::replace(&mut weighed, true);
            first.then(|| Place::Weight(Reverse(weight(node, rules))))
        }
        Preference::Number { annotation, best } => Some(match (number(pod, annotation), best) {
            (Some(number), Best::Lowest) => Place::Lowest(number, annotation.clone()),
            (Some(number), Best::Highest) => Place::Highest(Reverse(number), annotation.clone()),
            (None, _) => Place::None,
        }),
        Preference::Spread { topology_key, .. } => Some(match crowds.near(at, node, topology_key) {
            Some(leaders) => Place::Near(leaders, topology_key.clone()),
            None => Place::None,
        }),
    };
    rules.preferences.iter().enumerate().filter_map(place).collect()
}

/// The priority that a user gave to a pod, or 0 if it can't be read.
pub(super) fn priority(pod: &Pod) -> i64 {
    number(pod, PRIORITY_ANNOTATION).unwrap_or(0)
}

/// The whole number in an annotation of a pod, if there is one that can be read.
fn number(pod: &Pod, annotation: &str) -> Option<i64> {
    pod.annotations.get(annotation)?.trim().parse().ok()
}

/// Whether two states of a pod differ only in numbers by which an election ranks it. F5: no step is due then. The election reads the
/// numbers when it elects another leader, for a cause that it sees elsewhere.
pub fn differ_only_in_numbers(before: &Pod, now: &Pod, rules: &Rules) -> bool {
    // Most changes are no changes of annotations.
    if before.annotations == now.annotations {
        return false;
    }
    let ranks = |name: &str| {
        let names = |preference: &Preference| matches!(preference, Preference::Number { annotation, .. } if **annotation == *name);
        rules.preferences.iter().any(names)
    };
    let others = |pod: &Pod| -> Pairs {
        let kept = |(name, _): &(&str, &str)| !(ranks(name) && number(pod, name).is_some());
        pod.annotations.iter().filter(kept).collect()
    };
    others(before) == others(now)
        && Pod { version: now.version, annotations: now.annotations.clone(), ..before.clone() } == *now
}

/// The defect in the annotations that a user wrote on a pod, as a sentence that says what to write.
pub fn annotation_defect(pod: &Pod, rules: &Rules) -> Option<String> {
    let names = |preference: &Preference| match preference {
        Preference::Number { annotation, .. } if number(pod, annotation).is_none() => {
            let text = pod.annotations.get(annotation)?;
            Some(format!(
                "the annotation {annotation} is {text:?}, which is no whole number, so the pod ranks as without it: write for example \"10\""
            ))
        }
        Preference::Number { .. } | Preference::Weight { .. } | Preference::Spread { .. } => None,
    };
    if let Some(defect) = rules.preferences.iter().find_map(names) {
        return Some(defect);
    }
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
    let weight = |preference: &Preference| match preference {
        Preference::Weight { weight, node_labels } if fits(node_labels) => u64::from(*weight),
        Preference::Weight { .. } | Preference::Number { .. } | Preference::Spread { .. } => 0,
    };
    rules.preferences.iter().map(weight).sum()
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
            preferences: vec![Preference::Weight {
                weight: 5,
                node_labels: Pairs::from([("zone".into(), "a".into())]),
            }],
            ..rules()
        };
        let near = Node { labels: Pairs::from([("zone".into(), "a".into())]), ..Node::default() };
        let far = Node::default();
        let elder = Pod { ready_since: Some(Timestamp(50)), ..ready("z") };
        let outdated =
            rank(&elder, Some(&far), &rules, &Crowds::default(), Standing { outdated: true, ..Standing::default() });
        let preferred = annotated("e", PRIORITY_ANNOTATION, "9");
        let standing = Standing { held_back: true, shows_leader: true, ..Standing::default() };
        let held_back = rank(&preferred, Some(&near), &rules, &Crowds::default(), standing);
        let rank = |pod: &Pod, node, suspect, shows_leader| {
            rank(pod, Some(node), &rules, &Crowds::default(), Standing { suspect, shows_leader, ..Standing::default() })
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
    fn numbers_and_weights_count_in_the_order_of_the_list() {
        let number = |annotation: &str, best| Preference::Number { annotation: annotation.into(), best };
        let zone = || Preference::Weight { weight: 5, node_labels: Pairs::from([("zone".into(), "a".into())]) };
        let near = Node { labels: Pairs::from([("zone".into(), "a".into())]), ..Node::default() };
        let (far, lag) = (Node::default(), "example.com/lag");
        let first = |preferences: Vec<Preference>| {
            let rules = Rules { preferences, ..rules() };
            let pods = [
                (ready("none"), &near),
                (annotated("odd", lag, "few"), &near),
                (annotated("behind", lag, "9"), &near),
                (annotated("ahead", lag, "-3"), &far),
            ];
            let mut ranks = pods
                .map(|(pod, node)| (rank(&pod, Some(node), &rules, &Crowds::default(), Standing::default()), pod.name));
            ranks.sort();
            let why: Vec<_> = ranks.windows(2).map(|pair| pair[0].0.advantage_over(&pair[1].0).unwrap()).collect();
            (ranks.map(|(_, name)| name), why)
        };
        let told = |own, other| Advantage::Number(lag.into(), own, other);
        let (order, why) = first(vec![number(lag, Best::Lowest), zone()]);
        assert_eq!(order, ["ahead", "behind", "none", "odd"]);
        assert_eq!(why, [told(-3, Some(9)), told(9, None), Advantage::Name]);
        let (order, why) = first(vec![zone(), number(lag, Best::Lowest)]);
        assert_eq!(order, ["behind", "none", "odd", "ahead"]);
        assert_eq!(why, [told(9, None), Advantage::Name, Advantage::Weight(5, 0)]);
        let (order, why) = first(vec![number("example.com/other", Best::Lowest), number(lag, Best::Highest)]);
        assert_eq!(order, ["behind", "ahead", "none", "odd"]);
        assert_eq!(why, [told(9, Some(-3)), told(-3, None), Advantage::Name]);
    }

    #[test]
    fn a_pod_far_from_other_leaders_of_the_group_comes_first() {
        let node = |zone: &str| Node { labels: Pairs::from([("zone".into(), zone.into())]), ..Node::default() };
        let nodes: BTreeMap<String, Node> =
            [("a1", node("a")), ("a2", node("a")), ("b1", node("b")), ("c1", node("c")), ("x", Node::default())]
                .map(|(name, node)| (name.to_owned(), node))
                .into();
        let other_leader = |group: &str, node: &str| OtherLeader { group: group.into(), node: node.into() };
        let other_leaders = [
            other_leader("shards", "a1"),
            other_leader("shards", "a1"),
            other_leader("shards", "b1"),
            other_leader("others", "c1"),
            other_leader("shards", "x"),
            other_leader("shards", "gone"),
        ];
        let spread = Preference::Spread { group: "shards".into(), topology_key: "zone".into() };
        let number = Preference::Number { annotation: "n".into(), best: Best::Lowest };
        let rules = Rules { preferences: vec![number, spread], ..rules() };
        let crowds = Crowds::of(&rules, &other_leaders, &nodes);
        let rank = |name: &str, on: &str| rank(&ready(name), nodes.get(on), &rules, &crowds, Standing::default());
        let ranks = [rank("z", "c1"), rank("y", "b1"), rank("b", "a1"), rank("c", "a2"), rank("a", "x")];
        assert!(ranks.is_sorted(), "{ranks:#?}");
        let why: Vec<_> = ranks.windows(2).map(|pair| pair[0].advantage_over(&pair[1]).unwrap()).collect();
        let told = |own, other| Advantage::Apart("zone".into(), own, other);
        assert_eq!(why, [told(0, Some(1)), told(1, Some(2)), Advantage::Name, told(2, None)]);
    }

    #[test]
    fn malformed_annotations_are_named_and_harmless() {
        let pod = annotated("a", PRIORITY_ANNOTATION, "high");
        assert_eq!(priority(&pod), 0);
        assert!(annotation_defect(&pod, &rules()).unwrap().contains("\"high\""));
        let number = Preference::Number { annotation: "example.com/lag".into(), best: Best::Lowest };
        let ranked = Rules { preferences: vec![number], ..rules() };
        assert!(annotation_defect(&annotated("a", "example.com/lag", "1.5"), &ranked).unwrap().contains("\"1.5\""));
        assert!(annotation_defect(&annotated("a", "example.com/lag", "1.5"), &rules()).is_none());
        assert!(annotation_defect(&ready("a"), &ranked).is_none(), "no number is no defect");
        assert!(annotation_defect(&annotated("a", NEVER_LEADER_ANNOTATION, "maybe"), &rules()).is_some());
        assert!(annotation_defect(&annotated("a", PRIORITY_ANNOTATION, " 12 "), &rules()).is_none());
    }
}
