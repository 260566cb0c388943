//! The examples of crates/locks, several processes of each, on a real API server and a real Consul: killed, stopped, asked to end, and beside programs with
//! client-go's and Consul's own libraries.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use lictor_locks::{Elector, Ended};
use lictor_testing::acts::{both, moment, spans};
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::{Lab, User};
use lictor_testing::{Candidate, eventually, program, tool};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Returns a program of crates/locks/examples.
fn example(name: &str) -> Command {
    let path = program().with_file_name("examples").join(name);
    assert!(path.exists(), "{} is missing: cargo build -p lictor-locks --examples", path.display());
    Command::new(path)
}

/// Where workers have their lock, and how long it lasts.
enum Place {
    Lease(Lab),
    Consul(&'static Consul, String),
}

/// A table, and the workers that write into it.
struct Bench {
    place: Place,
    table: PathBuf,
}

/// A row of the table.
#[derive(Clone, Debug)]
struct Row {
    term: i64,
    name: String,
    at: u64,
}

impl Bench {
    async fn lease(test: &str) -> Self {
        Self { place: Place::Lease(Lab::new(&format!("elector-{test}")).await), table: table(test) }
    }

    fn consul(test: &str) -> Self {
        let key = format!("electors/{test}-{}/leader", std::process::id());
        Self { place: Place::Consul(Consul::shared(), key), table: table(test) }
    }

    /// How long the lock lasts: the shortest time that the store allows.
    fn duration(&self) -> Duration {
        Duration::from_secs(match self.place {
            Place::Lease(_) => 3,
            Place::Consul(..) => 10,
        })
    }

    /// The lock, as the examples are told.
    fn lock(&self, mut example: Command) -> Command {
        match &self.place {
            Place::Lease(lab) => example
                .args(["lease", &format!("{}/report", lab.namespace)])
                .env("KUBECONFIG", lab.cluster.kubeconfig()),
            Place::Consul(consul, key) => example.args(["consul", consul.address(), key]),
        };
        example
    }

    fn worker(&self, name: &str, environment: &[(&str, &str)]) -> Candidate {
        let mut worker = example("worker");
        worker.arg(name).arg(&self.table);
        let mut worker = self.lock(worker);
        worker.arg(self.duration().as_secs().to_string()).envs(environment.iter().copied());
        Candidate::start(worker)
    }

    /// Returns the rows. No earlier leader has written after a later one.
    fn rows(&self) -> Vec<Row> {
        let text = std::fs::read_to_string(&self.table).unwrap_or_default();
        let row = |line: &str| {
            let mut words = line.split(' ');
            let mut next = || words.next().expect("a row has three columns");
            Row { term: next().parse().unwrap(), name: next().into(), at: next().parse().unwrap() }
        };
        let rows: Vec<Row> = text.lines().map(row).collect();
        assert!(rows.is_sorted_by_key(|row| row.term), "{rows:?}");
        rows
    }

    /// Waits until this worker writes. Returns its first row since then.
    async fn writes(&self, name: &str) -> Row {
        let since = moment();
        eventually(&format!("{name} writes"), || async {
            let row = self.rows().into_iter().find(|row| row.name == name && row.at >= since);
            row.ok_or_else(|| format!("the last row: {:?}", self.rows().last()))
        })
        .await
    }

    /// Stops a worker, but not within a transaction, which would keep the table locked.
    async fn stop(&self, worker: &Candidate) {
        eventually("the worker is stopped between two transactions", || async {
            worker.signal("STOP");
            if File::open(&self.table).expect("there is a table").try_lock().is_ok() {
                return Ok(());
            }
            worker.signal("CONT");
            Err("the table is locked".to_owned())
        })
        .await;
    }

    /// Asserts that these two never wrote at the same time.
    fn never_both(&self, one: &str, other: &str) {
        let spans_of = |name: &str| spans(self.rows().into_iter().filter(|row| row.name == name).map(|row| row.at));
        let both = both(&spans_of(one), &spans_of(other));
        assert!(both == 0.0, "{one} and {other} both wrote for {both} s");
    }

