//! The labels and annotations that came with a pod, by the writers that the API server notes (`metadata.managedFields`).

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use lictor_core::Provenance;
use serde_json::Value;

use crate::kubernetes::FIELD_MANAGER;

/// Returns the keys that came with a pod. The writer of its containers has created the pod, because no other writer can set them, and all
/// other keys of this writer came with them. A label that a person or program has written since, even with the same value, belongs to
/// another writer.
pub(super) fn provenance(metadata: &ObjectMeta) -> Provenance {
    let entries =
        metadata.managed_fields.iter().flatten().filter(|entry| entry.manager.as_deref() != Some(FIELD_MANAGER));
    let mut creators =
        entries.filter_map(fields).filter(|fields| fields["f:spec"]["f:containers"].is_object()).peekable();
    if creators.peek().is_none() {
        return Provenance { created_with: None };
    }
    let keys = |fields: Value| {
        let of = |what: &str| fields["f:metadata"][what].as_object().cloned().unwrap_or_default();
        [of("f:labels"), of("f:annotations")]
    };
    let keys = creators.flat_map(keys).flatten().filter_map(|(key, _)| key.strip_prefix("f:").map(str::to_owned));
    Provenance { created_with: Some(keys.collect::<BTreeSet<String>>()) }
}

fn fields(entry: &ManagedFieldsEntry) -> Option<Value> {
    entry.fields_v1.as_ref().map(|fields| fields.0.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_creator_wrote_came_with_the_pod() {
        let metadata: ObjectMeta = serde_json::from_value(json!({"managedFields": [
            {"manager": "kube-controller-manager", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {
                "f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app": {}, "f:example.com/role": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {}}},
            }},
            {"manager": "kubectl-label", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {
                "f:metadata": {"f:labels": {"f:role": {}}},
            }},
            {"manager": "kubelet", "operation": "Update", "subresource": "status"},
        ]}))
        .unwrap();
        let created = provenance(&metadata).created_with.unwrap();
        assert_eq!(created.into_iter().collect::<Vec<_>>(), ["app", "example.com/role"]);
    }

    #[test]
    fn without_a_creator_nothing_is_known() {
        for fields in [json!(null), json!([]), json!([{"manager": "x", "fieldsV1": {"f:metadata": {}}}])] {
            let metadata: ObjectMeta = serde_json::from_value(json!({"managedFields": fields})).unwrap();
            assert_eq!(provenance(&metadata), Provenance { created_with: None });
        }
    }
}
