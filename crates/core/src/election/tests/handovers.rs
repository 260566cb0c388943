//! Handovers in which the world is not what the cache shows.

use super::*;
use crate::Pairs;

fn place(all: &[String], words: &str) -> usize {
    all.iter().position(|found| found.starts_with(words)).unwrap_or_else(|| panic!("no {words}: {all:#?}"))
}

/// One step, which asks for this alone, and its answer.
fn answer_once(lab: &mut Lab, words: &str) {
    let commands = lab.step();
    assert_eq!(commands.iter().map(in_words).collect::<Vec<_>>(), [words]);
    let (op, outcome) = lab.answer(&commands[0], words).unwrap();
    lab.election.take(op, outcome, lab.now);
}

#[test]
fn a_first_handover_is_one_in_the_place_of_nobody_until_its_end() {
    let mut lab = Lab::new(2);
    let begins = |lab: &mut Lab| {
        let mut seen = Vec::new();
        loop {
            let effects = lab.step();
            seen.push(lab.election.is_first_handover());
            let answers: Vec<_> = effects.iter().filter_map(|effect| lab.answer(effect, "")).collect();
            if answers.is_empty() {
                return seen;
            }
            for (op, outcome) in answers {
                lab.election.take(op, outcome, lab.now);
            }
        }
    };
    let first = begins(&mut lab);
    assert!(lab.leader() == Some("p0") && first.contains(&true) && first.ends_with(&[false]), "{first:?}");
    lab.unready("p0");
    let second = begins(&mut lab);
    assert!(lab.leader() == Some("p1") && !second.contains(&true), "{second:?}");
}

#[test]
fn with_promote_first_nobody_is_demoted_before_the_promotion_is_acknowledged() {
    let mut lab = Lab::led(2);
    lab.order = HandoverOrder::PromoteFirst;
    lab.unready("p0");
    for expected in ["WriteRecord 2 p1", "Promote p1 2", "Demote p0 2"] {
        let commands = lab.step();
        assert_eq!(commands.iter().map(in_words).collect::<Vec<_>>(), [expected]);
        assert!(lab.step().is_empty(), "the answer to {expected} is awaited");
        let (op, outcome) = lab.answer(&commands[0], "").unwrap();
        lab.election.take(op, outcome, lab.now);
    }
}

#[test]
fn nobody_is_promoted_before_all_demotions_are_acknowledged() {
    let mut lab = Lab::led(3);
    lab.edit("p2", |pod| drop(pod.labels.insert("role".into(), "leader".into())));
    lab.edit("p1", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "1".into())));
    lab.unready("p0");
    let first = lab.step();
    let (op, outcome) = lab.answer(&first[0], "").unwrap();
    lab.election.take(op, outcome, lab.now);
    let demotions = lab.step();
    assert_eq!(demotions.iter().map(in_words).collect::<Vec<_>>(), ["Demote p0 2", "Demote p2 2"]);
    for demotion in &demotions {
        assert!(lab.step().is_empty());
        let (op, outcome) = lab.answer(demotion, "").unwrap();
        lab.election.take(op, outcome, lab.now);
    }
    assert_eq!(lab.run()[0], "Promote p1 2");
}

#[test]
fn a_leader_that_left_the_group_is_found_by_its_label() {
    let mut lab = Lab::led(2);
    lab.edit("p0", |pod| drop(pod.labels.insert("app".into(), "other".into())));
    // Of a record that was vacated since, and that names it no more.
    let vacated = Record { holder: None, ..lab.record() };
    lab.store(|version| Stored::Ours(version, vacated));
    lab.unseen.insert("p0".into());
    let mut lab = lab.restarted();
    let all = lab.run();
    assert!(place(&all, "Remove p0") < place(&all, "Promote p1"), "{all:#?}");
    assert!(!lab.pods["p0"].labels.contains_key("role"));
}

