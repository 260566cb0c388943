//! After an unclear answer nothing is written before the object was read, and a conflict counts unless the object is as it was.

use proptest::prelude::*;

use super::config;
use crate::write::{Shown, Versioned};
use crate::{Failure, OpId, Outcome, Pod, PodOutcome, Uid, Version};

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The server takes up the request, and answers.
    Serve,
    /// The answer is lost. The server has carried out the request, or does so at the end, or never does.
    Lose(Carried),
    Refuse,
    /// A webhook refuses the write with the code of a conflict.
    Disguise,
    /// Another writer changes the object.
    Change,
    /// The object is deleted, and made anew under its name, or not.
    Delete(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    Before,
    Later,
    Never,
}

fn event() -> impl Strategy<Value = Event> {
    let carried = prop_oneof![Just(Carried::Before), Just(Carried::Later), Just(Carried::Never)];
    prop_oneof![
        6 => Just(Event::Serve),
        2 => carried.prop_map(Event::Lose),
        1 => Just(Event::Refuse),
        2 => Just(Event::Disguise),
        2 => Just(Event::Change),
        1 => any::<bool>().prop_map(Event::Delete),
    ]
}

/// The API server with one pod, and requests that it may still carry out.
struct Server {
    pod: Option<Pod>,
    version: u64,
    late: Vec<Version>,
}

impl Server {
    fn make(&mut self, uid: u64) {
        self.version += 1;
        self.pod = Some(Pod { uid: Uid(uid.to_string()), version: Version(self.version), ..Pod::default() });
    }

    fn write(&mut self, uid: &Uid, version: Version) -> PodOutcome {
        match &mut self.pod {
            Some(pod) if pod.uid == *uid && pod.version == version => {
                self.version += 1;
                pod.version = Version(self.version);
                PodOutcome::Written(Box::new(pod.clone()))
            }
            Some(pod) if pod.uid == *uid => PodOutcome::Conflict,
            _ => PodOutcome::Gone,
        }
    }
}

fn refused() -> Failure {
    Failure::Refused("no".into())
}

fn unknown() -> Failure {
    Failure::Unknown("no answer".into())
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn what_has_become_of_a_write_is_read_before_the_next_one(events in prop::collection::vec(event(), 1..40)) {
        let mut server = Server { pod: None, version: 10, late: Vec::new() };
        server.make(0);
        let uid = Uid("0".into());
        let (mut write, mut seen, mut op) = (Versioned::Due, Version(server.version), 0);
        // Whether the last answer left open how the object is, and whether the last conflict was none.
        let (mut unclear, mut disguised) = (false, false);
        for event in events {
            op += 1;
            if write == Versioned::Due {
                prop_assert!(!unclear);
                write = Versioned::Sent(OpId(op), Some(seen));
            }
            write.read(|| OpId(op));
            let writes = matches!(write, Versioned::Sent(..));
            let outcome = match event {
                Event::Change => {
                    if let Some(pod) = server.pod.as_mut().map(|pod| pod.version) {
                        server.write(&uid, pod);
                    }
                    continue;
                }
                Event::Delete(anew) => {
                    server.pod = None;
                    if anew {
                        server.make(op);
                    }
                    continue;
                }
                Event::Serve if writes => Outcome::PodWritten(server.write(&uid, seen)),
                Event::Serve | Event::Disguise if !writes => {
                    // A request from before may overtake the read.
                    for version in std::mem::take(&mut server.late) {
                        server.write(&uid, version);
                    }
                    Outcome::PodRead(Ok(server.pod.clone()))
                }
                Event::Serve | Event::Disguise => Outcome::PodWritten(PodOutcome::Conflict),
                Event::Refuse if writes => Outcome::PodWritten(PodOutcome::Failed(refused())),
                Event::Refuse => Outcome::PodRead(Err(refused())),
                Event::Lose(_) if !writes => Outcome::PodRead(Err(unknown())),
                Event::Lose(carried) => {
                    match carried {
                        Carried::Before => drop(server.write(&uid, seen)),
                        Carried::Later => server.late.push(seen),
                        Carried::Never => {}
                    }
                    Outcome::PodWritten(PodOutcome::Failed(unknown()))
                }
            };
            let asked = write;
            if writes {
                disguised = matches!(event, Event::Disguise);
            }
            let refusal = matches!(event, Event::Refuse) && writes;
            let conflict = matches!(outcome, Outcome::PodWritten(PodOutcome::Conflict));
            match write.take(&uid, outcome) {
                Ok(Shown::Written(pod)) => {
                    prop_assert!(writes && pod.version > seen);
                    (unclear, seen) = (false, pod.version);
                }
                Ok(Shown::Read(pod)) => {
                    prop_assert!(!writes && pod.uid == uid && (!disguised || pod.version > seen));
                    (unclear, seen) = (false, pod.version);
                }
                Ok(Shown::Unchanged(pod)) => {
                    prop_assert!(!writes && disguised && pod.version == seen);
                    unclear = false;
                }
                Ok(Shown::Gone) => {
                    prop_assert!(server.pod.as_ref().is_none_or(|pod| pod.uid != uid));
                    return Ok(());
                }
                Ok(Shown::Nothing) => {
                    prop_assert!(conflict && write == Versioned::Unread(Some(seen)));
                    unclear = true;
                }
                Err(_) if refusal => prop_assert_eq!(write, Versioned::Due),
                Err(_) => {
                    prop_assert!(write.is_unread());
                    unclear = true;
                }
            }
            prop_assert_ne!(asked, write);
        }
    }

    #[test]
    fn an_answer_that_belongs_to_another_request_changes_nothing(of_read in any::<bool>(), read in any::<bool>()) {
        let (uid, pod) = (Uid("a".into()), Pod { uid: Uid("a".into()), ..Pod::default() });
        let before = if read { Versioned::Reading(OpId(1), None) } else { Versioned::Sent(OpId(1), None) };
        let outcome =
            if of_read { Outcome::PodRead(Ok(Some(pod))) } else { Outcome::PodWritten(PodOutcome::Conflict) };
        let mut write = before;
        let shown = write.take(&uid, outcome);
        prop_assert_eq!(write == before, read != of_read);
        prop_assert!(read == of_read || shown == Ok(Shown::Nothing));
        prop_assert!(before.awaits(OpId(1)) && !before.awaits(OpId(2)));
    }
}
