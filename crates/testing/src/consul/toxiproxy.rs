//! Toxiproxy, a proxy that disturbs the connections to a server.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::Api;
use super::api::plain;
use super::held::Held;

/// A Toxiproxy for one test, with room for 19 proxies.
pub struct Toxiproxy {
    api: String,
    free: Mutex<Vec<String>>,
    held: Arc<Held>,
}

/// One of its proxies, which works until both it and its Toxiproxy are dropped.
pub struct ToxicProxy {
    address: String,
    api: Api,
    path: String,
    _held: Arc<Held>,
}

impl Toxiproxy {
    /// Starts Toxiproxy, which ends when this and its proxies have been dropped.
    pub fn start() -> Self {
        let held = Arc::new(Held::start("toxiproxy.sh", &[&format!("test-{}", std::process::id())]));
        let (_, api) = held.variable().expect("hack/toxiproxy.sh starts Toxiproxy");
        let (_, listen) = held.variable().expect("hack/toxiproxy.sh tells what is free");
        let free = listen.split_whitespace().map(str::to_owned).collect();
        Self { api: format!("http://{api}"), free: Mutex::new(free), held }
    }

    /// Creates a proxy for a socket such as `127.0.0.1:8500`.
    pub async fn proxy(&self, upstream: &str) -> ToxicProxy {
        let address = self.free.lock().expect("nobody has panicked").pop().expect("room for one more proxy");
        // Toxiproxy closes idle connections, possibly while a request is on its way, so each request has its own connection.
        let client = plain().tls_certs_only([]).pool_max_idle_per_host(0);
        let (api, path) = (Api::with(&self.api, client, None), format!("/proxies/{address}"));
        let proxy = json!({"name": address, "listen": address, "upstream": upstream, "enabled": true});
        api.post("/proxies", proxy).await.expect("Toxiproxy answers").ok();
        ToxicProxy { address, api, path, _held: self.held.clone() }
    }
}

impl ToxicProxy {
    /// Returns the address at which it listens, for example `127.0.0.1:20001`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Cuts all connections, and refuses new ones.
    pub async fn disable(&self) {
        self.post("", json!({"enabled": false})).await;
    }

    /// Accepts connections again.
    pub async fn enable(&self) {
        self.post("", json!({"enabled": true})).await;
    }

    /// Leads to another server from now on. Present connections end.
    pub async fn lead_to(&self, upstream: &str) {
        self.post("", json!({"upstream": upstream})).await;
    }

    /// Adds a toxic, also to present connections, in the form of Toxiproxy's API: `{"type": "latency", "stream": "upstream", "attributes":
    /// {"latency": 1000}}`. Without a `stream` the toxic applies to data from the server.
    pub async fn toxic(&self, toxic: Value) {
        self.post("/toxics", toxic).await;
    }

    /// Removes all toxics.
    pub async fn clear(&self) {
        let path = format!("{}/toxics", self.path);
        let toxics = self.api.get(&path).await.expect("Toxiproxy answers").ok();
        for toxic in toxics.as_array().into_iter().flatten() {
            let name = toxic["name"].as_str().expect("a toxic has a name");
            self.api.delete(&format!("{path}/{name}")).await.expect("Toxiproxy answers").ok();
        }
    }

    async fn post(&self, path: &str, body: Value) {
        self.api.post(&format!("{}{path}", self.path), body).await.expect("Toxiproxy answers").ok();
    }
}
