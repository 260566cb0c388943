//! O1: pods on which somebody else owns what the election would write.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::properties::config;
use crate::{Control, Controller, ControllerKind, Ownership, Provenances, Selections, Title};

/// Gives a pod a label that somebody else owns.
fn own(lab: &mut Lab, name: &str, role: &str) {
    lab.edit(name, |pod| drop(pod.labels.insert("role".into(), role.into())));
    lab.foreign.insert(uid(name));
}

fn role<'a>(lab: &'a Lab, name: &str) -> Option<&'a str> {
    lab.pods[name].labels.get("role")
}

#[test]
fn a_pod_that_is_somebody_elses_is_neither_elected_nor_written() {
    let mut lab = Lab::new(3);
    own(&mut lab, "p0", "backend");
    lab.run();
    assert_eq!((lab.leader(), role(&lab, "p0"), role(&lab, "p2")), (Some("p1"), Some("backend"), Some("follower")));
    lab.unready("p1");
    lab.run();
    assert_eq!((lab.leader(), role(&lab, "p0")), (Some("p2"), Some("backend")));
    let mut lab = Lab::new(1);
    own(&mut lab, "p0", "backend");
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(*lab.election.situation(), Situation::Vacant);
}

#[test]
fn after_somebody_elses_record_its_version_is_changed_and_nothing_stays_on_it() {
    let mut lab = Lab::led(2).restarted();
    let mut pod = lab.pods["p1"].clone();
    (pod.name, pod.uid, pod.annotations) = ("p2".into(), uid("p2"), Pairs::default());
    lab.put(pod);
    own(&mut lab, "p2", "backend");
    lab.unready("p0");
    let before = lab.pods["p2"].clone();
    let done = lab.run();
    let of_it: Vec<&String> = done.iter().filter(|what| what.contains("p2")).collect();
    assert_eq!(of_it, ["Remove p2 2", "Remove p2"]);
    let after = &lab.pods["p2"];
    assert!(after.version > before.version, "a late promotion of it fails");
    assert_eq!((&after.labels, &after.annotations), (&before.labels, &before.annotations));
    assert_eq!(lab.leader(), Some("p1"));
}

/// O1.
#[test]
fn a_withdrawal_leaves_a_new_pod_alone_that_the_list_of_pods_did_not_have_yet() {
    let mut lab = Lab::led(2).restarted();
    let listed = lab.pods.values().cloned().collect();
    let by = Controller { kind: ControllerKind::ReplicaSet, name: "web-5d8f".into(), uid: uid("rs") };
    let new = Pod { name: "p2".into(), uid: uid("p2"), annotations: Pairs::default(), ..lab.pods["p0"].clone() };
    lab.put(Pod { control: Control::By(Box::new(by)), ..new });
    let before = lab.pods["p2"].clone();
    lab.instead("ListPods", Outcome::PodsListed(Ok(listed)));
    lab.desired = Desired::Withdraw;
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    let all = lab.run();
    assert_eq!(*lab.election.situation(), Situation::Withdrawn, "{all:#?}");
    assert_eq!(lab.pods["p2"].labels, before.labels, "{all:#?}");
}

/// A new Deployment that an earlier spec selects, whose template and ReplicaSet have what that spec wrote.
#[test]
fn a_pod_of_an_earlier_spec_that_has_no_mark_keeps_its_label() {
    let mut lab = Lab::led(2);
    let mut pod = lab.pods["p1"].clone();
    lab.scope.selector.match_labels.insert("tier".into(), "a".into());
    for name in ["p0", "p1"] {
        lab.edit(name, |pod| drop(pod.labels.insert("tier".into(), "a".into())));
    }
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    let mut lab = lab.restarted();
    (pod.name, pod.uid, pod.annotations) = ("new".into(), uid("new"), Pairs::default());
    lab.put(pod);
    let before = lab.pods["new"].clone();
    let done = lab.run();
    let after = &lab.pods["new"];
    assert!(after.version > before.version, "a late promotion of it fails: {done:#?}");
    assert_eq!((&after.labels, &after.annotations), (&before.labels, &before.annotations), "{done:#?}");
    assert_eq!(role(&lab, "new"), Some("follower"));
    assert!(lab.leader().is_some() && lab.record().former.is_empty(), "{done:#?}");
}

