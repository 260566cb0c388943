//! Two clusters with two replicas of the operator each, which share a Consul, a bucket or a hub: in each an election whose lock is in a Lease, and
//! a part of one whose lock is in the shared store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lictor_core::{ClaimState, Term};
use lictor_locks::lease::ClaimUpdate;
use lictor_process::Process;
use lictor_testing::Prng;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::controllers::{CRON_JOB, collect_garbage, run_cron_job, run_deployment, run_kubelets};
use crate::excuse::{CONSUL_TTL, Condition, Loss, OBJECTS_TTL};
use crate::judge::{Group, Judge, WORKLOAD};
use crate::log::Log;
use crate::mill::Mill;
use crate::operator::{CONTROLLER, OWN_NAMESPACE, Started, own_lease, start};
use crate::process::Simulated;
use crate::programs::{Programs, address};
use crate::servers::api::{ApiServer, Object};
use crate::servers::bucket::Bucket;
use crate::servers::client::{Listener, Passing, Witness, kubernetes_seen};
use crate::servers::consul::Consul;
use crate::servers::link::{Link, Weather};
use crate::shared::{CLASS, Shared};
use crate::users::{NEEDED, Users, services};
use crate::words;

pub const CLUSTERS: [&str; 2] = ["west", "east"];
pub const NAMESPACE: &str = "shop";
/// The elections; that of "db" spans both clusters.
pub const APPS: [&str; 2] = ["web", "db"];
pub const PODS: usize = 3;
pub const REPLICAS: usize = 2;
const NODES: usize = 2;
/// How long the workload's pods may take to end, in seconds.
pub const GRACE: u64 = 10;

pub struct World {
    pub log: Log,
    pub judge: Arc<Mutex<Judge>>,
    pub shared: Shared,
    pub clusters: Vec<Cluster>,
    /// Whether the clusters write records in different layouts.
    pub differs: bool,
    begun: Instant,
}

pub struct Cluster {
    pub api: Arc<ApiServer>,
    pub programs: Arc<Programs>,
    pub users: Arc<Users>,
    pub mill: Mill,
    pub replicas: Vec<Replica>,
    /// What takes marks off pods.
    undoing: Mutex<Option<JoinHandle<()>>>,
}

/// A replica of the operator, and its ways to the servers.
pub struct Replica {
    pub name: String,
    rate: u32,
    pub to_api: Arc<Link>,
    pub to_store: Arc<Link>,
    starts: u32,
    running: Option<Running>,
}

struct Running {
    process: Arc<Simulated>,
    stop: watch::Sender<bool>,
    claim: watch::Receiver<ClaimUpdate>,
    /// Tells it that the process of a replica is gone.
    gone: mpsc::UnboundedSender<String>,
    /// It was asked to end.
    ends: bool,
    /// It is stopped.
    is_stopped: bool,
}

impl Replica {
    fn identity(&self) -> String {
        format!("{}#{}", self.name, self.starts)
    }

    /// Whether it runs and acts, by its own clock.
    fn acts(&self) -> bool {
        let running = self.running.as_ref().filter(|running| !running.is_stopped);
        running.is_some_and(|running| {
            matches!(running.claim.borrow().state, ClaimState::Acting(until) if running.process.monotonic() < until)
        })
    }

    /// What of it matters for what is promised.
    fn condition(&self, now: u64) -> Condition {
        let acts = self.running.as_ref().is_some_and(|running| !running.ends && !running.is_stopped);
        let from = |after: Duration| now + u64::try_from(after.as_millis()).unwrap_or(0);
        Condition {
            identity: acts.then(|| self.identity()),
            reaches_api: self.to_api.weather().lets_through().then(|| from(self.to_api.under_way())),
            hears_store: self.to_store.clears().map(from),
            well: self.to_api.clears().zip(self.to_store.clears()).map(|(api, store)| from(api.max(store))),
        }
    }
}

