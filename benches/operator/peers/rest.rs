//! What two members cost when nothing happens.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::{Value, json};

use super::contender::Contender;
use super::ground::Ground;
use super::kind::Kind;
use super::processes::resident;
use crate::consul::telemetry;
use crate::machine;

/// How long they have run before it is counted.
const SETTLED: Duration = Duration::from_secs(40);
const HOUR: f64 = 3600.0;

/// What has been counted of a group so far.
struct Counted {
    at: Instant,
    bytes: u64,
    processor: f64,
}

/// Looks at all groups for this many seconds. Returns what each costs, as many times as an hour has them.
pub async fn measure(ground: &Ground, groups: &[Contender<'_>], seconds: u32) -> anyhow::Result<Vec<Value>> {
    tokio::time::sleep(SETTLED).await;
    let (asked, before) = (ground.world.requests().await?, groups.iter().map(count).collect::<Result<Vec<_>, _>>()?);
    // Consul counts by whole intervals. The others are counted for as long.
    let apis: Vec<_> =
        groups.iter().map(|group| group.consul.as_ref().map(lictor_testing::consul::Consul::api)).collect();
    let counts = apis.iter().map(async |api| {
        if let Some(api) = api {
            return telemetry::requests(api, seconds).await.map(Some);
        }
        tokio::time::sleep(Duration::from_secs(seconds.into())).await;
        Ok(None)
    });
    let consul = try_join_all(counts).await?;
    let after = ground.world.requests().await?.since(&asked);
    let mut all = vec![];
    for ((group, before), consul) in groups.iter().zip(before).zip(consul) {
        let now = count(group)?;
        let times = HOUR / now.at.duration_since(before.at).as_secs_f64();
        let requests = match consul {
            Some((period, requests)) => requests.values().sum::<f64>() * HOUR / f64::from(period),
            None => after.of(&format!("peers-{}", group.kind.id())) * times,
        };
        let memory: Vec<f64> = group.electing()?.iter().map(|pids| resident(pids)).collect::<Result<_, _>>()?;
        all.push(json!({
            "seconds": now.at.duration_since(before.at).as_secs_f64(),
            "requestsAnHour": requests,
            "bytesAnHour": f64::from(u32::try_from(now.bytes - before.bytes)?) * times,
            "processorSecondsAnHour": (now.processor - before.processor) * times,
            "residentMiB": memory,
            "replicas": if group.kind == Kind::Operator { group.operators.len() } else { 2 },
        }));
    }
    Ok(all)
}

fn count(group: &Contender) -> anyhow::Result<Counted> {
    let mut processor = 0.0;
    for pid in group.electing()?.into_iter().flatten() {
        processor += machine::usage(pid)?.processor;
    }
    Ok(Counted { at: Instant::now(), bytes: group.links.iter().map(lictor_testing::Link::bytes).sum(), processor })
}
