//! Processes of an agent that are stopped, and asked to end all the same.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use lictor_testing::consul::Consul;
use lictor_testing::{program, signal};

use crate::Bench;
use crate::bench::{TTL, gone, state};

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
    running.says("an agent is not stopped by Ctrl-Z").await;
    let states = [running.watchdog(), running.agent().await, command].map(|pid| state(pid).map(|state| state.0));
    assert!(states.iter().all(|state| state.is_some_and(|state| state != 'T')), "{states:?}");
    // The command itself can still be stopped.
    signal("TSTP", &[command]);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(state(command).map(|state| state.0), Some('T'));
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