impl World {
    pub fn new(seed: u64, log: Log) -> Self {
        let mut prng = Prng::new(seed);
        let in_objects = seed % 3 == 1;
        let ttl = if in_objects { OBJECTS_TTL } else { CONSUL_TTL };
        let judge = Arc::new(Mutex::new(Judge::new(log.clone(), ttl)));
        // Clocks that differ by up to a hundredth, which is far more than real ones do.
        let mut rate = |around: u64| around - 5 + u64::try_from(prng.below(11)).unwrap_or(0);
        let consul = Consul::new(seed ^ 0xc0, rate(1000));
        let shared = if in_objects {
            Shared::Bucket(if seed % 4 == 3 { Bucket::hub() } else { Bucket::new(seed.is_multiple_of(2)) })
        } else {
            tokio::spawn(consul.clone().keep_time());
            Shared::Consul(consul)
        };
        let mut clusters = Vec::new();
        // Only Consul has several layouts.
        let differs = seed.is_multiple_of(8) && matches!(shared, Shared::Consul(_));
        for (number, name) in CLUSTERS.into_iter().enumerate() {
            let api = ApiServer::new(name);
            let (witness, told) = (judge.clone(), log.clone());
            api.observe(move |change| {
                told.note_some(|| words::change(name, change));
                witness.lock().unwrap().see(number, change);
            });
            let replicas = (0..REPLICAS).map(|replica| {
                let seed = seed.wrapping_mul(31) + u64::try_from(number * 16 + replica * 4).unwrap_or(0);
                Replica {
                    name: format!("{name}/o{replica}"),
                    rate: u32::try_from(rate(1000)).unwrap_or(1000),
                    to_api: Link::new(seed + 1),
                    to_store: Link::new(seed + 2),
                    starts: 0,
                    running: None,
                }
            });
            let replicas = replicas.collect();
            let layout = if differs && number == 1 { "LeaderName" } else { "Record" };
            furnish(&api, shared.spec(name, layout));
            let users = Users::new(api.clone(), log.clone(), name);
            tokio::spawn(users.clone().go_on());
            tokio::spawn(run_deployment(api.clone(), Prng::new(seed + 7)));
            let prng = |of: u64| Prng::new(seed.wrapping_mul(31) + 8 * of + u64::try_from(number).unwrap_or(0));
            tokio::spawn(run_cron_job(api.clone(), prng(1), judge.clone(), log.clone(), number));
            tokio::spawn(collect_garbage(api.clone(), prng(2), log.clone()));
            let mill = Mill::new(api.clone(), seed.wrapping_add(2 * u64::try_from(number).unwrap_or(0)));
            tokio::spawn(mill.clone().run(prng(3), judge.clone()));
            let programs = Arc::<Programs>::default();
            tokio::spawn(run_kubelets(api.clone(), programs.clone(), prng(4), log.clone()));
            clusters.push(Cluster { api, programs, users, mill, replicas, undoing: Mutex::default() });
        }
        shared.tell(judge.clone());
        tokio::spawn(watch_over(judge.clone(), shared.clone()));
        Self { log, judge, shared, clusters, differs, begun: Instant::now() }
    }

    /// All groups: what has to have one leader.
    pub fn groups() -> [Group; 4] {
        let group = |app: &str, cluster| Group { app: app.into(), cluster };
        [group("web", Some(0)), group("web", Some(1)), group("db", None), group(WORKLOAD, None)]
    }

    // The replicas

    /// The replica that holds the operator's Lease of a cluster, if it runs, and its name in it.
    fn holder(&self, cluster: usize) -> Option<(usize, String)> {
        let lease = self.clusters[cluster].api.get("leases", OWN_NAMESPACE, &own_lease())?;
        let holder = lease["spec"]["holderIdentity"].as_str()?;
        let of = |replica: &Replica| replica.running.is_some() && replica.identity() == holder;
        Some((self.clusters[cluster].replicas.iter().position(of)?, holder.to_owned()))
    }

    /// The other replicas of a cluster believe that the process is gone of the one that holds the operator's Lease. Returns that one.
    pub fn take_for_gone(&self, cluster: usize) -> Option<usize> {
        let (number, holder) = self.holder(cluster)?;
        for (_, other) in self.clusters[cluster].replicas.iter().enumerate().filter(|(other, _)| *other != number) {
            if let Some(running) = &other.running {
                self.log.note(|| format!("{} takes {holder} for gone", other.identity()));
                let _ = running.gone.send(holder.clone());
            }
        }
        Some(number)
    }

    /// The clusters in which more than one replica acts, by its own clock, and runs.
    pub fn both_act(&self) -> Vec<usize> {
        let both =
            |cluster: &usize| self.clusters[*cluster].replicas.iter().filter(|replica| replica.acts()).count() > 1;
        (0..self.clusters.len()).filter(both).collect()
    }

