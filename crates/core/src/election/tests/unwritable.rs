//! Pods whose labels can't be written: by a policy that refuses, or by one that writes something else.

use super::*;
use crate::Pairs;
use crate::WritePod;

pub(super) fn refused() -> Outcome {
    Outcome::PodWritten(PodOutcome::Failed(Failure::Refused("a policy".into())))
}

/// An acknowledged write of this pod, after which it is as this edit leaves it.
fn rewritten(lab: &mut Lab, name: &str, edit: impl FnOnce(&mut Pod)) -> Outcome {
    lab.edit(name, edit);
    Outcome::PodWritten(PodOutcome::Written(Box::new(lab.pods[name].clone())))
}

/// Every write to this pod is refused, for as long as this is run.
pub(super) fn run_refusing(lab: &mut Lab, name: &str, lasts: Duration) -> Vec<String> {
    run_with(lab, lasts, |_, write| (write.name == name).then(refused))
}

/// Steps and answers for a while; the world has its own answer to some writes.
pub(super) fn run_with(
    lab: &mut Lab,
    lasts: Duration,
    mut instead: impl FnMut(&mut Lab, &WritePod) -> Option<Outcome>,
) -> Vec<String> {
    let (end, mut all) = (lab.now + lasts, Vec::new());
    loop {
        let commands = lab.step();
        if commands.is_empty() {
            match lab.election.wake() {
                Some(wake) if wake <= end => lab.now = wake.max(lab.now + Duration::from_millis(1)),
                _ => {
                    lab.now = end;
                    return all;
                }
            }
        }
        for command in commands {
            let words = in_words(&command);
            let own =
                if let Effect::Request(_, Command::WritePod(write)) = &command { instead(lab, write) } else { None };
            let answer = match own {
                Some(outcome) => command.op().map(|op| (op, outcome)),
                None => lab.answer(&command, &words),
            };
            if let Some((op, outcome)) = answer {
                lab.election.take(op, outcome, lab.now);
            }
            all.push(words);
            assert!(all.len() < 500, "it goes on and on: {all:#?}");
        }
    }
}

pub(super) fn count(all: &[String], words: &str) -> usize {
    all.iter().filter(|one| *one == words).count()
}

pub(super) const A_MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_follower_that_a_policy_relabels_is_tried_less_and_less_often_and_told_once() {
    let mut lab = Lab::led(3);
    lab.edit("p1", |pod| drop(pod.labels.insert("role".into(), "mine".into())));
    let all = run_with(&mut lab, A_MINUTE, |lab, write| {
        (write.name == "p1").then(|| rewritten(lab, "p1", |pod| drop(pod.labels.insert("role".into(), "mine".into()))))
    });
    assert!((3..20).contains(&count(&all, "Demote p1 1")), "{all:#?}");
    assert_eq!((count(&all, "LabelDrift p1"), count(&all, "LabelsRefused p1")), (1, 1), "{all:#?}");
    let failure = lab.election.failure().expect("it is told").text().to_owned();
    assert!(failure.contains("the label role of pod p1 was written as \"follower\""), "{failure}");
    assert!(failure.contains("keeps \"mine\"") && failure.contains("policy"), "{failure}");
    assert_eq!(*lab.election.situation(), Situation::Led);
    // When the policy is gone, it is put right, and nothing is wrong any more.
    run_with(&mut lab, A_MINUTE, |_, _| None);
    assert_eq!(&lab.pods["p1"].labels["role"], "follower");
    assert_eq!(lab.election.failure(), None);
}

#[test]
fn a_follower_that_is_refused_holds_up_no_other() {
    let mut lab = Lab::led(3);
    for name in ["p1", "p2"] {
        lab.edit(name, |pod| drop(pod.labels.remove("role")));
    }
    run_refusing(&mut lab, "p1", A_MINUTE);
    lab.edit("p2", |pod| drop(pod.labels.remove("role")));
    assert_eq!(lab.run(), ["LabelDrift p2", "Demote p2 1"]);
}

