//! The definitions of the kinds, as they are installed in a cluster.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;

use super::{ElectionClass, LeaderElection};

/// On a definition: the lictor that it is of.
pub const VERSION_ANNOTATION: &str = "lictor.dev/version";

/// The definitions of all kinds.
pub fn definitions() -> [CustomResourceDefinition; 2] {
    [LeaderElection::crd(), ElectionClass::crd()].map(tidied)
}

/// The definitions as one YAML stream, ready for `kubectl apply -f -`. `crds/` holds the same text.
///
/// # Errors
/// If a definition can't be written as YAML, which would be a defect of this program.
pub fn definitions_as_yaml() -> Result<String, serde_yaml::Error> {
    let mut text = String::from("# Made by `lictor crd`; `make fix` renews it.\n");
    for definition in definitions() {
        text.push_str("---\n");
        text.push_str(&serde_yaml::to_string(&definition)?);
    }
    Ok(text)
}

/// What the API server and Kubernetes' conventions want otherwise than the types say; and `kubectl explain` breaks lines by itself.
fn tidied(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    definition.metadata.annotations.get_or_insert_default().insert(VERSION_ANNOTATION.into(), version);
    for version in &mut definition.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            tidy(schema);
        }
    }
    definition
}

fn tidy(schema: &mut JSONSchemaProps) {
    let maximum = schema.maximum.unwrap_or(f64::INFINITY);
    schema.format = schema.format.take().map(|format| signed(format, maximum));
    // What is optional is absent. The API server drops a null where nothing says that it may be one.
    schema.nullable = None;
    schema.description = schema.description.take().map(|text| text.replace('\n', " "));
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        tidy(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        tidy(items);
    }
}

/// The API has no unsigned numbers: not all languages do. What is never negative has its limit in `minimum`.
fn signed(format: String, maximum: f64) -> String {
    match format.as_str() {
        "uint8" | "uint16" => "int32".into(),
        "uint32" if maximum <= f64::from(i32::MAX) => "int32".into(),
        "uint32" => "int64".into(),
        _ => format,
    }
}
