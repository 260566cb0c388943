//! T1: what is told of the leader is what is there.

use proptest::prelude::*;

use super::routing::routed;
use super::*;
use crate::properties::config;
use crate::{Absence, absence};

/// Who is told to lead.
fn told(lab: &Lab) -> Option<&str> {
    lab.election.leader().and_then(|(_, holder, _)| holder.pod.as_deref())
}

fn missing(lab: &Lab) -> Option<Absence> {
    lab.election.absent().map(|absent| absent.what)
}

#[test]
fn a_leader_that_is_gone_is_told_at_once_where_nobody_takes_its_place() {
    for desired in [Desired::Freeze, Desired::Refuse] {
        for restarts in [false, true] {
            let mut lab = Lab::led(2);
            lab.desired = desired;
            if restarts {
                lab = lab.restarted();
            }
            lab.run();
            assert_eq!((told(&lab), missing(&lab)), (Some("p0"), None), "{desired:?} {restarts}");
            lab.edit("p0", |pod| drop(pod.labels.remove("role")));
            lab.run();
            assert_eq!((told(&lab), missing(&lab)), (None, Some(Absence::Unlabelled)));
            lab.edit("p0", |pod| pod.finished = true);
            lab.run();
            assert_eq!((told(&lab), missing(&lab)), (None, Some(Absence::Finished)));
            lab.pods.remove("p0");
            assert_eq!(lab.run(), NOTHING);
            assert_eq!((told(&lab), missing(&lab)), (None, Some(Absence::Gone)));
        }
    }
}

#[test]
fn a_leader_whose_place_is_being_taken_is_missing_when_that_fails() {
    let mut lab = Lab::led(2);
    lab.pods.remove("p0");
    let asked = lab.step();
    assert_eq!((told(&lab), missing(&lab)), (Some("p0"), None), "the record is being written");
    let failed = asked[0].failed(Failure::Unknown("no answer".into())).unwrap();
    lab.election.take(asked[0].op().unwrap(), failed, lab.now);
    lab.step();
    assert_eq!((told(&lab), missing(&lab)), (None, Some(Absence::Gone)));
}

#[test]
fn while_the_record_can_not_be_written_a_leader_that_is_gone_leaves_the_slice() {
    let mut lab = routed(2);
    lab.pods.remove("p0");
    lab.instead("WriteRecord", Outcome::RecordWritten(RecordOutcome::Failed(Failure::Refused("no".into()))));
    let did = lab.run();
    assert!(did.contains(&"ReadPod p0".to_owned()), "{did:?}");
    assert_eq!((told(&lab), missing(&lab), lab.reached()), (None, Some(Absence::Gone), vec![String::new()]));
    lab.now = lab.election.wake().unwrap();
    lab.run();
    assert_eq!((told(&lab), missing(&lab), lab.reached()), (Some("p1"), None, vec!["p1".to_owned()]));
}

/// The cache of pods is behind that of slices: somebody else has put the pod into the slice a moment ago.
#[test]
fn nobody_is_taken_out_of_a_slice_before_the_api_server_has_said_that_it_is_gone() {
    for desired in [Desired::Freeze, Desired::Refuse] {
        let mut lab = routed(2).restarted();
        lab.desired = desired;
        lab.unseen.insert("p0".into());
        assert_eq!(lab.run(), ["ReadPod p0"], "{desired:?}");
        assert_eq!(lab.run(), NOTHING, "it is not asked for again at once");
        assert_eq!(lab.reached(), ["p0"]);
        lab.now = lab.election.wake().unwrap();
        lab.pods.remove("p0");
        let did = lab.run();
        assert_eq!(did[0], "ReadPod p0");
        assert_eq!(lab.reached(), [""], "{did:?}");
        assert_eq!(lab.run(), NOTHING);
    }
}

#[test]
fn a_leader_that_is_only_not_ready_stays_in_the_slice_as_not_ready_also_while_paused() {
    let ready = |lab: &Lab| lab.slices.values().map(|slice| slice.content.endpoints[0].ready).collect::<Vec<_>>();
    for desired in [Desired::Run, Desired::Freeze, Desired::Refuse] {
        for restarts in [false, true] {
            let mut lab = routed(2);
            lab.failover_delay = Duration::from_secs(60);
            lab.desired = desired;
            if restarts && desired != Desired::Run {
                lab = lab.restarted();
            }
            lab.unready("p0");
            lab.run();
            assert_eq!((lab.reached(), ready(&lab)), (vec!["p0".to_owned()], vec![false]), "{desired:?} {restarts}");
            lab.edit("p0", |pod| pod.ready = true);
            lab.run();
            assert_eq!((lab.reached(), ready(&lab)), (vec!["p0".to_owned()], vec![true]), "{desired:?} {restarts}");
        }
    }
}

