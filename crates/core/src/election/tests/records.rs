//! The record: answers that are lost, records that others delete, edit or put back, and terms.

use super::*;
use crate::election::lock::Lock;

#[test]
fn after_a_conflict_the_pod_is_read_then_the_record_then_it_is_promoted() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    lab.instead("Promote p1", Outcome::PodWritten(PodOutcome::Conflict));
    let all = lab.run();
    // The world did carry it out, so the pod is found promoted.
    assert_eq!(all[2..], ["Promote p1 2", "ReadPod p1", "Transition p1 LeaderNotReady"]);

    let mut lab = Lab::led(2);
    lab.unready("p0");
    let stale = lab.step();
    assert_eq!(in_words(&stale[0]), "WriteRecord 2 p1");
    lab.edit("p1", |pod| drop(pod.annotations.insert("another".into(), "change".into())));
    let (op, outcome) = lab.answer(&stale[0], "").unwrap();
    lab.election.take(op, outcome, lab.now);
    assert_eq!(
        lab.run(),
        ["Demote p0 2", "Promote p1 2", "ReadPod p1", "ReadRecord", "Promote p1 2", "Transition p1 LeaderNotReady"]
    );
}

#[test]
fn a_record_write_without_an_answer_is_read_and_its_own_goes_on() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    let lost = RecordOutcome::Failed(Failure::Unknown("no answer".into()));
    lab.instead("WriteRecord", Outcome::RecordWritten(lost));
    assert_eq!(lab.run(), ["WriteRecord 2 p1"]);
    lab.now = lab.now + Duration::from_secs(1);
    assert_eq!(lab.run(), ["ReadRecord", "Demote p0 2", "Promote p1 2", "Transition p1 LeaderNotReady"]);
}

#[test]
fn while_the_record_can_not_be_read_its_write_is_not_repeated() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    let lost = || Failure::Unknown("no answer".into());
    lab.instead("WriteRecord", Outcome::RecordWritten(RecordOutcome::Failed(lost())));
    lab.instead("ReadRecord", Outcome::RecordRead(Err(lost())));
    assert_eq!(lab.run(), ["WriteRecord 2 p1"]);
    for expected in
        [&["ReadRecord"][..], &["ReadRecord", "Demote p0 2", "Promote p1 2", "Transition p1 LeaderNotReady"]]
    {
        lab.now = lab.now + Duration::from_secs(1);
        assert_eq!(lab.run(), expected);
    }
}

#[test]
fn a_record_that_is_not_the_one_whose_write_is_unknown_is_somebody_elses() {
    let mut lab = Lab::led(2);
    lab.unready("p0");
    let other = Record { operator_id: "other".into(), ..lab.record() };
    lab.instead("WriteRecord", Outcome::RecordWritten(RecordOutcome::Failed(Failure::Unknown("no answer".into()))));
    lab.run();
    lab.store(|version| Stored::Ours(version, other));
    lab.now = lab.now + Duration::from_secs(1);
    let all = lab.run();
    assert_eq!(all[..4], ["ReadRecord", "ReadPod p0", "ReadPod p1", "WriteRecord 2 p1"], "{all:#?}");
}

