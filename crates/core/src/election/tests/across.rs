//! Switchovers to another cluster: C11 to C13. Here is the west; what the east does, the test says, and the other way round.

use super::*;
use crate::switchover::{Obstacle, Target};
use crate::{Bid, Holder, Offer, SwitchoverMark};

const WITHIN: Duration = Duration::from_secs(5);

pub(super) fn placed(cluster: &str, version: Version, bid: Bid) -> PlacedBid {
    let (namespace, name) = ("there".to_owned(), "web".to_owned());
    PlacedBid { cluster: cluster.into(), namespace, name, version, session: Some(format!("of {cluster}")), bid }
}

impl Lab {
    /// The transaction at the store.
    pub(super) fn give(&mut self, version: Version, to: &PlacedBid, record: &Record) -> RecordOutcome {
        if self.stored.version() != Some(version) || !self.bids.contains(to) {
            return RecordOutcome::Conflict;
        }
        let at = self.next_version();
        let rival = Rival {
            cluster: Some(to.cluster.clone()),
            term: record.term,
            session: to.session.clone().unwrap(),
            drain_obligation: record.drain_obligation.clone(),
            switchover: record.switchover.clone(),
            ..Rival::default()
        };
        self.stored = Stored::HeldByOther(at, rival);
        self.bids.clear();
        RecordOutcome::Written(at)
    }

    /// The east answers the present record.
    fn answer_offer(&mut self, eligible: bool) {
        let version = self.next_version();
        let scope = scope("part");
        let record =
            Record { holder: None, election: uid("far"), scope, offer: None, switchover: None, ..self.record() };
        let saw = self.stored.version().unwrap();
        self.bids = vec![placed("east", version, Bid { switchover: uid("s"), saw, eligible, record })];
    }

    fn verdict_of(&mut self) -> Verdict {
        let (asked, gives_up) = (self.accepted.clone().unwrap(), self.gives_up);
        self.shown(|election, view| election.judge(&asked, gives_up, view))
    }

    fn later_by(&mut self, by: Duration) {
        self.now = self.now + by;
    }
}

/// Leads, and its user was told that a switchover to the east is accepted.
fn asked(mut lab: Lab) -> Lab {
    lab.policy.validity = LockValidity::Until(lab.now + Duration::from_secs(3600));
    let (from_term, to) = (lab.record().term, Target::Cluster("east".into()));
    let asked = Asked { id: uid("s"), from_term, to, force: false };
    assert_eq!(lab.shown(|election, view| election.judge(&asked, false, view)), Verdict::ReadyElsewhere);
    lab.accepted = Some(asked);
    lab
}

/// The lock is offered, too.
fn offered(pods: usize) -> Lab {
    let mut lab = asked(shared(pods));
    let term = lab.record().term;
    assert_eq!(lab.run(), [format!("WriteRecord {term} p0")]);
    assert_eq!(lab.record().offer, Some(Offer { switchover: uid("s"), cluster: "east".into() }));
    assert_eq!(lab.run(), NOTHING, "C12: nobody is demoted before the other cluster has answered");
    assert_eq!(lab.verdict_of(), Verdict::Unsettled);
    lab
}

/// Nobody leads here any more.
fn vacated(pods: usize) -> Lab {
    let mut lab = offered(pods);
    lab.answer_offer(true);
    let term = lab.record().term;
    let all = lab.run();
    assert_eq!(all[0], format!("WriteRecord {term} nobody"), "{all:#?}");
    assert!(all[1].starts_with("Demote p0") && all[2] == "Transition nobody SwitchedOver", "{all:#?}");
    assert_eq!(all.len(), 3, "C12: it has answered an earlier record: {all:#?}");
    assert_eq!(lab.verdict_of(), Verdict::UnderWay);
    assert_eq!(lab.leader(), None);
    lab
}

