//! What many clusters ask of one Consul: the real operator in each, in virtual time, beside one simulated Consul that counts. The clusters
//! are in pairs, each with elections of its own.
//!
//!     make scale     with up to 64 clusters; writes the tables into docs/scale.md

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use lictor::controller::Clients;
use lictor_consul::{Broken, Received, Sent, Transport};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::operator::{CONTROLLER, Started, start};
use crate::process::Simulated;
use crate::programs::Programs;
use crate::servers::api::{ApiServer, Change};
use crate::servers::client::{Listener, connect_by, kubernetes};
use crate::servers::consul::Consul;
use crate::servers::link::Link;
use crate::world::NAMESPACE;

/// Who leads, as pods show it: pods by their elections.
type Leaders = Arc<Mutex<BTreeMap<String, String>>>;

/// The elections that the clusters of a pair share.
const ELECTIONS: usize = 10;
/// The pods of an election in each cluster.
const PODS: usize = 2;
/// The replicas of the operator in each cluster, as the chart has it.
const REPLICAS: usize = 2;
/// How long it is looked at while nothing happens.
const REST: Duration = Duration::from_secs(120);
/// How long it takes at most until all elections are led.
const PATIENCE: Duration = Duration::from_secs(120);
/// What follows from a failover ends within this time.
const ECHO: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(20);

/// What is asked of Consul.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A blocking query for all keys of a class.
    Watch,
    /// A session is renewed.
    Renewal,
    /// A transaction, which Consul writes to its log.
    Write,
    /// All else: whether Consul answers, whose a session is, what is under a key.
    Other,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    kind: Kind,
    /// The length of the answer.
    bytes: usize,
}

#[derive(Default)]
struct Meter {
    /// At Consul.
    asked: Vec<Asked>,
    /// Writes at all API servers.
    writes: usize,
}

/// The way to Consul, which notes what is answered.
struct Noted {
    way: Arc<dyn Transport>,
    meter: Arc<Mutex<Meter>>,
}

impl Transport for Noted {
    fn send(&self, request: Sent) -> BoxFuture<'_, Result<Received, Broken>> {
        let path = request.url.path().trim_start_matches("/v1/").to_owned();
        let waits = request.url.query().is_some_and(|query| query.contains("index=") || query.contains("wait="));
        let kind = match path.split('/').take(2).collect::<Vec<_>>().as_slice() {
            ["session", "renew"] => Kind::Renewal,
            ["kv", _] if waits => Kind::Watch,
            ["txn"] => Kind::Write,
            _ => Kind::Other,
        };
        async move {
            let answer = self.way.send(request).await;
            let bytes = answer.as_ref().map_or(0, |answer| answer.body.len());
            self.meter.lock().unwrap().asked.push(Asked { at: Instant::now(), kind, bytes });
            answer
        }
        .boxed()
    }
}

/// How many clusters there are, and whether each pair has a prefix of its own.
#[derive(Clone, Copy, Debug)]
struct Size {
    clusters: usize,
    own_prefix: bool,
}

/// What was counted in a span of time.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    seconds: f64,
    requests: usize,
    watches: usize,
    renewals: usize,
    writes: usize,
    bytes: usize,
    /// The most requests in a second, and the most bytes.
    most: usize,
    most_bytes: usize,
    /// Writes at all API servers.
    api_writes: usize,
}

/// What became of a size.
#[derive(Clone, Copy, Debug)]
struct Measured {
    size: Size,
    rest: Counted,
    /// Every leader's pod was deleted at one moment.
    pods: Counted,
    /// In each pair, the cluster that leads more was gone at one moment.
    clusters: Counted,
}

struct World {
    size: Size,
    consul: Arc<Consul>,
    clusters: Vec<Cluster>,
    meter: Arc<Mutex<Meter>>,
}

struct Cluster {
    api: Arc<ApiServer>,
    leaders: Leaders,
    /// The process of each, and what it would be asked to end by.
    replicas: Vec<(Arc<Simulated>, Started)>,
}

