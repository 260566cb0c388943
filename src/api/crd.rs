//! The definitions of the kinds, as they are installed in a cluster.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use super::{ElectionClass, LeaderElection};

/// The definitions of all kinds.
pub fn definitions() -> [CustomResourceDefinition; 2] {
    [LeaderElection::crd(), ElectionClass::crd()]
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
