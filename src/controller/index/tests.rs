//! The index after a watch has listed again while answers brought newer objects.

use lictor_api::{LeaderElection, Switchover};
use lictor_core::{
    Failure, Family, Holder, Instant, Key, Known, Pairs, Pod, Record, Selector, Setting, Slice, SliceContent, Stored,
    Term, Timestamp, Uid, Version, WorkloadId, WorkloadKind,
};
use lictor_kubernetes::{Change, WatchFailure};
use serde_json::json;

use super::circles::circular;
use super::*;
use crate::controller::steps::accept;
use crate::kubernetes::WorkloadObject;
use crate::store::{Elsewhere, StoreEvent, StoreScope};

fn pod(name: &str, uid: &str, version: u64) -> Pod {
    Pod { name: name.into(), uid: Uid(uid.into()), version: Version(version), ..Pod::default() }
}

fn job(uid: &str, version: u64) -> WorkloadObject {
    WorkloadObject {
        namespace: "n".into(),
        id: WorkloadId { kind: WorkloadKind::Job, name: "migrate".into() },
        uid: Uid(uid.into()),
        version: Version(version),
        setting: Setting::Suspend(false),
        claim: None,
        template: None,
        selector: Selector::default(),
        pod_labels: Pairs::default(),
        grace: 0,
        one_by_one: false,
        deleting: false,
        finished: false,
        idle: false,
        available: false,
        owner: None,
        tick: None,
        setter: None,
    }
}

fn election(version: u64) -> (Version, Uid, LeaderElection) {
    let object = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection",
        "metadata": {"namespace": "n", "name": "web", "uid": "e", "resourceVersion": version.to_string()},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    });
    (Version(version), Uid("e".into()), serde_json::from_value(object).unwrap())
}

fn record() -> Record {
    Record {
        leaving: Vec::new(),
        term: Term(1),
        term_by_version: false,
        holder: None,
        operator_id: "lictor#a".into(),
        since: Timestamp(0),
        election: Uid("e".into()),
        election_name: "web".into(),
        generation: 1,
        scope: lictor_core::Scope::default(),
        former: Vec::new(),
        drain_obligation: None,
        switchover: None,
        offer: None,
    }
}

fn index() -> Index {
    Index::new("lictor.dev/lictor".into(), "lictor#a".into())
}

fn pods(index: &Index) -> Vec<(&str, u64)> {
    let all = index.objects.namespaces.values().flat_map(|namespace| namespace.pods.iter());
    all.map(|pod| (pod.uid.0.as_str(), pod.version.0)).collect()
}

fn jobs(index: &Index) -> Vec<(&str, u64)> {
    let all = index.objects.namespaces.values().flat_map(|namespace| namespace.workloads.iter());
    all.map(|job| (job.uid.0.as_str(), job.version.0)).collect()
}

/// A list as of a version.
fn listed<T>(version: u64, items: Vec<T>) -> Change<T> {
    Change::All(None, Version(version), items)
}

#[test]
fn a_pod_that_an_answer_brought_after_the_list_is_kept_and_followed() {
    let mut index = index();
    index.pods().apply(listed(10, vec![]), Instant::default());
    index.pods().put(&"n".into(), pod("web-0", "a", 21), Instant::default());
    index.pods().apply(listed(20, vec![]), Instant::default());
    assert_eq!(pods(&index), [("a", 21)]);
    index.pods().apply(Change::Applied(("n".into(), pod("web-0", "a", 21))), Instant::default());
    index.pods().apply(Change::Applied(("n".into(), pod("web-0", "a", 25))), Instant::default());
    assert_eq!(pods(&index), [("a", 25)]);
}

#[test]
fn a_pod_that_is_missing_in_a_list_is_gone_and_no_late_answer_brings_it_back() {
    let mut index = index();
    index.pods().apply(listed(10, vec![("n".into(), pod("web-0", "a", 5))]), Instant::default());
    index.pods().apply(listed(20, vec![]), Instant::default());
    index.pods().put(&"n".into(), pod("web-0", "a", 15), Instant::default());
    assert_eq!(pods(&index), []);
    index.pods().put(&"n".into(), pod("web-0", "b", 21), Instant::default());
    assert_eq!(pods(&index), [("b", 21)]);
}

#[test]
fn a_late_answer_about_an_earlier_pod_of_the_same_name_changes_nothing() {
    let mut index = index();
    index.pods().put(&"n".into(), pod("web-0", "a", 5), Instant::default());
    index.pods().put(&"n".into(), pod("web-0", "b", 9), Instant::default());
    index.pods().put(&"n".into(), pod("web-0", "a", 7), Instant::default());
    assert_eq!(pods(&index), [("b", 9)]);
    index.pods().apply(Change::Deleted(("n".into(), pod("web-0", "b", 12))), Instant::default());
    index.pods().put(&"n".into(), pod("web-0", "a", 8), Instant::default());
    assert_eq!(pods(&index), []);
}

