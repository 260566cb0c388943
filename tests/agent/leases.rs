//! Locks in Leases: between agents, and between an agent and a Go program with client-go's leader election.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, Patch, PatchParams};
use lictor_testing::kubernetes::{Lab, User, eventually};
use lictor_testing::{Candidate, signal, tool};
use serde_json::json;

use crate::Bench;
use crate::bench::{Running, documented, gone, state};

/// A Go program with client-go's leader election.
fn elector(lab: &Lab, bench: &Bench, identity: &str, duration: &str) -> Candidate {
    let mut command = Command::new(tool("elector"));
    command.arg("--kubeconfig").arg(lab.cluster.kubeconfig());
    command.args(["--namespace", &lab.namespace, "--name", "report", "--identity", identity, "--duration", duration]);
    command.arg("--file").arg(bench.directory.join("lock"));
    Candidate::start(command)
}

fn agent(lab: &Lab, bench: &Bench, identity: &str, ttl: &str) -> Running {
    agent_by(lab.cluster.kubeconfig(), lab, bench, identity, ttl)
}

fn agent_by(kubeconfig: &Path, lab: &Lab, bench: &Bench, identity: &str, ttl: &str) -> Running {
    let kubeconfig = kubeconfig.to_str().expect("a path is text").to_owned();
    let lease = format!("{}/report", lab.namespace);
    let arguments = ["--lease", &lease, "--kubeconfig", &kubeconfig, "--ttl", ttl, "--identity", identity];
    bench.start(&arguments, &["sh", "-c", &Bench::worker("")], &[])
}

/// With the rights that docs/agent.md names, and no others.
#[tokio::test]
async fn one_of_two_agents_has_the_lease() {
    let (lab, bench) = (Lab::new("agents").await, Bench::new("lease"));
    let user = User::new(&lab).await;
    let role = documented("yaml", "kind: Role").replace("namespace: shop", &format!("namespace: {}", lab.namespace));
    lab.try_kubectl(&["apply", "-f", "-"], Some(&role)).expect("the role can be applied");
    let account = format!("--serviceaccount={}:lictor", lab.namespace);
    lab.try_kubectl(&["create", "rolebinding", "agent", "--role=report-leader", &account], None).expect("it is bound");
    let agent = |identity: &str, ttl: &str| agent_by(user.kubeconfig(), &lab, &bench, identity, ttl);

    let mut first = agent("one", "3s");
    let (term, _) = bench.begins(1).await;
    let second = agent("two", "3s");
    second.says("waiting for the lock leader=\"one_").await;
    assert_eq!(first.stop().await, Some(143));
    let (next, command) = bench.begins(2).await;
    assert!(next > term, "{next} after {term}");
    let lease = lab.leases_api().get("report").await.expect("it is there").spec.expect("it has a spec");
    assert_eq!(lease.lease_transitions, Some(1));
    assert!(lease.holder_identity.is_some_and(|holder| holder.starts_with("two_")));

    // Started again in its place, it leads on: the Lease is not waited for.
    let agent_pid = second.agent().await;
    signal("KILL", &[agent_pid]);
    gone(command).await;
    let _third = agent("two", "30s");
    let started = Instant::now();
    assert!(bench.begins(3).await.0 > next);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

/// Waits until the Lease has been renewed for so long, which is longer than it lasts without that.
async fn renewed_for(lab: &Lab, time: Duration) {
    let renewed = || async {
        let lease = lab.leases_api().get("report").await.map_err(|error| error.to_string())?;
        let renewed = lease.spec.and_then(|spec| spec.renew_time).ok_or_else(|| "it was never renewed".to_owned())?;
        Ok::<_, String>(renewed.0)
    };
    let first = eventually("somebody has renewed the Lease", renewed).await;
    eventually("it is renewed", || async {
        let last = renewed().await?;
        let so_far = last.duration_since(first).unsigned_abs();
        if so_far >= time { Ok(()) } else { Err(format!("for {so_far:?}")) }
    })
    .await;
}

/// Shows L3.
#[tokio::test]
async fn an_agent_waits_for_a_go_program_that_leads_and_takes_over_when_it_dies() {
    let (lab, bench) = (Lab::new("agent-after-go").await, Bench::new("after-go"));
    let other = elector(&lab, &bench, "go", "5s");
    other.says("leads");
    let agent = agent(&lab, &bench, "agent", "5s");
    agent.says("waiting for the lock leader=\"go\"").await;
    renewed_for(&lab, Duration::from_secs(6)).await;
    assert_eq!(bench.begun(), []);
    other.signal("KILL");
    let killed = Instant::now();
    bench.begins(1).await;
    assert!(killed.elapsed() > Duration::from_secs(3), "its Lease lasts for 5 s: {:?}", killed.elapsed());
}

#[tokio::test]
async fn a_go_program_waits_for_an_agent_and_takes_over_when_it_ends_or_dies() {
    let (lab, bench) = (Lab::new("go-after-agent").await, Bench::new("go-after"));
    let mut first = agent(&lab, &bench, "agent", "5s");
    bench.begins(1).await;
    let other = elector(&lab, &bench, "go", "5s");
    let identity = eventually("the agent has the Lease", || async {
        let lease = lab.leases_api().get("report").await.map_err(|error| error.to_string())?;
        lease.spec.and_then(|spec| spec.holder_identity).ok_or_else(|| "nobody has it".to_owned())
    })
    .await;
    other.says(&format!("leader {identity}"));
    renewed_for(&lab, Duration::from_secs(6)).await;
    // It is released, and the program asks each eighth of the duration.
    let asked = Instant::now();
    assert_eq!(first.stop().await, Some(143));
    other.says("leads");
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());

    // And back: the program releases it, too.
    let second = agent(&lab, &bench, "agent", "5s");
    second.says("waiting for the lock leader=\"go\"").await;
    other.signal("TERM");
    let (_, command) = bench.begins(2).await;
    // And an agent that dies is waited for by its own duration.
    let third = elector(&lab, &bench, "go", "5s");
    signal("STOP", &[second.agent().await]);
    third.says("leads");
    gone(command).await;
}

