//! A CronJob that moves to another cluster: from the loss of the first one, as an independent watcher sees it, until the CronJob
//! is resumed in the other, beside the same requests by hand.

use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use lictor_api::{LeaderElectionStatus, WorkloadState};
use lictor_testing::kubernetes::Operator;
use serde_json::{Value, json};

use super::Consul;
use super::by_hand::{ByHand, Took, cron_job};
use super::takeover::{CLUSTERS, controller, operator};
use crate::figures::{Report, Sample};
use crate::machine;
use crate::observer::{Id, Observer, Sight};
use crate::world::{World, set_ready};

const PATIENCE: Duration = Duration::from_secs(90);
const NAME: &str = "nightly";
/// The Deployment that must be available where the CronJob runs.
const GATE: &str = "gate";
/// The time after a full minute in which a CronJob's controller may still create what was due. The lock is kept meanwhile.
const TICK: Duration = Duration::from_secs(2);
/// The latest second of a minute in which a run may begin: that time begins 2 s before the minute, and a run takes less than
/// another second.
const LAST: Duration = Duration::from_secs(57);
/// How many times longer than by hand it may take, without what goes until the record says that all has ended.
const TARGET: f64 = 2.5;
/// How long a CronJob was let run before the lock is released sooner than that: its controller may still make what it missed.
const SETTLES: Duration = Duration::from_secs(3);
/// The number of runs before those that count.
const WARM_UP: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The Deployment of the eligibility becomes unavailable.
    Unavailable,
    /// The operator gets SIGTERM, and releases its locks.
    Terminated,
}

/// The times at which each change was seen.
struct Seen {
    cause: Instant,
    suspended: Instant,
    ended: Instant,
    free: Instant,
    resumed: Instant,
}

#[derive(Default)]
struct Figures {
    total: Sample,
    to_suspended: Sample,
    to_ended: Sample,
    to_free: Sample,
    to_resumed: Sample,
    /// All but what goes until the record says that all has ended.
    without_reads: Sample,
    reads: Sample,
    floor: Sample,
    floor_disabled: Sample,
    floor_free: Sample,
    floor_enabled: Sample,
    /// The number of runs that began beside a busy process.
    disturbed: u32,
    /// The runs in order, each with its floor.
    runs: Vec<(f64, f64)>,
}

/// Measures this many moves of each kind. `wait`: for how long each run lets busy processes go first.
pub async fn measure(
    consul: &Consul,
    runs: u32,
    terminations: u32,
    wait: Duration,
    report: &mut Report,
) -> anyhow::Result<Value> {
    let world = World::start("consul-workloads").await?;
    let key = format!("workloads/{NAME}");
    let mut observer = Observer::of_workloads(&world.another_client().await, (consul.api(), key.clone())).await?;
    for cluster in CLUSTERS {
        world.namespace(cluster).await?;
        let spec =
            json!({"controller": controller(cluster), "keyTemplate": "workloads/{name}", "keyPattern": "workloads/*"});
        consul.class(&world, cluster, &spec, &json!({"whenOperatorStops": "Release"}))?;
        apply(&world, cluster, gate())?;
        apply(&world, cluster, cron_job(NAME))?;
    }
    let mut operators = CLUSTERS.map(|cluster| operator(&world, cluster));
    for cluster in CLUSTERS {
        apply(&world, cluster, election(cluster))?;
        observer.until("the first cluster leads", PATIENCE, |observer| follows(observer, 0, 0)).await?;
    }
    world.namespace("floor").await?;
    let mut floor = ByHand::new(consul.client()?, &world.operators_client().await?, "floor", &key).await?;

    let mut all = serde_json::Map::new();
    for (cause, times) in [(Cause::Unavailable, runs), (Cause::Terminated, terminations)] {
        let (mut figures, mut loads) = (Figures::default(), Vec::new());
        for run in 0..WARM_UP + times {
            let from = settle(&mut observer, &operators).await?;
            let mut calm = observer.calm(wait).await?;
            let bottom = floor.write().await.context("the floor")?;
            calm &= observer.calm(wait).await?;
            observer.pass(SETTLES).await?;
            away_from_the_minute(&mut observer).await?;
            let seen = fail(&world.client, &mut observer, &mut operators[from], from, cause).await;
            let seen = seen.with_context(|| format!("run {run}, {cause:?}"))?;
            if cause == Cause::Terminated {
                // It must have given back its own Lease.
                operators[from].stop().await;
                operators[from] = operator(&world, CLUSTERS[from]);
            }
            if run >= WARM_UP {
                figures.disturbed += u32::from(!calm);
                figures.add(&seen, &bottom);
            }
            if run % 20 == 19 || run + 1 == WARM_UP + times {
                let (median, floor, load) = (figures.total.median(), figures.floor.median(), machine::load()?);
                let of = run + 1;
                eprintln!(
                    "consul-workloads: {cause:?}: {of} runs, median {median:.2} (floor {floor:.2}) ms, load {load}"
                );
                loads.push(load);
            }
        }
        if times > 0 {
            figures.report(cause, report);
        }
        all.insert(format!("{cause:?}").to_lowercase(), json!({"loads": loads, "figures": figures.to_json()}));
    }
    Ok(Value::Object(all))
}

