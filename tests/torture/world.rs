//! The real servers, the operators, the links between them, and the groups.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, Config};
use lictor_core::{Marking, Markings};
use lictor_objects::{BucketSettings, Credentials};
use lictor_testing::buckets::{Buckets, Kind as Bucket};
use lictor_testing::consul::{Consul, Held, Kind as Servers};
use lictor_testing::kubernetes::Cluster;
use lictor_testing::{Link, eventually, free_address};
use serde_json::{Value, json};

use super::candidates;
use super::faults::CLUSTERS;
use super::operator::Replica;
use super::picture::Picture;
use super::record::{Group, Kind, Millis, What};
use super::recorder::{Book, PREFIX};
use super::windows::{REPLICAS, TTL};

/// The number of groups with their lock in a Lease, half of them in each cluster, and of those with it in Consul, in both.
const IN_LEASES: usize = 12;
const IN_CONSUL: usize = 12;
/// The number of groups with their lock in a bucket or a hub, half of them in each.
const IN_OBJECTS: usize = 6;
/// Where objects are: the classes of each cluster, and the links to these stores.
const OBJECTS: [&str; 2] = ["bucket", "hub"];
/// How the names of the groups begin whose pods hold a lock of their own.
const FOLLOWED: &str = "followed";
const NODES: usize = 5;
/// How long a planned switchover may take on a busy machine.
const MOVED_WITHIN: Duration = Duration::from_secs(10);

/// Everything.
pub struct World {
    pub book: Arc<Book>,
    pub client: Client,
    pub consul: &'static Consul,
    pub etcd: String,
    /// The replicas, by cluster and number.
    pub replicas: Vec<Vec<Replica>>,
    pub api_links: Vec<Vec<Link>>,
    /// By cluster and number: what leads to that replica, for the other one.
    pub peer_links: Vec<Vec<Link>>,
    /// The links to Consul, by cluster.
    pub consul_links: Vec<Link>,
    /// The links to the bucket and to the hub, by cluster.
    pub object_links: Vec<[Link; 2]>,
    bucket: BucketSettings,
    hub: Hub,
    /// The Consul server that each of these links leads to.
    pub consul_servers: Mutex<[usize; 2]>,
    /// What is disturbed at present.
    spoilt: Mutex<BTreeSet<String>>,
    control_plane: Arc<Held>,
    kubeconfig: PathBuf,
}

/// A control plane that keeps locks.
struct Hub {
    socket: String,
    /// A kubeconfig that names no files.
    kubeconfig: String,
    _cluster: Cluster,
}

impl Hub {
    fn start() -> Self {
        let cluster = Cluster::start(&format!("torture-hub-{}", std::process::id()), 1);
        let kubeconfig = cluster.kubectl(&["config", "view", "--raw", "--minify", "--flatten"]);
        let server = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: https://"));
        Self { socket: server.expect("TLS").trim_end_matches('/').into(), kubeconfig, _cluster: cluster }
    }
}

