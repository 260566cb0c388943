//! Which pods may lead, and which one of several does: as the README says, whatever is written on the pods.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{at, config};
use crate::eligibility::{Crowds, Rank, Standing, eligible_by_force, rank};
use crate::{
    Advantage, Best, NEVER_LEADER_ANNOTATION, Node, NotEligible, OtherLeader, PRIORITY_ANNOTATION, Pairs, Pod,
    Preference, Rules, Term, Timestamp, Version, differ_only_in_numbers, eligible, standing,
};

const CONDITIONS: [&str; 3] = ["example.com/a", "example.com/b", "example.com/c"];
const NUMBERS: [&str; 2] = ["example.com/lag", "example.com/position"];
/// The zone of each other leader.
const LEADERS_NEAR: [&str; 3] = ["a", "a", "b"];
const ZONES: [&str; 3] = ["a", "b", "c"];

/// A pod as the cluster may show it, with whatever somebody wrote on it.
fn pod() -> impl Strategy<Value = Pod> {
    let number = || {
        prop_oneof![
            Just(None),
            any::<i64>().prop_map(|number| Some(number.to_string())),
            (-2_i64..3).prop_map(|number| Some(format!(" {number}"))),
            any::<String>().prop_map(Some),
        ]
    };
    let numbers = [number(), number(), number()];
    let never = prop_oneof![
        6 => Just(None),
        1 => "(true|false| false |False|)".prop_map(Some),
        1 => any::<String>().prop_map(Some),
    ];
    let flags = prop::array::uniform5(prop::bool::weighted(0.85));
    let conditions = prop::sample::subsequence(&CONDITIONS, 1..=3);
    let since = prop::option::of(prop_oneof![any::<i64>(), 0_i64..3]);
    (("[a-e]{1,2}", numbers, never, conditions), (flags, since, prop::option::of(0_u64..20_000))).prop_map(
        |(
            (name, [priority, lag, position], never, conditions),
            ([ready, living, kept, left, bound], since, observed),
        )| {
            let numbers = [(PRIORITY_ANNOTATION, priority), (NUMBERS[0], lag), (NUMBERS[1], position)];
            let annotations = numbers.into_iter().chain([(NEVER_LEADER_ANNOTATION, never)]);
            let annotations = annotations.filter_map(|(key, value)| Some((key.to_owned(), value?)));
            Pod {
                name,
                annotations: annotations.collect(),
                ready,
                deleting: !living,
                finished: !kept,
                disrupted: !left,
                node: bound.then(|| "n".into()),
                ready_since: since.map(Timestamp),
                ready_observed: observed.map(at),
                conditions: conditions.into_iter().map(Arc::from).collect(),
                ..Pod::default()
            }
        },
    )
}

fn node() -> impl Strategy<Value = Option<Node>> {
    let node = (prop::sample::select(&ZONES), any::<bool>(), any::<bool>()).prop_map(|(zone, lost, cordoned)| Node {
        out_of_service: false,
        labels: Pairs::from([("zone".to_owned(), zone.to_owned())]),
        lost,
        cordoned,
    });
    prop::option::of(node)
}

fn rules() -> impl Strategy<Value = Rules> {
    let weight = (prop_oneof![1_u32..4, Just(u32::MAX)], prop::sample::select(&ZONES));
    let weight = weight.prop_map(|(weight, zone)| Preference::Weight {
        weight,
        node_labels: Pairs::from([("zone".to_owned(), zone.to_owned())]),
    });
    let number = (prop::sample::select(&NUMBERS), prop::sample::select(&[Best::Lowest, Best::Highest]));
    let number = number.prop_map(|(name, best)| Preference::Number { annotation: name.into(), best });
    let spread = Just(Preference::Spread { group: "shards".into(), topology_key: "zone".into() });
    let preference = prop_oneof![3 => weight, 2 => number, 1 => spread];
    let conditions = prop::sample::subsequence(&CONDITIONS, 0..=2);
    let preferences = prop::collection::vec(preference, 0..4);
    (any::<bool>(), conditions, 0_u64..15_000, preferences).prop_map(|(ready, conditions, wait, preferences)| Rules {
        require_ready: ready,
        conditions: conditions.into_iter().map(Arc::from).collect(),
        min_ready: Duration::from_millis(if wait < 5_000 { 0 } else { wait }),
        preferences,
        ..Rules::default()
    })
}

/// The inputs of a pod's rank: the pod, its node, whether its last probe failed, whether a switchover has just replaced it, whether it
/// leads, and whether its template is an old one.
type Known = (Pod, Option<Node>, bool, bool, bool, bool);

