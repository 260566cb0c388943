//! Server-sent events, as `lictor observe` and `lictor agent` send them.

use reqwest::{Client, Response};
use serde_json::Value;
use tokio::time::timeout;

use crate::PATIENCE;

/// A stream of events.
pub struct Events {
    response: Response,
    text: String,
}

/// An event of a stream.
#[derive(Debug)]
pub struct Event {
    pub id: Option<String>,
    pub name: Option<String>,
    pub data: Value,
}

/// Makes a client for servers of this machine.
pub fn client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().tls_certs_only([]).no_proxy().build().expect("a client can be made")
}

impl Events {
    /// Opens a stream of events. `last` is the id of the last event that was received.
    pub async fn open(client: &Client, url: &str, last: Option<&str>) -> Self {
        let request = last.into_iter().fold(client.get(url), |request, id| request.header("Last-Event-ID", id));
        let response = request.send().await.expect("it answers");
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-cache");
        Self { response, text: String::new() }
    }

    /// Returns the next event, or `None` if the stream has ended.
    pub async fn next(&mut self) -> Option<Event> {
        // Keep-alive messages do not count.
        timeout(PATIENCE, self.read()).await.expect("the stream says something")
    }

    async fn read(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| {
                    let value = event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                    value.map(|value| value.trim_start().to_owned())
                };
                let data = field("data").map(|data| serde_json::from_str(&data).expect("data is JSON"));
                let event = data.map(|data| Event { id: field("id"), name: field("event"), data });
                if event.is_some() {
                    return event;
                }
                continue;
            }
            let chunk = self.response.chunk().await.expect("the stream can be read")?;
            self.text += std::str::from_utf8(&chunk).expect("it is text");
        }
    }
}
