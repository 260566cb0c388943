//! `lictor agent` beside `consul lock` and client-go's leader election with the same TTL, and beside the shortest possible hand-over and start.

use anyhow::Context;
use futures::future::try_join_all;
use lictor_testing::Prng;
use serde_json::{Map, Value, json};

use super::contender::Contender;
use super::faults::{Fault, Outcome};
use super::floor::Floor;
use super::ground::Ground;
use super::kind::Kind;
use super::processes::resident;
use super::{SETTLED, all, figures, memory, repeat, round_trips, starts};
use crate::figures::{Report, Sample};
use crate::machine;

/// Each agent, and the peer with its TTL.
const PAIRS: [(Kind, Kind); 2] = [(Kind::AgentConsul, Kind::ConsulLock), (Kind::AgentLease, Kind::ClientGo)];
/// How many times the floor of a start is measured.
const STARTS: usize = 10;
const MILLISECONDS: f64 = 1000.0;

/// What was measured of one group.
struct Measured {
    kind: Kind,
    faults: Vec<(Fault, Vec<Outcome>)>,
    start: Value,
    resident: Sample,
}

/// What was measured of the floor beside one agent, in seconds.
#[derive(Default)]
struct Floors {
    hand_over: Sample,
    writes: Sample,
    start: Sample,
    round_trip: Sample,
}

/// Measures this many hand-overs after SIGTERM, and as many losses by SIGKILL and by SIGSTOP.
pub async fn measure(terminations: u32, losses: u32, report: &mut Report) -> anyhow::Result<Value> {
    let ground = Ground::start("agents").await?;
    let mut groups = Contender::of_each(&ground, &PAIRS.map(|(agent, peer)| [agent, peer]).concat()).await?;
    let mut floors = vec![];
    for group in groups.iter().filter(|group| group.kind.is_agent()) {
        floors.push((Floor::beside(group).await.context("the floor")?, Floors::default()));
    }
    let mut prng = Prng::new(u64::from(std::process::id()));
    let mut asked: Vec<Vec<Outcome>> = groups.iter().map(|_| vec![]).collect();
    for run in 0..terminations {
        let outcomes = all(Fault::Asked, &mut groups, &mut prng).await?;
        asked.iter_mut().zip(outcomes).for_each(|(asked, outcome)| asked.extend(outcome));
        for (floor, seen) in &mut floors {
            let took = floor.hand_over().await.context("the floor")?;
            seen.hand_over.push(took.total);
            seen.writes.push(took.writes);
        }
        eprintln!("agents: SIGTERM: {} of {terminations}, load {}", run + 1, machine::load()?);
    }
    let killed = repeat(Fault::Killed, losses, &mut groups, &mut prng).await?;
    let stopped = repeat(Fault::Stopped, losses, &mut groups, &mut prng).await?;
    try_join_all(groups.iter_mut().map(async |group| group.settle(SETTLED).await)).await?;
    let resident: Vec<Sample> = groups.iter().map(members).collect::<Result<_, _>>()?;
    let starts = starts(&mut groups).await?;
    for (floor, seen) in &mut floors {
        for _ in 0..STARTS {
            let (round_trip, command) = floor.start().await.context("the floor of a start")?;
            seen.round_trip.push(round_trip);
            seen.start.push(round_trip + command);
        }
    }
    let faults = asked.into_iter().zip(killed).zip(stopped);
    let measured = groups.iter().zip(faults).zip(starts).zip(resident);
    let measured: Vec<Measured> = measured
        .map(|(((group, ((asked, killed), stopped)), start), resident)| {
            let faults = [(Fault::Asked, asked), (Fault::Killed, killed), (Fault::Stopped, stopped)];
            let faults = faults.into_iter().filter(|(_, outcomes)| !outcomes.is_empty()).collect();
            Measured { kind: group.kind, faults, start: start.unwrap_or_default(), resident }
        })
        .collect();
    let told: Map<String, Value> =
        measured.iter().map(|measured| (measured.kind.id().to_owned(), tell(measured, report))).collect();
    let mut beside = Map::new();
    for ((pair, (_, floor)), (agent, _)) in measured.chunks(2).zip(&floors).zip(PAIRS) {
        beside.insert(agent.id().to_owned(), compare(pair, floor, report));
    }
    Ok(json!({"groups": told, "floors": beside}))
}

/// Returns the resident memory of each member, in MiB.
fn members(group: &Contender<'_>) -> anyhow::Result<Sample> {
    group.electing()?.iter().map(|pids| resident(pids)).collect::<Result<Vec<_>, _>>().map(Sample::from_iter)
}

impl Measured {
    /// Returns the median time until the next one led, in seconds.
    fn next(&self, fault: Fault) -> Option<f64> {
        let (_, outcomes) = self.faults.iter().find(|(of, _)| *of == fault)?;
        let next: Sample = outcomes.iter().filter_map(|outcome| outcome.next).collect();
        (!next.is_empty()).then(|| next.median())
    }

    /// Returns the median time of a start, in seconds.
    fn start(&self) -> f64 {
        self.start["seconds"]["p50"].as_f64().unwrap_or(f64::NAN)
    }
}

fn tell(measured: &Measured, report: &mut Report) -> Value {
    let Measured { kind, faults, start, resident } = measured;
    let faults: Map<String, Value> = faults
        .iter()
        .map(|(fault, outcomes)| (fault.id().to_owned(), figures(*kind, *fault, outcomes, report)))
        .collect();
    report.figure(format!("{}: start to leadership, median", kind.id()), measured.start() * MILLISECONDS, "ms");
    round_trips(*kind, start, report);
    memory(*kind, resident, report);
    json!({"timing": kind.timing(), "faults": faults, "start": start, "residentMiB": resident.to_json()})
}

/// Reports an agent in times of its peer, and of its floor.
fn compare(pair: &[Measured], floor: &Floors, report: &mut Report) -> Value {
    let [agent, peer] = pair else { return Value::Null };
    let (id, of) = (agent.kind.id(), peer.kind.id());
    for fault in [Fault::Asked, Fault::Killed, Fault::Stopped] {
        let Some((own, other)) = agent.next(fault).zip(peer.next(fault)) else { continue };
        let (what, ratio) = (format!("{id} / {of}, {}: median", fault.id()), own / other);
        // A lock in Consul that is released is known to both at once.
        if fault == Fault::Asked && agent.kind.in_consul() {
            report.figure(what, ratio, "");
        } else {
            report.target(what, ratio, "", 1.0);
        }
    }
    report.figure(format!("{id} / {of}, start: median"), agent.start() / peer.start(), "");
    let mut beside = |what: &str, own: f64, floor: &Sample, part: &str, of_it: &Sample| {
        report.figure(format!("floor of {id}, {what}: median"), floor.median() * MILLISECONDS, "ms");
        report.figure(format!("of that: {part}"), of_it.median() * MILLISECONDS, "ms");
        report.figure(format!("{id} / floor, {what}: median"), own / floor.median(), "");
    };
    if let Some(own) = agent.next(Fault::Asked) {
        beside("asked", own, &floor.hand_over, "the two writes", &floor.writes);
    }
    beside("start", agent.start(), &floor.start, "the round trip", &floor.round_trip);
    json!({
        "handOver": floor.hand_over.to_json(), "writes": floor.writes.to_json(), "start": floor.start.to_json(),
        "roundTrip": floor.round_trip.to_json(),
    })
}
