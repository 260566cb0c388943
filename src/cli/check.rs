//! `lictor check`: is all well with an installation?

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
use crate::kubernetes::{Definitions, Installed, Namespaces, connect, failure, within};

/// The limit of each request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often the operator's Lease is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// What the operator needs: group, resource, verbs. docs/operating.md says for what.
const RIGHTS: [(&str, &str, &[&str]); 6] = [
    ("lictor.dev", "leaderelections", &["get", "list", "watch", "patch"]),
    ("lictor.dev", "leaderelections/status", &["patch"]),
    ("", "pods", &["get", "list", "watch", "patch"]),
    ("coordination.k8s.io", "leases", &["get", "list", "watch", "create", "patch", "delete"]),
    ("events.k8s.io", "events", &["create", "patch"]),
    ("lictor.dev", "electionclasses", &["list", "watch"]),
];

/// Looks whether an installation works: are the definitions there and of this version, are the classes ready, has whoever runs this
/// the rights that the operator needs, and does somebody act? The chart's test runs it as the operator's service account.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  kubectl -n lictor exec deploy/lictor -- /lictor check")]
pub(super) struct Check {
    #[command(flatten)]
    installation: Installation,

    /// How long to wait for an operator that acts, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
}

/// What a look at one thing has shown: all well, and how; or what is wrong, and what to do.
type Finding = Result<String, String>;

impl Check {
    pub(super) fn run(self) -> anyhow::Result<()> {
        block_on(self.check())
    }

    async fn check(self) -> anyhow::Result<()> {
        let client = connect(self.installation.kubeconfig.as_deref(), TIMEOUT).await?;
        let mut troubles = 0;
        for finding in [
            definitions(&client).await,
            rights(&client, &self.installation.namespaces()).await,
            classes(&client, &self.installation.controller).await,
            self.operator(&client).await,
        ] {
            troubles += usize::from(finding.is_err());
            match finding {
                Ok(well) => print(&format!("well   {well}\n"))?,
                Err(wrong) => print(&format!("wrong  {wrong}\n"))?,
            }
        }
        if troubles > 0 {
            bail!("{troubles} of these are not well");
        }
        Ok(())
    }

    /// Somebody acts who renews the Lease. The times in it are another machine's: it is watched until it changes.
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

async fn definitions(client: &Client) -> Finding {
    let version = env!("CARGO_PKG_VERSION");
    let installed = match Definitions::new(client.clone(), TIMEOUT).installed().await {
        Ok(installed) => installed,
        // It may lack that right alone: what it has to read of the kinds themselves is among the rights.
        Err(Failure::Refused(text)) => return Ok(format!("the definitions were not looked at: {text}")),
        Err(failure) => return Err(text(failure)),
    };
    for (name, installed) in &installed {
        match installed {
            Installed::Current => {}
            Installed::Missing => return Err(format!("{name} is not defined: run `lictor crd --apply`")),
            Installed::Older(old) => {
                return Err(format!(
                    "{name} is that of lictor {old}, and this is {version}: fields that it does not know are dropped. Run `lictor crd --apply`"
                ));
            }
        }
    }
    Ok(format!("{} definitions are those of lictor {version} or newer", installed.len()))
}

async fn rights(client: &Client, namespaces: &Namespaces) -> Finding {
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let (mut asked, mut missing) = (0, Vec::new());
    for scope in namespaces.scopes() {
        for (group, resource, verbs) in RIGHTS {
            // Without it, the built-in class alone is served.
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
        Ok(format!("{asked} rights are there"))
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
            return Ok(format!("without a right to read classes, the built-in class {BUILT_IN_CLASS} is served"));
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
                "no class has the spec.controller {controller}: it has no elections to serve. Make one"
            ));
        }
        Ok(format!("classes that are served: {}", names.join(", ")))
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
        // Of Leases nothing is told.
        None => class
            .spec
            .consul
            .as_ref()
            .map(|_| format!("of the class {name} nothing is known yet: does an operator act?")),
    }
}

fn text(failure: Failure) -> String {
    told(failure).to_string()
}
