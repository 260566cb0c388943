//! Whatever others write on pods, into the status and into the lock: a leader that is fit stays, the group has one again when it is
//! lost, never two, and the terms go on to rise and do not run out.

use proptest::prelude::*;

use super::*;
use crate::properties::config;
use crate::switchover::Target;
use crate::{DrainObligation, ELECTION_ANNOTATION, NEVER_LEADER_ANNOTATION, Pairs, SwitchoverMark, invariants};

/// Terms of a Lease have 32 bits.
const LAST_TERM: i64 = i32::MAX as i64;

/// Numbers at which something could overflow, or that could be meant.
fn number() -> BoxedStrategy<i64> {
    let any = prop_oneof![
        Just(i64::MIN),
        Just(-1),
        0_i64..5,
        900_i64..3_000,
        Just(LAST_TERM - 1),
        Just(LAST_TERM),
        Just(LAST_TERM + 1),
        Just(i64::MAX - 1),
        Just(i64::MAX),
        any::<i64>(),
    ];
    any.boxed()
}

fn term_text() -> BoxedStrategy<String> {
    prop_oneof![3 => number().prop_map(|number| number.to_string()), 1 => "\\PC{0,12}", 1 => Just("7.0".to_owned())]
        .boxed()
}

/// What somebody may write on a pod beside the leader.
fn pod(at: usize) -> BoxedStrategy<Pod> {
    let label = |values: &'static [&'static str]| prop::option::of(prop::sample::select(values));
    let labels = (label(&["web", "other"]), label(&["follower", "Leader", ""]));
    let elections = label(&["web", "other", "", "🦀"]);
    let never = prop::option::weighted(0.2, "\\PC{0,6}");
    let annotations = (prop::option::of(term_text()), elections, prop::option::of(term_text()), never);
    let any = (labels, annotations, prop::array::uniform4(any::<bool>()), number());
    any.prop_map(move |((app, role), (term, election, priority, never), [ready, deleting, finished, bound], since)| {
        let pairs = |pairs: Vec<(&str, Option<String>)>| -> Pairs {
            pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
        };
        Pod {
            name: format!("x{at}"),
            uid: uid(&format!("x{at}")),
            labels: pairs(vec![("app", app.map(Into::into)), ("role", role.map(Into::into))]),
            annotations: pairs(vec![
                (TERM_ANNOTATION, term),
                (ELECTION_ANNOTATION, election.map(Into::into)),
                (PRIORITY_ANNOTATION, priority),
                (NEVER_LEADER_ANNOTATION, never),
            ]),
            node: bound.then(|| "n".into()),
            ready,
            deleting,
            finished,
            ready_since: Some(Timestamp(since)),
            ..Pod::default()
        }
    })
    .boxed()
}

/// What somebody may do to an election that has a leader.
#[derive(Clone, Debug)]
enum Hand {
    Pod(Pod),
    Status(i64),
    /// The leader's annotation, or another pod's.
    Term(bool, String),
    /// The lock can't be believed any more, and shows this number.
    Damage(i64),
    Delete,
}

fn hand() -> BoxedStrategy<Hand> {
    let any = prop_oneof![
        4 => prop_oneof![pod(0), pod(1), pod(2)].prop_map(Hand::Pod),
        2 => number().prop_map(Hand::Status),
        2 => (any::<bool>(), term_text()).prop_map(|(leader, text)| Hand::Term(leader, text)),
        2 => number().prop_map(Hand::Damage),
        1 => Just(Hand::Delete),
    ];
    any.boxed()
}