#[test]
fn a_job_that_was_created_after_the_list_is_kept_and_followed() {
    let mut index = index();
    index.workloads().put(job("j", 21));
    index.workloads().apply(WorkloadKind::Job, listed(20, vec![]));
    index.workloads().apply(WorkloadKind::Job, Change::Applied(job("j", 21)));
    index.workloads().apply(WorkloadKind::Job, Change::Applied(job("j", 25)));
    assert_eq!(jobs(&index), [("j", 25)]);
    index.workloads().apply(WorkloadKind::Job, listed(30, vec![]));
    index.workloads().put(job("j", 29));
    assert_eq!(jobs(&index), []);
}

#[test]
fn an_election_that_an_answer_brought_after_the_list_is_kept() {
    let mut index = index();
    index.apply_elections(listed(10, vec![election(5)]));
    let (version, uid, object) = election(21);
    index.put_election(version, uid, object);
    assert_eq!(index.apply_elections(listed(20, vec![])).len(), 0);
    assert_eq!(index.apply_elections(listed(30, vec![])).len(), 1);
}

#[test]
fn an_election_hears_of_a_lock_that_was_deleted_after_its_own_last_write() {
    let mut index = index();
    index.apply_elections(listed(10, vec![election(5)]));
    let key = Key::lease("n", "web");
    let scope = StoreScope { store: StoreId::leases(), namespace: None };
    let stored = |version| Stored::Ours(Version(version), record());
    index.records().apply(
        StoreEvent::All(scope.clone(), Version(11), vec![(key.clone(), Version(11), stored(11))]),
        Instant::default(),
    );
    let entry = index.objects.entries_mut().next().unwrap();
    entry.decisions.step(&Known::new(Instant::default(), &key, &Locks::default()), &mut 0);
    entry.decisions.observe(&key, Version(15), &stored(15).into());
    index.records().apply(StoreEvent::All(scope, Version(20), vec![]), Instant::default());
    assert_eq!(index.objects.entries_mut().next().unwrap().election().unwrap().version(), None);
}

/// Shows C6.
#[test]
fn a_lock_that_vanished_is_remembered_if_another_cluster_led_by_it() {
    let (mut index, key) = (index(), Key::lease("n", "web"));
    let holder = Holder { pod: Some("far-0".into()), uid: Uid("far".into()), node: None, ip: None };
    let leads = Rival { holder: Some(holder), ..Rival::default() };
    let at = |seconds| Instant::after_origin(std::time::Duration::from_secs(seconds));
    let mut vanished = |what, seconds| {
        index.records().apply(StoreEvent::Elsewhere(key.clone(), what), at(seconds));
        index.clusters.vanished.get(&key).copied()
    };
    assert_eq!(vanished(Elsewhere::Held(leads.clone()), 1), None);
    assert_eq!(vanished(Elsewhere::Vanished, 2), Some(at(2)));
    assert_eq!(vanished(Elsewhere::Held(leads), 3), None);
    assert_eq!(vanished(Elsewhere::LetGo, 4), None);
    let given = Rival { given: true, ..Rival::default() };
    assert_eq!(vanished(Elsewhere::Held(given), 4), None);
    assert_eq!(vanished(Elsewhere::Vanished, 5), Some(at(5)));
    // The other cluster had no leader.
    assert_eq!(vanished(Elsewhere::Held(Rival::default()), 6), None);
    assert_eq!(vanished(Elsewhere::Vanished, 7), None);
}

#[test]
fn nothing_is_left_of_a_namespace_in_which_nothing_is_left() {
    let mut index = index();
    index.pods().apply(Change::Applied(("n".into(), pod("web-0", "a", 5))), Instant::default());
    index.workloads().put(job("j", 6));
    index.apply_elections(Change::Applied(election(7)));
    index.pods().apply(Change::Deleted(("n".into(), pod("web-0", "a", 8))), Instant::default());
    index.workloads().apply(WorkloadKind::Job, Change::Deleted(job("j", 9)));
    assert_eq!(index.apply_elections(Change::Deleted(election(10))).len(), 1);
    assert_eq!(index.objects.namespaces.len(), 0);
}

#[test]
fn when_versions_go_back_lower_ones_count_and_the_terms_are_remembered() {
    let mut index = index();
    index.apply_elections(listed(900, vec![election(800)]));
    index.pods().apply(
        listed(900, vec![("n".into(), pod("web-0", "a", 850)), ("n".into(), pod("web-1", "b", 860))]),
        Instant::default(),
    );
    index.pods().apply(Change::Deleted(("n".into(), pod("web-1", "b", 910))), Instant::default());
    let key = Key::lease("n", "web");
    let scope = StoreScope { store: StoreId::leases(), namespace: None };
    let stored = |version| Stored::Ours(Version(version), record());
    index.records().apply(
        StoreEvent::All(scope.clone(), Version(900), vec![(key.clone(), Version(870), stored(870))]),
        Instant::default(),
    );
    let entry = index.objects.entries_mut().next().unwrap();
    entry.decisions.reach(Term(9));
    entry.decisions.step(&Known::new(Instant::default(), &key, &Locks::default()), &mut 0);
    assert_eq!(entry.election().unwrap().term(), Term(9));

    index.forget_versions();
    assert!(index.locks.get(&key).is_none());
    index.apply_elections(listed(310, vec![election(300)]));
    index.pods().apply(
        listed(310, vec![("n".into(), pod("web-0", "a", 301)), ("n".into(), pod("web-1", "b", 302))]),
        Instant::default(),
    );
    index.records().apply(
        StoreEvent::All(scope, Version(310), vec![(key.clone(), Version(303), stored(303))]),
        Instant::default(),
    );
    assert_eq!(pods(&index), [("a", 301), ("b", 302)]);
    assert_eq!(index.locks.get(&key).unwrap().0, Version(303));
    let entry = index.objects.entries_mut().next().unwrap();
    assert_eq!(entry.object.version(), Version(300));
    entry.decisions.forget();
    entry.decisions.step(&Known::new(Instant::default(), &key, &Locks::default()), &mut 1);
    assert_eq!(entry.election().unwrap().term(), Term(9));
}

