//! Shared stores: others may take the lock.

use super::*;
use crate::Pairs;

#[test]
fn in_a_shared_store_the_term_is_the_version_of_the_lock() {
    let lab = shared(2);
    let Stored::Ours(version, record) = &lab.stored else { panic!("{:?}", lab.stored) };
    assert_eq!(record.term, Term(version.0.try_into().unwrap()));
    assert_eq!(lab.pods["p0"].annotations[TERM_ANNOTATION], record.term.to_string());
    assert_eq!(lab.election.leader().unwrap().0, record.term);
}

/// Shows C6: a replica that stood by has seen it, too.
#[test]
fn a_lock_that_vanished_before_this_replica_acted_is_left_alone_for_a_ttl() {
    let mut lab = Lab::new(2);
    lab.policy =
        LockPolicy { shared: true, grace: Duration::from_secs(15), vanished: Some(lab.now), ..LockPolicy::ALONE };
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("WriteRecord")), "{all:?}");
    assert_eq!(*lab.election.situation(), Situation::LockLost);
    assert_eq!(lab.election.wake(), Some(lab.now + Duration::from_secs(15)));
    lab.now = lab.now + Duration::from_secs(15);
    lab.run();
    assert_eq!(lab.leader(), Some("p0"));
}

#[test]
fn a_handover_never_lets_go_of_a_shared_lock() {
    let mut lab = shared(2);
    lab.unready("p0");
    let all = lab.run();
    assert_eq!(all.len(), 4, "{all:#?}");
    assert!(all[0].ends_with(" p1") && all[1].starts_with("Demote p0") && all[2].starts_with("Promote p1"), "{all:#?}");
}

#[test]
fn without_an_eligible_pod_a_shared_lock_is_let_go_of_after_the_leader_is_demoted() {
    let mut lab = shared(1);
    lab.unready("p0");
    let all = lab.run();
    let words: Vec<&str> = all.iter().map(|words| words.split(' ').next().unwrap()).collect();
    assert_eq!(words, ["WriteRecord", "Demote", "Transition", "ReleaseRecord"], "{all:#?}");
    lab.edit("p0", |pod| pod.ready = true);
    let all = lab.run();
    assert!(all[0].starts_with("WriteRecord") && all[0].ends_with(" p0"), "{all:#?}");
    assert!(all.iter().any(|words| words.starts_with("Promote p0")), "{all:#?}");
}

#[test]
fn an_operator_that_leaves_demotes_and_then_lets_go() {
    let mut lab = shared(2);
    lab.desired = Desired::Leave;
    let all = lab.run();
    assert_eq!(all.last().unwrap(), "ReleaseRecord", "{all:#?}");
    assert!(all.iter().any(|words| words == "Transition nobody Leaving"), "{all:#?}");
    assert_eq!(lab.run(), NOTHING);
}

/// Shows L6.
#[test]
fn while_another_replica_may_act_the_lock_is_kept() {
    let mut lab = shared(2);
    (lab.desired, lab.alone_from) = (Desired::Leave, lab.now + Duration::from_secs(9));
    let all = lab.run();
    assert!(all.iter().any(|words| words == "Transition nobody Leaving"), "the leader is demoted at once: {all:#?}");
    assert!(!all.contains(&"ReleaseRecord".into()), "{all:#?}");
    assert!(lab.election.is_unfinished(), "who stops waits for that");
    assert_eq!(lab.election.wake(), Some(lab.alone_from));
    lab.now = lab.alone_from;
    assert_eq!(lab.run(), ["ReleaseRecord"]);
    assert!(!lab.election.is_unfinished());
}

#[test]
fn when_the_validity_ends_the_leader_is_demoted_though_the_store_says_nothing() {
    let mut lab = shared(2);
    lab.now = lab.now + Duration::from_secs(12);
    let all = lab.run();
    assert_eq!(all.len(), 2, "{all:#?}");
    assert!(all[0].starts_with("Demote p0"), "{all:#?}");
    assert_eq!(all[1], "Transition nobody StoreLost");
    assert_eq!(*lab.election.situation(), Situation::StoreLost);
    // The store answers again, and the lock is still there: the same leader, under a new term.
    let before = lab.record().term;
    lab.policy.validity = LockValidity::Until(lab.now + Duration::from_secs(12));
    let all = lab.run();
    assert_eq!(all[0], "ReadRecord");
    assert!(all.iter().any(|words| words.starts_with("Promote p0")), "{all:#?}");
    assert!(lab.record().term > before);
}

/// A session of the TTL that `shared` is kept by, made now.
fn session(lab: &Lab) -> SessionLife {
    let ttl = Duration::from_secs(15);
    let mut life = SessionLife::new("lictor/0", SessionParameters { ttl });
    life.looked_up(vec![], lab.now);
    life.created("s".into(), ttl, lab.now, lab.now);
    life
}