/// What may happen to a group.
#[derive(Clone, Debug)]
enum Happens {
    Gone(usize),
    Finished(usize),
    Unlabelled(usize),
    Unready(usize),
    Ready(usize),
    New(usize),
    Desired(Desired),
    RecordRefused,
    Restart,
    Later(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    let pod = || 0..3_usize;
    prop_oneof![
        pod().prop_map(Happens::Gone),
        pod().prop_map(Happens::Finished),
        pod().prop_map(Happens::Unlabelled),
        pod().prop_map(Happens::Unready),
        pod().prop_map(Happens::Ready),
        pod().prop_map(Happens::New),
        prop_oneof![Just(Desired::Run), Just(Desired::Freeze), Just(Desired::Refuse)].prop_map(Happens::Desired),
        Just(Happens::RecordRefused),
        Just(Happens::Restart),
        (0..4_000_u64).prop_map(Happens::Later),
    ]
}

fn happen(mut lab: Lab, what: &Happens, number: usize) -> Lab {
    let is_there = |lab: &Lab, pod: usize| lab.pods.contains_key(&format!("p{pod}"));
    match what {
        Happens::Gone(pod) => drop(lab.pods.remove(&format!("p{pod}"))),
        Happens::Finished(pod) if is_there(&lab, *pod) => lab.edit(&format!("p{pod}"), |pod| pod.finished = true),
        Happens::Unlabelled(pod) if is_there(&lab, *pod) => {
            lab.edit(&format!("p{pod}"), |pod| drop(pod.labels.remove("role")));
        }
        Happens::Unready(pod) if is_there(&lab, *pod) => lab.edit(&format!("p{pod}"), |pod| pod.ready = false),
        Happens::Ready(pod) if is_there(&lab, *pod) => lab.edit(&format!("p{pod}"), |pod| pod.ready = true),
        Happens::New(pod) if !is_there(&lab, *pod) => {
            let mut new = Lab::new(3).pods.remove(&format!("p{pod}")).unwrap();
            (new.uid, new.ip) = (uid(&format!("p{pod}-{number}")), Some(format!("10.0.{pod}.{number}")));
            lab.put(new);
        }
        Happens::Desired(desired) => lab.desired = *desired,
        Happens::RecordRefused => {
            let refused = RecordOutcome::Failed(Failure::Refused("no".into()));
            lab.instead("WriteRecord", Outcome::RecordWritten(refused));
        }
        Happens::Restart => return lab.restarted(),
        Happens::Later(milliseconds) => lab.now = lab.now + Duration::from_millis(*milliseconds),
        _ => {}
    }
    lab
}

proptest! {
    #![proptest_config(config(256))]

    /// Whatever has happened: who is told to lead is there with its label, or another one is being elected without a failure; and a slice names nobody who has been gone for longer.
    #[test]
    fn who_is_told_to_lead_is_there(all in prop::collection::vec(happens(), 1..40)) {
        let mut lab = routed(3);
        for (number, what) in all.iter().enumerate() {
            lab = happen(lab, what, number);
            lab.run();
            if let Some((_, holder, _)) = lab.election.leader().cloned() {
                let markings = lab.scope.markings.clone();
                let missing = absence("web", &holder, lab.pods.values(), |pod| markings.shows_leader(pod));
                prop_assert_eq!(missing, None, "{:?} is told after {:?}", holder, what);
            }
            // A minute later at the latest, all that waits was tried again.
            let mut settled = 0;
            while let Some(wake) = lab.election.wake().filter(|_| settled < 30 && matches!(what, Happens::Gone(_))) {
                lab.now = lab.now.max(wake);
                lab.run();
                settled += 1;
            }
            if matches!(what, Happens::Gone(_)) {
                for slice in lab.slices.values() {
                    for endpoint in &slice.content.endpoints {
                        prop_assert!(lab.pods.values().any(|pod| pod.uid == endpoint.uid), "{} is gone", endpoint.uid);
                    }
                }
            }
        }
    }
}