fn slice(uid: &str, version: u64) -> Slice {
    let content = SliceContent::empty(&Uid("e".into()), "web-leader", Family::V4, Term(1));
    let name = "web-leader-lictor-ipv4".to_owned();
    Slice { name, uid: Uid(uid.into()), version: Version(version), content, orphan_of: None }
}

fn shown_slice(index: &Index) -> Option<(&str, u64)> {
    let slices = &index.objects.namespaces.get("n")?.slices;
    slices.get("web-leader-lictor-ipv4").map(|slice| (slice.uid.0.as_str(), slice.version.0))
}

#[test]
fn of_a_slice_the_newest_version_counts_and_a_deletion_is_remembered() {
    let mut index = index();
    let applied = |uid, version| Change::Applied(("n".into(), slice(uid, version)));
    let deleted = |uid, version| Change::Deleted(("n".into(), slice(uid, version)));
    index.slices().apply(applied("a", 5));
    index.slices().put(&"n".into(), slice("a", 7));
    index.slices().apply(applied("a", 6));
    assert_eq!(shown_slice(&index), Some(("a", 7)));
    index.slices().apply(deleted("a", 8));
    assert_eq!(shown_slice(&index), None);
    index.slices().put(&"n".into(), slice("a", 7));
    assert_eq!(shown_slice(&index), None, "an answer from before the deletion");
    // A slice without the label leaves the watch, but still exists.
    index.slices().put(&"n".into(), slice("a", 8));
    assert_eq!(shown_slice(&index), Some(("a", 8)));
    index.slices().put(&"n".into(), slice("b", 9));
    index.slices().put(&"n".into(), slice("a", 8));
    assert_eq!(shown_slice(&index), Some(("b", 9)));
    index.slices().lose(&"n".into(), "web-leader-lictor-ipv4", &Uid("a".into()));
    assert_eq!(shown_slice(&index), Some(("b", 9)), "the name belongs to another one by now");
    index.slices().lose(&"n".into(), "web-leader-lictor-ipv4", &Uid("b".into()));
    assert_eq!(shown_slice(&index), None);
    index.slices().put(&"n".into(), slice("c", 12));
    index.slices().apply(Change::All(None, Version(11), Vec::new()));
    assert_eq!(shown_slice(&index), Some(("c", 12)), "it was made after the list");
    index.slices().apply(Change::All(None, Version(12), Vec::new()));
    assert_eq!(shown_slice(&index), None);
}

/// The controller of the built-in class.
const CONTROLLER: &str = "lictor.dev/operator";

fn serving() -> Index {
    Index::new(CONTROLLER.into(), format!("{CONTROLLER}#a"))
}

/// A record of the election web with this uid, written by an operator of `controller`.
fn of(uid: &str, controller: &str) -> Stored {
    let record = Record {
        election: Uid(uid.into()),
        election_name: "web".into(),
        operator_id: format!("{controller}#x"),
        ..record()
    };
    Stored::Ours(Version(11), record)
}

fn with_lock(index: &mut Index, key: &str, stored: Stored) {
    let scope = StoreScope { store: StoreId::leases(), namespace: None };
    let key = Key::lease("n", key);
    index.records().apply(StoreEvent::All(scope, Version(11), vec![(key, Version(11), stored)]), Instant::default());
}

fn gone(index: &mut Index) -> Vec<(String, bool)> {
    let mut all: Vec<&mut Entry> = index.objects.entries_mut().collect();
    all.sort_by(|one, other| one.object.name().cmp(other.object.name()));
    all.into_iter().map(|entry| (entry.object.id().uid.0.clone(), entry.object.is_gone())).collect()
}

#[test]
fn a_lock_of_ours_without_an_election_is_looked_after_when_all_is_known() {
    let mut index = serving();
    with_lock(&mut index, "anything", of("earlier", CONTROLLER));
    index.act();
    index.remains().find(|_| false);
    assert_eq!(gone(&mut index), []);
    index.remains().find(|_| true);
    assert_eq!(gone(&mut index), [("earlier".into(), true)]);
    assert!(!index.is_withdrawn());
    let held = index.objects.entries_mut().next().unwrap().object.key(None);
    assert_eq!(held, Key::lease("n", "anything"), "also when the lock is deleted");

    let mut other = serving();
    with_lock(&mut other, "web", of("earlier", "another/operator"));
    other.act();
    other.remains().find(|_| true);
    assert_eq!(gone(&mut other), [], "another installation's");
}

