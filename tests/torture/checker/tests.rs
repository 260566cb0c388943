//! Breaks each promise once, on small records made by hand, and shows what is no breach.
#![cfg(test)]

use lictor_core::{Marking, Markings};

use super::super::faults::{Fault, Kind as Harm};
use super::super::record::{BY_HAND, SliceSeen, SwitchoverSeen};
use super::*;

/// A record that is made here, second by second.
#[derive(Default)]
struct Story {
    lines: Vec<Line>,
    version: u64,
}

impl Story {
    /// Creates a record of the groups `web`, in the west with a Lease, and `shared`, in both clusters with Consul, and of the
    /// workload `importer`, which runs in the west.
    fn new() -> Self {
        Self::of(false)
    }

    /// Creates the same, where Services reach the leaders.
    fn routed() -> Self {
        Self::of(true)
    }

    fn of(routed: bool) -> Self {
        let marking = |role: &str| Marking { labels: [("role".into(), role.into())].into(), ..Marking::default() };
        let markings = Markings { leader: marking("leader"), follower: marking("follower"), ..Markings::default() };
        let group = |name: &str, kind, clusters: &[&str]| {
            let clusters = clusters.iter().map(|cluster| (*cluster).to_owned()).collect();
            let service = (routed && kind != Kind::Workload).then(|| format!("{name}-leader"));
            What::Group(Group {
                name: name.into(),
                kind,
                clusters,
                markings: markings.clone(),
                service,
                followed: false,
            })
        };
        let mut story = Self::default();
        for what in [
            group("web", Kind::Leases, &["west"]),
            group("shared", Kind::Consul, &["west", "east"]),
            group("importer", Kind::Workload, &["west", "east"]),
        ] {
            story.at(0.0, what);
        }
        story.workload(0.0, "west", true);
        story
    }

    fn at(&mut self, seconds: f64, what: What) -> &mut Self {
        let at = u64::try_from(Duration::from_secs_f64(seconds).as_millis()).expect("a short time");
        self.lines.push(Line { at, what });
        self
    }

    fn pod_seen(&mut self, cluster: &str, name: &str, role: &str, term: &str) -> PodSeen {
        self.version += 1;
        let app = name.rsplit_once('-').map_or(name, |(group, _)| group);
        let pairs = [("app", app), ("role", role)].map(|(key, value)| (key.to_owned(), value.to_owned()));
        PodSeen {
            version: self.version,
            cluster: cluster.into(),
            name: name.into(),
            uid: name.into(),
            labels: pairs.into(),
            annotations: [("lictor.dev/term".to_owned(), term.to_owned())].into(),
            node: Some("node".into()),
            ready: true,
            ..PodSeen::default()
        }
    }

    fn pod(&mut self, seconds: f64, cluster: &str, name: &str, role: &str, term: &str) -> &mut Self {
        let pod = self.pod_seen(cluster, name, role, term);
        self.at(seconds, What::Pod(pod))
    }

    fn workload(&mut self, seconds: f64, cluster: &str, enabled: bool) -> &mut Self {
        let (namespace, name) = (cluster.to_owned(), "importer".to_owned());
        self.at(seconds, What::Workload { version: 0, namespace, name, enabled })
    }

    /// Adds a fault of the west.
    fn fault(&mut self, seconds: f64, kind: Harm, begins: bool) -> &mut Self {
        let fault = Fault { kind, target: 0, millis: 0 };
        self.at(seconds, What::Fault { number: 0, fault, begins, detail: String::new() })
    }

    /// What a slice says: the addresses' pods.
    fn slice(&mut self, seconds: f64, cluster: &str, group: &str, pods: &[&str], term: i64) -> &mut Self {
        self.version += 1;
        let slice = SliceSeen {
            version: self.version,
            cluster: cluster.into(),
            name: format!("{group}-ipv4"),
            service: format!("{group}-leader"),
            family: "IPv4".into(),
            term: Some(term),
            addresses: pods.iter().map(|pod| (format!("address of {pod}"), (*pod).to_owned())).collect(),
            deleted: false,
        };
        self.at(seconds, What::Slice(slice))
    }

