//! The CronJobs, Deployments, Jobs and StatefulSets of a test, with the real controllers. A workload is written as its kind and
//! name, for example `Deployment/live`.

use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::{Lab, eventually};

/// The annotation of each workload that an election claims.
pub const ENABLED: &str = "lictor.dev/enabled";
/// The annotation with the setting that the workload had before.
pub const KEPT: &str = "lictor.dev/kept";
/// The annotation with the last writer, and the number of that write.
pub const WRITTEN: &str = "lictor.dev/written-by";

/// Returns the API resource of a kind.
pub fn resource(kind: &str) -> ApiResource {
    let group = match kind {
        "Pod" => "",
        "Deployment" | "StatefulSet" => "apps",
        _ => "batch",
    };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

/// Returns a template of a pod that ends at once when it is deleted.
pub fn pod() -> Value {
    pod_with(&json!({}), 1)
}

/// Returns a template of a pod that needs its whole grace period to end.
pub fn slow_pod(grace: u32) -> Value {
    pod_with(&json!({"annotations": {"test.lictor.dev/terminate-slowly": "true"}}), grace)
}

/// Returns a template of a pod that never ends.
pub fn stuck_pod() -> Value {
    pod_with(&json!({"finalizers": ["test.lictor.dev/stays"]}), 1)
}

/// Returns a template of a pod that never starts, so that its Job does not end by itself.
pub fn idle_pod() -> Value {
    pod_with(&json!({"annotations": {"test.lictor.dev/hands-off": "true"}}), 1)
}

fn pod_with(metadata: &Value, grace: u32) -> Value {
    let containers = json!([{"name": "main", "image": "example/web"}]);
    json!({"metadata": metadata, "spec": {"containers": containers, "terminationGracePeriodSeconds": grace}})
}

/// Returns a Job's spec.
pub fn job_spec(mut pod: Value) -> Value {
    pod["spec"]["restartPolicy"] = json!("Never");
    json!({"template": pod})
}

/// Returns a list for `spec.workloads`.
pub fn following(workloads: &[&str]) -> Value {
    let split = |workload: &&str| {
        let (kind, name) = workload.split_once('/').expect("a kind and a name");
        json!({"kind": kind, "name": name})
    };
    workloads.iter().map(split).collect()
}

/// Returns the value of the field that enables a workload.
pub fn setting(object: &Value) -> &Value {
    match object["kind"].as_str() {
        Some("Deployment" | "StatefulSet") => &object["spec"]["replicas"],
        _ if object["spec"]["suspend"].is_null() => &Value::Bool(false),
        _ => &object["spec"]["suspend"],
    }
}

/// Returns an annotation of an object.
pub fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}

/// Returns the field managers of an object.
pub fn managers(object: &Value) -> Vec<&str> {
    let fields = object["metadata"]["managedFields"].as_array();
    fields.into_iter().flatten().filter_map(|entry| entry["manager"].as_str()).collect()
}

