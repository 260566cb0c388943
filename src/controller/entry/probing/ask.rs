//! Asks a leader, again and again.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use lictor_core::{HttpProbe, ProbeRequest, ProbeRules, ProbeState};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::grpc;
use super::probed::Question;

const AGENT: &str = concat!("lictor/", env!("CARGO_PKG_VERSION"));

/// A client for probes: a redirect is an answer, no proxy stands between the operator and a pod, and no certificate is verified, because
/// kubelets verify none either.
///
/// # Errors
/// If the system lacks what a client needs.
pub(crate) fn probe_client() -> reqwest::Result<reqwest::Client> {
    builder().build()
}

fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .tls_certs_only([])
        .tls_danger_accept_invalid_certs(true)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        // object_store switches HTTP/2 on for all clients of the program.
        .http1_only()
        .pool_max_idle_per_host(0)
        .user_agent(AGENT)
}

/// Says of each name that it is the pod's, so that no name leads to another address.
struct AlwaysPod(IpAddr);

impl Resolve for AlwaysPod {
    fn resolve(&self, _: Name) -> Resolving {
        let address: Addrs = Box::new(std::iter::once(SocketAddr::new(self.0, 0)));
        Box::pin(std::future::ready(Ok(address)))
    }
}

/// A question, and how to send it.
struct Asker {
    ip: IpAddr,
    question: Question,
    limit: Duration,
    /// The client, or why there is none. A question with a host name has its own.
    http: Result<reqwest::Client, String>,
}

/// Probes for as long as `tell` returns true. Calls `tell` when the leader answers for the first time, begins to fail, or recovers.
pub(super) async fn ask_on(
    ip: IpAddr,
    questions: Vec<Question>,
    rules: ProbeRules,
    http: reqwest::Client,
    tell: impl Fn(Result<(), String>) -> bool,
) {
    let asker = |question| Asker::new(ip, question, rules.timeout, &http);
    let askers: Vec<_> = questions.into_iter().map(asker).collect();
    let mut ticks = interval(rules.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut state = ProbeState::default();
    let mut before = None;
    loop {
        ticks.tick().await;
        let found: Result<(), String> = join_all(askers.iter().map(Asker::ask)).await.into_iter().collect();
        let failed = state.observe(found.is_ok(), &rules);
        // A single missing answer is not yet a failure.
        let news = if failed { Some(true) } else { found.is_ok().then_some(false) };
        if news.is_none() || news == before {
            continue;
        }
        before = news;
        if !tell(if failed { found } else { Ok(()) }) {
            return;
        }
    }
}

impl Asker {
    fn new(ip: IpAddr, question: Question, limit: Duration, http: &reqwest::Client) -> Self {
        let named = matches!(&question.request, ProbeRequest::Http(get) if get.host.is_some());
        let own = || builder().dns_resolver(Arc::new(AlwaysPod(ip))).build().map_err(|error| cause(&error));
        let http = if named { own() } else { Ok(http.clone()) };
        Self { ip, question, limit, http }
    }

    /// Probes once.
    ///
    /// # Errors
    /// If the leader does not answer correctly: returns the address and the answer.
    async fn ask(&self) -> Result<(), String> {
        let asked = self.ask_pod().await;
        let container = self.question.container.as_deref();
        asked.map_err(|told| container.map_or_else(|| told.clone(), |name| format!("container {name}: {told}")))
    }

    async fn ask_pod(&self) -> Result<(), String> {
        let to = SocketAddr::new(self.ip, self.question.port.clone()?);
        let seconds = self.limit.as_secs();
        match &self.question.request {
            ProbeRequest::Http(get) => self.get(to, get).await,
            ProbeRequest::Tcp => match timeout(self.limit, TcpStream::connect(to)).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(format!("{to}: {error}")),
                Err(_) => Err(format!("{to}: no connection within {seconds} s")),
            },
            ProbeRequest::Grpc(service) => match timeout(self.limit, grpc::check(to, service, AGENT)).await {
                Ok(answer) => answer.map_err(|told| format!("grpc://{to}: {told}")),
                Err(_) => Err(format!("grpc://{to}: no answer within {seconds} s")),
            },
        }
    }

    async fn get(&self, to: SocketAddr, HttpProbe { tls, host, path, headers }: &HttpProbe) -> Result<(), String> {
        let scheme = if *tls { "https" } else { "http" };
        // What comes before the path must not be extended by it.
        let slash = if path.starts_with('/') { "" } else { "/" };
        let url = match host {
            Some(host) => format!("{scheme}://{host}:{}{slash}{path}", to.port()),
            None => format!("{scheme}://{to}{slash}{path}"),
        };
        let parsed = Url::parse(&url).map_err(|error| format!("{url}: {error}"))?;
        if host.is_some() && parsed.domain().is_none() {
            return Err(format!("{url}: host has to be a name"));
        }
        let mut request = self.http.as_ref().map_err(String::clone)?.get(parsed).timeout(self.limit);
        for (name, value) in headers {
            request = request.header(&**name, value.as_bytes());
        }
        let asked = if host.is_some() { format!("{url} at {}", to.ip()) } else { url };
        match request.send().await {
            Ok(answer) if answer.status().is_success() || answer.status().is_redirection() => Ok(()),
            Ok(answer) => Err(format!("{asked} answers {}", answer.status())),
            Err(error) if error.is_timeout() => Err(format!("{asked}: no answer within {} s", self.limit.as_secs())),
            Err(error) => Err(format!("{asked}: {}", cause(&error))),
        }
    }
}

/// The root cause of an error.
fn cause(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}

#[cfg(test)]
mod tests;
