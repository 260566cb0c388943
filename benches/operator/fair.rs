//! What trouble in one namespace costs the failovers in another: failovers while all is well, while a webhook hangs on each write to
//! pods elsewhere, and while the pods of another election flap, in turns, each beside its floor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use lictor_testing::kubernetes::{hanging_webhook, silent_server};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::failover::{Cause, Group};
use crate::figures::{Report, Sample};
use crate::floor::Floor;
use crate::machine;
use crate::observer::{Observer, PodSight};
use crate::world::{World, set_ready};

const PATIENCE: Duration = Duration::from_secs(90);
/// The number of times that each kind of trouble begins and ends.
const ROUNDS: u32 = 4;
/// The number of elections whose writes hang: more than the requests that one namespace may have under way.
const HANGING: usize = 20;
/// How much slower the p99 may be.
const TARGET: f64 = 1.5;
/// The namespaces of the trouble.
const HANGS: &str = "hangs";
const FLAPS: &str = "flaps";
/// How often each of the pods that flap becomes ready or not.
const FLAP: Duration = Duration::from_millis(100);
/// How long it is looked on between two failovers. Where there is trouble, it never becomes quiet.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    Hangs,
    Flaps,
}

#[derive(Default)]
struct Figures {
    total: Sample,
    floor: Sample,
}

/// Measures this many failovers beside each kind of trouble.
pub async fn measure(runs: u32, report: &mut Report) -> anyhow::Result<Value> {
    let world = World::start("fair").await?;
    let _operator = world.operator();
    let observer = Observer::start(&world.another_client().await, false).await?;
    let mut group = Group::new(&world, observer, None).await?;
    let mut floor = group.floor(None).await?;
    for (namespace, elections) in [(HANGS, HANGING), (FLAPS, 1)] {
        world.namespace(namespace).await?;
        for app in (0..elections).map(|number| format!("app-{number}")) {
            for number in 0..3 {
                world.pod(namespace, &format!("{app}-{number}"), &app, number).await?;
            }
            world.elect(namespace, &app, None).await?;
        }
        led(&mut group.observer, namespace, elections).await?;
    }
    // An operator's first handover in a group does more (H4).
    fail(&mut group, &mut floor, &mut Figures::default(), 3).await?;

    let (port, taken) = silent_server().await;
    let mut all = [Trouble::None, Trouble::Hangs, Trouble::Flaps].map(|trouble| (trouble, Figures::default()));
    let mut changes = 0;
    for round in 0..ROUNDS {
        for (trouble, figures) in &mut all {
            let mut made = JoinSet::new();
            let count = Arc::new(AtomicUsize::new(0));
            match trouble {
                Trouble::None => {}
                Trouble::Hangs => {
                    world.apply(&hanging_webhook(HANGS, port, &json!({})))?;
                    let before = taken.load(Ordering::Relaxed);
                    turn(&world, HANGS, HANGING, false).await?;
                    let hang = async {
                        while taken.load(Ordering::Relaxed) < before + 12 {
                            group.observer.next().await?;
                        }
                        anyhow::Ok(())
                    };
                    tokio::time::timeout(PATIENCE, hang).await.context("requests hang")??;
                }
                Trouble::Flaps => flap(&world, &mut made, &count),
            }
            fail(&mut group, &mut floor, figures, runs.div_ceil(ROUNDS)).await?;
            made.abort_all();
            changes += count.load(Ordering::Relaxed);
            if *trouble == Trouble::Hangs {
                world.delete(&["validatingwebhookconfiguration", HANGS])?;
                turn(&world, HANGS, HANGING, true).await?;
                led(&mut group.observer, HANGS, HANGING).await?;
            } else if *trouble == Trouble::Flaps {
                turn(&world, FLAPS, 1, true).await?;
                led(&mut group.observer, FLAPS, 1).await?;
            }
            let (median, floor) = (figures.total.median(), figures.floor.median());
            eprintln!(
                "fair: round {round}, {trouble:?}: median {median:.2} ms (floor {floor:.2}), load {}",
                machine::load()?
            );
        }
    }
    Ok(tell(&all, taken.load(Ordering::Relaxed), changes, report))
}

