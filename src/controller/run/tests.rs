//! The work of one decision, in instructions that Valgrind counts, which must not grow with the number of elections.
//!
//! The loop is real, and so are its decisions. The API server is a map of objects, clocks stand still, and only the loop is counted:
//! [`take_one`]. Everything is in one namespace, which is the worst case.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use lictor_api::{Classes, DEFAULT_CONTROLLER, resolve};
use lictor_core::{
    ELECTION_ANNOTATION, Holder, Key, Node, Pairs, Pod, Record, Selector, Setting, Stored, TERM_ANNOTATION, Term,
    Timestamp, WorkloadId, WorkloadKind,
};
use lictor_process::{Process, spawn_in};
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use tower::service_fn;

use super::*;
use crate::controller::names::Namespace;
use crate::controller::{Clients, dialer};
use crate::kubernetes::WorkloadObject;
use crate::store::{LeaseStore, StoreScope};

/// How many further elections there are in the process that Valgrind runs.
const ELECTIONS: &str = "LICTOR_COUNTED_AMONG";
const NAMESPACE: &str = "scale";
const PODS: usize = 3;
const NODES: usize = 100;
/// How much the counted work may grow, in percent.
const GROWTH: u64 = 10;

/// A process whose clocks stand still, so that only the test makes things happen.
struct Still;

impl Process for Still {
    fn monotonic(&self) -> Instant {
        Instant::after_origin(Duration::from_secs(1000))
    }

    fn wall(&self) -> Timestamp {
        Timestamp(1_800_000_000_000)
    }

    fn started(&self, _: AbortHandle) {}

    fn is_stopped(&self, _: &Waker) -> bool {
        false
    }
}

/// The API server: objects by path. Watches get no answer, because the test itself sends their events.
#[derive(Default)]
struct Server {
    objects: BTreeMap<String, Value>,
    version: u64,
}

impl Server {
    fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = (1_000_000 + self.version).to_string().into();
        self.objects.insert(path.into(), object.clone());
        object
    }

    fn answer(&mut self, method: &Method, path: &str, query: &str, body: &[u8]) -> (u16, Value) {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        match method.as_str() {
            "GET" if self.objects.contains_key(path) => (200, self.objects[path].clone()),
            "GET" if query.contains("labelSelector") => (200, self.list(path, query)),
            "POST" => {
                let name = body["metadata"]["name"].as_str().unwrap_or("event").to_owned();
                (201, self.put(&format!("{path}/{name}"), body))
            }
            "PATCH" => {
                let path = path.strip_suffix("/status").unwrap_or(path);
                let Some(mut object) = self.objects.get(path).cloned() else { return not_found() };
                merge(&mut object, &body);
                (200, self.put(path, object))
            }
            "DELETE" => match self.objects.remove(path) {
                Some(object) => (200, object),
                None => not_found(),
            },
            _ => not_found(),
        }
    }

    /// Only the label selectors with equality are applied.
    fn list(&self, path: &str, query: &str) -> Value {
        let query = query.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/");
        let selector = query.split('&').find_map(|part| part.strip_prefix("labelSelector=")).unwrap_or_default();
        let terms: Vec<(&str, &str)> = selector.split(',').filter_map(|term| term.split_once('=')).collect();
        let matches = |object: &&Value| {
            terms.iter().all(|(key, value)| object["metadata"]["labels"][key] == value.trim_start_matches('='))
        };
        let inside = self.objects.range(format!("{path}/")..format!("{path}0")).map(|(_, object)| object);
        let items: Vec<&Value> = inside.filter(matches).collect();
        json!({"metadata": {"resourceVersion": (1_000_000 + self.version).to_string()}, "items": items})
    }
}

fn not_found() -> (u16, Value) {
    (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}))
}

/// A merge patch: RFC 7386.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *object = patch.clone() };
    for (key, value) in patch {
        match value {
            Value::Null => drop(object.as_object_mut().and_then(|object| object.remove(key))),
            Value::Object(_) => {
                if !object[key].is_object() {
                    object[key] = json!({});
                }
                merge(&mut object[key], value);
            }
            _ => object[key] = value.clone(),
        }
    }
}

/// The counted work: the loop takes one input, and decides the consequences.
#[inline(never)]
fn take_one(controller: &mut Controller, input: Input) {
    controller.take(input);
    controller.step(false);
}

