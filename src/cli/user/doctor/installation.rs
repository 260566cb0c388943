//! The installation: versions, CRDs, classes, and whether an operator acts.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::ResourceExt;
use lictor_api::{BUILT_IN_CLASS, DEFAULT_CONTROLLER, ElectionClass, READY, shared_class};
use lictor_core::Failure;
use tokio::time::{Instant, sleep};

use super::finding::Finding;
use crate::cli::installation::Installation;
use crate::cli::user::reading::{Reader, Seen};
use crate::kubernetes::Installed;

/// How often to read the operator's Lease.
const PERIOD: Duration = Duration::from_millis(500);
/// The oldest Kubernetes that is supported, as docs/install.md says.
const OLDEST: &str = "1.33";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The label of the chart's Deployment.
const CHART: &str = "app.kubernetes.io/name=lictor";
const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// One installation, as the cluster shows it.
pub(crate) struct Operator {
    /// The namespace of its Lease.
    pub(crate) namespace: String,
    lease: String,
    /// The Deployment that runs the operator. `None`: unknown from here.
    pub(crate) deployment: Option<Deployment>,
}

pub(super) fn server(version: &Info) -> Finding {
    let minor: String = version.minor.chars().take_while(char::is_ascii_digit).collect();
    let numbers = |text: &str| text.split('.').map(|part| part.parse().unwrap_or_default()).collect::<Vec<u32>>();
    if numbers(&format!("{}.{minor}", version.major)) < numbers(OLDEST) {
        return Finding::wrong(format!(
            "the API server runs Kubernetes {}, and the oldest version that lictor supports is {OLDEST}: upgrade \
             Kubernetes",
            version.git_version
        ));
    }
    Finding::ok(format!("the API server runs Kubernetes {}", version.git_version))
}

pub(super) async fn crds(reader: &Reader) -> Finding {
    let installed = match reader.crds().await {
        Ok(installed) => installed,
        // Only this right may be missing. The rights to read the kinds themselves are checked separately.
        Err(Failure::Refused(text) | Failure::Forbidden(text)) => {
            return Finding::unseen(format!("the CRDs were not checked: {text}"));
        }
        Err(Failure::Unknown(text) | Failure::Rewritten(text)) => return Finding::wrong(text),
    };
    crds_finding(&installed)
}

fn crds_finding(installed: &[(String, Installed)]) -> Finding {
    let troubles: Vec<String> = installed
        .iter()
        .filter_map(|(name, installed)| match installed {
            Installed::Current => None,
            Installed::Missing => Some(format!("the CRD {name} is missing")),
            Installed::Older(old) => Some(format!(
                "the CRD {name} comes from lictor {old}, and this is {VERSION}, so the API server drops the fields \
                 that the CRD lacks"
            )),
        })
        .collect();
    if troubles.is_empty() {
        return Finding::ok(format!("{} CRDs come from lictor {VERSION} or newer", installed.len()));
    }
    Finding::wrong(format!("{}: run `lictor crd --apply`", troubles.join("; ")))
}

/// Checks the classes that the operator serves, each with its store.
pub(super) async fn classes(reader: &Reader, controller: &str) -> Vec<Finding> {
    let classes = match reader.classes_or_right().await {
        Ok(classes) => classes,
        Err((why, true)) => {
            return vec![Finding::unseen(format!(
                "the classes were not checked, and an operator without this right serves only the built-in class \
                 {BUILT_IN_CLASS}: {why}"
            ))];
        }
        Err((why, false)) => return vec![Finding::unseen(format!("the classes were not checked: {why}"))],
    };
    let own: Vec<&ElectionClass> = classes.values().filter(|class| class.spec.controller == controller).collect();
    let troubles: Vec<Finding> = own.iter().filter_map(|class| trouble(class)).collect();
    if !troubles.is_empty() {
        return troubles;
    }
    let built_in = controller == DEFAULT_CONTROLLER && !classes.contains_key(BUILT_IN_CLASS);
    let built_in = built_in.then(|| format!("{BUILT_IN_CLASS} (built in)"));
    let names: Vec<String> = own.iter().map(|class| described(class)).chain(built_in).collect();
    if names.is_empty() {
        return vec![Finding::wrong(format!(
            "no class has the spec.controller {controller}, so the operator has no elections to serve: create such a \
             class"
        ))];
    }
    let slow = own.iter().filter_map(|class| slow(class));
    [Finding::ok(format!("served classes: {}", names.join(", ")))].into_iter().chain(slow).collect()
}

fn described(class: &ElectionClass) -> String {
    let store = shared_class(class).and_then(Result::ok).map(|shared| format!(" ({} answers)", shared.place()));
    format!("{}{}", class.name_any(), store.unwrap_or_default())
}

