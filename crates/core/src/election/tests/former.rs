//! E: what becomes of the pod that led before.

use super::*;
use crate::{FormerLeader, LEADER_FINALIZER};

const FIRST: FormerLeader = FormerLeader::DeleteFirst { evicts: false };

/// With p0 elected, where the former leader ends first.
fn held(pods: usize) -> Lab {
    let mut lab = Lab::new(pods);
    (lab.former_leader, lab.scope.markings.holds) = (FIRST, true);
    lab.run();
    assert_eq!(*lab.election.situation(), Situation::Led);
    assert_eq!(*lab.pods["p0"].finalizers, [LEADER_FINALIZER]);
    lab
}

fn awaits(lab: &Lab, name: &str) -> bool {
    matches!(lab.election.situation(), Situation::AwaitingEnd(holder) if holder.pod.as_deref() == Some(name))
}

fn leaving(lab: &Lab) -> Vec<Uid> {
    lab.record().leaving.iter().map(|holder| holder.uid.clone()).collect()
}

/// E1.
#[test]
fn the_former_leader_has_ended_before_another_pod_leads() {
    let mut lab = held(2);
    lab.unready("p0");
    let demoted = ["WriteRecord 1 nobody", "Demote p0 1", "Transition nobody LeaderNotReady"];
    assert_eq!(lab.run(), [&demoted[..], &["Delete p0", "FormerLeaderDeleted p0"]].concat());
    assert!(awaits(&lab, "p0") && lab.election.leader().is_none());
    assert_eq!((leaving(&lab), &*lab.pods["p0"].finalizers), (vec![uid("p0")], &[LEADER_FINALIZER.to_owned()][..]));
    // What a person or a controller says of the pod does not tell that its containers have ended.
    lab.edit("p0", |pod| pod.finished = true);
    assert_eq!(lab.run(), NOTHING);
    lab.edit("p0", |pod| pod.ended = true);
    assert_eq!(lab.run()[..1], ["WriteRecord 2 p1"]);
    assert_eq!((lab.leader(), lab.pods.contains_key("p0"), leaving(&lab)), (Some("p1"), false, vec![]));
}

/// E1: a pod that does not lead any more, and becomes fit again, still ends.
#[test]
fn a_former_leader_that_recovers_is_deleted_all_the_same() {
    let mut lab = held(1);
    lab.unready("p0");
    lab.run();
    lab.edit("p0", |pod| (pod.ready, pod.deleting) = (true, false));
    assert_eq!(lab.run(), ["Delete p0", "FormerLeaderDeleted p0"]);
    assert!(awaits(&lab, "p0") || *lab.election.situation() == Situation::Vacant);
}

/// E1: the record knows it, whichever operator reads it, and whatever its cache shows.
#[test]
fn another_operator_awaits_the_end_too() {
    let mut lab = held(2);
    lab.unready("p0");
    lab.run();
    let mut lab = lab.restarted();
    assert_eq!(lab.run(), NOTHING);
    assert!(awaits(&lab, "p0"));
    let mut lab = lab.restarted();
    lab.unseen.insert("p0".into());
    assert_eq!(lab.run(), ["ReadPod p0"]);
    assert!(awaits(&lab, "p0"));
    lab.pods.remove("p0");
    lab.now = lab.now + Duration::from_secs(2);
    let all = lab.run();
    assert_eq!(all[0], "ReadPod p0");
    assert_eq!(lab.leader(), Some("p1"), "{all:#?}");
}

/// E1: also if a person deletes the record.
#[test]
fn a_lost_record_does_not_end_the_wait() {
    let mut lab = held(2);
    lab.unready("p0");
    lab.run();
    lab.store(|_| Stored::Absent);
    let mut lab = lab.restarted();
    lab.run();
    assert_eq!((lab.leader(), leaving(&lab)), (None, vec![uid("p0")]));
    lab.edit("p0", |pod| pod.ended = true);
    lab.run();
    assert_eq!(lab.leader(), Some("p1"));
}

/// E1: its cache shows the pod as it was before it led.
#[test]
fn a_stale_cache_does_not_end_the_wait() {
    let mut lab = Lab::new(2);
    (lab.former_leader, lab.scope.markings.holds) = (FIRST, true);
    let before = lab.pods["p0"].clone();
    lab.run();
    lab.unready("p0");
    lab.run();
    let now = lab.pods.insert("p0".into(), before).unwrap();
    let mut lab = lab.restarted();
    let all = lab.step();
    assert!(!all.iter().any(|effect| in_words(effect).starts_with("WriteRecord")), "{all:#?}");
    lab.pods.insert("p0".into(), now);
}

/// E1: a person says that the node of the pod is shut down, or has deleted the leader with force, which its finalizer outlives.
#[test]
fn a_node_that_is_out_of_service_runs_nothing() {
    let mut lab = held(2);
    lab.edit("p0", |pod| (pod.deleting, pod.node) = (true, Some("lost".into())));
    lab.run();
    assert!(awaits(&lab, "p0"));
    lab.nodes.insert("lost".into(), Node { lost: true, out_of_service: true, ..Node::default() });
    lab.run();
    assert_eq!((lab.leader(), lab.pods.contains_key("p0")), (Some("p1"), false));
}

