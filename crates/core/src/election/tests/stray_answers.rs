//! Answers that nobody waits for: to requests of before a restart, or that came after their time. They change nothing, whatever they
//! say and whenever they come.

use super::*;

/// One of each kind, with what would harm most if it were believed.
fn strange() -> Vec<Outcome> {
    let refused = || Failure::Refused("an earlier request".into());
    let key = Key::lease("", "stray");
    let mut lab = Lab::led(1);
    lab.store(|version| Stored::Ours(Version(version.0 + 1000), Record { generation: 9, ..Lab::led(1).record() }));
    vec![
        Outcome::RecordRead(Ok(Stored::Absent)),
        Outcome::RecordRead(Ok(lab.stored.clone())),
        Outcome::RecordRead(Err(refused())),
        Outcome::RecordWritten(RecordOutcome::Conflict),
        Outcome::RecordWritten(RecordOutcome::Written(Version(5_000))),
        Outcome::RecordWritten(RecordOutcome::Delayed),
        Outcome::RecordWritten(RecordOutcome::Failed(refused())),
        Outcome::ElectionRead(Ok(ElectionRead::Gone)),
        Outcome::ElectionRead(Err(refused())),
        Outcome::LocksListed(Ok(vec![(key, lab.stored)])),
        Outcome::LocksListed(Err(refused())),
        Outcome::PodsListed(Ok(Vec::new())),
        Outcome::PodsListed(Err(refused())),
        Outcome::PodRead(Ok(None)),
        Outcome::PodRead(Err(refused())),
        Outcome::PodWritten(PodOutcome::Written(Box::default())),
        Outcome::PodWritten(PodOutcome::Conflict),
        Outcome::PodWritten(PodOutcome::Gone),
        Outcome::PodWritten(PodOutcome::Failed(refused())),
        Outcome::WorkloadsRead(Ok(Vec::new())),
        Outcome::WorkloadsRead(Err(refused())),
        Outcome::WorkloadWritten(WorkloadOutcome::Done),
        Outcome::WorkloadWritten(WorkloadOutcome::Conflict),
        Outcome::WorkloadWritten(WorkloadOutcome::Gone),
        Outcome::WorkloadWritten(WorkloadOutcome::Failed(refused())),
    ]
}

impl Lab {
    /// As [`Lab::run`], with strange answers before each true one if `disturbed`; goes on when a wait is over.
    fn go_on(&mut self, disturbed: bool) -> Vec<String> {
        let strange = strange();
        let mut all = Vec::new();
        let mut quiet = 0;
        while quiet < 3 {
            let commands = self.step();
            if commands.is_empty() {
                quiet += 1;
                self.now = self.election.wake().map_or(self.now, |wake| wake.max(self.now));
            }
            if disturbed && !commands.is_empty() {
                for outcome in &strange {
                    self.election.take(OpId(u64::MAX), outcome.clone(), self.now);
                }
                let more = self.step();
                assert!(more.is_empty(), "the answers to {commands:#?} are awaited: {more:#?}");
            }
            for command in commands {
                let words = in_words(&command);
                if let Some((op, outcome)) = self.answer(&command, &words) {
                    self.election.take(op, outcome, self.now);
                }
                all.push(words);
                assert!(all.len() < 60, "it goes on and on: {all:#?}");
            }
        }
        all
    }
}

fn unknown(version: Option<Version>) -> Outcome {
    let lost = Failure::Unknown("no answer".into());
    match version {
        None => Outcome::PodWritten(PodOutcome::Failed(lost)),
        Some(_) => Outcome::RecordWritten(RecordOutcome::Failed(lost)),
    }
}