    /// Starts a replica, unless it runs.
    pub fn start(&mut self, cluster: usize, replica: usize) {
        let api = self.clusters[cluster].api.clone();
        let dial = self.clusters[cluster].programs.dial();
        let (shared, log, begun) = (self.shared.clone(), self.log.clone(), self.begun);
        let replica = &mut self.clusters[cluster].replicas[replica];
        if replica.running.is_some() {
            return;
        }
        replica.starts += 1;
        let identity = replica.identity();
        log.note(|| format!("{identity} starts"));
        let process = Simulated::new(replica.rate, begun);
        let told = identity.clone();
        let judge = self.judge.clone();
        let listener: Listener = Arc::new(move |method, path, body, status| {
            judge.lock().unwrap().request(&told, method, path, status);
            log.note_some(|| words::request(&told, method, path, body, status));
        });
        let (judge, told) = (self.judge.clone(), identity.clone());
        let witness: Witness = Arc::new(move |passing| {
            let (Passing::Sent(request) | Passing::Answered(request, _)) = passing;
            if request.path.contains("/leases") {
                judge.lock().unwrap().pass_by(cluster, &told, passing);
            }
        });
        let client = kubernetes_seen(api, replica.to_api.clone(), listener.clone(), witness);
        let clients = shared.clients(replica.to_store.clone(), listener);
        let Started { stop, claim, gone } = start(&process, &identity, client, clients, dial);
        replica.running = Some(Running { process, stop, claim, gone, ends: false, is_stopped: false });
    }

    /// As SIGKILL.
    pub fn kill(&mut self, cluster: usize, replica: usize) {
        let replica = &mut self.clusters[cluster].replicas[replica];
        if let Some(running) = replica.running.take() {
            self.log.note(|| format!("{} is killed", replica.identity()));
            running.process.kill();
        }
    }

    /// As SIGTERM.
    pub fn terminate(&mut self, cluster: usize, replica: usize) {
        let replica = &mut self.clusters[cluster].replicas[replica];
        let identity = replica.identity();
        if let Some(running) = &mut replica.running {
            self.log.note(|| format!("{identity} is asked to end"));
            running.ends = true;
            let _ = running.stop.send(true);
        }
    }

    /// As SIGSTOP, or SIGCONT.
    pub fn freeze(&mut self, cluster: usize, replica: usize, stopped: bool) {
        let replica = &mut self.clusters[cluster].replicas[replica];
        let identity = replica.identity();
        if let Some(running) = &mut replica.running {
            let what = if stopped { "is stopped" } else { "goes on" };
            self.log.note(|| format!("{identity} {what}"));
            running.is_stopped = stopped;
            if stopped { running.process.stop() } else { running.process.go_on() }
        }
    }

    /// The wall clock of a replica's machine jumps.
    pub fn jump(&self, cluster: usize, replica: usize, by: i64) {
        let replica = &self.clusters[cluster].replicas[replica];
        if let Some(running) = &replica.running {
            self.log.note(|| format!("the wall clock of {} jumps by {by} ms", replica.name));
            running.process.jump(by);
            self.judge.lock().unwrap().jump();
        }
    }

    /// All ways are open, and all replicas run.
    pub fn repair(&mut self) {
        for cluster in 0..CLUSTERS.len() {
            for number in 0..REPLICAS {
                self.freeze(cluster, number, false);
                let replica = &self.clusters[cluster].replicas[number];
                replica.to_api.change(|weather| *weather = Weather::default());
                replica.to_store.change(|weather| *weather = Weather::default());
                self.start(cluster, number);
            }
            self.clusters[cluster].users.settle();
            self.clusters[cluster].undo(None);
            self.clusters[cluster].set_available(true);
        }
    }

    /// Tells the judge how all replicas are.
    pub fn tell(&self) {
        let (mut judge, now) = (self.judge.lock().unwrap(), self.log.now());
        for (number, cluster) in self.clusters.iter().enumerate() {
            for (replica, of) in cluster.replicas.iter().enumerate() {
                judge.replica(number, replica, of.condition(now));
            }
        }
    }

    pub fn shutdown(&mut self) {
        for cluster in 0..CLUSTERS.len() {
            for replica in 0..REPLICAS {
                self.kill(cluster, replica);
            }
        }
    }
}

/// Tells the judge that time passes, and which locks Consul gives away. A take-over by a standby rests on Consul's keeping a session
/// for twice the TTL; everything else on what Consul promises, which is the TTL.
async fn watch_over(judge: Arc<Mutex<Judge>>, shared: Shared) {
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let expired = shared.expired();
        let mut judge = judge.lock().unwrap();
        judge.pass();
        for cluster in expired {
            judge.lose(cluster, Loss::Expired);
        }
        for cluster in 0..CLUSTERS.len() {
            shared.keep_for_long(cluster, !judge.is_settled(cluster));
        }
    }
}