#[test]
fn a_deleted_record_is_made_anew_for_the_same_leader() {
    let mut lab = Lab::led(2);
    lab.store(|_| Stored::Absent);
    assert_eq!(
        lab.run(),
        [
            "LockChanged deleted",
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
fn an_edited_record_is_replaced_for_the_same_leader() {
    let mut lab = Lab::led(2);
    lab.store(|version| Stored::Damaged(version, Term(40)));
    let all = lab.run();
    assert_eq!(all[..3], ["LockChanged edited by hand", "WriteRecord 41 p0", "ListPods"]);
    assert_eq!(all.last().unwrap(), "Transition p0 LockRestored");
}

#[test]
fn a_leader_whose_store_was_put_back_begins_a_term_above_all_that_were_given() {
    let mut lab = Lab::led(2).restarted();
    lab.election = lab.election.that_had_reached(Term(7));
    let all = lab.run();
    assert_eq!(all[..2], ["ReadPod p0", "WriteRecord 8 p0"]);
    assert_eq!(all.last().unwrap(), "Transition p0 LockRestored");
    assert_eq!(lab.run(), [""; 0]);
    lab.pods.remove("p0");
    assert_eq!(lab.run()[0], "WriteRecord 9 p1");
}

#[test]
fn a_term_is_above_all_that_is_known_and_incredible_hints_are_not() {
    let mut lab = Lab::new(1);
    lab.status_term = Term(5);
    assert_eq!(lab.run()[0], "WriteRecord 6 p0");

    let noted = |term: &str| {
        let mut lab = Lab::new(1);
        lab.edit("p0", |pod| {
            pod.annotations.insert(ELECTION_ANNOTATION.into(), "web".into());
            pod.annotations.insert(TERM_ANNOTATION.into(), term.into());
        });
        lab.run()[0].clone()
    };
    assert_eq!(noted("8"), "WriteRecord 9 p0");
    assert_eq!(noted("2147483647"), "WriteRecord 1 p0");
}

/// Shows H9.
#[test]
fn terms_begin_where_the_election_says_and_go_on_from_there() {
    let mut lab = Lab::new(3);
    lab.first_term = Term(28_000_000);
    assert_eq!(lab.run()[0], "WriteRecord 28000000 p0");
    assert_eq!(lab.run(), NOTHING);
    lab.unready("p0");
    assert_eq!(lab.run()[0], "WriteRecord 28000001 p1");
    // The lock and the status are lost: what the pods show is credible, because it is a little above where the terms begin.
    let mut lab = lab.restarted();
    lab.store(|_| Stored::Absent);
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("WriteRecord 28000002 ")), "{all:#?}");

    // It is written into an election that leads already: the present leadership keeps its term.
    let mut lab = Lab::led(2);
    lab.first_term = Term(28_000_000);
    assert_eq!((lab.run(), lab.election.term()), (NOTHING.map(str::to_owned).to_vec(), Term(1)));
    lab.unready("p0");
    assert_eq!(lab.run()[0], "WriteRecord 28000000 p1");
    // Nor does an edited annotation raise it much.
    let mut lab = Lab::new(1);
    lab.first_term = Term(100);
    lab.edit("p0", |pod| {
        pod.annotations.insert(ELECTION_ANNOTATION.into(), "web".into());
        pod.annotations.insert(TERM_ANNOTATION.into(), "1101".into());
    });
    assert_eq!(lab.run()[0], "WriteRecord 100 p0");
}

#[test]
fn a_term_that_only_a_fresh_list_shows_is_outbid() {
    let mut lab = Lab::new(2);
    let mut listed = lab.pods["p1"].clone();
    listed.annotations.insert(ELECTION_ANNOTATION.into(), "web".into());
    listed.annotations.insert(TERM_ANNOTATION.into(), "4".into());
    lab.instead("ListPods", Outcome::PodsListed(Ok(vec![listed])));
    let all = lab.run();
    assert_eq!(all[..5], ["WriteRecord 1 p0", "ListPods", "ListLocks", "ReadElection", "ReadRecord"]);
    assert!(all.contains(&"WriteRecord 5 p0".to_owned()), "{all:#?}");
    assert!(!all.contains(&"Promote p0 1".to_owned()), "{all:#?}");
}

#[test]
fn a_term_in_the_status_that_leaves_none_for_others_is_not_believed() {
    let mut lab = Lab::led(2);
    lab.status_term = Term(i32::MAX.into());
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(lab.election.term(), Term(1));
    // One that is only high is: the record may have been put back to an earlier state.
    lab.status_term = Term(1_000_000_000);
    lab.unready("p0");
    assert!(lab.run().contains(&"Promote p1 1000000001".to_owned()));
}

#[test]
fn a_lock_that_moves_here_goes_on_from_the_term_that_the_status_shows() {
    let mut lab = Lab::new(2);
    lab.status_term = Term(i32::MAX.into());
    assert_eq!(lab.step().iter().map(in_words).collect::<Vec<_>>(), ["WriteRecord 2147483648 p0"]);
}

#[test]
fn a_record_of_an_earlier_election_is_replaced_only_by_the_present_one() {
    let mut lab = Lab::led(2);
    let others = Record { election: uid("another"), ..lab.record() };
    lab.store(|version| Stored::Ours(version, others));
    lab.present = ElectionRead::Present { uid: uid("another"), generation: 1 };
    assert_eq!(lab.run(), ["ReadPod p0", "ReadElection"]);
    assert_eq!(*lab.election.situation(), Situation::Stale);
}

#[test]
fn a_foreign_lock_is_looked_at_more_and_more_seldom() {
    let mut lab = Lab::led(1).restarted();
    lab.stored = Stored::Foreign("theirs".into());
    lab.election.records.lock = Lock::new(Some((lab.stored.version().unwrap_or_default(), lab.stored.clone().into())));
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(*lab.election.situation(), Situation::Foreign("theirs".into()));
    let first = lab.election.wake().unwrap();
    lab.now = first;
    assert_eq!(lab.run(), ["ReadRecord"]);
    let second = lab.election.wake().unwrap();
    assert!(second.since(first) > first.since(Instant::after_origin(Duration::from_secs(100))));
}

#[test]
fn an_answer_that_is_older_than_the_watch_is_not_believed() {
    let mut lab = Lab::led(2);
    let (before, record) = (lab.stored.clone(), lab.record());
    lab.election.records.lock.forget();
    let command = lab.step().remove(0);
    assert_eq!(in_words(&command), "ReadRecord");
    let newer = Record { operator_id: "other".into(), term: Term(2), ..record };
    lab.store(|version| Stored::Ours(version, newer.clone()));
    let Effect::Request(op, Command::ReadRecord { .. }) = command else { panic!("{command:?}") };
    lab.election.take(op, Outcome::RecordRead(Ok(before)), lab.now);
    assert_eq!(lab.election.record(), Some(&newer));
}