#[test]
fn an_election_waits_until_nothing_is_left_of_an_earlier_one_by_its_name() {
    let mut index = serving();
    index.apply_elections(listed(10, vec![election(5)]));
    with_lock(&mut index, "other-key", of("earlier", CONTROLLER));
    index.act();
    index.remains().find(|_| true);
    assert_eq!(gone(&mut index), [("earlier".into(), true)]);
    // The watch's news since then counts.
    index.apply_elections(Change::Applied(election(12)));
    index.bury(&Namespace::from("n").election("web"));
    assert_eq!(gone(&mut index), [("e".into(), false)]);
    assert_eq!(index.objects.entries_mut().next().unwrap().object.version(), Version(12));
    // The election is deleted meanwhile, too.
    let mut index = serving();
    index.apply_elections(listed(10, vec![election(5)]));
    with_lock(&mut index, "other-key", of("earlier", CONTROLLER));
    index.act();
    index.remains().find(|_| true);
    index.apply_elections(listed(20, vec![]));
    index.bury(&Namespace::from("n").election("web"));
    assert_eq!(gone(&mut index), []);
}

#[test]
fn an_election_takes_over_the_lock_of_an_earlier_one_and_the_watch_of_locks_may_be_ahead() {
    let mut index = serving();
    index.apply_elections(listed(10, vec![election(5)]));
    with_lock(&mut index, "web", of("earlier", CONTROLLER));
    index.act();
    index.remains().find(|_| true);
    assert_eq!(gone(&mut index), [("e".into(), false)]);

    let mut index = serving();
    with_lock(&mut index, "web", of("e", CONTROLLER));
    index.act();
    index.remains().find(|_| true);
    assert_eq!(gone(&mut index), [("e".into(), true)]);
    index.apply_elections(Change::Applied(election(12)));
    assert_eq!(gone(&mut index), [("e".into(), false)], "it is there after all");
}

#[test]
fn what_a_decided_election_leaves_is_removed_by_who_acts_and_found_again_by_who_acts_next() {
    let led = |acts: bool| {
        let mut index = serving();
        index.apply_elections(listed(10, vec![election(5)]));
        with_lock(&mut index, "web", of("e", CONTROLLER));
        if acts {
            index.act();
        }
        index.apply_elections(Change::Deleted(election(20)));
        index
    };
    let mut standby = led(false);
    assert_eq!(gone(&mut standby), []);
    standby.act();
    standby.remains().find(|_| true);
    assert_eq!(gone(&mut standby), [("e".into(), true)]);
    let mut acting = led(true);
    assert_eq!(gone(&mut acting), [("e".into(), true)]);
    acting.stand_by();
    assert_eq!(gone(&mut acting), []);
    acting.act();
    acting.remains().find(|_| true);
    assert_eq!(gone(&mut acting), [("e".into(), true)]);
}

/// Shows F5.
#[test]
fn a_number_that_changes_alone_is_kept_and_no_step_is_due() {
    let mut index = serving();
    let (version, uid, mut election) = election(5);
    let by_lag = json!([{"byAnnotation": "example.com/lag", "order": "Lowest"}]);
    election.spec.preferences = serde_json::from_value(by_lag).unwrap();
    index.apply_elections(listed(10, vec![(version, uid, election)]));
    let mut version = 10;
    let mut written = |index: &mut Index, annotation: &str, value: &str| {
        version += 1;
        let labels = Pairs::from([("app".to_owned(), "web".to_owned())]);
        let annotations = Pairs::from([(annotation.to_owned(), value.to_owned())]);
        let pod = Pod { labels, annotations, ..pod("web-0", "a", version) };
        index.pods().apply(Change::Applied(("n".into(), pod)), Instant::default());
        assert_eq!(pods(index), [("a", version)]);
        !index.take_dirty(99).is_empty()
    };
    assert!(written(&mut index, "example.com/lag", "1"), "a pod is new");
    assert!(written(&mut index, "example.com/lag", "2"), "nothing was decided yet");
    let entry = index.objects.entries_mut().next().unwrap();
    entry.decisions.step(&Known::new(Instant::default(), &Key::lease("n", "web"), &Locks::default()), &mut 0);
    assert!(!written(&mut index, "example.com/lag", "3"));
    assert!(written(&mut index, "example.com/lag", "many"), "which users are told of");
    assert!(written(&mut index, "example.com/lag", "4"), "and that it is right again");
    assert!(written(&mut index, "example.com/other", "5"));
}

