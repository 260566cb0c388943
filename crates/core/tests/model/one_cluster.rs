//! One cluster, two operators that both act.

use super::cluster::{Action, Cluster, Faults};
use super::explore::{counterexample, prove};
use super::rules::{Counted, Rule};

const NONE: Faults = Faults { probes: 0, lost: 0, late: 0, crashes: 0, unready: 0, deleted: 0 };
const PROBE: Faults = Faults { probes: 1, ..NONE };
const PROBES: Faults = Faults { probes: 2, ..NONE };

fn settled(pods: usize, terms: i64, faults: Faults) -> Cluster {
    Cluster { settled: true, ..Cluster::new(pods, terms, faults) }
}

// Proved

/// Shows L1.
#[test]
fn both_begin_at_once() {
    let model = Cluster { calms: true, ..Cluster::new(2, 3, NONE) };
    prove("both begin at once", model, &[Counted::Conflict, Counted::TakenOver, Counted::RefusedPromotion]);
}

#[test]
fn each_finds_another_leader_unfit() {
    let model = settled(2, 3, PROBES);
    prove("each finds another leader unfit", model, &[Counted::TakenOver, Counted::RefusedPromotion]);
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_an_operator_that_crashes_in_a_handover() {
    let model = settled(2, 3, Faults { crashes: 1, ..PROBE });
    prove("an operator crashes in a handover", model, &[Counted::LatePromotion, Counted::RefusedPromotion]);
}

#[test]
fn an_operator_crashes() {
    let model = Cluster { calms: true, ..settled(2, 2, Faults { crashes: 1, ..PROBE }) };
    prove("an operator crashes", model, &[Counted::LatePromotion, Counted::RefusedPromotion]);
}

#[test]
fn an_answer_comes_late() {
    prove("an answer comes late", settled(2, 3, Faults { late: 1, ..PROBE }), &[Counted::RefusedPromotion]);
}

#[test]
fn an_answer_is_lost() {
    let model = Cluster { calms: true, ..settled(2, 2, Faults { lost: 1, ..PROBE }) };
    prove("an answer is lost", model, &[Counted::LatePromotion]);
}

#[test]
fn a_pod_becomes_unready() {
    let model = Cluster { calms: true, ..settled(2, 3, Faults { unready: 1, ..NONE }) };
    prove("a pod becomes unready", model, &[Counted::RefusedPromotion]);
}

#[test]
fn a_pod_is_made_anew() {
    let model = settled(2, 2, Faults { deleted: 1, ..NONE });
    prove("a pod is made anew", model, &[Counted::TakenOver]);
}

/// Shows R1.
#[test]
fn a_slice_follows() {
    prove("a slice follows", Cluster { routed: true, calms: true, ..settled(2, 2, PROBE) }, &[Counted::RefusedSwitch]);
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_that_a_slice_follows() {
    let model = Cluster { routed: true, ..settled(2, 3, PROBE) };
    prove("a slice follows, three terms", model, &[Counted::RefusedSwitch]);
    let model = Cluster { routed: true, ..settled(2, 2, Faults { crashes: 1, ..PROBE }) };
    prove("a slice follows, a crash", model, &[Counted::LateSwitch]);
    let model = Cluster { routed: true, ..settled(2, 2, Faults { lost: 1, ..PROBE }) };
    prove("a slice follows, a lost answer", model, &[Counted::LateSwitch]);
}

/// Shows E1.
#[test]
fn no_pod_leads_before_the_former_leader_has_ended() {
    let first = |faults| Cluster { ends_first: true, ..settled(2, 2, faults) };
    prove("the former leader ends first", first(PROBE), &[Counted::TakenOver]);
    needed(Rule::EndsFirst, first(PROBE));
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_that_no_pod_leads_before_the_former_leader_has_ended() {
    let first = |faults| Cluster { ends_first: true, ..settled(2, 2, faults) };
    prove("the former leader ends first, a crash", first(Faults { crashes: 1, ..PROBE }), &[Counted::TakenOver]);
    prove("the former leader ends first, a lost answer", first(Faults { lost: 1, ..PROBE }), &[Counted::TakenOver]);
}

#[test]
fn three_pods() {
    prove("three pods", settled(3, 3, PROBE), &[Counted::TakenOver]);
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_two_probes_and_a_crash() {
    prove("two probes and a crash", settled(2, 3, Faults { crashes: 1, ..PROBES }), &[Counted::LatePromotion]);
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_a_crash_and_a_lost_answer() {
    let faults = Faults { crashes: 1, lost: 1, ..PROBE };
    prove("a crash and a lost answer", settled(2, 3, faults), &[Counted::LatePromotion]);
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_four_terms() {
    prove("four terms", settled(2, 4, PROBES), &[Counted::RefusedPromotion]);
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_three_pods() {
    prove("three pods, two probes", settled(3, 3, PROBES), &[Counted::TakenOver]);
    prove("three pods, a crash", settled(3, 3, Faults { crashes: 1, ..PROBE }), &[Counted::LatePromotion]);
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_pods_that_come_and_go() {
    prove("a pod is made anew", settled(2, 3, Faults { deleted: 1, ..PROBE }), &[Counted::RefusedPromotion]);
    prove("a pod becomes unready", settled(2, 3, Faults { unready: 1, ..PROBE }), &[Counted::RefusedPromotion]);
    let model = Cluster { absent: 1, ..settled(3, 3, PROBE) };
    prove("a pod comes", model, &[Counted::RefusedPromotion]);
}

// Without a rule

/// A promise is broken without this rule.
fn needed(rule: Rule, model: Cluster) {
    let model = Cluster { off: vec![rule], ..model };
    assert!(counterexample(&format!("without {rule:?}"), model).is_some(), "{rule:?} is not needed");
}

/// No promise is broken without this rule alone, since another one keeps it as well.
fn covered(rule: Rule, model: Cluster) {
    let model = Cluster { off: vec![rule], ..model };
    let found = counterexample(&format!("without {rule:?}"), model);
    assert_eq!(found, None, "{rule:?} is needed");
}

/// Shows H1.
#[test]
fn the_record_is_written_first() {
    needed(Rule::RecordFirst, settled(2, 3, PROBE));
}

/// Shows H1.
#[test]
fn the_record_is_written_by_compare_and_swap() {
    needed(Rule::CompareAndSwap, settled(2, 3, PROBES));
}

/// Shows H2.
#[test]
fn others_are_demoted_before_a_promotion() {
    needed(Rule::DemoteFirst, settled(2, 2, PROBE));
    needed(Rule::DemotionAwaited, settled(2, 2, PROBE));
}

/// Shows H3.
#[test]
fn a_write_is_for_one_version_of_a_pod() {
    needed(Rule::PodVersions, settled(2, 3, PROBE));
    // No two pods of one name ever have the same version.
    covered(Rule::PodUids, settled(2, 2, Faults { deleted: 1, ..NONE }));
}

/// Shows H3.
#[test]
fn the_record_is_read_again_after_a_conflict() {
    needed(Rule::Confirmation, settled(2, 3, PROBE));
}

/// Shows R1.
#[test]
fn a_slice_is_written_for_one_version_of_it() {
    needed(Rule::SliceVersions, Cluster { routed: true, ..settled(2, 3, PROBE) });
}

/// Shows R1.
#[test]
fn the_record_is_read_again_before_a_slice_is_written_that_has_changed() {
    needed(Rule::Confirmation, Cluster { routed: true, ..settled(2, 3, PROBE) });
}

/// Shows H4.
#[test]
fn candidates_are_stamped() {
    needed(Rule::Stamps, settled(2, 3, PROBES));
}

/// Shows H4.
#[test]
fn candidates_are_listed_afresh() {
    // A pod that only the first operator has seen leads for a term, and the second operator takes over in the next one. It reads
    // the leader that the record names, but that is another one. All that is left out is what the history does not need.
    let only =
        |action: Action| !matches!(action, Action::SeesPod(1, _) | Action::SeesPod(0, 0) | Action::SeesRecord(0));
    needed(Rule::FreshPods, Cluster { absent: 1, only: Some(only), ..settled(2, 4, PROBES) });
}

/// Shows H2.
#[test]
fn whom_the_replaced_record_named_is_demoted_whatever_the_cache_shows() {
    needed(Rule::PreviousDemoted, settled(2, 3, PROBES));
}

#[test]
#[ignore = "takes long: make prove"]
fn prove_that_what_was_written_need_not_be_shown_at_once() {
    covered(Rule::AnswersShown, settled(2, 2, PROBE));
}
