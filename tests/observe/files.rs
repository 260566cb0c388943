//! Heard from the files of a pod, which has no rights.

use std::fs;

use lictor_testing::{eventually, signal};
use serde_json::{Value, json};

use crate::Bench;

#[tokio::test]
async fn who_leads_is_told_in_each_form() {
    let mut bench = Bench::new("forms");
    bench.files.write("follower", "6");
    let observer = bench.of_files(&[]);
    let known = observer.sees("follower", "").await;
    assert_eq!((&known["term"], &known["source"], &known["stale"]), (&Value::Null, &json!("files"), &json!(false)));
    let leader = observer.get("/leader").await;
    assert_eq!((leader.status, leader.text.as_str()), (503, "this pod does not lead\n"));
    let elector = observer.get("/").await;
    assert_eq!(elector.json()["name"], "");

    bench.files.write("leader", "7");
    let known = observer.sees("leader", "web-1").await;
    assert_eq!(known["term"], 7);
    // Kubelet does not say how old its files are.
    assert_eq!((&known["ageSeconds"], observer.get("/leader").await.header("lictor-age")), (&Value::Null, "unknown"));
    assert_eq!(observer.get("/leader").await.status, 200);
    let elector = observer.get("/").await;
    assert_eq!((elector.status, elector.header("cache-control")), (200, "no-cache"));
    let (name, at) = (elector.json()["name"].clone(), elector.json()["last_update"].clone());
    assert_eq!(name, "web-1");
    let at = at.as_str().expect("a time").to_owned();
    assert!(at.ends_with('Z') && at.len() == "2026-11-22T10:50:25Z".len(), "as Go's RFC3339: {at}");
    assert_eq!(elector.json().as_object().map(serde_json::Map::len), Some(2));
    let metrics = observer.get("/metrics").await.text;
    for line in [
        "lictor_observer_leader 1",
        "lictor_observer_stale 0",
        "lictor_observer_term 7",
        "lictor_observer_age_seconds NaN",
    ] {
        assert!(metrics.lines().any(|has| has == line), "{line} is not in\n{metrics}");
    }

    // A label without a term is not enough, nor is the reverse.
    for (role, term) in [("leader", ""), ("", "8"), ("leader", "high"), ("Leader", "8")] {
        bench.files.write(role, term);
        observer.sees("follower", "").await;
        bench.files.write("leader", "8");
        observer.sees("leader", "web-1").await;
    }
}

#[tokio::test]
async fn files_that_can_not_be_read_are_told_and_then_nobody_leads() {
    let mut bench = Bench::new("away");
    let observer = bench.of_files(&["--stale-after", "3s"]);
    observer
        .knows("why nothing is heard", |known| {
            known["problem"].as_str().is_some_and(|why| why.contains("..data") || why.contains("can't read"))
        })
        .await;
    assert_eq!(observer.get("/readyz").await.status, 503);
    let unknown = observer.get("/leader").await;
    assert!(
        unknown.status == 503 && unknown.text.starts_with("it is not known whether this pod leads: can't read"),
        "{}",
        unknown.text
    );
    bench.files.write("leader", "7");
    observer.sees("leader", "web-1").await;
    assert_eq!(observer.get("/readyz").await.status, 200);
    let (link, away) = (bench.files.path.join("..data"), bench.files.path.join("..away"));
    fs::rename(&link, &away).expect("it can be moved");
    let known = observer.knows("nothing was heard for too long", |known| known["stale"] == true).await;
    assert_eq!((&known["role"], &known["leader"]["name"]), (&json!("unknown"), &json!("web-1")));
    assert_eq!(
        (observer.get("/leader").await.status, observer.get("/").await.json()["name"].clone()),
        (503, json!(""))
    );
    assert_eq!(observer.get("/readyz").await.status, 200, "it says nothing about leadership");
    fs::rename(&away, &link).expect("it can be moved");
    observer.sees("leader", "web-1").await;
}

#[tokio::test]
async fn the_label_may_have_another_value() {
    let mut bench = Bench::new("value");
    bench.files.write("true", "7");
    let observer = bench.of_files(&["--leader-value", "true"]);
    observer.sees("leader", "web-1").await;
}

#[tokio::test]
async fn the_state_file_is_replaced_and_goes_with_the_observer() {
    let mut bench = Bench::new("state");
    bench.files.write("follower", "6");
    let mut observer = bench.of_files(&["--state-file", "state.json", "--stale-after", "3s"]);
    let path = bench.directory.join("state.json");
    let read = || -> Result<Value, String> {
        let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
        Ok(serde_json::from_str(&text).expect("it is whole"))
    };
    let says = async |role: &str| {
        eventually(&format!("the file says {role}"), || async {
            let state = read()?;
            if state["role"] == role { Ok(()) } else { Err(state.to_string()) }
        })
        .await;
    };
    says("follower").await;
    for term in 7..27 {
        bench.files.write("leader", &term.to_string());
        says("leader").await;
        bench.files.write("follower", &term.to_string());
        says("follower").await;
    }
    // It is written again though nothing happens, so its time says that somebody keeps it up.
    let written = || fs::metadata(&path).and_then(|data| data.modified()).map_err(|error| error.to_string());
    let before = written().expect("it is there");
    eventually("it is written again", || async {
        if written()? > before { Ok(()) } else { Err("it is as old as before".to_owned()) }
    })
    .await;
    assert_eq!(observer.stop().await, Some(0));
    assert!(!path.exists(), "nobody keeps it up any more");

    // What can't be written is said at the start.
    let mut observer = bench.of_files(&["--state-file", "nowhere/state.json"]);
    assert_eq!(observer.ended().await.code(), Some(1));
    assert!(observer.errors().contains("nowhere/state.json can't be written"), "{}", observer.errors());
}

#[tokio::test]
async fn once_says_it_and_ends() {
    let mut bench = Bench::new("once");
    let files = bench.files.path.to_str().expect("a path is text").to_owned();
    let once = || {
        bench
            .command(&["--files", &files, "--pod", "web-1", "--once", "--stale-after", "3s"])
            .output()
            .expect("it runs")
    };
    let output = once();
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no answer about the election: can't read"));
    for (role, code) in [("leader", 0), ("follower", 3)] {
        bench.files.write(role, "7");
        let output = bench
            .command(&["--files", &files, "--pod", "web-1", "--once", "--stale-after", "3s"])
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(code));
        let known: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        assert_eq!(known["role"], role);
    }
}

/// As when the machine itself was suspended: the time counts.
#[tokio::test]
async fn an_observer_that_was_stopped_does_not_say_what_it_knew_before() {
    let mut bench = Bench::new("stopped");
    bench.files.write("leader", "7");
    let observer = bench.of_files(&["--stale-after", "3s"]);
    observer.sees("leader", "web-1").await;
    signal("STOP", &[observer.pid()]);
    bench.files.write("follower", "8");
    signal("CONT", &[observer.pid()]);
    observer.sees("follower", "").await;
}