    fn planned(&mut self, seconds: f64, begins: bool) -> &mut Self {
        self.at(seconds, What::Planned { group: "web".into(), begins })
    }

    fn session(&mut self, seconds: f64, id: &str, lives: bool) -> &mut Self {
        self.at(seconds, What::Session { id: id.into(), cluster: "west".into(), lives })
    }

    fn lock(&mut self, seconds: f64, cluster: &str) -> &mut Self {
        self.lock_of(seconds, Some(cluster))
    }

    fn lock_of(&mut self, seconds: f64, cluster: Option<&str>) -> &mut Self {
        let (key, cluster) = ("torture/shared".to_owned(), cluster.map(str::to_owned));
        self.at(seconds, What::Lock { version: 0, key, cluster, holder: None, term: None, switchover: None })
    }

    /// A record of the Lease of `web`: its term, and the Switchover that it carries out.
    fn record(&mut self, seconds: f64, term: i64, switchover: Option<&str>) -> &mut Self {
        let (key, switchover) = ("leases/west/web".to_owned(), switchover.map(str::to_owned));
        let cluster = Some("west".into());
        self.at(seconds, What::Lock { version: 0, key, cluster, holder: None, term: Some(term), switchover })
    }

    /// What is told of a Switchover of `web` from term 1: how it has ended, in which term.
    fn switchover(&mut self, seconds: f64, uid: &str, ended: Option<(&str, i64)>) -> &mut Self {
        let seen = SwitchoverSeen {
            cluster: "west".into(),
            name: uid.into(),
            uid: uid.into(),
            group: "web".into(),
            from_term: 1,
            result: ended.map(|(result, _)| result.to_owned()),
            term: ended.and_then(|(result, term)| (result == "Complete").then_some(term)),
            to: Some("web-b".into()),
            ..SwitchoverSeen::default()
        };
        self.at(seconds, What::Switchover(seen))
    }

    fn end(&mut self, seconds: f64) -> Verdict {
        self.at(seconds, What::Calm { begins: false });
        check(&self.lines)
    }
}

/// Returns the violations of one record, as text.
fn broken(verdict: &Verdict) -> Vec<&str> {
    verdict.violations.iter().map(|violation| violation.text.as_str()).collect()
}

#[test]
fn a_handover_in_order_breaks_nothing() {
    let mut story = Story::new();
    story.pod(1.0, "west", "web-a", "leader", "1").pod(2.0, "west", "web-b", "follower", "1");
    story.pod(3.0, "west", "web-a", "follower", "2").pod(3.1, "west", "web-b", "leader", "2");
    // A label that is restored under its own term is the same leadership.
    story.pod(4.0, "west", "web-b", "", "2").pod(4.1, "west", "web-b", "leader", "2");
    let verdict = story.end(5.0);
    assert_eq!(broken(&verdict), [""; 0]);
    assert_eq!((verdict.leaderships, verdict.pod_revisions), (3, 6), "that of the workload is one");
}

#[test]
fn two_leaders_at_one_revision_are_one_too_many() {
    let mut story = Story::new();
    story.pod(1.0, "west", "web-a", "leader", "1").pod(2.0, "west", "web-b", "leader", "2");
    story.pod(2.1, "west", "web-a", "follower", "2");
    let verdict = story.end(3.0);
    assert!(broken(&verdict)[0].starts_with("two lead") && verdict.violations.len() == 1, "{verdict:?}");
}

/// E1.
#[test]
fn a_former_leader_that_runs_on_beside_the_next_one_is_one_too_many() {
    let mut story = Story::new();
    for (seconds, name, role, executes) in
        [(1.0, "web-a", "leader", true), (2.0, "web-a", "follower", true), (3.0, "web-b", "leader", true)]
    {
        let seen = story.pod_seen("west", name, role, if name == "web-a" { "1" } else { "2" });
        story.at(seconds, What::Pod(PodSeen { executes, ..seen }));
    }
    let verdict = story.end(4.0);
    assert!(broken(&verdict)[0].starts_with("one leads, and a former leader runs"), "{verdict:?}");
}

