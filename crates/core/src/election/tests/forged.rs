//! H16: records that somebody else has written below a prefix of Consul.

use super::*;
use crate::switchover::Target;
use crate::{Bid, Offer, Pairs, SwitchoverMark};

/// A group in a shared store that has noted what it writes.
fn noting(pods: usize) -> Lab {
    let mut lab = shared(pods);
    lab.noted = Some(vec![lab.scope.clone()]);
    lab
}

/// Which pods somebody else has, with a label of theirs.
fn bystander(lab: &mut Lab) {
    let mut pod = lab.pods["p1"].clone();
    (pod.name, pod.uid, pod.annotations) = ("db".into(), uid("db"), Pairs::default());
    pod.labels = [("app", "db"), ("tier", "leader"), ("role", "leader")].into_iter().collect();
    lab.put(pod);
    // It is no member of the group: `members.rs` tests that.
    lab.unseen.insert("db".into());
}

fn of_others() -> Scope {
    let mut scope = scope("tier");
    scope.selector.match_labels = [("app", "db")].into_iter().collect();
    scope
}

fn forge(lab: &mut Lab, change: impl FnOnce(&mut Record)) {
    let mut record = lab.record();
    change(&mut record);
    lab.store(|version| Stored::Ours(version, record));
}

/// The pods of others as they were.
fn assert_untouched(lab: &Lab, before: &Pod, done: &[String]) {
    assert_eq!(lab.pods["db"].version, before.version, "{done:#?}");
    assert!(!done.iter().any(|what| what.contains("db") && !what.starts_with("Read")), "{done:#?}");
}

#[test]
fn a_forged_former_scope_takes_no_label_off_the_pods_of_others() {
    for restarts in [false, true] {
        let mut lab = noting(2);
        bystander(&mut lab);
        let before = lab.pods["db"].clone();
        forge(&mut lab, |record| record.former.push(of_others()));
        if restarts {
            lab = lab.restarted();
        }
        let mut done = lab.run();
        assert!(lab.election.ignores_claims());
        lab.unready("p0");
        done.extend(lab.run());
        assert_untouched(&lab, &before, &done);
        assert!(lab.shows_leader("p1") && !lab.shows_leader("p0"), "{done:#?}");
        assert!(!lab.election.ignores_claims(), "the next record has taken its place");
        assert_eq!(lab.record().former, []);
    }
}

#[test]
fn a_forged_scope_is_replaced_and_counts_for_nothing() {
    let mut lab = noting(2);
    bystander(&mut lab);
    let before = lab.pods["db"].clone();
    forge(&mut lab, |record| record.scope = of_others());
    let mut lab = lab.restarted();
    let done = lab.run();
    assert_untouched(&lab, &before, &done);
    assert!(lab.shows_leader("p0") && !lab.shows_leader("p1"), "{done:#?}");
    assert_eq!(lab.record().scope, lab.scope);
    assert_eq!(lab.record().former, []);
}

#[test]
fn a_forged_holder_that_is_none_of_the_group_is_not_written_to() {
    let mut lab = noting(2);
    bystander(&mut lab);
    let before = lab.pods["db"].clone();
    forge(&mut lab, |record| {
        record.holder = Some(Holder { pod: Some("db".into()), uid: uid("db"), node: None, ip: None });
    });
    let mut lab = lab.restarted();
    let done = lab.run();
    assert_untouched(&lab, &before, &done);
    assert!(lab.shows_leader("p0") != lab.shows_leader("p1"), "{done:#?}");
}

/// The safety of H4 and H10: what this cluster wrote itself is cleaned up, and late promotions of it are stopped, by whoever comes next,
/// also where somebody has taken it out of the record, or has deleted that.
#[test]
fn what_was_noted_is_stamped_and_cleaned_up_whatever_the_record_says() {
    for forged in ["nothing", "former", "deleted", "never"] {
        let mut lab = noting(2);
        let earlier = lab.scope.clone();
        // A pod of the earlier spec alone, to which a late promotion may be on its way.
        let mut old = lab.pods["p1"].clone();
        (old.name, old.uid) = ("old".into(), uid("old"));
        lab.put(old);
        lab.run();
        let version = lab.pods["old"].version;
        lab.scope = scope("mode");
        lab.scope.selector.match_labels.insert("tier".into(), "a".into());
        for name in ["p0", "p1"] {
            lab.edit(name, |pod| drop(pod.labels.insert("tier".into(), "a".into())));
        }
        lab.generation = 2;
        lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
        lab.noted = Some(vec![earlier.clone(), lab.scope.clone()]);
        match forged {
            "former" => {
                let present = lab.scope.clone();
                forge(&mut lab, |record| (record.scope, record.generation) = (present, 2));
            }
            "never" => forge(&mut lab, |record| record.generation = 9),
            "deleted" => lab.store(|_| Stored::Absent),
            _ => {}
        }
        let mut lab = lab.restarted();
        let done = lab.run();
        assert!(lab.pods["old"].version > version, "{forged}: {done:#?}");
        assert!(lab.pods.values().all(|pod| !pod.labels.contains_key("role")), "{forged}: {done:#?}");
        assert_eq!(lab.record().former, [], "{forged}: {done:#?}");
        assert!(lab.election.has_cleaned_up(&lab.scope, 2), "{forged}: {done:#?}");
    }
}