/// The point at which Valgrind writes down its count since the last visit.
#[inline(never)]
fn counted_until_here(what: &str) {
    println!("counted: {}", std::hint::black_box(what));
}

fn labels(pairs: &[(&str, &str)]) -> Pairs {
    pairs.iter().copied().collect()
}

/// An election that selects the pods of an app. `rich`: the election also has a workload, and a Service that no other election names.
fn election(app: &str, rich: bool) -> Value {
    let mut object = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection",
        "metadata": {
            "namespace": NAMESPACE, "name": app, "uid": format!("election-{app}"), "resourceVersion": "10", "generation": 1,
            "creationTimestamp": "2026-11-22T00:00:00Z",
        },
        "spec": {"selector": {"matchLabels": {"app": app, "tier": "web"}}},
    });
    if rich {
        object["spec"]["workloads"] = json!([{"kind": "Deployment", "name": format!("importer-{app}")}]);
        object["spec"]["service"] = json!({"name": format!("{app}-leader")});
    }
    object
}

fn read_election(object: &Value) -> (Version, Uid, LeaderElection) {
    let election: LeaderElection = serde_json::from_value(object.clone()).unwrap();
    (version_of(&election), Uid(election.metadata.uid.clone().unwrap()), election)
}

fn pod_json(app: &str, number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": NAMESPACE, "name": format!("{app}-{number}"), "uid": format!("pod-{app}-{number}"),
            "resourceVersion": "10", "labels": {"app": app, "tier": "web", "pod-template-hash": "5d9c"},
        },
        "spec": {"nodeName": format!("node-{}", app.len() + number), "containers": [{"name": "web"}]},
        "status": {
            "phase": "Running", "podIP": "10.0.0.7",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-22T00:00:00Z"}],
        },
    })
}

fn read_pod(object: &Value) -> Pod {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let map = |value: &Value| -> Pairs { serde_json::from_value(value.clone()).unwrap_or_default() };
    let metadata = &object["metadata"];
    Pod {
        name: text(&metadata["name"]),
        uid: Uid(text(&metadata["uid"])),
        version: Version(text(&metadata["resourceVersion"]).parse().unwrap()),
        labels: map(&metadata["labels"]),
        annotations: map(&metadata["annotations"]),
        node: Some(text(&object["spec"]["nodeName"])),
        ip: Some("10.0.0.7".into()),
        ready: object["status"]["conditions"][0]["status"] == "True",
        ..Pod::default()
    }
}

/// A pod of an election that has had a leader for a long time.
fn settled_pod(app: &str, number: usize) -> Pod {
    let mut pod = read_pod(&pod_json(app, number));
    pod.labels.insert("role".into(), if number == 0 { "leader" } else { "follower" }.into());
    pod.annotations = labels(&[(ELECTION_ANNOTATION, app), (TERM_ANNOTATION, "1")]);
    pod
}

fn workload(app: &str, version: u64) -> WorkloadObject {
    WorkloadObject {
        namespace: NAMESPACE.into(),
        id: WorkloadId { kind: WorkloadKind::Deployment, name: format!("importer-{app}") },
        uid: Uid(format!("workload-{app}")),
        version: Version(version),
        setting: Setting::Replicas(1),
        claim: None,
        template: None,
        selector: Selector { match_labels: labels(&[("app", &format!("importer-{app}"))]), ..Selector::default() },
        pod_labels: Pairs::default(),
        grace: 30,
        one_by_one: false,
        deleting: false,
        finished: false,
        idle: false,
        available: true,
        owner: None,
        tick: None,
        setter: None,
    }
}

struct Lab {
    controller: Controller,
    server: Arc<Mutex<Server>>,
    claim: watch::Sender<ClaimUpdate>,
}

