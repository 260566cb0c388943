//! What is put right outside of handovers, and what is left when an election goes.

use super::*;
use crate::Pairs;

fn relabel(lab: &mut Lab, name: &str, role: Option<&str>) {
    lab.edit(name, |pod| match role {
        Some(role) => drop(pod.labels.insert("role".into(), role.into())),
        None => drop(pod.labels.remove("role")),
    });
}

/// Sends the demotion of p1, which somebody labelled; the world is not told.
fn demotion(lab: &mut Lab) -> Effect {
    relabel(lab, "p1", Some("leader"));
    let mut commands = lab.step();
    assert_eq!(commands.iter().map(in_words).collect::<Vec<_>>(), ["LabelDrift p1", "Demote p1 1"]);
    commands.remove(1)
}

fn written(lab: &mut Lab, command: &Effect, outcome: PodOutcome) {
    lab.election.take(command.op().unwrap(), Outcome::PodWritten(outcome), lab.now);
}

#[test]
fn a_label_that_somebody_takes_off_is_put_back_and_told() {
    let mut lab = Lab::led(2);
    relabel(&mut lab, "p1", None);
    assert_eq!(lab.run(), ["LabelDrift p1", "Demote p1 1"]);
    lab.edit("p1", |pod| {
        *pod = Pod { labels: [("app".into(), "web".into())].into(), annotations: Pairs::default(), ..pod.clone() }
    });
    assert_eq!(lab.run(), ["Demote p1 1"], "one that was never labelled is only labelled");
}

#[test]
fn one_that_was_changed_meanwhile_is_read_and_written_again() {
    let mut lab = Lab::led(2);
    let sent = demotion(&mut lab);
    lab.edit("p1", |pod| drop(pod.annotations.insert("another".into(), "change".into())));
    let (op, outcome) = lab.answer(&sent, "").unwrap();
    lab.election.take(op, outcome, lab.now);
    assert_eq!(lab.run(), ["ReadPod p1", "LabelDrift p1", "Demote p1 1"]);
}

#[test]
fn one_that_is_gone_is_not_written_to_again() {
    let mut lab = Lab::led(2);
    let sent = demotion(&mut lab);
    written(&mut lab, &sent, PodOutcome::Gone);
    assert_eq!(lab.run(), NOTHING, "though the cache still shows it");
    for read in [None, Some(Pod { uid: uid("another"), ..lab.pods["p1"].clone() })] {
        let mut lab = Lab::led(2);
        let sent = demotion(&mut lab);
        written(&mut lab, &sent, PodOutcome::Conflict);
        lab.instead("ReadPod p1", Outcome::PodRead(Ok(read)));
        assert_eq!(lab.run(), ["ReadPod p1"]);
    }
}

/// A demotion of p1 is refused; how long it is until it is sent again.
fn refused(lab: &mut Lab, sent: &Effect) -> (Duration, Effect) {
    let began = lab.now;
    written(lab, sent, PodOutcome::Failed(Failure::Refused("a policy".into())));
    loop {
        let mut commands = lab.step();
        if let Some(again) = commands.pop() {
            return (lab.now.since(began), again);
        }
        lab.now = lab.election.wake().unwrap();
    }
}

#[test]
fn after_a_success_a_failure_is_waited_for_as_shortly_as_the_first() {
    let mut lab = Lab::led(2);
    let mut waits = Vec::new();
    for succeeds in [false, true, false] {
        relabel(&mut lab, "p1", None);
        let sent = lab.step().pop().unwrap();
        let (wait, again) = refused(&mut lab, &sent);
        waits.push(wait);
        let again = if succeeds { again } else { refused(&mut lab, &again).1 };
        let (op, outcome) = lab.answer(&again, "").unwrap();
        lab.election.take(op, outcome, lab.now);
        lab.run();
    }
    assert!(waits.iter().all(|wait| *wait < Duration::from_millis(130)), "{waits:?}");
}

#[test]
fn one_that_ends_is_left_alone_unless_it_shows_the_leaders_label() {
    let ends: [fn(&mut Pod); 2] = [|pod| pod.deleting = true, |pod| pod.finished = true];
    for end in ends {
        let mut lab = Lab::led(2);
        relabel(&mut lab, "p1", None);
        lab.edit("p1", end);
        assert_eq!(lab.run(), NOTHING);
        relabel(&mut lab, "p1", Some("leader"));
        assert_eq!(lab.run(), ["LabelDrift p1", "Demote p1 1"]);
    }
}

#[test]
fn of_one_that_leaves_the_group_everything_is_taken_off_and_of_others_nothing() {
    let mut lab = Lab::led(3);
    lab.edit("p1", |pod| drop(pod.labels.insert("app".into(), "other".into())));
    lab.edit("p2", |pod| {
        pod.annotations = Pairs::default();
        pod.labels = [("app".into(), "other".into()), ("role".into(), "follower".into())].into();
    });
    assert_eq!(lab.run(), ["Remove p1"]);
    assert_eq!(lab.pods["p1"].labels.keys().collect::<Vec<_>>(), ["app"]);
    assert!(lab.pods["p1"].annotations.is_empty());
}