#[test]
fn a_session_that_ended_is_told_as_a_lost_lock_whichever_watch_brings_it_first() {
    for key_first in [false, true] {
        let mut lab = shared(2);
        let (record, mut life) = (lab.record(), session(&lab));
        let free = |lab: &mut Lab| lab.store(|version| Stored::Free(version, Some(record.clone()), None));
        let mut due = Vec::new();
        if key_first {
            free(&mut lab);
            due = lab.step();
        }
        life.lost("s", lab.now);
        lab.policy.validity = life.validity(lab.now);
        for command in due {
            if let Some((op, outcome)) = lab.answer(&command, &in_words(&command)) {
                lab.election.take(op, outcome, lab.now);
            }
        }
        let all = lab.run();
        let told = all.iter().find(|words| words.starts_with("Transition nobody"));
        assert_eq!(told.map(String::as_str), Some("Transition nobody LockLost"), "{all:#?}");
        assert_eq!(*lab.election.situation(), Situation::LockLost);
        assert!(!lab.election.is_unconfirmed(), "the store has answered");
        // The other one changes nothing of that.
        free(&mut lab);
        assert_eq!(lab.run(), NOTHING);
        lab.policy.validity = LockValidity::Until(lab.now + Duration::from_secs(12));
        let all = lab.run();
        assert!(all.iter().any(|words| words.starts_with("Promote p0")), "{all:#?}");
    }
}

#[test]
fn that_the_store_was_put_back_is_told_whether_the_session_or_the_lock_is_missed_first() {
    for validity in [
        LockValidity::Ended,
        LockValidity::Lapsed,
        LockValidity::Until(Instant::after_origin(Duration::from_secs(1000))),
    ] {
        let mut lab = shared(2);
        lab.policy.validity = validity;
        if validity.lasts(lab.now) {
            lab.store(|_| Stored::Absent);
        }
        // The first that is heard of, and then why.
        lab.step();
        lab.policy.not_before = lab.now + Duration::from_secs(10);
        let name = lab.pods["p0"].clone();
        lab.put(Pod { labels: Pairs::from([("app".into(), "web".into())]), ..name });
        let all = lab.run();
        assert!(all.contains(&"Transition nobody StoreRewound".to_owned()), "{all:#?}");
        assert_eq!(*lab.election.situation(), Situation::StoreRewound);
    }
}

#[test]
fn a_promotion_that_is_due_is_not_sent_after_the_validity() {
    let mut lab = shared(2);
    lab.unready("p0");
    let write = lab.step();
    for command in write {
        let words = in_words(&command);
        let (op, outcome) = lab.answer(&command, &words).unwrap();
        lab.election.take(op, outcome, lab.now);
    }
    lab.now = lab.now + Duration::from_secs(12);
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("Promote")), "{all:#?}");
}

#[test]
fn with_keep_the_leader_stays_while_the_store_is_silent_and_goes_when_somebody_else_holds_the_lock() {
    let mut lab = shared(2);
    lab.policy.when_lost = WhenLost::Keep;
    lab.now = lab.now + Duration::from_secs(12);
    assert_eq!(lab.run(), NOTHING);
    lab.store(|version| Stored::HeldByOther(version, rival()));
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("Demote p0")), "{all:#?}");
    assert!(all.iter().any(|words| words == "LedElsewhere east"), "{all:#?}");
}

#[test]
fn a_lock_that_is_lost_costs_the_label_and_is_taken_again_for_the_same_pod() {
    let mut lab = shared(3);
    lab.edit("p2", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "9".into())));
    let record = lab.record();
    lab.store(|version| Stored::Free(version, Some(record), None));
    let free = lab.stored.clone();
    lab.instead("WriteRecord", Outcome::RecordWritten(RecordOutcome::Delayed));
    let all = lab.run();
    assert!(all[0].starts_with("Demote p0"), "{all:#?}");
    assert!(all.contains(&"Transition nobody LockLost".to_owned()), "{all:#?}");
    assert!(!all.iter().any(|words| words.starts_with("Promote")), "the store still delays: {all:#?}");
    lab.stored = free;
    lab.now = lab.now + Duration::from_secs(1);
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("Promote p0")), "{all:#?}");
    assert_eq!(all.last().unwrap(), "Transition p0 LockLost");
}

#[test]
fn a_deleted_shared_lock_is_made_anew_for_the_same_pod_after_its_label_is_off() {
    let mut lab = shared(2);
    lab.store(|_| Stored::Absent);
    let all = lab.run();
    assert!(all[0].starts_with("Demote p0"), "{all:#?}");
    assert!(all.iter().any(|words| words.starts_with("Promote p0")), "{all:#?}");
}

