//! F: the candidates elect the leader themselves, by a lock of their own that is followed here.

use super::unwritable::{A_MINUTE, run_refusing};
use super::*;
use crate::switchover::{Obstacle, Target};
use crate::{LockHolder, NotHeld, Pairs};

fn held(by: &str, tenure: &str, version: u64) -> FollowedLock {
    FollowedLock::Held(LockHolder {
        identity: by.into(),
        tenure: tenure.into(),
        version: Version(version),
        ..LockHolder::default()
    })
}

const FREE: FollowedLock = FollowedLock::Free(NotHeld::Released);

impl Lab {
    /// Three pods, whose lock is held by one.
    fn following(by: &str) -> Self {
        let mut lab = Self::new(3);
        lab.lock_goes_to(by);
        lab
    }

    fn lock_goes_to(&mut self, by: &str) {
        let version = self.next_version().0;
        self.followed = Some(held(by, &version.to_string(), version));
    }

    /// The same holder renews it.
    fn renew(&mut self) {
        let next = self.next_version();
        if let Some(FollowedLock::Held(holder)) = &mut self.followed {
            holder.version = next;
        }
    }

    fn forget_the_lock(&mut self) {
        self.followed = Some(FollowedLock::Unknown("no answer".into()));
    }

    /// The pod is deleted, and another one gets its name.
    fn replace(&mut self, name: &str) {
        let other = Pod { uid: uid(&format!("{name} again")), ..self.pods[name].clone() };
        let labels = Pairs::from([("app".into(), "web".into())]);
        self.put(Pod { labels, annotations: Pairs::default(), ..other });
    }
}

/// Shows F1.
#[test]
fn who_holds_the_lock_is_elected_whatever_the_order_says() {
    let mut lab = Lab::following("p2_8f1");
    lab.rules.preempt = true;
    lab.edit("p0", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "9".into())));
    let all = lab.run();
    assert_eq!(all.first().map(String::as_str), Some("WriteRecord 1 p2"));
    assert_eq!(all.last().map(String::as_str), Some("Transition p2 CandidatesElected"));
    lab.lock_goes_to("p1");
    assert_eq!(lab.run(), ["WriteRecord 2 p1", "Demote p2 2", "Promote p1 2", "Transition p1 CandidatesElected"]);
    assert_eq!(lab.run(), NOTHING);
}

/// Shows F1.
#[test]
fn a_lock_that_nobody_of_the_group_holds_leaves_it_without_a_leader() {
    for lock in [FREE, FollowedLock::Free(NotHeld::Absent), FollowedLock::Free(NotHeld::Expired), held("p9", "x", 200)]
    {
        let mut lab = Lab::following("p1");
        lab.run();
        lab.followed = Some(lock.clone());
        assert_eq!(
            lab.run(),
            ["WriteRecord 1 nobody", "Demote p1 1", "Transition nobody CandidatesReleased"],
            "{lock:?}"
        );
        assert_eq!((lab.leader(), lab.election.situation()), (None, &Situation::Vacant));
        assert_eq!(lab.run(), NOTHING);
        // A pod that has left the group is nobody.
        lab.edit("p0", |pod| drop(pod.labels.insert("app".into(), "other".into())));
        lab.lock_goes_to("p0");
        lab.run();
        assert_eq!(lab.leader(), None);
        lab.lock_goes_to("p2");
        lab.run();
        assert_eq!(lab.leader(), Some("p2"));
    }
}

/// Shows F1.
#[test]
fn a_pod_that_may_not_lead_loses_its_label_whatever_the_lock_says() {
    type Change = fn(&mut Pod);
    let causes: [(&str, Change); 4] = [
        ("LeaderDeleted", |pod| pod.deleting = true),
        ("LeaderDisrupted", |pod| pod.disrupted = true),
        ("LeaderNotReady", |pod| pod.ready = false),
        ("LeaderExcluded", |pod| drop(pod.annotations.insert("lictor.dev/never-leader".into(), "true".into()))),
    ];
    for (reason, change) in causes {
        let mut lab = Lab::following("p1");
        lab.run();
        lab.edit("p1", change);
        let ended = format!("Transition nobody {reason}");
        assert_eq!(lab.run(), ["WriteRecord 1 nobody", "Demote p1 1", &ended]);
        assert_eq!(lab.run(), NOTHING, "nobody else is tried");
    }
    for lock in [None, Some(FollowedLock::Unknown(String::new()))] {
        let mut lab = Lab::following("p1");
        lab.run();
        lab.pods.remove("p1");
        lab.followed = lock.or(lab.followed);
        assert_eq!(lab.run().last().map(String::as_str), Some("Transition nobody LeaderGone"));
    }
}

#[test]
fn a_holder_that_is_not_ready_is_elected_when_it_is() {
    let mut lab = Lab::new(2);
    lab.unready("p1");
    lab.lock_goes_to("p1");
    lab.run();
    assert_eq!((lab.leader(), &lab.stored), (None, &Stored::Absent));
    lab.edit("p1", |pod| pod.ready = true);
    lab.run();
    assert_eq!(lab.leader(), Some("p1"));
    lab.failover_delay = Duration::from_secs(5);
    lab.unready("p1");
    assert_eq!(lab.run(), NOTHING, "it may recover");
    lab.now = lab.now + Duration::from_secs(5);
    lab.run();
    assert_eq!(lab.leader(), None);
}

