//! Leaders on nodes that are cordoned.

use super::*;

/// p0, p1, …, each on a node of its own, n0, n1, …; p0 leads.
fn on_nodes(pods: usize) -> Lab {
    let mut lab = Lab::new(pods);
    for number in 0..pods {
        lab.nodes.insert(format!("n{number}"), Node::default());
        lab.edit(&format!("p{number}"), |pod| pod.node = Some(format!("n{number}")));
    }
    lab.run();
    assert_eq!(lab.leader(), Some("p0"));
    lab
}

fn cordon(lab: &mut Lab, number: usize, cordoned: bool) {
    lab.nodes.insert(format!("n{number}"), Node { cordoned, ..Node::default() });
}

#[test]
fn a_leader_moves_off_a_node_that_is_cordoned_and_does_not_come_back() {
    let mut lab = on_nodes(3);
    cordon(&mut lab, 2, true);
    assert_eq!(lab.run(), NOTHING, "a follower's node");
    cordon(&mut lab, 0, true);
    assert_eq!(lab.run(), ["WriteRecord 2 p1", "Demote p0 2", "Promote p1 2", "Transition p1 NodeCordoned"]);
    cordon(&mut lab, 0, false);
    assert_eq!(lab.run(), NOTHING);
}

#[test]
fn a_leader_stays_where_nobody_on_another_node_is_eligible_and_moves_as_soon_as_somebody_is() {
    let mut lab = on_nodes(2);
    lab.unready("p1");
    cordon(&mut lab, 0, true);
    assert_eq!(lab.run(), NOTHING);
    assert_eq!(*lab.election.situation(), Situation::Led);
    lab.edit("p1", |pod| pod.node = Some("n0".into()));
    lab.edit("p1", |pod| pod.ready = true);
    assert_eq!(lab.run(), NOTHING, "on the same node");
    lab.edit("p1", |pod| pod.node = Some("n1".into()));
    assert_eq!(lab.run()[0], "WriteRecord 2 p1");

    let mut lab = on_nodes(2);
    lab.rules.min_ready = Duration::from_secs(200);
    cordon(&mut lab, 0, true);
    assert_eq!(lab.run(), NOTHING, "not ready for long enough");
    lab.now = lab.election.wake().unwrap();
    assert_eq!(lab.run()[0], "WriteRecord 2 p1");
}

#[test]
fn it_stays_where_its_user_wants_that_and_while_the_election_is_paused() {
    let mut lab = on_nodes(2);
    lab.rules.leave_cordoned = false;
    cordon(&mut lab, 0, true);
    assert_eq!(lab.run(), NOTHING);
    lab.rules.leave_cordoned = true;
    lab.desired = Desired::Freeze;
    assert_eq!(lab.run(), NOTHING);
    lab.desired = Desired::Run;
    assert_eq!(lab.run()[0], "WriteRecord 2 p1");
}

#[test]
fn it_does_not_move_to_a_pod_that_failed_its_probe_as_the_leader() {
    let mut lab = on_nodes(2);
    lab.probe_failed = Some((uid("p0"), ProbeFailure::NoAnswer));
    assert_eq!(lab.run()[0], "WriteRecord 2 p1");
    lab.probe_failed = None;
    cordon(&mut lab, 1, true);
    assert_eq!(lab.run(), NOTHING, "p0 failed its probe");
    lab.unready("p0");
    lab.run();
    lab.edit("p0", |pod| pod.ready = true);
    assert_eq!(lab.run()[0], "WriteRecord 3 p0", "it was not ready since, and is like new");
}

#[test]
fn a_label_that_is_lost_on_the_way_is_no_second_move() {
    let mut lab = on_nodes(3);
    cordon(&mut lab, 0, true);
    lab.instead("Promote p1", Outcome::PodWritten(PodOutcome::Failed(Failure::Unknown("late".into()))));
    let all = lab.run();
    assert_eq!(all.iter().filter(|words| words.starts_with("WriteRecord")).count(), 1, "{all:?}");
    assert_eq!(lab.leader(), Some("p1"));
}

/// Whatever is cordoned and uncordoned: the leader changes only when its own node is cordoned, once, and to a node that is not.
#[test]
fn no_order_of_cordons_makes_the_leader_go_back_and_forth() {
    for sequence in 0..3_usize.pow(6) {
        let mut lab = on_nodes(3);
        let mut cordoned = [false; 3];
        let mut turn = sequence;
        for _ in 0..6 {
            let number = turn % 3;
            turn /= 3;
            cordoned[number] = !cordoned[number];
            cordon(&mut lab, number, cordoned[number]);
            let before = lab.leader().unwrap().to_owned();
            let all = lab.run();
            let writes = all.iter().filter(|words| words.starts_with("WriteRecord")).count();
            let leader = lab.leader().expect("there is a leader").to_owned();
            let at = |name: &str| cordoned[name[1..].parse::<usize>().unwrap()];
            let others = cordoned.iter().any(|cordoned| !cordoned);
            assert_eq!(writes, usize::from(at(&before) && others), "{sequence}: {cordoned:?} {all:?}");
            assert!(!at(&leader) || !others, "{sequence}: {leader} {cordoned:?}");
            assert_eq!(lab.run(), NOTHING);
        }
    }
}
