//! How the slices follow: R1 to R4, C3 and C5.

use super::contests::{OFTEN, written};
use super::*;
use crate::{Endpoint, Family, ServicePort, SliceContent, SliceOutcome, TargetPort};

impl Lab {
    pub(super) fn write_slice(&mut self, write: &WriteSlice) -> SliceOutcome {
        let present = self.slices.get(write.name()).cloned();
        match (write, present) {
            (WriteSlice::Create { .. }, Some(_)) => SliceOutcome::Conflict,
            (WriteSlice::Replace { uid, .. } | WriteSlice::Delete { uid, .. }, found)
                if found.as_ref().is_none_or(|found| found.uid != *uid) =>
            {
                SliceOutcome::Gone
            }
            (WriteSlice::Replace { version, .. } | WriteSlice::Delete { version, .. }, Some(found))
                if found.version != *version =>
            {
                SliceOutcome::Conflict
            }
            (WriteSlice::Create { name, content } | WriteSlice::Replace { name, content, .. }, _) => {
                SliceOutcome::Written(Box::new(self.put_slice(name, content.clone())))
            }
            (WriteSlice::Delete { name, .. }, found) => {
                self.slices.remove(name);
                SliceOutcome::Written(Box::new(found.unwrap()))
            }
        }
    }

    fn put_slice(&mut self, name: &str, content: SliceContent) -> Slice {
        let version = self.next_version();
        let uid = self.slices.get(name).map_or_else(|| uid(&format!("{name}-{version}")), |slice| slice.uid.clone());
        let slice = Slice { name: name.into(), uid, version, content, orphan_of: None };
        self.slices.insert(name.into(), slice.clone());
        slice
    }

    /// Who is reached through each slice.
    pub(super) fn reached(&self) -> Vec<String> {
        let pods = |slice: &Slice| slice.content.endpoints.iter().map(|e| e.pod.clone()).collect::<Vec<_>>().join("+");
        self.slices.values().map(pods).collect()
    }

    fn edit_slice(&mut self, name: &str, edit: impl FnOnce(&mut SliceContent)) {
        let mut content = self.slices[name].content.clone();
        edit(&mut content);
        self.put_slice(name, content);
    }

    /// Steps and answers until a request begins with these words. It is not carried out.
    fn until(&mut self, begins: &str) -> Effect {
        for _ in 0..10 {
            let mut found = None;
            for effect in self.step() {
                let words = in_words(&effect);
                if words.starts_with(begins) {
                    found = Some(effect);
                } else if let Some((op, outcome)) = self.answer(&effect, &words) {
                    self.election.take(op, outcome, self.now);
                }
            }
            if let Some(found) = found {
                return found;
            }
        }
        panic!("nothing begins with {begins}")
    }

    fn carry_out(&mut self, effect: &Effect) -> Outcome {
        let (op, outcome) = self.answer(effect, &in_words(effect)).unwrap();
        self.election.take(op, outcome.clone(), self.now);
        outcome
    }
}

const V4: &str = "s-lictor-ipv4";

fn service(families: &[Family]) -> Service {
    let port =
        ServicePort { name: String::new(), protocol: "TCP".into(), app_protocol: None, target: TargetPort::Number(80) };
    Service { name: "s".into(), families: families.to_vec(), ports: vec![port], ..Service::default() }
}

fn with_routing(mut lab: Lab, families: &[Family]) -> Lab {
    let names: Vec<String> = lab.pods.keys().cloned().collect();
    for (number, name) in names.iter().enumerate() {
        lab.edit(name, |pod| {
            (pod.ip, pod.other_ip) = (Some(format!("10.0.0.{number}")), Some(format!("fd00::{number}")));
        });
    }
    lab.service = Some(service(families));
    lab
}

/// With p0 elected, and reached.
pub(super) fn routed(pods: usize) -> Lab {
    let mut lab = with_routing(Lab::new(pods), &[Family::V4]);
    lab.run();
    assert_eq!(lab.reached(), ["p0"]);
    lab
}

/// The same, where other clusters share the lock.
fn shared_and_routed(pods: usize) -> Lab {
    let mut lab = with_routing(Lab::new(pods), &[Family::V4]);
    let validity = LockValidity::Until(lab.now + Duration::from_secs(12));
    lab.policy = LockPolicy { shared: true, validity, ..LockPolicy::ALONE };
    lab.run();
    assert_eq!(lab.reached(), ["p0"]);
    lab
}

