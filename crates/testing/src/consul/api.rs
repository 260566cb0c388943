//! An HTTP API, as a test speaks to it: with paths and JSON.

use std::time::Duration;

use reqwest::{Client, ClientBuilder, Method, RequestBuilder};
use serde_json::Value;

/// An HTTP API. Each test makes its own: connections belong to the runtime in which they were made.
pub struct Api {
    http: Client,
    base: String,
    token: Option<String>,
}

/// What it said.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// X-Consul-Index.
    pub index: Option<u64>,
    pub text: String,
}

impl Answer {
    /// The body; null if it is no JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// The body of an answer that says that all is well.
    pub fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.json()
    }
}

impl Api {
    /// One at a base such as `http://127.0.0.1:8500`.
    pub fn at(base: &str) -> Self {
        Self::with(base, plain().tls_certs_only([]), None)
    }

    /// The same with a client of one's own, such as one with a certificate, and a token of Consul.
    pub fn with(base: &str, client: ClientBuilder, token: Option<String>) -> Self {
        Self { http: client.build().expect("a client can be made"), base: base.to_owned(), token }
    }

    /// A request that waits for 5 s, unless told otherwise.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base)).timeout(Duration::from_secs(5));
        match &self.token {
            Some(token) => request.header("X-Consul-Token", token),
            None => request,
        }
    }

    /// Sends a request; an error, with its causes, if no whole answer comes.
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

/// A client that asks nobody but whom it is told to.
pub fn plain() -> ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none())
}
