//! A promotion whose outcome is not known when the lock is lost.

use super::*;
use crate::{Changes, Pairs};

/// With p0 demoted in a handover to p1, and the promotion of p1 on its way: it comes last.
fn promoting() -> (Lab, Effect) {
    let mut lab = shared(2);
    lab.unready("p0");
    let promotion = until_promotion(&mut lab);
    (lab, promotion)
}

/// Steps and answers up to the first promotion, which is not carried out.
fn until_promotion(lab: &mut Lab) -> Effect {
    for _ in 0..10 {
        for command in lab.step() {
            let words = in_words(&command);
            if words.starts_with("Promote") {
                return command;
            }
            if let Some((op, outcome)) = lab.answer(&command, &words) {
                lab.election.take(op, outcome, lab.now);
            }
        }
    }
    panic!("nobody is promoted")
}

fn carry_out(lab: &mut Lab, command: &Effect) -> Outcome {
    let (op, outcome) = lab.answer(command, &in_words(command)).unwrap();
    lab.election.take(op, outcome.clone(), lab.now);
    outcome
}

fn only_write(commands: Vec<Effect>, begins: &str) -> Effect {
    let mut writes = commands.into_iter().filter(|command| matches!(command, Effect::Request(_, Command::WritePod(_))));
    let write = writes.next().expect("a pod is written");
    assert!(in_words(&write).starts_with(begins) && writes.next().is_none(), "{write:?}");
    write
}

fn end_validity(lab: &mut Lab) {
    lab.now = lab.now + Duration::from_secs(12);
}

#[test]
fn when_the_validity_ends_the_pod_of_a_promotion_that_is_on_its_way_is_written_to() {
    let (mut lab, promotion) = promoting();
    end_validity(&mut lab);
    let commands = lab.step();
    let stamp = only_write(commands, "Demote p1");
    assert_eq!(*lab.election.situation(), Situation::HandingOver, "it may still lead");
    assert!(lab.step().is_empty());
    carry_out(&mut lab, &stamp);
    assert_eq!(lab.run(), ["Transition nobody StoreLost"]);
    assert_eq!(*lab.election.situation(), Situation::StoreLost);
    assert_eq!(carry_out(&mut lab, &promotion), Outcome::PodWritten(PodOutcome::Conflict));
    assert_eq!(lab.leader(), None);
}

#[test]
fn a_promotion_that_was_first_is_taken_back_before_it_is_said_that_nobody_leads() {
    let (mut lab, promotion) = promoting();
    end_validity(&mut lab);
    let stamp = only_write(lab.step(), "Demote p1");
    carry_out(&mut lab, &promotion);
    assert_eq!(lab.leader(), Some("p1"));
    assert_eq!(carry_out(&mut lab, &stamp), Outcome::PodWritten(PodOutcome::Conflict));
    let all = lab.run();
    assert!(all[0].starts_with("Demote p1"), "{all:#?}");
    assert_eq!((lab.leader(), lab.election.situation()), (None, &Situation::StoreLost));
}

#[test]
fn who_takes_the_lock_meanwhile_is_told_of_when_the_promotion_can_do_nothing_any_more() {
    let (mut lab, promotion) = promoting();
    lab.store(|version| Stored::HeldByOther(version, rival()));
    let commands = lab.step();
    assert!(!commands.iter().any(|command| in_words(command) == "LedElsewhere east"), "{commands:#?}");
    let stamp = only_write(commands, "Demote p1");
    carry_out(&mut lab, &stamp);
    assert_eq!(lab.run(), ["Transition nobody LockTaken", "LedElsewhere east"]);
    assert_eq!(carry_out(&mut lab, &promotion), Outcome::PodWritten(PodOutcome::Conflict));
}

#[test]
fn a_promotion_without_an_answer_may_still_arrive() {
    let (mut lab, promotion) = promoting();
    let op = promotion.op().unwrap();
    lab.election.take(op, promotion.failed(Failure::Unknown("no answer".into())).unwrap(), lab.now);
    end_validity(&mut lab);
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("Demote p1")), "{all:#?}");
    assert_eq!(carry_out(&mut lab, &promotion), Outcome::PodWritten(PodOutcome::Conflict));
}

#[test]
fn a_promotion_that_was_not_sent_costs_no_write() {
    let (mut lab, promotion) = promoting();
    let op = promotion.op().unwrap();
    lab.election.take(op, promotion.failed(Failure::Refused("not sent".into())).unwrap(), lab.now);
    end_validity(&mut lab);
    assert_eq!(lab.run(), ["Transition nobody StoreLost"]);
    assert_eq!(*lab.election.situation(), Situation::StoreLost);
}

