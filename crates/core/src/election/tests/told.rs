//! What an election tells of itself, and the finer points of who leads since when and how long one is waited for.

use super::*;
use crate::Pairs;
use crate::Preference;

fn transitions(commands: &[Effect]) -> Vec<(Option<String>, Option<String>)> {
    let name = |holder: &Option<Holder>| holder.as_ref().and_then(|holder| holder.pod.clone());
    let transition = |command: &Effect| match command {
        Effect::Told(Announcement::Transition(told)) => Some((name(&told.leader), name(&told.previous))),
        _ => None,
    };
    commands.iter().filter_map(transition).collect()
}

/// Steps and answers until nothing is asked for; all commands.
fn all_of(lab: &mut Lab) -> Vec<Effect> {
    let mut all = Vec::new();
    loop {
        let commands = lab.step();
        if commands.is_empty() {
            return all;
        }
        for command in commands {
            if let Some((op, outcome)) = lab.answer(&command, &in_words(&command)) {
                lab.election.take(op, outcome, lab.now);
            }
            all.push(command);
        }
    }
}

#[test]
fn it_is_busy_from_the_record_to_the_label() {
    let mut lab = Lab::new(2);
    assert_eq!((lab.election.is_busy(), lab.election.version()), (false, None));
    let first = lab.step();
    assert!(lab.election.is_busy() && lab.election.is_unfinished());
    for command in first {
        let (op, outcome) = lab.answer(&command, "").unwrap();
        lab.election.take(op, outcome, lab.now);
    }
    assert!(lab.election.is_busy() && lab.election.is_unfinished(), "its pods are yet to be written");
    lab.run();
    assert!(!lab.election.is_busy() && !lab.election.is_unfinished());
    assert_eq!(lab.election.version(), lab.stored.version());
}

#[test]
fn what_goes_wrong_is_told_until_it_works() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    let refused = Failure::Refused("not allowed".into());
    lab.instead("WriteRecord", Outcome::RecordWritten(RecordOutcome::Failed(refused.clone())));
    lab.stored = Stored::Absent;
    lab.run();
    assert_eq!(lab.election.failure(), Some(&refused));
    let until = lab.election.wake().unwrap();
    assert!(until > lab.now);
    lab.now = until;
    lab.run();
    assert_eq!(lab.election.failure(), None);
    assert_eq!(*lab.election.situation(), Situation::Led);
}

#[test]
fn whether_the_lock_is_confirmed_is_told() {
    let mut lab = shared(1);
    assert!(!lab.election.is_unconfirmed());
    lab.now = lab.now + Duration::from_secs(12);
    lab.step();
    assert!(lab.election.is_unconfirmed());
}

#[test]
fn a_transition_names_who_led_before_if_it_was_another() {
    let leads = |name: &str| Some(name.to_owned());
    let mut lab = Lab::new(2);
    assert_eq!(transitions(&all_of(&mut lab)), [(leads("p0"), None)]);
    lab.unready("p0");
    assert_eq!(transitions(&all_of(&mut lab)), [(leads("p1"), leads("p0"))]);
    lab.store(|version| Stored::Damaged(version, Term(1)));
    assert_eq!(transitions(&all_of(&mut lab)), [(leads("p1"), None)], "the same one goes on");
    lab.unready("p1");
    assert_eq!(transitions(&all_of(&mut lab)), [(None, leads("p1"))]);
}

#[test]
fn since_when_it_leads_does_not_change_while_it_does() {
    let mut lab = Lab::led(2);
    let earlier = Record { since: Timestamp(3), ..lab.record() };
    lab.store(|version| Stored::Ours(version, earlier));
    lab.run();
    let since = |lab: &Lab| (lab.record().since, lab.election.leader().unwrap().2);
    assert_eq!(since(&lab), (Timestamp(3), Timestamp(3)));
    lab.scope = scope("mode");
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    lab.run();
    assert_eq!(since(&lab), (Timestamp(3), Timestamp(3)), "its labels have changed");
    lab.store(|_| Stored::Absent);
    lab.run();
    assert_eq!(since(&lab), (Timestamp(3), Timestamp(3)), "its record was deleted");
    lab.unready("p0");
    lab.run();
    assert_eq!(since(&lab), (Timestamp(7), Timestamp(7)), "another one leads");
}

#[test]
fn each_leader_has_its_own_time_to_recover() {
    let mut lab = Lab::led(2);
    lab.failover_delay = Duration::from_secs(5);
    lab.unready("p0");
    lab.run();
    lab.now = lab.now + Duration::from_secs(3);
    lab.pods.remove("p0");
    lab.run();
    assert_eq!(lab.leader(), Some("p1"));
    lab.unready("p1");
    lab.run();
    let until = lab.now + Duration::from_secs(5);
    assert_eq!(*lab.election.situation(), Situation::Recovering(NotEligible::NotReady, until));
}

#[test]
fn one_that_will_not_recover_is_not_waited_for() {
    let ends: [fn(&mut Pod); 3] = [|pod| pod.deleting = true, |pod| pod.finished = true, |pod| pod.disrupted = true];
    for end in ends {
        let mut lab = Lab::led(2);
        lab.failover_delay = Duration::from_secs(5);
        lab.edit("p0", end);
        lab.run();
        assert_eq!(lab.leader(), Some("p1"));
    }
}