impl Lab {
    fn new() -> Self {
        let server = Arc::new(Mutex::new(Server::default()));
        let answers = server.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = answers.clone();
            async move {
                let (head, body) = request.into_parts();
                let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
                if !path.contains("/namespaces/") || query.contains("watch=") {
                    return std::future::pending().await;
                }
                let body = body.collect_bytes().await.unwrap();
                let (status, answer) = server.lock().unwrap().answer(&head.method, &path, &query, &body);
                let answer = Response::builder().status(status).body(Body::from(serde_json::to_vec(&answer).unwrap()));
                Ok::<_, std::io::Error>(answer.unwrap())
            }
        });
        let client = Client::new(service, NAMESPACE);
        let (claim, receiver) = watch::channel(ClaimUpdate::default());
        let timeout = Duration::from_secs(1000);
        let namespaces = Namespaces::default();
        let parameters = Parameters {
            purpose: Purpose::Serve,
            client: client.clone(),
            namespaces: namespaces.clone(),
            controller: DEFAULT_CONTROLLER.into(),
            identity: "a".into(),
            lease_duration: Duration::from_secs(15),
            own_namespace: "lictor".into(),
            request_timeout: timeout,
            leases: Arc::new(LeaseStore::new(client, namespaces, timeout)),
            clients: Clients::default(),
            dial: dialer(),
            doubt: Arc::default(),
        };
        let controller = Controller::new(parameters, receiver, Metrics::default(), Health::default()).unwrap();
        Self { controller, server, claim }
    }

    /// Sends the first lists of all watches, with this many elections. This replica acts, and has nothing to do for any of them.
    fn list(&mut self, elections: usize, rich: bool) {
        let apps: Vec<String> = (0..elections).map(|number| format!("web-{number}")).collect();
        let record = |app: &str| {
            let (_, uid, object) = read_election(&election(app, false));
            let spec = resolve(&object, &Classes::new(), DEFAULT_CONTROLLER).unwrap().unwrap();
            let uid_of_pod = Uid(format!("pod-{app}-0"));
            let holder = Holder { pod: Some(format!("{app}-0")), uid: uid_of_pod, node: None, ip: None };
            let record = Record {
                leaving: Vec::new(),
                term: Term(1),
                term_by_version: false,
                holder: Some(holder),
                operator_id: format!("{DEFAULT_CONTROLLER}#before"),
                since: Timestamp(0),
                election: uid,
                election_name: app.into(),
                generation: 1,
                scope: spec.scope,
                former: Vec::new(),
                drain_obligation: None,
                switchover: None,
                offer: None,
            };
            (spec.key, Version(10), Stored::Ours(Version(10), record))
        };
        let scope = StoreScope { store: StoreId::leases(), namespace: None };
        let version = Version(10);
        let nodes = (0..NODES).map(|number| (format!("node-{number}"), Node::default())).collect();
        let pods = apps.iter().flat_map(|app| (0..PODS).map(|number| (NAMESPACE.into(), settled_pod(app, number))));
        let objects = apps.iter().map(|app| read_election(&election(app, rich))).collect();
        let controller = &mut self.controller;
        controller.take(Input::Classes(Change::All(None, version, Vec::new())));
        controller.take(Input::Nodes(Change::All(None, version, nodes)));
        controller.take(Input::Pods(Change::All(None, version, pods.collect())));
        controller.take(Input::Elections(Change::All(None, version, objects)));
        controller.take(Input::Switchovers(Change::All(None, version, Vec::new())));
        let records = apps.iter().map(|app| record(app)).collect();
        controller.take(Input::Records(StoreEvent::All(scope, version, records)));
        if rich {
            let workloads = apps.iter().map(|app| workload(app, 10)).collect();
            controller.take(Input::Workloads(WorkloadKind::Deployment, Change::All(None, version, workloads)));
        }
        // A standby replica decides nothing, whatever was marked.
        while controller.index.dirty_count() > 0 {
            controller.step(false);
        }
        controller.acting = true;
        controller.index.act();
        let acting = ClaimState::Acting(Instant::after_origin(Duration::from_secs(1_000_000)));
        self.claim.send_replace(ClaimUpdate { state: acting, ..ClaimUpdate::default() });
    }

    /// Lets the loop take an input, and handle all its consequences.
    async fn take(&mut self, input: Input) {
        take_one(&mut self.controller, input);
        let mut quiet = 0;
        while quiet < 200 {
            tokio::task::yield_now().await;
            match self.controller.inputs.try_recv() {
                Ok(Input::Claim(_)) => {}
                Ok(input) => {
                    quiet = 0;
                    take_one(&mut self.controller, input);
                }
                Err(_) => quiet += 1,
            }
        }
    }

    fn change(&self, kind: &str, name: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut server = self.server.lock().unwrap();
        let path = path(kind, name);
        let mut object = server.objects.get(&path).unwrap_or_else(|| panic!("{path}")).clone();
        change(&mut object);
        server.put(&path, object)
    }

    fn leader(&self, app: &str) -> String {
        let server = self.server.lock().unwrap();
        let role = |pod: &String| server.objects.get(&path("pods", pod)).map(|pod| &pod["metadata"]["labels"]["role"]);
        let pods: Vec<String> = (0..PODS).map(|number| format!("{app}-{number}")).collect();
        let leaders: Vec<&String> = pods.iter().filter(|pod| role(pod).is_some_and(|role| role == "leader")).collect();
        assert_eq!(leaders.len(), 1, "{leaders:?} of {app}");
        leaders[0].clone()
    }

    async fn delete_leader(&mut self, app: &str) {
        let leader = self.leader(app);
        let mut pod = read_pod(&self.change("pods", &leader, |_| {}));
        self.server.lock().unwrap().objects.remove(&path("pods", &leader));
        pod.version.0 += 1;
        self.take(Input::Pods(Change::Deleted((NAMESPACE.into(), pod)))).await;
        assert_ne!(self.leader(app), leader);
    }
}

