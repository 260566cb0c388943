//! Locks that the election has under another key than its present one.

use super::*;
use crate::Pairs;

fn old() -> Key {
    Key::lease("", "old")
}

/// The lock under the old key, as it is in the store. What the watch shows of it is in [`Lab::strays`].
struct Old(Stored);

impl Old {
    /// As [`Lab::answer`], for both keys; returns what was asked for, with the version that it was meant for.
    fn answer(&mut self, lab: &mut Lab, command: &Effect) -> String {
        let words = in_words(command);
        let made = lab.next_version();
        let (op, version, made) = match command {
            Effect::Request(op, Command::WriteRecord { key, expected, record }) if *key == old() => {
                (*op, expected.unwrap_or_default(), Stored::Ours(made, record.as_ref().clone()))
            }
            Effect::Request(op, Command::DeleteRecord { key, version }) if *key == old() => {
                (*op, *version, Stored::Absent)
            }
            command => {
                lab.locks = vec![(old(), self.0.clone())];
                if let Some((op, outcome)) = lab.answer(command, &words) {
                    lab.election.take(op, outcome, lab.now);
                }
                return words;
            }
        };
        let outcome = if self.0.version() == Some(version) {
            self.0 = made;
            RecordOutcome::Written(self.0.version().unwrap_or(version))
        } else {
            RecordOutcome::Conflict
        };
        lab.election.take(op, Outcome::RecordWritten(outcome), lab.now);
        format!("old at {version}: {words}")
    }

    /// Steps and answers until nothing more is asked for, or until `until` was; returns all that was.
    fn run(&mut self, lab: &mut Lab, until: &str) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for _ in 0..30 {
            let commands = lab.step();
            for command in &commands {
                all.push(self.answer(lab, command));
            }
            if commands.is_empty() || all.iter().any(|words| words.starts_with(until)) {
                return all;
            }
        }
        panic!("it goes on and on: {all:#?}")
    }
}

/// A record of somebody with another view of the election, who goes on with the old key.
fn rivals() -> Record {
    Record { operator_id: "another".into(), ..Lab::led(2).record() }
}

fn emptied() -> Record {
    Record { holder: None, ..rivals() }
}

/// An operator that was just started, with no lock under the present key.
fn started() -> Lab {
    let mut lab = Lab::led(2);
    (lab.stored, lab.version) = (Stored::Absent, 500);
    lab.restarted()
}

#[test]
fn a_listing_counts_for_as_long_as_the_watch_shows_what_was_before() {
    let mut lab = started();
    lab.strays = vec![(old(), Stored::Ours(Version(300), emptied()))];
    let mut other = Old(Stored::Ours(Version(400), rivals()));
    let all = other.run(&mut lab, "Transition");
    let at = |words: &str| all.iter().position(|found| found.starts_with(words)).unwrap_or_else(|| panic!("{all:#?}"));
    assert!(at("ListLocks") < at("old at 400: WriteRecord 2 nobody"), "{all:#?}");
    assert!(at("old at 400: WriteRecord 2 nobody") < at("Promote p0"), "{all:#?}");
}

#[test]
fn what_the_watch_shows_later_than_a_listing_counts() {
    let mut lab = started();
    let mut other = Old(Stored::Ours(Version(400), rivals()));
    other.run(&mut lab, "ListLocks");
    other.0 = Stored::Ours(Version(450), rivals());
    lab.strays = vec![(old(), other.0.clone())];
    let all = other.run(&mut lab, "Transition");
    let emptying = all.iter().find(|words| words.starts_with("old"));
    assert_eq!(emptying.map(String::as_str), Some("old at 450: WriteRecord 2 nobody"), "{all:#?}");
}

#[test]
fn a_lock_that_somebody_takes_again_after_it_was_emptied_is_emptied_again() {
    let mut lab = started();
    let mut other = Old(Stored::Ours(Version(400), rivals()));
    lab.strays = vec![(old(), other.0.clone())];
    assert_eq!(other.run(&mut lab, "old")[..1], ["old at 400: WriteRecord 1 nobody"]);
    other.0 = Stored::Ours(Version(600), rivals());
    lab.version = 600;
    lab.strays = vec![(old(), other.0.clone())];
    let all = other.run(&mut lab, "Transition");
    assert_eq!(all[0], "old at 600: WriteRecord 1 nobody", "{all:#?}");
    assert_eq!(lab.leader(), Some("p0"));
}