#[test]
fn a_leader_outside_of_its_group_counts_as_one() {
    let mut story = Story::new();
    let mut gone = story.pod_seen("west", "web-a", "leader", "1");
    gone.labels.insert("app".into(), "elsewhere".into());
    story.at(1.0, What::Pod(gone)).pod(2.0, "west", "web-b", "leader", "2");
    assert_eq!(story.end(3.0).violations.len(), 1);
}

#[test]
fn a_term_must_rise() {
    for term in ["1", "2"] {
        let mut story = Story::new();
        story.pod(1.0, "west", "web-a", "leader", "2").pod(2.0, "west", "web-a", "follower", "3");
        story.pod(3.0, "west", "web-b", "leader", term);
        assert!(broken(&story.end(4.0))[0].contains(&format!("with term {term} after")));
    }
    let mut story = Story::new();
    story.pod(1.0, "west", "web-a", "leader", "2").pod(2.0, "west", "web-a", "leader", "3");
    story.pod(3.0, "west", "web-a", "leader", "2");
    assert!(broken(&story.end(4.0))[0].contains("with term 2 after"), "it may not fall while a pod leads, either");
    let mut story = Story::new();
    story.pod(1.0, "west", "web-a", "leader", "none");
    assert_eq!(broken(&story.end(2.0)), ["web-a leads without a term"]);
}

#[test]
fn nobody_may_lead_for_no_longer_than_the_bound() {
    // 4 s for the operator's Lease, 2 s for the leader to recover, and 25 s for dead connections on a busy machine.
    let bound = 31.0;
    let mut story = Story::new();
    story.pod(1.0, "west", "web-a", "follower", "1");
    assert_eq!(broken(&story.end(1.0 + bound)), [""; 0]);
    let verdict = story.end(1.1 + bound);
    assert!(broken(&verdict)[0].starts_with("nobody led for"), "{verdict:?}");
    assert_eq!(verdict.vacancies["web"], (31_100, 31_100));
    // In Consul, the lock must also be given away: 20 s and 1 s of delay, 3.3 s for a lost renewal, 5 s for the new operator.
    let mut story = Story::new();
    story.pod(1.0, "east", "shared-c", "follower", "1");
    assert_eq!(broken(&story.end(1.0 + bound + 29.3)), [""; 0]);
    assert_eq!(story.end(1.1 + bound + 29.3).violations.len(), 1);
    let mut story = Story::new();
    story.workload(1.0, "west", false);
    assert_eq!(broken(&story.end(1.0 + bound + 29.3)), [""; 0]);
    assert_eq!(story.end(1.1 + bound + 29.3).violations.len(), 1);
}

#[test]
fn while_a_cluster_is_not_served_no_bound_holds_and_afterwards_it_begins_anew() {
    let mut story = Story::new();
    story.pod(1.0, "west", "web-a", "follower", "1").fault(2.0, Harm::EtcdKilled, true);
    story.fault(60.0, Harm::EtcdKilled, false);
    assert_eq!(broken(&story.end(60.0 + 12.0 + 31.0)), [""; 0]);
    assert_eq!(story.end(60.0 + 12.1 + 31.0).violations.len(), 1);
}

#[test]
fn a_cluster_with_one_replica_left_is_served() {
    let mut story = Story::new();
    story.pod(1.0, "west", "web-a", "follower", "1").fault(1.0, Harm::OperatorKilled, true);
    assert_eq!(story.end(40.0).violations.len(), 1);
}