#[test]
fn an_annotation_that_a_policy_strips_from_the_leader_does_not_take_its_leadership() {
    let mut lab = Lab::new(2);
    lab.scope.markings.leader.annotations = Pairs::from([("since".into(), "now".into())]);
    let strips = |lab: &mut Lab, write: &WritePod| {
        let mut pod = lab.pods[&write.name].clone();
        write.patch.apply(&mut pod);
        pod.annotations.remove("since");
        Some(Outcome::PodWritten(PodOutcome::Written(Box::new(lab.put(pod)))))
    };
    let all = run_with(&mut lab, A_MINUTE, strips);
    assert_eq!(lab.leader(), Some("p0"));
    assert!(count(&all, "Promote p0 1") < 20, "{all:#?}");
    assert_eq!((count(&all, "LabelsRefused p0"), count(&all, "Transition p0 Vacant")), (1, 1), "{all:#?}");
    assert_eq!(lab.election.leader().map(|(term, holder, _)| (*term, holder.uid.clone())), Some((Term(1), uid("p0"))));
    assert!(lab.election.failure().is_some_and(|failure| failure.text().contains("annotation since")));
    // It is replaced as fast as any other when it goes.
    lab.pods.remove("p0");
    let all = lab.run();
    assert!(all.contains(&"Transition p1 LeaderGone".to_owned()), "{all:#?}");
}

#[test]
fn another_one_leads_where_the_first_can_not_be_labelled() {
    let strips = |lab: &mut Lab, write: &WritePod| {
        (write.name == "p0").then(|| rewritten(lab, "p0", |pod| drop(pod.labels.remove("role"))))
    };
    let refuses =
        |_: &mut Lab, write: &WritePod| (write.name == "p0" && write.change == PodChange::Promote).then(refused);
    for way in [&strips as &dyn Fn(&mut _, &_) -> _, &refuses] {
        let mut lab = Lab::new(3);
        let all = run_with(&mut lab, Duration::from_secs(5), way);
        assert_eq!(count(&all, "Promote p0 1"), 3, "{all:#?}");
        assert!(!all.iter().any(|words| words.starts_with("Transition p0")), "{all:#?}");
        assert!(all.contains(&"Transition p1 LeaderNotLabelled".to_owned()), "{all:#?}");
        assert_eq!(lab.leader(), Some("p1"));
        // The next one, too, when it has to be.
        lab.pods.remove("p1");
        let all = run_with(&mut lab, Duration::from_secs(5), way);
        assert_eq!(lab.leader(), Some("p2"), "{all:#?}");
        assert_eq!(count(&all, "Promote p0 3"), 0, "{all:#?}");
    }
}

#[test]
fn one_that_was_refused_is_elected_like_any_other_a_minute_later_but_takes_the_place_of_no_leader() {
    for policy_is_gone in [true, false] {
        let mut lab = Lab::new(3);
        let refuses =
            |_: &mut Lab, write: &WritePod| (write.name == "p0" && write.change == PodChange::Promote).then(refused);
        run_with(&mut lab, A_MINUTE, refuses);
        assert_eq!(lab.leader(), Some("p1"));
        let all = run_with(&mut lab, A_MINUTE, |_, _| None);
        assert_eq!(all, NOTHING, "the leader is well");
        lab.pods.remove("p1");
        if policy_is_gone {
            lab.run();
            assert_eq!(lab.leader(), Some("p0"));
        } else {
            let all = run_with(&mut lab, Duration::from_secs(1), refuses);
            assert_eq!((lab.leader(), count(&all, "Promote p0 3")), (Some("p2"), 1), "{all:#?}");
        }
    }
}

#[test]
fn where_none_can_be_labelled_each_is_tried_and_not_often() {
    let mut lab = Lab::new(2);
    let all = run_with(&mut lab, A_MINUTE * 5, |_, write| (write.change == PodChange::Promote).then(refused));
    let promotions = all.iter().filter(|words| words.starts_with("Promote")).count();
    let records = all.iter().filter(|words| words.starts_with("WriteRecord")).count();
    assert!((10..80).contains(&promotions) && (2..10).contains(&records), "{promotions} {records} {all:#?}");
    assert_eq!(count(&all, "LabelsRefused p0") + count(&all, "LabelsRefused p1"), 2, "{all:#?}");
    let all = run_with(&mut lab, A_MINUTE, |_, _| None);
    assert!(lab.leader().is_some(), "{all:#?}");
}

