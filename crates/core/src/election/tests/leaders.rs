//! Who leads, and when somebody else does: first elections, failovers, restarts, probes.

use super::*;
use crate::Reason;

#[test]
fn a_first_election_stamps_every_candidate_and_reads_the_election_again() {
    assert_eq!(
        Lab::new(3).run(),
        [
            "WriteRecord 1 p0",
            "ListPods",
            "ListLocks",
            "ReadElection",
            "Demote p1 1",
            "Demote p2 1",
            "Promote p0 1",
            "Transition p0 Vacant"
        ]
    );
}

#[test]
fn a_failover_is_three_requests_and_no_more() {
    let mut lab = Lab::led(3);
    lab.unready("p0");
    assert_eq!(lab.run(), ["WriteRecord 2 p1", "Demote p0 2", "Promote p1 2", "Transition p1 LeaderNotReady"]);
}

#[test]
fn a_restart_beside_a_healthy_leader_asks_for_nothing() {
    let mut lab = Lab::led(3).restarted();
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(*lab.election.situation(), Situation::Led);
}

#[test]
fn the_first_failover_after_a_restart_looks_at_all_afresh() {
    let mut lab = Lab::led(3).restarted();
    lab.unready("p0");
    assert_eq!(
        lab.run(),
        [
            "ReadPod p0",
            "ReadPod p1",
            "WriteRecord 2 p1",
            "ListPods",
            "ListLocks",
            "ReadElection",
            "Demote p0 2",
            "Demote p2 2",
            "Promote p1 2",
            "Transition p1 LeaderNotReady"
        ]
    );
}

/// The cache may be older than somebody else's record.
#[test]
fn after_a_restart_a_decision_stands_only_if_fresh_reads_lead_to_it_too() {
    let read_and = |change: fn(&mut Lab)| {
        let mut lab = Lab::led(3).restarted();
        lab.unready("p0");
        let reads = lab.step();
        assert_eq!(reads.iter().map(in_words).collect::<Vec<_>>(), ["ReadPod p0", "ReadPod p1"]);
        change(&mut lab);
        for read in reads {
            assert_eq!(lab.step().len(), 0, "both answers are awaited");
            let (op, outcome) = lab.answer(&read, &in_words(&read)).unwrap();
            lab.election.take(op, outcome, lab.now);
        }
        lab.run()
    };
    assert_eq!(read_and(|_| ())[0], "WriteRecord 2 p1");
    let recovered = read_and(|lab| lab.edit("p0", |pod| pod.ready = true));
    assert_eq!(recovered, NOTHING, "the leader is fit");
    let third = read_and(|lab| lab.unready("p1"));
    assert_eq!(third[..2], ["ListPods", "WriteRecord 2 p2"], "nobody has looked at the third one");
    let namesake = read_and(|lab| lab.edit("p1", |pod| pod.uid = uid("another")));
    assert_eq!(namesake[..2], ["ListPods", "WriteRecord 2 p1"], "it is another pod than the one that was chosen");
    let nobody = read_and(|lab| ["p1", "p2"].into_iter().for_each(|pod| lab.unready(pod)));
    assert_eq!(nobody[..2], ["ListPods", "WriteRecord 1 nobody"], "that all are unfit has to be seen of all");

    let mut lab = Lab::led(3).restarted();
    lab.unready("p0");
    lab.instead("ReadPod p0", Outcome::PodRead(Err(Failure::Unknown("no answer".into()))));
    assert_eq!(lab.run(), ["ReadPod p0", "ReadPod p1"], "an unknown outcome tells nothing");
    lab.now = lab.now + Duration::from_secs(10);
    assert_eq!(lab.run()[..3], ["ReadPod p0", "ReadPod p1", "WriteRecord 2 p1"]);
}

#[test]
fn a_higher_priority_takes_over_only_where_preemption_is_wanted() {
    let mut lab = Lab::led(2);
    lab.edit("p1", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "5".into())));
    assert_eq!(lab.run(), NOTHING);
    lab.rules.preempt = true;
    assert_eq!(lab.run(), ["WriteRecord 2 p1", "Demote p0 2", "Promote p1 2", "Transition p1 Preempted"]);
}

#[test]
fn a_leader_has_the_failover_delay_to_recover() {
    let mut lab = Lab::led(2);
    lab.failover_delay = Duration::from_secs(5);
    lab.unready("p0");
    let until = lab.now + Duration::from_secs(5);
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(*lab.election.situation(), Situation::Recovering(NotEligible::NotReady, until));
    assert_eq!(lab.election.wake(), Some(until));
    lab.now = until;
    assert_eq!(lab.run()[0], "WriteRecord 2 p1");
}

