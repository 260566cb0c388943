//! Specs that change, elections that are withdrawn, and views that are older than the record.

use super::*;

#[test]
fn a_change_of_the_labels_cleans_up_after_itself() {
    let mut lab = Lab::led(2);
    lab.scope = scope("mode");
    lab.generation = 2;
    assert_eq!(
        lab.run(),
        ["WriteRecord 2 p0, former", "Promote p0 2", "Transition p0 SpecChanged", "Demote p1 2", "WriteRecord 2 p0"]
    );
    assert!(lab.pods.values().all(|pod| !pod.labels.contains_key("role")));
}

#[test]
fn a_change_of_the_labels_while_nobody_leads_is_in_the_record_first() {
    let mut lab = Lab::led(1);
    lab.unready("p0");
    lab.run();
    lab.scope = scope("mode");
    lab.generation = 2;
    assert_eq!(lab.run(), ["WriteRecord 1 nobody, former", "Demote p0 1", "WriteRecord 1 nobody"]);
}

#[test]
fn a_withdrawal_takes_off_all_labels_and_then_the_record() {
    let mut lab = Lab::led(2);
    lab.desired = Desired::Withdraw;
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    assert_eq!(
        lab.run(),
        ["ReadElection", "ReadRecord", "WriteRecord 1 nobody", "ListPods", "Remove p0", "Remove p1", "DeleteRecord"]
    );
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
    assert!(lab.pods.values().all(|pod| pod.annotations.is_empty() && pod.labels.len() == 1));
}

#[test]
fn a_withdrawal_of_an_election_that_is_gone_touches_nothing() {
    let mut lab = Lab::led(2);
    lab.desired = Desired::Withdraw;
    lab.present = ElectionRead::Present { uid: uid("its successor"), generation: 1 };
    assert_eq!(lab.run(), ["ReadElection"]);
    assert_eq!(*lab.election.situation(), Situation::Stale);
}

/// Shows H10.
#[test]
fn a_view_that_is_older_than_the_record_does_nothing() {
    let mut lab = Lab::led(2);
    let newer = Record { generation: 2, ..lab.record() };
    lab.store(|version| Stored::Ours(version, newer));
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    lab.unready("p0");
    assert_eq!(lab.run(), ["ReadElection"]);
    assert_eq!(*lab.election.situation(), Situation::Stale);
    lab.generation = 2;
    assert!(lab.run().contains(&"Promote p1 2".to_owned()));
}

#[test]
fn a_record_of_a_generation_that_never_was_is_not_believed() {
    let mut lab = Lab::led(2);
    let edited = Record { generation: 9, ..lab.record() };
    lab.store(|version| Stored::Ours(version, edited));
    assert_eq!(
        lab.run(),
        [
            "ReadElection",
            "LockChanged edited by hand",
            "WriteRecord 2 p0",
            "ListPods",
            "ListLocks",
            "ReadElection",
            "Demote p1 2",
            "Promote p0 2",
            "Transition p0 LockRestored"
        ]
    );
}

#[test]
fn a_lock_that_is_free_is_not_kept_by_a_generation_that_never_was() {
    let mut lab = Lab::led(2);
    lab.policy = LockPolicy { shared: true, ..LockPolicy::ALONE };
    let edited = Record { generation: 9, ..lab.record() };
    lab.store(|version| Stored::Free(version, Some(edited), None));
    let asked = lab.run();
    assert!(asked.contains(&"ReadElection".to_owned()), "{asked:?}");
    assert_eq!(*lab.election.situation(), Situation::Led);
}

#[test]
fn a_view_that_turns_out_to_be_old_writes_to_no_pod_until_it_is_newer() {
    let mut lab = Lab::new(2);
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    assert_eq!(lab.run(), ["WriteRecord 1 p0", "ListPods", "ListLocks", "ReadElection"]);
    assert_eq!(*lab.election.situation(), Situation::Stale);
    lab.generation = 2;
    assert!(lab.run().contains(&"Promote p0 2".to_owned()));
}

#[test]
fn a_lock_under_an_earlier_key_is_emptied_first_and_deleted_last() {
    let mut lab = Lab::led(2);
    lab.strays = vec![(Key::lease("", "old"), lab.stored.clone())];
    lab.stored = Stored::Absent;
    lab = lab.restarted();
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    let mut all = Vec::new();
    for _ in 0..12 {
        for command in lab.step() {
            let words = in_words(&command);
            let outcome = match &command {
                Effect::Request(op, Command::WriteRecord { key, record, .. }) if key.name == "old" => {
                    lab.locks = vec![(key.clone(), Stored::Ours(Version(500), record.as_ref().clone()))];
                    Some((*op, Outcome::RecordWritten(RecordOutcome::Written(Version(500)))))
                }
                Effect::Request(op, Command::DeleteRecord { version, .. }) => {
                    assert_eq!(*version, Version(500));
                    Some((*op, Outcome::RecordWritten(RecordOutcome::Written(*version))))
                }
                command => lab.answer(command, &words),
            };
            if let Some((op, outcome)) = outcome {
                lab.election.take(op, outcome, lab.now);
            }
            all.push(words);
        }
    }
    assert_eq!(all[..3], ["WriteRecord 1 nobody", "WriteRecord 2 p0", "ListPods"]);
    assert_eq!(all.iter().filter(|words| *words == "DeleteRecord").count(), 1, "{all:#?}");
    assert_eq!(all.last().unwrap(), "DeleteRecord");
}

#[test]
fn a_lock_under_another_key_that_only_a_fresh_listing_shows_is_emptied_before_anybody_is_promoted() {
    let mut lab = Lab::led(2);
    let Stored::Ours(_, mut rival) = lab.stored.clone() else { panic!("there is a record") };
    rival.operator_id = "another".into();
    lab.locks = vec![(Key::lease("", "old"), Stored::Ours(Version(400), rival))];
    lab.stored = Stored::Absent;
    lab = lab.restarted();
    let mut all = Vec::new();
    for _ in 0..12 {
        for command in lab.step() {
            let words = in_words(&command);
            let outcome = match &command {
                Effect::Request(op, Command::WriteRecord { key, expected, record }) if key.name == "old" => {
                    assert_eq!((*expected, &record.holder), (Some(Version(400)), &None));
                    assert!(!all.iter().any(|words: &String| words.starts_with("Promote")), "{all:#?}");
                    lab.locks = vec![(key.clone(), Stored::Ours(Version(500), record.as_ref().clone()))];
                    Some((*op, Outcome::RecordWritten(RecordOutcome::Written(Version(500)))))
                }
                command => lab.answer(command, &words),
            };
            if let Some((op, outcome)) = outcome {
                lab.election.take(op, outcome, lab.now);
            }
            all.push(words);
        }
    }
    assert!(all.iter().any(|words| words.ends_with("nobody")), "{all:#?}");
    assert!(all.iter().any(|words| words.starts_with("Promote p0")), "{all:#?}");
}