#[test]
fn one_that_was_refused_is_not_preferred_for_its_priority() {
    let mut lab = Lab::new(2);
    lab.rules.preempt = true;
    lab.edit("p0", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "9".into())));
    let all = run_with(&mut lab, A_MINUTE * 5, |_, write| {
        (write.name == "p0" && write.change == PodChange::Promote).then(refused)
    });
    assert_eq!(lab.leader(), Some("p1"));
    assert_eq!(all.iter().filter(|words| words.starts_with("Transition")).count(), 1, "{all:#?}");
    // Another spec may write what the policy allows.
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    run_with(&mut lab, A_MINUTE, |_, _| None);
    assert_eq!(lab.leader(), Some("p0"));
}

#[test]
fn a_leader_returns_to_its_cordoned_node_where_no_other_pod_can_be_labelled() {
    let mut lab = Lab::led(2);
    lab.nodes.insert("m".into(), Node { cordoned: true, ..Node::default() });
    lab.edit("p0", |pod| pod.node = Some("m".into()));
    let all = run_with(&mut lab, A_MINUTE * 5, |_, write| {
        (write.name == "p1" && write.change == PodChange::Promote).then(refused)
    });
    let records = all.iter().filter(|words| words.starts_with("WriteRecord")).collect::<Vec<_>>();
    assert_eq!(records, ["WriteRecord 2 p1", "WriteRecord 3 p0"], "{all:#?}");
    assert_eq!(lab.leader(), Some("p0"));
}

/// Shows H8.
#[test]
fn a_demotion_that_is_refused_counts_only_for_a_pod_that_shows_the_label() {
    let mut lab = Lab::led(3);
    // The leader fails without its label: somebody took it off, and a policy keeps it from being written to.
    lab.edit("p0", |pod| {
        pod.labels.remove("role");
        pod.ready = false;
    });
    let all = run_refusing(&mut lab, "p0", Duration::from_secs(5));
    assert_eq!(lab.leader(), Some("p1"), "{all:#?}");
    // With its label it stays in the way, whatever that costs.
    let mut lab = Lab::led(3);
    lab.unready("p0");
    let all = run_refusing(&mut lab, "p0", A_MINUTE);
    assert_eq!(lab.leader(), Some("p0"), "{all:#?}");
    assert!(!all.contains(&"Promote p1 2".to_owned()), "{all:#?}");
}

#[test]
fn a_demotion_is_not_left_out_while_a_promotion_may_be_on_its_way() {
    let mut lab = Lab::new(2);
    let lost = Outcome::PodWritten(PodOutcome::Failed(Failure::Unknown("lost".into())));
    let mut first = true;
    let all = run_with(&mut lab, A_MINUTE, |_, write| {
        (write.name == "p0").then(|| if std::mem::take(&mut first) { lost.clone() } else { refused() })
    });
    assert_eq!(lab.leader(), None, "{all:#?}");
    assert!(!all.iter().any(|words| words.starts_with("Promote p1")), "{all:#?}");
}

/// Shows H7.
#[test]
fn a_demotion_counts_only_with_a_new_version_and_without_the_label() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    let keeps = |lab: &mut Lab, write: &WritePod| {
        (write.name == "p0")
            .then(|| rewritten(lab, "p0", |pod| drop(pod.labels.insert("role".into(), "leader".into()))))
    };
    let all = run_with(&mut lab, A_MINUTE, keeps);
    assert!(!all.contains(&"Promote p1 2".to_owned()), "{all:#?}");
    assert!((3..20).contains(&count(&all, "Demote p0 2")), "{all:#?}");
    // A policy that takes off the term makes of the stamp a write that changes nothing.
    let mut lab = Lab::led(3).restarted();
    lab.unready("p0");
    let strips = |lab: &mut Lab, write: &WritePod| {
        (write.name == "p2").then(|| Outcome::PodWritten(PodOutcome::Written(Box::new(lab.pods["p2"].clone()))))
    };
    let all = run_with(&mut lab, A_MINUTE, strips);
    assert!(!all.iter().any(|words| words.starts_with("Promote")), "{all:#?}");
}

