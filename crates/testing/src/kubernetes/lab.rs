//! A namespace for one test, with the steps that tests share.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use lictor_api::LeaderElection;
use serde_json::{Value, json};

use super::{Cluster, Operator, Recorder, eventually, is_ready};

/// The duration of the operator's Lease, unless a test sets another one.
pub const LEASE: Duration = Duration::from_secs(3);

/// A namespace in the shared control plane.
pub struct Lab {
    pub cluster: &'static Cluster,
    pub client: Client,
    pub namespace: String,
}

/// A pod to be created.
#[derive(Clone, Debug, Default)]
pub struct PodSpec {
    /// Labels besides `app: web`.
    pub labels: Value,
    pub annotations: Value,
    /// One of the simulated nodes. Without it, the scheduler chooses.
    pub node: Option<String>,
    /// The containers. By default one, `main`, without ports or probes.
    pub containers: Value,
}

impl Lab {
    /// Creates a namespace that is named after the test.
    pub async fn new(test: &str) -> Self {
        Self::of(Cluster::shared(), test).await
    }

    /// Creates a namespace in another control plane.
    pub async fn of(cluster: &'static Cluster, test: &str) -> Self {
        let client = cluster.client().await;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = format!("{test}-{}", std::process::id());
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).expect("a namespace");
        // The API server may close a connection while a request is on its way. No other test makes a namespace of this name.
        eventually("a namespace can be made", || async {
            match namespaces.create(&PostParams::default(), &object).await {
                Err(error) if !matches!(&error, kube::Error::Api(status) if status.code == 409) => {
                    Err(error.to_string())
                }
                _ => Ok(()),
            }
        })
        .await;
        let lab = Self { cluster, client, namespace };
        eventually("the namespace has its service account", || async {
            lab.try_kubectl(&["get", "serviceaccount", "default"], None)
        })
        .await;
        lab
    }

    /// Starts an operator that serves only this namespace, with its Lease in it, and with a short lease duration.
    pub fn operator(&self, arguments: &[&str]) -> Operator {
        self.operator_at(self.cluster.kubeconfig(), arguments)
    }

    /// Starts such an operator with another kubeconfig, for example that of a [`Proxy`](super::Proxy).
    pub fn operator_at(&self, kubeconfig: &Path, arguments: &[&str]) -> Operator {
        self.operator_in(kubeconfig, arguments, &[])
    }

    /// Starts such an operator with these environment variables.
    pub fn operator_in(&self, kubeconfig: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Operator {
        let lease = format!("{}s", LEASE.as_secs());
        let own = ["--namespaces", &self.namespace, "--lease-namespace", &self.namespace, "--lease-duration", &lease];
        // The test's arguments come last, because the last one counts.
        let mut all: Vec<&str> = own.into_iter().filter(|_| true).collect();
        for pair in arguments.chunks(2) {
            if let Some(at) = all.iter().position(|argument| *argument == pair[0]) {
                all.drain(at..at + 2);
            }
            all.extend(pair);
        }
        Operator::start(kubeconfig, &all, environment)
    }

    /// Records every revision of the pods from now on.
    pub async fn record(&self) -> Recorder {
        Recorder::start(self.client.clone(), &self.namespace).await
    }

    /// Creates a pod `app: web`, which becomes ready on its simulated node.
    pub async fn pod(&self, name: &str, spec: PodSpec) -> Pod {
        let mut labels = json!({"app": "web"});
        merge(&mut labels, &spec.labels);
        let mut object = json!({
            "metadata": {"name": name, "labels": labels, "annotations": spec.annotations},
            "spec": {"containers": [{"name": "main", "image": "example/web"}], "terminationGracePeriodSeconds": 1},
        });
        if let Some(node) = spec.node {
            object["spec"]["nodeName"] = json!(node);
        }
        if !spec.containers.is_null() {
            object["spec"]["containers"] = spec.containers;
        }
        let object = serde_json::from_value(object).expect("a pod");
        self.pods_api().create(&PostParams::default(), &object).await.expect("a pod can be made")
    }

    /// Creates plain pods, and waits until they are ready.
    pub async fn ready_pods(&self, names: &[&str]) {
        for name in names {
            self.pod(name, PodSpec::default()).await;
        }
        for name in names {
            self.wait_ready(name, true).await;
        }
    }

    /// Waits until a pod is ready, or not ready.
    pub async fn wait_ready(&self, name: &str, ready: bool) {
        eventually(&format!("{name} is ready: {ready}"), || async {
            let pod = self.pods_api().get(name).await.map_err(|error| error.to_string())?;
            if is_ready(&pod) == ready { Ok(()) } else { Err(format!("{:?}", pod.status)) }
        })
        .await;
    }

    /// Sets a condition of a pod, as its kubelet does.
    pub async fn set_condition(&self, pod: &str, type_: &str, holds: bool) {
        let status = if holds { "True" } else { "False" };
        // Without a time the condition would seem very old, and a controller removes an old DisruptionTarget at once.
        let now = k8s_openapi::jiff::Timestamp::now().to_string();
        let condition = json!({"type": type_, "status": status, "lastTransitionTime": now});
        let patch = json!({"status": {"conditions": [condition]}});
        let patched = self.pods_api().patch_status(pod, &PatchParams::default(), &Patch::Strategic(patch)).await;
        patched.expect("a pod's status can be patched");
    }

    /// Changes a pod by a merge patch.
    pub async fn patch_pod(&self, pod: &str, patch: Value) {
        let patched = self.pods_api().patch(pod, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.expect("a pod can be patched");
    }

    /// Deletes a pod, which is gone at once unless it was created to terminate slowly.
    pub async fn delete_pod(&self, pod: &str) {
        self.pods_api().delete(pod, &DeleteParams::default()).await.expect("a pod can be deleted");
    }

    /// Deletes a pod without a grace period, and waits until it is gone.
    pub async fn kill_pod(&self, pod: &str) {
        let at_once = DeleteParams::default().grace_period(0);
        self.pods_api().delete(pod, &at_once).await.expect("a pod can be deleted");
        eventually(&format!("{pod} is gone"), || async {
            let found = self.pods_api().get_opt(pod).await.map_err(|error| error.to_string())?;
            if found.is_none() { Ok(()) } else { Err("it is there".to_owned()) }
        })
        .await;
    }

    /// Applies an election `web` that selects `app: web`, with these further fields of the spec.
    pub async fn elect(&self, spec: Value) -> LeaderElection {
        self.elect_as("web", spec).await
    }

    /// Applies such an election with another name.
    pub async fn elect_as(&self, name: &str, spec: Value) -> LeaderElection {
        let mut full = json!({"selector": {"matchLabels": {"app": "web"}}});
        merge(&mut full, &spec);
        self.apply_election(name, full).await
    }

    /// Applies an election with exactly this spec.
    pub async fn apply_election(&self, name: &str, spec: Value) -> LeaderElection {
        let object = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": name}, "spec": spec,
        });
        let parameters = PatchParams::apply("test").force();
        self.elections_api().patch(name, &parameters, &Patch::Apply(object)).await.expect("an election can be applied")
    }

    /// Deletes an election.
    pub async fn delete_election(&self, name: &str) {
        self.elections_api().delete(name, &DeleteParams::default()).await.expect("an election can be deleted");
    }

    /// Waits until there is no election of this name.
    pub async fn wait_election_gone(&self, name: &str) {
        eventually(&format!("the election {name} is gone"), || async {
            let found = self.elections_api().get_opt(name).await.map_err(|error| error.to_string())?;
            found.map_or(Ok(()), |election| Err(format!("{:?}", election.metadata)))
        })
        .await;
    }

    /// Waits until there is no Lease of this name.
    pub async fn wait_lock_gone(&self, name: &str) {
        eventually(&format!("the lock {name} is gone"), || async {
            self.lease(name).await.map_or(Ok(()), |lease| Err(format!("{lease:?}")))
        })
        .await;
    }

    /// Reads an election.
    pub async fn election(&self, name: &str) -> LeaderElection {
        self.elections_api().get(name).await.expect("the election exists")
    }

    /// Waits until exactly this pod carries `role: leader`, and every other living pod of `app: web` is a follower.
    pub async fn wait_leader(&self, pod: &str) {
        eventually(&format!("{pod} is the leader"), || async {
            let roles = self.roles().await;
            let leaders: Vec<_> =
                roles.iter().filter(|(_, role)| role == "leader").map(|(pod, _)| pod.as_str()).collect();
            let all = roles.iter().all(|(_, role)| role == "leader" || role == "follower");
            if leaders == [pod] && all { Ok(()) } else { Err(format!("{roles:?}")) }
        })
        .await;
    }

    /// Waits until one pod carries `role: leader` and all others `role: follower`. Returns the leader.
    pub async fn wait_any_leader(&self) -> String {
        eventually("there is a leader", || async {
            let roles = self.roles().await;
            let leaders: Vec<_> = roles.iter().filter(|(_, role)| role == "leader").collect();
            let all = roles.iter().all(|(_, role)| role == "leader" || role == "follower");
            match leaders.as_slice() {
                [(pod, _)] if all => Ok(pod.clone()),
                _ => Err(format!("{roles:?}")),
            }
        })
        .await
    }

    /// Waits until no pod carries `role: leader`.
    pub async fn wait_no_leader(&self) {
        eventually("there is no leader", || async {
            let roles = self.roles().await;
            if roles.iter().all(|(_, role)| role != "leader") { Ok(()) } else { Err(format!("{roles:?}")) }
        })
        .await;
    }

    /// Returns the name and the role label ("" if it has none) of every pod `app: web` that has not finished.
    pub async fn roles(&self) -> Vec<(String, String)> {
        let pods = self.pods_api().list(&ListParams::default().labels("app=web")).await.expect("pods can be listed");
        let role = |pod: &Pod| pod.labels().get("role").cloned().unwrap_or_default();
        pods.items.iter().map(|pod| (pod.name_any(), role(pod))).collect()
    }

    /// Waits until the status satisfies a condition. Returns the election then.
    pub async fn wait_status(&self, name: &str, what: &str, holds: impl Fn(&LeaderElection) -> bool) -> LeaderElection {
        eventually(what, || async {
            let election = self.elections_api().get(name).await.map_err(|error| error.to_string())?;
            if holds(&election) { Ok(election) } else { Err(format!("{:#?}", election.status)) }
        })
        .await
    }

    /// Waits until a condition of the status has this status ("True", "False") and reason. Returns its message.
    pub async fn wait_condition(&self, name: &str, type_: &str, status: &str, reason: &str) -> String {
        let found = |election: &LeaderElection| {
            let conditions = election.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
            conditions.into_iter().find(|c| c.type_ == type_ && c.status == status && c.reason == reason)
        };
        let what = format!("{name} has {type_}={status}, {reason}");
        let election = self.wait_status(name, &what, |election| found(election).is_some()).await;
        found(&election).map(|condition| condition.message).unwrap_or_default()
    }

    /// Waits until the status has a leader, whatever else it says about the leader, because the status also reports several failovers in a
    /// row.
    pub async fn wait_elected(&self, name: &str) {
        self.wait_status(name, &format!("{name} has Elected=True"), |election| {
            let mut conditions = election.status.iter().flat_map(|status| &status.conditions);
            conditions.any(|condition| condition.type_ == "Elected" && condition.status == "True")
        })
        .await;
    }

    /// Waits for an Event with this reason about an object of this kind and name. Returns its note.
    pub async fn wait_event(&self, kind: &str, name: &str, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        eventually(&format!("an Event {reason} about {kind} {name}"), || async {
            let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let fits = |event: &&Event| {
                let regarding = event.regarding.clone().unwrap_or_default();
                event.reason.as_deref() == Some(reason)
                    && regarding.kind.as_deref() == Some(kind)
                    && regarding.name.as_deref() == Some(name)
            };
            let seen =
                || all.items.iter().map(|e| format!("{:?} {:?}", e.reason, e.note)).collect::<Vec<_>>().join("\n");
            all.items.iter().find(fits).map(|event| event.note.clone().unwrap_or_default()).ok_or_else(seen)
        })
        .await
    }

    /// Adds an admission policy for updates of a resource in this namespace, and waits until `in_force` says that the policy works. `kind`
    /// is Validating or, in a control plane that has such policies, Mutating.
    pub async fn impose(
        &self,
        kind: &str,
        resource: (&str, &str),
        spec: Value,
        in_force: impl Fn(&Self) -> Result<(), String>,
    ) {
        let name = self.namespace.as_str();
        let here = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}});
        let (group, resource) = resource;
        let mut policy = json!({"matchConstraints": {"resourceRules": [{
            "apiGroups": [group], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": [resource],
        }]}});
        merge(&mut policy, &spec);
        // The oldest supported Kubernetes has only this version of policies that change objects.
        let version = format!("admissionregistration.k8s.io/{}", if kind == "Validating" { "v1" } else { "v1alpha1" });
        let mut binding = json!({"policyName": name, "matchResources": here});
        if kind == "Validating" {
            binding["validationActions"] = json!(["Deny"]);
        }
        for (kind, spec) in
            [(format!("{kind}AdmissionPolicy"), policy), (format!("{kind}AdmissionPolicyBinding"), binding)]
        {
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
            self.try_kubectl(&["create", "-f", "-"], Some(&object.to_string())).expect("the policy can be made");
        }
        eventually("the policy is in force", || async { in_force(self) }).await;
    }

    /// Removes such a policy.
    pub fn lift(&self, kind: &str) {
        let kinds = format!("{kind}admissionpolicybinding,{kind}admissionpolicy").to_lowercase();
        self.try_kubectl(&["delete", &kinds, &self.namespace], None).expect("the policy can be deleted");
    }

    pub fn pods_api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn elections_api(&self) -> Api<LeaderElection> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn leases_api(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Runs kubectl in this namespace. Returns what it printed, or its error text.
    pub fn try_kubectl(&self, arguments: &[&str], input: Option<&str>) -> Result<String, String> {
        let all: Vec<&str> = ["-n", self.namespace.as_str()].iter().chain(arguments).copied().collect();
        self.cluster.try_kubectl(&all, input)
    }
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (into, from) => *into = from.clone(),
    }
}