#[test]
fn without_an_eligible_pod_nobody_need_lead() {
    let spoil: [fn(&mut PodSeen); 5] = [
        |pod| pod.ready = false,
        |pod| pod.leaving = true,
        |pod| pod.node = None,
        |pod| drop(pod.labels.insert("app".into(), "elsewhere".into())),
        |pod| drop(pod.annotations.insert("lictor.dev/never-leader".into(), "true".into())),
    ];
    for spoil in spoil {
        let mut story = Story::new();
        let mut pod = story.pod_seen("west", "web-a", "follower", "1");
        spoil(&mut pod);
        story.at(1.0, What::Pod(pod));
        assert_eq!(broken(&story.end(100.0)), [""; 0]);
    }
    let mut story = Story::new();
    story.at(0.5, What::Node { version: 0, name: "node".into(), cordoned: true });
    story.pod(1.0, "west", "web-a", "follower", "1");
    assert_eq!(broken(&story.end(100.0)), [""; 0]);
}

#[test]
fn what_a_person_wrote_counts_only_when_it_was_not_declared() {
    for declared in [true, false] {
        let mut story = Story::new();
        story.pod(1.0, "west", "web-a", "leader", "1").pod(1.0, "west", "web-b", "follower", "1");
        if declared {
            story.at(2.0, What::Hand { mark: "7".into() });
        }
        let mut written = story.pod_seen("west", "web-b", "leader", "1");
        written.annotations.insert(BY_HAND.into(), "7".into());
        story.at(2.1, What::Pod(written.clone()));
        // Its next revisions come from the kubelet and from a user.
        story.at(2.2, What::Pod(written.clone()));
        written.annotations.insert("lictor.dev/priority".into(), "4".into());
        story.at(2.3, What::Pod(written.clone()));
        assert_eq!(story.end(3.0).violations.is_empty(), declared);
        // What the operator writes afterwards counts, whatever it is.
        written.annotations.insert("lictor.dev/term".into(), "2".into());
        story.at(4.0, What::Pod(written));
        assert!(!story.end(5.0).violations.is_empty(), "declared: {declared}");
    }
}

#[test]
fn what_a_person_wrote_twice_is_still_by_hand() {
    let mut story = Story::new();
    story.pod(1.0, "west", "web-a", "leader", "1").pod(1.0, "west", "web-b", "follower", "1");
    for mark in ["7", "8"] {
        story.at(2.0, What::Hand { mark: mark.into() });
        let mut written = story.pod_seen("west", "web-b", "leader", "1");
        written.annotations.insert(BY_HAND.into(), mark.into());
        story.at(2.0, What::Pod(written));
    }
    assert_eq!(broken(&story.end(3.0)), [""; 0]);
}

#[test]
fn what_a_person_wrote_on_the_leader_itself_changes_nothing() {
    let mut story = Story::new();
    story.pod(1.0, "west", "web-a", "leader", "1").at(2.0, What::Hand { mark: "7".into() });
    let mut written = story.pod_seen("west", "web-a", "leader", "1");
    written.annotations.insert(BY_HAND.into(), "7".into());
    story.at(2.1, What::Pod(written));
    assert_eq!(broken(&story.end(100.0)), [""; 0]);
    story.pod(101.0, "west", "web-b", "leader", "2");
    assert_eq!(story.end(102.0).violations.len(), 1);
}

#[test]
fn two_clusters_have_one_leader_together() {
    let mut story = Story::new();
    story.pod(1.0, "west", "shared-a", "leader", "1").pod(2.0, "east", "shared-c", "leader", "2");
    let verdict = story.end(3.0);
    assert!(broken(&verdict)[0].starts_with("two lead"), "{verdict:?}");
    assert_eq!(verdict.excuses, []);
    let mut story = Story::new();
    story.workload(1.0, "east", true);
    assert!(broken(&story.end(2.0))[0].starts_with("two lead"));
}

/// Makes a record in which the west's leader stays from second 1 on, and the east gets one at `second`.
fn overtaken(kind: Harm, ends: f64, second: f64) -> Story {
    let mut story = Story::new();
    story.pod(1.0, "west", "shared-a", "leader", "1").fault(10.0, kind, true);
    for (at, begins) in [(second, None), (ends, Some(false))] {
        match begins {
            None => story.lock(at, "east").pod(at, "east", "shared-c", "leader", "2"),
            Some(begins) => story.fault(at, kind, begins),
        };
    }
    story.lines.sort_by_key(|line| line.at);
    story
}

