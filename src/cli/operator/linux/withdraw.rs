//! `lictor withdraw`: removes everything that an installation has written.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use lictor_api::{ACCEPTED, ELECTED, FINALIZER, LeaderElection};
use lictor_core::Failure;
use lictor_kubernetes::{failure, within};
use lictor_locks::lease::Holder;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};

use super::operator::{Operator, Role};
use crate::cli::installation::Installation;
use crate::cli::support::{asked_to_end, block_on, told, unique};
use crate::controller::Purpose;
use crate::kubernetes::{Crds, Installed};
use crate::telemetry::{Health, LogFormat, Metrics, init_logs};

/// The beginning of this program's name in the operator's Lease while it withdraws.
const NAME: &str = "withdraw";
/// The time limit of each request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The annotation that Helm writes to each object that it creates.
const HELM_RELEASE: &str = "meta.helm.sh/release-name";
/// How often to check whether an object is gone.
const PERIOD: Duration = Duration::from_millis(200);

/// Removes everything that an installation has written: the labels and annotations of pods, locks, finalizers, and its
/// own Lease. Restores workloads to their previous settings.
///
/// lictor stops the operator first. LeaderElections and classes stay, so that a later installation of lictor serves
/// them again, with higher terms. With --delete-crds, lictor deletes them too, with their CRDs.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lictor withdraw --lease-namespace lictor --deployment lictor\n  lictor withdraw --kubeconfig ~/.kube/config --delete-crds    # an operator that ran on your own machine, and has ended"
)]
pub(crate) struct Withdraw {
    #[command(flatten)]
    installation: Installation,

    /// The operator's Deployment, in the namespace of its Lease. lictor scales it to zero. Default: none. You then stop
    /// the operator yourself, for example with Ctrl-C where it runs.
    #[arg(long, env = "LICTOR_DEPLOYMENT", value_name = "NAME")]
    deployment: Option<String>,

    /// Proceed only if this Helm release created the Deployment. The chart's Job sets this, so that it removes nothing
    /// unless `helm uninstall` runs it.
    #[arg(long, value_name = "NAME", requires = "deployment")]
    helm_release: Option<String>,

    /// Delete all LeaderElections and ElectionClasses, too, and their CRDs.
    #[arg(long)]
    delete_crds: bool,

    /// The time limit of the whole withdrawal, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,

    /// The format of log lines.
    #[arg(long, env = "LICTOR_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

impl Withdraw {
    pub(super) fn run(self) -> anyhow::Result<()> {
        init_logs(self.log_format)?;
        block_on(self.withdraw())
    }

    async fn withdraw(self) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(self.timeout);
        let role = Role {
            purpose: Purpose::Withdraw,
            own: Holder { identity: unique(Some(NAME.into())), ..Holder::default() },
            peers_by: None,
            // No standby waits for this claim. If this process is killed, the next one must not wait long.
            lease_duration: Duration::from_secs(5),
            metrics: Metrics::default(),
            health: Health::default(),
        };
        let client = role.connect(&self.installation).await?;
        let crds = Crds::new(client.clone(), TIMEOUT);
        if !self.is_defined(&crds).await {
            println!("the CRD of LeaderElection is not in this cluster: there is nothing to remove");
            return Ok(());
        }
        let namespace = self.installation.lease_namespace(&client);
        if let (Some(release), Some(deployment)) = (&self.helm_release, &self.deployment)
            && !is_of(release, deployment, &client, &namespace).await?
        {
            return Ok(());
        }
        match &self.deployment {
            Some(deployment) => stop_operator(deployment, &client, &namespace).await?,
            None => self.ask_to_stop_operator(&client, &namespace).await,
        }
        let mut operator = Operator::start(client.clone(), &self.installation, role)?;
        let ended = tokio::select! {
            ended = timeout_at(deadline, operator.ends()) => ended,
            asked = asked_to_end() => {
                asked?;
                bail!("stopped by a signal before everything was removed: run it again");
            }
        };
        match ended {
            Ok(ended) => ended?,
            Err(_) => bail!(
                "not everything was removed within {} s. Remaining: {}. {}",
                self.timeout,
                left(&client, &self.installation).await,
                self.next_step(&client, &namespace).await
            ),
        }
        operator.stop().await?;
        println!("removed all labels, annotations, locks and finalizers");
        let leases: Api<Lease> = Api::namespaced(client.clone(), &namespace);
        let name = self.installation.lease_name();
        gone("leases", within(TIMEOUT, leases.delete(&name, &DeleteParams::default())).await.map(drop))
            .map_err(told)?;
        if self.delete_crds { delete(&client, &crds, deadline).await } else { Ok(()) }
    }

    /// Returns whether the cluster has the CRD. Assumes so without the right to read CRDs, because the operator can run
    /// then.
    async fn is_defined(&self, crds: &Crds) -> bool {
        let installed = crds.installed().await.unwrap_or_default();
        !installed
            .iter()
            .any(|(name, installed)| name.starts_with("leaderelections.") && *installed == Installed::Missing)
    }

    /// Asks the user to stop the operator if one seems to act. For a replica that was killed, this waits until its
    /// Lease expires.
    async fn ask_to_stop_operator(&self, client: &Client, namespace: &str) {
        if let Some(holder) = self.holder(client, namespace).await {
            println!(
                "the operator {holder} holds the Lease {namespace}/{}: stop it, for example with Ctrl-C where it runs, \
                 or name its Deployment with --deployment; this waits for {} s at most",
                self.installation.lease_name(),
                self.timeout
            );
        }
    }

