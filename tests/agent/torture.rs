//! Faults of processes, links and servers, one after the other, in several elections side by side: with a real Consul, a real API server and a real bucket.
//! The commands hold a lock on a file, which shows that two never run at once, and so do the daemons that they start.
//!
//!     make agents FAULTS=1000

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{Api, Patch, PatchParams};
use kube::config::Kubeconfig;
use lictor_testing::buckets::{self, Buckets};
use lictor_testing::consul::{Consul, Kind};
use lictor_testing::kubernetes::{Cluster, Lab};
use lictor_testing::{Disturbance, Link, Prng, Stream, eventually, free_address};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::Bench;
use crate::bench::{Running, children, state};

/// How many faults there are, where nobody says so.
const FAULTS: usize = 80;
/// Elections with their lock in Consul, in a Lease, and in a bucket: so many of each.
const GROUPS: usize = 2;
const AGENTS: usize = 3;
/// The shortest TTL of a Lease. That of Consul is `bench::TTL`.
const LEASE: Duration = Duration::from_secs(3);
const CONSUL: Duration = Duration::from_secs(10);
/// The shortest TTL for a bucket.
const BUCKET: Duration = Duration::from_secs(5);
/// The object that is the lock in a bucket.
const OBJECT: &str = "agents/report";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    AgentKilled,
    WatchdogKilled,
    ContainerKilled,
    AgentStopped,
    WatchdogStopped,
    /// The two that are named lictor, and neither the guard nor the command.
    BothStopped,
    /// Everything, for so short a time that nobody else can have the lock: a command that is stopped keeps the lock on the file.
    ContainerFrozen,
    Ended,
    CommandEnded,
    Yielded,
    LinkCut,
    LinkDeaf,
    LinkMute,
    LinkReset,
    LinkSlow,
    LinkLate,
    /// The session is destroyed, the Lease given to somebody else, or the object deleted, by hand.
    Robbed,
    ServerPaused,
}

const ALL: [What; 18] = [
    What::AgentKilled,
    What::WatchdogKilled,
    What::ContainerKilled,
    What::AgentStopped,
    What::WatchdogStopped,
    What::BothStopped,
    What::ContainerFrozen,
    What::Ended,
    What::CommandEnded,
    What::Yielded,
    What::LinkCut,
    What::LinkDeaf,
    What::LinkMute,
    What::LinkReset,
    What::LinkSlow,
    What::LinkLate,
    What::Robbed,
    What::ServerPaused,
];

/// Where the lock of an election is.
enum Store {
    Consul(Arc<Consul>),
    Lease(Lab),
    /// The server, and the bucket's name.
    Bucket(Arc<Buckets>, String),
}

/// The servers that elections share: who pauses one waits for its turn.
struct Servers {
    cluster: &'static Cluster,
    turn: Mutex<()>,
}

struct Candidate {
    running: Option<Running>,
    link: Link,
    listens: SocketAddr,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

/// How a candidate reaches its lock.
struct Way {
    link: Link,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

struct Group {
    store: Store,
    bench: Bench,
    candidates: Vec<Candidate>,
    prng: Prng,
    servers: Arc<Servers>,
    done: BTreeMap<What, usize>,
    kubeconfigs: Vec<PathBuf>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "slow: waits for sessions and Leases to end, after faults of all kinds"]
async fn no_fault_lets_two_commands_run_at_once() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    let faults = number("LICTOR_AGENT_FAULTS").unwrap_or(FAULTS);
    let seed = u64::try_from(number("LICTOR_SEED").unwrap_or(0)).unwrap_or_default();
    let name = format!("agents-{}", std::process::id());
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start_for_orders(&name)));
    let servers = Arc::new(Servers { cluster, turn: Mutex::new(()) });
    let consul = Arc::new(Consul::start(Kind::Dev));
    let buckets = Arc::new(Buckets::start(buckets::Kind::S3));
    let begun = Instant::now();
    let mut groups = vec![];
    for number in 0..3 * GROUPS {
        let store = match number / GROUPS {
            0 => Store::Consul(consul.clone()),
            1 => Store::Lease(Lab::of(cluster, &format!("agents-{number}")).await),
            _ => {
                let bucket = format!("agents-{number}");
                buckets.create(&bucket).await;
                Store::Bucket(buckets.clone(), bucket)
            }
        };
        let prng = Prng::new(seed * 100 + u64::try_from(number).expect("it is small"));
        groups.push(Group::new(number, store, prng, servers.clone()));
    }
    let each = faults.div_ceil(groups.len());
    let all = groups.into_iter().map(|mut group| {
        tokio::spawn(async move {
            group.leads().await;
            for _ in 0..each {
                group.fault().await;
            }
            group.leads().await;
            (group.judge(), std::mem::take(&mut group.done))
        })
    });
    let (mut commands, mut done) = (0, BTreeMap::new());
    for group in futures::future::join_all(all).await {
        let (begun, of_group) = group.expect("nothing went wrong");
        commands += begun;
        for (what, times) in of_group {
            *done.entry(what).or_insert(0) += times;
        }
    }
    let total: usize = done.values().sum();
    println!(
        "{total} faults of agents in {:.0} s, {commands} commands, never two at once: {done:?}",
        begun.elapsed().as_secs_f64()
    );
    assert!(total >= faults && commands > total / 4, "{commands} commands began");
    assert!(total < 10 * ALL.len() || done.len() == ALL.len(), "some kinds are missing: {done:?}");
}