/// Shows R2.
#[test]
fn a_slice_is_made_empty_and_written_when_the_record_was_read_after_it() {
    let mut lab = with_routing(Lab::new(2), &[Family::V4, Family::V6]);
    assert_eq!(
        lab.run(),
        [
            "WriteRecord 1 p0",
            "ListPods",
            "ListLocks",
            "ReadElection",
            "CreateSlice s-lictor-ipv4",
            "CreateSlice s-lictor-ipv6",
            "Demote p1 1",
            "ReadRecord",
            "Promote p0 1",
            "Route s-lictor-ipv4 p0 1",
            "Route s-lictor-ipv6 p0 1",
            "Transition p0 Vacant"
        ]
    );
    let addresses = lab.slices.values().map(|slice| slice.content.endpoints[0].address.as_str());
    assert_eq!(addresses.collect::<Vec<_>>(), ["10.0.0.0", "fd00::0"]);
    assert_eq!(lab.run(), NOTHING);
}

#[test]
fn a_failover_writes_the_slice_once_and_right_after_the_record() {
    let mut lab = routed(3);
    lab.unready("p0");
    assert_eq!(
        lab.run(),
        ["WriteRecord 2 p1", "Route s-lictor-ipv4 p1 2", "Demote p0 2", "Promote p1 2", "Transition p1 LeaderNotReady"]
    );
    assert_eq!(lab.run(), NOTHING);
}

#[test]
fn a_leader_that_is_deleted_or_gone_is_replaced_in_one_write() {
    for gone in [false, true] {
        let mut lab = routed(2);
        if gone {
            lab.pods.remove("p0");
        } else {
            lab.edit("p0", |pod| pod.deleting = true);
        }
        let all = lab.run();
        let slices: Vec<_> = all.iter().filter(|words| words.contains(V4)).collect();
        assert_eq!(slices, ["Route s-lictor-ipv4 p1 2"], "{all:#?}");
    }
}

#[test]
fn where_nobody_is_eligible_nobody_is_reached() {
    let mut lab = routed(2);
    lab.unready("p1");
    lab.unready("p0");
    let all = lab.run();
    assert_eq!(all[..2], ["WriteRecord 1 nobody", "Empty s-lictor-ipv4 1"]);
    assert_eq!(lab.reached(), [""]);
}

#[test]
fn while_a_leader_may_recover_its_slice_says_that_it_is_not_ready() {
    let mut lab = routed(2);
    lab.failover_delay = Duration::from_secs(5);
    lab.unready("p0");
    assert_eq!(lab.run(), ["ReadRecord", "Route s-lictor-ipv4 p0 1"]);
    let endpoint = |lab: &Lab| -> Endpoint { lab.slices[V4].content.endpoints[0].clone() };
    assert!(!endpoint(&lab).ready);
    lab.edit("p0", |pod| pod.ready = true);
    assert_eq!(lab.run(), ["ReadRecord", "Route s-lictor-ipv4 p0 1"]);
    assert!(endpoint(&lab).ready);
}

#[test]
fn what_somebody_else_writes_is_put_right_under_a_record_that_is_read_again() {
    let mut lab = routed(2);
    lab.edit_slice(V4, |content| {
        let other = Endpoint { pod: "p1".into(), ..content.endpoints[0].clone() };
        content.endpoints.push(other);
    });
    assert_eq!(lab.run(), ["ReadRecord", "Route s-lictor-ipv4 p0 1"]);
    lab.slices.clear();
    assert_eq!(lab.run(), ["CreateSlice s-lictor-ipv4", "ReadRecord", "Route s-lictor-ipv4 p0 1"]);
    lab.service.as_mut().unwrap().ports[0].target = TargetPort::Number(81);
    assert_eq!(lab.run(), ["ReadRecord", "Route s-lictor-ipv4 p0 1"]);
    assert_eq!(lab.run(), [""; 0]);
}

#[test]
fn an_operator_that_was_just_started_leaves_a_right_slice_alone_and_begins_a_term_for_a_wrong_one() {
    let mut lab = routed(2).restarted();
    assert_eq!(lab.run(), NOTHING);
    lab.edit_slice(V4, |content| content.endpoints.clear());
    let all = lab.run();
    assert!(all.contains(&"WriteRecord 2 p0".to_owned()), "{all:#?}");
    assert_eq!((lab.reached(), lab.slices[V4].content.term), (vec!["p0".to_owned()], Term(2)));
}

