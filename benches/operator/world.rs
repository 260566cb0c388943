//! A control plane for one part, whose API server counts the operator's requests separately.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use axum::http::Request;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use lictor_api::LeaderElection;
use lictor_testing::kubernetes::{Cluster, Operator};
use serde_json::{Value, json};

/// The namespace of the operator and of its own Lease.
pub const SYSTEM: &str = "lictor-system";
/// Returns the name of the operator's own Lease.
pub fn own_lease() -> String {
    lictor_api::DEFAULT_CONTROLLER.replace('/', "-")
}

/// The priority level of all requests that are counted.
const LEVEL: &str = "lictor-bench";

struct Flow {
    kind: &'static str,
    verbs: &'static [&'static str],
    groups: &'static [&'static str],
    resources: &'static [&'static str],
    namespace: &'static str,
}

/// The operator's requests by kind. Each kind is a FlowSchema, because the API server counts by those. The first one that fits
/// counts.
const FLOWS: [Flow; 14] = [
    Flow { kind: "watch", verbs: &["watch"], groups: &["*"], resources: &["*"], namespace: "*" },
    Flow {
        kind: "own-lease-write",
        verbs: &["create", "update", "patch"],
        groups: &["coordination.k8s.io"],
        resources: &["leases"],
        namespace: SYSTEM,
    },
    Flow {
        kind: "lease-create",
        verbs: &["create"],
        groups: &["coordination.k8s.io"],
        resources: &["leases"],
        namespace: "*",
    },
    Flow {
        kind: "lease-update",
        verbs: &["update", "patch", "delete"],
        groups: &["coordination.k8s.io"],
        resources: &["leases"],
        namespace: "*",
    },
    Flow {
        kind: "lease-get",
        verbs: &["get"],
        groups: &["coordination.k8s.io"],
        resources: &["leases"],
        namespace: "*",
    },
    Flow { kind: "pod-patch", verbs: &["update", "patch"], groups: &[""], resources: &["pods"], namespace: "*" },
    Flow { kind: "pod-get", verbs: &["get"], groups: &[""], resources: &["pods"], namespace: "*" },
    Flow { kind: "pod-list", verbs: &["list"], groups: &[""], resources: &["pods"], namespace: "*" },
    Flow {
        kind: "election-status",
        verbs: &["update", "patch"],
        groups: &["lictor.dev"],
        resources: &["leaderelections/status"],
        namespace: "*",
    },
    Flow {
        kind: "election-patch",
        verbs: &["update", "patch"],
        groups: &["lictor.dev"],
        resources: &["leaderelections"],
        namespace: "*",
    },
    Flow {
        kind: "election-get",
        verbs: &["get"],
        groups: &["lictor.dev"],
        resources: &["leaderelections"],
        namespace: "*",
    },
    Flow {
        kind: "event-write",
        verbs: &["create", "update", "patch"],
        groups: &["", "events.k8s.io"],
        resources: &["events"],
        namespace: "*",
    },
    Flow { kind: "other-list", verbs: &["list"], groups: &["*"], resources: &["*"], namespace: "*" },
    Flow { kind: "other", verbs: &["*"], groups: &["*"], resources: &["*"], namespace: "*" },
];
const WRITES: [&str; 7] = [
    "own-lease-write",
    "lease-create",
    "lease-update",
    "pod-patch",
    "election-status",
    "election-patch",
    "event-write",
];

/// A control plane.
pub struct World {
    cluster: Cluster,
    directory: PathBuf,
    /// A client with all rights. It is not the operator's user.
    pub client: Client,
    /// The names of the simulated nodes.
    pub nodes: Vec<String>,
}

/// The number of requests of each kind that the operator has sent.
#[derive(Clone, Debug, Default)]
pub struct Requests(BTreeMap<String, f64>);

impl Requests {
    /// Returns the requests after `before`.
    pub fn since(&self, before: &Self) -> Self {
        let less = |kind: &String, count: &f64| count - before.0.get(kind).copied().unwrap_or_default();
        Self(self.0.iter().map(|(kind, count)| (kind.clone(), less(kind, count))).collect())
    }

    /// Returns the requests of one kind.
    pub fn of(&self, kind: &str) -> f64 {
        self.0.get(kind).copied().unwrap_or_default()
    }

    /// Returns all requests but watches.
    pub fn but_watches(&self) -> f64 {
        self.0.iter().filter(|(kind, _)| *kind != "watch").map(|(_, count)| count).sum()
    }

    /// Returns the requests that write.
    pub fn writes(&self) -> f64 {
        WRITES.iter().map(|kind| self.of(kind)).sum()
    }