type Scene = (&'static str, fn(&mut Lab));

/// What happens to a lab, and so everything that an election can be waiting for.
const SCENES: [Scene; 16] = [
    ("nothing", |_| {}),
    ("the leader fails", |lab| lab.unready("p0")),
    ("all fail", |lab| ["p0", "p1", "p2"].iter().for_each(|name| lab.unready(name))),
    ("the labels change", |lab| {
        lab.scope = scope("tier");
        lab.generation = 2;
        lab.present = ElectionRead::Present { uid: uid("e"), generation: 2 };
    }),
    ("a promotion meets another version", |lab| {
        lab.unready("p0");
        lab.instead("Promote", Outcome::PodWritten(PodOutcome::Conflict));
    }),
    ("a demotion meets another version", |lab| {
        lab.unready("p0");
        lab.instead("Demote", Outcome::PodWritten(PodOutcome::Conflict));
    }),
    ("the outcome of a record is not known", |lab| {
        lab.unready("p0");
        lab.instead("WriteRecord", unknown(Some(Version(1))));
    }),
    ("the outcome of a record is not known, and it can't be read", |lab| {
        lab.unready("p0");
        lab.instead("WriteRecord", unknown(Some(Version(1))));
        lab.instead("ReadRecord", Outcome::RecordRead(Err(Failure::Unknown("no answer".into()))));
    }),
    ("the outcome of a promotion is not known", |lab| {
        lab.unready("p0");
        lab.instead("Promote", unknown(None));
    }),
    ("somebody writes the record", |lab| {
        let other = Record { operator_id: "other".into(), ..lab.record() };
        lab.store(|version| Stored::Ours(version, other));
        lab.unready("p0");
    }),
    ("somebody edits the record", |lab| lab.store(|version| Stored::Damaged(version, Term(3)))),
    ("another election of that name", |lab| {
        let other = Record { election: uid("other"), ..lab.record() };
        lab.store(|version| Stored::Ours(version, other));
    }),
    ("the leader's label is taken off", |lab| lab.edit("p0", |pod| drop(pod.labels.remove("role")))),
    ("a follower's label is changed", |lab| {
        lab.edit("p1", |pod| drop(pod.labels.insert("role".into(), "leader".into())));
        lab.instead("Demote p1", Outcome::PodWritten(PodOutcome::Conflict));
    }),
    ("it is deleted", |lab| lab.desired = Desired::Withdraw),
    ("its key has changed", |lab| {
        let stored = std::mem::replace(&mut lab.stored, Stored::Absent);
        lab.strays = vec![(Key::lease("", "old"), stored)];
        lab.election.records.lock.take_deleted(Version::default());
        lab.instead("WriteRecord", Outcome::RecordWritten(RecordOutcome::Conflict));
    }),
];

#[test]
fn an_answer_that_nobody_waits_for_changes_nothing() {
    for (scene, happens) in SCENES {
        for restarted in [false, true] {
            let run = |disturbed| {
                let mut lab = Lab::led(3);
                happens(&mut lab);
                if restarted && lab.strays.is_empty() {
                    lab = lab.restarted();
                }
                let words = if lab.strays.is_empty() { lab.go_on(disturbed) } else { lab.first(disturbed) };
                let roles: Vec<_> =
                    lab.pods.values().map(|pod| (pod.labels.clone(), pod.annotations.clone())).collect();
                (words, roles, lab.election.situation().clone())
            };
            assert_eq!(run(true), run(false), "{scene}, restarted: {restarted}");
        }
    }
}

#[test]
fn in_a_shared_store_neither() {
    let scenes: [fn(&mut Lab); 4] = [
        |lab| ["p0", "p1"].iter().for_each(|name| lab.unready(name)),
        |lab| lab.store(|version| Stored::HeldByOther(version, rival())),
        |lab| lab.store(|version| Stored::Free(version, None, None)),
        |lab| lab.desired = Desired::Leave,
    ];
    for happens in scenes {
        let run = |disturbed| {
            let mut lab = shared(2);
            lab.policy.validity = LockValidity::Until(lab.now + Duration::from_secs(1000));
            happens(&mut lab);
            (lab.go_on(disturbed), lab.election.situation().clone())
        };
        assert_eq!(run(true), run(false));
    }
}

#[test]
fn nor_while_it_is_read_what_still_runs() {
    let run = |disturbed| {
        let mut lab = workloads::leading();
        lab.cluster = Some(Err(Unavailable));
        (lab.go_on(disturbed), lab.election.situation().clone())
    };
    let undisturbed = run(false);
    assert!(undisturbed.0.contains(&"ReadWorkloads 2".to_owned()), "{undisturbed:#?}");
    assert_eq!(run(true), undisturbed);
}

impl Lab {
    /// The first steps alone: this world has one key only.
    fn first(&mut self, disturbed: bool) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..2 {
            let commands = self.step();
            if disturbed && !commands.is_empty() {
                for outcome in strange() {
                    self.election.take(OpId(u64::MAX), outcome, self.now);
                }
                assert!(self.step().is_empty(), "the answers to {commands:#?} are awaited");
            }
            for command in commands {
                let words = in_words(&command);
                if let Some((op, outcome)) = self.answer(&command, &words) {
                    self.election.take(op, outcome, self.now);
                }
                all.push(words);
            }
        }
        all
    }
}
