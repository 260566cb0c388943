//! One run: faults as they were planned, then calm, in which somebody leads in time, and leaves the lock to another one when it is asked
//! to.

use std::sync::Arc;
use std::time::Duration;

use lictor_agent::Yielded;
use lictor_core::{Instant, invariants};
use tokio::time::{sleep, timeout};

use super::faults::{Fault, plan};
use super::judge::Figures;
use super::world::World;
use crate::log::Log;
use crate::run::runtime;
use crate::seeds::Outcome;

/// How long things go wrong, in milliseconds.
const FAULTS_UNTIL: u64 = 180_000;
/// How long a leader is watched when all is well, in milliseconds.
const KEPT: u64 = 20_000;
/// How soon another one leads when a leader has yielded.
const FOLLOWS: Duration = Duration::from_secs(1);

/// What became of a run.
pub struct Report {
    failure: Option<String>,
    history: Vec<String>,
    pub figures: Figures,
    /// How many were done.
    pub faults: u64,
    /// The longest time until somebody led again after all was repaired, in milliseconds.
    pub recovery: u64,
    /// Whether the lock was in Consul.
    pub consul: bool,
}

impl Outcome for Report {
    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn history(&self) -> &[String] {
        &self.history
    }
}

/// The faults of a seed.
pub fn faults_of(seed: u64) -> Vec<Fault> {
    plan(seed, FAULTS_UNTIL)
}

/// Runs a seed with these faults.
pub fn run(seed: u64, faults: &[Fault], keeps_history: bool) -> Report {
    runtime(seed).block_on(go(seed, faults, keeps_history))
}

async fn go(seed: u64, faults: &[Fault], keeps_history: bool) -> Report {
    let log = Log::new(keeps_history);
    let world = World::new(seed, log.clone());
    log.note(|| format!("{:?}", world.setting));
    let mut done = 0;
    let (failure, recovery) = match happen(&world, faults, &mut done).await {
        None => calm(&world).await,
        failure => (failure, 0),
    };
    let figures = world.judge.lock().unwrap().figures;
    Report { failure, history: log.lines(), figures, faults: done, recovery, consul: world.setting.consul }
}

async fn happen(world: &Arc<World>, faults: &[Fault], done: &mut u64) -> Option<String> {
    // Each has a beginning and an end.
    let moments = faults.iter().enumerate();
    let moments =
        moments.flat_map(|(number, fault)| [(fault.at, true, number), (fault.at + fault.lasts, false, number)]);
    let mut moments: Vec<_> = moments.collect();
    moments.sort_by_key(|(at, begins, number)| (*at, !*begins, *number));
    let mut met = vec![0; faults.len()];
    for (at, begins, number) in moments {
        wait_until(world, at).await;
        if let Some(failure) = verdict(world) {
            return Some(failure);
        }
        if begins {
            *done += 1;
            met[number] = faults[number].begin(world);
        } else {
            faults[number].end(world, met[number]);
        }
    }
    wait_until(world, FAULTS_UNTIL).await;
    verdict(world)
}

async fn wait_until(world: &World, at: u64) {
    while world.log.now() < at && verdict(world).is_none() {
        sleep(Duration::from_millis((at - world.log.now()).min(100))).await;
    }
}

fn verdict(world: &World) -> Option<String> {
    world.judge.lock().unwrap().verdict.clone()
}

/// All is repaired. Somebody leads in time, and stays.
async fn calm(world: &Arc<World>) -> (Option<String>, u64) {
    world.log.note(|| "--- calm".into());
    world.repair();
    let (begun, bound) = (world.log.now(), world.setting.recovery());
    let (mut vacant, mut recovery) = (Some(begun), 0);
    while world.log.now() < begun + u64::try_from(bound.as_millis()).unwrap_or(0) + KEPT {
        sleep(Duration::from_millis(100)).await;
        if let Some(failure) = verdict(world) {
            return (Some(failure), recovery);
        }
        let now = world.log.now();
        match (world.leader(), vacant) {
            (Some(_), Some(_)) => {
                recovery = now - begun;
                vacant = None;
            }
            (None, None) => vacant = Some(now),
            _ => {}
        }
        if !invariants::led_in_time(vacant.map(at), at(now), bound) {
            return (Some(format!("nobody leads {} ms after all is well", now - begun)), recovery);
        }
    }
    if let Some(since) = vacant {
        return (Some(format!("the leader was lost again {} ms after all was well", since - begun)), recovery);
    }
    (leaves_it_to_another(world).await.or_else(|| verdict(world)), recovery)
}

fn at(milliseconds: u64) -> Instant {
    Instant::after_origin(Duration::from_millis(milliseconds))
}

/// The leader yields: another one leads at once, and stays the leader when the first one takes part again.
async fn leaves_it_to_another(world: &Arc<World>) -> Option<String> {
    let first = world.leader()?;
    let timing = world.setting.timing;
    world.log.note(|| format!("--- c{first} yields"));
    let handle = world.places[first].handle()?;
    let yielded = timeout(timing.stop_timeout + Duration::from_secs(2), handle.give_away()).await;
    if yielded != Ok(Yielded::Away) {
        return Some(format!("c{first} does not yield: {yielded:?}"));
    }
    sleep(FOLLOWS).await;
    let next = world.leader();
    if next.is_none() || next == Some(first) {
        return Some(format!("c{first} has yielded, and after that {next:?} leads"));
    }
    sleep(timing.away + Duration::from_secs(2)).await;
    let last = world.leader();
    (last != next).then(|| format!("{next:?} led after c{first}, and then {last:?}"))
}