/// The class was replaced by another one in which another cluster leads, or that sees the same lock in the hands of the earlier class.
#[test]
fn a_lock_of_an_earlier_class_is_given_up_where_another_cluster_leads_by_the_present_one() {
    let mut lab = started();
    lab.policy = LockPolicy { shared: true, grace: Duration::from_secs(15), ..LockPolicy::ALONE };
    lab.store(|version| Stored::HeldByOther(version, rival()));
    let mut other = Old(Stored::Ours(Version(400), rivals()));
    lab.strays = vec![(old(), other.0.clone())];
    let first = other.run(&mut lab, "old");
    assert!(first.iter().any(|words| words == "LedElsewhere east"), "{first:#?}");
    assert!(first.last().is_some_and(|words| words.ends_with("nobody")), "{first:#?}");
    lab.strays = vec![(old(), other.0.clone())];
    let all = other.run(&mut lab, "old");
    assert!(all.last().is_some_and(|words| words.contains("DeleteRecord")), "{all:#?}");
    assert_eq!(other.0, Stored::Absent);
}

#[test]
fn an_answer_to_another_request_is_not_taken_for_the_one_to_an_emptying() {
    let mut lab = started();
    let mut other = Old(Stored::Ours(Version(400), rivals()));
    lab.strays = vec![(old(), other.0.clone())];
    let emptying = lab.step();
    let stray = Outcome::RecordWritten(RecordOutcome::Written(Version(5_000)));
    lab.election.take(OpId(u64::MAX), stray, lab.now);
    assert!(lab.step().is_empty(), "its own is awaited");
    assert_eq!(other.answer(&mut lab, &emptying[0]), "old at 400: WriteRecord 1 nobody");
    assert!(!lab.step().is_empty());
}

/// The same election, deleted, with this record under its present key, and under the old one a lock that was emptied.
fn deleted(record: Option<Record>, old_scope: Scope) -> (Lab, Old) {
    let mut lab = Lab::led(2);
    lab.stored = record.map_or(Stored::Absent, |record| Stored::Ours(Version(450), record));
    lab.version = 500;
    let mut lab = lab.restarted();
    lab.desired = Desired::Withdraw;
    let other = Old(Stored::Ours(Version(400), Record { scope: old_scope, ..emptied() }));
    lab.strays = vec![(old(), other.0.clone())];
    (lab, other)
}

#[test]
fn a_withdrawal_writes_the_record_only_if_it_lacks_what_was_written_under_the_old_key() {
    for (former, old_scope, expected) in [
        (Vec::new(), scope("role"), None),
        (vec![scope("mode")], scope("mode"), None),
        (Vec::new(), scope("mode"), Some("WriteRecord 1 nobody, former")),
    ] {
        let (mut lab, mut other) = deleted(Some(Record { former, ..emptied() }), old_scope);
        let all = other.run(&mut lab, "never");
        let written = all.iter().find(|words| words.starts_with("WriteRecord"));
        assert_eq!(written.map(String::as_str), expected, "{all:#?}");
        assert_eq!(*lab.election.situation(), Situation::Withdrawn);
    }
}

#[test]
fn a_withdrawal_deletes_the_lock_under_the_old_key_when_all_marks_are_off() {
    let (mut lab, mut other) = deleted(None, scope("mode"));
    assert_eq!(
        other.run(&mut lab, "never"),
        ["ReadElection", "ReadRecord", "ListPods", "Remove p0", "Remove p1", "old at 400: DeleteRecord"]
    );
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
}

#[test]
fn a_withdrawal_without_a_record_lists_the_pods_that_were_selected_under_the_old_key() {
    let app = |value: &str| Selector {
        match_labels: [("app".to_owned(), value.to_owned())].into(),
        match_expressions: Vec::new(),
    };
    let (mut lab, mut other) = deleted(None, Scope { selector: app("before"), ..scope("role") });
    for _ in 0..10 {
        for command in lab.step() {
            if let Effect::Request(_, Command::ListPods { selectors, .. }) = command {
                assert_eq!(selectors, [app("web"), app("before")]);
                return;
            }
            other.answer(&mut lab, &command);
        }
    }
    panic!("no pods are listed");
}

#[test]
fn a_withdrawal_writes_once_to_each_pod_that_carries_a_mark() {
    let (mut lab, mut other) = deleted(None, scope("role"));
    let unmarked = Pod { uid: uid("p2"), name: "p2".into(), annotations: Pairs::default(), ..lab.pods["p1"].clone() };
    lab.put(unmarked);
    let removals = loop {
        let commands = lab.step();
        if commands.iter().any(|command| matches!(command, Effect::Request(_, Command::WritePod(_)))) {
            break commands;
        }
        assert!(!commands.is_empty(), "it writes to no pod");
        for command in &commands {
            other.answer(&mut lab, command);
        }
    };
    assert_eq!(removals.iter().map(in_words).collect::<Vec<_>>(), ["Remove p0", "Remove p1"]);
    assert!(lab.step().is_empty(), "the answers are awaited");
}