    /// Returns the requests by kind, where there are any.
    pub fn to_json(&self) -> Value {
        self.0.iter().filter(|(_, count)| **count != 0.0).map(|(kind, count)| (kind.clone(), json!(count))).collect()
    }
}

impl World {
    /// Starts it.
    pub async fn start(part: &str) -> anyhow::Result<Self> {
        eprintln!("{part}: a control plane is started");
        let cluster = Cluster::start(&format!("bench-{part}-{}", std::process::id()), 3);
        let directory = std::env::temp_dir().join(format!("lictor-bench-{part}-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        // From here on, the directory is deleted with the world.
        let client = cluster.client().await;
        let mut world = Self { cluster, directory, client, nodes: Vec::new() };
        world.cluster.install_crds();
        world.apply(&user())?;
        let token = world.kubectl(&["create", "token", "lictor", "-n", SYSTEM, "--duration=12h"], None)?;
        let kubeconfig = world.kubeconfig();
        fs::copy(world.cluster.kubeconfig(), &kubeconfig)?;
        let file = kubeconfig.to_str().context("the path of the kubeconfig is text")?;
        let token = format!("--token={}", token.trim());
        world.kubectl(&["--kubeconfig", file, "config", "set-credentials", "lictor", &token], None)?;
        world.kubectl(&["--kubeconfig", file, "config", "set-context", "--current", "--user=lictor"], None)?;
        let nodes = Api::<Node>::all(world.client.clone()).list(&ListParams::default()).await?;
        world.nodes = nodes.items.iter().map(ResourceExt::name_any).collect();
        Ok(world)
    }

    /// Returns the operator's kubeconfig: its own user, with a service account's token.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// Makes a client like the operator's, with the same user and the same connection settings.
    pub async fn operators_client(&self) -> anyhow::Result<Client> {
        Ok(lictor::kubernetes::connect(Some(&self.kubeconfig()), Duration::from_secs(5)).await?)
    }

    /// Makes another client, for a watcher.
    pub async fn another_client(&self) -> Client {
        self.cluster.client().await
    }

    /// Starts an operator with the defaults of a user.
    pub fn operator(&self) -> Operator {
        self.operator_with(&["--lease-namespace", SYSTEM, "--peer-address", "127.0.0.1", "--peer-port", "0"])
    }

    /// Starts an operator with these arguments.
    pub fn operator_with(&self, arguments: &[&str]) -> Operator {
        Operator::start(&self.kubeconfig(), arguments, &[])
    }

    /// Creates a service account that may do everything, whose requests [`World::requests`] counts under its name. Returns a token of it.
    pub fn account(&self, name: &str) -> anyhow::Result<String> {
        let account = json!({"kind": "ServiceAccount", "name": name, "namespace": SYSTEM});
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": SYSTEM}},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [account],
            },
            {
                "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
                "metadata": {"name": format!("lictor-{name}")},
                "spec": {
                    "matchingPrecedence": 50, "priorityLevelConfiguration": {"name": LEVEL},
                    "distinguisherMethod": {"type": "ByUser"},
                    "rules": [{
                        "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": name, "namespace": SYSTEM}}],
                        "resourceRules": [{
                            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true,
                        }],
                        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                    }],
                },
            },
        ]}))?;
        let token = self.kubectl(&["create", "token", name, "-n", SYSTEM, "--duration=12h"], None)?;
        Ok(token.trim().to_owned())
    }

    /// Writes a kubeconfig with this token, in which `address` takes the place of the API server's own.
    pub fn kubeconfig_by(&self, path: &Path, token: &str, server: &str, address: &str) -> anyhow::Result<()> {
        let text = fs::read_to_string(self.cluster.kubeconfig())?;
        fs::write(path, text.replace(server, address))?;
        let file = path.to_str().context("the path of the kubeconfig is text")?;
        self.kubectl(
            &["--kubeconfig", file, "config", "set-credentials", "account", &format!("--token={token}")],
            None,
        )?;
        self.kubectl(&["--kubeconfig", file, "config", "set-context", "--current", "--user=account"], None)?;
        Ok(())
    }

    /// Returns the API server's address, without the scheme.
    pub fn server(&self) -> anyhow::Result<String> {
        let text = fs::read_to_string(self.cluster.kubeconfig())?;
        let server = text.lines().find_map(|line| line.trim().strip_prefix("server: https://"));
        Ok(server.context("the kubeconfig names a server")?.trim_matches('"').to_owned())
    }

    /// Applies an object.
    pub fn apply(&self, object: &Value) -> anyhow::Result<()> {
        self.kubectl(&["apply", "-f", "-"], Some(&object.to_string())).map(drop)
    }

    /// Deletes an object: its kind and its name.
    pub fn delete(&self, object: &[&str; 2]) -> anyhow::Result<()> {
        self.kubectl(&["delete", object[0], object[1]], None).map(drop)
    }

    /// Returns what the API server has counted of the operator's requests.
    pub async fn requests(&self) -> anyhow::Result<Requests> {
        let text = self.client.request_text(http_get("/metrics")?).await?;
        let mut requests = Requests::default();
        for line in text.lines() {
            let Some(labels) = line.strip_prefix("apiserver_flowcontrol_dispatched_requests_total{") else { continue };
            let Some((_, rest)) = labels.split_once("flow_schema=\"lictor-") else { continue };
            let (kind, rest) = rest.split_once('"').context("a label's value ends")?;
            let count: f64 = rest.rsplit(' ').next().context("a metric has a value")?.parse()?;
            *requests.0.entry(kind.into()).or_default() += count;
        }
        Ok(requests)
    }

    /// Creates a namespace in which pods can be created.
    pub async fn namespace(&self, name: &str) -> anyhow::Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let object = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        namespaces.create(&PostParams::default(), &object).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), name);
        lictor_testing::kubernetes::eventually("the namespace has its service account", || async {
            accounts.get("default").await.map_err(|error| error.to_string())
        })
        .await;
        Ok(())
    }

    /// Creates a pod that is ready at once and terminates slowly, on a node that `number` chooses.
    pub async fn pod(&self, namespace: &str, name: &str, app: &str, number: usize) -> anyhow::Result<Pod> {
        let pod = serde_json::from_value(json!({
            "metadata": {
                "name": name, "labels": {"app": app},
                "annotations": {"test.lictor.dev/terminate-slowly": "true"},
            },
            "spec": {
                "nodeName": self.nodes[number % self.nodes.len()], "terminationGracePeriodSeconds": 30,
                "containers": [{"name": "main", "image": "example/web"}],
            },
        }))?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        Ok(pods.create(&PostParams::default(), &pod).await?)
    }

    /// Creates an election with the name of an app, among its pods. Without a class, its lock is a Lease.
    pub async fn elect(&self, namespace: &str, app: &str, class: Option<&str>) -> anyhow::Result<()> {
        let mut election = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": app},
            "spec": {"selector": {"matchLabels": {"app": app}}},
        });
        if let Some(class) = class {
            election["spec"]["className"] = json!(class);
        }
        let election = serde_json::from_value(election)?;
        let elections: Api<LeaderElection> = Api::namespaced(self.client.clone(), namespace);
        elections.create(&PostParams::default(), &election).await?;
        Ok(())
    }

    fn kubectl(&self, arguments: &[&str], input: Option<&str>) -> anyhow::Result<String> {
        self.cluster.try_kubectl(arguments, input).map_err(|error| anyhow::anyhow!("kubectl {arguments:?}: {error}"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn http_get(path: &str) -> anyhow::Result<Request<Vec<u8>>> {
    Ok(Request::get(path).body(Vec::new())?)
}

/// Returns a service account that may do everything, and the flows in which its requests are counted.
fn user() -> Value {
    let mut items = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "lictor", "namespace": SYSTEM}}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "lictor-bench"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "lictor", "namespace": SYSTEM}],
        }),
        json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": {"name": LEVEL},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": 200,
                "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 100}},
            }},
        }),
    ];
    for (at, Flow { kind, verbs, groups, resources, namespace }) in FLOWS.iter().enumerate() {
        let rule = json!({
            "verbs": verbs, "apiGroups": groups, "resources": resources, "namespaces": [namespace],
            "clusterScope": *namespace == "*",
        });
        items.push(json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": {"name": format!("lictor-{kind}")},
            "spec": {
                "matchingPrecedence": 100 + at, "priorityLevelConfiguration": {"name": LEVEL},
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [{
                    "subjects": [
                        {"kind": "ServiceAccount", "serviceAccount": {"name": "lictor", "namespace": SYSTEM}},
                    ],
                    "resourceRules": [rule],
                    "nonResourceRules": if *kind == "other" {
                        json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}])
                    } else {
                        json!([])
                    },
                }],
            },
        }));
    }
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

pub async fn set_ready(pods: &Api<Pod>, pod: &str, ready: bool) -> anyhow::Result<()> {
    let now = k8s_openapi::jiff::Timestamp::from_second(k8s_openapi::jiff::Timestamp::now().as_second())?;
    let status = if ready { "True" } else { "False" };
    let patch = json!({"status": {"conditions": [
        {"type": "Ready", "status": status, "lastTransitionTime": now.to_string()},
    ]}});
    pods.patch_status(pod, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(())
}
