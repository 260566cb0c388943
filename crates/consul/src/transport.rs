//! The transport of requests to Consul and answers from it.

use std::error::Error as _;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Certificate, Identity, Method, StatusCode, Url};

use super::settings::{Settings, SettingsError};

/// Carries requests to Consul.
pub trait Transport: Send + Sync {
    /// Sends a request, and reads the whole answer.
    fn send(&self, request: Sent) -> BoxFuture<'_, Result<Received, Broken>>;
}

/// A request, as it is sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The HTTP method.
    pub method: Method,
    /// The URL.
    pub url: Url,
    /// The token.
    pub token: Option<HeaderValue>,
    /// The body, as JSON.
    pub body: Option<Vec<u8>>,
    /// The time limit, if it is not the client's.
    pub timeout: Option<Duration>,
}

/// An answer, as it was received.
#[derive(Clone, Debug)]
pub struct Received {
    /// The HTTP status.
    pub status: StatusCode,
    /// The index for a blocking query.
    pub index: Option<u64>,
    /// The body, as JSON or text.
    pub body: Vec<u8>,
}

/// Why there is no complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The request could not be sent over any connection.
    Unsendable(String),
    /// The client had no connection, so it sent nothing.
    Unreachable(String),
    /// The request was sent, but no answer came in time.
    Late(String),
    /// The request may have been sent.
    Unanswered(String),
}

/// The transport over HTTP.
pub(super) struct Http(reqwest::Client);

impl Http {
    /// Creates a connection to the server that the settings name. If that server's certificate has another name, `base` gets that
    /// name.
    pub(super) fn new(settings: &Settings, base: &mut Url) -> Result<Self, SettingsError> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            // The caller decides whether to try again, because it knows what the request does.
            .retry(reqwest::retry::never())
            .no_proxy()
            // Another crate may switch HTTP/2 on for all clients of a program.
            .http1_only()
            .timeout(settings.timeout)
            // This is shorter than the whole limit, so a request that fails by this limit was certainly not sent.
            .connect_timeout(settings.timeout * 4 / 5)
            .tcp_keepalive(Duration::from_secs(15))
            .user_agent(concat!("lictor/", env!("CARGO_PKG_VERSION")));
        if let Some(ca) = &settings.ca {
            let certificates =
                Certificate::from_pem_bundle(ca).map_err(|error| SettingsError::Ca(innermost(&error)))?;
            if certificates.is_empty() {
                return Err(SettingsError::Ca("there is no certificate in it".into()));
            }
            builder = builder.tls_certs_only(certificates);
        } else if base.scheme() == "http" {
            // This empty list replaces the system's certificates, which need not exist.
            builder = builder.tls_certs_only([]);
        }
        if let Some((certificate, key)) = &settings.identity {
            let pem = [certificate.as_slice(), b"\n", key.as_slice()].concat();
            let identity = Identity::from_pem(&pem).map_err(|error| SettingsError::Identity(innermost(&error)))?;
            builder = builder.identity(identity);
        }
        if let Some(name) = settings.server_name.as_deref().filter(|_| base.scheme() == "https") {
            let wrong = || SettingsError::ServerName(name.to_owned());
            let host = base.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            base.set_host(Some(name)).map_err(|_| wrong())?;
            if base.domain().is_none() {
                return Err(wrong());
            }
            builder = builder.dns_resolver(Always(host));
        }
        builder.build().map(Self).map_err(|error| SettingsError::System(innermost(&error)))
    }
}

impl Transport for Http {
    fn send(&self, request: Sent) -> BoxFuture<'_, Result<Received, Broken>> {
        let Sent { method, url, token, body, timeout } = request;
        let mut request = self.0.request(method, url);
        if let Some(token) = token {
            request = request.header("x-consul-token", token);
        }
        if let Some(body) = body {
            // A complete body has its length in the header. Consul ignores some bodies without it.
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        if let Some(timeout) = timeout {
            request = request.timeout(timeout);
        }
        async move {
            let answer = request.send().await.map_err(broken)?;
            let status = answer.status();
            let index = answer.headers().get("x-consul-index").and_then(|index| index.to_str().ok()?.parse().ok());
            let body = answer.bytes().await.map_err(broken)?;
            Ok(Received { status, index, body: body.into() })
        }
        .boxed()
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is what an error is mapped by")]
fn broken(error: reqwest::Error) -> Broken {
    let text = chain(&error);
    if error.is_builder() {
        Broken::Unsendable(text)
    } else if error.is_connect() {
        // Only a connection that was never established counts, even if it timed out while it was being established.
        Broken::Unreachable(text)
    } else if error.is_timeout() {
        Broken::Late(text)
    } else {
        Broken::Unanswered(text)
    }
}

/// Returns an error's text with its causes, because the outermost only says "error sending request".
fn chain(error: &reqwest::Error) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if texts.last().is_none_or(|last| !last.contains(&text)) {
            texts.push(text);
        }
        source = cause.source();
    }
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}

fn innermost(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = cause.to_string();
        source = cause.source();
    }
    text
}

/// Resolves every name to the addresses of one host.
struct Always(String);

impl Resolve for Always {
    fn resolve(&self, _: Name) -> Resolving {
        let host = self.0.clone();
        Box::pin(async move {
            // The URL has the port.
            let found = tokio::task::spawn_blocking(move || (host.as_str(), 0).to_socket_addrs()).await??;
            Ok(Box::new(found.collect::<Vec<SocketAddr>>().into_iter()) as Addrs)
        })
    }
}