#[test]
fn after_somebody_elses_record_the_election_and_its_locks_are_read_first() {
    let mut lab = routed(2).restarted();
    lab.unready("p0");
    let all = lab.run();
    let at = |begins: &str| all.iter().position(|words| words.starts_with(begins)).unwrap();
    assert!(
        at("ReadElection") < at("Route") && at("ListLocks") < at("Route") && at("Route") < at("Demote"),
        "{all:#?}"
    );
    // An operator that missed that the election was deleted, writes nothing.
    let mut lab = routed(2).restarted();
    lab.unready("p0");
    lab.present = ElectionRead::Gone;
    lab.run();
    assert_eq!(lab.reached(), ["p0"]);
}

/// Shows R1.
#[test]
fn a_late_write_of_an_earlier_term_fails() {
    let mut lab = routed(3);
    lab.unready("p0");
    let late = lab.until("Route s-lictor-ipv4 p1 2");
    lab = lab.restarted();
    lab.unready("p1");
    lab.run();
    assert_eq!(lab.reached(), ["p2"]);
    assert_eq!(lab.answer_truly(command(&late)), Outcome::SliceWritten(SliceOutcome::Conflict));
}

#[test]
fn a_switch_that_meets_another_ones_write_reads_the_slice_and_then_the_record() {
    let mut lab = routed(3);
    lab.unready("p0");
    let route = lab.until("Route s-lictor-ipv4 p1 2");
    // The cache does not show it yet.
    let before = lab.slices[V4].clone();
    lab.edit_slice(V4, |content| content.term = Term(1));
    let now = lab.slices.insert(V4.into(), before).unwrap();
    lab.election.take(route.op().unwrap(), Outcome::SliceWritten(SliceOutcome::Conflict), lab.now);
    let read = lab.until("ReadSlice");
    lab.slices.insert(V4.into(), now.clone());
    lab.election.take(read.op().unwrap(), Outcome::SliceRead(Ok(Some(now))), lab.now);
    let all = lab.run();
    assert_eq!(all[..2], ["ReadRecord", "Route s-lictor-ipv4 p1 2"], "{all:#?}");
    assert_eq!(lab.reached(), ["p1"]);
    // If the record has changed meanwhile, nothing is written.
    let mut lab = routed(3);
    lab.edit_slice(V4, |content| content.endpoints.clear());
    let read = lab.until("ReadRecord");
    lab.store(|version| Stored::Ours(version, Record { operator_id: "other".into(), ..routed(1).record() }));
    lab.election.take(read.op().unwrap(), Outcome::RecordRead(Ok(lab.stored.clone())), lab.now);
    let all: Vec<String> = lab.step().iter().map(in_words).collect();
    assert!(!all.iter().any(|words| words.starts_with("Route")), "{all:#?}");
}

#[test]
fn an_answer_about_the_record_of_before_does_not_end_a_handover() {
    let mut lab = routed(3);
    lab.edit_slice(V4, |content| content.endpoints.clear());
    let read = lab.until("ReadRecord");
    lab.unready("p0");
    let written = lab.until("Demote p0 2");
    lab.election.take(read.op().unwrap(), Outcome::RecordRead(Ok(lab.stored.clone())), lab.now);
    lab.carry_out(&written);
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("WriteRecord")), "{all:#?}");
    assert_eq!((lab.leader(), lab.reached(), lab.record().term), (Some("p1"), vec!["p1".to_owned()], Term(2)));
}

#[test]
fn without_the_lock_nobody_is_reached_whatever_the_record_says() {
    let mut lab = shared_and_routed(2);
    lab.now = lab.now + Duration::from_secs(12);
    let all = lab.run();
    assert!(all[0].starts_with("Demote p0") && all[1].starts_with("Empty s-lictor-ipv4"), "{all:#?}");
    assert_eq!((lab.reached(), lab.election.situation()), (vec![String::new()], &Situation::StoreLost));
}

