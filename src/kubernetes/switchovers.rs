//! Switchovers: their status, and their deletion.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use lictor_api::{Switchover, SwitchoverStatus};
use lictor_core::Failure;
use lictor_kubernetes::{failure, patched, within};
use serde_json::{Value, json};

/// The Switchovers of a cluster.
#[derive(Clone)]
pub struct Switchovers {
    client: Client,
    timeout: Duration,
}

impl Switchovers {
    /// Creates the client. `timeout` bounds each request.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    /// Writes the status if the Switchover is still as `seen`, so that an older operator can't write back an older status.
    ///
    /// # Errors
    /// Returns `None` if the Switchover has changed meanwhile or is gone, otherwise why the status could not be written.
    pub async fn write_status(
        &self,
        seen: &Switchover,
        status: &SwitchoverStatus,
    ) -> Result<Switchover, Option<Failure>> {
        let mut fields = json!(status);
        // A merge patch keeps what it does not name, so it has to name the fields that may vanish.
        for vanishing in
            ["from", "to", "term", "durationMilliseconds", "requestedBy", "acceptTime", "completionTime", "conditions"]
        {
            if fields.get(vanishing).is_none() {
                fields[vanishing] = Value::Null;
            }
        }
        for pod in ["from", "to"] {
            if fields[pod].is_object() && fields[pod].get("podUID").is_none() {
                fields[pod]["podUID"] = Value::Null;
            }
        }
        let patch = json!({
            "metadata": {"uid": seen.uid(), "resourceVersion": seen.resource_version()},
            "status": fields,
        });
        let (api, name) = (self.api(seen), seen.name_any());
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let written = api.patch_status(&name, &parameters, &patch);
        patched("switchovers/status", within(self.timeout, written).await)
    }

    /// Deletes a Switchover, unless it is another one of the same name.
    ///
    /// # Errors
    /// Returns why the Switchover could not be deleted.
    pub async fn delete(&self, seen: &Switchover) -> Result<(), Failure> {
        let preconditions = Preconditions { uid: seen.uid(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let (api, name) = (self.api(seen), seen.name_any());
        match within(self.timeout, api.delete(&name, &parameters)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(error) => Err(failure("delete", "switchovers", &error)),
        }
    }

    fn api(&self, seen: &Switchover) -> Api<Switchover> {
        Api::namespaced(self.client.clone(), &seen.namespace().unwrap_or_default())
    }
}