#[test]
fn without_an_eligible_pod_the_leadership_is_vacated() {
    let mut lab = Lab::led(2);
    lab.unready("p1");
    lab.unready("p0");
    assert_eq!(lab.run(), ["WriteRecord 1 nobody", "Demote p0 1", "Transition nobody LeaderNotReady"]);
    assert_eq!(*lab.election.situation(), Situation::Vacant);
    lab.edit("p1", |pod| pod.ready = true);
    assert_eq!(lab.run(), ["WriteRecord 2 p1", "Promote p1 2", "Transition p1 Vacant"]);
}

#[test]
fn a_paused_election_does_nothing() {
    let mut lab = Lab::led(2);
    lab.desired = Desired::Freeze;
    lab.unready("p0");
    lab.edit("p1", |pod| drop(pod.labels.insert("role".into(), "leader".into())));
    assert_eq!(lab.run(), NOTHING);
}

#[test]
fn a_leader_label_that_was_taken_off_is_put_back_under_the_same_record() {
    let mut lab = Lab::led(2);
    lab.edit("p0", |pod| drop(pod.labels.remove("role")));
    assert_eq!(lab.run(), ["LabelDrift p0", "ReadRecord", "Promote p0 1"]);
}

#[test]
fn a_follower_that_somebody_labelled_leader_is_put_right() {
    let mut lab = Lab::led(2);
    lab.edit("p1", |pod| drop(pod.labels.insert("role".into(), "leader".into())));
    assert_eq!(lab.run(), ["LabelDrift p1", "Demote p1 1"]);
}

#[test]
fn promote_first_turns_the_order_round() {
    let mut lab = Lab::led(2);
    lab.order = HandoverOrder::PromoteFirst;
    lab.unready("p0");
    assert_eq!(lab.run(), ["WriteRecord 2 p1", "Promote p1 2", "Demote p0 2", "Transition p1 LeaderNotReady"]);
}

#[test]
fn a_failed_probe_moves_the_leadership_if_there_is_anywhere_to_go() {
    let mut lab = Lab::led(2);
    lab.probe_failed = Some((uid("p0"), ProbeFailure::NoAnswer));
    assert_eq!(lab.run(), ["WriteRecord 2 p1", "Demote p0 2", "Promote p1 2", "Transition p1 ProbeFailed"]);

    let mut lab = Lab::led(1);
    lab.probe_failed = Some((uid("p0"), ProbeFailure::NoAnswer));
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(*lab.election.situation(), Situation::LedDespiteProbe(ProbeFailure::NoAnswer));
}

#[test]
fn a_leader_whose_process_is_gone_is_replaced_at_once_while_it_looks_ready() {
    let gone = ProbeFailure::ProcessGone(8080);
    let mut lab = Lab::led(2);
    // It is for a leader that may come back by itself.
    lab.failover_delay = Duration::from_secs(60);
    lab.probe_failed = Some((uid("p0"), gone));
    assert_eq!(lab.run(), ["WriteRecord 2 p1", "Demote p0 2", "Promote p1 2", "Transition p1 ProcessGone"]);

    let mut lab = Lab::led(1);
    lab.probe_failed = Some((uid("p0"), gone));
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(*lab.election.situation(), Situation::LedDespiteProbe(gone));
    // Its kubelet sees it a moment later, and there is no leader until it is ready again.
    lab.unready("p0");
    lab.failover_delay = Duration::ZERO;
    assert!(lab.run().contains(&"Transition nobody LeaderNotReady".to_owned()));
    assert_eq!(lab.leader(), None);
}

#[test]
fn whose_process_was_gone_may_lead_again_when_it_was_not_ready() {
    let mut lab = Lab::led(2);
    lab.rules.preempt = true;
    lab.edit("p0", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "1".into())));
    lab.probe_failed = Some((uid("p0"), ProbeFailure::ProcessGone(8080)));
    lab.run();
    assert_eq!(lab.leader(), Some("p1"));
    // Nobody asks a pod that does not lead. It looks ready until its kubelet has seen what happened.
    lab.probe_failed = None;
    assert_eq!((lab.run(), lab.leader()), (Vec::new(), Some("p1")), "it is not elected while that is not known");
    lab.unready("p0");
    lab.run();
    lab.edit("p0", |pod| pod.ready = true);
    lab.run();
    assert_eq!(lab.leader(), Some("p0"), "its higher priority counts again");
}