    /// What the leader answers at the address that a client finds in the lock.
    async fn answers(&self, expected: &str) {
        eventually("the leader answers", || async {
            let output = self.lock(example("client")).output().expect("the client runs");
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            if said == expected { Ok(()) } else { Err(said) }
        })
        .await;
    }
}

fn table(test: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("lictor-elector-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    directory.join("table")
}

/// Shows A2.
#[tokio::test]
async fn workers_with_a_lease_never_lead_at_once() {
    never_at_once(Bench::lease("lease").await, Duration::from_secs(6)).await;
}

#[tokio::test]
async fn workers_with_a_key_never_lead_at_once() {
    // Consul counts up to twice the TTL, and then the lock delay.
    never_at_once(Bench::consul("key"), Duration::from_secs(24)).await;
}

/// One leader is asked to end, the next one is killed, and the third is stopped for longer than its lock lasts.
async fn never_at_once(bench: Bench, longest: Duration) {
    let mut first = bench.worker("first", &[]);
    first.says("leads");
    let one = bench.writes("first").await;
    bench.answers(&format!("the leader in term {}\n", one.term)).await;

    let second = bench.worker("second", &[]);
    bench.writes("first").await;
    let asked = Instant::now();
    first.end().await;
    second.says("leads");
    // The lock was released.
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    let two = bench.writes("second").await;

    let third = bench.worker("third", &[]);
    bench.writes("second").await;
    second.signal("KILL");
    let killed = Instant::now();
    third.says("leads");
    assert!(killed.elapsed() < longest, "{:?}", killed.elapsed());
    let three = bench.writes("third").await;
    bench.answers(&format!("the leader in term {}\n", three.term)).await;

    let fourth = bench.worker("fourth", &[]);
    bench.writes("third").await;
    bench.stop(&third).await;
    fourth.says("leads");
    let four = bench.writes("fourth").await;
    third.signal("CONT");
    // Its work never went on, not even once: nothing was refused.
    third.says_next("follows");
    bench.writes("fourth").await;
    let terms = [one.term, two.term, three.term, four.term];
    assert!(terms.is_sorted_by(|earlier, later| earlier < later), "{terms:?}");
    for (one, other) in [("first", "second"), ("second", "third"), ("third", "fourth")] {
        bench.never_both(one, other);
    }
    // It takes part again.
    fourth.signal("KILL");
    third.says("leads");
    assert!(bench.writes("third").await.term > four.term);
}

/// Shows what the term is for: a thread that does not ask whether its leader still leads.
#[tokio::test]
async fn the_table_refuses_what_a_careless_thread_of_an_earlier_leader_writes() {
    let bench = Bench::lease("careless").await;
    let first = bench.worker("first", &[("CARELESS", "1")]);
    first.says("leads");
    let one = bench.writes("first").await;
    let second = bench.worker("second", &[]);
    bench.writes("first").await;
    bench.stop(&first).await;
    second.says("leads");
    let two = bench.writes("second").await;
    assert!(two.term > one.term);
    first.signal("CONT");
    first.says("refused");
    first.says("follows");
    bench.writes("second").await;
}

/// An elector in this process, with the rights that crates/locks/README.md names, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_knows_the_leaders_address_leads_after_it_and_yields() {
    let bench = Bench::lease("follower").await;
    let Place::Lease(lab) = &bench.place else { unreachable!() };
    let user = User::new(lab).await;
    let rights = ["get", "list", "watch", "patch", "create"];
    user.may(|verb, resource| resource == "leases" && rights.contains(&verb)).await;
    let mut worker = bench.worker("worker", &[]);
    let one = bench.writes("worker").await;

    let elector = Elector::lease(user.client().await, &lab.namespace, "report").duration(bench.duration()).unwrap();
    let mut leader = elector.leader();
    let run = tokio::spawn({
        let elector = elector.clone();
        async move { elector.run(|_| std::future::pending::<()>()).await }
    });
    let other = leader.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    assert!(!other.is_this && !elector.is_leader());
    let mut answer = String::new();
    let mut stream = TcpStream::connect(other.address.expect("it advertises one")).await.expect("it listens");
    stream.read_to_string(&mut answer).await.expect("it answers");
    assert_eq!(answer, format!("the leader in term {}\n", one.term));

    worker.end().await;
    let own = leader.wait_for(|leader| leader.as_ref().is_some_and(|leader| leader.is_this)).await.unwrap().clone();
    let leadership = elector.leadership().expect("it leads");
    assert!(leadership.term().0 > one.term && own.unwrap().term == Some(leadership.term()));

    let second = bench.worker("second", &[]);
    // It waits for the lock, so it has it at once.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = Instant::now();
    assert!(elector.yield_leadership());
    second.says("leads");
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    assert!(!leadership.is_valid() && !elector.is_leader());
    elector.stop();
    assert_eq!(run.await.unwrap(), Err(Ended::Stopped));
}

/// The same code as the agent's, so a single test of each kind.
#[tokio::test]
async fn a_worker_and_a_program_with_client_gos_library_exclude_each_other() {
    let bench = Bench::lease("client-go").await;
    let Place::Lease(lab) = &bench.place else { unreachable!() };
    let mut go = Command::new(tool("elector"));
    go.arg("--kubeconfig").arg(lab.cluster.kubeconfig()).args(["--namespace", &lab.namespace, "--name", "report"]);
    go.args(["--identity", "go", "--duration", "3s"]);
    let mut go = Candidate::start(go);
    go.says("leads");
    let mut worker = bench.worker("worker", &[]);
    // Longer than the Lease lasts without a renewal.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(bench.rows().is_empty());
    go.end().await;
    worker.says("leads");
    bench.writes("worker").await;

    let mut go = Command::new(tool("elector"));
    go.arg("--kubeconfig").arg(lab.cluster.kubeconfig()).args(["--namespace", &lab.namespace, "--name", "report"]);
    go.args(["--identity", "go", "--duration", "3s"]);
    let go = Candidate::start(go);
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.writes("worker").await;
    worker.end().await;
    go.says("leads");
    assert!(bench.rows().last().is_some_and(|row| row.at < moment()));
}

#[tokio::test]
async fn a_worker_and_a_program_with_consuls_library_exclude_each_other() {
    let bench = Bench::consul("api-lock");
    let Place::Consul(consul, key) = &bench.place else { unreachable!() };
    let mut go = Command::new(tool("locker"));
    let address = consul.address().trim_start_matches("http://");
    go.args(["--address", address, "--key", key, "--value", "go"]);
    let mut go = Candidate::start(go);
    go.says("leads");
    let worker = bench.worker("worker", &[]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(bench.rows().is_empty());
    go.end().await;
    worker.says("leads");
    bench.writes("worker").await;
}

/// The terms in a ConfigMap never go back, whichever replica reconciles.
#[tokio::test]
async fn one_of_two_replicas_of_a_controller_reconciles() {
    let lab = Lab::new("elector-controller").await;
    let replica = |name: &str| {
        let mut controller = example("controller");
        controller.args([&lab.namespace, name]).env("KUBECONFIG", lab.cluster.kubeconfig());
        Candidate::start(controller)
    };
    let greetings: Api<ConfigMap> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let greet = async |name: &str| {
        let new = json!({"metadata": {"name": name, "labels": {"greeting": ""}}});
        let new = serde_json::from_value(new).expect("a ConfigMap");
        greetings.create(&PostParams::default(), &new).await.expect("it can be created");
        greeted(&greetings, name, 0).await
    };
    let first = replica("first");
    first.says("leads");
    let one = greet("one").await;
    let mut second = replica("second");
    assert_eq!(greet("two").await, one, "the first one still leads");
    first.signal("KILL");
    second.says("leads");
    let two = greet("three").await;
    assert!(two > one, "{two} after {one}");
    // And what the first one has left.
    greeted(&greetings, "one", two).await;

    let third = replica("third");
    assert_eq!(greet("four").await, two);
    second.end().await;
    third.says("leads");
    assert!(greet("five").await > two);
}

/// Waits until a ConfigMap has a greeting, in this term or a later one. Returns the term.
async fn greeted(greetings: &Api<ConfigMap>, name: &str, least: i64) -> i64 {
    eventually("it is greeted", || async {
        let data = greetings.get(name).await.map_err(|error| error.to_string())?.data.unwrap_or_default();
        let term = data.get("term").and_then(|term| term.parse().ok());
        let greeted = data.get("greeting").is_some_and(|greeting| *greeting == format!("hello, {name}"));
        term.filter(|term| greeted && *term >= least).ok_or_else(|| format!("{data:?}"))
    })
    .await
}
