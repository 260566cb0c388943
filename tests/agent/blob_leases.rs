//! Locks that are the lease of a blob, beside programs on Microsoft's pattern, which use Microsoft's own client in Python.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lictor_testing::buckets::{Buckets, Kind};
use lictor_testing::{Link, client, file, free_address, signal, tool};
use serde_json::{Value, json};

use crate::Bench;
use crate::bench::{Running, gone, state};

/// The shortest lease.
const TTL: Duration = Duration::from_secs(15);

/// How long a waiting agent needs to hear of a change, by a poll each second, on a busy machine.
const HEARD: Duration = Duration::from_secs(3);

/// A container for one test.
struct Place {
    server: &'static Buckets,
    bench: Bench,
    container: String,
}

/// A program in Python. Dropping it kills it, as SIGKILL does.
struct Python {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Place {
    async fn new(name: &str) -> Self {
        let server = Buckets::shared(Kind::Azure);
        let container = format!("lease-{name}");
        server.create(&container).await;
        Self { server, bench: Bench::new(&container), container }
    }

    fn agent(&self, identity: &str, more: &[&str]) -> Running {
        self.agent_by(self.server.socket(), identity, more)
    }

    fn agent_by(&self, socket: &str, identity: &str, more: &[&str]) -> Running {
        let environment = self.server.environment(socket);
        let environment: Vec<_> = environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let lock = format!("az://{}/agents/report", self.container);
        let arguments = ["--azure-blob-lease", &lock, "--ttl", "15s", "--identity", identity];
        self.bench.start(&[&arguments, more].concat(), &["sh", "-c", &Bench::worker("")], &environment)
    }

    fn python(&self, what: &str) -> Python {
        let packages = tool("azure-storage-blob").join("../../..");
        let mut child = Command::new("python3")
            .arg(file("tests/agent/mutex.py"))
            .args([&self.container, "agents/report", what])
            .env("PYTHONPATH", packages)
            .envs(self.server.environment(self.server.socket()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python runs");
        let said = BufReader::new(child.stdout.take().expect("it has an output"));
        Python { child, said }
    }
}

impl Python {
    /// Waits for its next line, without keeping other tasks from running.
    fn says(&mut self) -> String {
        tokio::task::block_in_place(|| {
            let mut line = String::new();
            self.said.read_line(&mut line).expect("it says text");
            line.trim().to_owned()
        })
    }

    /// Waits until it has released its lease.
    fn release(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Shows A9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: fetches Azurite by npm, 360 MB"]
async fn an_agent_and_a_program_on_microsofts_pattern_exclude_each_other() {
    let place = Place::new("both").await;
    let bench = &place.bench;
    place.python("upload").release();
    let mut other = place.python("once");
    assert_eq!(other.says(), "leased");
    let listen = free_address();
    let mut agent = place.agent("one", &["--listen", &listen.to_string()]);
    agent.says("waiting for the lock leader=\"another program\"").await;
    assert_eq!(bench.begun(), []);
    let told = client().get(format!("http://{listen}/election")).send().await.expect("it answers");
    let told: Value = serde_json::from_str(&told.text().await.expect("a text")).expect("JSON");
    assert_eq!((&told["role"], &told["leader"]["name"]), (&json!("follower"), &json!("another program")), "{told}");

    let asked = Instant::now();
    other.release();
    bench.begins(1).await;
    assert!(asked.elapsed() < HEARD, "{:?}", asked.elapsed());
    assert_eq!(place.python("once").says(), "409 LeaseAlreadyPresent");
    assert_eq!(place.python("read").says(), "of the program us", "content and metadata stay");
    assert_eq!(agent.stop().await, Some(143));
    assert_eq!(place.python("once").says(), "leased", "the lease was released");
}

/// Only Azure's clock ends the lease of who is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: fetches Azurite by npm, 360 MB"]
async fn an_agent_begins_when_the_lease_of_a_program_that_was_killed_has_expired() {
    let place = Place::new("expired").await;
    place.python("upload").release();
    let asked = Instant::now();
    let mut other = place.python("once");
    assert_eq!(other.says(), "leased");
    let leased = Instant::now();
    drop(other);
    let agent = place.agent("one", &[]);
    agent.says("waiting for the lock leader=\"another program\"").await;
    place.bench.begins(1).await;
    assert!(asked.elapsed() >= TTL && leased.elapsed() < TTL + HEARD, "{:?} {:?}", asked.elapsed(), leased.elapsed());
}

/// Shows A2 and A3: whatever befalls the agent, its command has ended when another program can have the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: fetches Azurite by npm, 360 MB"]
async fn no_command_lives_when_a_program_on_microsofts_pattern_gets_the_lease() {
    for fault in ["KILL", "STOP", "CUT"] {
        let place = Place::new(&fault.to_lowercase()).await;
        let link = Link::to(place.server.socket());
        let agent = place.agent_by(link.address(), "one", &[]);
        let (_, command) = place.bench.begins(1).await;
        let mut other = place.python("wait");
        let began = Instant::now();
        match fault {
            "CUT" => link.disable().await,
            _ => signal(fault, &[agent.agent().await]),
        }
        assert_eq!(other.says(), "leased");
        let left = state(command).filter(|(state, _)| *state != 'Z');
        assert_eq!(left, None, "{fault}: the command lives when the other program has the lease");
        assert!(began.elapsed() < TTL + HEARD, "{fault} {:?}", began.elapsed());
        match fault {
            "CUT" => link.enable().await,
            "STOP" => signal("CONT", &[agent.agent().await]),
            _ => continue,
        }
        // A late renewal is refused.
        agent.says("waiting for the lock leader=\"another program\"").await;
        assert_eq!(place.bench.begun().len(), 1);
        other.release();
        place.bench.begins(2).await;
    }
}

/// Shows A5 and A9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: fetches Azurite by npm, 360 MB"]
async fn agents_name_themselves_in_the_metadata_and_lead_on_in_their_place() {
    let place = Place::new("agents").await;
    let bench = &place.bench;
    let mut first = place.agent("one", &["--advertise", "10.0.0.7:80"]);
    let (term, _) = bench.begins(1).await;
    let listen = free_address();
    let second = place.agent("two", &["--listen", &listen.to_string()]);
    second.says("waiting for the lock leader=\"one_").await;
    let told = client().get(format!("http://{listen}/election")).send().await.expect("it answers");
    let told: Value = serde_json::from_str(&told.text().await.expect("a text")).expect("JSON");
    assert_eq!((&told["term"], &told["leader"]["address"]), (&json!(term), &json!("10.0.0.7:80")), "{told}");
    assert_eq!(first.stop().await, Some(143));
    let released = Instant::now();
    let (next, command) = bench.begins(2).await;
    assert!(next > term && released.elapsed() < HEARD, "{:?}", released.elapsed());

    // Started again in its place, it leads on.
    signal("KILL", &[second.agent().await]);
    gone(command).await;
    let (again, started) = (place.agent("two", &[]), Instant::now());
    let (term, command) = bench.begins(3).await;
    assert!(term > next && started.elapsed() < TTL / 2, "{:?} {}", started.elapsed(), again.errors());

    // A person breaks the lease. The agent hears of it with its next renewal, and acquires the lease when it is over.
    assert!(place.python("break").says().parse::<u64>().expect("seconds") <= TTL.as_secs());
    let broken = Instant::now();
    gone(command).await;
    assert!(broken.elapsed() < TTL / 3 + HEARD, "{:?}", broken.elapsed());
    assert!(bench.begins(4).await.0 > term);
}