#[test]
fn an_election_knows_where_the_other_elections_of_its_groups_have_their_leaders() {
    let mut index = serving();
    let mut put = |namespace: &str, name: &str, group: Option<&str>, node: Option<&str>| {
        let (version, _, mut object) = election(5);
        let uid = Uid(format!("{namespace}/{name}"));
        object.metadata.namespace = Some(namespace.into());
        object.metadata.name = Some(name.into());
        object.metadata.uid = Some(uid.0.clone());
        let spread = |group| json!([{"weight": 1, "zone": "z"}, {"spread": {"group": group}}]);
        object.spec.preferences = group.map(|group| serde_json::from_value(spread(group)).unwrap()).unwrap_or_default();
        index.apply_elections(Change::Applied((version, uid.clone(), object)));
        let holder = Holder { pod: Some("p".into()), uid: Uid("p".into()), node: node.map(Into::into), ip: None };
        let stored = Stored::Ours(version, Record { election: uid, holder: Some(holder), ..record() });
        let event = StoreEvent::Changed(Key::lease(namespace, name), version, stored);
        index.records().apply(event, Instant::default());
        assert_eq!(index.take_dirty(99), [Namespace::from(namespace).election(name)], "the others need no step");
    };
    put("n", "web", Some("shards"), Some("n1"));
    put("n", "one", Some("shards"), Some("n2"));
    put("n", "same", Some("shards"), Some("n2"));
    put("n", "nowhere", Some("shards"), None);
    put("n", "other", Some("others"), Some("n3"));
    put("n", "none", None, Some("n4"));
    put("m", "far", Some("shards"), Some("n5"));
    let mut near = |name: &str| {
        let found = index.find(&Namespace::from("n").election(name)).unwrap();
        found.other_leaders.into_iter().map(|other_leader| other_leader.node).collect::<Vec<_>>()
    };
    assert_eq!(near("web"), ["n2", "n2"]);
    assert_eq!(near("one"), ["n2", "n1"]);
    assert!(near("other").is_empty() && near("none").is_empty());
}

/// Compares a walk over all pods with the notes that make such a walk unnecessary.
fn assert_consistent(index: &Index) {
    for (namespace, content) in &index.objects.namespaces {
        for (name, entry) in &content.elections {
            let concern = entry.object.concern(&index.locks, &entry.workloads.claims().scopes);
            let mut walked = entry.members.clone();
            walked.gather(content.pods.iter(), &concern);
            let all: Vec<&String> = walked.all().collect();
            assert_eq!(entry.members.all().collect::<Vec<_>>(), all, "pods of {name}");
            assert_eq!(entry.members.candidates().collect::<Vec<_>>(), walked.candidates().collect::<Vec<_>>());
            for pod in content.pods.iter() {
                let noted = content.concerned.get(&pod.name).is_some_and(|of| of.contains_key(name));
                assert_eq!(noted, entry.members.include(&pod.name), "{name} of {}", pod.name);
                assert_eq!(content.selecting(&pod.name).any(|of| of == name), entry.members.select(&pod.name));
                let here = (namespace.clone(), pod.name.clone());
                let node = pod.node.clone().unwrap_or_default();
                assert_eq!(index.nodes.pods.get(&node).is_some_and(|pods| pods.contains(&here)), pod.node.is_some());
            }
            assert_eq!(index.filed.uids.get(&entry.object.id().uid), Some(entry.object.election()));
            let named =
                entry.spec().map(|spec| index.filed.naming.of(&spec.key).any(|of| of == entry.object.election()));
            assert_ne!(named, Some(false));
            for mention in mentions::Mention::all_of(entry) {
                assert!(content.mentions.by(&mention).any(|of| of == name), "{mention:?} by {name}");
            }
        }
        for pod in content.concerned.keys() {
            assert!(content.pods.get(pod).is_some(), "{pod} is gone");
        }
        let about = |(election, of_it): (&String, &OfElection)| {
            of_it.keys().map(|switchover| (switchover.clone(), election.clone())).collect::<Vec<_>>()
        };
        let about: BTreeSet<(String, String)> = content.switchovers.iter().flat_map(about).collect();
        let noted = content.switched.iter().flat_map(|(name, all)| all.keys().map(|of| (name.clone(), of.clone())));
        assert_eq!(noted.collect::<BTreeSet<_>>(), about);
        assert!(content.switchovers.values().all(|of_it| !of_it.is_empty()));
    }
}

