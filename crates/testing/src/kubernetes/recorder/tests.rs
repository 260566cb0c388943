//! Tests that break each promise once, in small records made by hand, and tests of allowed records.

use super::*;

/// Makes a revision of a pod for each of these: name, role, and term, if it has one.
fn record(seen: &[(&str, &str, Option<i64>)]) -> Vec<Revision> {
    let began = Instant::now();
    let revision = |(at, (pod, role, term)): (u64, &(&str, &str, Option<i64>))| Revision {
        version: at,
        pod: (*pod).to_owned(),
        uid: format!("uid of {pod}"),
        role: (!role.is_empty()).then(|| (*role).to_owned()),
        term: *term,
        election: Some("web".into()),
        ready: true,
        leaving: false,
        deleted: false,
        at: began + Duration::from_secs(at),
    };
    (1..).zip(seen).map(revision).collect()
}

/// Returns the number of leaderships, or the breach.
fn judged(revisions: &[Revision], by_hand: &[u64]) -> Result<usize, String> {
    std::panic::catch_unwind(|| promises(revisions, by_hand, &[]))
        .map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "no text".into()))
}

fn broken(seen: &[(&str, &str, Option<i64>)]) -> String {
    judged(&record(seen), &[]).expect_err("a breach")
}

#[test]
fn handovers_in_order_break_nothing() {
    let mut revisions = record(&[
        ("a", "leader", Some(1)),
        ("b", "follower", Some(1)),
        ("a", "follower", Some(2)),
        ("b", "leader", Some(2)),
        // A label that is restored under its own term is the same leadership.
        ("b", "", Some(2)),
        ("b", "leader", Some(2)),
        // A leader whose lock was written again is the same leadership, too.
        ("b", "leader", Some(3)),
    ]);
    assert_eq!(judged(&revisions, &[]), Ok(2));
    // Another election has its own terms.
    let mut other = record(&[("a", "leader", Some(1))]).remove(0);
    (other.version, other.election) = (9, Some("other".into()));
    revisions.push(Revision { deleted: true, version: 8, ..revisions[6].clone() });
    revisions.push(other);
    assert_eq!(judged(&revisions, &[]), Ok(3));
}

#[test]
fn two_leaders_at_one_revision_are_one_too_many() {
    let two = [("a", "leader", Some(1)), ("b", "leader", Some(2)), ("a", "follower", Some(2))];
    assert!(broken(&two).starts_with("two leaders at version 2"));
    // A label that the test wrote by hand does not count until the pod's next revision.
    assert_eq!(judged(&record(&two), &[2]), Ok(1));
    let again = [("a", "leader", Some(1)), ("b", "leader", Some(2)), ("b", "leader", Some(2))];
    assert!(judged(&record(&again), &[2]).expect_err("a breach").starts_with("two leaders at version 3"));
}

#[test]
fn two_leaders_in_several_namespaces_are_one_too_many() {
    let mut revisions = record(&[("a", "leader", Some(1)), ("a", "leader", Some(2))]);
    revisions[1].uid = "of the other namespace".into();
    assert!(judged(&revisions, &[]).expect_err("a breach").starts_with("two leaders at version 2"));
}

/// Makes a revision of a pod. Without a term it does not lead.
fn shows(version: u64, pod: &str, term: Option<i64>) -> Revision {
    Revision {
        version,
        pod: pod.into(),
        uid: pod.into(),
        role: term.map(|_| "leader".into()),
        term,
        election: Some("web".into()),
        ready: true,
        leaving: false,
        deleted: false,
        at: Instant::now(),
    }
}

fn fails(revisions: &[Revision], excused: &[(&str, u64)]) -> bool {
    std::panic::catch_unwind(|| promises(revisions, &[], excused)).is_err()
}

#[test]
fn two_leaders_are_excused_only_beside_the_pod_from_the_version_on_and_until_it_is_demoted() {
    let beside = [shows(1, "a", Some(1)), shows(5, "b", Some(2)), shows(9, "a", None)];
    assert!(fails(&beside, &[]), "nobody excuses them");
    assert!(!fails(&beside, &[("a", 2)]));
    assert!(fails(&beside, &[("a", 6)]), "it was too early");
    assert!(fails(&beside, &[("b", 2)]), "that one began");
    assert!(fails(&beside[..2], &[("a", 2)]), "it goes on");
    let third = [&beside[..2], &[shows(6, "c", Some(3)), shows(8, "b", None)], &beside[2..]].concat();
    assert!(fails(&third, &[("a", 2)]), "another one beside them");
    let falls = [shows(1, "a", Some(2)), shows(2, "a", None), shows(3, "b", Some(1))];
    assert!(fails(&falls, &[("a", 1)]), "terms rise all the same");
}

#[test]
fn a_term_must_rise() {
    for (pod, term) in [("b", 2), ("b", 1), ("a", 1)] {
        let falls = [("a", "leader", Some(2)), ("a", "follower", Some(2)), (pod, "leader", Some(term))];
        assert!(broken(&falls).starts_with(&format!("term {term} after")), "{pod} {term}");
    }
    let falls = [("a", "leader", Some(2)), ("a", "leader", Some(1))];
    assert!(broken(&falls).starts_with("term 1 after"), "nor may it fall while a pod leads");
    judged(&record(&[("a", "leader", None)]), &[]).expect_err("a leader carries its term");
}

#[test]
fn nobody_leads_for_as_long_as_somebody_could() {
    let seen = [
        ("a", "leader", Some(1)),
        ("b", "follower", Some(1)),
        ("a", "follower", Some(1)),
        ("b", "follower", Some(2)),
        ("b", "leader", Some(2)),
    ];
    assert_eq!(longest_vacancy(&record(&seen)), Duration::from_secs(2));
    // The time counts even if there is no leader in the end.
    assert_eq!(longest_vacancy(&record(&seen[..4])), Duration::from_secs(1));
    let spoil: [fn(&mut Revision); 3] = [|pod| pod.ready = false, |pod| pod.leaving = true, |pod| pod.deleted = true];
    for spoil in spoil {
        let mut revisions = record(&seen);
        revisions[1..4].iter_mut().for_each(spoil);
        assert_eq!(longest_vacancy(&revisions), Duration::ZERO);
    }
}
