//! What Consul itself counts.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use lictor_testing::consul::Api;

/// Consul counts by intervals of this length, and tells of the last whole one.
const INTERVAL: u32 = 10;
/// What this benchmark itself asks.
const OWN: &str = "GET v1_agent_metrics";

/// Requests by method and path, in this many seconds (rounded up to whole intervals): the samples of `consul.api.http`, in each
/// of the intervals that follow each other. A query that blocks counts when it ends.
pub async fn requests(api: &Api, seconds: u32) -> anyhow::Result<(u32, BTreeMap<String, f64>)> {
    let intervals = seconds.div_ceil(INTERVAL).max(1);
    let mut seen = BTreeMap::new();
    // The one that it tells of first, had begun before.
    let wanted = usize::try_from(intervals)? + 2;
    while seen.len() < wanted {
        let answer = api.get("/v1/agent/metrics").await.map_err(anyhow::Error::msg)?.ok();
        let at = answer["Timestamp"].as_str().context("the metrics have a time")?.to_owned();
        seen.entry(at).or_insert(answer);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let mut counted: BTreeMap<String, f64> = BTreeMap::new();
    for sample in seen.values().skip(2).filter_map(|answer| answer["Samples"].as_array()).flatten() {
        let (name, count) = (sample["Name"].as_str().unwrap_or_default(), sample["Count"].as_f64());
        let label = |label: &str| sample["Labels"][label].as_str().unwrap_or_default();
        let what = format!("{} {}", label("method"), label("path"));
        if name.ends_with("api.http") && what != OWN {
            *counted.entry(what).or_default() += count.context("a sample has a count")?;
        }
    }
    Ok((intervals * INTERVAL, counted))
}