#[test]
fn a_switch_that_is_on_its_way_when_the_lock_is_lost_is_made_to_fail() {
    for carried_out in [false, true] {
        let mut lab = shared_and_routed(2);
        lab.unready("p0");
        let late = lab.until("Route");
        assert!(lab.election.wants(late.op().unwrap()));
        lab.edit_slice(V4, |_| {});
        lab.slices.get_mut(V4).unwrap().version = before(&late);
        lab.now = lab.now + Duration::from_secs(12);
        let commands = lab.step();
        assert!(!lab.election.wants(late.op().unwrap()));
        assert_eq!(*lab.election.situation(), Situation::HandingOver, "it may still be reached");
        let empty = commands.iter().find(|effect| in_words(effect).starts_with("Empty")).unwrap();
        if carried_out {
            lab.carry_out(&late);
            assert_eq!(lab.reached(), ["p1"]);
        }
        let outcome = lab.carry_out(empty);
        assert_eq!(outcome == Outcome::SliceWritten(SliceOutcome::Conflict), carried_out);
        lab.run();
        assert_eq!((lab.reached(), lab.election.situation()), (vec![String::new()], &Situation::StoreLost));
        if !carried_out {
            assert_eq!(lab.carry_out(&late), Outcome::SliceWritten(SliceOutcome::Conflict));
        }
    }
}

#[test]
fn the_lock_is_let_go_of_only_when_nobody_is_reached() {
    let mut lab = shared_and_routed(1);
    lab.unready("p0");
    for _ in 0..2 {
        let empty = lab.until("Empty");
        lab.election.take(empty.op().unwrap(), failed(&empty, Failure::Refused("no".into())), lab.now);
    }
    let all = lab.run();
    assert!(!all.contains(&"ReleaseRecord".to_owned()), "{all:#?}");
    assert!(lab.election.route_failure().is_some() && lab.election.wake().is_some());
    lab.now = lab.now + Duration::from_secs(1);
    let all = lab.run();
    let term = lab.slices[V4].content.term;
    assert_eq!(all, [format!("Empty s-lictor-ipv4 {term}"), "ReleaseRecord".to_owned()]);
}

#[test]
fn the_slices_of_an_election_that_goes_are_deleted_before_its_record() {
    let mut lab = routed(1);
    lab.desired = Desired::Withdraw;
    let all = lab.run();
    let at = |begins: &str| all.iter().position(|words| words.starts_with(begins)).unwrap();
    assert!(at("WriteRecord 1 nobody") < at("DeleteSlice") && at("DeleteSlice") < at("DeleteRecord"), "{all:#?}");
    assert!(lab.slices.is_empty() && *lab.election.situation() == Situation::Withdrawn);
    // What went wrong before does not keep it from being deleted.
    let mut lab = routed(2);
    lab.unready("p0");
    let route = lab.until("Route");
    lab.election.take(route.op().unwrap(), failed(&route, Failure::Refused("no".into())), lab.now);
    lab.run();
    assert!(lab.election.route_failure().is_some());
    lab.desired = Desired::Withdraw;
    for _ in 0..3 {
        let delete = lab.until("DeleteSlice");
        lab.edit_slice(V4, |_| {});
        lab.election.take(delete.op().unwrap(), Outcome::SliceWritten(SliceOutcome::Conflict), lab.now);
    }
    let all = lab.run();
    let at = |begins: &str| all.iter().position(|words| words.starts_with(begins)).unwrap();
    assert!(at("DeleteSlice") < at("DeleteRecord") && lab.slices.is_empty(), "{all:#?}");
    // One that can't be deleted goes with the election, for that owns it.
    let mut lab = routed(1);
    lab.desired = Desired::Withdraw;
    let delete = lab.until("DeleteSlice");
    lab.election.take(delete.op().unwrap(), failed(&delete, Failure::Refused("no".into())), lab.now);
    lab.run();
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
}

/// Shows C5.
#[test]
fn a_lock_that_others_want_is_not_given_up_beside_a_slice_that_shows_somebody() {
    for failure in [Failure::Refused("too many requests".into()), Failure::Unknown("no answer".into())] {
        let mut lab = shared_and_routed(1);
        lab.policy.validity = LockValidity::Until(lab.now + Duration::from_secs(3_600));
        lab.run();
        lab.desired = Desired::Withdraw;
        for _ in 0..5 {
            let delete = lab.until("DeleteSlice");
            lab.election.take(delete.op().unwrap(), failed(&delete, failure.clone()), lab.now);
            lab.run();
            assert!(matches!(lab.stored, Stored::Ours(..)) && lab.reached() == ["p0"], "{failure:?}");
            lab.now = lab.election.wake().unwrap();
        }
        lab.run();
        assert_eq!((lab.reached(), lab.election.situation()), (vec![], &Situation::Withdrawn), "{failure:?}");
    }
    // One that shows nobody holds nobody up.
    let mut lab = shared_and_routed(1);
    lab.run();
    lab.edit_slice(V4, |content| content.endpoints.clear());
    lab.desired = Desired::Withdraw;
    let delete = lab.until("DeleteSlice");
    lab.election.take(delete.op().unwrap(), failed(&delete, Failure::Refused("no".into())), lab.now);
    lab.run();
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
}

