//! A standard error that is a pipe that nobody reads, as that of a log collector which hangs.

use std::io::{PipeReader, Read, Write, pipe};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lictor_testing::consul::Consul;
use lictor_testing::{client, eventually, free_address, program, signal};

use crate::Bench;
use crate::bench::{TTL, gone, state};

/// How much a pipe takes before whoever writes has to wait.
const FULL: usize = 65_536;

/// Returns a pipe that is full.
fn full() -> (PipeReader, Stdio) {
    let (reader, mut writer) = pipe().expect("there is a pipe");
    writer.write_all(&vec![b'.'; FULL]).expect("it takes that");
    (reader, writer.into())
}

fn agent(bench: &Bench, consul: &Consul, more: &[&str], script: &str) -> Command {
    let mut agent = Command::new(program());
    agent.args(["agent", "--consul", consul.address(), "--key", &bench.key, "--ttl", TTL, "--identity", "one"]);
    agent.args(more).args(["--", "sh", "-c", script]);
    agent
}

#[tokio::test]
async fn an_agent_whose_log_nobody_reads_leads_and_ends() {
    let (consul, bench) = (Consul::shared(), Bench::new("stalled"));
    let (_reader, stderr) = full();
    let mut running = bench.run_into(stderr, agent(&bench, consul, &[], &Bench::worker("")), &[]);
    let (_, command) = bench.begins(1).await;
    // Longer than the lock lasts without a renewal.
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(state(command).is_some());
    let asked = Instant::now();
    assert_eq!(running.stop().await, Some(143));
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    // It has released the lock.
    let _next = bench.agent(consul, "two", &[], &Bench::worker(""));
    bench.begins(2).await;
}

/// A command that waits until somebody reads what it says is killed as each other one.
#[tokio::test]
async fn a_command_that_hangs_in_the_same_pipe_ends_with_the_agent() {
    let (consul, bench) = (Consul::shared(), Bench::new("stalled-command"));
    let (_reader, stderr) = full();
    let script = "echo \"begin $LICTOR_TERM $$\" >>log; trap '' TERM; echo hello >&2; echo never >>log";
    let mut running = bench.run_into(stderr, agent(&bench, consul, &["--stop-timeout", "1s"], script), &[]);
    let (_, command) = bench.begins(1).await;
    assert_eq!(running.stop().await, Some(137));
    gone(command).await;
    assert_eq!(bench.log().len(), 1);
}

#[tokio::test]
async fn a_command_that_can_not_be_run_ends_an_agent_whose_log_nobody_reads() {
    let (consul, bench) = (Consul::shared(), Bench::new("stalled-nowhere"));
    let (_reader, stderr) = full();
    let mut agent = Command::new(program());
    agent.args(["agent", "--consul", consul.address(), "--key", &bench.key, "--ttl", TTL, "--", "/nowhere/at-all"]);
    let mut running = bench.run_into(stderr, agent, &[]);
    assert_eq!(running.ended().await.code(), Some(127));
}

#[tokio::test]
async fn what_an_agent_logs_while_nobody_reads_comes_later() {
    let (consul, bench) = (Consul::shared(), Bench::new("stalled-later"));
    let (mut reader, stderr) = full();
    let _running = bench.run_into(stderr, agent(&bench, consul, &[], &Bench::worker("")), &[]);
    bench.begins(1).await;
    let mut said = String::new();
    let end = Instant::now() + Duration::from_secs(20);
    while !said.contains("the lock is held: starting the command") {
        assert!(Instant::now() < end, "{said}");
        let mut some = [0; 4096];
        let read = reader.read(&mut some).expect("it can be read");
        said.push_str(&String::from_utf8_lossy(&some[..read]));
    }
}

#[tokio::test]
async fn an_observer_whose_log_nobody_reads_answers() {
    let (consul, listen) = (Consul::shared(), free_address());
    let bench = Bench::new("stalled-observer");
    let (_reader, stderr) = full();
    let mut observer = Command::new(program());
    observer.args(["observe", "--consul", consul.address(), "--key", &bench.key, "--listen", &listen.to_string()]);
    let mut running = bench.run_into(stderr, observer, &[]);
    let http = client();
    eventually("it answers", || async {
        let asked = http.get(format!("http://{listen}/healthz")).timeout(Duration::from_secs(1)).send().await;
        asked.map(drop).map_err(|error| error.to_string())
    })
    .await;
    signal("TERM", &[running.watchdog()]);
    running.ended().await;
}
