//! Consul answers with 429, 503 or 500. Its own limits cause that. A stub in front of it changes answers to requests that were
//! carried out. The 500 of servers without a quorum is in [`servers`](super::servers).

use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use lictor_testing::Link;
use lictor_testing::consul::{Consul, Kind};
use lictor_testing::kubernetes::{Cluster, eventually};
use serde_json::json;
use tokio::task::JoinHandle;

use super::super::member::{Member, entry, sessions};
use super::{Side, TTL, within};

/// Consul's own limits, first on connections, then on requests.
async fn limits(consul: &Consul) {
    let proxy = Link::to(consul.server(1).socket());
    let member = Member::new("limits", "west", &format!("http://{}", proxy.address()), json!({})).await;
    let (side, leader) = Side::led(member, &["a", "b"]).await;
    let requests = "request_limits { mode = \"enforcing\", read_rate = 0.001, write_rate = 0.001 }";
    let connections = "http_max_conns_per_client = 1";
    for (what, limit, reason) in [("connections", connections, "Busy"), ("requests", requests, "SessionsFail")] {
        let session = sessions(consul, &side.member).await;
        consul.server(1).configure(&format!("limits {{ {limit} }}\n"));
        let began = Instant::now();
        // Consul counts a connection when it is opened, and lictor has open ones already.
        proxy.disable().await;
        proxy.enable().await;
        let message = side.member.wait_class("False", reason).await;
        assert!(message.contains("429") || message.contains("503"), "{what}: {message}");
        eprintln!(
            "measured: limits on {what}, the class says so after {:.1} s: {message}",
            began.elapsed().as_secs_f64()
        );
        if what == "requests" {
            side.member.lab.wait_condition("web", "Elected", "False", "StoreLost").await;
            let took = side.recorder.demoted_at().await.expect("it was demoted").duration_since(began);
            assert!(took < TTL, "demoted after {took:?}");
        }
        consul.server(1).configure("");
        let began = Instant::now();
        side.member.lab.wait_leader(&leader).await;
        side.member.lab.wait_elected("web").await;
        within(&format!("limits on {what}, led when they are lifted"), began);
        side.member.wait_class("True", "Answers").await;
        assert_eq!(sessions(consul, &side.member).await, session);
    }
    side.recorder.assert_promises().await;
}

/// The answer to the next transaction: its status, and whether the transaction is carried out.
type Rule = Arc<Mutex<Option<(u16, bool)>>>;

/// A stub in front of Consul that answers a transaction as a test says.
struct Stub {
    address: String,
    next: Rule,
    server: JoinHandle<()>,
}

#[derive(Clone)]
struct Behind {
    http: reqwest::Client,
    base: String,
    next: Rule,
}

impl Stub {
    async fn start(base: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().expect("a client can be made");
        let next = Rule::default();
        let behind = Behind { http, base: base.into(), next: next.clone() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = format!("http://{}", listener.local_addr().expect("it has an address"));
        let router = axum::Router::new().fallback(pass).with_state(behind);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.expect("the stub serves") });
        Self { address, next, server }
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn pass(State(behind): State<Behind>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a request can be read").to_vec();
    let rule = if parts.uri.path() == "/v1/txn" { behind.next.lock().unwrap().take() } else { None };
    let answer = |status: u16| Response::builder().status(status);
    if let Some((status, false)) = rule {
        return answer(status).body(Body::from("try again later")).expect("an answer");
    }
    let url = format!("{}{}", behind.base, parts.uri);
    let sent = behind.http.request(parts.method, url).body(body).send().await;
    if let Some((status, true)) = rule {
        return answer(status).body(Body::from("leadership lost while committing log")).expect("an answer");
    }
    let Ok(sent) = sent else { return answer(502).body(Body::empty()).expect("an answer") };
    let mut builder = answer(sent.status().as_u16());
    if let Some(index) = sent.headers().get("x-consul-index") {
        builder = builder.header("x-consul-index", index);
    }
    builder.body(Body::from(sent.bytes().await.unwrap_or_default())).expect("an answer")
}

/// A failover's transaction is refused; or it is carried out, and the answer says that it may not have been.
async fn answers() {
    let stub = Stub::start(Consul::shared().address()).await;
    let member = Member::new("answers", "west", &stub.address, json!({})).await;
    let (side, mut leader) = Side::led(member, &["a", "b"]).await;
    for (number, (status, done)) in
        [(500, true), (503, true), (500, false), (503, false), (429, false)].into_iter().enumerate()
    {
        side.member.lab.ready_pods(&[&format!("p{number}")]).await;
        *stub.next.lock().unwrap() = Some((status, done));
        let began = Instant::now();
        side.member.lab.kill_pod(&leader).await;
        leader = side.member.lab.wait_any_leader().await;
        within(&format!("answers, {status}, carried out: {done}"), began);
        assert_eq!(*stub.next.lock().unwrap(), None, "it was answered so");
        eventually("the lock says so", || async {
            let found = entry(Consul::shared(), &side.member.key()).await.unwrap_or_default();
            if found["Value"]["holder"]["pod"] == json!(leader) { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
        side.member.lab.wait_elected("web").await;
    }
    assert_eq!(side.recorder.assert_promises().await, 6);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for sessions to end"]
async fn what_consul_answers_with_429_503_and_500_is_tried_again_or_demotes_in_time() {
    // Starting them blocks this thread.
    let consul = Consul::start(Kind::Dev);
    let _ = (Consul::shared(), Cluster::shared());
    tokio::join!(limits(&consul), answers());
}