impl World {
    fn new(size: Size) -> Self {
        let consul = Consul::new(1, 1000);
        tokio::spawn(consul.clone().keep_time());
        let mut world = Self { size, consul, clusters: Vec::new(), meter: Arc::default() };
        for number in 0..size.clusters {
            world.clusters.push(Cluster::new(number, size));
        }
        let begun = Instant::now();
        for (number, cluster) in world.clusters.iter_mut().enumerate() {
            for replica in 0..REPLICAS {
                let process = Simulated::new(1000, begun);
                let meter = world.meter.clone();
                let listener: Listener = Arc::new(move |method, _, _, _| {
                    meter.lock().unwrap().writes += usize::from(method != "GET");
                });
                let seed = u64::try_from(number * REPLICAS + replica).unwrap();
                let client = kubernetes(cluster.api.clone(), Link::new(2 * seed), listener);
                let meter = world.meter.clone();
                let noted = move |way| Arc::new(Noted { way, meter: meter.clone() }) as Arc<dyn Transport>;
                let nothing: Listener = Arc::new(|_, _, _, _| {});
                let clients = Clients::default().with_consul(connect_by(
                    world.consul.clone(),
                    Link::new(2 * seed + 1),
                    nothing,
                    noted,
                ));
                let dial = Arc::new(Programs::default()).dial();
                let started = start(&process, &format!("c{number}-o{replica}"), client, clients, dial);
                cluster.replicas.push((process, started));
            }
        }
        world
    }

    /// How many elections there are.
    fn elections(&self) -> usize {
        self.size.clusters / 2 * ELECTIONS
    }

    /// The elections that pods show a leader of, in these clusters.
    fn led(&self, only: impl Fn(usize) -> bool) -> BTreeSet<String> {
        let clusters = self.clusters.iter().enumerate().filter(|(number, _)| only(*number));
        clusters.flat_map(|(_, cluster)| cluster.leaders.lock().unwrap().keys().cloned().collect::<Vec<_>>()).collect()
    }

    /// Waits until all elections are led in these clusters. Returns how long that took.
    async fn wait_led(&self, only: impl Fn(usize) -> bool) -> Duration {
        let begun = Instant::now();
        while self.led(&only).len() < self.elections() {
            assert!(begun.elapsed() < PATIENCE, "{:?}: {} are led", self.size, self.led(&only).len());
            sleep(STEP).await;
        }
        begun.elapsed()
    }

    fn begin(&self) {
        *self.meter.lock().unwrap() = Meter::default();
    }

    /// What was asked since it began, which is so long ago.
    fn counted(&self, lasted: Duration) -> Counted {
        let meter = self.meter.lock().unwrap();
        let of = |kind: Kind| meter.asked.iter().filter(|asked| asked.kind == kind).count();
        let first = meter.asked.first().map_or_else(Instant::now, |asked| asked.at);
        let mut seconds = vec![(0, 0); usize::try_from(lasted.as_secs()).unwrap() + 60];
        for asked in &meter.asked {
            let (requests, bytes) = &mut seconds[usize::try_from((asked.at - first).as_secs()).unwrap()];
            (*requests, *bytes) = (*requests + 1, *bytes + asked.bytes);
        }
        Counted {
            seconds: lasted.as_secs_f64(),
            requests: meter.asked.len(),
            watches: of(Kind::Watch),
            renewals: of(Kind::Renewal),
            writes: of(Kind::Write),
            bytes: meter.asked.iter().map(|asked| asked.bytes).sum(),
            most: seconds.iter().map(|(requests, _)| *requests).max().unwrap_or_default(),
            most_bytes: seconds.iter().map(|(_, bytes)| *bytes).max().unwrap_or_default(),
            api_writes: meter.writes,
        }
    }

    async fn measure(self) -> Measured {
        self.wait_led(|_| true).await;
        // What follows from the start has ended by then.
        sleep(REST).await;
        self.begin();
        sleep(REST).await;
        let rest = self.counted(REST);

        self.begin();
        self.clusters.iter().for_each(Cluster::delete_leaders);
        let until = self.wait_led(|_| true).await;
        sleep(ECHO).await;
        let pods = Counted { seconds: until.as_secs_f64(), ..self.counted(until + ECHO) };

        sleep(REST).await;
        self.begin();
        let leads = |number: usize| self.clusters[number].leaders.lock().unwrap().len();
        let gone: Vec<usize> = (0..self.size.clusters)
            .step_by(2)
            .map(|first| first + usize::from(leads(first + 1) > leads(first)))
            .collect();
        gone.iter().flat_map(|gone| &self.clusters[*gone].replicas).for_each(|(process, _)| process.kill());
        let until = self.wait_led(|number| !gone.contains(&number)).await;
        sleep(ECHO).await;
        let clusters = Counted { seconds: until.as_secs_f64(), ..self.counted(until + ECHO) };
        for (process, _) in self.clusters.iter().flat_map(|cluster| &cluster.replicas) {
            process.kill();
        }
        Measured { size: self.size, rest, pods, clusters }
    }
}

