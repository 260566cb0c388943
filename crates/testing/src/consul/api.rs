//! A client of an HTTP API for tests, with paths and JSON.

use std::time::Duration;

use reqwest::{Client, ClientBuilder, Method, RequestBuilder};
use serde_json::Value;

/// An HTTP API. Each test creates its own, because connections belong to the runtime that made them.
pub struct Api {
    http: Client,
    base: String,
    token: Option<String>,
}

/// The API's answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// The header X-Consul-Index.
    pub index: Option<u64>,
    pub text: String,
}

impl Answer {
    /// Returns the body as JSON, or null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// Returns the body of an answer that must be a success.
    pub fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.json()
    }
}

impl Api {
    /// Creates a client for a base such as `http://127.0.0.1:8500`.
    pub fn at(base: &str) -> Self {
        Self::with(base, plain().tls_certs_only([]), None)
    }

    /// Creates a client over another HTTP client, for example one with a certificate, and with a Consul token.
    pub fn with(base: &str, client: ClientBuilder, token: Option<String>) -> Self {
        Self { http: client.build().expect("a client can be made"), base: base.to_owned(), token }
    }

    /// Makes a request with a limit of 5 s, which the caller can change.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base)).timeout(Duration::from_secs(5));
        match &self.token {
            Some(token) => request.header("X-Consul-Token", token),
            None => request,
        }
    }

    /// Sends a request. Returns an error with its causes if no complete answer comes.
    pub async fn send(request: RequestBuilder) -> Result<Answer, String> {
        let answer = request.send().await.map_err(|error| format!("{error:?}"))?;
        let index = answer.headers().get("X-Consul-Index").and_then(|index| index.to_str().ok()?.parse().ok());
        let status = answer.status().as_u16();
        let text = answer.text().await.map_err(|error| format!("{error:?}"))?;
        Ok(Answer { status, index, text })
    }

    pub async fn get(&self, path: &str) -> Result<Answer, String> {
        Self::send(self.request(Method::GET, path)).await
    }

    pub async fn put(&self, path: &str, body: impl ToString) -> Result<Answer, String> {
        Self::send(self.request(Method::PUT, path).body(body.to_string())).await
    }

    pub async fn post(&self, path: &str, body: impl ToString) -> Result<Answer, String> {
        Self::send(self.request(Method::POST, path).body(body.to_string())).await
    }

    pub async fn delete(&self, path: &str) -> Result<Answer, String> {
        Self::send(self.request(Method::DELETE, path)).await
    }
}

/// Returns an HTTP client that uses no proxy and no certificates of the system.
pub fn plain() -> ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none())
}
