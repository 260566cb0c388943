//! Hooks: in order, one at a time, for what is the case, in their time, and with nothing left behind.

use std::time::{Duration, Instant};

use lictor_testing::{eventually, signal};

use crate::Bench;

/// A hook that writes down what it is told.
const NOTES: &str = "echo \"$LICTOR_ROLE ${LICTOR_TERM:--} ${LICTOR_LEADER:--}\" >>log";

/// A hook that fails if another one runs.
fn alone(rest: &str) -> String {
    format!("exec 9>lock; flock -n 9 || {{ echo TWO >>log; exit 1; }}; {rest}")
}

#[tokio::test]
async fn each_change_has_its_hook_in_order() {
    let mut bench = Bench::new("order");
    bench.files.write("follower", "1");
    let mut observer = bench.of_files(&["--on-leader", NOTES, "--on-follower", NOTES]);
    bench.has("log", &["follower - -"]).await;
    bench.files.write("leader", "2");
    bench.has("log", &["follower - -", "leader 2 web-1"]).await;
    bench.files.write("follower", "3");
    bench.has("log", &["follower - -", "leader 2 web-1", "follower - -"]).await;
    bench.files.write("leader", "4");
    bench.has("log", &["follower - -", "leader 2 web-1", "follower - -", "leader 4 web-1"]).await;
    // It did not lead between two terms. And who ends, leads no more.
    bench.files.write("leader", "6");
    let so_far =
        ["follower - -", "leader 2 web-1", "follower - -", "leader 4 web-1", "follower 6 web-1", "leader 6 web-1"];
    bench.has("log", &so_far).await;
    assert_eq!(observer.stop().await, Some(0));
    bench.has("log", &[so_far.as_slice(), &["unknown 6 web-1"]].concat()).await;
}

#[tokio::test]
async fn hooks_never_overlap_and_leave_out_what_is_outdated() {
    let mut bench = Bench::new("rapid");
    bench.files.write("follower", "1");
    let slow = alone(&format!("{NOTES}; sleep 0.3"));
    let mut observer = bench.of_files(&["--on-leader", &slow, "--on-follower", &slow]);
    bench.has("log", &["follower - -"]).await;
    // Changes come faster than the hooks can run.
    for term in 2..42 {
        bench.files.write(if term % 2 == 0 { "leader" } else { "follower" }, &term.to_string());
        let role = if term % 2 == 0 { "leader" } else { "follower" };
        observer.knows(role, |known| known["role"] == role).await;
    }
    bench.files.write("leader", "42");
    let last = "leader 42 web-1";
    eventually("the last hook is for what is the case", || async {
        let log = bench.lines("log");
        if log.last().is_some_and(|line| line == last) { Ok(()) } else { Err(format!("{log:?}")) }
    })
    .await;
    assert_eq!(observer.stop().await, Some(0));
    let log = bench.lines("log");
    assert!(!log.iter().any(|line| line == "TWO"), "two ran at once: {log:?}");
    assert!(log.len() < 40, "what was outdated was left out: {log:?}");
    // One for the leader and one for the follower, in turn, with rising terms.
    let leads: Vec<_> = log.iter().map(|line| line.starts_with("leader")).collect();
    assert!(leads.windows(2).all(|pair| pair[0] != pair[1]), "{log:?}");
    let terms: Vec<i64> =
        log.iter().filter_map(|line| line.strip_prefix("leader ")?.split(' ').next()?.parse().ok()).collect();
    assert!(terms.is_sorted(), "{log:?}");
    assert_eq!(log.last().map(String::as_str), Some("unknown 42 web-1"));
}