fn ready(class: &ElectionClass) -> Option<&Condition> {
    class.status.iter().flat_map(|status| &status.conditions).find(|condition| condition.type_ == READY)
}

fn slow(class: &ElectionClass) -> Option<Finding> {
    let ready = ready(class).filter(|ready| ready.reason == "Slow")?;
    Some(Finding::note(format!("the class {}: {}", class.name_any(), ready.message)))
}

fn trouble(class: &ElectionClass) -> Option<Finding> {
    let name = class.name_any();
    match ready(class) {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => {
            Some(Finding::wrong(format!("the class {name} is not ready: {}: {}", ready.reason, ready.message)))
        }
        // A class for Leases has no conditions until an operator has seen it.
        None => shared_class(class)
            .map(|_| Finding::wrong(format!("the class {name} has no status yet: is an operator running?"))),
    }
}

impl Operator {
    /// Finds the operator's Lease, and the Deployment next to it.
    pub(crate) async fn find(reader: &Reader, installation: &Installation) -> Self {
        let lease = installation.lease_name();
        let own = installation.lease_namespace(reader.client());
        let namespace = if installation.names_lease() {
            own
        } else {
            let leases = reader.leases(&lease).await.unwrap_or_default();
            let places: Vec<String> = leases.iter().filter_map(ResourceExt::namespace).collect();
            let first = places.first().cloned();
            if places.contains(&own) { own } else { first.unwrap_or(own) }
        };
        let found: Seen<Vec<Deployment>> = reader.deployments(&namespace, CHART).await;
        Self { deployment: found.ok().and_then(|found| found.into_iter().next()), namespace, lease }
    }

    /// Compares the version of the operator with that of this program.
    pub(super) fn version(&self) -> Option<Finding> {
        let deployment = self.deployment.as_ref()?;
        let version = deployment.labels().get(VERSION_LABEL)?;
        let place = format!("{}/{}", self.namespace, deployment.name_any());
        Some(if version == VERSION {
            Finding::ok(format!("the Deployment {place} runs lictor {version}, as this program"))
        } else {
            Finding::note(format!(
                "the Deployment {place} runs lictor {version}, and this program is {VERSION}: their decisions may \
                 differ"
            ))
        })
    }

    /// Checks that an operator renews the Lease. The times in the Lease come from another machine's clock, so this
    /// waits until the Lease changes.
    pub(super) async fn acts(&self, reader: &Reader, timeout: u64) -> Finding {
        let Self { namespace, lease: name, .. } = self;
        let deadline = Instant::now() + Duration::from_secs(timeout);
        let mut first: Option<Lease> = None;
        let holder =
            |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        loop {
            let lease = match reader.operator_lease(namespace, name).await {
                Ok(lease) => lease,
                Err(why) => return Finding::unseen(format!("not checked whether an operator acts: {why}")),
            };
            match (&first, lease) {
                (Some(before), Some(now)) if before.resource_version() != now.resource_version() => {
                    let holder = holder(&now);
                    if !holder.is_empty() {
                        return Finding::ok(format!("an operator acts: {holder} renews the Lease {namespace}/{name}"));
                    }
                    first = Some(now);
                }
                (None, Some(now)) => first = Some(now),
                _ => {}
            }
            if Instant::now() >= deadline {
                return Finding::wrong(match first {
                    None => format!(
                        "no operator acts: there is no Lease {namespace}/{name}. Is --lease-namespace right? See the \
                         operator's log"
                    ),
                    Some(lease) => format!(
                        "no operator acts: the Lease {namespace}/{name}, last held by {:?}, was not renewed within \
                         {timeout} s. See the operator's log",
                        holder(&lease)
                    ),
                });
            }
            sleep(PERIOD).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crd_that_is_missing_or_older_is_named() {
        let all = |states: [Installed; 3]| {
            let names = ["electionclasses", "leaderelections", "switchovers"].map(|kind| format!("{kind}.lictor.dev"));
            crds_finding(&names.into_iter().zip(states).collect::<Vec<_>>()).line()
        };
        assert!(all([Installed::Current, Installed::Current, Installed::Current]).contains("3 CRDs come from lictor"));
        let missing = all([Installed::Missing, Installed::Missing, Installed::Older("0.0.9".into())]);
        for says in [
            "the CRD electionclasses.lictor.dev is missing; the CRD leaderelections.lictor.dev is missing; ",
            "the CRD switchovers.lictor.dev comes from lictor 0.0.9",
            ": run `lictor crd --apply`\n",
        ] {
            assert!(missing.contains(says), "{says:?} is not in {missing}");
        }
    }
}
