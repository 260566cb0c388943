//! How soon another cluster leads: the stores beside each other, with one TTL, in one run.

use std::time::{Duration, Instant};

use futures::future::join_all;
use lictor_testing::Link;
use lictor_testing::consul::Consul;
use serde_json::json;

use super::across::TTL;
use super::{across, hub};
use crate::consul::failures::{Side, two};
use crate::consul::member::Member;

const STORES: [&str; 3] = ["consul", "bucket", "hub"];
/// How often each is measured, for docs/bucket.md: LICTOR_ROUNDS=5.
fn rounds() -> usize {
    std::env::var("LICTOR_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

/// What happens to the cluster that leads.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Its operator is asked to stop, and its class says `whenOperatorStops: Release`.
    Term,
    Kill,
    /// Its connection to the store is cut.
    Cut,
}

async fn clusters(store: &str, test: &str) -> (Link, Side, Side) {
    match store {
        "bucket" => across::clusters_that(test, "Release").await,
        "hub" => hub::clusters_that(test, "Release").await,
        _ => {
            let link = Link::to(Consul::shared().server(1).socket());
            let releases = json!({"whenOperatorStops": "Release"});
            let west = Member::new(test, "west", &format!("http://{}", link.address()), releases.clone()).await;
            let east = Member::new(test, "east", Consul::shared().address(), releases).await;
            let (west, east) = two(west, east).await;
            (link, west, east)
        }
    }
}

/// Returns how long it took until the other cluster led.
async fn meets(store: &str, fate: Fate, round: usize) -> Duration {
    let test = format!("beside-{store}-{fate:?}-{round}").to_lowercase();
    let (link, west, east) = clusters(store, &test).await;
    let began = Instant::now();
    match fate {
        Fate::Term => west.operator.signal("TERM"),
        Fate::Kill => west.operator.signal("KILL"),
        Fate::Cut => link.disable().await,
    }
    east.member.lab.wait_leader("b").await;
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for the ends of many sessions"]
async fn each_store_lets_another_cluster_lead_in_the_stated_time() {
    let _alone = crate::alone().await;
    eprintln!("measured: until another cluster leads, TTL {TTL:?}, in seconds");
    for fate in [Fate::Term, Fate::Kill, Fate::Cut] {
        let mut measured = Vec::new();
        for round in 0..rounds() {
            measured.push(join_all(STORES.map(|store| meets(store, fate, round))).await);
        }
        for (number, store) in STORES.into_iter().enumerate() {
            let mut took: Vec<_> = measured.iter().map(|round| round[number]).collect();
            took.sort();
            let shown: Vec<_> = took.iter().map(|took| format!("{:.1}", took.as_secs_f64())).collect();
            eprintln!("measured: {fate:?} {store}: {}", shown.join(" "));
            let limit = match fate {
                Fate::Term => TTL / 2,
                // docs/consul.md has twice the TTL, the lock delay, and what the servers need; docs/bucket.md less.
                Fate::Kill | Fate::Cut => TTL * 2 + Duration::from_secs(6),
            };
            assert!(took.iter().all(|took| *took < limit), "{store}, {fate:?}: {took:?}");
        }
    }
}