impl Cluster {
    fn new(number: usize, size: Size) -> Self {
        let (api, pair, leaders) = (ApiServer::new(&format!("c{number}")), number / 2, Leaders::default());
        let shown = leaders.clone();
        api.observe(move |change| note(&mut shown.lock().unwrap(), change));
        api.edit("nodes", "", "n0", |node| {
            node["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        });
        let prefix = if size.own_prefix { format!("services/p{pair}") } else { "services".into() };
        api.edit("electionclasses", "", "consul", |class| {
            class["spec"] = json!({
                "controller": CONTROLLER, "keyTemplate": format!("{prefix}/{{namespace}}/{{name}}/leader"),
                "consul": {"address": "http://consul.example:8500", "clusterName": format!("c{number}")},
            });
        });
        for election in 0..ELECTIONS {
            let app = format!("p{pair}-e{election}");
            api.edit("leaderelections", NAMESPACE, &app, |object| {
                object["spec"] = json!({"className": "consul", "selector": {"matchLabels": {"app": app}}});
            });
            for pod in 0..PODS {
                api.edit("pods", NAMESPACE, &format!("{app}-{pod}"), |object| {
                    object["metadata"]["labels"] = json!({"app": app});
                    object["spec"] = json!({"nodeName": "n0", "containers": []});
                    object["status"] = json!({
                        "phase": "Running", "podIP": "10.0.0.1",
                        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                    });
                });
            }
        }
        Self { api, leaders, replicas: Vec::new() }
    }

    /// Deletes the pod of each leader here. Its election has another one.
    fn delete_leaders(&self) {
        let leaders = self.leaders.lock().unwrap().clone();
        for pod in leaders.values() {
            self.api.remove("pods", NAMESPACE, pod);
        }
    }
}

/// Takes a change of a pod.
fn note(leaders: &mut BTreeMap<String, String>, change: &Change) {
    let shown = |pod: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&pod["metadata"]["labels"]["app"]), text(&pod["metadata"]["name"]))
    };
    let leads = |pod: &&Value| pod["metadata"]["labels"]["role"] == "leader";
    if change.resource != "pods" {
        return;
    }
    if let Some((app, pod)) = change.before.as_deref().map(shown)
        && leaders.get(&app) == Some(&pod)
    {
        leaders.remove(&app);
    }
    leaders.extend(change.after.as_deref().filter(leads).map(shown));
}

fn measure(size: Size) -> Measured {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&1_u64.to_le_bytes()));
    builder.build().unwrap().block_on(async { World::new(size).measure().await })
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn share(of: usize, by: f64) -> f64 {
    of as f64 / by
}