/// A hook that does not end is ended, with all that has come from it, also what became a daemon.
#[tokio::test]
async fn a_hook_has_its_time_and_leaves_nothing_behind() {
    let mut bench = Bench::new("late");
    bench.files.write("leader", "2");
    let stubborn = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ >daemon; exec sleep 1000' & echo $$ >hook; while :; do sleep 0.05; done";
    let observer = bench.of_files(&["--on-leader", stubborn, "--on-follower", NOTES, "--hook-timeout", "500ms"]);
    let pid = async |file: &str| -> i32 {
        eventually(&format!("{file} is there"), || async {
            bench.lines(file).first().and_then(|line| line.parse().ok()).ok_or_else(|| observer.errors())
        })
        .await
    };
    let (hook, daemon) = (pid("hook").await, pid("daemon").await);
    gone(hook).await;
    gone(daemon).await;
    assert!(observer.errors().contains("takes longer than --hook-timeout"), "{}", observer.errors());
    bench.files.write("follower", "3");
    bench.has("log", &["follower - -"]).await;
    let metrics = observer.get("/metrics").await.text;
    assert!(metrics.contains("lictor_observer_hooks_total{hook=\"on-leader\",result=\"late\"} 1"), "{metrics}");
}

#[tokio::test]
async fn a_hook_that_fails_is_told_and_not_repeated() {
    let mut bench = Bench::new("fails");
    bench.files.write("follower", "1");
    // What it leaves behind ends with it.
    let hook = "sleep 1000 & echo $! >>left; echo run >>log; exit 3";
    let mut observer = bench.of_files(&["--on-follower", hook]);
    bench.has("log", &["run"]).await;
    eventually("the failure is told", || async {
        let log = observer.errors();
        if log.contains("the hook has failed") && log.contains("code=3") { Ok(()) } else { Err(log) }
    })
    .await;
    gone(bench.lines("left")[0].parse().expect("a process id")).await;
    bench.files.write("leader", "2");
    observer.sees("leader", "web-1").await;
    bench.files.write("follower", "3");
    bench.has("log", &["run", "run"]).await;
    assert_eq!(observer.stop().await, Some(0));
}

/// SIGTERM while a hook runs: it has its time, then comes that of a follower, and nothing is left. Meanwhile whoever asks hears that nobody
/// leads.
#[tokio::test]
async fn at_the_end_no_hook_is_left() {
    let mut bench = Bench::new("end");
    bench.files.write("leader", "2");
    let slow = "echo $$ >hook; sleep 1; echo leader >>log";
    let last = "echo follower >>log; sleep 1000 & echo $! >left";
    let mut observer = bench.of_files(&["--on-leader", slow, "--on-follower", last]);
    eventually("the hook runs", || async {
        if bench.lines("hook").is_empty() { Err(observer.errors()) } else { Ok(()) }
    })
    .await;
    signal("TERM", &[observer.pid()]);
    observer.knows("nobody", |known| known["role"] == "unknown").await;
    assert_eq!(observer.get("/leader").await.status, 503);
    assert_eq!(observer.ended().await.code(), Some(0));
    assert_eq!(bench.lines("log"), ["leader", "follower"]);
    assert!(state(bench.lines("left")[0].parse().expect("a process id")).is_none());
}

/// Who asks a second time does not wait for hooks.
#[tokio::test]
async fn asked_twice_it_ends_at_once() {
    let mut bench = Bench::new("twice");
    bench.files.write("leader", "2");
    let mut observer = bench.of_files(&["--on-leader", "echo $$ >hook; exec sleep 1000", "--hook-timeout", "1h"]);
    let hook: i32 = eventually("the hook runs", || async {
        bench.lines("hook").first().and_then(|line| line.parse().ok()).ok_or_else(|| observer.errors())
    })
    .await;
    let asked = Instant::now();
    signal("INT", &[observer.pid()]);
    observer.knows("nobody", |known| known["role"] == "unknown").await;
    signal("INT", &[observer.pid()]);
    assert_eq!(observer.ended().await.code(), Some(0));
    assert!(state(hook).is_none() && asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
}

/// Returns the state of a process, for example 'S'. None: it is gone.
fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Waits until a process is gone.
async fn gone(pid: i32) {
    eventually(&format!("{pid} is gone"), || async {
        match state(pid) {
            None | Some('Z') => Ok(()),
            Some(state) => Err(state.to_string()),
        }
    })
    .await;
}
