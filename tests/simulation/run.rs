//! One run: faults as they were planned, then calm, in which everything has to be as it should in time.

use std::time::Duration;

use lictor_core::{Instant, invariants};
use lictor_testing::Prng;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::faults::{Fault, plan};
use crate::judge::{Figures, SHARED, WORKLOAD};
use crate::log::Log;
use crate::seeds::Outcome;
use crate::servers::api::Object;
use crate::users::services;
use crate::world::{APPS, CLUSTERS, NAMESPACE, REPLICAS, World};

/// How long things go wrong.
pub const FAULTS_UNTIL: u64 = 180_000;
/// How soon each group has a leader again after all that was wrong is over: the operator's own Lease, a lost session's TTL twice
/// over with its lock delay, a dead watch, and each attempt's pause.
const RECOVERY: Duration = Duration::from_secs(75);
/// The same where nothing else is wrong, and the API server shows that a leader is gone.
const FAILOVER: Duration = Duration::from_millis(500);

/// What became of a run.
pub struct Report {
    pub failure: Option<String>,
    pub history: Vec<String>,
    pub figures: Figures,
    /// How many were done.
    pub faults: u64,
    /// The longest time until there was a leader again after all was repaired, in milliseconds.
    pub recovery: u64,
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
    plan(&mut Prng::new(seed), FAULTS_UNTIL)
}

/// Runs a seed with these faults.
pub fn run(seed: u64, faults: &[Fault], keeps_history: bool) -> Report {
    runtime(seed).block_on(live(seed, faults, keeps_history))
}

/// A runtime in virtual time, whose own choices come from the seed.
pub fn runtime(seed: u64) -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    #[cfg(not(tokio_unstable))]
    let _ = seed;
    builder.build().unwrap()
}

async fn live(seed: u64, faults: &[Fault], keeps_history: bool) -> Report {
    let log = Log::new(keeps_history);
    let mut world = World::new(seed, log.clone());
    for cluster in 0..CLUSTERS.len() {
        for replica in 0..REPLICAS {
            world.start(cluster, replica);
        }
    }
    world.tell();
    let mut done = 0;
    let failure = happen(&mut world, faults, &mut done).await;
    let (failure, recovery) = match failure {
        None => calm(&mut world).await,
        failure => (failure, 0),
    };
    world.shutdown();
    let judge = world.judge.lock().unwrap();
    Report { failure, history: log.lines(), figures: judge.figures, faults: done, recovery }
}

async fn happen(world: &mut World, faults: &[Fault], done: &mut u64) -> Option<String> {
    // Each has a beginning and an end.
    let mut moments: Vec<(u64, bool, &Fault)> =
        faults.iter().flat_map(|fault| [(fault.at, true, fault), (fault.at + fault.lasts, false, fault)]).collect();
    moments.sort_by_key(|(at, begins, fault)| (*at, !*begins, fault.at));
    for (at, begins, fault) in moments {
        wait_until(world, at).await;
        if let Some(failure) = verdict(world) {
            return Some(failure);
        }
        *done += u64::from(begins);
        if begins {
            fault.begin(world);
        } else {
            fault.end(world);
        }
        world.tell();
    }
    wait_until(world, FAULTS_UNTIL).await;
    verdict(world)
}

async fn wait_until(world: &World, at: u64) {
    while world.log.now() < at && world.judge.lock().unwrap().verdict.is_none() {
        let step = (at - world.log.now()).min(100);
        sleep(Duration::from_millis(step)).await;
        world.judge.lock().unwrap().see_both_act(&world.both_act(), step);
    }
}

fn verdict(world: &World) -> Option<String> {
    for line in world.shared.told() {
        world.log.note(|| format!("consul: {line}"));
    }
    world.judge.lock().unwrap().verdict.clone()
}

/// All is repaired. Every group has a leader in time, keeps it, and has another one at once when it is deleted.
async fn calm(world: &mut World) -> (Option<String>, u64) {
    world.log.note(|| "--- calm".into());
    world.repair();
    world.tell();
    let begun = world.log.now();
    let (mut vacant, mut recovery) = (Some(begun), 0);
    while world.log.now() < begun + u64::try_from(RECOVERY.as_millis()).unwrap_or(0) + 20_000 {
        sleep(Duration::from_millis(500)).await;
        if let Some(failure) = verdict(world) {
            return (Some(failure), recovery);
        }
        let now = world.log.now();
        let led = World::groups().iter().all(|group| world.judge.lock().unwrap().leaders(group).len() == 1);
        match (led, vacant) {
            (true, Some(_)) => {
                recovery = now - begun;
                vacant = None;
            }
            (false, None) => vacant = Some(now),
            _ => {}
        }
        if !invariants::led_in_time(vacant.map(at), at(now), RECOVERY) {
            return (Some(format!("not every group has a leader {} ms after all is well", now - begun)), recovery);
        }
    }
    if let Some(since) = vacant {
        return (Some(format!("a leader was lost again {} ms after all was well", since - begun)), recovery);
    }
    let wrong = untidy(world).or(misrouted(world)).or(undecided(world)).or(unsaid(world));
    (wrong.or(fail_over(world).await), recovery)
}