#[test]
fn a_demotion_that_is_refused_does_not_hold_up_a_new_spec() {
    let mut lab = Lab::led(2).restarted();
    lab.unready("p0");
    run_with(&mut lab, Duration::from_secs(5), |_, write| (write.change == PodChange::Demote).then(refused));
    assert_eq!(*lab.election.situation(), Situation::HandingOver);
    // What the policy refused was a label of the old spec.
    (lab.generation, lab.scope) = (2, scope("other"));
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    let all = run_with(&mut lab, A_MINUTE, |_, write| {
        write.patch.labels.get("role").is_some_and(Option::is_some).then(refused)
    });
    assert_eq!(lab.pods["p1"].labels.get("other"), Some("leader"), "{all:#?}");
}

#[test]
fn an_election_that_goes_leaves_the_marks_that_it_can_not_take_off() {
    // Of the leader, too: nobody else wants its lock.
    for (restarted, stays, goes) in [(false, "p1", "p0"), (true, "p1", "p0"), (false, "p0", "p1")] {
        let keeps = |lab: &mut Lab, _: &WritePod| rewritten(lab, stays, |_| ());
        let refuses = |_: &mut Lab, _: &WritePod| refused();
        let conflicts = |_: &mut Lab, _: &WritePod| Outcome::PodWritten(PodOutcome::Conflict);
        for way in [&keeps as &dyn Fn(&mut _, &_) -> _, &refuses, &conflicts] {
            let mut lab = Lab::led(2);
            if restarted {
                lab = lab.restarted();
            }
            lab.desired = Desired::Withdraw;
            let all = run_with(&mut lab, A_MINUTE, |lab, write| (write.name == stays).then(|| way(lab, write)));
            assert_eq!(*lab.election.situation(), Situation::Withdrawn, "{all:#?}");
            assert_eq!(lab.stored, Stored::Absent);
            assert_eq!(count(&all, &format!("LabelsLeft {stays}")), 1, "{all:#?}");
            assert!(!lab.pods[goes].labels.contains_key("role"));
        }
    }
}

#[test]
fn where_others_want_the_lock_the_marks_of_a_follower_are_left_all_the_same() {
    let mut lab = shared(2);
    lab.policy.validity = LockValidity::Until(lab.now + A_MINUTE * 60);
    lab.run();
    assert_eq!(lab.leader(), Some("p0"));
    lab.desired = Desired::Withdraw;
    let all = run_refusing(&mut lab, "p1", A_MINUTE);
    assert_eq!((count(&all, "LabelsLeft p1"), lab.election.situation()), (1, &Situation::Withdrawn), "{all:#?}");
}

#[test]
fn a_refused_election_promotes_nobody_any_more() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    lab.instead("Demote p0", Outcome::PodWritten(PodOutcome::Failed(Failure::Refused("not now".into()))));
    lab.run();
    assert_eq!(*lab.election.situation(), Situation::HandingOver);
    lab.desired = Desired::Refuse;
    let all = run_with(&mut lab, A_MINUTE, |_, _| None);
    assert_eq!(all, NOTHING);
    assert_eq!(lab.election.leader(), None);
    // It goes on where it was when it is accepted again.
    lab.desired = Desired::Run;
    run_with(&mut lab, A_MINUTE, |_, _| None);
    assert_eq!(lab.leader(), Some("p1"));
}

#[test]
fn a_pod_that_another_election_has_marked_meanwhile_is_not_promoted() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    lab.edit("p0", |pod| drop(pod.labels.remove("role")));
    // Another election marks p1 between the record and the promotion.
    let mut marked = false;
    let all = run_with(&mut lab, Duration::from_secs(1), |lab, write| {
        if write.change == PodChange::Promote && !std::mem::replace(&mut marked, true) {
            lab.edit("p1", |pod| drop(pod.annotations.insert(ELECTION_ANNOTATION.into(), "older".into())));
            // This election hears of it, and is refused from then on.
            lab.desired = Desired::Refuse;
        }
        None
    });
    assert!(marked, "{all:#?}");
    assert_eq!(lab.leader(), None, "{all:#?}");
}

/// Shows H8.
#[test]
fn who_was_not_written_to_after_somebody_elses_record_stays_in_the_way() {
    // An earlier operator's promotion of it may be on its way.
    let mut lab = Lab::new(2);
    let all = run_refusing(&mut lab, "p0", A_MINUTE);
    assert_eq!(lab.leader(), None, "{all:#?}");
    assert!(!all.iter().any(|words| words.starts_with("Promote p1")), "{all:#?}");
    assert_eq!(count(&all, "LabelsRefused p0"), 1, "{all:#?}");
    // In a chain of its own records an operator knows that there is none.
    let mut lab = Lab::led(3);
    lab.pods.remove("p0");
    run_refusing(&mut lab, "p1", A_MINUTE);
    assert_eq!(lab.leader(), Some("p2"));
}

