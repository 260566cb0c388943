//! The definitions of the kinds, as they are installed in the cluster.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use lictor_core::Failure;

use super::{failure, within};
use crate::api::{VERSION_ANNOTATION, definitions};

const RESOURCE: &str = "customresourcedefinitions";

/// A definition in the cluster, beside the one that this program has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It is not there.
    Missing,
    /// Of an older lictor: the API server drops the fields that it does not know.
    Older(String),
    /// Of this version or a newer one.
    Current,
}

/// The definitions of the kinds in a cluster.
pub struct Definitions {
    api: Api<CustomResourceDefinition>,
    timeout: Duration,
}

impl Definitions {
    /// `timeout` bounds each request.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { api: Api::all(client), timeout }
    }

    /// Each by its name.
    ///
    /// # Errors
    /// Why they can't be read.
    pub async fn installed(&self) -> Result<Vec<(String, Installed)>, Failure> {
        let mut all = Vec::new();
        for definition in definitions() {
            let name = definition.name_any();
            let found = within(self.timeout, self.api.get_opt(&name)).await;
            let found = found.map_err(|error| failure("get", RESOURCE, &error))?;
            all.push((name, found.as_ref().map_or(Installed::Missing, compared)));
        }
        Ok(all)
    }

    /// Installs them, or renews those that are there, and tells their names. The fields are `field_manager`'s then.
    ///
    /// # Errors
    /// Why one can't be written.
    pub async fn apply(&self, field_manager: &str) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for definition in definitions() {
            let name = definition.name_any();
            let parameters = PatchParams::apply(field_manager).force();
            let patch = Patch::Apply(&definition);
            let applied = within(self.timeout, self.api.patch(&name, &parameters, &patch)).await;
            applied.map_err(|error| failure("patch", RESOURCE, &error))?;
            names.push(name);
        }
        Ok(names)
    }

    /// Those that the API server does not serve yet.
    ///
    /// # Errors
    /// Why they can't be read.
    pub async fn unserved(&self) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for definition in definitions() {
            let name = definition.name_any();
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

    /// Deletes them, and with them all objects of these kinds.
    ///
    /// # Errors
    /// Why one can't be deleted.
    pub async fn delete(&self) -> Result<(), Failure> {
        for definition in definitions() {
            let name = definition.name_any();
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

/// Definitions of before there was the annotation are older than all that have it.
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
        assert!(definitions().iter().all(|definition| compared(definition) == Installed::Current));
        let mut old = definitions()[0].clone();
        old.annotations_mut().clear();
        assert_eq!(compared(&old), Installed::Older("0.0.0".into()));
    }
}
