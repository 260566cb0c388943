//! The clients of a process: kube's own client, and this project's for Consul, over links to the simulated servers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use lictor_consul::{Broken, Connect, Received, Sent, Settings, Transport};
use tokio::sync::mpsc;

use super::api::{self, ApiServer};
use super::consul::{self, Consul};
use super::link::{Link, Lost, Mishap};

type Answered = UnsyncBoxBody<Bytes, Infallible>;

/// What is told of each request that was carried out: method, path, body, status.
pub type Listener = Arc<dyn Fn(&str, &str, &[u8], u16) + Send + Sync>;

/// What leaves a process, or comes back to it.
pub enum Passing<'a> {
    Sent(&'a api::Request),
    /// Only what is no watch, and succeeded.
    Answered(&'a api::Request, &'a serde_json::Value),
}

/// Is told of each request when the process sends it, and when the process is answered.
pub type Witness = Arc<dyn Fn(&Passing<'_>) + Send + Sync>;

/// A client of an API server.
pub fn kubernetes(server: Arc<ApiServer>, link: Arc<Link>, listener: Listener) -> kube::Client {
    kubernetes_seen(server, link, listener, Arc::new(|_| {}))
}

/// The same, and somebody looks on.
pub fn kubernetes_seen(server: Arc<ApiServer>, link: Arc<Link>, listener: Listener, witness: Witness) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        ask(server.clone(), link.clone(), listener.clone(), witness.clone(), request)
    });
    kube::Client::new(service, "default")
}

async fn ask(
    server: Arc<ApiServer>,
    link: Arc<Link>,
    listener: Listener,
    witness: Witness,
    request: http::Request<Body>,
) -> Result<http::Response<Answered>, kube::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes().to_vec();
    let request = Arc::new(api::Request {
        method: parts.method.to_string(),
        path: parts.uri.path().into(),
        query: pairs(parts.uri.query().unwrap_or_default()),
        applies: parts.headers.get("content-type").is_some_and(|kind| kind == "application/apply-patch+yaml"),
        body,
    });
    witness(&Passing::Sent(&request));
    let (sent, way) = (request.clone(), link.clone());
    let answer = link
        .carry(move |mishap| {
            let request = &sent;
            let answer = denial(request, &way).unwrap_or_else(|| serve(&server, request, mishap));
            let status = if let api::Answer::Whole(status, _) = &answer { *status } else { 200 };
            listener(&request.method, &request.path, &request.body, status);
            async move { answer }.boxed()
        })
        .await;
    match answer {
        Ok(api::Answer::Whole(status, value)) => {
            if status == 200 {
                witness(&Passing::Answered(&request, &value));
            }
            Ok(response(status, Full::new(Bytes::from(value.to_string())).boxed_unsync()))
        }
        Ok(api::Answer::Watch(watch, seconds)) => Ok(response(200, stream(*watch, seconds, link))),
        Err(lost) => Err(kube::Error::Service(format!("{lost:?}").into())),
    }
}

/// What the server answers instead of carrying it out.
fn denial(request: &api::Request, way: &Link) -> Option<api::Answer> {
    let denied = way.weather().denied?;
    let (verb, resource) = request.about()?;
    let reason = if denied.status == 429 { "TooManyRequests" } else { "Forbidden" };
    denied.hits(verb, &resource).then(|| api::refused(denied.status, reason, "denied"))
}

fn serve(server: &Arc<ApiServer>, request: &api::Request, mishap: Mishap) -> api::Answer {
    match mishap {
        Mishap::None => server.handle(request),
        Mishap::After => {
            let _ = server.handle(request);
            api::refused(500, "InternalError", "etcdserver: request timed out")
        }
        Mishap::Before(1) => api::refused(429, "TooManyRequests", "too many requests"),
        Mishap::Before(_) if request.method == "PATCH" => {
            api::refused(409, "Conflict", "please apply your changes again")
        }
        Mishap::Before(_) => api::refused(500, "InternalError", "etcdserver: leader changed"),
    }
}

fn response(status: u16, body: Answered) -> http::Response<Answered> {
    http::Response::builder().status(status).body(body).unwrap()
}

/// A watch's events, a line each.
fn stream(mut watch: api::Watch, seconds: u64, link: Arc<Link>) -> Answered {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let told = async {
            while let Some(events) = watch.next().await {
                link.bring(watch.resource()).await;
                for event in events {
                    link.lag(watch.resource()).await;
                    let frame = http_body::Frame::data(Bytes::from(event));
                    if sender.send(Ok(frame)).is_err() {
                        return;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = told => {}
            () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
            () = sender.closed() => {}
        }
    });
    let frames = futures::stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    StreamBody::new(frames).boxed_unsync()
}

/// How Consul is reached.
pub fn connect(server: Arc<Consul>, link: Arc<Link>, listener: Listener) -> Connect {
    connect_by(server, link, listener, |way| way)
}

/// How Consul is reached, where something else is on the way.
pub fn connect_by(
    server: Arc<Consul>,
    link: Arc<Link>,
    listener: Listener,
    by: impl Fn(Arc<dyn Transport>) -> Arc<dyn Transport> + Send + Sync + 'static,
) -> Connect {
    Arc::new(move |settings: &Settings| {
        let way =
            Way { server: server.clone(), link: link.clone(), listener: listener.clone(), limit: settings.timeout };
        lictor_consul::Client::simulated(settings, by(Arc::new(way)))
    })
}

struct Way {
    server: Arc<Consul>,
    link: Arc<Link>,
    listener: Listener,
    limit: Duration,
}

impl Transport for Way {
    fn send(&self, request: Sent) -> BoxFuture<'_, Result<Received, Broken>> {
        let sent = consul::Request {
            method: request.method.to_string(),
            path: request.url.path().trim_start_matches("/v1/").into(),
            query: pairs(request.url.query().unwrap_or_default()),
            body: request.body.unwrap_or_default(),
        };
        let (server, listener, link) = (self.server.clone(), self.listener.clone(), self.link.clone());
        let carried = self.link.carry(move |mishap| {
            let (server, listener, sent) = (server.clone(), listener.clone(), sent.clone());
            let denied = link.weather().unwritable.then(|| consul::denied(&sent)).flatten();
            async move {
                let failed = |body: &str| consul::Answer { status: 500, index: None, body: body.into() };
                let answer = match mishap {
                    Mishap::None | Mishap::After if denied.is_some() => denied.unwrap(),
                    Mishap::None => server.handle(&sent).await,
                    Mishap::Before(_) => failed("No cluster leader"),
                    Mishap::After => {
                        server.handle(&sent).await;
                        failed("rpc error making call: EOF")
                    }
                };
                listener(&sent.method, &sent.path, &sent.body, answer.status);
                answer
            }
            .boxed()
        });
        let limit = request.timeout.unwrap_or(self.limit);
        async move {
            match tokio::time::timeout(limit, carried).await {
                Ok(Ok(consul::Answer { status, index, body })) => {
                    Ok(Received { status: reqwest::StatusCode::from_u16(status).unwrap(), index, body })
                }
                Ok(Err(Lost::Refused)) => Err(Broken::Unreachable("connection refused".into())),
                Ok(Err(Lost::Broken)) => Err(Broken::Unanswered("connection reset".into())),
                Err(_) => Err(Broken::Late("operation timed out".into())),
            }
        }
        .boxed()
    }
}

fn pairs(query: &str) -> BTreeMap<String, String> {
    if query.is_empty() {
        return BTreeMap::new();
    }
    let pairs = reqwest::Url::parse(&format!("http://simulated/?{query}")).unwrap();
    pairs.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}