/// The Lease of an election is renewed by nobody, and is nobody's to take all the same.
#[tokio::test]
async fn the_lease_of_an_election_is_never_taken_and_its_owner_is_named() {
    let (lab, bench) = (Lab::new("agent-election").await, Bench::new("of-election"));
    let _operator = lab.operator(&[]);
    lab.ready_pods(&["a"]).await;
    lab.elect_as("report", json!({})).await;
    lab.wait_leader("a").await;
    let lock = || async { lab.leases_api().get("report").await.expect("the election has a lock") };
    let before = lock().await;
    let agent = agent(&lab, &bench, "agent", "3s");
    let (whose, place) = ("the LeaderElection report", format!("{}/report", lab.namespace));
    agent
        .says(&format!("the Lease {place} is the lock of {whose}, which the operator alone writes: give --lease"))
        .await;
    agent.says(&format!("waiting for the lock leader=\"{whose}\"")).await;
    // Longer than a Lease lasts that does not say for how long it does.
    tokio::time::sleep(Duration::from_secs(18)).await;
    assert_eq!(bench.begun(), []);
    assert_eq!(lock().await, before);
    lab.wait_leader("a").await;
}

#[tokio::test]
async fn a_right_that_an_agent_lacks_is_to_be_granted_to_the_agent() {
    let (lab, bench) = (Lab::new("agent-right").await, Bench::new("right"));
    let user = User::new(&lab).await;
    let agent = agent_by(user.kubeconfig(), &lab, &bench, "one", "3s");
    agent.says("grant it to this agent's service account: docs/agent.md has the Role").await;
    let said = agent.errors();
    assert!(said.contains("not allowed to list leases") && !said.contains("operator"), "{said}");
}

/// As docs/agent.md says.
#[tokio::test]
async fn an_agent_whose_watchdog_is_stopped_leads_on_and_ends_its_command_itself() {
    let (lab, bench) = (Lab::new("watchdog-stopped").await, Bench::new("watchdog-stopped"));
    let running = agent(&lab, &bench, "one", "3s");
    let (_, command) = bench.begins(1).await;
    let _agent = running.agent().await;
    signal("STOP", &[running.watchdog()]);
    renewed_for(&lab, Duration::from_secs(4)).await;
    assert!(state(command).is_some() && bench.begun().len() == 1);
    // When it goes on, it first reads what it was told meanwhile.
    signal("CONT", &[running.watchdog()]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(state(command).is_some() && bench.begun().len() == 1, "{}", running.errors());
    signal("STOP", &[running.watchdog()]);
    lab.leases_api().delete("report", &DeleteParams::default()).await.expect("it can be deleted");
    gone(command).await;
    signal("CONT", &[running.watchdog()]);
}

/// Shows L2.
#[tokio::test]
async fn a_holder_whose_duration_somebody_shortens_writes_the_lease_again() {
    let (lab, bench) = (Lab::new("agent-shortened").await, Bench::new("shortened"));
    let _first = agent(&lab, &bench, "one", "30s");
    bench.begins(1).await;
    let second = agent(&lab, &bench, "two", "30s");
    second.says("waiting for the lock leader=\"one_").await;
    for _ in 0..3 {
        let shorter = Patch::Merge(json!({"spec": {"leaseDurationSeconds": 1}}));
        lab.leases_api().patch("report", &PatchParams::default(), &shorter).await.expect("it can be written");
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let lease = lab.leases_api().get("report").await.expect("it is there").spec.expect("it has a spec");
        assert!(lease.holder_identity.as_ref().is_some_and(|holder| holder.starts_with("one_")), "{lease:?}");
        assert_eq!((lease.lease_duration_seconds, bench.begun().len()), (Some(30), 1));
    }
}
