//! H11, C4: no write that may still be carried out is forgotten, in any order of writes, answers and looks at the object.

use proptest::prelude::*;

use super::config;
use crate::write::Late;
use crate::{Failure, OpId, Pod, PodOutcome, Version};

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A write is sent for the object as it was so many versions ago.
    Send(u64),
    /// The server takes up one of the requests, and its answer arrives or is lost.
    Serve { which: usize, changes: bool, lost: bool },
    /// The server refuses one of the requests.
    Refuse(usize),
    /// The answer to one of the requests is given up. The server may still carry the request out.
    GiveUp(usize),
    /// Another writer changes the object.
    Change,
    /// The watch shows the object as it was so many versions ago.
    Look(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..3_u64).prop_map(Event::Send),
        3 => (any::<usize>(), any::<bool>(), any::<bool>())
            .prop_map(|(which, changes, lost)| Event::Serve { which, changes, lost }),
        1 => any::<usize>().prop_map(Event::Refuse),
        1 => any::<usize>().prop_map(Event::GiveUp),
        1 => Just(Event::Change),
        1 => (0..3_u64).prop_map(Event::Look),
    ]
}

fn unknown() -> PodOutcome {
    PodOutcome::Failed(Failure::Unknown("no answer".into()))
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn a_write_that_may_still_be_carried_out_is_not_forgotten(events in prop::collection::vec(event(), 1..40)) {
        let (mut late, mut version, mut sent) = (Late::default(), 10, 0);
        // The requests that the server has not taken up.
        let mut open: Vec<(OpId, u64)> = Vec::new();
        for event in events {
            let which = |which: usize| (!open.is_empty()).then(|| which % open.len());
            match event {
                Event::Send(ago) => {
                    sent += 1;
                    late.send(OpId(sent), Version(version - ago));
                    open.push((OpId(sent), version - ago));
                }
                Event::Serve { which: number, changes, lost } => {
                    let Some((op, of)) = which(number).map(|number| open.remove(number)) else { continue };
                    let outcome = if of == version {
                        version += u64::from(changes);
                        PodOutcome::Written(Box::new(Pod { version: Version(version), ..Pod::default() }))
                    } else {
                        PodOutcome::Conflict
                    };
                    late.take(op, &if lost { unknown() } else { outcome });
                }
                Event::Refuse(number) => {
                    let Some((op, _)) = which(number).map(|number| open.remove(number)) else { continue };
                    late.take(op, &PodOutcome::Failed(Failure::Refused("no".into())));
                }
                Event::GiveUp(number) => {
                    let Some(number) = which(number) else { continue };
                    late.take(open[number].0, &unknown());
                }
                Event::Change => version += 1,
                Event::Look(ago) => late.reach(Version(version - ago)),
            }
            if open.iter().any(|(_, of)| *of == version) {
                prop_assert!(late.may_change(Version(version)), "{late:?} at {version}, of {open:?}");
            }
        }
        // Once the object has a later version, and is seen with it, nothing is waited for.
        late.reach(Version(version + 1));
        prop_assert!(late.is_empty());
    }

    #[test]
    fn an_answer_that_no_write_can_outlast_ends_the_waiting(
        versions in prop::collection::vec(0..5_u64, 1..9),
        gone in any::<bool>(),
    ) {
        let mut late = Late::default();
        for (op, version) in (0..).zip(&versions) {
            late.send(OpId(op), Version(*version));
        }
        let outcome = if gone { PodOutcome::Gone } else { PodOutcome::Conflict };
        late.take(OpId(99), &outcome);
        prop_assert!(!late.is_empty(), "the answer is to another request");
        late.take(OpId(0), &outcome);
        let later = versions.iter().any(|version| *version > versions[0]);
        prop_assert_eq!(late.is_empty(), gone || !later);
    }
}