#[test]
fn a_leader_that_fails_as_soon_as_it_is_elected_has_its_own_time() {
    let mut lab = Lab::led(3);
    lab.failover_delay = Duration::from_secs(5);
    lab.unready("p0");
    lab.run();
    lab.now = lab.now + Duration::from_secs(3);
    lab.pods.remove("p0");
    lab.instead("Promote p1", Outcome::PodWritten(PodOutcome::Failed(Failure::Refused("busy".into()))));
    lab.run();
    lab.unready("p1");
    lab.now = lab.now + Duration::from_secs(1);
    lab.run();
    let until = lab.now + Duration::from_secs(5);
    assert_eq!(*lab.election.situation(), Situation::Recovering(NotEligible::NotReady, until));
}

#[test]
fn with_keep_a_lock_that_is_free_is_taken_without_a_demotion() {
    let mut lab = shared(2);
    lab.policy.when_lost = WhenLost::Keep;
    let record = lab.record();
    lab.store(|version| Stored::Free(version, Some(record), None));
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("Demote p0")), "{all:#?}");
    assert_eq!((lab.leader(), lab.election.situation()), (Some("p0"), &Situation::Led));
}

#[test]
fn a_withdrawn_election_leaves_the_record_of_another_one_of_its_name() {
    for holder in [true, false] {
        let mut lab = Lab::led(2);
        // Of another election with the same labels.
        let mut neighbour = lab.pods["p0"].clone();
        (neighbour.name, neighbour.uid) = ("x".into(), uid("x"));
        neighbour.annotations.insert(ELECTION_ANNOTATION.into(), "another".into());
        let neighbour = lab.put(neighbour);
        let mut others = Record { election: uid("other"), ..lab.record() };
        others.holder = others.holder.filter(|_| holder);
        lab.store(|version| Stored::Ours(version, others));
        let before = lab.stored.clone();
        lab.desired = Desired::Withdraw;
        let all = lab.run();
        assert_eq!((&lab.stored, lab.pods.remove("x")), (&before, Some(neighbour)), "{all:#?}");
        assert!(
            lab.pods.values().all(|pod| !pod.labels.contains_key("role") && pod.annotations.is_empty()),
            "{all:#?}"
        );
        assert_eq!(*lab.election.situation(), Situation::Withdrawn);
    }
}

#[test]
fn what_is_written_after_a_withdrawal_is_taken_off_again() {
    let mut lab = Lab::led(2);
    lab.desired = Desired::Withdraw;
    lab.run();
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
    assert_eq!(lab.run(), NOTHING);
    // A late writer.
    lab.edit("p1", |pod| {
        pod.labels.insert("role".into(), "leader".into());
        pod.annotations.insert(ELECTION_ANNOTATION.into(), "web".into());
    });
    let all = lab.run();
    assert!(all.contains(&"Remove p1".to_owned()), "{all:#?}");
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
    assert!(!lab.pods["p1"].labels.contains_key("role"));
}

/// An election of this generation that is deleted.
fn deleted(mut lab: Lab, generation: i64) -> Lab {
    lab.desired = Desired::Withdraw;
    lab.generation = generation;
    lab.present = ElectionRead::Present { uid: uid("e"), generation };
    lab
}

#[test]
fn a_record_names_nobody_and_the_last_generation_before_labels_are_taken_off() {
    let withdrawn = |holder: bool, generation: i64| {
        let mut lab = Lab::led(1);
        let record = lab.record();
        let holder = record.holder.clone().filter(|_| holder);
        lab.store(|version| Stored::Ours(version, Record { holder, generation, ..record }));
        deleted(lab, 2).run()
    };
    let told = ["ReadElection", "ReadRecord"];
    let cleaned = ["ListPods", "Remove p0", "DeleteRecord"];
    for (holder, generation) in [(true, 1), (true, 2), (false, 1)] {
        let expected = [&told[..], &["WriteRecord 1 nobody"], &cleaned].concat();
        assert_eq!(withdrawn(holder, generation), expected, "a leader: {holder}, generation {generation}");
    }
    assert_eq!(withdrawn(false, 2), [&told[..], &cleaned].concat(), "it is as it must be already");
}

#[test]
fn without_a_record_the_pods_are_listed_before_nothing_is_believed_to_be_left() {
    let mut lab = deleted(Lab::led(1), 2);
    lab.store(|_| Stored::Absent);
    assert_eq!(lab.run(), ["ReadElection", "ReadRecord", "ListPods", "Remove p0"]);
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
}

#[test]
fn where_the_cluster_is_the_candidate_no_pods_are_listed() {
    let mut lab = Lab::new(0);
    lab.scope = Scope::default();
    lab.cluster = Some(Ok(()));
    lab.run();
    let mut lab = deleted(lab, 2);
    lab.store(|_| Stored::Absent);
    assert_eq!(lab.run(), ["ReadElection", "ReadRecord"]);
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
}

#[test]
fn a_pod_that_has_just_left_the_group_is_rid_of_its_labels_before_the_record_goes() {
    let mut lab = deleted(Lab::led(2), 2);
    lab.edit("p1", |pod| drop(pod.labels.insert("app".into(), "other".into())));
    let all = lab.run();
    assert_eq!(all.last().unwrap(), "DeleteRecord", "{all:#?}");
    assert!(all.contains(&"Remove p1".to_owned()), "{all:#?}");
}
