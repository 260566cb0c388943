//! Locks in Consul: who holds one, what is in it, and who shares it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use lictor_testing::consul::{Consul, Kind, eventually};
use lictor_testing::kill_together;
use serde_json::{Value, json};

use crate::bench::{documented, gone, state};
use crate::{Bench, Running};

/// What the key has.
async fn value(consul: &Consul, key: &str) -> Value {
    let raw = consul.api().get(&format!("/v1/kv/{key}?raw")).await.expect("Consul answers");
    raw.json()
}

async fn entry(consul: &Consul, key: &str) -> Value {
    consul.api().get(&format!("/v1/kv/{key}")).await.expect("Consul answers").json()[0].clone()
}

#[tokio::test]
async fn one_of_two_agents_runs_and_the_other_one_follows_at_once() {
    hand_over(Consul::shared(), "hand-over").await;
}

#[tokio::test]
async fn an_old_consul_does_as_well() {
    hand_over(&Consul::start(Kind::Old), "hand-over-old").await;
}

async fn hand_over(consul: &Consul, test: &str) {
    let bench = Bench::new(test);
    let script = Bench::worker("echo \"key $LICTOR_KEY\" >>log");
    let mut first = bench.agent(consul, "one", &["--advertise", "10.0.0.1:80"], &script);
    let (term, command) = bench.begins(1).await;
    bench.logs(&format!("key {}", bench.key)).await;
    let seen = entry(consul, &bench.key).await;
    assert_eq!((seen["ModifyIndex"].as_u64(), seen["Flags"].as_u64()), (Some(term), Some(0x2ddc_cbc0_58a5_0c18)));
    let told = value(consul, &bench.key).await;
    assert_eq!((&told["cluster"], &told["holder"]["ip"]), (&"one".into(), &"10.0.0.1:80".into()));

    let second = bench.agent(consul, "two", &["--advertise", "10.0.0.2:80"], &script);
    second.says("waiting for the lock leader=\"one\"").await;
    assert!(lives(command), "it goes on");
    let asked = Instant::now();
    assert_eq!(first.stop().await, Some(143));
    let (next, _) = bench.begins(2).await;
    // The lock was released: neither a TTL nor the lock delay is waited for.
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert!(next > term, "{next} after {term}");
    assert_eq!(value(consul, &bench.key).await["holder"]["ip"], "10.0.0.2:80");
}

fn lives(pid: i32) -> bool {
    state(pid).is_some_and(|(state, _)| state != 'Z')
}