impl Lab {
    pub fn api_of(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind))
    }

    /// Creates a workload with this spec.
    pub async fn make(&self, workload: &str, spec: Value) -> Value {
        self.create(workload, json!({"metadata": {}, "spec": spec})).await
    }

    /// Creates a workload as its owner's controller does.
    pub async fn make_owned(&self, workload: &str, spec: Value, owner: &Value) -> Value {
        let metadata = &owner["metadata"];
        let owners = json!([{
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"],
            "controller": true,
        }]);
        self.create(workload, json!({"metadata": {"ownerReferences": owners}, "spec": spec})).await
    }

    async fn create(&self, workload: &str, fields: Value) -> Value {
        let (api, object) = self.named(workload, fields);
        let object = serde_json::from_value(object).expect("an object");
        let made = api.create(&PostParams::default(), &object).await.expect("a workload can be made");
        serde_json::to_value(made).expect("JSON")
    }

    /// Creates a Deployment.
    pub async fn deployment(&self, name: &str, replicas: u32, pod: Value) -> Value {
        self.make(&format!("Deployment/{name}"), set_spec(name, replicas, pod)).await
    }

    /// Creates a StatefulSet.
    pub async fn stateful_set(&self, name: &str, replicas: u32, pod: Value) -> Value {
        let mut spec = set_spec(name, replicas, pod);
        spec["serviceName"] = json!(name);
        self.make(&format!("StatefulSet/{name}"), spec).await
    }

    /// Creates a Job.
    pub async fn job(&self, name: &str, pod: Value) -> Value {
        self.make(&format!("Job/{name}"), job_spec(pod)).await
    }

    /// Creates a CronJob.
    pub async fn cron_job(&self, name: &str, schedule: &str, pod: Value) -> Value {
        let spec = json!({"schedule": schedule, "jobTemplate": {"spec": job_spec(pod)}});
        self.make(&format!("CronJob/{name}"), spec).await
    }

    /// Returns the API of a workload's kind, and an object with the workload's name and these fields.
    fn named(&self, workload: &str, mut object: Value) -> (Api<DynamicObject>, Value) {
        let (kind, name) = workload.split_once('/').expect("a kind and a name");
        let served = resource(kind);
        object["apiVersion"] = json!(served.api_version);
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(name);
        (self.api_of(kind), object)
    }

    /// Reads a workload, if it exists.
    pub async fn find(&self, workload: &str) -> Option<Value> {
        let (kind, name) = workload.split_once('/').expect("a kind and a name");
        let found = self.api_of(kind).get_opt(name).await.expect("workloads can be read");
        found.map(|found| serde_json::to_value(found).expect("JSON"))
    }

    /// Changes a workload by a merge patch.
    pub async fn patch(&self, workload: &str, patch: Value) {
        let (api, object) = self.named(workload, json!({}));
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a workload can be patched");
    }

    /// Sets a workload's number of replicas through its scale, as an autoscaler does.
    pub async fn scale(&self, workload: &str, replicas: u32, manager: &str) {
        let (api, object) = self.named(workload, json!({}));
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let parameters = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        api.patch_scale(name, &parameters, &patch).await.expect("a workload can be scaled");
    }

    /// Applies these fields of a workload by server-side apply with another field manager.
    pub async fn apply(&self, workload: &str, fields: Value, manager: &str, force: bool) -> Result<Value, String> {
        let (api, object) = self.named(workload, fields);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let parameters = PatchParams { force, ..PatchParams::apply(manager) };
        let applied = api.patch(&name, &parameters, &Patch::Apply(object)).await;
        applied.map(|applied| serde_json::to_value(applied).expect("JSON")).map_err(|error| error.to_string())
    }

    /// Deletes a workload, and waits until it and its dependents are gone.
    pub async fn delete(&self, workload: &str) {
        let (kind, name) = workload.split_once('/').expect("a kind and a name");
        self.api_of(kind).delete(name, &DeleteParams::foreground()).await.expect("a workload can be deleted");
        eventually(&format!("{workload} is gone"), || async {
            match self.find(workload).await {
                None => Ok(()),
                Some(found) => Err(found.to_string()),
            }
        })
        .await;
    }

    /// Waits until a workload exists that satisfies a condition. Returns the workload.
    pub async fn wait_workload(&self, workload: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("{workload}: {what}"), || async {
            let found = self.find(workload).await.ok_or_else(|| "there is none".to_owned())?;
            if holds(&found) { Ok(found) } else { Err(format!("{found:#}")) }
        })
        .await
    }

    /// Waits until a workload is enabled with this setting: its number of replicas, or whether it is suspended.
    pub async fn wait_enabled(&self, workload: &str, with: Value) {
        self.wait_workload(workload, &format!("enabled with {with}"), |found| {
            annotation(found, ENABLED) == Some("true") && *setting(found) == with
        })
        .await;
    }

    /// Waits until a workload is disabled with this kept setting: its number of replicas, or whether it was suspended.
    pub async fn wait_disabled(&self, workload: &str, kept: Value) {
        self.wait_workload(workload, &format!("disabled, {kept} is kept"), |found| {
            annotation(found, ENABLED) == Some("false")
                && [json!(0), json!(true)].contains(setting(found))
                && annotation(found, KEPT) == Some(&kept.to_string())
        })
        .await;
    }

    /// Waits until lictor has left nothing on a workload, and it has this setting.
    pub async fn wait_released(&self, workload: &str, with: Value) {
        self.wait_workload(workload, &format!("released with {with}"), |found| {
            let annotations = found["metadata"]["annotations"].as_object();
            let ours = annotations.into_iter().flatten().any(|(name, _)| name.starts_with("lictor.dev/"));
            !ours && !managers(found).contains(&"lictor") && *setting(found) == with
        })
        .await;
    }

    /// Waits until the status of the election `web` has this state for a workload.
    pub async fn wait_state(&self, workload: &str, state: &str) {
        let (kind, name) = workload.split_once('/').expect("a kind and a name");
        self.wait_status("web", &format!("{workload} is {state}"), |election| {
            let told = election.status.iter().flat_map(|status| &status.workloads).flat_map(|told| &told.items);
            told.into_iter().any(|item| {
                (format!("{:?}", item.kind).as_str(), item.name.as_str()) == (kind, name)
                    && format!("{:?}", item.state) == state
            })
        })
        .await;
    }

    /// Creates a Deployment of one replica that always runs, and waits until it is available.
    pub async fn gate(&self) {
        self.deployment("gate", 1, pod()).await;
        self.wait_available(true).await;
    }

    /// Makes that Deployment available or not, by making its pod ready or not.
    pub async fn open_gate(&self, open: bool) {
        let pods = self.pods_api().list(&ListParams::default().labels("app=gate")).await.expect("pods can be listed");
        for pod in pods {
            self.set_condition(&pod.name_any(), "Ready", open).await;
        }
        self.wait_available(open).await;
    }

    async fn wait_available(&self, available: bool) {
        self.wait_workload("Deployment/gate", &format!("available: {available}"), |found| {
            let conditions = found["status"]["conditions"].as_array();
            let fits = |c: &Value| c["type"] == "Available" && (c["status"] == "True") == available;
            conditions.into_iter().flatten().any(fits)
        })
        .await;
    }
}

fn set_spec(name: &str, replicas: u32, mut pod: Value) -> Value {
    pod["metadata"]["labels"] = json!({"app": name});
    json!({"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod})
}