fn apply(world: &World, namespace: &str, mut object: Value) -> anyhow::Result<()> {
    object["metadata"]["namespace"] = json!(namespace);
    world.apply(&object)
}

fn gate() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": GATE},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": GATE}},
            "template": {
                "metadata": {"labels": {"app": GATE}},
                "spec": {"containers": [{"name": "main", "image": "example/gate"}]},
            },
        },
    })
}

fn election(class: &str) -> Value {
    json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": NAME},
        "spec": {
            "className": class, "eligibility": {"availableDeploymentName": GATE},
            "workloads": [{"kind": "CronJob", "name": NAME}],
        },
    })
}

fn id(cluster: usize, name: &str) -> Id {
    (CLUSTERS[cluster].to_owned(), name.to_owned())
}

/// Returns whether a cluster's CronJob is as it should be while `leader` leads, and lictor says the same.
fn follows(observer: &Observer, cluster: usize, leader: usize) -> bool {
    let (suspend, state) =
        if cluster == leader { (false, WorkloadState::Enabled) } else { (true, WorkloadState::Disabled) };
    let told = |status: &LeaderElectionStatus| {
        let items = status.workloads.iter().flat_map(|workloads| &workloads.items);
        status.leader.as_ref().and_then(|leader| leader.cluster_name.as_deref()) == Some(CLUSTERS[leader])
            && items.into_iter().map(|item| item.state).eq([state])
    };
    observer.cron_jobs.get(&id(cluster, NAME)) == Some(&suspend)
        && observer.elections.get(&id(cluster, NAME)).is_some_and(told)
}

/// Returns whether the cluster could lead.
fn able(observer: &Observer, cluster: usize) -> bool {
    let counted = observer.elections.get(&id(cluster, NAME)).and_then(|status| status.candidates.as_ref());
    observer.deployments.get(&id(cluster, GATE)) == Some(&true) && counted.is_some_and(|count| count.eligible == 1)
}

/// Waits until each operator is ready, each cluster could lead and one does. Returns that one.
async fn settle(observer: &mut Observer, operators: &[Operator; 2]) -> anyhow::Result<usize> {
    for operator in operators {
        lictor_testing::kubernetes::eventually("the operator is ready", || async {
            let (status, body) = operator.get("/readyz").await;
            if status == 200 { Ok(()) } else { Err(body) }
        })
        .await;
    }
    let told = |observer: &Observer| {
        let settled =
            |leader: usize| (0..2).all(|cluster| follows(observer, cluster, leader) && able(observer, cluster));
        (0..2).find(|leader| settled(*leader))
    };
    observer.until("the clusters have settled", PATIENCE, |observer| told(observer).is_some()).await?;
    observer.quiet(Duration::from_millis(500)).await?;
    told(observer).context("the clusters are not settled any more")
}

/// Waits until a run can't fall on a full minute.
async fn away_from_the_minute(observer: &mut Observer) -> anyhow::Result<()> {
    let minute = Duration::from_secs(60);
    let into = Duration::from_millis(u64::try_from(Timestamp::now().as_millisecond())? % 60_000);
    // From now to the end of the next span in which a run would fall on it, if that is now.
    let until = if into < LAST { TICK } else { minute + TICK };
    observer.pass(until.saturating_sub(into)).await
}

/// Makes one move. Afterwards, the cluster that was left could lead again as soon as its operator runs.
async fn fail(
    client: &Client,
    observer: &mut Observer,
    operator: &mut Operator,
    from: usize,
    cause: Cause,
) -> anyhow::Result<Seen> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), CLUSTERS[from]);
    if cause == Cause::Terminated {
        let start = Instant::now();
        operator.signal("TERM");
        return watch(observer, from, Some(start)).await;
    }
    let pod = pods.list(&ListParams::default().labels(&format!("app={GATE}"))).await?;
    let pod = pod.items.first().context("the gate has a pod")?.name_any();
    let (asked, seen) = tokio::join!(set_ready(&pods, &pod, false), watch(observer, from, None));
    asked?;
    set_ready(&pods, &pod, true).await?;
    seen
}

