//! Which pods may lead, and which of several is chosen, beyond readiness and priority.

use std::sync::Arc;

use super::*;
use crate::switchover::Target;
use crate::{Best, Preference};

const CAUGHT_UP: &str = "example.com/caught-up";

/// An election that requires the condition, which all pods but these have.
fn requiring(pods: usize, lacking: &[&str]) -> Lab {
    let mut lab = Lab::new(pods);
    lab.rules.conditions = [CAUGHT_UP.into()].into();
    for name in lab.pods.keys().cloned().collect::<Vec<_>>() {
        lab.edit(&name, |pod| pod.conditions = [CAUGHT_UP.into()].into());
    }
    for name in lacking {
        lose(&mut lab, name);
    }
    lab
}

fn lose(lab: &mut Lab, name: &str) {
    lab.edit(name, |pod| pod.conditions = Box::default());
}

fn not_true() -> NotEligible {
    NotEligible::ConditionNotTrue(Arc::from(CAUGHT_UP))
}

#[test]
fn a_pod_without_a_required_condition_is_not_elected() {
    let mut lab = requiring(2, &["p0"]);
    lab.run();
    assert_eq!(lab.leader(), Some("p1"));
    let mut nobody = requiring(1, &["p0"]);
    nobody.run();
    assert_eq!((nobody.leader(), nobody.election.situation()), (None, &Situation::Vacant));
}

#[test]
fn a_leader_that_loses_a_required_condition_is_replaced_like_one_that_is_not_ready() {
    let mut lab = requiring(2, &[]);
    lab.run();
    lab.failover_delay = Duration::from_secs(5);
    lose(&mut lab, "p0");
    let until = lab.now + Duration::from_secs(5);
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(*lab.election.situation(), Situation::Recovering(not_true(), until));
    lab.now = until;
    let expected = ["WriteRecord 2 p1", "Demote p0 2", "Promote p1 2", "Transition p1 ConditionNotTrue"];
    assert_eq!(lab.run(), expected);
}

#[test]
fn by_force_a_pod_leads_without_a_required_condition_and_has_the_hold_to_get_it() {
    let mut lab = requiring(2, &["p1"]);
    lab.run();
    lab.accepted = Some(Asked { id: uid("s"), from_term: Term(1), to: Target::Pod(uid("p1")), force: true });
    lab.run();
    assert_eq!(lab.leader(), Some("p1"));
    let until = lab.now + Duration::from_secs(300);
    (lab.accepted, lab.holds) = (None, vec![Hold { from: Some(uid("p0")), to: uid("p1"), force: true, until }]);
    assert_eq!(lab.run(), NOTHING);
    lab.now = until;
    lab.run();
    assert_eq!(lab.leader(), Some("p0"));
}

const LAG: &str = "example.com/lag";

/// An election that prefers the pod that lags least.
fn by_lag(lags: &[&str]) -> Lab {
    let mut lab = Lab::new(lags.len());
    lab.rules.preferences = vec![Preference::Number { annotation: LAG.into(), best: Best::Lowest }];
    for (number, lag) in lags.iter().enumerate() {
        write_lag(&mut lab, &format!("p{number}"), lag);
    }
    lab
}

fn write_lag(lab: &mut Lab, name: &str, lag: &str) {
    lab.edit(name, |pod| drop(pod.annotations.insert(LAG.into(), lag.into())));
}

#[test]
fn the_pod_with_the_best_number_is_elected_when_the_leader_is_lost() {
    let mut lab = by_lag(&["5", "3", "4"]);
    lab.run();
    assert_eq!(lab.leader(), Some("p1"));
    write_lag(&mut lab, "p0", "1");
    lab.unready("p1");
    lab.run();
    assert_eq!(lab.leader(), Some("p0"));
}

/// Shows F5.
#[test]
fn a_better_number_moves_no_leader_that_is_well_and_writes_nothing() {
    let mut lab = by_lag(&["5", "6", "7"]);
    lab.run();
    for preempt in [false, true] {
        lab.rules.preempt = preempt;
        for lag in ["4", "many", "-1"] {
            write_lag(&mut lab, "p1", lag);
            assert_eq!(lab.run(), NOTHING);
        }
    }
    assert_eq!(lab.leader(), Some("p0"));
}

/// An election whose pod p0 is in zone z0, p1 in z1, and so on, and that avoids the zones of other leaders.
fn spread(pods: usize) -> Lab {
    let mut lab = Lab::new(pods);
    lab.rules.preferences = vec![Preference::Spread { group: "shards".into(), topology_key: "zone".into() }];
    for number in 0..pods {
        let labels = Pairs::from([("zone".to_owned(), format!("z{number}"))]);
        lab.nodes.insert(format!("n{number}"), Node { labels, ..Node::default() });
        lab.edit(&format!("p{number}"), |pod| pod.node = Some(format!("n{number}")));
    }
    lab
}

fn lead_on(lab: &mut Lab, nodes: &[&str]) {
    lab.other_leaders = nodes.iter().map(|node| OtherLeader { group: "shards".into(), node: (*node).into() }).collect();
}

/// Shows F5.
#[test]
fn leaders_are_spread_when_they_are_elected_and_not_moved_apart_later() {
    let mut lab = spread(3);
    lead_on(&mut lab, &["n0", "n2"]);
    lab.run();
    assert_eq!(lab.leader(), Some("p1"));
    for preempt in [false, true] {
        lab.rules.preempt = preempt;
        lead_on(&mut lab, &["n1", "n1", "n2"]);
        assert_eq!(lab.run(), NOTHING, "a leader that is well stays beside others");
    }
    lab.unready("p1");
    lab.run();
    assert_eq!(lab.leader(), Some("p0"));
    lab.unready("p0");
    lab.run();
    assert_eq!(lab.leader(), Some("p2"), "it is a preference, and no requirement");
}

#[test]
fn who_is_about_to_lead_is_told_before_the_record_is_written() {
    let mut lab = spread(2);
    let node = |lab: &Lab| lab.election.coming_leader().and_then(|holder| holder.node.clone());
    assert_eq!(node(&lab), None);
    let sent = lab.step();
    assert_eq!(sent.iter().map(in_words).collect::<Vec<_>>(), ["WriteRecord 1 p0"]);
    assert_eq!(node(&lab).as_deref(), Some("n0"));
    let (op, outcome) = lab.answer(&sent[0], "").unwrap();
    lab.election.take(op, outcome, lab.now);
    lab.run();
    assert_eq!(node(&lab).as_deref(), Some("n0"));
    lab.unready("p0");
    lab.step();
    assert_eq!(node(&lab).as_deref(), Some("n1"), "it gives its place up when another one is chosen");
}