#[test]
fn what_somebody_else_holds_is_followed_even_while_frozen() {
    for desired in [Desired::Run, Desired::Freeze] {
        let mut lab = shared(2);
        lab.desired = desired;
        lab.store(|version| Stored::HeldByOther(version, rival()));
        let all = lab.run();
        assert!(all.iter().any(|words| words.starts_with("Demote p0")), "{all:#?}");
        assert!(all.iter().all(|words| !words.starts_with("WriteRecord")), "{all:#?}");
        assert_eq!(*lab.election.situation(), Situation::LedElsewhere(Box::new(rival())));
        assert_eq!(lab.election.leader(), None);
        assert!(lab.election.term() >= Term(500));
        assert_eq!(lab.run(), NOTHING);
    }
}

#[test]
fn a_lock_that_another_cluster_let_go_of_is_taken_under_a_higher_term() {
    let mut lab = shared(2);
    lab.store(|version| Stored::HeldByOther(version, rival()));
    lab.run();
    lab.store(|version| Stored::Free(version, None, None));
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("Promote")), "{all:#?}");
    assert!(lab.record().term > Term(500), "{:?}", lab.record().term);
}

#[test]
fn an_operator_that_starts_without_the_store_demotes_before_anything_else() {
    let mut lab = shared(2);
    lab.policy.validity = LockValidity::Lapsed;
    lab.election = Election::new("web".into(), uid("e"), "other".into(), None, lab.last_op);
    let all = lab.run();
    assert_eq!(all.len(), 1, "{all:#?}");
    assert!(all[0].starts_with("Demote p0"), "{all:#?}");
}

#[test]
fn a_withdrawn_election_leaves_the_lock_of_others_alone() {
    for held in [true, false] {
        let mut lab = shared(2);
        lab.store(
            |version| if held { Stored::HeldByOther(version, rival()) } else { Stored::Free(version, None, None) },
        );
        lab.desired = Desired::Withdraw;
        let all = lab.run();
        assert!(!all.iter().any(|words| words.contains("Record") && !words.starts_with("Read")), "{all:#?}");
        assert!(lab.pods.values().all(|pod| !pod.labels.contains_key("role")), "{all:#?}");
        assert_eq!(*lab.election.situation(), Situation::Withdrawn);
    }
}

fn role(lab: &Lab) -> &str {
    lab.pods["p0"].labels.get("role").unwrap_or_default()
}

#[test]
fn a_lock_that_vanishes_while_another_cluster_leads_is_left_alone_for_a_while() {
    for released in [false, true] {
        let mut lab = shared(1);
        lab.policy.grace = Duration::from_secs(10);
        let holder = Holder { pod: Some("b".into()), uid: uid("b"), node: None, ip: None };
        let led = Rival { holder: Some(holder), ..rival() };
        lab.store(|version| Stored::HeldByOther(version, led));
        lab.run();
        assert_eq!(role(&lab), "follower");
        if released {
            lab.store(|version| Stored::HeldByOther(version, rival()));
            lab.run();
        }
        lab.store(|_| Stored::Absent);
        lab.run();
        if !released {
            assert_eq!((role(&lab), lab.election.situation()), ("follower", &Situation::LockLost));
            assert_eq!(lab.election.wake(), Some(lab.now + Duration::from_secs(10)));
            lab.now = lab.now + Duration::from_secs(10);
            lab.policy.validity = LockValidity::Until(lab.now + Duration::from_secs(12));
            lab.run();
        }
        assert_eq!(role(&lab), "leader", "it had let go: {released}");
    }
}

/// Somebody writes into the other cluster's lock by hand. Whether that cluster may still lead depends on the session's id alone, and
/// not on what a person called the session, nor on an id that begins like another one.
#[test]
fn who_holds_an_overwritten_lock_is_known_by_the_id_of_its_session() {
    for (session, described, still_leads) in [
        ("s-1", "the session \"x\" of the node n (s-1)", true),
        ("s-12", "the session \"x\" of the node n (s-12)", false),
        ("s-2", "the session \"after s-1\" of the node n (s-2)", false),
    ] {
        let mut lab = shared(1);
        lab.policy.grace = Duration::from_secs(10);
        let holder = Holder { pod: Some("b".into()), uid: uid("b"), node: None, ip: None };
        let led = Rival { holder: Some(holder), session: "s-1".into(), ..rival() };
        lab.store(|version| Stored::HeldByOther(version, led));
        lab.run();
        let (session, described) = (session.into(), Some(described.into()));
        let overwritten = Rival { session, described, ..Rival::default() };
        lab.store(|version| Stored::HeldByOther(version, overwritten));
        lab.run();
        lab.store(|_| Stored::Absent);
        lab.run();
        assert_eq!(*lab.election.situation() == Situation::LockLost, still_leads, "{:?}", lab.election.situation());
    }
}

