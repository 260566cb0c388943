//! The Services that lictor creates for elections. This is the only place in this program that writes Services.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use lictor_api::{LeaderElection, LeaderService};
use lictor_core::{ELECTION_ANNOTATION, Failure, Uid, Version};
use lictor_kubernetes::{LICTOR, MANAGED_BY, failure, version_of, within};
use serde_json::{Map, Value, json};

use super::services::{WRITTEN_ANNOTATION, WrittenKeys};
use super::workloads::FIELD_MANAGER;

/// A write of a Service that lictor creates.
#[derive(Clone, Debug)]
pub enum ServiceWrite {
    /// Creates the Service.
    Create(Arc<LeaderService>),
    /// Brings the Service up to date, if it is still as it was seen.
    Keep {
        /// The uid.
        uid: Uid,
        /// The version.
        version: Version,
        /// What the Service is to be.
        spec: Arc<LeaderService>,
        /// The labels and annotations of earlier specs.
        earlier: WrittenKeys,
        /// Whether the Service has no owner yet.
        adopts: bool,
    },
    /// Leaves the Service to the user, if it is still as it was seen.
    Release {
        /// The name.
        name: String,
        /// The uid.
        uid: Uid,
        /// The version.
        version: Version,
    },
    /// Deletes the Service.
    Delete {
        /// The name.
        name: String,
        /// The uid.
        uid: Uid,
    },
}

/// The Services that lictor creates in one cluster.
#[derive(Clone)]
pub struct Services {
    client: Client,
    timeout: Duration,
}

impl Services {
    /// Creates the client. `timeout` bounds each request.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    /// Carries out a write for an election. Returns the Service's uid and version afterwards, or `None` if the Service has changed
    /// meanwhile or is gone.
    ///
    /// # Errors
    /// If there is no answer, or a refusal.
    pub async fn write(
        &self,
        election: &LeaderElection,
        write: &ServiceWrite,
    ) -> Result<Option<(Uid, Version)>, Failure> {
        let namespace = election.namespace().unwrap_or_default();
        let api = Api::<k8s::Service>::namespaced(self.client.clone(), &namespace);
        let (verb, written) = match write {
            // A request that creates an object fails if there is one. A patch that also creates would write on a Service of somebody else.
            ServiceWrite::Create(spec) => {
                let mut object = body(election, spec, &WrittenKeys::default(), None);
                object["metadata"]["name"] = json!(spec.name);
                let object = serde_json::from_value(object).map_err(|error| Failure::Refused(error.to_string()))?;
                let parameters = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
                ("create", within(self.timeout, api.create(&parameters, &object)).await.map(Some))
            }
            ServiceWrite::Keep { uid, version, spec, earlier, adopts } => {
                let mut patch = body(election, spec, earlier, Some(uid));
                if *adopts {
                    patch["metadata"]["ownerReferences"] = owner(election);
                }
                patch["metadata"]["uid"] = json!(uid.0);
                patch["metadata"]["resourceVersion"] = json!(version.to_string());
                let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
                let patch = Patch::Merge(patch);
                let patched = api.patch(&spec.name, &parameters, &patch);
                ("patch", within(self.timeout, patched).await.map(Some))
            }
            ServiceWrite::Release { name, uid, version } => {
                let patch = Patch::Merge(json!({"metadata": {
                    "uid": uid.0, "resourceVersion": version.to_string(), "ownerReferences": null, "labels": {MANAGED_BY: null},
                    "annotations": {ELECTION_ANNOTATION: null, WRITTEN_ANNOTATION: null},
                }}));
                let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
                ("patch", within(self.timeout, api.patch(name, &parameters, &patch)).await.map(Some))
            }
            ServiceWrite::Delete { name, uid } => {
                let preconditions = Preconditions { uid: Some(uid.0.clone()), resource_version: None };
                let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                ("delete", within(self.timeout, api.delete(name, &parameters)).await.map(|_| None))
            }
        };
        match written {
            Ok(object) => Ok(object.map(|object| (Uid(object.uid().unwrap_or_default()), version_of(&object)))),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 404 && verb != "create" => Ok(None),
            Err(error) => Err(failure(verb, "services", &error)),
        }
    }
}

/// The fields of a Service that lictor writes, as a patch. `uid`: the Service's uid; `None` for a new Service, which gets the owner, too.
fn body(election: &LeaderElection, service: &LeaderService, earlier: &WrittenKeys, uid: Option<&Uid>) -> Value {
    let written = WrittenKeys {
        uid: uid.map(|uid| uid.0.clone()).unwrap_or_default(),
        labels: service.labels.keys().cloned().collect(),
        annotations: service.annotations.keys().cloned().collect(),
    };
    let gone = |earlier: &BTreeSet<String>, present: &BTreeSet<String>| -> Map<String, Value> {
        earlier.difference(present).map(|key| (key.clone(), Value::Null)).collect()
    };
    let mut labels = gone(&earlier.labels, &written.labels);
    labels.extend(service.labels.iter().map(|(key, value)| (key.clone(), json!(value))));
    labels.insert(MANAGED_BY.into(), json!(LICTOR));
    let mut annotations = gone(&earlier.annotations, &written.annotations);
    annotations.extend(service.annotations.iter().map(|(key, value)| (key.clone(), json!(value))));
    annotations.insert(ELECTION_ANNOTATION.into(), json!(election.name_any()));
    annotations.insert(WRITTEN_ANNOTATION.into(), json!(json!(written).to_string()));
    let mut object = json!({
        "metadata": {"labels": labels, "annotations": annotations}, "spec": service.service_spec(),
    });
    if uid.is_none() {
        object["metadata"]["ownerReferences"] = owner(election);
    }
    object
}

fn owner(election: &LeaderElection) -> Value {
    json!([{
        "apiVersion": LeaderElection::api_version(&()), "kind": LeaderElection::kind(&()), "name": election.name_any(),
        "uid": election.uid(), "controller": true,
    }])
}
