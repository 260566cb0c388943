//! What an election left behind that had no finalizer.

use super::*;

fn gone() -> Lab {
    let mut lab = Lab::led(2).restarted();
    (lab.desired, lab.gone, lab.present) = (Desired::Withdraw, true, ElectionRead::Gone);
    lab
}

/// Shows H13.
#[test]
fn what_an_election_left_behind_goes_as_if_it_were_being_deleted() {
    let mut lab = gone();
    assert_eq!(
        lab.run(),
        ["ReadElection", "ReadRecord", "WriteRecord 1 nobody", "ListPods", "Remove p0", "Remove p1", "DeleteRecord"]
    );
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
    assert!(lab.pods.values().all(|pod| pod.annotations.is_empty() && pod.labels.len() == 1));
}

/// Shows H13.
#[test]
fn nothing_is_removed_of_an_election_that_the_api_server_still_has() {
    let mut lab = gone();
    lab.present = ElectionRead::Present { uid: uid("e"), generation: 1 };
    assert_eq!(lab.run(), ["ReadElection"]);
    assert_ne!(*lab.election.situation(), Situation::Withdrawn);
    assert!(lab.election.wake().is_some(), "it is asked for again");
    // Another one by the same name: this one is gone.
    let mut lab = gone();
    lab.present = ElectionRead::Present { uid: uid("its successor"), generation: 1 };
    assert_eq!(lab.run().last().map(String::as_str), Some("DeleteRecord"));
}

#[test]
fn an_election_that_goes_in_the_middle_of_a_handover_leaves_nothing() {
    let mut lab = Lab::led(2).restarted();
    // Its first handover reads that it is gone, before it is shown so.
    lab.present = ElectionRead::Gone;
    lab.unready("p0");
    assert!(!lab.run().iter().any(|command| command.starts_with("Promote")));
    (lab.desired, lab.gone) = (Desired::Withdraw, true);
    lab.run();
    assert_eq!(*lab.election.situation(), Situation::Withdrawn);
    assert!(lab.pods.values().all(|pod| pod.annotations.is_empty()));
}
