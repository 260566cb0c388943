//! What an agent tells of its own lock, as `lictor observe` tells it: over HTTP, in its file, and by hooks.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use lictor_testing::consul::{Consul, Kind, eventually};
use lictor_testing::kubernetes::Lab;
use lictor_testing::{Events, client, signal};
use serde_json::{Value, json};

use crate::bench::{children, gone, state};
use crate::{Bench, Running};

/// The HTTP server of an agent.
struct Told {
    address: SocketAddr,
    http: reqwest::Client,
}

impl Told {
    /// One at an address of the loopback interface that is free.
    fn new() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        Self { address: free.expect("a port is free"), http: client() }
    }

    /// Where the agent is to listen, as `lictor observe` has it, too.
    fn listen(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn try_get(&self, path: &str) -> Result<(u16, String), String> {
        let answer = self.http.get(self.url(path)).timeout(Duration::from_secs(10)).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        let code = answer.status().as_u16();
        Ok((code, answer.text().await.map_err(|error| error.to_string())?))
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.try_get(path).await.expect("it answers")
    }

    async fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).await.1).expect("it is JSON")
    }

    /// Waits until it says this of `/election`.
    async fn says(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("the agent says {what}"), || async {
            let said: Value = serde_json::from_str(&self.try_get("/election").await?.1).map_err(|e| e.to_string())?;
            if holds(&said) { Ok(said) } else { Err(said.to_string()) }
        })
        .await
    }

    async fn leads(&self) -> Value {
        self.says("that it leads", |said| said["role"] == "leader").await
    }

    async fn follows(&self, leader: &str) -> Value {
        self.says(&format!("that {leader} leads"), |said| {
            said["role"] == "follower" && said["leader"]["name"] == leader
        })
        .await
    }
}

#[tokio::test]
async fn an_agent_tells_over_http_what_an_observer_tells() {
    all_of_it(Consul::shared(), "http").await;
}

#[tokio::test]
async fn an_agent_with_an_old_consul_tells_it_too() {
    all_of_it(&Consul::start(Kind::Old), "http-old").await;
}

async fn all_of_it(consul: &Consul, test: &str) {
    let (bench, told) = (Bench::new(test), [Told::new(), Told::new()]);
    let agent = |identity: &str, told: &Told, address: &str| -> Running {
        let listen = told.listen();
        bench.agent(consul, identity, &["--listen", &listen, "--advertise", address], &Bench::worker(""))
    };
    let mut one = agent("one", &told[0], "10.0.0.1:80");
    let (term, _) = bench.begins(1).await;
    let said = told[0].leads().await;
    assert_eq!((&said["election"], &said["source"], &said["term"]), (&json!(bench.key), &json!("agent"), &json!(term)));
    assert_eq!((&said["leader"]["name"], &said["leader"]["address"]), (&json!("one"), &json!("10.0.0.1:80")));
    assert!(said["stale"] == false && said["since"].is_string() && said["lastHeard"].is_string(), "{said}");
    assert!(said["ageSeconds"].as_f64().is_some_and(|age| age < 30.0) && said["staleAfterSeconds"] == 30.0, "{said}");
    let _two = agent("two", &told[1], "10.0.0.2:80");
    // It knows of the other one what that one says of itself.
    let other = told[1].follows("one").await;
    assert_eq!((&other["leader"]["address"], &other["term"]), (&json!("10.0.0.1:80"), &json!(term)));
    for (told, code, text) in
        [(&told[0], 200, "this agent leads\n"), (&told[1], 503, "this agent does not lead: one does\n")]
    {
        assert_eq!(told.get("/leader").await, (code, text.to_owned()));
        let elector = told.json("/").await;
        assert!(elector["name"] == "one" && elector["last_update"].is_string(), "{elector}");
        assert_eq!(
            (told.get("/readyz").await.0, told.get("/healthz").await.0, told.get("/lead").await.0),
            (200, 200, 404)
        );
        assert!(told.get("/metrics").await.1.contains(&format!("lictor_observer_term {term}\n")));
    }
    let mut events = Events::open(&told[1].http, &told[1].url("/events"), None).await;
    let first = events.next().await.expect("what is known now");
    assert_eq!((&first.data["role"], &first.data["leader"]["name"]), (&json!("follower"), &json!("one")));
    let mut names = Events::open(&told[1].http, &told[1].url("/sse"), None).await;
    assert_eq!(names.next().await.expect("what is known now").data["name"], "one");
    drop(events);

    // The agent that leads says at once that it does not, and the other one that it does.
    assert_eq!(one.stop().await, Some(143));
    let said = told[1].leads().await;
    assert!(said["term"].as_u64() > Some(term), "{said}");
    // Who comes back hears what was missed, in order.
    let mut events = Events::open(&told[1].http, &told[1].url("/events"), first.id.as_deref()).await;
    loop {
        let event = events.next().await.expect("what was missed");
        assert_ne!(event.data["leader"]["name"], "one", "it was heard before");
        if event.data["role"] == "leader" {
            break;
        }
    }
    while names.next().await.expect("a change").data["name"] != "two" {}
}