/// Shows C11 and C12.
#[test]
fn the_lock_is_handed_over_when_nobody_leads_here_and_the_other_cluster_has_answered_that() {
    let mut lab = vacated(2);
    let term = lab.record().term;
    lab.answer_offer(true);
    let bid = lab.bids[0].bid.clone();
    assert_eq!(lab.run(), [format!("GiveRecord {term} east"), "LedElsewhere east".into()]);
    let Stored::HeldByOther(_, rival) = lab.stored.clone() else { panic!("{:?}", lab.stored) };
    let mark = SwitchoverMark { id: uid("s"), cluster: Some("east".into()), ..SwitchoverMark::default() };
    assert_eq!((rival.switchover.clone(), rival.term), (Some(mark), term));
    assert_eq!(bid.record.scope, scope("part"), "C13: what is written on pods there is not what is written here");
    assert_eq!(lab.verdict_of(), Verdict::UnderWay, "nobody leads there yet");
    let leads = Holder { pod: Some("q0".into()), uid: uid("q0"), node: None, ip: None };
    let rival = Rival { holder: Some(leads.clone()), term: Term(900), ..rival.clone() };
    lab.store(|version| Stored::HeldByOther(version, rival));
    assert_eq!(lab.run(), ["LedElsewhere east"]);
    assert_eq!(lab.verdict_of(), Verdict::DoneElsewhere(Term(900), leads));
}

/// Shows C6: the other cluster may lead already, although this one has not seen its record.
#[test]
fn a_lock_that_vanishes_after_it_was_handed_over_is_left_alone_for_a_ttl() {
    let mut lab = vacated(2);
    lab.policy.grace = Duration::from_secs(15);
    lab.answer_offer(true);
    lab.run();
    lab.store(|_| Stored::Absent);
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("WriteRecord")), "{all:#?}");
    assert_eq!(*lab.election.situation(), Situation::LockLost);
    lab.now = lab.now + Duration::from_secs(15);
    let all = lab.run();
    assert!(all[0].starts_with("WriteRecord"), "{all:#?}");
}

/// Shows C12.
#[test]
fn without_an_answer_nobody_is_demoted() {
    let mut lab = offered(2);
    lab.later_by(WITHIN);
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(lab.verdict_of(), Verdict::Blocked(Obstacle::NotReady { answers: false }));
    lab.answer_offer(false);
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(lab.verdict_of(), Verdict::Blocked(Obstacle::NotReady { answers: true }));
    // One of an ended session, of another record, of another cluster or for another switchover is none.
    for spoil in [
        |placed: &mut PlacedBid| placed.session = None,
        |placed: &mut PlacedBid| placed.bid.saw = Version(1),
        |placed: &mut PlacedBid| placed.cluster = "north".into(),
        |placed: &mut PlacedBid| placed.bid.switchover = uid("t"),
    ] {
        lab.answer_offer(true);
        spoil(&mut lab.bids[0]);
        assert_eq!(lab.run(), NOTHING, "{:?}", lab.bids);
    }
    // It waited for long, and comes at last.
    lab.answer_offer(true);
    assert!(lab.run()[0].ends_with("nobody"));
}

/// Shows C12: in a bucket, the other cluster looks only every so often.
#[test]
fn the_answer_of_a_cluster_that_sees_the_offer_late_is_awaited() {
    let mut lab = offered(2);
    lab.policy.seen_after = Duration::from_secs(10);
    let mut lab = lab.restarted();
    lab.run();
    lab.later_by(WITHIN);
    lab.run();
    assert_eq!(lab.verdict_of(), Verdict::Unsettled);
    lab.later_by(Duration::from_secs(10));
    lab.run();
    assert_eq!(lab.verdict_of(), Verdict::Blocked(Obstacle::NotReady { answers: false }));
}

/// Shows H15.
#[test]
fn what_is_given_up_is_taken_back_from_the_record_and_the_answer_goes() {
    let mut lab = offered(2);
    lab.answer_offer(false);
    lab.gives_up = true;
    let term = lab.record().term;
    assert_eq!(lab.run(), [format!("WriteRecord {term} p0"), "RemoveBid east".into()]);
    assert_eq!(lab.verdict_of(), Verdict::GivenUp);
    assert_eq!((lab.record().offer, lab.record().switchover), (None, Some(SwitchoverMark::given_up(uid("s")))), "H15");
    // The same where the Switchover is deleted.
    let mut lab = offered(2);
    lab.accepted = None;
    assert_eq!(lab.run(), [format!("WriteRecord {} p0", lab.record().term)]);
    assert_eq!(lab.record().offer, None);
}