#[test]
fn when_another_service_is_named_its_slice_is_right_before_the_old_one_goes() {
    let mut lab = routed(2);
    lab.service.as_mut().unwrap().name = "t".into();
    assert_eq!(
        lab.run(),
        ["CreateSlice t-lictor-ipv4", "ReadRecord", "Route t-lictor-ipv4 p0 1", "DeleteSlice s-lictor-ipv4"]
    );
    lab.service = None;
    assert_eq!(lab.run(), ["DeleteSlice t-lictor-ipv4"]);
}

#[test]
fn through_a_service_that_cant_be_used_nobody_else_than_the_leader_is_reached() {
    let mut lab = routed(2);
    lab.unusable = true;
    assert_eq!(lab.run(), NOTHING);
    lab.unready("p0");
    assert_eq!(
        lab.run(),
        ["WriteRecord 2 p1", "Empty s-lictor-ipv4 2", "Demote p0 2", "Promote p1 2", "Transition p1 LeaderNotReady"]
    );
    lab.unusable = false;
    assert_eq!(lab.run(), ["ReadRecord", "Route s-lictor-ipv4 p1 2"]);
}

/// Shows R3.
#[test]
fn another_elections_slice_is_not_touched() {
    let mut lab = with_routing(Lab::new(2), &[Family::V4]);
    lab.put_slice(V4, SliceContent::empty(&uid("another"), "s", Family::V4, Term(9)));
    let all = lab.run();
    assert!(!all.iter().any(|words| words.contains(V4) && !words.starts_with("ReadSlice")), "{all:#?}");
    assert_eq!(*lab.election.situation(), Situation::Led, "labels do not wait for it");
    assert!(lab.election.route_failure().unwrap().text().contains("another election"));
    lab.slices.clear();
    lab.now = lab.now + Duration::from_secs(1);
    lab.run();
    assert_eq!((lab.reached(), lab.election.route_failure()), (vec!["p0".to_owned()], None));
}

/// Shows R3: the election was deleted, its slice was kept, and it is applied again.
#[test]
fn a_slice_that_an_earlier_election_of_the_name_left_is_taken_over() {
    let left = |lab: &mut Lab, name: &str, content: SliceContent| {
        lab.put_slice(V4, SliceContent { election: Uid::default(), ..content });
        lab.slices.get_mut(V4).unwrap().orphan_of = Some(name.into());
    };
    let dead = Endpoint { pod: "dead".into(), uid: uid("dead"), ..routed(1).slices[V4].content.endpoints[0].clone() };
    let nobody = SliceContent::empty(&uid("earlier"), "s", Family::V4, Term(26));
    for content in [SliceContent { endpoints: vec![dead], ..nobody.clone() }, nobody.clone()] {
        let mut lab = with_routing(Lab::new(2), &[Family::V4]);
        left(&mut lab, "web", content.clone());
        lab.run();
        assert_eq!((lab.reached(), lab.election.route_failure()), (vec!["p0".to_owned()], None));
        assert_eq!((&lab.slices[V4].content.election, &lab.slices[V4].orphan_of), (&uid("e"), &None));

        // Nobody can be elected: whom it names goes all the same, and the election owns it.
        let mut lab = with_routing(Lab::new(2), &[Family::V4]);
        lab.unready("p0");
        lab.unready("p1");
        left(&mut lab, "web", content.clone());
        lab.run();
        assert_eq!(lab.reached(), [""]);
        assert_eq!(
            lab.slices[V4].content.election == uid("e"),
            content.shows(),
            "nothing is written that changes nothing"
        );

        // Its owner is taken out of it while the election goes: it is deleted.
        let mut lab = routed(2);
        let present = lab.slices[V4].content.clone();
        left(&mut lab, "web", present);
        lab.desired = Desired::Withdraw;
        lab.run();
        assert_eq!((lab.slices.len(), lab.election.situation()), (0, &Situation::Withdrawn));

        // An election of another name has nothing to do with it.
        let mut lab = with_routing(Lab::new(2), &[Family::V4]);
        left(&mut lab, "other", content);
        lab.run();
        assert_eq!(lab.slices[V4].orphan_of.as_deref(), Some("other"));
        assert!(lab.election.route_failure().unwrap().text().contains("kubectl delete endpointslice s-lictor-ipv4"));
    }
}

