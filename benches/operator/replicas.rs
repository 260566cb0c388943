//! The end of one of two replicas of the operator: how long no replica acts, and how long a leader that is lost at that moment
//! waits for its successor.

use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use lictor_testing::kubernetes::{Operator, eventually};
use serde_json::{Value, json};

use crate::figures::{Report, Sample};
use crate::observer::{Observer, Sight};
use crate::world::{SYSTEM, World, own_lease};

const PATIENCE: Duration = Duration::from_secs(90);
const NAMESPACE: &str = "replicas";
const APP: &str = "web";

/// Times after the signal.
struct HandOver {
    holder: f64,
    failover: f64,
}

/// Measures this many hand-overs of each kind.
pub async fn measure(terminations: u32, kills: u32, report: &mut Report) -> anyhow::Result<Value> {
    let world = World::start("replicas").await?;
    let mut observer = Observer::start(&world.another_client().await, false).await?;
    world.namespace(NAMESPACE).await?;
    for number in 0..3 {
        world.pod(NAMESPACE, &format!("{APP}-{number}"), APP, number).await?;
    }
    world.elect(NAMESPACE, APP, None).await?;
    let mut pods = 3;
    let mut acting = world.operator();
    acting.acts().await;
    let mut all = Vec::new();
    for (signal, times) in [("TERM", terminations), ("KILL", kills)] {
        let (mut holders, mut failovers) = (Sample::default(), Sample::default());
        for _ in 0..times {
            let standby = world.operator();
            ready(&standby).await;
            let leader = settle(&mut observer).await?;
            let seen = hand_over(&world, &mut observer, &acting, signal, &leader).await?;
            eprintln!(
                "replicas: SIG{signal}: another one holds the Lease after {:.2} s, a leader lost meanwhile is replaced after {:.2} s",
                seen.holder, seen.failover
            );
            holders.push(seen.holder);
            failovers.push(seen.failover);
            // The replica that ended is awaited, or reaped.
            acting = standby;
            let deleted: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
            deleted.delete(&leader, &DeleteParams::default().grace_period(0)).await?;
            world.pod(NAMESPACE, &format!("{APP}-{pods}"), APP, pods).await?;
            pods += 1;
        }
        if times > 0 {
            let what = format!("operator's SIG{signal}");
            report.figure(format!("{what}: no operator acts, median"), holders.median(), "s");
            report.figure(format!("{what}: no operator acts, longest"), holders.greatest(), "s");
            report.figure(format!("{what}: to a failover that falls into it, longest"), failovers.greatest(), "s");
        }
        all.push((signal.to_owned(), json!({"holder": holders.to_json(), "failover": failovers.to_json()})));
    }
    Ok(all.into_iter().collect())
}

async fn ready(operator: &Operator) {
    eventually("the standby is ready", || async {
        let (status, body) = operator.get("/readyz").await;
        if status == 200 { Ok(()) } else { Err(body) }
    })
    .await;
}

/// Waits until one of three pods leads. Returns it.
async fn settle(observer: &mut Observer) -> anyhow::Result<String> {
    let leader = |observer: &Observer| {
        let pods: Vec<_> = observer.pods.iter().filter(|((namespace, _), _)| namespace == NAMESPACE).collect();
        let healthy = pods.len() == 3 && pods.iter().all(|(_, pod)| pod.ready && !pod.deleting && pod.role.is_some());
        let leader = pods.iter().find(|(_, pod)| pod.role.as_deref() == Some("leader"));
        leader.filter(|_| healthy).map(|((_, name), _)| name.clone())
    };
    observer.until("the group has settled", PATIENCE, |observer| leader(observer).is_some()).await?;
    observer.quiet(Duration::from_millis(500)).await?;
    leader(observer).context("there is a leader")
}

async fn hand_over(
    world: &World,
    observer: &mut Observer,
    acting: &Operator,
    signal: &str,
    leader: &str,
) -> anyhow::Result<HandOver> {
    let own = (SYSTEM.to_owned(), own_lease());
    let before = observer.leases.get(&own).cloned().flatten().context("an operator holds its Lease")?;
    let start = Instant::now();
    acting.signal(signal);
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
    let (mut holder, mut failover) = (None, None);
    let both = |at: Instant, sight: &Sight| {
        match sight {
            Sight::Lease(id, Some(name)) if *id == own && *name != before => _ = holder.get_or_insert(at),
            Sight::Pod((namespace, name), Some(pod))
                if namespace == NAMESPACE && name != leader && pod.role.as_deref() == Some("leader") =>
            {
                _ = failover.get_or_insert(at);
            }
            _ => {}
        }
        let seconds = |at: Instant| at.saturating_duration_since(start).as_secs_f64();
        Some(HandOver { holder: seconds(holder?), failover: seconds(failover?) })
    };
    let parameters = DeleteParams::default();
    let (deleted, seen) = tokio::join!(
        pods.delete(leader, &parameters),
        observer.find("another replica acts and replaces the leader", PATIENCE, both)
    );
    deleted?;
    seen
}
