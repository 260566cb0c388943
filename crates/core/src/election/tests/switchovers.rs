//! Switchovers: H14 and H15, what is in the way of one, and what follows from one.

use super::*;
use crate::election::forecast::forecast_by;
use crate::switchover::{Obstacle, Target};
use crate::{SwitchoverMark, Verdict as Outlook};

pub(super) fn asked(from_term: i64, to: Target) -> Asked {
    Asked { id: uid("s"), from_term: Term(from_term), to, force: false }
}

fn named(pod: &str) -> Target {
    Target::Named(pod.into())
}

impl Lab {
    /// What can be said of the one that is asked for.
    fn verdict(&mut self, asked: &Asked) -> Verdict {
        let gives_up = self.gives_up;
        self.shown(|election, view| election.judge(asked, gives_up, view))
    }

    /// Accepts it.
    fn accept(&mut self, asked: Asked) {
        assert!(matches!(self.verdict(&asked), Verdict::Ready(_)), "{:?}", self.verdict(&asked));
        self.accepted = Some(asked);
    }

    fn prioritise(&mut self, name: &str, priority: &str) {
        self.edit(name, |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), priority.into())));
    }
}

#[test]
fn a_switchover_is_a_planned_handover_in_the_next_term() {
    let mut lab = Lab::led(3);
    lab.accept(asked(1, named("p2")));
    assert_eq!(lab.run(), ["WriteRecord 2 p2", "Demote p0 2", "Promote p2 2", "Transition p2 SwitchedOver"],);
    let mark = SwitchoverMark { id: uid("s"), from: Some(uid("p0")), to: Some(uid("p2")), ..SwitchoverMark::default() };
    assert_eq!(lab.record().switchover, Some(mark), "H14: it is known of the term by which switchover it began");
    let told = lab.accepted.clone().unwrap();
    assert_eq!(lab.verdict(&told), Verdict::Done(Term(2)));
    assert_eq!(lab.run(), [""; 0], "it is carried out once");
}

#[test]
fn without_a_target_the_next_in_the_order_leads() {
    let mut lab = Lab::led(3);
    lab.prioritise("p2", "5");
    lab.accept(asked(1, Target::Any));
    lab.run();
    assert_eq!(lab.leader(), Some("p2"));
}

#[test]
fn a_switchover_replaces_only_the_term_that_it_names() {
    let mut lab = Lab::led(3);
    lab.unready("p0");
    lab.run();
    assert_eq!(lab.leader(), Some("p1"));
    let late = asked(1, named("p2"));
    assert_eq!(lab.verdict(&late), Verdict::Blocked(Obstacle::Superseded(Term(2))), "H14");
    lab.accepted = Some(late);
    assert_eq!(lab.run(), [""; 0], "H14: not even if its user was told that it is accepted");
    let early = asked(3, named("p2"));
    assert_eq!(lab.verdict(&early), Verdict::Blocked(Obstacle::NotReached(Term(2))));
    lab.accepted = Some(early);
    assert_eq!(lab.run(), [""; 0]);
}

