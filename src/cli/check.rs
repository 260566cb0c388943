//! `lictor check`: checks that an installation works.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use lictor_core::Failure;
use tokio::time::{Instant, sleep};

use super::installation::Installation;
use super::support::{block_on, print, told};
use crate::api::{BUILT_IN_CLASS, DEFAULT_CONTROLLER, ElectionClass};
use crate::kubernetes::{Crds, Installed, Namespaces, connect, failure, within};

/// The time limit of each request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often to read the operator's Lease.
const PERIOD: Duration = Duration::from_millis(500);

/// The rights that the operator needs: group, resource, verbs. docs/operating.md says what each is for.
const RIGHTS: [(&str, &str, &[&str]); 6] = [
    ("lictor.dev", "leaderelections", &["get", "list", "watch", "patch"]),
    ("lictor.dev", "leaderelections/status", &["patch"]),
    ("", "pods", &["get", "list", "watch", "patch"]),
    ("coordination.k8s.io", "leases", &["get", "list", "watch", "create", "patch", "delete"]),
    ("events.k8s.io", "events", &["create", "patch"]),
    ("lictor.dev", "electionclasses", &["list", "watch"]),
];

/// Checks that an installation works: that the CRDs exist and are of this version, that the classes are ready, that the caller
/// has the rights that the operator needs, and that an operator acts. It prints each problem with what to do, and exits with 1 if
/// there is one. The chart's test runs it as the operator's service account.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  kubectl -n lictor exec deploy/lictor -- /lictor check")]
pub(super) struct Check {
    #[command(flatten)]
    installation: Installation,

    /// How long to wait for an operator that acts, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
}

/// The result of one check: what is in order, or what is wrong and what to do.
type Finding = Result<String, String>;

impl Check {
    pub(super) fn run(self) -> anyhow::Result<()> {
        block_on(self.check())
    }

    async fn check(self) -> anyhow::Result<()> {
        let client = connect(self.installation.kubeconfig.as_deref(), TIMEOUT).await?;
        let mut troubles = 0;
        for finding in [
            crds(&client).await,
            rights(&client, &self.installation.namespaces()).await,
            classes(&client, &self.installation.controller).await,
            self.operator(&client).await,
        ] {
            troubles += usize::from(finding.is_err());
            match finding {
                Ok(text) => print(&format!("ok     {text}\n"))?,
                Err(text) => print(&format!("wrong  {text}\n"))?,
            }
        }
        if troubles > 0 {
            bail!("{troubles} of these checks failed");
        }
        Ok(())
    }

    /// Checks that an operator renews the Lease. The times in the Lease come from another machine's clock, so this waits until
    /// the Lease changes.
    async fn operator(&self, client: &Client) -> Finding {
        let (namespace, name) = (self.installation.lease_namespace(client), self.installation.lease_name());
        let api: Api<Lease> = Api::namespaced(client.clone(), &namespace);
        let deadline = Instant::now() + Duration::from_secs(self.timeout);
        let mut first: Option<Lease> = None;
        loop {
            let seen = within(TIMEOUT, api.get_opt(&name)).await;
            let lease = seen.map_err(|error| text(failure("get", "leases", &error)))?;
            let holder = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
            match (&first, lease) {
                (Some(before), Some(now)) if before.resource_version() != now.resource_version() => {
                    if let Some(holder) = holder(&now).filter(|holder| !holder.is_empty()) {
                        return Ok(format!("an operator acts: {holder} renews the Lease {namespace}/{name}"));
                    }
                    first = Some(now);
                }
                (None, Some(now)) => first = Some(now),
                _ => {}
            }
            if Instant::now() >= deadline {
                let within = format!("within {} s", self.timeout);
                return Err(match first {
                    None => format!(
                        "no operator acts: there is no Lease {namespace}/{name}. Is --lease-namespace right? See the log of the operator"
                    ),
                    Some(lease) => format!(
                        "no operator acts: the Lease {namespace}/{name}, last held by {:?}, is not renewed {within}. See the log of the operator",
                        holder(&lease).unwrap_or_default()
                    ),
                });
            }
            sleep(PERIOD).await;
        }
    }
}