#[test]
fn whatever_happens_each_election_knows_the_pods_that_a_walk_over_all_would_find() {
    for seed in 1..150_u64 {
        // A linear congruential generator, by Knuth.
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut index = serving();
        for version in 10..90 {
            let (number, app) = (random(5), format!("app-{}", random(3)));
            let name = format!("e-{}", random(3));
            match random(6) {
                0 | 1 => {
                    let labels = Pairs::from([("app".into(), app), ("tier".into(), format!("t-{}", random(2)))]);
                    let marked = (random(3) == 0).then(|| (lictor_core::ELECTION_ANNOTATION.to_owned(), name));
                    let uid = format!("pod-{number}-{}", random(2));
                    index.pods().put(
                        &"n".into(),
                        Pod {
                            labels,
                            annotations: marked.into_iter().collect(),
                            node: Some(format!("node-{}", random(2))).filter(|_| random(2) == 0),
                            ..pod(&format!("web-{number}"), &uid, version)
                        },
                        Instant::default(),
                    );
                }
                2 => {
                    let deleted = pod(&format!("web-{number}"), &format!("pod-{number}-{}", random(2)), version);
                    index.pods().apply(Change::Deleted(("n".into(), deleted)), Instant::default());
                }
                3 => {
                    let uid = format!("uid-{name}-{}", random(2));
                    let key = ["one", "two", "three"][usize::try_from(random(3)).unwrap()];
                    let labels = if random(2) == 0 { json!({"app": app}) } else { json!({"tier": "t-1"}) };
                    let workloads = if random(2) == 0 { json!([]) } else { json!([{"kind": "CronJob", "name": app}]) };
                    let object: LeaderElection = serde_json::from_value(json!({
                        "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection",
                        "metadata": {"namespace": "n", "name": name, "uid": uid},
                        "spec": {"selector": {"matchLabels": labels}, "key": key, "workloads": workloads},
                    }))
                    .unwrap();
                    let change = (Version(version), Uid(uid), object);
                    let change = if random(4) == 0 { Change::Deleted(change) } else { Change::Applied(change) };
                    index.apply_elections(change);
                }
                4 => {
                    let (switchover, uid) = (format!("s-{}", random(2)), format!("switches-{name}-{}", random(2)));
                    let object: Switchover = serde_json::from_value(json!({
                        "apiVersion": "lictor.dev/v1alpha1", "kind": "Switchover",
                        "metadata": {"namespace": "n", "name": switchover, "uid": uid},
                        "spec": {"electionName": name, "fromTerm": 1},
                    }))
                    .unwrap();
                    let change = (Version(version), Uid(uid), object);
                    let change = if random(3) == 0 { Change::Deleted(change) } else { Change::Applied(change) };
                    index.switchovers().apply(change);
                }
                _ => {
                    let selector = Selector { match_labels: [("app".into(), app)].into(), ..Selector::default() };
                    let scope = lictor_core::Scope { selector, ..lictor_core::Scope::default() };
                    let record = Record { election: Uid(format!("uid-{name}-{}", random(2))), scope, ..record() };
                    let key = Key::lease("n", ["one", "two", "three"][usize::try_from(random(3)).unwrap()]);
                    let stored = if random(4) == 0 { Stored::Absent } else { Stored::Ours(Version(version), record) };
                    index.records().apply(StoreEvent::Changed(key, Version(version), stored), Instant::default());
                }
            }
            assert_consistent(&index);
        }
        let elections: Vec<ElectionName> = index.objects.elections().collect();
        for election in &elections {
            index.elections().take_out(election);
        }
        index.pods().apply(listed(1000, vec![]), Instant::default());
        index.switchovers().apply(listed(1000, vec![]));
        assert!(
            index.objects.namespaces.is_empty() && index.filed.uids.is_empty() && index.nodes.pods.is_empty(),
            "seed {seed}"
        );
    }
}

#[test]
fn a_pod_that_leads_by_the_record_alone_is_found_whichever_watch_is_ahead() {
    let leads = Holder { pod: Some("web-0".into()), uid: Uid("a".into()), node: None, ip: None };
    let stored = Stored::Ours(Version(11), Record { holder: Some(leads), ..record() });
    let shows = |index: &mut Index| {
        index.pods().apply(listed(10, vec![("n".into(), pod("web-0", "a", 5))]), Instant::default());
    };
    let members = |index: &mut Index| {
        index.objects.entries_mut().flat_map(|entry| entry.members.all().cloned()).collect::<Vec<_>>()
    };

    // Neither its labels nor its annotations still name the election.
    let mut index = serving();
    with_lock(&mut index, "web", stored.clone());
    index.apply_elections(listed(10, vec![election(5)]));
    shows(&mut index);
    assert_eq!(members(&mut index), ["web-0"]);
    // The loss of a leader is urgent.
    while !index.take_dirty(99).is_empty() {}
    index.mark(&Namespace::from("n").election("other"));
    index.pods().apply(Change::Deleted(("n".into(), pod("web-0", "a", 12))), Instant::default());
    assert_eq!(index.take_dirty(1), [Namespace::from("n").election("web")]);

    let mut index = serving();
    shows(&mut index);
    with_lock(&mut index, "web", stored);
    index.apply_elections(listed(10, vec![election(5)]));
    assert_eq!(members(&mut index), ["web-0"]);
}

/// Decides all marked elections, as the loop does. Returns how many decisions that took.
fn accept_all(index: &mut Index) -> usize {
    for round in 0..60 {
        let dirty = index.take_dirty(usize::MAX);
        if dirty.is_empty() {
            return round;
        }
        for election in dirty {
            if accept(index, &election).is_some_and(|(_, neighbours_care)| neighbours_care) {
                index.mark_neighbours(&election);
            }
        }
    }
    panic!("it does not come to rest");
}

