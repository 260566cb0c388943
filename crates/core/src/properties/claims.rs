//! Replicas of the operator with a clock each, whose requests and answers are late or lost: never two act. Where some are taken for
//! gone that run on, two may act, and none of them takes itself for alone.

use std::time::Duration;

use proptest::prelude::*;

use super::{at, config};
use crate::{Claim, ClaimCommand, ClaimParameters, ClaimState, Instant, Version};

/// The operator's Lease.
#[derive(Clone, Debug)]
struct Lease {
    version: Version,
    holder: Option<String>,
    duration: Duration,
}

#[derive(Debug)]
struct Replica {
    name: String,
    claim: Claim,
    parameters: ClaimParameters,
    /// What its clock is ahead of the observer's, in milliseconds.
    ahead: u64,
    request: Option<Request>,
    /// How many versions of the Lease it was shown.
    shown: usize,
}

#[derive(Debug)]
struct Request {
    expected: Option<Version>,
    sent: Instant,
    answer: Option<Answer>,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Written(Version),
    Refused,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Time goes by.
    Later(u64),
    /// A replica does what it has to do.
    Turn,
    /// Its request arrives.
    Arrival,
    /// The answer comes back.
    Answer,
    /// The request, or its answer, is lost.
    Loss,
    /// Its watch shows the next version, or it is read.
    Watch,
    /// It is started anew: nothing is known of what it sent.
    Restart,
    /// It takes the process of the holder for gone, which may run on.
    TakesForGone,
    /// It releases the lease, if it holds it, and is started anew.
    End,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1_u64..3_000).prop_map(Event::Later),
        1 => (3_000_u64..20_000).prop_map(Event::Later),
        6 => Just(Event::Turn),
        5 => Just(Event::Arrival),
        5 => Just(Event::Answer),
        1 => Just(Event::Loss),
        4 => Just(Event::Watch),
        1 => Just(Event::Restart),
    ]
}

/// The same, with holders that are taken for gone.
fn mistake() -> impl Strategy<Value = Event> {
    prop_oneof![8 => event(), 1 => Just(Event::TakesForGone), 1 => Just(Event::End)]
}

impl Replica {
    /// One that waits for as long as each holder has published: an agent, or one of replicas that all have the same duration.
    fn new(name: String, seconds: u64, ahead: u64) -> Self {
        Self::with(name, ClaimParameters::patient(Duration::from_secs(seconds)), ahead)
    }

    /// L3: one that waits no longer than for its own duration.
    fn of_operator(name: String, seconds: u64, ahead: u64) -> Self {
        Self::with(name, ClaimParameters::of_replica(Duration::from_secs(seconds)), ahead)
    }

    fn with(name: String, parameters: ClaimParameters, ahead: u64) -> Self {
        Self { claim: Claim::new(name.clone(), parameters), name, parameters, ahead, request: None, shown: 0 }
    }

    fn take(&mut self, event: Event, now: u64, history: &mut Vec<Lease>) {
        let own = at(now + self.ahead);
        match event {
            Event::Later(_) => {}
            Event::Turn => {
                if let (ClaimCommand::Write { expected, .. }, None) = (self.claim.next(own), &self.request) {
                    self.request = Some(Request { expected, sent: own, answer: None });
                }
            }
            Event::Arrival => {
                if let Some(request) = self.request.as_mut().filter(|request| request.answer.is_none()) {
                    let present = history.last().map(|lease| lease.version);
                    let written = if present == request.expected {
                        let version = Version(present.map_or(1, |version| version.0 + 1));
                        let (holder, duration) = (Some(self.name.clone()), self.parameters.duration);
                        history.push(Lease { version, holder, duration });
                        Answer::Written(version)
                    } else {
                        Answer::Refused
                    };
                    request.answer = Some(written);
                }
            }
            Event::Answer => match self.request.take() {
                Some(Request { answer: Some(Answer::Written(version)), sent, .. }) => {
                    self.claim.written(version, sent, own);
                }
                Some(Request { answer: Some(Answer::Refused), .. }) => self.claim.failed(own),
                waiting => self.request = waiting,
            },
            Event::Loss => {
                if self.request.take().is_some() {
                    self.claim.failed(own);
                }
            }
            Event::Watch => {
                if let Some(Lease { version, holder, duration }) = history.get(self.shown).cloned() {
                    self.claim.observe(Some((version, holder, duration)), own);
                    self.shown += 1;
                }
            }
            Event::TakesForGone => {
                if let Some(holder) = history.last().and_then(|lease| lease.holder.clone()) {
                    self.claim.gone(&holder);
                }
            }
            Event::End => {
                let present = history.last().map(|lease| lease.version);
                if let Some(held) = self.claim.held().filter(|held| Some(*held) == present) {
                    let duration = self.claim.released(own);
                    history.push(Lease { version: Version(held.0 + 1), holder: None, duration });
                }
                self.take(Event::Restart, now, history);
            }
            Event::Restart => {
                let (name, duration) = (format!("{}'", self.name), Duration::from_secs(15));
                let impatient = self.parameters.patience == self.parameters.duration;
                let parameters =
                    if impatient { ClaimParameters::of_replica(duration) } else { ClaimParameters::patient(duration) };
                *self = Self { shown: history.len().saturating_sub(1), ..Self::with(name, parameters, self.ahead) };
            }
        }
    }