impl Group {
    fn new(number: usize, store: Store, prng: Prng, servers: Arc<Servers>) -> Self {
        let bench = Bench::new(&format!("torture-{number}"));
        let mut group =
            Self { store, bench, candidates: vec![], prng, servers, done: BTreeMap::new(), kubeconfigs: vec![] };
        for candidate in 0..AGENTS {
            let listens = free_address();
            let Way { link, arguments: lock, environment } = group.way(candidate);
            let own = [
                "--identity",
                &format!("a{candidate}"),
                "--listen",
                &listens.to_string(),
                "--stay-away",
                "1s",
                "--stop-timeout",
                "2s",
            ];
            let arguments = lock.into_iter().chain(own.map(str::to_owned)).collect();
            group.candidates.push(Candidate { running: None, link, listens, arguments, environment });
            group.start(candidate);
        }
        group
    }

    /// Returns a candidate's way to its store, and what names its lock.
    fn way(&mut self, candidate: usize) -> Way {
        let mut environment = vec![];
        let (link, lock) = match &self.store {
            Store::Consul(consul) => {
                let link = Link::to(consul.server(1).socket());
                let address = format!("http://{}", link.address());
                let lock = ["--consul", &address, "--key", &self.bench.key, "--ttl", crate::bench::TTL];
                (link, lock.map(str::to_owned).to_vec())
            }
            Store::Lease(lab) => {
                let mut config = Kubeconfig::read_from(lab.cluster.kubeconfig()).expect("it can be read");
                let cluster = config.clusters[0].cluster.as_mut().expect("it has one");
                let server = cluster.server.clone().expect("it has an address");
                let link = Link::to(server.trim_start_matches("https://"));
                cluster.server = Some(format!("https://{}", link.address()));
                let path = self.bench.directory.join(format!("kubeconfig-{candidate}"));
                std::fs::write(&path, serde_json::to_string(&config).expect("it is JSON")).expect("it can be written");
                let lease = format!("{}/report", lab.namespace);
                let ttl = format!("{}s", LEASE.as_secs());
                let kubeconfig = path.to_str().expect("a path is text").to_owned();
                self.kubeconfigs.push(path);
                (link, vec!["--lease".into(), lease, "--kubeconfig".into(), kubeconfig, "--ttl".into(), ttl])
            }
            Store::Bucket(buckets, bucket) => {
                let link = Link::to(buckets.socket());
                environment = buckets.environment(link.address());
                let ttl = format!("{}s", BUCKET.as_secs());
                (link, vec!["--bucket".into(), format!("s3://{bucket}/{OBJECT}"), "--ttl".into(), ttl])
            }
        };
        Way { link, arguments: lock, environment }
    }

    fn ttl(&self) -> Duration {
        match self.store {
            Store::Consul(_) => CONSUL,
            Store::Lease(_) => LEASE,
            Store::Bucket(..) => BUCKET,
        }
    }

    fn start(&mut self, candidate: usize) {
        let candidate = &mut self.candidates[candidate];
        // Each third one does not care for SIGTERM, and each one leaves a daemon behind. They all inherit the file with the lock.
        let script = "exec 9>lock; flock -n 9 || { echo TWO >>log; exit 9; }\n\
                      [ $(($$ % 3)) != 0 ] || trap '' TERM\n\
                      setsid sleep 100000 &\n\
                      echo \"begin $LICTOR_TERM $$\" >>log; exec sleep 100000";
        let arguments: Vec<&str> = candidate.arguments.iter().map(String::as_str).collect();
        let environment: Vec<_> = candidate.environment.iter().map(|(name, value)| (&**name, &**value)).collect();
        candidate.running = Some(self.bench.start(&arguments, &["sh", "-c", script], &environment));
    }

