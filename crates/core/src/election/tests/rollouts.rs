//! How often the leader changes while its pods are replaced by those of a new template.

use super::*;
use crate::Pairs;

/// Three pods of one owner and of the template `old`, of which this one leads.
fn led_by(leader: usize) -> Lab {
    let mut lab = Lab::new(3);
    for number in 0..3 {
        lab.edit(&format!("p{number}"), |pod| {
            of_template(pod, "old", 10 + i64::try_from(number).unwrap());
            pod.ready = number == leader;
        });
    }
    lab.run();
    for number in 0..3 {
        lab.edit(&format!("p{number}"), |pod| pod.ready = true);
    }
    lab.run();
    assert_eq!(lab.leader(), Some(format!("p{leader}").as_str()));
    lab
}

fn of_template(pod: &mut Pod, hash: &str, created: i64) {
    pod.owner = Some("ReplicaSet/web-".into());
    pod.labels.insert("pod-template-hash".into(), hash.into());
    pod.created = Timestamp(created);
    pod.ready_since = Some(Timestamp(created));
}

/// Another pod of the template, ready.
fn start(lab: &mut Lab, name: &str, hash: &str, created: i64) {
    let labels = Pairs::from([("app".into(), "web".into())]);
    let mut pod = Pod {
        name: name.into(),
        uid: uid(&format!("{name}-{hash}")),
        labels,
        node: Some("n".into()),
        ready: true,
        ready_observed: Some(Instant::default()),
        ..Pod::default()
    };
    of_template(&mut pod, hash, created);
    lab.put(pod);
    lab.run();
}

fn end(lab: &mut Lab, name: &str) {
    lab.edit(name, |pod| pod.deleting = true);
    lab.run();
    lab.pods.remove(name);
    lab.run();
}

/// How often the leader has changed: the first term is the first leader's.
fn changes(lab: &Lab) -> i64 {
    assert!(lab.leader().is_some());
    lab.election.term().0 - led_by(0).election.term().0
}

/// A Deployment with surge: one more pod of the new template, then one less of the old one, in whatever order.
#[test]
fn the_leader_of_a_deployment_changes_once_in_whatever_order_its_pods_are_replaced() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut lab = led_by(0);
        for (number, old) in order.into_iter().enumerate() {
            start(&mut lab, &format!("n{number}"), "new", 100 + i64::try_from(number).unwrap());
            end(&mut lab, &format!("p{old}"));
        }
        assert_eq!(changes(&lab), 1, "{order:?}");
    }
}

/// A rollback in the middle: the old template is the newest again.
#[test]
fn a_rollback_makes_pods_of_the_former_template_the_first_choice() {
    let mut lab = led_by(0);
    start(&mut lab, "n0", "new", 100);
    end(&mut lab, "p0");
    assert_eq!(lab.leader(), Some("n0"));
    start(&mut lab, "n1", "new", 101);
    start(&mut lab, "o0", "old", 200);
    end(&mut lab, "n0");
    let leader = lab.leader().unwrap().to_owned();
    assert_eq!(&lab.pods[&leader].labels["pod-template-hash"], "old");
    end(&mut lab, "n1");
    assert_eq!(changes(&lab), 2);
}

/// A StatefulSet without surge: from the last pod to the first, each by the same name.
#[test]
fn the_leader_of_a_stateful_set_changes_twice_at_most_whoever_leads() {
    for (leader, longest_ready) in (0..9).map(|number| (number / 3, number % 3)) {
        let mut lab = led_by(leader);
        lab.edit(&format!("p{longest_ready}"), |pod| pod.ready_since = Some(Timestamp(1)));
        for number in (0..3).rev() {
            let name = format!("p{number}");
            end(&mut lab, &name);
            start(&mut lab, &name, "new", 100 + i64::from(3 - number));
        }
        let changes = changes(&lab);
        assert!(
            (1..=2).contains(&changes),
            "{changes} changes, first p{leader}, p{longest_ready} is ready for the longest time"
        );
    }
}

#[test]
fn priority_preferences_and_a_label_that_is_there_come_before_a_newer_template() {
    let mut lab = led_by(0);
    start(&mut lab, "n0", "new", 100);
    assert_eq!(lab.leader(), Some("p0"), "nobody replaces a healthy leader");
    lab.edit("p2", |pod| drop(pod.annotations.insert(PRIORITY_ANNOTATION.into(), "1".into())));
    end(&mut lab, "p0");
    assert_eq!(lab.leader(), Some("p2"));
}