/// Shows C12.
#[test]
fn who_gets_no_answer_when_nobody_leads_elects_again_in_a_new_term() {
    for spoil in [
        // It can't lead any more.
        |lab: &mut Lab| lab.answer_offer(false),
        // It says nothing.
        |lab: &mut Lab| {
            assert_eq!(lab.election.wake(), Some(lab.now + WITHIN));
            lab.later_by(WITHIN);
        },
        // The user takes it back.
        |lab: &mut Lab| lab.accepted = None,
    ] {
        let mut lab = vacated(2);
        let asked = lab.accepted.clone().unwrap();
        spoil(&mut lab);
        let all = lab.run();
        assert!(all.iter().any(|words| words.starts_with("Promote")), "{all:#?}");
        assert!(lab.record().term > asked.from_term && lab.record().offer.is_none());
        lab.accepted = Some(asked);
        assert_eq!(lab.verdict_of(), Verdict::GivenUp, "it is carried out never again");
        assert!(lab.run().iter().all(|words| words == "RemoveBid east"));
    }
}

/// As `vacated`, of a cluster that is the candidate itself, with workloads whose pods take up to 35 s to end.
fn vacated_with_workloads() -> Lab {
    let mut lab = workloads::leading();
    lab.policy.silence = Duration::ZERO;
    lab = asked(lab);
    lab.run();
    lab.workload("worker").running = 2;
    lab.workload("worker").remains = true;
    lab.answer_offer(true);
    let all = lab.run();
    assert!(all.contains(&"Disable Deployment/worker Replicas(0)".into()), "{all:#?}");
    lab.answer_offer(true);
    assert_eq!(lab.run(), NOTHING, "W3: its pods still run");
    lab
}

/// Shows W12.
#[test]
fn whose_pods_are_seen_to_run_when_they_have_had_their_time_leads_on() {
    let mut lab = vacated_with_workloads();
    lab.later_by(Duration::from_millis(34_999));
    assert_eq!(lab.run(), NOTHING);
    lab.later_by(Duration::from_millis(1));
    let from_term = lab.accepted.as_ref().unwrap().from_term;
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("GiveRecord")), "{all:#?}");
    assert!(all.iter().any(|words| words.starts_with("Enable Deployment/worker")), "{all:#?}");
    let record = lab.record();
    assert!(record.holder.is_some() && record.term > from_term, "{record:?}");
    let remains = [("Deployment/worker".to_owned(), 2)].into();
    assert_eq!(record.switchover, Some(SwitchoverMark { remains, ..SwitchoverMark::given_up(uid("s")) }));
    assert_eq!(lab.verdict_of(), Verdict::GivenUp);
    // They end just in time.
    let mut lab = vacated_with_workloads();
    lab.later_by(Duration::from_millis(34_999));
    (lab.workload("worker").running, lab.workload("worker").remains) = (0, false);
    let mut all = lab.run();
    lab.answer_offer(true);
    all.extend(lab.run());
    assert!(all.iter().any(|words| words.starts_with("GiveRecord")), "{all:#?}");
    // What is not seen to run has had its time.
    let mut lab = vacated_with_workloads();
    lab.workload("worker").running = 0;
    lab.later_by(Duration::from_secs(35));
    let mut all = lab.run();
    lab.answer_offer(true);
    all.extend(lab.run());
    assert!(all.iter().any(|words| words.starts_with("GiveRecord")), "{all:#?}");
}

/// Shows W12.
#[test]
fn who_stops_keeps_the_lock_while_pods_are_seen_to_run() {
    let mut lab = workloads::leading();
    (lab.workload("worker").running, lab.workload("worker").remains) = (2, true);
    lab.desired = Desired::Leave;
    lab.run();
    lab.later_by(Duration::from_secs(40));
    let all = lab.run();
    assert!(!all.contains(&"ReleaseRecord".into()) && lab.election.winding_down().is_some(), "{all:#?}");
    (lab.workload("worker").running, lab.workload("worker").remains) = (0, false);
    assert_eq!(lab.run().last().unwrap(), "ReleaseRecord");
}