#[test]
fn a_server_that_refuses_for_a_moment_makes_no_election_leave_its_marks() {
    let mut lab = Lab::led(9);
    lab.desired = Desired::Withdraw;
    let until = lab.now + Duration::from_secs(3);
    // Each other pod that is written to ends the election's wait.
    let all = run_with(&mut lab, A_MINUTE, |lab, write| (write.name == "p0" && lab.now < until).then(refused));
    assert_eq!((lab.leader(), count(&all, "LabelsLeft p0")), (None, 0), "{all:#?}");
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
}

#[test]
fn a_lock_that_others_want_is_not_given_up_beside_a_leaders_label() {
    let mut lab = shared(2);
    lab.policy.validity = LockValidity::Until(lab.now + A_MINUTE * 60);
    lab.run();
    let leader = lab.leader().expect("one leads").to_owned();
    lab.desired = Desired::Withdraw;
    let all = run_refusing(&mut lab, &leader, A_MINUTE * 5);
    assert_eq!(lab.leader(), Some(leader.as_str()), "{all:#?}");
    assert!(matches!(lab.stored, Stored::Ours(..)), "{:?} {all:#?}", lab.stored);
    run_with(&mut lab, A_MINUTE, |_, _| None);
    assert_eq!((lab.leader(), lab.election.situation()), (None, &Situation::Withdrawn));
}

/// Shows C5.
#[test]
fn nor_beside_the_leaders_label_of_an_earlier_spec() {
    let mut lab = shared(1);
    lab.policy.validity = LockValidity::Until(lab.now + A_MINUTE * 60);
    lab.run();
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    lab.scope.markings.leader.labels = Pairs::from([("active".into(), "true".into())]);
    lab.desired = Desired::Withdraw;
    let all = run_refusing(&mut lab, "p0", A_MINUTE * 5);
    assert!(matches!(lab.stored, Stored::Ours(..)), "{:?} {all:#?}", lab.stored);
    run_with(&mut lab, A_MINUTE, |_, _| None);
    assert_eq!((lab.leader(), lab.election.situation()), (None, &Situation::Withdrawn));
}

#[test]
fn a_webhook_that_refuses_with_a_conflict_is_taken_for_what_it_is() {
    let conflict = || Outcome::PodWritten(PodOutcome::Conflict);
    // As the leader …
    let mut lab = Lab::new(3);
    let all = run_with(&mut lab, A_MINUTE, |_, write| {
        (write.name == "p0" && write.change == PodChange::Promote).then(conflict)
    });
    assert_eq!(lab.leader(), Some("p1"), "{all:#?}");
    assert_eq!(count(&all, "LabelsRefused p0"), 1, "{all:#?}");
    // … as a follower …
    let mut lab = Lab::led(3);
    lab.edit("p1", |pod| drop(pod.labels.remove("role")));
    let all = run_with(&mut lab, A_MINUTE, |_, write| (write.name == "p1").then(conflict));
    assert!((3..20).contains(&count(&all, "Demote p1 1")), "{all:#?}");
    // … and as the one that has to be demoted.
    let mut lab = Lab::led(3);
    lab.unready("p0");
    let all = run_with(&mut lab, A_MINUTE, |_, write| (write.name == "p0").then(conflict));
    assert!((3..20).contains(&count(&all, "Demote p0 2")), "{all:#?}");
    assert_eq!(lab.leader(), Some("p0"));
}

#[test]
fn in_a_chain_of_its_own_a_demotion_is_not_left_out_either_while_a_promotion_may_be_on_its_way() {
    let mut lab = Lab::led(3);
    lab.pods.remove("p0");
    let lost = Outcome::PodWritten(PodOutcome::Failed(Failure::Unknown("lost".into())));
    let mut first = true;
    // The second attempt is for the same version, and its refusal tells nothing of the first.
    let all = run_with(&mut lab, A_MINUTE, |_, write| {
        (write.name == "p1").then(|| if std::mem::take(&mut first) { lost.clone() } else { refused() })
    });
    assert!(count(&all, "Promote p1 2") > 1 && all.iter().any(|words| words.starts_with("Demote p1")), "{all:#?}");
    assert!(!all.iter().any(|words| words.starts_with("Promote p2")), "{all:#?}");
}

