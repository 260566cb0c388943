//! How a command ends, and what the agent hands on.

use std::process::Command;
use std::time::{Duration, Instant};

use lictor_testing::consul::Consul;
use lictor_testing::{program, signal, skip};

use crate::Bench;
use crate::bench::{TTL, children, state};

#[tokio::test]
async fn exit_codes_are_handed_on() {
    let (consul, bench) = (Consul::shared(), Bench::new("codes"));
    for (command, code) in [
        (["sh", "-c", "exit 0"].as_slice(), 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["sh", "-c", "kill -USR1 $$"], 138),
        (&["/nowhere/at-all"], 127),
        (&["/etc"], 126),
    ] {
        // Each releases the lock, so the next one has it at once.
        let mut agent = bench.agent_of(consul.address(), "one", &[], command);
        assert_eq!(agent.ended().await.code(), Some(code), "{command:?}: {}", agent.errors());
    }
}

#[tokio::test]
async fn signals_are_forwarded() {
    let (consul, bench) = (Consul::shared(), Bench::new("signals"));
    let script = "trap 'echo hup >>log' HUP; trap 'echo usr1 >>log' USR1; trap 'echo int >>log; exit 3' INT";
    let mut agent = bench.agent(consul, "one", &[], &Bench::worker(script));
    bench.begins(1).await;
    for (name, line) in [("HUP", "hup"), ("USR1", "usr1"), ("INT", "int")] {
        signal(name, &[agent.watchdog()]);
        bench.logs(line).await;
    }
    assert_eq!(agent.ended().await.code(), Some(3));
}

/// Shows A4.
#[tokio::test]
async fn the_lock_is_released_when_the_command_has_ended() {
    let (consul, bench) = (Consul::shared(), Bench::new("order"));
    // What it has started lives for a while longer than itself.
    let script = "trap 'sleep 0.5; (trap \"sleep 0.5; echo left behind >>log; exit\" TERM; while :; do sleep 0.1; done) & \
                  sleep 0.3; echo ended >>log; exit 0' TERM";
    let mut first = bench.agent(consul, "one", &[], &Bench::worker(script));
    bench.begins(1).await;
    let second = bench.agent(consul, "two", &[], &Bench::worker(""));
    second.says("waiting for the lock").await;
    assert_eq!(first.stop().await, Some(0));
    bench.begins(2).await;
    let log = bench.log();
    assert!(log[1] == "ended" && log[2] == "left behind" && log[3].starts_with("begin"), "{log:?}");
}

#[tokio::test]
async fn a_command_that_does_not_end_is_killed_with_what_it_has_started() {
    let (consul, bench) = (Consul::shared(), Bench::new("stubborn"));
    let script = "trap '' TERM INT; setsid sh -c 'exec sleep 1000' & echo \"daemon $!\" >>log";
    let mut agent = bench.agent(consul, "one", &["--stop-timeout", "500ms"], &Bench::worker(script));
    let (_, command) = bench.begins(1).await;
    let daemon = daemon(&bench).await;
    assert_eq!(agent.stop().await, Some(137));
    assert!(state(command).is_none() && state(daemon).is_none());
}

/// Returns the process id of the daemon that a worker has started.
pub async fn daemon(bench: &Bench) -> i32 {
    lictor_testing::eventually("the daemon runs", || async {
        let log = bench.log();
        let pid = log.iter().find_map(|line| line.strip_prefix("daemon ")?.parse().ok());
        pid.ok_or_else(|| format!("{log:?}"))
    })
    .await
}

#[tokio::test]
async fn without_the_lock_it_ends_at_once() {
    let (consul, bench) = (Consul::shared(), Bench::new("waiting"));
    let _first = bench.agent(consul, "one", &[], &Bench::worker(""));
    bench.begins(1).await;
    let mut second = bench.agent(consul, "two", &[], &Bench::worker(""));
    second.says("waiting for the lock").await;
    assert_eq!(second.stop().await, Some(0));
}

#[tokio::test]
async fn orphans_are_reaped() {
    let (consul, bench) = (Consul::shared(), Bench::new("orphans"));
    let script = "for i in 1 2 3 4 5; do (sleep 0.1 &) ; done; sleep 0.5; echo orphaned >>log";
    let agent = bench.agent(consul, "one", &[], &Bench::worker(script));
    bench.logs("orphaned").await;
    for parent in [agent.watchdog(), agent.guard().await, agent.agent().await] {
        let zombies: Vec<_> =
            children(parent).into_iter().filter(|pid| state(*pid).is_some_and(|s| s.0 == 'Z')).collect();
        assert!(zombies.is_empty(), "{zombies:?}");
    }
}

#[tokio::test]
async fn it_is_the_first_process_of_a_container() {
    let can = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        return skip("an agent as process 1: unshare --pid takes root");
    }
    let (consul, bench) = (Consul::shared(), Bench::new("process-1"));
    let script = Bench::worker("(setsid sleep 0.1 &) ; sleep 0.5; echo \"first $(cat /proc/1/comm)\" >>log");
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(program());
    unshare.args(["agent", "--consul", consul.address(), "--key", &bench.key, "--ttl", TTL, "--identity", "one", "--"]);
    unshare.args(["sh", "-c", &script]);
    let outside = bench.run(unshare, &[]);
    bench.logs("first lictor").await;
    let first = children(outside.watchdog())[0];
    let zombies: Vec<_> = children(first).into_iter().filter(|pid| state(*pid).is_some_and(|s| s.0 == 'Z')).collect();
    assert!(zombies.is_empty(), "{zombies:?}");
    signal("TERM", &[first]);
    crate::bench::gone(first).await;
    // It released the lock.
    let key = consul.api().get(&format!("/v1/kv/{}", bench.key)).await.expect("Consul answers").json();
    assert!(key[0]["Session"].is_null(), "{key}");
}

/// A command that ends at once, under whatever starts the agent again at once, costs Consul four writes each time.
#[tokio::test]
async fn an_agent_whose_command_ends_at_once_takes_its_time_to_end() {
    let (consul, bench) = (Consul::shared(), Bench::new("at-once"));
    let run = |more: &'static [&'static str], command: &'static [&'static str]| {
        let begun = Instant::now();
        let mut agent = bench.agent_of(consul.address(), "one", more, command);
        async move { (agent.ended().await.code(), begun.elapsed()) }
    };
    let (code, lasted) = run(&[], &["sh", "-c", "exit 3"]).await;
    assert!(code == Some(3) && lasted >= Duration::from_secs(1), "{code:?} {lasted:?}");
    let (code, lasted) = run(&["--shortest-run", "2s"], &["sh", "-c", "sleep 1"]).await;
    assert!(code == Some(0) && lasted >= Duration::from_secs(2), "{code:?} {lasted:?}");
    // Meanwhile the lock is free, and SIGTERM ends it at once.
    let mut agent = bench.agent_of(consul.address(), "one", &["--shortest-run", "30s"], &["sh", "-c", "exit 4"]);
    agent.says("the command has ended").await;
    let _other = bench.agent(consul, "two", &[], &Bench::worker(""));
    bench.begins(1).await;
    let asked = Instant::now();
    assert_eq!(agent.stop().await, Some(4));
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
}