#[test]
fn two_are_excused_only_while_nobody_serves_the_older_ones_cluster() {
    let verdict = overtaken(Harm::OperatorsKilled, 60.0, 22.1).end(60.0);
    assert_eq!((broken(&verdict).len(), verdict.excuses.len()), (0, 1), "{verdict:?}");
    // This is before Consul may give the lock away.
    assert_eq!(overtaken(Harm::OperatorsKilled, 60.0, 21.9).end(21.95).violations.len(), 1);
    // One of two replicas is left.
    assert!(!overtaken(Harm::OperatorKilled, 60.0, 30.0).end(30.1).violations.is_empty());
    // The operators renew while only the API server is away.
    assert!(!overtaken(Harm::ApiServerKilled, 60.0, 30.0).end(30.1).violations.is_empty());
    // The two still lead when an operator could correct it.
    let mut story = overtaken(Harm::OperatorsKilled, 40.0, 30.0);
    assert_eq!(broken(&story.end(51.9)), [""; 0]);
    assert!(!story.end(52.1).violations.is_empty());
    // The east's leader is the new one, so the west would need the excuse.
    let mut story = Story::new();
    story.pod(1.0, "east", "shared-c", "leader", "1").fault(10.0, Harm::OperatorsKilled, true);
    story.pod(30.0, "west", "shared-a", "leader", "2");
    assert_eq!(story.end(31.0).violations.len(), 1);
}

#[test]
fn a_holder_stops_before_another_has_the_lock() {
    let mut story = Story::new();
    story.pod(1.0, "west", "shared-a", "leader", "1").lock(1.0, "west").lock(2.0, "east");
    assert_eq!(broken(&story.end(4.0)), [""; 0]);
    let verdict = story.end(4.1);
    assert!(broken(&verdict)[0].contains("still leads"), "{verdict:?}");
}

#[test]
fn whoever_leads_before_the_record_shows_its_lock_had_not_to_stop_for_a_lock_that_was_nobodys() {
    let mut story = Story::new();
    story.pod(1.0, "east", "shared-c", "leader", "1").lock(1.0, "east").pod(5.0, "east", "shared-c", "follower", "1");
    story.lock_of(6.0, None).pod(9.0, "west", "shared-a", "leader", "2");
    assert_eq!(broken(&story.end(9.2)), [""; 0]);
    story.lock(9.3, "west").lock_of(12.0, None).lock(12.1, "east");
    assert!(broken(&story.end(15.0))[0].contains("still leads"), "the one before still has to stop");
}

/// Makes a verdict with much more than is needed, except for what `change` changes.
fn full(change: impl FnOnce(&mut Verdict)) -> Verdict {
    let faults = [("OperatorKilled".to_owned(), 60)].into();
    let mut verdict = Verdict {
        calms: 2,
        lasted: 180_000,
        judged: 60_000,
        leaderships: 45,
        faults,
        switches: 24,
        planned_switches: 1,
        switchovers: 1,
        failovers: 1,
        ..Verdict::default()
    };
    change(&mut verdict);
    verdict
}

#[test]
fn a_full_record_is_enough() {
    assert_eq!(full(|_| ()).lacks(3.0), None);
}

#[test]
fn a_run_that_shows_too_little_says_of_what() {
    let few = |change: fn(&mut Verdict)| full(change).lacks(3.0).expect("it is not enough");
    assert_eq!(few(|verdict| verdict.calms = 1), "storms that were judged: 0, and 1 are needed for 3 minutes");
    assert_eq!(
        few(|verdict| verdict.faults = [("OperatorKilled".to_owned(), 59)].into()),
        "faults: 59, and 60 are needed for 3 minutes"
    );
    let lacks = |what: &str, change: fn(&mut Verdict)| assert!(few(change).starts_with(what), "{what}");
    lacks("leaderships", |verdict| verdict.leaderships = 44);
    lacks("switches of a Service", |verdict| verdict.switches = 23);
    lacks("leaders that were moved although they were well", |verdict| verdict.planned_switches = 0);
    lacks("Switchovers that moved a leader", |verdict| verdict.switchovers = 0);
    lacks("replicas of an operator that took over from another one", |verdict| verdict.failovers = 0);
    lacks("seconds in which the clusters were judged", |verdict| verdict.judged = 59_499);
}