impl World {
    /// Starts all servers. There are no groups and no operators yet.
    pub async fn start(book: Arc<Book>, directory: &Path) -> Self {
        let control_plane =
            Held::start("cluster.sh", &[&format!("torture-{}", std::process::id()), &NODES.to_string(), "torture"]);
        let control_plane = Arc::new(control_plane);
        let kubeconfig = PathBuf::from(control_plane.variable().expect("hack/cluster.sh makes a control plane").1);
        let etcd = control_plane.variable().expect("it tells where etcd is").1;
        let consul: &'static Consul = Box::leak(Box::new(Consul::start(Servers::Three)));
        let given = Kubeconfig::read_from(&kubeconfig).expect("the kubeconfig can be read");
        let mut config =
            Config::from_custom_kubeconfig(given, &KubeConfigOptions::default()).await.expect("it is right");
        (config.default_retry, config.read_timeout) = (false, Some(Duration::from_secs(5)));
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let socket = server.strip_prefix("https://").expect("TLS").to_owned();
        let client = Client::try_from(config).expect("a client can be made");
        let (mut replicas, mut api_links, mut peer_links, mut consul_links) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (buckets, hub) = (Buckets::shared(Bucket::S3), Hub::start());
        let bucket = buckets.create("torture").await;
        let object_links = CLUSTERS.map(|_| [Link::to(buckets.socket()), Link::to(&hub.socket)]).into();
        for (at, cluster) in CLUSTERS.into_iter().enumerate() {
            consul_links.push(Link::to(consul.servers()[at].socket()));
            let (mut processes, mut links, mut peers) = (Vec::new(), Vec::new(), Vec::new());
            let addresses = [(); REPLICAS].map(|()| free_address());
            for address in addresses {
                peers.push(Link::to(&address.to_string()));
            }
            for number in 0..REPLICAS {
                let link = Link::to(&socket);
                let direct = std::fs::read_to_string(&kubeconfig).expect("the kubeconfig can be read");
                let own = directory.join(format!("kubeconfig-{cluster}-{number}"));
                let by_link = direct.replace(&server, &format!("https://{}", link.address()));
                assert_ne!(by_link, direct, "the kubeconfig names {server}");
                std::fs::write(&own, by_link).expect("a kubeconfig can be written");
                let peer = (addresses[number].port(), peers[(number + 1) % REPLICAS].address());
                processes.push(Replica::new(cluster, number, &own, peer, directory));
                links.push(link);
            }
            replicas.push(processes);
            api_links.push(links);
            peer_links.push(peers);
        }
        let (consul_servers, spoilt) = (Mutex::new([0, 1]), Mutex::default());
        Self {
            book,
            client,
            consul,
            etcd,
            replicas,
            api_links,
            peer_links,
            consul_links,
            object_links,
            bucket,
            hub,
            consul_servers,
            spoilt,
            control_plane,
            kubeconfig,
        }
    }

