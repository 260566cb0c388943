//! Many elections: how long until all have a leader after an operator starts, and what they cost when nothing happens.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use crate::figures::Report;
use crate::many::{self, NAMESPACES, PODS, namespace};
use crate::observer::{Observer, Sight};
use crate::world::World;
use crate::{bare, machine};

const PATIENCE: Duration = Duration::from_secs(900);
/// The quiet time after which only the renewals of the operator's own Lease, every 5 s, can be under way.
const SETTLED: Duration = Duration::from_secs(3);
/// The number of elections that the target for memory is for.
const LARGEST_WITH_MEMORY_TARGET: u32 = 1000;
/// The number of groups at most that the bare client writes for.
const BARE: u32 = 2000;

/// Measures with this many elections.
pub async fn measure(elections: u32, idle_seconds: u32, report: &mut Report) -> anyhow::Result<Value> {
    let world = World::start("scale").await?;
    let bare = watched_rate(&world, elections.min(BARE)).await.context("the bare client")?;
    namespaces(&world).await?;
    populate(&world, 0..elections, None).await?;
    let mut observer = Observer::start(&world.another_client().await, true).await?;
    let ready = usize::try_from(elections)? * PODS;
    let all_ready = |observer: &Observer| observer.pods.len() == ready && observer.elections.len() * PODS == ready;
    observer.until("all is there", PATIENCE, all_ready).await?;
    let mut unready: usize = observer.pods.values().filter(|pod| !pod.ready).count();
    while unready > 0 {
        observer.next().await?;
        unready = observer.pods.values().filter(|pod| !pod.ready).count();
    }
    observer.quiet(Duration::from_secs(1)).await?;
    eprintln!("scale: {elections} elections of {PODS} ready pods each, load {}", machine::load()?);

    let before = world.requests().await?;
    let start = Instant::now();
    let mut operator = world.operator();
    let (labelled, told) = start_up(&mut observer, usize::try_from(elections)?, start).await?;
    observer.quiet(SETTLED).await?;
    let requests = world.requests().await?.since(&before);
    let peak = machine::usage(operator.pid())?;
    let each = f64::from(elections);
    eprintln!("scale: all labelled after {labelled:.1} s, all told after {told:.1} s: {}", requests.to_json());
    report.figure(format!("start, {elections} elections: all labelled"), labelled, "s");
    report.figure(format!("start, {elections} elections: all statuses written"), told, "s");
    let writes = requests.writes() - requests.of("own-lease-write");
    report.target("start: writes for each election", writes / each, "", 6.0);
    report_rate(writes / told, bare, report);
    report.figure("start: reads for each election", (requests.but_watches() - requests.writes()) / each, "");
    report.figure("start: resident memory, peak", peak.peak, "MiB");

    eprintln!("scale: it is looked at for {idle_seconds} s");
    let period = Duration::from_secs(idle_seconds.into());
    let (before, used, since) = (world.requests().await?, machine::usage(operator.pid())?, Instant::now());
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let _ = tokio::time::timeout(period, async {
        while let Ok((_, sight)) = observer.next().await {
            let what = match sight {
                Sight::Pod(..) => "pods",
                Sight::Lease(..) => "leases",
                Sight::Key { .. } => "keys",
                Sight::Election(..) => "elections",
                Sight::CronJob(..) | Sight::Deployment(..) => "workloads",
                Sight::Slice(..) => "slices",
                Sight::Other => "events",
            };
            *seen.entry(what).or_default() += 1;
        }
    })
    .await;
    let elapsed = since.elapsed().as_secs_f64();
    let (after, using) = (world.requests().await?.since(&before), machine::usage(operator.pid())?);
    let processor = (using.processor - used.processor) / elapsed * 100.0;
    let minute = |count: f64| count * 60.0 / elapsed;
    let other = after.but_watches() - after.of("own-lease-write");
    // Its Lease is renewed every third of its 15 s. The period may begin just before a renewal.
    let renewals = (elapsed / 5.0).floor() + 1.0;
    report.target("idle: renewals of the operator's own lease", after.of("own-lease-write"), "", renewals);
    report.target("idle: all other requests but watches", other, "", 0.0);
    report.figure("idle: watches opened again, in a minute", minute(after.of("watch")), "");
    if elections <= LARGEST_WITH_MEMORY_TARGET {
        report.target("idle: resident memory", using.resident, "MiB", 100.0);
    } else {
        report.figure("idle: resident memory", using.resident, "MiB");
    }
    report.target("idle: processor, of one core", processor, "%", 2.0);

    // Start again, with everything in place.
    operator.stop().await;
    drop(operator);
    observer.quiet(SETTLED).await?;
    let (before, start) = (world.requests().await?, Instant::now());
    let operator = world.operator();
    operator.acts().await;
    let acts = start.elapsed().as_secs_f64();
    observer.quiet(SETTLED).await?;
    let again = world.requests().await?.since(&before);
    let resident = machine::usage(operator.pid())?;
    let writes = again.writes() - again.of("own-lease-write");
    report.figure("start again, all in place: until it acts", acts, "s");
    report.target("start again, all in place: writes", writes, "", 0.0);
    report.figure("start again, all in place: resident memory", resident.resident, "MiB");
    let many = many::measure(&world, &mut observer, elections, report).await?;
    Ok(json!({
        "failovers": many, "bareWritesPerSecond": bare,
        "startAgain": {
            "actsSeconds": acts, "requests": again.to_json(), "residentMiB": resident.resident,
            "residentPeakMiB": resident.peak, "processorSeconds": resident.processor,
        },
        "elections": elections,
        "start": {
            "labelledSeconds": labelled, "toldSeconds": told, "requests": requests.to_json(),
            "residentPeakMiB": peak.peak, "processorSeconds": peak.processor,
        },
        "idle": {
            "seconds": elapsed, "requests": after.to_json(), "watchersSights": seen,
            "residentMiB": using.resident, "processorPercent": processor,
        },
    }))
}

