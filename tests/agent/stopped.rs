//! Processes of an agent that are stopped, and asked to end all the same.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use lictor_testing::consul::{Consul, eventually};
use lictor_testing::{kill_together, program, signal};

use crate::Bench;
use crate::bench::{TTL, children, gone, state};
use crate::ending::daemon;
use crate::faults::DAEMON;

/// Returns the command line of an agent in a process group of its own. If that was this test's and orphaned, the kernel would let nobody
/// stop it from a terminal.
fn in_a_group(bench: &Bench, consul: &Consul, more: &[&str], script: &str) -> Command {
    let mut agent = Command::new(program());
    agent.args(["agent", "--consul", consul.address(), "--key", &bench.key, "--ttl", TTL, "--identity", "one"]);
    agent.args(more).args(["--", "sh", "-c", script]).process_group(0);
    agent
}

#[tokio::test]
async fn ctrl_z_stops_neither_the_watchdog_nor_the_command() {
    let (consul, bench) = (Consul::shared(), Bench::new("ctrl-z"));
    let running = bench.run(in_a_group(&bench, consul, &[], &Bench::worker("")), &[]);
    let (_, command) = bench.begins(1).await;
    signal("TSTP", &[running.watchdog()]);
    running.says("Ctrl-Z does not stop an agent").await;
    let states = [running.watchdog(), running.agent().await, command].map(|pid| state(pid).map(|state| state.0));
    assert!(states.iter().all(|state| state.is_some_and(|state| state != 'T')), "{states:?}");
    // The command itself can still be stopped.
    signal("TSTP", &[command]);
    eventually("the command is stopped", async || {
        let state = state(command).map(|state| state.0);
        if state == Some('T') { Ok(()) } else { Err(format!("{state:?}")) }
    })
    .await;
}

/// Shows A3.
#[tokio::test]
async fn an_agent_that_hangs_is_ended_by_its_watchdog() {
    let (consul, bench) = (Consul::shared(), Bench::new("hangs"));
    let mut running = bench.agent(consul, "one", &["--stop-timeout", "1s"], &Bench::worker(""));
    let (_, command) = bench.begins(1).await;
    let agent = running.agent().await;
    signal("STOP", &[agent]);
    let asked = Instant::now();
    assert_eq!(running.stop().await, Some(137));
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    for pid in [agent, command] {
        gone(pid).await;
    }
}

/// Returns whoever is named lictor of an agent's processes, a child before its parent: what `pkill lictor` and `pkill -f lictor` mean.
fn named_lictor(watchdog: i32) -> Vec<i32> {
    let mut all = vec![watchdog];
    let mut next = 0;
    while let Some(process) = all.get(next) {
        all.extend(children(*process));
        next += 1;
    }
    let is_named = |pid: &i32| {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let command_line = read("cmdline");
        read("comm").contains("lictor") || command_line.split('\0').next().unwrap_or_default().contains("lictor")
    };
    all.into_iter().rev().filter(is_named).collect()
}

/// Shows A3.
#[tokio::test]
async fn a_command_does_not_outlive_the_lock_when_all_that_is_named_lictor_is_stopped() {
    let (consul, bench) = (Consul::shared(), Bench::new("all-stopped"));
    let first = bench.agent(consul, "one", &[], &Bench::worker(DAEMON));
    let (term, command) = bench.begins(1).await;
    let daemon = daemon(&bench).await;
    let second = bench.agent(consul, "two", &[], &Bench::worker(""));
    second.says("waiting for the lock").await;
    let named = named_lictor(first.watchdog());
    assert_eq!(named.len(), 2, "the watchdog and the agent");
    let stopped = Instant::now();
    signal("STOP", &named);
    gone(command).await;
    gone(daemon).await;
    // Four fifths of the TTL after the last renewal.
    assert!(stopped.elapsed() < Duration::from_millis(8200), "{:?}", stopped.elapsed());
    assert!(bench.begins(2).await.0 > term);
    signal("CONT", &named);
    first.says("waiting for the lock").await;
    assert_eq!(bench.begun().len(), 2);
}

/// Shows A3.
#[tokio::test]
async fn the_watchdog_alone_ends_a_command_in_time() {
    let (consul, bench) = (Consul::shared(), Bench::new("watchdog-alone"));
    let running = bench.agent(consul, "one", &[], &Bench::worker(DAEMON));
    let (_, command) = bench.begins(1).await;
    let daemon = daemon(&bench).await;
    let stopped = Instant::now();
    signal("STOP", &[running.agent().await, running.guard().await]);
    gone(command).await;
    gone(daemon).await;
    assert!(stopped.elapsed() < Duration::from_millis(8200), "{:?}", stopped.elapsed());
}

/// Becomes a daemon as daemons do: it closes what it has inherited, also the socket by which the kernel knows that the command lives.
const CLOSING: &str = "setsid bash -c 'trap \"\" TERM HUP; for fd in /proc/$$/fd/*; do eval \"exec ${fd##*/}>&-\"; done
    while :; do sleep 0.1; done' & echo \"daemon $!\" >>log; sleep 0.3; echo closed >>log";

/// Shows A5.
#[tokio::test]
async fn a_daemon_that_closes_what_it_inherits_does_not_outlive_the_agent_and_its_watchdog() {
    let (consul, bench) = (Consul::shared(), Bench::new("closing"));
    let mut first = bench.agent(consul, "one", &[], &Bench::worker(CLOSING));
    let (_, command) = bench.begins(1).await;
    let daemon = daemon(&bench).await;
    bench.logs("closed").await;
    kill_together(&named_lictor(first.watchdog()));
    first.ended().await;
    let _again = bench.agent(consul, "one", &[], &Bench::worker(""));
    bench.begins(2).await;
    assert!(state(command).is_none() && state(daemon).is_none(), "{:?}", state(daemon));
}