    /// Creates the clusters: CRDs, namespaces, classes, operators.
    pub async fn populate(&self) {
        eventually("the CRDs are served", || async {
            self.try_kubectl(&["apply", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/crds/lictor.dev.yaml")])?;
            self.try_kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"])
        })
        .await;
        for (at, cluster) in CLUSTERS.into_iter().enumerate() {
            let namespaces: Api<Namespace> = Api::all(self.client.clone());
            let namespace = serde_json::from_value(json!({"metadata": {"name": cluster}})).expect("a namespace");
            namespaces.create(&PostParams::default(), &namespace).await.expect("a namespace can be made");
            eventually("the namespace has its service account", || async {
                self.try_kubectl(&["-n", cluster, "get", "serviceaccount", "default"])
            })
            .await;
            self.class(cluster, self.consul_links[at].address()).await;
            self.object_classes(cluster, &self.object_links[at]).await;
        }
        self.replicas.iter().flatten().for_each(Replica::start);
    }

    /// Creates a cluster's classes and their Secrets.
    async fn class(&self, cluster: &str, address: &str) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), cluster);
        let variable = |name: &str| self.consul.variable(name).expect("there are three servers");
        let file = |name: &str| std::fs::read_to_string(variable(name)).expect("a file of the CA can be read");
        let certificate = json!({"tls.crt": file("CLIENT_CERT"), "tls.key": file("CLIENT_KEY")});
        for secret in [
            json!({"metadata": {"name": "ca"}, "stringData": {"ca.crt": file("CACERT")}}),
            json!({"metadata": {"name": "client"}, "type": "kubernetes.io/tls", "stringData": certificate}),
            json!({"metadata": {"name": "token"}, "stringData": {"token": variable("HTTP_TOKEN")}}),
        ] {
            let secret = serde_json::from_value(secret).expect("a Secret");
            secrets.create(&PostParams::default(), &secret).await.expect("a Secret can be made");
        }
        let consul = json!({
            "address": format!("https://{address}"), "clusterName": cluster, "sessions": {"ttlSeconds": TTL / 1_000},
            "tls": {"caSecretRef": {"name": "ca"}, "certSecretRef": {"name": "client"}, "serverName": "server.dc1.consul"},
            "tokenSecretRef": {"name": "token"},
        });
        let spec = json!({
            "controller": format!("torture/{cluster}"), "consul": consul,
            "keyTemplate": format!("{PREFIX}{{name}}"), "keyPattern": format!("{PREFIX}*"),
        });
        self.apply("ElectionClass", None, cluster, json!({"spec": spec})).await;
        let spec = json!({"controller": format!("torture/{cluster}"), "lease": {}});
        self.apply("ElectionClass", None, &format!("leases-{cluster}"), json!({"spec": spec})).await;
    }

    /// Creates a cluster's classes in the bucket and in the hub, with their Secrets.
    async fn object_classes(&self, cluster: &str, [to_bucket, to_hub]: &[Link; 2]) {
        let Credentials::Given(keys) = &self.bucket.credentials else { panic!("the server has an account") };
        let keys: BTreeMap<_, _> =
            keys.iter().map(|(name, key)| (name, String::from_utf8_lossy(key).into_owned())).collect();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), cluster);
        let kubeconfig = self.hub.kubeconfig.replace(&self.hub.socket, to_hub.address());
        for (name, data) in [("bucket", json!(keys)), ("hub", json!({"kubeconfig": kubeconfig}))] {
            let secret =
                serde_json::from_value(json!({"metadata": {"name": name}, "stringData": data})).expect("a Secret");
            secrets.create(&PostParams::default(), &secret).await.expect("a Secret can be made");
        }
        let sessions = json!({"ttlSeconds": TTL / 1_000});
        let endpoint = Buckets::shared(Bucket::S3).endpoint(to_bucket.address());
        let (bucket, hub) = (json!({"name": "bucket"}), json!({"name": "hub"}));
        let stores = [
            json!({"url": self.bucket.url, "endpoint": endpoint, "clusterName": cluster, "secretRef": bucket, "sessions": sessions}),
            json!({"namespace": "default", "clusterName": cluster, "kubeconfigSecretRef": hub, "sessions": sessions}),
        ];
        for (store, fields) in OBJECTS.into_iter().zip(stores) {
            let spec = json!({
                "controller": format!("torture/{cluster}"), store: fields,
                "keyTemplate": format!("{PREFIX}{{name}}"), "keyPattern": format!("{PREFIX}*"),
            });
            self.apply("ElectionClass", None, &format!("{store}-{cluster}"), json!({"spec": spec})).await;
        }
    }

    /// Creates all groups and their pods.
    pub async fn make_groups(&self) {
        for number in 0..IN_LEASES {
            let cluster = CLUSTERS[number % CLUSTERS.len()];
            self.group(number, &format!("lease{number:02}"), Kind::Leases, &[cluster]).await;
        }
        for number in 0..IN_CONSUL {
            self.group(number, &format!("shared{number:02}"), Kind::Consul, &CLUSTERS).await;
        }
        for number in 0..IN_OBJECTS {
            let store = OBJECTS[number % OBJECTS.len()];
            self.group(number, &format!("{store}{number:02}"), Kind::Objects, &CLUSTERS).await;
        }
        self.group(0, "importer", Kind::Workload, &CLUSTERS).await;
        for (number, cluster) in CLUSTERS.into_iter().enumerate() {
            // Without a Service: no order moves its leader.
            self.group(2 * number + 1, &format!("{FOLLOWED}{number:02}"), Kind::Leases, &[cluster]).await;
        }
    }

    async fn group(&self, number: usize, name: &str, kind: Kind, clusters: &[&str]) {
        let (mut spec, markings) = variant(number);
        let service = (kind != Kind::Workload && number.is_multiple_of(2)).then(|| format!("{name}-leader"));
        if let Some(service) = &service {
            spec["service"] = json!({"name": service});
        }
        let clusters: Vec<String> = clusters.iter().map(|cluster| (*cluster).to_owned()).collect();
        let group = Group {
            name: name.into(),
            kind,
            clusters: clusters.clone(),
            markings,
            service: service.clone(),
            followed: name.starts_with(FOLLOWED),
        };
        if kind == Kind::Leases && !group.followed && number == ENDS_FIRST {
            spec["handover"] = json!({"formerLeader": "DeleteFirst", "respectDisruptionBudgets": false});
        }
        if group.followed {
            let own = candidates::spec(&group);
            own.as_object().into_iter().flatten().for_each(|(name, value)| spec[name] = value.clone());
        }
        self.book.write(What::Group(group));
        for cluster in &clusters {
            if let Some(service) = &service {
                let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
                self.apply("Service", Some(cluster), service, json!({"spec": {"ports": ports}})).await;
            }
            let class = match kind {
                Kind::Leases => format!("leases-{cluster}"),
                Kind::Consul | Kind::Workload => cluster.clone(),
                Kind::Objects => format!("{}-{cluster}", name.trim_end_matches(char::is_numeric)),
            };
            spec["className"] = json!(class);
            if kind == Kind::Workload {
                let template = json!({
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "main", "image": "example/web"}], "terminationGracePeriodSeconds": 1},
                });
                let deployment =
                    json!({"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template});
                self.apply("Deployment", Some(cluster), name, json!({"spec": deployment})).await;
                spec = json!({"className": cluster, "workloads": [{"kind": "Deployment", "name": name}]});
            } else {
                spec["selector"] = json!({"matchLabels": {"app": name}});
            }
            self.apply("LeaderElection", Some(cluster), name, json!({"spec": spec})).await;
        }
        for (cluster, pod) in pods_of(kind, &clusters, name) {
            self.make_pod(&cluster, &pod).await.expect("a pod can be made");
        }
    }

    /// Creates a pod of a group, which becomes ready on a simulated node. It does not use the scheduler, which may need minutes
    /// to recover from a fault.
    pub async fn make_pod(&self, cluster: &str, name: &str) -> Result<(), kube::Error> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let app = name.rsplit_once('-').map_or(name, |(group, _)| group);
        let nodes: Vec<String> = (0..NODES).map(|node| format!("node-{node:06}")).collect();
        let open: Vec<&String> =
            self.book.look(|picture| nodes.iter().filter(|node| !picture.is_cordoned(node)).collect());
        let node = open.get(MADE.fetch_add(1, Ordering::Relaxed) % open.len().max(1));
        let object = json!({
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {
                "containers": [{"name": "main", "image": "example/web"}], "terminationGracePeriodSeconds": 1, "nodeName": node,
            },
        });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), cluster);
        pods.create(&PostParams::default(), &serde_json::from_value(object).expect("a pod")).await.map(drop)
    }

    /// Creates deleted pods again, as a controller would, and ends those that wait for that, until it is cancelled.
    pub async fn keep_pods(self: Arc<Self>) {
        loop {
            tokio::time::sleep(Duration::from_millis(700)).await;
            let missing: Vec<(String, String)> = self.book.look(|picture| {
                let groups = picture.groups.values();
                let all = groups.flat_map(|group| pods_of(group.kind, &group.clusters, &group.name));
                all.filter(|pod| !picture.pods.contains_key(pod)).collect()
            });
            let ending: Vec<(String, String)> = self.book.look(|picture| {
                let ends = picture.pods.iter().filter(|(_, pod)| pod.executes && pod.leaving && !pod.deleted);
                ends.map(|(pod, _)| pod.clone()).collect()
            });
            for (cluster, name) in ending {
                // Its containers have ended. A simulated node does not say so while the pod has a finalizer.
                let ended = json!({"status": {"phase": "Failed", "containerStatuses": []}});
                let pods: Api<Pod> = Api::namespaced(self.client.clone(), &cluster);
                let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(ended)).await;
            }
            for (cluster, name) in missing {
                // It may exist already, or the API server may be away: the next round finds out.
                let _ = self.make_pod(&cluster, &name).await;
            }
        }
    }

    /// Waits until none of these parts is disturbed, and reserves them. Returns false if that takes longer than until this
    /// moment.
    pub async fn take_turn(&self, parts: &[String], before: Instant) -> bool {
        while Instant::now() < before {
            {
                let mut spoilt = self.spoilt.lock().unwrap_or_else(PoisonError::into_inner);
                if parts.iter().all(|part| !spoilt.contains(part)) {
                    spoilt.extend(parts.iter().cloned());
                    return true;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        false
    }

    /// Ends the reservation.
    pub fn end_turn(&self, parts: &[String]) {
        self.spoilt.lock().unwrap_or_else(PoisonError::into_inner).retain(|part| !parts.contains(part));
    }

    /// Returns the groups that have no leader although a candidate could lead, or that lack a pod.
    pub fn unsettled(&self) -> Vec<String> {
        self.book.look(|picture| {
            let whole = |group: &&Group| {
                let pods = pods_of(group.kind, &group.clusters, &group.name);
                let ready =
                    pods.into_iter().all(|pod| picture.pods.get(&pod).is_some_and(|pod| pod.ready && !pod.leaving));
                ready && picture.leaders(group).len() == 1 && picture.is_routed(group)
            };
            picture.groups.values().filter(|group| !whole(group)).map(|group| group.name.clone()).collect()
        })
    }

    /// Moves the leader of each group that has its lock in a Lease and is routed, one after the other, while all works: every other one
    /// by a Switchover, and the rest by taking the leader out of service.
    pub async fn move_leaders(&self) {
        let groups = self.book.look(|picture| {
            let routed = |group: &&Group| group.kind == Kind::Leases && group.service.is_some();
            picture.groups.values().filter(routed).cloned().collect::<Vec<Group>>()
        });
        for (number, group) in groups.into_iter().enumerate() {
            let leader = self.book.look(|picture| match picture.leaders(&group).as_slice() {
                [leader] if picture.is_routed(&group) => Some(leader.clone()),
                _ => None,
            });
            let Some(leader) = leader else { continue };
            let annotate = |value: Value| {
                let patch = json!({"metadata": {"annotations": {"lictor.dev/never-leader": value}}});
                let (pods, name) = (self.pods(&leader.cluster), leader.name.clone());
                async move { pods.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await }
            };
            let term = self.term_of(&group, &leader.cluster).await.filter(|_| number % 2 == 1);
            self.book.write(What::Planned { group: group.name.clone(), begins: true });
            let began = Instant::now();
            if let Some(term) = term {
                static MADE: AtomicUsize = AtomicUsize::new(0);
                let name = format!("planned-{}", MADE.fetch_add(1, Ordering::Relaxed));
                let spec =
                    json!({"electionName": group.name, "fromTerm": term, "holdSeconds": 5, "deadlineSeconds": 10});
                self.ask(&leader.cluster, &name, &spec).await;
            } else {
                let _ = annotate(json!("true")).await;
            }
            let moved = |picture: &Picture| {
                let mut slices = picture.slices_of(&group).flat_map(|slice| &slice.addresses);
                slices.any(|(_, pod)| *pod != leader.id)
            };
            while began.elapsed() < MOVED_WITHIN && !self.book.look(moved) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            self.book.write(What::Planned { group: group.name.clone(), begins: false });
            if term.is_none() {
                let _ = annotate(Value::Null).await;
            }
        }
    }

    /// Waits until the record contains everything that has happened so far.
    pub async fn catch_up(&self) {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let mark = format!("mark-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "west");
        let at_once = DeleteParams::default().grace_period(0);
        eventually("the record has a mark", || async {
            let _ = self.make_pod("west", &mark).await;
            let seen = self.book.look(|picture| picture.pods.contains_key(&("west".into(), mark.clone())));
            if seen { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        let _ = pods.delete(&mark, &at_once).await;
    }

    /// Sends an order to the keeper of the control plane: `kill etcd`, `start kube-apiserver`, `pause` and `resume`. A kill waits
    /// while another control plane is being created.
    pub async fn control_plane(&self, order: String) {
        let held = self.control_plane.clone();
        tokio::task::spawn_blocking(move || held.order(&order)).await.expect("it can be ordered");
    }

    /// Returns the API of a kind, in a namespace if the kind has one.
    pub fn api_of(&self, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "Deployment" => ("apps", "v1"),
            "Lease" => ("coordination.k8s.io", "v1"),
            "Node" | "Service" => ("", "v1"),
            _ => ("lictor.dev", "v1alpha1"),
        };
        let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if kind == "ElectionClass" {
            resource.plural = "electionclasses".into();
        }
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    async fn apply(&self, kind: &str, namespace: Option<&str>, name: &str, mut object: Value) {
        let api = self.api_of(kind, namespace);
        let version = match kind {
            "Deployment" => "apps/v1",
            "Service" => "v1",
            _ => "lictor.dev/v1alpha1",
        };
        (object["apiVersion"], object["kind"], object["metadata"]) =
            (json!(version), json!(kind), json!({"name": name}));
        let parameters = PatchParams::apply("torture").force();
        api.patch(name, &parameters, &Patch::Apply(object)).await.expect("it can be applied");
    }

    fn try_kubectl(&self, arguments: &[&str]) -> Result<(), String> {
        let mut command = std::process::Command::new(lictor_testing::tool("kubectl"));
        let output =
            command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments).output().expect("kubectl starts");
        let said = || String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said()) }
    }
}

/// The number of the group whose former leader ends before another pod leads (E1).
const ENDS_FIRST: usize = 3;

/// The longest time that an election waits for a leader to recover.
pub const FAILOVER_DELAY: Millis = 2_000;

/// Returns how an election differs from others: further fields of its spec, and what it writes.
fn variant(number: usize) -> (Value, Markings) {
    let marking = |key: &str, value: &str| Marking {
        labels: [(key.to_owned(), value.to_owned())].into(),
        annotations: lictor_core::Pairs::default(),
    };
    let roles =
        Markings { leader: marking("role", "leader"), follower: marking("role", "follower"), ..Markings::default() };
    match number % 4 {
        0 => (json!({}), roles),
        1 => (json!({"handover": {"failoverDelaySeconds": FAILOVER_DELAY / 1_000}}), roles),
        2 => (json!({"preemption": "HigherPriority"}), roles),
        _ => {
            let own = Markings { leader: marking("example.com/active", "yes"), ..Markings::default() };
            (json!({"leader": {"labels": {"example.com/active": "yes"}}, "follower": {"labels": {}}}), own)
        }
    }
}

/// Returns the pods of a group, by cluster: three in one, or two in each of two.
fn pods_of(kind: Kind, clusters: &[String], name: &str) -> Vec<(String, String)> {
    let of = |cluster: &String, letters: &[&str]| -> Vec<(String, String)> {
        letters.iter().map(|letter| (cluster.clone(), format!("{name}-{letter}"))).collect()
    };
    match (kind, clusters) {
        (Kind::Leases, [cluster]) => of(cluster, &["a", "b", "c"]),
        (Kind::Consul | Kind::Objects, [one, other]) => [of(one, &["a", "b"]), of(other, &["c", "d"])].concat(),
        _ => Vec::new(),
    }
}