/// Who holds the lock knows until when. Who does not know that it holds it does not say that it leads, though nobody else leads yet.
#[tokio::test]
async fn an_agent_says_that_it_leads_only_while_its_command_may_run() {
    let (consul, bench, told) = (Consul::shared(), Bench::new("certain"), [Told::new(), Told::new()]);
    let agent = |identity: &str, told: &Told| {
        let listen = told.listen();
        bench.agent(consul, identity, &["--listen", &listen, "--state-file", identity], &Bench::worker("trap '' TERM"))
    };
    let one = agent("one", &told[0]);
    let (_, command) = bench.begins(1).await;
    told[0].leads().await;
    let _two = agent("two", &told[1]);
    told[1].follows("one").await;
    // Its command has to end, and does not: the lock is still held, but nothing may be done under it.
    let mut events = Events::open(&told[0].http, &told[0].url("/events"), None).await;
    assert_eq!(events.next().await.expect("what is known now").data["role"], "leader");
    let http = told[0].http.clone();
    let url = told[0].url("/yield");
    let yields = tokio::spawn(async move { http.post(url).send().await.expect("it answers").status().as_u16() });
    let event = events.next().await.expect("a change");
    assert_eq!((&event.data["role"], &event.data["leader"]), (&json!("follower"), &Value::Null));
    assert!(state(command).is_some_and(|(state, _)| state != 'Z'), "its command lives");
    assert_eq!(told[0].get("/leader").await.0, 503);
    assert_eq!(told[0].json("/").await["name"], "");
    let written = || -> Result<Value, String> {
        let text = std::fs::read_to_string(bench.directory.join("one")).map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    };
    eventually("the file says so, too", || async {
        let said = written()?;
        if said["role"] == "follower" { Ok(()) } else { Err(said.to_string()) }
    })
    .await;
    signal("KILL", &[command]);
    assert_eq!(yields.await.expect("it is asked"), 200);
    told[1].leads().await;
    drop(one);
}

/// Without Consul, an agent that waits knows that it does not lead, and that it does not know who does.
#[tokio::test]
async fn an_agent_that_hears_nothing_names_nobody_and_knows_that_it_does_not_lead() {
    let (consul, bench, told) = (Consul::start(Kind::Dev), Bench::new("deaf"), [Told::new(), Told::new()]);
    let agent = |identity: &str, told: &Told| -> Running {
        let listen = told.listen();
        bench.agent(&consul, identity, &["--listen", &listen], &Bench::worker(""))
    };
    let (_one, _two) = {
        let one = agent("one", &told[0]);
        bench.begins(1).await;
        let two = agent("two", &told[1]);
        told[1].follows("one").await;
        (one, two)
    };
    consul.server(1).kill();
    told[0].says("that it leads no more", |said| said["role"] == "follower").await;
    let said = told[1].says("that it is stale", |said| said["stale"] == true).await;
    assert_eq!((&said["role"], &said["leader"]["name"]), (&json!("follower"), &json!("one")), "who was heard of last");
    assert_eq!(told[1].json("/").await["name"], "");
    assert_eq!(told[1].get("/leader").await, (503, "this agent does not lead\n".to_owned()));
}

#[tokio::test]
async fn an_agent_with_a_lease_tells_who_leads() {
    let (lab, bench, told) = (Lab::new("told").await, Bench::new("told-lease"), [Told::new(), Told::new()]);
    let agent = |identity: &str, told: &Told| -> Running {
        let (listen, lease) = (told.listen(), format!("{}/report", lab.namespace));
        let kubeconfig = lab.cluster.kubeconfig().to_str().expect("a path is text");
        let lock = ["--lease", &lease, "--kubeconfig", kubeconfig, "--ttl", "5s", "--identity", identity];
        bench.start(&[&lock[..], &["--listen", &listen]].concat(), &["sh", "-c", &Bench::worker("")], &[])
    };
    let mut one = agent("one", &told[0]);
    let (term, _) = bench.begins(1).await;
    let said = told[0].leads().await;
    assert_eq!((&said["term"], &said["ageSeconds"], &said["stale"]), (&json!(term), &Value::Null, &json!(false)));
    let _two = agent("two", &told[1]);
    let said = told[1]
        .says("who leads", |said| said["leader"]["name"].as_str().is_some_and(|name| name.starts_with("one_")))
        .await;
    assert_eq!((&said["role"], &said["stale"]), (&json!("follower"), &json!(false)));
    one.stop().await;
    told[1].leads().await;
}