#[test]
fn the_leader_that_the_replaced_record_names_is_demoted_though_the_cache_does_not_show_it() {
    let mut lab = Lab::led(2);
    lab.unseen.insert("p0".into());
    assert_eq!(
        lab.run(),
        ["WriteRecord 2 p1", "ReadPod p0", "Demote p0 2", "Promote p1 2", "Transition p1 LeaderGone"]
    );
}

#[test]
fn one_that_shows_an_earlier_leaders_label_is_demoted_first() {
    let mut lab = Lab::led(3);
    lab.edit("p2", |pod| drop(pod.labels.insert("role".into(), "leader".into())));
    lab.scope = scope("mode");
    lab.generation = 2;
    lab.unready("p0");
    let all = lab.run();
    assert!(place(&all, "Demote p2 2") < place(&all, "Promote p1 2"), "{all:#?}");
}

#[test]
fn another_pod_of_the_same_name_is_not_promoted_in_its_place() {
    let mut lab = Lab::led(3);
    lab.unready("p0");
    lab.instead("Promote p1", Outcome::PodWritten(PodOutcome::Conflict));
    let namesake = Pod { uid: uid("another"), ..lab.pods["p1"].clone() };
    lab.instead("ReadPod p1", Outcome::PodRead(Ok(Some(namesake))));
    let all = lab.run();
    assert_eq!(all[3..5], ["ReadPod p1", "ReadRecord"], "{all:#?}");
    assert_eq!(all.iter().filter(|words| words.starts_with("Promote p1")).count(), 1, "{all:#?}");
    assert_eq!(all.last().unwrap(), "Transition p2 LeaderGone");
}

#[test]
fn another_pod_of_the_leaders_name_is_left_alone() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    lab.instead("Demote p0", Outcome::PodWritten(PodOutcome::Conflict));
    let namesake = Pod { uid: uid("another"), version: Version(900), ..lab.pods["p0"].clone() };
    lab.instead("ReadPod p0", Outcome::PodRead(Ok(Some(namesake))));
    let all = lab.run();
    assert_eq!(all[1..4], ["Demote p0 2", "ReadPod p0", "Promote p1 2"], "{all:#?}");
}

#[test]
fn a_demotion_that_met_another_version_is_sent_for_the_version_that_was_read() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    let record = lab.step().remove(0);
    let (op, outcome) = lab.answer(&record, "").unwrap();
    lab.election.take(op, outcome, lab.now);
    let demotion = lab.step().remove(0);
    lab.edit("p0", |pod| drop(pod.annotations.insert("another".into(), "change".into())));
    let (op, outcome) = lab.answer(&demotion, "").unwrap();
    lab.election.take(op, outcome, lab.now);
    assert_eq!(lab.run(), ["ReadPod p0", "Demote p0 2", "Promote p1 2", "Transition p1 LeaderNotReady"]);
}

#[test]
fn after_a_conflict_nobody_is_promoted_under_a_record_that_somebody_replaced() {
    let mut lab = Lab::led(3);
    lab.unready("p0");
    let other = Record { operator_id: "other".into(), ..lab.record() };
    let record = lab.step().remove(0);
    let (op, outcome) = lab.answer(&record, "").unwrap();
    lab.election.take(op, outcome, lab.now);
    lab.instead("Promote p1", Outcome::PodWritten(PodOutcome::Failed(Failure::Unknown("no answer".into()))));
    lab.instead("ReadPod p1", Outcome::PodRead(Ok(Some(Pod { labels: Pairs::default(), ..lab.pods["p1"].clone() }))));
    lab.instead("ReadRecord", Outcome::RecordRead(Ok(Stored::Ours(Version(900), other))));
    let all = lab.run();
    assert_eq!(all.last().unwrap(), "Promote p1 2", "{all:#?}");
    lab.now = lab.now + Duration::from_secs(1);
    let all = lab.run();
    assert_eq!(all[..2], ["ReadPod p1", "ReadRecord"], "{all:#?}");
    let again = all[2..].iter().position(|words| words.starts_with("Promote"));
    assert!(again.is_none_or(|at| all[2..2 + at].iter().any(|words| words.starts_with("WriteRecord"))), "{all:#?}");
}