/// Returns how many writes a bare client does in a second. They are watched as those of the operator are: that costs the API server as much.
async fn watched_rate(world: &World, groups: u32) -> anyhow::Result<f64> {
    let mut observer = Observer::start(&world.another_client().await, true).await?;
    let mut rate = Box::pin(bare::rate(world, groups));
    loop {
        tokio::select! {
            rate = &mut rate => return rate,
            sight = observer.next() => drop(sight?),
        }
    }
}

fn report_rate(rate: f64, bare: f64, report: &mut Report) {
    report.figure("start: writes in a second", rate, "");
    report.figure("the same by a bare client: writes in a second", bare, "");
    report.figure("start: share of the bare client's rate", rate / bare, "");
}

/// Creates the namespaces of [`populate`].
pub async fn namespaces(world: &World) -> anyhow::Result<()> {
    for number in 0..NAMESPACES {
        world.namespace(&namespace(number)).await?;
    }
    Ok(())
}

/// Creates these elections, with their pods.
pub async fn populate(world: &World, elections: Range<u32>, class: Option<&str>) -> anyhow::Result<()> {
    stream::iter(elections)
        .map(|number| async move {
            let (namespace, app) = (namespace(number), format!("web-{number}"));
            for pod in 0..PODS {
                world.pod(&namespace, &format!("{app}-{pod}"), &app, pod).await?;
            }
            world.elect(&namespace, &app, class).await
        })
        .buffer_unordered(8)
        .try_collect::<()>()
        .await
        .context("the elections and their pods are made")
}

/// Returns the seconds until all pods are labelled, and until all statuses are written.
async fn start_up(observer: &mut Observer, elections: usize, start: Instant) -> anyhow::Result<(f64, f64)> {
    let mut labelled: BTreeMap<(String, String), [u32; 2]> = BTreeMap::new();
    let mut roles: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut told = std::collections::BTreeSet::new();
    let (mut complete, mut all_labelled) = (0, None);
    let until = |at: Instant, sight: &Sight| {
        match sight {
            Sight::Pod(id, Some(pod)) => {
                let role = pod.role.clone()?;
                let group = (id.0.clone(), id.1.rsplit_once('-')?.0.to_owned());
                let of = |role: &str| usize::from(role == "leader");
                let counts = labelled.entry(group).or_default();
                let was = *counts == [2, 1];
                if let Some(former) = roles.insert(id.clone(), role.clone()) {
                    counts[of(&former)] -= 1;
                }
                counts[of(&role)] += 1;
                let is = *counts == [2, 1];
                complete = complete + usize::from(is) - usize::from(was);
                if complete == elections {
                    all_labelled.get_or_insert(at);
                }
            }
            Sight::Election(id, status) => {
                let all = status.candidates.as_ref().is_some_and(|candidates| candidates.summary == "3/3");
                if all && status.leader.is_some() {
                    told.insert(id.clone());
                }
            }
            _ => {}
        }
        let all_labelled = all_labelled?;
        let seconds = |at: Instant| at.saturating_duration_since(start).as_secs_f64();
        (told.len() == elections).then(|| (seconds(all_labelled), seconds(at)))
    };
    observer.find("all are led", PATIENCE, until).await
}