/// Shows R4.
#[test]
fn beside_what_others_wrote_the_slice_names_only_whom_they_name() {
    // The selector was taken off, and what Kubernetes wrote for it names the leader.
    let mut lab = with_routing(Lab::new(2), &[Family::V4, Family::V6]);
    let others = |lab: &mut Lab, addresses: &[&str]| {
        lab.service.as_mut().unwrap().others = addresses.iter().map(|address| (*address).to_owned()).collect();
    };
    others(&mut lab, &["10.0.0.0", "fd00::0"]);
    lab.run();
    assert_eq!(lab.reached(), ["p0", "p0"]);
    // The leader changes. What others wrote does not.
    lab.unready("p0");
    let all = lab.run();
    assert_eq!(all[..3], ["WriteRecord 2 p1", "Empty s-lictor-ipv4 2", "Empty s-lictor-ipv6 2"], "{all:#?}");
    assert_eq!((lab.reached(), lab.leader()), (vec![String::new(), String::new()], Some("p1")));
    assert_eq!(lab.run(), NOTHING);
    // It is deleted, in one family first.
    others(&mut lab, &["fd00::0"]);
    assert_eq!(lab.run(), ["ReadRecord", "Route s-lictor-ipv4 p1 2"]);
    others(&mut lab, &[]);
    assert_eq!(lab.run(), ["Route s-lictor-ipv6 p1 2"], "the record was read after it");
    // Somebody adds another slice: the leader stays reached, and is not the next one's companion.
    others(&mut lab, &["10.0.0.9"]);
    assert_eq!(lab.run(), NOTHING);
    lab.edit("p0", |pod| pod.ready = true);
    lab.unready("p1");
    let all = lab.run();
    assert_eq!(all[..3], ["WriteRecord 3 p0", "Empty s-lictor-ipv4 3", "Route s-lictor-ipv6 p0 3"], "{all:#?}");
}

/// Shows R4.
#[test]
fn a_slice_beside_those_of_others_is_made_without_an_address() {
    let mut lab = with_routing(Lab::new(2), &[Family::V4]);
    lab.service.as_mut().unwrap().others.insert("10.0.0.1".into());
    lab.run();
    assert_eq!((lab.leader(), lab.reached()), (Some("p0"), vec![String::new()]));
    assert_eq!(lab.run(), NOTHING);
}

#[test]
fn labels_do_not_wait_for_a_slice_that_is_refused_and_it_is_tried_again() {
    for outcome in [
        SliceOutcome::Failed(Failure::Refused("no".into())),
        SliceOutcome::Failed(Failure::Unknown("lost".into())),
        SliceOutcome::Written(Box::new(routed(1).slices[V4].clone())),
    ] {
        let mut lab = routed(2);
        lab.unready("p0");
        lab.instead("Route", Outcome::SliceWritten(outcome.clone()));
        let slice = lab.slices[V4].clone();
        for _ in 0..3 {
            for effect in lab.step() {
                let words = in_words(&effect);
                if let Some((op, outcome)) = lab.answer(&effect, &words) {
                    if words.starts_with("Route") {
                        lab.slices.insert(V4.into(), slice.clone());
                    }
                    lab.election.take(op, outcome, lab.now);
                }
            }
        }
        assert_eq!((lab.leader(), lab.reached()), (Some("p1"), vec!["p0".to_owned()]), "{outcome:?}");
        assert!(lab.election.route_failure().is_some(), "{outcome:?}");
        let until = lab.election.wake().unwrap();
        lab.now = until;
        lab.run();
        assert_eq!((lab.reached(), lab.election.route_failure()), (vec!["p1".to_owned()], None), "{outcome:?}");
    }
}

#[test]
fn a_conflict_after_which_the_slice_is_found_unchanged_is_a_refusal() {
    let mut lab = routed(2);
    lab.unready("p0");
    let route = lab.until("Route");
    let unchanged = Slice { version: before(&route), ..routed(1).slices[V4].clone() };
    lab.slices.insert(V4.into(), unchanged);
    lab.election.take(route.op().unwrap(), Outcome::SliceWritten(SliceOutcome::Conflict), lab.now);
    lab.run();
    assert!(lab.election.route_failure().unwrap().text().contains("webhook"));
}