#[test]
fn the_time_in_which_a_cluster_may_be_excused_is_not_judged() {
    let verdict = overtaken(Harm::OperatorsKilled, 60.0, 30.0).end(100.0);
    // From 2 s after the fault began, because a lock in a bucket passes to another cluster that soon, until 12 s after it ended.
    assert_eq!((verdict.lasted, verdict.judged), (100_000, 100_000 - 60_000));
}

/// A record in which a pod leads and is reached.
fn reached() -> Story {
    let mut story = Story::routed();
    story.pod(1.0, "west", "web-a", "leader", "1").pod(1.0, "west", "web-b", "follower", "1");
    story.slice(1.0, "west", "web", &[], 1).slice(1.1, "west", "web", &["web-a"], 1);
    story
}

#[test]
fn a_switch_in_order_breaks_nothing() {
    let mut story = reached();
    story.planned(2.0, true).slice(2.1, "west", "web", &["web-b"], 2);
    story.pod(2.2, "west", "web-a", "follower", "2").pod(2.2, "west", "web-b", "leader", "2").planned(2.3, false);
    let verdict = story.end(3.0);
    assert_eq!((broken(&verdict), verdict.switches, verdict.planned_switches), (vec![], 2, 1));
}

#[test]
fn a_service_that_reaches_two_or_nobody_or_somebody_of_before_is_noticed() {
    let wrong = |change: &dyn Fn(&mut Story), text: &str| {
        let mut story = reached();
        story.planned(2.0, true);
        change(&mut story);
        let verdict = story.end(3.0);
        assert!(broken(&verdict).iter().any(|broken| broken.contains(text)), "{text}: {:?}", broken(&verdict));
    };
    wrong(&|story| _ = story.slice(2.1, "west", "web", &["web-a", "web-b"], 2), "web-leader reaches [");
    wrong(&|story| _ = story.slice(2.1, "west", "web", &[], 2), "reaches nobody while");
    wrong(&|story| _ = story.slice(2.1, "west", "web", &["web-b"], 0), "in term 0, and before it was 1");
    wrong(&|story| _ = story.slice(2.1, "west", "web", &["web-b"], 1), "in one term, 1");
    wrong(&|story| _ = story.planned(2.1, false), "still reaches the leader");
    wrong(&|story| _ = story.slice(2.1, "west", "web", &["web-b"], 2), "does not reach the leader");
}

#[test]
fn services_of_both_clusters_reach_one_leader_unless_the_older_ones_cluster_is_excused() {
    let story = |kind: Option<Harm>| {
        let mut story = Story::routed();
        if let Some(kind) = kind {
            story.fault(10.0, kind, true);
        }
        story.slice(1.0, "west", "shared", &["shared-a"], 1).slice(30.0, "east", "shared", &["shared-c"], 2);
        story.at(30.1, What::Hand { mark: String::new() });
        check(&story.lines)
    };
    assert!(broken(&story(None))[0].contains("reach somebody"));
    let excused = story(Some(Harm::OperatorsKilled));
    assert_eq!((broken(&excused), excused.excuses.len()), (vec![], 1));
}

#[test]
fn a_session_of_a_cluster_that_could_renew_it_is_not_lost() {
    let story = |kind: Option<Harm>, ends: f64| {
        let mut story = Story::new();
        story.session(1.0, "first", true).session(1.0, "second", true);
        if let Some(kind) = kind {
            story.fault(58.0, kind, true);
        }
        story.session(50.0, "second", false).session(ends, "first", false).end(ends + 1.0)
    };
    for kind in [None, Some(Harm::OperatorKilled), Some(Harm::TakenForGone), Some(Harm::PeerLinkCut)] {
        let verdict = story(kind, 60.0);
        assert!(broken(&verdict)[0].contains("the session first of west is lost"), "{kind:?}");
        assert_eq!((verdict.sessions_made, verdict.sessions_lost), (2, 1));
    }
    for kind in [Harm::SessionDestroyed, Harm::OperatorsKilled, Harm::ConsulLinkCut, Harm::ApiServerKilled] {
        assert_eq!(broken(&story(Some(kind), 60.0)), [""; 0], "{kind:?}");
    }
}

