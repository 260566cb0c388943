//! Failovers among many elections, right after a restart of the operator: twice in each of some groups. The first one in a group does more
//! (H4 in docs/protocol.md).

use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::{Value, json};

use crate::failover::set_ready;
use crate::figures::{Report, Sample};
use crate::observer::{Observer, Sight};
use crate::scale::namespace;
use crate::world::World;

const GROUPS: u32 = 40;
const PATIENCE: Duration = Duration::from_secs(60);
/// The quiet time between two failovers.
const SETTLED: Duration = Duration::from_millis(300);

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
    Ok(json!({"veryFirst": very_first, "first": first.to_json(), "later": later.to_json()}))
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
