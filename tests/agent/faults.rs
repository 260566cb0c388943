//! Processes that are killed and stopped, and a Consul that does not answer.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lictor_testing::consul::{Consul, Kind};
use lictor_testing::{kill_together, signal};

use crate::Bench;
use crate::bench::{gone, state};
use crate::ending::daemon;

/// Becomes a daemon that does not care for signals, beside the command.
pub const DAEMON: &str = "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 0.1; done' & echo \"daemon $!\" >>log";

/// docs/agent.md names 250 ms for a machine that has a core free. Machines that run tests have none.
const AFTER_A_THAW: Duration = Duration::from_secs(1);

/// Shows A3.
#[tokio::test]
async fn nothing_outlives_an_agent_that_is_killed() {
    let (consul, bench) = (Consul::shared(), Bench::new("agent-killed"));
    let mut running = bench.agent(consul, "one", &[], &Bench::worker(DAEMON));
    let (_, command) = bench.begins(1).await;
    let daemon = daemon(&bench).await;
    signal("KILL", &[running.agent().await]);
    assert_eq!(running.ended().await.code(), Some(137));
    assert!(state(command).is_none() && state(daemon).is_none(), "the watchdog ends last");
}

/// Shows A3.
#[tokio::test]
async fn nothing_outlives_a_watchdog_that_is_killed() {
    let (consul, bench) = (Consul::shared(), Bench::new("watchdog-killed"));
    let mut running = bench.agent(consul, "one", &[], &Bench::worker(DAEMON));
    let (_, command) = bench.begins(1).await;
    let (agent, daemon) = (running.agent().await, daemon(&bench).await);
    // It is started again in its place at once, and waits for what is left.
    signal("KILL", &[running.watchdog()]);
    running.ended().await;
    let _again = bench.agent(consul, "one", &[], &Bench::worker(""));
    bench.begins(2).await;
    for pid in [command, daemon, agent] {
        gone(pid).await;
    }
}

/// Shows A3.
#[tokio::test]
async fn nothing_outlives_a_guard_that_is_killed() {
    let (consul, bench) = (Consul::shared(), Bench::new("guard-killed"));
    let mut running = bench.agent(consul, "one", &[], &Bench::worker(DAEMON));
    let (_, command) = bench.begins(1).await;
    let (agent, daemon) = (running.agent().await, daemon(&bench).await);
    signal("KILL", &[running.guard().await]);
    running.ended().await;
    assert!([command, daemon, agent].into_iter().all(|pid| state(pid).is_none()), "the watchdog ends last");
}

/// Shows A5.
#[tokio::test]
async fn what_outlives_all_three_processes_keeps_the_name() {
    let (consul, bench) = (Consul::shared(), Bench::new("all-killed"));
    let mut first = bench.agent(consul, "one", &[], &Bench::worker(DAEMON));
    let (_, command) = bench.begins(1).await;
    let (agent, daemon) = (first.agent().await, daemon(&bench).await);
    // This leaves the daemon to nobody: each would have ended it.
    kill_together(&[agent, first.guard().await, first.watchdog()]);
    first.ended().await;
    gone(command).await;
    let second = bench.agent(consul, "one", &[], &Bench::worker(""));
    second.says("waiting for processes that an earlier agent of this name has left behind").await;
    assert_eq!(bench.begun().len(), 1);
    assert!(state(daemon).is_some());
    signal("KILL", &[daemon]);
    bench.begins(2).await;
}

/// Shows A3.
#[tokio::test]
async fn a_command_does_not_outlive_the_lock_of_an_agent_that_is_stopped() {
    let (consul, bench) = (Consul::shared(), Bench::new("agent-stopped"));
    let first = bench.agent(consul, "one", &[], &Bench::worker(DAEMON));
    let (term, command) = bench.begins(1).await;
    let (agent, daemon) = (first.agent().await, daemon(&bench).await);
    let second = bench.agent(consul, "two", &[], &Bench::worker(""));
    second.says("waiting for the lock").await;
    let stopped = Instant::now();
    signal("STOP", &[agent]);
    gone(command).await;
    gone(daemon).await;
    // Four fifths of the TTL after the last renewal.
    assert!(stopped.elapsed() < Duration::from_millis(8200), "{:?}", stopped.elapsed());
    // Consul ends the session later.
    let (next, _) = bench.begins(2).await;
    assert!(next > term);
    signal("CONT", &[agent]);
    first.says("waiting for the lock").await;
    assert_eq!(bench.begun().len(), 2);
}

