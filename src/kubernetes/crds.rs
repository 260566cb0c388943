//! The CRDs as they are installed in the cluster.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use lictor_api::{VERSION_ANNOTATION, crds};
use lictor_core::Failure;
use lictor_kubernetes::{failure, within};

const RESOURCE: &str = "customresourcedefinitions";

/// The state of an installed CRD, compared with this program's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The CRD is not installed.
    Missing,
    /// The CRD is of an older lictor. The API server drops the fields that it does not know.
    Older(String),
    /// The CRD is of this version or of a newer one.
    Current,
}

/// The CRDs in a cluster.
pub struct Crds {
    api: Api<CustomResourceDefinition>,
    timeout: Duration,
}

impl Crds {
    /// Creates the client. `timeout` bounds each request.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { api: Api::all(client), timeout }
    }

    /// Returns the state of each CRD, with its name.
    ///
    /// # Errors
    /// Returns why they can't be read.
    pub async fn installed(&self) -> Result<Vec<(String, Installed)>, Failure> {
        let mut all = Vec::new();
        for crd in crds() {
            let name = crd.name_any();
            let found = within(self.timeout, self.api.get_opt(&name)).await;
            let found = found.map_err(|error| failure("get", RESOURCE, &error))?;
            all.push((name, found.as_ref().map_or(Installed::Missing, compared)));
        }
        Ok(all)
    }

    /// Installs the CRDs, or renews those that exist. Returns their names. `field_manager` owns the fields afterwards.
    ///
    /// # Errors
    /// Returns why one can't be written.
    pub async fn apply(&self, field_manager: &str) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for crd in crds() {
            let name = crd.name_any();
            let parameters = PatchParams::apply(field_manager).force();
            let patch = Patch::Apply(&crd);
            let applied = within(self.timeout, self.api.patch(&name, &parameters, &patch)).await;
            applied.map_err(|error| failure("patch", RESOURCE, &error))?;
            names.push(name);
        }
        Ok(names)
    }

    /// Returns the names of the CRDs that the API server does not serve yet.
    ///
    /// # Errors
    /// Returns why they can't be read.
    pub async fn unserved(&self) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for crd in crds() {
            let name = crd.name_any();
            let found = within(self.timeout, self.api.get_opt(&name)).await;
            let found = found.map_err(|error| failure("get", RESOURCE, &error))?;
            let conditions = found.and_then(|found| found.status).and_then(|status| status.conditions);
            let served = |kind: &str| {
                conditions.iter().flatten().any(|condition| condition.type_ == kind && condition.status == "True")
            };
            if !served("Established") || !served("NamesAccepted") {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Deletes the CRDs, and with them all objects of these kinds.
    ///
    /// # Errors
    /// Returns why one can't be deleted.
    pub async fn delete(&self) -> Result<(), Failure> {
        for crd in crds() {
            let name = crd.name_any();
            match within(self.timeout, self.api.delete(&name, &DeleteParams::default())).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                deleted => {
                    deleted.map_err(|error| failure("delete", RESOURCE, &error))?;
                }
            }
        }
        Ok(())
    }
}

/// Compares an installed CRD with this program's. CRDs without the annotation are older than all that have it.
fn compared(found: &CustomResourceDefinition) -> Installed {
    let version = found.annotations().get(VERSION_ANNOTATION).map_or("0.0.0", String::as_str);
    if numbers(version) < numbers(env!("CARGO_PKG_VERSION")) {
        Installed::Older(version.into())
    } else {
        Installed::Current
    }
}

fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-', '+']).take(3).map(|part| part.parse().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("0.9.0") < numbers("0.10.0"));
        assert!(numbers("0.1.9-rc.1") < numbers("0.2.0"));
        assert_eq!(numbers("1.2.3-rc.1"), numbers("1.2.3"));
        assert!(numbers("anything") < numbers("0.0.1"));
        assert!(crds().iter().all(|crd| compared(crd) == Installed::Current));
        let mut old = crds()[0].clone();
        old.annotations_mut().clear();
        assert_eq!(compared(&old), Installed::Older("0.0.0".into()));
    }
}
