//! The effects of kubelets, node controllers and people on a test's pods and nodes.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Lab, PodSpec, eventually};

/// Returns a pod that stays Terminating for its whole grace period.
pub fn slow() -> PodSpec {
    PodSpec { annotations: json!({"test.lictor.dev/terminate-slowly": "true"}), ..PodSpec::default() }
}

impl Lab {
    /// Reads a pod.
    pub async fn get_pod(&self, name: &str) -> Pod {
        self.pods_api().get(name).await.expect("the pod exists")
    }

    /// Deletes a pod that was created with [`slow`]. The pod terminates for longer than any test takes.
    pub async fn delete_pod_slowly(&self, pod: &str) {
        let parameters = DeleteParams::default().grace_period(600);
        self.pods_api().delete(pod, &parameters).await.expect("a pod can be deleted");
    }

    /// Changes a pod's status.
    pub async fn patch_pod_status(&self, pod: &str, status: Value) {
        let patch = Patch::Strategic(json!({"status": status}));
        let patched = self.pods_api().patch_status(pod, &PatchParams::default(), &patch).await;
        patched.expect("a pod's status can be patched");
    }

    /// Creates a ready pod with this address.
    pub async fn ready_pod_at(&self, name: &str, ip: &str) {
        self.ready_pod_of(name, ip, Value::Null).await;
    }

    /// Creates such a pod of these containers.
    pub async fn ready_pod_of(&self, name: &str, ip: &str, containers: Value) {
        let annotations = json!({"test.lictor.dev/hands-off": "true"});
        self.pod(name, PodSpec { annotations, containers, ..PodSpec::default() }).await;
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": ready});
        self.patch_pod_status(name, status).await;
    }

    /// Creates a ready node for this test. The scheduler uses it only for pods that name it. Returns its name.
    pub async fn node(&self, name: &str, labels: Value) -> String {
        let name = format!("{}-{name}", self.namespace);
        let annotations = json!({"test.lictor.dev/hands-off": "true"});
        let object = json!({"metadata": {"name": name, "labels": labels, "annotations": annotations}});
        let object = serde_json::from_value(object).expect("a node");
        // The node has no capacity, so the scheduler never chooses it.
        self.nodes_api().create(&PostParams::default(), &object).await.expect("a node can be made");
        self.set_node_ready(&name, "True").await;
        eventually("the node's taints are gone", || async {
            let node = self.nodes_api().get(&name).await.map_err(|error| error.to_string())?;
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            if taints.is_empty() { Ok(()) } else { Err(format!("{taints:?}")) }
        })
        .await;
        name
    }

    /// Sets a node's condition Ready to True, False or Unknown.
    pub async fn set_node_ready(&self, node: &str, status: &str) {
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": "Test"}]}});
        let patched = self.nodes_api().patch_status(node, &PatchParams::default(), &Patch::Strategic(patch)).await;
        patched.expect("a node's status can be patched");
    }

    /// Changes a node by a merge patch.
    pub async fn patch_node(&self, node: &str, patch: Value) {
        let patched = self.nodes_api().patch(node, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.expect("a node can be patched");
    }

    /// Creates ready pods, each bound to one node.
    pub async fn ready_pods_on(&self, pods: &[(&str, &str)]) {
        for (pod, node) in pods {
            self.pod(pod, PodSpec { node: Some((*node).into()), ..PodSpec::default() }).await;
        }
        for (pod, _) in pods {
            self.wait_ready(pod, true).await;
        }
    }

    /// Waits until a pod has this role label; "" means none.
    pub async fn wait_role(&self, pod: &str, role: &str) {
        eventually(&format!("{pod} has the role {role:?}"), || async {
            let found = self.pods_api().get(pod).await.map_err(|error| error.to_string())?;
            let found = found.labels().get("role").cloned().unwrap_or_default();
            if found == role { Ok(()) } else { Err(found) }
        })
        .await;
    }

    /// Waits until a pod has nothing that lictor writes by default.
    pub async fn wait_clean(&self, pod: &str) {
        eventually(&format!("nothing of lictor is left on {pod}"), || async {
            let pod = self.pods_api().get(pod).await.map_err(|error| error.to_string())?;
            let labelled = pod.labels().contains_key("role");
            let written = ["lictor.dev/term", "lictor.dev/election", "lictor.dev/pod-deletion-cost"];
            let annotated = written.iter().any(|key| pod.annotations().contains_key(*key));
            if labelled || annotated { Err(format!("{:#?}", pod.metadata)) } else { Ok(()) }
        })
        .await;
    }

    /// Waits until the message of a condition with this reason contains this text.
    pub async fn wait_message(&self, election: &str, type_: &str, reason: &str, text: &str) {
        self.wait_status(election, &format!("{type_} is {reason}: {text}"), |election| {
            let conditions = election.status.iter().flat_map(|status| &status.conditions);
            conditions.into_iter().any(|c| c.type_ == type_ && c.reason == reason && c.message.contains(text))
        })
        .await;
    }

    /// Waits until the status has a leadership of this pod that began for this reason.
    pub async fn wait_reason(&self, leader: &str, reason: &str) {
        self.wait_status("web", &format!("{leader} leads: {reason}"), |election| {
            let newest = election.status.as_ref().and_then(|status| status.history.first());
            newest.is_some_and(|entry| entry.leader_name.as_deref() == Some(leader) && entry.reason == reason)
        })
        .await;
    }

    /// Waits until the status has these numbers of eligible candidates and of all.
    pub async fn wait_candidates(&self, eligible: u32, total: u32) {
        self.wait_status("web", &format!("{eligible}/{total} candidates"), |election| {
            let counted = election.status.as_ref().and_then(|status| status.candidates.as_ref());
            counted.is_some_and(|count| (count.eligible, count.total) == (eligible, total))
        })
        .await;
    }

    /// Reads a lock.
    pub async fn lease(&self, name: &str) -> Option<Lease> {
        self.leases_api().get_opt(name).await.expect("Leases can be read")
    }

    /// Returns the term that a lock shows.
    pub async fn term(&self, lease: &str) -> i64 {
        let lease = self.lease(lease).await.and_then(|lease| lease.spec).expect("the Lease exists");
        lease.lease_transitions.expect("the Lease shows a term").into()
    }

    pub fn nodes_api(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Panics unless the API server refuses an election with each of these specs, with these words.
    pub fn assert_refused<'a>(&self, cases: impl IntoIterator<Item = (Value, &'a str)>) {
        let mut wrong = Vec::new();
        for (spec, says) in cases {
            match self.dry_run(&spec) {
                Ok(()) => wrong.push(format!("{spec}\n  should say: {says}\n  is accepted")),
                Err(message) if message.contains(says) => {}
                Err(message) => wrong.push(format!("{spec}\n  should say: {says}\n  says: {message}")),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Returns the API server's answer to an election with this spec, without creating the election.
    pub fn dry_run(&self, spec: &Value) -> Result<(), String> {
        let object = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": "bad"}, "spec": spec,
        });
        let text = object.to_string();
        self.try_kubectl(&["create", "--dry-run=server", "-f", "-"], Some(&text)).map(drop)
    }
}
