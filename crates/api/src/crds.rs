//! The CRDs of all kinds, as `lictor crd` prints and installs them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;
use serde::Serialize;
use serde_json::json;

use super::{ACCEPTED, ElectionClass, LeaderElection, PENDING, READY, Switchover};

/// The annotation of a CRD that has the version of the lictor that the CRD came from.
pub const VERSION_ANNOTATION: &str = "lictor.dev/version";

/// Returns the CRDs of all kinds.
pub fn crds() -> [CustomResourceDefinition; 3] {
    let election = "no operator has looked at this election yet; see docs/troubleshooting.md#an-election-says-nothing";
    let switchover =
        "no operator has looked at this Switchover yet; see docs/troubleshooting.md#an-election-says-nothing";
    let elections = with_default_status(LeaderElection::crd(), READY, election);
    let switchovers = with_default_status(Switchover::crd(), ACCEPTED, switchover);
    [elections, ElectionClass::crd(), switchovers].map(tidied)
}

/// Returns the CRDs as one YAML stream for `kubectl apply -f -`. `crds/` holds the same text.
///
/// # Errors
/// If a CRD can't be written as YAML, which would be a defect of this program.
pub fn crds_as_yaml() -> Result<String, serde_saphyr::SerializeError> {
    let mut text = String::from("# Made by `lictor crd`; `make fix` renews it.\n");
    for crd in crds() {
        text.push_str("---\n");
        text.push_str(&as_yaml(&crd)?);
    }
    Ok(text)
}

/// Returns a value as YAML, with each text on one line that has no line breaks of its own.
///
/// # Errors
/// If the value can't be written as YAML.
pub fn as_yaml(value: &impl Serialize) -> Result<String, serde_saphyr::SerializeError> {
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options)
}

/// Lets the API server say that no operator has looked at an object yet. Without this, an object that no operator
/// serves would have no condition, and tools that wait by kstatus would consider it ready.
fn with_default_status(mut crd: CustomResourceDefinition, type_: &str, message: &str) -> CustomResourceDefinition {
    let pending = json!({"conditions": [{
        "type": type_, "status": "Unknown", "reason": PENDING, "message": message, "lastTransitionTime": "1970-01-01T00:00:00Z",
    }]});
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        let status = schema.and_then(|schema| schema.properties.as_mut()?.get_mut("status"));
        if let Some(status) = status {
            status.default = Some(JSON(pending.clone()));
        }
    }
    crd
}

/// Changes a CRD to what the API server and the API conventions require and the Rust types can't express. Also removes
/// line breaks, because `kubectl explain` wraps lines itself.
fn tidied(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let annotations = crd.metadata.annotations.get_or_insert_default();
    annotations.insert(VERSION_ANNOTATION.into(), version);
    // Removing an application or a release that contains the CRDs must not delete all elections in the cluster.
    annotations.insert("helm.sh/resource-policy".into(), "keep".into());
    annotations.insert("argocd.argoproj.io/sync-options".into(), "Prune=false,Delete=false".into());
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            tidy(schema);
        }
    }
    crd
}

fn tidy(schema: &mut JSONSchemaProps) {
    let maximum = schema.maximum.unwrap_or(f64::INFINITY);
    schema.format = schema.format.take().map(|format| signed(format, maximum));
    // Optional means absent: the API server drops a null from a field that is not nullable.
    schema.nullable = None;
    schema.description = schema.description.take().map(|text| text.replace('\n', " "));
    // The API server merges such a list in the same way. A list that says so tells clients, too.
    if schema.type_.as_deref() == Some("array") {
        schema.x_kubernetes_list_type.get_or_insert_with(|| "atomic".into());
    }
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        tidy(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        tidy(items);
    }
}

/// Returns the format for a signed number. The API has no unsigned numbers, because not all languages have them;
/// `minimum` keeps negative numbers out.
fn signed(format: String, maximum: f64) -> String {
    match format.as_str() {
        "uint8" | "uint16" => "int32".into(),
        "uint32" if maximum <= f64::from(i32::MAX) => "int32".into(),
        "uint32" => "int64".into(),
        _ => format,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_and_the_selector_say_how_they_are_merged() {
        fn untyped(schema: &JSONSchemaProps) -> usize {
            let own = usize::from(schema.type_.as_deref() == Some("array") && schema.x_kubernetes_list_type.is_none());
            let items = match &schema.items {
                Some(JSONSchemaPropsOrArray::Schema(items)) => untyped(items),
                _ => 0,
            };
            own + items + schema.properties.iter().flat_map(|all| all.values()).map(untyped).sum::<usize>()
        }
        let schemas = crds().map(|crd| {
            let version = crd.spec.versions.into_iter().next().expect("it has a version");
            version.schema.and_then(|schema| schema.open_api_v3_schema).expect("it has a schema")
        });
        assert_eq!(schemas.each_ref().map(untyped), [0; 3]);
        let of =
            |schema: &JSONSchemaProps, name: &str| schema.properties.as_ref().and_then(|all| all.get(name)).cloned();
        let selector = of(&of(&schemas[0], "spec").expect("it has a spec"), "selector").expect("it has a selector");
        assert_eq!(selector.x_kubernetes_map_type.as_deref(), Some("atomic"));
    }
}
