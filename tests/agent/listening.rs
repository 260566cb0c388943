//! What a running agent can be asked, and told: to yield, how it is, a new token, an agent as its command.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use lictor_testing::consul::{Consul, Kind, eventually};
use lictor_testing::free_address;
use lictor_testing::kubernetes::Lab;
use serde_json::{Value, json};

use crate::bench::{documented, gone, state};
use crate::{Bench, Running};

/// Asks an agent. Returns the code of the answer, and the body.
fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
    let request = format!("{method} {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it can be asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("it has a code");
    (code, body.to_owned())
}

/// Waits until an agent is in this state. Returns all that it says.
async fn is(address: SocketAddr, wanted: &str) -> Value {
    eventually(&format!("an agent is {wanted}"), || async {
        TcpStream::connect(address).map_err(|error| error.to_string())?;
        let said: Value = serde_json::from_str(&ask(address, "GET", "/state", "").1).map_err(|e| e.to_string())?;
        if said["state"] == wanted { Ok(said) } else { Err(said.to_string()) }
    })
    .await
}

fn yields(address: SocketAddr) -> (u16, Value) {
    let (code, body) = ask(address, "POST", "/yield", "");
    (code, serde_json::from_str(&body).unwrap_or_default())
}

/// Shows A7.
#[tokio::test]
async fn whoever_yields_leaves_the_lock_to_another_one() {
    let (consul, bench) = (Consul::shared(), Bench::new("yield"));
    let addresses = [free_address(), free_address()];
    let agent = |identity: &str, listen: SocketAddr| {
        let listen = listen.to_string();
        bench.agent(consul, identity, &["--listen", &listen, "--stay-away", "2s"], &Bench::worker(""))
    };
    let _one = agent("one", addresses[0]);
    let (term, command) = bench.begins(1).await;
    let leading = is(addresses[0], "leading").await;
    assert_eq!((&leading["leader"], leading["term"].as_u64()), (&"one".into(), Some(term)));
    let valid = leading["validMilliseconds"].as_u64().expect("it holds the lock");
    assert!((1..=8000).contains(&valid), "{leading}");
    let _two = agent("two", addresses[1]);
    let waits = || async {
        let said = is(addresses[1], "waiting").await;
        if said["leader"] == "one" { Ok(()) } else { Err(said.to_string()) }
    };
    eventually("the other one knows who leads", waits).await;

    // Nothing of this yields.
    for (method, headers, refused) in [
        ("GET", "", 405),
        ("PUT", "", 405),
        ("POST", "Origin: http://attacker.example\r\n", 403),
        ("POST", "Host: attacker.example\r\n", 403),
    ] {
        assert_eq!(ask(addresses[0], method, "/yield", headers).0, refused, "{method} {headers}");
    }
    let (code, said) = yields(addresses[1]);
    assert_eq!((code, &said["leader"]), (409, &"one".into()), "it has nothing to leave to others");
    assert!(state(command).is_some() && bench.begun().len() == 1);

    let asked = Instant::now();
    let (code, said) = yields(addresses[0]);
    assert_eq!((code, &said["state"]), (200, &"away".into()), "{said}");
    gone(command).await;
    let (next, second) = bench.begins(2).await;
    assert!(asked.elapsed() < Duration::from_secs(2) && next > term, "{:?}", asked.elapsed());
    assert_eq!(yields(addresses[0]).0, 200, "it is away already");
    // It is a candidate again, and gets the lock back when the other one yields.
    is(addresses[0], "waiting").await;
    assert!(state(second).is_some());
    assert_eq!(yields(addresses[1]).0, 200);
    assert!(bench.begins(3).await.0 > next);
    is(addresses[0], "leading").await;
}

/// Shows A7.
#[tokio::test]
async fn a_lone_candidate_that_yields_leads_again_after_that_time() {
    let (consul, bench, address) = (Consul::shared(), Bench::new("yield-alone"), free_address());
    let listen = address.to_string();
    let _agent = bench.agent(consul, "one", &["--listen", &listen, "--stay-away", "2s"], &Bench::worker(""));
    let (term, _) = bench.begins(1).await;
    assert_eq!(yields(address).0, 200);
    let away = Instant::now();
    let key = consul.api().get(&format!("/v1/kv/{}", bench.key)).await.expect("Consul answers").json();
    assert!(key[0]["Session"].is_null(), "{key}");
    assert!(bench.begins(2).await.0 > term);
    assert!(away.elapsed() > Duration::from_millis(1800), "{:?}", away.elapsed());
}

/// Shows A7.
#[tokio::test]
async fn a_lease_can_be_left_to_another_one_too() {
    let (lab, bench) = (Lab::new("yield").await, Bench::new("yield-lease"));
    let addresses = [free_address(), free_address()];
    let agent = |identity: &str, listen: SocketAddr| -> Running {
        let (listen, lease) = (listen.to_string(), format!("{}/report", lab.namespace));
        let kubeconfig = lab.cluster.kubeconfig().to_str().expect("a path is text");
        let lock = ["--lease", &lease, "--kubeconfig", kubeconfig, "--ttl", "5s", "--identity", identity];
        bench.start(&[&lock[..], &["--listen", &listen]].concat(), &["sh", "-c", &Bench::worker("")], &[])
    };
    let _one = agent("one", addresses[0]);
    let (term, _) = bench.begins(1).await;
    let two = agent("two", addresses[1]);
    two.says("waiting for the lock").await;
    let asked = Instant::now();
    assert_eq!(yields(addresses[0]).0, 200);
    assert!(bench.begins(2).await.0 > term);
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    is(addresses[1], "leading").await;
}