#[test]
fn a_paused_election_leaves_its_slice_alone() {
    let mut lab = routed(2);
    lab.desired = Desired::Freeze;
    lab.edit_slice(V4, |content| content.endpoints.clear());
    assert_eq!(lab.run(), NOTHING);
}

fn command(effect: &Effect) -> &Command {
    let Effect::Request(_, command) = effect else { panic!("{effect:?}") };
    command
}

fn before(route: &Effect) -> Version {
    let Command::WriteSlice(WriteSlice::Replace { version, .. }) = command(route) else { panic!("{route:?}") };
    *version
}

fn failed(effect: &Effect, failure: Failure) -> Outcome {
    effect.failed(failure).unwrap()
}

#[test]
fn an_election_that_is_refused_in_the_middle_of_a_switch_writes_nothing_more() {
    let mut lab = routed(2);
    lab.unready("p0");
    for effect in lab.step() {
        let words = in_words(&effect);
        if let Some((op, outcome)) = lab.answer(&effect, &words) {
            lab.election.take(op, outcome, lab.now);
        }
    }
    lab.desired = Desired::Refuse;
    assert_eq!((lab.run(), lab.reached()), (vec![], vec!["p0".to_owned()]));
}

/// Shows L1.
#[test]
fn a_leader_that_is_taken_out_again_and_again_is_put_in_a_few_times_a_second() {
    let mut lab = with_routing(Lab::led(2), &[Family::V4]);
    lab.run();
    let empty = |lab: &mut Lab| {
        if lab.slices[V4].content.shows() {
            lab.edit_slice(V4, |content| content.endpoints.clear());
        }
    };
    assert_eq!(written(&mut lab, "Route", 3, empty), OFTEN);
    // The next leader does not wait for that.
    lab.run();
    empty(&mut lab);
    lab.pods.remove("p0");
    lab.run();
    assert_eq!(lab.reached(), ["p1"]);
}

/// Shows C4: what the operator before had on its way would put its leader in.
#[test]
fn after_a_restart_an_empty_slice_is_written_once_where_another_cluster_leads() {
    let mut lab = shared_and_routed(2);
    lab.store(|version| Stored::HeldByOther(version, rival()));
    lab.run();
    assert_eq!(lab.reached(), [""]);
    let before = lab.slices[V4].version;
    let mut lab = lab.restarted();
    let all = lab.run();
    assert_eq!(all.iter().filter(|done| done.starts_with("Empty ")).count(), 1, "{all:?}");
    assert!(lab.slices[V4].version > before, "a late write for {before:?} fails");
    assert_eq!(lab.run(), NOTHING);
    // Nor does the lock, once it is free, go to anybody here before that.
    lab.store(|version| Stored::Free(version, None, None));
    let mut lab = lab.restarted();
    let all = lab.run();
    let [emptied, taken] = ["Empty ", "WriteRecord "].map(|begin| all.iter().position(|done| done.starts_with(begin)));
    assert!(emptied.is_some() && emptied < taken, "{all:?}");
}

/// Shows C4 and C5 where two replicas act at the same time, because one takes the other for gone: what the other one still has on its way would
/// show its leader beside that of the next cluster.
#[test]
fn after_another_replicas_record_all_is_written_once_before_the_lock_is_let_go_of() {
    for holder in [true, false] {
        let mut lab = shared_and_routed(1);
        let led = lab.record();
        lab.unready("p0");
        let all = lab.run();
        assert_eq!(all.last().unwrap(), "ReleaseRecord", "{all:?}");
        assert_eq!(lab.reached(), [""]);
        let (slice, pod) = (lab.slices[V4].version, lab.pods["p0"].version);
        let holder = led.holder.clone().filter(|_| holder);
        lab.store(|version| {
            let (term, operator_id) = (Term(90), "other".to_owned());
            Stored::Ours(version, Record { term, holder, operator_id, ..led })
        });
        let all = lab.run();
        assert!(lab.slices[V4].version > slice && lab.pods["p0"].version > pod, "a late write fails: {all:?}");
        let at = |begin: &str| all.iter().position(|done| done.starts_with(begin)).unwrap();
        assert!(at("WriteRecord ") < at("Empty ") && at("Empty ") < at("ReleaseRecord"), "{all:?}");
        assert_eq!(lab.run(), NOTHING);
    }
}
