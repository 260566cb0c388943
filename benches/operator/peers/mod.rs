//! Programs that elect one of two, side by side in one run: client-go's leader election, kube-scheduler, `consul lock`, `lictor agent`, and
//! pods that lictor's operator elects. Each is asked to end, killed, stopped, hung, and cut off from its server. What they cost at rest is
//! counted, and how soon one leads when the lock is free. [`agents`] measures some of that of `lictor agent`, beside its floor.
//!
//! The members are processes of this machine. Where a label says who leads, their pods are objects in the control plane.

pub mod agents;
mod contender;
mod faults;
mod floor;
mod ground;
mod kind;
mod processes;
mod rest;
mod start;
mod trace;

use std::time::Duration;

use anyhow::Context;
use futures::future::{join_all, try_join_all};
use lictor_testing::Prng;
use serde_json::{Map, Value, json};

use self::contender::{Contender, Style};
use self::faults::{AFTERWARDS, AWAY, Fault, HANGING, Outcome, PATIENCE, RESUMED};
use self::ground::Ground;
use self::kind::Kind;
use crate::figures::{Report, Sample};
use crate::machine;

/// How long a group has had the same leader before something happens to it. Then a follower of client-go's has seen the Lease.
const SETTLED: Duration = Duration::from_secs(4);
/// The memory that an agent may have resident, in MiB.
const MEMORY: f64 = 15.0;
/// How long after a thaw an agent's command may act, in seconds: docs/agent.md promises that.
const AFTER_THAW: f64 = 0.25;
/// Up to so many milliseconds more, so that faults fall between two renewals at any place.
const PHASE: usize = 5000;

/// Measures each fault this many times, and looks for this many seconds at what all cost at rest.
pub async fn measure(runs: u32, rest: u32, report: &mut Report) -> anyhow::Result<Value> {
    let ground = Ground::start("peers").await?;
    let mut groups = Contender::of_each(&ground, &Kind::ALL).await?;
    let mut prng = Prng::new(u64::from(std::process::id()));
    let mut seen: Vec<Vec<(Fault, Vec<Outcome>)>> = groups.iter().map(|_| vec![]).collect();
    for fault in Fault::ALL {
        let outcomes = repeat(fault, runs, &mut groups, &mut prng).await?;
        for (seen, outcomes) in seen.iter_mut().zip(outcomes) {
            if !outcomes.is_empty() {
                seen.push((fault, outcomes));
            }
        }
    }
    let starts = starts(&mut groups).await?;
    eprintln!("peers: at rest for {rest} s, load {}", machine::load()?);
    for group in &mut groups {
        group.end(Style { notes: false, labels: true }).await?;
        group.restart().await?;
    }
    let rests = rest::measure(&ground, &groups, rest).await.context("at rest")?;
    let all = groups.iter().zip(seen).zip(starts).zip(rests).map(|(((group, seen), start), rest)| {
        costs(group.kind, start.as_ref(), &rest, report);
        let of: Map<String, Value> =
            seen.iter().map(|(fault, outcomes)| (fault.id().to_owned(), figures(group.kind, *fault, outcomes, report))).collect();
        json!({
            "id": group.kind.id(), "title": group.kind.title(), "timing": group.kind.timing(), "faults": of, "start": start, "rest": rest,
        })
    });
    let all: Vec<Value> = all.collect();
    Ok(json!({
        "runs": runs, "patienceSeconds": PATIENCE.as_secs(), "hangingSeconds": HANGING.as_secs(), "awaySeconds": AWAY.as_secs(),
        "afterwardsSeconds": AFTERWARDS.as_secs(), "resumedSeconds": RESUMED.as_secs(), "contenders": all,
    }))
}