fn known() -> impl Strategy<Value = Known> {
    (pod(), node(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>())
}

fn rank_of((pod, node, failed, held, leads, old): &Known, rules: &Rules) -> Rank {
    let other_leaders = LEADERS_NEAR.map(|zone| OtherLeader { group: "shards".into(), node: zone.into() });
    let node_of = |zone: &str| Node { labels: Pairs::from([("zone".to_owned(), zone.to_owned())]), ..Node::default() };
    let nodes = LEADERS_NEAR.map(|zone| (zone.to_owned(), node_of(zone))).into();
    let crowds = Crowds::of(rules, &other_leaders, &nodes);
    let standing = Standing { suspect: *failed, held_back: *held, shows_leader: *leads, outdated: *old };
    rank(pod, node.as_ref(), rules, &crowds, standing)
}

/// The order that users are told of, in other words than the program's.
fn as_told(
    (one, one_node, one_failed, one_held, one_leads, one_old): &Known,
    other: &Known,
    rules: &Rules,
) -> Ordering {
    let (other, other_node, other_failed, other_held, other_leads, other_old) = other;
    let number = |pod: &Pod, name: &str| pod.annotations.get(name).and_then(|text| text.trim().parse::<i64>().ok());
    let priority = |pod: &Pod| number(pod, PRIORITY_ANNOTATION).unwrap_or(0);
    let weight = |node: &Option<Node>| {
        let mut weight = 0;
        for preference in &rules.preferences {
            if let Preference::Weight { weight: more, node_labels } = preference
                && node.as_ref().is_some_and(|node| node_labels.get("zone") == node.labels.get("zone"))
            {
                weight += u64::from(*more);
            }
        }
        weight
    };
    let near = |node: &Option<Node>| {
        let zone = node.as_ref()?.labels.get("zone")?;
        Some(LEADERS_NEAR.iter().filter(|leader| **leader == zone).count())
    };
    let ready_since = |pod: &Pod| pod.ready_since.map_or(i64::MAX, |since| since.0);
    if one_failed != other_failed {
        return one_failed.cmp(other_failed);
    }
    if one_held != other_held {
        return one_held.cmp(other_held);
    }
    let higher_first = priority(other).cmp(&priority(one));
    // The weights all count where the first of them is, so the others may as well be looked at again.
    let preferred_first = rules.preferences.iter().map(|preference| match preference {
        Preference::Weight { .. } => weight(other_node).cmp(&weight(one_node)),
        Preference::Number { annotation, best } => match (number(one, annotation), number(other, annotation)) {
            (Some(one), Some(other)) if *best == Best::Lowest => one.cmp(&other),
            (Some(one), Some(other)) => other.cmp(&one),
            (one, other) => one.is_none().cmp(&other.is_none()),
        },
        Preference::Spread { .. } => match (near(one_node), near(other_node)) {
            (Some(one), Some(other)) => one.cmp(&other),
            (one, other) => one.is_none().cmp(&other.is_none()),
        },
    });
    let preferred_first = preferred_first.fold(Ordering::Equal, Ordering::then);
    let leader_first = other_leads.cmp(one_leads);
    let newest_template_first = one_old.cmp(other_old);
    let longest_ready_first = ready_since(one).cmp(&ready_since(other));
    let by_name = one.name.cmp(&other.name);
    [higher_first, preferred_first, leader_first, newest_template_first, longest_ready_first, by_name]
        .into_iter()
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn the_order_is_the_one_that_users_are_told_of(one in known(), other in known(), rules in rules()) {
        let of = |known: &Known| rank_of(known, &rules);
        prop_assert_eq!(of(&one).cmp(&of(&other)), as_told(&one, &other, &rules));
        prop_assert_eq!(of(&other).cmp(&of(&one)), as_told(&one, &other, &rules).reverse());
    }

    #[test]
    fn the_reason_for_an_order_names_what_differs(one in known(), other in known(), rules in rules()) {
        let (own, their) = (rank_of(&one, &rules), rank_of(&other, &rules));
        let advantage = own.advantage_over(&their);
        prop_assert_eq!(advantage.is_some(), own < their);
        if let Some(Advantage::Number(annotation, number, other)) = advantage {
            let wanted = |preference: &Preference| match preference {
                Preference::Number { annotation: of, best } if *of == annotation => Some(*best),
                _ => None,
            };
            let best = rules.preferences.iter().find_map(wanted).expect("a preference names it");
            let better = |other| if best == Best::Lowest { number < other } else { number > other };
            prop_assert!(other.is_none_or(better));
        }
    }

    #[test]
    fn a_change_of_numbers_alone_is_told_from_every_other_change(
        pod in pod(), lag in any::<i64>(), word in any::<String>(), rules in rules(),
    ) {
        let ranks = rules.preferences.iter().any(
            |preference| matches!(preference, Preference::Number { annotation, .. } if **annotation == *NUMBERS[0]),
        );
        let write = |name: &str, value: String| {
            let mut written = Pod { version: Version(7), ..pod.clone() };
            written.annotations.insert(name.into(), value);
            written
        };
        let written = write(NUMBERS[0], lag.to_string());
        let changed = pod.annotations != written.annotations;
        let was = pod.annotations.get(NUMBERS[0]).is_none_or(|text| text.trim().parse::<i64>().is_ok());
        prop_assert_eq!(differ_only_in_numbers(&pod, &written, &rules), changed && was && ranks);
        let unready = Pod { ready: !pod.ready, ..written };
        prop_assert!(!differ_only_in_numbers(&pod, &unready, &rules));
        let malformed = write(NUMBERS[0], format!("x{word}"));
        prop_assert!(!differ_only_in_numbers(&pod, &malformed, &rules));
        prop_assert!(!differ_only_in_numbers(&pod, &write(PRIORITY_ANNOTATION, word), &rules));
    }

    #[test]
    fn who_is_first_does_not_depend_on_who_is_seen_first(
        pods in prop::collection::btree_map("[a-e]{1,3}", known(), 1..8),
        turn in any::<prop::sample::Index>(),
        rules in rules(),
    ) {
        let named = |(name, known): (String, Known)| {
            (Pod { name, ..known.0 }, known.1, known.2, known.3, known.4, known.5)
        };
        let mut pods: Vec<Known> = pods.into_iter().map(named).collect();
        let first = |pods: &[Known]| pods.iter().map(|known| rank_of(known, &rules)).min();
        let before = first(&pods);
        let by = turn.index(pods.len());
        pods.rotate_left(by);
        pods[by..].reverse();
        prop_assert_eq!(before, first(&pods));
    }

    #[test]
    fn who_may_be_elected_may_lead_and_nothing_else_ends_a_leadership(
        pod in pod(), node in node(), rules in rules(), now in 0_u64..40_000,
    ) {
        let may_lead = standing(&pod, node.as_ref(), &rules);
        let may_be_elected = eligible(&pod, node.as_ref(), &rules, at(now));
        let excluded = pod.annotations.get(NEVER_LEADER_ANNOTATION).is_some_and(|text| text.trim() != "false");
        let lost = node.as_ref().is_some_and(|node| node.lost);
        let lacks = rules.conditions.iter().any(|wanted| !pod.conditions.contains(wanted));
        let unready = rules.require_ready && !pod.ready;
        let unfit = pod.finished || pod.deleting || pod.disrupted || excluded || lost || unready || lacks;
        prop_assert_eq!(may_lead.is_err(), unfit);
        prop_assert!(may_lead.is_ok() || may_be_elected == may_lead);
        let placed = pod.node.is_some() && node.as_ref().is_none_or(|node| !node.cordoned);
        let waited = rules.min_ready.is_zero()
            || pod.ready_observed.is_some_and(|since| at(now) >= since + rules.min_ready);
        prop_assert_eq!(may_be_elected.is_ok(), !unfit && placed && waited);
        // The pod becomes eligible later, not at once.
        if let Err(NotEligible::ReadyTooShortly(until)) = may_be_elected {
            prop_assert!(until > at(now));
            prop_assert_eq!(eligible(&pod, node.as_ref(), &rules, until), Ok(()));
        }
        if may_be_elected.is_ok() {
            prop_assert_eq!(eligible(&pod, node.as_ref(), &rules, at(now + 1)), Ok(()));
        }
    }

    #[test]
    fn force_skips_readiness_conditions_and_a_cordon_and_nothing_else(
        pod in pod(), node in node(), rules in rules(), now in 0_u64..40_000,
    ) {
        let by_force = eligible_by_force(&pod, node.as_ref(), &rules, at(now));
        let conditions = CONDITIONS.map(Arc::from).into();
        let ready = Pod { ready: true, ready_observed: Some(at(0)), conditions, ..pod.clone() };
        let open = node.clone().map(|node| Node { cordoned: false, ..node });
        let patient = Rules { min_ready: Duration::ZERO, ..rules.clone() };
        prop_assert_eq!(&by_force, &eligible(&ready, open.as_ref(), &patient, at(now)));
        if let (Err(why), Ok(())) = (eligible(&pod, node.as_ref(), &rules, at(now)), &by_force) {
            prop_assert!(why.yields_to_force());
        }
        prop_assert!(by_force.is_ok() || eligible(&pod, node.as_ref(), &rules, at(now)).is_err());
    }

    #[test]
    fn a_hint_never_lowers_a_term_and_raises_it_only_by_so_much(term in any::<i64>(), hint in any::<i64>()) {
        let raised = Term(term).raised_by_hint(Term(hint));
        prop_assert!(raised >= Term(term) && raised.0 <= term.saturating_add(Term::CREDIBLE_LEAD));
        prop_assert!(raised == Term(term) || raised == Term(hint));
        prop_assert_eq!(raised.raised_by_hint(Term(hint)), raised);
        prop_assert!(hint > term.saturating_add(Term::CREDIBLE_LEAD) || raised >= Term(hint));
    }
}