/// What is left over of earlier specs.
fn untidy(world: &World) -> Option<String> {
    let leftovers = world.judge.lock().unwrap().leftovers();
    if !leftovers.is_empty() {
        return Some(format!("{leftovers:?} show a leader's label of an earlier spec"));
    }
    let users = world.clusters.iter().map(|cluster| &cluster.users);
    let untidy = users.flat_map(|users| APPS.map(|app| users.untidy(app))).flatten().next();
    untidy.or_else(|| world.clusters.iter().find_map(|cluster| cluster.mill.verdict()))
}

/// Switchovers that have not ended. Where a clock has jumped, one may still wait, until its time has come or its deadline has passed.
fn undecided(world: &World) -> Option<String> {
    let jumped = world.judge.lock().unwrap().has_jumped();
    let all = world.clusters.iter().flat_map(|cluster| cluster.api.all("switchovers"));
    let open = |switchover: &Object| {
        let conditions = switchover["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let holds = |type_: &str| conditions.iter().any(|c| c["type"] == type_ && c["status"] == "True");
        let waits = jumped && !holds("Accepted");
        !holds("Complete") && !holds("Failed") && !waits
    };
    let mut open = all.filter(open);
    open.next().map(|switchover| format!("nothing comes of {switchover}"))
}

/// A difference between the clusters that an election does not tell: the one that leads, or the other one.
fn unsaid(world: &World) -> Option<String> {
    let elections = world.clusters.iter().map(|cluster| cluster.api.get("leaderelections", NAMESPACE, SHARED));
    let conditions = elections.map(|election| election.unwrap_or_default()["status"]["conditions"].clone());
    let says = |conditions: &Value, reason: &str| {
        conditions.as_array().into_iter().flatten().any(|condition| condition["reason"] == reason)
    };
    // A condition has one reason, and that somebody forges records is worse.
    let untold = |conditions: &Value| {
        says(conditions, "RecordsDiffer") != world.differs && !(world.differs && says(conditions, "RecordForged"))
    };
    let found: Vec<Value> = conditions.filter(untold).collect();
    (!found.is_empty()).then(|| format!("the clusters' layouts differ: {}, and one tells: {found:?}", world.differs))
}

/// What Services reach, and should not.
fn misrouted(world: &World) -> Option<String> {
    for group in World::groups().into_iter().filter(|group| group.app != WORKLOAD) {
        for (number, cluster) in world.clusters.iter().enumerate() {
            if group.cluster.is_some_and(|only| only != number) {
                continue;
            }
            let judge = world.judge.lock().unwrap();
            let named = cluster.users.spec(&group.app).routing;
            let leaders = judge.leaders(&group);
            let here = leaders.iter().filter_map(|leader| leader.strip_prefix(&format!("{number}/")));
            let uid = |pod: &str| Some(cluster.pod(pod)?["metadata"]["uid"].as_str()?.to_owned());
            let uids: Vec<String> = here.filter_map(uid).collect();
            for (at, service) in services(&group.app).iter().enumerate() {
                let expected = if at == named { uids.clone() } else { Vec::new() };
                let reached = judge.reached(number, service);
                if reached != expected {
                    let name = CLUSTERS[number];
                    return Some(format!(
                        "{service} of {name} reaches {reached:?}, and {leaders:?} lead, {expected:?}"
                    ));
                }
            }
        }
    }
    None
}

fn at(milliseconds: u64) -> Instant {
    Instant::after_origin(Duration::from_millis(milliseconds))
}

async fn fail_over(world: &World) -> Option<String> {
    for group in World::groups().into_iter().filter(|group| group.app != WORKLOAD) {
        let before = world.judge.lock().unwrap().leaders(&group);
        let (cluster, pod) = before.first()?.split_once('/')?;
        world.log.note(|| format!("--- {} is deleted", before[0]));
        let cluster: usize = cluster.parse().ok()?;
        world.clusters[cluster].api.remove("pods", NAMESPACE, pod);
        sleep(FAILOVER).await;
        let after = world.judge.lock().unwrap().leaders(&group);
        if after.len() != 1 || after == before {
            return Some(format!("{} was deleted, and {} ms later {after:?} lead", before[0], FAILOVER.as_millis()));
        }
        if let Some(wrong) = misrouted(world) {
            return Some(format!("{} was deleted, and {} ms later {wrong}", before[0], FAILOVER.as_millis()));
        }
    }
    verdict(world)
}