/// Checks that all but one of the elections that want the same are refused and no others, and that the marks sufficed to find this out.
fn assert_apart(index: &mut Index) {
    for election in index.objects.elections().collect::<Vec<_>>() {
        let reason = |index: &Index| {
            let conflict = index.objects.named(&election).unwrap().object.conflict();
            conflict.map(|conflict| conflict.message.clone())
        };
        let known = reason(index);
        accept(index, &election);
        assert_eq!(known, reason(index), "{election}");
    }
    for content in index.objects.namespaces.values() {
        let served: Vec<&Entry> =
            content.elections.values().map(AsRef::as_ref).filter(|one| one.spec().is_some()).collect();
        let accepted = || served.iter().filter(|one| one.object.conflict().is_none());
        for entry in &served {
            let marked = |pod: &String| {
                let annotations = &content.pods.get(pod)?.annotations;
                annotations.get(lictor_core::TERM_ANNOTATION)?;
                annotations.get(lictor_core::ELECTION_ANNOTATION).map(str::to_owned)
            };
            let others = |pod: &&String| {
                marked(pod).is_some_and(|by| by != entry.object.name() && content.elections.contains_key(&by))
            };
            let foreign: BTreeSet<&Uid> =
                entry.members.candidates().filter(others).map(|pod| &content.pods.get(pod).unwrap().uid).collect();
            assert_eq!(
                entry.titles.foreign().iter().collect::<BTreeSet<_>>(),
                foreign,
                "the pods that {} may not write to",
                entry.object.name()
            );
        }
        for entry in accepted() {
            let spec = entry.spec().unwrap();
            for other in accepted().filter(|other| other.object.name() != entry.object.name()) {
                let (theirs, name) = (other.spec().unwrap(), entry.object.name());
                assert!(entry.members.candidates().all(|pod| !other.members.select(pod)), "the pods of {name}");
                assert!(spec.workloads.keys().all(|id| !theirs.workloads.contains_key(id)), "the workloads of {name}");
                assert!(spec.key != theirs.key, "the lock of {name}");
            }
            assert_eq!(circular(content, entry, |other| other.object.conflict().is_none()), None);
        }
    }
}

#[test]
fn whatever_happens_of_those_that_want_the_same_one_is_accepted_and_all_is_looked_at_that_changes() {
    for seed in 1..160_u64 {
        // A linear congruential generator, by Knuth.
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut index = serving();
        for version in 10..110 {
            let (app, name) = (format!("app-{}", random(4)), format!("e-{}", random(5)));
            match random(8) {
                0..=2 => {
                    let uid = format!("uid-{name}");
                    let workloads = match random(3) {
                        0 => json!([]),
                        1 => json!([{"kind": "Deployment", "name": format!("app-{}", random(4))}]),
                        _ => {
                            json!([{"kind": "Deployment", "name": app}, {"kind": "Job", "name": format!("app-{}", random(4))}])
                        }
                    };
                    let accepts = json!([{
                        "type": "Accepted", "status": if random(2) == 0 { "True" } else { "False" }, "reason": "x", "message": "",
                        "observedGeneration": random(2), "lastTransitionTime": format!("2026-01-01T00:00:0{}Z", random(3)),
                    }]);
                    let object: LeaderElection = serde_json::from_value(json!({
                        "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection",
                        "metadata": {
                            "namespace": "n", "name": name, "uid": uid, "generation": 1,
                            "creationTimestamp": format!("2026-01-01T00:00:0{}Z", name.len() % 3 + usize::from(name.ends_with('2'))),
                        },
                        "spec": {
                            "selector": {"matchLabels": {"app": format!("app-{}", random(4))}}, "workloads": workloads,
                            "key": format!("key-{}", random(9)),
                        },
                        "status": {"conditions": accepts},
                    }))
                    .unwrap();
                    let change = (Version(version), Uid(uid), object);
                    let change = if random(6) == 0 { Change::Deleted(change) } else { Change::Applied(change) };
                    index.apply_elections(change);
                }
                3 | 4 => {
                    let number = random(4);
                    let mut marked = vec![];
                    if random(2) == 0 {
                        marked.push((lictor_core::ELECTION_ANNOTATION.to_owned(), name));
                        marked.extend(
                            (random(4) != 0).then(|| (lictor_core::TERM_ANNOTATION.to_owned(), "1".to_owned())),
                        );
                    }
                    let pod = Pod {
                        labels: Pairs::from([("app".into(), app), ("made".into(), format!("app-{}", random(4)))]),
                        annotations: marked.into_iter().collect(),
                        owner: (random(2) == 0).then(|| format!("ReplicaSet/app-{}-", random(4))),
                        ..pod(&format!("web-{number}"), &format!("pod-{number}"), version)
                    };
                    let change = ("n".into(), pod);
                    let change = if random(4) == 0 { Change::Deleted(change) } else { Change::Applied(change) };
                    index.pods().apply(change, Instant::default());
                }
                5 | 6 => {
                    let kind = if random(3) == 0 { WorkloadKind::Job } else { WorkloadKind::Deployment };
                    let claim = BTreeMap::from([(lictor_core::ELECTION_ANNOTATION.to_owned(), name)]);
                    let setting = Setting::Replicas(1);
                    let object = WorkloadObject {
                        id: WorkloadId { kind, name: app.clone() },
                        pod_labels: Pairs::from([("app".into(), format!("app-{}", random(4)))]),
                        selector: Selector {
                            match_labels: [("made".into(), app.clone())].into(),
                            ..Selector::default()
                        },
                        claim: if random(2) == 0 { lictor_core::WorkloadClaim::read(&claim, setting) } else { None },
                        setting,
                        ..job(&format!("{kind}-{app}"), version)
                    };
                    let change = if random(4) == 0 { Change::Deleted(object) } else { Change::Applied(object) };
                    index.workloads().apply(kind, change);
                }
                _ => {
                    let record = Record { election: Uid(format!("uid-{name}")), ..record() };
                    let key = Key::lease("n", format!("key-{}", random(9)).as_str());
                    let stored = if random(4) == 0 { Stored::Absent } else { Stored::Ours(Version(version), record) };
                    index.records().apply(StoreEvent::Changed(key, Version(version), stored), Instant::default());
                }
            }
            accept_all(&mut index);
            assert_apart(&mut index);
        }
    }
}