    /// The command that began last, if it lives.
    fn command(&self) -> Option<i32> {
        let (_, pid) = *self.bench.begun().last()?;
        state(pid).is_some_and(|(state, _)| state != 'Z').then_some(pid)
    }

    /// Waits until a command lives.
    async fn leads(&mut self) {
        self.revive();
        eventually("a command lives", || async {
            self.command().ok_or_else(|| {
                let said = |candidate: &Candidate| candidate.running.as_ref().map(Running::errors).unwrap_or_default();
                self.candidates.iter().map(said).collect::<Vec<_>>().join("\n---\n")
            })
        })
        .await;
    }

    /// Starts again whoever has ended: each one is started again, as a kubelet or systemd does it.
    fn revive(&mut self) {
        for number in 0..AGENTS {
            if self.candidates[number].running.as_mut().is_none_or(Running::has_ended) {
                self.start(number);
            }
        }
    }

    /// Returns the watchdog and the agent of a candidate, if they run.
    fn chain(&self, candidate: usize) -> Option<(i32, i32)> {
        let watchdog = self.candidates[candidate].running.as_ref()?.watchdog();
        let guard = *children(watchdog).first()?;
        Some((watchdog, *children(guard).first()?))
    }

    /// Whose command lives, or else anybody.
    fn target(&mut self) -> usize {
        let led = self.command().and_then(state).map(|(_, agent)| agent).filter(|_| self.prng.percent(75));
        let leads = |number: &usize| led.is_some() && self.chain(*number).map(|(_, agent)| agent) == led;
        (0..AGENTS).find(leads).unwrap_or_else(|| self.prng.below(AGENTS))
    }

    fn milliseconds(&mut self, from: usize, to: usize) -> Duration {
        Duration::from_millis(u64::try_from(from + self.prng.below(to - from)).expect("it is small"))
    }

    async fn fault(&mut self) {
        let what = *self.prng.pick(&ALL).expect("there are some");
        self.revive();
        let target = self.target();
        // Seldom longer than others wait for the lock.
        let ttl = usize::try_from(self.ttl().as_millis()).expect("it is small");
        let longest = if self.prng.percent(70) { 3_000 } else { 5 * ttl / 2 };
        let lasts = self.milliseconds(100, longest);
        *self.done.entry(what).or_insert(0) += 1;
        match what {
            What::LinkCut | What::LinkDeaf | What::LinkMute | What::LinkReset | What::LinkSlow | What::LinkLate => {
                self.disturb(what, target, lasts).await;
            }
            What::Robbed => self.rob().await,
            What::ServerPaused => self.pause(lasts.min(Duration::from_secs(12))).await,
            What::Yielded => self.give_away(target),
            _ => self.harm(what, target, lasts).await,
        }
        let rest = self.milliseconds(0, 1_500);
        sleep(rest).await;
        if self.prng.percent(60) {
            self.leads().await;
        }
    }

    /// Does something to processes. What has ended by it is started again before the next fault.
    async fn harm(&mut self, what: What, target: usize, lasts: Duration) {
        let freeze = self.ttl().mul_f64(0.45).min(lasts);
        let Some((watchdog, agent)) = self.chain(target) else { return };
        match what {
            What::AgentStopped | What::WatchdogStopped | What::BothStopped => {
                let pids: &[i32] = match what {
                    What::AgentStopped => &[agent],
                    What::WatchdogStopped => &[watchdog],
                    _ => &[agent, watchdog],
                };
                send("STOP", pids);
                sleep(lasts).await;
                send("CONT", pids);
                return;
            }
            What::ContainerFrozen => {
                let all = [&[watchdog][..], &below(watchdog)].concat();
                send("STOP", &all);
                sleep(freeze).await;
                send("CONT", &all);
                return;
            }
            What::AgentKilled => send("KILL", &[agent]),
            What::WatchdogKilled => send("KILL", &[watchdog]),
            What::ContainerKilled => {
                let all = [&[watchdog][..], &below(watchdog)].concat();
                send("KILL", &all);
                // What was started meanwhile, the end of a container ends, too.
                for pid in all.iter().flat_map(|pid| below(*pid)) {
                    send("KILL", &[pid]);
                }
            }
            What::CommandEnded => {
                if let Some(command) = self.command() {
                    send("KILL", &[command]);
                }
                // Whose it was, ends.
                return sleep(lasts.min(Duration::from_secs(3))).await;
            }
            _ => send("TERM", &[watchdog]),
        }
        let running = self.candidates[target].running.as_mut().expect("it runs");
        running.ended().await;
        sleep(lasts.min(Duration::from_secs(3))).await;
    }

