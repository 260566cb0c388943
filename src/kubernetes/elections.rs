//! Elections: their status and finalizers, and fresh reads.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use lictor_api::{Claims, FINALIZER, LeaderElection, LeaderElectionStatus, WORKLOADS_ANNOTATION};
use lictor_core::{ElectionRead, Failure, Uid};
use lictor_kubernetes::{failure, patched, within};
use serde_json::json;

/// The elections of one cluster.
#[derive(Clone)]
pub struct Elections {
    client: Client,
    timeout: Duration,
}

impl Elections {
    /// Creates the client. `timeout` bounds each request.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    /// Reads the election from the API server.
    ///
    /// # Errors
    /// If there is no answer, or a refusal.
    pub async fn read(&self, namespace: &str, name: &str) -> Result<ElectionRead, Failure> {
        match within(self.timeout, self.api(namespace).get_opt(name)).await {
            Ok(None) => Ok(ElectionRead::Gone),
            Ok(Some(election)) => Ok(ElectionRead::Present {
                uid: Uid(election.uid().unwrap_or_default()),
                generation: election.metadata.generation.unwrap_or_default(),
            }),
            Err(error) => Err(failure("get", "leaderelections", &error)),
        }
    }

    /// Writes the status if the election is still as `seen`, so that an older operator can't write back an older status.
    ///
    /// # Errors
    /// Returns `None` if the election has changed meanwhile, otherwise why the status could not be written.
    pub async fn write_status(
        &self,
        seen: &LeaderElection,
        status: &LeaderElectionStatus,
    ) -> Result<LeaderElection, Option<Failure>> {
        let mut fields = json!(status);
        // A merge patch keeps what it does not name, so it has to name the fields that may vanish.
        let name_all = |fields: &mut serde_json::Value, vanishing: &[&str]| {
            for field in vanishing {
                if fields.get(field).is_none() {
                    fields[field] = serde_json::Value::Null;
                }
            }
        };
        let nested: [(&str, &[&str]); 2] = [
            ("leader", &["name", "podName", "podUID", "clusterName", "session", "nodeName", "podIP", "acquireTime"]),
            ("followedLock", &["holder", "podName", "transitions", "acquireTime"]),
        ];
        for (field, vanishing) in nested {
            if let Some(present) = fields.get_mut(field).filter(|field| field.is_object()) {
                name_all(present, vanishing);
            }
        }
        name_all(
            &mut fields,
            &[
                "leader",
                "term",
                "followedLock",
                "candidates",
                "worstCaseFailoverSeconds",
                "className",
                "workloads",
                "history",
                "conditions",
            ],
        );
        let patch = json!({
            "metadata": {"uid": seen.uid(), "resourceVersion": seen.resource_version()},
            "status": fields,
        });
        let api = self.api(&seen.namespace().unwrap_or_default());
        let name = seen.name_any();
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let written = api.patch_status(&name, &parameters, &patch);
        patched("leaderelections/status", within(self.timeout, written).await)
    }

    /// Adds or removes the finalizer, and notes which workloads are changed, if the election is still as `seen`.
    ///
    /// # Errors
    /// Returns `None` if the election has changed meanwhile, otherwise why it could not be written.
    pub async fn write_metadata(
        &self,
        seen: &LeaderElection,
        held: bool,
        claims: &Claims,
    ) -> Result<LeaderElection, Option<Failure>> {
        let others = seen.finalizers().iter().map(String::as_str).filter(|finalizer| *finalizer != FINALIZER);
        let finalizers: Vec<&str> = others.chain(held.then_some(FINALIZER)).collect();
        let patch = json!({
            "metadata": {
                "uid": seen.uid(), "resourceVersion": seen.resource_version(), "finalizers": finalizers,
                "annotations": {WORKLOADS_ANNOTATION: claims.text()},
            },
        });
        let api = self.api(&seen.namespace().unwrap_or_default());
        let name = seen.name_any();
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let written = api.patch(&name, &parameters, &patch);
        patched("leaderelections", within(self.timeout, written).await)
    }

    fn api(&self, namespace: &str) -> Api<LeaderElection> {
        Api::namespaced(self.client.clone(), namespace)
    }
}