#[test]
fn after_a_conflict_the_first_handover_reads_the_election_once_more() {
    let mut lab = Lab::led(2).restarted();
    lab.unready("p0");
    let mut all = Vec::new();
    while !all.contains(&"Demote p0 2".to_owned()) {
        for command in lab.step() {
            all.push(in_words(&command));
            let (op, outcome) = lab.answer(&command, "").unwrap();
            lab.election.take(op, outcome, lab.now);
        }
    }
    lab.edit("p1", |pod| drop(pod.annotations.insert("another".into(), "change".into())));
    assert_eq!(
        lab.run(),
        ["Promote p1 2", "ReadPod p1", "ReadRecord", "ReadElection", "Promote p1 2", "Transition p1 LeaderNotReady"]
    );
}

#[test]
fn a_withdrawal_leaves_pods_of_another_election_and_of_none_alone() {
    let mut lab = Lab::led(4);
    lab.edit("p1", |pod| drop(pod.annotations.insert(ELECTION_ANNOTATION.into(), "other".into())));
    lab.edit("p2", |pod| {
        pod.annotations = Pairs::default();
        pod.labels.insert("role".into(), "mine".into());
    });
    let before = (lab.pods["p1"].clone(), lab.pods["p2"].clone());
    lab.desired = Desired::Withdraw;
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    let all = lab.run();
    assert_eq!(*lab.election.situation(), Situation::Withdrawn, "{all:#?}");
    assert_eq!((lab.pods["p1"].clone(), lab.pods["p2"].clone()), before);
    for name in ["p0", "p3"] {
        assert!(!lab.pods[name].labels.contains_key("role") && lab.pods[name].annotations.is_empty(), "{name}");
    }
}

#[test]
fn a_lock_under_another_key_that_is_emptied_for_an_earlier_generation_is_emptied_anew() {
    let mut lab = Lab::led(2);
    let emptied = |generation| Record { holder: None, generation, ..Lab::led(1).record() };
    for (generation, rival) in [(1, true), (2, false), (3, false)] {
        let lock = Stored::Ours(Version(1), emptied(generation));
        assert_eq!(crate::handover::is_emptied(&lock, 2), !rival);
        let free = Stored::Free(Version(1), Some(emptied(generation)), None);
        assert_eq!(crate::handover::is_emptied(&free, 2), !rival);
    }
    let held = Stored::Ours(Version(1), Record { generation: 9, ..lab.record() });
    assert!(!crate::handover::is_emptied(&held, 2));
    lab.run();
}

#[test]
fn a_leader_that_turns_out_to_be_gone_is_not_written_to_again() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    let record = lab.step().remove(0);
    let (op, outcome) = lab.answer(&record, "").unwrap();
    lab.election.take(op, outcome, lab.now);
    let Effect::Request(op, Command::WritePod(_)) = lab.step().remove(0) else { panic!("a demotion") };
    lab.election.take(op, Outcome::PodWritten(PodOutcome::Gone), lab.now);
    assert_eq!(lab.run(), ["Promote p1 2", "Transition p1 LeaderNotReady"], "the cache still shows it as the leader");
    assert_eq!(*lab.election.situation(), Situation::Led);
}

/// Answers what is asked for once.
fn answer_all(lab: &mut Lab, commands: &[Effect]) {
    for command in commands {
        if let Some((op, outcome)) = lab.answer(command, "") {
            lab.election.take(op, outcome, lab.now);
        }
    }
}

#[test]
fn a_record_that_the_watch_shows_before_its_answer_comes_is_its_own() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    let write = lab.step().remove(0);
    let (op, outcome) = lab.answer(&write, "").unwrap();
    lab.election.observe(lab.stored.version().unwrap(), lab.stored.clone().into());
    lab.election.take(op, outcome, lab.now);
    assert_eq!(lab.run(), ["Demote p0 2", "Promote p1 2", "Transition p1 LeaderNotReady"]);
}

