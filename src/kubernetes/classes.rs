//! The status of classes.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use lictor_api::{ElectionClass, ElectionClassStatus};
use lictor_core::Failure;
use lictor_kubernetes::{patched, within};
use serde_json::{Value, json};

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
        name_vanished(&json!(seen.status), &mut fields);
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

/// Sets fields to null that existed before and no longer do, because a merge patch keeps what it does not name.
fn name_vanished(before: &Value, fields: &mut Value) {
    let (Value::Object(before), Value::Object(fields)) = (before, fields) else { return };
    for (name, before) in before {
        match fields.get_mut(name) {
            Some(field) => name_vanished(before, field),
            None => drop(fields.insert(name.clone(), Value::Null)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_names_each_field_that_vanishes() {
        let named = |before: Value, mut after: Value| {
            name_vanished(&before, &mut after);
            after
        };
        let full = json!({"observedGeneration": 1, "consul": {"version": "1", "sessions": ["a"]}, "conditions": [{}]});
        assert_eq!(named(full.clone(), full.clone()), full);
        assert_eq!(
            named(full.clone(), json!({"observedGeneration": 2, "consul": {"version": "2"}})),
            json!({"observedGeneration": 2, "consul": {"version": "2", "sessions": null}, "conditions": null})
        );
        assert_eq!(named(full, json!({"conditions": []}))["consul"], Value::Null);
        assert_eq!(named(Value::Null, json!({"conditions": []})), json!({"conditions": []}), "there was none");
    }
}
