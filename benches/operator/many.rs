//! Failovers among many elections, right after a restart of the operator: twice in each of some groups. The first one in a group does more
//! (H4 in docs/protocol.md).

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::figures::{Report, Sample};
use crate::observer::{Observer, Sight};
use crate::world::{World, set_ready};

/// The number of pods of each election.
pub const PODS: usize = 3;
pub const NAMESPACES: u32 = 4;
const GROUPS: u32 = 40;
const PATIENCE: Duration = Duration::from_secs(60);
/// The quiet time between two failovers.
const SETTLED: Duration = Duration::from_millis(300);

/// How many times a tenth of all groups change.
const BURSTS: u32 = 10;
/// How many of these changes are under way at a time.
const AT_ONCE: usize = 16;
const A_MOMENT: Duration = Duration::from_millis(50);
const BY_HAND: &str = "by-hand";

/// Measures.
pub async fn measure(
    world: &World,
    observer: &mut Observer,
    elections: u32,
    report: &mut Report,
) -> anyhow::Result<Value> {
    let (mut very_first, mut first, mut later) = (None, Sample::default(), Sample::default());
    for number in 0..elections.min(GROUPS) {
        for sample in [&mut first, &mut later] {
            let took = fail(world, observer, number).await.with_context(|| format!("failover of web-{number}"))?;
            very_first.get_or_insert(took);
            sample.push(took);
        }
    }
    let very_first = very_first.context("there is an election")?;
    report.target(format!("the first failover after a restart, {elections} elections"), very_first, "ms", 1000.0);
    for (what, sample) in [("the first of a group", &first), ("later", &later)] {
        report.figure(format!("failover among {elections}, {what}: p50"), sample.median(), "ms");
        report.figure(format!("failover among {elections}, {what}: p99"), sample.percentile(99), "ms");
    }
    let (amid, by_hand) = amid_changes(world, observer, elections).await.context("amid changes")?;
    for (what, sample) in [("failover", &amid), ("three writes by hand", &by_hand)] {
        let what = format!("while a tenth of {elections} groups change at once, {what}");
        report.figure(format!("{what}: p50"), sample.median(), "ms");
        report.figure(format!("{what}: longest"), sample.greatest(), "ms");
    }
    Ok(json!({
        "veryFirst": very_first, "first": first.to_json(), "later": later.to_json(),
        "amidChanges": amid.to_json(), "amidChangesByHand": by_hand.to_json(),
    }))
}

/// Failovers, each a moment after a follower in a tenth of the other groups has begun to change. Beside each, as many writes by hand as a
/// failover needs.
async fn amid_changes(world: &World, observer: &mut Observer, elections: u32) -> anyhow::Result<(Sample, Sample)> {
    world.namespace(BY_HAND).await?;
    let pod = world.pod(BY_HAND, "web-0", "web", 0).await?.name_any();
    let followers: Vec<(String, String)> =
        (0..elections).filter(|number| changes(*number)).filter_map(|number| follower(observer, number)).collect();
    let measured: Vec<u32> = (0..elections.min(GROUPS)).filter(|number| !changes(*number)).collect();
    let (mut amid, mut by_hand) = (Sample::default(), Sample::default());
    for (run, number) in (0..BURSTS).zip(measured.into_iter().cycle()) {
        let burst = stream::iter(followers.clone()).map(|(namespace, pod)| async move {
            set_ready(&Api::namespaced(world.client.clone(), &namespace), &pod, run % 2 == 1).await
        });
        let burst = burst.buffer_unordered(AT_ONCE).try_collect::<()>();
        let writes = async {
            tokio::time::sleep(A_MOMENT).await;
            let pods: Api<Pod> = Api::namespaced(world.another_client().await, BY_HAND);
            let began = Instant::now();
            for write in 0..3 {
                let patch = json!({"metadata": {"annotations": {"bench": format!("{run} {write}")}}});
                pods.patch(&pod, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
            Ok(began.elapsed().as_secs_f64() * 1000.0)
        };
        let failover = async {
            tokio::time::sleep(A_MOMENT).await;
            fail(world, observer, number).await
        };
        let ((), took, hand) = tokio::try_join!(burst, failover, writes)?;
        amid.push(took);
        by_hand.push(hand);
        observer.quiet(SETTLED).await?;
    }
    Ok((amid, by_hand))
}

/// Whether a group is one of the tenth that change.
fn changes(number: u32) -> bool {
    number % 10 == 9
}

/// A follower of a group, as namespace and name.
fn follower(observer: &Observer, number: u32) -> Option<(String, String)> {
    let names = (0..PODS).map(|pod| (namespace(number), format!("web-{number}-{pod}")));
    let follows = |id: &(String, String)| observer.pods.get(id).and_then(|pod| pod.role.as_deref()) == Some("follower");
    names.into_iter().find(follows)
}

/// Makes the leader of a group unready. Returns the milliseconds from there to the next leader's label, and lets all settle.
async fn fail(world: &World, observer: &mut Observer, number: u32) -> anyhow::Result<f64> {
    let (namespace, group) = (namespace(number), format!("web-{number}-"));
    let of_group = |id: &(String, String)| id.0 == namespace && id.1.starts_with(&group);
    let leads = |role: &Option<String>| role.as_deref() == Some("leader");
    let mut pods = observer.pods.iter();
    let leader = pods.find(|(id, pod)| of_group(id) && leads(&pod.role)).context("somebody leads")?.0.clone();
    let api: Api<Pod> = Api::namespaced(world.client.clone(), &namespace);
    set_ready(&api, &leader.1, false).await?;
    let mut cause: Option<Instant> = None;
    let took = observer.find("the next leader", PATIENCE, |at, sight| {
        let Sight::Pod(id, Some(pod)) = sight else { return None };
        if *id == leader && !pod.ready {
            cause.get_or_insert(at);
        }
        let next = of_group(id) && *id != leader && leads(&pod.role);
        next.then(|| Some(at.saturating_duration_since(cause?).as_secs_f64() * 1000.0)).flatten()
    });
    let took = took.await?;
    set_ready(&api, &leader.1, true).await?;
    observer.quiet(SETTLED).await?;
    Ok(took)
}

/// Returns the namespace of an election.
pub fn namespace(number: u32) -> String {
    format!("scale-{}", number % NAMESPACES)
}
