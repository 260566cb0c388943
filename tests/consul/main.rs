//! Real Consul servers, as `hack/consul.sh` starts them: one of the present version, an old one, and three with ACLs and TLS.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod answers;
mod client;
mod locks;
mod ours;
mod sessions;

use std::process::Stdio;

use lictor_testing::consul::{Consul, Kind, eventually};

/// The flags of a lock that Consul's own library makes.
const LOCK_FLAGS: u64 = 0x2ddc_cbc0_58a5_0c18;

#[tokio::test]
async fn consuls_own_lock_command_holds_a_lock() {
    holds_a_lock(Consul::shared()).await;
}

#[tokio::test]
async fn the_lock_command_of_an_old_consul_holds_a_lock() {
    holds_a_lock(&Consul::start(Kind::Old)).await;
}

async fn holds_a_lock(consul: &Consul) {
    let api = consul.api();
    // The command ends when its standard input does, for example with this process.
    let command = ["lock", "-pass-stdin", "lock-command", "cat"];
    let mut holder = consul.command().args(command).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let held = || async {
        let key = api.get("/v1/kv/lock-command/.lock").await?.json()[0].clone();
        if key["Session"].is_string() && key["Flags"] == LOCK_FLAGS { Ok(()) } else { Err(key.to_string()) }
    };
    eventually("the lock is held", held).await;
    let refused = consul.try_cli(&["lock", "-timeout=100ms", "lock-command", "true"]).unwrap_err();
    assert!(refused.contains("timeout during lock acquisition"), "{refused}");

    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    held().await.unwrap_err();
    consul.cli(&["lock", "-timeout=30s", "lock-command", "true"]);
}

#[tokio::test]
async fn a_server_that_is_paused_answers_when_it_goes_on() {
    let consul = Consul::start(Kind::Dev);
    let (server, api) = (consul.server(1), consul.api());
    assert_eq!(api.put("/v1/kv/paused", "before").await.unwrap().text.trim(), "true");
    server.pause();
    let error = api.get("/v1/kv/paused?raw").await.unwrap_err();
    assert!(error.contains("TimedOut"), "{error}");
    server.resume();
    assert_eq!(api.get("/v1/kv/paused?raw").await.unwrap().text, "before");
    server.restart().await;
    assert_eq!(server.api().get("/v1/kv/paused").await.unwrap().status, 404, "it keeps nothing");
}

#[tokio::test]
async fn three_servers_lose_their_leader_and_get_it_back() {
    let consul = Consul::start(Kind::Three);
    consul.cli(&["kv", "put", "three", "before"]);
    let first = consul.leader().await;
    first.kill();
    let second = consul.leader().await;
    second.usable().await;
    assert_eq!(second.api().get("/v1/kv/three?raw&consistent").await.unwrap().text, "before");
    second.api().put("/v1/kv/three", "after").await.unwrap().ok();
    first.start();
    first.usable().await;
    assert_eq!(first.api().get("/v1/kv/three?raw&consistent").await.unwrap().text, "after");
    // There are three again, so one of them may hang.
    second.pause();
    let third = consul.leader().await;
    assert_ne!(third.address(), second.address());
    eventually("it takes what is written", || async {
        let answer = third.api().put("/v1/kv/three", "last").await?;
        if answer.status == 200 { Ok(()) } else { Err(answer.text) }
    })
    .await;
    second.resume();
    second.usable().await;
}

#[tokio::test]
async fn who_has_no_certificate_or_no_token_gets_nothing() {
    let consul = Consul::start(Kind::Three);
    let refused = |without: &[&str]| {
        let mut command = consul.command();
        for name in without {
            command.env_remove(name);
        }
        let output = command.args(["kv", "put", "secret", "mine"]).output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = refused(&["CONSUL_HTTP_TOKEN"]);
    assert!(error.contains("Permission denied"), "{error}");
    // The server's alert may come too late to be in the error.
    refused(&["CONSUL_CLIENT_CERT", "CONSUL_CLIENT_KEY"]);
    let error = refused(&["CONSUL_CACERT"]);
    assert!(error.contains("unknown authority"), "{error}");
}