#[test]
fn what_is_in_the_way_is_named() {
    let mut lab = Lab::led(4);
    lab.unready("p1");
    lab.edit("p2", |pod| drop(pod.annotations.insert("lictor.dev/never-leader".into(), "true".into())));
    lab.edit("p3", |pod| drop(pod.labels.insert("app".into(), "other".into())));
    lab.run();
    let forced = |to| Asked { force: true, ..asked(1, to) };
    for (asked, why) in [
        (asked(1, named("p0")), Obstacle::Leads),
        (asked(1, Target::Pod(uid("p0"))), Obstacle::Leads),
        (asked(1, named("p1")), Obstacle::NotEligible(NotEligible::NotReady)),
        (asked(1, named("p2")), Obstacle::NotEligible(NotEligible::NeverLeader)),
        (forced(named("p2")), Obstacle::NotEligible(NotEligible::NeverLeader)),
        (asked(1, named("p3")), Obstacle::NoCandidate),
        (forced(named("p3")), Obstacle::NoCandidate),
        (asked(1, named("p9")), Obstacle::NoCandidate),
        (asked(1, Target::Pod(uid("p9"))), Obstacle::NoCandidate),
        (asked(1, Target::Any), Obstacle::NobodyEligible),
    ] {
        assert_eq!(lab.verdict(&asked), Verdict::Blocked(why), "{asked:?}");
        lab.accepted = Some(asked);
        assert_eq!(lab.run(), [""; 0]);
    }
    lab.edit("p1", |pod| pod.ready = true);
    lab.desired = Desired::Freeze;
    lab.step();
    assert_eq!(lab.verdict(&asked(1, named("p1"))), Verdict::Blocked(Obstacle::Frozen));
    lab.desired = Desired::Refuse;
    lab.step();
    assert_eq!(lab.verdict(&asked(1, named("p1"))), Verdict::Blocked(Obstacle::Refused));
    lab.cluster = Some(Ok(()));
    assert_eq!(lab.verdict(&asked(1, named("p1"))), Verdict::Blocked(Obstacle::NoSelector));
}

#[test]
fn while_a_handover_is_under_way_nothing_is_said() {
    let mut lab = Lab::led(3);
    lab.unready("p0");
    lab.step();
    assert_eq!(lab.verdict(&asked(1, named("p2"))), Verdict::Unsettled);
    let mut lab = Lab::new(2);
    assert_eq!(lab.verdict(&asked(1, named("p1"))), Verdict::Unsettled);
}

#[test]
fn the_old_leader_does_not_come_back_by_its_priority_while_the_hold_lasts() {
    let mut lab = Lab::led(3);
    lab.rules.preempt = true;
    lab.prioritise("p0", "9");
    lab.prioritise("p2", "5");
    lab.accept(asked(1, named("p1")));
    lab.run();
    assert_eq!(lab.leader(), Some("p1"), "before it is told that it is complete, too");
    let until = lab.now + Duration::from_secs(300);
    lab.holds = vec![Hold { from: Some(uid("p0")), to: uid("p1"), force: false, until }];
    lab.accepted = None;
    assert_eq!(lab.run(), [""; 0], "nobody preempts the new leader");
    assert_eq!(lab.election.wake(), Some(until));
    // A failover is no preference: but the old leader comes last.
    lab.unready("p1");
    lab.run();
    assert_eq!(lab.leader(), Some("p2"));
    lab.unready("p2");
    lab.run();
    assert_eq!(lab.leader(), Some("p0"), "it leads when nobody else can");
}

#[test]
fn a_forecast_names_whom_a_switchover_holds_back_and_until_when() {
    let mut lab = Lab::led(3);
    lab.rules.preempt = true;
    lab.prioritise("p0", "9");
    lab.accept(asked(1, named("p1")));
    lab.run();
    let until = lab.now + Duration::from_secs(300);
    lab.holds = vec![Hold { from: Some(uid("p0")), to: uid("p1"), force: false, until }];
    lab.accepted = None;
    let record = lab.record();
    let forecast = |lab: &mut Lab| {
        lab.shown(|_, view| {
            let forecast = forecast_by(view, "e", &uid("e"), Some(&record));
            let told = |one: &Contender| (one.pod.name.clone(), one.held_back, one.protected);
            (forecast.verdict, forecast.contenders.iter().map(told).collect::<Vec<_>>())
        })
    };
    let stays = |verdict: &Outlook| matches!(verdict, Outlook::Stays(holder) if holder.uid == uid("p1"));
    let (verdict, contenders) = forecast(&mut lab);
    assert!(stays(&verdict), "{verdict:?}");
    let named = |name: &str, held_back, protected| (name.to_owned(), held_back, protected);
    let order = [named("p1", None, Some(until)), named("p2", None, None), named("p0", Some(until), None)];
    assert_eq!(contenders, order);
    lab.now = until;
    let (verdict, contenders) = forecast(&mut lab);
    assert!(!stays(&verdict), "{verdict:?}");
    assert_eq!(contenders[0], named("p0", None, None));
}