#[test]
fn a_holder_on_a_cordoned_node_leads() {
    let mut lab = Lab::following("p1");
    lab.nodes.insert("n".into(), Node { cordoned: true, ..Node::default() });
    lab.nodes.insert("m".into(), Node::default());
    lab.edit("p0", |pod| pod.node = Some("m".into()));
    lab.run();
    assert_eq!(lab.leader(), Some("p1"));
    assert_eq!(lab.run(), NOTHING);
}

/// Shows F2.
#[test]
fn while_it_is_not_known_who_holds_the_lock_the_leader_stays_and_nobody_is_elected() {
    let mut lab = Lab::following("p1");
    lab.run();
    lab.forget_the_lock();
    assert_eq!(lab.run(), NOTHING);
    assert_eq!((lab.leader(), lab.election.situation()), (Some("p1"), &Situation::Led));
    // An operator that begins meanwhile changes nothing, either.
    let mut lab = lab.restarted();
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(lab.leader(), Some("p1"));
    // Where the record is lost, too, who shows that it leads goes on.
    lab.store(|_| Stored::Absent);
    lab.run();
    assert_eq!((lab.leader(), lab.record().term), (Some("p1"), Term(2)));
    lab.edit("p1", |pod| pod.deleting = true);
    lab.run();
    assert_eq!(lab.leader(), None);
    assert_eq!(lab.run(), NOTHING);
    let mut lab = Lab::new(2);
    lab.forget_the_lock();
    lab.run();
    assert_eq!((lab.leader(), &lab.stored), (None, &Stored::Absent));
}

/// Shows F2.
#[test]
fn a_lock_that_clusters_share_is_not_taken_by_what_is_not_known() {
    let mut lab = Lab::following("p1");
    lab.policy = LockPolicy { shared: true, ..LockPolicy::ALONE };
    lab.run();
    assert_eq!(lab.leader(), Some("p1"));
    lab.store(|version| Stored::Free(version, None, None));
    lab.forget_the_lock();
    lab.run();
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(lab.leader(), None, "C3: the lock is not this cluster's");
    lab.lock_goes_to("p2");
    lab.run();
    assert_eq!(lab.leader(), Some("p2"));
}

/// Shows F3.
#[test]
fn another_pod_by_the_same_name_leads_only_after_the_lock_was_written_again() {
    for restarts in [false, true] {
        let mut lab = Lab::following("p1");
        lab.run();
        lab.replace("p1");
        let mut lab = if restarts { lab.restarted() } else { lab };
        lab.run();
        assert_eq!(lab.leader(), None);
        assert_eq!(lab.election.wake(), Some(lab.now + Duration::from_secs(1)), "it is looked at again");
        lab.now = lab.now + Duration::from_secs(1);
        assert_eq!(lab.run(), NOTHING);
        assert_eq!(lab.leader(), None);
        lab.renew();
        lab.run();
        assert_eq!(lab.leader(), Some("p1"), "{restarts}");
    }
}

/// Shows F3.
#[test]
fn another_pod_by_the_same_name_that_acquires_the_lock_leads_at_once() {
    let mut lab = Lab::following("p1");
    lab.run();
    lab.replace("p1");
    lab.run();
    assert_eq!(lab.leader(), None);
    let version = lab.next_version().0;
    lab.followed = Some(held("p1", "another session", version));
    lab.run();
    assert_eq!(lab.leader(), Some("p1"));
}

/// A policy refuses the label, and the candidates elect another one meanwhile.
#[test]
fn a_holder_that_can_not_be_labelled_does_not_keep_the_next_one_from_leading() {
    let mut lab = Lab::following("p0");
    lab.run();
    lab.lock_goes_to("p1");
    run_refusing(&mut lab, "p1", A_MINUTE);
    assert_eq!(lab.leader(), None, "nobody else is tried");
    lab.lock_goes_to("p2");
    run_refusing(&mut lab, "p1", A_MINUTE);
    assert_eq!(lab.leader(), Some("p2"));
}

#[test]
fn a_switchover_is_refused() {
    let mut lab = Lab::following("p1");
    lab.run();
    for to in [Target::Any, Target::Named("p2".into()), Target::Cluster("east".into())] {
        let asked = Asked { id: uid("s"), from_term: Term(1), to, force: false };
        let verdict = lab.shown(|election, view| election.judge(&asked, false, view));
        assert_eq!(verdict, Verdict::Blocked(Obstacle::ElectedByCandidates));
        lab.accepted = Some(asked);
        assert_eq!(lab.run(), NOTHING);
    }
}

#[test]
fn who_elects_can_be_changed_while_a_leader_leads() {
    let mut lab = Lab::led(3);
    assert_eq!(lab.leader(), Some("p0"));
    lab.lock_goes_to("p0");
    assert_eq!(lab.run(), NOTHING, "the leader has taken the lock before");
    lab.lock_goes_to("p2");
    lab.run();
    assert_eq!(lab.leader(), Some("p2"));
    lab.followed = None;
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(lab.leader(), Some("p2"));
}
