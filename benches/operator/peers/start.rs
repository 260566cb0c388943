//! From the start of a process to its first act as the leader, when the lock is free: how long that takes, and how many round trips it waits
//! for. They are counted by a link that takes longer.

use std::time::Duration;

use anyhow::Context;
use lictor_testing::acts::{moment, seconds};
use lictor_testing::{Disturbance, Stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::contender::{Contender, LOOK};
use crate::figures::Sample;

const PATIENCE: Duration = Duration::from_secs(60);
/// How much longer each answer takes.
const DELAY: Duration = Duration::from_millis(250);

/// How many times it is started with each link.
const RUNS: u32 = 10;

/// Starts one of a group by itself, with the plain link and with the longer one. Nothing of the group runs before and after.
pub async fn measure(group: &mut Contender<'_>) -> anyhow::Result<Value> {
    let mut plain = once(group).await?;
    // What exists only after the first start does from now on: the Lease, the node in Consul's catalog.
    let first = plain;
    let (mut times, mut delayed) = (Sample::default(), Sample::default());
    for _ in 0..RUNS {
        plain = once(group).await?;
        times.push(plain);
        group.links[0].disturb(Stream::Down, Disturbance::Late { by: DELAY, jitter: Duration::ZERO }).await;
        delayed.push(once(group).await?);
        group.links[0].clear().await;
    }
    // Of each the shortest: whatever else runs on the machine only adds to it.
    let trips = (delayed.percentile(0) - times.percentile(0)) / DELAY.as_secs_f64();
    Ok(json!({
        "seconds": times.to_json(), "delayedSeconds": delayed.to_json(), "firstSeconds": first,
        "delaySeconds": DELAY.as_secs_f64(), "roundTrips": trips,
    }))
}

async fn once(group: &mut Contender<'_>) -> anyhow::Result<f64> {
    let start = moment();
    group.members[0].trace.begin();
    group.spawn(0)?;
    let end = Instant::now() + PATIENCE;
    let began = loop {
        if let Some(at) = group.members[0].trace.begins_after(start) {
            break at;
        }
        anyhow::ensure!(Instant::now() < end, "{} does not lead", group.kind.id());
        sleep(LOOK).await;
    };
    group.stop(0).await.context("after its start")?;
    Ok(seconds(start, began))
}
