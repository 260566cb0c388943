//! The status of classes.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use lictor_core::Failure;
use serde_json::{Value, json};

use super::failure::patched;
use super::within;
use crate::api::{ElectionClass, ElectionClassStatus};

/// The classes of a cluster.
#[derive(Clone)]
pub struct ElectionClasses {
    client: Client,
    timeout: Duration,
}

impl ElectionClasses {
    /// Creates the client. `timeout` bounds each request.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    /// Writes the status if the class is still as `seen`, so that a finding about an older spec is not reported for a newer one.
    ///
    /// # Errors
    /// Returns `None` if the class has changed meanwhile or is gone, otherwise why the status could not be written.
    pub async fn write_status(
        &self,
        seen: &ElectionClass,
        status: &ElectionClassStatus,
    ) -> Result<ElectionClass, Option<Failure>> {
        let mut fields = json!(status);
        // A merge patch keeps what it does not name, so it has to name the fields that may vanish.
        for vanishing in ["consul", "conditions"] {
            if fields.get(vanishing).is_none() {
                fields[vanishing] = Value::Null;
            }
        }
        if status.consul.is_some() {
            for vanishing in ["nodeName", "sessions"] {
                if fields["consul"].get(vanishing).is_none() {
                    fields["consul"][vanishing] = Value::Null;
                }
            }
        }
        let patch = json!({
            "metadata": {"uid": seen.uid(), "resourceVersion": seen.resource_version()},
            "status": fields,
        });
        let api: Api<ElectionClass> = Api::all(self.client.clone());
        let name = seen.name_any();
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let written = api.patch_status(&name, &parameters, &patch);
        patched("electionclasses/status", within(self.timeout, written).await)
    }
}