/// Shows W12.
#[test]
fn the_other_cluster_hears_once_why_it_does_not_lead() {
    let mut lab = invited(1);
    lab.run();
    let Stored::HeldByOther(_, rival) = lab.stored.clone() else { panic!("{:?}", lab.stored) };
    let remains = BTreeMap::from([("Deployment/worker".to_owned(), 2)]);
    let mark = SwitchoverMark { remains, ..SwitchoverMark::given_up(uid("s")) };
    let stays = Rival { switchover: Some(mark), offer: None, ..rival };
    lab.store(|version| Stored::HeldByOther(version, stays.clone()));
    let told = "NotHandedOver east {\"Deployment/worker\": 2}".to_owned();
    assert!(lab.run().contains(&told));
    lab.store(|version| Stored::HeldByOther(version, Rival { term: Term(999), ..stays }));
    assert!(!lab.run().contains(&told));
    let mut lab = lab.restarted();
    assert!(!lab.run().contains(&told));
}

impl Lab {
    /// The east answers, and the transaction has this outcome, and no effect.
    fn fails_to_give(&mut self, outcome: RecordOutcome) {
        let (stored, bids) = (self.stored.clone(), self.bids.clone());
        self.instead("GiveRecord", Outcome::RecordWritten(outcome));
        let all = (0..3).find_map(|_| {
            let effects = self.step();
            let effect = effects.iter().find(|effect| in_words(effect).starts_with("GiveRecord")).cloned();
            for other in effects.iter().filter(|other| Some(*other) != effect.as_ref()) {
                if let Some((op, outcome)) = self.answer(other, &in_words(other)) {
                    self.election.take(op, outcome, self.now);
                }
            }
            effect
        });
        let effect = all.expect("the lock is handed over");
        let (op, outcome) = self.answer(&effect, &in_words(&effect)).unwrap();
        (self.stored, self.bids) = (stored, bids);
        self.election.take(op, outcome, self.now);
    }
}

/// Shows C11.
#[test]
fn a_store_that_refuses_leaves_the_leadership_here() {
    let mut lab = vacated(2);
    lab.answer_offer(true);
    lab.fails_to_give(RecordOutcome::Failed(Failure::Refused("no such session".into())));
    lab.later_by(Duration::from_secs(1));
    assert_eq!(lab.run(), NOTHING, "that session has ended, and another bid may come");
    lab.later_by(WITHIN);
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("Promote")), "{all:#?}");
    // Another bid came.
    let mut lab = vacated(2);
    lab.answer_offer(true);
    lab.fails_to_give(RecordOutcome::Conflict);
    assert_eq!(lab.run(), ["ReadRecord"]);
    lab.answer_offer(true);
    assert!(lab.run()[0].starts_with("GiveRecord"));
}

/// Shows C11.
#[test]
fn a_lost_answer_of_the_transaction_is_read_again() {
    let lost = || RecordOutcome::Failed(Failure::Unknown("timed out".into()));
    // It was carried out.
    let mut lab = vacated(2);
    lab.answer_offer(true);
    lab.instead("GiveRecord", Outcome::RecordWritten(lost()));
    let all = lab.run();
    assert_eq!(all.len(), 1, "{all:#?}");
    lab.later_by(Duration::from_secs(1));
    assert_eq!(lab.run(), ["ReadRecord", "LedElsewhere east"]);
    assert_eq!(lab.verdict_of(), Verdict::UnderWay);
    // It was not, or is not yet: then it is sent again, for the same version.
    let mut lab = vacated(2);
    lab.answer_offer(true);
    for _ in 0..2 {
        lab.fails_to_give(lost());
        lab.later_by(Duration::from_secs(1));
    }
    let all = lab.run();
    assert_eq!(all[0], "ReadRecord", "{all:#?}");
    assert!(all[1].starts_with("GiveRecord"), "{all:#?}");
    // A store that never answers is not waited for.
    let mut lab = vacated(2);
    lab.answer_offer(true);
    lab.fails_to_give(lost());
    lab.later_by(WITHIN);
    let all = lab.run();
    assert!(all[1].starts_with("WriteRecord") && !all[1].ends_with("nobody"), "{all:#?}");
}

/// Shows C12.
#[test]
fn the_next_operator_hands_over_or_elects_again() {
    // It goes on.
    let mut lab = vacated(2).restarted();
    lab.answer_offer(true);
    let all = lab.run();
    assert!(all.iter().any(|words| words.starts_with("GiveRecord")), "{all:#?}");
    assert!(!all.iter().any(|words| words.starts_with("Promote")), "{all:#?}");
    // Nobody answers it.
    let mut lab = vacated(2).restarted();
    lab.run();
    assert_eq!(lab.leader(), None);
    lab.later_by(WITHIN);
    lab.run();
    assert!(lab.leader().is_some());
    // It finds that it is done.
    let mut lab = vacated(2);
    lab.answer_offer(true);
    lab.run();
    let mut lab = lab.restarted();
    lab.run();
    assert_eq!(lab.verdict_of(), Verdict::UnderWay);
}