fn path(kind: &str, name: &str) -> String {
    match kind {
        "pods" => format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}"),
        _ => format!("/apis/lictor.dev/v1alpha1/namespaces/{NAMESPACE}/{kind}/{name}"),
    }
}

/// The counted steps, in this order.
async fn live(elections: usize, rich: bool) {
    let mut lab = Lab::new();
    lab.list(elections, rich);
    // glibc sorts all freed blocks when a caller asks for a large one, which is no work of the loop.
    drop(std::hint::black_box(vec![0_u8; 100_000]));
    counted_until_here("setup");

    let app = "counted";
    for number in 0..PODS {
        let pod = lab.server.lock().unwrap().put(&path("pods", &format!("{app}-{number}")), pod_json(app, number));
        lab.take(Input::Pods(Change::Applied((NAMESPACE.into(), read_pod(&pod))))).await;
    }
    counted_until_here("three pods of no election appear");

    let object = lab.server.lock().unwrap().put(&path("leaderelections", app), election(app, false));
    lab.take(Input::Elections(Change::Applied(read_election(&object)))).await;
    lab.leader(app);
    counted_until_here("an election is made, and led");

    let object = lab.change("leaderelections", app, |_| {});
    lab.take(Input::Elections(Change::Applied(read_election(&object)))).await;
    counted_until_here("an election's status is told");

    let follower = (0..PODS).map(|number| format!("{app}-{number}")).find(|pod| *pod != lab.leader(app)).unwrap();
    let pod = lab.change("pods", &follower, |pod| pod["status"]["conditions"][0]["status"] = "False".into());
    lab.take(Input::Pods(Change::Applied((NAMESPACE.into(), read_pod(&pod))))).await;
    let pod = lab.change("pods", &follower, |pod| pod["status"]["conditions"][0]["status"] = "True".into());
    lab.take(Input::Pods(Change::Applied((NAMESPACE.into(), read_pod(&pod))))).await;
    counted_until_here("a follower is not ready, and ready again");

    lab.delete_leader(app).await;
    counted_until_here("a leader is deleted, and replaced");

    let key = Key::lease(NAMESPACE, app);
    let (version, stored) = lab.controller.index.locks.get(&key).unwrap().clone();
    let stored = Arc::unwrap_or_clone(stored);
    lab.take(Input::Records(StoreEvent::Changed(key, Version(version.0 + 1), stored))).await;
    counted_until_here("a lock is told");

    let stray = json!({"metadata": {"labels": {"app": "stray", "tier": "web"}}});
    let mut pod = pod_json("stray", 0);
    merge(&mut pod, &stray);
    lab.take(Input::Pods(Change::Applied((NAMESPACE.into(), read_pod(&pod))))).await;
    counted_until_here("a pod of no election is told");

    // No pod runs on this node.
    let node = Node { cordoned: true, ..Node::default() };
    lab.take(Input::Nodes(Change::Applied((format!("node-{}", NODES - 1), node)))).await;
    counted_until_here("a node is cordoned");

    let object = lab.server.lock().unwrap().objects.remove(&path("leaderelections", app)).unwrap();
    let (version, uid, object) = read_election(&object);
    lab.take(Input::Elections(Change::Deleted((Version(version.0 + 1), uid, object)))).await;
    assert!(
        lab.controller.index.objects.entries_mut().all(|entry| entry.object.name() != app),
        "nothing is left of it"
    );
    counted_until_here("an election is deleted");

    if rich {
        let object = election("richer", true);
        take_one(&mut lab.controller, Input::Elections(Change::Applied(read_election(&object))));
        counted_until_here("an election with a workload and a Service is made");
        take_one(
            &mut lab.controller,
            Input::Workloads(WorkloadKind::Deployment, Change::Applied(workload("richer", 20))),
        );
        counted_until_here("a workload is told");
    }
}