#[test]
fn a_failover_of_an_operator_is_counted() {
    let mut story = Story::new();
    for (at, replica) in [(1.0, "west-0-a"), (2.0, "west-1-b"), (3.0, "west-1-b")] {
        story.at(at, What::Acts { cluster: "west".into(), replica: replica.into() });
    }
    assert_eq!(story.end(4.0).failovers, 1);
}

/// A Switchover of `web` that is carried out: web-b leads in term 2, and that is told.
fn switched_over() -> Story {
    let mut story = Story::new();
    story.record(0.5, 1, None).pod(1.0, "west", "web-a", "leader", "1").switchover(2.0, "s", None);
    story.record(2.1, 2, Some("s")).pod(2.2, "west", "web-a", "follower", "2").pod(2.3, "west", "web-b", "leader", "2");
    story.switchover(2.4, "s", Some(("Complete", 2)));
    story
}

#[test]
fn a_switchover_in_order_breaks_nothing_and_is_counted() {
    let mut story = switched_over();
    // The records after it keep that it was carried out, and one that fails changes nothing.
    story.record(3.0, 2, Some("s")).switchover(3.1, "late", None).switchover(3.2, "late", Some(("Superseded", 0)));
    story.at(4.0, What::Calm { begins: true });
    let verdict = story.end(5.0);
    assert_eq!(broken(&verdict), [""; 0]);
    assert_eq!((verdict.switchovers, verdict.switchovers_failed, verdict.switchovers_across), (1, 1, 0));
}

#[test]
fn a_switchover_that_moves_a_leader_twice_or_tells_what_is_not_so_is_noticed() {
    let wrong = |tell: &dyn Fn(&mut Story), says: &str| {
        let mut story = switched_over();
        tell(&mut story);
        let verdict = story.end(9.0);
        assert!(broken(&verdict).iter().any(|text| text.contains(says)), "{says}: {verdict:?}");
    };
    wrong(&|story| _ = story.record(3.0, 3, None).record(3.1, 4, Some("s")), "moves the leader 2 times");
    wrong(
        &|story| _ = story.switchover(3.0, "t", None).record(3.1, 3, Some("t")),
        "is for term 1, and ends term Some(2)",
    );
    wrong(&|story| _ = story.switchover(3.0, "s", Some(("Superseded", 0))), "has ended as");
    wrong(&|story| _ = story.switchover(3.0, "s", Some(("Complete", 3))), "has ended as");
    wrong(&|story| _ = story.switchover(3.0, "t", Some(("Complete", 2))), "both say that they began term 2");
    wrong(&|story| _ = story.switchover(3.0, "t", Some(("Complete", 1))), "was to end term 1");
    wrong(&|story| _ = story.switchover(3.0, "t", Some(("Complete", 7))), "has not led");
    let open = |story: &mut Story| _ = story.switchover(3.0, "t", None).at(4.0, What::Calm { begins: true });
    wrong(&open, "nothing comes of t");
    // It is told that it failed, before and after it is carried out.
    let failed = |first: bool| {
        let mut story = Story::new();
        story.record(0.5, 1, None).switchover(1.0, "s", None);
        let told = Some(("DeadlineExceeded", 0));
        if first {
            story.switchover(2.0, "s", told).record(2.1, 2, Some("s"))
        } else {
            story.record(2.0, 2, Some("s")).switchover(2.1, "s", told)
        };
        story.end(3.0)
    };
    assert!(broken(&failed(true))[0].contains("it was told before that it failed"));
    assert!(broken(&failed(false))[0].contains("it is told that it failed"));
}
