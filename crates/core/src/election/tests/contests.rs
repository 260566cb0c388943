//! Somebody else undoes what is written, again and again: a person, or another replica that acts, too.

use super::*;

/// When it is written in three seconds: twice a second. The first time was a person, as far as anybody knows.
pub(super) const OFTEN: [u128; 6] = [0, 1, 1_001, 1_002, 2_002, 2_003];

/// Writes what is due, and goes on to the moments at which more is due, while `undo` undoes it each time. Returns when the writes
/// that begin with these words were, in milliseconds from the beginning.
pub(super) fn written(lab: &mut Lab, words: &str, seconds: u64, undo: impl Fn(&mut Lab)) -> Vec<u128> {
    let (from, mut times) = (lab.now, Vec::new());
    while lab.now.since(from) < Duration::from_secs(seconds) {
        undo(lab);
        let all = lab.run();
        times.extend(all.iter().filter(|done| done.starts_with(words)).map(|_| lab.now.since(from).as_millis()));
        lab.now = lab.election.wake().unwrap_or(lab.now).max(lab.now + Duration::from_millis(1));
    }
    times
}

fn take_off(lab: &mut Lab) {
    if lab.shows_leader("p0") {
        lab.edit("p0", |pod| drop(pod.labels.remove("role")));
    }
}

/// Shows L1.
#[test]
fn a_label_that_is_taken_off_again_and_again_is_written_a_few_times_a_second() {
    let mut lab = Lab::led(2);
    assert_eq!(written(&mut lab, "Promote p0", 3, take_off), OFTEN);
    // Long afterwards, a person does it once.
    lab.run();
    lab.now = lab.now + Duration::from_secs(20);
    lab.run();
    assert_eq!(written(&mut lab, "Promote p0", 1, take_off)[0], 0);
}

/// Shows L1: with a lock that only this cluster has, too.
#[test]
fn a_record_that_another_replica_replaces_again_and_again_is_written_a_few_times_a_second() {
    let mut lab = Lab::led(2);
    let times = written(&mut lab, "WriteRecord", 3, |lab| {
        take_off(lab);
        if lab.record().operator_id != "other" {
            let other = Record { operator_id: "other".into(), term: Term(lab.record().term.0 + 1), ..lab.record() };
            lab.store(|version| Stored::Ours(version, other));
        }
    });
    assert!((3..=10).contains(&times.len()), "{times:?}");
}

/// Shows L1.
#[test]
fn marks_of_followers_that_are_taken_off_again_and_again_are_written_a_few_times_a_second() {
    let label: fn(&mut Pod) = |pod| drop(pod.labels.remove("role"));
    let everything: fn(&mut Pod) = |pod| {
        pod.labels.remove("role");
        pod.annotations = Pairs::default();
    };
    for strip in [label, everything] {
        let mut lab = Lab::led(3);
        let times = written(&mut lab, "Demote p1", 5, |lab| {
            for pod in ["p1", "p2"] {
                if lab.pods[pod].labels.contains_key("role") {
                    lab.edit(pod, strip);
                }
            }
        });
        assert!((5..=15).contains(&times.len()), "{times:?}");
        // The leader's label does not wait for that, nor does the next leader, nor whoever else shows the label.
        take_off(&mut lab);
        assert!(lab.run().iter().any(|done| done.starts_with("Promote p0")));
        lab.edit("p1", |pod| drop(pod.labels.insert("role".into(), "leader".into())));
        assert!(lab.run().iter().any(|done| done.starts_with("Demote p1")));
        lab.pods.remove("p0");
        lab.run();
        assert!(lab.leader().is_some());
        // Long afterwards, a person does it once.
        lab.now = lab.now + Duration::from_secs(20);
        lab.run();
        let follower = if lab.leader() == Some("p1") { "p2" } else { "p1" };
        lab.edit(follower, strip);
        assert!(lab.run().contains(&format!("Demote {follower} {}", lab.record().term)));
    }
}

#[test]
fn one_label_that_a_person_takes_off_is_back_at_once() {
    let mut lab = Lab::led(2);
    take_off(&mut lab);
    lab.step();
    assert!(lab.contested, "it may be another replica");
    let mut lab = Lab::led(2);
    take_off(&mut lab);
    assert!(lab.run().iter().any(|done| done.starts_with("Promote p0")));
    assert_eq!((lab.leader(), lab.contested), (Some("p0"), false));
}

#[test]
fn while_a_label_is_contested_a_leader_that_is_lost_is_replaced_at_once() {
    let mut lab = Lab::led(2);
    written(&mut lab, "Promote p0", 2, take_off);
    assert!(lab.election.wake().is_some(), "the next try has to wait");
    lab.pods.remove("p0");
    lab.run();
    assert_eq!((lab.leader(), lab.election.situation()), (Some("p1"), &Situation::Led));
}

/// Shows C3.
#[test]
fn a_label_that_comes_back_while_the_lock_is_lost_is_taken_off_at_once_each_time() {
    let mut lab = shared(2);
    lab.now = lab.now + Duration::from_secs(12);
    lab.run();
    assert_eq!((lab.leader(), lab.contested), (None, false));
    for _ in 0..50 {
        lab.edit("p0", |pod| drop(pod.labels.insert("role".into(), "leader".into())));
        let all = lab.step();
        assert!(lab.contested && all.iter().any(|effect| in_words(effect).starts_with("Demote p0")), "{all:#?}");
        for effect in all {
            if let Some((op, outcome)) = lab.answer(&effect, &in_words(&effect)) {
                lab.election.take(op, outcome, lab.now);
            }
        }
        lab.run();
        assert_eq!(lab.leader(), None);
        lab.now = lab.now + Duration::from_millis(3);
    }
}