/// Hooks live beside the agent: its command's end does not end them, nor the reverse.
#[tokio::test]
async fn hooks_run_beside_the_command_and_at_the_end() {
    let (consul, bench, told) = (Consul::shared(), Bench::new("hooks"), Told::new());
    let hook = |name: &str| {
        format!(
            "echo \"{name} $LICTOR_ROLE $LICTOR_TERM $LICTOR_LEADER $LICTOR_ELECTION ${{LICTOR_AGENT_WATCHED-none}}\" >>hooks"
        )
    };
    let (leader, follower) = (format!("{}; sleep 1000 & sleep 0.5", hook("leads")), hook("follows"));
    let more = ["--listen", &told.listen(), "--state-file", "state.json", "--stay-away", "2s"];
    let hooks = ["--on-leader", leader.as_str(), "--on-follower", follower.as_str()];
    let mut agent = bench.agent(consul, "one", &[more.as_slice(), &hooks].concat(), &Bench::worker(""));
    let (term, command) = bench.begins(1).await;
    let key = &bench.key;
    let has = async |lines: &[String]| {
        eventually(&format!("hooks have run: {lines:?}"), || async {
            let now = bench.lines("hooks");
            if now == lines { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    };
    let follows = format!("follows follower   {key} none");
    let mut lines = vec![follows.clone(), format!("leads leader {term} one {key} none")];
    has(&lines).await;
    // What it leaves behind is killed, and the command is not.
    let counted = |text: &str| text.contains("lictor_observer_hooks_total{hook=\"on-leader\",result=\"succeeded\"} 1");
    eventually("the hook is counted", || async {
        let text = told.try_get("/metrics").await?.1;
        if counted(&text) { Ok(()) } else { Err(text) }
    })
    .await;
    assert!(state(command).is_some_and(|(state, _)| state != 'Z') && bench.begun().len() == 1);
    assert_eq!(children(agent.agent().await), [command], "hooks do not run below the agent");

    // In a new term, --on-follower has run before.
    let answer = told.http.post(told.url("/yield")).send().await.expect("it answers");
    assert_eq!(answer.status().as_u16(), 200);
    gone(command).await;
    let (next, _) = bench.begins(2).await;
    lines.extend([follows.clone(), format!("leads leader {next} one {key} none")]);
    has(&lines).await;
    // At the end it runs, too, and the agent waits for it. While --on-leader still ran, the agent has ended.
    assert_eq!(agent.stop().await, Some(143));
    let last = bench.lines("hooks").pop().unwrap_or_default();
    assert!(
        bench.lines("hooks").len() == lines.len() + 1 && last.starts_with("follows "),
        "{:?}",
        bench.lines("hooks")
    );
    assert!(!bench.directory.join("state.json").exists(), "nobody keeps it up any more");
}

#[tokio::test]
async fn what_runs_the_hooks_may_be_killed_and_the_command_runs_on() {
    let (consul, bench) = (Consul::shared(), Bench::new("no-hooks"));
    let mut agent =
        bench.agent(consul, "one", &["--on-leader", "sleep 1000", "--hook-timeout", "1m"], &Bench::worker(""));
    let (_, command) = bench.begins(1).await;
    let agent_pid = agent.agent().await;
    let beside = *children(agent.guard().await).iter().find(|pid| **pid != agent_pid).expect("it runs the hooks");
    let hook =
        eventually("the hook runs", || async { children(beside).first().copied().ok_or_else(|| "none".to_owned()) })
            .await;
    signal("KILL", &[beside]);
    agent.says("no more hooks run").await;
    assert!(state(command).is_some_and(|(state, _)| state != 'Z'));
    // The hook itself ends with the agent at the latest.
    assert_eq!(agent.stop().await, Some(143));
    gone(hook).await;
}

#[tokio::test]
async fn what_can_not_be_told_is_said_before_anything_runs() {
    let (consul, bench) = (Consul::shared(), Bench::new("told-nothing"));
    let mut agent = bench.agent(consul, "one", &["--state-file", "nowhere/state.json"], &Bench::worker(""));
    assert_eq!(agent.ended().await.code(), Some(1));
    assert!(agent.errors().contains("nowhere/state.json can't be written"), "{}", agent.errors());
    assert_eq!(bench.begun(), []);
}
