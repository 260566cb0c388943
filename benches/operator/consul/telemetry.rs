//! Consul's own counts.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use lictor_testing::consul::Api;

/// The length in seconds of the intervals by which Consul counts. It reports the last complete one.
const INTERVAL: u32 = 10;
/// The benchmark's own request.
const OWN: &str = "GET v1_agent_metrics";

/// Counts requests by method and path for this many seconds (rounded up to whole intervals): the samples of `consul.api.http` in
/// consecutive intervals. A blocking query counts when it ends.
pub async fn requests(api: &Api, seconds: u32) -> anyhow::Result<(u32, BTreeMap<String, f64>)> {
    let intervals = seconds.div_ceil(INTERVAL).max(1);
    let mut seen = BTreeMap::new();
    // The first interval that it reports had begun before.
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