/// O1: its template may have the label that was the leader's under the earlier spec.
#[test]
fn a_pod_of_an_earlier_spec_that_shows_the_leaders_label_without_a_mark_keeps_it() {
    let mut lab = Lab::led(2);
    lab.scope.selector.match_labels.insert("tier".into(), "a".into());
    lab.edit("p1", |pod| drop(pod.labels.insert("tier".into(), "a".into())));
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    let mut pod = lab.pods["p0"].clone();
    (pod.name, pod.uid, pod.annotations) = ("new".into(), uid("new"), Pairs::default());
    lab.put(pod);
    let before = lab.pods["new"].clone();
    let done = lab.run();
    let after = &lab.pods["new"];
    assert_eq!((&after.labels, &after.annotations), (&before.labels, &before.annotations), "{done:#?}");
    assert_eq!((role(&lab, "p1"), role(&lab, "p0")), (Some("leader"), None), "{done:#?}");
}

/// O1: an operator that was killed after the record has the edited spec, and before the pods of the earlier one are clean.
#[test]
fn what_the_present_spec_writes_stays_on_a_pod_that_only_an_earlier_spec_selects() {
    for deleted in [false, true] {
        let mut lab = Lab::new(2);
        lab.scope.markings.leader.labels = [("tier", "leader")].into_iter().collect();
        lab.scope.markings.follower = Marking::default();
        let present = lab.scope.clone();
        // Their template has the label that the edited spec writes.
        lab.edit("p0", |pod| drop(pod.labels.insert("role".into(), "leader".into())));
        lab.run();
        assert_eq!(lab.pods["p0"].labels.get("tier"), Some("leader"));
        lab.scope = Scope { selector: lab.scope.selector.clone(), ..Lab::new(1).scope };
        lab.scope.selector.match_labels = [("app".to_owned(), "other".to_owned())].into();
        lab.generation = 2;
        lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
        let record = lab.record();
        let edited = Record { scope: lab.scope.clone(), former: vec![present], holder: None, generation: 2, ..record };
        lab.store(|version| Stored::Ours(version, edited));
        let mut lab = lab.restarted();
        if deleted {
            lab.desired = Desired::Withdraw;
        }
        let done = lab.run();
        let pod = &lab.pods["p0"];
        assert_eq!((pod.labels.get("role"), pod.labels.get("tier")), (Some("leader"), None), "{done:#?}");
        assert!(!pod.annotations.contains_key(ELECTION_ANNOTATION), "{done:#?}");
    }
}

#[test]
fn of_a_pod_that_the_cache_does_not_show_yet_no_label_is_written() {
    let mut lab = Lab::led(2).restarted();
    let mut pod = lab.pods["p1"].clone();
    (pod.name, pod.uid, pod.annotations) = ("p2".into(), uid("p2"), Pairs::default());
    pod.labels.insert("role".into(), "backend".into());
    lab.put(pod);
    lab.unseen.insert("p2".into());
    lab.unready("p0");
    lab.run();
    assert_eq!((lab.leader(), role(&lab, "p2")), (Some("p1"), Some("backend")));
}

#[test]
fn what_was_replaced_is_restored_when_the_election_goes() {
    let mut lab = Lab::new(2);
    lab.scope.markings.replaces = true;
    for name in ["p0", "p1"] {
        lab.edit(name, |pod| drop(pod.labels.insert("role".into(), "backend".into())));
    }
    lab.run();
    assert_eq!((role(&lab, "p0"), role(&lab, "p1")), (Some("leader"), Some("follower")));
    // It is kept over handovers, and over what somebody writes by hand.
    lab.unready("p0");
    lab.run();
    lab.edit("p0", |pod| drop(pod.labels.insert("role".into(), "nonsense".into())));
    lab.run();
    assert_eq!((role(&lab, "p0"), role(&lab, "p1")), (Some("follower"), Some("leader")));
    lab.desired = Desired::Withdraw;
    (lab.gone, lab.present) = (true, ElectionRead::Gone);
    lab.run();
    for pod in lab.pods.values() {
        assert_eq!((pod.labels.get("role"), pod.annotations.len()), (Some("backend"), 0), "{pod:#?}");
    }
}

#[test]
fn what_no_role_has_any_more_is_restored_when_the_spec_changes() {
    let mut lab = Lab::new(2);
    lab.scope.markings.replaces = true;
    for name in ["p0", "p1"] {
        lab.edit(name, |pod| drop(pod.labels.insert("role".into(), "backend".into())));
    }
    lab.run();
    lab.scope = scope("lead");
    lab.generation = 2;
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    lab.run();
    for pod in lab.pods.values() {
        assert_eq!(pod.labels.get("role"), Some("backend"), "{pod:#?}");
        assert!(pod.labels.contains_key("lead") && !pod.annotations.contains_key(crate::REPLACED_ANNOTATION));
    }
}