#[tokio::test]
async fn consuls_own_lock_command_and_an_agent_keep_each_other_out() {
    let consul = Consul::shared();
    let mut bench = Bench::new("lock-command");
    let prefix = bench.key.trim_end_matches("/leader").to_owned();
    bench.key = format!("{prefix}/.lock");
    // The command ends when its standard input does.
    let mut other = consul
        .command()
        .args(["lock", "-pass-stdin", &prefix, "echo began; cat"])
        .current_dir(&bench.directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("consul starts");
    eventually("consul lock holds the lock", || async {
        let seen = entry(consul, &bench.key).await;
        if seen["Session"].is_string() { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
    let agent = bench.agent(consul, "agent", &[], &Bench::worker(""));
    agent.says("waiting for the lock").await;
    assert_eq!(bench.begun(), []);
    drop(other.stdin.take());
    assert!(other.wait().expect("it ends").success());
    bench.begins(1).await;
    let refused = consul.try_cli(&["lock", "-timeout=200ms", &prefix, "true"]).expect_err("the agent holds it");
    assert!(refused.contains("timeout during lock acquisition"), "{refused}");
}

/// Shows A5. An agent that has released its lock destroys its session. That request may be late, and the next process by its name is there.
#[tokio::test]
async fn a_session_that_holds_nothing_is_not_used_again() {
    let (consul, bench) = (Consul::shared(), Bench::new("late-destroy"));
    let mut first = bench.agent(consul, "same", &[], &Bench::worker(""));
    bench.begins(1).await;
    let session = entry(consul, &bench.key).await["Session"].clone();
    let path = |id: &Value| format!("/v1/session/info/{}", id.as_str().expect("it is text"));
    let session = consul.api().get(&path(&session)).await.expect("Consul answers").json()[0].clone();
    assert_eq!(first.stop().await, Some(143));
    let left = consul.api().get(&path(&session["ID"])).await.expect("Consul answers").json();
    assert_eq!(left, json!([]), "it is destroyed");

    // As if it was not destroyed yet.
    let new = json!({"Name": session["Name"], "Node": session["Node"], "TTL": "10s", "LockDelay": "1s", "Behavior": "release", "NodeChecks": []});
    let made = consul.api().put("/v1/session/create", new).await.expect("Consul answers").ok();
    let _second = bench.agent(consul, "same", &[], &Bench::worker(""));
    let (term, command) = bench.begins(2).await;
    let used = entry(consul, &bench.key).await["Session"].clone();
    assert_ne!(used, made["ID"]);
    let destroy = format!("/v1/session/destroy/{}", made["ID"].as_str().expect("it is text"));
    consul.api().put(&destroy, json!({})).await.expect("Consul answers").ok();
    // The next renewal has succeeded, and nothing has changed.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let now = entry(consul, &bench.key).await;
    assert_eq!((&now["Session"], now["ModifyIndex"].as_u64()), (&used, Some(term)));
    assert!(lives(command) && bench.begun().len() == 2);
}

/// Shows A5.
#[tokio::test]
async fn an_agent_that_was_killed_leads_on_when_it_is_started_again() {
    let (consul, bench) = (Consul::shared(), Bench::new("again"));
    let mut first = bench.agent(consul, "same", &[], &Bench::worker(""));
    let (term, command) = bench.begins(1).await;
    let session = entry(consul, &bench.key).await["Session"].clone();
    let agent = first.agent().await;
    kill_together(&[agent, first.guard().await, first.watchdog()]);
    first.ended().await;
    gone(command).await;

    let started = Instant::now();
    let _second = bench.agent(consul, "same", &[], &Bench::worker(""));
    let (next, _) = bench.begins(2).await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(next > term, "{next} after {term}");
    assert_eq!(entry(consul, &bench.key).await["Session"], session);
}

/// Shows A5.
#[tokio::test]
async fn two_agents_by_one_name_do_not_run_in_one_place() {
    let (consul, bench) = (Consul::shared(), Bench::new("same-name"));
    let _first = bench.agent(consul, "same", &[], &Bench::worker(""));
    bench.begins(1).await;
    let mut second: Running = bench.agent(consul, "same", &[], &Bench::worker(""));
    assert_eq!(second.ended().await.code(), Some(1));
    let said = second.errors();
    assert!(said.contains("an agent of the name same for the lock") && said.contains("--identity"), "{said}");
    assert_eq!(bench.begun().len(), 1);
}

/// Three servers with ACLs and TLS: the agent asks one that does not lead, and the one that leads dies. It has the rights that
/// docs/agent.md names, and no others.
#[tokio::test]
async fn a_change_of_consuls_leader_ends_nothing() {
    let (consul, bench) = (Consul::start(Kind::Three), Bench::new("three"));
    let leader = consul.leader().await.address().to_owned();
    let server = consul.servers().iter().find(|server| server.address() != leader).expect("there are three");
    let rules = documented("hcl", "lictor-agents").replace("services/report/leader", &bench.key);
    let policy = json!({"Name": "agent", "Rules": rules});
    consul.api().put("/v1/acl/policy", policy).await.expect("Consul answers").ok();
    let token = json!({"Policies": [{"Name": "agent"}]});
    let token = consul.api().put("/v1/acl/token", token).await.expect("Consul answers").ok();
    let variable = |name: &str| consul.variable(name).expect("it is set");
    let environment = [
        ("CONSUL_HTTP_TOKEN", token["SecretID"].as_str().expect("a token")),
        ("CONSUL_CACERT", variable("CACERT")),
        ("CONSUL_CLIENT_CERT", variable("CLIENT_CERT")),
        ("CONSUL_CLIENT_KEY", variable("CLIENT_KEY")),
    ];
    let arguments = ["--consul", server.address(), "--key", &bench.key, "--ttl", "30s", "--identity", "one"];
    let mut agent = bench.start(&arguments, &["sh", "-c", &Bench::worker("")], &environment);
    let (_, command) = bench.begins(1).await;

    let old = consul.servers().iter().find(|server| server.address() == leader).expect("there are three");
    old.kill();
    let next = consul.leader().await.address().to_owned();
    assert_ne!(next, leader);
    // Longer than the validity of what was renewed before.
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert!(lives(command), "{}", agent.errors());
    assert_eq!(bench.begun().len(), 1);
    assert_eq!(agent.stop().await, Some(143));
}
