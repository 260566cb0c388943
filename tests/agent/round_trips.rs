//! How many answers an agent waits for, one after the other, before it leads. The proxy in here gives no answer before all requests of a
//! round trip have arrived.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use lictor_testing::consul::{Consul, eventually};

use crate::Bench;

#[derive(Clone)]
struct Proxy {
    consul: String,
    client: reqwest::Client,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Starts one. Returns its address.
    async fn start(consul: &Consul) -> (Self, String) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().expect("a client can be made");
        let proxy = Self { consul: consul.address().to_owned(), client, asked: Arc::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(pass).with_state(proxy.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (proxy, address)
    }

    fn count(&self, request: &str) -> usize {
        self.asked.lock().expect("nobody panics with it").iter().filter(|asked| *asked == request).count()
    }

    /// Waits until a request has arrived this many times.
    async fn arrives(&self, request: &str, times: usize) {
        eventually(&format!("{request} arrives {times} times"), || async {
            if self.count(request) >= times { Ok(()) } else { Err(format!("{:?}", self.asked)) }
        })
        .await;
    }
}

const CREATE: &str = "PUT /v1/session/create";
const SESSIONS: &str = "GET /v1/session/node/lictor-agents";
const TRANSACTION: &str = "PUT /v1/txn";

async fn pass(State(proxy): State<Proxy>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let what = format!("{} {}", parts.method, parts.uri.path());
    proxy.asked.lock().expect("nobody panics with it").push(what.clone());
    let first = [CREATE.to_owned(), SESSIONS.to_owned(), "GET the key".to_owned()];
    if what.starts_with("GET /v1/kv/") {
        proxy.asked.lock().expect("nobody panics with it").push("GET the key".to_owned());
    }
    for other in &first {
        proxy.arrives(other, 1).await;
    }
    if what == SESSIONS && proxy.count(SESSIONS) > 1 {
        proxy.arrives(TRANSACTION, 1).await;
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let body = to_bytes(body, usize::MAX).await.expect("a body");
    let sent = proxy.client.request(parts.method, format!("{}{path}", proxy.consul)).body(body).send().await;
    let answer = sent.expect("Consul answers");
    let mut response = Response::builder().status(answer.status());
    for (name, value) in answer.headers().iter().filter(|(name, _)| name.as_str().starts_with("x-consul")) {
        response = response.header(name, value);
    }
    response.body(Body::from(answer.bytes().await.expect("a body"))).expect("a response")
}

/// Shows A5: what an earlier process left is looked for while the session is made.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_leads_after_two_round_trips() {
    let consul = Consul::shared();
    // The first one of all also registers the node that sessions belong to.
    let before = Bench::new("round-trips-before");
    let mut first = before.agent(consul, "one", &[], &Bench::worker(""));
    before.begins(1).await;
    first.stop().await;

    let bench = Bench::new("round-trips");
    let (proxy, address) = Proxy::start(consul).await;
    let _agent = bench.agent_of(&address, "one", &[], &["sh", "-c", &Bench::worker("")]);
    bench.begins(1).await;
    proxy.arrives(SESSIONS, 2).await;
    assert_eq!([CREATE, SESSIONS, TRANSACTION].map(|request| proxy.count(request)), [1, 2, 1], "{:?}", proxy.asked);
}