/// E1: a pod that could not be labelled has never led, so it is not deleted.
#[test]
fn a_pod_that_was_never_promoted_stays() {
    let mut lab = Lab::new(2);
    (lab.former_leader, lab.scope.markings.holds) = (FIRST, true);
    let all = unwritable::run_with(&mut lab, Duration::from_secs(30), |_, write| {
        (write.change == PodChange::Promote && write.name == "p0").then(unwritable::refused)
    });
    assert_eq!((lab.leader(), lab.pods["p0"].deleting), (Some("p1"), false), "{all:#?}");
}

/// E1: the next operator, which does not know whether the pod was promoted, makes a late promotion fail.
#[test]
fn another_operator_makes_sure_that_a_pod_was_never_promoted() {
    let mut lab = held(2);
    lab.unready("p0");
    lab.run();
    lab.edit("p0", |pod| (pod.finalizers, pod.deleting) = (Box::default(), false));
    let mut lab = lab.restarted();
    let all = lab.run();
    assert_eq!((&*all[0], lab.leader(), lab.pods["p0"].deleting), ("Demote p0 1", Some("p1"), false), "{all:#?}");
}

/// E1: so is a switchover, which still ends the term that it names.
#[test]
fn a_switchover_waits_for_the_end() {
    let mut lab = held(2);
    lab.accepted = Some(switchovers::asked(1, switchover::Target::Any));
    lab.run();
    assert!(awaits(&lab, "p0"));
    lab.edit("p0", |pod| pod.ended = true);
    lab.run();
    let mark = lab.record().switchover.unwrap();
    assert_eq!((lab.leader(), mark.from, mark.to), (Some("p1"), Some(uid("p0")), Some(uid("p1"))));
}

/// E1: a paused or refused election keeps no pod that has ended.
#[test]
fn a_pod_that_has_ended_goes_also_while_its_election_is_paused() {
    for desired in [Desired::Freeze, Desired::Refuse] {
        let mut lab = held(2);
        lab.desired = desired;
        lab.edit("p0", |pod| pod.deleting = true);
        assert_eq!(lab.run(), NOTHING);
        lab.edit("p0", |pod| pod.ended = true);
        assert_eq!(lab.run(), ["Release p0"]);
        assert_eq!((lab.leader(), lab.pods.contains_key("p0")), (None, false));
        lab.desired = Desired::Run;
        lab.run();
        assert_eq!(lab.leader(), Some("p1"));
    }
}

/// E2.
#[test]
fn the_former_leader_is_deleted_when_the_next_one_leads() {
    let mut lab = Lab::led(2);
    lab.former_leader = FormerLeader::Delete { evicts: true };
    lab.unready("p0");
    let all = lab.run();
    let handover = ["WriteRecord 2 p1", "Demote p0 2", "Promote p1 2", "Transition p1 LeaderNotReady"];
    assert_eq!(all, [&handover[..], &["Evict p0", "FormerLeaderDeleted p0", "WriteRecord 2 p1"]].concat());
    assert_eq!((leaving(&lab), lab.pods["p0"].finalizers.len()), (vec![], 0));
    lab.edit("p0", |pod| pod.deleting = false);
    assert_eq!(lab.run(), NOTHING, "it is deleted once for each term");
}

/// E2: its own deletion is why the leader changed.
#[test]
fn a_former_leader_that_is_being_deleted_is_left_alone() {
    let mut lab = Lab::led(2);
    lab.former_leader = FormerLeader::Delete { evicts: false };
    lab.edit("p0", |pod| pod.deleting = true);
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("Delete ")), "{all:#?}");
    assert_eq!((lab.leader(), leaving(&lab)), (Some("p1"), vec![]));
}

/// E2: the next operator goes on, with backoff, and a leader needs none.
#[test]
fn a_refused_deletion_is_tried_again() {
    let mut lab = Lab::led(2);
    lab.former_leader = FormerLeader::Delete { evicts: true };
    lab.unready("p0");
    let all = unwritable::run_with(&mut lab, Duration::from_secs(30), |_, write| {
        (write.change == PodChange::Evict).then(unwritable::refused)
    });
    let tries = unwritable::count(&all, "Evict p0");
    assert!((3..12).contains(&tries) && unwritable::count(&all, "FormerLeaderStays p0") == 1, "{all:#?}");
    assert_eq!((lab.leader(), leaving(&lab), lab.pods["p0"].deleting), (Some("p1"), vec![uid("p0")], false));
    let mut lab = lab.restarted();
    lab.run();
    assert_eq!((lab.pods["p0"].deleting, leaving(&lab)), (true, vec![]));
}

/// E2, H16: a forged record deletes no pod: not one that the election has not marked, and, where others can write the record, none at all.
#[test]
fn a_forged_record_deletes_no_pod() {
    for (mut lab, app) in [(Lab::led(3), "other"), (shared(3), "web")] {
        lab.former_leader = FormerLeader::Delete { evicts: false };
        let labels = Pairs::from([("app".to_owned(), app.to_owned())]);
        lab.edit("p2", |pod| (pod.labels, pod.annotations) = (labels, Pairs::default()));
        let mut record = lab.record();
        record.leaving = vec![Holder { pod: Some("p2".into()), uid: uid("p2"), node: None, ip: None }];
        lab.store(|version| Stored::Ours(version, record));
        let all = lab.run();
        assert!(!lab.pods["p2"].deleting, "{all:#?}");
    }
}