#[test]
fn nobody_is_promoted_under_a_record_that_the_watch_shows_replaced() {
    for late in [false, true] {
        let mut lab = Lab::led(2);
        lab.unready("p0");
        let write = lab.step().remove(0);
        let (op, outcome) = lab.answer(&write, "").unwrap();
        let other = Record { operator_id: "other".into(), term: Term(5), ..lab.record() };
        if late {
            lab.election.take(op, outcome, lab.now);
            let demotion = lab.step();
            lab.store(|version| Stored::Ours(version, other));
            answer_all(&mut lab, &demotion);
        } else {
            lab.store(|version| Stored::Ours(version, other));
            lab.election.take(op, outcome, lab.now);
        }
        let all = lab.run();
        assert!(!all.contains(&"Promote p1 2".to_owned()), "{all:#?}");
        assert!(all.contains(&"Promote p1 6".to_owned()), "{all:#?}");
    }
}

#[test]
fn what_was_written_under_a_record_that_is_deleted_is_cleaned_up_all_the_same() {
    let mut lab = Lab::led(2);
    lab.scope = scope("mode");
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    lab.store(|_| Stored::Absent);
    let all = lab.run();
    assert!(all.iter().any(|words| words.ends_with(", former")), "{all:#?}");
    assert!(lab.pods.values().all(|pod| !pod.labels.contains_key("role")));
    // What another election wrote, is its own.
    let mut lab = Lab::led(1);
    let others = Record { election: uid("other"), scope: scope("others"), ..lab.record() };
    lab.store(|version| Stored::Ours(version, others));
    let asked = lab.step();
    answer_all(&mut lab, &asked);
    lab.store(|_| Stored::Absent);
    let all = lab.run();
    assert!(all.contains(&"WriteRecord 2 p0".to_owned()), "{all:#?}");
    assert!(all.iter().all(|words| !words.ends_with(", former")), "{all:#?}");
}

#[test]
fn a_shared_lock_that_is_deleted_is_made_anew_for_who_led_and_not_for_who_ranks_higher() {
    let mut lab = shared(3);
    lab.edit("p2", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "9".into())));
    lab.store(|_| Stored::Absent);
    lab.run();
    assert_eq!(lab.leader(), Some("p0"));
}

#[test]
fn the_leader_of_another_group_with_the_same_labels_is_left_alone() {
    let mut lab = Lab::led(3);
    lab.edit("p2", |pod| {
        pod.labels = [("app".into(), "other".into()), ("role".into(), "leader".into())].into();
        pod.annotations = [(ELECTION_ANNOTATION.into(), "other".into()), (TERM_ANNOTATION.into(), "900".into())].into();
    });
    lab.unseen.insert("p2".into());
    let mut lab = lab.restarted();
    let before = lab.pods["p2"].clone();
    lab.unready("p0");
    let all = lab.run();
    assert!(all.contains(&"Promote p1 2".to_owned()), "{all:#?}");
    assert_eq!(lab.pods["p2"], before);
}

#[test]
fn a_withdrawal_of_somebody_elses_record_stamps_who_may_yet_be_promoted() {
    let mut lab = Lab::led(2);
    lab.edit("p1", |pod| {
        *pod = Pod { labels: [("app".into(), "web".into())].into(), annotations: Pairs::default(), ..pod.clone() }
    });
    let mut lab = lab.restarted();
    let before = lab.pods["p1"].version;
    lab.desired = Desired::Withdraw;
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    let all = lab.run();
    assert!(all.contains(&"Remove p1 1".to_owned()), "{all:#?}");
    assert!(lab.pods["p1"].version > before && lab.pods["p1"].annotations.is_empty(), "and the stamp goes again");
}

#[test]
fn the_only_pod_is_not_tried_again_when_it_is_gone() {
    let mut lab = Lab::new(1);
    lab.instead("Promote p0", Outcome::PodWritten(PodOutcome::Gone));
    let all = lab.run();
    assert_eq!(all.iter().filter(|words| words.starts_with("Promote")).count(), 1, "{all:#?}");
    assert_eq!(*lab.election.situation(), Situation::Vacant);
}