#[test]
fn of_elections_that_register_one_service_in_consul_the_one_that_has_it_is_accepted() {
    let consul = |name: &str| {
        let object = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": name},
            "spec": {
                "controller": CONTROLLER,
                "consul": {"address": "http://consul:8500", "clusterName": "west", "servicePattern": "*"},
            },
        });
        (name.to_owned(), serde_json::from_value(object).unwrap())
    };
    let election = |namespace: &str, class: &str, service: &str, generation: i64| {
        let object = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection",
            "metadata": {
                "namespace": namespace, "name": "web", "uid": namespace, "generation": generation,
                "creationTimestamp": if namespace == "old" { "2026-01-01T00:00:00Z" } else { "2026-01-02T00:00:00Z" },
            },
            "spec": {
                "selector": {"matchLabels": {"app": "web"}}, "className": class,
                "sharedStore": {"consulService": {"name": service, "port": 80}},
            },
            "status": {"conditions": [{
                "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-03T00:00:00Z",
            }]},
        });
        (Version(10), Uid(namespace.into()), serde_json::from_value::<LeaderElection>(object).unwrap())
    };
    // The older election was edited after both had been accepted.
    let second = |class, service, generation| {
        let mut index = serving();
        index.elections().apply_classes(listed(1, vec![consul("a"), consul("b")]));
        let all = vec![election("new", "a", "shop", 1), election("old", class, service, generation)];
        index.apply_elections(listed(10, all));
        accept_all(&mut index);
        index
    };
    let refused = |index: &Index| {
        let all = index.objects.namespaces.values().flat_map(|content| content.elections.values());
        let refused = all.filter_map(|entry| Some((entry.object.election(), entry.object.conflict()?)));
        refused.map(|(election, refusal)| (election.namespace.to_string(), refusal.reason)).collect::<Vec<_>>()
    };
    assert_eq!(refused(&second("a", "shop", 1)), [("new".to_owned(), "ServiceTaken")]);
    assert_eq!(refused(&second("a", "other", 2)), []);
    assert_eq!(refused(&second("b", "shop", 2)), [], "they may be in two Consuls");
    let mut index = second("a", "shop", 2);
    assert_eq!(refused(&index), [("old".to_owned(), "ServiceTaken")]);
    let (_, uid, object) = election("new", "a", "shop", 1);
    index.apply_elections(Change::Deleted((Version(11), uid, object)));
    index.elections().take_out(&Namespace::from("new").election("web"));
    accept_all(&mut index);
    assert_eq!(refused(&index), []);
}

#[test]
fn a_class_is_offered_by_the_labels_of_namespaces_as_far_as_they_can_be_read() {
    let class = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": "gold"},
        "spec": {
            "controller": CONTROLLER, "lease": {}, "allowedNamespaces": {"selector": {"matchLabels": {"team": "a"}}},
        },
    });
    let mut index = serving();
    index.elections().apply_classes(listed(1, vec![("gold".to_owned(), serde_json::from_value(class).unwrap())]));
    assert!(index.offers.by_label());
    let (version, uid, mut object) = election(5);
    object.spec.class_name = Some("gold".into());
    index.apply_elections(listed(10, vec![(version, uid, object)]));
    let refusal = |index: &Index| {
        let mut entries = index.objects.namespaces.values().flat_map(|content| content.elections.values());
        entries.next().unwrap().object.refusal().map(|refusal| refusal.message.clone())
    };
    let team = |name: &str| ("n".to_owned(), Pairs::from([("team".into(), name.into())]));
    let forbidden = || Failure::Refused("the operator may not list namespaces".into());
    assert!(refusal(&index).is_some_and(|message| !message.contains("may not list")));
    index.elections().apply_labels(Change::Broken(None, WatchFailure::Forbidden(forbidden())));
    assert!(refusal(&index).is_some_and(|message| message.contains("may not list namespaces")));
    index.elections().apply_labels(listed(2, vec![team("b")]));
    assert!(refusal(&index).is_some_and(|message| !message.contains("may not list")));
    index.elections().apply_labels(Change::Applied(team("a")));
    assert_eq!(refusal(&index), None);
    // What was known counts on, because nothing says that it has changed.
    index.elections().apply_labels(Change::Broken(None, WatchFailure::Forbidden(forbidden())));
    assert_eq!(refusal(&index), None);
    index.elections().apply_labels(Change::Deleted(team("a")));
    assert!(refusal(&index).is_some());
}