    /// Returns the holder of the operator's Lease, or `None` if there is none, or if it can't be read.
    async fn holder(&self, client: &Client, namespace: &str) -> Option<String> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        let lease = within(TIMEOUT, leases.get_opt(&self.installation.lease_name())).await.ok()??;
        lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
    }

    /// Says what to do when the time was too short.
    async fn next_step(&self, client: &Client, namespace: &str) -> String {
        match (&self.deployment, self.holder(client, namespace).await) {
            (Some(deployment), _) => format!(
                "The operator has stopped: run this again with a longer --timeout, or start the operator again: \
                 kubectl -n {namespace} scale deployment {deployment} --replicas=2"
            ),
            (None, Some(holder)) if !holder.starts_with(NAME) => format!(
                "The operator {holder} still acts: stop it, or name its Deployment with --deployment, and run this \
                 again"
            ),
            (None, _) => "Run this again with a longer --timeout".into(),
        }
    }
}

/// Returns whether a Helm release made the Deployment.
async fn is_of(release: &str, name: &str, client: &Client, namespace: &str) -> anyhow::Result<bool> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let by_hand = format!("to withdraw by hand, leave out --helm-release: lictor withdraw --deployment {name}");
    match within(TIMEOUT, api.get_opt(name)).await {
        Ok(Some(deployment)) if deployment.annotations().get(HELM_RELEASE).is_some_and(|name| name == release) => {
            Ok(true)
        }
        Ok(Some(_)) => {
            println!(
                "the Deployment {namespace}/{name} was not made by the Helm release {release}, so Helm is not removing \
                 it, and lictor withdraws nothing; {by_hand}"
            );
            Ok(false)
        }
        Ok(None) => bail!(
            "there is no Deployment {namespace}/{name}, so lictor can't tell whether Helm is removing the release \
             {release}; {by_hand}"
        ),
        Err(error) => Err(told(failure("get", "deployments", &error))),
    }
}

async fn stop_operator(deployment: &str, client: &Client, namespace: &str) -> anyhow::Result<()> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let scale = Patch::Merge(json!({"spec": {"replicas": 0}}));
    match within(TIMEOUT, api.patch_scale(deployment, &PatchParams::default(), &scale)).await {
        Ok(_) => println!("the operator has stopped: Deployment {namespace}/{deployment} has 0 replicas"),
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            println!("there is no Deployment {namespace}/{deployment}: no operator to stop");
        }
        Err(error) => return Err(told(failure("patch", "deployments/scale", &error))),
    }
    Ok(())
}

/// Returns the elections that a lictor still serves, each with the last message about it.
async fn left(client: &Client, installation: &Installation) -> String {
    let mut left = Vec::new();
    for (_, api) in installation.namespaces().apis::<LeaderElection>(client) {
        let Ok(listed) = within(TIMEOUT, api.list(&ListParams::default())).await else { continue };
        for election in listed.items.iter().filter(|election| is_held(election)) {
            let conditions = election.status.iter().flat_map(|status| &status.conditions);
            let said = conditions.filter(|condition| condition.type_ == ELECTED).map(|condition| &condition.message);
            let said: Vec<&str> = said.map(String::as_str).collect();
            let place = format!("{}/{}", election.namespace().unwrap_or_default(), election.name_any());
            left.push(format!("{place} ({})", said.join("; ")));
        }
    }
    if left.is_empty() {
        "no election, but another replica still holds the operator's Lease".into()
    } else {
        left.join(", ")
    }
}

/// Returns whether a lictor serves the election, as far as its status says: a withdrawn election is no longer accepted.
fn is_held(election: &LeaderElection) -> bool {
    let conditions = election.status.iter().flat_map(|status| &status.conditions);
    election.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
        || conditions.into_iter().any(|condition| condition.type_ == ACCEPTED && condition.status == "True")
}

/// Deletes the CRDs and their objects, but not while another installation still serves some of them.
async fn delete(client: &Client, crds: &Crds, deadline: Instant) -> anyhow::Result<()> {
    let api: Api<LeaderElection> = Api::all(client.clone());
    let listed = within(TIMEOUT, api.list(&ListParams::default())).await;
    let listed = listed.map_err(|error| told(failure("list", "leaderelections", &error)))?;
    let held = |election: &&LeaderElection| is_held(election);
    if let Some(other) = listed.items.iter().find(held) {
        bail!(
            "the CRDs stay, because another lictor serves {} of the elections, for example {}/{}: uninstall that \
             lictor too, or leave --delete-crds out",
            listed.items.iter().filter(held).count(),
            other.namespace().unwrap_or_default(),
            other.name_any()
        );
    }
    crds.delete().await.map_err(told)?;
    while crds.installed().await.map_err(told)?.iter().any(|(_, installed)| *installed != Installed::Missing) {
        if Instant::now() >= deadline {
            bail!("the CRDs are still being deleted: see kubectl get crd");
        }
        sleep(PERIOD).await;
    }
    println!("deleted {} elections, the classes and the CRDs", listed.items.len());
    Ok(())
}

/// Returns the outcome of a deletion. An object that does not exist counts as deleted.
fn gone(resource: &str, deleted: kube::Result<()>) -> Result<(), Failure> {
    match deleted {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted.map_err(|error| failure("delete", resource, &error)),
    }
}
