//! The machine's wall clock is set back for the operator alone, by libfaketime. The monotonic clocks stay as they are.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use lictor_testing::consul::{Consul, Kind};
use lictor_testing::tool;
use serde_json::json;

use super::super::member::{Member, entry, sessions};
use super::servers::at_three;
use super::{TTL, within};

/// Returns the path of the library. It comes from Debian, and is unpacked beside the other programs of the tests.
pub fn libfaketime() -> PathBuf {
    tool("libfaketime")
}

/// Sets the operator's clock off by this much, for example "-1d".
fn set(file: &Path, offset: &str) {
    // The file is replaced in one step, because it is read at any time.
    let new = file.with_extension("new");
    std::fs::write(&new, format!("{offset}\n")).expect("a file can be written");
    std::fs::rename(&new, file).expect("a file can be renamed");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn a_clock_that_is_set_back_or_forth_changes_nothing() {
    let file = std::env::temp_dir().join(format!("lictor-clock-{}", std::process::id()));
    set(&file, "+0");
    let library = libfaketime();
    let member = Member::new("fail-clock", "west", Consul::shared().address(), json!({})).await;
    let recorder = member.lab.record().await;
    let operator = member.operator_in(&[
        ("LD_PRELOAD", library.to_str().expect("a path is text")),
        ("FAKETIME_TIMESTAMP_FILE", file.to_str().expect("a path is text")),
        ("FAKETIME_NO_CACHE", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
    ]);
    member.lab.ready_pods(&["a", "b"]).await;
    member.elect(json!({})).await;
    let mut leader = member.lab.wait_any_leader().await;
    member.wait_class("True", "Answers").await;
    let session = sessions(Consul::shared(), &member).await;
    let mut before = entry(Consul::shared(), &member.key()).await.expect("the key is there");
    for (offset, days, next) in [("-3d", -3, "c"), ("+2d", 2, "d")] {
        set(&file, offset);
        // This is longer than an earlier renewal could last.
        tokio::time::sleep(TTL).await;
        assert_eq!(entry(Consul::shared(), &member.key()).await.as_ref(), Some(&before), "nothing was done");
        member.lab.ready_pods(&[next]).await;
        let began = Instant::now();
        member.lab.kill_pod(&leader).await;
        leader = member.lab.wait_any_leader().await;
        within(&format!("fail-clock, failover with {offset}"), began);
        let after = entry(Consul::shared(), &member.key()).await.expect("the key is there");
        assert!(after["ModifyIndex"].as_u64() > before["ModifyIndex"].as_u64());
        assert_eq!(after["Session"], before["Session"]);
        before = after;
        // The clock really differs.
        let named = format!("\"pod\":\"{leader}\"");
        operator.logs(&named).await;
        let line = operator.log().lines().find(|line| line.contains(&named)).map(str::to_owned);
        let line: serde_json::Value = serde_json::from_str(&line.expect("it is logged")).expect("the log is JSON");
        let logged: Timestamp = line["timestamp"].as_str().expect("a line has a time").parse().expect("a time");
        let off = logged.as_second() - Timestamp::now().as_second();
        assert!((off - days * 86400).abs() < 3600, "{off} s, {line}");
    }
    assert_eq!(sessions(Consul::shared(), &member).await, session);
    assert_eq!(recorder.assert_promises().await, 3);
    assert!(recorder.longest_vacancy() < Duration::from_secs(5), "{:?}", recorder.longest_vacancy());
    let _ = std::fs::remove_file(&file);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_of_consul_is_told_in_the_class() {
    let consul = Consul::start(Kind::Three);
    let member = at_three(&consul, consul.server(1), "fail-expired", None).await;
    let library = libfaketime();
    // Consul's own program makes certificates for a year, and those of the control plane last for longer.
    let environment = [("LD_PRELOAD", library.to_str().expect("a path is text")), ("FAKETIME", "+3y")];
    let _operator = member.operator_in(&environment);
    let message = member.wait_class("False", "NoAnswer").await;
    eprintln!("measured: Consul's certificate has expired: {message}");
    assert!(message.contains("certificate") && message.contains("expired"), "{message}");
}