/// Shows A2.
#[tokio::test]
async fn after_a_freeze_of_everything_the_command_ends_at_once() {
    let (consul, bench) = (Consul::shared(), Bench::new("frozen"));
    // No lock file: a process that is stopped keeps its own.
    let beats = |name: &str| {
        format!("echo \"begin $LICTOR_TERM $$\" >>log; while :; do date +%s%N >>{name}; sleep 0.005; done")
    };
    let first = bench.agent(consul, "one", &[], &beats("one"));
    let (_, command) = bench.begins(1).await;
    let _second = bench.agent(consul, "two", &[], &beats("two"));
    let all = [command, first.agent().await, first.guard().await, first.watchdog()];
    signal("STOP", &all);
    bench.begins(2).await;
    let thawed = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
    signal("CONT", &all);
    gone(command).await;
    let last = bench.lines("one").last().and_then(|line| line.parse::<u64>().ok()).expect("it wrote");
    let late = Duration::from_nanos(last).saturating_sub(thawed);
    println!("the last instruction was {late:?} after the thaw");
    assert!(late < AFTER_A_THAW, "{late:?}");
    first.says("waiting for the lock").await;
}

/// Shows A2.
#[tokio::test]
async fn a_consul_that_does_not_answer_ends_the_command_in_time() {
    let (consul, bench) = (Consul::start(Kind::Dev), Bench::new("paused"));
    let script = "trap 'echo asked >>log' TERM";
    let agent = bench.agent(&consul, "one", &["--grace", "2s"], &Bench::worker(script));
    let (term, command) = bench.begins(1).await;
    // Shorter than what is left at the latest renewal.
    consul.server(1).pause();
    tokio::time::sleep(Duration::from_secs(2)).await;
    consul.server(1).resume();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(state(command).is_some() && bench.begun().len() == 1, "{}", agent.errors());

    consul.server(1).pause();
    let paused = Instant::now();
    bench.logs("asked").await;
    let asked = paused.elapsed();
    gone(command).await;
    let killed = paused.elapsed();
    assert!(asked + Duration::from_secs(1) < killed && killed < Duration::from_secs(8), "{asked:?} {killed:?}");
    // Long enough for a request to have failed: nobody has said who holds the lock now.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let said = agent.errors();
    assert!(said.contains("the lock is lost"), "{said}");
    assert!(!said.contains("the lock has no holder") && !said.contains("waiting for the lock"), "{said}");
    consul.server(1).resume();
    let (next, _) = bench.begins(2).await;
    assert!(next > term, "{next} after {term}");
}

/// Shows A6.
#[tokio::test]
async fn a_session_that_is_destroyed_ends_the_command_at_once_and_another_one_is_made() {
    let (consul, bench) = (Consul::shared(), Bench::new("destroyed"));
    let _agent = bench.agent(consul, "one", &[], &Bench::worker(""));
    let (term, command) = bench.begins(1).await;
    let key = consul.api().get(&format!("/v1/kv/{}", bench.key)).await.expect("Consul answers").json();
    let session = key[0]["Session"].as_str().expect("it is held").to_owned();
    let destroyed = Instant::now();
    consul.api().put(&format!("/v1/session/destroy/{session}"), "").await.expect("Consul answers").ok();
    gone(command).await;
    // Before the lock delay of a second is over.
    assert!(destroyed.elapsed() < Duration::from_secs(1), "{:?}", destroyed.elapsed());
    assert!(bench.begins(2).await.0 > term);
}

#[tokio::test]
async fn a_consul_that_is_started_again_without_its_data_is_no_end() {
    let (consul, bench) = (Consul::start(Kind::Dev), Bench::new("restarted"));
    let _agent = bench.agent(&consul, "one", &[], &Bench::worker(""));
    bench.begins(1).await;
    consul.server(1).restart().await;
    // The node, the session and the key are made anew.
    bench.begins(2).await;
}
