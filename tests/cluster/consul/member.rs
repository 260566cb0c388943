//! Clusters that share a store. Each is a namespace with its own operator, which knows of the others only what the store has.

use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use lictor_api::{ElectionClass, LeaderElection};
use lictor_testing::consul::Consul;
use lictor_testing::kubernetes::{LEASE, Lab, Operator, Recorder, eventually};
use serde_json::{Value, json};

/// The TTL of the sessions in these tests.
pub const TTL: Duration = Duration::from_secs(10);
/// The default lock delay of classes.
const LOCK_DELAY: Duration = Duration::from_secs(1);
/// How long an operator that begins to act waits for Consul.
const WAIT_FOR_CONSUL: Duration = Duration::from_secs(5);
/// The longest time without a leader, by docs/consul.md: until Consul gives the lock away, with a renewal whose answer was lost,
/// and with the take-over by another operator. It follows from the settings of these tests and not from what the operator
/// reports.
pub const LED_WITHIN: Duration = Duration::from_secs(
    2 * TTL.as_secs() + TTL.as_secs().div_ceil(3) + LOCK_DELAY.as_secs() + LEASE.as_secs() + WAIT_FOR_CONSUL.as_secs(),
);

/// A cluster, as the store and the other clusters see it.
pub struct Member {
    pub lab: Lab,
    pub cluster: String,
    pub class: String,
    pub prefix: String,
}

impl Member {
    /// Creates a cluster of this name. The clusters of one test share their locks. `consul` has further fields of the class's
    /// `consul`.
    pub async fn new(test: &str, cluster: &str, address: &str, consul: Value) -> Self {
        Self::of(Lab::new(&format!("{test}-{cluster}")).await, test, cluster, address, consul).await
    }

    /// Creates a cluster in another lab.
    pub async fn of(lab: Lab, test: &str, cluster: &str, address: &str, consul: Value) -> Self {
        let prefix = format!("{test}-{}", std::process::id());
        let member = Self { class: lab.namespace.clone(), cluster: cluster.into(), prefix, lab };
        let mut fields = json!({"address": address, "clusterName": cluster, "sessions": {"ttlSeconds": TTL.as_secs()}});
        for (name, value) in consul.as_object().into_iter().flatten() {
            fields[name] = value.clone();
        }
        member.apply_class(fields).await;
        member
    }

    /// Creates a cluster whose class has these fields of this store.
    pub async fn in_store(lab: Lab, test: &str, cluster: &str, store: &str, fields: Value) -> Self {
        let prefix = format!("{test}-{}", std::process::id());
        let member = Self { class: lab.namespace.clone(), cluster: cluster.into(), prefix, lab };
        member.apply_store(store, fields).await;
        member
    }

    /// Applies the class with these fields of `consul`.
    pub async fn apply_class(&self, consul: Value) {
        self.apply_store("consul", consul).await;
    }

    async fn apply_store(&self, store: &str, fields: Value) {
        let pattern = format!("{}/*", self.prefix);
        let mut class = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": self.class},
            "spec": {
                "controller": self.controller(), store: fields,
                "keyTemplate": format!("{}/{{name}}", self.prefix), "keyPattern": pattern,
            },
        });
        if store != "hub" {
            class["spec"]["followPattern"] = json!(pattern);
        }
        let parameters = PatchParams::apply("test").force();
        self.classes_api().patch(&self.class, &parameters, &Patch::Apply(class)).await.expect("a class can be applied");
    }

    fn controller(&self) -> String {
        format!("test/{}", self.lab.namespace)
    }

    pub fn classes_api(&self) -> Api<ElectionClass> {
        Api::all(self.lab.client.clone())
    }

    /// Starts an operator of this cluster.
    pub fn operator(&self, arguments: &[&str]) -> Operator {
        let controller = self.controller();
        let mut all = vec!["--controller", controller.as_str()];
        all.extend(arguments);
        self.lab.operator(&all)
    }

    /// Starts an operator with another kubeconfig.
    pub fn operator_at(&self, kubeconfig: &std::path::Path) -> Operator {
        self.lab.operator_at(kubeconfig, &["--controller", &self.controller()])
    }

    /// Starts an operator with these environment variables.
    pub fn operator_in(&self, environment: &[(&str, &str)]) -> Operator {
        let controller = self.controller();
        self.lab.operator_in(self.lab.cluster.kubeconfig(), &["--controller", &controller], environment)
    }

    /// Applies the election `web` with these fields.
    pub async fn elect(&self, spec: Value) -> LeaderElection {
        self.lab.elect(self.with_class(spec)).await
    }

    /// Applies it without a selector, so that the cluster itself is the candidate.
    pub async fn elect_cluster(&self, spec: Value) -> LeaderElection {
        self.lab.apply_election("web", self.with_class(spec)).await
    }

    fn with_class(&self, mut spec: Value) -> Value {
        spec["className"] = json!(self.class);
        spec
    }

    /// Returns the key of the election's lock.
    pub fn key(&self) -> String {
        format!("{}/web", self.prefix)
    }

    /// Waits until the class's condition Ready has this status and reason. Returns its message.
    pub async fn wait_class(&self, status: &str, reason: &str) -> String {
        eventually(&format!("the class is Ready={status}, {reason}"), || async {
            let class = self.classes_api().get(&self.class).await.map_err(|error| error.to_string())?;
            let found = class.status.unwrap_or_default();
            let fits = found.conditions.iter().find(|c| c.type_ == "Ready" && c.status == status && c.reason == reason);
            fits.map(|condition| condition.message.clone()).ok_or_else(|| format!("{found:?}"))
        })
        .await
    }

    /// Waits until the class is not ready, for any reason. Returns the reason and the message.
    pub async fn wait_any_trouble(&self) -> String {
        eventually("the class is not ready", || async {
            let class = self.classes_api().get(&self.class).await.map_err(|error| error.to_string())?;
            let found = class.status.unwrap_or_default();
            let trouble = found.conditions.iter().find(|c| c.type_ == "Ready" && c.status == "False");
            trouble
                .map(|trouble| format!("{}: {}", trouble.reason, trouble.message))
                .ok_or_else(|| format!("{found:?}"))
        })
        .await
    }

    /// Waits until the status names the leader of another cluster.
    pub async fn wait_led_elsewhere(&self, cluster: &str, pod: &str) {
        self.wait_led(cluster, Some(pod)).await;
    }

    /// Waits until the status names this leader. Without a pod, it is the cluster itself.
    pub async fn wait_led(&self, cluster: &str, pod: Option<&str>) {
        self.lab
            .wait_status("web", &format!("{pod:?} in {cluster} leads"), |election| {
                election.status.as_ref().and_then(|status| status.leader.as_ref()).is_some_and(|leader| {
                    leader.cluster_name.as_deref() == Some(cluster) && leader.pod_name.as_deref() == pod
                })
            })
            .await;
    }
}