/// A part of what was measured.
type Part = fn(&Measured) -> Counted;

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn tables(all: &[Measured]) -> String {
    let mut text = String::from(
        "| clusters | elections | prefix | requests at Consul, a minute for each cluster | of these: renewals | watches | answers read, a minute \
         for each cluster | requests at Consul, a second | answers, a second | writes at each API server, a minute |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let head = |measured: &Measured| {
        let Size { clusters, own_prefix } = measured.size;
        let prefix = if own_prefix { "one for each pair" } else { "one for all" };
        format!("| {clusters} | {} | {prefix}", clusters / 2 * ELECTIONS)
    };
    for measured in all {
        let Counted { seconds, requests, watches, renewals, bytes, api_writes, .. } = measured.rest;
        let minutes = seconds / 60.0 * measured.size.clusters as f64;
        let _ = writeln!(
            text,
            "{} | {:.1} | {:.1} | {:.1} | {} | {:.1} | {} | {:.1} |",
            head(measured),
            share(requests, minutes),
            share(renewals, minutes),
            share(watches, minutes),
            amount(share(bytes, minutes)),
            share(requests, seconds),
            amount(share(bytes, seconds)),
            share(api_writes, minutes),
        );
    }
    let parts: [(&str, Part); 2] = [
        ("Every leader's pod is deleted at one moment:", |measured| measured.pods),
        (
            "Each pair loses the cluster that leads more of its elections, all at one moment, with all operators there:",
            |measured| measured.clusters,
        ),
    ];
    for (what, of) in parts {
        let _ = write!(
            text,
            "\n{what}\n\n| clusters | elections | prefix | until all are led | requests at Consul for each election | of these: writes | watches \
             | most requests in a second | most read in a second | writes at API servers for each election |\n\
             |---|---|---|---|---|---|---|---|---|---|\n",
        );
        for measured in all {
            let Counted { seconds, requests, watches, writes, most, most_bytes, api_writes, .. } = of(measured);
            let elections = (measured.size.clusters / 2 * ELECTIONS) as f64;
            let _ = writeln!(
                text,
                "{} | {seconds:.2} s | {:.1} | {:.1} | {:.1} | {most} | {} | {:.1} |",
                head(measured),
                share(requests, elections),
                share(writes, elections),
                share(watches, elections),
                amount(most_bytes as f64),
                share(api_writes, elections),
            );
        }
    }
    text
}

fn amount(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 10_000.0 => format!("{:.1} KB", bytes / 1e3),
        bytes if bytes < 1_000_000.0 => format!("{:.0} KB", bytes / 1e3),
        bytes => format!("{:.1} MB", bytes / 1e6),
    }
}

/// What a cluster asks of Consul does not depend on how many others there are. Where they share a prefix, what it reads does.
#[test]
fn what_a_cluster_asks_of_consul_does_not_grow_with_the_number_of_clusters() {
    let of = |clusters: usize, own_prefix: bool| measure(Size { clusters, own_prefix });
    let (few, many, apart) = (of(2, false), of(8, false), of(8, true));
    let each = |measured: &Measured, all: usize| share(all, share(measured.size.clusters, 1.0));
    for measured in [&many, &apart] {
        let ratio = each(measured, measured.rest.requests) / each(&few, few.rest.requests);
        assert!((0.9..=1.1).contains(&ratio), "{ratio}: {measured:?}, {few:?}");
        let elections = share(measured.size.clusters / 2 * ELECTIONS, 1.0);
        assert!(share(measured.pods.writes, elections) < 3.0, "a failover is one write: {measured:?}");
        assert!(measured.pods.seconds < 2.0 && measured.clusters.seconds < 45.0, "{measured:?}");
    }
    let read = |measured: &Measured| each(measured, measured.rest.bytes) / each(&few, few.rest.bytes);
    assert!(read(&many) > 3.0, "with one prefix, all clusters read all: {many:?}, {few:?}");
    assert!(read(&apart) < 1.2, "with a prefix of its own, a pair reads its own: {apart:?}, {few:?}");
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/scale.md");
const BEGINS: &str = "<!-- from make scale -->\n";
const ENDS: &str = "<!-- end -->";

#[test]
#[ignore = "a table, which takes minutes: make scale"]
fn scale_of_one_consul() {
    let most = crate::seeds::number("LICTOR_CLUSTERS").map_or(64, |most| usize::try_from(most).unwrap());
    let mut all = Vec::new();
    for clusters in [2, 8, 16, 32, 64, 128, 256].into_iter().filter(|clusters| *clusters <= most) {
        for own_prefix in [false, true] {
            let begun = std::time::Instant::now();
            all.push(measure(Size { clusters, own_prefix }));
            eprintln!("{clusters} clusters: {:.1} s", begun.elapsed().as_secs_f64());
        }
    }
    // First those with one prefix for all.
    all.sort_by_key(|measured| measured.size.own_prefix);
    let tables = tables(&all);
    println!("{tables}");
    let page = std::fs::read_to_string(PAGE).expect("the page can be read");
    let begins = page.find(BEGINS).expect("the page has a place for the tables") + BEGINS.len();
    let ends = begins + page[begins..].find(ENDS).expect("that place ends");
    std::fs::write(PAGE, format!("{}{tables}{}", &page[..begins], &page[ends..])).expect("the page can be written");
}