impl Lab {
    /// Steps and answers until nothing is asked for, and time brings nothing either; looks at all that is written.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..200 {
            let commands = self.step();
            if commands.iter().all(|command| matches!(command, Effect::Told(_))) {
                match self.election.wake() {
                    Some(wake) if wake > self.now => self.now = wake,
                    _ => return Ok(()),
                }
            }
            let before = self.election.term();
            for command in commands {
                let words = in_words(&command);
                if let Effect::Request(_, Command::WriteRecord { record, .. }) = &command {
                    prop_assert!(record.term.0 < LAST_TERM, "a Lease could not hold it: {words}");
                    prop_assert!(record.term >= before, "{words} after {before}");
                }
                if let Some((op, outcome)) = self.answer(&command, &words) {
                    self.election.take(op, outcome, self.now);
                }
                prop_assert!(invariants::at_most_one_leader(self.pods.values(), &self.scope.markings), "{words}");
            }
            prop_assert!(self.election.term() >= before);
        }
        Err(TestCaseError::fail(format!("it goes on and on: {:?}", self.election.situation())))
    }

    fn suffer(&mut self, hand: Hand) {
        match hand {
            Hand::Pod(pod) => drop(self.put(pod)),
            Hand::Status(term) => self.status_term = Term(term.max(0)),
            Hand::Term(leader, text) => self.edit(if leader { "p0" } else { "p1" }, |pod| {
                pod.annotations.insert(TERM_ANNOTATION.into(), text);
            }),
            Hand::Damage(term) => self.store(|version| Stored::Damaged(version, Term(term))),
            Hand::Delete => {
                let version = self.next_version();
                self.stored = Stored::Absent;
                self.election.observe(version, Stored::Absent.into());
            }
        }
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn a_fit_leader_stays_whatever_others_write(
        hands in prop::collection::vec((hand(), any::<bool>()), 1..8), restarted in prop::option::of(number()),
    ) {
        let mut lab = Lab::led(2);
        if let Some(status) = restarted {
            lab.status_term = Term(status.max(0));
            lab = lab.restarted();
            lab.settle()?;
        }
        for (hand, at_once) in hands {
            lab.suffer(hand);
            if at_once {
                lab.settle()?;
                prop_assert!(lab.shows_leader("p0"));
            }
        }
        lab.settle()?;
        prop_assert!(lab.shows_leader("p0"));
        prop_assert_eq!(lab.election.situation(), &Situation::Led);
        let term = lab.election.term();
        lab.unready("p0");
        lab.settle()?;
        let leader = lab.leader().map(str::to_owned);
        prop_assert!(leader.as_ref().is_some_and(|leader| leader != "p0"), "{leader:?} leads");
        prop_assert!(lab.election.term() > term, "{} after {term}", lab.election.term());
    }

    #[test]
    fn a_group_has_a_leader_again_whatever_stands_in_its_record(
        term in 1_i64..1_000_000,
        generation in number(),
        since in number(),
        (election, operator_id) in (prop::sample::select(&["e", "other", ""]), "\\PC{0,20}"),
        holder in prop::option::of((prop::option::of("\\PC{0,8}"), prop::sample::select(&["p0", "p1", "", "x"]))),
        (selector, label) in (prop::sample::select(&["app", "tier", ""]), prop::sample::select(&["role", "old"])),
        former in any::<bool>(),
        obligation in prop::option::of((any::<u32>(), any::<bool>(), any::<u32>(), number())),
        switchover in prop::option::of((
            prop::sample::select(&["s", "t", ""]),
            prop::option::of(prop::sample::select(&["p0", "p9"])),
            prop::option::of(prop::sample::select(&["p0", "p1", "p9", ""])),
            any::<bool>(),
        )),
        accepted in prop::option::of((
            prop_oneof![0_i64..4, any::<i64>()],
            prop::option::of(prop::sample::select(&["p0", "p2", "p9"])),
            any::<bool>(),
        )),
        restarted in any::<bool>(),
    ) {
        let mut lab = Lab::led(3);
        let other = Scope {
            selector: Selector { match_labels: [(selector.to_owned(), "web".to_owned())].into(), ..Selector::default() },
            ..scope(label)
        };
        let record = Record { leaving: Vec::new(),
            term: Term(term),
            term_by_version: false,
            holder: holder.map(|(pod, of)| Holder { pod, uid: uid(of), node: None, ip: None }),
            operator_id,
            since: Timestamp(since),
            election: uid(election),
            election_name: String::new(),
            generation,
            scope: other.clone(),
            former: if former { vec![other, scope("role")] } else { Vec::new() },
            drain_obligation: obligation.map(|(wind_down_seconds, ended, waits_seconds, tick)| DrainObligation {
                wind_down_seconds,
                ended,
                waits_seconds,
                ticks: [("report".to_owned(), Timestamp(tick))].into(),
            }),
            switchover: switchover.map(|(id, from, to, force)| SwitchoverMark {
                id: uid(id),
                from: from.map(uid),
                to: to.map(uid),
                force,
                ..SwitchoverMark::default()
            }),
            offer: None,
        };
        lab.accepted = accepted.map(|(from_term, to, force)| Asked {
            id: uid("s"),
            from_term: Term(from_term),
            to: to.map_or(Target::Any, |to| Target::Pod(uid(to))),
            force,
        });
        lab.store(|version| Stored::Ours(version, record));
        if restarted {
            lab = lab.restarted();
        }
        lab.settle()?;
        prop_assert!(lab.leader().is_some(), "{:?}", lab.election.situation());
        // A leader by force need not be ready.
        lab.accepted = None;
        lab.edit("p0", |pod| pod.ready = false);
        lab.settle()?;
        prop_assert!(lab.leader().is_some_and(|leader| leader != "p0"), "{:?}", lab.election.situation());
    }
}