#[test]
fn after_the_hold_the_order_is_as_before() {
    let mut lab = Lab::led(2);
    lab.rules.preempt = true;
    lab.prioritise("p0", "9");
    lab.accept(asked(1, named("p1")));
    lab.run();
    let until = lab.now + Duration::from_secs(300);
    lab.holds = vec![Hold { from: Some(uid("p0")), to: uid("p1"), force: false, until }];
    lab.accepted = None;
    lab.now = until - Duration::from_millis(1);
    assert_eq!(lab.run(), [""; 0]);
    lab.now = until;
    lab.run();
    assert_eq!(lab.leader(), Some("p0"));
}

#[test]
fn by_force_a_pod_leads_that_is_not_ready_and_has_the_hold_to_become_so() {
    let mut lab = Lab::led(2);
    lab.unready("p1");
    lab.edit("p1", |pod| pod.node = Some("c".into()));
    lab.nodes.insert("c".into(), Node { cordoned: true, ..Node::default() });
    lab.accept(Asked { force: true, ..asked(1, named("p1")) });
    lab.run();
    assert_eq!(lab.leader(), Some("p1"));
    let until = lab.now + Duration::from_secs(300);
    lab.holds = vec![Hold { from: Some(uid("p0")), to: uid("p1"), force: true, until }];
    lab.accepted = None;
    lab.probe_failed = Some((uid("p1"), ProbeFailure::NoAnswer));
    assert_eq!(lab.run(), [""; 0]);
    // Never what a person did not ask for.
    lab.probe_failed = None;
    lab.now = until;
    lab.run();
    assert_eq!(lab.leader(), Some("p0"));
}

#[test]
fn a_forced_leader_is_replaced_when_it_is_gone() {
    let mut lab = Lab::led(2);
    lab.unready("p1");
    lab.accept(Asked { force: true, ..asked(1, named("p1")) });
    lab.run();
    lab.edit("p1", |pod| pod.deleting = true);
    lab.run();
    assert_eq!(lab.leader(), Some("p0"));
    let told = lab.accepted.clone().unwrap();
    assert_eq!(lab.verdict(&told), Verdict::Lost);
}

/// The operator is killed after the record, and before anything else.
#[test]
fn a_restarted_operator_knows_whose_term_it_is() {
    let mut lab = Lab::led(3);
    lab.accept(asked(1, named("p2")));
    let write = lab.step().remove(0);
    lab.answer(&write, "");
    let mut lab = lab.restarted();
    lab.run();
    assert_eq!(lab.leader(), Some("p2"));
    let told = lab.accepted.clone().unwrap();
    assert_eq!(
        lab.verdict(&told),
        Verdict::Done(Term(3)),
        "H14: the next operator completes it in a term of its own (H1)"
    );
    // Records that follow keep it, until the next switchover.
    lab.edit("p2", |pod| pod.deleting = true);
    lab.run();
    assert_eq!(lab.verdict(&told), Verdict::Lost);
}

#[test]
fn the_lost_answer_to_the_record_is_found_out() {
    let mut lab = Lab::led(3);
    lab.accept(asked(1, named("p2")));
    let lost = Outcome::RecordWritten(RecordOutcome::Failed(Failure::Unknown("no answer".into())));
    lab.instead("WriteRecord", lost);
    let write = lab.step().remove(0);
    let (op, outcome) = lab.answer(&write, &in_words(&write)).unwrap();
    lab.election.take(op, outcome, lab.now);
    let told = lab.accepted.clone().unwrap();
    lab.gives_up = true;
    assert_eq!(lab.verdict(&told), Verdict::Unsettled, "what is not known is no failure");
    lab.now = lab.now + Duration::from_secs(60);
    lab.run();
    assert_eq!(lab.leader(), Some("p2"));
    assert_eq!(lab.verdict(&told), Verdict::Done(Term(2)));
}