/// Runs in Valgrind, or alone to see that it works.
/// A new election takes the name of one that is gone, and its candidates hold a lock themselves, so that lock is followed, too.
#[tokio::test]
async fn an_election_that_waited_for_its_name_is_followed() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let namespace = Namespace::from(NAMESPACE.to_owned());
    for stands_by in [false, true] {
        let mut lab = Lab::new();
        lab.list(1, false);
        let controller = &mut lab.controller;
        let mut object = election("web-0", false);
        let (_, uid, gone) = read_election(&object);
        controller.take(Input::Elections(Change::Deleted((Version(11), uid, gone))));
        object["metadata"]["uid"] = "anew".into();
        object["metadata"]["resourceVersion"] = "12".into();
        object["spec"]["electedBy"] = "Candidates".into();
        object["spec"]["followedLock"] = json!({"lease": {"name": "web-lock"}});
        controller.take(Input::Elections(Change::Applied(read_election(&object))));
        let name = namespace.election("web-0");
        assert_eq!(controller.followed.of(&name), None, "it waits");
        if stands_by {
            controller.stand_by();
        } else {
            controller.index.bury(&name);
        }
        controller.step(false);
        assert_eq!(controller.followed.of(&name), Some(&FollowedLock::Unread), "{stands_by}");
    }
}

#[test]
fn what_is_counted_works() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let number = std::env::var(ELECTIONS).ok().and_then(|number| number.parse().ok()).unwrap_or(20);
    for rich in [false, true] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let process: Arc<dyn Process> = Arc::new(Still);
        runtime.block_on(async { spawn_in(&process, live(number, rich)).await }).unwrap();
    }
}

/// The instructions of each counted step, among this many elections.
fn count(elections: usize, directory: &Path) -> Vec<(String, u64)> {
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir_all(directory).unwrap();
    let module = module_path!();
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={module}::take_one"))
        .arg(format!("--dump-before={module}::counted_until_here"))
        .arg(format!("--callgrind-out-file={}", directory.join("counted").display()))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg(format!("{}::what_is_counted_works", module.split_once("::").unwrap().1))
        .env(ELECTIONS, elections.to_string())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let names = told.lines().filter_map(|line| line.split_once("counted: ")).map(|(_, what)| what.to_owned());
    let totals = (1..).map_while(|number| std::fs::read_to_string(directory.join(format!("counted.{number}"))).ok());
    let total = |dump: String| {
        let line = dump.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
        line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
    };
    names.zip(totals.map(total)).filter(|(what, _)| what != "setup").collect()
}

#[test]
#[ignore = "takes minutes, and Valgrind: make instructions"]
fn one_decision_is_as_much_work_among_ten_thousand_elections_as_among_ten() {
    let target = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("counted");
    let many: usize = std::env::var(ELECTIONS).ok().and_then(|number| number.parse().ok()).unwrap_or(10_000);
    let (few, many) = (count(10, &target.join("few")), count(many, &target.join("many")));
    let mut grown = Vec::new();
    for ((what, before), (same, after)) in few.iter().zip(&many) {
        assert_eq!(what, same);
        println!("{what:<52} {before:>12} {after:>14} {:>6} %", after * 100 / before.max(&1));
        if *after > before + before * GROWTH / 100 {
            grown.push(what);
        }
    }
    assert!(few.len() == 20 && few.len() == many.len() && few.iter().all(|(_, count)| *count > 0), "{few:?}");
    assert!(grown.is_empty(), "this is more work among more elections: {grown:#?}");
}
