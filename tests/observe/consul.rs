//! Heard from a key in Consul: an agent's, and another program's.

use std::process::{Child, Command, Stdio};

use lictor_testing::consul::{Consul, Kind};
use lictor_testing::{program, signal};
use serde_json::{Value, json};

use crate::cluster::documented;
use crate::{Bench, Observer};

/// An agent that leads, and goes with the test.
struct Agent(Child);

impl Agent {
    fn start(consul: &Consul, key: &str, identity: &str) -> Self {
        let mut agent = Command::new(program());
        agent.args(["agent", "--consul", consul.address(), "--key", key, "--ttl", "10s", "--identity", identity]);
        agent.args(["--advertise", "10.0.0.1:80", "--", "sleep", "1000"]);
        Self(agent.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
    }

    fn stop(mut self) {
        signal("TERM", &[self.0.id()]);
        self.0.wait().expect("it ends");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn key(test: &str) -> String {
    format!("observe/{test}-{}/leader", std::process::id())
}

fn observe(bench: &Bench, consul: &Consul, key: &str, more: &[&str]) -> Observer {
    bench.start(&[["--consul", consul.address(), "--key", key].as_slice(), more].concat(), &[])
}

#[tokio::test]
async fn the_leader_of_a_key_is_heard_of() {
    hears(Consul::shared(), "key").await;
}

#[tokio::test]
async fn an_old_consul_does_as_well() {
    hears(&Consul::start(Kind::Old), "key-old").await;
}

async fn hears(consul: &Consul, test: &str) {
    let (bench, key) = (Bench::new(test), key(test));
    let observers = ["one", "two"].map(|pod| observe(&bench, consul, &key, &["--pod", pod]));
    let known = observers[0].sees("follower", "").await;
    assert!(known["problem"].as_str().is_some_and(|why| why.contains("there is no key")), "{known}");
    let agent = Agent::start(consul, &key, "one");
    let known = observers[0].sees("leader", "one").await;
    assert_eq!((&known["leader"]["address"], &known["source"]), (&json!("10.0.0.1:80"), &json!("consul")));
    observers[1].sees("follower", "one").await;
    let term = known["term"].as_i64().expect("a term");
    let entry = consul.api().get(&format!("/v1/kv/{key}")).await.expect("Consul answers").json()[0].clone();
    assert_eq!(entry["ModifyIndex"].as_i64(), Some(term), "the fencing token");
    agent.stop();
    for observer in &observers {
        observer.sees("follower", "").await;
    }
    let agent = Agent::start(consul, &key, "two");
    let known = observers[1].sees("leader", "two").await;
    assert!(known["term"].as_i64() > Some(term));
    // The key is gone, whoever has deleted it.
    consul.api().delete(&format!("/v1/kv/{key}")).await.expect("Consul answers");
    observers[1].knows("another term, or nobody", |now| now["term"] != known["term"]).await;
    agent.stop();
}

#[tokio::test]
async fn another_program_that_holds_the_lock_is_named() {
    let (consul, bench, key) = (Consul::shared(), Bench::new("other"), key("other"));
    let session = consul.api().put("/v1/session/create", json!({"TTL": "60s"})).await.expect("Consul answers").ok();
    let session = session["ID"].as_str().expect("an id").to_owned();
    let path = format!("/v1/kv/{key}?acquire={session}");
    assert_eq!(consul.api().put(&path, "host-7").await.expect("Consul answers").ok(), json!(true));
    let observer = observe(&bench, consul, &key, &["--pod", "host-7"]);
    let known = observer.sees("leader", "host-7").await;
    assert_eq!(known["term"], Value::Null);
    assert_eq!(
        consul
            .api()
            .put(&path, [0, 159].map(char::from).iter().collect::<String>())
            .await
            .expect("Consul answers")
            .ok(),
        json!(true)
    );
    observer.sees("follower", &session).await;
    consul.api().put(&format!("/v1/session/destroy/{session}"), "").await.expect("Consul answers").ok();
    observer.sees("follower", "").await;
}

/// A server that hangs answers neither the watch nor the questions. When it goes on, it is heard of again, without its data, too.
#[tokio::test]
async fn a_consul_that_hangs_or_loses_its_data_is_noticed() {
    let (consul, bench, key) = (Consul::start(Kind::Dev), Bench::new("hangs"), key("hangs"));
    let session = consul.api().put("/v1/session/create", json!({})).await.expect("Consul answers").ok();
    let path = format!("/v1/kv/{key}?acquire={}", session["ID"].as_str().expect("an id"));
    consul.api().put(&path, "host-7").await.expect("Consul answers").ok();
    let observer = observe(&bench, &consul, &key, &["--pod", "host-7", "--stale-after", "3s"]);
    observer.sees("leader", "host-7").await;
    consul.server(1).pause();
    let known = observer.knows("it counts no more", |known| known["stale"] == true).await;
    assert_eq!((&known["role"], observer.get("/leader").await.status), (&json!("unknown"), 503));
    consul.server(1).resume();
    observer.sees("leader", "host-7").await;
    // Its indexes begin again, and its keys are gone.
    consul.server(1).restart().await;
    observer.sees("follower", "").await;
}

/// With the rights that docs/know-that-you-lead.md names, and no others.
#[tokio::test]
async fn a_token_that_may_read_the_key_is_enough() {
    let (consul, bench, key) = (Consul::start(Kind::Three), Bench::new("token"), key("token"));
    let rules = documented("hcl", "read").replace("services/shop/web/leader", &key);
    let policy = json!({"Name": "observe", "Rules": rules});
    consul.api().put("/v1/acl/policy", policy).await.expect("Consul answers").ok();
    let token = json!({"Policies": [{"Name": "observe"}]});
    let token = consul.api().put("/v1/acl/token", token).await.expect("Consul answers").ok();
    let session = consul.api().put("/v1/session/create", json!({})).await.expect("Consul answers").ok();
    let path = format!("/v1/kv/{key}?acquire={}", session["ID"].as_str().expect("an id"));
    consul.api().put(&path, "host-7").await.expect("Consul answers").ok();
    let variable = |name: &str| consul.variable(name).expect("it is set");
    let token = token["SecretID"].as_str().expect("a token");
    let environment = |name, token| {
        [
            (name, token),
            ("CONSUL_CACERT", variable("CACERT")),
            ("CONSUL_CLIENT_CERT", variable("CLIENT_CERT")),
            ("CONSUL_CLIENT_KEY", variable("CLIENT_KEY")),
            ("LICTOR_KEY", &key),
            ("LICTOR_CONSUL", consul.address()),
        ]
    };
    let pod = ["--pod", "host-7"];
    bench.start(&pod, &environment("CONSUL_HTTP_TOKEN", token)).sees("leader", "host-7").await;
    let refused = bench.start(&pod, &environment("CONSUL_HTTP_TOKEN", ""));
    let known = refused.knows("the token may not read it", |known| known["problem"].is_string()).await;
    assert!(known["problem"].as_str().is_some_and(|why| why.contains("the token may not read it")), "{known}");
    // From a file, a new one is used without a restart.
    let file = bench.directory.join("token");
    std::fs::write(&file, "no-token").expect("it can be written");
    let by_file = bench.start(&pod, &environment("CONSUL_HTTP_TOKEN_FILE", file.to_str().expect("a path is text")));
    by_file.knows("the token is none", |known| known["problem"].is_string()).await;
    std::fs::write(&file, token).expect("it can be written");
    by_file.sees("leader", "host-7").await;
}