async fn crds(client: &Client) -> Finding {
    let version = env!("CARGO_PKG_VERSION");
    let installed = match Crds::new(client.clone(), TIMEOUT).installed().await {
        Ok(installed) => installed,
        // This right alone may be missing. The rights to read the kinds themselves are checked separately.
        Err(Failure::Refused(text)) => return Ok(format!("the CRDs were not checked: {text}")),
        Err(failure) => return Err(text(failure)),
    };
    for (name, installed) in &installed {
        match installed {
            Installed::Current => {}
            Installed::Missing => return Err(format!("the CRD {name} is missing: run `lictor crd --apply`")),
            Installed::Older(old) => {
                return Err(format!(
                    "the CRD {name} is of lictor {old}, and this is {version}: the API server drops the fields that it does not know. Run `lictor crd --apply`"
                ));
            }
        }
    }
    Ok(format!("{} CRDs are of lictor {version} or newer", installed.len()))
}

async fn rights(client: &Client, namespaces: &Namespaces) -> Finding {
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let (mut asked, mut missing) = (0, Vec::new());
    for scope in namespaces.scopes() {
        for (group, resource, verbs) in RIGHTS {
            // Without this right, the operator serves the built-in class alone.
            if resource == "electionclasses" && scope.is_some() {
                continue;
            }
            for verb in verbs {
                let allowed = is_allowed(&api, scope.as_deref(), group, resource, verb).await;
                asked += 1;
                if !allowed.map_err(|error| text(failure("create", "selfsubjectaccessreviews", &error)))? {
                    let place =
                        scope.as_deref().map_or("all namespaces".into(), |name| format!("the namespace {name}"));
                    missing.push(format!("{verb} {resource} in {place}"));
                }
            }
        }
    }
    if missing.is_empty() {
        Ok(format!("{asked} rights are granted"))
    } else {
        Err(format!("rights are missing: {}. docs/operating.md lists them", missing.join(", ")))
    }
}

async fn is_allowed(
    api: &Api<SelfSubjectAccessReview>,
    namespace: Option<&str>,
    group: &str,
    resource: &str,
    verb: &str,
) -> kube::Result<bool> {
    let (resource, subresource) = resource.split_once('/').map_or((resource, None), |(of, sub)| (of, Some(sub)));
    let attributes = ResourceAttributes {
        group: Some(group.into()),
        namespace: namespace.map(Into::into),
        resource: Some(resource.into()),
        subresource: subresource.map(Into::into),
        verb: Some(verb.into()),
        ..ResourceAttributes::default()
    };
    let spec =
        SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..SelfSubjectAccessReviewSpec::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = within(TIMEOUT, api.create(&PostParams::default(), &review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

async fn classes(client: &Client, controller: &str) -> Finding {
    let api: Api<ElectionClass> = Api::all(client.clone());
    let listed = match within(TIMEOUT, api.list(&ListParams::default())).await {
        Ok(listed) => listed,
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            return Ok(format!("lictor has no right to read classes, and serves the built-in class {BUILT_IN_CLASS}"));
        }
        Err(error) => return Err(text(failure("list", "electionclasses", &error))),
    };
    let built_in =
        controller == DEFAULT_CONTROLLER && listed.items.iter().all(|class| class.name_any() != BUILT_IN_CLASS);
    let own: Vec<&ElectionClass> = listed.items.iter().filter(|class| class.spec.controller == controller).collect();
    let troubles: Vec<String> = own.iter().filter_map(|class| trouble(class)).collect();
    if troubles.is_empty() {
        let built_in = built_in.then(|| format!("{BUILT_IN_CLASS} (built in)"));
        let names: Vec<String> = own.iter().map(|class| class.name_any()).chain(built_in).collect();
        if names.is_empty() {
            return Err(format!(
                "no class has the spec.controller {controller}, so the operator has no elections to serve. Make such a class"
            ));
        }
        Ok(format!("served classes: {}", names.join(", ")))
    } else {
        Err(troubles.join("; "))
    }
}

fn trouble(class: &ElectionClass) -> Option<String> {
    let name = class.name_any();
    let ready = class.status.iter().flat_map(|status| &status.conditions).find(|condition| condition.type_ == "Ready");
    match ready {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(format!("the class {name} is not ready: {}: {}", ready.reason, ready.message)),
        // A class for Leases has no conditions.
        None => {
            class.spec.consul.as_ref().map(|_| format!("the class {name} has no status yet: does an operator act?"))
        }
    }
}

fn text(failure: Failure) -> String {
    told(failure).to_string()
}