/// Makes what an API server has at the beginning.
fn furnish(api: &ApiServer, (kind, store): (&str, Value)) {
    for node in 0..NODES {
        api.edit("nodes", "", &format!("n{node}"), |node| {
            node["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        });
    }
    api.edit("electionclasses", "", CLASS, |class| class["spec"] = json!({"controller": CONTROLLER, kind: store}));
    for (name, replicas) in [(WORKLOAD, 0), (NEEDED, 1)] {
        api.edit("deployments", NAMESPACE, name, |deployment| {
            deployment["spec"] = json!({
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"spec": {"terminationGracePeriodSeconds": GRACE}},
            });
        });
    }
    set_available(api, true);
    api.edit("cronjobs", NAMESPACE, CRON_JOB, |cron_job| {
        cron_job["spec"] = json!({
            "schedule": "* * * * *", "suspend": true,
            "jobTemplate": {"spec": {"template": {"spec": {"containers": []}}}},
        });
    });
    for app in APPS {
        for service in services(app) {
            api.edit("services", NAMESPACE, &service, |service| {
                service["spec"] = json!({
                    "type": "ClusterIP", "ipFamilies": ["IPv4"],
                    "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}],
                });
            });
        }
        (0..PODS).for_each(|pod| create_pod(api, &format!("{app}-{pod}")));
    }
}

/// A pod that is ready.
pub fn create_pod(api: &ApiServer, name: &str) {
    let app = name.split('-').next().unwrap_or_default();
    let node = usize::from(name.ends_with('1')) % NODES;
    api.edit("pods", NAMESPACE, name, |pod| {
        pod["metadata"]["labels"] = json!({"app": app, "tier": app});
        pod["spec"] = json!({"nodeName": format!("n{node}"), "containers": []});
        pod["status"] = json!({
            "phase": "Running", "podIP": address(name),
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        });
    });
}

fn edit_pod(api: &ApiServer, name: &str, edit: impl FnOnce(&mut Value)) {
    if api.get("pods", NAMESPACE, name).is_some() {
        api.edit("pods", NAMESPACE, name, edit);
    }
}

fn set_ready(api: &ApiServer, name: &str, ready: bool) {
    let ready = if ready { "True" } else { "False" };
    edit_pod(api, name, |pod| pod["status"]["conditions"][0]["status"] = json!(ready));
}

/// Whether the Deployment is available that has to be where the workloads run.
fn set_available(api: &ApiServer, available: bool) {
    let status = if available { "True" } else { "False" };
    api.edit("deployments", NAMESPACE, NEEDED, |deployment| {
        deployment["status"] = json!({"replicas": 1, "conditions": [{"type": "Available", "status": status}]});
    });
}

impl Cluster {
    /// From now on this takes marks off pods, or nobody does.
    pub fn undo(&self, task: Option<JoinHandle<()>>) {
        if let Some(before) = std::mem::replace(&mut *self.undoing.lock().unwrap(), task) {
            before.abort();
        }
    }

    /// Makes a pod that is ready.
    pub fn create_pod(&self, name: &str) {
        create_pod(&self.api, name);
        self.programs.start(name);
    }

    /// The program of a pod ends. Its kubelet shows that after this time, if none runs there by then.
    pub fn kill_program(&self, pod: &str, shown_after: Duration) {
        self.programs.kill(pod);
        let (api, programs, pod) = (self.api.clone(), self.programs.clone(), pod.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(shown_after).await;
            if !programs.listens(&pod) {
                set_ready(&api, &pod, false);
            }
        });
    }

    /// Whether the Deployment is available that has to be where the workloads run.
    pub fn set_available(&self, available: bool) {
        set_available(&self.api, available);
    }

    /// The highest term that pods or the status of an election tell of.
    pub fn known_term(&self, app: &str) -> Term {
        let term = |value: &Value| value.as_str().and_then(|text| text.parse().ok()).map(Term);
        let pods = (0..PODS).filter_map(|number| self.pod(&format!("{app}-{number}")));
        let told = pods.filter_map(|pod| term(&pod["metadata"]["annotations"]["lictor.dev/term"]));
        let election = self.api.get("leaderelections", NAMESPACE, app);
        let status = election.and_then(|election| election["status"]["term"].as_i64()).map(Term);
        told.chain(status).max().unwrap_or_default()
    }

    pub fn pod(&self, name: &str) -> Option<Object> {
        self.api.get("pods", NAMESPACE, name)
    }

    /// Changes a pod that is there, as a person or its kubelet would.
    pub fn edit_pod(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        edit_pod(&self.api, name, edit);
    }

    pub fn set_ready(&self, name: &str, ready: bool) {
        set_ready(&self.api, name, ready);
    }

    /// As the node controller taints a node that it has lost.
    pub fn set_lost(&self, node: &str, lost: bool) {
        self.api.edit("nodes", "", node, |node| {
            node["spec"] = if lost {
                json!({"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]})
            } else {
                json!({})
            };
        });
    }
}