#[test]
fn who_gives_a_switchover_up_writes_that_into_the_record_first() {
    let mut lab = Lab::led(3);
    lab.accept(asked(1, named("p2")));
    // An earlier operator sends the record of the switchover, and is paused before it arrives.
    let late = lab.step().remove(0);
    let mut lab = lab.restarted();
    lab.gives_up = true;
    let told = lab.accepted.clone().unwrap();
    assert_eq!(lab.verdict(&told), Verdict::Unsettled, "H15");
    assert_eq!(lab.run(), ["WriteRecord 1 p0"], "H15");
    assert_eq!(lab.verdict(&told), Verdict::GivenUp);
    let (_, outcome) = lab.answer(&late, &in_words(&late)).unwrap();
    assert_eq!(outcome, Outcome::RecordWritten(RecordOutcome::Conflict), "H15: it comes too late");
    // Another one that acts at the same time, and has not heard, reads the record.
    let mut lab = lab.restarted();
    lab.gives_up = false;
    assert_eq!(lab.run(), [""; 0], "H15");
    assert_eq!(lab.verdict(&told), Verdict::GivenUp);
}

#[test]
fn one_that_was_carried_out_meanwhile_is_not_given_up() {
    let mut lab = Lab::led(3);
    lab.accept(asked(1, named("p2")));
    let write = lab.step().remove(0);
    lab.answer(&write, "");
    let mut lab = lab.restarted();
    lab.gives_up = true;
    lab.run();
    let told = lab.accepted.clone().unwrap();
    assert_eq!(lab.verdict(&told), Verdict::Done(Term(3)), "H14");
    assert_eq!(lab.leader(), Some("p2"));
}

#[test]
fn one_whose_term_is_over_needs_no_record_to_be_given_up() {
    let mut lab = Lab::led(3);
    lab.accept(asked(1, Target::Pod(uid("p2"))));
    lab.accepted = None;
    lab.edit("p0", |pod| pod.deleting = true);
    lab.run();
    lab.gives_up = true;
    lab.accepted = Some(asked(1, Target::Pod(uid("p2"))));
    assert_eq!(lab.run(), [""; 0]);
    let told = lab.accepted.clone().unwrap();
    assert_eq!(lab.verdict(&told), Verdict::GivenUp);
}

/// Somebody does away with the lock, or gives it another name.
#[test]
fn what_became_of_a_switchover_is_not_lost_with_the_lock() {
    for renamed in [false, true] {
        let mut lab = Lab::led(2);
        lab.accept(asked(1, named("p1")));
        lab.run();
        let told = lab.accepted.clone().unwrap();
        let before = std::mem::replace(&mut lab.stored, Stored::Absent);
        if renamed {
            // What is left in it, until it is deleted.
            let emptied = Record { holder: None, ..before.record().cloned().unwrap() };
            lab.strays = vec![(Key::lease("", "old"), Stored::Ours(Version(300), emptied))];
            lab = lab.restarted();
        } else {
            lab.store(|_| Stored::Absent);
        }
        let mut recorded = None;
        for _ in 0..6 {
            for effect in lab.step() {
                if let Some((op, outcome)) = lab.answer(&effect, &in_words(&effect)) {
                    lab.election.take(op, outcome, lab.now);
                }
                recorded = lab.stored.record().cloned().or(recorded);
            }
        }
        let mark = recorded.and_then(|record| record.switchover);
        assert_eq!(mark.map(|mark| mark.id), Some(told.id), "renamed: {renamed}");
    }
}

#[test]
fn another_pod_of_the_same_name_is_not_meant() {
    let mut lab = Lab::led(3);
    lab.accept(asked(1, Target::Pod(uid("p2"))));
    lab.edit("p2", |pod| pod.uid = uid("another"));
    let told = lab.accepted.clone().unwrap();
    assert_eq!(lab.verdict(&told), Verdict::Blocked(Obstacle::NoCandidate));
    assert_eq!(lab.run(), [""; 0]);
}