/// Shows C11 and L6.
#[test]
fn while_another_replica_may_act_the_lock_is_not_handed_over() {
    let mut lab = vacated(2);
    lab.alone_from = lab.now + Duration::from_secs(9);
    lab.answer_offer(true);
    assert_eq!(lab.run(), NOTHING, "L6");
    lab.later_by(Duration::from_secs(9));
    assert!(lab.run()[0].starts_with("GiveRecord"));
}

#[test]
fn a_failover_meanwhile_ends_the_offer() {
    let mut lab = offered(2);
    lab.unready("p0");
    lab.run();
    assert_eq!((lab.leader(), lab.record().offer), (Some("p1"), None));
    assert!(matches!(lab.verdict_of(), Verdict::Blocked(Obstacle::Superseded(_))), "H14");
    assert_eq!(lab.record().switchover, None);
}

#[test]
fn what_is_in_the_way_of_another_cluster_is_named() {
    let of = |term: Term| Asked { id: uid("s"), from_term: term, to: Target::Cluster("east".into()), force: false };
    let judge = |lab: &mut Lab, asked: &Asked| lab.shown(|election, view| election.judge(asked, false, view));
    let mut alone = Lab::led(2);
    assert_eq!(judge(&mut alone, &of(Term(1))), Verdict::Blocked(Obstacle::NotShared));
    let mut lab = shared(2);
    let present = lab.record().term;
    assert_eq!(judge(&mut lab, &of(Term(present.0 - 1))), Verdict::Blocked(Obstacle::Superseded(present)));
    assert_eq!(judge(&mut lab, &of(present.next())), Verdict::Blocked(Obstacle::NotReached(present)));
    lab.store(|version| Stored::HeldByOther(version, rival()));
    lab.run();
    assert_eq!(judge(&mut lab, &of(present)), Verdict::Blocked(Obstacle::LedElsewhere));
}

// The other cluster.

/// Another cluster leads, and offers the lock to this one.
fn invited(pods: usize) -> Lab {
    let mut lab = Lab::new(pods);
    let validity = LockValidity::Until(lab.now + Duration::from_secs(3600));
    lab.policy = LockPolicy { shared: true, validity, ..LockPolicy::ALONE };
    let holder = Some(Holder { pod: Some("q0".into()), uid: uid("q0"), node: None, ip: None });
    let offer = Some(Offer { switchover: uid("s"), cluster: "west".into() });
    lab.store(|version| Stored::HeldByOther(version, Rival { holder, offer, ..rival() }));
    lab
}

fn seen(lab: &Lab) -> Version {
    let Stored::HeldByOther(version, _) = &lab.stored else { panic!("{:?}", lab.stored) };
    *version
}

/// Shows C12.
#[test]
fn an_offer_is_answered_for_each_record_and_when_the_answer_changes() {
    let mut lab = invited(1);
    let first = seen(&lab);
    assert_eq!(lab.run(), ["LedElsewhere east".into(), "Demote p0 0".into(), format!("WriteBid {first} true")]);
    assert_eq!(lab.run(), NOTHING, "it is there");
    let bid = lab.bids[0].bid.clone();
    assert_eq!((bid.record.holder, bid.record.election, bid.record.scope), (None, uid("e"), scope("role")));
    lab.unready("p0");
    assert_eq!(lab.run(), [format!("WriteBid {first} false")]);
    lab.edit("p0", |pod| pod.ready = true);
    assert_eq!(lab.run(), [format!("WriteBid {first} true")]);
    let Stored::HeldByOther(_, rival) = lab.stored.clone() else { unreachable!() };
    lab.store(|version| Stored::HeldByOther(version, Rival { holder: None, ..rival }));
    assert_eq!(lab.run(), ["LedElsewhere east".into(), format!("WriteBid {} true", seen(&lab))]);
    // Its session has ended, and with it the bid.
    lab.bids[0].session = None;
    lab.bids[0].version = lab.next_version();
    assert_eq!(lab.run(), [format!("WriteBid {} true", seen(&lab))]);
    // What is not offered is not asked for.
    lab.store(|version| Stored::HeldByOther(version, super::rival()));
    lab.bids.clear();
    assert_eq!(lab.run(), NOTHING);
}

