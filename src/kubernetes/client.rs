//! The connection to the API server, and the part of the cluster that is looked at.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};

/// Why there is no connection, in words for a person.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The file can't be used.
    #[error("the kubeconfig {} can't be used: {reason}; name another file with --kubeconfig", path.display())]
    Kubeconfig {
        /// The file that was named.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No file was named, and none was found where they are looked for.
    #[error("there is no cluster to work in: name a kubeconfig with --kubeconfig or KUBECONFIG, or run in a pod ({0})")]
    NoCluster(String),
    /// No authority is named, and the system has none: an image has no files but the program.
    #[error(
        "no certificate authority is known by which the API server could be trusted: name one in the kubeconfig, as \
         certificate-authority-data ({0})"
    )]
    NoAuthority(String),
    /// The configuration makes no client.
    #[error("the connection can't be set up: {0}")]
    Client(#[from] kube::Error),
}

/// Connects as a kubeconfig says; without one as the environment says, in a pod with its service account.
///
/// # Errors
/// If the configuration can't be read or used. The server is not asked anything yet.
pub async fn connect(kubeconfig: Option<&Path>, request_timeout: Duration) -> Result<Client, ClientError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let unusable = |error: kube::config::KubeconfigError| ClientError::Kubeconfig {
                path: path.into(),
                reason: innermost(&error),
            };
            let parsed = Kubeconfig::read_from(path).map_err(unusable)?;
            Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.map_err(unusable)?
        }
        None => Config::infer().await.map_err(|error| ClientError::NoCluster(error.to_string().replace('\n', " ")))?,
    };
    // A repeated write is this program's own decision, and a late answer is of no use to it.
    config.default_retry = false;
    config.connect_timeout = Some(request_timeout);
    if config.accept_invalid_certs || config.cluster_url.scheme_str() == Some("http") {
        // No certificate is checked, so those of the system need not be there.
        config.root_cert.get_or_insert_default();
    }
    let of_the_system = config.root_cert.is_none() && config.root_cert_file.is_none();
    Client::try_from(config).map_err(|error| match error {
        kube::Error::RustlsTls(error) if of_the_system => ClientError::NoAuthority(innermost(&error)),
        error => ClientError::Client(error),
    })
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string().replace('\n', " ")
}

/// The namespaces that this operator serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces(Vec<String>);

impl Namespaces {
    /// These; all, if there are none.
    pub fn new(mut names: Vec<String>) -> Self {
        names.sort();
        names.dedup();
        Self(names)
    }

    /// The scopes to watch: each namespace, or the whole cluster as `None`.
    pub fn scopes(&self) -> Vec<Option<String>> {
        if self.0.is_empty() { vec![None] } else { self.0.iter().cloned().map(Some).collect() }
    }

    /// One API for each scope.
    pub fn apis<K>(&self, client: &Client) -> Vec<(Option<String>, Api<K>)>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        let api = |scope: Option<String>| match &scope {
            None => (None, Api::all(client.clone())),
            Some(namespace) => {
                let api = Api::namespaced(client.clone(), namespace);
                (scope, api)
            }
        };
        self.scopes().into_iter().map(api).collect()
    }
}