#[test]
fn a_listing_that_is_older_than_the_cache_costs_no_second_demotion() {
    let mut lab = Lab::led(2).restarted();
    let before: Vec<Pod> = lab.pods.values().cloned().collect();
    lab.unready("p0");
    lab.instead("ListPods", Outcome::PodsListed(Ok(before)));
    let all = lab.run();
    assert!(lab.instead.is_empty());
    let written = place(&all, "WriteRecord 2 p1");
    assert!(written < place(&all, "Demote p0 2"), "{all:#?}");
    assert!(place(&all, "Demote p0 2") < place(&all, "Promote p1 2"), "{all:#?}");
    assert!(!all[written..].iter().any(|words| words.starts_with("ReadPod")), "{all:#?}");
}

#[test]
fn what_leads_after_a_change_of_the_candidates_is_not_waited_for() {
    let mut lab = Lab::led(1);
    lab.scope = Scope::default();
    lab.generation = 2;
    lab.failover_delay = Duration::from_secs(5);
    lab.cluster = Some(Err(Unavailable));
    let all = lab.run();
    assert_eq!(all[..2], ["WriteRecord 1 nobody, former", "Remove p0 1"], "{all:#?}");
    assert!(all.contains(&"Transition nobody SpecChanged".to_owned()), "{all:#?}");
}

#[test]
fn a_record_that_names_a_pod_where_the_cluster_is_the_candidate_is_replaced() {
    let mut lab = Lab::new(1);
    lab.scope = Scope::default();
    lab.cluster = Some(Ok(()));
    lab.run();
    let holder = Holder { pod: Some("p0".into()), uid: uid("p0"), node: None, ip: None };
    let edited = Record { holder: Some(holder), ..lab.record() };
    lab.store(|version| Stored::Ours(version, edited));
    let all = lab.run();
    assert!(all.contains(&"WriteRecord 2 cluster".to_owned()), "{all:#?}");
    assert_eq!(lab.record().holder.unwrap().uid, uid("e"));
}

#[test]
fn a_promotion_that_is_refused_holds_up_neither_a_new_spec_nor_a_deletion_nor_who_leaves() {
    for (generation, desired) in
        [(2, Desired::Run), (2, Desired::Withdraw), (1, Desired::Withdraw), (1, Desired::Leave)]
    {
        let mut lab = Lab::new(1);
        let refused = PodOutcome::Failed(Failure::Refused("a policy".into()));
        lab.instead("Promote p0", Outcome::PodWritten(refused));
        let before = lab.pods.clone();
        lab.run();
        // Nothing was written after all.
        lab.pods = before;
        assert_eq!(*lab.election.situation(), Situation::HandingOver);
        lab.now = lab.now + Duration::from_secs(60);
        (lab.generation, lab.desired) = (generation, desired);
        lab.present = ElectionRead::Present { uid: uid("e"), generation };
        if desired == Desired::Run {
            lab.scope = scope("other");
        }
        let all = lab.run();
        assert!(!all.contains(&"Promote p0 1".to_owned()), "it would be refused again: {all:#?}");
        match desired {
            Desired::Run => assert_eq!(lab.pods["p0"].labels.get("other"), Some("leader")),
            Desired::Withdraw => assert_eq!(lab.stored, Stored::Absent),
            Desired::Leave | Desired::Freeze | Desired::Refuse => assert_eq!(lab.record().holder, None),
        }
    }
}

#[test]
fn a_promotion_that_is_refused_is_tried_again_while_nothing_else_is_wanted() {
    let mut lab = Lab::new(1);
    let refused = Outcome::PodWritten(PodOutcome::Failed(Failure::Refused("a policy".into())));
    lab.instead("Promote p0", refused);
    lab.run();
    lab.now = lab.now + Duration::from_secs(60);
    assert_eq!(lab.run()[0], "Promote p0 1");
}