/// Does it to each group this many times. Returns what was seen of each group: nothing, if it is no fault of its kind.
async fn repeat(
    fault: Fault,
    runs: u32,
    groups: &mut [Contender<'_>],
    prng: &mut Prng,
) -> anyhow::Result<Vec<Vec<Outcome>>> {
    let mut seen: Vec<Vec<Outcome>> = groups.iter().map(|_| vec![]).collect();
    for run in 0..runs {
        let outcomes = all(fault, groups, prng).await.context(fault.id())?;
        seen.iter_mut().zip(outcomes).for_each(|(seen, outcome)| seen.extend(outcome));
        eprintln!("{}: {} of {runs}, load {}", fault.id(), run + 1, machine::load()?);
    }
    Ok(seen)
}

/// Does it to each group. Measurements of milliseconds run one after the other, long ones at the same time.
async fn all(fault: Fault, groups: &mut [Contender<'_>], prng: &mut Prng) -> anyhow::Result<Vec<Option<Outcome>>> {
    let mut phase = || SETTLED + Duration::from_millis(u64::try_from(prng.below(PHASE)).unwrap_or_default());
    let with: Vec<_> = groups.iter_mut().map(|group| (phase(), group)).collect();
    let one = async |settled: Duration, group: &mut Contender<'_>| {
        if !fault.is_of(group.kind) {
            return Ok(None);
        }
        fault.run(group, settled).await.with_context(|| group.kind.id()).map(Some)
    };
    if fault != Fault::Asked {
        return join_all(with.into_iter().map(|(settled, group)| one(settled, group))).await.into_iter().collect();
    }
    // They settle together, and then take their turns.
    let (phases, mut with): (Vec<_>, Vec<_>) = with.into_iter().unzip();
    try_join_all(with.iter_mut().zip(phases).map(async |(group, settled)| group.settle(settled).await)).await?;
    let mut outcomes = vec![];
    for group in with {
        outcomes.push(one(Duration::ZERO, group).await?);
    }
    Ok(outcomes)
}

/// Measures the start of those that say when they act and have a lock of their own.
async fn starts(groups: &mut [Contender<'_>]) -> anyhow::Result<Vec<Option<Value>>> {
    let mut starts = vec![];
    for group in groups {
        starts.push(if matches!(group.kind, Kind::Scheduler | Kind::Operator) {
            None
        } else {
            group.end(Style { notes: true, labels: false }).await?;
            let start = start::measure(group).await.with_context(|| group.kind.id())?;
            eprintln!("peers: {}: {} round trips from start to leadership", group.kind.id(), start["roundTrips"]);
            Some(start)
        });
    }
    Ok(starts)
}

fn figures(kind: Kind, fault: Fault, outcomes: &[Outcome], report: &mut Report) -> Value {
    let next: Sample = outcomes.iter().filter_map(|outcome| outcome.next).collect();
    let both: Sample = outcomes.iter().filter_map(|outcome| outcome.both).collect();
    let nobody: Sample = outcomes.iter().map(|outcome| outcome.nobody).collect();
    let never = outcomes.iter().filter(|outcome| outcome.next.is_none()).count();
    let goes_on = outcomes.iter().filter(|outcome| outcome.goes_on).count();
    let what = format!("{}, {}", kind.id(), fault.id());
    if fault == Fault::Away {
        report.figure(format!("{what}: nobody acted, median"), nobody.median(), "s");
    } else if next.is_empty() {
        report.figure(
            format!("{what}: runs without a next leader"),
            f64::from(u32::try_from(never).unwrap_or(u32::MAX)),
            "",
        );
    } else {
        let (many, unit) = if fault == Fault::Asked { (1000.0, "ms") } else { (1.0, "s") };
        report.figure(format!("{what}: until the next one leads, median"), next.median() * many, unit);
        report.figure(format!("{what}: until the next one leads, longest"), next.greatest() * many, unit);
    }
    if !both.is_empty() {
        let what = format!("{what}: two acted, longest");
        match kind {
            Kind::Operator => report.target(what, both.greatest(), "s", 0.0),
            _ if kind.is_agent() => report.target(what, both.greatest(), "s", AFTER_THAW),
            _ => report.figure(what, both.greatest(), "s"),
        }
    }
    let some = |sample: &Sample| if sample.is_empty() { Value::Null } else { sample.to_json() };
    json!({
        "runs": outcomes.len(), "next": some(&next), "never": never, "both": some(&both), "goesOn": goes_on, "nobody": nobody.to_json(),
    })
}

/// Reports what the start and the rest of a kind cost. Of agents, that has targets.
fn costs(kind: Kind, start: Option<&Value>, rest: &Value, report: &mut Report) {
    let id = kind.id();
    report.figure(
        format!("{id}: requests in an hour at rest"),
        rest["requestsAnHour"].as_f64().unwrap_or(f64::NAN),
        "",
    );
    let resident = rest["residentMiB"].as_array().into_iter().flatten().filter_map(Value::as_f64);
    memory(kind, &resident.collect(), report);
    if let Some(start) = start {
        round_trips(kind, start, report);
    }
}

fn memory(kind: Kind, resident: &Sample, report: &mut Report) {
    let what = format!("{}: resident memory of a member", kind.id());
    if kind.is_agent() {
        report.target(what, resident.greatest(), "MiB", MEMORY);
    } else {
        report.figure(what, resident.greatest(), "MiB");
    }
}

fn round_trips(kind: Kind, start: &Value, report: &mut Report) {
    let trips = start["roundTrips"].as_f64().unwrap_or(f64::NAN);
    let what = format!("{}: round trips from start to leadership", kind.id());
    match kind {
        Kind::AgentConsul => report.target(what, trips, "", 2.5),
        // One is the TLS handshake.
        _ if kind.is_agent() => report.target(what, trips, "", 3.5),
        _ => report.figure(what, trips, ""),
    }
}