/// Watches a move. Without a `start`, it counts from when the Deployment is seen to be unavailable.
async fn watch(observer: &mut Observer, from: usize, start: Option<Instant>) -> anyhow::Result<Seen> {
    let (gate, here, there) = (id(from, GATE), id(from, NAME), id(1 - from, NAME));
    let (mut cause, mut suspended, mut ended, mut free, mut resumed) = (start, None, None, None, None);
    // The events come over several connections, so their order is not certain.
    let all = |at: Instant, sight: &Sight| {
        match sight {
            Sight::Deployment(which, false) if *which == gate => _ = cause.get_or_insert(at),
            Sight::CronJob(which, true) if *which == here => _ = suspended.get_or_insert(at),
            Sight::CronJob(which, false) if *which == there => _ = resumed.get_or_insert(at),
            Sight::Key { session: None, .. } => _ = free.get_or_insert(at),
            Sight::Key { holder: None, ended: true, .. } if suspended.is_some() => _ = ended.get_or_insert(at),
            _ => {}
        }
        let resumed = resumed?;
        // A query for a key shows only its last state.
        let free = free.unwrap_or(resumed);
        Some(Seen { cause: cause?, suspended: suspended?, ended: ended.unwrap_or(free).min(free), free, resumed })
    };
    observer.find("the CronJob resumed in the other cluster", PATIENCE, all).await
}

impl Figures {
    fn add(&mut self, seen: &Seen, floor: &Took) {
        let between = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1000.0;
        let took = |duration: Duration| duration.as_secs_f64() * 1000.0;
        let (total, least) = (between(seen.cause, seen.resumed), took(floor.total()));
        self.total.push(total);
        self.to_suspended.push(between(seen.cause, seen.suspended));
        let ended = between(seen.suspended, seen.ended);
        self.to_ended.push(ended);
        self.without_reads.push(total - ended);
        self.reads.push(took(floor.reads));
        self.to_free.push(between(seen.ended, seen.free));
        self.to_resumed.push(between(seen.free, seen.resumed));
        self.floor.push(least);
        self.floor_disabled.push(took(floor.disabled));
        self.floor_free.push(took(floor.free));
        self.floor_enabled.push(took(floor.enabled));
        self.runs.push((total, least));
    }

    fn report(&self, cause: Cause, report: &mut Report) {
        let what = match cause {
            Cause::Unavailable => "Deployment not available",
            Cause::Terminated => "operator's SIGTERM",
        };
        for percent in [50, 99] {
            let (total, floor) = (self.total.percentile(percent), self.floor.percentile(percent));
            report.figure(format!("CronJob resumed elsewhere, {what}: p{percent}"), total, "ms");
            report.figure(format!("the same requests by hand ({what}): p{percent}"), floor, "ms");
            report.figure(format!("CronJob resumed elsewhere / by hand, {what}: p{percent}"), total / floor, "");
        }
        report.figure(format!("CronJob suspended, {what}: p50"), self.to_suspended.median(), "ms");
        let apart = self.without_reads.median();
        let ratio = format!("the same without what goes from suspended to ended / by hand, {what}: p50");
        report.target(ratio, apart / self.floor.median(), "", TARGET);
        report.figure(format!("from suspended to ended, {what}: p50"), self.to_ended.median(), "ms");
        report.figure(format!("the reads before that by hand, {what}: p50"), self.reads.median(), "ms");
        report.figure(format!("from ended to the free lock, {what}: p50"), self.to_free.median(), "ms");
        report.figure(format!("from the free lock to resumed, {what}: p50"), self.to_resumed.median(), "ms");
        report.figure(format!("runs beside a busy neighbour, {what}"), self.disturbed.into(), "");
    }

    fn to_json(&self) -> Value {
        json!({
            "total": self.total.to_json(), "floor": self.floor.to_json(), "disturbed": self.disturbed,
            "stages": {
                "causeToSuspended": self.to_suspended.to_json(), "suspendedToEnded": self.to_ended.to_json(),
                "endedToFree": self.to_free.to_json(), "readsByHand": self.reads.to_json(),
                "freeToResumed": self.to_resumed.to_json(),
            },
            "floorStages": {
                "disabled": self.floor_disabled.to_json(), "free": self.floor_free.to_json(),
                "enabled": self.floor_enabled.to_json(),
            },
            "runs": self.runs,
        })
    }
}