fn tell(all: &[(Trouble, Figures); 3], hung: usize, changes: usize, report: &mut Report) -> Value {
    let [(_, calm), others @ ..] = all;
    let count = |count: usize| u32::try_from(count).map_or(f64::INFINITY, f64::from);
    report.figure("requests that hung", count(hung), "");
    report.figure("changes of pods that flapped", count(changes), "");
    for (trouble, figures) in all {
        for percent in [50, 99] {
            report.figure(format!("failover, {trouble:?}: p{percent}"), figures.total.percentile(percent), "ms");
            report.figure(format!("floor beside it, {trouble:?}: p{percent}"), figures.floor.percentile(percent), "ms");
        }
    }
    for (trouble, figures) in others {
        let ratio = |percent| figures.total.percentile(percent) / calm.total.percentile(percent);
        report.figure(format!("failover, {trouble:?} / None: p50"), ratio(50), "");
        report.target(format!("failover, {trouble:?} / None: p99"), ratio(99), "", TARGET);
        let floor = figures.floor.percentile(99) / calm.floor.percentile(99);
        report.figure(format!("floor, {trouble:?} / None: p99"), floor, "");
    }
    let figures = all.iter().map(|(trouble, figures)| {
        let name = format!("{trouble:?}").to_lowercase();
        (name, json!({"total": figures.total.to_json(), "floor": figures.floor.to_json()}))
    });
    let mut told: Value = figures.collect();
    told["hung"] = json!(hung);
    told["flaps"] = json!(changes);
    told
}

/// Makes this many failovers.
async fn fail(group: &mut Group<'_>, floor: &mut Floor, figures: &mut Figures, runs: u32) -> anyhow::Result<()> {
    for _ in 0..runs {
        group.observer.pass(PAUSE).await?;
        figures.floor.push(floor.write().await.context("the floor")?.total().as_secs_f64() * 1000.0);
        group.observer.pass(PAUSE).await?;
        let seen = group.fail(Cause::Unready).await?;
        figures.total.push(seen.promotion.saturating_duration_since(seen.cause).as_secs_f64() * 1000.0);
    }
    Ok(())
}

/// Makes the leaders of these elections not ready, or all of their pods ready.
async fn turn(world: &World, namespace: &str, elections: usize, ready: bool) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), namespace);
    let leads = ListParams::default().labels("role=leader");
    let found = pods.list(&if ready { ListParams::default() } else { leads }).await?;
    anyhow::ensure!(ready || found.items.len() == elections, "{} leaders", found.items.len());
    for pod in found.items {
        set_ready(&pods, &pod.name_any(), ready).await?;
    }
    Ok(())
}

/// Lets the pods of the one election flap.
fn flap(world: &World, made: &mut JoinSet<()>, count: &Arc<AtomicUsize>) {
    for number in 0..3 {
        let pods: Api<Pod> = Api::namespaced(world.client.clone(), FLAPS);
        let count = count.clone();
        made.spawn(async move {
            // Each at another moment.
            let mut ticks = tokio::time::interval(FLAP + Duration::from_millis(7 * number));
            let mut ready = false;
            loop {
                ticks.tick().await;
                if set_ready(&pods, &format!("app-0-{number}"), ready).await.is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                    ready = !ready;
                }
            }
        });
    }
}

/// Waits until each election of a namespace has one leader.
async fn led(observer: &mut Observer, namespace: &str, elections: usize) -> anyhow::Result<()> {
    let settled = |observer: &Observer| {
        let of = |role: &str| {
            let is = |pod: &PodSight| pod.ready && pod.role.as_deref() == Some(role);
            observer.pods.iter().filter(|((of, _), pod)| of == namespace && is(pod)).count()
        };
        of("leader") == elections && of("follower") == 2 * elections
    };
    observer.until(&format!("the elections in {namespace} are led"), PATIENCE, settled).await
}
