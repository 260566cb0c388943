//! The ticks of a CronJob's schedule, each minute, while the leadership changes. These tests follow the wall clock.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::{Timestamp, ToSpan};
use lictor_testing::Link;
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::workloads::{annotation, following, pod};
use lictor_testing::kubernetes::{Cluster, Operator, WorkloadRecorder, eventually};
use serde_json::{Value, json};

use crate::consul::member::Member;

struct Side {
    member: Member,
    operator: Operator,
    recorder: WorkloadRecorder,
}

impl Side {
    /// Creates a cluster with the CronJob `tick`, and with an election for it.
    async fn new(test: &str, cluster: &str, address: &str, fields: Value) -> Self {
        let member = Member::new(test, cluster, address, fields).await;
        let (recorder, operator) = (member.lab.record_workloads().await, member.operator(&[]));
        let spec = json!({
            "schedule": "* * * * *", "suspend": true,
            "jobTemplate": {"spec": lictor_testing::kubernetes::workloads::job_spec(pod())},
        });
        member.lab.make("CronJob/tick", spec).await;
        member.elect_cluster(json!({"workloads": following(&["CronJob/tick"])})).await;
        Self { member, operator, recorder }
    }

    async fn wait_enabled(&self) {
        self.member.lab.wait_enabled("CronJob/tick", json!(false)).await;
    }

    async fn wait_disabled(&self) {
        self.member.lab.wait_disabled("CronJob/tick", json!(true)).await;
    }

    /// Returns the ticks that ran here, each with its number of Jobs.
    fn ticks(&self) -> BTreeMap<Timestamp, usize> {
        let mut jobs: BTreeMap<String, Timestamp> = BTreeMap::new();
        for seen in self.recorder.seen() {
            let tick = annotation(&seen.object, "batch.kubernetes.io/cronjob-scheduled-timestamp");
            if let (true, Some(tick)) = (seen.key.starts_with("Job/"), tick) {
                jobs.insert(seen.key.clone(), tick.parse().expect("a time"));
            }
        }
        let mut ticks = BTreeMap::new();
        for tick in jobs.into_values() {
            *ticks.entry(tick).or_default() += 1;
        }
        ticks
    }

    /// Waits until this tick has run here.
    async fn wait_tick(&self, tick: Timestamp) {
        eventually(&format!("the tick {tick} is run"), || async {
            let ticks = self.ticks();
            if ticks.contains_key(&tick) { Ok(()) } else { Err(format!("{ticks:?}")) }
        })
        .await;
    }
}

/// Creates two clusters. The west leads.
async fn two(test: &str, address: &str, fields: Value) -> (Side, Side) {
    let west = Side::new(test, "west", address, fields.clone()).await;
    west.wait_enabled().await;
    let east = Side::new(test, "east", Consul::shared().address(), fields).await;
    east.wait_disabled().await;
    east.member.wait_led("west", None).await;
    (west, east)
}

/// Returns the next full minute.
fn next_tick() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second() / 60 * 60 + 60).expect("a time")
}

async fn sleep_until(time: Timestamp) {
    let left = time.duration_since(Timestamp::now());
    tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
}

/// Waits until a tick is due and has run on this side.
async fn one_tick(side: &Side) -> Timestamp {
    let tick = next_tick();
    sleep_until(tick).await;
    side.wait_tick(tick).await;
    tick
}

/// Returns how many times each tick ran, from the first to the last, with those that did not run.
async fn all_ticks(west: &Side, east: &Side) -> Vec<(Timestamp, usize)> {
    for side in [west, east] {
        side.recorder.catch_up().await;
    }
    WorkloadRecorder::assert_never_both_enabled(&[&west.recorder, &east.recorder]);
    let mut ticks = west.ticks();
    for (tick, count) in east.ticks() {
        *ticks.entry(tick).or_default() += count;
    }
    let (first, last) = (*ticks.keys().next().expect("a tick"), *ticks.keys().next_back().expect("a tick"));
    let minutes =
        (first.as_second()..=last.as_second()).step_by(60).map(|at| Timestamp::from_second(at).expect("a time"));
    minutes.map(|minute| (minute, ticks.remove(&minute).unwrap_or(0))).collect()
}

/// There and back, each time some seconds after a tick. The side that resumes its CronJob has missed that tick.
async fn planned() {
    let fields = json!({"whenOperatorStops": "Release"});
    let (mut west, mut east) = two("wl-ticks", Consul::shared().address(), fields).await;
    // The east has missed some too, when its turn comes.
    one_tick(&west).await;
    west.operator.stop().await;
    east.wait_enabled().await;
    west.operator = west.member.operator(&[]);
    one_tick(&east).await;
    east.operator.stop().await;
    west.wait_enabled().await;
    one_tick(&west).await;
    let ticks = all_ticks(&west, &east).await;
    assert!(ticks.len() >= 3 && ticks.iter().all(|(_, count)| *count == 1), "{ticks:?}");
}

/// The lock expires after the west was cut off so many seconds after a tick. Returns how many times each tick ran.
async fn expired(test: &str, seconds: i64) -> Vec<(Timestamp, usize)> {
    let proxy = Link::to(Consul::shared().server(1).socket());
    let (west, east) = two(test, &format!("http://{}", proxy.address()), json!({})).await;
    let first = one_tick(&west).await;
    // The west suspends within 10 s, and the session ends at least 10 s later.
    sleep_until(first + seconds.seconds()).await;
    proxy.disable().await;
    west.wait_disabled().await;
    east.wait_enabled().await;
    east.wait_tick(first + 60.seconds()).await;
    one_tick(&east).await;
    all_ticks(&west, &east).await
}

/// A tick falls between the two holders: it runs late, and none is left out.
async fn expired_over_a_tick() {
    let ticks = expired("wl-ticks-lost", 48).await;
    assert!(ticks.iter().all(|(_, count)| (1..=2).contains(count)), "{ticks:?}");
}

/// The last tick before the cut is in the record, although the lock is not released.
async fn expired_after_a_tick() {
    let ticks = expired("wl-ticks-known", 3).await;
    assert!(ticks.iter().all(|(_, count)| *count == 1), "{ticks:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for the ticks of a schedule"]
async fn each_tick_is_run_once_over_planned_handovers_and_at_least_once_over_a_lost_lock() {
    // Starting them blocks this thread.
    let _ = (Consul::shared(), Cluster::shared());
    tokio::join!(planned(), expired_over_a_tick(), expired_after_a_tick());
}