#[tokio::test]
async fn an_address_that_is_taken_is_said_before_anything_runs() {
    let (consul, bench) = (Consul::shared(), Bench::new("taken"));
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it has an address").to_string();
    let mut agent = bench.agent(consul, "one", &["--listen", &address], &Bench::worker(""));
    assert_eq!(agent.ended().await.code(), Some(1));
    assert!(agent.errors().contains(&format!("can't listen at {address}: give --listen another address")));
    assert_eq!(bench.begun(), []);
}

/// A command that is an agent itself has a lock of its own, though the outer one is all in its environment.
#[tokio::test]
async fn the_command_of_an_agent_may_be_an_agent() {
    let (consul, bench, address) = (Consul::shared(), Bench::new("nested"), free_address());
    let inner = format!("{}-inner", bench.key);
    let program = lictor_testing::program();
    let program = program.to_str().expect("a path is text");
    let worker = Bench::worker("echo \"inner $LICTOR_KEY\" >>log");
    let inner_words = [program, "agent", "--consul", consul.address(), "--key", &inner, "--", "sh", "-c", &worker];
    let listen = address.to_string();
    let variables = [
        ("LICTOR_KEY", bench.key.as_str()),
        ("LICTOR_CONSUL", consul.address()),
        ("LICTOR_TTL", "10s"),
        ("LICTOR_LISTEN", &listen),
    ];
    let mut outer = bench.start(&[], &inner_words, &variables);
    let (_, command) = bench.begins(1).await;
    bench.logs(&format!("inner {inner}")).await;
    assert_eq!(is(address, "leading").await["key"], bench.key.as_str());
    // Without a lock of its own it is refused: it can't wait for the one that its parent holds.
    let refused = [program, "agent", "--", "true"];
    let other = bench.start(&["--consul", consul.address(), "--key", &format!("{}-other", bench.key)], &refused, &[]);
    other.says("--key <KEY>").await;
    assert_eq!(outer.stop().await, Some(143));
    gone(command).await;
}

/// The token is replaced in its file, and the old one deleted: the agent leads on. When the new one loses its rights, the command ends in
/// time, and when it has them again, another one begins.
#[tokio::test]
async fn a_new_token_in_the_file_is_used_without_a_restart() {
    let (consul, bench) = (Consul::start(Kind::Three), Bench::new("token"));
    let rules = documented("hcl", "lictor-agents").replace("services/report/leader", &bench.key);
    let policy = json!({"Name": "agent", "Rules": rules});
    let policy = consul.api().put("/v1/acl/policy", policy).await.expect("Consul answers").ok();
    let token = async || {
        let token = json!({"Policies": [{"Name": "agent"}]});
        let token = consul.api().put("/v1/acl/token", token).await.expect("Consul answers").ok();
        let field = |name: &str| token[name].as_str().expect("it has one").to_owned();
        (field("AccessorID"), field("SecretID"))
    };
    let (first, second) = (token().await, token().await);
    let file = bench.directory.join("token");
    std::fs::write(&file, format!("{}\n", first.1)).expect("it can be written");
    let variable = |name: &str| consul.variable(name).expect("it is set");
    let environment = [
        ("CONSUL_HTTP_TOKEN_FILE", file.to_str().expect("a path is text")),
        ("CONSUL_CACERT", variable("CACERT")),
        ("CONSUL_CLIENT_CERT", variable("CLIENT_CERT")),
        ("CONSUL_CLIENT_KEY", variable("CLIENT_KEY")),
    ];
    let arguments = ["--consul", consul.address(), "--key", &bench.key, "--ttl", "10s", "--renew-every", "1s"];
    let agent = bench.start(&arguments, &["sh", "-c", &Bench::worker("")], &environment);
    let (_, command) = bench.begins(1).await;
    // A file that is empty for a moment changes nothing.
    std::fs::write(&file, "").expect("it can be written");
    agent.says("the old token for Consul stays in use").await;
    std::fs::write(&file, &second.1).expect("it can be written");
    agent.says("the token for Consul has changed").await;
    consul.api().delete(&format!("/v1/acl/token/{}", first.0)).await.expect("Consul answers").ok();
    // Longer than the validity of what was renewed before.
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(state(command).is_some_and(|(state, _)| state != 'Z') && bench.begun().len() == 1, "{}", agent.errors());

    let allow = async |rules: &str| {
        let path = format!("/v1/acl/policy/{}", policy["ID"].as_str().expect("it has one"));
        let rules = json!({"Name": "agent", "Rules": rules});
        consul.api().put(&path, rules).await.expect("Consul answers").ok();
    };
    let changed = Instant::now();
    allow("").await;
    gone(command).await;
    // Servers of Consul may rely on a policy for some seconds.
    assert!(changed.elapsed() < Duration::from_secs(20), "{:?}", changed.elapsed());
    agent.says("Permission denied").await;
    allow(&rules).await;
    bench.begins(2).await;
}