/// Shows C12.
#[test]
fn who_can_not_lead_says_so() {
    for spoil in [
        |lab: &mut Lab| lab.desired = Desired::Freeze,
        |lab: &mut Lab| lab.desired = Desired::Refuse,
        |lab: &mut Lab| lab.desired = Desired::Leave,
        |lab: &mut Lab| lab.policy.validity = LockValidity::Lapsed,
        |lab: &mut Lab| lab.policy.not_before = lab.now + WITHIN,
        |lab: &mut Lab| lab.workloads = None,
        |lab: &mut Lab| lab.unready("p0"),
    ] {
        let mut lab = invited(1);
        spoil(&mut lab);
        let first = seen(&lab);
        let all = lab.run();
        assert!(all.contains(&format!("WriteBid {first} false")), "{all:#?}");
        assert!(!all.contains(&format!("WriteBid {first} true")), "{all:#?}");
    }
}

#[test]
fn an_answer_that_is_lost_or_too_early_is_written_again() {
    for failed in [
        RecordOutcome::Failed(Failure::Unknown("timed out".into())),
        RecordOutcome::Conflict,
        RecordOutcome::Delayed,
        RecordOutcome::Failed(Failure::Refused("no".into())),
    ] {
        let mut lab = invited(1);
        lab.instead("WriteBid", Outcome::BidWritten(failed));
        let first = format!("WriteBid {} true", seen(&lab));
        assert!(lab.run().contains(&first));
        lab.bids.clear();
        lab.later_by(Duration::from_secs(1));
        assert_eq!(lab.run(), [first]);
    }
}

/// This cluster was given the lock, by what it asked for.
fn given(mut lab: Lab) -> Lab {
    lab.run();
    let asked = lab.bids.remove(0).bid.record;
    let mark = SwitchoverMark { id: uid("s"), cluster: Some("west".into()), ..SwitchoverMark::default() };
    let obligation = workloads::obligation(true, &[]);
    let drain_obligation = Some(obligation).filter(|_| lab.cluster.is_some());
    lab.store(|version| {
        Stored::Ours(version, Record { term: Term(500), switchover: Some(mark), drain_obligation, ..asked })
    });
    lab
}

/// Shows C13.
#[test]
fn who_was_given_the_lock_elects_in_a_higher_term_as_after_somebody_elses_record() {
    let mut lab = given(invited(2));
    let all = lab.run();
    assert_eq!(all[0], "ReadPod p0", "C13: {all:#?}");
    assert!(all[1].starts_with("WriteRecord") && all[1].ends_with(" p0"), "{all:#?}");
    assert_eq!(all.last().unwrap(), "Transition p0 SwitchedOver", "{all:#?}");
    assert!(lab.record().term > Term(500));
    assert_eq!(lab.record().switchover.unwrap().id, uid("s"), "who gave it reads there that it is carried out");
}

/// Shows C13 and H14.
#[test]
fn another_switchover_is_not_taken_for_the_one_that_brought_the_lock() {
    for from_term in [Term(3), Term(500)] {
        let mut lab = given(invited(2));
        let other = Asked { id: uid("t"), from_term, to: Target::Any, force: false };
        lab.accepted = Some(other);
        lab.run();
        assert_eq!(lab.record().switchover.unwrap().id, uid("s"), "from term {from_term}");
        let verdict = lab.verdict_of();
        assert!(matches!(verdict, Verdict::Blocked(Obstacle::Superseded(_))), "from term {from_term}: {verdict:?}");
    }
}

/// Shows C13.
#[test]
fn who_was_given_the_lock_and_can_not_lead_any_more_releases_it() {
    let mut lab = invited(1);
    lab.run();
    let mut lab = given(lab);
    lab.unready("p0");
    let all = lab.run();
    assert_eq!(all.last().unwrap(), "ReleaseRecord", "{all:#?}");
    assert!(!all.iter().any(|words| words.starts_with("Promote")), "{all:#?}");
}