/// Reads the lock's key from Consul, with its value as JSON.
pub async fn entry(consul: &Consul, key: &str) -> Option<Value> {
    let answer = consul.api().get(&format!("/v1/kv/{key}?consistent")).await.expect("Consul answers");
    if answer.status == 404 {
        return None;
    }
    let mut entry = answer.ok()[0].clone();
    let raw = consul.api().get(&format!("/v1/kv/{key}?consistent&raw")).await.expect("Consul answers");
    entry["Value"] = serde_json::from_str(&raw.text).unwrap_or(Value::String(raw.text));
    Some(entry)
}

/// Returns the sessions of a cluster's node, as (name, id).
pub async fn sessions(consul: &Consul, member: &Member) -> Vec<(String, String)> {
    sessions_of(consul, member, &format!("lictor-{}", member.cluster)).await
}

/// Returns the sessions of another node.
pub async fn sessions_of(consul: &Consul, member: &Member, node: &str) -> Vec<(String, String)> {
    let answer = consul.api().get(&format!("/v1/session/node/{node}")).await.expect("Consul answers");
    let own =
        |session: &Value| session["Name"].as_str().is_some_and(|name| name.ends_with(&format!("/{}/0", member.class)));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = answer.ok().as_array().cloned().unwrap_or_default();
    all.iter().filter(|session| own(session)).map(|session| (text(&session["Name"]), text(&session["ID"]))).collect()
}

/// Everything that the pods of two clusters showed.
pub struct Recorded(pub [Recorder; 2]);

impl Recorded {
    pub async fn of(west: &Member, east: &Member) -> Self {
        Self([west.lab.record().await, east.lab.record().await])
    }

    /// Checks that there were never two leaders in both together, and that terms rose. Returns how many leaderships there were.
    pub async fn kept_the_promises(&self) -> usize {
        self.kept_the_promises_but_for(&[]).await
    }

    /// Checks the same, except for pods of a cluster whose operators could not demote them from these versions on.
    pub async fn kept_the_promises_but_for(&self, excused: &[(&str, u64)]) -> usize {
        let [west, east] = &self.0;
        let leaderships = Recorder::assert_joint_promises_but_for(&[west, east], excused).await;
        assert!(leaderships > 0, "nothing was recorded");
        leaderships
    }
}

/// Creates two clusters with a pod each: `a` in the west leads, and `b` in the east follows. The values are further fields of their
/// classes' `consul`.
pub async fn two(test: &str, west: Value, east: Value) -> ([Member; 2], [Operator; 2], Recorded) {
    let address = Consul::shared().address();
    let west = Member::new(test, "west", address, west).await;
    let east = Member::new(test, "east", address, east).await;
    let recorded = Recorded::of(&west, &east).await;
    let operators = [west.operator(&[]), east.operator(&[])];
    west.lab.ready_pods(&["a"]).await;
    east.lab.ready_pods(&["b"]).await;
    west.elect(json!({})).await;
    west.lab.wait_leader("a").await;
    east.elect(json!({})).await;
    east.wait_led_elsewhere("west", "a").await;
    ([west, east], operators, recorded)
}