#[test]
fn a_leader_on_a_lost_node_is_replaced_also_where_a_cordoned_one_is_not_left() {
    let mut lab = Lab::led(2);
    lab.rules.leave_cordoned = false;
    lab.nodes.insert("m".into(), Node { lost: true, cordoned: true, ..Node::default() });
    lab.edit("p1", |pod| pod.node = Some("m".into()));
    assert_eq!(lab.run(), NOTHING);
    lab.edit("p0", |pod| pod.node = Some("m".into()));
    lab.edit("p1", |pod| pod.node = Some("n".into()));
    lab.nodes.get_mut("m").unwrap().lost = false;
    assert_eq!(lab.run(), NOTHING);
    lab.nodes.get_mut("m").unwrap().lost = true;
    assert!(lab.run().contains(&"Transition p1 NodeLost".to_owned()));
}

#[test]
fn preemption_is_for_a_higher_priority_and_not_for_a_better_place() {
    let mut lab = Lab::led(2);
    lab.rules = Rules {
        preempt: true,
        preferences: vec![Preference::Weight { weight: 9, node_labels: Pairs::default() }],
        ..lab.rules
    };
    lab.edit("p0", |pod| pod.node = None);
    assert_eq!(lab.run(), NOTHING);
    lab.edit("p1", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "1".into())));
    assert!(lab.run().contains(&"Transition p1 Preempted".to_owned()));
}

#[test]
fn one_that_failed_its_probe_is_suspect_until_it_was_not_ready() {
    let elected = |recovers: bool| {
        let mut lab = Lab::led(3);
        lab.probe_failed = Some((uid("p0"), ProbeFailure::NoAnswer));
        lab.run();
        assert_eq!(lab.leader(), Some("p1"));
        lab.probe_failed = None;
        if recovers {
            lab.unready("p0");
            lab.run();
            lab.edit("p0", |pod| pod.ready = true);
            lab.run();
        }
        lab.unready("p1");
        lab.run();
        lab.leader().map(str::to_owned)
    };
    assert_eq!(elected(false).as_deref(), Some("p2"));
    assert_eq!(elected(true).as_deref(), Some("p0"));
}

#[test]
fn of_a_lost_record_only_a_fit_pod_that_it_labelled_itself_goes_on() {
    let leader_of = |edit: fn(&mut Pod)| {
        let mut lab = Lab::led(2);
        lab.edit("p0", edit);
        // It is the last by its rank, so that it leads only if it goes on.
        lab.edit("p0", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "-1".into())));
        lab.stored = Stored::Absent;
        lab = lab.restarted();
        lab.run();
        lab.leader().map(str::to_owned)
    };
    assert_eq!(leader_of(|_| {}).as_deref(), Some("p0"));
    assert_eq!(leader_of(|pod| pod.ready = false).as_deref(), Some("p1"));
    assert_eq!(leader_of(|pod| drop(pod.annotations.remove(ELECTION_ANNOTATION))).as_deref(), Some("p1"));
}

#[test]
fn a_record_that_is_tidied_says_who_did_it_and_for_which_generation() {
    let mut lab = Lab::led(2);
    let former = Record { former: vec![scope("old")], term_by_version: true, ..lab.record() };
    lab.store(|version| Stored::Ours(version, former));
    lab = lab.restarted();
    lab.generation = 2;
    assert_eq!(lab.run(), ["WriteRecord 1 p0"]);
    let Record { operator_id, generation, term_by_version, former, .. } = lab.record();
    assert_eq!((operator_id.as_str(), generation, term_by_version, former), ("other", 2, false, vec![]));
}

#[test]
fn a_leader_that_still_carries_an_earlier_marking_is_put_right() {
    let mut lab = Lab::led(2);
    let former = Record { former: vec![scope("old")], ..lab.record() };
    lab.edit("p0", |pod| drop(pod.labels.insert("old".into(), "leader".into())));
    lab.store(|version| Stored::Ours(version, former));
    lab.run();
    assert_eq!(lab.leader(), Some("p0"));
    assert!(!lab.pods["p0"].labels.contains_key("old"), "{:?}", lab.pods["p0"].labels);
}

#[test]
fn a_record_that_is_not_believed_is_not_believed_when_it_is_shown_again() {
    let mut lab = Lab::led(2);
    let edited = Record { generation: 9, ..lab.record() };
    lab.store(|version| Stored::Ours(version, edited));
    let shown = lab.stored.clone();
    for command in lab.step() {
        let (op, outcome) = lab.answer(&command, "").unwrap();
        lab.election.take(op, outcome, lab.now);
    }
    let words: Vec<String> = lab.step().iter().map(in_words).collect();
    assert_eq!(words, ["LockChanged edited by hand", "WriteRecord 2 p0"]);
    lab.election.observe(shown.version().unwrap(), shown.into());
    assert_eq!(lab.election.record(), None);
}

#[test]
fn who_led_before_another_cluster_did_is_elected_like_any_other() {
    let mut lab = shared(2);
    lab.store(|version| Stored::HeldByOther(version, rival()));
    lab.run();
    lab.edit("p1", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "1".into())));
    lab.store(|version| Stored::Free(version, None, None));
    assert_eq!(lab.run().last().unwrap(), "Transition p1 Vacant");
}