#[test]
fn a_target_that_the_cache_does_not_show_is_read_first() {
    let (mut lab, promotion) = promoting();
    lab.unseen.insert("p1".into());
    end_validity(&mut lab);
    assert_eq!(lab.step().iter().map(in_words).collect::<Vec<_>>(), ["ReadPod p1"]);
    assert_eq!(*lab.election.situation(), Situation::HandingOver);

    // It is there as it was, and so it is written to.
    let (mut lab, _) = promoting();
    lab.unseen.insert("p1".into());
    end_validity(&mut lab);
    let all = lab.run();
    assert!(all.len() == 3 && all[0] == "ReadPod p1" && all[1].starts_with("Demote p1"), "{all:#?}");
    assert_eq!(*lab.election.situation(), Situation::StoreLost);
    assert_eq!(carry_out(&mut lab, &promotion), Outcome::PodWritten(PodOutcome::Conflict));

    // It is no more.
    let (mut lab, _) = promoting();
    lab.pods.remove("p1");
    end_validity(&mut lab);
    assert_eq!(lab.run(), ["ReadPod p1", "Transition nobody StoreLost"]);
    assert_eq!(*lab.election.situation(), Situation::StoreLost);
}

#[test]
fn the_write_changes_the_pod_whatever_is_on_it() {
    let mut lab = shared(1);
    lab.edit("p0", |pod| {
        pod.labels.insert("role".into(), "follower".into());
        pod.annotations = pod.annotations.iter().filter(|(key, _)| !key.ends_with("pod-deletion-cost")).collect();
    });
    // It was made a follower by hand; the present term is still there.
    let promotion = until_promotion(&mut lab);
    end_validity(&mut lab);
    let Effect::Request(op, Command::WritePod(write)) = only_write(lab.step(), "Remove p0") else { unreachable!() };
    let pod = &lab.pods["p0"];
    let changes = |patch: &Changes, have: &Pairs| patch.iter().any(|(key, value)| have.get(key) != value.as_deref());
    assert!(changes(&write.patch.labels, &pod.labels) || changes(&write.patch.annotations, &pod.annotations));
    carry_out(&mut lab, &Effect::Request(op, Command::WritePod(write)));
    // The follower's label is put on again.
    assert!(lab.run().iter().any(|words| words.starts_with("Demote p0")));
    assert_eq!(carry_out(&mut lab, &promotion), Outcome::PodWritten(PodOutcome::Conflict));
}

#[test]
fn a_lock_that_is_free_is_not_taken_while_a_promotion_may_arrive() {
    let (mut lab, _) = promoting();
    let record = lab.record();
    lab.store(|version| Stored::Free(version, Some(record), None));
    let stamp = only_write(lab.step(), "Demote p1");
    assert!(lab.step().is_empty());
    carry_out(&mut lab, &stamp);
    assert!(lab.run().iter().any(|words| words.starts_with("WriteRecord")));
}

#[test]
fn a_deleted_election_writes_to_the_target_too() {
    let (mut lab, promotion) = promoting();
    lab.desired = Desired::Withdraw;
    lab.store(|version| Stored::HeldByOther(version, rival()));
    lab.run();
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
    assert_eq!(carry_out(&mut lab, &promotion), Outcome::PodWritten(PodOutcome::Conflict));
}

#[test]
fn a_promotion_is_wanted_as_long_as_its_handover_goes_on() {
    let (mut lab, promotion) = promoting();
    let op = promotion.op().unwrap();
    assert!(lab.election.wants(op) && !lab.election.wants(OpId(op.0 + 1)));
    end_validity(&mut lab);
    lab.step();
    assert!(!lab.election.wants(op), "the validity has ended");

    let (mut lab, promotion) = promoting();
    // Also while something else is waited for.
    lab.election.report.backoff.delay(lab.now);
    lab.store(|version| Stored::HeldByOther(version, rival()));
    lab.step();
    assert!(!lab.election.wants(promotion.op().unwrap()), "somebody else has the lock");

    let mut lab = Lab::led(2);
    lab.unready("p0");
    let promotion = until_promotion(&mut lab);
    lab.store(|_| Stored::Absent);
    lab.step();
    assert!(!lab.election.wants(promotion.op().unwrap()), "the record is gone");

    let (mut lab, promotion) = promoting();
    carry_out(&mut lab, &promotion);
    assert!(!lab.election.wants(promotion.op().unwrap()), "it is done");
}

