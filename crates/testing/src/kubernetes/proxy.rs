//! A proxy in front of the API server, which records an operator's requests, and delays those that a test wants to arrive late.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::{Request, State};
use axum::response::Response;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Cluster, eventually};

/// A request, as it came in.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    /// The path with the query.
    pub path: String,
    /// The body; null if there is none, or if it is not JSON.
    pub body: Value,
}

impl Asked {
    /// Returns whether it writes to a pod.
    pub fn writes_pod(&self) -> bool {
        self.method != "GET" && self.path.contains("/pods/")
    }

    /// Returns whether it makes a pod the leader.
    pub fn promotes(&self) -> bool {
        self.writes_pod() && self.body["metadata"]["labels"]["role"] == "leader"
    }

    /// Returns whether it enables a workload.
    pub fn enables(&self) -> bool {
        let enabled = self.body["metadata"]["annotations"]["lictor.dev/enabled"] == "true";
        self.method == "PATCH"
            && ["/apis/apps/", "/apis/batch/"].iter().any(|group| self.path.starts_with(group))
            && enabled
    }

    /// Returns the name of its object.
    pub fn name(&self) -> &str {
        self.path.split('?').next().and_then(|path| path.rsplit('/').next()).unwrap_or_default()
    }
}

/// The API server's answer to a delayed request.
#[derive(Debug)]
pub struct Answered {
    pub asked: Asked,
    pub status: u16,
    pub body: Value,
}

/// A proxy over plain HTTP, with all rights.
pub struct Proxy {
    shared: Arc<Shared>,
    kubeconfig: PathBuf,
    server: JoinHandle<()>,
}

/// Returns whether a request is held back.
type Rule = Box<dyn FnMut(&Asked) -> bool + Send>;

struct Shared {
    client: Client,
    asked: Mutex<Vec<Asked>>,
    holds: Mutex<Rule>,
    held: Mutex<Vec<(Asked, http::Request<Vec<u8>>)>>,
}

impl Proxy {
    /// Starts a proxy at its own port.
    pub async fn start(cluster: &Cluster) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).expect("the kubeconfig can be read");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.expect("the kubeconfig can be used");
        // The proxy passes the API server's answers on unchanged.
        config.default_retry = false;
        let client = Client::try_from(config).expect("a client can be made");
        let shared = Arc::new(Shared {
            client,
            asked: Mutex::default(),
            holds: Mutex::new(Box::new(|_| false)),
            held: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let router = axum::Router::new().fallback(pass).with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.expect("the proxy serves") });
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let kubeconfig = std::env::temp_dir().join(format!("lictor-test-proxy-{}-{number}", std::process::id()));
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        });
        std::fs::write(&kubeconfig, content.to_string()).expect("a file can be written");
        Self { shared, kubeconfig, server }
    }

    /// Returns a kubeconfig that leads to the proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns all requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Holds back such requests from now on. Their senders get no answer.
    pub fn hold(&self, rule: impl FnMut(&Asked) -> bool + Send + 'static) {
        *self.shared.holds.lock().unwrap() = Box::new(rule);
    }

    /// Waits until a request is held back. Returns the first one.
    pub async fn held(&self) -> Asked {
        eventually("a request is held back", || async {
            let held = self.shared.held.lock().unwrap().first().map(|(asked, _)| asked.clone());
            held.ok_or_else(|| format!("{:#?}", self.asked()))
        })
        .await
    }

    /// Returns how many requests are held back.
    pub fn holding(&self) -> usize {
        self.shared.held.lock().unwrap().len()
    }

    /// Sends all requests that were held back, in order. Returns the API server's answers.
    pub async fn deliver_late(&self) -> Vec<Answered> {
        let held = std::mem::take(&mut *self.shared.held.lock().unwrap());
        let mut answers = Vec::new();
        for (asked, request) in held {
            let answer = self.shared.client.send(request.map(Into::into)).await.expect("the API server answers");
            let status = answer.status().as_u16();
            let body = answer.into_body().collect_bytes().await.expect("the answer can be read");
            answers.push(Answered { asked, status, body: serde_json::from_slice(&body).unwrap_or_default() });
        }
        answers
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a request can be read").to_vec();
    let asked = Asked {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    for own in ["host", "connection"] {
        parts.headers.remove(own);
    }
    let request = http::Request::from_parts(parts, body);
    shared.asked.lock().unwrap().push(asked.clone());
    let holds = (*shared.holds.lock().unwrap())(&asked);
    if holds {
        shared.held.lock().unwrap().push((asked, request));
        std::future::pending::<()>().await;
        unreachable!("nobody answers");
    }
    match shared.client.send(request.map(Into::into)).await {
        // The body is streamed, because a watch never ends.
        Ok(answer) => answer.map(axum::body::Body::new),
        Err(error) => {
            let body = axum::body::Body::from(error.to_string());
            Response::builder().status(502).body(body).expect("an answer")
        }
    }
}
