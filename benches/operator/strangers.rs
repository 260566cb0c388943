//! Pods of no election: what each of them takes of the operator's memory.

use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::figures::Report;
use crate::machine;
use crate::world::World;

const NAMESPACE: &str = "strangers";
/// The goal for each, in KiB.
const TARGET: f64 = 1.0;
/// So long a replica takes at most to give back what it needed to read all.
const SETTLED: Duration = Duration::from_secs(5);

/// Measures with this many pods.
pub async fn measure(pods: u32, report: &mut Report) -> anyhow::Result<Value> {
    let world = World::start("strangers").await?;
    world.namespace(NAMESPACE).await?;
    // An operator without elections has another share of its memory in use.
    world.pod(NAMESPACE, "web-0", "web", 0).await?;
    world.elect(NAMESPACE, "web", None).await?;
    let without = resident(&world).await?;
    let api: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
    stream::iter(0..pods)
        .map(|number| create(&api, number))
        .buffer_unordered(32)
        .try_collect::<()>()
        .await
        .context("pods are made")?;
    let with = resident(&world).await?;
    let each = (with.resident - without.resident) * 1024.0 / f64::from(pods);
    report.figure(format!("memory with {pods} pods of no election"), with.resident, "MiB");
    report.figure("the same, the peak", with.peak, "MiB");
    report.target("memory for each pod of no election", each, "KiB", TARGET);
    Ok(json!({
        "pods": pods, "withoutMiB": without.resident, "withMiB": with.resident, "peakMiB": with.peak, "eachKiB": each,
    }))
}

/// The memory of a replica that was started now.
async fn resident(world: &World) -> anyhow::Result<machine::Usage> {
    let mut operator = world.operator();
    operator.acts().await;
    tokio::time::sleep(SETTLED).await;
    let usage = machine::usage(operator.pid())?;
    operator.stop().await;
    Ok(usage)
}

/// Creates a pod with the labels that a Deployment's pod of a usual chart has. Nobody schedules it.
async fn create(api: &Api<Pod>, number: u32) -> anyhow::Result<()> {
    let app = format!("app-{}", number / 5);
    let pod = serde_json::from_value(json!({
        "metadata": {
            "name": format!("{app}-6d4cf56db6-{number:05}"),
            "labels": {
                "app.kubernetes.io/name": app, "app.kubernetes.io/instance": app, "app.kubernetes.io/component": "server",
                "app.kubernetes.io/part-of": "shop", "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": "6d4cf56db6",
            },
        },
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "example/web", "ports": [{"name": "http", "containerPort": 8080}]}],
        },
    }))?;
    api.create(&PostParams::default(), &pod).await?;
    Ok(())
}
