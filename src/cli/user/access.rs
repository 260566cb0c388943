//! The options that select the cluster and the namespace of a command.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kube::Client;
use kube::config::Kubeconfig;

use super::reading::Reader;
use crate::cli::installation::{Installation, namespace};
use crate::kubernetes::{Namespaces, connect_in};

/// The time limit of each request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A cluster, and the user who reads it.
#[derive(Debug, Args)]
pub(crate) struct Cluster {
    /// The kubeconfig file. Default: the one that kubectl uses.
    #[arg(long, env = "LICTOR_KUBECONFIG", value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig. Default: the current one.
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
}

/// A cluster and one namespace in it.
#[derive(Debug, Args)]
pub(crate) struct Place {
    #[command(flatten)]
    pub(super) cluster: Cluster,

    /// The namespace. Default: that of the context.
    #[arg(short, long, value_name = "NAME", value_parser = namespace)]
    pub(super) namespace: Option<String>,
}

/// An installation, and the namespaces of a command.
#[derive(Debug, Args)]
pub(crate) struct Served {
    #[command(flatten)]
    pub(super) installation: Installation,

    /// The context of the kubeconfig. Default: the current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Check only the elections of this namespace, and what belongs to them. Default: those of all namespaces that
    /// lictor serves.
    #[arg(short, long, value_name = "NAME", value_parser = namespace)]
    namespace: Option<String>,
}

impl Cluster {
    pub(super) async fn connect(&self) -> anyhow::Result<Client> {
        Ok(connect_in(self.kubeconfig.as_deref(), self.context.as_deref(), TIMEOUT).await?)
    }

    /// Returns the name of the context in use, or `None` if there is no kubeconfig, or if it names no context.
    pub(super) fn context_name(&self) -> Option<String> {
        let of_file =
            || self.kubeconfig.as_deref().map_or_else(Kubeconfig::read, Kubeconfig::read_from).ok()?.current_context;
        self.context.clone().or_else(of_file)
    }

    pub(super) async fn reader(&self) -> anyhow::Result<Reader> {
        Ok(Reader::new(self.connect().await?, TIMEOUT))
    }
}

impl Served {
    pub(super) async fn reader(&self) -> anyhow::Result<Reader> {
        let cluster = Cluster { kubeconfig: self.installation.kubeconfig.clone(), context: self.context.clone() };
        cluster.reader().await
    }

    /// Returns the given namespace, or those that are served.
    pub(super) fn namespaces(&self) -> Namespaces {
        self.installation.or_only(self.namespace.as_deref())
    }
}

impl Place {
    /// Returns a reader of the cluster, and the namespace.
    pub(super) async fn reader(&self) -> anyhow::Result<(Reader, String)> {
        let reader = self.cluster.reader().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| reader.client().default_namespace().to_owned());
        Ok((reader, namespace))
    }
}
