//! The options of `run`, `doctor` and `withdraw` that select an installation.

use std::path::PathBuf;

use clap::Args;
use kube::Client;
use kube::config::Kubeconfig;
use lictor_api::DEFAULT_CONTROLLER;

use crate::kubernetes::Namespaces;

/// The namespace of the operator's own Lease, if neither the user nor a pod gives one.
const DEFAULT_NAMESPACE: &str = "default";

/// One installation of lictor in a cluster.
#[derive(Debug, Args)]
pub(super) struct Installation {
    /// The kubeconfig file. Default: the one that kubectl uses; in a pod, its service account.
    #[arg(long, env = "LICTOR_KUBECONFIG", value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// The namespaces to serve, separated by commas. Default: all namespaces.
    #[arg(long, env = "LICTOR_NAMESPACES", value_name = "NAMES", value_delimiter = ',', value_parser = namespace)]
    namespaces: Vec<String>,

    /// The namespace of the operator's own Lease. Default: in a pod, the pod's namespace; elsewhere "default",
    /// regardless of the kubeconfig's context.
    #[arg(long, env = "LICTOR_LEASE_NAMESPACE", value_name = "NAME", value_parser = namespace)]
    lease_namespace: Option<String>,

    /// The elections to serve: those whose ElectionClass has this name in spec.controller.
    #[arg(long, env = "LICTOR_CONTROLLER", value_name = "NAME", default_value = DEFAULT_CONTROLLER, value_parser = controller)]
    pub(super) controller: String,
}

impl Installation {
    pub(super) fn namespaces(&self) -> Namespaces {
        Namespaces::new(self.namespaces.clone())
    }

    /// Returns the given namespace, or those that are served.
    pub(super) fn or_only(&self, namespace: Option<&str>) -> Namespaces {
        namespace.map_or_else(|| self.namespaces(), |name| Namespaces::new(vec![name.to_owned()]))
    }

    /// Returns the namespace of the operator's own Lease. The namespace of a kubeconfig's context does not count,
    /// because an installation must not move when that changes.
    pub(super) fn lease_namespace(&self, client: &Client) -> String {
        let in_pod = || self.kubeconfig.is_none() && Kubeconfig::read().is_err();
        let usual = || if in_pod() { client.default_namespace() } else { DEFAULT_NAMESPACE }.to_owned();
        self.lease_namespace.clone().unwrap_or_else(usual)
    }

    /// Returns whether the user gave the namespace of the operator's own Lease.
    pub(super) fn names_lease(&self) -> bool {
        self.lease_namespace.is_some()
    }

    /// Returns the name of the operator's own Lease.
    pub(super) fn lease_name(&self) -> String {
        lease_name(&self.controller)
    }
}

/// Returns the name of the Lease of a controller's operators.
pub(super) fn lease_name(controller: &str) -> String {
    controller.replace('/', "-")
}

pub(super) fn namespace(name: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let edge = |c: Option<char>| c.is_some_and(|c| c != '-');
    if name.len() <= 63 && name.chars().all(legal) && edge(name.chars().next()) && edge(name.chars().last()) {
        Ok(name.into())
    } else {
        Err("a namespace has lower-case letters, digits and '-', for example shop".into())
    }
}

/// Checks the controller's name. It becomes part of the name of the operator's Lease, so it must be valid there.
fn controller(name: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '/');
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if name.len() <= 253 && name.chars().all(legal) && edge(name.chars().next()) && edge(name.chars().last()) {
        Ok(name.into())
    } else {
        Err("a controller has lower-case letters, digits, '-', '.' and '/', for example example.com/lictor".into())
    }
}