#[test]
fn a_demotion_that_met_another_version_is_completed_before_a_new_spec_is_followed() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    answer_once(&mut lab, "WriteRecord 2 p1");
    let demotion = lab.step().remove(0);
    lab.edit("p0", |pod| drop(pod.annotations.insert("another".into(), "change".into())));
    let (op, outcome) = lab.answer(&demotion, "").unwrap();
    lab.election.take(op, outcome, lab.now);
    (lab.generation, lab.scope) = (2, scope("other"));
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    let all = lab.run();
    assert_eq!(all[..3], ["ReadPod p0", "Demote p0 2", "Promote p1 2"], "{all:#?}");
}

#[test]
fn after_a_conflict_a_pod_that_another_election_has_marked_is_not_promoted_by_the_same_record() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    answer_once(&mut lab, "WriteRecord 2 p1");
    answer_once(&mut lab, "Demote p0 2");
    lab.edit("p1", |pod| drop(pod.annotations.insert(ELECTION_ANNOTATION.into(), "older".into())));
    let all = lab.run();
    assert_eq!(all[..2], ["Promote p1 2", "ReadPod p1"], "{all:#?}");
    assert_eq!(all.iter().filter(|words| *words == "Promote p1 2").count(), 1, "{all:#?}");
}

#[test]
fn a_leader_of_the_term_that_was_reached_keeps_its_record() {
    let mut lab = Lab::led(2);
    lab.election.records.terms = Terms::that_had_reached(lab.record().term);
    lab.edit("p0", |pod| drop(pod.labels.remove("role")));
    assert_eq!(lab.run(), ["LabelDrift p0", "ReadRecord", "Promote p0 1"]);
}

#[test]
fn a_cluster_that_leads_writes_a_new_spec_into_its_record() {
    let mut lab = Lab::new(0);
    lab.cluster = Some(Ok(()));
    lab.run();
    (lab.generation, lab.scope) = (2, scope("other"));
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    lab.run();
    assert_eq!(lab.record().scope, lab.scope);
}

#[test]
fn a_deletion_cost_is_judged_by_the_version_of_the_pod_that_is_written_to() {
    const COST: &str = crate::DELETION_COST_ANNOTATION;
    let cost = |lab: &Lab, pod: &str| lab.pods[pod].annotations.get(COST).map(str::to_owned);
    let give = |lab: &mut Lab, pod: &str, cost: &str| {
        lab.edit(pod, |pod| drop(pod.annotations.insert(COST.into(), cost.into())));
    };
    let mut lab = Lab::led(2);
    assert_eq!((cost(&lab, "p0"), cost(&lab, "p1")), (Some("1000".into()), None));
    // Somebody gives the next leader a cost of its own, after the promotion was decided.
    lab.unready("p0");
    let stale = lab.step();
    assert_eq!(in_words(&stale[0]), "WriteRecord 2 p1");
    give(&mut lab, "p1", "7");
    let (op, outcome) = lab.answer(&stale[0], "").unwrap();
    lab.election.take(op, outcome, lab.now);
    assert!(lab.run().contains(&"Transition p1 LeaderNotReady".to_owned()));
    assert_eq!((cost(&lab, "p0"), cost(&lab, "p1")), (None, Some("7".into())));
    assert_eq!(lab.run(), NOTHING);
    // Somebody takes it off the leader, or changes it: nothing is written for that.
    lab.edit("p0", |pod| pod.ready = true);
    lab.edit("p1", |pod| drop(pod.annotations.remove(COST)));
    assert_eq!(lab.run(), NOTHING);
    lab.unready("p1");
    lab.run();
    give(&mut lab, "p0", "8");
    assert_eq!(lab.run(), NOTHING);
    assert_eq!((cost(&lab, "p0"), cost(&lab, "p1")), (Some("8".into()), None));
    // The election goes, and the cost that is not its own stays.
    lab.desired = Desired::Withdraw;
    lab.run();
    assert_eq!(cost(&lab, "p0"), Some("8".into()));
    let carries = |pod: &Pod| pod.annotations.keys().any(|key| key.starts_with("lictor.dev/"));
    assert!(!lab.pods.values().any(carries), "{:?}", lab.pods);
}