    async fn disturb(&self, what: What, target: usize, lasts: Duration) {
        let link = &self.candidates[target].link;
        let late =
            |by, jitter| Disturbance::Late { by: Duration::from_millis(by), jitter: Duration::from_millis(jitter) };
        match what {
            What::LinkCut => link.disable().await,
            What::LinkDeaf => link.disturb(Stream::Up, Disturbance::Lost).await,
            What::LinkMute => link.disturb(Stream::Down, Disturbance::Lost).await,
            What::LinkReset => {
                link.disturb(Stream::Down, Disturbance::Reset { after: Duration::from_millis(300) }).await;
            }
            What::LinkLate => link.disturb(Stream::Up, late(3000, 3000)).await,
            _ => {
                for stream in [Stream::Up, Stream::Down] {
                    link.disturb(stream, late(200, 150)).await;
                }
            }
        }
        sleep(lasts).await;
        link.clear().await;
        link.enable().await;
    }

    async fn rob(&self) {
        match &self.store {
            Store::Consul(consul) => {
                let key = consul.api().get(&format!("/v1/kv/{}", self.bench.key)).await;
                let Some(session) = key.ok().and_then(|key| Some(key.json()[0]["Session"].as_str()?.to_owned())) else {
                    return;
                };
                let _ = consul.api().put(&format!("/v1/session/destroy/{session}"), "").await;
            }
            Store::Lease(lab) => {
                let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
                    Api::namespaced(lab.client.clone(), &lab.namespace);
                let patch = Patch::Merge(json!({"spec": {"holderIdentity": "somebody"}}));
                let _ = leases.patch("report", &PatchParams::default(), &patch).await;
            }
            Store::Bucket(buckets, bucket) => buckets.delete(bucket, OBJECT).await,
        }
    }

    async fn pause(&self, lasts: Duration) {
        let _turn = self.servers.turn.lock().await;
        match &self.store {
            Store::Consul(consul) => {
                consul.server(1).pause();
                sleep(lasts).await;
                consul.server(1).resume();
            }
            Store::Lease(_) => {
                let cluster = self.servers.cluster;
                let order =
                    |order: &'static str| tokio::task::spawn_blocking(move || cluster.order(order, "kube-apiserver"));
                order("pause").await.expect("it is paused");
                sleep(lasts).await;
                order("resume").await.expect("it goes on");
            }
            Store::Bucket(..) => {
                for candidate in &self.candidates {
                    candidate.link.disturb(Stream::Up, Disturbance::Lost).await;
                }
                sleep(lasts).await;
                for candidate in &self.candidates {
                    candidate.link.clear().await;
                }
            }
        }
    }

    /// Asks an agent to yield. What it answers is another test's subject.
    fn give_away(&self, target: usize) {
        let Ok(mut stream) = TcpStream::connect(self.candidates[target].listens) else { return };
        let asked =
            write!(stream, "POST /yield HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        let _ = asked.and_then(|()| stream.read(&mut [0; 64]));
    }

    /// Looks at all that commands wrote. Returns how many there were.
    fn judge(&self) -> usize {
        let begun = self.bench.begun();
        let rises = begun.windows(2).all(|pair| pair[0].0 < pair[1].0);
        assert!(rises, "terms do not rise: {begun:?}");
        begun.len()
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bench.key)
    }
}

/// All processes below one, at any depth.
fn below(root: i32) -> Vec<i32> {
    let direct = children(root);
    direct.iter().copied().chain(direct.iter().flat_map(|pid| below(*pid))).collect()
}

/// Sends a signal to those of these processes that are still there.
fn send(name: &str, pids: &[i32]) {
    let mut kill = std::process::Command::new("kill");
    kill.arg(format!("-{name}")).args(pids.iter().map(i32::to_string)).stderr(std::process::Stdio::null());
    let _ = kill.status();
}