/// Shows C7.
#[test]
fn after_the_store_was_put_back_only_who_leads_already_leads() {
    let mut lab = shared(1);
    lab.policy.not_before = lab.now + Duration::from_secs(10);
    assert_eq!(lab.run(), Vec::<String>::new());
    assert_eq!(*lab.election.situation(), Situation::Led);

    let mut lab = Lab::new(1);
    lab.policy = LockPolicy {
        shared: true,
        validity: LockValidity::Until(lab.now + Duration::from_secs(30)),
        ..LockPolicy::ALONE
    };
    lab.policy.not_before = lab.now + Duration::from_secs(10);
    lab.run();
    assert_eq!((role(&lab), lab.election.situation()), ("follower", &Situation::StoreRewound));
    assert_eq!(lab.election.wake(), Some(lab.now + Duration::from_secs(10)));
    lab.now = lab.now + Duration::from_secs(10);
    lab.run();
    assert_eq!(role(&lab), "leader");

    // A moment that has come is not waited for.
    let mut lab = shared(1);
    (lab.policy.validity, lab.policy.not_before) = (LockValidity::Lapsed, lab.now);
    lab.run();
    assert_eq!((lab.election.situation(), lab.election.wake()), (&Situation::StoreLost, None));
}

#[test]
fn after_a_restart_a_lock_that_ran_out_is_taken_again_for_the_same_pod_unless_an_earlier_election_left_it() {
    for (of, leader) in [("e", "p0"), ("another", "p2")] {
        let mut lab = shared(3);
        let record = Record { election: uid(of), ..lab.record() };
        lab.edit("p2", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "9".into())));
        lab.stored = Stored::Free(lab.next_version(), Some(record), None);
        let mut lab = lab.restarted();
        lab.run();
        assert_eq!(lab.leader(), Some(leader), "of election {of}");
    }
}

#[test]
fn what_is_read_counts_even_if_the_store_was_put_back() {
    let mut lab = shared(1);
    let (before, version) = (lab.stored.clone(), lab.stored.version());
    // Hidden, it looks deleted, at a later version; then it is as it was.
    lab.store(|_| Stored::Absent);
    lab.stored = before;
    lab.run();
    assert_eq!(role(&lab), "leader");
    assert_eq!(*lab.election.situation(), Situation::Led);
    assert!(lab.stored.version() >= version);
}

/// Goes on until p0 is about to be demoted; returns all that is asked for at that moment, and answers nothing of it.
fn until_demotion(lab: &mut Lab) -> Vec<String> {
    for _ in 0..10 {
        let commands = lab.step();
        let all: Vec<String> = commands.iter().map(in_words).collect();
        if all.iter().any(|words| words.starts_with("Demote p0")) {
            return all;
        }
        for (command, words) in commands.iter().zip(&all) {
            if let Some((op, outcome)) = lab.answer(command, words) {
                lab.election.take(op, outcome, lab.now);
            }
        }
    }
    panic!("p0 is not demoted")
}

/// Shows C3.
#[test]
fn a_lost_lock_is_not_taken_again_before_the_label_is_off() {
    let mut lab = shared(2);
    let record = lab.record();
    lab.store(|version| Stored::Free(version, Some(record), None));
    assert_eq!(until_demotion(&mut lab).len(), 1);
    assert_eq!(lab.run(), NOTHING, "the answer is awaited");
}

#[test]
fn a_lock_is_not_let_go_of_before_the_label_is_off() {
    let mut lab = shared(1);
    // An operator that was killed between the record that names nobody and the demotion.
    let vacated = Record { holder: None, term_by_version: false, ..lab.record() };
    lab.store(|version| Stored::Ours(version, vacated));
    lab.unready("p0");
    lab = lab.restarted();
    assert_eq!(until_demotion(&mut lab).len(), 1);
    assert_eq!(lab.run(), NOTHING, "the answer is awaited");
}

#[test]
fn a_pod_that_can_not_be_labelled_does_not_hold_up_the_demotion_of_the_leader() {
    // Refused at about 0, 0.2 and 0.5 s: at whatever moment the lock is lost.
    for steps in 1..10 {
        let mut lab = shared(2);
        lab.edit("p1", |pod| drop(pod.labels.remove("role")));
        for _ in 0..steps {
            for command in lab.step() {
                if let Effect::Request(op, Command::WritePod(_)) = &command {
                    let refused = PodOutcome::Failed(Failure::Refused("a policy".into()));
                    lab.election.take(*op, Outcome::PodWritten(refused), lab.now);
                }
            }
            lab.now = lab.now + Duration::from_millis(100);
        }
        lab.now = lab.now - Duration::from_millis(100);
        lab.store(|version| Stored::HeldByOther(version, rival()));
        let waits = until_demotion(&mut lab).iter().all(|words| !words.starts_with("Demote p1"));
        assert!(waits, "that one has its time, after {steps} steps");
    }
}