/// A note is dropped only after a chain that is unbroken: a record that somebody else has written proves nothing.
#[test]
fn a_forged_record_does_not_say_that_all_is_cleaned_up() {
    let mut lab = noting(2);
    lab.noted = Some(vec![of_others(), lab.scope.clone()]);
    forge(&mut lab, |record| record.former.clear());
    let mut lab = lab.restarted();
    lab.run();
    assert!(!lab.election.has_cleaned_up(&lab.scope, 1));
}

#[test]
fn an_election_that_goes_takes_off_what_it_noted_and_nothing_that_a_record_claims() {
    let mut lab = noting(2);
    bystander(&mut lab);
    let before = lab.pods["db"].clone();
    forge(&mut lab, |record| record.former.push(of_others()));
    let mut lab = lab.restarted();
    lab.desired = Desired::Withdraw;
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    let done = lab.run();
    assert_untouched(&lab, &before, &done);
    assert_eq!(*lab.election.situation(), Situation::Withdrawn, "{done:#?}");
    assert!(["p0", "p1"].iter().all(|name| !lab.pods[*name].labels.contains_key("role")));
}

#[test]
fn a_forged_holder_of_the_group_leads_after_the_leader_was_demoted() {
    let mut lab = noting(2);
    forge(&mut lab, |record| {
        record.holder = Some(Holder { pod: Some("p1".into()), uid: uid("p1"), node: None, ip: None });
    });
    let done = lab.run();
    let at = |what: &str| done.iter().position(|done| done.starts_with(what));
    assert!(at("Demote p0").is_some() && at("Demote p0") < at("Promote p1"), "{done:#?}");
    assert_eq!(lab.leader(), Some("p1"));
}

#[test]
fn a_forged_term_makes_no_term_fall() {
    for forged in [Term(1), Term(i64::MAX / 2)] {
        let mut lab = noting(2);
        let before = lab.record().term;
        forge(&mut lab, |record| record.term = forged);
        let mut lab = lab.restarted();
        lab.run();
        lab.unready("p0");
        lab.run();
        assert!(lab.record().term > before, "{forged:?}: {:?}", lab.record().term);
        assert_eq!(lab.leader(), Some("p1"));
    }
}

#[test]
fn a_forged_offer_is_answered_and_moves_nobody() {
    let mut lab = noting(2);
    let (offer, leader) = (Offer { switchover: uid("s"), cluster: "east".into() }, lab.pods["p0"].clone());
    forge(&mut lab, |record| record.offer = Some(offer));
    lab.run();
    assert_eq!(lab.pods["p0"].version, leader.version);
}

/// Whoever forges it decides what the user is told of a Switchover, and moves no leader.
#[test]
fn a_forged_switchover_moves_nobody() {
    let mark = |to: Option<&str>| SwitchoverMark { id: uid("s"), to: to.map(uid), ..SwitchoverMark::default() };
    let asked = |lab: &Lab| {
        let (from_term, to) = (lab.record().term, Target::Named("p1".into()));
        Asked { id: uid("s"), from_term, to, force: false }
    };
    for (mark, verdict) in [(mark(None), Verdict::GivenUp), (mark(Some("p1")), Verdict::Lost)] {
        let mut lab = noting(2);
        let (asked, leader) = (asked(&lab), lab.pods["p0"].clone());
        forge(&mut lab, |record| record.switchover = Some(mark));
        lab.accepted = Some(asked.clone());
        lab.run();
        assert_eq!(lab.pods["p0"].labels, leader.labels);
        assert_eq!(lab.shown(|election, view| election.judge(&asked, false, view)), verdict);
    }
}

/// A bid of a cluster that no user asked to lead gets nothing.
#[test]
fn a_forged_bid_moves_nobody() {
    let mut lab = noting(2);
    let leader = lab.pods["p0"].clone();
    for offered in [false, true] {
        if offered {
            forge(&mut lab, |record| record.offer = Some(Offer { switchover: uid("s"), cluster: "east".into() }));
        }
        let (saw, version) = (lab.stored.version().unwrap(), lab.next_version());
        let record = Record { holder: None, election: uid("far"), ..lab.record() };
        let bid = Bid { switchover: uid("s"), saw, eligible: true, record };
        lab.bids = vec![across::placed("east", version, bid)];
        let done = lab.run();
        assert!(!done.iter().any(|what| what.starts_with("GiveRecord")), "{done:#?}");
        assert_eq!((lab.leader(), &lab.pods["p0"].labels), (Some("p0"), &leader.labels));
    }
}

#[test]
fn a_forged_election_costs_a_term_and_moves_nobody() {
    let mut lab = noting(2);
    let before = lab.record().term;
    forge(&mut lab, |record| (record.election, record.operator_id) = (uid("theirs"), "them".into()));
    let done = lab.run();
    assert_eq!(lab.record().election, uid("e"), "{done:#?}");
    assert!(lab.leader() == Some("p0") && lab.record().term > before, "{done:#?}");
}