#[test]
fn a_pod_that_is_alone_and_can_not_be_labelled_is_told_of_once() {
    let mut lab = Lab::new(1);
    let all = run_refusing(&mut lab, "p0", A_MINUTE);
    assert_eq!(count(&all, "LabelsRefused p0"), 1, "{all:#?}");
}

#[test]
fn a_leader_whose_label_can_not_be_put_back_does_not_count_as_one() {
    let mut lab = Lab::led(2);
    lab.edit("p0", |pod| drop(pod.labels.remove("role")));
    let all = run_refusing(&mut lab, "p0", Duration::ZERO);
    assert_eq!(count(&all, "Promote p0 1"), 1, "{all:#?}");
    assert_eq!((lab.election.leader(), lab.election.situation()), (None, &Situation::HandingOver));
}

#[test]
fn a_record_of_another_election_is_replaced_at_once_though_the_leader_lacks_an_annotation() {
    let mut lab = Lab::new(1);
    lab.scope.markings.leader.annotations = Pairs::from([("since".into(), "now".into())]);
    run_with(&mut lab, A_MINUTE, |lab, write| {
        (write.change == PodChange::Promote)
            .then(|| rewritten(lab, "p0", |pod| drop(pod.labels.insert("role".into(), "leader".into()))))
    });
    assert_eq!(*lab.election.situation(), Situation::Led);
    let other = Record { election: uid("another"), ..lab.record() };
    lab.store(|version| Stored::Ours(version, other));
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("WriteRecord 2 p0")), "{all:#?}");
}

#[test]
fn a_write_that_succeeds_ends_the_waiting() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    let mut refusals = 0;
    run_with(&mut lab, Duration::from_secs(5), |_, write| {
        refusals += u32::from(write.name == "p0");
        (write.name == "p0" && refusals < 6).then(refused)
    });
    assert_eq!(lab.leader(), Some("p1"));
    lab.election.report.backoff.delay(lab.now);
    let wait = lab.election.report.backoff.waits(lab.now).unwrap().since(lab.now);
    assert!(wait < Duration::from_millis(130), "{wait:?}");
}

#[test]
fn what_went_wrong_in_a_handover_is_over_when_it_is_complete() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    lab.instead("Demote p0", refused());
    lab.run();
    assert!(lab.election.failure().is_some());
    // A paused election completes it, and does no more.
    lab.desired = Desired::Freeze;
    let all = run_with(&mut lab, A_MINUTE, |_, _| None);
    assert_eq!((lab.leader(), lab.election.failure()), (Some("p1"), None), "{all:#?}");
    assert_eq!(*lab.election.situation(), Situation::Led);
}

#[test]
fn an_election_that_is_paused_before_its_first_record_is_written_has_no_leader() {
    let mut lab = Lab::new(1);
    let refused = RecordOutcome::Failed(Failure::Refused("a policy".into()));
    lab.instead("WriteRecord 1 p0", Outcome::RecordWritten(refused));
    let all = run_with(&mut lab, Duration::from_millis(50), |_, _| None);
    assert_eq!(*lab.election.situation(), Situation::HandingOver, "{all:#?}");
    lab.desired = Desired::Freeze;
    run_with(&mut lab, A_MINUTE, |_, _| None);
    assert_eq!((lab.leader(), lab.election.situation()), (None, &Situation::Vacant));
}

#[test]
fn a_paused_election_that_has_lost_its_lock_is_handing_over_as_long_as_the_label_is_there() {
    let mut lab = shared(1);
    lab.desired = Desired::Freeze;
    lab.store(|version| Stored::HeldByOther(version, rival()));
    let all = run_with(&mut lab, Duration::from_secs(1), |_, _| {
        Some(Outcome::PodWritten(PodOutcome::Failed(Failure::Unknown("no answer".into()))))
    });
    assert!(lab.shows_leader("p0"), "{all:#?}");
    assert_eq!(*lab.election.situation(), Situation::HandingOver);
}
