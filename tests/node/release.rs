//! The chart, installed by Helm.

use std::time::{Duration, SystemTime};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt};

use lictor_testing::signal;

use crate::nodes::Nodes;
use crate::{eventually, is_ready};

const NAMESPACE: &str = "lictor-system";
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/lictor");

/// A release of the chart.
pub struct Release<'a> {
    nodes: &'a Nodes,
    client: Client,
}

impl<'a> Release<'a> {
    /// Installs the chart. It returns as soon as Helm does, which does not wait for the operator.
    pub async fn install(nodes: &'a Nodes) -> Self {
        let client = nodes.client().await;
        nodes.helm(&[
            "install",
            "lictor",
            CHART,
            "-n",
            NAMESPACE,
            "--create-namespace",
            "--set",
            "image.pullPolicy=Never",
            "--set",
            "fencing.enabled=true",
        ]);
        Self { nodes, client }
    }

    /// Waits until both replicas are ready, and one acts.
    pub async fn runs(&self) {
        eventually("two replicas are ready", || async {
            let pods = self.list().await;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            if pods.len() == 2 && ready == 2 { Ok(()) } else { Err(format!("{pods:#?}")) }
        })
        .await;
        self.acting().await;
    }

    pub fn test(&self) {
        println!("{}", self.nodes.helm(&["test", "lictor", "-n", NAMESPACE, "--logs"]));
    }

    /// Rolls the operator out again, and waits for that.
    pub fn upgrade(&self) {
        let set = ["image.pullPolicy=Never", "fencing.enabled=true", "logLevel=debug"];
        let set: Vec<&str> = set.into_iter().flat_map(|value| ["--set", value]).collect();
        self.nodes
            .helm(&[&["upgrade", "lictor", CHART, "-n", NAMESPACE, "--wait", "--timeout", "120s"], &set[..]].concat());
    }

    pub fn uninstall(&self) {
        self.nodes.helm(&["uninstall", "lictor", "-n", NAMESPACE, "--wait", "--timeout", "120s"]);
    }

    /// Returns the names of the operator's pods.
    pub async fn pods(&self) -> Vec<String> {
        self.list().await.iter().map(ResourceExt::name_any).collect()
    }

    /// Does something to the pod that acts. Returns how long it took until a replica renewed the operator's Lease again.
    pub async fn acts_again(&self, cause: impl AsyncFnOnce(&Pod)) -> Duration {
        let pod = self.acting().await;
        let began = SystemTime::now();
        cause(&pod).await;
        let renewed = eventually("one acts", || async {
            let (holder, renewed) = self.lease().await.ok_or("no Lease")?;
            (!holder.is_empty() && renewed > began).then_some(renewed).ok_or(holder)
        })
        .await;
        renewed.duration_since(began).unwrap_or_default()
    }

    /// Makes a replica on this node act.
    pub async fn acts_on(&self, node: &str) {
        loop {
            let pod = self.acting().await;
            if pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node) {
                return;
            }
            self.acts_again(async |pod| self.delete(pod).await).await;
            self.runs().await;
        }
    }

    pub async fn delete(&self, pod: &Pod) {
        self.api().delete(&pod.name_any(), &DeleteParams::default()).await.expect("a pod can be deleted");
    }

    pub fn kill(pod: &Pod) {
        signal("KILL", &[Nodes::process(&pod.uid().unwrap_or_default(), "/lictor")]);
    }

    /// Returns the pod that acts.
    pub async fn acting(&self) -> Pod {
        eventually("a replica acts", || async {
            let (holder, _) = self.lease().await.ok_or("no Lease")?;
            let pods = self.list().await;
            pods.into_iter().find(|pod| holder.contains(&pod.name_any())).ok_or(holder)
        })
        .await
    }

    /// Returns who holds the operator's Lease, and when it was renewed last.
    async fn lease(&self) -> Option<(String, SystemTime)> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let spec = leases.get_opt("lictor.dev-operator").await.ok()??.spec?;
        Some((spec.holder_identity?, SystemTime::from(spec.renew_time?.0)))
    }

    async fn list(&self) -> Vec<Pod> {
        let selector = ListParams::default().labels("app.kubernetes.io/name=lictor");
        self.api().list(&selector).await.map(|list| list.items).unwrap_or_default()
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }
}
