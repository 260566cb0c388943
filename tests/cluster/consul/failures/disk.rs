//! Consul's disk is full: its servers answer, but can't write, and lose their leader again and again.

use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use lictor_testing::consul::{Consul, Kind};
use lictor_testing::kubernetes::eventually;
use lictor_testing::skip;
use serde_json::json;

use super::super::member::Member;
use super::{Side, TTL, within};

/// Writes until nothing can be written any more.
async fn fill(consul: &Consul) {
    let (value, mut failed) = ("x".repeat(400_000), 0);
    while failed < 3 {
        let written = consul.api().put("/v1/kv/fill", &value).await.is_ok_and(|answer| answer.status == 200);
        failed = if written { 0 } else { failed + 1 };
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn a_full_disk_is_told_and_the_label_comes_off_in_time() {
    if std::fs::metadata("/proc/self").expect("it is there").uid() != 0 {
        return skip("only root can make a small disk");
    }
    let consul = Consul::start(Kind::Small);
    let member = Member::new("fail-disk", "west", consul.address(), json!({})).await;
    let (side, _) = Side::led(member, &["a", "b"]).await;
    fill(&consul).await;
    let began = Instant::now();
    // Either may come first: Consul does not answer in time, or its new leader does not know the session.
    let demoted =
        eventually("it is demoted", || async { side.recorder.demoted_at().await.ok_or("it still leads".to_owned()) })
            .await;
    let took = demoted.saturating_duration_since(began);
    assert!(took < TTL, "demoted after {took:?}");
    let message = side.member.wait_any_trouble().await;
    eprintln!("measured: a full disk, the label is off after {:.1} s, the class says {message}", took.as_secs_f64());

    // Consul does not continue by itself when there is space again, so this one is restarted.
    consul.server(1).kill();
    consul.server(1).start();
    consul.server(1).usable().await;
    let began = Instant::now();
    side.member.lab.wait_any_leader().await;
    within("fail-disk, led when Consul has a disk again", began);
    side.member.wait_class("True", "Answers").await;
    side.recorder.assert_promises().await;
}