    fn is_alone(&self, now: u64) -> bool {
        self.acts(now) && self.claim.alone_from() <= at(now + self.ahead)
    }

    fn acts(&self, now: u64) -> bool {
        matches!(self.claim.state(at(now + self.ahead)), ClaimState::Acting(_))
    }
}

proptest! {
    #![proptest_config(config(128))]

    #[test]
    fn never_two_replicas_act(
        kinds in prop::collection::vec((1_u64..30, 0_u64..1_000_000), 2..4),
        events in prop::collection::vec((event(), any::<prop::sample::Index>()), 1..300),
    ) {
        let named = kinds.iter().enumerate();
        let mut replicas: Vec<Replica> =
            named.map(|(number, (seconds, ahead))| Replica::new(format!("o{number}"), *seconds, *ahead)).collect();
        let (mut now, mut history) = (0, Vec::new());
        for (event, who) in events {
            if let Event::Later(by) = event {
                now += by;
            }
            let who = who.index(replicas.len());
            replicas[who].take(event, now, &mut history);
            let acting: Vec<&str> = replicas.iter().filter(|r| r.acts(now)).map(|r| r.name.as_str()).collect();
            prop_assert!(acting.len() <= 1, "{acting:?} act after {event:?} of {who}");
        }
    }

    /// Shows L6, also while a rollout changes the duration: L3 lets a replica with a shorter one claim the lease before the claim of
    /// another has ended.
    #[test]
    fn a_new_holder_that_takes_itself_for_alone_is_alone(
        kinds in prop::collection::vec((1_u64..30, 0_u64..1_000_000), 2..4),
        events in prop::collection::vec((mistake(), any::<prop::sample::Index>()), 1..300),
    ) {
        let named = kinds.iter().enumerate();
        let mut replicas: Vec<Replica> =
            named.map(|(number, (seconds, ahead))| Replica::of_operator(format!("o{number}"), *seconds, *ahead)).collect();
        let (mut now, mut history) = (0, Vec::new());
        for (event, who) in events {
            if let Event::Later(by) = event {
                now += by;
            }
            let who = who.index(replicas.len());
            replicas[who].take(event, now, &mut history);
            // Who does not know yet that it has lost the lease can't know that it is not alone.
            let holder = history.last().and_then(|lease| lease.holder.clone());
            let alone = replicas.iter().any(|replica| Some(&replica.name) == holder.as_ref() && replica.is_alone(now));
            let acting: Vec<&str> = replicas.iter().filter(|r| r.acts(now)).map(|r| r.name.as_str()).collect();
            prop_assert!(!alone || acting.len() == 1, "{acting:?} act, and {holder:?} alone, after {event:?} of {who}");
        }
    }

    /// With a server that answers, one of them acts again in time, whatever somebody has written into the lease before. Shows L3.
    #[test]
    fn one_replica_acts_soon(
        seconds in 1_u64..30,
        ahead in prop::collection::vec(0_u64..1_000_000, 1..4),
        killed in any::<bool>(),
        stranger in prop::option::of(0_u64..2_147_483_647),
    ) {
        let named = ahead.iter().enumerate();
        let mut replicas: Vec<Replica> =
            named.map(|(number, ahead)| Replica::of_operator(format!("o{number}"), seconds, *ahead)).collect();
        let (mut now, mut history, step) = (0, Vec::new(), 50);
        let (mut since, mut acted) = (0, stranger.is_some());
        history.extend(stranger.map(|stranger| {
            Lease { version: Version(1), holder: Some("stranger".into()), duration: Duration::from_secs(stranger) }
        }));
        while now < seconds * 4_000 {
            now += step;
            if killed && now / 1_000 == seconds * 2 && replicas.len() > 1 {
                replicas.retain(|replica| !replica.acts(now));
            }
            for event in [Event::Watch, Event::Watch, Event::Turn, Event::Arrival, Event::Answer] {
                for replica in &mut replicas {
                    replica.take(event, now, &mut history);
                }
            }
            if replicas.iter().any(|replica| replica.acts(now)) {
                (since, acted) = (now, true);
            }
            let bound = if acted { seconds * 1_000 + 4 * step } else { 4 * step };
            prop_assert!(now - since <= bound, "nobody acts at {now}, since {since}: {replicas:#?}");
        }
    }
}
