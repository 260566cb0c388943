//! Two clusters that share a lock.

use std::time::Duration;

use super::clusters::{Clusters, Faults};
use super::explore::{counterexample, prove};
use super::rules::{Counted, Rule};

const NONE: Faults = Faults { cuts: 0, lost: 0, late: 0, crashes: 0, slow: 0, unready: 0 };
const CUT: Faults = Faults { cuts: 1, ..NONE };

/// A tick is as long as the margin; or half as long, for what shares it with something else.
const HALF: Duration = Duration::from_millis(1_500);

fn with_workloads(model: Clusters) -> Clusters {
    Clusters { workload: true, ..model }
}

/// In practice Consul keeps a session for twice its TTL; a standby that takes over rests on that.
const TWICE: Duration = Duration::from_secs(30);

// Proved

#[test]
fn a_cluster_is_cut_off() {
    let model = Clusters { calms: true, ..Clusters::new(CUT) };
    prove("a cluster is cut off", model, &[Counted::Expired, Counted::TakenOver]);
    prove("a cluster is cut off", with_workloads(Clusters::new(CUT)), &[Counted::Expired, Counted::TakenOver]);
}

#[test]
fn both_begin_and_one_is_cut_off() {
    let model = Clusters { fresh: true, ..Clusters::new(CUT) };
    prove("both begin, and one is cut off", model, &[Counted::Expired, Counted::TakenOver, Counted::Written]);
}

#[test]
fn a_candidate_becomes_unfit() {
    let model = Clusters { calms: true, ..Clusters::new(Faults { unready: 1, ..NONE }) };
    prove("a candidate becomes unfit", model.clone(), &[Counted::Released, Counted::TakenOver]);
}

#[test]
fn an_operator_crashes() {
    let model = Clusters { keeps: TWICE, ..Clusters::new(Faults { crashes: 1, ..NONE }) };
    prove("an operator crashes", model.clone(), &[]);
    prove("an operator crashes", with_workloads(model), &[]);
}

#[test]
fn a_request_is_lost_or_its_answer_late() {
    prove("a request is lost, an answer late", Clusters::new(Faults { lost: 1, late: 1, ..NONE }), &[]);
}

/// With a pod in each, and with a Deployment in each.
fn both(name: &str, model: Clusters) {
    let reaches = [Counted::Expired, Counted::TakenOver];
    prove(name, model.clone(), &reaches);
    prove(name, with_workloads(model), &reaches);
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_a_cut_and_a_lost_request() {
    both("cut off, and a request is lost", Clusters::new(Faults { lost: 1, ..CUT }));
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_a_cut_and_slow_requests() {
    both("cut off, and requests take a tick", Clusters { delay: 1, ..Clusters::new(CUT) });
    let model = Clusters { queue: 6, fresh: true, ..Clusters::new(CUT) };
    prove("cut off, and promotions wait for their turn", model.clone(), &[Counted::TooLate]);
    let model = Clusters { off: vec![Rule::SentWhileValid], ..model };
    prove("cut off, and promotions are sent after the look at the clock", model, &[Counted::Expired]);
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_a_cut_and_a_crash() {
    both("cut off, and an operator crashes", Clusters { keeps: TWICE, ..Clusters::new(Faults { crashes: 1, ..CUT }) });
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_a_cut_and_a_slow_clock() {
    both("cut off, and a clock is slow", Clusters { tick: HALF, ..Clusters::new(Faults { slow: 1, ..CUT }) });
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_a_cut_and_a_late_answer() {
    prove("cut off, and an answer comes late", Clusters::new(Faults { late: 1, ..CUT }), &[Counted::Expired]);
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_a_cut_and_an_unfit_candidate() {
    both("cut off, and a candidate is unfit", Clusters::new(Faults { unready: 1, ..CUT }));
}

// Without a rule

fn needed(rule: Rule, model: Clusters) {
    let model = Clusters { off: vec![rule], ..model };
    assert!(counterexample(&format!("without {rule:?}"), model).is_some(), "{rule:?} is not needed");
}

/// Shows C2.
#[test]
fn a_holder_keeps_away_from_the_end_of_its_validity() {
    needed(Rule::Margin, Clusters::new(CUT));
}

/// Shows C1.
#[test]
fn a_validity_counts_from_the_sending() {
    needed(Rule::FromSending, Clusters::new(Faults { late: 1, ..CUT }));
}

/// Shows C4.
#[test]
fn nobody_is_promoted_after_the_validity() {
    // Each of the two keeps two leaders apart by itself: the look at the clock right before the promotion is sent, and the write to
    // the pod of a promotion that is outstanding, for an operator that is stopped between that look and the sending.
    let model = || Clusters { queue: 6, fresh: true, ..Clusters::new(CUT) };
    let neither = Clusters { off: vec![Rule::SentWhileValid, Rule::Stamps], ..model() };
    assert!(counterexample("without SentWhileValid and Stamps", neither).is_some());
}

/// Shows W5.
#[test]
fn a_contender_waits_as_long_as_the_record_says() {
    needed(Rule::Published, with_workloads(Clusters::new(CUT)));
}

// Without what is assumed

#[test]
fn a_promotion_arrives_in_time_or_never() {
    let faults = Faults { crashes: 1, ..CUT };
    needed(Rule::PromptOrNever, Clusters { keeps: TWICE, fresh: true, ..Clusters::new(faults) });
}

#[test]
fn a_clock_is_slow_by_no_more_than_the_margin() {
    let model = Clusters { tick: HALF, ..Clusters::new(Faults { slow: 2, ..CUT }) };
    assert!(counterexample("a clock that is slow by the margin", model).is_some());
}

#[test]
fn a_standby_takes_over_before_the_session_ends() {
    let model = Clusters::new(Faults { crashes: 1, ..NONE });
    assert!(counterexample("a session that is kept for its TTL alone, and a crash", model).is_some());
}