/// E1: who leads gets the finalizer when the spec asks for it, and loses it when the spec no longer does.
#[test]
fn the_finalizer_follows_the_spec() {
    let mut lab = Lab::led(2);
    (lab.former_leader, lab.scope.markings.holds, lab.generation) = (FIRST, true, 2);
    lab.run();
    assert_eq!((lab.leader(), &*lab.pods["p0"].finalizers), (Some("p0"), &[LEADER_FINALIZER.to_owned()][..]));
    (lab.former_leader, lab.scope.markings.holds, lab.generation) = (FormerLeader::Keep, false, 3);
    lab.run();
    assert_eq!((lab.leader(), lab.pods["p0"].finalizers.len()), (Some("p0"), 0));
    lab.run();
    lab.desired = Desired::Withdraw;
    lab.present = ElectionRead::Gone;
    lab.run();
    assert!(lab.pods.values().all(|pod| pod.finalizers.is_empty()));
}

/// E1: a template has copies of everything that was on a leader.
#[test]
fn a_pod_with_copies_has_not_led() {
    let mut lab = held(3);
    for (name, marked) in [("p1", true), ("p2", false)] {
        let copied = lab.pods["p0"].annotations.clone();
        lab.edit(name, |pod| {
            pod.finalizers = [LEADER_FINALIZER.to_owned()].into();
            if marked {
                pod.annotations = copied;
            }
        });
    }
    let all = lab.run();
    assert!(!all.iter().any(|words| words.starts_with("Delete")), "{all:#?}");
    assert_eq!((lab.leader(), lab.pods["p1"].finalizers.len(), lab.pods["p2"].finalizers.len()), (Some("p0"), 0, 0));
    lab.unready("p0");
    lab.run();
    assert_eq!(leaving(&lab), [uid("p0")]);
}

/// E1: neither a changed label nor a changed selector ends the wait.
#[test]
fn a_leader_that_leaves_the_group_ends_first_too() {
    let mut lab = held(2);
    lab.edit("p0", |pod| drop(pod.labels.insert("app".into(), "other".into())));
    lab.run();
    assert!(awaits(&lab, "p0") && lab.pods["p0"].deleting);
    assert_eq!(*lab.pods["p0"].finalizers, [LEADER_FINALIZER]);
    lab.edit("p0", |pod| pod.ended = true);
    lab.run();
    assert_eq!((lab.leader(), lab.pods.contains_key("p0")), (Some("p1"), false));
}

/// E2: a pod that was taken out of the group stays, for example to look at it.
#[test]
fn a_pod_that_left_the_group_is_not_deleted_afterwards() {
    let mut lab = Lab::led(2);
    lab.former_leader = FormerLeader::Delete { evicts: true };
    lab.edit("p0", |pod| drop(pod.labels.insert("app".into(), "other".into())));
    lab.run();
    assert_eq!((lab.leader(), lab.pods["p0"].deleting), (Some("p1"), false));
}

/// E1: a budget keeps the leader's pod, so it leads again, and is not moved any more.
#[test]
fn a_former_leader_that_can_not_be_deleted_leads_again() {
    let mut lab = held(2);
    lab.former_leader = FormerLeader::DeleteFirst { evicts: true };
    lab.nodes.insert("n".into(), Node { cordoned: true, ..Node::default() });
    lab.edit("p1", |pod| pod.node = Some("other".into()));
    let refuse = |lab: &mut Lab, lasts| {
        unwritable::run_with(lab, lasts, |_, write| (write.change == PodChange::Evict).then(unwritable::refused))
    };
    let all = refuse(&mut lab, Duration::from_secs(60));
    assert_eq!((lab.leader(), leaving(&lab), lab.record().term), (Some("p0"), vec![], Term(2)), "{all:#?}");
    assert_eq!(unwritable::count(&all, "FormerLeaderStays p0"), 1);
    lab.edit("p0", |pod| pod.deleting = true);
    refuse(&mut lab, Duration::from_secs(1));
    assert!(awaits(&lab, "p0"));
}

/// E2: whatever the cause is, it may be the same with the pods that a controller creates.
#[test]
fn many_changes_in_a_row_delay_deletions() {
    let mut lab = Lab::led(2);
    lab.former_leader = FormerLeader::Delete { evicts: false };
    let mut deleted = 0;
    for _ in 0..20 {
        let leader = lab.leader().unwrap().to_owned();
        lab.unready(&leader);
        let all = lab.run();
        deleted += all.iter().filter(|words| words.starts_with("Delete ")).count();
        lab.edit(&leader, |pod| (pod.ready, pod.deleting) = (true, false));
        lab.now = lab.now + Duration::from_secs(1);
    }
    assert!((4..7).contains(&deleted), "{deleted}");
}
