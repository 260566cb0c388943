//! What a bare client needs for the writes of a start: it knows beforehand what to write, watches nothing and decides nothing.

use std::time::Instant;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lictor_api::LeaderElection;
use serde_json::json;

use crate::world::World;

/// As many requests as the operator has under way at a time.
const AT_A_TIME: usize = 64;
const NAMESPACE: &str = "bare";
/// Of each group: a Lease, three pods, a status, an Event.
const WRITES: f64 = 6.0;

/// Returns how many writes it does in a second, for so many groups. Nothing of them is left.
pub async fn rate(world: &World, groups: u32) -> anyhow::Result<f64> {
    world.namespace(NAMESPACE).await?;
    let all = || stream::iter(0..groups);
    let make = |group| async move {
        for pod in 0..3 {
            world.pod(NAMESPACE, &format!("web-{group}-{pod}"), &format!("web-{group}"), pod).await?;
        }
        world.elect(NAMESPACE, &format!("web-{group}"), None).await
    };
    all().map(make).buffer_unordered(8).try_collect::<()>().await?;
    let client = world.operators_client().await?;
    let start = Instant::now();
    all().map(|group| write(&client, group)).buffer_unordered(AT_A_TIME).try_collect::<()>().await?;
    let rate = f64::from(groups) * WRITES / start.elapsed().as_secs_f64();
    let client = &world.client;
    let (now, everything) = (DeleteParams::default().grace_period(0), ListParams::default());
    Api::<LeaderElection>::namespaced(client.clone(), NAMESPACE).delete_collection(&now, &everything).await?;
    Api::<Pod>::namespaced(client.clone(), NAMESPACE).delete_collection(&now, &everything).await?;
    Api::<Lease>::namespaced(client.clone(), NAMESPACE).delete_collection(&now, &everything).await?;
    Ok(rate)
}

async fn write(client: &Client, group: u32) -> anyhow::Result<()> {
    let name = format!("web-{group}");
    let lease = serde_json::from_value(json!({
        "metadata": {
            "name": name, "labels": {"app.kubernetes.io/managed-by": "nobody"},
            "annotations": {"example.com/record": "x".repeat(600)},
        },
        "spec": {"holderIdentity": name, "leaseTransitions": 1},
    }))?;
    Api::<Lease>::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &lease).await?;
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    for (pod, role) in [(1, "follower"), (2, "follower"), (0, "leader")] {
        let patch = json!({"metadata": {
            "labels": {"role": role}, "annotations": {"lictor.dev/term": "1", "lictor.dev/election": name},
        }});
        pods.patch(&format!("{name}-{pod}"), &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    let status = json!({"status": {"term": 1, "conditions": [{
        "type": "Elected", "status": "True", "reason": "Elected", "message": "x".repeat(600),
        "lastTransitionTime": Timestamp::now().to_string(),
    }]}});
    let elections = Api::<LeaderElection>::namespaced(client.clone(), NAMESPACE);
    elections.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    let event = serde_json::from_value(json!({
        "metadata": {"generateName": name}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "action": "Promote",
        "reason": "Elected", "note": "x".repeat(100), "reportingController": "example.com/bare", "reportingInstance": "bare",
        "regarding": {"apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "namespace": NAMESPACE, "name": name},
    }))?;
    Api::<Event>::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &event).await?;
    Ok(())
}