#[test]
fn what_a_template_has_copied_into_the_annotation_is_not_restored() {
    let mut lab = Lab::new(2);
    for name in ["p0", "p1"] {
        lab.edit(name, |pod| {
            drop(
                pod.annotations.insert(crate::REPLACED_ANNOTATION.into(), "label app=evil\nannotation why=none".into()),
            );
        });
    }
    lab.run();
    assert_eq!((lab.leader(), role(&lab, "p1")), (Some("p0"), Some("follower")));
    lab.desired = Desired::Withdraw;
    (lab.gone, lab.present) = (true, ElectionRead::Gone);
    lab.run();
    for pod in lab.pods.values() {
        assert_eq!((pod.labels.get("app"), pod.annotations.len()), (Some("web"), 0), "{pod:#?}");
    }
}

/// The label of a pod, whether the election has marked it, which controller made it, and whether its label came with it, as far as that is known.
type Made = (Option<&'static str>, bool, Option<usize>, Option<bool>);

fn made() -> impl Strategy<Value = Made> {
    let role = prop::option::of(prop::sample::select(vec!["leader", "follower", "backend"]));
    (role, any::<bool>(), prop::option::of(0..2_usize), prop::option::of(any::<bool>()))
}

proptest! {
    #![proptest_config(config(256))]

    /// O1: whatever fails, what somebody else owns stays as it is.
    #[test]
    fn what_somebody_else_owns_is_never_changed(
        pods in prop::collection::vec(made(), 1..5),
        selects in prop::collection::vec(prop::option::of(any::<bool>()), 2),
        unready in prop::collection::vec(0..5_usize, 0..4),
        restarts in any::<bool>(),
        goes in any::<bool>(),
    ) {
        let mut lab = Lab::new(pods.len());
        let (mut provenances, mut selections) = (Provenances::new(), Selections::default());
        for (number, by_role) in selects.iter().enumerate() {
            if let Some(by_role) = by_role {
                let key = if *by_role { "role" } else { "app" };
                selections.insert(uid(&format!("c{number}")), Some([key.to_owned()].into()));
            }
        }
        for (number, (role, marked, controller, created)) in pods.iter().enumerate() {
            let name = format!("p{number}");
            lab.edit(&name, |pod| {
                pod.labels.extend(role.map(|role| ("role", role)));
                pod.annotations.extend(marked.then_some((ELECTION_ANNOTATION, "web")));
                pod.control = controller.map_or(Control::None, |number| {
                    let (kind, name) = (ControllerKind::ReplicaSet, format!("c{number}"));
                    Control::By(Box::new(Controller { kind, uid: uid(&name), name }))
                });
            });
            if let Some(created) = created {
                let keys = created.then(|| "role".to_owned()).into_iter().collect();
                provenances.insert(uid(&name), crate::Provenance { created_with: Some(keys) });
            }
        }
        let titles = |lab: &Lab| -> BTreeMap<String, Title> {
            let markings = &lab.scope.markings;
            let (provenances, selections) = (&provenances, &selections);
            let asked = Ownership { election: "web", markings, former: &[], settled: true, provenances, selections };
            lab.pods.values().map(|pod| (pod.name.clone(), asked.of(pod))).collect()
        };
        let before: Vec<Pod> = titles(&lab)
            .into_iter()
            .filter(|(_, title)| *title != Title::Free)
            .map(|(name, _)| lab.pods[&name].clone())
            .collect();
        lab.foreign = before.iter().map(|pod| pod.uid.clone()).collect();
        // An election whose own mark is on such a pod is refused; here it is shown what somebody has copied.
        prop_assume!(before.iter().all(|pod| !pod.annotations.contains_key(ELECTION_ANNOTATION)));
        lab.run();
        if restarts {
            lab = lab.restarted();
        }
        for number in unready {
            if lab.pods.contains_key(&format!("p{number}")) {
                lab.unready(&format!("p{number}"));
                lab.run();
            }
        }
        if goes {
            lab.desired = Desired::Withdraw;
            (lab.gone, lab.present) = (true, ElectionRead::Gone);
            lab.run();
        }
        for pod in &before {
            prop_assert_eq!(&lab.pods[&pod.name].labels, &pod.labels);
            prop_assert_eq!(&lab.pods[&pod.name].annotations, &pod.annotations);
        }
    }
}
