//! The connection to the API server, and the part of the cluster that the operator serves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Error as ConnectionError;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::NamespaceResourceScope;
use kube::client::{Body, ConfigExt};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config, Resource};
use tower::{BoxError, ServiceBuilder};

/// Why there is no connection, for a person.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig can't be used.
    #[error("the kubeconfig {} can't be used: {reason}; name another file with --kubeconfig", path.display())]
    Kubeconfig {
        /// The file that the user named.
        path: PathBuf,
        /// The defect of the file.
        reason: String,
    },
    /// The context that the user named can't be used.
    #[error("the context {context:?} can't be used: {reason}; `kubectl config get-contexts` lists all contexts")]
    Context {
        /// The name.
        context: String,
        /// The defect of the context.
        reason: String,
    },
    /// The user named no file, and there is none in the usual places.
    #[error(
        "there is no cluster to connect to: name a kubeconfig with --kubeconfig or KUBECONFIG, or run in a pod ({0})"
    )]
    NoCluster(String),
    /// The configuration names no certificate authority, and the system has none: lictor's image has no files besides the
    /// program.
    #[error(
        "there is no certificate authority by which to trust the API server: name one in the kubeconfig, as \
         certificate-authority-data ({0})"
    )]
    NoAuthority(String),
    /// No client can be made from the configuration.
    #[error("the connection can't be set up: {0}")]
    Client(#[from] kube::Error),
}

/// Connects as a kubeconfig says. Without one, it connects as the environment says, which in a pod means with its service
/// account.
///
/// # Errors
/// If the configuration can't be read or used. This sends no request yet.
pub async fn connect(kubeconfig: Option<&Path>, request_timeout: Duration) -> Result<Client, ClientError> {
    connect_in(kubeconfig, None, request_timeout).await
}

/// Connects as a context of the kubeconfig says. Without one, it takes the present context.
///
/// # Errors
/// If the configuration can't be read or used. This sends no request yet.
pub async fn connect_in(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    request_timeout: Duration,
) -> Result<Client, ClientError> {
    let unusable = |error: KubeconfigError| match (kubeconfig, context) {
        (Some(path), None) => ClientError::Kubeconfig { path: path.into(), reason: innermost(&error) },
        (_, Some(context)) => ClientError::Context { context: context.into(), reason: innermost(&error) },
        (None, None) => ClientError::NoCluster(innermost(&error)),
    };
    let config = match (kubeconfig, context) {
        (Some(_), _) | (_, Some(_)) => {
            let parsed = kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from).map_err(unusable)?;
            let options = KubeConfigOptions { context: context.map(Into::into), ..KubeConfigOptions::default() };
            Config::from_custom_kubeconfig(parsed, &options).await.map_err(unusable)?
        }
        (None, None) => {
            Config::infer().await.map_err(|error| ClientError::NoCluster(error.to_string().replace('\n', " ")))?
        }
    };
    ready(config, request_timeout)
}

/// Creates a client that sends each request once.
fn ready(mut config: Config, request_timeout: Duration) -> Result<Client, ClientError> {
    // lictor decides itself when to repeat a write, and can't use a late answer.
    config.default_retry = false;
    config.connect_timeout = Some(request_timeout);
    if config.accept_invalid_certs || config.cluster_url.scheme_str() == Some("http") {
        // The client checks no certificate, so the system need not have any.
        config.root_cert.get_or_insert_default();
    }
    let of_the_system = config.root_cert.is_none() && config.root_cert_file.is_none();
    client(config).map_err(|error| match error {
        kube::Error::RustlsTls(error) if of_the_system => ClientError::NoAuthority(innermost(&error)),
        error => ClientError::Client(error),
    })
}

/// Connects as a kubeconfig says that somebody has put into a Secret. It may have no effect on this machine, so it names no files and
/// runs no programs.
///
/// # Errors
/// If it can't be read or used. This sends no request yet.
pub async fn connect_by(kubeconfig: &[u8], request_timeout: Duration) -> Result<Client, GivenError> {
    let unusable = |error: KubeconfigError| GivenError::Unusable(innermost(&error));
    let text = std::str::from_utf8(kubeconfig).map_err(|_| GivenError::Unusable("it is no text".into()))?;
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(unusable)?;
    if let Some(field) = reaches_out(&kubeconfig) {
        return Err(GivenError::ReachesOut(field));
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(unusable)?;
    ready(config, request_timeout).map_err(|error| GivenError::Unusable(error.to_string()))
}

/// Why a kubeconfig from a Secret can't be used.
#[derive(Debug, thiserror::Error)]
pub enum GivenError {
    /// It can't be read, or lacks something.
    #[error("the kubeconfig in the Secret can't be used: {0}; make one with `kubectl config view --minify --flatten`")]
    Unusable(String),
    /// It names a file or a program.
    #[error(
        "the kubeconfig in the Secret has {0}, which would read a file or run a program where lictor runs: put the certificates \
         and the token themselves into it, for example with `kubectl config view --minify --flatten`"
    )]
    ReachesOut(&'static str),
}

/// Returns the first field that names a file or a program.
fn reaches_out(kubeconfig: &Kubeconfig) -> Option<&'static str> {
    let mut users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let of_user = |user: &AuthInfo| {
        [
            (user.exec.is_some(), "exec"),
            (user.auth_provider.is_some(), "auth-provider"),
            (user.token_file.is_some(), "tokenFile"),
            (user.client_certificate.is_some(), "client-certificate"),
            (user.client_key.is_some(), "client-key"),
        ]
        .into_iter()
        .find_map(|(has, field)| has.then_some(field))
    };
    let mut clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let authority = clusters.any(|cluster| cluster.certificate_authority.is_some());
    users.find_map(of_user).or(authority.then_some("certificate-authority"))
}

/// Creates a client like `Client::try_from`, but without Nagle's algorithm. With it, a request waits until the server has acknowledged the
/// one before, and a server that has nothing to answer yet does so after 40 ms.
fn client(config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        // This reports what is missing for a proxy.
        return Client::try_from(config);
    }
    let server = config.cluster_url.to_string();
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp())?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let connections = hyper_util::client::legacy::Builder::new(TokioExecutor::new()).build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(move |source| BoxError::from(Disconnected { server: server.clone(), source }))
        .service(connections);
    Ok(Client::new(service, config.default_namespace))
}

/// A connection to the API server that can't be made, or broke. kube's own error does not name the server.
#[derive(Debug, thiserror::Error)]
#[error("{} the API server at {}", if self.source.is_connect() { "no connection to" } else { "a broken connection to" }, server.trim_end_matches('/'))]
struct Disconnected {
    server: String,
    source: ConnectionError,
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp
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
    /// Serves these namespaces, or all if there are none.
    pub fn new(mut names: Vec<String>) -> Self {
        names.sort();
        names.dedup();
        Self(names)
    }

    /// Returns the scopes to watch: each namespace, or `None` for the whole cluster.
    pub fn scopes(&self) -> Vec<Option<String>> {
        if self.0.is_empty() { vec![None] } else { self.0.iter().cloned().map(Some).collect() }
    }

    /// Returns one API for each scope.
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

#[cfg(test)]
mod tests {
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_sends_at_once_what_it_is_given() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let connection = tcp().oneshot(address).await.unwrap();
        assert!(connection.inner().nodelay().unwrap());
    }
}