#[test]
fn a_pod_that_is_gone_is_not_tried_again_while_the_cache_still_shows_it() {
    let mut lab = Lab::led(3);
    lab.unready("p0");
    lab.instead("Promote p1", Outcome::PodWritten(PodOutcome::Gone));
    let all = lab.run();
    assert_eq!(all[..4], ["WriteRecord 2 p1", "Demote p0 2", "Promote p1 2", "ReadRecord"]);
    assert_eq!(all.iter().filter(|words| words.starts_with("Promote")).count(), 2, "{all:#?}");
    assert_eq!(all.last().unwrap(), "Transition p2 LeaderGone");
}

/// Lets whoever leads fail its probe, as long as anybody is elected for that; returns how often that was.
fn fail_all(lab: &mut Lab) -> usize {
    for changes in 0..10 {
        let leader = lab.leader().unwrap().to_owned();
        (lab.probe_failed, lab.probe_answered) = (Some((uid(&leader), ProbeFailure::NoAnswer)), None);
        lab.run();
        if lab.leader() == Some(&*leader) {
            return changes;
        }
        lab.probe_failed = None;
        lab.run();
    }
    panic!("it goes on for ever")
}

#[test]
fn a_probe_that_nobody_answers_moves_the_leadership_once_through_the_group_at_most() {
    let mut lab = Lab::led(3);
    assert_eq!(fail_all(&mut lab), 2, "each of the others is tried once");
    assert_eq!(*lab.election.situation(), Situation::LedDespiteProbe(ProbeFailure::NoAnswer));
    assert_eq!(lab.election.stays(), Stays::AllFail);
    lab.now = lab.now + Duration::from_secs(3_600);
    assert_eq!((lab.run(), lab.leader()), (Vec::new(), Some("p2")), "it stays, however long that takes");
    // A leader that is gone is replaced at once all the same.
    lab.pods.remove("p2");
    lab.probe_failed = None;
    lab.run();
    assert_eq!(lab.leader(), Some("p0"));
    // A pod that was not asked yet may be another one than all that have failed.
    let new = Pod { name: "p9".into(), uid: uid("p9"), ..lab.pods["p1"].clone() };
    lab.put(Pod { labels: Pairs::from([("app".into(), "web".into())]), ..new });
    lab.probe_failed = Some((uid("p0"), ProbeFailure::NoAnswer));
    lab.run();
    assert_eq!(lab.leader(), Some("p9"));
}

#[test]
fn when_the_probe_has_succeeded_with_anybody_who_failed_earlier_may_lead_again() {
    let mut lab = Lab::led(2);
    assert_eq!(fail_all(&mut lab), 1);
    // It was no wrong probe: the leader answers, and fails later.
    (lab.probe_failed, lab.probe_answered) = (None, Some(uid("p1")));
    lab.run();
    lab.probe_failed = Some((uid("p1"), ProbeFailure::NoAnswer));
    lab.run();
    assert_eq!(lab.leader(), Some("p0"));
    // Another probe may be a right one.
    let mut lab = Lab::led(2);
    assert_eq!(fail_all(&mut lab), 1);
    (lab.generation, lab.present) = (2, ElectionRead::Present { uid: uid("e"), generation: 2 });
    lab.run();
    assert_eq!(lab.leader(), Some("p0"));
}

#[test]
fn changes_that_can_wait_wait_for_longer_each_time_and_a_leader_that_is_gone_does_not() {
    let mut lab = Lab::led(2);
    lab.rules.preempt = true;
    let mut priority = 0;
    let mut waited = Vec::new();
    for _ in 0..6 {
        let other = if lab.leader() == Some("p0") { "p1" } else { "p0" };
        priority += 1;
        let annotation = (PRIORITY_ANNOTATION.to_owned(), priority.to_string());
        lab.edit(other, |pod| drop(pod.annotations.insert(annotation.0, annotation.1)));
        let began = lab.now;
        lab.run();
        while lab.leader() != Some(other) {
            lab.now = lab.election.wake().unwrap();
            lab.run();
        }
        waited.push(lab.now.since(began).as_secs());
    }
    assert_eq!(waited, [0, 0, 0, 10, 20, 40], "the pause before the fourth change is that after the third");
    assert_eq!(lab.election.flapping().many(lab.now), Some((6, &Reason::Preempted)));
    let leader = lab.leader().unwrap().to_owned();
    lab.pods.remove(&leader);
    lab.run();
    assert!(lab.leader().is_some_and(|next| next != leader), "at once");
}
