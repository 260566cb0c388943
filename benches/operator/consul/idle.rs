//! What elections cost Consul and the API server when nothing happens: few and many.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Consul, telemetry};
use crate::figures::Report;
use crate::machine;
use crate::observer::Observer;
use crate::scale;
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(900);
const FEW: u32 = 10;
const SETTLED: Duration = Duration::from_secs(3);

/// Measures with a few elections, and with this many.
pub async fn measure(consul: &Consul, elections: u32, seconds: u32, report: &mut Report) -> anyhow::Result<Value> {
    let world = World::start("consul-idle").await?;
    consul.class(&world, "consul", &json!({}), &json!({}))?;
    let operator = world.operator();
    let mut observer = Observer::start(&world.another_client().await, true).await?;
    scale::namespaces(&world).await?;
    let (mut made, mut minutes, mut all) = (0, Vec::new(), Vec::new());
    for many in [FEW, elections.max(FEW)] {
        scale::populate(&world, made..many, Some("consul")).await?;
        made = many;
        let mut told = 0;
        while told < usize::try_from(many)? {
            observer.until("the next is led", PATIENCE, |observer| count(observer) > told).await?;
            told = count(&observer);
        }
        observer.quiet(SETTLED).await?;
        eprintln!("consul-idle: {many} elections are led; looked at for {seconds} s, load {}", machine::load()?);
        let (before, used) = (world.requests().await?, machine::usage(operator.pid())?);
        let api = consul.api();
        let mut counting = std::pin::pin!(telemetry::requests(&api, seconds));
        let (period, requests) = loop {
            tokio::select! {
                counted = &mut counting => break counted?,
                seen = observer.next() => drop(seen?),
            }
        };
        let (after, using) = (world.requests().await?.since(&before), machine::usage(operator.pid())?);
        let minute = requests.values().sum::<f64>() * 60.0 / f64::from(period);
        let writes = after.writes() - after.of("own-lease-write");
        report.figure(format!("Consul, idle, {many} elections: requests in a minute"), minute, "");
        report.target(format!("Consul, idle, {many} elections: writes at the API server"), writes, "", 0.0);
        report.figure(format!("Consul, idle, {many} elections: resident memory"), using.resident, "MiB");
        minutes.push(minute);
        all.push(json!({
            "elections": many, "seconds": period, "consul": requests, "apiServer": after.to_json(),
            "residentMiB": using.resident, "processorSeconds": using.processor - used.processor,
        }));
    }
    if let [few, many] = minutes.as_slice() {
        report.target("Consul, idle: the many cost more than the few", (many / few - 1.0) * 100.0, "%", 10.0);
    }
    Ok(json!(all))
}

fn count(observer: &Observer) -> usize {
    let is_told = |status: &&lictor_api::LeaderElectionStatus| {
        status.leader.is_some() && status.candidates.as_ref().is_some_and(|candidates| candidates.summary == "3/3")
    };
    observer.elections.values().filter(is_told).count()
}