#[test]
fn only_a_write_that_changed_the_pod_keeps_an_earlier_promotion_of_it_away() {
    let (mut lab, promotion) = promoting();
    let Effect::Request(first, write) = promotion else { unreachable!() };
    let second = OpId(first.0 + 1);
    lab.election.pod_writes.promotions.note(&[(second, write)]);
    let written = |pod: &Pod| Outcome::PodWritten(PodOutcome::Written(Box::new(pod.clone())));
    let pod = lab.pods["p1"].clone();
    let mut unchanged = lab.election.pod_writes.promotions.clone();
    unchanged.take(second, &written(&pod));
    assert!(unchanged.contains(&pod.uid), "the first one may still be carried out");
    let changed = Pod { version: lab.next_version(), ..pod };
    lab.election.pod_writes.promotions.take(second, &written(&changed));
    assert!(lab.election.pod_writes.promotions.is_empty());
}

#[test]
fn a_write_that_changed_nothing_keeps_no_promotion_away() {
    let (mut lab, promotion) = promoting();
    end_validity(&mut lab);
    let stamp = only_write(lab.step(), "Demote p1");
    let unchanged = Box::new(lab.pods["p1"].clone());
    lab.election.take(stamp.op().unwrap(), Outcome::PodWritten(PodOutcome::Written(unchanged)), lab.now);
    assert!(lab.step().is_empty());
    assert_eq!(*lab.election.situation(), Situation::HandingOver, "it may still lead");
    lab.now = lab.now + Duration::from_secs(1);
    lab.run();
    assert_eq!(*lab.election.situation(), Situation::StoreLost);
    assert_eq!(carry_out(&mut lab, &promotion), Outcome::PodWritten(PodOutcome::Conflict));
}

#[test]
fn a_promotion_for_a_version_that_is_gone_costs_no_write() {
    let (mut lab, promotion) = promoting();
    let op = promotion.op().unwrap();
    lab.election.take(op, promotion.failed(Failure::Unknown("no answer".into())).unwrap(), lab.now);
    lab.edit("p1", |pod| drop(pod.annotations.insert("another".into(), "change".into())));
    end_validity(&mut lab);
    assert_eq!(lab.run(), ["Transition nobody StoreLost"]);
}

#[test]
fn of_two_promotions_that_were_not_answered_the_one_for_the_later_version_counts() {
    let (mut lab, promotion) = promoting();
    // The cache shows nothing of what follows.
    lab.unseen.insert("p1".into());
    lab.edit("p1", |pod| drop(pod.annotations.insert("another".into(), "change".into())));
    let op = promotion.op().unwrap();
    lab.election.take(op, promotion.failed(Failure::Unknown("no answer".into())).unwrap(), lab.now);
    lab.now = lab.now + Duration::from_secs(1);
    let later = until_promotion(&mut lab);
    lab.unseen.clear();
    end_validity(&mut lab);
    let stamp = only_write(lab.step(), "Demote p1");
    carry_out(&mut lab, &stamp);
    assert_eq!(carry_out(&mut lab, &later), Outcome::PodWritten(PodOutcome::Conflict));
}

#[test]
fn a_pod_whose_promotion_is_on_its_way_is_written_to_once() {
    let mut lab = shared(2);
    lab.unready("p0");
    lab.edit("p1", |pod| drop(pod.labels.remove("role")));
    until_promotion(&mut lab);
    end_validity(&mut lab);
    only_write(lab.step(), "Demote p1");
}

#[test]
fn beside_a_leader_of_somebody_elses_record_the_pod_of_a_promotion_is_written_to() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    let promotion = until_promotion(&mut lab);
    // Another operator has made p0 the leader again.
    let leader =
        Record { holder: Lab::led(2).record().holder, term: Term(3), operator_id: "other".into(), ..lab.record() };
    lab.edit("p0", |pod| {
        pod.ready = true;
        pod.labels.insert("role".into(), "leader".into());
        pod.annotations.insert(TERM_ANNOTATION.into(), "3".into());
    });
    lab.store(|version| Stored::Ours(version, leader));
    let stamp = only_write(lab.step(), "Demote p1");
    carry_out(&mut lab, &stamp);
    assert_eq!(carry_out(&mut lab, &promotion), Outcome::PodWritten(PodOutcome::Conflict));
    lab.run();
    assert_eq!((lab.leader(), lab.election.situation()), (Some("p0"), &Situation::Led));
}
