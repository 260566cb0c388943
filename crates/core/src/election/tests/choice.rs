//! Which pods may lead, and which of several is chosen, beyond readiness and priority.

use std::sync::Arc;

use super::*;
use crate::switchover::Target;

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
